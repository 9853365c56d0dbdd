"""Cleaning a partition: what stays, who else is at it, what is due and what is left alone."""

from pathlib import Path
from random import Random

import pytest

from streamlog.cleaner.cleaner import LogCleaner
from streamlog.cleaner.offset_map import BYTES_PER_KEY
from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import CorruptRecordError, UnavailableError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.checkpoints import read_cleaner_offsets
from streamlog.partition.locks import try_maintenance_lock
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from streamlog.topic import TopicPartition
from tests.support.cleaning import begin, clean

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
ORDERS = TopicPartition("orders", 0)
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}), internal_segment_bytes=400, index_interval_bytes=100
)


@pytest.fixture
def fs(clock: ManualClock) -> MemoryFileSystem:
    made = MemoryFileSystem(clock=clock)
    made.make_directory("/logs")
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def open_log(fs: FileSystem, clock: ManualClock, config: LogConfig = CONFIG) -> PartitionLog:
    return PartitionLog.open(PATH, config=config, fs=fs, clock=clock, random=Random(1))


def write(log: PartitionLog, keys: str, value: bytes | None = b"x" * 20) -> None:
    """Append a batch of one record for each letter."""
    for key in keys:
        log.append([Record(key.encode(), value, (), NOW)])


def keys_in(log: PartitionLog | LogReader, start: int | None = None) -> list[tuple[int, str]]:
    """Return offset and key of all records."""
    at, found = log.log_start_offset if start is None else start, []
    while at < log.log_end_offset:
        info = log.read(at)
        found += [(each.offset, (each.key or b"").decode()) for each in info.records()]
        at = info.next_offset
    return found


def test_the_last_record_of_each_key_stays_at_its_offset(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log:
        write(log, "abcabcabdabe" * 3)
        end, active = log.log_end_offset, log.segments.active.base_offset
        report = clean(fs, clock, log)
        last = {key: at for at, key in enumerate("abcabcabdabe" * 3) if at < active}
        expected = sorted((at, key) for key, at in last.items())
        found = keys_in(log)
        assert [each for each in found if each[0] < active] == expected
        assert log.log_end_offset == end
        assert (report.is_finished, report.end_offset) == (True, active)
        assert read_cleaner_offsets(LogRoot.at("/logs", fs=fs)) == {ORDERS: active}
    with open_log(fs, clock) as again:
        assert keys_in(again) == found


def test_a_map_too_small_takes_several_rounds_and_loses_nothing(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log:
        write(log, "abcdefghij" * 4)
        active, rounds, checkpoint = log.segments.active.base_offset, 0, 0
        while checkpoint < active:
            report = clean(fs, clock, log, checkpoint=checkpoint, memory=5 * BYTES_PER_KEY)
            assert report.keys <= 4
            assert report.is_map_full == (report.end_offset < active)
            assert report.end_offset > checkpoint
            checkpoint, rounds = report.end_offset, rounds + 1
        assert rounds > 5
        last = {key: at for at, key in enumerate("abcdefghij" * 4)}
        assert {key: at for at, key in keys_in(log)} == last
        clean(fs, clock, log, checkpoint=0)
        below = [each for each in keys_in(log) if each[0] < active]
        assert len(below) == len({key for _, key in below})


def test_a_round_goes_on_where_it_paused(fs: MemoryFileSystem, clock: ManualClock) -> None:
    with open_log(fs, clock) as log:
        write(log, "abc" * 12)
        cleaning = begin(fs, clock, log)
        steps = 1
        while not cleaning.go_on(lambda: True).is_finished:
            write(log, "z")
            steps += 1
        assert steps > 5
        before = [key for at, key in keys_in(log) if at < cleaning.report.end_offset]
        assert sorted(before) == ["a", "b", "c"]


def test_a_reader_in_the_middle_of_a_replaced_segment_reads_on(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log, LogReader.open(PATH, fs=fs) as reader:
        write(log, "abc" * 12)
        reader.refresh()
        before = keys_in(reader)
        halfway = reader.read(before[len(before) // 3][0])
        bases = reader.segments.base_offsets
        clock.advance(1)
        clean(fs, clock, log)
        assert reader.segments.base_offsets == bases
        assert keys_in(reader, halfway.next_offset) == [
            each for each in before if each[0] >= halfway.next_offset
        ]
        reader.refresh()
        assert keys_in(reader) == keys_in(log) != before


def test_a_reader_that_never_opened_a_replaced_segment_skips_nothing(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log:
        write(log, "abc" * 12)
        log.flush()
        with LogReader.open(PATH, fs=fs) as reader:
            clean(fs, clock, log)
            assert keys_in(reader) == keys_in(log)


def test_another_writer_sees_what_replaced_its_segments(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log, open_log(fs, clock) as other:
        write(log, "abc" * 6)
        write(other, "abc" * 6)
        assert keys_in(other)
        clean(fs, clock, log)
        write(other, "d")
        log.catch_up()
        assert keys_in(other) == keys_in(log)
        assert len(keys_in(log)) < 37


def test_segments_deleted_meanwhile_end_the_round_and_nothing_is_renamed(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log:
        write(log, "abc" * 12)
        cleaning = begin(fs, clock, log)
        cleaning.go_on(lambda: True)
        log.truncate_to(2)
        names = [name for name in fs.list(PATH) if name.endswith(".log")]
        with pytest.raises(UnavailableError, match="deleted or replaced during cleaning"):
            cleaning.go_on(lambda: False)
        assert [name for name in fs.list(PATH) if name.endswith(".log")] == names
        assert keys_in(log) == [(0, "a"), (1, "b")]


def test_a_log_that_is_cut_is_cleaned_again_from_there(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log:
        write(log, "abc" * 12)
        report = clean(fs, clock, log)
        log.truncate_to(report.end_offset)
        assert read_cleaner_offsets(LogRoot.at("/logs", fs=fs)) == {ORDERS: report.end_offset}
        log.truncate_to(report.end_offset - 2)
        assert read_cleaner_offsets(LogRoot.at("/logs", fs=fs)) == {ORDERS: report.end_offset - 2}


def test_tombstones_stay_for_their_time_and_then_go(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    config = LogConfig(internal_segment_bytes=400, delete_retention_ms=1000)
    with open_log(fs, clock, config) as log:
        write(log, "ab")
        write(log, "a", value=None)
        write(log, "c" * 9)
        log.roll()
        first = clean(fs, clock, log)
        assert "a" in {key for _, key in keys_in(log)}
        write(log, "d")
        log.roll()
        clock.advance(999)
        second = clean(fs, clock, log, checkpoint=first.end_offset)
        assert "a" in {key for _, key in keys_in(log)}
        write(log, "e")
        log.roll()
        clock.advance(1)
        clean(fs, clock, log, checkpoint=second.end_offset)
        assert [key for _, key in keys_in(log)] == ["b", "c", "d", "e"]


def test_damage_is_refused_and_nothing_is_written(fs: MemoryFileSystem, clock: ManualClock) -> None:
    with open_log(fs, clock) as log:
        write(log, "abc" * 12)
        with fs.open(log.segments[0].path, OpenMode.WRITE) as file:
            file.pwrite(b"\xff", 100)
        names = fs.list(PATH)
        with pytest.raises(CorruptRecordError, match="no sound record batch"):
            clean(fs, clock, log)
        assert fs.list(PATH) == names


# ---- a root's cleaner ----------------------------------------------------------------------------
@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    manager = LogManager.open(tmp_path / "root", create=True)
    manager.create_topic("orders", configs={"cleanup.policy": "compact"})
    return manager


def test_a_topic_is_due_once_dirty_enough_and_cleaned_once(manager: LogManager) -> None:
    with manager, LogCleaner(manager, random=Random(1)) as cleaner:
        log = manager.log("orders", 0)
        write(log, "aaaa")
        assert not cleaner.cleanable(ORDERS).is_due
        log.roll()
        found = cleaner.cleanable(ORDERS)
        assert (found.is_due, found.ratio, found.end_offset) == (True, 1.0, 4)
        assert not cleaner.cleanable(ORDERS, held_from=0).is_due
        report = cleaner.clean(ORDERS)
        assert report is not None and report.is_finished
        assert (report.records_read, report.records_written) == (4, 1)
        assert not cleaner.cleanable(ORDERS).is_due
        assert keys_in(log) == [(3, "a")]
        again = cleaner.clean(ORDERS)
        assert again is not None and (again.is_finished, again.records_read) == (True, 0)


def test_two_cleaners_are_never_at_one_partition(manager: LogManager) -> None:
    with manager, LogCleaner(manager) as cleaner, LogCleaner(manager) as other:
        log = manager.log("orders", 0)
        write(log, "aaaa")
        log.roll()
        paused = cleaner.clean(ORDERS, should_pause=lambda: True)
        assert paused is not None and not paused.is_finished
        assert other.clean(ORDERS) is None
        cleaner.close()
        finished = other.clean(ORDERS)
        assert finished is not None and finished.is_finished
        lock = try_maintenance_lock(manager.log_root, ORDERS)
        assert lock is not None
        lock.release()


def test_a_damaged_partition_is_refused_and_noted(manager: LogManager) -> None:
    with manager, LogCleaner(manager) as cleaner:
        log = manager.log("orders", 0)
        write(log, "aaaa")
        log.roll()
        with manager.fs.open(log.segments[0].path, OpenMode.WRITE) as file:
            file.pwrite(b"\xff", 100)
        with pytest.raises(CorruptRecordError):
            cleaner.clean(ORDERS)
        assert list(cleaner.uncleanable) == [ORDERS]
