"""Isolation levels: what a reader sees of open, committed and aborted transactions."""

from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.errors import InvalidRequestError
from streamlog.fs.api import OpenMode
from streamlog.fs.files import read_file, write_file_atomically
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import IsolationLevel, Record
from streamlog.records.validate import AppendOrigin
from streamlog.root.partition_log import PartitionLog
from streamlog.segment.txn_index import TXN_ENTRY_SIZE

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"


@pytest.fixture
def fs() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("/logs")
    return fs


def open_log(fs: MemoryFileSystem) -> PartitionLog:
    return PartitionLog.open(PATH, fs=fs, clock=ManualClock(NOW), random=Random(1))


def record(number: int) -> Record:
    return Record(b"k%d" % number, b"v", (), NOW + number)


def test_read_committed_stops_at_an_open_transaction(fs: MemoryFileSystem) -> None:
    builder = BatchBuilder(producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(record(1))
    with open_log(fs) as log:
        log.append([record(0)])
        log.append_as_leader(builder.build())
        log.append([record(2)])
        assert (log.last_stable_offset, log.high_watermark) == (1, 3)
        committed = log.read(0, isolation="read_committed")
        assert [each.offset for each in committed.records()] == [0]
        with LogReader.open(PATH, fs=fs) as reader:
            assert reader.last_stable_offset == 1


def transactional(number: int, producer: int, sequence: int) -> bytes:
    builder = BatchBuilder(
        producer_id=producer, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )
    builder.append(record(number))
    return builder.build()


def end_transaction(log: PartitionLog, kind: ControlRecordType, producer: int) -> None:
    ending = EndTransactionMarker(kind, coordinator_epoch=0)
    marker = build_marker(ending, producer_id=producer, producer_epoch=0, timestamp=NOW)
    log.append_as_leader(marker, origin=AppendOrigin.COORDINATOR)


ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT


def test_read_committed_leaves_out_what_an_aborted_transaction_wrote(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        log.append_as_leader(transactional(0, 7, 0))
        log.append_as_leader(transactional(1, 8, 0))
        log.append([record(2)])
        end_transaction(log, ABORT, 7)
        end_transaction(log, COMMIT, 8)
        log.append_as_leader(transactional(5, 7, 1))
        end_transaction(log, COMMIT, 7)
        everything = [each.offset for each in log.read(0).records()]
        committed = log.read(0, isolation=IsolationLevel.READ_COMMITTED)
        assert everything == [0, 1, 2, 5]
        assert [each.offset for each in committed.records()] == [1, 2, 5]
    with LogReader.open(PATH, fs=fs) as reader:
        found = reader.read(0, isolation="read_committed")
        assert [each.offset for each in found.records()] == [1, 2, 5]


def test_an_unknown_isolation_level_is_refused(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        log.append([record(0)])
    for open_it in (open_log, lambda fs: LogReader.open(PATH, fs=fs)):
        with (
            open_it(fs) as log,
            pytest.raises(InvalidRequestError, match="read_uncommitted or read_committed"),
        ):
            log.read(0, isolation="committed")


def committed_offsets(log: PartitionLog | LogReader) -> list[int]:
    return [each.offset for each in log.read(0, isolation="read_committed").records()]


def lose_index_entries(fs: MemoryFileSystem, base_offset: int, *, kept: int) -> None:
    """Leave a transaction index as it is in the moment after its log file has grown."""
    path = f"{PATH}/{base_offset:020d}.txnindex"
    with fs.open(path, OpenMode.WRITE) as file:
        file.truncate(kept * TXN_ENTRY_SIZE)


def test_an_aborted_transaction_is_left_out_before_its_index_entry_is_written(
    fs: MemoryFileSystem,
) -> None:
    """A broker appends the marker to the log first, and its index entry afterwards."""
    with open_log(fs) as log, LogReader.open(PATH, fs=fs) as following:
        log.append_as_leader(transactional(0, 7, 0))
        end_transaction(log, ABORT, 7)
        log.append_as_leader(transactional(2, 7, 1))
        assert committed_offsets(following) == []
        end_transaction(log, ABORT, 7)
        log.append([record(4)])
        lose_index_entries(fs, 0, kept=1)
        with LogReader.open(PATH, fs=fs) as reader:
            assert reader.last_stable_offset == 5
            assert committed_offsets(reader) == [4]
            following.refresh()
            assert committed_offsets(following) == [4]
            assert [each.first_offset for each in reader.unindexed_aborts] == [2]
        lose_index_entries(fs, 0, kept=0)
        with LogReader.open(PATH, fs=fs) as reader:
            assert committed_offsets(reader) == [4]


def test_an_abort_that_its_index_has_by_now_is_looked_up_there(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log, LogReader.open(PATH, fs=fs) as following:
        log.append_as_leader(transactional(0, 7, 0))
        end_transaction(log, ABORT, 7)
        log.roll()
        log.append_as_leader(transactional(2, 7, 1))
        end_transaction(log, ABORT, 7)
        log.append([record(4)])
        whole = read_file(fs, f"{PATH}/{2:020d}.txnindex", max_size=1000)
        lose_index_entries(fs, 2, kept=0)
        following.refresh()
        assert committed_offsets(following) == []
        assert following.read(2, isolation="read_committed").columns().offset.tolist() == [4]
        assert len(following.unindexed_aborts) == 1
        write_file_atomically(fs, f"{PATH}/{2:020d}.txnindex", whole)
        assert following.unindexed_aborts == ()
        assert following.read(2, isolation="read_committed").columns().offset.tolist() == [4]


def test_a_handle_sees_the_aborts_that_another_one_wrote_before_it_rolled(
    fs: MemoryFileSystem,
) -> None:
    with open_log(fs) as one, open_log(fs) as other:
        one.append_as_leader(transactional(0, 7, 0))
        end_transaction(one, ABORT, 7)
        one.append_as_leader(transactional(2, 7, 1))
        assert committed_offsets(one) == []
        end_transaction(other, ABORT, 7)
        other.roll()
        other.append([record(4)])
        one.catch_up()
        assert committed_offsets(one) == []
        assert [each.offset for each in one.read(4, isolation="read_committed").records()] == [4]
