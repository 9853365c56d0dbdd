"""How a leader's process runs its copies to the followers, and what it does once it is idle."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol

from streamlog.errors import StreamLogError
from streamlog.replication.follower_log import FollowerLog

__all__ = ["IDLE_MS", "Copies", "InThreads", "OneByOne", "Reached"]

IDLE_MS: Final = 500  # a parked fetch of a follower is answered after it: replica.fetch.wait.max.ms

_logger = logging.getLogger(__name__)


class Reached(NamedTuple):
    """How far a follower came: its log end, or why it failed."""

    follower: FollowerLog
    end_offset: int
    error: StreamLogError | None


Copy = Callable[[], Reached]


class Copies(Protocol):
    """Runs the copies to the followers while the leader syncs."""

    def run(self, copies: Sequence[Copy], sync: Callable[[], None]) -> list[Reached]:
        """Return the results in order, once all copies and the sync have ended.

        Raises: As `sync`, after the copies have ended.
        """
        ...

    def when_idle(self, action: Callable[[], bool]) -> None:
        """Call `action` after a while, and again until it returns True; once for many calls."""
        ...


class OneByOne:
    """The sync, then copy after copy, in this thread: the same run each time."""

    def run(self, copies: Sequence[Copy], sync: Callable[[], None]) -> list[Reached]:
        """Return the results of the copies."""
        sync()
        return [copy() for copy in copies]

    def when_idle(self, action: Callable[[], bool]) -> None:
        """Do nothing: there is no other thread."""


class InThreads:
    """Each copy in a thread; one pool serves all partitions of a process."""

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._pool: ThreadPoolExecutor | None = None
        self._when_idle: set[Callable[[], bool]] = set()
        self._timer: threading.Timer | None = None
        self._is_closed = False

    def run(self, copies: Sequence[Copy], sync: Callable[[], None]) -> list[Reached]:
        """Return the results of the copies."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._most, thread_name_prefix="replica")
        started = [self._pool.submit(copy) for copy in copies]
        try:
            sync()
        finally:
            reached = [each.result() for each in started]
        return reached

    def when_idle(self, action: Callable[[], bool]) -> None:
        """Call `action` in the thread of a timer."""
        self._when_idle.add(action)
        if self._timer is None and not self._is_closed:
            self._timer = timer = threading.Timer(IDLE_MS / 1000, self._do_idle)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError as error:  # the append itself succeeded
                self._timer = None
                _logger.warning("cannot start a thread to share high watermarks: %s", error)

    def _do_idle(self) -> None:
        self._timer = None
        busy = []
        while self._when_idle:  # other threads add to it meanwhile
            action = self._when_idle.pop()
            if not action():
                busy.append(action)
        for action in busy:
            self.when_idle(action)

    def close(self) -> None:
        """End the threads."""
        self._is_closed = True
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
