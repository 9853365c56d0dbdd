"""A wrapper around a file system that fails, or dies, at chosen operations.

Every operation that changes something is counted and recorded. A `Fault` selects an operation and
its failure: an `errno`, or the death of the process; before it takes effect, after a part of a
write, or after it took effect. A dead process does nothing more: each further call raises
`SimulatedCrash` again, so that no `finally` of the code under test can clean up.

    create pwrite truncate sync rename link remove make_directory remove_directory
    sync_directory set_mtime set_access                                           are counted
    open stat list pread lock                                fail only if a fault names them
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from errno import EBADF
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import StorageError
from streamlog.fs.api import Buffer, File, FileLock, FileStat, FileSystem, OpenMode
from streamlog.fs.failure import poisoned_failure, storage_failure
from streamlog.fs.memory import MemoryFile
from streamlog.fs.names import stable_path

__all__ = [
    "Fault",
    "FaultyFile",
    "FaultyFileSystem",
    "FaultyLock",
    "Moment",
    "Operation",
    "SimulatedCrash",
]

READING: Final = frozenset({"open", "stat", "list", "pread", "lock"})
MUTATING: Final = frozenset(
    {
        "create",
        "pwrite",
        "truncate",
        "sync",
        "rename",
        "link",
        "remove",
        "make_directory",
        "remove_directory",
        "sync_directory",
        "set_mtime",
        "set_access",
    }
)


class SimulatedCrash(BaseException):  # no `Exception`: no handler may catch it
    """The process is dead; raised by every operation from then on."""


class Moment(Enum):
    """When, relative to the operation, it fails."""

    BEFORE = "before"
    TORN = "torn"  # a write leaves a prefix; any other operation leaves nothing
    AFTER = "after"  # it took effect, but raises all the same


class Operation(NamedTuple):
    """One recorded operation, numbered from 1."""

    number: int
    name: str
    path: str
    target: str | None = None  # of `rename` and `link`
    position: int = 0  # of `pwrite`; the new size for `truncate`
    size: int = 0  # of `pwrite`, in bytes

    def __str__(self) -> str:
        where = self.path if self.target is None else f"{self.path} -> {self.target}"
        extent = f" [{self.position}, +{self.size}]" if self.name == "pwrite" else ""
        return f"#{self.number} {self.name} {where}{extent}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A failure and its place.

    Args:
        at: Which of the matching operations, from 1.
        operation: The name of the operation; None matches all that change something.
        path_suffix: End of its path (or its target); empty matches all. The temporary file of
            `NAME`, whose name varies, counts as `NAME.tmp`.
        errno: The error it fails with; None for the death of the process.
        moment: Before, torn or after.
        is_lasting: Whether all later matches fail as well.
        portion: How much of a torn write is done, from 0 to 1.
    """

    at: int = 1
    operation: str | None = None
    path_suffix: str = ""
    errno: int | None = None
    moment: Moment = Moment.BEFORE
    is_lasting: bool = False
    portion: float = 0.5

    def __post_init__(self) -> None:
        if self.operation is not None and self.operation not in READING | MUTATING:
            raise ValueError(f"no such operation: {self.operation}")

    def matches(self, operation: Operation) -> bool:
        """Return whether this fault counts `operation`."""
        if self.operation is None:
            if operation.name in READING:
                return False
        elif self.operation != operation.name:
            return False
        return any(
            path is not None and stable_path(path).endswith(self.path_suffix)
            for path in (operation.path, operation.target)
        )


Observer = Callable[[Operation, Buffer], None]


class FaultyFileSystem:
    """A file system with faults; see `streamlog.fs.api.FileSystem`.

    Args:
        inner: The file system that does the work.
        faults: The faults.
        observe: Called before each operation that changes something, with the operation and
            the bytes that a `pwrite` is about to write (otherwise empty).

    Attributes:
        operations: The operations so far, including failed ones.
        is_dead: Whether the simulated process is dead.
    """

    def __init__(self, inner: FileSystem, *faults: Fault, observe: Observer | None = None) -> None:
        self.inner = inner
        self.operations: list[Operation] = []
        self.is_dead = False
        self._faults = [_Countdown(fault) for fault in faults]
        self._reads_may_fail = any(fault.operation in READING for fault in faults)
        self._observe = observe

    def kill(self) -> None:
        """End the simulated process; every further call raises `SimulatedCrash`."""
        self.is_dead = True

    # ---- the seam ---------------------------------------------------------------------------
    def open(self, path: str, mode: OpenMode) -> "FaultyFile":
        """Open a regular file; counted as `create` if it creates one."""
        self.reading("open", path)
        if self._creates(path, mode):
            with self.mutation("create", path):
                return FaultyFile(self, self.inner.open(path, mode))
        return FaultyFile(self, self.inner.open(path, mode))

    def stat(self, path: str) -> FileStat | None:
        """Return facts about a name, None if it does not exist."""
        self.reading("stat", path)
        return self.inner.stat(path)

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        self.reading("list", path)
        return self.inner.list(path)

    def resolve(self, path: str) -> str:
        """Return the absolute path with all symbolic links followed."""
        self.check_alive()
        return self.inner.resolve(path)

    def make_directory(self, path: str) -> None:
        """Create one directory; harmless if it exists."""
        with self.mutation("make_directory", path):
            self.inner.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        """Rename, atomically replacing a file `target`."""
        with self.mutation("rename", source, target=target):
            self.inner.rename(source, target)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name."""
        with self.mutation("link", source, target=target):
            self.inner.link(source, target)

    def remove(self, path: str) -> None:
        """Remove a name of a file."""
        with self.mutation("remove", path):
            self.inner.remove(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        with self.mutation("remove_directory", path):
            self.inner.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        with self.mutation("sync_directory", path):
            self.inner.sync_directory(path)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set a file's last modification time."""
        with self.mutation("set_mtime", path):
            self.inner.set_mtime(path, mtime_ms)

    def try_lock(self, path: str, *, shared: bool) -> "FaultyLock | None":
        """Take a lock; counted as `create` if it creates the lock file."""
        self.reading("lock", path)
        if self._creates(path, OpenMode.CREATE_OR_WRITE):
            with self.mutation("create", path):
                lock = self.inner.try_lock(path, shared=shared)
        else:
            lock = self.inner.try_lock(path, shared=shared)
        return None if lock is None else FaultyLock(self, lock)

    def broker_lock_is_held(self, path: str) -> bool:
        """Return whether another process holds a POSIX record lock on `path`."""
        self.check_alive()
        return self.inner.broker_lock_is_held(path)

    def user_id(self) -> int:
        """Return the user that this process makes files as."""
        self.check_alive()
        return self.inner.user_id()

    def boot_id(self) -> str:
        """Return an id that changes when the machine is rebooted."""
        self.check_alive()
        return self.inner.boot_id()

    # ---- what goes wrong --------------------------------------------------------------------
    def check_alive(self) -> None:
        """Raise `SimulatedCrash` in a dead process."""
        if self.is_dead:
            raise SimulatedCrash("the process is dead")

    def reading(self, name: str, path: str) -> None:
        """Apply faults that name a reading operation."""
        self.check_alive()
        if self._reads_may_fail:
            operation = Operation(len(self.operations), name, path)
            fault = self._due(operation)
            if fault is not None:
                self._strike(fault, operation)

    @contextmanager
    def mutation(
        self,
        name: str,
        path: str,
        *,
        target: str | None = None,
        position: int = 0,
        source: Buffer = b"",
        tear: Callable[[float], None] | None = None,
    ) -> Iterator[None]:
        """Record an operation and apply faults before, during, or after the caller's work."""
        self.check_alive()
        size = memoryview(source).nbytes
        operation = Operation(len(self.operations) + 1, name, path, target, position, size)
        self.operations.append(operation)
        if self._observe is not None:
            self._observe(operation, source)
        fault = self._due(operation)
        if fault is None:
            yield
        elif fault.moment is Moment.AFTER:
            yield
            self._strike(fault, operation)
        else:
            if fault.moment is Moment.TORN and tear is not None:
                tear(fault.portion)
            self._strike(fault, operation)

    def _due(self, operation: Operation) -> Fault | None:
        due = [countdown.fault for countdown in self._faults if countdown.strikes(operation)]
        return due[0] if due else None

    def _strike(self, fault: Fault, operation: Operation) -> None:
        if fault.errno is None:
            self.kill()
            raise SimulatedCrash(f"killed {fault.moment.value} {operation}")
        raise storage_failure(fault.errno, operation.name, operation.path, target=operation.target)

    def _creates(self, path: str, mode: OpenMode) -> bool:
        if mode is OpenMode.CREATE:
            return True
        return mode is OpenMode.CREATE_OR_WRITE and self.inner.stat(path) is None


class FaultyFile:
    """An open file of a `FaultyFileSystem`; see `streamlog.fs.api.File`."""

    __slots__ = ("_fs", "_inner", "_is_poisoned", "path")

    def __init__(self, fs: FaultyFileSystem, inner: File) -> None:
        self.path = inner.path
        self._fs = fs
        self._inner = inner
        self._is_poisoned = False

    def pread(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer only at the end of the file."""
        self._fs.reading("pread", self.path)
        return self._inner.pread(size, position)

    def pread_into(self, target: memoryview | NDArray[np.uint8], position: int) -> int:
        """Fill `target` from `position`; return the number of bytes read."""
        self._fs.reading("pread", self.path)
        return self._inner.pread_into(target, position)

    def pwrite(self, source: Buffer, position: int) -> None:
        """Write all of `source` at `position`."""
        self._check_not_poisoned("write")

        def tear(portion: float) -> None:
            whole = bytes(source)
            self._inner.pwrite(whole[: int(len(whole) * portion)], position)

        with self._fs.mutation("pwrite", self.path, position=position, source=source, tear=tear):
            self._inner.pwrite(source, position)

    def truncate(self, size: int) -> None:
        """Truncate or extend (with zeros) the file to `size` bytes."""
        self._check_not_poisoned("truncate")
        with self._fs.mutation("truncate", self.path, position=size):
            self._inner.truncate(size)

    def sync(self) -> None:
        """Make the file's bytes and size durable; a failure poisons the handle for good."""
        self._check_not_poisoned("sync")
        try:
            with self._fs.mutation("sync", self.path):
                self._inner.sync()
        except StorageError as error:
            self._is_poisoned = error.errno != EBADF
            if isinstance(self._inner, MemoryFile):
                self._inner.doom()
            raise

    def stat(self) -> FileStat:
        """Return facts about the open file."""
        self._fs.reading("stat", self.path)
        return self._inner.stat()

    def adopt_access(self, replaced: FileStat) -> None:
        """Take over owner, group and mode of a file; counted if they differ."""
        found = self._inner.stat()
        if found.access != replaced.access:
            with self._fs.mutation("set_access", self.path):
                self._inner.adopt_access(replaced)

    def close(self) -> None:
        """Release the handle; a dead process has lost it already."""
        self._inner.close()

    def _check_not_poisoned(self, operation: str) -> None:
        self._fs.check_alive()
        if self._is_poisoned:
            raise poisoned_failure(operation, self.path)

    def __enter__(self) -> "FaultyFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FaultyLock:
    """A held lock of a `FaultyFileSystem`; see `streamlog.fs.api.FileLock`."""

    __slots__ = ("_fs", "_inner", "file", "path", "shared")

    def __init__(self, fs: FaultyFileSystem, inner: FileLock) -> None:
        self._fs = fs
        self.path = inner.path
        self.file: File = FaultyFile(fs, inner.file)
        self.shared = inner.shared
        self._inner = inner

    def is_mine(self) -> bool:
        """Return whether this process took the lock and still holds it."""
        return self._inner.is_mine()

    def pause(self) -> None:
        """Give up the lock but keep the file open, for `resume`."""
        self._inner.pause()

    def resume(self) -> bool:
        """Take a paused lock again; False if that is impossible now or for good."""
        self._fs.reading("lock", self.path)
        return self._inner.resume()

    def release(self) -> None:
        """Give up the lock, as the end of a process does."""
        self._inner.release()


class _Countdown:
    """A fault and the number of matches it still lets pass."""

    __slots__ = ("_left", "fault")

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._left = fault.at

    def strikes(self, operation: Operation) -> bool:
        if not self.fault.matches(operation):
            return False
        self._left -= 1
        return self._left == 0 or (self._left < 0 and self.fault.is_lasting)
