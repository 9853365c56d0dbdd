"""Handovers that die at any file operation: repeating the command completes them without loss.

`STREAMLOG_CRASH_SEEDS=20` tests twenty random power cuts per crash point, besides the two extremes.
"""

import os
from collections.abc import Sequence
from random import Random
from typing import Any

from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.handover.from_kafka import FromKafka
from streamlog.protocol.metadata_records import PartitionRecord
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from tests.support.commits import LOG, NOW, ROOT, TOPIC, Scene, rows_of
from tests.support.crash import every_crash_point
from tests.support.handover import (
    CLOCK,
    bootstrap_records,
    from_kafka,
    play_broker,
    to_kafka,
)

SEEDS = range(int(os.environ.get("STREAMLOG_CRASH_SEEDS", "0")))


def prepared_root() -> MemoryFileSystem:
    """Return a root with two commits, decided and not retired."""
    scene = Scene()
    scene.commit(0)
    scene.commit(1)
    scene.manager.close()
    return scene.memory


def check_whole(fs: FileSystem, expected: list[bytes]) -> None:
    """Check that a path is a root with the expected records that accepts writes."""
    with LogManager.open(ROOT, fs=fs, clock=CLOCK, random=Random(3)) as manager:
        assert manager.topics() == [TOPIC]
        log = manager.log(TOPIC, 0)
        assert [each.value for each in log.read(0).records()] == expected
        log.append([Record(None, b"more", timestamp=NOW)])


def test_to_kafka_can_be_resumed_after_any_crash() -> None:
    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        to_kafka(fs)
        acknowledged.append("handed over")

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        is_over = fs.stat(f"{ROOT}/.streamlog") is None
        assert is_over or not acknowledged
        if is_over:
            told = bootstrap_records(fs)
            assert sum(isinstance(each, PartitionRecord) for each in told) == 2
        to_kafka(fs)
        play_broker(fs)
        from_kafka(fs)
        check_whole(fs, rows_of(0, 0) + rows_of(1, 0))

    report = every_crash_point(workload, check, prepared=prepared_root(), seeds=SEEDS)
    assert report.states > 100


def test_from_kafka_can_be_resumed_after_any_crash() -> None:
    fs = prepared_root()
    to_kafka(fs)
    play_broker(fs, values=1)
    from_kafka(fs)  # keep this broker's metadata aside; the next one's replaces it
    to_kafka(fs)
    play_broker(fs, values=1)

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        from_kafka(fs)
        acknowledged.append("taken back")

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        plan = FromKafka(LogRoot.at(ROOT, fs=fs, clock=CLOCK)).plan()
        assert not (acknowledged and plan.steps)
        from_kafka(fs)
        assert from_kafka(fs).steps == ()
        assert fs.stat(f"{ROOT}/.streamlog/kafka/__cluster_metadata-0/{LOG}") is not None
        check_whole(fs, [*rows_of(0, 0), *rows_of(1, 0), b"the broker's 0", b"the broker's 0"])
        to_kafka(fs)

    report = every_crash_point(workload, check, prepared=fs, seeds=SEEDS)
    assert report.states > 50
