"""A pure planner for batch and streaming queries: which offsets to read next, in which tasks.

    options, checkpoint ──▶ where to start ──▶ how far to go ──▶ ranges ──▶ tasks
                            resolve_rule       limit_offsets     plan_ranges plan_tasks
                                               limit_bytes

Everything here is a function of its arguments. The state of the log comes in as a `LogView`: the
bounds of all partitions at one moment, and lookups in their indexes.
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

# A task costs Spark 25 to 50 ms, as much as about 8 MiB of records: measured on 2 cores.
SMALL_TASK_BYTES: Final = 8 << 20
# Above this size the cost per task is negligible, and a retried task repeats little work.
LARGE_TASK_BYTES: Final = 256 << 20
# Minimum weight of an offset, however well its record is compressed: Spark's cost per row.
OFFSET_WEIGHT: Final = 64
_MAX_PARTS: Final = 1000


# ---- start and end ------------------------------------------------------------------------------
class ResolvedOffsets(NamedTuple):
    """The offsets that a rule stands for at one moment.

    Attributes:
        offsets: An offset for each partition.
        is_settled: Whether resolving the rule again gives the same offsets, which is not so if a
            partition was resolved to its end.
    """

    offsets: dict[TopicPartition, int]
    is_settled: bool


def resolve_rule(
    view: LogView, rule: OffsetRule, *, fail_on_data_loss: bool
) -> tuple[ResolvedOffsets, list[DataLoss]]:
    """Return the offset that a rule stands for in each partition.

    Args:
        view: The log.
        rule: The user's option.
        fail_on_data_loss: Whether an offset outside the log is an error; otherwise it is clamped
            and reported.

    Raises:
        InvalidOptionError: A rule by partition does not name exactly the partitions to read; or
            no record is as late as a timestamp, under the strategy `error`.
        OffsetOutOfRangeError: An offset outside the log, under `fail_on_data_loss`.

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
                    f"option {rule.option}: {partition} has no record with this timestamp or later",
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
        advice = "" if rule.is_timestamp else "; -1: latest, -2: earliest offset"
        raise InvalidOptionError(
            f"option {rule.option} must name exactly the partitions to read{advice}",
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
            f"option {rule.option}: offset out of range in {partition}",
            offset=offset,
            expected=f"{bounds.log_start_offset} to {bounds.log_end_offset}",
            hint="set failOnDataLoss to false to use the nearest existing offset",
        )
    text = f"{rule.option} for {partition} was {offset}, reset to {nearest}"
    return nearest, [DataLoss("START_OFFSET_RESET", text)]


# ---- limits -------------------------------------------------------------------------------------
def limit_offsets(
    limit: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the end of a batch of at most about `limit` offsets.

    The limit is split in proportion to the backlog. A partition with a backlog gets at least one
    offset, so none starves.

    Args:
        limit: Total number of offsets.
        start: The start of each partition in `end`.
        end: The end of the available records.

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
    """Return the end of a batch of about `limit` stored bytes, at ends of record batches."""
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
    """Return the end of about the first `share` bytes of a range, at least of one record batch."""
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
    """Return the readable ranges between two offsets, and the losses.

    A range is reduced to the records that exist, never extended. A partition missing in `start` is
    new and is read from its beginning, as is one whose topic was deleted and created again.

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
    """Return the start of a partition: that of `start`, or the log start if it is a new one."""
    offset = start.offsets.get(partition)
    if offset is None or _is_other_topic(view, partition.topic, start):
        return view.bounds[partition].log_start_offset
    return offset


def _is_other_topic(view: LogView, topic: str, offset: SourceOffset) -> bool:
    before, now = offset.topic_ids.get(topic), view.topic_ids.get(topic)
    return before is not None and now is not None and before != now


def describe_offsets(view: LogView, offsets: Mapping[TopicPartition, int]) -> SourceOffset:
    """Return offsets with the leader epochs and topic ids that later identify their records."""
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
    """Return the losses since a query stopped at `start`, before and after its offsets."""
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
    """Return the losses between two offsets that were planned together."""
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
    """Return the loss if the records before an offset are not those that were read."""
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
        f"ends at {end}: a power cut or a truncation removed the records between.",
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

    Large ranges are split by size, at batch ends, so that all cores have work. Small ranges share a
    task, which would cost more than reading them. With `min_partitions` no ranges are combined.

    Args:
        view: The log, for sizes and batch ends.
        ranges: Ranges to read; none is empty.
        parallelism: Number of tasks that can run at the same time.
        min_partitions: Approximate minimum number of tasks.
        max_records: Maximum number of offsets per task.

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
    """Split ranges in proportion to their sizes into about `wanted` ranges in total."""
    sizes = [max(1, view.size_of(part)) for part in parts]
    ideal = sum(sizes) / wanted
    pieces: list[OffsetRange] = []
    for part, size in zip(parts, sizes, strict=True):
        number = min(part.length, max(1, round(size / ideal)))
        cut = view.split(part, number) if number > 1 else [part]
        # Too few batch ends: two tasks then read the same batch.
        pieces += cut if len(cut) == number else _cut_evenly(part, number)
    return pieces


def _cut_evenly(part: OffsetRange, number: int) -> list[OffsetRange]:
    """Split a range into `number` ranges with equal numbers of offsets."""
    borders = [part.start_offset + part.length * index // number for index in range(number + 1)]
    return [part._replace(start_offset=low, end_offset=high) for low, high in pairwise(borders)]


def _pack(view: LogView, parts: Iterable[OffsetRange], max_records: int) -> list[list[OffsetRange]]:
    """Combine consecutive small ranges into tasks."""
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
