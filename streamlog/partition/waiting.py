"""Waiting for a lock that another process holds: how long, and with a line now and then."""

import logging
from dataclasses import dataclass
from typing import Final

from streamlog.clock import Clock
from streamlog.errors import LockTimeoutError
from streamlog.fs.api import FileLock, FileSystem
from streamlog.fs.files import acquire_lock

__all__ = ["DEFAULT_LOCK_TIMEOUT_MS", "Patience", "wait_for_lock"]

DEFAULT_LOCK_TIMEOUT_MS: Final = 30_000.0
PROGRESS_MS: Final = 10_000.0  # how often a line names the holder

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Patience:
    """How long to wait for locks; shared by the handles of a root, and may change.

    Attributes:
        timeout_ms: `lock.timeout.ms`, in milliseconds; 0 tries once.
    """

    timeout_ms: float = DEFAULT_LOCK_TIMEOUT_MS

    @classmethod
    def of(cls, timeout_ms: "float | Patience | None", *, default_ms: float) -> "Patience":
        """Return the patience that is shared, or one of so many milliseconds."""
        if isinstance(timeout_ms, Patience):
            return timeout_ms
        return cls(default_ms if timeout_ms is None else timeout_ms)


def wait_for_lock(
    fs: FileSystem, clock: Clock, path: str, *, timeout_ms: float, what: str
) -> FileLock:
    """Take an exclusive lock, waiting for its holder; every 10 seconds a line names that one.

    Args:
        fs: Where the lock file is.
        clock: Measures the wait.
        path: The lock file; made if need be, its directory must exist.
        timeout_ms: How long to wait; 0 tries once.
        what: What the lock guards: `partition orders-3`.

    Raises:
        LockTimeoutError: It was held all the time; names process and age.
        StorageError: The lock file cannot be opened or locked.
    """
    deadline = clock.monotonic_ms() + timeout_ms
    while True:
        left_ms = max(0.0, deadline - clock.monotonic_ms())
        try:
            return acquire_lock(
                fs, clock, path, shared=False, timeout_ms=min(left_ms, PROGRESS_MS), what=what
            )
        except LockTimeoutError as error:
            if left_ms <= PROGRESS_MS:
                error.expected = f"free in {timeout_ms:g} ms (lock.timeout.ms)"
                raise
            _logger.warning(
                "waiting for %s (%s), for another %.0f s at most",
                what,
                error.got,
                (left_ms - PROGRESS_MS) / 1000,
            )
