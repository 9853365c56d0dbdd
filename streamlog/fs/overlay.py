"""A file system on top of another one that keeps every change to itself.

It allows dry runs: the base file system is read, its locks are respected (a lock without a file yet
is held only here), and nothing in it is created, changed or removed. `changes` then returns what
would be different.
"""

import errno
import os
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import FileMissingError
from streamlog.fs.api import Buffer, File, FileKind, FileLock, FileStat, FileSystem, OpenMode
from streamlog.fs.failure import storage_failure

__all__ = ["Change", "ChangeKind", "OverlayFileSystem"]

_FILE_MODE: Final = 0o640


class ChangeKind(Enum):
    """Kind of change to a file."""

    CREATED = "create"
    REMOVED = "remove"
    RENAMED = "rename"
    CUT = "cut"
    WRITTEN = "write"


class Change(NamedTuple):
    """A file that would change.

    Attributes:
        kind: The kind of change.
        path: The file; for a renamed one its present name.
        target: Its new name.
        size: Its present bytes, 0 if it does not exist.
        new_size: Its new bytes.
    """

    kind: ChangeKind
    path: str
    target: str | None
    size: int
    new_size: int


class _Layer:
    """Content of one file: the start of a base file, and the bytes written over it."""

    __slots__ = (
        "access",
        "base",
        "found_size",
        "inode",
        "kept",
        "mtime_ns",
        "origin",
        "patches",
        "size",
    )

    def __init__(self, origin: str | None, base: File | None, found: FileStat | None) -> None:
        self.origin, self.base = origin, base
        self.size = self.kept = self.found_size = 0 if found is None else found.size
        self.mtime_ns = 0 if found is None else found.mtime_ns
        self.access = (0, 0, _FILE_MODE) if found is None else found.access
        self.inode = -id(self) if found is None else found.inode  # the same file, changed
        self.patches: list[tuple[int, bytes]] = []

    @property
    def is_changed(self) -> bool:
        return bool(self.patches) or self.size != self.found_size

    def read(self, size: int, position: int) -> bytes:
        end = min(position + size, self.size)
        if end <= position:
            return b""
        out = bytearray(end - position)
        if self.base is not None and position < self.kept:
            front = self.base.pread(min(end, self.kept) - position, position)
            out[: len(front)] = front
        for start, data in self.patches:
            first, last = max(start, position), min(start + len(data), end)
            if first < last:
                out[first - position : last - position] = data[first - start : last - start]
        return bytes(out)

    def write(self, data: bytes, position: int) -> None:
        self.patches.append((position, data))
        self.size = max(self.size, position + len(data))

    def truncate(self, size: int) -> None:
        self.kept = min(self.kept, size)
        self.patches = [
            (start, data[: size - start]) for start, data in self.patches if start < size
        ]
        self.size = size


class OverlayFile:
    """An open file; see `streamlog.fs.api.File`."""

    __slots__ = ("_is_writable", "_layer", "path")

    def __init__(self, path: str, layer: _Layer, *, is_writable: bool) -> None:
        self.path, self._layer, self._is_writable = path, layer, is_writable

    def pread(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer only at the end of the file."""
        return self._layer.read(size, position)

    def pread_into(self, target: memoryview | NDArray[np.uint8], position: int) -> int:
        """Fill `target` (writable bytes) from `position`; return the number of bytes read."""
        view = memoryview(target).cast("B")
        found = self._layer.read(view.nbytes, position)
        view[: len(found)] = found
        return len(found)

    def pwrite(self, source: Buffer, position: int) -> None:
        """Write all of `source` at `position`."""
        self._check_writable("write")
        self._layer.write(memoryview(source).cast("B").tobytes(), position)

    def truncate(self, size: int) -> None:
        """Truncate or extend (with zeros) the file to `size` bytes."""
        self._check_writable("truncate")
        self._layer.truncate(size)

    def sync(self) -> None:
        """Do nothing: no change here is kept."""

    def stat(self) -> FileStat:
        """Return facts about the open file."""
        return _stat_of(self._layer)

    def adopt_access(self, replaced: FileStat) -> None:
        """Take over owner, group and mode of a file."""
        self._layer.access = replaced.access

    def close(self) -> None:
        """Release the handle."""

    def __enter__(self) -> "OverlayFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_writable(self, operation: str) -> None:
        if not self._is_writable:
            raise storage_failure(errno.EBADF, operation, self.path)


class OverlayLock:
    """A lock; see `streamlog.fs.api.FileLock`. Held on the base file system if the file exists."""

    def __init__(
        self,
        file: OverlayFile,
        base: FileLock | None,
        held: "list[OverlayLock]",
        *,
        shared: bool,
    ) -> None:
        self.path, self.file, self.shared = file.path, file, shared
        self._base, self._held = base, held
        held.append(self)

    def is_mine(self) -> bool:
        """Return whether this process took the lock and still holds it."""
        return self in self._held and (self._base is None or self._base.is_mine())

    def pause(self) -> None:
        """Give up the lock, for `resume`."""
        if self in self._held:
            self._held.remove(self)
        if self._base is not None:
            self._base.pause()

    def resume(self) -> bool:
        """Take a paused lock again; False if that is impossible."""
        if _conflicts(self._held, shared=self.shared):
            return False
        if self._base is not None and not self._base.resume():
            return False
        self._held.append(self)
        return True

    def release(self) -> None:
        """Give up the lock; harmless if repeated."""
        if self in self._held:
            self._held.remove(self)
        if self._base is not None:
            self._base.release()


class OverlayFileSystem:
    """A file system on top of another one; see `streamlog.fs.api.FileSystem`.

    Args:
        base: The base file system; only read.
    """

    def __init__(self, base: FileSystem) -> None:
        self._base = base
        self._files: dict[str, _Layer | None] = {}  # None: removed
        self._directories: set[str] = set()
        self._held: dict[str, list[OverlayLock]] = {}

    # ---- what would be different -------------------------------------------------------------
    def changes(self) -> Iterator[Change]:
        """Yield the files that would change, ordered by new name."""
        moved = {
            layer.origin for path, layer in self._files.items() if layer and path != layer.origin
        }
        for path, layer in sorted(self._files.items()):
            found = self._base.stat(path)
            size = 0 if found is None else found.size
            if layer is None:
                if found is not None and path not in moved:
                    yield Change(ChangeKind.REMOVED, path, None, size, 0)
            elif layer.origin not in (None, path):
                origin = layer.origin or path
                yield Change(ChangeKind.RENAMED, origin, path, layer.found_size, layer.size)
            elif found is None:
                yield Change(ChangeKind.CREATED, path, None, 0, layer.size)
            elif self._differs(path, layer):
                is_cut = layer.size < size and not layer.patches
                kind = ChangeKind.CUT if is_cut else ChangeKind.WRITTEN
                yield Change(kind, path, None, size, layer.size)

    def _differs(self, path: str, layer: _Layer) -> bool:
        """Return whether a file's bytes would change; small files are compared."""
        if layer.origin == path and not layer.is_changed:
            return False
        with self._base.open(path, OpenMode.READ) as file:
            size = file.stat().size
            if size != layer.size:
                return True
            return file.pread(size, 0) != layer.read(size, 0)

    # ---- the seam ----------------------------------------------------------------------------
    def open(self, path: str, mode: OpenMode) -> OverlayFile:
        """Open a regular file, creating it here if `mode` says so."""
        layer = self._layer(path, mode)
        if layer is None:
            if mode in (OpenMode.READ, OpenMode.WRITE):
                raise storage_failure(errno.ENOENT, "open", path)
            layer = self._files[path] = _Layer(None, None, None)
        elif mode is OpenMode.CREATE:
            raise storage_failure(errno.EEXIST, "open", path)
        return OverlayFile(path, layer, is_writable=mode is not OpenMode.READ)

    def _layer(self, path: str, mode: OpenMode = OpenMode.READ) -> _Layer | None:
        """Return a file's content, None if it does not exist."""
        if path in self._files:
            return self._files[path]
        try:
            base = self._base.open(path, OpenMode.READ)
        except FileMissingError:
            return None
        layer = _Layer(path, base, base.stat())
        if mode is not OpenMode.READ:
            self._files[path] = layer
        return layer

    def stat(self, path: str) -> FileStat | None:
        """Return facts about a name without following links, None if it does not exist."""
        if path in self._files:
            layer = self._files[path]
            return None if layer is None else _stat_of(layer)
        if path in self._directories:
            return FileStat(FileKind.DIRECTORY, 0, 0, 0, 2, 0o750)
        return self._base.stat(path)

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        names = set(self._base.list(path)) if self._base.stat(path) is not None else set()
        if not names and self.stat(path) is None:
            raise storage_failure(errno.ENOENT, "list", path)
        for known, layer in self._files.items():
            if os.path.dirname(known) == path:
                name = os.path.basename(known)
                names = names - {name} if layer is None else names | {name}
        names |= {os.path.basename(each) for each in self._directories_in(path)}
        return sorted(names)

    def _directories_in(self, path: str) -> Iterator[str]:
        return (each for each in self._directories if os.path.dirname(each) == path)

    def resolve(self, path: str) -> str:
        """Return the absolute path with all symbolic links followed; it need not exist."""
        return self._base.resolve(path)

    def make_directory(self, path: str) -> None:
        """Create one directory; harmless if it exists, an error if a file does."""
        found = self.stat(path)
        if found is None:
            self._directories.add(path)
        elif found.kind is not FileKind.DIRECTORY:
            raise storage_failure(errno.EEXIST, "make_directory", path)

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing a file `target`."""
        layer = self._layer(source, OpenMode.WRITE)
        if layer is None:
            raise storage_failure(errno.ENOENT, "rename", source, target=target)
        self._files[source], self._files[target] = None, layer

    def link(self, source: str, target: str) -> None:
        """Give a file a second name."""
        layer = self._layer(source, OpenMode.WRITE)
        if layer is None:
            raise storage_failure(errno.ENOENT, "link", source, target=target)
        if self.stat(target) is not None:
            raise storage_failure(errno.EEXIST, "link", source, target=target)
        self._files[target] = layer

    def remove(self, path: str) -> None:
        """Remove a name of a file."""
        found = self.stat(path)
        if found is None:
            raise storage_failure(errno.ENOENT, "remove", path)
        self._files[path] = None

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory that was created here."""
        if path not in self._directories or self.list(path):
            raise storage_failure(errno.ENOTEMPTY, "remove_directory", path)
        self._directories.remove(path)

    def sync_directory(self, path: str) -> None:
        """Do nothing: no change here is kept."""

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set a file's last modification time."""
        layer = self._layer(path, OpenMode.WRITE)
        if layer is None:
            raise storage_failure(errno.ENOENT, "set_mtime", path)
        layer.mtime_ns = mtime_ms * 1_000_000

    def try_lock(self, path: str, *, shared: bool) -> OverlayLock | None:
        """Take a lock; None while another handle holds it, on the base file system or here."""
        held = self._held.setdefault(path, [])
        if _conflicts(held, shared=shared):
            return None
        base = None
        if self._base.stat(path) is not None:
            base = self._base.try_lock(path, shared=shared)
            if base is None:
                return None
        return OverlayLock(self.open(path, OpenMode.CREATE_OR_WRITE), base, held, shared=shared)

    def broker_lock_is_held(self, path: str) -> bool:
        """Return whether another process holds a POSIX record lock on `path`."""
        return self._base.broker_lock_is_held(path)

    def user_id(self) -> int:
        """Return the user that this process makes files as."""
        return self._base.user_id()

    def boot_id(self) -> str:
        """Return the id of the machine's present boot."""
        return self._base.boot_id()


def _stat_of(layer: _Layer) -> FileStat:
    owner, group, mode = layer.access
    return FileStat(FileKind.FILE, layer.size, layer.mtime_ns, layer.inode, 1, mode, owner, group)


def _conflicts(held: "list[OverlayLock]", *, shared: bool) -> bool:
    return any(not (shared and lock.shared) for lock in held)
