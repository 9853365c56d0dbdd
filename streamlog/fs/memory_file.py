"""Open files and locks of the file system in memory."""

import errno
import os
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamlog.fs.api import Buffer, FileKind, FileStat
from streamlog.fs.durability import Directory, MemoryInode, Node
from streamlog.fs.failure import storage_failure

if TYPE_CHECKING:
    from streamlog.fs.memory import MemoryFileSystem

__all__ = ["MemoryFile", "MemoryLock", "file_stat"]


class MemoryFile:
    """An open file; see `streamlog.fs.api.File`."""

    __slots__ = ("_fs", "_inode", "_is_open", "_is_writable", "_number", "path")

    def __init__(
        self,
        fs: "MemoryFileSystem",
        inode: MemoryInode,
        path: str,
        *,
        number: int,
        is_writable: bool,
    ) -> None:
        self.path = path
        self._fs = fs
        self._inode = inode
        self._number = number
        self._is_open = True
        self._is_writable = is_writable

    def pread(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer only where the file ends before."""
        self._check("read", position)
        if size < 0:
            raise storage_failure(errno.EINVAL, "read", self.path)
        with self._fs.mutex:
            return bytes(memoryview(self._inode.data)[position : position + size])

    def pread_into(self, target: memoryview | NDArray[np.uint8], position: int) -> int:
        """Fill `target` (writable bytes) from `position`; return how many bytes there were."""
        self._check("read", position)
        view = memoryview(target).cast("B")
        with self._fs.mutex:
            found = memoryview(self._inode.data)[position : position + view.nbytes]
            view[: found.nbytes] = found
            return found.nbytes

    def pwrite(self, source: Buffer, position: int) -> None:
        """Write all of `source` at `position`; what does not fit on the disk is left out."""
        self._check_writable("write", position)
        data = bytes(source)
        with self._fs.mutex:
            fitting = self._fs.fitting_size(self._inode, position, len(data))
            if fitting:
                self._inode.write(data[:fitting], position)
                self._inode.mtime_ns = self._fs.now_ns()
        if fitting < len(data):
            raise storage_failure(errno.ENOSPC, "write", self.path)

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros) the file to `size` bytes."""
        self._check("truncate", size)
        if not self._is_writable:
            raise storage_failure(errno.EINVAL, "truncate", self.path)
        with self._fs.mutex:
            self._inode.truncate(size)
            self._inode.mtime_ns = self._fs.now_ns()

    def sync(self) -> None:
        """Make the file's bytes and size durable, not its name."""
        self._check("sync", 0)
        with self._fs.mutex:
            self._inode.sync()

    def doom(self) -> None:
        """Lose the unsynced changes as a failed sync does; see `MemoryInode.doom`."""
        with self._fs.mutex:
            self._inode.doom()

    def stat(self) -> FileStat:
        """Return facts about the open file, even when its name is gone."""
        self._check("stat", 0)
        with self._fs.mutex:
            return file_stat(self._inode)

    def try_lock(self, *, shared: bool) -> bool:
        """Take the file's lock for this handle; False while another handle's lock conflicts."""
        with self._fs.mutex:
            held = self._inode.locks
            if held and not (shared and all(held.values())):
                return False
            held[self._number] = shared
            return True

    def unlock(self) -> None:
        """Give up this handle's lock, if it has one."""
        with self._fs.mutex:
            self._inode.locks.pop(self._number, None)

    def is_named(self) -> bool:
        """Tell whether the path still names this very file."""
        found = self._fs.stat(self.path)
        return found is not None and found.inode == self.stat().inode

    def adopt_access(self, replaced: FileStat) -> None:
        """Take over owner, group and mode of a file."""
        self._check("set owner and mode of", 0)
        with self._fs.mutex:
            self._inode.access = replaced.access

    def close(self) -> None:
        """Release the handle and its lock; closing twice does no harm."""
        self._is_open = False
        self.unlock()

    def _check(self, operation: str, position: int) -> None:
        if not self._is_open:
            raise storage_failure(errno.EBADF, operation, self.path)
        if position < 0:
            raise storage_failure(errno.EINVAL, operation, self.path)

    def _check_writable(self, operation: str, position: int) -> None:
        self._check(operation, position)
        if not self._is_writable:
            raise storage_failure(errno.EBADF, operation, self.path)

    def __enter__(self) -> "MemoryFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_is_open", False):
            self.close()

    def __repr__(self) -> str:
        return f"MemoryFile({self.path!r})"


class MemoryLock:
    """A held lock; see `streamlog.fs.api.FileLock`."""

    __slots__ = ("_is_held", "_owner", "file", "path", "shared")

    def __init__(self, file: MemoryFile, *, shared: bool) -> None:
        self.path = file.path
        self.file = file
        self.shared = shared
        self._owner = os.getpid()
        self._is_held = True

    def is_mine(self) -> bool:
        """Tell whether this process took the lock and has not given it up."""
        return self._is_held and self._owner == os.getpid()

    def pause(self) -> None:
        """Give the lock up but keep the file open, for `resume`."""
        self._is_held = False
        self.file.unlock()

    def resume(self) -> bool:
        """Take a paused lock again; False where that cannot be done now or ever."""
        self._is_held = self.file.is_named() and self.file.try_lock(shared=self.shared)
        return self._is_held

    def release(self) -> None:
        """Give the lock up and close the file; twice does no harm."""
        self._is_held = False
        self.file.close()


def file_stat(node: Node) -> FileStat:
    """Return facts about a node."""
    owner, group, mode = node.access
    if isinstance(node, Directory):
        kind, size, links = FileKind.DIRECTORY, 0, 2
    else:
        kind, size, links = FileKind.FILE, len(node.data), node.links
    return FileStat(kind, size, node.mtime_ns, node.number, links, mode, owner, group)
