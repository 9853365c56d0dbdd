"""Retention: chooses segments to delete by log start, size and time, and deletes them.

A *policy* is asked about one segment after another, oldest first, until it declines one. Each
policy starts with the segments that the policies before it have left. A segment is deleted by

    log start    if all its records are below the log start, under any `cleanup.policy`
    size         if the partition still has `retention.bytes` without it
    time         if its newest record is older than `retention.ms`; if no record has a
                 timestamp, the file's mtime counts

No segment that reaches above the high watermark is deleted. Size and time also keep segments that
a recorded reader needs, and may delete the active segment: if all segments are to be deleted, a new
one is created first.

Deletion first raises the log start durably. From then on the segments below it are not part of the
log, whichever of their files a crash leaves.

Source: UnifiedLog.deleteOldSegments.
"""

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from streamlog.clock import Clock
from streamlog.config.log_config import LogConfig
from streamlog.partition.log import Log
from streamlog.records.layout import MAX_INT64
from streamlog.root.deeds import Deed
from streamlog.topic import TopicPartition

__all__ = [
    "Deletion",
    "Departure",
    "RetainedLog",
    "RetentionCandidate",
    "RetentionPolicy",
    "SegmentFacts",
    "delete_old_segments",
    "expected_departures",
    "plan_deletions",
    "reason_to_delete",
    "register_retention_policy",
    "retention_deeds",
]

_logger = logging.getLogger(__name__)


# ---- what a policy sees -----------------------------------------------------------------------
class SegmentFacts(Protocol):
    """The facts of a segment that retention uses; `Segment` has them."""

    @property
    def base_offset(self) -> int:
        """The segment's first offset."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the segment's log file."""
        ...

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its records, in ms; the file's mtime if none has one."""
        ...


class RetentionCandidate(NamedTuple):
    """A segment that may be deleted.

    Attributes:
        segment: The segment; its timestamp is read on demand.
        end_offset: The base offset of the next segment, or the log end.
        is_active: Whether it is the active segment.
    """

    segment: SegmentFacts
    end_offset: int
    is_active: bool


class RetainedLog(NamedTuple):
    """The facts of a partition that policies use.

    Attributes:
        config: The topic's settings.
        now_ms: The time.
        log_start_offset: The first offset that may be read.
        size: Bytes of all remaining segments.
    """

    config: LogConfig
    now_ms: int
    log_start_offset: int
    size: int


class RetentionPolicy(Protocol):
    """Decides which segments of a log are deleted."""

    def __call__(self, log: RetainedLog) -> Callable[[RetentionCandidate], bool] | None:
        """Return a predicate for segments to delete, or None if the policy does not apply.

        The predicate is called for one segment after another, oldest first, until it returns
        False.
        """
        ...


# ---- Kafka's policies ---------------------------------------------------------------------------
def _log_start_breached(log: RetainedLog) -> Callable[[RetentionCandidate], bool]:
    """Source: UnifiedLog.deleteLogStartOffsetBreachedSegments."""
    return lambda each: not each.is_active and each.end_offset <= log.log_start_offset


def _size_breached(log: RetainedLog) -> Callable[[RetentionCandidate], bool] | None:
    """Source: UnifiedLog.deleteRetentionSizeBreachedSegments."""
    limit = log.config.retention_bytes
    if "delete" not in log.config.cleanup_policy or limit < 0 or log.size < limit:
        return None
    excess = log.size - limit

    def goes(each: RetentionCandidate) -> bool:
        nonlocal excess
        excess -= each.segment.size
        return excess >= 0

    return goes


def _time_breached(log: RetainedLog) -> Callable[[RetentionCandidate], bool] | None:
    """Source: UnifiedLog.deleteRetentionMsBreachedSegments."""
    limit = log.config.retention_ms
    if "delete" not in log.config.cleanup_policy or limit < 0:
        return None
    return lambda each: log.now_ms - each.segment.largest_timestamp > limit


_LOG_START: Final = "log start"
_policies: Final[dict[str, RetentionPolicy]] = {
    _LOG_START: _log_start_breached,
    "retention.bytes": _size_breached,
    "retention.ms": _time_breached,
}


def register_retention_policy(name: str, policy: RetentionPolicy) -> None:
    """Add a policy after Kafka's, for all logs that this process maintains.

    Args:
        name: The reason that deletions report.
        policy: The policy; it returns None for logs that it does not apply to.
    """
    _policies[name] = policy


# ---- deciding -----------------------------------------------------------------------------------
def reason_to_delete(
    oldest: RetentionCandidate, log: RetainedLog, *, high_watermark: int, held_from: int
) -> str | None:
    """Return why the oldest segment is to be deleted; None if it stays, and so all segments do."""
    for reason, policy in _policies.items():
        goes = policy(log)
        is_due = goes is not None and goes(oldest)
        if is_due and _may_go(oldest, reason, high_watermark, held_from):
            return reason
    return None


def _may_go(oldest: RetentionCandidate, reason: str, high_watermark: int, held_from: int) -> bool:
    if oldest.is_active and oldest.segment.size == 0:
        return False  # deleting it would only create the same segment again
    bound = high_watermark if reason == _LOG_START else min(high_watermark, held_from)
    return oldest.end_offset <= bound


class Deletion(NamedTuple):
    """A segment to delete, and why."""

    base_offset: int
    end_offset: int
    size: int
    reason: str


def plan_deletions(
    segments: Sequence[SegmentFacts],
    *,
    config: LogConfig,
    now_ms: int,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    held_from: int = MAX_INT64,
) -> list[Deletion]:
    """Return the segments to delete, oldest first; nothing is changed.

    Args:
        segments: All segments, in order.
        config: The topic's settings.
        now_ms: The time.
        log_start_offset: The first offset that may be read.
        log_end_offset: The end of the last segment.
        high_watermark: Segments that reach above it stay.
        held_from: Recorded readers need all records from this offset on.

    Source: UnifiedLog.deletableSegments.
    """
    if not segments:  # a partition without a record yet
        return []
    ends = [*(each.base_offset for each in segments[1:]), log_end_offset]
    left = [
        RetentionCandidate(segment, end, is_active=at == len(segments) - 1)
        for at, (segment, end) in enumerate(zip(segments, ends, strict=True))
    ]
    gone: list[Deletion] = []
    size = sum(each.size for each in segments)
    for reason, policy in _policies.items():
        goes = policy(RetainedLog(config, now_ms, log_start_offset, size))
        while goes is not None and left and _may_go(left[0], reason, high_watermark, held_from):
            if not goes(left[0]):
                break
            segment, end, _ = left.pop(0)
            gone.append(Deletion(segment.base_offset, end, segment.size, reason))
            size -= segment.size
            log_start_offset = max(log_start_offset, end)
    return gone


class Departure(NamedTuple):
    """When Kafka's policies will delete a segment, if nothing else keeps it.

    Attributes:
        base_offset: The segment's first offset.
        at_ms: The first time at which `retention.ms` deletes it; None: never.
        after_bytes: How many bytes must be appended until `retention.bytes` deletes it; None: no
            number does.
    """

    base_offset: int
    at_ms: int | None
    after_bytes: int | None


def expected_departures(segments: Sequence[SegmentFacts], *, config: LogConfig) -> list[Departure]:
    """Return when each segment will be deleted, oldest first; `plan_deletions` decides then.

    Readers that hold segments and the high watermark may keep a segment for longer.

    Args:
        segments: All segments, in order.
        config: The topic's settings.
    """
    is_deleted = "delete" in config.cleanup_policy
    total, gone, latest_ms = sum(each.size for each in segments), 0, 0
    found = []
    for segment in segments:
        at_ms = after_bytes = None
        if is_deleted and config.retention_ms >= 0:
            # No segment leaves before the older ones.
            latest_ms = max(latest_ms, segment.largest_timestamp)
            at_ms = latest_ms + config.retention_ms + 1
        if is_deleted and config.retention_bytes >= 0:
            gone += segment.size
            after_bytes = max(0, config.retention_bytes + gone - total)
        found.append(Departure(segment.base_offset, at_ms, after_bytes))
    return found


def retention_deeds(partition: TopicPartition, gone: Sequence[Deletion], now_ms: int) -> list[Deed]:
    """Return what deletions are in the book of a root: a deed for each reason."""
    deeds = []
    for reason, group in itertools.groupby(gone, key=lambda each: each.reason):
        segments = list(group)
        deeds.append(
            Deed(
                ms=now_ms,
                topic=partition.topic,
                partition=partition.partition,
                action="retention",
                reason=reason,
                segments=len(segments),
                bytes=sum(each.size for each in segments),
                log_start_offset=segments[-1].end_offset,
            )
        )
    return deeds


# ---- deleting -----------------------------------------------------------------------------------
def delete_old_segments(log: Log, clock: Clock, *, held_from: int = MAX_INT64) -> list[Deletion]:
    """Delete the segments of a partition that retention does not keep; durable.

    Args:
        log: The partition.
        clock: The clock.
        held_from: Recorded readers need all records from this offset on.

    Returns:
        The deleted segments, oldest first.

    Raises:
        LockTimeoutError: Another process kept the partition's lock.
        StorageError: A file cannot be renamed; the next call continues.
    """
    with log.locked():
        now_ms = clock.now_ms()
        gone = plan_deletions(
            tuple(log.segments),
            config=log.config,
            now_ms=now_ms,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            held_from=held_from,
        )
        if gone:
            log.drop_segments(gone[-1].end_offset)
    for each in gone:
        _logger.info(
            "[%s] deleted segment %d: %s", log.topic_partition, each.base_offset, each.reason
        )
    return gone
