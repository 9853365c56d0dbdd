"""Records that a query counted on and that are not there any more.

Four things take records away: retention (the log start moved past an offset), a power cut or a
truncation (the log end moved back, or the leader epoch of the last record read ends before it),
deletion of a partition, and a topic deleted and made again under the same name (another id). The
reasons are named as Spark's Kafka source names them where it knows them. Gaps inside a log, which
compaction and transaction markers leave, are no losses.
"""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from streamlog.errors import DataLossError
from streamlog.topic import TopicPartition

__all__ = [
    "DataLoss",
    "LossReporter",
    "made_again",
    "partitions_deleted",
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


def made_again(topic: str) -> DataLoss:
    """Say that a topic is another one of the same name."""
    return DataLoss(
        "TOPIC_RECREATED", f"Topic {topic} was deleted and made again: it has another id."
    )


def partitions_deleted(partitions: list[TopicPartition]) -> DataLoss:
    """Say that partitions are gone."""
    names = ", ".join(map(str, partitions))
    return DataLoss("PARTITIONS_DELETED", f"Partitions {names} are gone.")


def start_reset(partition: TopicPartition, offset: int, first: int) -> DataLoss:
    """Say that the log starts behind the offset that was to be read."""
    return DataLoss(
        "START_OFFSET_RESET",
        f"Starting offset for {partition} was {offset}, but the log starts at {first}.",
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
