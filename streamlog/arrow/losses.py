"""Data loss: records that a query expects and that no longer exist.

There are four causes: retention (the log start passed an offset); a power cut or a truncation (the
log end moved back, or the leader epoch of the last record read ends before it); deletion of a
partition; deletion of a topic and creation of another one with the same name. Reasons have the
names of Spark's Kafka source where it has one. Gaps inside a log, which compaction and transaction
markers leave, are not losses.
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
    """One loss.

    Attributes:
        reason: Its name; those of Spark's error class KAFKA_DATA_LOSS where it has one.
        text: The lost partitions or offsets.
    """

    reason: str
    text: str


def made_again(topic: str) -> DataLoss:
    """Return the loss of a topic whose name now belongs to another topic."""
    return DataLoss(
        "TOPIC_RECREATED", f"Topic {topic} was deleted and created again: it has another id."
    )


def partitions_deleted(partitions: list[TopicPartition]) -> DataLoss:
    """Return the loss of whole partitions."""
    names = ", ".join(map(str, partitions))
    return DataLoss("PARTITIONS_DELETED", f"Partitions {names} have been deleted.")


def start_reset(partition: TopicPartition, offset: int, first: int) -> DataLoss:
    """Return the loss of the records between a planned offset and the log start."""
    return DataLoss(
        "START_OFFSET_RESET",
        f"Starting offset for {partition} was {offset}, but the log starts at {first}.",
    )


def unreadable(partition: TopicPartition, start: int, end: int) -> DataLoss:
    """Return the loss of planned offsets at the end of a range."""
    return DataLoss(
        "COULD_NOT_READ_OFFSET_RANGE",
        f"Offsets {start} to {end} of {partition} can no longer be read.",
    )


def _error(losses: Iterable[DataLoss]) -> DataLossError:
    """Return the error for losses, in the words of Spark's Kafka source, which handlers match."""
    kept = list(losses)
    reasons = " ".join(f"[{loss.reason}] {loss.text}" for loss in kept)
    return DataLossError(
        "Some data may have been lost because they are not available in the log any more; either "
        "the data was aged out or truncated, or the topic was deleted before all of it was "
        "processed. "
        "If you don't want your streaming query to fail on such cases, set the source option "
        f"failOnDataLoss to false. Reason: {reasons}",
        hint='.option("failOnDataLoss", "false")',
    )


class LossReporter:
    """Raises at the first loss, or logs a warning for each one once.

    Args:
        fail: The option `failOnDataLoss`.
    """

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._reported: set[DataLoss] = set()

    def report(self, losses: Iterable[DataLoss]) -> None:
        """Report losses.

        Raises:
            DataLossError: There is one, and `fail` is set.
        """
        kept = [loss for loss in losses if loss not in self._reported]
        if kept and self._fail:
            raise _error(kept)
        for loss in kept:
            _log.warning("some data may have been lost: [%s] %s", loss.reason, loss.text)
            self._reported.add(loss)
