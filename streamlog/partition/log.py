"""One partition, open for writing: append, read, truncate, under the partition's lock.

Several processes may have the same partition open. Each append or commit takes the partition's
lock and first catches up with other writers (`writing`). Reading takes no lock: it works on the
immutable list of segments and the offsets that this handle knows.

    append:  lock, catch up → validate, assign offsets and epoch → producer state → roll if due →
             write → index → flush if due → unlock

A `Log` knows its log root's checkpoints and settings, but neither topics, nor commits, nor other
replicas: `root.partition_log.PartitionLog` adds the first, implementations of `Decided` and
`Replicated` the others.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol, TypeVar

from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    FileMissingError,
    InconsistentTopicIdError,
    NotLeaderError,
    UnknownTopicError,
)
from streamlog.fs.api import Buffer
from streamlog.fs.log_root import LogRoot
from streamlog.partition.append import AppendInfo
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.iteration import IterableLog
from streamlog.partition.local_log import LocalLog
from streamlog.partition.locks import Patience, WriterLock
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.producer_state import ProducerState
from streamlog.partition.read import FetchInfo, Slice, fetch, locate
from streamlog.partition.replica import Replica
from streamlog.partition.replicated import Replicated
from streamlog.partition.root_marks import RootMarks
from streamlog.partition.segments import OffsetAndTimestamp, Segments, offset_for_timestamp
from streamlog.partition.session import WriterSession
from streamlog.partition.topic_config import ConfigFiles, ServerSettings
from streamlog.records.acks import Acks
from streamlog.records.batch import BatchTable
from streamlog.records.builder import EncodedBatches, InputColumns, encode_columns
from streamlog.records.plain_records import is_quick
from streamlog.records.record import NO_TIMESTAMP, CompressionType, IsolationLevel, Record
from streamlog.records.table import BatchOutline
from streamlog.records.validate import AppendOrigin, validate_append
from streamlog.segment.segment import Segment
from streamlog.topic import TopicPartition, check_partition_directory

__all__ = ["Decided", "Log"]

L = TypeVar("L", bound="Log")

_ALL: Final = Acks.ALL  # an enum takes 0.3 µs to look up a member


class Decided(Protocol):
    """The commits that are decided for one partition and not retired."""

    def waits(self) -> bool:
        """Whether the root has any decision; cheap, and False for most openings."""
        ...

    def apply(self, log: "Log") -> None:
        """Append what the log lacks of them; only within `writing`."""
        ...

    def batches(self, offset: int, size: int) -> Iterable[Buffer]:
        """Return up to `size` bytes of their batches from `offset` on; recovery fills holes."""
        ...

    def end_offset(self) -> int:
        """Return the offset after their last record, 0 without any."""
        ...

    def sync(self) -> None:
        """Make durable which decisions there are."""
        ...

    def discard_above(self, offset: int) -> None:
        """Discard those that reach above `offset`, durably: the replica's leader lacks them.

        Raises:
            UnavailableError: What becomes of one cannot be decided for this partition alone.
        """
        ...


class Log(IterableLog, Replica):
    """A partition open for writing. Iterating yields its records.

    A partition is one of several replicas if it has a register (`LogRoot.partition_register`), or
    `replicated` is given. Only a handle with `replicated` appends as the leader; others may
    append as a follower, and maintain the replica's files.

    Args:
        root: The log root.
        path: Its directory, absolute.
        topic_id: The id of its topic, 22 characters of base64.
        config: Fixed settings; None: those of the topic's files, read again when they change.
        server: The settings of the root.
        patience: How long to wait for other writers.
        marks: The recovery points and log starts of the root.
        decided: The commits that are decided for this partition.
        replicated: Its other replicas, if this handle is to lead them; the log closes it.

    Attributes:
        path: Its directory.
        root: The log root the directory lies in.
        topic_partition: What the directory is named after.
        topic_id: The id of its topic.
        on_append: Called after each append of this handle, under the partition's lock, with the
            segment, the batches and their headers; it must not raise. Not called for one of
            several replicas: readers see its records later.
    """

    on_append: Callable[[Segment, Buffer, BatchTable], None] | None = None

    def __init__(
        self,
        root: LogRoot,
        path: str,
        *,
        topic_id: str,
        config: LogConfig | None,
        server: ServerSettings,
        patience: Patience,
        marks: RootMarks,
        decided: Decided,
        replicated: "Replicated[Log] | None" = None,
    ) -> None:
        self.path, self.root = path, root.path
        self.topic_partition: TopicPartition = check_partition_directory(path)
        self.topic_id = topic_id
        self._log_root, self._fs, self._clock = root, root.fs, root.clock
        self._decided, self._replicated = decided, replicated
        source = ConfigFiles(root, self.topic_partition.topic, server)
        self._log = LocalLog(
            root,
            path,
            self.topic_partition,
            config=config or source.load(),
            producer_expiration_ms=server.load().producer_id_expiration_ms,
            is_replicated=replicated is not None,
        )
        lock = WriterLock(root, self.topic_partition, patience=patience)
        self._session = WriterSession(
            root,
            self._log,
            lock,
            path=path,
            partition=self.topic_partition,
            topic_id=topic_id,
            marks=marks,
            config_source=source if config is None else None,
            restore=decided.batches,
            apply_decided=self._apply_decided,
            has_decided=decided.waits,
            next_epoch=self._next_epoch,
        )
        self._begin()

    def _begin(self) -> None:
        """Look at the files for the first time; if that fails, release everything."""
        try:
            self.catch_up()
            self._log.remove_deleted(self._clock.now_ms())
        except BaseException:  # the caller gets no handle to close
            self._session.close(lambda: None)
            self._leave(in_order=False)
            raise

    # ---- what it knows, as of its last look; nothing is locked ---------------------------------
    @property
    def log_root(self) -> LogRoot:
        """The log root, with its file system and clock."""
        return self._log_root

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        return self._log.config

    @property
    def offsets(self) -> LogOffsets:
        """Log start, high watermark, log end and recovery point, taken together."""
        return self._log.offsets

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._log.offsets.start

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets, as this handle knows it."""
        return self._log.offsets.end

    @property
    def high_watermark(self) -> int:
        """Records below it are committed; the log end while a topic has one replica."""
        return self._log.offsets.high_watermark

    @property
    def is_replicated(self) -> bool:
        """Whether the partition is one of several replicas."""
        return self._log.is_replicated

    @property
    def is_locked(self) -> bool:
        """Whether this thread holds the partition's lock through this handle."""
        return self._session.depth > 0

    @property
    def last_stable_offset(self) -> int:
        """No transaction is open below it."""
        unstable = self._log.producer_state(self._clock.now_ms()).first_unstable_offset
        return self._log.offsets.stable(unstable)

    @property
    def recovery_point(self) -> int:
        """Records below it are synced."""
        return self._log.offsets.recovery_point

    @property
    def leader_epoch(self) -> int:
        """The epoch the next batch carries."""
        return self._log.leader_epoch

    @property
    def leader_epochs(self) -> LeaderEpochCache:
        """The start offset of each epoch."""
        return self._log.epochs

    @property
    def producers(self) -> Mapping[int, ProducerState]:
        """The state of each idempotent producer, by id."""
        return self._log.producer_state(self._clock.now_ms()).producers

    @property
    def segments(self) -> Segments:
        """The current segments; the list is immutable, a change replaces it."""
        return self._log.segments

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._log.segments.size

    # ---- the lock ----------------------------------------------------------------------------
    def writing(self) -> AbstractContextManager[None]:
        """Hold the partition's lock to append, caught up with other writers; may be nested.

        Raises: As `WriterSession.writing` says; NotLeaderError where another replica leads.
        """
        return self._writing(leads=True)

    def locked(self) -> AbstractContextManager[None]:
        """Hold the partition's lock as `writing` does, but not to append: any replica may."""
        return self._writing(leads=False)

    @contextlib.contextmanager
    def _writing(self, *, leads: bool) -> Iterator[None]:
        with self._session.guard(), self._session.writing:
            if leads and self._log.is_replicated:
                self._lead()
            yield

    @contextlib.contextmanager
    def _changing(self) -> Iterator[LocalLog]:
        """Hold the lock with the log marked dirty, and yield its files to be changed."""
        with self._session.guard(), self._session.writing, self._session.changing:
            yield self._log

    def catch_up(self) -> None:
        """Learn of other writers, and apply decided commits that wait for this partition.

        Raises: As `writing`, but not NotLeaderError without `replicated`.
        """
        with self._writing(leads=self._replicated is not None):
            pass

    def _learn(self) -> None:
        if not self._session.is_writing:
            with self.locked():
                pass

    def _lead(self) -> "Replicated[Log]":
        """Return the other replicas, once it is established that this one leads."""
        replicated, session = self._replicated, self._session
        if replicated is None:
            raise NotLeaderError(
                "the partition is replicated, and this handle does not lead it",
                path=self.path,
                hint="append through the partition's leader",
            )
        if not session.is_leading:
            session.is_leading = True  # before the call, which may apply decided commits
            try:
                replicated.begin(self)
                session.take_stock()
            except BaseException:
                session.is_leading = False
                raise
        return replicated

    def _next_epoch(self) -> int | None:
        """Return the leader epoch to start after offsets were lost."""
        if self._replicated is not None:
            return self._replicated.epoch_due(self)
        return self._log.leader_epoch + 1

    def set_pending(self, pending: bool) -> None:  # noqa: FBT001 - says what it sets
        """Set or clear the flag `pending`; see `WriterSession.set_pending`."""
        self._session.set_pending(pending)

    def apply_decided(self) -> None:
        """Append what the log lacks of decided commits; only within `writing`.

        Raises:
            CorruptDataError: A decision, a staged file or the log is damaged: the partition must
                not be written before that is repaired.
            CommitMismatchError: Other records stand where a decision's should.
            UnavailableError: The disk refuses; some whole batches may stand.
        """
        self._decided.apply(self)

    def _apply_decided(self) -> None:
        if self._decided.waits():
            self.apply_decided()

    def _discard_decided_above(self, offset: int) -> None:
        self._decided.discard_above(offset)

    # ---- append ------------------------------------------------------------------------------
    def append(
        self,
        records: Iterable[Record],
        *,
        compression: str | CompressionType | None = None,
        acks: str | int | Acks = Acks.ALL,
    ) -> AppendInfo:
        """Append records as one batch, or as several if one would be too large.

        Args:
            records: One or more; a missing timestamp becomes the time of this call.
            compression: A codec's name; the topic's `compression.type` may override it.
            acks: How many replicas must hold them: 0, 1 or all; the same with one replica.

        Returns:
            Their offsets; `flush.messages` and `flush.ms` decide when they are durable.

        Raises:
            InvalidRecordError: No record, or one that the topic refuses.
            MessageTooLargeError: A record above `max.message.bytes`.
            NotLeaderError: Another replica leads the partition.
            NotEnoughReplicasError: Too few replicas are in sync; nothing was written.
            UnknownOutcomeError: The disk failed during the write; some batches may be appended.
                NotEnoughReplicasAfterAppendError: all are, but too few replicas hold them.
        """
        columns = InputColumns.from_records(records, now_ms=self._clock.now_ms())
        codec, size = CompressionType.of(compression), self.config.max_message_bytes
        batches = encode_columns(columns, compression=codec, batch_size=size)
        return self.append_as_leader(batches.buffer, origin=AppendOrigin.COORDINATOR, acks=acks)

    def append_as_leader(
        self,
        batches: Buffer,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        acks: str | int | Acks = Acks.ALL,
    ) -> AppendInfo:
        """Append encoded batches; their offsets, epoch and, if required, timestamps are assigned.

        Args:
            batches: Whole record batches, base offsets from 0; not modified.
            origin: Their source; decides how strictly they are checked.
            acks: How many replicas must hold them: 0, 1 or all; the same with one replica.

        Returns:
            Their offsets; those of the first time if an idempotent producer repeats them.

        Raises:
            InvalidRequestError: A batch or record that a leader refuses; nothing was written.
            CorruptRecordError: A checksum is wrong; nothing was written.
            FencedError: An idempotent producer out of order, or another replica leads; nothing was
                written.
            NotEnoughReplicasError: Too few replicas are in sync; nothing was written.
            UnknownOutcomeError: The disk failed during the write; some batches may be appended.
                NotEnoughReplicasAfterAppendError: all are, but too few replicas hold them.

        Source: UnifiedLog.appendAsLeader, Partition.appendRecordsToLeader.
        """
        if acks is not _ALL:
            acks = Acks.of(acks)
        with self._session.guard(), self._session.writing:
            if self._log.is_replicated:
                self._lead().before_append(acks)
            now_ms = self._clock.now_ms()
            buffer, table = self._validated(batches, origin, now_ms)
            return self._append(
                buffer,
                table,
                origin=origin,
                now_ms=now_ms,
                acks=acks,
                log_append_time=self._log.rules.append_time(now_ms),
            )

    def append_at_once(
        self, batches: Buffer, *, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo | None:
        """Append as `append_as_leader` does, unless that may wait for anything.

        It would for a lock that is held, a sync, another replica, or an index or kernels that are
        not loaded. Batches are validated here: small ones, without compression, take a fraction of
        a millisecond.

        Returns:
            Their offsets; None where it might wait: nothing was changed.

        Raises:
            StreamLogError: As `append_as_leader` does.
        """
        session, files = self._session, self._log
        if files.is_replicated or self._replicated is not None or not is_quick(batches):
            return None
        with session.guard():
            if not session.begin_at_once():
                return None
            with session.begun:
                now_ms = self._clock.now_ms()
                if files.rules.codec is not None:  # they may have to be compressed
                    return None
                buffer, table = self._validated(batches, origin, now_ms)
                outline = table.outline()
                is_due = session.is_sync_due(outline.last_offset + 1, now_ms)
                if is_due or not files.only_writes(outline, now_ms):
                    return None
                time_ms = files.rules.append_time(now_ms)
                return self._append(
                    buffer, table, origin=origin, now_ms=now_ms, log_append_time=time_ms
                )

    def read_settings_again(self) -> None:
        """Let the next append look at the settings: `append_at_once` does so every 5 ms only."""
        self._session.settings_seen_until_ms = 0.0

    def _validated(self, batches: Buffer, origin: AppendOrigin, now_ms: int) -> EncodedBatches:
        return validate_append(
            batches,
            base_offset=self._log.offsets.end,
            leader_epoch=self._log.leader_epoch,
            rules=self._log.rules,
            now_ms=now_ms,
            origin=origin,
        )

    def append_decided(self, buffer: Buffer, table: BatchTable, *, acks: Acks = Acks.ALL) -> None:
        """Append batches of a decided commit, byte for byte; only within `writing`.

        Too few replicas in sync do not stop it: the decision stands. `check_replicas` first.

        Args:
            buffer: The batches.
            table: Their headers.
            acks: How many replicas must hold them; the same with one replica.

        Raises:
            UnexpectedAppendOffsetError: They start below the log end.
            UnknownOutcomeError: The disk failed during the write; some batches may be appended.
                NotEnoughReplicasAfterAppendError: all are, but too few replicas hold them.
        """
        epoch = None
        if self._log.is_replicated:
            self._lead()
            epoch = self._log.leave_empty_epochs(table)
        try:
            self._log.check_follows(table)
            now_ms = self._clock.now_ms()
            self._append(buffer, table, origin=AppendOrigin.COMMIT, now_ms=now_ms, acks=acks)
        finally:
            if epoch is not None:
                self._log.start_epoch(epoch)

    def check_replicas(self, acks: Acks) -> None:
        """Check that an append would find enough replicas in sync; only within `writing`.

        Raises:
            NotLeaderError: Another replica leads the partition.
            NotEnoughReplicasError: Fewer than `min.insync.replicas`, and `acks` is all.
        """
        if self._log.is_replicated:
            self._lead().before_append(acks)

    def _append(
        self,
        buffer: Buffer,
        table: BatchTable,
        *,
        origin: AppendOrigin,
        now_ms: int,
        acks: Acks | None = None,
        log_append_time: int = NO_TIMESTAMP,
    ) -> AppendInfo:
        """Append checked batches; `acks`: None for a follower's copy."""
        outline = table.outline()
        replicated = None if acks is None else self._replicated
        if outline.has_producer and origin is not AppendOrigin.COMMIT:
            repeated = self._log.producer_state(now_ms).check(
                buffer, table, origin=origin, now_ms=now_ms
            )
            if repeated is not None:
                if replicated is not None and acks is not None:
                    replicated.repeated(self, repeated.last_offset + 1, acks)
                return AppendInfo.of_repeated(repeated, leader_epoch=self.leader_epoch)
        if replicated is not None and acks is not None:
            sync = functools.partial(self._session.sync_if_due, now_ms)
            copy = functools.partial(replicated.appended, self, buffer, table, acks, sync)
            self._append_and_copy(buffer, table, outline, copy, now_ms=now_ms)
        else:
            with self._session.changing:
                self._log.append(buffer, table, outline, now_ms=now_ms)
                self._session.sync_if_due(now_ms)
            if self.on_append is not None:
                self.on_append(self._log.segments.active, buffer, table)
        return AppendInfo.of(outline, log_append_time=log_append_time)

    def _append_and_copy(
        self,
        buffer: Buffer,
        table: BatchTable,
        outline: BatchOutline,
        copy: Callable[[], None],
        *,
        now_ms: int,
    ) -> None:
        """Append as the leader of other replicas, and `copy` to them while this log is synced."""
        if self._session.is_sync_due(outline.last_offset + 1, now_ms):
            with self._session.changing_to_sync:  # the state is written once, at the end
                self._log.append(buffer, table, outline, now_ms=now_ms)
                copy()
            return
        with self._session.changing:
            self._log.append(buffer, table, outline, now_ms=now_ms)
        copy()  # not within `changing`: recovery has nothing to do, however long copies take

    # ---- roll --------------------------------------------------------------------------------
    def roll(self) -> int:
        """Start a new segment at the log end and return its base offset."""
        with self._session.guard(), self._session.writing:
            with self._session.changing:
                self._log.roll(self._log.offsets.end, self._clock.now_ms())
            return self._log.segments.active.base_offset

    # ---- flush -------------------------------------------------------------------------------
    def flush(self) -> None:
        """Make everything appended so far durable.

        Raises:
            PoisonedError: An fsync failed; this handle cannot be used any more.
        """
        with self._session.guard(), self._session.writing:
            self._session.sync(self._clock.now_ms())
            self._session.checkpoint()
            self._share_high_watermark()

    def sync(self) -> None:
        """Flush, but let the caller write the recovery points of many partitions at once."""
        with self._session.guard(), self._session.writing:
            self._session.sync_records(self._clock.now_ms())
            self._share_high_watermark()

    def _share_high_watermark(self) -> None:
        if self._replicated is not None:
            self._replicated.share_high_watermark(self)

    # ---- read --------------------------------------------------------------------------------
    def read(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        isolation: str | IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> FetchInfo:
        """Read whole batches, beginning with the one that holds `offset`.

        One read ends after about `max_bytes` or at the end of a segment; continue at its
        `next_offset`, or iterate over all records with `records`.

        Args:
            offset: The first offset wanted; at the log end the result is empty.
            max_bytes: The approximate size; the first batch is whole however large it is.
            isolation: `read_uncommitted` reads to the high watermark, `read_committed` to the
                last stable offset and without aborted transactions; a level or its name.

        Returns:
            The batches, checked.

        Raises:
            InvalidRequestError: The handle is closed, or the isolation level is unknown.
            OffsetOutOfRangeError: Below the log start or above the log end.
            CorruptRecordError: A batch is damaged; names file, position and offset.

        Source: UnifiedLog.read.
        """
        self._session.check_open()
        level = IsolationLevel.of(isolation)
        if offset >= self.high_watermark:
            self._learn()
        try:
            return self._fetch(offset, max_bytes, level)
        except FileMissingError:  # compaction replaced it before this handle opened it
            with self.locked():
                pass
            return self._fetch(offset, max_bytes, level)

    def _fetch(self, offset: int, max_bytes: int, isolation: IsolationLevel) -> FetchInfo:
        committed = isolation is IsolationLevel.READ_COMMITTED
        offsets = self._log.offsets
        stable = self.last_stable_offset if committed else offsets.high_watermark
        return fetch(
            self._log.segments,
            offset,
            offsets=offsets,
            last_stable_offset=stable,
            upper=stable,
            max_bytes=max_bytes,
            is_committed=committed,
            max_decompressed=self.config.readable_decompressed_bytes,
        )

    def locate(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        isolation: str | IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> Slice | None:
        """Find the bytes that `read` would return, without reading them; see `read.locate`.

        Aborted transactions are in it; the consumer leaves them out.

        Raises:
            OffsetOutOfRangeError: Below the log start or above the log end.
        """
        self._session.check_open()
        is_committed = IsolationLevel.of(isolation) is IsolationLevel.READ_COMMITTED
        if offset >= self.high_watermark:
            self._learn()
        segments, offsets = self._log.segments, self._log.offsets
        upper = self.last_stable_offset if is_committed else offsets.high_watermark
        found = locate(segments, offset, offsets=offsets, upper=upper, max_bytes=max_bytes)
        return None if found is None else found[1]

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Return the first record whose timestamp is at least `timestamp`, None if there is none.

        Args:
            timestamp: Milliseconds since 1970.

        Source: UnifiedLog.fetchOffsetByTimestamp.
        """
        self._session.check_open()
        return offset_for_timestamp(self._log.segments, timestamp, self._log.offsets)

    # ---- roll, retain, compact, truncate -------------------------------------------------------
    def raise_log_start(self, offset: int) -> None:
        """Raise the log start to `offset`, unless it is above already; durable.

        Segments below the log start stay until `drop_segments`.

        Raises:
            PoisonedError: An fsync failed; the log start is unchanged.

        Source: UnifiedLog.maybeIncrementLogStartOffset.
        """
        with self._changing():
            self._session.raise_log_start(offset)

    def drop_segments(self, end_offset: int) -> None:
        """Delete the segments below `end_offset`, and let the log begin there; durable.

        Args:
            end_offset: A base offset of a segment, or the log end: then a new segment is started.

        Raises:
            StorageError: A file cannot be renamed; the next call finishes it.
        """
        with self._changing() as files:
            now_ms = self._clock.now_ms()
            if files.segments.active.base_offset < end_offset:
                files.roll(files.offsets.end, now_ms)
            self._session.raise_log_start(end_offset)
            files.drop_below(end_offset, now_ms)

    def replace_segments(self, replaced: Sequence[Segment], by: Segment) -> None:
        """Replace one or more sealed segments by a cleaned one that is synced; durable.

        Source: UnifiedLog.replaceSegments.
        """
        with self._changing() as files:
            files.replace(replaced, by, self._clock.now_ms())

    def truncate_undecided(self, offset: int) -> bool:
        """Truncate the log to `offset` unless decided commits reach above it.

        Batches go whole, so the log may end below `offset` then: where its last batch does. (A
        running broker keeps `offset` for its log end until it restarts.) A log that is truncated
        below its start begins at `offset` from then on.

        Args:
            offset: No record from here on stays; at or above the log end nothing is removed.

        Returns:
            False where decided commits would bring back what was removed; nothing was changed.

        Source: UnifiedLog.truncateTo.
        """
        with self._session.guard(), self._session.writing:
            if self._decided.end_offset() > offset:
                return False
            # The files of retired decisions are removed, but maybe not durably: a decision that
            # no ledger knows would come back to a log that ends below it.
            self._decided.sync()
            self._session.truncate(offset)
            return True

    # ---- close ---------------------------------------------------------------------------------
    def seal(self) -> None:
        """Sync, write final index entries and a producer snapshot, as a clean shutdown does."""
        with self._changing() as files:
            files.seal(self._clock.now_ms())

    def close(self) -> None:
        """Sync, write the marks that make the next opening fast, release the files."""
        is_in_order = False
        try:
            if not self._session.is_closed:
                is_in_order = self._session.close(self._leave_in_order)
        finally:
            self._leave(in_order=is_in_order)

    def _leave(self, *, in_order: bool) -> None:
        """Release the files; `in_order`: everything is durable and the marks are written."""
        replicated, self._replicated = self._replicated, None
        try:
            self._log.close()
        finally:
            if replicated is not None:
                replicated.close()

    def _leave_in_order(self) -> None:
        """Sync, snapshot the producers and write the recovery point, all up to the log end."""
        # Nothing is left of a deleted topic, also if it was created again.
        gone = (FileMissingError, UnknownTopicError, InconsistentTopicIdError)
        with contextlib.suppress(*gone), self._session.guard(), self._session.writing:
            self.seal()
            self._session.checkpoint()
            self._share_high_watermark()

    def __enter__(self: L) -> L:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = " closed" if self._session.is_closed else ""
        name = type(self).__name__
        return f"<{name} {self.path} {self.log_start_offset}..{self.log_end_offset}{closed}>"
