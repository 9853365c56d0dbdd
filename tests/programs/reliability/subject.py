"""The system under test: a small root, the operations of workloads, and a reader of the result.

An operation is recorded in the history before it is tried, and again with its answer. A typed error
ends the operation, never the workload; any other error is a violation.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from streamlog.cleaner.cleaner import LogCleaner
from streamlog.clock import ManualClock
from streamlog.commits.commit_log import CommitLog
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.staging import StagedFile, Stager
from streamlog.errors import StreamLogError, UnavailableError
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.maintenance.retention import delete_old_segments
from streamlog.partition import checkpoints
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.reader import LogReader
from streamlog.records.builder import BatchBuilder, InputColumns, encode_columns
from streamlog.records.record import CompressionType
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from streamlog.root.topics import topic_exists
from streamlog.segment.filenames import base_offsets
from streamlog.topic import TopicPartition
from tests.programs.reliability.content import NOW, identify, record_of
from tests.programs.reliability.history import (
    Batch,
    Began,
    Cleaned,
    Flushed,
    History,
    Outcome,
    Retained,
    Seen,
    Truncated,
    View,
    Waited,
    Wrote,
)
from tests.programs.reliability.independent import read_partition, torn_size
from tests.programs.reliability.query_writer import APP, PARTITIONS, QueryWriter

ROOT: Final = "/logs"
TOPIC: Final = "t"
CONFIGS: Final = {"internal.segment.bytes": "700", "index.interval.bytes": "150"}
OTHER_CONFIGS: Final = {"flush.messages": "1", "internal.segment.bytes": "400"}
IDS_EACH: Final = 1_000_000  # of concurrent processes
DAY_MS: Final = 24 * 3_600_000
ASKED_TIMES: Final = (NOW + 3, NOW + 9, NOW + 22)


class Subject(QueryWriter):
    """One process that writes to the root.

    Args:
        fs: The file system of the root.
        history: The events so far; this process appends its own.
        life: A number unique among the processes on the same files: it seeds the names of files.
        root: The path of the root, which is created if missing.
        first_id: The lowest id that this process draws; concurrent processes must draw others.
        clock: By default, one that continues where the last process's clock stopped.
    """

    def __init__(
        self,
        fs: FileSystem,
        history: History,
        *,
        life: int = 0,
        root: str = ROOT,
        first_id: int = 0,
        clock: ManualClock | None = None,
    ) -> None:
        self.fs, self.history, self.root = fs, history, root
        waited = [event.now_ms for event in history if isinstance(event, Waited)]
        self.clock = clock or ManualClock(max([NOW, *waited]))
        self._random = Random(1_000_000_007 + life)
        self._next_id = 1 + max(
            (each for event in history if isinstance(event, Wrote)
             for groups in event.ids.values() for ids in groups for each in ids
             if first_id <= each < first_id + IDS_EACH),
            default=first_id - 1,
        )  # fmt: skip
        self._writer = f"plain-{first_id}"
        self._open()

    def _open(self) -> None:
        self.manager = self._open_manager()
        if not topic_exists(LogRoot.at(self.root, fs=self.fs), TOPIC):
            self.manager.create_topic(TOPIC, PARTITIONS, CONFIGS, if_not_exists=True)
        self._elsewhere: LogManager | None = None
        self._commits = CommitLog(
            self.manager.log_root,
            open_logs=self.manager.logs,
            lock_timeout_ms=10,
        )

    def _open_manager(self) -> LogManager:
        return LogManager.open(
            self.root, create=True, fs=self.fs, clock=self.clock, random=self._random
        )

    def close(self) -> None:
        """Close everything in order."""
        if self._elsewhere is not None:
            self._elsewhere.close()
        self.manager.close()

    def _run(self, operation: str) -> None:
        OPERATIONS[operation](self)

    # ---- operations --------------------------------------------------------------------------
    def append(self) -> None:
        self._append(0, self._draw(2))

    def append_other(self) -> None:
        """Append one record to the other partition."""
        self._append(1, self._draw(1))

    def append_batches(self) -> None:
        """Append three batches at once, as a follower of a new leader does."""
        groups = [self._draw(size) for size in (2, 1, 3)]
        log = self._log(0)
        base = log.log_end_offset
        wrote = Wrote(f"{self._writer}-0", groups[0][0], {0: tuple(groups)})
        self.history.append(wrote)
        batches = b""
        for ids in groups:
            offset = base + ids[0] - groups[0][0]
            batches += _batch(ids, offset, partition_leader_epoch=log.leader_epoch + 1)
        with self._answered(wrote):
            log.append_as_follower(batches)
            self.history.append(wrote._replace(outcome=Outcome.DONE, base_offset={0: base}))
        self._note_flush(0)

    def flush(self) -> None:
        self._log(0).flush()
        self._note_flush(0)

    def roll(self) -> None:
        self._log(0).roll()
        self._note_flush(0)

    def retire(self) -> None:
        """Retire the decisions that are applied and durable."""
        self._commits.retire()

    def truncate(self) -> None:
        """Truncate a partition in the middle."""
        log = self._log(0)
        offset = (log.log_start_offset + log.log_end_offset) // 2
        self.history.append(Truncated(0, offset))
        log.truncate_to(offset)
        self.history.append(Truncated(0, offset, Outcome.DONE))

    def reopen(self) -> None:
        """Close everything in order and open it again."""
        ends = {p: self._log(p).log_end_offset for p in range(PARTITIONS)}
        self.close()
        for partition, end in ends.items():
            self.history.append(Flushed(partition, end))
        self._open()

    def append_elsewhere(self) -> None:
        """Append through another handle, as another process would."""
        if self._elsewhere is None:
            self._elsewhere = self._open_manager()
        self._append(0, self._draw(1), log=self._elsewhere.log(TOPIC, 0))

    def clean(self) -> None:
        self._note_cleaning()
        with LogCleaner(self.manager, random=self._random) as cleaner:
            cleaner.clean(TopicPartition(TOPIC, 0))
        self._note_cleaning()  # another process may have rolled meanwhile

    def retain(self) -> None:
        self.history.append(Retained(0, self.clock.now_ms()))
        delete_old_segments(self._log(0), self.clock)

    def delete_records(self) -> None:
        """Delete the first third of the records."""
        log = self._log(0)
        offset = (2 * log.log_start_offset + log.log_end_offset) // 3
        self.history.append(Began(0, offset))
        log.delete_records(offset)
        self.history.append(Began(0, offset, Outcome.DONE))

    def alter_config(self) -> None:
        """Toggle between a sync per append with small segments and the defaults."""
        if self._syncs_each():
            self.manager.alter_topic(TOPIC, delete_configs=tuple(OTHER_CONFIGS), configs=CONFIGS)
        else:
            self.manager.alter_topic(TOPIC, configs=OTHER_CONFIGS)

    def wait(self) -> None:
        """Advance the clock by eight days, longer than all retention times."""
        self.history.append(Waited(self.clock.now_ms() + 8 * DAY_MS))
        self.clock.set(self.clock.now_ms() + 8 * DAY_MS)

    def transaction(self) -> None:
        """Append the batch of a transaction that stays open."""
        self._append(1, self._draw(1), **_producer(self._next_id), is_transactional=True)

    def repeat(self) -> None:
        """Append an idempotent producer's batch twice, as after a lost answer."""
        ids = self._draw(2)
        for _ in range(2):
            self._append(1, ids, **_producer(self._next_id))

    # ---- how ---------------------------------------------------------------------------------
    def _log(self, partition: int) -> PartitionLog:
        return self.manager.log(TOPIC, partition)

    def _draw(self, count: int) -> tuple[int, ...]:
        self._next_id += count
        return tuple(range(self._next_id - count, self._next_id))

    def _append(
        self,
        partition: int,
        ids: tuple[int, ...],
        *,
        log: PartitionLog | None = None,
        **settings: Any,
    ) -> None:
        wrote = Wrote(f"{self._writer}-{partition}", ids[0], {partition: (ids,)})
        self.history.append(wrote)
        log = log or self._log(partition)
        with self._answered(wrote):
            info = log.append_as_leader(_batch(ids, **settings))
            base = {partition: info.base_offset}
            self.history.append(wrote._replace(outcome=Outcome.DONE, base_offset=base))
        self._note_flush(partition)

    def _note_cleaning(self) -> None:
        names = self.fs.list(self._log(0).path)
        self.history.append(Cleaned(0, base_offsets(names)[-1], self.clock.now_ms()))

    def _syncs_each(self) -> bool:
        return self.manager.topic_config(TOPIC).flush_messages == 1

    def _commit(
        self,
        version: int,
        ids: Mapping[int, tuple[tuple[int, ...], ...]] | None,
        *,
        writer: str = APP,
    ) -> None:
        if ids is None:
            ids = {p: (self._draw(3),) for p in range(PARTITIONS)}
        wrote = Wrote(writer, version, ids)
        self.history.append(wrote)
        with self._answered(wrote):
            staged = [self._stage(version, each, part) for each, (part,) in ids.items()]
            outcome = self._commits.commit(CommitIdentity(APP, version), staged)
            offsets = {part.topic_partition.partition: part.base_offset for part in outcome.parts}
            self.history.append(
                wrote._replace(outcome=Outcome.DONE, base_offset=offsets, is_durable=True)
            )

    def _stage(self, version: int, partition: int, ids: tuple[int, ...]) -> StagedFile:
        """Write the staged file of one task."""
        columns = InputColumns.from_records(map(record_of, ids), now_ms=NOW)
        batches = encode_columns(columns, compression=CompressionType.NONE, batch_size=1 << 20)
        root = LogRoot.at(self.root, fs=self.fs)
        with Stager(root, APP, version, partition, random=self._random) as stager:
            stager.append(TopicPartition(TOPIC, partition), batches)
            return stager.finish(rows=len(ids), checksum=sum(ids))

    def _answered(self, wrote: Wrote) -> "_Answered":
        return _Answered(self.history, wrote)

    def _note_flush(self, partition: int) -> None:
        """Record up to which offset the topic's settings promise durability now."""
        log = self._log(partition)
        if self._syncs_each():
            log.catch_up()
        end = log.log_end_offset if self._syncs_each() else log.recovery_point
        self.history.append(Flushed(partition, end))

    # ---- what is there -----------------------------------------------------------------------
    def see(self) -> None:
        """Read all partitions with a fresh reader and with the independent one."""
        for partition in range(PARTITIONS):
            self._log(partition).catch_up()
        views = {p: look(self.fs, self.root, p) for p in range(PARTITIONS)}
        self.history.append(Seen(views))


class _Answered:
    """Records a write as refused if the error means that nothing was written."""

    def __init__(self, history: History, wrote: Wrote) -> None:
        self._history, self._wrote = history, wrote

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StreamLogError) and not isinstance(error, UnavailableError):
            self._history.append(self._wrote._replace(outcome=Outcome.REFUSED))


def look(fs: FileSystem, root: str, partition: int) -> View:
    """Return what both readers find in a partition."""
    directory = f"{root}/{TOPIC}-{partition}"
    rows = []
    with LogReader.open(directory, fs=fs) as reader:
        start, end = reader.log_start_offset, reader.log_end_offset
        at = start
        while at < end:
            info = reader.read(at)
            rows += [
                (each.offset, identify(each.timestamp, each.key, each.value))
                for each in info.records()
            ]
            if info.next_offset <= at:
                raise AssertionError(f"the read at offset {at} makes no progress")
            at = info.next_offset
        by_time = [(each, reader.offset_for_timestamp(each)) for each in ASKED_TIMES]
    found = [each for each in read_partition(fs, directory) if start <= each.last_offset < end]
    marks = checkpoints.read_recovery_points(LogRoot.at(root, fs=fs))
    return View(
        start,
        end,
        marks.get(TopicPartition(TOPIC, partition), 0),
        tuple(rows),
        tuple(
            (record.offset, identify(*record[1:]))
            for each in found
            for record in each.records
            if record.offset >= start
        ),
        tuple(Batch(*each[:4]) for each in found),
        LeaderEpochCache.load(fs, directory).entries,
        tuple((each, None if hit is None else hit.offset) for each, hit in by_time),
        torn_size(fs, directory),
    )


def _producer(number: int) -> dict[str, int]:
    return {"producer_id": number, "producer_epoch": 0, "base_sequence": 0}


def _batch(ids: tuple[int, ...], base_offset: int = 0, **settings: Any) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, **settings)
    for each in ids:
        builder.append(record_of(each))
    return builder.build()


OPERATIONS: Final[dict[str, Callable[[Subject], None]]] = {
    "append": Subject.append,
    "append other": Subject.append_other,
    "append batches": Subject.append_batches,
    "flush": Subject.flush,
    "roll": Subject.roll,
    "commit": Subject.commit,
    "commit again": Subject.commit_again,
    "retire": Subject.retire,
    "truncate": Subject.truncate,
    "reopen": Subject.reopen,
    "transaction": Subject.transaction,
    "repeat": Subject.repeat,
    "append elsewhere": Subject.append_elsewhere,
    "commit other": Subject.commit_other,
    "clean": Subject.clean,
    "retain": Subject.retain,
    "delete records": Subject.delete_records,
    "alter config": Subject.alter_config,
    "wait": Subject.wait,
}
