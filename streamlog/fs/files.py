r"""Operations on small whole files: durable replacement, directories, locks.

A file that is replaced as a whole is written under a temporary name next to it that no other
writer uses (`streamlog.fs.names`), synced, renamed (or linked) into place, and the directory
synced: a crash at any point leaves the old content or the new one. Several writers of one path do
not harm each other: the last rename wins. The new file keeps owner, group and mode of the old one,
as far as the process may set them.

A lock file holds one line of text about its holder, written after taking the lock and valid only
while the lock is held:

    <pid> <milliseconds since 1970> <purpose>\n
"""

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from streamlog.clock import Clock
from streamlog.errors import (
    FileExistsAlreadyError,
    FileMissingError,
    LimitExceededError,
    LockTimeoutError,
    StorageError,
    StreamLogError,
)
from streamlog.fs.api import Buffer, File, FileKind, FileLock, FileStat, FileSystem, OpenMode
from streamlog.fs.names import is_temporary, temporary_path

__all__ = [
    "LockHolder",
    "NAME_IS_DURABLE",
    "LOCK_TIMEOUT_MS",
    "acquire_lock",
    "create_file_atomically",
    "locked",
    "make_directories",
    "make_name_durable",
    "open_temporary",
    "read_file",
    "read_lock_holder",
    "remove_tree",
    "remove_unused_directory",
    "stat_directory",
    "temporary_copy",
    "write_file_atomically",
    "write_lock_holder",
]

NAME_IS_DURABLE: Final = ".durable"  # in a directory whose own name is durable
_HOLDER: Final = re.compile(rb"([0-9]{1,10}) ([0-9]{1,19}) ([ -~]{0,200})\n")
_HOLDER_SIZE_MAX: Final = 10 + 1 + 19 + 1 + 200 + 1
_FIRST_WAIT_MS: Final = 0.2
_LONGEST_WAIT_MS: Final = 10.0
LOCK_TIMEOUT_MS: Final = 30_000  # of locks that are held for the change of one small file
_TEMPORARY_ATTEMPTS: Final = 1000  # names that dead processes of the same number may have left
_REPLACEMENT_ATTEMPTS: Final = 3  # of a writer suspended until its temporary file was collected


def read_file(fs: FileSystem, path: str, *, max_size: int) -> bytes:
    """Return the whole content of a small file.

    Args:
        fs: Its file system.
        path: The file.
        max_size: Upper bound of the size of a sound file, in bytes.

    Raises:
        FileMissingError: The file does not exist.
        LimitExceededError: It is larger than `max_size`; nothing was read.
    """
    with fs.open(path, OpenMode.READ) as file:
        size = file.stat().size
        if size > max_size:
            raise LimitExceededError(
                "file is larger than any sound one",
                path=path,
                got=f"{size} bytes",
                expected=f"at most {max_size}",
            )
        return file.pread(size, 0)


def write_file_atomically(fs: FileSystem, path: str, data: Buffer) -> None:
    """Replace or create a file as a whole; durable on return.

    Args:
        fs: Its file system.
        path: The file; its directory must exist.
        data: The new content.

    Raises:
        StorageError: It failed. The old content is unchanged, unless only the last step, syncing
            the directory, failed.

    Source: org.apache.kafka.server.common.CheckpointFile.write.
    """
    _put_in_place(fs, path, data, fs.rename, replaced=fs.stat(path))
    fs.sync_directory(_parent(path))


def create_file_atomically(fs: FileSystem, path: str, data: Buffer) -> None:
    """Create a file that must not exist yet, as a whole; durable on return.

    Args:
        fs: Its file system.
        path: The new file; its directory must exist.
        data: Its content.

    Raises:
        FileExistsAlreadyError: The name is taken; the existing file is unchanged.
        StorageError: It failed. If only the last step, syncing the directory, failed, the file may
            exist.
    """
    temporary = _put_in_place(fs, path, data, fs.link, replaced=None)
    _discard(fs, temporary)
    fs.sync_directory(_parent(path))


@contextlib.contextmanager
def temporary_copy(fs: FileSystem, path: str) -> Iterator[File]:
    """Create a temporary file that will replace `path`; synced at the end of the context.

    Removed on failure: half a copy would keep a full disk full.

    Args:
        fs: Its file system.
        path: The file to be copied; the copy has its owner, group and mode.

    Yields:
        The new file; the caller renames its `path`.
    """
    replaced = fs.stat(path)
    file = open_temporary(fs, path)
    try:
        with file:
            _adopt_access(file, replaced)
            yield file
            file.sync()
    except StreamLogError:
        with contextlib.suppress(StorageError):  # report the first failure
            fs.remove(file.path)
        raise


def stat_directory(fs: FileSystem, path: str) -> FileStat | None:
    """Return facts about a log root or a partition directory, following a symbolic link to it.

    Args:
        fs: Its file system.
        path: The directory, or a symbolic link to it.

    Returns:
        Facts about the directory itself, None if the name does not exist.

    Raises:
        StorageError: It cannot be examined, or a link leads nowhere: perhaps a disk is not mounted.
            This is not `FileMissingError`, which means that the directory was deleted.
    """
    found = fs.stat(path)
    if found is None or found.kind is not FileKind.SYMLINK:
        return found
    target = fs.resolve(path)
    followed = fs.stat(target)
    if followed is None or followed.kind is FileKind.SYMLINK:
        raise StorageError(
            "a symbolic link leads nowhere",
            path=path,
            got=f"a link to {target}",
            expected="a directory there",
            hint=f"mount the disk that {target} is on, or put the directory back there",
        )
    return followed


def make_directories(fs: FileSystem, path: str) -> None:
    """Create a directory and its missing parents; all names durable on return.

    Args:
        fs: Their file system.
        path: The directory; harmless if it exists.

    Raises:
        FileExistsAlreadyError: A file is in the way.
    """
    missing = []
    deepest = path
    while fs.stat(deepest) is None and _parent(deepest) != deepest:
        missing.append(deepest)
        deepest = _parent(deepest)
    if not missing:
        fs.make_directory(path)  # raises if this is a file
    # A process killed between creating `deepest` and syncing its name may have left it volatile.
    # The parent may be a foreign directory that can be entered but not opened: not ours then.
    with _suppressed(errno.EACCES):
        fs.sync_directory(_parent(deepest))
    for directory in reversed(missing):
        fs.make_directory(directory)
        fs.sync_directory(_parent(directory))


def make_name_durable(fs: FileSystem, directory: str, *, above: Iterable[str]) -> None:
    """Make a directory's own name durable, whichever process created it; no sync if it already is.

    A directory created by a process that died may exist without being durable, and a process that
    created one may have removed it since. So the directory itself records whether its name is
    durable: an empty file (`NAME_IS_DURABLE`) is created in it before the parent directories are
    synced, and disappears with the directory. The file need not be durable itself.

    Args:
        fs: Its file system.
        directory: The directory.
        above: The directories to sync, each once: its parent, and further ones that may be new.

    Raises:
        FileMissingError: The directory does not exist.
    """
    mark = f"{directory}/{NAME_IS_DURABLE}"
    if fs.stat(mark) is not None:
        return
    # Before the syncs, so that the rename marks this directory and no later one of the same name.
    temporary = open_temporary(fs, mark)
    temporary.close()
    for each in above:
        fs.sync_directory(each)
    with contextlib.suppress(FileMissingError):  # the directory was removed meanwhile
        fs.rename(temporary.path, mark)


def remove_unused_directory(fs: FileSystem, directory: str) -> bool:
    """Remove a directory that holds nothing but the file of `make_name_durable`.

    Args:
        fs: Its file system.
        directory: The directory.

    Returns:
        Whether it was removed; False if it holds something else.

    Raises:
        FileMissingError: The directory does not exist.
    """
    names = fs.list(directory)
    if any(name != NAME_IS_DURABLE and not is_temporary(name) for name in names):
        return False
    for name in names:
        _discard(fs, f"{directory}/{name}")
    try:
        fs.remove_directory(directory)
    except StorageError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False  # another process just created a file in it
    return True


def remove_tree(fs: FileSystem, path: str) -> None:
    """Remove a directory with everything below it; links are removed, not their targets.

    Nothing is synced: after a power cut some of it may be back, so sync the parent directory if
    that matters. Harmless if `path` does not exist; a file is removed as well.

    Args:
        fs: Its file system.
        path: The top of the tree.

    Raises:
        StorageError: Something could not be removed; the rest may be gone.
    """
    pending = [path]
    while pending:
        current = pending[-1]
        found = fs.stat(current)
        if found is None:
            pending.pop()
        elif found.kind is not FileKind.DIRECTORY:
            _discard(fs, current)
            pending.pop()
        elif names := fs.list(current):
            pending.extend(os.path.join(current, name) for name in names)
        else:
            pending.pop()
            with contextlib.suppress(FileMissingError):
                fs.remove_directory(current)


def acquire_lock(
    fs: FileSystem, clock: Clock, path: str, *, shared: bool, timeout_ms: float, what: str
) -> FileLock:
    """Take a lock, waiting a limited time for its holder.

    Args:
        fs: Its file system.
        clock: Measures the wait.
        path: The lock file; created if needed, its directory must exist.
        shared: Whether several shared holders are allowed.
        timeout_ms: How long to wait; 0 tries once.
        what: What the lock guards, for the error: `partition orders-3`.

    Returns:
        The held lock.

    Raises:
        LockTimeoutError: Another handle held it all the time; states process and age.
    """
    deadline = clock.monotonic_ms() + timeout_ms
    wait_ms = _FIRST_WAIT_MS
    while True:
        lock = fs.try_lock(path, shared=shared)
        if lock is not None:
            return lock
        left_ms = deadline - clock.monotonic_ms()
        if left_ms <= 0:
            raise _lock_timeout(fs, clock, path, timeout_ms=timeout_ms, what=what)
        clock.sleep_ms(min(wait_ms, left_ms))
        wait_ms = min(wait_ms * 2, _LONGEST_WAIT_MS)


@contextlib.contextmanager
def locked(fs: FileSystem, clock: Clock, path: str, *, what: str) -> Iterator[None]:
    """Hold a lock exclusively, waiting `LOCK_TIMEOUT_MS` for it; see `acquire_lock`.

    Raises:
        LockTimeoutError: Another handle held it all the time.
        StorageError: The lock file cannot be opened.
    """
    lock = acquire_lock(fs, clock, path, shared=False, timeout_ms=LOCK_TIMEOUT_MS, what=what)
    try:
        yield
    finally:
        lock.release()


class LockHolder(NamedTuple):
    """Text of a lock file about its holder."""

    pid: int
    since_ms: int
    what: str


def write_lock_holder(lock: FileLock, *, now_ms: int, what: str) -> None:
    """Write the holder into the lock's file, for waiting processes.

    Args:
        lock: An exclusive lock, held by this process.
        now_ms: The current time, in milliseconds since 1970.
        what: Its purpose, in printable ASCII: `append`.
    """
    line = b"%d %d %s\n" % (os.getpid(), now_ms, what.encode("ascii", "replace")[:200])
    # The rest of an older, longer line may follow: readers stop at the end of the first line.
    lock.file.pwrite(line, 0)


def read_lock_holder(fs: FileSystem, path: str) -> LockHolder | None:
    """Return the holder stated in a lock file, None if the text is invalid."""
    try:
        with fs.open(path, OpenMode.READ) as file:
            match = _HOLDER.match(file.pread(_HOLDER_SIZE_MAX, 0))
    except StorageError:  # only for a message: the lock itself does not depend on it
        return None
    if match is None:
        return None
    return LockHolder(int(match[1]), int(match[2]), match[3].decode("ascii"))


def _lock_timeout(
    fs: FileSystem, clock: Clock, path: str, *, timeout_ms: float, what: str
) -> LockTimeoutError:
    holder = read_lock_holder(fs, path)
    if holder is None:
        got, hint = "held by another process", f"see who holds it: lslocks | grep {path}"
    elif holder.pid == os.getpid():
        got = f"held by this process ({holder.what})"
        hint = "close the other handle of this process first"
    else:
        age_s = max(0, clock.now_ms() - holder.since_ms) / 1000.0
        got = f"held by process {holder.pid} ({holder.what}) for {age_s:.1f} s"
        hint = f"wait for it, or check what it is doing: ps -fp {holder.pid}"
    return LockTimeoutError(
        f"{what} is locked", path=path, got=got, expected=f"free in {timeout_ms:g} ms", hint=hint
    )


def _put_in_place(
    fs: FileSystem,
    path: str,
    data: Buffer,
    put: Callable[[str, str], None],
    *,
    replaced: FileStat | None,
) -> str:
    """Write a temporary file and rename or link it to `path`; return the temporary path."""
    for attempt in range(1, _REPLACEMENT_ATTEMPTS + 1):
        temporary = _write_temporary(fs, path, data, replaced)
        try:
            put(temporary, path)
        except StorageError as error:
            _discard(fs, temporary)
            if isinstance(error, FileMissingError) and attempt < _REPLACEMENT_ATTEMPTS:
                continue  # suspended for so long that the file was collected as a leftover
            raise
        return temporary
    raise AssertionError("unreachable")


def _write_temporary(fs: FileSystem, path: str, data: Buffer, replaced: FileStat | None) -> str:
    file = open_temporary(fs, path)
    try:
        with file:
            _adopt_access(file, replaced)
            file.pwrite(data, 0)
            file.sync()
    except StorageError:
        _discard(fs, file.path)
        raise
    return file.path


def open_temporary(fs: FileSystem, path: str) -> File:
    """Create a file with a unique name, to take the place of `path` later.

    Args:
        fs: Its file system.
        path: The final path, or the start of it; the directory must exist.

    Raises:
        StorageError: It cannot be created.
    """
    for _ in range(_TEMPORARY_ATTEMPTS - 1):
        # A taken name is left alone: it may be a second name of a finished file.
        with contextlib.suppress(FileExistsAlreadyError):
            return fs.open(temporary_path(path), OpenMode.CREATE)
    return fs.open(temporary_path(path), OpenMode.CREATE)


def _adopt_access(file: File, replaced: FileStat | None) -> None:
    """Keep owner, group and mode of the file that will be replaced."""
    if replaced is not None and replaced.kind is FileKind.FILE:
        file.adopt_access(replaced)


def _discard(fs: FileSystem, path: str) -> None:
    with contextlib.suppress(FileMissingError):
        fs.remove(path)


@contextlib.contextmanager
def _suppressed(number: int) -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        if error.errno != number:
            raise


def _parent(path: str) -> str:
    return os.path.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")
