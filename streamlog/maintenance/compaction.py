"""Compaction in maintenance: cleans due partitions, dirtiest first, within a time budget.

Readers find due partitions without a lock; a partition is opened for writing only if there is
something to clean. A round that reaches the deadline is paused, and continues first next time.

A partition that is not due is not examined again until something it depends on changes: its
files, checkpoint, settings, recorded readers, or time.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from streamlog.cleaner.choosing import Cleanable, Reason, find_cleanable, segments_between
from streamlog.cleaner.cleaner import LogCleaner
from streamlog.cleaner.round import CleanReport
from streamlog.clock import Clock
from streamlog.config.log_config import LogConfig
from streamlog.errors import StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.partition.checkpoints import read_cleaner_offsets
from streamlog.partition.reader import LogReader
from streamlog.root.deeds import Deed
from streamlog.topic import TopicPartition

__all__ = ["COMPACTION_REASONS", "CompactedPartition", "Due", "NotDue", "clean_due", "find_due"]

COMPACTION_REASONS: Final = {
    Reason.DIRTY: "min.cleanable.dirty.ratio",
    Reason.OLD: "max.compaction.lag.ms",
}


class CompactedPartition(NamedTuple):
    """A partition of a compacted topic."""

    partition: TopicPartition
    path: str
    config: LogConfig
    held_from: int  # recorded readers need all records from this offset on
    state: tuple[int, ...]  # log start, the directory's mtime, bytes of each segment


class NotDue(NamedTuple):
    """A candidate that is not due between two times, as long as its checkpoint stays."""

    candidate: CompactedPartition
    checkpoint: int | None
    from_ms: int
    until_ms: int

    def holds(self, candidate: CompactedPartition, checkpoint: int | None, now_ms: int) -> bool:
        """Return whether that still holds; it does not if the clock went back."""
        is_same = (candidate, checkpoint) == (self.candidate, self.checkpoint)
        return is_same and self.from_ms <= now_ms < self.until_ms


class Due(NamedTuple):
    """A partition that is due, and the deed that cleaning it would be.

    The bytes removed are known only afterwards, so the deed counts the dirty section.
    """

    candidate: CompactedPartition
    cleanable: Cleanable
    deed: Deed


def find_due(
    candidates: list[CompactedPartition],
    *,
    root: LogRoot,
    now_ms: int,
    not_due: dict[TopicPartition, NotDue],
    failed: Callable[[TopicPartition, StreamLogError], None],
) -> list[Due]:
    """Return the partitions to clean now, dirtiest first; nothing is locked or changed.

    Args:
        candidates: The partitions to examine.
        root: The log root.
        now_ms: The time.
        not_due: Partitions that earlier calls found not to be due; updated, and limited to the
            candidates.
        failed: Called for each partition that cannot be read; the others are examined.

    Raises:
        CorruptCheckpointError: `cleaner-offset-checkpoint` is malformed.
    """
    checkpoints = read_cleaner_offsets(root) if candidates else {}
    known = dict(not_due)
    not_due.clear()
    found: list[Due] = []
    for each in candidates:
        checkpoint = checkpoints.get(each.partition)
        before = known.get(each.partition)
        if before is not None and before.holds(each, checkpoint, now_ms):
            not_due[each.partition] = before
            continue
        try:
            looked = _look(each, checkpoint, root.fs, now_ms)
        except StreamLogError as error:
            failed(each.partition, error)
            continue
        if isinstance(looked, Due):
            found.append(looked)
        else:
            not_due[each.partition] = looked
    return sorted(found, key=lambda due: -due.cleanable.ratio)


def _look(
    candidate: CompactedPartition, checkpoint: int | None, fs: FileSystem, now_ms: int
) -> Due | NotDue:
    with LogReader.open(candidate.path, fs=fs) as log:
        cleanable = find_cleanable(
            log,
            checkpoint,
            config=candidate.config,
            now_ms=now_ms,
            held_from=candidate.held_from,
        )
        if cleanable.is_due:
            return Due(candidate, cleanable, _planned(log, cleanable, now_ms))
        return NotDue(candidate, checkpoint, now_ms, cleanable.changes_ms)


def clean_due(
    cleaner: LogCleaner,
    due: list[Due],
    *,
    clock: Clock,
    deadline_ms: float,
    done: Callable[[Deed], None],
    failed: Callable[[TopicPartition, StreamLogError], None],
) -> bool:
    """Clean due partitions until the deadline.

    Args:
        cleaner: The cleaner; the partition whose round it has paused goes first.
        due: The result of `find_due`.
        clock: The clock.
        deadline_ms: The deadline, on the monotonic clock.
        done: Called after each finished round.
        failed: Called for each partition that cannot be cleaned; the others are cleaned.

    Returns:
        Whether no due partition is left.
    """

    def is_late() -> bool:
        return clock.monotonic_ms() >= deadline_ms

    for each in sorted(due, key=lambda due: due.candidate.partition != cleaner.paused):
        partition = each.candidate.partition
        is_full = True
        while is_full:  # one round covers as many keys as the offset map holds
            if is_late():
                return False
            try:
                report = cleaner.clean(
                    partition, held_from=each.candidate.held_from, should_pause=is_late
                )
            except StreamLogError as error:
                failed(partition, error)
                break
            if report is None:  # another process is cleaning it
                break
            if not report.is_finished:
                return False
            done(_done(each.deed, report, clock.now_ms()))
            is_full = report.is_map_full
    return True


def _done(planned: Deed, report: CleanReport, now_ms: int) -> Deed:
    return replace(
        planned,
        ms=now_ms,
        segments=report.segments_before - report.segments_after,
        bytes=report.bytes_read - report.bytes_written,
    )


def _planned(log: LogReader, cleanable: Cleanable, now_ms: int) -> Deed:
    dirty = segments_between(log.segments, cleanable.first_dirty_offset, cleanable.end_offset)
    return Deed(
        ms=now_ms,
        topic=cleanable.topic_partition.topic,
        partition=cleanable.topic_partition.partition,
        action="compaction",
        reason=COMPACTION_REASONS[cleanable.reason],
        segments=len(dirty),
        bytes=cleanable.cleanable_bytes,
        log_start_offset=log.log_start_offset,
    )
