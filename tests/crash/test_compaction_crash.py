"""A cleaner that dies, or whose disk fails, at any file operation of cleaning and swapping.

Afterwards, each key's last record is there at its offset, there are no new records, the records
that a completed round keeps are there, and one more round removes all leftovers.
"""

import contextlib
import errno
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from tests.support.cleaning import clean
from tests.support.crash import every_crash_point

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
KEYS = "abacbdaebcadc"
CONFIG = LogConfig(internal_segment_bytes=260, index_interval_bytes=50, file_delete_delay_ms=0)

Found = list[tuple[int, str]]


def open_log(fs: FileSystem) -> PartitionLog:
    return PartitionLog.open(
        PATH, config=CONFIG, fs=fs, clock=ManualClock(NOW), random=Random(1), lock_timeout_ms=5
    )


def prepared() -> MemoryFileSystem:
    fs = MemoryFileSystem(clock=ManualClock(NOW))
    fs.make_directory("/logs")
    with open_log(fs) as log:
        for key in KEYS:
            log.append([Record(key.encode(), b"v" * 9, (), NOW)])
        assert len(log.segments) > 3
    return fs


def records(fs: FileSystem) -> Found:
    found: Found = []
    with LogReader.open(PATH, fs=fs) as reader:
        at = reader.log_start_offset
        while at < reader.log_end_offset:
            info = reader.read(at)
            found += [(each.offset, (each.key or b"").decode()) for each in info.records()]
            at = info.next_offset
    return found


def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
    with open_log(fs) as log:
        clean(fs, ManualClock(NOW), log)
        acknowledged.append("cleaned")


BEFORE = list(enumerate(KEYS))


@pytest.fixture(scope="module")
def after() -> Found:
    fs = prepared()
    workload(fs, [])
    return records(fs)


def check_log(fs: MemoryFileSystem, after: Found, *, is_cleaned: bool) -> None:
    for _ in range(2):  # as a reader sees it, and again after recovery
        found = records(fs)
        assert set(after) <= set(found) <= set(BEFORE)
        assert {key: at for at, key in found} == {key: at for at, key in BEFORE}
        assert not is_cleaned or found == after
        with open_log(fs) as log:
            assert log.log_end_offset == len(KEYS)
    with open_log(fs) as log:
        clean(fs, ManualClock(NOW), log, checkpoint=0)
        log.append([Record(b"z", b"v", (), NOW)])
    assert records(fs) == [*after, (len(KEYS), "z")]
    assert [name for name in fs.list(PATH) if name.endswith((".cleaned", ".swap"))] == []


def test_no_crash_loses_the_last_record_of_a_key(after: Found) -> None:
    assert len(after) < len(BEFORE)

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        check_log(fs, after, is_cleaned="cleaned" in acknowledged)

    report = every_crash_point(workload, check, prepared=prepared(), seeds=range(2))
    assert report.states > 100


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["full disk", "EIO"])
def test_a_failing_disk_leaves_the_log_before_or_after(after: Found, number: int) -> None:
    counted = FaultyFileSystem(prepared())
    workload(counted, [])
    for at in range(1, len(counted.operations) + 1):
        inner = prepared()
        fs = FaultyFileSystem(inner, Fault(at=at, errno=number))
        with contextlib.suppress(StreamLogError):
            workload(fs, [])
        check_log(inner.crash_clone(Random(0), power=False), after, is_cleaned=False)
