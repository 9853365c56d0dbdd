"""Deleting the records below an offset, as Kafka's DeleteRecords does: the log start is raised.

The bytes go with the next maintenance, as soon as a whole segment lies below the log start.
"""

from typing import TYPE_CHECKING, Final

from streamlog.clock import Clock
from streamlog.errors import OffsetOutOfRangeError, PolicyViolationError, command_at
from streamlog.fs.api import FileSystem
from streamlog.maintenance.retention import raise_log_start
from streamlog.root.holds import Holds

if TYPE_CHECKING:
    from streamlog.root.partition_log import PartitionLog

__all__ = ["HIGH_WATERMARK", "delete_records"]

HIGH_WATERMARK: Final = -1  # DeleteRecordsRequest.HIGH_WATERMARK


def delete_records(
    log: "PartitionLog", offset: int, *, fs: FileSystem, clock: Clock, force: bool = False
) -> int:
    """Delete the records of a partition below an offset; durable.

    Args:
        log: The partition.
        offset: The first offset to keep; -1: the high watermark, so that nothing stays.
        fs: Where the partition lies.
        clock: The clock.
        force: Also what a recorded reader has not finished.

    Returns:
        Where the log begins now: at `offset`, or above it where it did so before.

    Raises:
        PolicyViolationError: The topic's `cleanup.policy` is compact alone, or a recorded reader
            has not finished what is to go.
        OffsetOutOfRangeError: The offset is above the high watermark, or negative.
        LockTimeoutError: Another process kept the partition's lock.
        StorageError: It failed; the log begins where it did, or at `offset`.

    Source: ReplicaManager.deleteRecordsOnLocalLog, Partition.deleteRecordsOnLeader.
    """
    with log.writing():
        if log.config.cleanup_policy == {"compact"}:
            raise PolicyViolationError(
                f"records of {log.topic_partition} cannot be deleted by offset",
                path=log.path,
                got="cleanup.policy=compact",
                expected="a cleanup.policy with delete",
                hint="append a record without a value for each key that is to go",
            )
        start = log.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= start <= log.high_watermark:
            raise OffsetOutOfRangeError(
                "records can be deleted up to the high watermark only",
                path=log.path,
                got=offset,
                expected=f"0 to {log.high_watermark}, or -1 for all",
            )
        if not force:
            _refuse_unfinished(log, start, fs=fs, clock=clock)
        if start > log.log_start_offset:
            with log.changing() as files:
                files.producer_state(clock.now_ms())  # who asks later cannot look below the start
                raise_log_start(log, files, start, fs=fs, clock=clock)
        return log.log_start_offset


def _refuse_unfinished(log: "PartitionLog", start: int, *, fs: FileSystem, clock: Clock) -> None:
    """Raise where a recorded reader has not finished what lies below an offset."""
    bases, sizes = log.segments.base_offsets, [each.size for each in log.segments]
    for held in Holds.read(fs, clock, log.root).of(log.topic_partition, log.path, bases, sizes):
        if max(held.offset, log.log_start_offset) < start:
            raise PolicyViolationError(
                f"reader {held.reader} has not finished what is to be deleted",
                path=log.path,
                offset=held.offset,
                got=start,
                expected=f"at most {held.offset}",
                hint=f"--force, or: {command_at(log.root, f'readers forget {held.reader}')}",
            )
