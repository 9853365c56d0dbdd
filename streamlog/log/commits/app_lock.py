"""The lock under which an app's past is read and changed: one committer of an app at a time.

A fixed number of lock files, `.streamlog/locks/commit-00` to `commit-3f`, serves all apps, so
that apps that commit once leave none behind. Two apps may share one: they wait for each other.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Final

from streamlog.clock import Clock
from streamlog.fs.api import FileSystem
from streamlog.fs.files import acquire_lock, write_lock_holder
from streamlog.log.locks import locks_directory

__all__ = ["app_lock_path", "locked_app"]

LOCK_COUNT: Final = 64


def app_lock_path(root: str, app: str) -> str:
    """Return the path of an app's lock file."""
    slot = hashlib.sha256(app.encode()).digest()[0] % LOCK_COUNT
    return f"{locks_directory(root)}/commit-{slot:02x}"


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
    lock = acquire_lock(
        fs,
        clock,
        app_lock_path(root, app),
        shared=False,
        timeout_ms=timeout_ms,
        what=f"the commits of {app}",
    )
    try:
        write_lock_holder(lock, now_ms=clock.now_ms(), what="commit")
        yield
    finally:
        lock.release()
