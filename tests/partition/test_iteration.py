"""Iterating over a partition's records yields all of them: no read's limit ends it in silence."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from random import Random

import pytest

from streamlog.clock import ManualClock, epoch_ms
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptRecordError,
    InvalidOptionError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import Record
from streamlog.records.validate import AppendOrigin
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from tests.support.segments import read_bytes, write_bytes

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
BOTH = pytest.mark.parametrize("kind", [PartitionLog, LogReader])


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def open_log(fs: MemoryFileSystem, config: LogConfig | None = None) -> PartitionLog:
    return PartitionLog.open(PATH, config=config, fs=fs, clock=ManualClock(NOW), random=Random(1))


def opened(kind: type, fs: MemoryFileSystem) -> PartitionLog | LogReader:
    return open_log(fs) if kind is PartitionLog else LogReader.open(PATH, fs=fs)


def ten(fs: MemoryFileSystem) -> None:
    """Ten records, two a batch, their times a second apart from `NOW` on."""
    with open_log(fs, LogConfig(internal_segment_bytes=250)) as log:
        for n in range(0, 10, 2):
            log.append([Record(None, b"%d" % i, (), NOW + 1000 * i) for i in (n, n + 1)])
        assert len(log.segments) > 1


def numbers(log: PartitionLog | LogReader, *arguments: int, **options: object) -> list[int]:
    return [record.offset for record in log.records(*arguments, **options)]  # type: ignore[arg-type]


class Writer(ManualClock):
    """A clock during whose waits somebody does something."""

    def __init__(self, *deeds: Callable[[], object]) -> None:
        super().__init__(NOW)
        self.deeds = list(deeds)

    def sleep_ms(self, duration_ms: float) -> None:
        super().sleep_ms(duration_ms)
        if self.deeds:
            self.deeds.pop(0)()


@BOTH
def test_iterating_yields_every_record_however_many_megabytes_they_have(
    fs: MemoryFileSystem, kind: type
) -> None:
    with open_log(fs) as log:
        for start in range(0, 100_000, 5_000):
            log.append([Record(None, b"value %d" % n) for n in range(start, start + 5_000)])
        assert log.size > 1 << 20
    with opened(kind, fs) as log:
        assert [record.value for record in log] == [b"value %d" % n for n in range(100_000)]
        assert numbers(log, 99_998) == [99_998, 99_999]
        assert len(list(log.read(0).records())) < 100_000  # one read is one read


@BOTH
@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        ((3,), {}, range(3, 10)),
        ((3, 5), {}, range(3, 5)),
        ((3, 4), {}, range(3, 4)),
        ((5, 3), {}, ()),
        ((10,), {}, ()),
        ((), {"end_offset": 99}, range(10)),
        ((), {"start_timestamp": NOW + 3000}, range(3, 10)),
        ((), {"start_timestamp": NOW + 2001, "end_timestamp": NOW + 7000}, range(3, 7)),
        ((4,), {"end_timestamp": NOW + 99_000}, range(4, 10)),
        ((), {"start_timestamp": NOW + 99_000}, ()),
        ((), {"start_timestamp": datetime(2023, 11, 14, 22, 13, 25, tzinfo=timezone.utc)},
         range(5, 10)),
    ],
)  # fmt: skip
def test_ranges_of_offsets_and_of_times(
    fs: MemoryFileSystem, kind: type, arguments: tuple[int], options: dict, expected: range
) -> None:
    ten(fs)
    with opened(kind, fs) as log:
        assert numbers(log, *arguments, **options) == list(expected)


def test_the_end_is_the_one_of_the_call(fs: MemoryFileSystem) -> None:
    ten(fs)
    with open_log(fs) as log:
        for record in log:
            log.append([Record(None, record.value)])
        assert log.log_end_offset == 20


def test_what_another_writer_appended_is_there(fs: MemoryFileSystem) -> None:
    ten(fs)
    with open_log(fs) as log, LogReader.open(PATH, fs=fs) as reader:
        with open_log(fs) as other:
            other.append([Record(None, b"10")])
        assert numbers(log)[-1] == numbers(reader)[-1] == 10


@BOTH
@pytest.mark.parametrize("start", [-1, 11])
def test_a_start_outside_the_log_is_refused_at_the_call(
    fs: MemoryFileSystem, kind: type, start: int
) -> None:
    ten(fs)
    with opened(kind, fs) as log, pytest.raises(OffsetOutOfRangeError, match="outside the log"):
        log.records(start)


def test_settings_that_exclude_each_other_are_refused_at_the_call(fs: MemoryFileSystem) -> None:
    ten(fs)
    with open_log(fs) as log:
        for options in (
            {"start_offset": 1, "start_timestamp": 1},
            {"end_offset": 1, "end_timestamp": 1},
            {"follow": True, "end_timestamp": 1},
            {"timeout_ms": 1},
        ):
            with pytest.raises(InvalidOptionError):
                log.records(**options)
        with pytest.raises(InvalidRequestError, match="time zone"):
            log.records(start_timestamp=datetime(2026, 1, 1))
        with pytest.raises(InvalidRequestError, match="point in time"):
            log.records(start_timestamp="yesterday")


def test_a_datetime_between_two_milliseconds_is_the_later_one() -> None:
    at = datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=1))) + timedelta(hours=1)
    assert [epoch_ms(at + timedelta(microseconds=us)) for us in (0, 1, 1000, 1001)] == [0, 1, 1, 2]


def test_records_before_damage_come_before_its_error(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        for n in range(4):
            log.append([Record(None, b"value %d" % n)])
        third = log.segments[0].path
    data = read_bytes(fs, third)
    at = data.index(b"value 2")
    write_bytes(fs, third, data[:at] + b"X" + data[at + 1 :])
    with LogReader.open(PATH, fs=fs) as reader:
        found = []
        with pytest.raises(CorruptRecordError):
            for record in reader.records(0):
                found.append(record.value)
        assert found == [b"value 0", b"value 1"]
        assert [record.value for record in reader.records(0, 2)] == found


def test_aborted_and_open_transactions_are_left_out_unless_told(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        for producer in (1, 2):
            builder = BatchBuilder(
                producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True
            )
            builder.append(Record(None, b"of %d" % producer))
            log.append_as_leader(builder.build())
        marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
        log.append_as_leader(
            build_marker(marker, producer_id=1, producer_epoch=0, timestamp=NOW),
            origin=AppendOrigin.COORDINATOR,
        )
        assert list(log) == []
        assert [r.value for r in log.records(isolation="read_uncommitted")] == [b"of 1", b"of 2"]


@BOTH
def test_following_yields_what_is_appended_and_ends_when_nothing_comes(
    fs: MemoryFileSystem, kind: type
) -> None:
    ten(fs)
    with open_log(fs) as writer, opened(kind, fs) as log:
        clock = Writer(
            lambda: writer.append([Record(None, b"10")]), lambda: writer.append([Record(None)] * 2)
        )
        found = numbers(log, 8, follow=True, timeout_ms=250, clock=clock)
    assert found == [8, 9, 10, 11, 12]
    assert clock.monotonic_ms() == 100 + 100 + 250


@BOTH
def test_following_ends_at_an_end_offset(fs: MemoryFileSystem, kind: type) -> None:
    ten(fs)
    with open_log(fs) as writer, opened(kind, fs) as log:
        clock = Writer(lambda: writer.append([Record(None)] * 5))
        assert numbers(log, 9, 12, follow=True, clock=clock) == [9, 10, 11]


@pytest.mark.parametrize("is_recreated", [False, True])
def test_following_a_deleted_topic_ends_with_an_error(
    fs: MemoryFileSystem, is_recreated: bool
) -> None:
    fs.make_directory("/logs")
    with LogManager.open("/logs", create=True, fs=fs, clock=ManualClock(NOW)) as manager:
        manager.create_topic("orders", 1)

        def delete() -> None:
            manager.delete_topic("orders")
            if is_recreated:
                manager.create_topic("orders", 1)

        with (
            LogReader.open(PATH, fs=fs) as reader,
            pytest.raises(UnknownTopicError, match=r"deleted|gone"),
        ):
            list(reader.records(follow=True, clock=Writer(delete)))
