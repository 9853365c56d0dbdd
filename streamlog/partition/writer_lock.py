"""The partition's lock as one handle holds it: nested, thread-safe, and never after a fork.

Around the lock file of `streamlog.partition.locks`: who takes it learns whether the shared state is
the one this handle left; who changes the log marks it dirty first; who lets go leaves it clean.

Ctrl-C, like any signal whose handler raises, may strike within `take` and `let_go` as well, and
before the first line of an `__exit__`, which then never lets go. No `with` statement can rule that
out for itself, but a second one around it sees the first one end: `Guard` puts right whatever the
inner one has left.
"""

import contextlib
import os
import random as random_module
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final

from streamlog.clock import Clock
from streamlog.errors import InvalidRequestError
from streamlog.fs.api import FileLock, FileSystem
from streamlog.fs.open_files import open_files
from streamlog.partition import locks
from streamlog.partition.lock_states import AFTER, LockEvent, StateFlag, must_look
from streamlog.partition.locks import SharedState
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.waiting import Patience
from streamlog.topic import TopicPartition

__all__ = ["Guard", "WriterLock"]

_AFTER_CHANGE_BEGINS: Final = AFTER[LockEvent.CHANGE_BEGINS]


class WriterLock:
    """One handle's hold on a partition's lock.

    Args:
        fs: Where the root is.
        clock: For waiting, and for the line that names the holder.
        random: Numbers the generations, so that no two handles count alike.
        root: The log root.
        partition: The partition.
        patience: How long to wait for other processes.

    Attributes:
        flags: Those in the lock file; none where this handle does not know them.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        random: random_module.Random,
        *,
        root: str,
        partition: TopicPartition,
        patience: Patience,
    ) -> None:
        self._fs, self._clock, self._random = fs, clock, random
        self._root, self._partition, self._patience = root, partition, patience
        self._threads = threading.RLock()
        self._pid = os.getpid()
        self._boot_id = fs.boot_id()
        self._lock: FileLock | None = None
        self._paused: FileLock | None = None
        self._depth = 0
        self.was_used = self.is_listed = False
        self._owner: int | None = None  # the thread that holds it
        self._left: bytes | None = None  # the state this handle left last, None for no such
        self._generation = 0
        self.flags = StateFlag.NONE

    @property
    def is_held(self) -> bool:
        """Whether this handle holds the lock now."""
        return self._lock is not None

    @property
    def is_mine(self) -> bool:
        """Whether this is still the process that opened the handle."""
        return os.getpid() == self._pid

    @property
    def depth(self) -> int:
        """How often this thread has taken it and not let go of it."""
        return self._depth if self._owner == threading.get_ident() else 0

    def take(self, look_around: Callable[[SharedState | None], None]) -> None:
        """Take the lock; whoever holds it may take it again, and lets go of it as often.

        Args:
            look_around: Called once the lock is taken, with what the last holder left, unless
                that was this handle; it must end with `leave`.

        Raises:
            InvalidRequestError: A forked child uses its parent's handle.
            LockTimeoutError: Another process kept the lock.
        """
        if os.getpid() != self._pid:
            raise InvalidRequestError(
                "this handle belongs to the process that opened it",
                path=f"{self._root}/{self._partition}",
                got=f"process {os.getpid()}",
                expected=f"process {self._pid}",
                hint="open the partition again in the forked process",
            )
        self._threads.acquire()
        self._owner = threading.get_ident()
        self._depth += 1
        if self._depth == 1:
            try:
                lock = self._acquired()
                data = locks.read_state(lock)
                if data != self._left or must_look(self.flags):
                    self.distrust()
                    state = locks.decode_state(data)
                    self.flags = StateFlag.NONE if state is None else state.flags
                    look_around(state)
            except BaseException:
                self.distrust()
                self.let_go()
                raise

    def let_go(self) -> None:
        """Undo one `take`; the last one leaves the lock to others."""
        self._depth -= 1
        lock = self._lock
        try:
            if self._depth == 0:
                self._owner = None
                if lock is not None:
                    self._paused, self._lock = lock, None  # first: `settle` must find it
                    lock.pause()
        finally:
            self._threads.release()

    def settle(self, depth: int) -> None:
        """Let go of what this thread holds beyond `depth`, wherever an interrupt has left that.

        Args:
            depth: What `depth` was before the lock was taken.
        """
        while depth and self.depth > depth:
            self.let_go()
        if depth or not self._threads.acquire(blocking=False):
            return  # where another thread is at it, nothing of this one's is left
        if self._depth:
            self.distrust()
        for lock in (self._lock, self._paused):
            if lock is not None:
                lock.release()  # a paused one as well: it may have been resumed by half
        self._lock = self._paused = None
        self._depth, self._owner = 0, None
        with contextlib.suppress(RuntimeError):  # raised once this thread has it no more
            while True:
                self._threads.release()

    def _acquired(self) -> FileLock:
        """Return the lock: the paused one if nobody else is about, else a new one."""
        paused = self._paused
        if paused is not None:
            if paused.resume():
                self._lock, self._paused = paused, None
                self.was_used = True
                return paused
            self._paused = None
            paused.release()
        timeout_ms = self._patience.timeout_ms
        self._lock = lock = locks.take_partition_lock(
            self._fs, self._clock, self._root, self._partition, timeout_ms=timeout_ms
        )
        open_files.keep(self)
        return lock

    def release_file(self) -> bool:
        """Close the lock file that is kept for the next time, from any thread; False while held."""
        if not self._threads.acquire(blocking=False):
            return False
        try:
            if self._depth:
                return False
            self.close()
            return True
        finally:
            self._threads.release()

    def close(self) -> None:
        """Close the lock file; the lock may still be taken again."""
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.release()

    def distrust(self) -> None:
        """Forget what this handle knew: the next holder, this one too, looks around."""
        self._left, self.flags = None, StateFlag.NONE

    def mark_dirty(self) -> bool:
        """Say that the log is about to be changed; must be followed by `leave` or `distrust`.

        Returns:
            False where the state is not the one that this handle left: then leave a dirty one.

        Raises:
            InvalidRequestError: The lock is not held.
        """
        if self._lock is None:
            raise self._not_writing()
        if self._left is None:
            return False
        flags = _AFTER_CHANGE_BEGINS[self.flags]
        locks.write_holder_and_flags(self._lock, flags, pid=self._pid, now_ms=self._clock.now_ms())
        self.flags = flags
        return True

    def mark_distrusted(self) -> None:
        """Say that records are about to be synced; must be followed as `mark_dirty`.

        Raises:
            InvalidRequestError: The lock is not held.
        """
        if self._lock is None:
            raise self._not_writing()
        flags = AFTER[LockEvent.SYNC_BEGINS][self.flags]
        locks.write_flags(self._lock, flags)
        self.flags = flags

    def leave(
        self,
        offsets: LogOffsets,
        *,
        active_base_offset: int,
        active_size: int,
        last_flush_ms: int,
        flags: int,
    ) -> None:
        """Leave a state for the next holder, as a new generation of this boot.

        Raises:
            InvalidRequestError: The lock is not held.
        """
        if self._lock is None:
            raise self._not_writing()
        known = self._left is not None
        self._generation = self._generation + 1 if known else self._random.getrandbits(62)
        state = SharedState(
            self._boot_id,
            self._generation,
            offsets,
            active_base_offset,
            active_size,
            last_flush_ms,
            flags,
        )
        self._left, self.flags = locks.encode_state(state), flags
        locks.write_state(self._lock, self._left)

    def _not_writing(self) -> InvalidRequestError:
        return InvalidRequestError(
            f"partition {self._partition} is not being written", expected="`writing()`"
        )


class Guard:
    """Stands around a `with` block that takes a partition's lock, and has nothing stay held.

    Args:
        lock: The lock; what is held of it now stays.
    """

    __slots__ = ("_depth", "_lock")

    def __init__(self, lock: WriterLock) -> None:
        self._lock = lock
        self._depth = lock.depth

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None or self._lock.depth != self._depth:
            self._lock.settle(self._depth)
