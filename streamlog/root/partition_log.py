"""A partition of a log root: a `Log` that knows topics, commits and recorded readers."""

import contextlib
import itertools
import os
import random as random_module
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from streamlog.clock import Clock
from streamlog.commits.apply import DecidedRecords
from streamlog.commits.commit_log import CommitLog
from streamlog.commits.decisions import Decision
from streamlog.commits.mirror import Mirror
from streamlog.commits.pending import PendingDecisions
from streamlog.commits.retirement import Chores, OpenLogs, at_once
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptDataError,
    FileMissingError,
    InvalidConfigError,
    InvalidRequestError,
    LockTimeoutError,
    NotLeaderError,
    OffsetOutOfRangeError,
    StorageError,
    StreamLogError,
    UnknownOutcomeError,
    UnknownTopicError,
)
from streamlog.fs.api import Buffer, FileSystem
from streamlog.fs.log_root import LogRoot, refuse_url
from streamlog.partition.append import AppendInfo
from streamlog.partition.checkpoints import write_high_watermarks
from streamlog.partition.locks import Patience
from streamlog.partition.log import Log
from streamlog.partition.recovery_points import write_recovery_points
from streamlog.partition.replicated import Replicated
from streamlog.partition.root_marks import RootMarks
from streamlog.partition.topic_config import ServerSettings, read_server_config
from streamlog.records.acks import Acks
from streamlog.records.record import CompressionType
from streamlog.records.validate import AppendOrigin
from streamlog.replication.election import ElectionType
from streamlog.replication.partition_state import NO_LEADER, PartitionState
from streamlog.replication.replica_fetcher import ReplicaFetcher
from streamlog.root import registry, topics
from streamlog.root.arrow_rows import appending, is_arrow
from streamlog.root.deleting import check_deletable, check_finished
from streamlog.root.notebook import PARTITION_TITLES, html_table, partition_cells
from streamlog.root.open_writers import OpenWriter
from streamlog.root.placement import Led, Placement
from streamlog.root.readers import Holds
from streamlog.root.replicated_topics import create_if_replicated
from streamlog.root.roots import refuse_live_broker, refuse_planted
from streamlog.topic import TopicPartition, check_partition_directory

__all__ = ["FindReplicas", "LedPartitionLog", "OpenPartitions", "PartitionLog"]

_HIGH_WATERMARK: Final = -1  # DeleteRecordsRequest.HIGH_WATERMARK
_RETIRE_ATTEMPTS: Final = 3
_LEADERS_TRIED: Final = 5
# Another replica may lead; or the leader's disk fails, or is gone.
_MOVES: Final = (NotLeaderError, StorageError, UnknownTopicError)

FindReplicas = Callable[[TopicPartition], Replicated[Log] | None]


class PartitionLog(Log):
    """A partition open for writing; see `PartitionLog.open`. Iterating yields its records.

    Attributes:
        path: Its directory.
        root: The log root the directory lies in.
        topic_partition: What the directory is named after.
        topic_id: The id that its topic got at creation, 22 characters of base64.
    """

    def __init__(
        self,
        root: LogRoot,
        path: str,
        *,
        config: LogConfig | None,
        lock_timeout_ms: float | Patience | None,
        marks: RootMarks | None,
        decisions: PendingDecisions | None,
        server: ServerSettings | None,
        replicated: Replicated[Log] | None,
        mirror: Mirror | None,
    ) -> None:
        partition = check_partition_directory(path)
        refuse_live_broker(root)
        refuse_planted(root, str(partition))
        topic_id = registry.ensure_partition(root, partition)
        decisions = decisions or PendingDecisions(root)
        server = server or ServerSettings(root)
        self._writer = OpenWriter.enter(root) if marks is None else None
        super().__init__(
            root,
            path,
            topic_id=topic_id,
            config=config,
            server=server,
            patience=Patience.of(
                lock_timeout_ms, default_ms=server.load().streamlog_lock_timeout_ms
            ),
            marks=marks or RootMarks(root),
            decided=DecidedRecords(root, partition, topic_id, decisions, mirror),
            replicated=replicated,
        )

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
        server: ServerSettings | None = None,
        replicated: Replicated[Log] | None = None,
        placement: Placement | None = None,
        local: bool = False,
        mirror: Mirror | None = None,
    ) -> "PartitionLog":
        """Open a partition for writing; create its topic if that is missing.

        A crash is repaired first: a torn tail is truncated (a copy is kept), indexes are rebuilt,
        decided commits are applied.

        Args:
            path: Its directory, `ROOT/TOPIC-PARTITION`, absolute or relative.
            config: Settings to use instead of the topic's.
            fs: The file system; the machine's own by default.
            clock: The clock; the machine's own by default.
            random: For topic ids and jitter.
            lock_timeout_ms: How long to wait for another writer; the root's setting by default.
            marks: Those of the `LogManager` that is registered as a writer for this handle.
            decisions: Those of the `LogManager`, so that each is parsed once for all partitions.
            server: The root's settings of the `LogManager`, parsed once for all partitions.
            replicated: The partition's other replicas, if this handle is to lead them.
            placement: The roots of the replica set, if they are open already.
            local: Open the replica in this root, to maintain its files and not to append; a
                replicated partition is opened through its leader otherwise, wherever that is.
            mirror: The copies of its commits on other roots, if it is replicated.

        Returns:
            The open partition; close it, or use it as a context manager.

        Raises:
            InvalidTopicError: The path is not named after a partition.
            InvalidConfigError: `config` is not a `LogConfig`.
            UnknownTopicError: The topic has no such partition; or it is missing, and the root's
                `auto.create.topics.enable=false` or `num.partitions` forbids creating it.
            InvalidReplicationFactorError: The topic is missing, and there are fewer log roots than
                the root's `default.replication.factor`.
            CorruptDataError: Acknowledged bytes are damaged; nothing was changed.
            UnavailableError: Another process kept the lock, a running broker owns the root, or
                the disk failed.

        Source: UnifiedLog.create.
        """
        if not isinstance(config, LogConfig | None):
            raise InvalidConfigError(
                "config must be a LogConfig or None",
                got=f"{type(config).__name__}: {config!r:.80}",
                expected="a LogConfig",
            )
        if fs is None:
            refuse_url(path)
        path = os.path.abspath(path)
        root = LogRoot.at(os.path.dirname(path), fs=fs, clock=clock, random=random)
        if replicated is None and not local:
            partition = check_partition_directory(path)
            if placement is None:
                create_if_replicated(root, partition)
            opened = placement or Placement.of(root, partition, lock_timeout_ms=lock_timeout_ms)
            if opened is not None:
                return LedPartitionLog(
                    opened, partition, config=config, owns_placement=placement is None
                )
        return cls(
            root,
            path,
            config=config,
            lock_timeout_ms=lock_timeout_ms,
            marks=marks,
            decisions=decisions,
            server=server,
            replicated=replicated,
            mirror=mirror,
        )

    # ---- append --------------------------------------------------------------------------------
    def append(
        self,
        records: Any,
        *,
        compression: str | CompressionType | None = None,
        acks: str | int | Acks = Acks.ALL,
    ) -> AppendInfo:
        """Append records, given one by one or as Arrow data.

        Args:
            records: One or more `Record`s, see `Log.append`. Or a pyarrow Table, RecordBatch or
                RecordBatchReader, or a DataFrame of pandas or Polars, with the columns of
                `write_table`: `value`, and any of `key`, `headers`, `timestamp`. A column
                `partition` must name this partition or be null. All rows are held in memory and
                checked before the first one is written.
            compression: A codec's name; the topic's `compression.type` may override it.
            acks: How many replicas must hold them: 0, 1 or all; the same with one replica.

        Returns:
            Their offsets; `flush.messages` and `flush.ms` decide when they are durable. Arrow data
            becomes batches of up to 512 KiB, without another writer's records in between.

        Raises:
            InvalidRequestError: No record, or a record or a column that the topic refuses; nothing
                was written.
            NotLeaderError: Another replica leads the partition.
            NotEnoughReplicasError: Too few replicas are in sync. Of Arrow data, batches before the
                refused one are appended.
            UnknownOutcomeError: The disk failed during the write; some batches may be appended.
                NotEnoughReplicasAfterAppendError: all are, but too few replicas hold them.
        """
        if not is_arrow(records):
            return super().append(records, compression=compression, acks=acks)
        info: AppendInfo = appending().append_rows(
            self,
            self.topic_partition,
            records,
            compression=CompressionType.of(compression),
            acks=Acks.of(acks),
            now_ms=self._clock.now_ms(),
        )
        return info

    # ---- delete records ------------------------------------------------------------------------
    def delete_records(self, offset: int, *, force: bool = False) -> int:
        """Delete the records below an offset; durable.

        The log start is raised. The bytes go with the next maintenance, as soon as a whole segment
        lies below the log start.

        Args:
            offset: The first offset to keep; -1: the high watermark, so that nothing stays.
            force: Also delete records that a recorded reader has not finished.

        Returns:
            The log start: `offset`, or the former one if that was above.

        Raises:
            PolicyViolationError: The topic's `cleanup.policy` is compact alone, or a recorded
                reader has not finished the records.
            OffsetOutOfRangeError: The offset is above the high watermark, or negative.
            LockTimeoutError: Another process kept the partition's lock.
            StorageError: It failed; the log start is unchanged, or `offset`.

        Source: ReplicaManager.deleteRecordsOnLocalLog, Partition.deleteRecordsOnLeader.
        """
        with self.writing():
            check_deletable(self.topic_partition, self.config, self.path)
            start = self.high_watermark if offset == _HIGH_WATERMARK else offset
            if not 0 <= start <= self.high_watermark:
                raise OffsetOutOfRangeError(
                    "records can be deleted up to the high watermark only",
                    path=self.path,
                    got=offset,
                    expected=f"0 to {self.high_watermark}, or -1 for all",
                )
            if not force:
                self._refuse_unfinished(start)
            if start > self.log_start_offset:
                _ = self.producers  # loaded first: a later load cannot look below the start
                self.raise_log_start(start)
                self._share_high_watermark()
            return self.log_start_offset

    def _refuse_unfinished(self, start: int) -> None:
        """Raise if a recorded reader has not finished the records below an offset."""
        bases, sizes = self.segments.base_offsets, [each.size for each in self.segments]
        holds = Holds.read(self._log_root)
        held = holds.of(self.topic_partition, self.path, bases, sizes)
        log_start = self.log_start_offset
        check_finished(held, start, log_start_offset=log_start, path=self.path, root=self.root)

    # ---- truncate ------------------------------------------------------------------------------
    def truncate_to(self, offset: int) -> None:
        """Truncate the log to `offset`; a batch that holds it is removed whole.

        Commits that reach above `offset` are retired first, or they would come back; see
        `Log.truncate_undecided` for the rest.

        Args:
            offset: No record from here on stays; at or above the log end nothing is removed.

        Raises:
            InvalidRequestError: Within `writing`, if commits would have to be retired.
            LockTimeoutError: Commits come faster than they can be retired.
            StreamLogError: As `writing`; or a commit cannot be retired.

        Source: UnifiedLog.truncateTo.
        """
        is_nested = self._session.depth > 0
        for _ in range(_RETIRE_ATTEMPTS):
            if self.truncate_undecided(offset):
                return
            if is_nested:
                raise InvalidRequestError(
                    "commits that are not retired reach above this offset",
                    path=self.path,
                    offset=offset,
                    hint="call this outside of writing(): retiring them takes the lock",
                )
            self._retire_commits()
        raise LockTimeoutError(
            "commits come faster than they can be retired",
            path=self.path,
            offset=offset,
            hint="stop the queries that write this topic, then try again",
        )

    def _retire_commits(self) -> None:
        """Retire every decision of the root: all of them are applied and synced afterwards.

        Raises:
            StreamLogError: A partition cannot be applied or synced.
        """
        default_ms = read_server_config(self._log_root).streamlog_lock_timeout_ms
        opened = OpenPartitions(
            self._log_root,
            patience=Patience(default_ms),
            enter=lambda: None,  # while this handle is open, the process is a writer of the root
        )
        with contextlib.closing(opened):
            opened.commit_log(open_logs=opened.get, chores=at_once).retire()

    # ---- close ---------------------------------------------------------------------------------
    def _leave(self, *, in_order: bool) -> None:
        super()._leave(in_order=in_order)
        if self._writer is not None:
            self._writer.leave(in_order=in_order)

    def _repr_html_(self) -> str:
        """Return the offsets as a table, for notebooks."""
        start, high_watermark, end, _ = self.offsets
        cells = partition_cells(
            self.topic_partition.partition,
            (start, high_watermark, end),
            len(self.segments),
            self.size,
        )
        return html_table(f"{self.topic_partition} in {self.path}", PARTITION_TITLES, [cells])


class LedPartitionLog(PartitionLog):
    """A replicated partition, open through its leader, wherever that is; see `PartitionLog.open`.

    It moves to another log root when the leader does: `root` and `path` change then. An append that
    was refused before anything was written is tried once more there. One whose outcome is unknown
    is not: the records may be in the log.

    Args:
        placement: The roots of the replica set.
        partition: The partition.
        config: Settings to use instead of the topic's.
        owns_placement: Whether to close `placement` with the log.
    """

    def __init__(
        self,
        placement: Placement,
        partition: TopicPartition,
        *,
        config: LogConfig | None,
        owns_placement: bool,
    ) -> None:
        self._placement, self._owns_placement = placement, owns_placement
        self._fixed_config = config
        self._writer = None
        self._moving = threading.RLock()
        self._node = NO_LEADER
        self._left_in_order = False
        try:
            self._open_at(placement.leader(partition), partition)
        except BaseException:  # the caller gets no handle to close
            if owns_placement:
                placement.close(in_order=False)
            raise

    def _open_at(self, led: Led, partition: TopicPartition) -> None:
        """Open the log at the leader's root; if that refuses or fails, at the next leader's."""
        for attempt in itertools.count(1):
            opened = led.opened
            self._node, self._replicas = led.replicas.node, led.replicas
            try:
                opened.enter()
                Log.__init__(
                    self,
                    opened.root,
                    opened.root.partition(partition),
                    topic_id=led.topic_id,
                    config=self._fixed_config,
                    server=opened.server,
                    patience=opened.patience,
                    marks=opened.marks,
                    decided=DecidedRecords(opened.root, partition, led.topic_id, opened.decisions),
                    replicated=led.replicas,
                )
            except (*_MOVES, CorruptDataError) as error:
                if attempt == _LEADERS_TRIED:
                    raise
                led = self._placement.next_leader(partition, self._node, error)
            else:
                return

    @property
    def partition_state(self) -> PartitionState:
        """The state of the partition, as known when this handle last led."""
        return self._replicas.state

    def catch_up_replicas(
        self, on_progress: Callable[[int], None] = lambda size: None
    ) -> PartitionState:
        """Copy to all replicas that can be reached what they lack; return the state afterwards.

        A replica far behind is copied to without the leader's lock, except for the last records.

        Args:
            on_progress: Called with the number of bytes that were copied.

        Raises:
            StreamLogError: The leader cannot be written, or too few registers can be reached.
        """
        with self._led_writing():
            state = self._replicas.state
        with self._placement.fetcher(self.topic_partition, on_progress=on_progress) as fetcher:
            fetcher.fetch(state)
        with self._led_writing():
            self._replicas.catch_up(self)
            return self._replicas.state

    def fetcher(self) -> ReplicaFetcher:
        """Return what copies appends of other processes to the followers; for `copy_appended`."""
        return self._placement.fetcher(self.topic_partition, is_durable=False)

    def copy_appended(self, fetcher: ReplicaFetcher) -> None:
        """Copy to all replicas what writers appended since `catch_up_replicas`; commit it.

        The leader's lock is held for the last records only.

        Raises:
            StreamLogError: The leader cannot be read or written, or another one was elected.
        """
        fetcher.fetch(self.partition_state)
        with self.writing():
            self._replicas.catch_up(self, tries_offline=False)

    def elect(self, kind: ElectionType) -> PartitionState:
        """Hold an election while no record is appended, so that none is lost.

        Raises:
            StreamLogError: The leader cannot be written, or too few registers can be reached.
        """
        with self._led_writing():
            return self._replicas.elect(self, kind)

    def change_state(self, fn: Callable[[PartitionState], PartitionState]) -> PartitionState:
        """Replace the partition's state, as a reassignment does, between two appends.

        All replicas that can be reached have caught up by then.

        Args:
            fn: Takes the present state and returns the next one, or raises.

        Raises:
            StreamLogError: The leader cannot be written, or too few registers can be reached.
        """
        with self._led_writing():
            self._replicas.catch_up(self)
            return self._replicas.change_state(fn)

    @contextlib.contextmanager
    def _led_writing(self) -> Iterator[None]:
        """Hold the leader's lock; moves to another leader's root first, if need be."""
        node = self._node
        try:
            with self.writing():
                pass
        except _MOVES as error:
            self._move(node, error)
        with self.writing():
            yield

    def append_as_leader(
        self,
        batches: Buffer,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        acks: str | int | Acks = Acks.ALL,
    ) -> AppendInfo:
        """Append encoded batches; see `Log.append_as_leader`."""
        node = self._node
        try:
            return self._append_here(batches, origin, acks)
        except _MOVES as error:
            self._move(node, error)
        return self._append_here(batches, origin, acks)

    def _append_here(
        self, batches: Buffer, origin: AppendOrigin, acks: str | int | Acks
    ) -> AppendInfo:
        """Append through the present leader; an error of `_MOVES` means that nothing is appended.

        Raises:
            UnknownOutcomeError: The leader's disk failed later; followers may have the batches.
        """
        log = self._log
        end = log.offsets.end
        try:
            return super().append_as_leader(batches, origin=origin, acks=acks)
        except StorageError as error:
            if log.offsets.end == end:
                raise
            raise UnknownOutcomeError(
                "records were appended, but the leader's disk failed to sync them",
                path=self.path,
                offset=end,
                got=str(error),
                hint="look whether the records are there; do not append them again",
            ) from error

    def _move(self, node: int, error: StreamLogError) -> None:
        """Go on at the root of another leader, unless another thread has gone there already."""
        with self._moving:
            if self._node != node or self._session.is_closed:
                return
            partition = self.topic_partition
            led = self._placement.next_leader(partition, node, error)
            with contextlib.suppress(StreamLogError):
                super().close()
            self._open_at(led, partition)

    def _leave(self, *, in_order: bool) -> None:
        self._left_in_order = in_order
        super()._leave(in_order=in_order)

    def close(self) -> None:
        """Close the log and, with it, the roots that only this handle uses."""
        try:
            super().close()
        finally:
            if self._owns_placement:
                self._placement.close(in_order=self._left_in_order)


class OpenPartitions:
    """The partitions of a root that one process has open: opened and closed together.

    What they share is read and written once: recovery points, log starts, decisions.

    Args:
        root: The log root.
        patience: How long to wait for other writers.
        enter: Makes this process a writer of the root; called before a partition is opened.
        replicated: Returns the other replicas of a partition that is to be led through this root,
            and no other.
        mirror: The copies of its commits on other roots, if it is part of a replica set.

    Attributes:
        marks: The recovery points and log starts of the root.
        decisions: Its decisions that are not retired.
        server: Its settings.
    """

    def __init__(
        self,
        root: LogRoot,
        *,
        patience: Patience,
        enter: Callable[[], None],
        replicated: FindReplicas | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        self._root, self._patience, self._enter = root, patience, enter
        self._replicated, self._mirror = replicated, mirror
        self.marks = RootMarks(root)
        self.decisions = PendingDecisions(root) if mirror is None else mirror.own.pending
        self.server = ServerSettings(root)
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._led: dict[TopicPartition, PartitionLog] = {}
        self._placement: Placement | None = None

    def get(self, wanted: Sequence[TopicPartition]) -> list[PartitionLog]:
        """Return partitions open for writing, in the order given; replicated ones by their leaders.

        Raises:
            StreamLogError: One cannot be opened, or the marks not be written: then none of those
                that were not open before stays open.
        """
        if self._replicated is not None:
            return self.get_local(wanted)
        local = self.get_local([each for each in wanted if not self._is_led(each)])
        there = {log.topic_partition: log for log in local}
        return [there.get(each) or self._led[each] for each in wanted]

    def get_local(self, wanted: Sequence[TopicPartition]) -> list[PartitionLog]:
        """Return partitions as this root has them, open to be maintained, in the order given.

        Raises:
            StreamLogError: As `get`.
        """
        missing = [each for each in dict.fromkeys(wanted) if each not in self._logs]
        if missing:
            self._logs.update(self._open_together(missing))
        return [self._logs[each] for each in wanted]

    def _is_led(self, partition: TopicPartition) -> bool:
        """Whether a partition is replicated; it is open through its leader then."""
        if partition in self._led:
            return True
        if self._root.fs.stat(self._root.partition_register(partition)) is None:
            return False
        if self._placement is None:
            self._placement = Placement.of(self._root, partition, lock_timeout_ms=self._patience)
        if self._placement is None:
            return False
        self._enter()
        path = self._root.partition(partition)
        self._led[partition] = PartitionLog.open(path, placement=self._placement)
        return True

    def _open_together(
        self, wanted: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionLog]:
        opened: dict[TopicPartition, PartitionLog] = {}
        with contextlib.ExitStack() as undo:
            with self.marks.together():  # the first uses of partitions become one write
                for partition in wanted:
                    log = self._open(partition)
                    undo.callback(log.close)
                    opened[partition] = log
            undo.pop_all()
        return opened

    def _open(self, partition: TopicPartition) -> PartitionLog:
        path = topics.partition_path(self._root, partition)
        self._enter()
        return PartitionLog.open(
            path,
            fs=self._root.fs,
            clock=self._root.clock,
            random=self._root.random,
            lock_timeout_ms=self._patience,
            marks=self.marks,
            decisions=self.decisions,
            server=self.server,
            local=True,
            replicated=None if self._replicated is None else self._replicated(partition),
            mirror=self._mirror_of(partition),
        )

    def _mirror_of(self, partition: TopicPartition) -> Mirror | None:
        mirror = self._mirror
        return mirror if mirror is not None and mirror.replicated([partition]) else None

    def commit_log(
        self,
        *,
        open_logs: OpenLogs,
        chores: Chores,
        is_own: Callable[[Decision], bool] | None = None,
    ) -> CommitLog:
        """Return the commits of the root, which share the marks and decisions.

        Args:
            open_logs: `get`, with whatever guards it.
            chores: Does what a commit leaves to be done.
            is_own: Returns whether a decision in the root is its own to retire.
        """
        return CommitLog(
            self._root,
            open_logs=open_logs,
            marks=self.marks,
            decisions=self.decisions,
            lock_timeout_ms=self._patience,
            chores=chores,
            mirror=self._mirror,
            is_own=is_own,
        )

    @property
    def are_all_led(self) -> bool:
        """Whether all open partitions are replicated: none needs this root to be durable."""
        return bool(self._led) and not self._logs

    def close_topic(self, topic: str) -> None:
        """Close the partitions of a topic that is going to be deleted."""
        for logs in (self._logs, self._led):
            for partition in [each for each in logs if each.topic == topic]:
                logs.pop(partition).close()

    def close(self) -> None:
        """Close all of them: seal each, then write their recovery points and high watermarks.

        Raises:
            StreamLogError: Something could not be made durable; all are closed nevertheless.
        """
        with contextlib.ExitStack() as closing:
            if self._placement is not None:
                closing.callback(self._placement.close)
            closing.callback(self._note_high_watermarks)
            closing.callback(self._close_together)
            for log in self._led.values():
                closing.callback(log.close)

    def _close_together(self) -> None:
        logs = list(self._logs.values())
        with contextlib.ExitStack() as closing:
            for log in logs:
                closing.callback(log.close)  # finds nothing left to do but to release the files
            sealed: list[PartitionLog] = []
            errors: list[StreamLogError] = []
            for log in logs:
                try:
                    log.seal()
                    sealed.append(log)
                except (FileMissingError, UnknownTopicError):
                    pass  # its topic was deleted
                except StreamLogError as error:
                    errors.append(error)
            write_recovery_points(sealed, self.marks)
            if errors:
                raise errors[0]

    def _note_high_watermarks(self) -> None:
        if self._logs:
            known = {
                each: log.high_watermark
                for each, log in self._logs.items()
                if not log.is_replicated  # written under their locks
            }
            write_high_watermarks(self._root, known)
