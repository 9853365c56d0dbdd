"""A file of fixed-size entries that mirrors an index held in memory.

The index in memory is the truth of this process, the file a copy for others: it is written with
ordinary writes behind the entries it has already, and cut, never mapped and never extended in
advance. What a full disk kept out of the file is written with the next entry.
"""

import contextlib
from collections.abc import Callable
from typing import Final

from streamlog.errors import FileMissingError, StorageError
from streamlog.fs.api import File, FileSystem, OpenMode
from streamlog.fs.open_files import open_files

__all__ = ["IndexFile"]

_UNKNOWN: Final = -1  # nobody knows what the file holds: write it anew


class IndexFile:
    """The file behind one index; opened for writing when there is something to write.

    Args:
        fs: Where it lies.
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

    def read(self, *, max_entries: int) -> tuple[bytes, int]:
        """Return the file's bytes and its size.

        Args:
            max_entries: How many entries can make sense at most; no more are read.

        Raises:
            FileMissingError: There is no such file.
        """
        with self._fs.open(self.path, OpenMode.READ) as file:
            size = file.stat().size
            return file.pread(min(size, max_entries * self._entry_size), 0), size

    def holds(self, count: int) -> None:
        """Note that the file has exactly `count` entries, those in memory."""
        self._written = count

    def keep(self, count: int) -> None:
        """Note that only the first `count` entries of the file are those in memory."""
        if self._written > count:
            self._written = count
            self._is_longer = True

    def store(self, count: int, encode: Callable[[int], bytes]) -> None:
        """Make the file hold `count` entries.

        Args:
            count: How many entries there are in memory.
            encode: Returns the entries from the given one on, as bytes.

        Raises:
            StorageError: The file system refused; the next call tries again.
        """
        if self._written == count and not self._is_longer:
            return
        file = self._opened()
        self.was_used = True
        if self._written == _UNKNOWN or self._is_longer:
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
        """Drop the file, which a writer may be using; the next use opens it again."""
        self._file = None
        return True

    def create(self) -> None:
        """Make an empty file where there is none."""
        self._opened()

    def sync(self) -> None:
        """Make what was stored durable; the directory is synced by the caller."""
        file = self._file
        if file is None and self._is_dirty:
            # What a dead process left unsynced is made durable too.
            with contextlib.suppress(FileMissingError):
                file = self._file = self._fs.open(self.path, OpenMode.WRITE)
                open_files.keep(self)
        if file is not None and self._is_dirty:
            file.sync()
        self._is_dirty = False

    def rename(self, path: str) -> None:
        """Give the file another path; harmless where there is no file."""
        with contextlib.suppress(FileMissingError):
            self._fs.rename(self.path, path)
        self.path = path
        file = self._file
        if file is not None:
            file.path = path

    def remove(self) -> None:
        """Remove the file, where there is one."""
        self.close()
        self._written, self._is_longer = 0, False
        with contextlib.suppress(FileMissingError):
            self._fs.remove(self.path)

    def close(self) -> None:
        """Release the handle; the file is opened again when needed."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
