"""Many partitions of a root, opened and closed together: what they share is written once."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from streamlog.clock import Clock
from streamlog.commits.commit_target import CommitTarget
from streamlog.errors import FileMissingError, StreamLogError, UnknownTopicError
from streamlog.fs.open_files import open_files
from streamlog.root.root_marks import RootMarks
from streamlog.topic import TopicPartition

if TYPE_CHECKING:
    from streamlog.root.partition_log import PartitionLog

__all__ = ["close_together", "open_together", "write_recovery_points"]

LOCKED_AT_ONCE: Final = 256  # partitions; each holds a file descriptor while it is locked


def open_together(
    wanted: Iterable[TopicPartition],
    open_one: "Callable[[TopicPartition], PartitionLog]",
    marks: RootMarks,
) -> "dict[TopicPartition, PartitionLog]":
    """Open partitions for writing; all of them, or none stays open.

    Args:
        wanted: The partitions.
        open_one: Opens one with these marks.
        marks: Those of the root: the first uses of partitions become one write.

    Raises:
        StreamLogError: One cannot be opened, or the marks not be written.
    """
    opened: dict[TopicPartition, PartitionLog] = {}
    with contextlib.ExitStack() as undo:
        with marks.together():
            for partition in wanted:
                log = open_one(partition)
                undo.callback(log.close)
                opened[partition] = log
        undo.pop_all()
    return opened


def close_together(logs: "Sequence[PartitionLog]", marks: RootMarks, clock: Clock) -> None:
    """Close partitions: each one is sealed, then their recovery points become one write.

    Args:
        logs: Partitions of one root.
        marks: Those of the root.
        clock: Tells the time.

    Raises:
        StreamLogError: Something could not be made durable; all are closed nevertheless.
    """
    with contextlib.ExitStack() as closing:
        for log in logs:
            closing.callback(log.close)  # finds nothing left to do but to release the files
        sealed: list[PartitionLog] = []
        errors: list[StreamLogError] = []
        for log in logs:
            try:
                with log.changing() as files:
                    files.seal(clock.now_ms())
                sealed.append(log)
            except (FileMissingError, UnknownTopicError):
                pass  # its topic was deleted
            except StreamLogError as error:
                errors.append(error)
        write_recovery_points(sealed, marks)
        if errors:
            raise errors[0]


def write_recovery_points(
    logs: Iterable[CommitTarget], marks: RootMarks
) -> dict[TopicPartition, StreamLogError]:
    """Write the recovery points of partitions, a few hundred at once, under their locks.

    Without the locks a partition that is truncated, or deleted, meanwhile would get a mark above
    its end: records would be missed that nobody was promised.

    Returns:
        The partitions whose lock, or whose files, could not be had: theirs are not written.

    Raises:
        StreamLogError: The checkpoint cannot be written.
    """
    ordered = sorted(logs, key=lambda log: log.topic_partition)
    failed: dict[TopicPartition, StreamLogError] = {}
    at_once = max(1, min(LOCKED_AT_ONCE, open_files.limit // 2))
    for first in range(0, len(ordered), at_once):
        with contextlib.ExitStack() as held:
            points: dict[TopicPartition, int] = {}
            for log in ordered[first : first + at_once]:
                try:
                    held.enter_context(log.writing())
                except StreamLogError as error:
                    failed[log.topic_partition] = error
                else:
                    points[log.topic_partition] = log.recovery_point
            if points:
                marks.write_recovery_points(points)
    return failed
