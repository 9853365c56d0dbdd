"""The segments of one partition with their offsets, epochs and producers.

Kafka's LocalLog, the part of UnifiedLog without validation, isolation and replication. Only `Log`
calls it; methods that change anything require the partition's lock.
"""

from collections.abc import Callable, Iterable, Sequence

from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    PoisonedError,
    StorageError,
    StreamLogError,
    UnknownOutcomeError,
)
from streamlog.fs.api import Buffer
from streamlog.fs.log_root import LogRoot
from streamlog.partition import leftovers, loader
from streamlog.partition.append import check_follows
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.high_watermark import adopted_high_watermark
from streamlog.partition.lock_states import CLEAN, DISTRUSTED
from streamlog.partition.locks import SharedState
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.producer_snapshot import remove_snapshots_above, remove_stale_snapshots
from streamlog.partition.producers import ProducerStateManager, within
from streamlog.partition.segments import Segments
from streamlog.records.table import BatchOutline, BatchTable
from streamlog.records.topic_rules import TopicRules
from streamlog.segment.filenames import SegmentSuffix
from streamlog.segment.recovery import Restore
from streamlog.segment.segment import RollReason, Segment
from streamlog.topic import TopicPartition

__all__ = ["LocalLog"]

_OffsetsOf = Callable[[int, int, int], LogOffsets]


class LocalLog:
    """The files of one partition, as one handle knows them.

    Args:
        fs: Where the partition lies.
        path: Its directory.
        partition: Its name.
        config: The topic's settings.
        random: Draws the jitter of rolls.
        producer_expiration_ms: When an idle producer is forgotten.
        is_replicated: Whether it is replicated even without a register.

    Attributes:
        segments: An immutable list; changes replace it.
        offsets: Log start, high watermark, log end and recovery point; replaced as one.
        last_flush_ms: Time of the last sync.
        epochs: The start offset of each leader epoch.
        is_replicated: Whether it is one of several replicas: an append then leaves the high
            watermark where it is, until `raise_high_watermark`.
        producers: The state of the idempotent producers; None until it is needed.
        is_epoch_due: Whether offsets may be lost, so that a new leader epoch must start.
        needs_recovery: Whether an append failed in such a way that the files are unknown.
        before_sync: Called before records are synced; records that the sync may fail.
    """

    def __init__(
        self,
        root: LogRoot,
        path: str,
        partition: TopicPartition,
        *,
        config: LogConfig,
        producer_expiration_ms: int,
        is_replicated: bool = False,
    ) -> None:
        self._root, self._fs, self._path, self._partition = root, root.fs, path, partition
        self._producer_expiration_ms = producer_expiration_ms
        self.config, self.rules = config, TopicRules.of(config)
        self.segments = Segments()
        self.offsets = LogOffsets()
        self._offsets_of: _OffsetsOf = LogOffsets.of_one_replica
        self.is_replicated = False
        if is_replicated:
            self._begin_replication()
        self.last_flush_ms = 0
        self.epochs = LeaderEpochCache()
        self.producers: ProducerStateManager | None = None
        self.is_epoch_due = self.needs_recovery = False
        self.before_sync: Callable[[], None] = _note_nothing
        self._appended_to: Segment | None = None  # since the last `load`
        self._jitter_ms = 0

    @property
    def leader_epoch(self) -> int:
        """The epoch the next batch carries."""
        latest = self.epochs.latest_epoch
        return 0 if latest is None else latest

    @property
    def unflushed(self) -> int:
        """Number of offsets that are not synced."""
        return self.offsets.end - self.offsets.recovery_point

    def _begin_replication(self) -> None:
        self.is_replicated = True
        self._offsets_of = self._offsets_of_replica

    def _offsets_of_replica(self, start: int, end: int, recovery_point: int) -> LogOffsets:
        offsets = LogOffsets(start, 0, end, recovery_point)
        return offsets.with_high_watermark(self.offsets.high_watermark)

    def raise_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark of a replica, to the log end at most; whether it moved."""
        raised = self.offsets.with_high_watermark(offset)
        if not self.is_replicated or raised.high_watermark <= self.offsets.high_watermark:
            return False
        self.offsets = raised
        if self.producers is not None:
            self.producers.on_high_watermark(raised.high_watermark)
        return True

    def configure(self, config: LogConfig) -> None:
        """Apply new settings."""
        self.config, self.rules = config, TopicRules.of(config)
        for segment in self.segments:
            segment.config = config

    # ---- open --------------------------------------------------------------------------------
    def load(
        self,
        state: SharedState | None,
        *,
        log_start_offset: int,
        durable_offset: int | None,
        checkpointed_high_watermark: Callable[[], int | None],
        restore: Restore,
        sync_log_starts: Callable[[], None],
        now_ms: int,
    ) -> bool:
        """Adopt the state that the last writer of this boot left, or recover.

        Args:
            state: The state in the lock file.
            log_start_offset: The log start in the checkpoint.
            durable_offset: The recovery point of the checkpoint; None: unknown.
            checkpointed_high_watermark: Returns that of the checkpoint, None if unknown; called
                for a replica without a state of this boot.
            restore: Returns batches of decided commits; called only where a log is damaged.
            sync_log_starts: Makes the root's checkpoint of log starts durable.
            now_ms: The time.

        Returns:
            Whether the state was adopted.

        Raises:
            CorruptRecordError: Acknowledged bytes are damaged; nothing was truncated.
            StorageError: A file cannot be read, truncated or written.
        """
        directory = loader.PartitionDirectory(self._root, self._path, self._partition, self.config)
        mine = state if state is not None and state.boot_id == self._fs.boot_id() else None
        loaded = None
        if mine is not None and mine.flags in CLEAN:
            loaded = loader.adopt(directory, mine, self.segments)
        is_adopted = loaded is not None
        self.is_epoch_due = self.needs_recovery = False
        if loaded is None:
            if mine is not None:
                self.before_sync()
            sync_log_starts()  # the process that raised it may have died
            loaded = loader.recover(
                directory,
                log_start_offset=log_start_offset,
                durable_offset=durable_offset,
                scanned=mine,
                lost_power=durable_offset is not None and mine is None,
                restore=restore,
                now_ms=now_ms,
            )
            loader.close_replaced(self.segments, loaded.segments)
        self.producers = self._appended_to = None
        self.segments, self.epochs = loaded.segments, loaded.epochs
        self.offsets = loaded.offsets
        self._load_high_watermark(state, checkpointed_high_watermark)
        self.last_flush_ms = now_ms if mine is None else mine.last_flush_ms
        self._draw_jitter()
        if not is_adopted:
            self._after_recovery(mine)
            has_rebooted = mine is None and (state is not None or durable_offset is not None)
            # An epoch is written before the first of its records: all of these may be lost.
            had_records = self.offsets.end > 0 or self.epochs.latest_epoch is not None
            may_be_lost = has_rebooted and had_records
            self.is_epoch_due = may_be_lost or loaded.tail_was_cut
            # The epochs of a replica are given to it: it need not find one above all it had.
            if self.is_replicated or not self.is_epoch_due:
                self._truncate_epochs(self.offsets.end + 1)  # an epoch may start exactly there
        return is_adopted

    def _load_high_watermark(
        self, state: SharedState | None, checkpointed: Callable[[], int | None]
    ) -> None:
        if self._fs.stat(self._root.partition_register(self._partition)) is not None:
            self._begin_replication()
        if self.is_replicated:
            known = adopted_high_watermark(state, self._fs.boot_id(), checkpointed)
            self.offsets = self.offsets.with_high_watermark(known)

    def _after_recovery(self, mine: SharedState | None) -> None:
        self._remove_stale_snapshots()
        if mine is not None and mine.flags in DISTRUSTED:
            # An fsync failed, or may have: the page cache may never reach the disk, so the bytes
            # are written again to fresh blocks.
            synced = max(self.offsets.recovery_point, mine.offsets.recovery_point)
            for segment in self.segments.starting_at(synced):
                segment.copy_afresh()

    def start_epoch(self, epoch: int) -> None:
        """Start a leader epoch, above all others, at the log end; durable.

        After a loss, readers that saw the offsets detect it: the epoch they know ends below them.
        Apply decisions first: they restore some offsets, with the bytes and the epoch they had.
        """
        self.epochs.truncate_from_end(self.offsets.end)
        self.epochs.assign(epoch, self.offsets.end)
        self.epochs.store(self._fs, self._path)
        self.is_epoch_due = False

    def leave_empty_epochs(self, table: BatchTable) -> int | None:
        """Remove the epochs without records if decided batches of an earlier one follow; durable.

        A replica that led before the commits had a leader began an epoch, and appended nothing.

        Returns:
            The epoch to start again after these batches, None if none was removed.
        """
        latest = self.epochs.latest_epoch
        if latest is None or len(table) == 0 or int(table.leader_epoch[0]) >= latest:
            return None
        return latest if self.truncate_epochs() else None

    # ---- append ------------------------------------------------------------------------------
    def append(
        self, buffer: Buffer, table: BatchTable, outline: BatchOutline, *, now_ms: int
    ) -> None:
        """Append batches, in a new segment if a roll is due.

        Args:
            buffer: The batches.
            table: Their headers.
            outline: Their offsets, epochs and timestamps taken together.
            now_ms: The time.

        Raises:
            UnknownOutcomeError: The disk failed during the write; some batches may be appended.
        """
        if self._roll_reason(outline, now_ms) is not None:
            self.roll(max(outline.base_offset, self.offsets.end), now_ms)
        if self._begins_epoch(outline):
            self.epochs.assign_from(table)
            self.epochs.store(self._fs, self._path)
        self._write(buffer, table)
        self._appended_to = self.segments.active
        start, _, _, recovery_point = self.offsets
        self.offsets = self._offsets_of(start, outline.last_offset + 1, recovery_point)
        if self.producers is not None:
            self._update_producers(self.producers, buffer, table)

    def only_writes(self, outline: BatchOutline, now_ms: int) -> bool:
        """Whether `append` would only write these batches: it would sync, load or scan nothing."""
        return (
            self.segments.active is self._appended_to
            and not self._begins_epoch(outline)
            and (self.producers is not None or not outline.has_producer)
            and self._roll_reason(outline, now_ms) is None
        )

    def _roll_reason(self, outline: BatchOutline, now_ms: int) -> RollReason | None:
        max_wait_ms = self.config.effective_segment_ms - self._jitter_ms
        active = self.segments.active
        return active.roll_reason(outline, now_ms=now_ms, max_wait_ms=max_wait_ms)

    def _begins_epoch(self, outline: BatchOutline) -> bool:
        latest = self.epochs.latest_epoch
        return latest is None or outline.highest_epoch > latest

    def _write(self, buffer: Buffer, table: BatchTable) -> None:
        active = self.segments.active
        try:
            active.append(buffer, table)
        except StorageError as error:
            self.producers = None
            try:
                stands: object = active.cut_torn_tail()
                start, _, _, recovery_point = self.offsets
                self.offsets = self._offsets_of(start, active.next_offset(), recovery_point)
            except StreamLogError as second:  # what was written is unknown until recovery scans it
                self.needs_recovery, stands = True, f"an unknown number of ({second})"
            raise UnknownOutcomeError(
                f"the disk refused an append after {stands} whole batches",
                path=active.path,
                position=active.size,
                offset=self.offsets.end,
                got=str(error),
                hint="free disk space, then append the records above the log end again",
            ) from error

    def _update_producers(
        self, producers: ProducerStateManager, buffer: Buffer, table: BatchTable
    ) -> None:
        """Update the state of producers after an append.

        Raises:
            UnknownOutcomeError: A marker is in the log, but not in the transaction index.
        """
        active = self.segments.active
        try:
            for aborted in producers.update(within(buffer), table):
                active.append_aborted(aborted)
        except StorageError as error:
            self.producers, self.needs_recovery = None, True
            raise UnknownOutcomeError(
                "a transaction's marker was appended, but the transaction index refused it",
                path=active.path,
                offset=self.offsets.end,
                got=str(error),
                hint="free disk space; the next append rebuilds the index from the log",
            ) from error
        producers.on_high_watermark(self.offsets.high_watermark)

    def check_follows(self, table: BatchTable) -> None:
        """Raise if batches do not continue the log; see `append.check_follows`."""
        epoch = self.epochs.epoch_for_offset(self.offsets.end) or 0
        check_follows(table, path=self._path, log_end_offset=self.offsets.end, epoch=epoch)

    # ---- roll, sync, truncate ------------------------------------------------------------------
    def roll(self, base_offset: int, now_ms: int) -> None:
        """Start a segment: records before it are synced first, then its file and directory."""
        active = self.segments.active
        if active.is_empty and active.base_offset == base_offset:
            active.created_ms = now_ms  # Kafka recreates it, so its age starts now
            return
        self.check_named()
        producers = self.producer_state(now_ms)
        active.seal()
        self.sync(now_ms)
        producers.map_end_offset = base_offset  # may lie after a gap
        producers.take_snapshot(self._fs, self._path)
        self._add_segment(base_offset, now_ms, self.segments)
        self._draw_jitter()

    def _add_segment(self, base_offset: int, now_ms: int, to: Segments) -> None:
        segment = Segment.create(
            self._fs, self._path, base_offset, config=self.config, now_ms=now_ms
        )
        segment.sync()
        self._fs.sync_directory(self._path)
        self.segments = to.with_segment(segment)

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Start a segment at `offset`, above the log end, so that the log ends there."""
        self.roll(offset, now_ms)
        self.offsets = self._offsets_of(self.offsets.start, offset, offset)

    def clear_epochs(self) -> None:
        """Remove all epochs, durably."""
        self.epochs.clear()
        self.epochs.store(self._fs, self._path)

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Set all segments aside, which have no record from `offset` on, and begin there."""
        self.producers = None
        self.clear_epochs()  # first: later epochs than the leader's must not meet its batches
        remove_snapshots_above(self._fs, self._path, -1)
        leftovers.set_aside(self._fs, self.segments, now_ms=now_ms)
        self._fs.sync_directory(self._path)
        self._add_segment(offset, now_ms, Segments())
        self.offsets = self._offsets_of(offset, offset, offset)

    def _draw_jitter(self) -> None:
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        self._jitter_ms = self._root.random.randrange(bound) if bound > 0 else 0

    def sync(self, now_ms: int) -> None:
        """Make everything up to the log end durable.

        Raises:
            PoisonedError: An fsync failed: the state of these files is unknown.
        """
        self._sync(now_ms)

    def _sync(self, now_ms: int, *, leave_names: bool = False) -> None:
        segments = self.segments.starting_at(self.offsets.recovery_point)
        self._sync_records(segments, leave_names=leave_names)
        # Not the log end: that is above the last batch if the log was truncated below its start.
        recovery_point = self.segments.active.next_offset()
        self.offsets = self.offsets.with_recovery_point(recovery_point)
        self.last_flush_ms = now_ms

    def _sync_records(self, segments: Iterable[Segment], *, leave_names: bool = False) -> None:
        self.before_sync()
        try:
            for segment in segments:
                is_active = segment is self.segments.active
                segment.sync(leave_names=leave_names and is_active)
        except StorageError as error:
            raise PoisonedError(
                "an fsync failed: what was appended since the last one may be lost",
                path=self._path,
                offset=self.offsets.recovery_point,
                got=str(error),
                hint="repair the disk, then open the partition again",
            ) from error
        self.check_named()  # synced records must not be in a file that was unlinked

    def check_named(self) -> None:
        """Raise `PoisonedError` if the active segment was removed or replaced while it was open."""
        active = self.segments.active
        if active.is_replaced(grows=True):
            raise PoisonedError(
                "the file was removed or replaced while it was open: what was appended may be lost",
                path=active.path,
                hint="find out what replaced it, then open the partition again",
            )

    def end_before(self, offset: int) -> int:
        """Return an offset below which all records stay when the log is truncated to `offset`.

        It may be too low: offsets before the truncation may be missing, as after an earlier
        truncation, and only the index is read.
        """
        at = self.segments.floor_index(offset - 1)
        if at < 0:
            return offset
        segment = self.segments[at]
        position = segment.approximate_position(offset)
        known = segment.offset_at(position - 1) if position else None
        return segment.base_offset if known is None else known

    def truncate(self, offset: int, now_ms: int) -> None:
        """Remove everything from `offset` on; a batch that straddles it is removed whole.

        The log then ends after its last batch, or where it starts, as the next opening finds it.
        """
        self.producers = None
        highest = self.leader_epoch
        gone = [segment for segment in self.segments if segment.base_offset >= offset]
        kept = self.segments.without(gone)
        for segment in reversed(gone):
            segment.delete_files()
            segment.close()
        if gone:  # a power cut must not bring them back after the truncation below
            self._fs.sync_directory(self._path)
        if len(kept) == 0:
            self._add_segment(offset, now_ms, kept)
        else:
            self.before_sync()  # or a power cut could undo what readers have seen
            kept.active.truncate_to(offset)
            self.segments = kept
            self._sync_records([kept.active])
        start = min(self.offsets.start, offset)
        # As the next opening finds it: after a crash a log end above the last batch is lost, and a
        # commit that was decided there could never be applied.
        end = max(self.segments.active.next_offset(), start)
        remove_snapshots_above(self._fs, self._path, end)
        self._fs.sync_directory(self._path)
        recovery_point = min(self.offsets.recovery_point, self.segments.active.next_offset())
        self.offsets = self._offsets_of(start, end, recovery_point)
        self.truncate_epochs()
        if self.epochs.latest_epoch is None and not self.segments.active.is_empty:
            # Records below the log start are left, with an epoch; no later one may be lower.
            self.epochs.assign(highest, end)
            self.epochs.store(self._fs, self._path)

    def raise_log_start(self, offset: int) -> None:
        """Raise the log start, which is durable already; segments below it stay for now."""
        raised = self.offsets._replace(start=offset)
        self.offsets = raised.with_high_watermark(raised.high_watermark)
        self.epochs.truncate_from_start(offset)
        self.epochs.store(self._fs, self._path)
        if self.producers is not None:
            self.producers.on_log_start_offset(offset)

    def drop_below(self, base_offset: int, now_ms: int) -> None:
        """Set aside the segments below `base_offset`, which is not above the log start."""
        gone = [segment for segment in self.segments if segment.base_offset < base_offset]
        self.segments = self.segments.without(gone)
        leftovers.set_aside(self._fs, gone, now_ms=now_ms)
        leftovers.set_aside_below(self._fs, self._path, base_offset, now_ms=now_ms)
        self._remove_stale_snapshots()
        self._fs.sync_directory(self._path)

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the files of segments that were set aside `file.delete.delay.ms` ago."""
        names = self._fs.list(self._path)
        delay_ms = self.config.file_delete_delay_ms
        leftovers.remove_due(self._fs, self._path, names, now_ms=now_ms, delay_ms=delay_ms)

    def replace(self, replaced: Sequence[Segment], by: Segment, now_ms: int) -> None:
        """Replace one or more sealed segments by a cleaned one that is synced.

        Each step is durable before the next: after a crash `leftovers` continues by the names of
        the files.

        Source: LocalLog.replaceSegments.
        """
        directory = self._path
        by.rename_suffix(SegmentSuffix.CLEANED, SegmentSuffix.SWAP)
        self._fs.sync_directory(directory)
        leftovers.set_aside(self._fs, replaced, now_ms=now_ms)
        self._fs.sync_directory(directory)
        by.rename_suffix(SegmentSuffix.SWAP, SegmentSuffix.NONE)
        self.segments = self.segments.without(replaced).with_segment(by)
        self._remove_stale_snapshots()
        self._fs.sync_directory(directory)

    def truncate_epochs(self) -> bool:
        """Remove the epochs that start at or above the log end; whether there were any."""
        known = self.epochs.entries
        self._truncate_epochs(self.offsets.end)
        return self.epochs.entries != known

    def _truncate_epochs(self, end_offset: int) -> None:
        self.epochs.truncate_from_end(end_offset)
        self.epochs.store(self._fs, self._path)

    def producer_state(self, now_ms: int) -> ProducerStateManager:
        """Return the state of the idempotent producers, loaded when it is first needed."""
        producers = self.producers
        if producers is None:  # assigned once complete: other threads read it meanwhile
            producers = ProducerStateManager.load(
                self._fs,
                self._path,
                segments=self.segments,
                log_start_offset=self.offsets.start,
                log_end_offset=self.offsets.end,
                high_watermark=self.offsets.high_watermark,
                now_ms=now_ms,
                expiration_ms=self._producer_expiration_ms,
            )
            self.producers = producers
        return producers

    def seal(self, now_ms: int) -> None:
        """Write final index entries and a producer snapshot, as a clean shutdown does."""
        self.check_named()
        producers = self.producer_state(now_ms)
        active = self.segments.active
        active.seal()
        self._sync(now_ms, leave_names=True)
        active.sync_names(is_done=producers.take_snapshot(self._fs, self._path))
        self._remove_stale_snapshots()

    def _remove_stale_snapshots(self) -> None:
        remove_stale_snapshots(
            self._fs,
            self._path,
            base_offsets=self.segments.base_offsets,
            log_start_offset=self.offsets.start,
            log_end_offset=self.offsets.end,
        )

    def close(self) -> None:
        """Release the files."""
        for segment in self.segments:
            segment.close()


def _note_nothing() -> None:
    pass
