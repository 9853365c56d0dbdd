"""What stands between a partition's lock and its log: how one handle comes to write.

    writing:   take the lock → is the state what this handle left? → if not, look around:
               adopt or recover, apply decided commits, raise the epoch → settings → (write)
    changing:  leave the mark "dirty" → (change the files) → leave the state that is true now;
               before a sync, and until that: leave the mark "distrusted" as well

What other writers did is learnt from the state in the lock file; where that cannot be believed
(another boot, a holder that died in the act), the log is recovered.
"""

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final

from streamlog.clock import Clock
from streamlog.errors import (
    InconsistentTopicIdError,
    InvalidRequestError,
    PoisonedError,
    StorageError,
    StreamLogError,
    UnavailableError,
    UnknownOutcomeError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.partition import checkpoints
from streamlog.partition.local_log import LocalLog
from streamlog.partition.lock_states import AFTER, LockEvent, StateFlag
from streamlog.partition.locks import Guard, SharedState, WriterLock
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.partition.root_marks import RootMarks
from streamlog.partition.topic_config import ConfigFiles
from streamlog.segment.recovery import Restore
from streamlog.topic import TopicPartition

__all__ = ["FlushTimer", "WriterSession"]

_logger = logging.getLogger(__name__)

_LONGEST_MS: Final = 86_400_000  # longer waits are left to the next append and to close


class FlushTimer:
    """Calls once, `flush.ms` after the first unflushed append; a thread only while one waits."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._timer: threading.Timer | None = None

    def arm(self, flush_ms: int, *, unflushed: bool) -> None:
        """Start waiting where something is unflushed and nobody waits yet; else stop."""
        if not unflushed:
            self.cancel()
        elif self._timer is None and flush_ms <= _LONGEST_MS:
            self._timer = timer = threading.Timer(flush_ms / 1000.0, self._fire)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError as error:  # the append that asks for it stands all the same
                self._timer = None
                _logger.warning("no thread is left to flush after flush.ms: %s", error)

    def cancel(self) -> None:
        """Stop waiting."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _fire(self) -> None:
        self._timer = None
        self._flush()


_NAME_STANDS_MS: Final = 1.0
_AFTER_CHANGE_ENDS: Final = AFTER[LockEvent.CHANGE_ENDS]
_CHECKPOINT_INTERVAL_MS: Final = 60_000  # log.flush.offset.checkpoint.interval.ms


class Scope:
    """A context manager that may be entered any number of times, also while it is entered.

    Args:
        enter: Called at the beginning; where it raises, the block was not entered.
        leave: Called at the end, with the error that ended the block, if one did.
    """

    __slots__ = ("_enter", "_leave")

    def __init__(
        self, enter: Callable[[], None], leave: Callable[[BaseException | None], None]
    ) -> None:
        self._enter = enter
        self._leave = leave

    def __enter__(self) -> None:
        self._enter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(error)


class WriterSession:
    """One handle's right to write a partition.

    Args:
        fs: Where the root is.
        clock: The clock.
        log: The files of the partition; changed by this session alone.
        lock: The lock they are changed under.
        path: The partition's directory.
        root: The log root.
        partition: What the partition is called.
        topic_id: The id of the topic the handle was opened for.
        marks: The recovery points and log starts of the root.
        config_source: Where the settings come from; None: they are fixed.
        restore: Returns the batches of decided commits; recovery fills holes with them.
        apply_decided: Applies the decided commits that wait for this partition.

    Attributes:
        writing: Holds the partition's lock, caught up with other writers; may be nested. Entering
            it raises LockTimeoutError where another process kept the lock, PoisonedError after a
            failed fsync, InvalidRequestError where the handle is closed or another process's.
        changing: Marks the log dirty while it is changed; only within `writing`, may be nested.
            A process that dies within leaves the mark, and so does an error that is not handled:
            the next holder, this handle too, looks at what became of the files.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        log: LocalLog,
        lock: WriterLock,
        *,
        path: str,
        root: str,
        partition: TopicPartition,
        topic_id: str,
        marks: RootMarks,
        config_source: ConfigFiles | None,
        restore: Restore,
        apply_decided: Callable[[], None],
    ) -> None:
        self._fs, self._clock, self._log, self._lock = fs, clock, log, lock
        self._path, self._root = path, root
        self._partition, self._topic_id, self._marks = partition, topic_id, marks
        self._config_source = config_source
        self._restore, self._apply_decided = restore, apply_decided
        self._timer = FlushTimer(self._flush_by_timer)
        self._poison: StorageError | None = None
        self._is_closed = False
        self._last_checkpoint_ms = clock.now_ms()
        self._changes = 0
        self._named_until_ms = 0.0
        self.writing = Scope(self._begin_writing, self._end_writing)
        self.changing = Scope(self._begin_change, self._end_change)
        log.before_sync = lock.mark_distrusted

    @property
    def is_writing(self) -> bool:
        """Whether the lock is held now."""
        return self._lock.is_held

    @property
    def depth(self) -> int:
        """How often this thread has entered `writing` and not left it."""
        return self._lock.depth

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def check_open(self) -> None:
        """Check that `close` was not called; what was closed would silently be opened again.

        Raises:
            InvalidRequestError: It was.
        """
        if self._is_closed:
            raise self._unusable()

    # ---- writing -----------------------------------------------------------------------------
    def guard(self) -> Guard:
        """Return what is to stand around `writing`: Ctrl-C anywhere leaves no lock held then."""
        return Guard(self._lock)

    def _begin_writing(self) -> None:
        if self._is_closed or self._poison is not None:
            raise self._unusable()
        self._lock.take(self._look_around)
        if self._lock.depth > 1:
            return
        try:
            self._changes = 0  # more, where an interrupt kept a change from ending
            if self._clock.monotonic_ms() >= self._named_until_ms:
                self._check_named()
            source = self._config_source
            if source is not None and source.has_changed():
                self._check_topic()
                self._log.configure(source.load())
        except BaseException:
            self._lock.let_go()
            raise

    def _check_named(self) -> None:
        """Raise where the log's name stands for another file than the one this handle writes.

        Asked once a millisecond, and with each sync: a `stat` for each append takes too long, and
        a record that was not synced may be lost anyway.

        Raises:
            UnknownTopicError: The partition's directory is gone.
            InconsistentTopicIdError: It is another topic's by now.
            PoisonedError: The file was removed or replaced behind this handle's back.
        """
        try:
            self._log.check_named()
        except PoisonedError as error:
            self._leave_after(LockEvent.FILES_DOUBTED)
            self._check_topic()
            self._poison = error
            raise
        self._named_until_ms = self._clock.monotonic_ms() + _NAME_STANDS_MS

    def _end_writing(self, error: BaseException | None) -> None:
        self._lock.let_go()
        if error is None:
            log = self._log
            self._timer.arm(log.config.flush_ms, unflushed=log.unflushed > 0)

    def _unusable(self) -> InvalidRequestError | PoisonedError:
        if self._is_closed:
            return InvalidRequestError("the partition's handle is closed", path=self._path)
        error = PoisonedError(
            "this handle failed before and cannot be believed any more",
            path=self._path,
            got=str(self._poison),
            hint="mend the disk, then open the partition anew",
        )
        error.__cause__ = self._poison
        return error

    def _look_around(self, state: SharedState | None) -> None:
        """Bring this handle up to date with the files, then apply what was decided."""
        self._check_topic()
        self._load(state)
        if self._lock.flags & StateFlag.PENDING:
            self._apply_decided()
            self.set_pending(False)
        if self._lock.flags & StateFlag.EPOCH_DUE:
            self._log.raise_epoch()
            self._leave_after(LockEvent.EPOCH_RAISED)

    def _check_topic(self) -> None:
        """Refuse a topic that was deleted, or made anew, since this handle was opened.

        A handle of the old topic would append to the new one, and apply decisions made for the old.
        """
        found = read_topic_id(self._fs, self._path)
        properties = LogRoot.at(self._root, fs=self._fs).topic_properties(self._partition.topic)
        if found == self._topic_id and self._fs.stat(properties) is not None:
            return
        if found is not None and found != self._topic_id:
            raise InconsistentTopicIdError(
                "the topic was deleted and made again since this handle was opened",
                path=self._path,
                got=found,
                expected=self._topic_id,
                hint="open the partition again",
            )
        # A topic is gone with its properties, its directories are removed after that.
        if self._fs.stat(self._path) is None or self._fs.stat(properties) is None:
            raise UnknownTopicError(
                "the topic was deleted since this handle was opened", path=self._path
            )

    def _load(self, state: SharedState | None) -> None:
        durable = self._marks.recovery_point(self._partition)
        is_adopted = self._log.load(
            state,
            log_start_offset=self._marks.log_start_offset(self._partition),
            durable_offset=durable,
            restore=self._restore,
            sync_log_starts=self._marks.sync_log_starts,
            now_ms=self._clock.now_ms(),
        )
        if durable is None:
            self._marks.note_first_use(self._partition, self._log.offsets.recovery_point)
            self._last_checkpoint_ms = self._clock.now_ms()
        flags = StateFlag.NONE if state is None else state.flags
        flags = AFTER[LockEvent.ADOPTED if is_adopted else LockEvent.RECOVERED][flags]
        if self._log.is_epoch_due:
            flags = AFTER[LockEvent.OFFSETS_LOST][flags]
        self._leave(flags)

    # ---- changing ----------------------------------------------------------------------------
    def _begin_change(self) -> None:
        if self._log.needs_recovery:  # within the `writing` in which an append failed
            raise UnavailableError(
                "an append failed, and the log was not looked at since",
                path=self._path,
                hint="leave writing(): entering it again recovers the log",
            )
        if self._changes == 0 and not self._lock.mark_dirty():
            self._leave(AFTER[LockEvent.CHANGE_BEGINS][StateFlag.NONE])
        self._changes += 1

    def _end_change(self, error: BaseException | None) -> None:
        self._changes -= 1
        if self._changes:
            return
        is_known = error is None or isinstance(error, UnknownOutcomeError)
        if is_known and not self._log.needs_recovery:
            self._leave_clean()
            return
        if isinstance(error, PoisonedError):
            self._poison = error
        self._lock.distrust()

    def _leave_clean(self) -> None:
        """Take the mark "dirty" away; where the disk refuses, it stays, and the next holder looks.

        The change itself stands, so this must not look as if it had failed.
        """
        try:
            self._leave(_AFTER_CHANGE_ENDS[self._lock.flags])
        except StorageError as error:
            _logger.warning(
                "[%s] the lock file refused the state of the log, so the next writer scans it: %s",
                self._partition,
                error,
            )
            self._lock.distrust()

    def truncate(self, offset: int) -> None:
        """Truncate the log to `offset`; only within `writing`. See `Log.truncate_undecided`."""
        log = self._log
        if offset >= log.offsets.end:
            log.truncate_epochs()
            return
        self.write_recovery_point(min(log.offsets.recovery_point, log.end_before(offset)))
        self.lower_cleaner_offset(offset)
        start = log.offsets.start
        with self.changing:
            log.truncate(max(offset, 0), self._clock.now_ms())
            if log.offsets.start < start:  # later: what is deleted must not come back
                self.write_log_start(log.offsets.start)
        self.lower_cleaner_offset(log.offsets.end)

    def raise_log_start(self, offset: int) -> None:
        """Let the log begin at `offset`, durably; only within `changing`.

        What lies below is synced first. A log that a power cut has emptied begins at its log start,
        and were that inside a batch of a commit, the commit could not be applied again.

        Raises:
            PoisonedError: An fsync failed; the log begins where it did.

        Source: UnifiedLog.maybeIncrementLogStartOffset.
        """
        log = self._log
        if offset > log.offsets.start:
            if offset > log.offsets.recovery_point:
                log.sync(self._clock.now_ms())
            self.write_log_start(offset)
            log.raise_log_start(offset)

    def set_pending(self, pending: bool) -> None:  # noqa: FBT001 - says what it sets
        """Tell the next holders of the lock whether a decision may name this partition.

        Only within `writing`. Kept for this boot; after a reboot every writer looks anyway.
        """
        event = LockEvent.DECISION_COMES if pending else LockEvent.DECISIONS_APPLIED
        self._leave_after(event)

    def _leave_after(self, event: LockEvent) -> None:
        self._leave(AFTER[event][self._lock.flags])

    def _leave(self, flags: int) -> None:
        """Leave what this handle knows for the next holder of the lock."""
        log = self._log
        active = log.segments.active
        self._lock.leave(
            log.offsets,
            active_base_offset=active.base_offset,
            active_size=active.size,
            last_flush_ms=log.last_flush_ms,
            flags=flags,
        )

    # ---- durability --------------------------------------------------------------------------
    def sync(self, now_ms: int) -> None:
        """Make everything up to the log end durable, and now and then the recovery point.

        A recovery point that cannot be written is logged and due again a minute later: the one
        that stands is lower, which costs a recovery time and nothing else.

        Raises:
            PoisonedError: The disk refused; nothing this handle says can be believed any more.
            StorageError: The lock file refused the note that comes first; nothing was synced.
        """
        self.sync_records(now_ms)
        if now_ms - self._last_checkpoint_ms >= _CHECKPOINT_INTERVAL_MS:
            self._last_checkpoint_ms = now_ms
            try:
                self.checkpoint()
            except UnavailableError as error:
                _logger.warning(
                    "[%s] the recovery point is not written for now: %s", self._partition, error
                )

    def sync_records(self, now_ms: int) -> None:
        """Make everything up to the log end durable, and leave the recovery point to the caller.

        Raises:
            PoisonedError: The disk refused; nothing this handle says can be believed any more.
        """
        with self.changing:
            self._log.sync(now_ms)

    def sync_if_due(self, now_ms: int) -> None:
        """Sync what was appended where `flush.messages` or `flush.ms` ask for it.

        Raises:
            PoisonedError: An fsync failed; nothing this handle says can be believed any more.
            UnknownOutcomeError: The sync could not begin: what was appended stands, not synced.
        """
        log = self._log
        if log.offsets.end - log.offsets.recovery_point >= log.config.flush_messages or (
            now_ms - log.last_flush_ms >= log.config.flush_ms
        ):
            try:
                self.sync(now_ms)
            except PoisonedError:
                raise
            except StorageError as error:
                raise UnknownOutcomeError(
                    "records were appended, but not synced as the topic asks",
                    path=self._path,
                    offset=log.offsets.end,
                    got=str(error),
                    hint="mend the disk, then flush; do not append these records again",
                ) from error

    def checkpoint(self) -> None:
        """Write the recovery point as it is now."""
        self.write_recovery_point(self._log.offsets.recovery_point)
        self._last_checkpoint_ms = self._clock.now_ms()

    def write_recovery_point(self, offset: int) -> None:
        """Write `offset` to the root's checkpoint; to cut the log there, do this first."""
        self._marks.write_recovery_points({self._partition: offset})

    def lower_cleaner_offset(self, offset: int) -> None:
        """See that what is written from `offset` on, where the log is cut, is cleaned again.

        Source: LogCleanerManager.maybeTruncateCheckpoint.
        """
        known = checkpoints.read_cleaner_offsets(self._fs, self._root).get(self._partition, 0)
        if known > offset:
            marks = {self._partition: offset}
            checkpoints.write_cleaner_offsets(self._fs, self._clock, self._root, marks)

    def write_log_start(self, offset: int) -> None:
        """Write the log start to the root's checkpoint; durable."""
        marks = {self._partition: offset}
        checkpoints.write_log_start_offsets(self._fs, self._clock, self._root, marks)

    def _flush_by_timer(self) -> None:
        if self._is_closed or self._poison is not None or not self._lock.is_mine:
            return
        try:
            with self.guard(), self.writing:
                if self._log.unflushed:
                    self.sync(self._clock.now_ms())
        except StreamLogError as error:  # nobody waits for an answer; an append starts it again
            _logger.warning("[%s] not flushed as flush.ms asks: %s", self._partition, error)

    # ---- close -------------------------------------------------------------------------------
    def close(self, leave_in_order: Callable[[], None]) -> bool:
        """End the session.

        Args:
            leave_in_order: What to do first, where this handle can still be believed.

        Returns:
            Whether that was done.
        """
        self._timer.cancel()
        try:
            if self._poison is not None or not self._lock.is_mine:
                return False
            leave_in_order()
            return True
        finally:
            self._is_closed = True
            self._lock.close()
