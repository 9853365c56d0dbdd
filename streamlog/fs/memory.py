"""A file system in memory that can crash: the same promises as the disk's, and no more.

It behaves like `streamlog.fs.local`, including errors (one conformance test runs against both),
except that it checks no permissions and has no symbolic links or special files. In addition it
tracks what was synced: `crash_clone` returns the file system as another process would find it after
the death of this process or a power cut, by the rules of `streamlog.fs.durability`.

Paths are absolute or relative to `/`, which exists. Calls may come from several threads.
"""

import errno
import functools
import os
import threading
from collections.abc import Hashable, Iterable
from random import Random
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from streamlog.clock import Clock, ManualClock
from streamlog.errors import StorageError
from streamlog.fs.api import Buffer, FileKind, FileStat, OpenMode
from streamlog.fs.durability import (
    Access,
    Directory,
    Journal,
    Loss,
    MemoryInode,
    NameEntry,
    Node,
    copy_tree,
    facts,
    walk,
)
from streamlog.fs.failure import storage_failure
from streamlog.fs.names import NAME_SIZE_MAX

__all__ = ["MemoryFile", "MemoryFileSystem", "MemoryLock"]

_FILE_MODE: Final = 0o640
_DIRECTORY_MODE: Final = 0o750
_SUPERUSER: Final = 0


class MemoryFileSystem:
    """A file system in memory; see `streamlog.fs.api.FileSystem`.

    Args:
        clock: Source of modification times; a stopped clock by default.
        capacity: Limit of the bytes of all files; None for no limit. May be changed at any time.
    """

    def __init__(self, *, clock: Clock | None = None, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.user = _SUPERUSER  # the user of the process; may be changed at any time
        self.broker_locks: set[str] = set()  # paths that appear to be held by a live broker
        self.mutex = threading.RLock()
        self._clock = clock if clock is not None else ManualClock()
        self._boots = 1
        self._next_number = 2
        self._root = Directory(1, self.now_ns(), (self.user, self.user, _DIRECTORY_MODE))
        self._journal = Journal()

    # ---- the seam ---------------------------------------------------------------------------
    def open(self, path: str, mode: OpenMode) -> "MemoryFile":
        """Open a regular file, creating it if `mode` says so."""
        with self.mutex:
            directory, name = self._parent(path, "open")
            node: Node | None = directory.names.get(name) if name else directory
            if node is not None and mode is OpenMode.CREATE:
                raise storage_failure(errno.EEXIST, "open", path)
            if isinstance(node, Directory):
                raise storage_failure(errno.EISDIR, "open", path)
            if node is None:
                if mode in (OpenMode.READ, OpenMode.WRITE):
                    raise storage_failure(errno.ENOENT, "open", path)
                access = self._access_in(directory, _FILE_MODE)
                node = MemoryInode(self._take_number(), self.now_ns(), access)
                self._change_names(NameEntry(directory, name, None, node))
            is_writable = mode is not OpenMode.READ
            return MemoryFile(self, node, path, number=self._take_number(), is_writable=is_writable)

    def stat(self, path: str) -> FileStat | None:
        """Return facts about a name, None if it does not exist."""
        with self.mutex:
            try:
                return _file_stat(self._find(path, "stat"))
            except StorageError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR):
                    return None
                raise

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        with self.mutex:
            return sorted(self._find_directory(path, "list").names)

    def resolve(self, path: str) -> str:
        """Return the absolute path; there are no symbolic links here."""
        return "/" + "/".join(_split(path, "resolve"))

    def make_directory(self, path: str) -> None:
        """Create one directory; harmless if it exists, an error if a file does."""
        with self.mutex:
            parent, name = self._parent(path, "make directory")
            node: Node | None = parent.names.get(name) if name else parent
            if isinstance(node, Directory):
                return
            if node is not None:
                raise storage_failure(errno.EEXIST, "make directory", path)
            access = self._access_in(parent, _DIRECTORY_MODE)
            made = Directory(self._take_number(), self.now_ns(), access)
            self._change_names(NameEntry(parent, name, None, made))

    def rename(self, source: str, target: str) -> None:
        """Rename, atomically replacing a file `target` or an empty directory."""
        with self.mutex:
            node = self._find(source, "rename")
            old_parent, old_name = self._parent(source, "rename")
            parent, name = self._parent(target, "rename")
            replaced = parent.names.get(name)
            number = _rename_refusal(node, replaced, parent) if name and old_name else errno.EBUSY
            if number:
                raise storage_failure(number, "rename", source, target=target)
            if node is not replaced:  # two names of one file: POSIX leaves both
                self._change_names(
                    NameEntry(old_parent, old_name, node, None),
                    NameEntry(parent, name, replaced, node),
                )

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; `FileExistsAlreadyError` if `target` exists."""
        with self.mutex:
            node = self._find(source, "link")
            parent, name = self._parent(target, "link")
            if not name or name in parent.names:
                raise storage_failure(errno.EEXIST, "link", source, target=target)
            if isinstance(node, Directory):
                raise storage_failure(errno.EPERM, "link", source, target=target)
            self._change_names(NameEntry(parent, name, None, node))

    def remove(self, path: str) -> None:
        """Remove a name of a file; `FileMissingError` if it does not exist."""
        with self.mutex:
            node = self._find(path, "remove")
            if isinstance(node, Directory):
                raise storage_failure(errno.EISDIR, "remove", path)
            parent, name = self._parent(path, "remove")
            self._change_names(NameEntry(parent, name, node, None))

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        with self.mutex:
            node = self._find_directory(path, "remove directory")
            parent, name = self._parent(path, "remove directory")
            if node.names or not name:
                number = errno.ENOTEMPTY if node.names else errno.EBUSY
                raise storage_failure(number, "remove directory", path)
            self._change_names(NameEntry(parent, name, node, None))

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable, not its own name."""
        with self.mutex:
            self._journal.sync(self._find_directory(path, "sync directory"))

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set a file's last modification time."""
        with self.mutex:
            self._find(path, "set the time of").mtime_ns = mtime_ms * 1_000_000

    def try_lock(self, path: str, *, shared: bool) -> "MemoryLock | None":
        """Create `path` if needed and take its lock; None while another handle holds it."""
        with self.mutex:
            file = self.open(path, OpenMode.CREATE_OR_WRITE)
            if file.try_lock(shared=shared):
                return MemoryLock(file, shared=shared)
            file.close()
            return None

    def broker_lock_is_held(self, path: str) -> bool:
        """Return whether `path` exists and is among `broker_locks`."""
        found = self.stat(path)
        if found is not None and found.kind is FileKind.DIRECTORY:
            raise storage_failure(errno.EISDIR, "open", path)
        return found is not None and path in self.broker_locks

    def user_id(self) -> int:
        """Return `user`."""
        return self.user

    def set_access(self, path: str, *, owner: int, group: int, mode: int) -> None:
        """Set owner, group and mode, like `chown` and `chmod`."""
        with self.mutex:
            self._find(path, "set owner and mode of").access = (owner, group, mode)

    def boot_id(self) -> str:
        """Return an id that changes with every power cut."""
        return f"boot-{self._boots}"

    # ---- crashes ----------------------------------------------------------------------------
    def crash_clone(
        self,
        random: Random,
        *,
        power: bool,
        loss: Literal["nothing", "everything", "random"] = "random",
    ) -> "MemoryFileSystem":
        """Return this file system as it may be found after a crash at this moment.

        Open handles and locks are gone; this file system continues unaffected.

        Args:
            random: Decides which unsynced changes are lost, and how.
            power: True for a power cut: only synced state certainly survives, and the boot id
                changes. False for the end of the process: everything survives, and unsynced changes
                may still be lost by a later power cut.
            loss: Whether a power cut loses nothing unsynced, everything, or a choice of `random`.
        """
        with self.mutex:
            clone = MemoryFileSystem(clock=self._clock, capacity=self.capacity)
            clone.user = self.user
            copies: dict[Node, Node] = {}
            root = copy_tree(self._root, copies)
            assert isinstance(root, Directory)
            clone._root = root
            clone._journal = self._journal.copy(copies)
            clone._next_number = self._next_number
            clone._boots = self._boots
        if power:
            clone._boots += 1
            clone._journal.cut_power(random, Loss(loss))
            for inode in clone._inodes():
                inode.cut_power(random, Loss(loss))
        else:
            clone.broker_locks = set(self.broker_locks)
        return clone

    def unsynced(self) -> tuple[str, ...]:
        """Return the sorted paths whose bytes, or whose existence, are not durable."""
        with self.mutex:
            paths = {"": self._root, **dict(walk(self._root, ""))}
            found = {
                path
                for path, node in paths.items()
                if isinstance(node, MemoryInode) and node.changes
            }
            places = {node: path for path, node in paths.items()}
            for directory, name in self._journal.volatile_names():
                if directory in places:
                    found.add(f"{places[directory]}/{name}")
            return tuple(sorted(found))

    def facts(self) -> Hashable:
        """Return a value that file systems have in common if no process can tell them apart.

        It covers names, inode numbers, times, access, bytes, and what a power cut may still take.
        Open handles and their locks are not covered.
        """
        with self.mutex:
            held = (self.user, self.capacity, self._boots, frozenset(self.broker_locks))
            tree = facts((self._root, *self._journal.nodes()))
            return (*held, tree, self._journal.facts())

    # ---- for open files ---------------------------------------------------------------------
    def now_ns(self) -> int:
        """Return the clock's time in nanoseconds."""
        return self._clock.now_ms() * 1_000_000

    def fitting_size(self, inode: MemoryInode, position: int, size: int) -> int:
        """Return how many of `size` bytes at `position` of a file the capacity admits."""
        if self.capacity is None:
            return size
        used = sum(len(other.data) for other in self._inodes() if other is not inode)
        largest = max(len(inode.data), self.capacity - used)
        return max(0, min(size, largest - position))

    # ---- names ------------------------------------------------------------------------------
    def _change_names(self, *entries: NameEntry) -> None:
        self._journal.change(*entries)
        now_ns = self.now_ns()
        for entry in entries:
            entry.directory.mtime_ns = now_ns

    def _access_in(self, directory: Directory, mode: int) -> Access:
        """Return owner, group and mode of a new entry of a directory."""
        owner, group, _ = directory.access
        is_given = self.user == _SUPERUSER
        return (owner, group, mode) if is_given else (self.user, self.user, mode)

    def _take_number(self) -> int:
        number = self._next_number
        self._next_number += 1
        return number

    def _parent(self, path: str, operation: str) -> tuple[Directory, str]:
        """Return the directory of a path and the name in it, which is empty for the root."""
        parts = _split(path, operation)
        directory = self._root
        for name in parts[:-1]:
            node = directory.names.get(name)
            if not isinstance(node, Directory):
                number = errno.ENOENT if node is None else errno.ENOTDIR
                raise storage_failure(number, operation, path)
            directory = node
        return directory, parts[-1] if parts else ""

    def _find(self, path: str, operation: str) -> Node:
        directory, name = self._parent(path, operation)
        node = directory.names.get(name) if name else directory
        if node is None:
            raise storage_failure(errno.ENOENT, operation, path)
        return node

    def _find_directory(self, path: str, operation: str) -> Directory:
        node = self._find(path, operation)
        if not isinstance(node, Directory):
            raise storage_failure(errno.ENOTDIR, operation, path)
        return node

    def _inodes(self) -> Iterable[MemoryInode]:
        """Return every file that has a name, once, always in the same order."""
        found = (node for _, node in walk(self._root, ""))
        return dict.fromkeys(node for node in found if isinstance(node, MemoryInode))


class MemoryFile:
    """An open file; see `streamlog.fs.api.File`."""

    __slots__ = ("_fs", "_inode", "_is_open", "_is_writable", "_number", "path")

    def __init__(
        self,
        fs: MemoryFileSystem,
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
        """Return `size` bytes from `position`; fewer only at the end of the file."""
        self._check("read", position)
        if size < 0:
            raise storage_failure(errno.EINVAL, "read", self.path)
        with self._fs.mutex:
            return bytes(memoryview(self._inode.data)[position : position + size])

    def pread_into(self, target: memoryview | NDArray[np.uint8], position: int) -> int:
        """Fill `target` (writable bytes) from `position`; return the number of bytes read."""
        self._check("read", position)
        view = memoryview(target).cast("B")
        with self._fs.mutex:
            found = memoryview(self._inode.data)[position : position + view.nbytes]
            view[: found.nbytes] = found
            return found.nbytes

    def pwrite(self, source: Buffer, position: int) -> None:
        """Write all of `source` at `position`; bytes beyond the capacity are left out."""
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
        """Truncate or extend (with zeros) the file to `size` bytes."""
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
        """Lose the unsynced changes like a failed sync; see `MemoryInode.doom`."""
        with self._fs.mutex:
            self._inode.doom()

    def stat(self) -> FileStat:
        """Return facts about the open file, even when its name is gone."""
        self._check("stat", 0)
        with self._fs.mutex:
            return _file_stat(self._inode)

    def try_lock(self, *, shared: bool) -> bool:
        """Take the file's lock for this handle; False while another handle's lock conflicts."""
        with self._fs.mutex:
            held = self._inode.locks
            if held and not (shared and all(held.values())):
                return False
            held[self._number] = shared
            return True

    def unlock(self) -> None:
        """Give up this handle's lock, if any."""
        with self._fs.mutex:
            self._inode.locks.pop(self._number, None)

    def is_named(self) -> bool:
        """Return whether the path still names this file."""
        found = self._fs.stat(self.path)
        return found is not None and found.inode == self.stat().inode

    def adopt_access(self, replaced: FileStat) -> None:
        """Take over owner, group and mode of a file."""
        self._check("set owner and mode of", 0)
        with self._fs.mutex:
            self._inode.access = replaced.access

    def close(self) -> None:
        """Release the handle and its lock; closing twice is harmless."""
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

    def __exit__(self, *_: object) -> None:
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
        """Return whether this process took the lock and still holds it."""
        return self._is_held and self._owner == os.getpid()

    def pause(self) -> None:
        """Give up the lock but keep the file open, for `resume`."""
        self._is_held = False
        self.file.unlock()

    def resume(self) -> bool:
        """Take a paused lock again; False if that is impossible now or for good."""
        self._is_held = self.file.is_named() and self.file.try_lock(shared=self.shared)
        return self._is_held

    def release(self) -> None:
        """Give up the lock and close the file; harmless if repeated."""
        self._is_held = False
        self.file.close()


def _file_stat(node: Node) -> FileStat:
    """Return facts about a node."""
    owner, group, mode = node.access
    if isinstance(node, Directory):
        kind, size, links = FileKind.DIRECTORY, 0, 2
    else:
        kind, size, links = FileKind.FILE, len(node.data), node.links
    return FileStat(kind, size, node.mtime_ns, node.number, links, mode, owner, group)


@functools.lru_cache(maxsize=4096)  # simulations name the same few paths again and again
def _split(path: str, operation: str) -> tuple[str, ...]:
    if "\0" in path:
        raise storage_failure(errno.EINVAL, operation, path, reason="embedded null byte")
    parts: list[str] = []
    for name in path.split("/"):
        if name == "..":
            del parts[-1:]
        elif name and name != ".":
            if len(os.fsencode(name)) > NAME_SIZE_MAX:
                raise storage_failure(errno.ENAMETOOLONG, operation, path)
            parts.append(name)
    return tuple(parts)


def _rename_refusal(node: Node, replaced: Node | None, parent: Directory) -> int:
    """Return the errno with which Linux refuses a rename, 0 if it does not."""
    if isinstance(node, Directory):
        if parent is node or any(below is parent for _, below in walk(node, "")):
            return errno.EINVAL  # into itself
        if isinstance(replaced, MemoryInode):
            return errno.ENOTDIR
        if isinstance(replaced, Directory) and replaced is not node and replaced.names:
            return errno.ENOTEMPTY
    elif isinstance(replaced, Directory):
        return errno.EISDIR
    return 0
