"""The lock of the replica fetcher: the process of `streamlog replicate --follow`.

It holds `.streamlog/locks/replica-fetcher` in each root that is online. While it holds that of the
leader's root, writers leave the copies of appends with acks=0 and acks=1 to it (`Replicas`). The
kernel releases the lock with the death of the process, so writers copy by themselves again. A
process that lives but commits nothing is detected by time (`FetcherWatch`).
"""

import logging
from collections.abc import Callable, Collection
from typing import Final

from streamlog.clock import Clock
from streamlog.errors import StorageError
from streamlog.fs.api import FileLock
from streamlog.fs.files import write_lock_holder
from streamlog.fs.log_root import LogRoot

__all__ = ["FETCHER_PATIENCE_MS", "FetcherLocks", "FetcherWatch", "has_replica_fetcher"]

FETCHER_PATIENCE_MS: Final = 2_000
LOOK_MS: Final = 100  # how long one look at the lock counts; a look takes three system calls

_logger = logging.getLogger(__name__)


def has_replica_fetcher(root: LogRoot) -> bool:
    """Return whether a live process copies what the partitions led by a root append."""
    path = root.replica_fetcher_lock
    try:
        if root.fs.stat(path) is None:
            return False
        lock = root.fs.try_lock(path, shared=True)
    except StorageError:
        return False
    if lock is None:
        return True
    lock.release()
    return False


class FetcherLocks:
    """The locks of one replica fetcher, one for each root."""

    def __init__(self) -> None:
        self._held: dict[str, FileLock] = {}

    def hold(self, roots: Collection[LogRoot]) -> None:
        """Hold the locks of these roots and no others; one that another fetcher holds is left out.

        Call it again from time to time: a root may return as another directory.
        """
        wanted = {root.path: root for root in roots}
        for path in [*self._held]:
            if path not in wanted or not _is_named(wanted[path], self._held[path]):
                self._held.pop(path).release()
        for path, root in wanted.items():
            if path not in self._held:
                try:
                    lock = root.fs.try_lock(root.replica_fetcher_lock, shared=False)
                    if lock is not None:
                        self._held[path] = lock
                        write_lock_holder(lock, now_ms=root.clock.now_ms(), what="replicate")
                except StorageError as error:
                    _logger.warning("writers to %s copy by themselves: %s", path, error)

    def release(self) -> None:
        """Release all locks."""
        while self._held:
            self._held.popitem()[1].release()


class FetcherWatch:
    """A writer's view of the replica fetcher: does it live, and does it commit records?

    Args:
        is_alive: Looks whether it lives.
        clock: Measures how long the high watermark has not moved.
    """

    def __init__(self, is_alive: Callable[[], bool], clock: Clock) -> None:
        self._look, self._clock = is_alive, clock
        self._is_alive = False
        self._look_at_ms = 0.0
        self._left_end = self._seen = -1
        self._moved_at_ms = 0.0

    def left(self, end_offset: int) -> None:
        """Record that the copies of all records below an offset are left to it; -1: of none."""
        self._left_end = end_offset

    def copies(self, high_watermark: int, *, looks_again: bool = False) -> bool:
        """Return whether copies may be left to the fetcher.

        Args:
            high_watermark: The present one.
            looks_again: Look at the lock even if the last look still counts.
        """
        now_ms = self._clock.monotonic_ms()
        if high_watermark >= self._left_end or high_watermark > self._seen:
            self._moved_at_ms = now_ms
        self._seen = high_watermark
        if looks_again or now_ms >= self._look_at_ms:
            self._is_alive = self._look()
            self._look_at_ms = now_ms + LOOK_MS
        return self._is_alive and now_ms - self._moved_at_ms <= FETCHER_PATIENCE_MS

    def is_behind(self, high_watermark: int) -> bool:
        """Return whether records that were left to the fetcher are not committed yet."""
        return high_watermark < self._left_end


def _is_named(root: LogRoot, lock: FileLock) -> bool:
    """Whether the root still has the file that is locked, not another one of this name."""
    mine = lock.file.stat()
    try:
        now = root.fs.stat(root.replica_fetcher_lock)
    except StorageError:
        return False
    return now is not None and (now.device, now.inode) == (mine.device, mine.inode)
