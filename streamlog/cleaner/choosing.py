"""Which part of a partition can be cleaned, and whether it is due.

    log start          first dirty                first uncleanable        active segment
        |  clean section    |      dirty section          |       …              |
        | cleaned before    | cleaned next                | too recent, or in an open transaction

The dirty section starts where the last round ended. It ends at the lowest of the last stable
offset, the active segment, and the first segment with a record within `min.compaction.lag.ms`.

Source: org.apache.kafka.storage.internals.log.LogCleanerManager, LogToClean.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from streamlog.config.log_config import LogConfig
from streamlog.records.layout import MAX_INT64
from streamlog.topic import TopicPartition

__all__ = [
    "Cleanable",
    "CleanableLog",
    "DirtySegment",
    "Reason",
    "find_cleanable",
    "segments_between",
]


class DirtySegment(Protocol):
    """The facts of a segment by which cleaning is chosen; `Segment` has them."""

    @property
    def base_offset(self) -> int:
        """The segment's first offset."""
        ...

    @property
    def size(self) -> int:
        """Bytes of its log."""
        ...

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its records, in ms; -1 if none has one."""
        ...

    @property
    def created_ms(self) -> int:
        """When it was created, in ms since 1970."""
        ...

    @property
    def first_batch_timestamp(self) -> int | None:
        """The largest timestamp of its first batch, in ms; None if it is empty."""
        ...


class CleanableLog(Protocol):
    """The facts of a partition by which cleaning is chosen."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        ...

    @property
    def segments(self) -> Iterable[DirtySegment]:
        """Its segments in order; the last one is active."""
        ...

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        ...

    @property
    def last_stable_offset(self) -> int:
        """Where the first open transaction begins, or the log ends."""
        ...


_S = TypeVar("_S", bound=DirtySegment)


class Reason(Enum):
    """Why a partition is due for cleaning, or not."""

    DIRTY = "its dirty ratio is above min.cleanable.dirty.ratio"
    OLD = "a dirty record is older than max.compaction.lag.ms"
    CLEAN_ENOUGH = "its dirty ratio is not above min.cleanable.dirty.ratio"
    NOTHING_DIRTY = "no sealed segment is dirty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The part of a partition that can be cleaned.

    Attributes:
        topic_partition: The partition.
        first_dirty_offset: The start of the dirty section.
        end_offset: Its end: the base offset of the first segment that cannot be cleaned.
        clean_bytes: Bytes of the segments before the dirty section.
        cleanable_bytes: Bytes of its segments.
        reason: Why cleaning is due, or why not.
        changes_ms: The earliest time at which the answer changes without any new data.
    """

    topic_partition: TopicPartition
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    reason: Reason
    changes_ms: int

    @property
    def ratio(self) -> float:
        """The dirty ratio, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether cleaning is due."""
        return self.reason in (Reason.DIRTY, Reason.OLD)


def find_cleanable(
    log: CleanableLog,
    checkpoint: int | None,
    *,
    config: LogConfig,
    now_ms: int,
    held_from: int = MAX_INT64,
) -> Cleanable:
    """Return the part of a partition that can be cleaned, and whether it is due.

    Args:
        log: The partition, caught up.
        checkpoint: The end of the last round, None without one.
        config: The topic's settings.
        now_ms: The time.
        held_from: Recorded readers need all records from this offset on.

    Raises:
        CorruptRecordError: A batch whose timestamp is needed is damaged.
        StorageError: A file cannot be read.
    """
    segments, start = tuple(log.segments), log.log_start_offset
    first_dirty = start if checkpoint is None else checkpoint
    if not start <= first_dirty <= log.log_end_offset:
        first_dirty = start
    end, changes_ms = segments[-1].base_offset, MAX_INT64
    if first_dirty < end:
        young = _first_young(segments, config, first_dirty, now_ms)
        end = min(end, log.last_stable_offset, held_from, young.offset)
        changes_ms = young.until_ms
    if end > segments[0].base_offset:
        end = segments[_floor(segments, end)].base_offset
    dirty = segments_between(segments, first_dirty, end)
    size = sum(segment.size for segment in dirty)
    clean = sum(segment.size for segment in segments if segment.base_offset < first_dirty)
    found = Cleanable(
        topic_partition=log.topic_partition,
        first_dirty_offset=first_dirty,
        end_offset=max(first_dirty, end),
        clean_bytes=clean,
        cleanable_bytes=size,
        reason=Reason.NOTHING_DIRTY,
        changes_ms=changes_ms,
    )
    return _with_reason(found, segments, config, now_ms) if size else found


def _with_reason(
    found: Cleanable, segments: Sequence[DirtySegment], config: LogConfig, now_ms: int
) -> Cleanable:
    reason, old_from_ms = Reason.CLEAN_ENOUGH, MAX_INT64
    if found.ratio > config.min_cleanable_dirty_ratio:
        reason = Reason.DIRTY
    else:
        sealed = _sealed_from(segments, found.first_dirty_offset)
        old_from_ms = _old_from_ms(sealed, config)
        if old_from_ms <= now_ms:
            reason = Reason.OLD
    return replace(found, reason=reason, changes_ms=min(found.changes_ms, old_from_ms))


def segments_between(segments: Iterable[_S], start: int, end: int) -> list[_S]:
    """Return the segment that contains `start`, and those after it with a base below `end`."""
    if start >= end:
        return []
    found = tuple(segments)
    return [each for each in found[max(0, _floor(found, start)) :] if each.base_offset < end]


def _floor(segments: Sequence[DirtySegment], offset: int) -> int:
    """Return the index of the last segment whose base is at most `offset`, -1 for none."""
    return bisect_right(segments, offset, key=lambda each: each.base_offset) - 1


def _sealed_from(segments: Sequence[_S], offset: int) -> list[_S]:
    return segments_between(segments, offset, segments[-1].base_offset)


class _Young(NamedTuple):
    """The start of the records within the minimum lag, and the time until which it holds."""

    offset: int
    until_ms: int


def _first_young(
    segments: Sequence[DirtySegment], config: LogConfig, first_dirty: int, now_ms: int
) -> _Young:
    """Return the base of the first dirty segment with a record within the minimum lag."""
    lag_ms = config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in _sealed_from(segments, first_dirty):
            timestamp = segment.max_timestamp
            newest = timestamp if timestamp >= 0 else segment.created_ms
            if newest > now_ms - lag_ms:
                return _Young(segment.base_offset, newest + lag_ms)
    return _Young(MAX_INT64, MAX_INT64)


def _old_from_ms(segments: Iterable[DirtySegment], config: LogConfig) -> int:
    """Return the time at which the oldest dirty segment exceeds the maximum lag."""
    times = (segment.first_batch_timestamp or 0 for segment in segments)
    oldest = min((each for each in times if each > 0), default=MAX_INT64)
    return oldest + config.max_compaction_lag_ms + 1
