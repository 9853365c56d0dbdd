"""Whether a partition's oldest segment is to be deleted, at the cost of two `stat` calls.

Nothing is locked or opened for writing. The answer may be stale; retention decides again under
the partition's lock before it deletes.
"""

from streamlog.config.log_config import LogConfig
from streamlog.errors import FileMissingError, UnknownTopicError
from streamlog.fs.api import FileSystem
from streamlog.fs.files import stat_directory
from streamlog.maintenance.retention import RetainedLog, RetentionCandidate, reason_to_delete
from streamlog.partition import leftovers
from streamlog.records.layout import MAX_INT64
from streamlog.segment.filenames import base_offsets, log_file_name
from streamlog.segment.segment import Segment

__all__ = ["PartitionWatch"]

_DELETED = ".deleted"


class _OldestSegment:
    """The facts of a log's first segment; its largest timestamp is read on demand."""

    __slots__ = ("_fs", "_path", "_timestamp", "_timestamp_size", "base_offset", "size")

    def __init__(self, fs: FileSystem, path: str, base_offset: int, size: int) -> None:
        self._fs, self._path = fs, path
        self.base_offset, self.size = base_offset, size
        self._timestamp = self._timestamp_size = -1

    @property
    def largest_timestamp(self) -> int:
        if self._timestamp_size != self.size:
            segment = Segment.open(
                self._fs, self._path, self.base_offset, config=LogConfig(), writable=False
            )
            segment.extend()
            self._timestamp, self._timestamp_size = segment.largest_timestamp, self.size
            segment.close()
        return self._timestamp


class PartitionWatch:
    """The files of one partition as of the last look.

    Args:
        fs: The file system of the partition.
        path: The partition's directory.

    Attributes:
        bases: Base offsets of the segments, ascending.
        sizes: Bytes of each segment.
        has_deleted: Whether `.deleted` files wait for removal.
    """

    __slots__ = ("_active_path", "_fs", "_mtime_ns", "_oldest", "_path", "_sealed_size", "bases",
                 "has_deleted", "sizes")  # fmt: skip

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs, self._path = fs, path
        self._mtime_ns = -1
        self.bases: list[int] = []
        self.sizes: list[int] = []
        self._sealed_size = 0
        self._active_path = ""
        self._oldest: _OldestSegment | None = None
        self.has_deleted = False

    def look(self, *, is_thorough: bool = False) -> None:
        """Update the facts: two `stat` calls, and a listing if the directory has changed.

        Args:
            is_thorough: List the directory in any case: two changes within the resolution of the
                file system's clock leave the same mtime.

        Raises:
            UnknownTopicError: The directory is gone.
        """
        found = stat_directory(self._fs, self._path)
        if found is None:
            raise UnknownTopicError("partition directory does not exist", path=self._path)
        if is_thorough or found.mtime_ns != self._mtime_ns:
            self._list()
            self._mtime_ns = found.mtime_ns
        elif self.bases:
            self.sizes[-1] = self._size_of(self._active_path)
            if self._oldest is not None and len(self.bases) == 1:
                self._oldest.size = self.sizes[-1]

    def _list(self) -> None:
        names = self._fs.list(self._path)
        self.has_deleted = any(name.endswith(_DELETED) for name in names)
        self.bases = base_offsets(names)
        paths = [f"{self._path}/{log_file_name(base)}" for base in self.bases]
        self.sizes = [self._size_of(path) for path in paths]
        self._active_path = paths[-1] if paths else ""
        self._sealed_size = sum(self.sizes[:-1])
        known, self._oldest = self._oldest, None
        if self.bases:
            first = self.bases[0], self.sizes[0]
            is_known = known is not None and (known.base_offset, known.size) == first
            self._oldest = known if is_known else _OldestSegment(self._fs, self._path, *first)

    @property
    def files(self) -> tuple[int, ...]:
        """Numbers that change with the directory and with each segment."""
        return self._mtime_ns, *self.sizes

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._sealed_size + self.sizes[-1] if self.sizes else 0

    def _size_of(self, path: str) -> int:
        found = self._fs.stat(path)
        return 0 if found is None else found.size

    def reason_to_delete(
        self, *, config: LogConfig, now_ms: int, log_start_offset: int, held_from: int
    ) -> str | None:
        """Return why the oldest segment is to be deleted, None if it stays.

        Args:
            config: The topic's settings.
            now_ms: The time.
            log_start_offset: The log start in the checkpoint.
            held_from: Recorded readers need all records from this offset on.
        """
        oldest = self._oldest
        if oldest is None:
            return None
        is_active = len(self.bases) == 1
        # Finding the end of the active segment takes a scan. With the largest end, any reader that
        # holds records keeps it.
        end = MAX_INT64 - 1 if is_active else self.bases[1]
        try:
            return reason_to_delete(
                RetentionCandidate(oldest, end, is_active=is_active),
                RetainedLog(config, now_ms, log_start_offset, self.size),
                high_watermark=MAX_INT64,
                held_from=held_from,
            )
        except FileMissingError:  # another process just replaced or deleted it
            self._mtime_ns = -1  # list the directory again next time
            return None

    def remove_deleted(self, now_ms: int, delay_ms: int) -> None:
        """Remove the `.deleted` files that were renamed at least `delay_ms` ago."""
        if self.has_deleted:
            names = self._fs.list(self._path)
            waiting = leftovers.remove_due(
                self._fs, self._path, names, now_ms=now_ms, delay_ms=delay_ms
            )
            self.has_deleted = waiting > 0
