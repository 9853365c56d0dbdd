"""Cases of Kafka's cleaner tests, named by their numbers in `tests/programs/compat/CASES.md`."""

from random import Random

import pytest

from streamlog.cleaner import round as cleaning_round
from streamlog.cleaner.choosing import find_cleanable
from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import CorruptRecordError, InvalidRequestError
from streamlog.fs.api import OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.batch import RecordBatch
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.layout import LENGTH_OFFSET
from streamlog.records.record import IsolationLevel, Record, TimestampType
from streamlog.records.validate import AppendOrigin
from streamlog.root.partition_log import PartitionLog
from streamlog.segment import indexed_records
from tests.support.cleaning import clean

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
PRODUCER = 7


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def fs(clock: ManualClock) -> MemoryFileSystem:
    made = MemoryFileSystem(clock=clock)
    made.make_directory("/logs")
    return made


def open_log(fs: MemoryFileSystem, clock: ManualClock, **settings: object) -> PartitionLog:
    config = LogConfig.from_properties(settings)
    return PartitionLog.open(PATH, config=config, fs=fs, clock=clock, random=Random(1))


def record(key: str | None, value: bytes | None = b"x" * 20) -> Record:
    return Record(None if key is None else key.encode(), value, (), NOW)


def batches(log: PartitionLog, end: int) -> list[RecordBatch]:
    found, at = [], 0
    while at < end:
        info = log.read(at)
        found += [each for each in info.batches() if isinstance(each, RecordBatch)]
        at = info.next_offset
    return [each for each in found if each.base_offset < end]


def test_039_a_batch_of_append_time_keeps_it_when_a_part_goes(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock, **{"message.timestamp.type": "LogAppendTime"}) as log:
        log.append([record("a"), record("b")])
        log.roll()
        clock.advance(5000)
        log.append([record("a")])
        log.roll()
        clean(fs, clock, log)
        [first, _] = batches(log, log.log_end_offset)
        [kept] = first.records()
    assert (first.timestamp_type, first.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW)
    assert (kept.offset, kept.key, kept.timestamp) == (1, b"b", NOW)


def test_193_what_was_aborted_stays_so_where_its_marker_lies_behind_what_is_cleaned(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log:
        builder = BatchBuilder(
            producer_id=PRODUCER, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        for each in (record("a", b"aborted"), record("b", b"aborted")):
            builder.append(each)
        log.append([record("a", b"before")])
        log.append_as_leader(builder.build())
        marker_base = log.roll()
        marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
        log.append_as_leader(
            build_marker(marker, producer_id=PRODUCER, producer_epoch=0, timestamp=NOW),
            origin=AppendOrigin.COORDINATOR,
        )
        log.append([record("c")])
        log.roll()
        part = find_cleanable(
            log, None, config=log.config, now_ms=clock.now_ms(), held_from=marker_base
        )
        assert part.end_offset == marker_base
        for cleanable in (part, None):
            clean(fs, clock, log, cleanable=cleanable)
            committed = log.read(0, isolation=IsolationLevel.READ_COMMITTED)
            assert next(each.value for each in committed.records()) == b"before"
            assert b"aborted" not in {each.value for each in committed.records()}


def test_195_a_batch_at_the_end_of_a_round_stays_though_it_is_empty(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log:
        log.append([record("a")])
        log.append([record(None)])
        end = log.roll()
        report = clean(fs, clock, log)
        assert (report.end_offset, report.records_written) == (end, 1)
        assert [(each.last_offset, each.count) for each in batches(log, end)] == [(0, 1), (1, 0)]
        log.append([record("b")])
        log.roll()
        clean(fs, clock, log, checkpoint=end)
        assert [each.base_offset for each in batches(log, log.log_end_offset)] == [0, 2]


def test_198_a_record_larger_than_what_is_read_at_once_stays_whole(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    large = bytes(3 * cleaning_round.CHUNK_SIZE)
    with open_log(fs, clock, **{"max.message.bytes": 1 << 24}) as log:
        log.append([record("a")])
        log.append([record("large", large)])
        log.append([record("a", b"last")])
        log.roll()
        clean(fs, clock, log)
        found = [each for batch in batches(log, log.log_end_offset) for each in batch.records()]
    assert [(each.offset, each.value) for each in found] == [(1, large), (2, b"last")]


@pytest.mark.parametrize("length", [0x7FFFFFFF, 0, -1])
def test_198_a_length_that_cannot_be_ends_the_round(
    fs: MemoryFileSystem, clock: ManualClock, length: int
) -> None:
    with open_log(fs, clock) as log:
        for _ in range(4):
            log.append([record("a")])
        log.roll()
        second = log.segments[0].translate_offset(1)
        assert second is not None
        with fs.open(log.segments[0].path, OpenMode.WRITE) as file:
            file.pwrite(length.to_bytes(4, "big", signed=True), second.position + LENGTH_OFFSET)
        names = fs.list(PATH)
        with pytest.raises(CorruptRecordError) as caught:
            clean(fs, clock, log)
        assert caught.value.position == second.position
        assert fs.list(PATH) == names


def test_199_a_round_ends_where_the_next_segment_begins_whatever_is_missing_before(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log:
        log.append([record("a")])
        log.append([record("a")])
        log.roll()
        builder = BatchBuilder(base_offset=100, partition_leader_epoch=log.leader_epoch)
        builder.append(record("b")._replace(offset=100))
        log.append_as_follower(builder.build())
        bases = log.segments.base_offsets
        report = clean(fs, clock, log)
        assert report.end_offset == bases[-1]
        log.roll()
        assert clean(fs, clock, log, checkpoint=report.end_offset).end_offset == 101
        assert [each.base_offset for each in batches(log, 101)] == [1, 100]


@pytest.mark.parametrize("checkpoint", [0, 2, 10_000])
def test_201_a_checkpoint_outside_of_the_log_is_its_start(
    fs: MemoryFileSystem, clock: ManualClock, checkpoint: int
) -> None:
    with open_log(fs, clock) as log:
        for _ in range(6):
            log.append([record("a")])
        log.roll()
        log.delete_records(3)
        found = find_cleanable(log, checkpoint, config=log.config, now_ms=clock.now_ms())
        assert (found.first_dirty_offset, found.end_offset) == (3, 6)
        assert clean(fs, clock, log, checkpoint=checkpoint).end_offset == 6


def test_206_a_result_too_large_for_a_segment_is_refused_and_the_log_stays(
    fs: MemoryFileSystem, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tombstone makes its batch be written anew, and larger: that is how a segment grows."""
    with open_log(fs, clock) as log:
        log.append([record("a")])
        log.append([record("b")])
        log.roll()
        names, before = fs.list(PATH), batches(log, 2)
        monkeypatch.setattr(indexed_records, "MAX_SEGMENT_SIZE", log.segments[0].size - 1)
        with pytest.raises(InvalidRequestError, match="exceeds the limits of the segment"):
            clean(fs, clock, log)
        assert [each.buffer for each in batches(log, 2)] == [each.buffer for each in before]
        assert sorted(name for name in fs.list(PATH) if name in names) == sorted(names)
