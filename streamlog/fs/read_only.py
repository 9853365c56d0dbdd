"""A read-only view of a file system, in which files may have other names."""

from typing import NoReturn

from streamlog.errors import StorageError
from streamlog.fs.api import File, FileLock, FileStat, FileSystem, OpenMode

__all__ = ["ReadOnlyFileSystem"]


class ReadOnlyFileSystem:
    """A view that refuses every change; see `streamlog.fs.api.FileSystem`.

    A subclass gives files other names by `place`, and lists them.

    Args:
        base: The file system that is read.
    """

    def __init__(self, base: FileSystem) -> None:
        self.base = base

    def place(self, path: str) -> tuple[FileSystem, str]:
        """Return the file system that holds what is shown at a path, and its path there."""
        return self.base, path

    # ---- reading -----------------------------------------------------------------------------
    def open(self, path: str, mode: OpenMode) -> File:
        """Open a regular file for reading."""
        if mode is not OpenMode.READ:
            self._refuse(path)
        fs, there = self.place(path)
        return fs.open(there, mode)

    def stat(self, path: str) -> FileStat | None:
        """Return facts about a name without following links, None if it does not exist."""
        fs, there = self.place(path)
        return fs.stat(there)

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        fs, there = self.place(path)
        return fs.list(there)

    def resolve(self, path: str) -> str:
        """Return the absolute path with all symbolic links followed; it need not exist."""
        return self.base.resolve(path)

    def broker_lock_is_held(self, path: str) -> bool:
        """Return whether another process holds a POSIX lock on `path`."""
        return self.base.broker_lock_is_held(path)

    def user_id(self) -> int:
        """Return the user that owns files created by this process."""
        return self.base.user_id()

    def boot_id(self) -> str:
        """Return an id that changes when the machine is rebooted."""
        return self.base.boot_id()

    # ---- changes -----------------------------------------------------------------------------
    def make_directory(self, path: str) -> None:
        """Refuse."""
        self._refuse(path)

    def rename(self, source: str, target: str) -> None:
        """Refuse."""
        self._refuse(target)

    def link(self, source: str, target: str) -> None:
        """Refuse."""
        self._refuse(target)

    def remove(self, path: str) -> None:
        """Refuse."""
        self._refuse(path)

    def remove_directory(self, path: str) -> None:
        """Refuse."""
        self._refuse(path)

    def sync_directory(self, path: str) -> None:
        """Refuse."""
        self._refuse(path)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Refuse."""
        self._refuse(path)

    def try_lock(self, path: str, *, shared: bool) -> FileLock | None:
        """Refuse: a lock is a file."""
        self._refuse(path)

    def _refuse(self, path: str) -> NoReturn:
        raise StorageError("this view of the files is read-only", path=path)
