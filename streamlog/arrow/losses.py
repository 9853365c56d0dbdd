"""Records that a query counted on and that are not there any more.

Four things take records away: retention (the log start moved past an offset), a power cut or a
truncation (the log end moved back, or the leader epoch of the last record read ends before it),
deletion of a partition, and a topic deleted and made again under the same name (another id). The
reasons are named as Spark's Kafka source names them where it knows them. Gaps inside a log, which
compaction and transaction markers leave, are no losses.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from streamlog.errors import DataLossError
from streamlog.query.offsets import SourceOffset
from streamlog.topic import TopicPartition

if TYPE_CHECKING:
    from streamlog.spark.planning import LogView

__all__ = [
    "DataLoss",
    "LossReporter",
    "made_again",
    "partitions_deleted",
    "range_losses",
    "start_losses",
    "start_reset",
    "unreadable",
]

_log = logging.getLogger(__name__)


class DataLoss(NamedTuple):
    """One thing that is gone.

    Attributes:
        reason: A word for it; those of KAFKA_DATA_LOSS where Spark has one.
        text: What is gone, with its numbers.
    """

    reason: str
    text: str


def start_losses(view: "LogView", start: SourceOffset) -> list[DataLoss]:
    """Return what is gone since a query stopped at `start`, the records behind it included."""
    losses = _lost_partitions(view, start)
    for partition, offset in sorted(start.offsets.items()):
        bounds = view.bounds.get(partition)
        if bounds is None or _was_made_again(view, partition.topic, start.topic_ids):
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


def range_losses(view: "LogView", start: SourceOffset, end: SourceOffset) -> list[DataLoss]:
    """Return what is gone of the records between two offsets that were planned together."""
    gone = sorted(set(start.offsets) - set(end.offsets))
    losses = [partitions_deleted(gone)] if gone else []
    losses += _lost_partitions(view, end)
    for partition, stop in sorted(end.offsets.items()):
        bounds = view.bounds.get(partition)
        if bounds is None or _was_made_again(view, partition.topic, end.topic_ids):
            continue
        begin = start.offsets.get(partition)
        if begin is None:
            if bounds.log_start_offset > 0:
                losses.append(_added_late(partition, bounds.log_start_offset))
        elif _was_made_again(view, partition.topic, start.topic_ids):
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


def _lost_partitions(view: "LogView", offset: SourceOffset) -> list[DataLoss]:
    losses = []
    gone = sorted(set(offset.offsets) - set(view.bounds))
    if gone:
        losses.append(partitions_deleted(gone))
    topics = {partition.topic for partition in offset.offsets if partition in view.bounds}
    losses += [
        made_again(topic)
        for topic in sorted(topics)
        if _was_made_again(view, topic, offset.topic_ids)
    ]
    return losses


def _lost_by_epoch(
    view: "LogView", partition: TopicPartition, position: SourceOffset
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


def _was_made_again(view: "LogView", topic: str, topic_ids: Mapping[str, str]) -> bool:
    before, now = topic_ids.get(topic), view.topic_ids.get(topic)
    return before is not None and now is not None and before != now


def made_again(topic: str) -> DataLoss:
    """Say that a topic is another one of the same name."""
    return DataLoss(
        "TOPIC_RECREATED", f"Topic {topic} was deleted and made again: it has another id."
    )


def partitions_deleted(partitions: list[TopicPartition]) -> DataLoss:
    """Say that partitions are gone."""
    names = ", ".join(map(str, partitions))
    return DataLoss("PARTITIONS_DELETED", f"Partitions {names} are gone.")


def _went_back(partition: TopicPartition, before: int, now: int) -> DataLoss:
    return DataLoss(
        "PARTITION_OFFSET_CHANGED",
        f"Partition {partition} offset was changed from {before} to {now}.",
    )


def start_reset(partition: TopicPartition, offset: int, first: int) -> DataLoss:
    """Say that the log starts behind the offset that was to be read."""
    return DataLoss(
        "START_OFFSET_RESET",
        f"Starting offset for {partition} was {offset}, but the log starts at {first}.",
    )


def _added_late(partition: TopicPartition, first: int) -> DataLoss:
    return DataLoss(
        "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        f"Added partition {partition} starts from {first} instead of 0.",
    )


def unreadable(partition: TopicPartition, start: int, end: int) -> DataLoss:
    """Say that planned offsets are not there any more."""
    return DataLoss(
        "COULD_NOT_READ_OFFSET_RANGE",
        f"Offsets {start} to {end} of {partition} cannot be read any more.",
    )


def _error(losses: Iterable[DataLoss]) -> DataLossError:
    """Return the error for losses, worded so that handlers of Kafka's source know it again."""
    kept = list(losses)
    reasons = " ".join(f"[{loss.reason}] {loss.text}" for loss in kept)
    return DataLossError(
        "Some data may have been lost because they are not available in the log any more: they "
        "were aged out or cut off, or the topic was deleted, before all of them were processed. "
        "If you don't want your streaming query to fail on such cases, set the source option "
        f"failOnDataLoss to false. Reason: {reasons}",
        hint='.option("failOnDataLoss", "false")',
    )


class LossReporter:
    """Fails at the first loss, or warns of each one once.

    Args:
        fail: The option `failOnDataLoss`.
    """

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._reported: set[DataLoss] = set()

    def report(self, losses: Iterable[DataLoss]) -> None:
        """Say what is gone.

        Raises:
            DataLossError: Something is, and the query is to fail then.
        """
        kept = [loss for loss in losses if loss not in self._reported]
        if kept and self._fail:
            raise _error(kept)
        for loss in kept:
            _log.warning("some data may have been missed: [%s] %s", loss.reason, loss.text)
            self._reported.add(loss)
