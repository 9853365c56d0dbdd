"""Retention and delete-records whose process dies, or whose disk is full, at any file operation.

Afterwards, the log starts at its old or its new start, nothing above that is lost, and one more run
removes all leftovers.
"""

import errno
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.memory import MemoryFileSystem
from streamlog.maintenance.retention import delete_old_segments
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from tests.support.crash import every_crash_point

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
COUNT = 5
CONFIG = LogConfig(internal_segment_bytes=150, index_interval_bytes=0, retention_ms=1000)

Deed = Callable[[FileSystem, PartitionLog, ManualClock], object]


def open_log(fs: FileSystem, clock: ManualClock) -> PartitionLog:
    return PartitionLog.open(
        PATH, config=CONFIG, fs=fs, clock=clock, random=Random(1), lock_timeout_ms=5
    )


def prepared() -> MemoryFileSystem:
    clock = ManualClock(NOW)
    fs = MemoryFileSystem(clock=clock)
    fs.make_directory("/logs")
    with open_log(fs, clock) as log:
        for number in range(COUNT):
            log.append([Record(None, b"value %d" % number * 9, (), NOW + 100 * number)])
    return fs


def run_retention(fs: FileSystem, log: PartitionLog, clock: ManualClock) -> None:
    delete_old_segments(log, clock)


def delete_three(fs: FileSystem, log: PartitionLog, clock: ManualClock) -> None:
    log.delete_records(3)


# operation, time, and the resulting log start
DEEDS = {
    "retention of some": (run_retention, NOW + 1250, 3),
    "retention of all": (run_retention, NOW + 9999, COUNT),
    "delete-records": (delete_three, NOW, 3),
}


def check_log(fs: MemoryFileSystem, time: int, starts: Sequence[int]) -> None:
    with LogReader.open(PATH, fs=fs) as reader:
        assert reader.log_start_offset in starts
        assert reader.log_end_offset == COUNT
    with open_log(fs, ManualClock(time)) as log:
        start = log.log_start_offset
        assert start in starts
        assert log.log_end_offset == COUNT
        found, at = [], start
        while at < COUNT:
            info = log.read(at, 1)
            found += [each.offset for each in info.records()]
            at = info.next_offset
        assert found == list(range(start, COUNT))
        assert not log.leader_epochs.entries or log.leader_epochs.entries[0].start_offset <= COUNT


def check_nothing_stays(fs: MemoryFileSystem) -> None:
    clock = ManualClock(NOW + 100_000)
    with open_log(fs, clock) as log:
        delete_old_segments(log, clock)
        assert (log.log_start_offset, log.segments.base_offsets) == (COUNT, [COUNT])
    clock.advance(60_001)
    open_log(fs, clock).close()
    allowed = {f"{COUNT:020d}{kind}" for kind in (".log", ".index", ".timeindex", ".snapshot")}
    allowed |= {"leader-epoch-checkpoint", "partition.metadata"}
    assert set(fs.list(PATH)) <= allowed


@pytest.mark.parametrize("deed", DEEDS)
def test_a_crash_leaves_the_log_as_before_or_as_after(deed: str) -> None:
    do, time, start = DEEDS[deed]

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        clock = ManualClock(time)
        log = open_log(fs, clock)
        do(fs, log, clock)
        acknowledged.append(start)
        log.close()

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        check_log(fs, time, acknowledged or [0, start])
        check_nothing_stays(fs)

    report = every_crash_point(workload, check, prepared=prepared(), seeds=range(1))
    assert report.states > 30


@pytest.mark.parametrize("deed", DEEDS)
def test_a_full_disk_leaves_the_log_as_before_or_as_after(deed: str) -> None:
    do, time, start = DEEDS[deed]
    at, is_done = 0, False
    while not is_done:
        at += 1
        inner, clock = prepared(), ManualClock(time)
        fs = FaultyFileSystem(inner, Fault(at=at, errno=errno.ENOSPC, is_lasting=True))
        try:
            do(fs, open_log(fs, clock), clock)
            is_done = True
        except StreamLogError:
            after = inner.crash_clone(Random(at), power=False)
            check_log(after, time, [0, start])
            check_nothing_stays(after)
    assert at > 5
