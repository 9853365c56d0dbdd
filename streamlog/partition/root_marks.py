"""The recovery points, log starts and high watermarks of a root's partitions, cached in a process.

All partitions of a root share the checkpoint files. Reading and rewriting them for each partition
takes quadratic time, so the handles of one `LogManager` share this object: within `together`, a
file is read again only after it was replaced, and new recovery points become one write.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from streamlog.fs.api import FileStat
from streamlog.fs.log_root import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    LogRoot,
)
from streamlog.partition import checkpoints
from streamlog.topic import TopicPartition

__all__ = ["RootMarks", "sync_names"]

_Stamp = tuple[int, int, int]  # inode, time and size of a file
_NO_FILE: Final = (0, 0, 0)


class _Known(NamedTuple):
    """The rows of a checkpoint file, with the stamp that it had."""

    stamp: _Stamp
    offsets: Mapping[TopicPartition, int]


def sync_names(root: LogRoot, topics: Iterable[str]) -> None:
    """Sync the names of topics and of their partitions, whichever process created them."""
    root.fs.sync_directory(root.path)
    for path in sorted({os.path.dirname(root.topic_properties(topic)) for topic in topics}):
        root.fs.sync_directory(path)


class RootMarks:
    """The recovery points, log starts and high watermarks of a root; safe for several threads.

    Args:
        root: The log root.
    """

    def __init__(self, root: LogRoot) -> None:
        self._root = root
        self._starts: _Known | None = None
        self._points: _Known | None = None
        self._high_watermarks: _Known | None = None
        self._durable: _Stamp | None = None  # the recovery points that this wrote
        self._synced_starts: _Stamp | None = None
        self._gathering: int | None = None  # the thread within `together`
        self._gathered: list[TopicPartition] = []

    def log_start_offset(self, partition: TopicPartition) -> int:
        """Return the log start of a partition, 0 without a row.

        Raises:
            StorageError: The file cannot be read.
        """
        self._starts = self._look(
            LOG_START_OFFSET_CHECKPOINT,
            self._starts,
            checkpoints.read_log_start_offsets,
        )
        return self._starts.offsets.get(partition, 0)

    def recovery_point(self, partition: TopicPartition) -> int | None:
        """Return the recovery point of a partition, None if unknown.

        Raises:
            StorageError: The file cannot be read.
        """
        self._points = self._look(
            RECOVERY_POINT_CHECKPOINT, self._points, checkpoints.read_recovery_points
        )
        return self._points.offsets.get(partition)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the high watermark of a replicated partition, None if unknown.

        Raises:
            StorageError: The file cannot be read.
        """
        self._high_watermarks = self._look(
            HIGH_WATERMARK_CHECKPOINT, self._high_watermarks, checkpoints.read_high_watermarks
        )
        return self._high_watermarks.offsets.get(partition)

    def sync_log_starts(self) -> None:
        """Sync the log starts that were read last: the process that wrote them may have died.

        Raises:
            StorageError: The root cannot be synced.
        """
        stamp = None if self._starts is None else self._starts.stamp
        if stamp is None or stamp != self._synced_starts or not self._is_gathering:
            self._root.fs.sync_directory(self._root.path)
            self._synced_starts = stamp

    def note_first_use(self, partition: TopicPartition, offset: int) -> None:
        """Write the recovery point of a partition without one, after syncing its names.

        The process that created the topic may have died before its sync; appended records must
        not be lost with the name. And from the first record on a recovery point must exist, since
        it distinguishes a torn tail from damage. Within `together` both happen at its end.

        Raises:
            LockTimeoutError: Another process kept the root's lock.
            StorageError: It failed.
        """
        if self._is_gathering and offset == 0:
            self._gathered.append(partition)
            return
        sync_names(self._root, [partition.topic])
        self.write_recovery_points({partition: offset})

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Collect the calls of `note_first_use` by this thread into one write at the end.

        If the block raises, nothing is written: the caller closes the handles that it opened.

        Raises:
            LockTimeoutError: Another process kept the root's lock.
            StorageError: It failed; the caller must not append to any of the partitions.
        """
        if self._gathering is not None:
            yield  # nested in this thread: the manager's guard excludes other threads
            return
        self._gathering = threading.get_ident()
        try:
            yield
            if self._gathered:
                sync_names(self._root, {each.topic for each in self._gathered})
                # Their locks are released: keep a recovery point that another writer set since.
                self._write(dict.fromkeys(self._gathered, 0), keeps_known=True)
        finally:
            self._gathering = None
            self._gathered = []

    def write_recovery_points(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write recovery points, durably, unless this process wrote the same ones last.

        Args:
            offsets: The partitions to set; the caller holds their locks.

        Raises:
            LockTimeoutError: Another process kept the root's lock.
            StorageError: It failed; the old ones are kept.
        """
        name = RECOVERY_POINT_CHECKPOINT
        known = self._points
        is_current = known is not None and known.stamp == self._durable == self._stamp_of(name)
        rows = known.offsets if known is not None and is_current else {}
        if all(rows.get(each) == offset for each, offset in offsets.items()):
            return
        self._write(offsets, keeps_known=False)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write high watermarks, durably; the caller holds the locks of their partitions.

        Raises:
            LockTimeoutError: Another process kept the root's lock.
            StorageError: It failed; the old ones are kept.
        """
        if offsets:
            checkpoints.write_high_watermarks(self._root, offsets)

    def _write(self, offsets: Mapping[TopicPartition, int], *, keeps_known: bool) -> None:
        written = checkpoints.update_offsets(
            self._root, RECOVERY_POINT_CHECKPOINT, offsets, keeps_known=keeps_known
        )
        self._points = _Known(_stamp(written.stat), written.offsets)
        self._durable = self._points.stamp

    def _look(
        self,
        name: str,
        known: _Known | None,
        read: Callable[[LogRoot], Mapping[TopicPartition, int]],
    ) -> _Known:
        stamp = self._stamp_of(name)
        if known is not None and known.stamp == stamp and self._is_gathering:
            return known
        return _Known(stamp, read(self._root))

    def _stamp_of(self, name: str) -> _Stamp:
        return _stamp(self._root.fs.stat(self._root.checkpoint(name)))

    @property
    def _is_gathering(self) -> bool:
        return self._gathering == threading.get_ident()


def _stamp(found: FileStat | None) -> _Stamp:
    return _NO_FILE if found is None else (found.inode, found.mtime_ns, found.size)
