"""Retention and the choice of compactions in an object store, by the rules for directories.

The rules ask for segments. Those that the settings ended are there; the open ones and the staged
extents after them, a partition's tail, count as the active segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streamlog.bucket.actions import Action, SetLogStart
from streamlog.bucket.keys import staged_ms
from streamlog.bucket.state import BucketPartition, RootState, Stretch
from streamlog.cleaner.choosing import Cleanable, find_cleanable
from streamlog.maintenance.retention import Deletion, plan_deletions
from streamlog.records.layout import MAX_INT64
from streamlog.root.readers import Held, Holds, held_from
from streamlog.topic import TopicPartition

__all__ = ["RetentionPlan", "find_dirty", "plan_retention"]


@dataclass(frozen=True, slots=True)
class _Segment:
    """A sealed segment, or the tail, as the rules see it."""

    base_offset: int
    size: int
    largest_timestamp: int
    first_batch_timestamp: int | None

    @property
    def max_timestamp(self) -> int:
        return self.largest_timestamp

    @property
    def created_ms(self) -> int:
        return self.largest_timestamp


@dataclass(frozen=True, slots=True)
class _Facts:
    """A partition as the rules see it."""

    topic_partition: TopicPartition
    segments: tuple[_Segment, ...]
    log_start_offset: int
    log_end_offset: int

    @property
    def last_stable_offset(self) -> int:
        return self.log_end_offset


class RetentionPlan(NamedTuple):
    """What retention does to a partition.

    Attributes:
        topic_partition: The partition.
        gone: The segments to delete, oldest first.
        held: What recorded readers keep of it.
    """

    topic_partition: TopicPartition
    gone: list[Deletion]
    held: list[Held]

    def action(self, state: RootState) -> Action:
        """Return the action that deletes them."""
        return SetLogStart(
            topic_partition=self.topic_partition,
            topic_id=state.topics[self.topic_partition.topic].topic_id,
            offset=max(
                self.gone[-1].end_offset, state.partitions[self.topic_partition].log_start_offset
            ),
        )


def plan_retention(
    state: RootState, partition: TopicPartition, now_ms: int, holds: Holds | None
) -> RetentionPlan:
    """Return what retention does to a partition now.

    Args:
        state: The root.
        partition: The partition.
        now_ms: The time.
        holds: What recorded readers keep; None to leave them out.

    Raises:
        InvalidConfigError: The root has a setting that this version does not know.
    """
    facts = _facts(partition, state.partitions[partition])
    held = _held(state, partition, facts, holds)
    gone = plan_deletions(
        facts.segments,
        config=state.config_of(partition.topic),
        now_ms=now_ms,
        log_start_offset=facts.log_start_offset,
        log_end_offset=facts.log_end_offset,
        high_watermark=facts.log_end_offset,
        held_from=held_from(held),
    )
    return RetentionPlan(partition, gone, held)


def find_dirty(
    state: RootState, partition: TopicPartition, now_ms: int, holds: Holds | None
) -> Cleanable | None:
    """Return what compaction can clean of a partition; None if its topic is not compacted."""
    config = state.config_of(partition.topic)
    at = state.partitions[partition]
    if "compact" not in config.cleanup_policy or not at.tail:
        return None
    facts = _facts(partition, at)
    held = held_from(_held(state, partition, facts, holds))
    return find_cleanable(facts, at.cleaned_offset, config=config, now_ms=now_ms, held_from=held)


def _held(
    state: RootState, partition: TopicPartition, facts: _Facts, holds: Holds | None
) -> list[Held]:
    if holds is None or not facts.segments:
        return []
    bases = [each.base_offset for each in facts.segments]
    sizes = [each.size for each in facts.segments]
    return holds.of_topic(partition, state.topics[partition.topic].topic_id, bases, sizes)


def _facts(partition: TopicPartition, at: BucketPartition) -> _Facts:
    segments = [
        _Segment(each.base_offset, each.size, each.max_timestamp, each.first_timestamp)
        for each in at.stretches[: at.tail]
    ]
    if at.stretches:
        segments.append(_tail(at.stretches[at.tail :], at.end_offset))
    return _Facts(partition, tuple(segments), at.log_start_offset, at.end_offset)


def _tail(stretches: Sequence[Stretch], end_offset: int) -> _Segment:
    """Return the tail as a segment: the active one, which may be empty."""
    if not stretches:
        return _Segment(end_offset, 0, MAX_INT64, None)
    newest = max(each.max_timestamp for each in stretches)
    if newest < 0:  # no record has a timestamp: the time of the write counts, as of a file
        newest = max(staged_ms(each.key) or 0 for each in stretches)
    first = stretches[0]
    return _Segment(
        first.base_offset, sum(each.size for each in stretches), newest, first.first_timestamp
    )
