"""The operations on a disk that the package uses, and the promises of each.

Crashes differ in what survives. A *process crash* keeps everything that was written. A *power cut*
keeps only what was synced: `File.sync` makes a file's bytes and size durable,
`FileSystem.sync_directory` the names in a directory (creations, renames, links, removals). Each
unsynced change may independently be kept, lost, torn or undone.

Every `OSError` is translated here, once, into a `streamlog.errors.StorageError` (or its leaves
`FileMissingError`, `FileExistsAlreadyError`, `DiskFullError`). Paths are plain `str`.
Opening never follows a symbolic link in the last component, never blocks (a FIFO), and refuses
everything but regular files with `StorageError`.
"""

from enum import Enum
from types import TracebackType
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Buffer", "File", "FileKind", "FileLock", "FileStat", "FileSystem", "OpenMode"]

Buffer = bytes | bytearray | memoryview | NDArray[np.uint8]


class FileKind(Enum):
    """Kind of a name's target; links are not followed."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "pipe, socket or device"


class FileStat(NamedTuple):
    """Facts about a name or an open file."""

    kind: FileKind
    size: int
    mtime_ns: int
    inode: int
    links: int
    mode: int
    owner: int = 0
    group: int = 0
    device: int = 0

    @property
    def access(self) -> tuple[int, int, int]:
        """Owner, group and mode."""
        return self.owner, self.group, self.mode

    @property
    def mtime_ms(self) -> int:
        """Last modification in milliseconds since 1970."""
        return self.mtime_ns // 1_000_000


class OpenMode(Enum):
    """How a file is opened; every mode may read."""

    READ = "read"  # must exist; writing is refused
    WRITE = "write"  # must exist
    CREATE = "create"  # must not exist
    CREATE_OR_WRITE = "create or write"


class File(Protocol):
    """An open regular file. Positions and sizes are bytes.

    Not for use by two threads at once, except `pread` and `pread_into`. A handle without references
    closes itself.
    """

    path: str

    def pread(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_into(self, target: memoryview | NDArray[np.uint8], position: int) -> int:
        """Fill `target` (writable bytes) from `position`; return the number of bytes read."""
        ...

    def pwrite(self, source: Buffer, position: int) -> None:
        """Write all of `source` at `position`, looping over short writes.

        On an error the file may hold any prefix of `source`.
        """
        ...

    def truncate(self, size: int) -> None:
        """Truncate or extend (with zeros) the file to `size` bytes."""
        ...

    def sync(self) -> None:
        """Make the file's bytes and size durable.

        After a failure every further `sync` and write of this handle raises `PoisonedError`:
        the kernel reports a lost write once and then forgets it.
        """
        ...

    def stat(self) -> FileStat:
        """Return facts about the open file, even when its name is gone."""
        ...

    def adopt_access(self, replaced: FileStat) -> None:
        """Take over owner, group and mode of a file, as far as this process may set them.

        A missing right is no error.
        """
        ...

    def close(self) -> None:
        """Release the handle; closing twice is harmless."""
        ...

    def __enter__(self) -> "File": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class FileLock(Protocol):
    """A lock (`flock`), held until it is paused or released."""

    path: str
    shared: bool

    @property
    def file(self) -> File:
        """The open lock file: its holder may read and write it."""
        ...

    def is_mine(self) -> bool:
        """Return whether this process took the lock and still holds it.

        False in a child forked while the lock was held: it must not write.
        """
        ...

    def pause(self) -> None:
        """Give up the lock but keep the file open, for `resume`."""
        ...

    def resume(self) -> bool:
        """Take a paused lock again, without waiting; cheaper than a new one.

        Returns:
            False while another handle's lock conflicts, or if the path no longer names the file,
            noticed within a millisecond: then release this lock and take a new one.
        """
        ...

    def release(self) -> None:
        """Give up the lock and close the file; harmless if repeated.

        In a child forked while the lock was held this only closes the child's descriptor.
        """
        ...


class FileSystem(Protocol):
    """A file system. All methods raise `StorageError` or one of its leaves."""

    def open(self, path: str, mode: OpenMode) -> File:
        """Open a regular file; created with 0660 less the umask, see `streamlog.fs.access`."""
        ...

    def stat(self, path: str) -> FileStat | None:
        """Return facts about a name without following links, None if it does not exist."""
        ...

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        ...

    def resolve(self, path: str) -> str:
        """Return the absolute path with all symbolic links followed; it need not exist."""
        ...

    def make_directory(self, path: str) -> None:
        """Create one directory; harmless if it exists, an error if a file does.

        It is created with 0770 less the umask, see `streamlog.fs.access`.
        """
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename, atomically replacing a file `target`."""
        ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; `FileExistsAlreadyError` if `target` exists."""
        ...

    def remove(self, path: str) -> None:
        """Remove a name of a file; `FileMissingError` if it does not exist."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        """Set a file's last modification time."""
        ...

    def try_lock(self, path: str, *, shared: bool) -> FileLock | None:
        """Create `path` if needed and take its `flock`; None while another handle holds it."""
        ...

    def broker_lock_is_held(self, path: str) -> bool:
        """Return whether another process holds a POSIX lock on `path`, like a broker on `.lock`.

        Asks with F_GETLK, which takes no lock; False if the file does not exist.
        """
        ...

    def user_id(self) -> int:
        """Return the user that owns files created by this process; see `FileStat.owner`."""
        ...

    def boot_id(self) -> str:
        """Return an id that changes when the machine is rebooted."""
        ...
