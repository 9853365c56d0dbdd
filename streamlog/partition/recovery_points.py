"""Writing the recovery points of many partitions at once."""

import contextlib
from collections.abc import Iterable
from typing import Final

from streamlog.errors import StreamLogError
from streamlog.fs.open_files import open_files
from streamlog.partition.log import Log
from streamlog.partition.root_marks import RootMarks
from streamlog.topic import TopicPartition

__all__ = ["write_recovery_points"]

LOCKED_AT_ONCE: Final = 256  # partitions; each holds a file descriptor while it is locked


def write_recovery_points(
    logs: Iterable[Log], marks: RootMarks
) -> dict[TopicPartition, StreamLogError]:
    """Write the recovery points of partitions, and replicas' high watermarks, under their locks.

    A few hundred at once.
    Without the locks, a partition that is truncated or deleted meanwhile would get a mark above
    its end, and records that were never acknowledged would be reported as lost.

    Returns:
        The partitions whose lock or files were not available; their marks are not written.

    Raises:
        StreamLogError: The checkpoint cannot be written.
    """
    ordered = sorted(logs, key=lambda log: log.topic_partition)
    failed: dict[TopicPartition, StreamLogError] = {}
    at_once = max(1, min(LOCKED_AT_ONCE, open_files.limit // 2))
    for first in range(0, len(ordered), at_once):
        with contextlib.ExitStack() as held:
            points: dict[TopicPartition, int] = {}
            high_watermarks: dict[TopicPartition, int] = {}
            for log in ordered[first : first + at_once]:
                try:
                    held.enter_context(log.locked())
                except StreamLogError as error:
                    failed[log.topic_partition] = error
                else:
                    points[log.topic_partition] = log.recovery_point
                    if log.is_replicated:
                        high_watermarks[log.topic_partition] = log.sync_high_watermark()
            if points:
                marks.write_recovery_points(points)
            marks.write_high_watermarks(high_watermarks)
    return failed
