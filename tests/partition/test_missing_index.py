"""Index files that a disk refused: whoever opens the log for writing next makes what is missing."""

import errno
from collections.abc import Iterator
from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import StreamLogError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem, Moment
from streamlog.fs.memory import MemoryFileSystem
from streamlog.health.findings import Finding
from streamlog.health.verify import verify
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
INDEXES = (".index", ".timeindex")


def opened(fs: FileSystem) -> PartitionLog:
    config = LogConfig(internal_segment_bytes=600, index_interval_bytes=100)
    return PartitionLog.open(PATH, config=config, fs=fs, clock=ManualClock(NOW), random=Random(1))


def directory() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("/logs")
    return fs


def write(log: PartitionLog, first: int, count: int) -> None:
    for number in range(first, first + count):
        log.append([Record(b"%d" % number, b"v" * 80, (), NOW + number)])


def work(fs: FileSystem) -> None:
    """Fill three segments, the last one to its half, and close the log."""
    with opened(fs) as log:
        write(log, 0, 8)


def faults() -> Iterator[Fault]:
    fs = FaultyFileSystem(directory())
    work(fs)
    for number, operation in enumerate(fs.operations, 1):
        if operation.path.endswith(INDEXES):
            for code in (errno.EIO, errno.ENOSPC):
                yield Fault(at=number, errno=code)
    for suffix in INDEXES:
        for name in ("create", "pwrite"):
            for at in (1, 2, 3):
                yield Fault(
                    at=at,
                    operation=name,
                    path_suffix=suffix,
                    errno=errno.ENOSPC,
                    moment=Moment.TORN,
                    is_lasting=True,
                )


def findings(fs: MemoryFileSystem) -> list[Finding]:
    found: list[Finding] = []
    verify(fs, PATH, found.append, is_deep=True)
    return found


def test_opening_for_writing_makes_index_files_that_a_disk_refused() -> None:
    count = 0
    for fault in faults():
        fs = directory()
        is_written = True
        try:
            work(FaultyFileSystem(fs, fault))
        except StreamLogError:
            is_written = False
        with opened(fs) as log:
            assert log.log_end_offset == 8 or not is_written
            assert findings(fs) == [], fault
        assert findings(fs) == [], fault
        count += 1
    assert count > 20


@pytest.mark.parametrize("suffix", INDEXES)
def test_opening_for_writing_makes_an_index_that_was_removed(suffix: str) -> None:
    fs = directory()
    work(fs)
    names = [name for name in fs.list(PATH) if name.endswith(suffix)]
    contents = {}
    for name in names:
        with fs.open(f"{PATH}/{name}", OpenMode.READ) as file:
            contents[name] = file.pread(1 << 20, 0)
        fs.remove(f"{PATH}/{name}")
    opened(fs).close()
    for name, content in contents.items():
        with fs.open(f"{PATH}/{name}", OpenMode.READ) as file:
            assert file.pread(1 << 20, 0) == content
    assert findings(fs) == []
