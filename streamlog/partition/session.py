"""Write access to one partition: lock, catch up, mark dirty, publish.

    writing:   take the lock → if another holder changed the state: adopt or recover the log,
               apply decided commits, raise the epoch → reload settings → (write)
               (one of several replicas: commits and epoch wait for `take_stock`, by its leader)
    changing:  write the flag "dirty" → (change the files) → write the new state;
               around a sync: the flag "distrusted" too, by the same write if it is known to follow

A handle learns of other writers from the state in the lock file. If that is of another boot, or
its writer died during a change, the log is recovered.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final

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

_LONGEST_MS: Final = 86_400_000  # the next append or close ends longer waits


class FlushTimer:
    """Syncs an idle handle `flush.ms` after its first unflushed append; a thread while it waits."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._timer: threading.Timer | None = None

    def arm(self, flush_ms: int, *, unflushed: bool) -> None:
        """Start the timer if records are unflushed and it is not running; else stop it."""
        if not unflushed:
            self.cancel()
        elif self._timer is None and flush_ms <= _LONGEST_MS:
            self._timer = timer = threading.Timer(flush_ms / 1000.0, self._fire)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError as error:  # the append itself succeeded
                self._timer = None
                _logger.warning("cannot start a thread to flush after flush.ms: %s", error)

    def cancel(self) -> None:
        """Stop waiting."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _fire(self) -> None:
        self._timer = None
        self._flush()


_NAME_STANDS_MS: Final = 1.0
_SETTINGS_STAND_MS: Final = 5.0
_AFTER_CHANGE_ENDS: Final = AFTER[LockEvent.CHANGE_ENDS]
_CHECKPOINT_INTERVAL_MS: Final = 60_000  # log.flush.offset.checkpoint.interval.ms


def _nothing() -> None:
    pass


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
    """Write access of one handle to a partition.

    Args:
        root: The log root.
        log: The files of the partition; in this process only this session changes them.
        lock: The lock that protects them.
        path: The partition's directory.
        partition: The name of the partition.
        topic_id: The id of the topic the handle was opened for.
        marks: The recovery points and log starts of the root.
        config_source: The topic's settings files; None: the settings are fixed.
        restore: Returns the batches of decided commits; recovery fills holes with them.
        apply_decided: Applies the decided commits that wait for this partition.
        has_decided: Whether the root has any decided commit.
        next_epoch: Returns the leader epoch to start after offsets were lost; None: none.

    Attributes:
        writing: Holds the partition's lock, caught up with other writers; may be nested. Entering
            it raises LockTimeoutError where another process kept the lock, PoisonedError after a
            failed fsync, InvalidRequestError where the handle is closed or another process's.
        begun: Ends the `writing` that `begin_at_once` began.
        changing: Marks the log dirty while it is changed; only within `writing`, may be nested.
            A process that dies within leaves the flag set, and so does an unhandled error: the
            next holder, even this handle, then examines the files.
        changing_to_sync: The same, for a change that a sync follows.
        settings_stand_ms: Until when, by the monotonic clock, the settings are not looked at again.
        settings_seen_until_ms: Until when `begin_at_once` does not look at them again.
        is_leading: Whether it was established, since the lock was taken, that this replica leads.
    """

    def __init__(
        self,
        root: LogRoot,
        log: LocalLog,
        lock: WriterLock,
        *,
        path: str,
        partition: TopicPartition,
        topic_id: str,
        marks: RootMarks,
        config_source: ConfigFiles | None,
        restore: Restore,
        apply_decided: Callable[[], None],
        has_decided: Callable[[], bool],
        next_epoch: Callable[[], int | None],
    ) -> None:
        self._root, self._fs, self._clock = root, root.fs, root.clock
        self._log, self._lock, self._path = log, lock, path
        self._partition, self._topic_id, self._marks = partition, topic_id, marks
        self._config_source = config_source
        self._restore, self._apply_decided = restore, apply_decided
        self._has_decided, self._next_epoch = has_decided, next_epoch
        self._timer = FlushTimer(self._flush_by_timer)
        self._poison: StorageError | None = None
        self._is_closed = False
        self._last_checkpoint_ms = self._last_high_watermark_ms = root.clock.now_ms()
        self._changes = 0
        self.is_leading = False
        self._named_until_ms = self.settings_stand_ms = self.settings_seen_until_ms = 0.0
        self.writing = Scope(self._begin_writing, self._end_writing)
        self.begun = Scope(_nothing, self._end_writing)
        self.changing = Scope(self._begin_change, self._end_change)
        self.changing_to_sync = Scope(partial(self._begin_change, to_sync=True), self._end_change)
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
        """Raise `InvalidRequestError` after `close`: files would silently be opened again."""
        if self._is_closed:
            raise self._unusable()

    # ---- writing -----------------------------------------------------------------------------
    def guard(self) -> Guard:
        """Return the context to put around `writing`, so that Ctrl-C never leaves the lock held."""
        return Guard(self._lock)

    def _begin_writing(self) -> None:
        if self._is_closed or self._poison is not None:
            raise self._unusable()
        self._lock.take(self._look_around)
        if self._lock.depth > 1:
            return
        try:
            self._changes = 0  # may be more: an interrupt can keep a change from ending
            self.is_leading = False
            at_ms = self._clock.monotonic_ms()
            if at_ms >= self._named_until_ms:
                self._check_named()
            source = self._config_source
            if source is not None and self._may_have_settings(at_ms):
                self._check_topic()
                self._log.configure(source.load())
        except BaseException:
            self._lock.let_go()
            raise

    def begin_at_once(self) -> bool:
        """Begin `writing` if that waits for nothing, and nothing has changed; `begun` ends it.

        Returns:
            Whether it began; if not, entering `writing` finds out why.

        Raises:
            StreamLogError: As `_check_named` does.
        """
        if self._is_closed or self._poison is not None or not self._lock.take_at_once():
            return False
        has_begun = False
        try:
            self._changes = 0
            self.is_leading = False
            at_ms = self._clock.monotonic_ms()
            if at_ms >= self._named_until_ms:
                self._check_named()
            if at_ms >= self.settings_seen_until_ms:
                if self._may_have_settings(at_ms):
                    return False
                self.settings_seen_until_ms = at_ms + _SETTINGS_STAND_MS
            has_begun = True
        finally:
            if not has_begun:
                self._lock.let_go()
        return has_begun

    def _may_have_settings(self, at_ms: float) -> bool:
        """Whether other settings are in force since they were read; two `stat` calls."""
        source = self._config_source
        return source is not None and at_ms >= self.settings_stand_ms and source.has_changed()

    def _check_named(self) -> None:
        """Raise if the log's name stands for another file than the one that this handle writes.

        Checked once a millisecond, and with each sync: a `stat` for each append takes too long,
        and a record that was not synced may be lost anyway.

        Raises:
            UnknownTopicError: The partition's directory is gone.
            InconsistentTopicIdError: It now belongs to another topic.
            PoisonedError: The file was removed or replaced while this handle had it open.
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
            "this handle failed before and cannot be used any more",
            path=self._path,
            got=str(self._poison),
            hint="repair the disk, then open the partition again",
        )
        error.__cause__ = self._poison
        return error

    def _look_around(self, state: SharedState | None) -> None:
        """Bring this handle up to date with the files, then apply decided commits."""
        self._check_topic()
        self._load(state)
        if not self._log.is_replicated:
            self.take_stock()
        elif self._lock.flags & StateFlag.PENDING and not self._has_decided():
            self.set_pending(False)

    def take_stock(self) -> None:
        """Apply the decided commits that wait, then start the leader epoch that is due.

        Of several replicas only the leader may do so. The flags stay set until it does.
        """
        self._apply_pending()
        if self._lock.flags & StateFlag.EPOCH_DUE:
            epoch = self._next_epoch()
            if epoch is not None:
                self._log.start_epoch(epoch)
            self._leave_after(LockEvent.EPOCH_RAISED)

    def _apply_pending(self) -> None:
        if self._lock.flags & StateFlag.PENDING:
            self._apply_decided()
            self.set_pending(False)

    def _check_topic(self) -> None:
        """Refuse a topic that was deleted, or created again, since this handle was opened.

        A handle of the old topic would append to the new one and apply the old topic's decisions.
        """
        found = read_topic_id(self._fs, self._path)
        properties = self._root.topic_properties(self._partition.topic)
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
        # A topic is gone with its properties; its directories are removed afterwards.
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
            checkpointed_high_watermark=lambda: self._marks.high_watermark(self._partition),
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
    def _begin_change(self, *, to_sync: bool = False) -> None:
        if self._log.needs_recovery:  # within the `writing` in which an append failed
            raise UnavailableError(
                "an append failed, and the log was not recovered since",
                path=self._path,
                hint="leave writing(): entering it again recovers the log",
            )
        if self._changes == 0 and not self._lock.mark_dirty(to_sync=to_sync):
            self._leave(AFTER[LockEvent.CHANGE_BEGINS][StateFlag.NONE])
        self._changes += 1

    def _end_change(self, error: BaseException | None) -> None:
        self._changes -= 1
        if self._changes:
            return
        is_known = error is None or isinstance(error, UnknownOutcomeError)
        if is_known and not self._log.needs_recovery:
            self._leave_or_distrust(_AFTER_CHANGE_ENDS[self._lock.flags])
            return
        if isinstance(error, PoisonedError):
            self._poison = error
        self._lock.distrust()

    def _leave_or_distrust(self, flags: int) -> None:
        """Write the state after a change; if the disk refuses, the next holder looks.

        The change itself succeeded, so a failure here is logged, not raised.
        """
        try:
            self._leave(flags)
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
            if log.truncate_epochs():
                self._publish(LockEvent.REPLICA_MOVES)
            return
        self.write_recovery_point(min(log.offsets.recovery_point, log.end_before(offset)))
        if log.is_replicated and (self._marks.high_watermark(self._partition) or 0) > offset:
            self._marks.write_high_watermarks({self._partition: log.end_before(offset)})
        self.lower_cleaner_offset(offset)
        start = log.offsets.start
        with self.changing:
            log.truncate(max(offset, 0), self._clock.now_ms())
            if log.offsets.start < start:  # later: what is deleted must not come back
                self.write_log_start(log.offsets.start)
        self.lower_cleaner_offset(log.offsets.end)

    def restart_at(self, offset: int, *, keeps_start: bool = False) -> None:
        """Begin again, empty, at `offset`; only within `writing`. See `Log.restart_at`.

        Args:
            offset: Where the next batch goes.
            keeps_start: The log start lies within that batch, and the checkpoint keeps it.
        """
        log = self._log
        if offset < log.offsets.end:
            self.truncate(log.offsets.start)  # durably: nothing from `offset` on may come back
        self.write_recovery_point(0)  # no record is promised while the segments go one by one
        self.lower_cleaner_offset(offset)
        is_below = offset < log.offsets.start
        with self.changing:
            if not is_below:
                self.write_log_start(offset)  # first: what is deleted must not come back
            log.restart_at(offset, self._clock.now_ms())
            if is_below and not keeps_start:
                self.write_log_start(offset)

    def raise_log_start(self, offset: int) -> None:
        """Raise the log start to `offset`, durably; only within `changing`.

        Records below are synced first. A log that a power cut has emptied begins at its log start;
        if that were inside a batch of a commit, the commit could not be applied again.

        Raises:
            PoisonedError: An fsync failed; the log start is unchanged.

        Source: UnifiedLog.maybeIncrementLogStartOffset.
        """
        log = self._log
        if offset > log.offsets.start:
            if offset > log.offsets.recovery_point:
                log.sync(self._clock.now_ms())
            self.write_log_start(offset)
            log.raise_log_start(offset)

    # ---- one of several replicas -------------------------------------------------------------
    def assign_epoch(self, epoch: int) -> None:
        """Start a leader epoch; only within `writing`. See `Log.assign_leader_epoch`."""
        latest = self._log.epochs.latest_epoch
        if latest is not None and epoch <= latest:
            if epoch == latest:
                self._apply_pending()
                return
            raise InvalidRequestError(
                "leader epoch goes back", path=self._path, got=epoch, expected=f"above {latest}"
            )
        # A new leader knows of no flag: the old one set it in its own root.
        self._apply_decided()
        if self._lock.flags & StateFlag.PENDING:
            self.set_pending(False)
        self._log.start_epoch(epoch)
        # An epoch that is due stays due: this one may be that of the lost records.
        self._publish(LockEvent.REPLICA_MOVES)

    def raise_high_watermark(self, offset: int) -> None:
        """Raise the high watermark; only within `writing`. See `Log.raise_high_watermark`.

        Once a minute it is written to the checkpoint, also where nothing is synced.
        """
        if not self._log.raise_high_watermark(offset):
            return
        self._publish(LockEvent.REPLICA_MOVES)
        if self._clock.now_ms() - self._last_high_watermark_ms < _CHECKPOINT_INTERVAL_MS:
            return
        try:
            self.checkpoint_high_watermark()
        except UnavailableError as error:
            _logger.warning(
                "[%s] the high watermark is not written for now: %s", self._partition, error
            )

    def checkpoint_high_watermark(self) -> None:
        """Write the high watermark to the root's checkpoint; due again a minute later."""
        self._last_high_watermark_ms = self._clock.now_ms()
        self._marks.write_high_watermarks({self._partition: self.sync_high_watermark()})

    def sync_high_watermark(self) -> int:
        """Make the high watermark durable in the lock file, and return it for the checkpoint.

        After a reboot the lower of the two counts.
        """
        self._lock.sync()
        return self._log.offsets.high_watermark

    def _publish(self, event: LockEvent) -> None:
        """Write the state, except within a change, or after one whose outcome is unknown.

        The end of the change writes it, and the next holder examines the files.
        """
        if self._changes == 0 and self._lock.knows_state:
            self._leave_or_distrust(AFTER[event][self._lock.flags])

    def set_pending(self, pending: bool) -> None:  # noqa: FBT001 - says what it sets
        """Set the flag "pending", which sends the next holders to the decisions, or clear it.

        Only within `writing`. It lasts for this boot; after a reboot every writer looks anyway.
        """
        event = LockEvent.DECISION_COMES if pending else LockEvent.DECISIONS_APPLIED
        self._leave_after(event)

    def _leave_after(self, event: LockEvent) -> None:
        self._leave(AFTER[event][self._lock.flags])

    def _leave(self, flags: int) -> None:
        """Write the log's state for the next holder of the lock."""
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
        """Make everything up to the log end durable; once a minute the recovery point too.

        A recovery point that cannot be written is logged and due again a minute later: the one
        that stands is lower, which costs a recovery time and nothing else.

        Raises:
            PoisonedError: An fsync failed; this handle cannot be used any more.
            StorageError: The lock file could not be written first; nothing was synced.
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
        """Make everything up to the log end durable; the caller writes the recovery point.

        Raises:
            PoisonedError: An fsync failed; this handle cannot be used any more.
        """
        with self.changing:
            self._log.sync(now_ms)
            self._named_until_ms = self._clock.monotonic_ms() + _NAME_STANDS_MS

    def is_sync_due(self, end_offset: int, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` require a sync once the log ends there."""
        log, config = self._log, self._log.config
        return (
            end_offset - log.offsets.recovery_point >= config.flush_messages
            or now_ms - log.last_flush_ms >= config.flush_ms
        )

    def sync_if_due(self, now_ms: int) -> None:
        """Sync if `flush.messages` or `flush.ms` require it.

        Raises:
            PoisonedError: An fsync failed; this handle cannot be used any more.
            UnknownOutcomeError: The sync could not begin: records are appended, not synced.
        """
        if self.is_sync_due(self._log.offsets.end, now_ms):
            try:
                self.sync(now_ms)
            except PoisonedError:
                raise
            except StorageError as error:
                raise UnknownOutcomeError(
                    "records were appended, but not synced as the topic requires",
                    path=self._path,
                    offset=self._log.offsets.end,
                    got=str(error),
                    hint="repair the disk, then flush; do not append these records again",
                ) from error

    def checkpoint(self) -> None:
        """Write the recovery point, and a replica's high watermark, to the root's checkpoints."""
        self.write_recovery_point(self._log.offsets.recovery_point)
        if self._log.is_replicated:
            self.checkpoint_high_watermark()
        self._last_checkpoint_ms = self._clock.now_ms()

    def write_recovery_point(self, offset: int) -> None:
        """Write `offset` as the recovery point; before a truncation to it, not after."""
        self._marks.write_recovery_points({self._partition: offset})

    def lower_cleaner_offset(self, offset: int) -> None:
        """Have records from `offset` on compacted again, where the log is truncated.

        Source: LogCleanerManager.maybeTruncateCheckpoint.
        """
        known = checkpoints.read_cleaner_offsets(self._root).get(self._partition, 0)
        if known > offset:
            marks = {self._partition: offset}
            checkpoints.write_cleaner_offsets(self._root, marks)

    def write_log_start(self, offset: int) -> None:
        """Write the log start to the root's checkpoint; durable."""
        marks = {self._partition: offset}
        checkpoints.write_log_start_offsets(self._root, marks)

    def _flush_by_timer(self) -> None:
        if self._is_closed or self._poison is not None or not self._lock.is_mine:
            return
        try:
            with self.guard(), self.writing:
                if self._log.unflushed:
                    self.sync(self._clock.now_ms())
        except (
            StreamLogError
        ) as error:  # there is no caller to raise to; the next append starts the timer again
            _logger.warning(
                "[%s] not flushed although flush.ms has passed: %s", self._partition, error
            )

    # ---- close -------------------------------------------------------------------------------
    def close(self, leave_in_order: Callable[[], None]) -> bool:
        """End the session.

        Args:
            leave_in_order: Called first, unless the handle failed before or this is a fork.

        Returns:
            Whether it was called.
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
