"""Reading by offset: locate a slice in an immutable list of segments, read it, check its batches.

A read finds the segment by binary search and the position by the sparse index. It begins with the
batch that holds the offset, so the first records may lie below it; `FetchInfo.records` and
`FetchInfo.columns` drop those. The isolation level may bound the last offset.
"""

import itertools
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import as_source
from streamlog.config.log_config import DEFAULT_MAX_DECOMPRESSED_BYTES
from streamlog.errors import CorruptRecordError, OffsetOutOfRangeError
from streamlog.fs.api import File
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.segments import Segments
from streamlog.records.batch import (
    BatchTable,
    LegacyRecordBatch,
    RecordBatch,
    ScanStop,
    batch_of,
)
from streamlog.records.columns import COLUMNS, RecordColumns
from streamlog.records.decode import PIECE_BYTES, Wanted, decode_columns, decode_pieces
from streamlog.records.layout import HEADER_SIZE_UP_TO_MAGIC, MAX_INT64
from streamlog.records.record import Record
from streamlog.records.table import LAST_OFFSET, POSITION, SIZE
from streamlog.segment.segment import Segment
from streamlog.segment.txn_index import AbortedTxn

__all__ = [
    "READ_BEYOND",
    "FetchInfo",
    "OpenSlice",
    "ReadableOffsets",
    "Slice",
    "aborted_between",
    "committed_batches",
    "fetch",
    "locate",
    "size_between",
    "split",
]

_OFFSET: Final = struct.Struct(">q")  # a batch begins with its offset
READ_BEYOND: Final = _OFFSET.size  # bytes read after those wanted, to check the next offset


class Slice(NamedTuple):
    """Batches as they lie in one segment file; enough to send them, or for another process.

    Only a truncation changes bytes below the log end: appends go after them, and compaction
    replaces the whole file, which an open file descriptor keeps readable.

    Attributes:
        file: The path of the segment's `.log` file.
        position: Where the first batch begins.
        size: Bytes; the last batch may be cut off.
    """

    file: str
    position: int
    size: int


class ReadableOffsets(NamedTuple):
    """The offsets of a log, or of one of its segments, at one moment.

    Attributes:
        start: The first offset.
        end: Where reading ends at an isolation level (exclusive).
        log_end: The offset after the last record.
    """

    start: int
    end: int
    log_end: int


class OpenSlice(NamedTuple):
    """Batches as they lie in a segment, with its open file.

    Attributes:
        file: The segment's log file; None if the bytes were read.
        data: The bytes, if they were read.
        position: Where the first batch begins.
        size: Bytes; the last batch may be cut off.
        aborted: For `read_committed`: the aborted transactions that may touch these batches.
    """

    file: File | None
    data: bytes
    position: int
    size: int
    aborted: tuple[AbortedTxn, ...]


_Place = tuple[Segment, Segment | None, Slice]  # with the segment that follows


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchInfo:
    """Whole, checked batches, and the log's offsets when they were read.

    Attributes:
        offset: The offset that was requested.
        buffer: The batches, byte for byte as on the disk; read-only.
        table: Their headers; positions are relative to `buffer`.
        next_offset: Where to continue: after the last batch; without any, the bound, since
            compaction may have left nothing below it.
        end_offset: Records at or above it were not requested (a batch may hold some).
        offsets: Those of the log.
        last_stable_offset: Where `read_committed` ended.
        path: The segment file of the batches, empty without any.
        position: The position of `buffer` in that file.
        aborted: For `read_committed`: the aborted transactions that touch these batches.
        max_decompressed: The most bytes that the records of one batch may decompress to.

    Source: org.apache.kafka.storage.internals.log.FetchDataInfo.
    """

    offset: int
    buffer: memoryview
    table: BatchTable
    next_offset: int
    end_offset: int
    offsets: LogOffsets
    last_stable_offset: int
    path: str = ""
    position: int = 0
    aborted: tuple[AbortedTxn, ...] = ()
    max_decompressed: int = DEFAULT_MAX_DECOMPRESSED_BYTES

    @property
    def log_start_offset(self) -> int:
        """The first offset the log had."""
        return self.offsets.start

    @property
    def log_end_offset(self) -> int:
        """The offset the next record was to get."""
        return self.offsets.end

    @property
    def high_watermark(self) -> int:
        """Where `read_uncommitted` ended."""
        return self.offsets.high_watermark

    def batches(self) -> Iterator[RecordBatch | LegacyRecordBatch]:
        """Yield the batches, control batches and those of aborted transactions included."""
        for position, size in zip(self.table.position, self.table.size, strict=True):
            yield batch_of(self.buffer[position : position + size])

    def columns(self, *, columns: Collection[str] = COLUMNS) -> RecordColumns:
        """Return the wanted records as flat arrays, all of them; see `pieces`.

        Args:
            columns: Which of `key`, `value`, `headers` to decode.

        Returns:
            Records from `offset` up to `end_offset`, without control records and those of
            aborted transactions.

        Raises:
            CorruptRecordError: A batch has a valid checksum, but an invalid structure.
            LimitExceededError: A batch decompresses to more than allowed, or all to 2 GiB.
        """
        return decode_columns(
            self.buffer,
            self._visible(),
            columns=frozenset(columns),
            start_offset=self.offset,
            end_offset=self.end_offset,
            max_decompressed=self.max_decompressed,
            path=self.path or None,
            position=self.position,
        )

    def pieces(
        self,
        *,
        columns: Collection[str] = COLUMNS,
        max_rows: int = MAX_INT64,
        max_bytes: int = PIECE_BYTES,
    ) -> Iterator[tuple[BatchTable, RecordColumns]]:
        """Yield the wanted records as flat arrays of bounded size, decoded lazily.

        Args:
            columns: Which of `key`, `value`, `headers` to decode.
            max_rows: The approximate limit of records in a piece.
            max_bytes: The approximate limit of decompressed bytes in a piece; one batch at least.

        Yields:
            Batches, and their wanted records.

        Raises:
            CorruptRecordError: A batch has a valid checksum, but an invalid structure.
            LimitExceededError: A batch decompresses to more than allowed.
        """
        wanted = Wanted(
            columns=frozenset(columns),
            start_offset=self.offset,
            end_offset=self.end_offset,
            max_decompressed=self.max_decompressed,
            max_rows=max_rows,
            max_bytes=max_bytes,
        )
        path, position = self.path or None, self.position
        return decode_pieces(self.buffer, self._visible(), wanted, path=path, position=position)

    def records(self) -> Iterator[Record]:
        """Yield the wanted records one by one; see `columns` for the fast way."""
        for _, piece in self.pieces():
            yield from piece.records()

    def _visible(self) -> BatchTable:
        return committed_batches(self.table, self.aborted)


def committed_batches(table: BatchTable, aborted: Collection[AbortedTxn]) -> BatchTable:
    """Return the batches that belong to none of the aborted transactions."""
    if not aborted:
        return table
    dropped = np.zeros(len(table), np.bool_)
    for txn in aborted:
        inside = (table.base_offset >= txn.first_offset) & (table.base_offset <= txn.last_offset)
        dropped |= inside & (table.producer_id == txn.producer_id)
    return table.select(~(dropped & table.is_transactional))


def fetch(
    segments: Segments,
    offset: int,
    *,
    offsets: LogOffsets,
    last_stable_offset: int,
    upper: int,
    end_offset: int = MAX_INT64,
    max_bytes: int,
    is_committed: bool = False,
    unindexed_aborts: Sequence[AbortedTxn] = (),
    into: NDArray[np.uint8] | None = None,
    max_decompressed: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> FetchInfo:
    """Read batches, beginning with the one that holds `offset`.

    Args:
        segments: The log's segments at one moment.
        offset: The first offset wanted.
        offsets: The log's offsets at that moment.
        last_stable_offset: The last stable offset, for the answer.
        upper: No batch from this offset on is returned (the isolation level's bound).
        end_offset: Nor one from this offset on (the caller's bound).
        max_bytes: The approximate size; the first batch is whole however large it is.
        is_committed: Whether to leave out records of aborted transactions.
        unindexed_aborts: Aborted transactions that may be missing in the transaction indexes.
        into: Memory for the batches, used if it is large enough.
        max_decompressed: The most bytes that the records of one batch may decompress to.

    Returns:
        The batches; none if `offset` is at the bound.

    Raises:
        OffsetOutOfRangeError: `offset` below the log start or above the log end.
        CorruptRecordError: A checksum or header is invalid; names file, position and offset.

    Source: UnifiedLog.read, LocalLog.read.
    """
    if not offsets.start <= offset <= offsets.end:
        raise _outside(segments, offset, offsets)
    upper = min(upper, end_offset)
    if offset < upper:
        for place in _places(segments, offset, upper, max_bytes):
            batches = _read(place, offset, upper, into=into)
            if batches is not None:
                info = FetchInfo(
                    offset=offset,
                    buffer=batches.buffer[: batches.table.end],
                    table=batches.table,
                    next_offset=int(batches.table.last_offset[-1]) + 1,
                    end_offset=end_offset,
                    offsets=offsets,
                    last_stable_offset=last_stable_offset,
                    path=batches.path,
                    position=batches.position,
                    max_decompressed=max_decompressed,
                )
                return _without_aborted(info, segments, unindexed_aborts) if is_committed else info
    return FetchInfo(
        offset=offset,
        buffer=memoryview(b""),
        table=BatchTable.empty(),
        next_offset=max(offset, min(upper, offsets.end)) if offset < upper else offset,
        end_offset=end_offset,
        offsets=offsets,
        last_stable_offset=last_stable_offset,
    )


def locate(
    segments: Segments,
    offset: int,
    *,
    offsets: LogOffsets,
    upper: int,
    max_bytes: int,
    is_first: bool = True,
) -> tuple[Segment, Slice] | None:
    """Find the bytes of the batches from the one that holds `offset` on, without reading them.

    Args:
        segments: The log's segments at one moment.
        offset: The first offset wanted.
        offsets: The log's offsets at that moment.
        upper: No batch that begins at or above it is in the slice.
        max_bytes: The size wanted.
        is_first: Whether the first batch is whole however large it is; otherwise nothing is found
            where it is larger than `max_bytes`.

    Returns:
        The segment and where they lie; the last batch may be cut off. None where `offset` is at
        the bound, or compaction left nothing below it.

    Raises:
        OffsetOutOfRangeError: `offset` below the log start or above the log end.
        CorruptRecordError: A header on the way is wrong; the batches themselves are not checked.

    Source: LogSegment.read, which returns a slice of a FileRecords.
    """
    if not offsets.start <= offset <= offsets.end:
        raise _outside(segments, offset, offsets)
    if offset >= upper:
        return None
    for segment, behind, found in _places(segments, offset, upper, max_bytes):
        end = segment.size
        is_bounded = behind is None or behind.base_offset > upper
        if is_bounded and segment.next_offset() > upper:  # looked at after its size
            last = segment.translate_offset(upper)
            if last is not None:
                end = last.position + (last.size if last.offset < upper else 0)
        if end > found.position:
            size = min(found.size, end - found.position)
            return (segment, found._replace(size=size)) if is_first or size <= max_bytes else None
    return None


def _outside(segments: Segments, offset: int, offsets: LogOffsets) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        "offset is outside the log",
        path=segments[0].directory if len(segments) else None,
        got=str(offset),
        expected=f"{offsets.start} to {offsets.end}",
    )


def _places(segments: Segments, offset: int, upper: int, max_bytes: int) -> Iterator[_Place]:
    """Yield where each segment below `upper` has batches from `offset` on; no size is clipped."""
    following = segments.starting_at(offset)
    for segment, behind in itertools.zip_longest(following, following[1:]):
        if segment.base_offset >= upper:
            return
        start = segment.translate_offset(offset, is_whole=True)
        if start is not None:
            size = max(max_bytes, start.size)
            yield segment, behind, Slice(segment.path, start.position, size)


def _without_aborted(
    info: FetchInfo, segments: Segments, unindexed: Sequence[AbortedTxn]
) -> FetchInfo:
    """Add the aborted transactions that overlap with the batches."""
    if not info.table.is_transactional.any():
        return info
    start, end = info.offset, info.next_offset
    aborted = aborted_between(segments, start, end)
    aborted += (txn for txn in unindexed if txn.last_offset >= start and txn.first_offset < end)
    return replace(info, aborted=tuple(aborted))


def aborted_between(segments: Segments, start_offset: int, end_offset: int) -> list[AbortedTxn]:
    """Return the aborted transactions that may overlap with offsets from `start` up to `end`.

    Raises:
        CorruptIndexError: A transaction index is damaged.

    Source: UnifiedLog.collectAbortedTransactions.
    """
    aborted: list[AbortedTxn] = []
    for segment in segments.starting_at(start_offset):
        search = segment.aborted_transactions(start_offset, end_offset)
        aborted += search.aborted
        if search.is_complete:
            break
    return aborted


class _Batches(NamedTuple):
    """Batches of a segment: their place, their bytes and some after them, their headers."""

    path: str
    position: int
    buffer: memoryview
    table: BatchTable


def _read(
    place: _Place, offset: int, upper: int, *, into: NDArray[np.uint8] | None
) -> _Batches | None:
    """Return the batches of a slice that begin below `upper`, checked; None for none."""
    segment, behind, (_, position, size) = place
    chunk = segment.read_checked(position, size, beyond=READ_BEYOND, into=into)
    read, scan = memoryview(as_source(chunk.buffer)), chunk.scan
    if scan.stop not in (ScanStop.END, ScanStop.PARTIAL) or len(scan.table) == 0:
        raise CorruptRecordError(
            f"not a record batch ({scan.stop.name.lower()})",
            path=segment.path,
            position=position + scan.consumed,
            offset=offset,
            got=read[scan.consumed : scan.consumed + HEADER_SIZE_UP_TO_MAGIC].hex(),
            expected="the header of a batch",
        )
    wanted = scan.table.count_before(upper)
    table = scan.table.slice(0, max(wanted, 1))
    batches = _Batches(segment.path, position, read, table)
    if chunk.sound < len(table):
        raise _bad_checksum(batches, chunk.sound)
    _check_order(batches, segment.size, behind)
    return batches if wanted else None  # compaction left nothing below the bound


def _bad_checksum(batches: _Batches, row: int) -> CorruptRecordError:
    table = batches.table
    return CorruptRecordError(
        "record batch fails its checksum",
        path=batches.path,
        position=batches.position + int(table.position[row]),
        offset=int(table.base_offset[row]),
        got="another checksum over its bytes",
        expected=f"{int(table.crc[row]):#010x}",
    )


def _check_order(batches: _Batches, segment_size: int, behind: Segment | None) -> None:
    """Check that each batch begins above the previous one, and so does what follows them.

    The checksum does not cover base offsets: if one were raised, records would be skipped.

    Raises:
        CorruptRecordError: Two batches claim the same offsets.
    """
    table = batches.table
    rising = table.count_rising()
    row = table.fields[rising - 1].tolist()
    last, end = row[LAST_OFFSET], row[POSITION] + row[SIZE]
    if len(batches.buffer) >= end + _OFFSET.size:
        (begins,) = _OFFSET.unpack_from(batches.buffer, end)
    elif behind is not None and batches.position + end == segment_size:
        begins = behind.base_offset
    else:
        return
    if begins <= last:
        raise CorruptRecordError(
            "offsets of two batches overlap",
            path=batches.path,
            position=batches.position + end,
            offset=last,
            got=f"what comes next begins at offset {begins}",
            expected=f"an offset above {last}",
        )


def size_between(segments: Segments, start_offset: int, end_offset: int) -> int:
    """Return the approximate number of bytes between two offsets, by the indexes."""
    if end_offset <= start_offset:
        return 0
    total = 0
    for segment in segments.starting_at(start_offset):
        if segment.base_offset >= end_offset:
            break
        total += _position_in(segment, end_offset) - _position_in(segment, start_offset)
    return max(total, 0)


def _position_in(segment: Segment, offset: int) -> int:
    """Return the approximate position of `offset` in a segment: 0 below it, its size above."""
    if offset <= segment.base_offset:
        return 0
    return segment.approximate_position(offset)


def split(
    segments: Segments, start_offset: int, end_offset: int, parts: int
) -> list[tuple[int, int]]:
    """Split a range of offsets into at most `parts` ranges of about equal bytes.

    Ranges end at offsets in the sparse indexes, which are ends of batches; a range that fits
    between two index entries is not split.

    Args:
        segments: The log's segments.
        start_offset: The first offset.
        end_offset: The offset after the last.
        parts: The maximum number of ranges, 1 or more.

    Returns:
        Adjacent ranges that cover the given one; none is empty.
    """
    total = size_between(segments, start_offset, end_offset)
    if parts <= 1 or total == 0:
        return [(start_offset, end_offset)] if end_offset > start_offset else []
    cuts: list[int] = []
    passed = 0
    for segment in segments.starting_at(start_offset):
        if segment.base_offset >= end_offset:
            break
        begin = _position_in(segment, start_offset)
        end = _position_in(segment, end_offset)
        while len(cuts) < parts - 1:
            goal = begin + (len(cuts) + 1) * total // parts - passed
            if goal >= end:
                break
            cut = segment.offset_at(goal)
            if cut is None:
                break
            cuts.append(cut)
        passed += end - begin
    borders = [start_offset]
    borders += sorted({cut for cut in cuts if start_offset < cut < end_offset})
    borders.append(end_offset)
    return list(itertools.pairwise(borders))
