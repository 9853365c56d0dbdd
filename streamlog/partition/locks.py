"""The lock of one partition: the lock file, the state in it, and a handle's hold on it.

An appender holds `<root>/.streamlog/locks/<topic>-<partition>` (`flock`). The first 256 bytes of
the file are one line about the holder (`streamlog.fs.files.LockHolder`), shown to waiting
processes. After it stands the *shared state*, 112 bytes, big-endian:

    | off | size | field          |                                                            |
    |-----|------|----------------|------------------------------------------------------------|
    |   0 |    4 | flags          | 1 dirty, 2 pending, 4 distrusted, 8 epoch due              |
    |   4 |    4 | mark           | `SLS2`; `SLS3` with a high watermark below the log end     |
    |   8 |    4 | crc            | CRC-32C over the bytes from 12 on; of `SLS2` up to 104     |
    |  12 |   36 | boot id        | of the machine that wrote it                               |
    |  48 |    8 | generation     | incremented with every change                              |
    |  56 |    8 | log start      | log start offset                                           |
    |  64 |    8 | log end        | log end offset                                             |
    |  72 |    8 | active base    | base offset of the active segment                          |
    |  80 |    8 | active size    | its bytes of whole batches                                 |
    |  88 |    8 | recovery point | records below it are synced                                |
    |  96 |    8 | last flush     | in milliseconds since 1970                                 |
    | 104 |    8 | high watermark | records below it are committed                             |

With `SLS2` the high watermark is the log end, as always with one replica. So versions without
replicas read that state, and leave it; they take `SLS3` for an unknown one.

The state is ignored after a reboot (the boot id differs): it only saves the next writer of the same
boot a scan. So it is not synced, except for the high watermark of one of several replicas, which
`high_watermark` compares with the checkpoint. `lock_states` says what the flags mean and how they
change. They stand first and outside the checksum, so that one small write both names the process
that begins to change the log and marks the log dirty.

`WriterLock` is one handle's hold: nested, thread-safe, and refused after a fork. Taking it tells
whether the state is the one that this handle left. Ctrl-C, like any signal whose handler raises,
may strike within `take` and `let_go` too, and before the first line of an `__exit__`, which then
never releases. No `with` statement can rule that out for itself, but an outer one sees the inner
one end: `Guard` restores whatever the inner one left.

Maintenance of a partition has a lock of its own, `<topic>-<partition>.maintenance` (for a long
topic name, its front and a hash), held from the first byte that is read to the last rename. Writers
do not wait for it. It is taken before the partition's own lock, never after; a holder of the
latter may only try it, without waiting.
"""

import contextlib
import logging
import os
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple

from streamlog.binary.crc import crc32c
from streamlog.clock import Clock
from streamlog.errors import InvalidRequestError, LockTimeoutError, StorageError
from streamlog.fs.api import FileLock, FileSystem, OpenMode
from streamlog.fs.files import acquire_lock, write_lock_holder
from streamlog.fs.log_root import LogRoot
from streamlog.fs.open_files import open_files
from streamlog.partition.lock_states import AFTER, KNOWN_FLAGS, MUST_LOOK, LockEvent, StateFlag
from streamlog.partition.log_offsets import LogOffsets
from streamlog.topic import TopicPartition

__all__ = [
    "DEFAULT_LOCK_TIMEOUT_MS",
    "Guard",
    "Patience",
    "SharedState",
    "WriterLock",
    "decode_state",
    "encode_state",
    "is_being_maintained",
    "look_at_state",
    "read_state",
    "take_partition_lock",
    "try_maintenance_lock",
    "wait_for_lock",
    "write_flags",
    "write_holder_and_flags",
    "write_state",
]

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
        """Return a shared patience as it is, or a new one of `timeout_ms`."""
        if isinstance(timeout_ms, Patience):
            return timeout_ms
        return cls(default_ms if timeout_ms is None else timeout_ms)


def wait_for_lock(
    fs: FileSystem, clock: Clock, path: str, *, timeout_ms: float, what: str
) -> FileLock:
    """Take an exclusive lock, waiting for its holder, whom a log line names every 10 seconds.

    Args:
        fs: Where the lock file is.
        clock: Measures the wait.
        path: The lock file; created if missing, but not its directory.
        timeout_ms: How long to wait; 0 tries once.
        what: What the lock guards: `partition orders-3`.

    Raises:
        LockTimeoutError: It stayed held; names process and age.
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


_STATE_OFFSET: Final = 256
_MARK: Final = b"SLS2"
_REPLICA_MARK: Final = b"SLS3"
_FLAGS: Final = struct.Struct(">I")
_PREFIX: Final = struct.Struct(">I4sI")
_BODY: Final = struct.Struct(">36sqqqqqqqq")
_STATE_SIZE: Final = _PREFIX.size + _BODY.size
_HIGH_WATERMARK: Final = _BODY.size - 8  # where it begins in the body
assert _STATE_SIZE == 112


class SharedState(NamedTuple):
    """The log as the last holder of the lock left it."""

    boot_id: str
    generation: int
    offsets: LogOffsets
    active_base_offset: int
    active_size: int
    last_flush_ms: int
    flags: int


def take_partition_lock(
    root: LogRoot, partition: TopicPartition | str, *, timeout_ms: float
) -> FileLock:
    """Take the exclusive lock of a partition, waiting at most `timeout_ms`.

    Raises:
        LockTimeoutError: It stayed held; names holder and age.
    """
    path, what = root.partition_lock(partition), f"partition {partition}"
    return wait_for_lock(root.fs, root.clock, path, timeout_ms=timeout_ms, what=what)


def read_state(lock: FileLock) -> bytes:
    """Return the bytes that the last holder left; see `decode_state`."""
    return lock.file.pread(_STATE_SIZE, _STATE_OFFSET)


def decode_state(data: bytes) -> SharedState | None:
    """Return the state in `data`, None if it is incomplete or fails its checksum."""
    if len(data) < _PREFIX.size + _HIGH_WATERMARK:
        return None
    flags, mark, crc = _PREFIX.unpack_from(data)
    body = data[_PREFIX.size :].ljust(_BODY.size, b"\0")  # earlier versions wrote eight bytes less
    is_committed = mark == _MARK
    if not is_committed and mark != _REPLICA_MARK:
        return None
    if crc != crc32c(body[:_HIGH_WATERMARK] if is_committed else body):
        return None
    boot_id, generation, start, end, base, size, recovery_point, last_flush_ms, high_watermark = (
        _BODY.unpack(body)
    )
    return SharedState(
        boot_id.decode("latin-1").rstrip("\0"),
        generation,
        LogOffsets(start, end if is_committed else high_watermark, end, recovery_point),
        base,
        size,
        last_flush_ms,
        flags & KNOWN_FLAGS,
    )


def look_at_state(root: LogRoot, partition: TopicPartition) -> SharedState | None:
    """Return the state without taking the lock; None if it cannot be read, or is being written."""
    try:
        with root.fs.open(root.partition_lock(partition), OpenMode.READ) as file:
            return decode_state(file.pread(_STATE_SIZE, _STATE_OFFSET))
    except StorageError:  # missing, or of another user
        return None


def encode_state(state: SharedState) -> bytes:
    """Return the bytes of `state` for the lock file."""
    boot_id, generation, offsets, base, size, last_flush_ms, _ = state
    start, high_watermark, end, recovery_point = offsets
    body = _BODY.pack(
        boot_id.encode("latin-1")[:36],
        generation,
        start,
        end,
        base,
        size,
        recovery_point,
        last_flush_ms,
        high_watermark,
    )
    if high_watermark == end:
        return _PREFIX.pack(state.flags, _MARK, crc32c(body[:_HIGH_WATERMARK])) + body
    return _PREFIX.pack(state.flags, _REPLICA_MARK, crc32c(body)) + body


def write_state(lock: FileLock, state: bytes) -> None:
    """Write an encoded state for the next holder; one small write, not synced."""
    lock.file.pwrite(state, _STATE_OFFSET)


def write_holder_and_flags(lock: FileLock, flags: int, *, pid: int, now_ms: int) -> None:
    """Write flags and the line about the holder in one small write; keep the rest of the state.

    Args:
        lock: The lock, held by this process.
        flags: The new flags.
        pid: This process.
        now_ms: The time.
    """
    line = b"%d %d append\n" % (pid, now_ms)
    lock.file.pwrite(line.ljust(_STATE_OFFSET) + _FLAGS.pack(flags), 0)


def write_flags(lock: FileLock, flags: int) -> None:
    """Write flags; keep the rest of the state."""
    lock.file.pwrite(_FLAGS.pack(flags), _STATE_OFFSET)


_AFTER_CHANGE_BEGINS: Final = AFTER[LockEvent.CHANGE_BEGINS]
_AFTER_SYNC_BEGINS: Final = AFTER[LockEvent.SYNC_BEGINS]


class WriterLock:
    """One handle's hold on a partition's lock.

    Args:
        root: The log root.
        partition: The partition.
        patience: How long to wait for other processes.

    Attributes:
        flags: Those in the lock file; none if this handle does not know them.
    """

    def __init__(
        self,
        root: LogRoot,
        partition: TopicPartition,
        *,
        patience: Patience,
    ) -> None:
        self._root, self._partition, self._patience = root, partition, patience
        self._threads = threading.RLock()
        self._pid = os.getpid()
        self._boot_id = root.fs.boot_id()
        self._lock: FileLock | None = None
        self._paused: FileLock | None = None
        self._depth = 0
        self.was_used = self.is_listed = False
        self._owner: int | None = None  # the thread that holds it
        self._left: bytes | None = None  # the state that this handle left last, None if unknown
        self._generation = 0
        self.flags = StateFlag.NONE

    @property
    def is_held(self) -> bool:
        """Whether this handle holds the lock now."""
        return self._lock is not None

    @property
    def knows_state(self) -> bool:
        """Whether the state in the lock file is the one that this handle left."""
        return self._left is not None

    @property
    def is_mine(self) -> bool:
        """Whether this is the process that opened the handle, not a fork of it."""
        return os.getpid() == self._pid

    @property
    def depth(self) -> int:
        """How many times this thread holds it."""
        return self._depth if self._owner == threading.get_ident() else 0

    def take(self, look_around: Callable[[SharedState | None], None]) -> None:
        """Take the lock; its holder may take it again, and must release it as many times.

        Args:
            look_around: Called after the lock was taken, with the state that another holder
                left; it must end with `leave`. Not called if this handle was the last holder.

        Raises:
            InvalidRequestError: A forked child uses its parent's handle.
            LockTimeoutError: Another process kept the lock.
        """
        if os.getpid() != self._pid:
            raise InvalidRequestError(
                "this handle belongs to the process that opened it",
                path=self._root.partition(self._partition),
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
                data = read_state(lock)
                if data != self._left or self.flags in MUST_LOOK:
                    self.distrust()
                    state = decode_state(data)
                    self.flags = StateFlag.NONE if state is None else state.flags
                    look_around(state)
            except BaseException:
                self.distrust()
                self.let_go()
                raise

    def take_at_once(self) -> bool:
        """Take the lock if that waits for nothing, and no other holder changed the state.

        Returns:
            Whether it is held now; if not, `take` finds out why.
        """
        if os.getpid() != self._pid or not self._threads.acquire(blocking=False):
            return False
        self._owner = threading.get_ident()
        self._depth += 1
        is_mine = False
        try:
            is_mine = self._depth == 1 and self._resumed() and self._is_as_left()
        except StorageError:  # the caller that may wait meets it again, and reports it
            pass
        finally:
            if not is_mine:
                self.let_go()
        return is_mine

    def _is_as_left(self) -> bool:
        """Whether the state of the lock, which is held, is as this handle left it, and clean."""
        lock = self._lock
        return lock is not None and self.flags not in MUST_LOOK and read_state(lock) == self._left

    def let_go(self) -> None:
        """Undo one `take`; the last one releases the lock."""
        self._depth -= 1
        lock = self._lock
        try:
            if self._depth == 0:
                self._owner = None
                if lock is not None:
                    self._paused, self._lock = lock, None  # before the call: `settle` must find it
                    lock.pause()
        finally:
            self._threads.release()

    def settle(self, depth: int) -> None:
        """Release what this thread holds beyond `depth`, wherever an interrupt left it.

        Args:
            depth: The value of `depth` before the lock was taken.
        """
        while depth and self.depth > depth:
            self.let_go()
        if depth or not self._threads.acquire(blocking=False):
            return  # another thread holds it, so nothing of this one is left
        if self._depth:
            self.distrust()
        for lock in (self._lock, self._paused):
            if lock is not None:
                lock.release()  # a paused one too: it may be half resumed
        self._lock = self._paused = None
        self._depth, self._owner = 0, None
        with contextlib.suppress(RuntimeError):  # raised once this thread holds it no longer
            while True:
                self._threads.release()

    def _acquired(self) -> FileLock:
        """Resume the paused lock if no other process waits, else take a new one."""
        if self._resumed() and self._lock is not None:
            return self._lock
        timeout_ms = self._patience.timeout_ms
        self._lock = lock = take_partition_lock(self._root, self._partition, timeout_ms=timeout_ms)
        open_files.keep(self)
        return lock

    def _resumed(self) -> bool:
        """Resume the paused lock; False, and none is paused any more, if it cannot be resumed."""
        paused = self._paused
        if paused is None:
            return False
        if paused.resume():
            self._lock, self._paused = paused, None
            self.was_used = True
            return True
        self._paused = None
        paused.release()
        return False

    def release_file(self) -> bool:
        """Close the lock file that is kept for reuse, from any thread; False while held."""
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
        """Close the lock file; the lock may be taken again."""
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.release()

    def distrust(self) -> None:
        """Forget the state: the next holder, even this handle, examines the files."""
        self._left, self.flags = None, StateFlag.NONE

    def mark_dirty(self, *, to_sync: bool = False) -> bool:
        """Mark the log as about to change; must be followed by `leave` or `distrust`.

        Args:
            to_sync: A sync will follow: the mark of `mark_distrusted` is set by the same write.

        Returns:
            False if the state in the file is not known: the caller must `leave` a dirty one.

        Raises:
            InvalidRequestError: The lock is not held.
        """
        if self._lock is None:
            raise self._not_writing()
        if self._left is None:
            return False
        flags = _AFTER_CHANGE_BEGINS[self.flags]
        if to_sync:
            flags = _AFTER_SYNC_BEGINS[flags]
        write_holder_and_flags(self._lock, flags, pid=self._pid, now_ms=self._root.clock.now_ms())
        self.flags = flags
        return True

    def mark_distrusted(self) -> None:
        """Mark records as about to be synced; must be followed by `leave` or `distrust`.

        Raises:
            InvalidRequestError: The lock is not held.
        """
        if self._lock is None:
            raise self._not_writing()
        flags = _AFTER_SYNC_BEGINS[self.flags]
        if flags != self.flags:
            write_flags(self._lock, flags)
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
        """Write the state for the next holder, as a new generation of this boot.

        Raises:
            InvalidRequestError: The lock is not held.
        """
        if self._lock is None:
            raise self._not_writing()
        known = self._left is not None
        self._generation = self._generation + 1 if known else self._root.random.getrandbits(62)
        state = SharedState(
            self._boot_id,
            self._generation,
            offsets,
            active_base_offset,
            active_size,
            last_flush_ms,
            flags,
        )
        self._left, self.flags = encode_state(state), flags
        write_state(self._lock, self._left)

    def sync(self) -> None:
        """Make the state durable; only while the lock is held."""
        if self._lock is None:
            raise self._not_writing()
        self._lock.file.sync()

    def _not_writing(self) -> InvalidRequestError:
        return InvalidRequestError(
            f"partition {self._partition} is not being written", expected="`writing()`"
        )


class Guard:
    """An outer context of a `with` block that takes a partition's lock; nothing stays held.

    Args:
        lock: The lock; holds from before stay.
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


def try_maintenance_lock(root: LogRoot, partition: TopicPartition) -> FileLock | None:
    """Take the lock of a partition's maintenance; None while another process holds it."""
    lock = root.fs.try_lock(root.maintenance_lock(partition), shared=False)
    if lock is not None:
        write_lock_holder(lock, now_ms=root.clock.now_ms(), what="clean")
    return lock


def is_being_maintained(root: LogRoot, partition: TopicPartition) -> bool:
    """Whether another process holds the lock of a partition's maintenance."""
    path = root.maintenance_lock(partition)
    if root.fs.stat(path) is None:
        return False
    lock = root.fs.try_lock(path, shared=True)
    if lock is None:
        return True
    lock.release()
    return False
