"""Handovers that die at any file operation: repeating the command completes them without loss.

`STREAMLOG_CRASH_SEEDS=20` tests twenty random power cuts per crash point, besides the two extremes.
"""

import os
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from streamlog.fs.api import FileKind, FileSystem, OpenMode
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.handover.from_kafka import FromKafka
from streamlog.partition.reader import LogReader
from streamlog.protocol.metadata_records import PartitionRecord
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.replica_roots import add_root
from streamlog.root.replica_set import ReplicaSet
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
    assert report.states > 30


VALUES = [b"0", b"1", b"2"]


def copied_root(*, leads: bool) -> MemoryFileSystem:
    """Return a copy of one root of a replica set, alone on its disk."""
    fs = MemoryFileSystem(clock=CLOCK)
    roots = [LogRoot(f"/r{number}", fs, CLOCK, Random(number)) for number in (1, 2, 3)]
    first = roots[0].path
    with LogManager.open(first, create=True, fs=fs, clock=CLOCK, random=Random(1)) as manager:
        for each in roots[1:]:
            add_root(roots[0], each.path)
        manager.create_topic(TOPIC, 2, replication_factor=3)
    with ReplicaSet.open(first, fs=fs, clock=CLOCK, random=Random(4)) as replicas:
        for value in VALUES:
            replicas.log(TOPIC, 0).append([Record(None, value, timestamp=NOW)])
    disk = MemoryFileSystem(clock=CLOCK)
    copy_tree(fs, roots[0 if leads else 1].path, disk, ROOT)
    disk.sync_directory("/")
    return disk


def copy_tree(fs: FileSystem, path: str, to: FileSystem, target: str) -> None:
    found = fs.stat(path)
    assert found is not None
    if found.kind is FileKind.DIRECTORY:
        to.make_directory(target)
        for name in fs.list(path):
            copy_tree(fs, f"{path}/{name}", to, f"{target}/{name}")
        to.sync_directory(target)
        return
    with fs.open(path, OpenMode.READ) as source, to.open(target, OpenMode.CREATE) as file:
        file.pwrite(source.pread(found.size, 0), 0)
        file.sync()


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_a_copy_of_a_replica_leaves_its_set_after_any_crash(leads: bool) -> None:
    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        to_kafka(fs)
        acknowledged.append("handed over")

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        is_over = fs.stat(f"{ROOT}/.streamlog") is None
        assert is_over or not acknowledged
        with LogReader.open(f"{ROOT}/{TOPIC}-0", fs=fs) as reader:
            assert reader.log_end_offset == len(VALUES)
        to_kafka(fs)
        for name in ("replicas.json", "replication"):
            assert fs.stat(f"{ROOT}.streamlog/{name}") is None
        play_broker(fs)
        from_kafka(fs)
        check_whole(fs, VALUES)

    report = every_crash_point(workload, check, prepared=copied_root(leads=leads), seeds=SEEDS)
    removals = [each for each in report.operations if each.name in ("remove", "remove_directory")]
    assert any(each.path.endswith("/replicas.json") for each in removals)
    assert any(each.path.endswith(f"/replication/{TOPIC}-1") for each in removals)
