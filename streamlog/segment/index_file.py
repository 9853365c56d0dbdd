"""A file of fixed-size entries that mirrors an index in memory.

Within this process the index in memory counts; the file is a copy for others. It is extended with
ordinary writes and truncated, never mapped and never extended in advance. Entries that a full disk
rejected are written with the next entry.
"""

import contextlib
from collections.abc import Callable
from typing import Final

from streamlog.errors import FileMissingError, StorageError
from streamlog.fs.api import File, FileSystem, OpenMode
from streamlog.fs.open_files import open_files
from streamlog.records.layout import HEADER_SIZE_UP_TO_MAGIC

__all__ = ["IndexFile"]

_UNKNOWN: Final = -1  # the content of the file is unknown: rewrite it


class IndexFile:
    """The file of one index; opened for writing on the first write.

    Args:
        fs: Its file system.
        path: Its path; it need not exist.
        entry_size: Bytes of one entry.
    """

    __slots__ = (
        "__weakref__",
        "_entry_size",
        "_file",
        "_fs",
        "_is_dirty",
        "_is_longer",
        "_written",
        "is_listed",
        "path",
        "was_created",
        "was_used",
    )

    def __init__(self, fs: FileSystem, path: str, entry_size: int) -> None:
        self._fs = fs
        self._entry_size = entry_size
        self._file: File | None = None
        self.was_used = self.is_listed = False
        self._written = _UNKNOWN
        self._is_longer = False
        self._is_dirty = True
        self.path = path
        self.was_created = False

    def read(self, *, log_size: int) -> tuple[bytes, int]:
        """Return the bytes of all entries that can be valid, and the file's size.

        Args:
            log_size: Bytes of the segment's log file.

        Raises:
            FileMissingError: The file does not exist.
        """
        # Each entry has a batch of its own, so more entries cannot be valid.
        max_entries = log_size // HEADER_SIZE_UP_TO_MAGIC + 1
        with self._fs.open(self.path, OpenMode.READ) as file:
            size = file.stat().size
            return file.pread(min(size, max_entries * self._entry_size), 0), size

    def holds(self, count: int) -> None:
        """Record that the file has exactly the `count` entries in memory."""
        self._written = count

    def keep(self, count: int) -> None:
        """Record that only the first `count` entries of the file equal those in memory."""
        if self._written > count:
            self._written = count
            self._is_longer = True

    def store(self, count: int, encode: Callable[[int], bytes]) -> None:
        """Make the file hold `count` entries.

        Args:
            count: Number of entries in memory.
            encode: Returns the entries from the given one on, as bytes.

        Raises:
            StorageError: The file system refused; the next call tries again.
        """
        if self._written == count and not self._is_longer:
            return
        file = self._opened()
        self.was_used = True
        if self._written == _UNKNOWN or self._is_longer:  # remove entries that memory lacks
            kept = max(self._written, 0)
            file.truncate(kept * self._entry_size)
            self._written, self._is_longer = kept, False
        self._is_dirty = True
        if self._written < count:
            self._write(file, encode(self._written), self._written * self._entry_size)
        self._written = count

    def _write(self, file: File, entries: bytes, position: int) -> None:
        try:
            file.pwrite(entries, position)
        except StorageError:
            # Part of the entries may be written: half an entry would make the index unreadable.
            self._is_longer = True
            with contextlib.suppress(StorageError):
                file.truncate(position)
                self._is_longer = False
            raise

    def _opened(self) -> File:
        file = self._file
        if file is None:
            try:
                file = self._fs.open(self.path, OpenMode.WRITE)
            except FileMissingError:
                file = self._fs.open(self.path, OpenMode.CREATE)
                self.was_created = True
                self._written, self._is_longer = 0, False
            self._file = file
            open_files.keep(self)
        return file

    def release_file(self) -> bool:
        """Release the file while a writer may still use it; the next use opens it again."""
        self._file = None
        return True

    def create(self) -> None:
        """Create an empty file if there is none."""
        self._opened()

    def sync(self) -> None:
        """Make stored entries durable; the caller syncs the directory."""
        file = self._file
        if file is None and self._is_dirty:
            # Also makes durable what a dead process left unsynced.
            with contextlib.suppress(FileMissingError):
                file = self._file = self._fs.open(self.path, OpenMode.WRITE)
                open_files.keep(self)
        if file is not None and self._is_dirty:
            file.sync()
        self._is_dirty = False

    def rename(self, path: str) -> None:
        """Rename the file, if it exists."""
        with contextlib.suppress(FileMissingError):
            self._fs.rename(self.path, path)
        self.path = path
        file = self._file
        if file is not None:
            file.path = path

    def remove(self) -> None:
        """Remove the file, if it exists."""
        self.close()
        self._written, self._is_longer = 0, False
        with contextlib.suppress(FileMissingError):
            self._fs.remove(self.path)

    def close(self) -> None:
        """Release the handle; the next use opens the file again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
