"""The partitions of a root in an object store that a query reads, as the planner's view of the log.

All of them come from one journal, so a refresh is one request if nothing is new, whatever their
number, and two if there is something. Requests cost money as well as time: an idle query rests
`IDLE_PART` times as long as the last one took.

A planned range carries the places of its records. The tasks read them and nothing else.
"""

from collections.abc import Mapping
from typing import Final

from streamlog.arrow.log_view import OffsetRange, PartitionBounds, TopicChoice
from streamlog.arrow.planned import PlannedRange
from streamlog.arrow.subscription import IdleRest, check_topics
from streamlog.bucket.read_roots import BucketReadRoots
from streamlog.bucket.spans import covering, epochs_of, size_between, split, with_aborts
from streamlog.bucket.state import RootState
from streamlog.clock import Clock, SystemClock
from streamlog.topic import TopicPartition

__all__ = ["BucketLogView"]

IDLE_PART: Final = 4
LEAST_REST_MS: Final = 50


class BucketLogView:
    """The chosen partitions of a root in an object store, as the planner's `LogView`.

    Args:
        roots: The root.
        choice: The topics and partitions.
        clock: Measures requests; the machine's own by default.
        max_decompressed_bytes: Limit of one decompressed batch, for lookups by time.

    Attributes:
        bounds: The offsets of each partition; a new dictionary after every change.
        topic_ids: The ids of the topics.

    Raises:
        UnknownTopicError: There is no root, or a topic given by name does not exist.
        StorageError: A request failed.
    """

    def __init__(
        self,
        roots: BucketReadRoots,
        choice: TopicChoice,
        *,
        clock: Clock | None = None,
        max_decompressed_bytes: int | None = None,
    ) -> None:
        self._roots, self._choice = roots, choice
        self._max_decompressed_bytes = max_decompressed_bytes
        self._rest = IdleRest(clock or SystemClock(), IDLE_PART, least_ms=LEAST_REST_MS)
        self._seen: RootState | None = None
        self.bounds: Mapping[TopicPartition, PartitionBounds] = {}
        self.topic_ids: Mapping[str, str] = {}
        check_topics(roots, choice)
        self._follow()

    def refresh(self, *, is_idle: bool = False) -> None:
        """Update the bounds: one request, or two if something is new.

        Args:
            is_idle: Whether the last refresh found nothing new. In that case this call returns at
                once until `IDLE_PART` times the duration of the last refresh has passed.

        Raises:
            UnknownTopicError: The root no longer exists.
            StorageError: A request failed.
        """
        if is_idle and self._rest.lasts():
            return
        with self._rest.after_this():
            self._roots.root.refresh()
        self._follow()

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def _follow(self) -> None:
        state = self._roots.root.state
        if state is self._seen:
            return
        self._seen = state
        bounds = {
            partition: PartitionBounds(at.log_start_offset, at.end_offset, at.end_offset)
            for partition, at in sorted(state.partitions.items())
            if self._choice.wants(*partition)
        }
        topics = {partition.topic for partition in bounds}
        self.topic_ids = {topic: state.topics[topic].topic_id for topic in sorted(topics)}
        if bounds != self.bounds:
            self.bounds = bounds

    # ---- lookups for the planner --------------------------------------------------------------
    def epoch_before(self, partition: TopicPartition, offset: int) -> int:
        """Return the leader epoch of the record before `offset`, -1 if unknown."""
        at = self._state.partitions[partition]
        found = epochs_of(at).epoch_for_offset(max(offset - 1, at.log_start_offset))
        return -1 if found is None else found

    def end_of_epoch(self, partition: TopicPartition, epoch: int) -> int | None:
        """Return the end of a leader epoch: 0 if the log never had it, None if unknown."""
        at = self._state.partitions[partition]
        if not at.epochs:
            return None
        known, end = epochs_of(at).end_offset_for(epoch, at.end_offset)
        return end if known >= 0 else 0

    def offset_for_timestamp(self, partition: TopicPartition, timestamp: int) -> int | None:
        """Return the first offset whose timestamp (ms) is at least `timestamp`, or None."""
        limit = self._max_decompressed_bytes
        reader = self._roots.open(partition, max_decompressed_bytes=limit)
        found = reader.offset_for_timestamp(timestamp)
        return None if found is None else found.offset

    def size_of(self, part: OffsetRange) -> int:
        """Return the approximate size of a range in bytes."""
        at = self._state.partitions[part.topic_partition]
        return size_between(at, part.start_offset, part.end_offset)

    def split(self, part: OffsetRange, parts: int) -> list[OffsetRange]:
        """Split a range at batch ends into at most `parts` ranges of about equal bytes."""
        at = self._state.partitions[part.topic_partition]
        return [
            OffsetRange(part.topic, part.partition, start, end)
            for start, end in split(at, part.start_offset, part.end_offset, parts)
        ] or [part]

    def planned(self, part: OffsetRange) -> PlannedRange:
        """Return a range with the places of its records."""
        at = self._state.partitions[part.topic_partition]
        return PlannedRange(
            self._roots.paths,
            self.topic_ids.get(part.topic, ""),
            *part,
            max_decompressed_bytes=self._state.config_of(part.topic).readable_decompressed_bytes,
            stretches=with_aborts(at, covering(at, part.start_offset, part.end_offset)),
        )

    def describe_held_back(self) -> None:
        """Return None: no record in an object store belongs to an open transaction."""

    @property
    def _state(self) -> RootState:
        return self._roots.root.state
