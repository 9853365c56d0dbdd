"""A process that appends and dies, or loses power, at any file operation.

Afterwards, everything that a flush confirmed is there; without a power cut, everything acknowledged
is. Batches are complete or missing, offsets have no gap, the partition accepts the next append, and
a second opening changes nothing more.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.fs.api import FileSystem
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from tests.support.crash import every_crash_point

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
BOOT = MemoryFileSystem().boot_id()


class Acknowledged(NamedTuple):
    """An acknowledged append, or an acknowledged flush (`last_offset` of the flushed records)."""

    kind: str
    last_offset: int


def open_log(fs: FileSystem, config: LogConfig) -> PartitionLog:
    return PartitionLog.open(
        PATH, config=config, fs=fs, clock=ManualClock(NOW), random=Random(1), lock_timeout_ms=5
    )


def pair(number: int) -> list[Record]:
    return [Record(b"k%d" % number, b"v%d" % n * 9, (), NOW + number) for n in range(2)]


def values(fs: FileSystem) -> list[tuple[int, bytes | None, bytes | None]]:
    found = []
    with LogReader.open(PATH, fs=fs) as reader:
        at = reader.log_start_offset
        while at < reader.log_end_offset:
            info = reader.read(at)
            found += [(each.offset, each.key, each.value) for each in info.records()]
            at = info.next_offset
    return found


def expected(count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (2 * number + n, each.key, each.value)
        for number in range(count)
        for n, each in enumerate(pair(number))
    ]


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(),
        LogConfig(flush_messages=1),
        LogConfig(internal_segment_bytes=300, index_interval_bytes=50),
        LogConfig(internal_segment_bytes=300, index_interval_bytes=0, flush_messages=4),
    ],
    ids=["defaults", "flush each", "small segments", "small segments, flush 4"],
)
def test_no_crash_loses_promised_records(config: LogConfig) -> None:
    prepared = MemoryFileSystem()
    open_log(prepared, config).close()

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        log = open_log(fs, config)
        for number in range(6):
            info = log.append(pair(number))
            acknowledged.append(Acknowledged("append", info.last_offset))
            acknowledged.append(Acknowledged("flush", log.recovery_point - 1))
            if number == 3:
                log.roll()
                log.flush()
                acknowledged.append(Acknowledged("flush", log.recovery_point - 1))
        log.close()
        acknowledged.append(Acknowledged("flush", 11))

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        lost_power = fs.boot_id() != prepared.boot_id()
        with open_log(fs, config) as log:
            end = log.log_end_offset
            epoch = log.leader_epoch
        found = values(fs)
        assert end % 2 == 0 and found == expected(end // 2)
        kept = [each for each in acknowledged if each.kind == "flush" or not lost_power]
        assert end > max((each.last_offset for each in kept), default=-1)
        with open_log(fs, config) as log:
            assert (log.log_end_offset, log.leader_epoch) == (end, epoch)
            assert log.append(pair(end // 2)).base_offset == end
        assert values(fs) == expected(end // 2 + 1)

    report = every_crash_point(workload, check, prepared=prepared, seeds=range(2))
    assert report.states > 100


def test_a_crash_during_recovery_recovers_as_well() -> None:
    config = LogConfig(internal_segment_bytes=400, index_interval_bytes=50)
    prepared = MemoryFileSystem()
    log = open_log(prepared, config)
    for number in range(5):
        log.append(pair(number))
    torn = prepared.crash_clone(Random(3), power=True, loss="nothing")

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        with open_log(fs, config) as again:
            acknowledged.append(again.log_end_offset)

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        with open_log(fs, config) as again:
            assert again.log_end_offset == 10
        assert values(fs) == expected(5)

    every_crash_point(workload, check, prepared=torn, seeds=())
