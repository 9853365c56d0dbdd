"""The lock under which an app's past is read and changed: one committer of an app at a time.

Each app has a lock file of its own, `.streamlog/locks/apps/<app>`, so that no app waits for another
one. It is there only while it is held: the holder removes it before letting go, and a process that
locked a file without a name takes the lock again under the name. So neither apps that commit once
nor millions of them leave files behind; what a crash leaves goes at the next commit or `clean`.

The directory keeps apps and partitions apart, whatever their names are: all files of
`.streamlog/locks` itself are called `<topic>-<partition>`, that with `.maintenance` behind it, or
one of a few words without a number at their end.
"""

import contextlib
from collections.abc import Iterator

from streamlog.clock import Clock
from streamlog.commits.identity import app_key
from streamlog.errors import FileMissingError, StorageError
from streamlog.fs.api import FileLock, FileSystem
from streamlog.fs.files import write_lock_holder
from streamlog.partition.locks import locks_directory
from streamlog.partition.waiting import wait_for_lock

__all__ = ["app_lock_path", "locked_app", "remove_unused_app_locks"]


def app_lock_path(root: str, app: str) -> str:
    """Return the path of an app's lock file."""
    return f"{_directory(root)}/{app_key(app)}"


@contextlib.contextmanager
def locked_app(
    fs: FileSystem, clock: Clock, root: str, app: str, *, timeout_ms: float
) -> Iterator[None]:
    """Hold an app's lock; taken before those of partitions, and never two at once.

    Args:
        fs: Where the root is.
        clock: Measures the wait.
        root: The log root.
        app: The app.
        timeout_ms: How long to wait for another committer.

    Raises:
        LockTimeoutError: Another process kept it.
        StorageError: The lock file cannot be opened.
    """
    lock = _taken(fs, clock, root, app, timeout_ms)
    try:
        write_lock_holder(lock, now_ms=clock.now_ms(), what="commit")
        yield
    finally:
        _give_up(fs, lock)


def remove_unused_app_locks(fs: FileSystem, root: str) -> int:
    """Remove the lock files that crashes left; return how many.

    Raises:
        StorageError: The disk refuses.
    """
    try:
        names = fs.list(_directory(root))
    except FileMissingError:
        return 0
    removed = 0
    for name in names:
        lock = fs.try_lock(f"{_directory(root)}/{name}", shared=False)
        if lock is not None:
            _give_up(fs, lock)
            removed += 1
    return removed


def _taken(fs: FileSystem, clock: Clock, root: str, app: str, timeout_ms: float) -> FileLock:
    path, what = app_lock_path(root, app), f"the commits of {app}"
    try:
        return wait_for_lock(fs, clock, path, timeout_ms=timeout_ms, what=what)
    except FileMissingError:  # the first commit to this root
        fs.make_directory(_directory(root))
    return wait_for_lock(fs, clock, path, timeout_ms=timeout_ms, what=what)


def _give_up(fs: FileSystem, lock: FileLock) -> None:
    try:
        if lock.is_mine():  # and not a copy that a fork made
            with contextlib.suppress(StorageError):  # then it stays for the next holder
                fs.remove(lock.path)
    finally:
        lock.release()


def _directory(root: str) -> str:
    return f"{locks_directory(root)}/apps"
