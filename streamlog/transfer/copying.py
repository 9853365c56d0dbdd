"""Copying topics from one root to another, so that the same call again goes on.

    for each topic: begin it at the target, hidden if it is new
      for each partition: go on at the target's end, after a look at its last batch
                          read, compare checksums, write
                          read back what was written, and compare it with what was read;
                          an object store does so while the next segment is written
      show the topic

Nothing else is recorded: how far a copy has come is where the target's partitions end. A call that
finds more at the source copies only that.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from streamlog.errors import (
    CorruptRecordError,
    DataLossError,
    InvalidRequestError,
    UnknownTopicError,
    command_at,
)
from streamlog.records.columns import RecordColumns
from streamlog.records.record import Record
from streamlog.records.table import BatchTable
from streamlog.topic import TopicPartition
from streamlog.transfer.bounds import CopyBound, bound_of, bounded_pieces
from streamlog.transfer.ends import (
    CopySource,
    CopyTarget,
    CopyTopic,
    Piece,
    SourcePartition,
    TargetPartition,
)
from streamlog.transfer.record_digest import RecordDigest, committed_records, records_of_pieces

__all__ = [
    "CopiedPartition",
    "CopyRequest",
    "TopicCopier",
    "chosen_topics",
    "is_compacted",
    "size_of",
    "uncopied",
]

_COMPACT: Final = "compact"
_NAMED: Final = 20  # topics or partitions, in an error


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """What to copy.

    Attributes:
        topics: The topics; empty: all.
        partitions: Numbers of partitions; empty: all.
        to_time: Only records up to this time, in ms since 1970; None: all.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    to_time: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedPartition:
    """What was copied of a partition in this call.

    Attributes:
        topic_partition: The partition.
        start_offset: The source's offset where the call began.
        end_offset: That where it ended.
        size: Bytes.
        batches: Their number; None if the target makes its own.
        records: Their number; None if they were not counted.
    """

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int
    size: int
    batches: int | None = None
    records: int | None = None


def size_of(source: CopySource, request: CopyRequest, *, in_offsets: bool = False) -> int:
    """Return about how many bytes, or offsets, the source has of what is to be copied.

    Raises:
        UnknownTopicError: The source has no such topic or partition.
    """
    total = 0
    for topic in chosen_topics(source, request):
        for number in topic.partitions:
            partition = source.open(TopicPartition(topic.name, number))
            start, end = partition.log_start_offset, partition.end_offset
            total += end - start if in_offsets else partition.size_between(start, end)
            partition.close()
    return total


def chosen_topics(source: CopySource, request: CopyRequest) -> list[CopyTopic]:
    """Return the topics to copy, each with the partitions to copy.

    Raises:
        UnknownTopicError: The source has no such topic or partition.
    """
    found = source.topics()
    for name in request.topics:
        if name not in found:
            raise UnknownTopicError(
                f"there is no topic {name} to copy",
                path=source.name,
                expected=f"one of {_some(found)}" if found else None,
                hint=(
                    "check the name, and whether the client may describe the topic"
                    if source.is_rebuilt
                    else command_at(source.name, "topics list")
                ),
            )
    chosen = [found[name] for name in request.topics] or list(found.values())
    if not request.partitions:
        return chosen
    there = {number for topic in chosen for number in topic.partitions}
    missing = sorted(set(request.partitions) - there)
    if missing:
        raise UnknownTopicError(
            f"partition {missing[0]} does not exist",
            path=source.name,
            expected=f"one of {_some(map(str, sorted(there)))}",
            hint="omit --partition to copy all partitions",
        )
    return [
        topic._replace(
            partitions=tuple(each for each in topic.partitions if each in request.partitions)
        )
        for topic in chosen
    ]


def _some(names: Iterable[str]) -> str:
    """Return the first names; a cluster may have thousands."""
    first = list(islice(names, _NAMED + 1))
    return ", ".join([*first[:_NAMED], "…"] if len(first) > _NAMED else first)


def uncopied(topic: CopyTopic) -> list[str]:
    """Return a remark if there are partitions that are not copied."""
    missing = max(topic.partitions, default=-1) + 1 - len(topic.partitions)
    return [f"{topic.name}: {missing} partitions were not copied"] if missing else []


class TopicCopier:
    """Copies topics from a source to a target.

    Args:
        source: Where from.
        target: Where to.
        request: What.
        on_progress: Called with numbers of bytes copied, or of offsets if batches are rebuilt.

    Attributes:
        remarks: What the copy does not have, after `run`.
    """

    def __init__(
        self,
        source: CopySource,
        target: CopyTarget,
        request: CopyRequest,
        *,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._source, self._target, self._request = source, target, request
        self._on_progress = on_progress
        self.remarks: list[str] = []

    def run(self) -> Iterator[CopiedPartition]:
        """Copy, and yield what was copied of each partition.

        Raises:
            UnknownTopicError: The source has no such topic or partition.
            InconsistentTopicIdError: The target has another topic of a name.
            CorruptRecordError: A batch of the source is damaged, or the copy is not what was read.
            DataLossError: The source has deleted records before they were copied.
            InvalidRequestError: The target has other records, or more.
            UnavailableError: A disk or a store failed, or another process changed the target; the
                next call goes on.
        """
        for topic in chosen_topics(self._source, self._request):
            self.remarks += [f"{topic.name}: {each}" for each in self._target.begin(topic)]
            self.remarks += uncopied(topic)
            for number in topic.partitions:
                yield self._copy(topic, TopicPartition(topic.name, number))
            self._target.reveal(topic.name)

    # ---- one partition -----------------------------------------------------------------------
    def _copy(self, topic: CopyTopic, partition: TopicPartition) -> CopiedPartition:
        source = self._source.open(partition)
        target = self._target.open(partition)
        source.may_overwrite = not target.keeps_pieces
        try:
            bound = bound_of(
                source,
                to_time=self._request.to_time,
                is_stable_only=self._target.is_stable_only,
            )
            start = _start_of(source, target, bound)
            if target.end_offset:
                check = _check_last_records if self._source.is_rebuilt else _check_last_batch
                check(source, target, bound, is_compacted=is_compacted(topic))
            self._on_progress(source.size_between(source.log_start_offset, start))
            earlier = self._copied_before(topic, source, target)
            seen = _Seen()
            is_behind = start > target.end_offset or start < bound.log_end_offset
            if is_behind or not target.is_finished(source):
                target.begin(source)
                reached = start
                for piece in bounded_pieces(source, start, bound):
                    target.write(piece)
                    seen.add(piece.table)
                    self._on_progress(self._size_of(piece, reached))
                    reached = piece.next_offset
                target.finish(bound.log_end_offset)
                if not target.reads_back:
                    _compare(source, target, start, bound.log_end_offset, seen)
            if isinstance(earlier, RecordDigest):
                _compare_records(source, target, start, earlier)
            elif earlier is not None:
                _compare(source, target, earlier.start, start, earlier)
            return CopiedPartition(
                topic_partition=partition,
                start_offset=start,
                end_offset=max(bound.log_end_offset, start),
                batches=seen.batches,
                size=seen.size,
            )
        finally:
            target.close()
            source.close()

    def _copied_before(
        self, topic: CopyTopic, source: SourcePartition, target: TargetPartition
    ) -> "_Seen | RecordDigest | None":
        """Return what a call that did not end has copied, for comparison before it is shown.

        None if there is nothing, and for a compacted topic, of which records may be gone by now.
        """
        if target.is_unused or is_compacted(topic) or not self._target.is_hidden(topic.name):
            return None
        seen = _Seen(max(source.log_start_offset, target.log_start_offset))
        end = target.end_offset
        if self._source.is_rebuilt:
            digest = RecordDigest()
            for records in committed_records(source, seen.start, end):
                digest.add(records)
            return digest
        for piece in bounded_pieces(source, seen.start, CopyBound(end, end)):
            seen.add(piece.table)
        return seen

    def _size_of(self, piece: Piece, reached: int) -> int:
        return piece.next_offset - reached if self._source.is_rebuilt else piece.table.end


class _Seen:
    """A digest of batches that does not depend on how they are divided into pieces.

    Args:
        start: The offset at which they begin.
    """

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self._digest = hashlib.blake2b(digest_size=16)
        self.batches = self.size = 0

    def add(self, table: BatchTable) -> None:
        """Add the next batches: offsets, epoch, size and checksum of each."""
        columns = (table.base_offset, table.last_offset, table.leader_epoch, table.size, table.crc)
        self._digest.update(np.stack(columns, axis=1).astype("<i8").tobytes())
        self.batches += len(table)
        self.size += int(table.size.sum())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Seen) and self._digest.digest() == other._digest.digest()

    __hash__ = None  # type: ignore[assignment]  # it changes


def _start_of(source: SourcePartition, target: TargetPartition, bound: CopyBound) -> int:
    """Return where to go on, after checking that source and target fit together."""
    if target.is_unused:
        return max(target.end_offset, source.log_start_offset)
    if target.end_offset > max(bound.log_end_offset, source.log_start_offset):
        is_by_time = target.end_offset <= source.end_offset
        raise InvalidRequestError(
            "the target has later records than are to be copied"
            if is_by_time
            else "the target is ahead of the source",
            path=target.path,
            got=f"log end offset {target.end_offset}",
            expected=f"at most {bound.log_end_offset}",
            hint="copy into another root, or delete the topic there",
        )
    if target.end_offset < source.log_start_offset:
        raise DataLossError(
            "the source has deleted records that were not copied yet",
            path=source.path,
            offset=target.end_offset,
            got=f"log start offset {source.log_start_offset}",
            expected=f"at most {target.end_offset}, where the target ends",
            hint="copy into another root; to keep this from happening, copy more often",
        )
    return target.end_offset


def is_compacted(topic: CopyTopic) -> bool:
    """Return whether compaction may remove records of a topic."""
    return _COMPACT in topic.configs.get("cleanup.policy", "")


def _check_last_batch(
    source: SourcePartition, target: TargetPartition, bound: CopyBound, *, is_compacted: bool
) -> None:
    """Refuse a target whose last batch is not that of the source.

    Of a compacted topic, the source may have removed records of it, or all, and the target too.
    """
    end = target.end_offset
    if end <= target.log_start_offset:
        return
    last = _last_row(target.pieces(end - 1, end))
    if last is None or last[0] < source.log_start_offset:
        return
    pieces = bounded_pieces(source, last[0], bound) if last[0] < bound.end_offset else iter(())
    same = next((row for piece in pieces for row in _rows(piece.table) if row[1] >= last[1]), None)
    if same == last or (is_compacted and (same is None or same[:2] != last[:2])):
        return
    if is_compacted and same is not None and same[3] != last[3]:
        return  # rebuilt on one side
    raise InvalidRequestError(
        "the target has other records than the source",
        path=target.path,
        offset=last[0],
        got=f"a batch with offsets {last[0]} to {last[1]} and checksum {last[4]:#010x}",
        expected="none" if same is None else f"offsets {same[0]} to {same[1]}, {same[4]:#010x}",
        hint="copy into another root; a copy that --to-time ended inside a batch is final",
    )


def _check_last_records(
    source: SourcePartition, target: TargetPartition, bound: CopyBound, *, is_compacted: bool
) -> None:
    """Refuse a target whose last batch holds other records than the source.

    Of a compacted topic, records may be gone on one side; those of both are compared.
    """
    end = target.end_offset
    last = _last_row(target.pieces(end - 1, end)) if end > target.log_start_offset else None
    first = last[0] if last is not None else end
    if not source.log_start_offset <= first < min(end, bound.end_offset):
        return
    wanted = {each.offset: each for each in _records(committed_records(source, first, end))}
    pieces = target.pieces(first, end)
    found = {each.offset: each for each in _records(records_of_pieces(pieces, first, end, path=""))}
    both = wanted.keys() & found.keys() if is_compacted else wanted.keys() | found.keys()
    for offset in sorted(both):
        if wanted.get(offset) != found.get(offset):
            raise InvalidRequestError(
                "the target has other records than the source",
                path=target.path,
                offset=offset,
                got="another record" if offset in found else "no record",
                expected=f"that of {source.path}" if offset in wanted else "none",
                hint="copy into another root",
            )


def _records(columns: Iterator[RecordColumns]) -> Iterator[Record]:
    for each in columns:
        yield from each.records()


def _last_row(pieces: Iterator[Piece]) -> tuple[int, ...] | None:
    row = None
    for piece in pieces:
        if len(piece.table):
            row = _rows(piece.table)[-1]
    return row


def _rows(table: BatchTable) -> Sequence[tuple[int, ...]]:
    columns = (table.base_offset, table.last_offset, table.leader_epoch, table.size, table.crc)
    return [tuple(row) for row in np.stack(columns, axis=1).tolist()]


def _compare(
    source: SourcePartition,
    target: TargetPartition,
    start: int,
    end: int,
    wanted: _Seen,
) -> None:
    """Read back what was written.

    Raises:
        CorruptRecordError: It differs from what was read, or is damaged.
    """
    found = _Seen()
    first = max(start, target.log_start_offset)
    for piece in target.pieces(first, end):
        found.add(piece.table)
    if found != wanted:
        raise CorruptRecordError(
            "the copy does not hold the batches that were read",
            path=target.path,
            got=f"{found.batches} batches, {found.size} bytes from offset {first} on",
            expected=f"{wanted.batches} batches, {wanted.size} bytes of {source.path}",
            hint="delete the topic at the target and copy again",
        )


def _compare_records(
    source: SourcePartition, target: TargetPartition, end: int, wanted: RecordDigest
) -> None:
    """Read back what an earlier call has written.

    Raises:
        CorruptRecordError: Its records differ from those of the source.
    """
    first = max(source.log_start_offset, target.log_start_offset)
    found = RecordDigest()
    pieces = target.pieces(first, end)
    for records in records_of_pieces(pieces, first, end, path=target.path):
        found.add(records)
    if found != wanted:
        raise CorruptRecordError(
            "the copy does not hold the records of the source",
            path=target.path,
            got=f"{found.count} records from offset {first} on",
            expected=f"{wanted.count} records of {source.path}",
            hint="delete the topic at the target and copy again",
        )
