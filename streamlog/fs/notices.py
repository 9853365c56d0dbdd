"""The kernel's notices of changes in directories (inotify), so that nobody has to look for them.

    directory  a file in it is written to, created or moved to; it is itself moved or removed

The kernel knows what this machine changes. A file system that other machines also write to, and one
that is unknown here, is therefore refused: there only looking helps.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from functools import cache
from typing import Final

__all__ = ["DirectoryNotices"]

_IN_MODIFY: Final = 0x2
_IN_MOVED_TO: Final = 0x80
_IN_CREATE: Final = 0x100
_IN_DELETE_SELF: Final = 0x400
_IN_MOVE_SELF: Final = 0x800
_IN_Q_OVERFLOW: Final = 0x4000
_IN_IGNORED: Final = 0x8000
_WATCHED: Final = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE_SELF | _IN_MOVE_SELF
_GONE: Final = _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_IGNORED

_EVENT: Final = struct.Struct("=iIII")  # watch, what, cookie, size of the name after it
_READ_SIZE: Final = 64 << 10
_STATFS_SIZE: Final = 256  # its first field, of the size of a long, is the type
# ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS, bcachefs (statfs(2)).
_LOCAL: Final = frozenset(
    {
        0xEF53,
        0x58465342,
        0x9123683E,
        0x01021994,
        0x794C7630,
        0x2FC12FC1,
        0xF2F52010,
        0xCA451A4E,
    }
)


class DirectoryNotices:
    """Collects notices of changes in directories until they are asked for.

    Args:
        descriptor: An inotify descriptor that does not block; see `open`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}

    @classmethod
    def open(cls) -> "DirectoryNotices | None":
        """Return a new collection; None where the system has no such notices, or no more."""
        try:
            descriptor = _libc().inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        except (AttributeError, OSError):
            return None
        return cls(descriptor) if descriptor >= 0 else None

    def __contains__(self, path: str) -> bool:
        return path in self._watches

    def add(self, path: str) -> bool:
        """Begin to collect for a directory; return False where only looking helps.

        What changed before is not noticed: look at the directory afterwards. Adding it again finds
        out whether another directory has taken its place.
        """
        encoded, known = os.fsencode(path), self._watches.get(path)
        if known is None and not _is_local(encoded):
            return False
        watch = _libc().inotify_add_watch(self._descriptor, encoded, _WATCHED)
        if watch == known:
            return True
        self.discard(path)
        if watch < 0:  # the directory is gone, or the limit of watches is reached
            return False
        self._drop(watch)  # of the same directory under its former name
        self._paths[watch], self._watches[path] = path, watch
        return True

    def discard(self, path: str) -> None:
        """Collect no more for a directory."""
        watch = self._watches.get(path)
        if watch is not None:
            self._drop(watch)
            _libc().inotify_rm_watch(self._descriptor, watch)

    def take(self) -> frozenset[str] | None:
        """Return the directories with changes since the last call; None: any of them may have some.

        One that is moved or removed is among them and no longer watched.
        """
        changed = set()
        for watch, what in self._events():
            if what & _IN_Q_OVERFLOW:
                return None
            path = self._paths.get(watch)
            if path is None:
                continue
            changed.add(path)
            if what & _IN_MOVE_SELF:  # or the directory is noticed under a name it does not have
                self.discard(path)
            elif what & _GONE:
                self._drop(watch)
        return frozenset(changed)

    def _events(self) -> Iterator[tuple[int, int]]:
        while True:
            try:
                data = os.read(self._descriptor, _READ_SIZE)
            except OSError as error:
                if error.errno == errno.EAGAIN:
                    return
                raise
            at = 0
            while at < len(data):
                watch, what, _, size = _EVENT.unpack_from(data, at)
                yield watch, what
                at += _EVENT.size + size

    def _drop(self, watch: int) -> None:
        path = self._paths.pop(watch, None)
        if path is not None:
            self._watches.pop(path, None)

    def close(self) -> None:
        """Collect nothing more."""
        os.close(self._descriptor)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _is_local(path: bytes) -> bool:
    """Whether only this machine writes to the file system of a path."""
    found = ctypes.create_string_buffer(_STATFS_SIZE)
    if _libc().statfs(path, found) != 0:
        return False
    return ctypes.c_long.from_buffer(found).value & 0xFFFFFFFF in _LOCAL
