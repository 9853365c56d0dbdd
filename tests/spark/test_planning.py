"""The planner over a log that is given by numbers: where, how far, in which tasks."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.arrow.log_view import EARLIEST, LATEST, OffsetRange, PartitionBounds
from streamlog.errors import InvalidOptionError, OffsetOutOfRangeError
from streamlog.query.offsets import SourceOffset
from streamlog.spark.planning import (
    LARGE_TASK_BYTES,
    OFFSET_WEIGHT,
    SMALL_TASK_BYTES,
    describe_offsets,
    limit_bytes,
    limit_offsets,
    plan_ranges,
    plan_tasks,
    resolve_rule,
)
from streamlog.spark.source_options import OffsetRule
from streamlog.topic import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@dataclass
class NumberedLog:
    """A log of batches of `batch` offsets and `record_size` bytes a record; a record's timestamp
    is a thousand times its offset.
    """

    bounds: dict
    topic_ids: dict = field(default_factory=dict)
    epoch_ends: dict = field(default_factory=dict)
    record_size: int = 100
    batch: int = 10

    def epoch_before(self, partition, offset):
        ends = self.epoch_ends.get(partition, {})
        return min((epoch for epoch, end in ends.items() if offset <= end), default=-1)

    def end_of_epoch(self, partition, epoch):
        ends = self.epoch_ends.get(partition)
        return None if ends is None else ends.get(epoch, 0)

    def offset_for_timestamp(self, partition, timestamp):
        offset = max(self.bounds[partition].log_start_offset, -(-timestamp // 1000))
        return offset if offset < self.bounds[partition].log_end_offset else None

    def size_of(self, part):
        return part.length * self.record_size

    def split(self, part, parts):
        borders = {part.start_offset, part.end_offset}
        for index in range(1, parts):
            cut = part.start_offset + part.length * index // parts
            cut -= cut % self.batch
            if part.start_offset < cut < part.end_offset:
                borders.add(cut)
        ordered = sorted(borders)
        return [
            OffsetRange(part.topic, part.partition, low, high) for low, high in pairwise(ordered)
        ]


def log(**options):
    bounds = {
        A0: PartitionBounds(0, 100, 100),
        A1: PartitionBounds(20, 50, 60),
        B0: PartitionBounds(0, 0, 0),
    }
    return NumberedLog(bounds, **options)


# ---- where to start -----------------------------------------------------------------------------
def resolve(rule, view=None, fail=True):
    return resolve_rule(view or log(), rule, fail_on_data_loss=fail)


def test_earliest_is_the_log_start_and_settled():
    resolved, losses = resolve(OffsetRule(option="startingOffsets", everywhere=EARLIEST))
    assert resolved.offsets == {A0: 0, A1: 20, B0: 0}
    assert resolved.is_settled
    assert losses == []


def test_latest_is_the_readable_end_and_not_settled():
    resolved, _ = resolve(OffsetRule(option="startingOffsets", everywhere=LATEST))
    assert resolved.offsets == {A0: 100, A1: 50, B0: 0}
    assert not resolved.is_settled


def test_one_partition_at_its_end_leaves_the_whole_unsettled():
    rule = OffsetRule(option="startingOffsets", partitions={A0: 7, A1: -1, B0: -2})
    resolved, _ = resolve(rule)
    assert resolved.offsets == {A0: 7, A1: 50, B0: 0}
    assert not resolved.is_settled
    rule = OffsetRule(option="startingOffsets", partitions={A0: 7, A1: 30}, topics={"b": EARLIEST})
    assert resolve(rule)[0].is_settled


@pytest.mark.parametrize("partitions", [{A0: 1}, {A0: 1, A1: 20, B0: 0, TopicPartition("b", 1): 0}])
def test_offsets_must_name_all_partitions_and_no_other(partitions):
    with pytest.raises(InvalidOptionError, match="must name exactly the partitions") as caught:
        resolve(OffsetRule(option="startingOffsets", partitions=partitions))
    assert caught.value.expected == "a-0, a-1, b-0"


@pytest.mark.parametrize(
    ("partition", "offset", "nearest"), [(A1, 19, 20), (A1, 61, 50), (B0, 1, 0)]
)
def test_offset_the_log_does_not_have_is_an_error_or_clamped(partition, offset, nearest):
    rule = OffsetRule(
        option="startingOffsets", partitions={A0: 0, A1: 30, B0: 0, partition: offset}
    )
    with pytest.raises(
        OffsetOutOfRangeError, match=f"offset out of range in {partition}"
    ) as caught:
        resolve(rule)
    bounds = log().bounds[partition]
    assert caught.value.expected == f"{bounds.log_start_offset} to {bounds.log_end_offset}"
    resolved, losses = resolve(rule, fail=False)
    assert resolved.offsets[partition] == nearest
    assert [loss.reason for loss in losses] == ["START_OFFSET_RESET"]


def test_offset_beyond_the_stable_ones_waits_at_the_last_stable():
    rule = OffsetRule(option="startingOffsets", partitions={A0: 0, A1: 55, B0: 0})
    resolved, losses = resolve(rule)
    assert (resolved.offsets[A1], losses) == (50, [])


def test_timestamps_find_offsets_and_say_where_there_is_none():
    rule = OffsetRule(
        option="startingTimestamp", everywhere=30_500, is_timestamp=True, without_match="error"
    )
    with pytest.raises(InvalidOptionError, match="b-0 has no record with this timestamp"):
        resolve(rule)
    view = log()
    del view.bounds[B0]
    resolved, _ = resolve(rule, view)
    assert resolved.offsets == {A0: 31, A1: 31}
    assert resolved.is_settled
    rule = OffsetRule(option="startingTimestamp", everywhere=70_000, is_timestamp=True)
    resolved, _ = resolve(rule, view)
    assert resolved.offsets == {A0: 70, A1: 50}
    assert not resolved.is_settled


# ---- how far ------------------------------------------------------------------------------------
def test_offsets_are_shared_out_by_backlog_and_nobody_starves():
    start, end = {A0: 0, A1: 0, B0: 5}, {A0: 990, A1: 10, B0: 5}
    assert limit_offsets(100, start, end) == {A0: 99, A1: 1, B0: 5}
    assert limit_offsets(10, start, end) == {A0: 9, A1: 1, B0: 5}
    assert limit_offsets(1000, start, end) == end


POSITIONS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 3)),
    st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)),
    max_size=8,
)


@given(POSITIONS, st.integers(1, 2**62))
def test_limited_offsets_are_between_start_and_end_and_move_on(positions, limit):
    start = {partition: pair[0] for partition, pair in positions.items()}
    end = {partition: sum(pair) for partition, pair in positions.items()}
    limited = limit_offsets(limit, start, end)
    assert limited.keys() == end.keys()
    backlogged = [partition for partition in end if end[partition] > start[partition]]
    assert all(start[partition] < limited[partition] <= end[partition] for partition in backlogged)
    taken = sum(limited[partition] - start[partition] for partition in end)
    assert taken <= limit + len(backlogged)


def test_bytes_are_limited_at_ends_of_batches_and_at_least_one_batch_is_taken():
    view = log()
    start, end = {A0: 0, A1: 20, B0: 0}, {A0: 100, A1: 60, B0: 0}
    assert limit_bytes(view, 20_000, start, end) == end
    limited = limit_bytes(view, 7_000, start, end)
    assert limited == {A0: 50, A1: 40, B0: 0}
    assert limit_bytes(view, 1, start, end) == {A0: 10, A1: 30, B0: 0}


# ---- ranges -------------------------------------------------------------------------------------
def ranges(view, start, end, **ids):
    parts, losses = plan_ranges(
        view, SourceOffset(offsets=start, **ids), SourceOffset(offsets=end, **ids)
    )
    return [(part.topic_partition, part.start_offset, part.end_offset) for part in parts], [
        loss.reason for loss in losses
    ]


def test_ranges_are_what_lies_between_two_offsets():
    assert ranges(log(), {A0: 10, A1: 20, B0: 0}, {A0: 40, A1: 20, B0: 0}) == ([(A0, 10, 40)], [])


def test_new_partition_is_read_from_its_beginning():
    assert ranges(log(), {A1: 30}, {A0: 40, A1: 50}) == ([(A0, 0, 40), (A1, 30, 50)], [])
    assert ranges(log(), {A0: 0}, {A0: 0, A1: 50}) == (
        [(A1, 20, 50)],
        ["ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"],
    )


@pytest.mark.parametrize(
    ("start", "end", "planned", "reason"),
    [
        ({A1: 5}, {A1: 30}, [(A1, 20, 30)], "START_OFFSET_RESET"),
        ({A1: 5}, {A1: 10}, [], "START_OFFSET_RESET"),
        ({A1: 40}, {A1: 30}, [], "PARTITION_OFFSET_CHANGED"),
        ({A1: 40}, {A1: 70}, [(A1, 40, 60)], "COULD_NOT_READ_OFFSET_RANGE"),
        ({A1: 40, B0: 3}, {A1: 50}, [(A1, 40, 50)], "PARTITIONS_DELETED"),
    ],
)
def test_loss_is_named_and_ranges_stay_within_the_plan(start, end, planned, reason):
    assert ranges(log(), start, end) == (planned, [reason])


def test_deleted_partition_is_left_out_and_named():
    gone = TopicPartition("gone", 0)
    assert ranges(log(), {gone: 1, A0: 5}, {gone: 9, A0: 6}) == (
        [(A0, 5, 6)],
        ["PARTITIONS_DELETED"],
    )


def test_topic_made_again_is_read_from_its_beginning():
    view = log(topic_ids={"a": "new"})
    parts, losses = plan_ranges(
        view,
        SourceOffset(offsets={A0: 90}, topic_ids={"a": "old"}),
        SourceOffset(offsets={A0: 30}, topic_ids={"a": "new"}),
    )
    assert parts == [OffsetRange("a", 0, 0, 30)]
    assert [loss.reason for loss in losses] == ["TOPIC_RECREATED"]


def test_topic_made_again_after_planning_is_not_read():
    view = log(topic_ids={"a": "new"})
    old = {"a": "old"}
    assert ranges(view, {A0: 10}, {A0: 90}, topic_ids=old) == ([], ["TOPIC_RECREATED"])


@pytest.mark.parametrize(
    ("ends", "reasons"),
    [
        ({3: 100}, []),
        ({3: 40}, []),
        ({3: 39, 4: 100}, ["LOG_TRUNCATED"]),
        ({4: 100}, ["LOG_TRUNCATED"]),
        (None, []),
    ],
)
def test_epoch_that_ends_before_what_was_read_is_a_loss(ends, reasons):
    view = log(epoch_ends={} if ends is None else {A0: ends})
    start = SourceOffset(offsets={A0: 40}, leader_epochs={A0: 3})
    _, losses = plan_ranges(view, start, SourceOffset(offsets={A0: 60}))
    assert [loss.reason for loss in losses] == reasons


def test_described_offsets_carry_epochs_and_ids_where_they_are_known():
    view = log(topic_ids={"a": "x"}, epoch_ends={A0: {0: 50, 1: 100}})
    described = describe_offsets(view, {A0: 60, B0: 0})
    assert described == SourceOffset(
        offsets={A0: 60, B0: 0}, leader_epochs={A0: 1}, topic_ids={"a": "x"}
    )


# ---- tasks --------------------------------------------------------------------------------------
def tasks(parts, view=None, **options):
    planned = plan_tasks(view or log(), parts, **{"parallelism": 2, **options})
    return [
        [(part.partition, part.start_offset, part.end_offset) for part in task] for task in planned
    ]


def part(partition, start, end):
    return OffsetRange("a", partition, start, end)


def test_small_ranges_of_many_partitions_are_one_task():
    assert tasks([part(n, 0, 5) for n in range(16)]) == [[(n, 0, 5) for n in range(16)]]


def test_small_ranges_fill_a_task_and_begin_the_next():
    records = SMALL_TASK_BYTES // 100 // 2
    planned = tasks([part(n, 0, records) for n in range(5)], parallelism=1)
    assert [len(task) for task in planned] == [2, 2, 1]


def test_large_range_is_cut_for_idle_cores_at_ends_of_batches():
    records = 4 * SMALL_TASK_BYTES // 100 // 10 * 10
    planned = tasks([part(0, 0, records)], parallelism=2)
    assert len(planned) == 2
    assert planned[0][0][2] == planned[1][0][1]
    assert planned[0][0][2] % 10 == 0


def test_range_is_not_cut_below_what_a_task_costs():
    assert len(tasks([part(0, 0, SMALL_TASK_BYTES // 100)], parallelism=64)) == 1


def test_enough_large_partitions_are_left_whole():
    records = 3 * SMALL_TASK_BYTES // 100
    assert [len(task) for task in tasks([part(n, 0, records) for n in range(4)])] == [1, 1, 1, 1]


def test_task_never_grows_without_bound():
    planned = tasks([part(0, 0, 10 * LARGE_TASK_BYTES // 100)], parallelism=1)
    assert len(planned) == 10


def test_offsets_weigh_something_however_small_their_records_are():
    view = log(record_size=1)
    records = 3 * SMALL_TASK_BYTES // OFFSET_WEIGHT
    assert len(tasks([part(0, 0, records)], view, parallelism=4)) == 3


def test_min_partitions_cuts_even_what_is_small():
    planned = tasks([part(0, 0, 90), part(1, 0, 10)], min_partitions=10)
    assert len(planned) == 10
    assert planned[-1] == [(1, 0, 10)]
    assert all(len(task) == 1 for task in planned)


def test_min_partitions_cuts_inside_a_batch_where_it_has_to():
    assert tasks([part(0, 0, 9)], min_partitions=3) == [[(0, 0, 3)], [(0, 3, 6)], [(0, 6, 9)]]
    assert tasks([part(0, 0, 2)], min_partitions=5) == [[(0, 0, 1)], [(0, 1, 2)]]


def test_min_partitions_that_are_there_already_change_nothing():
    assert tasks([part(n, 0, 5) for n in range(3)], min_partitions=2) == [
        [(n, 0, 5)] for n in range(3)
    ]


def test_max_records_bounds_every_task():
    assert tasks([part(0, 0, 25), part(1, 0, 3)], max_records=10) == [
        [(0, 0, 8)],
        [(0, 8, 16)],
        [(0, 16, 25)],
        [(1, 0, 3)],
    ]


def test_no_ranges_are_no_tasks():
    assert tasks([]) == []


RANGES = st.lists(
    st.tuples(st.integers(0, 10**7), st.integers(1, 10**7)), min_size=1, max_size=6
).map(lambda pairs: [part(n, start, start + size) for n, (start, size) in enumerate(pairs)])


@given(
    RANGES, st.integers(1, 8), st.none() | st.integers(1, 40), st.none() | st.integers(10**5, 10**8)
)
def test_tasks_together_are_the_ranges(parts, parallelism, min_partitions, max_records):
    planned = plan_tasks(
        log(),
        parts,
        parallelism=parallelism,
        min_partitions=min_partitions,
        max_records=max_records,
    )
    joined = {}
    for task in planned:
        assert max_records is None or sum(piece.length for piece in task) <= max_records
        for piece in task:
            assert piece.length > 0
            assert joined.get(piece.partition, piece.start_offset) == piece.start_offset
            joined[piece.partition] = piece.end_offset
    assert joined == {whole.partition: whole.end_offset for whole in parts}
    assert sum(piece.length for task in planned for piece in task) == sum(
        whole.length for whole in parts
    )
