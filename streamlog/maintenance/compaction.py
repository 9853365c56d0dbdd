"""Compaction as maintenance does it: what is due, the filthiest first, until the time is up.

What is due is seen through readers, without a lock; a partition is opened for writing only where
there is something to clean. A round that the budget ends is paused, and the first to go on.

What was seen not to be due is not looked at again before something it depends on is another:
files, checkpoint, settings, readers, or the time.
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
from streamlog.partition.checkpoints import read_cleaner_offsets
from streamlog.partition.reader import LogReader
from streamlog.root.deeds import Deed
from streamlog.topic import TopicPartition

__all__ = ["CompactedPartition", "Due", "NotDue", "clean_due", "find_due"]

_KEYS: Final = {Reason.DIRTY: "min.cleanable.dirty.ratio", Reason.OLD: "max.compaction.lag.ms"}


class CompactedPartition(NamedTuple):
    """A partition of a compacted topic."""

    partition: TopicPartition
    path: str
    config: LogConfig
    held_from: int  # recorded readers need all records from here on
    state: tuple[int, ...]  # log start, the directory's time of change, bytes of each segment


class NotDue(NamedTuple):
    """A candidate that was looked at and is not due, with its checkpoint, and how long."""

    candidate: CompactedPartition
    checkpoint: int | None
    from_ms: int
    until_ms: int

    def holds(self, candidate: CompactedPartition, checkpoint: int | None, now_ms: int) -> bool:
        """Tell whether that is still so; of a clock that went back nothing is known."""
        is_same = (candidate, checkpoint) == (self.candidate, self.checkpoint)
        return is_same and self.from_ms <= now_ms < self.until_ms


class Due(NamedTuple):
    """A partition that ought to be cleaned, and the deed that this would be.

    How much goes is known only when it is done, so the deed counts the dirty section.
    """

    candidate: CompactedPartition
    cleanable: Cleanable
    deed: Deed


def find_due(
    candidates: list[CompactedPartition],
    *,
    fs: FileSystem,
    root: str,
    now_ms: int,
    not_due: dict[TopicPartition, NotDue],
    failed: Callable[[TopicPartition, StreamLogError], None],
) -> list[Due]:
    """Return what ought to be cleaned now, the filthiest first; nothing is locked or changed.

    Args:
        candidates: Where to look.
        fs: Where the root is.
        root: The log root.
        now_ms: The time.
        not_due: What earlier calls found not to be due, changed: only candidates are kept.
        failed: Told of partitions that cannot be looked at; the others are.

    Raises:
        CorruptCheckpointError: `cleaner-offset-checkpoint` cannot be understood.
    """
    checkpoints = read_cleaner_offsets(fs, root) if candidates else {}
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
            looked = _look(each, checkpoint, fs, now_ms)
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
    """Clean one partition after the other.

    Args:
        cleaner: The cleaner; what it has paused goes first.
        due: What `find_due` found.
        clock: The clock.
        deadline_ms: When the time is up, on the clock that only goes forward.
        done: Told of each round that has come to its end.
        failed: Told of partitions that cannot be cleaned; the others are.

    Returns:
        Whether all of it is clean.
    """

    def is_late() -> bool:
        return clock.monotonic_ms() >= deadline_ms

    for each in sorted(due, key=lambda due: due.candidate.partition != cleaner.paused):
        partition = each.candidate.partition
        is_full = True
        while is_full:
            if is_late():
                return False
            try:
                report = cleaner.clean(
                    partition, held_from=each.candidate.held_from, should_pause=is_late
                )
            except StreamLogError as error:
                failed(partition, error)
                break
            if report is None:  # another process is at it
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
        reason=_KEYS[cleanable.reason],
        segments=len(dirty),
        bytes=cleanable.cleanable_bytes,
        log_start_offset=log.log_start_offset,
    )
