"""A small root under test, the operations that a workload is made of, and what is found in it.

An operation tells the history what it tries before it tries it, and what it was told. Errors that
say what happened end an operation, never a workload; any other error is a violation.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from streamlog.clock import Clock, ManualClock
from streamlog.errors import StreamLogError, UnavailableError
from streamlog.fs.api import FileSystem
from streamlog.log import checkpoints
from streamlog.log.commits.commit_log import CommitLog
from streamlog.log.commits.identity import CommitIdentity
from streamlog.log.commits.staging import Stager
from streamlog.log.manager import LogManager
from streamlog.log.partition_log import PartitionLog
from streamlog.log.reader import LogReader
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.topic import TopicPartition
from tests.reliability.history import (
    Batch,
    Flushed,
    History,
    Outcome,
    Raised,
    Seen,
    Truncated,
    View,
    Wrote,
)
from tests.reliability.independent import read_partition
from tests.support.commits import batches_of

ROOT: Final = "/logs"
TOPIC: Final = "t"
PARTITIONS: Final = 2
NOW: Final = 1_700_000_000_000
APP: Final = "query/t"
CONFIGS: Final = {"internal.segment.bytes": "700", "index.interval.bytes": "150"}


def payload(number: int) -> bytes:
    """Return the value of a record: its id, and a filler of 0 to 60 bytes that follows from it."""
    return b"%d:" % number + bytes((number * 31 + n) & 0xFF for n in range(number * 37 % 61))


def identify(value: bytes | None) -> int | None:
    """Return the id that a value is the payload of, None where it is none's."""
    digits = (value or b"").partition(b":")[0]
    if not digits.isdigit():
        return None
    return int(digits) if payload(int(digits)) == value else None


class Subject:
    """One process that writes to the root.

    Args:
        fs: Where the root is, or is to be made.
        history: What happened so far; what this process does is added.
        life: Another number for each process on the same files: names of files are drawn from it.
        configs: Settings of the topic where it is made.
    """

    def __init__(
        self,
        fs: FileSystem,
        history: History,
        *,
        life: int = 0,
        configs: Mapping[str, str] = CONFIGS,
        clock: Clock | None = None,
    ) -> None:
        self.fs, self.history = fs, history
        self._clock = clock or ManualClock(NOW)
        self._random = Random(1_000_000_007 + life)
        self._next_id = 1 + max(
            (each for event in history if isinstance(event, Wrote)
             for groups in event.ids.values() for ids in groups for each in ids),
            default=-1,
        )  # fmt: skip
        self._open(configs)

    def _open(self, configs: Mapping[str, str] = CONFIGS) -> None:
        self.manager = LogManager.open(
            ROOT, create=True, fs=self.fs, clock=self._clock, random=self._random
        )
        self.manager.create_topic(TOPIC, PARTITIONS, configs, if_not_exists=True)
        self._commits = CommitLog(
            ROOT,
            fs=self.fs,
            clock=self._clock,
            open_log=lambda partition: self.manager.log(*partition),
            lock_timeout_ms=10,
        )

    def perform(self, operation: str) -> None:
        """Do one of `OPERATIONS`; what goes wrong goes into the history."""
        try:
            OPERATIONS[operation](self)
        except StreamLogError as error:
            self.history.append(Raised(operation, repr(error), is_typed=True))
        except Exception as error:  # noqa: BLE001 - any error that is not ours is a finding
            self.history.append(Raised(operation, repr(error), is_typed=False))

    # ---- operations --------------------------------------------------------------------------
    def append(self) -> None:
        """Append a batch of two records."""
        self._append(0, self._draw(2))

    def append_other(self) -> None:
        """Append one record to the other partition."""
        self._append(1, self._draw(1))

    def append_batches(self) -> None:
        """Append three batches at once, as a follower does."""
        groups = [self._draw(size) for size in (2, 1, 3)]
        log = self._log(0)
        base = log.log_end_offset
        wrote = Wrote("plain-0", groups[0][0], {0: tuple(groups)})
        self.history.append(wrote)
        batches = b""
        for ids in groups:
            offset = base + ids[0] - groups[0][0]
            batches += _batch(ids, offset, partition_leader_epoch=log.leader_epoch)
        with self._answered(wrote):
            log.append_as_follower(batches)
            self.history.append(wrote._replace(outcome=Outcome.DONE, base_offset={0: base}))
        self._note_flush(0)

    def flush(self) -> None:
        """Make a partition durable."""
        self._log(0).flush()
        self._note_flush(0)

    def roll(self) -> None:
        """Begin a new segment."""
        self._log(0).roll()
        self._note_flush(0)

    def commit(self) -> None:
        """Commit the next version of a query to both partitions."""
        last = self._last_version()
        self._commit(0 if last is None else last.number + 1, None)

    def commit_again(self) -> None:
        """Commit the last version once more, as after a crash before Spark's checkpoint."""
        last = self._last_version()
        if last is None:
            return self.commit()
        return self._commit(last.number, last.ids)

    def retire(self) -> None:
        """Forget the decisions that are applied and durable."""
        self._commits.retire()

    def truncate(self) -> None:
        """Cut a partition in the middle."""
        log = self._log(0)
        offset = (log.log_start_offset + log.log_end_offset) // 2
        self.history.append(Truncated(0, offset))
        log.truncate_to(offset)
        self.history.append(Truncated(0, offset, Outcome.DONE))

    def reopen(self) -> None:
        """Close everything in order and open it again."""
        ends = {p: self._log(p).log_end_offset for p in range(PARTITIONS)}
        self.manager.close()
        for partition, end in ends.items():
            self.history.append(Flushed(partition, end))
        self._open()

    def transaction(self) -> None:
        """Append the batch of a transaction that stays open."""
        self._append(1, self._draw(1), **_producer(self._next_id), is_transactional=True)

    def repeat(self) -> None:
        """Append an idempotent producer's batch, and again because the answer was lost."""
        ids = self._draw(2)
        for _ in range(2):
            self._append(1, ids, **_producer(self._next_id))

    # ---- how ---------------------------------------------------------------------------------
    def _log(self, partition: int) -> PartitionLog:
        return self.manager.log(TOPIC, partition)

    def _draw(self, count: int) -> tuple[int, ...]:
        self._next_id += count
        return tuple(range(self._next_id - count, self._next_id))

    def _append(self, partition: int, ids: tuple[int, ...], **settings: Any) -> None:
        wrote = Wrote(f"plain-{partition}", ids[0], {partition: (ids,)})
        self.history.append(wrote)
        log = self._log(partition)
        with self._answered(wrote):
            info = log.append_as_leader(_batch(ids, **settings))
            base = {partition: info.base_offset}
            self.history.append(wrote._replace(outcome=Outcome.DONE, base_offset=base))
        self._note_flush(partition)

    def _commit(self, version: int, ids: Mapping[int, tuple[tuple[int, ...], ...]] | None) -> None:
        if ids is None:
            ids = {p: (self._draw(3),) for p in range(PARTITIONS)}
        wrote = Wrote(APP, version, ids)
        self.history.append(wrote)
        with self._answered(wrote):
            with Stager(self.fs, ROOT, APP, version, 0, random=self._random) as stager:
                for partition, (part,) in ids.items():
                    values = [payload(each) for each in part]
                    batches = batches_of(values, batch_size=1000)  # one, so that none is cut in two
                    stager.append(TopicPartition(TOPIC, partition), batches)
                staged = stager.finish(rows=3 * len(ids), checksum=0)
            outcome = self._commits.commit(CommitIdentity(APP, version), [staged])
            offsets = {part.topic_partition.partition: part.base_offset for part in outcome.parts}
            self.history.append(
                wrote._replace(outcome=Outcome.DONE, base_offset=offsets, is_durable=True)
            )

    def _last_version(self) -> Wrote | None:
        mine = [each for each in self.history if isinstance(each, Wrote) and each.writer == APP]
        return mine[-1] if mine else None

    def _answered(self, wrote: Wrote) -> "_Answered":
        return _Answered(self.history, wrote)

    def _note_flush(self, partition: int) -> None:
        self.history.append(Flushed(partition, self._log(partition).recovery_point))

    # ---- what is there -----------------------------------------------------------------------
    def see(self) -> None:
        """Read all partitions by a fresh reader and by the independent one."""
        for partition in range(PARTITIONS):
            self._log(partition).catch_up()
        views = {p: look(self.fs, p) for p in range(PARTITIONS)}
        self.history.append(Seen(views))


class _Answered:
    """Notes a write as refused where the error says that nothing was written."""

    def __init__(self, history: History, wrote: Wrote) -> None:
        self._history, self._wrote = history, wrote

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StreamLogError) and not isinstance(error, UnavailableError):
            self._history.append(self._wrote._replace(outcome=Outcome.REFUSED))


def look(fs: FileSystem, partition: int) -> View:
    """Return what both readers find in a partition."""
    directory = f"{ROOT}/{TOPIC}-{partition}"
    rows = []
    with LogReader.open(directory, fs=fs) as reader:
        start, end = reader.log_start_offset, reader.log_end_offset
        at = start
        while at < end:
            info = reader.read(at)
            rows += [(each.offset, identify(each.value)) for each in info.records()]
            at = info.next_offset
    found = [each for each in read_partition(fs, directory) if start <= each.base_offset < end]
    marks = checkpoints.read_recovery_points(fs, ROOT)
    return View(
        start,
        end,
        marks.get(TopicPartition(TOPIC, partition), 0),
        tuple(rows),
        tuple((offset, identify(value)) for each in found for offset, value in each.rows),
        tuple(Batch(*each[:4]) for each in found),
    )


def _producer(number: int) -> dict[str, int]:
    return {"producer_id": number, "producer_epoch": 0, "base_sequence": 0}


def _batch(ids: tuple[int, ...], base_offset: int = 0, **settings: Any) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, **settings)
    for each in ids:
        builder.append(Record(b"key", payload(each), (), NOW))
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
}
