"""Isolation levels: what a reader sees of open, committed and aborted transactions."""

from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.errors import InvalidRequestError
from streamlog.fs.memory import MemoryFileSystem
from streamlog.log.partition_log import PartitionLog
from streamlog.log.reader import LogReader
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import IsolationLevel, Record
from streamlog.records.validate import AppendOrigin

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


def test_read_committed_leaves_out_what_an_aborted_transaction_wrote(fs: MemoryFileSystem) -> None:
    def transactional(number: int, producer: int, sequence: int) -> bytes:
        builder = BatchBuilder(
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        builder.append(record(number))
        return builder.build()

    def marker(kind: ControlRecordType, producer: int) -> bytes:
        ending = EndTransactionMarker(kind, coordinator_epoch=0)
        return build_marker(ending, producer_id=producer, producer_epoch=0, timestamp=NOW)

    with open_log(fs) as log:
        log.append_as_leader(transactional(0, 7, 0))
        log.append_as_leader(transactional(1, 8, 0))
        log.append([record(2)])
        abort, commit = ControlRecordType.ABORT, ControlRecordType.COMMIT
        log.append_as_leader(marker(abort, 7), origin=AppendOrigin.COORDINATOR)
        log.append_as_leader(marker(commit, 8), origin=AppendOrigin.COORDINATOR)
        log.append_as_leader(transactional(5, 7, 1))
        log.append_as_leader(marker(commit, 7), origin=AppendOrigin.COORDINATOR)
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
