"""Applying decisions: append staged batches to the log.

Every process that applies a decision appends the same bytes, however often it is tried: a staged
batch is applied if and only if its last offset is below the log end. The batches of a decision are
therefore read in order, given their offset, epoch, producer, sequence and timestamp (and a new
checksum), and those at or above the log end are appended.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.commits.decisions import DecidedPart, Decision
from streamlog.commits.extents import ExtentReader
from streamlog.commits.history import Ledgers
from streamlog.commits.identity import producer_id_for
from streamlog.commits.mirror import Mirror
from streamlog.commits.pending import PendingDecisions
from streamlog.commits.staging import StagingArea
from streamlog.errors import (
    CommitMismatchError,
    CorruptDataError,
    FileMissingError,
    NotEnoughReplicasAfterAppendError,
    UnavailableError,
)
from streamlog.fs.log_root import LogRoot
from streamlog.partition.log import Log
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.read import fetch
from streamlog.records.acks import Acks
from streamlog.records.builder import patch_batches
from streamlog.records.layout import MAX_INT32
from streamlog.records.table import BatchTable
from streamlog.topic import TopicPartition

__all__ = ["DecidedRecords", "apply_part", "batches_from"]

APPEND_SIZE: Final = 8 << 20  # bytes of one append, as far as batches allow
GATHER_SIZE: Final = 1 << 20  # smaller extents are joined up to here
PRODUCER_EPOCH: Final = 0

_logger = logging.getLogger(__name__)


class DecidedRecords:
    """The unretired decisions of one partition; implements `partition.log.Decided`.

    Args:
        root: The log root.
        partition: The partition.
        topic_id: The id of its topic.
        pending: The unretired decisions of the root.
        mirror: Their copies on other roots; None: the partition has one replica.
        leads_commits: Whether the root leads the commits of its replica set, so that its decisions
            stand whatever the partition's leader has; only asked of a replica.
    """

    def __init__(
        self,
        root: LogRoot,
        partition: TopicPartition,
        topic_id: str,
        pending: PendingDecisions,
        mirror: Mirror | None = None,
        leads_commits: Callable[[], bool] = lambda: False,
    ) -> None:
        self._leads_commits = leads_commits
        self._partition, self._topic_id = partition, topic_id
        self._pending, self._mirror = pending, mirror
        self._ledgers = Ledgers(root)
        self._area = StagingArea(root)

    def waits(self) -> bool:
        """Whether the root may have a decision; lists one directory."""
        return self._mirror is not None or self._pending.any()

    def apply(self, log: Log) -> None:
        """Apply the partition's decisions in the order of their offsets.

        Args:
            log: The partition, within `writing`.
        """
        if self._mirror is not None and not self._mirror.may_apply(log):
            return
        waiting: list[tuple[Decision, DecidedPart]] = []
        for decision, part in self._pending.naming(self._partition):
            if part.topic_id != self._topic_id:
                _logger.warning(
                    "[%s] dropped %s: the topic was deleted and recreated",
                    self._partition,
                    decision.identity,
                )
            elif part.last_offset >= log.log_end_offset and not self._ledgers.has_retired(decision):
                waiting.append((decision, part))
        if waiting:
            self._pending.sync()  # the process that created them may have died before its sync
        for decision, part in waiting:
            size = apply_part(log, decision, part, self._reader(decision))
            _logger.info(
                "[%s] applied %s, decided by another process: %d bytes",
                self._partition,
                decision.identity,
                size,
            )

    def batches(self, offset: int, size: int) -> Iterator[NDArray[np.uint8]]:
        """Yield decided batches as they appear in the log, starting at `offset`.

        Args:
            offset: Base offset of the first batch; nothing is yielded if no decision has such a
                batch.
            size: Maximum total size of the batches, in bytes.

        Raises:
            CorruptDataError: A decision, a ledger or a staged file is damaged.
        """
        for decision, part in self._parts():
            if part.base_offset <= offset <= part.last_offset:
                self._pending.sync()  # the process that created it may have died before its sync
                reader = self._reader(decision)
                yield from batches_from(decision, part, reader, offset=offset, size=size)

    def end_offset(self) -> int:
        """Return the offset after the last decided record, 0 if there is none.

        Raises:
            CorruptCheckpointError: A decision or a ledger is damaged.
        """
        return max((part.last_offset + 1 for _, part in self._parts()), default=0)

    def discard_above(self, offset: int) -> None:
        """Discard, durably, the decisions that reach above an offset of this replica.

        The replica follows another one, which does not have their records: they were never decided.
        Unless this root leads the commits: then they are applied as soon as it leads the partition.

        Raises:
            UnavailableError: One names other partitions too; whether it was decided is a question
                for all of them. Nothing was discarded.
            CorruptCheckpointError: A decision or a ledger is damaged.
        """
        above = [decision for decision, part in self._parts() if part.last_offset >= offset]
        if above and self._leads_commits():
            return
        for decision in above:
            if len(decision.parts) > 1:
                raise UnavailableError(
                    "a decided commit reaches above the truncation of a replica",
                    path=f"{self._pending.path}/{decision.name}",
                    offset=offset,
                    got=f"{len(decision.parts)} partitions in {decision.identity}",
                    expected="a commit of this partition only, which can be discarded",
                    hint="copy the commits of the replica set to this root: "
                    "streamlog replicate --once",
                )
        for decision in above:
            _logger.warning(
                "[%s] discarded %s: the leader does not have its records from offset %d on",
                self._partition,
                decision.identity,
                offset,
            )
            self._pending.remove(decision.name)
        self.sync()  # also of retired ones, whose removal may not be durable

    def sync(self) -> None:
        """Make the set of decisions durable; does nothing if the root never had one."""
        with contextlib.suppress(FileMissingError):
            self._pending.sync()

    def _parts(self) -> Iterator[tuple[Decision, DecidedPart]]:
        for decision, part in self._pending.naming(self._partition):
            if part.topic_id == self._topic_id and not self._ledgers.has_retired(decision):
                yield decision, part

    def _reader(self, decision: Decision) -> ExtentReader:
        return ExtentReader(self._area, decision.identity.app, decision.files)


class _Placed(NamedTuple):
    """Batches with their final headers."""

    buffer: NDArray[np.uint8]
    table: BatchTable


def apply_part(
    log: Log,
    decision: Decision,
    part: DecidedPart,
    reader: ExtentReader,
    *,
    acks: Acks = Acks.LEADER,
) -> int:
    """Append the batches of a decision that a partition lacks; only within `writing`.

    Args:
        log: The partition.
        decision: The decision.
        part: Its part for this partition.
        reader: Reads the decision's staged files.
        acks: Whether to wait until all replicas in sync hold them.

    Returns:
        The number of bytes appended; 0 if everything was applied before.

    Raises:
        CorruptDataError: The log ends below the part or inside a batch, or a staged file is
            damaged.
        CommitMismatchError: The log contains other bytes in place of the decision's.
        UnavailableError: The disk refuses; some whole batches may be appended.
            NotEnoughReplicasAfterAppendError: all are, but too few replicas hold them.
    """
    start = log.log_end_offset
    if start > part.last_offset:
        return 0
    if start < part.base_offset:
        raise CorruptDataError(
            "log ends below a decided commit: records before it are lost",
            path=log.path,
            offset=start,
            got=f"log end {start}",
            expected=f"{part.base_offset}, the base offset of {decision.identity}",
            hint="restore the partition from a copy; nothing was changed",
        )
    appended = 0
    unheld: NotEnoughReplicasAfterAppendError | None = None
    for placed in _place(decision, part, reader):
        missing = _drop_applied(log, decision, placed)
        for buffer, table in _cut(missing, log.config.effective_segment_bytes):
            try:
                log.append_decided(buffer, table, acks=acks)
            except NotEnoughReplicasAfterAppendError as error:
                unheld = error  # the rest is decided, too
            appended += buffer.size
    if start > part.base_offset:
        _logger.info(
            "[%s] applied the rest of %s from offset %d on",
            log.topic_partition,
            decision.identity,
            start,
        )
    if unheld is not None:
        raise unheld
    return appended


def batches_from(
    decision: Decision, part: DecidedPart, reader: ExtentReader, *, offset: int, size: int
) -> Iterator[NDArray[np.uint8]]:
    """Yield the batches of a part as they appear in the log, starting at `offset`.

    Args:
        decision: The decision.
        part: Its part for the partition.
        reader: Reads the decision's staged files.
        offset: Base offset of the first batch; nothing is yielded if it is inside a batch.
        size: Maximum total size of the batches, in bytes.

    Raises:
        CorruptDataError: A staged file is damaged.
    """
    for buffer, table in _place(decision, part, reader):
        first = int(np.searchsorted(table.base_offset, offset))
        if first == len(table):
            continue
        if int(table.base_offset[first]) > offset:
            return
        start = int(table.position[first])
        ends = table.position + table.size
        stop = int(np.searchsorted(ends, start + size, side="right"))
        if stop > first:
            yield buffer[start : int(ends[stop - 1])]
        if stop < len(table):
            return
        size -= int(ends[-1]) - start
        offset = int(table.last_offset[-1]) + 1


def _place(decision: Decision, part: DecidedPart, reader: ExtentReader) -> Iterator[_Placed]:
    """Yield the batches of a part with the headers that the decision gives them."""
    producer_id = producer_id_for(decision.identity.app)
    offset, sequence = part.base_offset, part.base_sequence
    for buffer, table in _gather(part, reader):
        placed = patch_batches(
            buffer,
            table,
            base_offset=offset,
            leader_epoch=part.leader_epoch,
            producer_id=producer_id,
            producer_epoch=PRODUCER_EPOCH,
            base_sequence=sequence,
            max_timestamp=part.append_time,
        )
        end = int(placed.last_offset[-1]) + 1
        sequence = (sequence + end - offset) & MAX_INT32
        offset = end
        yield _Placed(buffer, placed)


def _gather(part: DecidedPart, reader: ExtentReader) -> Iterator[_Placed]:
    """Yield extents, joining small ones."""
    waiting: list[_Placed] = []
    size = 0
    for extent in part.extents:
        if waiting and size + extent.size > GATHER_SIZE:
            yield _join(waiting)
            waiting, size = [], 0
        waiting.append(_Placed(*reader.read(extent)))
        size += extent.size
    if waiting:
        yield _join(waiting)


def _join(parts: list[_Placed]) -> _Placed:
    if len(parts) == 1:
        return parts[0]
    tables, position = [], 0
    for part in parts:
        tables.append(part.table.moved(position))
        position += part.buffer.size
    return _Placed(np.concatenate([part.buffer for part in parts]), BatchTable.concatenate(tables))


def _drop_applied(log: Log, decision: Decision, placed: _Placed) -> _Placed:
    """Return the batches that the log lacks, after checking that the log ends between batches."""
    end = log.log_end_offset
    buffer, table = placed
    applied = int(np.searchsorted(table.last_offset, end))
    if applied == 0 and int(table.base_offset[0]) == end:
        return placed
    if applied < len(table) and int(table.base_offset[applied]) < end:
        raise CorruptDataError(
            "log ends inside a batch of a decided commit",
            path=log.path,
            offset=end,
            got=f"log end {end}",
            expected=f"{int(table.base_offset[applied])} or {int(table.last_offset[applied]) + 1}",
            hint="restore the partition from a copy; nothing was changed",
        )
    if applied and int(table.last_offset[applied - 1]) == end - 1:
        _check_same(log, decision, buffer, table.slice(applied - 1, applied))
    if applied == len(table):
        return _Placed(buffer[:0], table.slice(0, 0))
    position = int(table.position[applied])
    return _Placed(buffer[position:], table.slice(applied, len(table)).moved(-position))


def _check_same(log: Log, decision: Decision, buffer: NDArray[np.uint8], batch: BatchTable) -> None:
    """Check that the last applied batch in the log has the decision's bytes."""
    offset = int(batch.base_offset[0])
    if offset < log.log_start_offset:
        return
    position, size = int(batch.position[0]), int(batch.size[0])
    end = log.log_end_offset
    found = fetch(  # also above the high watermark, where a part was not copied yet
        log.segments,
        offset,
        offsets=LogOffsets.of_one_replica(log.log_start_offset, end),
        last_stable_offset=end,
        upper=end,
        max_bytes=1,
        max_decompressed=log.config.readable_decompressed_bytes,
    )
    if bytes(found.buffer[:size]) != buffer[position : position + size].tobytes():
        raise CommitMismatchError(
            "log contains other records at the offsets of a decided commit",
            path=log.path,
            offset=offset,
            expected=f"a batch of {decision.identity}",
            hint="another program wrote here and ignored decided commits; nothing was changed",
        )


def _cut(placed: _Placed, segment_bytes: int) -> Iterator[_Placed]:
    """Yield the batches in appends that fit into a segment."""
    buffer, table = placed
    limit = min(APPEND_SIZE, segment_bytes)
    if buffer.size <= limit:
        if len(table):
            yield placed
        return
    ends = table.position + table.size
    first = 0
    while first < len(table):
        start = int(table.position[first])
        last = max(first + 1, int(np.searchsorted(ends, start + limit, side="right")))
        part = table.slice(first, last).moved(-start)
        yield _Placed(buffer[start : int(ends[last - 1])], part)
        first = last
