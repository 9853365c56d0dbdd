"""Admission: every check that can refuse a commit, made before the commit is decided.

The checks read the staged bytes and do not trust the tasks' reports: another version of streamlog
may have written a report, and the topic's settings may have changed since the task ran.

A decision may follow only bytes that are synced or decided. Otherwise a power cut could take the
records below its offsets while the decision survives, and those offsets would never be filled.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from streamlog.clock import Clock
from streamlog.commits.decisions import DecidedExtent, DecidedFile, DecidedPart, Standing
from streamlog.commits.extents import CheckedExtents, ExtentReader
from streamlog.commits.fingerprint import checksum_sum
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.pending import PendingDecisions
from streamlog.commits.staging import StagedExtent, StagedFile, is_staged_name
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    InconsistentTopicIdError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordListTooLargeError,
    UnsupportedCompressionError,
)
from streamlog.fs.api import FileKind, FileSystem, OpenMode
from streamlog.partition.log import Log
from streamlog.records.decode import PIECE_BYTES, Wanted, decode_pieces
from streamlog.records.layout import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from streamlog.records.slots import check_decompressed, naming, refusing_larger
from streamlog.records.table import BatchTable
from streamlog.records.topic_rules import TimeBounds, TopicRules
from streamlog.topic import TopicPartition, parse_partition_directory

__all__ = [
    "HeldPartitions",
    "StagedCommit",
    "StagedPart",
    "check_part",
    "gather",
    "held_when_checked",
    "make_ground_sure",
    "place_part",
    "sync_paths",
]

CHECKS_WITHOUT_LOCKS: Final = 3
_FOREIGN_BITS: Final = TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """A commit's batches for one partition; `extents` are in the order of the tasks."""

    topic_partition: TopicPartition
    topic_id: str
    extents: tuple[DecidedExtent, ...]

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(extent.records for extent in self.extents)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return sum(extent.size for extent in self.extents)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCommit:
    """The staged files of all tasks of a commit; `parts` are sorted by partition."""

    files: tuple[DecidedFile, ...]
    parts: tuple[StagedPart, ...]
    rows: int
    checksum: int | None  # None where a task did not compute one


def gather(identity: CommitIdentity, staged: Sequence[StagedFile]) -> StagedCommit:
    """Combine the reports of a commit's tasks by partition.

    Args:
        identity: The commit's identity.
        staged: The tasks' reports, in any order.

    Raises:
        InvalidRequestError: A report is of another commit, a task's second one, or invalid.
        InconsistentTopicIdError: Two tasks saw topics of the same name with different ids.
    """
    files: list[DecidedFile] = []
    parts: dict[TopicPartition, list[DecidedExtent]] = {}
    topic_ids: dict[TopicPartition, str] = {}
    rows, checksum = 0, 0
    has_checksum = True
    last_task = -1
    for file in sorted(staged, key=lambda file: file.task):
        _check_report(identity, file, last_task)
        last_task = file.task
        rows += file.rows
        has_checksum = has_checksum and file.checksum is not None
        checksum = checksum_sum(checksum, file.checksum or 0)
        for extent in file.extents:
            partition = extent.topic_partition
            known_id = topic_ids.setdefault(partition, extent.topic_id)
            _check_topic_id(partition, extent.topic_id, known_id)
            parts.setdefault(partition, []).append(
                DecidedExtent(
                    len(files), extent.position, extent.size, extent.batches, extent.records
                )
            )
        if file.extents:
            files.append(DecidedFile(file.name, file.size))
    return StagedCommit(
        files=tuple(files),
        parts=tuple(
            StagedPart(
                topic_partition=partition,
                topic_id=topic_ids[partition],
                extents=tuple(parts[partition]),
            )
            for partition in sorted(parts)
        ),
        rows=rows,
        checksum=checksum if has_checksum else None,
    )


def check_part(config: LogConfig, part: StagedPart, reader: CheckedExtents, now_ms: int) -> None:
    """Make every check that could refuse a partition's staged batches; no lock is needed.

    Reading, decompressing and checking gigabytes takes seconds, so it is done before partitions are
    locked; otherwise other writers would wait (`held_when_checked`).

    Args:
        config: The settings of the topic.
        part: The batches staged for the partition.
        reader: Reads them, and caches as many as fit for applying.
        now_ms: The time, in ms since 1970.

    Raises:
        CorruptRecordError: The bytes are not the batches that a task reported.
        InvalidRequestError: The topic refuses a batch or a record (subclasses say why).
    """
    rules = TopicRules.of(config)
    times = rules.times(now_ms)
    for extent in part.extents:
        buffer, table = reader.read(extent, keep=True)
        where = reader.path(extent), extent.position
        _check_sizes(table, rules, where)
        _check_attributes(table, rules, where)
        _check_decompressed(buffer, table, rules, where)
        _check_records(buffer, table, rules, times, where)


class HeldPartitions:
    """The locks of a commit's partitions, taken in order, each released as soon as it is done.

    Args:
        logs: The partitions, in the order that all committers use.
    """

    def __init__(self, logs: Iterable[Log]) -> None:
        self._logs = tuple(logs)
        self._held: dict[TopicPartition, ExitStack] = {}

    def let_go(self, log: Log) -> None:
        """Release the lock of one partition whose part is applied."""
        self._held.pop(log.topic_partition).close()

    def __enter__(self) -> "HeldPartitions":
        with ExitStack() as undo:
            for log in self._logs:
                held = ExitStack()
                held.enter_context(log.writing())
                undo.push(held)
                self._held[log.topic_partition] = held
            undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        with ExitStack() as rest:
            for held in self._held.values():
                rest.push(held)


@contextlib.contextmanager
def held_when_checked(
    logs: Sequence[Log], parts: Sequence[StagedPart], reader: ExtentReader, clock: Clock
) -> Iterator[HeldPartitions]:
    """Hold the locks of partitions whose parts were checked against the current settings.

    Taking a lock loads changed settings. The locks are then released and the affected parts are
    checked again. Only if the settings change every time is the last check made under the locks.

    Args:
        logs: The partitions, in the order of `parts`.
        parts: The staged part of each of them.
        reader: Reads the staged batches.
        clock: The clock.

    Raises:
        StreamLogError: As `check_part`; or a lock is not available.
    """
    checked: list[LogConfig | None] = [None] * len(logs)
    for _ in range(CHECKS_WITHOUT_LOCKS):
        _check_changed(logs, parts, reader, clock, checked)
        with HeldPartitions(logs) as held:
            if checked == [log.config for log in logs]:
                yield held
                return
    with HeldPartitions(logs) as held:
        _check_changed(logs, parts, reader, clock, checked)
        yield held


def _check_changed(
    logs: Sequence[Log],
    parts: Sequence[StagedPart],
    reader: ExtentReader,
    clock: Clock,
    checked: list[LogConfig | None],
) -> None:
    """Check and note each part whose settings differ from those of its last check."""
    for at, (log, part) in enumerate(zip(logs, parts, strict=True)):
        config = log.config
        if config != checked[at]:
            check_part(config, part, reader, clock.now_ms())
            checked[at] = config


def place_part(log: Log, part: StagedPart, standing: Standing, now_ms: int) -> DecidedPart:
    """Return a partition's part of the decision: offsets, epoch and sequence depend on the log end.

    Args:
        log: The partition, within `writing`.
        part: The checked batches for it.
        standing: The app's standing.
        now_ms: The time, in ms since 1970.

    Raises:
        InconsistentTopicIdError: The topic was recreated since the tasks ran.
    """
    _check_topic_id(part.topic_partition, part.topic_id, log.topic_id)
    before = standing.find(part.topic_partition, part.topic_id)
    base_offset = log.log_end_offset
    return DecidedPart(
        topic_partition=part.topic_partition,
        topic_id=part.topic_id,
        base_offset=base_offset,
        last_offset=base_offset + part.records - 1,
        leader_epoch=log.leader_epoch,
        base_sequence=0 if before is None else before.next_sequence,
        append_time=now_ms if TopicRules.of(log.config).is_stamped else None,
        extents=part.extents,
    )


_Where = tuple[str, int]  # path of the staged file, position of the extent


def _check_report(identity: CommitIdentity, file: StagedFile, last_task: int) -> None:
    if (file.app, file.version) != (identity.app, identity.version):
        raise InvalidRequestError(
            "staged file belongs to another commit",
            got=f"version {file.version} of {file.app}",
            expected=str(identity),
        )
    if file.task == last_task:
        raise InvalidRequestError(
            "task reported two staged files",
            got=f"task {file.task} twice in {identity}",
            expected="one file, of the winning attempt",
        )
    if file.extents and not is_staged_name(file.name):
        raise InvalidRequestError("invalid name of a staged file", got=repr(file.name))
    if file.rows != sum(extent.records for extent in file.extents):
        raise InvalidRequestError(
            "a staged file with more or fewer records than rows", got=file.name
        )
    for extent in file.extents:
        _check_extent(file, extent)


def _check_extent(file: StagedFile, extent: StagedExtent) -> None:
    is_named = parse_partition_directory(str(extent.topic_partition)) == extent.topic_partition
    is_inside = extent.position >= 0 and 0 < extent.size <= file.size - extent.position
    if not is_named or not is_inside or extent.batches < 1 or extent.records < 1:
        raise InvalidRequestError(
            "invalid extent of a staged file",
            got=str(tuple(extent)),
            expected=f"batches of a partition within {file.size} bytes",
        )


def _check_topic_id(partition: TopicPartition, staged: str, now: str) -> None:
    if staged != now:
        raise InconsistentTopicIdError(
            f"topic {partition.topic} was deleted and recreated while rows were written for it",
            got=f"topic id {staged}",
            expected=now,
            hint="run the batch again to write its rows to the new topic",
        )


def _check_sizes(table: BatchTable, rules: TopicRules, where: _Where) -> None:
    largest = int(table.size.argmax())
    size = int(table.size[largest])
    if size > rules.max_batch_bytes:
        _refuse_size(MessageTooLargeError, table, largest, where, rules.max_batch_bytes)
    if size > rules.max_append_bytes:
        _refuse_size(RecordListTooLargeError, table, largest, where, rules.max_append_bytes)


def _refuse_size(
    kind: type[InvalidRequestError], table: BatchTable, at: int, where: _Where, limit: int
) -> NoReturn:
    key = "max.message.bytes" if kind is MessageTooLargeError else "segment.bytes"
    raise kind(
        "staged batch is larger than the topic takes",
        path=where[0],
        position=where[1] + int(table.position[at]),
        got=f"{int(table.size[at])} bytes",
        expected=f"at most {limit} ({key})",
    )


def _check_decompressed(
    buffer: NDArray[np.uint8], table: BatchTable, rules: TopicRules, where: _Where
) -> None:
    """Refuse a batch that no reader would decompress; decompresses only what may be too large."""
    limit = rules.max_decompressed_bytes
    with refusing_larger(limit), naming(*where):
        check_decompressed(buffer, table, max_decompressed=limit)


def _check_attributes(table: BatchTable, rules: TopicRules, where: _Where) -> None:
    attributes = table.attributes
    if (attributes & _FOREIGN_BITS).any():
        raise InvalidRecordError(
            "a commit takes plain batches only",
            path=where[0],
            position=where[1],
            got="a transactional or control batch, or one with a delete horizon",
        )
    if not rules.is_stamped and (attributes & TIMESTAMP_TYPE_MASK).any():
        raise InvalidTimestampError(
            "staged batch says LogAppendTime while the topic says CreateTime",
            path=where[0],
            position=where[1],
        )
    is_right = rules.accepted_codecs(attributes)
    if not is_right.all():
        wanted = (
            "a codec" if rules.codec is None else f"{rules.compression_type} (compression.type)"
        )
        raise UnsupportedCompressionError(
            "staged batch has another codec than the topic",
            path=where[0],
            position=where[1],
            got=f"codec {int((attributes & COMPRESSION_MASK)[~is_right][0])}",
            expected=wanted,
            hint="compression.type was changed while rows were written: run the batch again",
        )


def _check_records(
    buffer: NDArray[np.uint8],
    table: BatchTable,
    rules: TopicRules,
    times: TimeBounds,
    where: _Where,
) -> None:
    """Check keys and timestamps; decodes only where the headers cannot tell.

    With a lower bound of 0 the largest timestamp is enough: the encoder writes none below -1.
    """
    _check_times(table.max_timestamp, times, where)
    if not rules.needs_keys and times.earliest <= 0:
        return
    wanted = Wanted(
        columns={"key"} if rules.needs_keys else (),
        max_decompressed=rules.max_decompressed_bytes,
        max_bytes=PIECE_BYTES,
    )
    missing = 0
    for _, columns in decode_pieces(buffer, table, wanted, path=where[0], position=where[1]):
        _check_times(columns.timestamp, times, where)
        missing += columns.count if columns.key is None else columns.key.null_count
    if rules.needs_keys and missing:
        raise InvalidRecordError(
            "a compacted topic needs a key in every record",
            path=where[0],
            position=where[1],
            got=f"{missing} records without a key",
            expected="none (cleanup.policy has compact)",
        )


def _check_times(timestamp: NDArray[np.int64], times: TimeBounds, where: _Where) -> None:
    outside = times.first_outside(timestamp)
    if outside is not None:
        raise InvalidTimestampError(
            "a timestamp is outside the topic's bounds",
            path=where[0],
            position=where[1],
            got=f"{int(timestamp[outside])} ms",
            expected=str(times),
        )


# ---- durable before a decision that relies on it ----------------------------------------------
def sync_paths(fs: FileSystem, paths: Iterable[str]) -> None:
    """Make files and directories durable that another program wrote.

    Raises:
        StorageError: A path is missing, or the disk refuses.
    """
    for path in paths:
        found = fs.stat(path)
        if found is not None and found.kind is FileKind.DIRECTORY:
            fs.sync_directory(path)
        else:
            with fs.open(path, OpenMode.READ) as file:
                file.sync()


def make_ground_sure(log: Log, standing: Standing, pending: PendingDecisions) -> bool:
    """Sync a log unless its end is already synced or decided.

    Args:
        log: The partition, within `writing`.
        standing: The standing of the app that is about to decide.
        pending: The unretired decisions of the root; another app's may end at the log end.

    Returns:
        Whether the log end is synced; otherwise it is decided.
    """
    if log.recovery_point >= log.log_end_offset:
        return True
    ground = log.topic_partition, log.topic_id, log.log_end_offset
    if standing.has_decided_up_to(*ground):
        return False
    if any(decision.standing.has_decided_up_to(*ground) for decision in pending.newest()):
        return False
    log.flush()
    return True
