"""Slices: where batches lie, for those who send or read the bytes themselves."""

from collections.abc import Iterator
from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import OffsetOutOfRangeError
from streamlog.fs.api import OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.read import Slice
from streamlog.partition.reader import LogReader
from streamlog.records.batch import ScanStop, scan_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
CONFIG = LogConfig(internal_segment_bytes=4096, index_interval_bytes=128)


@pytest.fixture
def fs() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("/logs")
    return fs


@pytest.fixture
def log(fs: MemoryFileSystem) -> Iterator[PartitionLog]:
    """Several segments of batches with one to three records each."""
    random = Random(7)
    with PartitionLog.open(
        PATH, config=CONFIG, fs=fs, clock=ManualClock(NOW), random=random
    ) as log:
        for number in range(150):
            count = 1 + number % 3
            log.append([Record(b"k", bytes(random.randrange(120)), (), NOW) for _ in range(count)])
        assert len(log.segments) > 2
        yield log


def bytes_of(fs: MemoryFileSystem, found: Slice) -> bytes:
    with fs.open(found.file, OpenMode.READ) as file:
        return file.pread(found.size, found.position)


@pytest.mark.parametrize("max_bytes", [1, 300, 2000, 1 << 20])
def test_a_slice_holds_the_batches_that_a_read_returns(
    fs: MemoryFileSystem, log: PartitionLog, max_bytes: int
) -> None:
    with LogReader.open(PATH, fs=fs) as reader:
        for offset in range(log.log_end_offset):
            read = log.read(offset, max_bytes)
            for source in (log, reader):
                found = source.locate(offset, max_bytes)
                assert found is not None
                assert (found.file, found.position) == (read.path, read.position)
                data = bytes_of(fs, found)
                assert len(data) == found.size
                scan = scan_batches(data)
                assert data[: scan.consumed] == bytes(read.buffer)
                assert scan.stop in (ScanStop.END, ScanStop.PARTIAL)


def test_slices_one_after_the_other_are_the_whole_log(
    fs: MemoryFileSystem, log: PartitionLog
) -> None:
    offset, offsets = 0, []
    while (found := log.locate(offset, 700)) is not None:
        table = scan_batches(bytes_of(fs, found)).table
        offsets += [int(each) for each in table.base_offset]
        offset = int(table.last_offset[-1]) + 1
    assert offset == log.log_end_offset
    assert len(offsets) == 150
    assert offsets == sorted(set(offsets))


def test_outside_the_log_there_is_no_slice(log: PartitionLog, fs: MemoryFileSystem) -> None:
    end = log.log_end_offset
    with LogReader.open(PATH, fs=fs) as reader:
        for source in (log, reader):
            assert source.locate(end) is None
            for offset in (-1, end + 1):
                with pytest.raises(OffsetOutOfRangeError):
                    source.locate(offset)


def test_a_committed_slice_ends_where_a_transaction_is_open(
    log: PartitionLog, fs: MemoryFileSystem
) -> None:
    stable = log.log_end_offset
    builder = BatchBuilder(producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(Record(b"k", b"v", (), NOW))
    log.append_as_leader(builder.build())
    log.append([Record(b"k", b"after", (), NOW)])
    assert log.last_stable_offset == stable
    with LogReader.open(PATH, fs=fs) as reader:
        for source in (log, reader):
            assert source.locate(stable, isolation="read_committed") is None
            found = source.locate(stable - 1, isolation="read_committed")
            assert found is not None
            scan = scan_batches(bytes_of(fs, found))
            assert scan.stop is ScanStop.END
            assert int(scan.table.last_offset[-1]) == stable - 1
            beyond = source.locate(stable - 1)
            assert beyond is not None
            assert beyond.size > found.size
