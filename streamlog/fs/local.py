"""The machine's own file system, through the narrowest calls that keep the promises of `api`.

An open file is one descriptor and a flag. Nothing is buffered here: a write is a `pwrite`, a read a
`pread` into private memory, never a mapping, so that a file truncated by another process causes a
short read instead of a crash. Python repeats a call that a signal interrupted (PEP 475); short
reads and writes are continued here.

A lock is a `flock` on a file of its own. It belongs to the open file, not to the process, so a
forked child inherits it. The child gives up its copy at once (see `_forget_locks`); otherwise the
lock would outlive its dead owner as long as any child lives.
"""

import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Callable
from typing import Final
from weakref import WeakSet, ref

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import FileMissingError, StorageError
from streamlog.fs import access
from streamlog.fs.api import Buffer, FileKind, FileStat, OpenMode
from streamlog.fs.failure import poisoned_failure, storage_failure

__all__ = ["LocalFile", "LocalFileSystem", "LocalLock"]

# O_NONBLOCK: opening a FIFO must not wait for its other end; regular files ignore it.
_OPEN_ALWAYS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_OPEN_FLAGS: Final = {
    OpenMode.READ: _OPEN_ALWAYS | os.O_RDONLY,
    OpenMode.WRITE: _OPEN_ALWAYS | os.O_RDWR,
    OpenMode.CREATE: _OPEN_ALWAYS | os.O_RDWR | os.O_CREAT | os.O_EXCL,
    OpenMode.CREATE_OR_WRITE: _OPEN_ALWAYS | os.O_RDWR,  # and O_CREAT if it does not exist
}
_OPENERS: Final[dict[OpenMode, Callable[[str, int], int]]] = {
    OpenMode.READ: os.open,
    OpenMode.WRITE: os.open,
    OpenMode.CREATE: access.create,
    OpenMode.CREATE_OR_WRITE: access.open_or_create,
}
_KINDS: Final = {
    stat.S_IFREG: FileKind.FILE,
    stat.S_IFDIR: FileKind.DIRECTORY,
    stat.S_IFLNK: FileKind.SYMLINK,
}

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_FLOCK: Final = struct.Struct("@hhqqi4x")  # Linux, 64 bits: type, whence, start, length, pid
_CLOSED: Final = -1
# How soon a removed lock file is noticed: checking each time would add a tenth to an append of
# 16 KiB, and a removal while the lock is held cannot be noticed in time anyway.
_NAME_STANDS_NS: Final = 1_000_000
_LOCK_ATTEMPTS: Final = 100  # a lock file removed that often in a row is a fault, not a race


def _failure(
    error: OSError | ValueError, operation: str, path: str, *, target: str | None = None
) -> StorageError:
    if isinstance(error, OSError) and error.errno:
        return storage_failure(error.errno, operation, path, target=target)
    # A NUL or an unencodable character: Python refuses the path before the kernel sees it.
    return storage_failure(errno.EINVAL, operation, path, target=target, reason=str(error))


def _file_stat(found: os.stat_result) -> FileStat:
    return FileStat(
        _KINDS.get(stat.S_IFMT(found.st_mode), FileKind.OTHER),
        found.st_size,
        found.st_mtime_ns,
        found.st_ino,
        found.st_nlink,
        stat.S_IMODE(found.st_mode),
        found.st_uid,
        found.st_gid,
        found.st_dev,
    )


class LocalFile:
    """An open regular file; see `streamlog.fs.api.File`. Closes itself when unreferenced."""

    __slots__ = ("__weakref__", "_descriptor", "_is_poisoned", "_lent", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._is_poisoned = False
        self._lent: ref[LocalFile] | None = None

    def pread(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer only at the end of the file."""
        try:
            found = os.pread(self._descriptor, size, position)
            if len(found) == size or not found:
                return found
            parts = [found]
            missing = size - len(found)
            while missing:
                found = os.pread(self._descriptor, missing, position + size - missing)
                if not found:
                    break
                parts.append(found)
                missing -= len(found)
        except OSError as error:
            raise _failure(error, "read", self.path) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pread_into(self, target: memoryview | NDArray[np.uint8], position: int) -> int:
        """Fill `target` (writable bytes) from `position`; return the number of bytes read."""
        view = memoryview(target)
        size, count = view.nbytes, 0
        try:
            while count < size:
                rest = view[count:] if count else view
                found = os.preadv(self._descriptor, [rest], position + count)
                if not found:
                    break
                count += found
        except OSError as error:
            raise _failure(error, "read", self.path) from error
        return count

    def pwrite(self, source: Buffer, position: int) -> None:
        """Write all of `source` at `position`; on an error any prefix of it may be written."""
        if self._is_poisoned:
            raise poisoned_failure("write", self.path)
        view = memoryview(source)
        size = view.nbytes
        try:
            count = os.pwrite(self._descriptor, view, position)
            if count < size:
                view = view.cast("B")
                while count < size:
                    count += os.pwrite(self._descriptor, view[count:], position + count)
        except OSError as error:
            raise _failure(error, "write", self.path) from error

    def truncate(self, size: int) -> None:
        """Truncate or extend (with zeros) the file to `size` bytes."""
        if self._is_poisoned:
            raise poisoned_failure("truncate", self.path)
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise _failure(error, "truncate", self.path) from error

    def sync(self) -> None:
        """Make the file's bytes and size durable; a failure poisons the handle for good."""
        if self._is_poisoned:
            raise poisoned_failure("sync", self.path)
        if self._descriptor == _CLOSED:
            raise storage_failure(errno.EBADF, "sync", self.path)
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            # Dirty pages may have been dropped, and the kernel would report the next sync as a
            # success.
            self._is_poisoned = True
            raise _failure(error, "sync", self.path) from error

    def stat(self) -> FileStat:
        """Return facts about the open file, even when its name is gone."""
        try:
            return _file_stat(os.fstat(self._descriptor))
        except OSError as error:
            raise _failure(error, "stat", self.path) from error

    def adopt_access(self, replaced: FileStat) -> None:
        """Take over owner, group and mode of a file, as far as this process may set them."""
        try:
            access.adopt(self._descriptor, replaced)
        except OSError as error:
            raise _failure(error, "set owner and mode of", self.path) from error

    def close(self) -> None:
        """Release the handle; closing twice is harmless."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor == _CLOSED:
            return
        try:
            os.close(descriptor)  # Linux releases the descriptor even if this fails
        except OSError as error:
            raise _failure(error, "close", self.path) from error

    def descriptor(self) -> int:
        """Return the open descriptor, for locks and for `sendfile`; -1 when closed."""
        return self._descriptor

    def send_to(self, connection: int, position: int, size: int) -> int:
        """Send bytes to a non-blocking connection; return how many it took, 0 at the file's end.

        Raises:
            OSError: As `sendfile` fails: most errors are the connection's.
        """
        return os.sendfile(connection, self._descriptor, position, size)

    def lend(self) -> "LocalFile":
        """Return a handle of its own that stays open while it is referenced, even after `close`.

        Users at the same time share one.
        """
        lent = None if self._lent is None else self._lent()
        if lent is None:
            try:
                lent = LocalFile(self.path, os.dup(self._descriptor))
            except OSError as error:
                raise _failure(error, "duplicate", self.path) from error
            self._lent = ref(lent)
        return lent

    def __enter__(self) -> "LocalFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_descriptor", _CLOSED) != _CLOSED:
            os.close(self._descriptor)

    def __repr__(self) -> str:
        return f"LocalFile({self.path!r})"


class LocalLock:
    """A held `flock`; see `streamlog.fs.api.FileLock`."""

    __slots__ = (
        "__weakref__",
        "_device",
        "_inode",
        "_is_held",
        "_is_released",
        "_named_until_ns",
        "_operation",
        "_owner",
        "file",
        "path",
        "shared",
    )

    def __init__(self, file: LocalFile, *, shared: bool) -> None:
        self.path = file.path
        self.file = file
        self.shared = shared
        found = os.fstat(file.descriptor())
        self._device, self._inode = found.st_dev, found.st_ino
        self._operation = _operation(shared=shared)
        self._owner = os.getpid()
        self._is_held = True
        self._is_released = False
        self._named_until_ns = 0
        _held.add(self)

    def is_mine(self) -> bool:
        """Return whether this process took the lock and still holds it."""
        return self._is_held and self._owner == os.getpid()

    def pause(self) -> None:
        """Give up the lock but keep the file open, for `resume`."""
        self._is_held = False
        try:
            fcntl.flock(self.file.descriptor(), fcntl.LOCK_UN)
        except OSError as error:
            raise _failure(error, "unlock", self.path) from error

    def resume(self) -> bool:
        """Take a paused lock again; False if that is impossible now or for good."""
        try:
            fcntl.flock(self.file.descriptor(), self._operation)
            now_ns = time.monotonic_ns()
            self._is_held = now_ns < self._named_until_ns or self.is_named()
        except BlockingIOError:
            return False
        except OSError as error:
            raise _failure(error, "lock", self.path) from error
        if self._is_held and now_ns >= self._named_until_ns:
            self._named_until_ns = now_ns + _NAME_STANDS_NS
        return self._is_held

    def is_named(self) -> bool:
        """Return whether the path still names the locked file.

        While that is open, no other file can get its inode.
        """
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return False
        return found.st_ino == self._inode and found.st_dev == self._device

    def release(self) -> None:
        """Give up the lock and close the file; a forked child only closes the file."""
        if self._is_released:
            return
        try:
            if self.is_mine() and self.file.descriptor() != _CLOSED:
                # Closing alone would leave the lock with the copy of a forked child.
                fcntl.flock(self.file.descriptor(), fcntl.LOCK_UN)
        except OSError as error:
            raise _failure(error, "unlock", self.path) from error
        finally:
            self.forget()

    def forget(self) -> None:
        """Close this process's descriptor without unlocking."""
        self._is_held = False
        self._is_released = True
        _held.discard(self)
        self.file.close()

    def __repr__(self) -> str:
        kind = "shared" if self.shared else "exclusive"
        return f"LocalLock({self.path!r}, {kind})"


_held: Final[WeakSet[LocalLock]] = WeakSet()


def _forget_locks() -> None:
    """Close the lock files that a fork copied into this child; the parent keeps its locks."""
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_locks)


class LocalFileSystem:
    """The machine's file system; see `streamlog.fs.api.FileSystem`. Has no state."""

    __slots__ = ()

    def open(self, path: str, mode: OpenMode) -> LocalFile:
        """Open a regular file; refuse links, directories, devices, FIFOs and sockets."""
        try:
            descriptor = _OPENERS[mode](path, _OPEN_FLAGS[mode])
        except (OSError, ValueError) as error:
            raise _failure(error, "open", path) from error
        file = LocalFile(path, descriptor)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            file.close()
            is_directory = stat.S_ISDIR(found.st_mode)
            raise storage_failure(errno.EISDIR if is_directory else errno.ENXIO, "open", path)
        return file

    def stat(self, path: str) -> FileStat | None:
        """Return facts about a name without following links, None if it does not exist."""
        try:
            return _file_stat(os.lstat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise _failure(error, "stat", path) from error

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        try:
            return sorted(os.listdir(path))
        except (OSError, ValueError) as error:
            raise _failure(error, "list", path) from error

    def resolve(self, path: str) -> str:
        """Return the absolute path with all symbolic links followed; it need not exist."""
        try:
            return os.path.realpath(path)
        except (OSError, ValueError) as error:
            raise _failure(error, "resolve", path) from error

    def make_directory(self, path: str) -> None:
        """Create one directory; harmless if it exists, an error if a file does."""
        try:
            access.make_directory(path)
        except FileExistsError as error:
            if not os.path.isdir(path):
                raise _failure(error, "make directory", path) from error
        except (OSError, ValueError) as error:
            raise _failure(error, "make directory", path) from error

    def rename(self, source: str, target: str) -> None:
        """Rename, atomically replacing a file `target`."""
        _call_with_two_paths(os.rename, "rename", source, target)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; `FileExistsAlreadyError` if `target` exists."""
        _call_with_two_paths(_link, "link", source, target)

    def remove(self, path: str) -> None:
        """Remove a name of a file; `FileMissingError` if it does not exist."""
        try:
            os.unlink(path)
        except (OSError, ValueError) as error:
            raise _failure(error, "remove", path) from error

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        try:
            os.rmdir(path)
        except (OSError, ValueError) as error:
            raise _failure(error, "remove directory", path) from error

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise _failure(error, "sync directory", path) from error

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set a file's last modification time (and that of its last access)."""
        mtime_ns = mtime_ms * 1_000_000
        try:
            os.utime(path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)
        except (OSError, ValueError) as error:
            raise _failure(error, "set the time of", path) from error

    def try_lock(self, path: str, *, shared: bool) -> LocalLock | None:
        """Create `path` if needed and take its `flock`; None while another handle holds it."""
        operation = _operation(shared=shared)
        for _ in range(_LOCK_ATTEMPTS):
            file = self.open(path, OpenMode.CREATE_OR_WRITE)
            try:
                fcntl.flock(file.descriptor(), operation)
                lock = LocalLock(file, shared=shared)
                if lock.is_named():
                    return lock
            except BlockingIOError:
                file.close()
                return None
            except OSError as error:
                raise _failure(error, "lock", path) from error
            except BaseException:  # Ctrl-C: its traceback would keep the file, and so the lock
                file.close()
                raise
            # The next process would lock another file of this name: take that one instead.
            lock.forget()
        raise storage_failure(errno.ESTALE, "lock", path, reason="it keeps being removed")

    def broker_lock_is_held(self, path: str) -> bool:
        """Return whether another process holds a POSIX record lock on `path`.

        Asking takes no lock and does not affect the broker's: closing a descriptor drops only POSIX
        locks of the closing process, and this one never holds any.

        Source: java.nio.channels.FileChannel.tryLock, as FileLock.scala uses it for `.lock`.
        """
        try:
            file = self.open(path, OpenMode.READ)
        except FileMissingError:
            return False
        with file:
            question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            try:
                answer = fcntl.fcntl(file.descriptor(), fcntl.F_GETLK, question)
            except OSError as error:
                raise _failure(error, "ask for the lock of", path) from error
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def user_id(self) -> int:
        """Return the effective user id of this process."""
        return os.geteuid()

    def boot_id(self) -> str:
        """Return an id that changes when the machine is rebooted.

        Linux provides one in `/proc`. If a sandbox hides it, the second of the boot by the wall
        clock serves. Setting the clock then looks like a reboot, which costs a leader epoch and no
        data; a reboot is never missed.
        """
        global _boot_id
        if _boot_id is None:
            _boot_id = _read_boot_id()
        return _boot_id

    def __repr__(self) -> str:
        return "LocalFileSystem()"


_boot_id: str | None = None


def _read_boot_id() -> str:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            found = file.read(64).strip()
    except (OSError, ValueError):
        found = ""
    if found:
        return found
    booted_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return f"booted-at-{booted_ns // 1_000_000_000}"


def _link(source: str, target: str) -> None:
    os.link(source, target, follow_symlinks=False)


def _call_with_two_paths(
    call: Callable[[str, str], None], operation: str, source: str, target: str
) -> None:
    try:
        call(source, target)
    except (OSError, ValueError) as error:
        raise _failure(error, operation, source, target=target) from error


def _operation(*, shared: bool) -> int:
    return (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
