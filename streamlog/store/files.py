"""Objects as files: a read-only view for code that reads files, such as `streamlog dump`.

Paths are URLs. An object has no inode and never changes; its path stands for it.
"""

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import FileMissingError, StorageError
from streamlog.fs.api import File, FileKind, FileStat, FileSystem, OpenMode
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.read_only import ReadOnlyFileSystem
from streamlog.store.api import ObjectRange, ObjectStore

__all__ = ["ObjectFiles"]

_MODE = 0o444


class ObjectFiles(ReadOnlyFileSystem):
    """The objects of a store by their URLs.

    Args:
        store: The store; its URL begins each path.
        base: Answers what is no question about files.
    """

    def __init__(self, store: ObjectStore, base: FileSystem | None = None) -> None:
        super().__init__(base or LocalFileSystem())
        self._store = store

    def open(self, path: str, mode: OpenMode) -> File:
        """Open an object for reading."""
        found = self.stat(path)
        if mode is not OpenMode.READ:
            self._refuse(path)
        if found is None or found.kind is not FileKind.FILE:
            raise FileMissingError("no such object", path=path)
        return _ObjectFile(self._store, path, self._key(path), found)

    def stat(self, path: str) -> FileStat | None:
        """Return facts about an object, or about a prefix of some; None if there is none."""
        key = self._key(path)
        found = self._store.stat(key) if key else None
        if found is not None:
            mtime_ns = found.modified_ms * 1_000_000
            return FileStat(FileKind.FILE, found.size, mtime_ns, hash(path), 1, _MODE)
        if next(self._store.list(f"{key}/" if key else ""), None) is not None:
            return FileStat(FileKind.DIRECTORY, 0, 0, hash(path), 1, _MODE)
        return None

    def list(self, path: str) -> list[str]:
        """Return the sorted names below a prefix, one level deep."""
        key = self._key(path)
        prefix = f"{key}/" if key else ""
        return sorted(
            {each.key[len(prefix) :].partition("/")[0] for each in self._store.list(prefix)}
        )

    def resolve(self, path: str) -> str:
        """Return the path: there are no links."""
        return path

    def _key(self, path: str) -> str:
        root = self._store.url
        if path.rstrip("/") == root.rstrip("/"):
            return ""
        if not path.startswith(f"{root}/"):
            raise FileMissingError("no such object", path=path, expected=f"{root}/…")
        return path[len(root) + 1 :].rstrip("/")


class _ObjectFile:
    """An open object; see `streamlog.fs.api.File`."""

    __slots__ = ("_key", "_stat", "_store", "path")

    def __init__(self, store: ObjectStore, path: str, key: str, stat: FileStat) -> None:
        self.path, self._store, self._key, self._stat = path, store, key, stat

    def pread(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer only at the end."""
        target = np.empty(max(0, min(size, self._stat.size - position)), np.uint8)
        return target[: self.pread_into(target, position)].tobytes()

    def pread_into(self, target: memoryview | NDArray[np.uint8], position: int) -> int:
        """Fill `target` from `position`; return the number of bytes read."""
        size = max(0, min(len(target), self._stat.size - position))
        if size:
            into = np.frombuffer(target, np.uint8)[:size]
            self._store.read_into([ObjectRange(self._key, position, size)], into)
        return size

    def stat(self) -> FileStat:
        """Return facts about the object when it was opened."""
        return self._stat

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> "_ObjectFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- changes -----------------------------------------------------------------------------
    def pwrite(self, source: object, position: int) -> None:
        """Refuse."""
        self._refuse()

    def truncate(self, size: int) -> None:
        """Refuse."""
        self._refuse()

    def sync(self) -> None:
        """Refuse."""
        self._refuse()

    def adopt_access(self, replaced: FileStat) -> None:
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StorageError("an object is never changed in place", path=self.path)
