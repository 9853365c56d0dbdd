"""One partition, open for writing: the object users hold.

Several processes may have the same partition open. Whoever writes takes the partition's lock for
one append or one commit and first catches up with what the others did (`writing`). Reading never
locks: it works on the immutable list of segments and the offsets this handle knows.

    append:  lock, catch up → validate, assign offsets and epoch → producer state → roll if due →
             write → index → flush if due → unlock
"""

import contextlib
import os
import random as random_module
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

from streamlog.clock import Clock, SystemClock
from streamlog.commits.apply import apply_waiting
from streamlog.commits.ledger import Ledgers
from streamlog.commits.pending import PendingDecisions
from streamlog.config.log_config import LogConfig
from streamlog.errors import FileMissingError, InvalidConfigError, UnknownTopicError
from streamlog.fs.api import Buffer, FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.partition import locks
from streamlog.partition.append import AppendInfo, OffsetAndTimestamp, whole_batches
from streamlog.partition.iteration import IterableLog
from streamlog.partition.local_log import LocalLog
from streamlog.partition.log_facts import LogFacts
from streamlog.partition.read import Bounds, FetchInfo, fetch
from streamlog.partition.session import WriterSession
from streamlog.partition.time_search import offset_for_timestamp
from streamlog.partition.waiting import Patience
from streamlog.partition.writer_lock import WriterLock
from streamlog.records.batch import BatchTable
from streamlog.records.builder import InputColumns, encode_columns
from streamlog.records.record import NO_TIMESTAMP, CompressionType, IsolationLevel, Record
from streamlog.records.validate import AppendOrigin, validate_append
from streamlog.root import registry, topics
from streamlog.root.delete_records import delete_records
from streamlog.root.open_writers import OpenWriter
from streamlog.root.planted import refuse_planted
from streamlog.root.root_marks import RootMarks
from streamlog.root.roots import read_server_config
from streamlog.topic import check_partition_directory

__all__ = ["PartitionLog"]


class PartitionLog(LogFacts, IterableLog):
    """A partition open for writing; see `PartitionLog.open`. Iterating yields its records.

    Attributes:
        path: Its directory.
        root: The log root the directory lies in.
        topic_partition: What the directory is named after.
        topic_id: The id its topic got when it was made, 22 characters of base64.
    """

    def __init__(
        self,
        path: str,
        *,
        config: LogConfig | None,
        fs: FileSystem,
        clock: Clock,
        random: random_module.Random,
        lock_timeout_ms: float | Patience | None,
        marks: RootMarks | None,
        decisions: PendingDecisions | None,
    ) -> None:
        self.path, self.root = path, os.path.dirname(path)
        self.topic_partition = partition = check_partition_directory(path)
        self._fs, self._clock, self._random = fs, clock, random
        locks.refuse_live_broker(fs, self.root)
        refuse_planted(fs, self.root, str(partition))
        self.topic_id = registry.ensure_partition(fs, clock, self.root, partition, random=random)
        self._decisions = decisions or PendingDecisions(fs, self.root)
        source = topics.ConfigFiles(fs, self.root, partition.topic)
        server = read_server_config(fs, self.root)
        patience = Patience.of(lock_timeout_ms, default_ms=server.streamlog_lock_timeout_ms)
        self._log = LocalLog(
            fs,
            self.path,
            partition,
            config=config or source.load(),
            random=random,
            producer_expiration_ms=server.producer_id_expiration_ms,
        )
        self._session = WriterSession(
            fs,
            clock,
            self._log,
            WriterLock(fs, clock, random, root=self.root, partition=partition, patience=patience),
            path=self.path,
            root=self.root,
            partition=partition,
            topic_id=self.topic_id,
            marks=marks or RootMarks(fs, clock, self.root),
            decisions=self._decisions,
            config_source=source if config is None else None,
            apply_pending=self._apply_pending,
        )
        self._writer = OpenWriter.enter(fs, clock, self.root) if marks is None else None
        self._begin()

    def _begin(self) -> None:
        """Look at the files for the first time; where that fails, release everything."""
        try:
            self.catch_up()
            self._log.remove_deleted(self._clock.now_ms())
        except BaseException:  # the caller gets no handle that it could close
            self._session.close(lambda: None)
            self._leave(in_order=False)
            raise

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        config: LogConfig | None = None,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        random: random_module.Random | None = None,
        lock_timeout_ms: float | Patience | None = None,
        marks: RootMarks | None = None,
        decisions: PendingDecisions | None = None,
    ) -> "PartitionLog":
        """Open a partition for writing; make its topic where that is missing.

        What a crash left is put right first: a torn tail is cut and kept aside, indexes are
        rebuilt, decided commits are applied.

        Args:
            path: Its directory, `ROOT/TOPIC-PARTITION`; a relative one is of the current directory.
            config: Settings to use instead of the topic's own.
            fs: The file system; the machine's own by default.
            clock: The clock; the machine's own by default.
            random: For topic ids and jitter.
            lock_timeout_ms: How long to wait for another writer; the root's setting by default.
            marks: Those of the `LogManager` that stands for this writer in the root's books.
            decisions: Those of the `LogManager`, so that each is parsed once for all partitions.

        Returns:
            The open partition; close it, or use it as a context manager.

        Raises:
            InvalidTopicError: The path is not named after a partition.
            InvalidConfigError: `config` is something else.
            UnknownTopicError: The topic has no such partition; or it is missing, and the root's
                `auto.create.topics.enable=false` or `num.partitions` stands against making it.
            CorruptDataError: Acknowledged bytes are damaged; nothing was changed.
            UnavailableError: Another process kept the lock, a running broker owns the root, or
                the disk refuses.

        Source: UnifiedLog.create.
        """
        if not isinstance(config, LogConfig | None):
            raise InvalidConfigError(
                "a partition is opened with a LogConfig",
                got=f"{type(config).__name__}: {config!r:.80}",
                expected="a LogConfig",
            )
        return cls(
            os.path.abspath(path),
            config=config,
            fs=fs or LocalFileSystem(),
            clock=clock or SystemClock(),
            random=random or random_module.Random(),
            lock_timeout_ms=lock_timeout_ms,
            marks=marks,
            decisions=decisions,
        )

    # ---- the lock ----------------------------------------------------------------------------
    def writing(self) -> AbstractContextManager[None]:
        """Hold the partition's lock, caught up with other writers; may be nested.

        Raises: As `WriterSession.writing` says.
        """
        return self._writing()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._session.guard(), self._session.writing:
            yield

    @contextlib.contextmanager
    def changing(self) -> Iterator[LocalLog]:
        """Hold the lock with the log marked dirty, and give out its files to be changed."""
        with self._session.guard(), self._session.writing, self._session.changing:
            yield self._log

    def catch_up(self) -> None:
        """Learn what other writers did, and apply decided commits that wait for this partition."""
        with self._session.guard(), self._session.writing:
            pass

    def _learn(self) -> None:
        if not self._session.is_writing:
            self.catch_up()

    def set_pending(self, pending: bool) -> None:  # noqa: FBT001 - says what it sets
        """Raise or lower the flag `pending`; see `WriterSession.set_pending`."""
        self._session.set_pending(pending)

    def _apply_pending(self) -> None:
        ledgers = Ledgers(self._fs, self.root)
        apply_waiting(self._fs, self.root, self, self._decisions, ledgers)

    # ---- append ------------------------------------------------------------------------------
    def append(
        self,
        records: Iterable[Record],
        *,
        compression: str | CompressionType | None = None,
    ) -> AppendInfo:
        """Append records as one batch, or as several where one would be too large.

        Args:
            records: One or more; a missing timestamp becomes the time of this call.
            compression: A codec's name; the topic's `compression.type` may override it.

        Returns:
            Where they went; durable as `flush.messages` and `flush.ms` say.

        Raises:
            InvalidRecordError: No record, or one that the topic refuses.
            MessageTooLargeError: A record above `max.message.bytes`.
            UnknownOutcomeError: The disk failed in the act; some whole batches may stand.
        """
        columns = InputColumns.from_records(records, now_ms=self._clock.now_ms())
        codec, size = CompressionType.of(compression), self.config.max_message_bytes
        batches = encode_columns(columns, compression=codec, batch_size=size)
        return self.append_as_leader(batches.buffer, origin=AppendOrigin.COORDINATOR)

    def append_as_leader(
        self, batches: Buffer, *, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        """Append ready batches; their offsets, epoch and (if need be) timestamps are assigned.

        Args:
            batches: Whole record batches, base offsets from 0; left as they are.
            origin: Who sends them; decides how strictly they are checked.

        Returns:
            Where they went. For an idempotent producer's repetition: where they went then.

        Raises:
            InvalidRequestError: A batch or record that a leader refuses; nothing was written.
            CorruptRecordError: A checksum is wrong; nothing was written.
            FencedError: An idempotent producer out of order; nothing was written.
            UnknownOutcomeError: The disk failed in the act; some whole batches may stand.

        Source: UnifiedLog.appendAsLeader.
        """
        with self._session.guard(), self._session.writing:
            now_ms, config = self._clock.now_ms(), self._log.config
            ready = validate_append(
                batches,
                base_offset=self._log.log_end_offset,
                leader_epoch=self._log.leader_epoch,
                config=config,
                now_ms=now_ms,
                origin=origin,
            )
            stamped = config.message_timestamp_type == "LogAppendTime"
            time_ms = now_ms if stamped else NO_TIMESTAMP
            return self._append(
                ready.buffer, ready.table, origin=origin, now_ms=now_ms, log_append_time=time_ms
            )

    def append_as_follower(self, batches: Buffer) -> AppendInfo:
        """Append batches with the offsets and epochs they carry; gaps upwards are fine.

        Raises:
            UnexpectedAppendOffsetError: They start below the log end, or go back.
            InvalidRecordError: They are not whole batches, or a leader epoch goes back.
            CorruptRecordError: A checksum is wrong.

        Source: UnifiedLog.appendAsFollower.
        """
        table = whole_batches(batches)
        with self._session.guard(), self._session.writing:
            self._log.check_follows(table)
            return self._append(
                batches, table, origin=AppendOrigin.REPLICATION, now_ms=self._clock.now_ms()
            )

    def append_decided(self, buffer: Buffer, table: BatchTable) -> None:
        """Append batches of a decided commit, byte for byte; only within `writing`.

        Raises:
            UnexpectedAppendOffsetError: They start below the log end.
            UnknownOutcomeError: The disk failed in the act; some whole batches may stand.
        """
        self._log.check_follows(table)
        self._append(buffer, table, origin=AppendOrigin.COMMIT, now_ms=self._clock.now_ms())

    def _append(
        self,
        buffer: Buffer,
        table: BatchTable,
        *,
        origin: AppendOrigin,
        now_ms: int,
        log_append_time: int = NO_TIMESTAMP,
    ) -> AppendInfo:
        outline = table.outline()
        if outline.has_producer and origin is not AppendOrigin.COMMIT:
            repeated = self._log.producer_state(now_ms).check(
                buffer, table, origin=origin, now_ms=now_ms
            )
            if repeated is not None:
                return AppendInfo.of_repeated(repeated, leader_epoch=self.leader_epoch)
        with self._session.changing:
            self._log.append(buffer, table, outline, now_ms=now_ms)
            self._session.sync_if_due(now_ms)
        return AppendInfo.of(outline, log_append_time=log_append_time)

    # ---- roll --------------------------------------------------------------------------------
    def roll(self) -> int:
        """Close the active segment, start a new one at the log end, return its base offset."""
        with self._session.guard(), self._session.writing:
            with self._session.changing:
                self._log.roll(self._log.log_end_offset, self._clock.now_ms())
            return self._log.segments.active.base_offset

    # ---- flush -------------------------------------------------------------------------------
    def flush(self) -> None:
        """Make everything appended so far durable.

        Raises:
            PoisonedError: The disk refused; nothing this handle says can be believed any more.
        """
        with self._session.guard(), self._session.writing:
            self._session.sync(self._clock.now_ms())
            self._session.checkpoint()

    def sync(self) -> None:
        """Flush, but leave it to the caller to write the recovery points of many partitions."""
        with self._session.guard(), self._session.writing:
            self._session.sync_records(self._clock.now_ms())

    # ---- read --------------------------------------------------------------------------------
    def read(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        isolation: str | IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> FetchInfo:
        """Read whole batches from the one that holds `offset` on: one read, and not all there is.

        It ends after about `max_bytes`, and at the end of a segment; `next_offset` of what it
        returns says where. `records` iterates over everything.

        Args:
            offset: The first offset wanted; the log end itself gives nothing.
            max_bytes: About how much; the first batch comes whole however large it is.
            isolation: Read to the high watermark, or to the last stable offset and without
                aborted transactions; a level or its name.

        Returns:
            The batches, checked.

        Raises:
            InvalidRequestError: The handle is closed, or no isolation level has this name.
            OffsetOutOfRangeError: Below the log start or above the log end.
            CorruptRecordError: A batch is damaged; names file, position and offset.

        Source: UnifiedLog.read.
        """
        self._session.check_open()
        level = IsolationLevel.of(isolation)
        if offset >= self.log_end_offset:
            self._learn()
        try:
            return self._fetch(offset, max_bytes, level)
        except FileMissingError:  # compaction replaced it before this handle first opened it
            self.catch_up()
            return self._fetch(offset, max_bytes, level)
        self.catch_up()
        return self._fetch(offset, max_bytes, level)

    def _fetch(self, offset: int, max_bytes: int, isolation: IsolationLevel) -> FetchInfo:
        committed = isolation is IsolationLevel.READ_COMMITTED
        end, high = self.log_end_offset, self.high_watermark
        stable = self.last_stable_offset if committed else end
        return fetch(
            self._log.segments,
            offset,
            bounds=Bounds(self.log_start_offset, end, high, stable),
            upper=stable if committed else high,
            max_bytes=max_bytes,
            is_committed=committed,
            max_decompressed=self.config.readable_decompressed_bytes,
        )

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Return the first record whose timestamp is at least `timestamp`, None where none is.

        Args:
            timestamp: Milliseconds since 1970.

        Source: UnifiedLog.fetchOffsetByTimestamp.
        """
        self._session.check_open()
        return offset_for_timestamp(self._log.segments, timestamp, self.log_start_offset)

    # ---- truncate, close ---------------------------------------------------------------------
    def delete_records(self, offset: int, *, force: bool = False) -> int:
        """Let the log begin at `offset`, -1: at its end; see `delete_records`."""
        return delete_records(self, offset, fs=self._fs, clock=self._clock, force=force)

    def truncate_to(self, offset: int) -> None:
        """Cut the log in front of the batch that holds `offset`, or else behind the last one below.

        Batches go whole, so the log may end below `offset` then: where its last batch does. (A
        running broker keeps `offset` for its log end until it restarts.) Commits that reach above
        `offset` are retired first, or they would come back. A log that is cut in front of its
        start begins at `offset` from then on.

        Args:
            offset: No record from here on stays; at or above the log end nothing is removed.

        Raises:
            InvalidRequestError: Within `writing`, where commits would have to be retired.
            StreamLogError: As `writing`; or a commit cannot be retired.

        Source: UnifiedLog.truncateTo.
        """
        self._session.truncate(offset)

    def close(self) -> None:
        """Make everything durable, leave the marks the next opening wants, release the files."""
        is_in_order = False
        try:
            if not self._session.is_closed:
                is_in_order = self._session.close(self._leave_in_order)
        finally:
            self._leave(in_order=is_in_order)

    def _leave(self, *, in_order: bool) -> None:
        self._log.close()
        if self._writer is not None:
            self._writer.leave(in_order=in_order)

    def _leave_in_order(self) -> None:
        """Sync, snapshot the producers and write the recovery point, all of it up to the end."""
        gone = (FileMissingError, UnknownTopicError)  # nothing is left of a deleted topic
        with contextlib.suppress(*gone), self._session.guard(), self._session.writing:
            with self._session.changing:
                self._log.seal(self._clock.now_ms())
            self._session.checkpoint()

    def __enter__(self) -> "PartitionLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = " closed" if self._session.is_closed else ""
        return f"<PartitionLog {self.path} {self.log_start_offset}..{self.log_end_offset}{closed}>"
