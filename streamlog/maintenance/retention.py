"""Which of the oldest segments go: by log start, by size, by time; and their going.

A *policy* is asked about one segment after the other, the oldest first, until it says no. Each
one starts with what those before it have left:

    log start    whatever `cleanup.policy` is: all records lie below the log start
    size         without the segment there still are `retention.bytes` in the partition
    time         its youngest record is older than `retention.ms`; where no record has a
                 timestamp, the file's last change counts

Nothing goes that reaches above the high watermark. The last two also leave what a recorded
reader still needs, and may take the active segment: where all segments would go, a new one is
made first.

Deleting begins with the log start: once that is durable, the segments below it are no part of
the log, whatever a crash leaves of their files.

Source: UnifiedLog.deleteOldSegments.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from streamlog.clock import Clock
from streamlog.config.log_config import LogConfig
from streamlog.partition.log import Log
from streamlog.records.layout import MAX_INT64

__all__ = [
    "RetentionCandidate",
    "Deletion",
    "RetainedLog",
    "RetentionPolicy",
    "SegmentFacts",
    "delete_old_segments",
    "plan_deletions",
    "reason_to_delete",
    "register_retention_policy",
]

_logger = logging.getLogger(__name__)


# ---- what a policy sees -----------------------------------------------------------------------
class SegmentFacts(Protocol):
    """A segment, as far as retention looks at it; `Segment` is one."""

    @property
    def base_offset(self) -> int:
        """Its first offset."""
        ...

    @property
    def size(self) -> int:
        """Its bytes."""
        ...

    @property
    def largest_timestamp(self) -> int:
        """That of its youngest record, in ms; of the file where no record has one."""
        ...


class RetentionCandidate(NamedTuple):
    """A segment that may go.

    Attributes:
        segment: Itself; its timestamp is read when it is asked for.
        end_offset: Where the next segment starts, or the log ends.
        is_active: Whether it is the last one.
    """

    segment: SegmentFacts
    end_offset: int
    is_active: bool


class RetainedLog(NamedTuple):
    """A partition, as a policy sees it.

    Attributes:
        config: The topic's settings.
        now_ms: The time.
        log_start_offset: The first offset that may be read.
        size: Bytes of all segments that are left.
    """

    config: LogConfig
    now_ms: int
    log_start_offset: int
    size: int


class RetentionPolicy(Protocol):
    """Decides about the segments of a log, one after the other."""

    def __call__(self, log: RetainedLog) -> Callable[[RetentionCandidate], bool] | None:
        """Return what tells of each segment, the oldest first, whether it goes.

        It is asked until it says no. None: this log is none of the policy's business.
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
    """Add a policy, which is asked behind Kafka's; for all logs this process maintains.

    Args:
        name: What a deletion gives as its reason.
        policy: It says itself which logs it has to do with.
    """
    _policies[name] = policy


# ---- deciding -----------------------------------------------------------------------------------
def reason_to_delete(
    oldest: RetentionCandidate, log: RetainedLog, *, high_watermark: int, held_from: int
) -> str | None:
    """Return why the oldest segment of a log goes, None where it stays, and so do all others."""
    for reason, policy in _policies.items():
        goes = policy(log)
        is_due = goes is not None and goes(oldest)
        if is_due and _may_go(oldest, reason, high_watermark, held_from):
            return reason
    return None


def _may_go(oldest: RetentionCandidate, reason: str, high_watermark: int, held_from: int) -> bool:
    if oldest.is_active and oldest.segment.size == 0:
        return False
    bound = high_watermark if reason == _LOG_START else min(high_watermark, held_from)
    return oldest.end_offset <= bound


class Deletion(NamedTuple):
    """A segment that goes, and why."""

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
    """Return the segments that go, the oldest first; nothing is changed.

    Args:
        segments: All of them, in order.
        config: The topic's settings.
        now_ms: The time.
        log_start_offset: The first offset that may be read.
        log_end_offset: Where the last segment ends.
        high_watermark: Nothing goes that reaches above it.
        held_from: Recorded readers need what lies from here on.

    Source: UnifiedLog.deletableSegments.
    """
    if not segments:  # nobody has written to the partition yet
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


# ---- deleting -----------------------------------------------------------------------------------
def delete_old_segments(log: Log, clock: Clock, *, held_from: int = MAX_INT64) -> list[Deletion]:
    """Delete what retention lets go of a partition; durable.

    Args:
        log: The partition.
        clock: The clock.
        held_from: Recorded readers need what lies from here on.

    Returns:
        What went, the oldest first.

    Raises:
        LockTimeoutError: Another process kept the partition's lock.
        StorageError: A file cannot be renamed; what is left to be done is done the next time.
    """
    with log.writing():
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
        _logger.info("[%s] segment %d goes: %s", log.topic_partition, each.base_offset, each.reason)
    return gone
