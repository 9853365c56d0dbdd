"""How a leader's process runs its copies to the followers, and what it does once it is idle."""

import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
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


class _Call:
    """A call that a thread makes, and its outcome.

    Cheaper than a `Future`: an append waits for two of them, and nothing else needs one.
    """

    __slots__ = ("_action", "_ended", "_error", "_value")

    def __init__(self, action: Copy) -> None:
        self._action = action
        self._ended = threading.Lock()
        self._ended.acquire()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._value = self._action()
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._error = error
        finally:
            self._ended.release()

    def wait(self) -> None:
        self._ended.acquire()

    def result(self) -> Reached:
        if self._error is not None:
            raise self._error
        return self._value


class InThreads:
    """Each copy in a thread; the threads serve all partitions of a process.

    Args:
        most: The largest number of threads.
    """

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._counting = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._when_idle: set[Callable[[], bool]] = set()
        self._timer: threading.Timer | None = None
        self._is_closed = False

    def run(self, copies: Sequence[Copy], sync: Callable[[], None]) -> list[Reached]:
        """Return the results of the copies."""
        calls = [_Call(copy) for copy in copies]
        if not self._start(calls):
            return OneByOne().run(copies, sync)
        try:
            sync()
        finally:
            for call in calls:
                call.wait()
            with self._counting:
                self._running -= len(calls)
        return [call.result() for call in calls]

    def _start(self, calls: Sequence[_Call]) -> bool:
        """Hand calls to threads, new ones if necessary; False if there is no thread at all."""
        with self._counting:
            while len(self._threads) < min(self._most, self._running + len(calls)):
                thread = threading.Thread(
                    target=_serve, args=(self._calls,), name="replica", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:  # the append itself can go on
                    _logger.warning("cannot start a thread to copy to replicas: %s", error)
                    break
                self._threads.append(thread)
            if not self._threads:
                return False
            self._running += len(calls)
            for call in calls:
                self._calls.put(call)
            return True

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
        with self._counting:
            threads, self._threads = self._threads, []
            for _ in threads:
                self._calls.put(None)
        for thread in threads:
            thread.join()


def _serve(calls: "SimpleQueue[_Call | None]") -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call  # and with it the log and the batches that it refers to
