"""The segments of one partition and the offsets that go with them: what is done under the lock.

Source of the name and the cut: Kafka's LocalLog, the part of UnifiedLog that knows nothing of
validation, isolation or replication. Everything here is called by `PartitionLog` only, and what
changes something only while it holds the partition's lock.
"""

import random as random_module
from collections.abc import Callable, Iterable, Sequence

from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    PoisonedError,
    StorageError,
    StreamLogError,
    UnknownOutcomeError,
)
from streamlog.fs.api import Buffer, FileSystem
from streamlog.partition import leftovers, loader
from streamlog.partition.append import check_follows
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.lock_states import is_clean, is_distrusted
from streamlog.partition.locks import SharedState
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.producer_snapshot import remove_snapshots_above, remove_stale_snapshots
from streamlog.partition.producers import ProducerStateManager, within
from streamlog.partition.segments import Segments
from streamlog.records.table import BatchOutline, BatchTable
from streamlog.records.topic_rules import TopicRules
from streamlog.segment.filenames import SegmentSuffix
from streamlog.segment.recovery import Restore
from streamlog.segment.segment import Segment
from streamlog.topic import TopicPartition

__all__ = ["LocalLog"]


class LocalLog:
    """The files of one partition as one handle knows them.

    Args:
        fs: Where the partition lies.
        path: Its directory.
        partition: What it is called.
        config: The topic's settings.
        random: Draws the jitter of rolls.
        producer_expiration_ms: When an idle producer is forgotten.

    Attributes:
        segments: An immutable list; changes put a new one in its place.
        offsets: Log start, high watermark, log end and recovery point; replaced as one.
        last_flush_ms: When that was.
        epochs: Which leader epoch starts where.
        producers: What the idempotent producers did; None until somebody asks.
        is_epoch_due: Whether offsets may be lost, so that a new leader epoch must start.
        needs_recovery: Whether an append failed so that the files are not what this handle knows.
        before_sync: Called before records are synced; notes that this may fail.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        partition: TopicPartition,
        *,
        config: LogConfig,
        random: random_module.Random,
        producer_expiration_ms: int,
    ) -> None:
        self._fs, self._path, self._partition, self._random = fs, path, partition, random
        self._producer_expiration_ms = producer_expiration_ms
        self.config, self.rules = config, TopicRules.of(config)
        self.segments = Segments()
        self.offsets = LogOffsets()
        self.last_flush_ms = 0
        self.epochs = LeaderEpochCache()
        self.producers: ProducerStateManager | None = None
        self.is_epoch_due = self.needs_recovery = False
        self.before_sync: Callable[[], None] = _note_nothing
        self._jitter_ms = 0

    @property
    def leader_epoch(self) -> int:
        """The epoch the next batch carries."""
        latest = self.epochs.latest_epoch
        return 0 if latest is None else latest

    @property
    def unflushed(self) -> int:
        """How many offsets are not synced."""
        return self.offsets.end - self.offsets.recovery_point

    def configure(self, config: LogConfig) -> None:
        """Put other settings in force."""
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
        restore: Restore,
        sync_log_starts: Callable[[], None],
        now_ms: int,
    ) -> bool:
        """Adopt what the last writer of this boot left, or recover.

        Args:
            state: What stood in the lock file.
            log_start_offset: What the checkpoint says.
            durable_offset: The recovery point of the checkpoint; None: unknown.
            restore: Knows the batches of decided commits; asked where a log is damaged only.
            sync_log_starts: Makes the root's checkpoint of log starts durable.
            now_ms: The time.

        Returns:
            Whether it could be adopted.

        Raises:
            CorruptRecordError: Acknowledged bytes are damaged; nothing was cut.
            StorageError: A file cannot be read, cut or written.
        """
        directory = loader.PartitionDirectory(self._fs, self._path, self._partition, self.config)
        mine = state if state is not None and state.boot_id == self._fs.boot_id() else None
        loaded = None
        if mine is not None and is_clean(mine.flags):
            loaded = loader.adopt(directory, mine, self.segments)
        is_adopted = loaded is not None
        self.is_epoch_due = self.needs_recovery = False
        if loaded is None:
            if mine is not None:
                self.before_sync()
            sync_log_starts()  # a process that moved it may have died
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
        self.producers = None
        self.segments, self.epochs = loaded.segments, loaded.epochs
        self.offsets = loaded.offsets
        self.last_flush_ms = now_ms if mine is None else mine.last_flush_ms
        self._draw_jitter()
        if not is_adopted:
            self._after_recovery(mine)
            has_rebooted = mine is None and (state is not None or durable_offset is not None)
            # An epoch that is known was written before the first of its records: all may be lost.
            had_records = self.offsets.end > 0 or self.epochs.latest_epoch is not None
            may_be_lost = has_rebooted and had_records
            self.is_epoch_due = may_be_lost or loaded.tail_was_cut
            if not self.is_epoch_due:
                self._truncate_epochs(self.offsets.end + 1)  # one may start right there
        return is_adopted

    def _after_recovery(self, mine: SharedState | None) -> None:
        self._remove_stale_snapshots()
        if mine is not None and is_distrusted(mine.flags):
            # An fsync failed, or nobody knows: what the cache holds may never reach the disk.
            synced = max(self.offsets.recovery_point, mine.offsets.recovery_point)
            for segment in self.segments.starting_at(synced):
                segment.copy_afresh()

    def raise_epoch(self) -> None:
        """Start a new leader epoch at the log end.

        Readers that saw offsets which are lost must be able to tell: their epoch ends below them.
        Decisions bring some offsets back, with the bytes and the epoch they had: apply them first.
        """
        highest = self.leader_epoch  # its batches may be lost, all of them
        self.epochs.truncate_from_end(self.offsets.end)
        self.epochs.assign(highest + 1, self.offsets.end)
        self.epochs.store(self._fs, self._path)
        self.is_epoch_due = False

    # ---- append ------------------------------------------------------------------------------
    def append(
        self, buffer: Buffer, table: BatchTable, outline: BatchOutline, *, now_ms: int
    ) -> None:
        """Write batches behind the log end, in a new segment if one is due.

        Args:
            buffer: The batches.
            table: Their headers.
            outline: What these have in common.
            now_ms: The time.

        Raises:
            UnknownOutcomeError: The disk failed in the act; some whole batches may stand.
        """
        active = self.segments.active
        max_wait_ms = self.config.effective_segment_ms - self._jitter_ms
        reason = active.roll_reason(outline, now_ms=now_ms, max_wait_ms=max_wait_ms)
        if reason is not None:
            self.roll(max(outline.base_offset, self.offsets.end), now_ms)
        latest = self.epochs.latest_epoch
        if latest is None or outline.highest_epoch > latest:
            self.epochs.assign_from(table)
            self.epochs.store(self._fs, self._path)
        self._write(buffer, table)
        self._set_end(outline.last_offset + 1)
        if self.producers is not None:
            self._update_producers(self.producers, buffer, table)

    def _write(self, buffer: Buffer, table: BatchTable) -> None:
        active = self.segments.active
        try:
            active.append(buffer, table)
        except StorageError as error:
            self.producers = None
            try:
                stands: object = active.cut_torn_tail()
                self._set_end(active.next_offset())
            except StreamLogError as second:  # nobody knows what stands, recovery finds out
                self.needs_recovery, stands = True, f"an unknown number of ({second})"
            raise UnknownOutcomeError(
                f"the disk refused an append after {stands} whole batches",
                path=active.path,
                position=active.size,
                offset=self.offsets.end,
                got=str(error),
                hint="make room on the disk, then see where the log ends and append the rest",
            ) from error

    def _update_producers(
        self, producers: ProducerStateManager, buffer: Buffer, table: BatchTable
    ) -> None:
        """Let the producers follow what was written.

        Raises:
            UnknownOutcomeError: The transaction index refused a marker that stands in the log.
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
                hint="make room on the disk; the next append rebuilds the index from the log",
            ) from error
        producers.on_high_watermark(self.offsets.high_watermark)

    def _set_end(self, end: int) -> None:
        start, _, _, recovery_point = self.offsets
        self.offsets = LogOffsets.of_one_replica(start, end, recovery_point)

    def check_follows(self, table: BatchTable) -> None:
        """Raise where batches do not go on from the log's end; see `append.check_follows`."""
        epoch = self.epochs.epoch_for_offset(self.offsets.end) or 0
        check_follows(table, path=self._path, log_end_offset=self.offsets.end, epoch=epoch)

    # ---- roll, sync, truncate ------------------------------------------------------------------
    def roll(self, base_offset: int, now_ms: int) -> None:
        """Start a segment: what lies before it is synced first, then its file and directory."""
        active = self.segments.active
        if active.is_empty and active.base_offset == base_offset:
            active.created_ms = now_ms  # Kafka makes it anew, and its age counts from then
            return
        self.check_named()
        producers = self.producer_state(now_ms)
        active.seal()
        self.sync(now_ms)
        producers.map_end_offset = base_offset  # which may lie behind a gap
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

    def _draw_jitter(self) -> None:
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        self._jitter_ms = self._random.randrange(bound) if bound > 0 else 0

    def sync(self, now_ms: int) -> None:
        """Make everything up to the log end durable.

        Raises:
            PoisonedError: An fsync failed: nothing about these files can be believed any more.
        """
        self._sync(now_ms)

    def _sync(self, now_ms: int, *, leave_names: bool = False) -> None:
        segments = self.segments.starting_at(self.offsets.recovery_point)
        self._sync_records(segments, leave_names=leave_names)
        # Not the log end, which lies above the last batch where the log was cut before its start.
        recovery_point = self.segments.active.next_offset()
        self.offsets = self.offsets._replace(recovery_point=recovery_point)
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
                hint="mend the disk, then open the partition anew",
            ) from error
        self.check_named()  # or what is called durable may be in a file that has no name

    def check_named(self) -> None:
        """Raise where the active segment's name stands for another file than the one open here.

        Raises:
            PoisonedError: It was removed or replaced behind this handle's back.
        """
        active = self.segments.active
        if active.is_replaced(grows=True):
            raise PoisonedError(
                "the file was removed or replaced while it was open: what was appended may be lost",
                path=active.path,
                hint="find out what has replaced it, then open the partition again",
            )

    def end_before(self, offset: int) -> int:
        """Return an offset up to which records stay where the log is cut at `offset`.

        It may lie below the last one that does: in front of the cut a gap may gape, as behind a
        batch that was cut before, and only the index is asked.
        """
        at = self.segments.floor_index(offset - 1)
        if at < 0:
            return offset
        segment = self.segments[at]
        position = segment.approximate_position(offset)
        known = segment.offset_at(position - 1) if position else None
        return segment.base_offset if known is None else known

    def truncate(self, offset: int, now_ms: int) -> None:
        """Remove everything from `offset` on; a batch that straddles it goes whole.

        The log then ends behind its last batch, or where it starts: as whoever opens it finds it.
        """
        self.producers = None
        highest = self.leader_epoch
        gone = [segment for segment in self.segments if segment.base_offset >= offset]
        kept = self.segments.without(gone)
        for segment in reversed(gone):
            segment.delete_files()
            segment.close()
        if gone:  # a power cut must not bring them back behind what is cut next
            self._fs.sync_directory(self._path)
        if len(kept) == 0:
            self._add_segment(offset, now_ms, kept)
        else:
            self.before_sync()  # or a power cut could undo what others have seen
            kept.active.truncate_to(offset)
            self.segments = kept
            self._sync_records([kept.active])
        start = min(self.offsets.start, offset)
        # What the next opening finds: a log end above its last batch is gone after a crash, and a
        # commit that was decided there could never be applied.
        end = max(self.segments.active.next_offset(), start)
        remove_snapshots_above(self._fs, self._path, end)
        self._fs.sync_directory(self._path)
        recovery_point = min(self.offsets.recovery_point, self.segments.active.next_offset())
        self.offsets = LogOffsets.of_one_replica(start, end, recovery_point)
        self.truncate_epochs()
        if self.epochs.latest_epoch is None and not self.segments.active.is_empty:
            # What is left of the time before the log start has an epoch; none may be below it.
            self.epochs.assign(highest, end)
            self.epochs.store(self._fs, self._path)

    def raise_log_start(self, offset: int) -> None:
        """Let the log begin at `offset`, once that is durable; its segments stay for now."""
        self.offsets = self.offsets._replace(start=offset)
        self.epochs.truncate_from_start(offset)
        self.epochs.store(self._fs, self._path)
        if self.producers is not None:
            self.producers.on_log_start_offset(offset)

    def drop_below(self, base_offset: int, now_ms: int) -> None:
        """Take the segments below one out of the log, whose start is not below that one."""
        gone = [segment for segment in self.segments if segment.base_offset < base_offset]
        self.segments = self.segments.without(gone)
        leftovers.set_aside(self._fs, gone, now_ms=now_ms)
        leftovers.set_aside_below(self._fs, self._path, base_offset, now_ms=now_ms)
        self._remove_stale_snapshots()
        self._fs.sync_directory(self._path)

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the files of segments that were taken out of the log some time ago."""
        names = self._fs.list(self._path)
        delay_ms = self.config.file_delete_delay_ms
        leftovers.remove_due(self._fs, self._path, names, now_ms=now_ms, delay_ms=delay_ms)

    def replace(self, replaced: Sequence[Segment], by: Segment, now_ms: int) -> None:
        """Put a cleaned segment, synced, in the place of one or more sealed ones.

        What the names say at each moment is told in `leftovers`, which finishes this after a
        crash; so each step is durable before the next.

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

    def truncate_epochs(self) -> None:
        """Forget the epochs that start at or above the log end."""
        self._truncate_epochs(self.offsets.end)

    def _truncate_epochs(self, end_offset: int) -> None:
        self.epochs.truncate_from_end(end_offset)
        self.epochs.store(self._fs, self._path)

    def producer_state(self, now_ms: int) -> ProducerStateManager:
        """Return the state of the idempotent producers, read from the log when first asked for."""
        producers = self.producers
        if producers is None:  # assigned when it is complete: other threads read beside
            producers = ProducerStateManager.load(
                self._fs,
                self._path,
                segments=self.segments,
                log_start_offset=self.offsets.start,
                log_end_offset=self.offsets.end,
                now_ms=now_ms,
                expiration_ms=self._producer_expiration_ms,
            )
            producers.on_high_watermark(self.offsets.high_watermark)
            self.producers = producers
        return producers

    def seal(self, now_ms: int) -> None:
        """Leave the files as a clean shutdown does: final index entries, a producer snapshot."""
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
