"""The log as a planner sees it: partitions, their bounds, and ranges of offsets.

This module is light: Spark's source imports it in processes that never read a record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from streamlog.arrow.planned import PlannedRange
from streamlog.topic import INTERNAL_TOPICS, TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "LogView",
    "OffsetRange",
    "OpenLogView",
    "PartitionBounds",
    "TopicChoice",
]

LATEST: Final = -1  # KafkaOffsetRangeLimit.LATEST
EARLIEST: Final = -2  # KafkaOffsetRangeLimit.EARLIEST
# A pattern does not match them, as in Kafka's clients; nor the controller's log on a broker's disk
# (Topic.CLUSTER_METADATA_TOPIC_NAME), which no client ever sees
_INTERNAL: Final = INTERNAL_TOPICS | {"__cluster_metadata"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChoice:
    """The topics and partitions to read; exactly one of the three attributes is set.

    Attributes:
        topics: Names (`subscribe`).
        pattern: A Java regular expression that matches whole names (`subscribePattern`).
        partitions: Partitions (`assign`).
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def wants(self, topic: str, partition: int) -> bool:
        """Return whether an existing partition is to be read."""
        if self.pattern is not None:
            from streamlog.arrow.java_pattern import matches_topic

            return topic not in _INTERNAL and matches_topic(self.pattern, topic)
        return topic in self.topics or (topic, partition) in self.partitions

    def required(self) -> tuple[str, ...]:
        """Return the topics that must exist; none where a pattern decides."""
        return self.topics or tuple(dict.fromkeys(topic for topic, _ in self.partitions))


class PartitionBounds(NamedTuple):
    """The offsets of one partition at one moment.

    Attributes:
        log_start_offset: Offset of the first record.
        end_offset: Where reading ends under the isolation level (exclusive).
        log_end_offset: Offset after the last record. Of a replica set: 2^63 - 1 while no replica is
            reachable that holds all committed records, so that no offset counts as lost.
    """

    log_start_offset: int
    end_offset: int
    log_end_offset: int


class OffsetRange(NamedTuple):
    """Offsets of one partition; `end_offset` is exclusive."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the offsets belong to."""
        return TopicPartition(self.topic, self.partition)

    @property
    def length(self) -> int:
        """Number of offsets; the range may hold fewer records."""
        return self.end_offset - self.start_offset


class LogView(Protocol):
    """The chosen partitions as they were at one moment, and lookups in their indexes."""

    bounds: Mapping[TopicPartition, PartitionBounds]
    topic_ids: Mapping[str, str]

    def epoch_before(self, partition: TopicPartition, offset: int) -> int:
        """Return the leader epoch of the record before `offset`, -1 if unknown."""
        ...

    def end_of_epoch(self, partition: TopicPartition, epoch: int) -> int | None:
        """Return the end of a leader epoch: 0 if the log never had it, None if unknown."""
        ...

    def offset_for_timestamp(self, partition: TopicPartition, timestamp: int) -> int | None:
        """Return the first offset whose timestamp (ms) is at least `timestamp`, or None."""
        ...

    def size_of(self, part: OffsetRange) -> int:
        """Return the approximate size of a range in bytes."""
        ...

    def split(self, part: OffsetRange, parts: int) -> list[OffsetRange]:
        """Split a range at batch ends into at most `parts` ranges of about equal bytes."""
        ...


class OpenLogView(LogView, Protocol):
    """A `LogView` that follows the log until it is closed; `open_view` returns one."""

    def refresh(self, *, is_idle: bool = False) -> None:
        """Update the bounds, and from time to time the list of partitions.

        Args:
            is_idle: Whether the last refresh found nothing new: this one may then do nothing.
        """
        ...

    def planned(self, part: OffsetRange) -> PlannedRange:
        """Return a range with all that a task needs to read it."""
        ...

    def describe_held_back(self) -> str | None:
        """Return one line about records held back by open transactions; None if there are none."""
        ...

    def close(self) -> None:
        """Close the files; idempotent."""
        ...
