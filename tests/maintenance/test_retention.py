"""What retention lets go: Kafka's decisions, and what becomes of the files and of who reads."""

import math
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import InvalidTimestampError, OffsetOutOfRangeError, PolicyViolationError
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.maintenance import retention
from streamlog.maintenance.retention import (
    RetainedLog,
    RetentionCandidate,
    delete_old_segments,
    plan_deletions,
)
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from streamlog.root.readers import write_progress
from tests.support.golden import json_lines

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
CASES = json_lines("E-decisions/retention.jsonl.gz")
SMALL = {"internal_segment_bytes": 150, "index_interval_bytes": 0}


class Facts(NamedTuple):
    """A segment of which only the facts are known."""

    base_offset: int
    size: int
    largest_timestamp: int


def facts(segment: dict[str, Any]) -> Facts:
    timestamp = segment["largestRecordTimestamp"]
    if timestamp is None or timestamp < 0:
        timestamp = segment["lastModified"]
    return Facts(segment["baseOffset"], segment["size"], timestamp)


# ---- decisions ------------------------------------------------------------------------------
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["case"]))
def test_decisions_are_kafkas(case: dict[str, Any]) -> None:
    segments = [facts(each) for each in case["segments"]]
    gone = plan_deletions(
        segments,
        config=LogConfig.from_properties(case["config"]),
        now_ms=case["now"],
        log_start_offset=case["logStartOffset"],
        log_end_offset=case["logEndOffset"],
        high_watermark=case["highWatermark"],
    )
    expected = case["expect"]
    assert len(gone) == expected["deleted"]
    left = [[each.base_offset, each.size] for each in segments[len(gone) :]]
    assert (left or [[case["logEndOffset"], 0]]) == [
        [each["baseOffset"], each["size"]] for each in expected["segments"]
    ]
    start = max([case["logStartOffset"], *(each.end_offset for each in gone)])
    assert start == expected["logStartOffset"]


def plan(
    sizes: list[int], *, held_from: int = 2**62, now_ms: int = 1000, **config: Any
) -> list[str]:
    segments = [Facts(at, size, at) for at, size in enumerate(sizes)]
    gone = plan_deletions(
        segments,
        config=LogConfig(**config),
        now_ms=now_ms,
        log_start_offset=0,
        log_end_offset=len(sizes),
        high_watermark=len(sizes),
        held_from=held_from,
    )
    assert [each.base_offset for each in gone] == list(range(len(gone)))
    return [each.reason for each in gone]


def test_each_deletion_tells_its_reason() -> None:
    assert plan([10] * 6, retention_bytes=40, retention_ms=996) == [
        *("retention.bytes", "retention.bytes", "retention.ms", "retention.ms")
    ]


def test_what_a_reader_needs_is_kept_but_not_what_nobody_may_read() -> None:
    assert plan([10] * 6, retention_bytes=0) == ["retention.bytes"] * 6
    assert plan([10] * 6, retention_bytes=0, held_from=4) == ["retention.bytes"] * 4
    assert plan([10] * 6, retention_bytes=0, retention_ms=1, held_from=0) == []


def test_a_clock_that_was_set_back_deletes_nothing() -> None:
    assert plan([10] * 3, retention_ms=0, now_ms=-(10**12)) == []


def test_a_registered_policy_is_asked_behind_kafkas(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_most_three(log: RetainedLog) -> Callable[[RetentionCandidate], bool]:
        spare = math.ceil(log.size / 10) - 3
        return lambda each: each.segment.base_offset < spare + 1

    monkeypatch.setattr(retention, "_policies", dict(retention._policies))
    retention.register_retention_policy("three", at_most_three)
    assert plan([10] * 6, retention_bytes=50, retention_ms=-1) == [
        "retention.bytes",
        *["three"] * 2,
    ]
    assert plan([10] * 6, retention_bytes=50, retention_ms=-1, held_from=2) == [
        *("retention.bytes", "three")
    ]


# ---- the files ------------------------------------------------------------------------------
def open_log(fs: MemoryFileSystem, clock: ManualClock, **config: Any) -> PartitionLog:
    settings = LogConfig(**{**SMALL, **config})
    return PartitionLog.open(PATH, config=settings, fs=fs, clock=clock, random=Random(1))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def fs(clock: ManualClock) -> MemoryFileSystem:
    made = MemoryFileSystem(clock=clock)
    made.make_directory("/logs")
    return made


def fill(log: PartitionLog, count: int, *, timestamp: int | None = None) -> None:
    for number in range(count):
        when = NOW + number if timestamp is None else timestamp
        log.append([Record(None, b"value %d" % number * 9, (), when)])


def offsets(reader: LogReader | PartitionLog) -> list[int]:
    found, at = [], reader.log_start_offset
    while at < reader.log_end_offset:
        info = reader.read(at, 1)
        found += [each.offset for each in info.records()]
        at = info.next_offset
    return found


def test_by_size_whole_segments_go_and_the_log_starts_behind_them(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log:
        fill(log, 5)
        size = log.segments[0].size
    with open_log(fs, clock, retention_bytes=2 * size) as log:
        gone = delete_old_segments(log, clock)
        assert [each.base_offset for each in gone] == [0, 1, 2]
        assert (log.log_start_offset, log.segments.base_offsets) == (3, [3, 4])
        assert delete_old_segments(log, clock) == []
    assert log.leader_epochs.entries[0].start_offset == 3
    left = {name for name in fs.list(PATH) if name.endswith((".log", ".snapshot"))}
    assert left == {f"{3:020d}.log", f"{4:020d}.log", f"{4:020d}.snapshot", f"{5:020d}.snapshot"}


def test_when_all_are_too_old_a_new_segment_takes_over_where_the_log_ended(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock, retention_ms=1000) as log:
        fill(log, 3)
        clock.advance(1003)
        assert [each.reason for each in delete_old_segments(log, clock)] == [*["retention.ms"] * 3]
        assert log.segments.base_offsets == [3]
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)
        assert log.append([Record(None, b"x", (), clock.now_ms())]).base_offset == 3
        clock.advance(1)
        assert delete_old_segments(log, clock) == []


def test_the_time_of_the_file_counts_only_where_no_record_has_one(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock, retention_ms=1000) as log:
        fill(log, 2, timestamp=-1)
        clock.advance(500)
        fill(log, 1, timestamp=-1)
        clock.advance(501)
        assert [each.base_offset for each in delete_old_segments(log, clock)] == [0, 1]


def test_a_timestamp_of_the_far_future_cannot_block_retention(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log, pytest.raises(InvalidTimestampError):
        log.append([Record(None, b"x", (), NOW + 3_600_001)])


def test_a_reader_goes_on_in_a_segment_that_goes_and_then_learns_where_the_log_begins(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log:
        fill(log, 5)
        with LogReader.open(PATH, fs=fs) as reader:
            assert reader.read(1, 1).next_offset == 2
            log.delete_records(3)
            delete_old_segments(log, clock)
            assert reader.read(1, 1).next_offset == 2  # it had this file open
            with pytest.raises(OffsetOutOfRangeError):
                reader.read(2, 1)
            reader.refresh()
            assert offsets(reader) == [3, 4]


def test_another_writer_catches_up_with_the_deletion(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as one, open_log(fs, clock) as other:
        fill(one, 5)
        other.catch_up()
        one.delete_records(4)
        delete_old_segments(one, clock)
        fill(other, 1)
        assert other.log_start_offset == 4
        assert other.segments.base_offsets == [4, 5]
        one.catch_up()
        assert offsets(one) == offsets(other) == [4, 5]


@pytest.mark.parametrize("offset", [-2, 6, 2**62])
def test_records_are_deleted_up_to_the_high_watermark_only(
    fs: MemoryFileSystem, clock: ManualClock, offset: int
) -> None:
    with open_log(fs, clock) as log:
        fill(log, 5)
        with pytest.raises(OffsetOutOfRangeError, match="-1 for all"):
            log.delete_records(offset)
        assert log.delete_records(3) == 3
        assert log.delete_records(2) == 3
        assert log.delete_records(-1) == 5
        assert offsets(log) == []


def test_records_in_the_middle_of_a_segment_are_gone_for_good(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock, internal_segment_bytes=10_000) as log:
        fill(log, 5)
        log.delete_records(3)
        with pytest.raises(OffsetOutOfRangeError):
            log.read(2)
    cut = fs.crash_clone(Random(1), power=True)
    with open_log(cut, clock) as log, LogReader.open(PATH, fs=cut) as reader:
        assert log.log_start_offset == reader.log_start_offset == 3
        assert offsets(log) == [3, 4]


def test_records_of_a_topic_that_is_compacted_alone_are_not_deleted_by_offset(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    both = frozenset({"compact", "delete"})
    with open_log(fs, clock, cleanup_policy=both) as log:
        assert log.delete_records(0) == 0
    with (
        open_log(fs, clock, cleanup_policy=frozenset({"compact"})) as log,
        pytest.raises(PolicyViolationError),
    ):
        log.delete_records(0)


def test_what_a_recorded_reader_has_not_finished_is_deleted_by_force_only(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with open_log(fs, clock) as log:
        fill(log, 5)
        write_progress(LogRoot.at("/logs", fs=fs), "billing", {"orders": {"0": 2}}, now_ms=NOW)
        assert log.delete_records(2) == 2
        with pytest.raises(PolicyViolationError, match="billing") as caught:
            log.delete_records(3)
        assert "--force" in str(caught.value.hint)
        assert log.delete_records(4, force=True) == 4


def test_deleted_files_are_removed_when_a_writer_comes_after_their_delay(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    def deleted() -> list[str]:
        return [name for name in fs.list(PATH) if name.endswith(".deleted")]

    with open_log(fs, clock) as log:
        fill(log, 3)
        log.delete_records(2)
        clock.advance(10)
        delete_old_segments(log, clock)
    clock.advance(59_999)
    open_log(fs, clock).close()
    assert len(deleted()) == 6
    clock.advance(1)
    open_log(fs, clock).close()
    assert deleted() == []
