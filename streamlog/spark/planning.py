"""What to read next: a pure planner, the same for batch and stream.

    options, checkpoint ──▶ where to start ──▶ how far to go ──▶ ranges ──▶ tasks
                            resolve_rule       limit_offsets     plan_ranges plan_tasks
                                               limit_bytes

Everything here is a function of its arguments. What the log looks like comes in as a `LogView`:
bounds of each partition, taken together, and questions that its indexes answer.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from streamlog.arrow.log_view import EARLIEST, LATEST, LogView, OffsetRange, PartitionBounds
from streamlog.arrow.losses import (
    DataLoss,
    made_again,
    partitions_deleted,
    start_reset,
    unreadable,
)
from streamlog.errors import InvalidOptionError, OffsetOutOfRangeError
from streamlog.query.offsets import SourceOffset
from streamlog.spark.source_options import OffsetRule
from streamlog.topic import TopicPartition

__all__ = [
    "ResolvedOffsets",
    "begin_of",
    "describe_offsets",
    "limit_bytes",
    "limit_offsets",
    "plan_ranges",
    "plan_tasks",
    "resolve_rule",
    "start_losses",
]

# A task costs Spark 25 to 50 ms, as long as some 8 MiB of records take: measured on 2 cores.
SMALL_TASK_BYTES: Final = 8 << 20
# Past this more tasks cost nothing any more, and a retried one loses little.
LARGE_TASK_BYTES: Final = 256 << 20
# What an offset weighs at least, however well its record is compressed: Spark's own share.
OFFSET_WEIGHT: Final = 64
_MAX_PARTS: Final = 1000


# ---- where to start, where to end ---------------------------------------------------------------
class ResolvedOffsets(NamedTuple):
    """What a rule comes to.

    Attributes:
        offsets: An offset for each partition.
        is_settled: Whether asking again gives the same: no partition was resolved to its end.
    """

    offsets: dict[TopicPartition, int]
    is_settled: bool


def resolve_rule(
    view: LogView, rule: OffsetRule, *, fail_on_data_loss: bool
) -> tuple[ResolvedOffsets, list[DataLoss]]:
    """Return the offset that a rule means in each partition.

    Args:
        view: The log.
        rule: What the user asked for.
        fail_on_data_loss: Whether an impossible offset is an error; else it is clamped to what
            there is and reported.

    Raises:
        InvalidOptionError: A rule for single partitions that leaves out some, or names others;
            a timestamp without a record that late, where the strategy is `error`.
        OffsetOutOfRangeError: An offset that the partition does not have.

    Source: KafkaOffsetReaderAdmin.fetchSpecificOffsets, fetchSpecificTimestampBasedOffsets.
    """
    _check_coverage(view, rule)
    offsets: dict[TopicPartition, int] = {}
    losses: list[DataLoss] = []
    is_settled = True
    for partition, bounds in sorted(view.bounds.items()):
        number = rule.number_for(partition)
        assert number is not None, "coverage was checked"
        if rule.is_timestamp:
            found = view.offset_for_timestamp(partition, number)
            if found is None and rule.without_match == "error":
                raise InvalidOptionError(
                    f"option {rule.option}: no record of {partition} is that late",
                    got=str(number),
                    hint="startingOffsetsByTimestampStrategy=latest starts at the end instead",
                )
            number = LATEST if found is None else found
        if number == LATEST:
            is_settled = False
            offsets[partition] = bounds.end_offset
        elif number == EARLIEST:
            offsets[partition] = bounds.log_start_offset
        else:
            offsets[partition], loss = _clamp(
                partition, number, bounds, rule=rule, fail=fail_on_data_loss
            )
            losses += loss
    return ResolvedOffsets(offsets, is_settled), losses


def _check_coverage(view: LogView, rule: OffsetRule) -> None:
    if rule.everywhere is not None:
        return
    assigned = set(view.bounds)
    missing = {partition for partition in assigned if rule.number_for(partition) is None}
    strange = set(rule.partitions) - assigned
    strange_topics = set(rule.topics) - {partition.topic for partition in assigned}
    if missing or strange or strange_topics:
        named = sorted([str(partition) for partition in rule.partitions] + list(rule.topics))
        advice = "" if rule.is_timestamp else "; -1 is the latest, -2 the earliest offset"
        raise InvalidOptionError(
            f"option {rule.option} must name all partitions that are read, and no other{advice}",
            got=", ".join(named) or "none",
            expected=", ".join(map(str, sorted(assigned))) or "none",
        )


def _clamp(
    partition: TopicPartition,
    offset: int,
    bounds: PartitionBounds,
    *,
    rule: OffsetRule,
    fail: bool,
) -> tuple[int, list[DataLoss]]:
    if bounds.log_start_offset <= offset <= bounds.log_end_offset:
        return min(offset, bounds.end_offset), []
    nearest = min(max(offset, bounds.log_start_offset), bounds.end_offset)
    if fail:
        raise OffsetOutOfRangeError(
            f"option {rule.option}: {partition} has no such offset",
            offset=offset,
            expected=f"{bounds.log_start_offset} to {bounds.log_end_offset}",
            hint="set failOnDataLoss to false to take the nearest offset that there is",
        )
    text = f"{rule.option} for {partition} was {offset}, reset to {nearest}"
    return nearest, [DataLoss("START_OFFSET_RESET", text)]


# ---- how far to go ------------------------------------------------------------------------------
def limit_offsets(
    limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return how far to read when at most about `limit` offsets may be taken.

    The limit is shared out in proportion to what each partition holds back; nobody starves: a
    partition with anything to read gets at least one.

    Args:
        limit: Offsets in all.
        start: Where each partition of `end` is read from.
        end: How far there is something.

    Source: KafkaMicroBatchStream.rateLimit.
    """
    backlog = {partition: max(0, end[partition] - start[partition]) for partition in end}
    total = sum(backlog.values())
    if total <= limit:
        return dict(end)
    limited = dict(end)
    for partition, size in backlog.items():
        if size > 0:
            share = max(1, limit * size // total)
            limited[partition] = min(end[partition], start[partition] + share)
    return limited


def limit_bytes(
    view: LogView,
    limit: int,
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return how far to read when about `limit` stored bytes may be taken, at ends of batches."""
    ranges = {
        partition: OffsetRange(*partition, start[partition], offset)
        for partition, offset in end.items()
        if offset > start[partition]
    }
    sizes = {partition: view.size_of(part) for partition, part in ranges.items()}
    total = sum(sizes.values())
    limited = dict(end)
    if total > limit:
        for partition, part in ranges.items():
            share = limit * sizes[partition] // total
            limited[partition] = _prefix(view, part, sizes[partition], share)
    return limited


def _prefix(view: LogView, part: OffsetRange, size: int, share: int) -> int:
    """Return where about the first `share` bytes of a range end; behind a batch at least."""
    while size > share:
        parts = min(_MAX_PARTS, -(-size // max(1, share)))
        first = view.split(part, parts)[0]
        if first == part:
            break
        part, size = first, view.size_of(first)
    return part.end_offset


def plan_ranges(
    view: LogView, start: SourceOffset, end: SourceOffset
) -> tuple[list[OffsetRange], list[DataLoss]]:
    """Return the ranges between two offsets that can be read, and what cannot any more.

    Never anything outside of what was planned: a range is only ever cut to what is there. A
    partition that `start` does not have is new, and is read from its beginning; so is one whose
    topic was deleted and made again.

    Source: KafkaOffsetReaderAdmin.getOffsetRangesFromResolvedOffsets.
    """
    losses = _range_losses(view, start, end)
    ranges = []
    for partition, stop in sorted(end.offsets.items()):
        bounds = view.bounds.get(partition)
        if bounds is None or _is_other_topic(view, partition.topic, end):
            continue
        begin = begin_of(view, partition, start)
        part = OffsetRange(
            *partition, max(begin, bounds.log_start_offset), min(stop, bounds.log_end_offset)
        )
        if part.length > 0:
            ranges.append(part)
    return ranges, losses


def begin_of(view: LogView, partition: TopicPartition, start: SourceOffset) -> int:
    """Return where a partition is read from: `start`, or its beginning where that is another."""
    offset = start.offsets.get(partition)
    if offset is None or _is_other_topic(view, partition.topic, start):
        return view.bounds[partition].log_start_offset
    return offset


def _is_other_topic(view: LogView, topic: str, offset: SourceOffset) -> bool:
    before, now = offset.topic_ids.get(topic), view.topic_ids.get(topic)
    return before is not None and now is not None and before != now


def describe_offsets(view: LogView, offsets: Mapping[TopicPartition, int]) -> SourceOffset:
    """Return offsets together with what later tells whether they still mean the same records."""
    epochs = {
        partition: view.epoch_before(partition, offset) for partition, offset in offsets.items()
    }
    topics = {partition.topic for partition in offsets}
    return SourceOffset(
        offsets=dict(offsets),
        leader_epochs={partition: epoch for partition, epoch in epochs.items() if epoch >= 0},
        topic_ids={topic: view.topic_ids[topic] for topic in topics if topic in view.topic_ids},
    )


# ---- losses ----------------------------------------------------------------------------------
def start_losses(view: LogView, start: SourceOffset) -> list[DataLoss]:
    """Return what is gone since a query stopped at `start`, the records behind it included."""
    losses = _lost_partitions(view, start)
    for partition, offset in sorted(start.offsets.items()):
        bounds = view.bounds.get(partition)
        if bounds is None or _is_other_topic(view, partition.topic, start):
            continue
        if offset > bounds.log_end_offset:
            losses.append(_went_back(partition, offset, bounds.log_end_offset))
        elif (loss := _lost_by_epoch(view, partition, start)) is not None:
            losses.append(loss)
        elif offset < bounds.log_start_offset:
            losses.append(start_reset(partition, offset, bounds.log_start_offset))
    for partition in sorted(set(view.bounds) - set(start.offsets)):
        first = view.bounds[partition].log_start_offset
        if first > 0:
            losses.append(_added_late(partition, first))
    return losses


def _range_losses(view: LogView, start: SourceOffset, end: SourceOffset) -> list[DataLoss]:
    """Return what is gone of the records between two offsets that were planned together."""
    gone = sorted(set(start.offsets) - set(end.offsets))
    losses = [partitions_deleted(gone)] if gone else []
    losses += _lost_partitions(view, end)
    for partition, stop in sorted(end.offsets.items()):
        bounds = view.bounds.get(partition)
        if bounds is None or _is_other_topic(view, partition.topic, end):
            continue
        begin = start.offsets.get(partition)
        if begin is None:
            if bounds.log_start_offset > 0:
                losses.append(_added_late(partition, bounds.log_start_offset))
        elif _is_other_topic(view, partition.topic, start):
            losses.append(made_again(partition.topic))
        elif stop < begin:
            losses.append(_went_back(partition, begin, stop))
        elif begin < bounds.log_start_offset and begin < stop:
            losses.append(start_reset(partition, begin, bounds.log_start_offset))
        elif (loss := _lost_by_epoch(view, partition, start)) is not None:
            losses.append(loss)
        if stop > bounds.log_end_offset:
            losses.append(unreadable(partition, bounds.log_end_offset, stop))
        elif (loss := _lost_by_epoch(view, partition, end)) is not None:
            losses.append(loss)
    return list(dict.fromkeys(losses))


def _lost_partitions(view: LogView, offset: SourceOffset) -> list[DataLoss]:
    losses = []
    gone = sorted(set(offset.offsets) - set(view.bounds))
    if gone:
        losses.append(partitions_deleted(gone))
    topics = {partition.topic for partition in offset.offsets if partition in view.bounds}
    losses += [
        made_again(topic) for topic in sorted(topics) if _is_other_topic(view, topic, offset)
    ]
    return losses


def _lost_by_epoch(
    view: LogView, partition: TopicPartition, position: SourceOffset
) -> DataLoss | None:
    """Tell whether the records before an offset are others than those that were read."""
    epoch = position.leader_epochs.get(partition)
    if epoch is None:
        return None
    end = view.end_of_epoch(partition, epoch)
    offset = position.offsets[partition]
    if end is None or end >= offset:
        return None
    return DataLoss(
        "LOG_TRUNCATED",
        f"Partition {partition} was read up to offset {offset} in leader epoch {epoch}, which now "
        f"ends at {end}: a power cut or a truncation took the records between.",
    )


def _went_back(partition: TopicPartition, before: int, now: int) -> DataLoss:
    return DataLoss(
        "PARTITION_OFFSET_CHANGED",
        f"Partition {partition} offset was changed from {before} to {now}.",
    )


def _added_late(partition: TopicPartition, first: int) -> DataLoss:
    return DataLoss(
        "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        f"Added partition {partition} starts from {first} instead of 0.",
    )


# ---- tasks --------------------------------------------------------------------------------------
def plan_tasks(
    view: LogView,
    ranges: Sequence[OffsetRange],
    *,
    parallelism: int,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[list[OffsetRange]]:
    """Return the ranges of each task.

    Large ranges are cut, by bytes and at ends of batches, so that all cores have work; small
    ones share a task, as a task costs more than what is in them. `min_partitions` asks for more
    tasks than that, and then nothing is put together; `max_records` bounds each.

    Args:
        view: The log, for sizes and places to cut.
        ranges: What is to be read; none is empty.
        parallelism: How many tasks can run at a time.
        min_partitions: At least about so many tasks.
        max_records: At most so many offsets for each.

    Source: KafkaOffsetRangeCalculator.getRanges, for the two options.
    """
    parts = list(ranges)
    if max_records is not None:
        parts = [
            piece for part in parts for piece in _cut_evenly(part, -(-part.length // max_records))
        ]
    if min_partitions is not None:
        if len(parts) < min_partitions:
            parts = _cut_into(view, parts, min_partitions)
        return [[part] for part in parts]
    weights = [_weight(view, part) for part in parts]
    goal = min(max(sum(weights) // max(1, parallelism), SMALL_TASK_BYTES), LARGE_TASK_BYTES)
    pieces = []
    for part, weight in zip(parts, weights, strict=True):
        number = round(weight / goal)
        pieces += view.split(part, number) if number > 1 else [part]
    return _pack(view, pieces, max_records or 2**63)


def _weight(view: LogView, part: OffsetRange) -> int:
    return max(view.size_of(part), part.length * OFFSET_WEIGHT)


def _cut_into(view: LogView, parts: list[OffsetRange], wanted: int) -> list[OffsetRange]:
    """Cut ranges in proportion to their bytes into about `wanted` in all."""
    sizes = [max(1, view.size_of(part)) for part in parts]
    ideal = sum(sizes) / wanted
    pieces: list[OffsetRange] = []
    for part, size in zip(parts, sizes, strict=True):
        number = min(part.length, max(1, round(size / ideal)))
        cut = view.split(part, number) if number > 1 else [part]
        # Too little to be cut at ends of batches: a batch is then read by two tasks.
        pieces += cut if len(cut) == number else _cut_evenly(part, number)
    return pieces


def _cut_evenly(part: OffsetRange, number: int) -> list[OffsetRange]:
    """Cut a range into `number` parts of equal offsets."""
    borders = [part.start_offset + part.length * index // number for index in range(number + 1)]
    return [part._replace(start_offset=low, end_offset=high) for low, high in pairwise(borders)]


def _pack(view: LogView, parts: Iterable[OffsetRange], max_records: int) -> list[list[OffsetRange]]:
    """Put small ranges that follow each other into one task."""
    tasks: list[list[OffsetRange]] = []
    weight, count = math.inf, 0
    for part in parts:
        own = _weight(view, part)
        if weight + own > SMALL_TASK_BYTES or count + part.length > max_records:
            tasks.append([])
            weight, count = 0, 0
        tasks[-1].append(part)
        weight, count = weight + own, count + part.length
    return tasks
