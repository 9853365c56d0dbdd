"""Comparing records where batches cannot be compared, because one end divides them differently.

A digest covers each field of all records as one stream: offsets, times, and of keys, values and
headers the sizes (-1 for null) and the bytes. So it does not depend on where batches, or reads,
end. A stream's digest is its length and two checksums of different polynomials, 64 bits together:
what they have to find is damage, and a cryptographic hash takes longer than all that the copy does
with a record.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.crc import crc32, crc32c_after
from streamlog.partition.read import committed_batches
from streamlog.records.columns import COLUMNS, BinaryColumn, RecordColumns
from streamlog.records.decode import PIECE_BYTES, Wanted, decode_pieces
from streamlog.records.record import TimestampType
from streamlog.segment.txn_index import AbortedTxn
from streamlog.transfer.ends import Piece, SourcePartition

__all__ = ["RecordDigest", "committed_records", "records_of_pieces"]

_STREAMS: Final = 12


def records_of_pieces(
    pieces: Iterable[Piece],
    start_offset: int,
    end_offset: int,
    *,
    path: str,
    aborted: Collection[AbortedTxn] = (),
    columns: Collection[str] = COLUMNS,
) -> Iterator[RecordColumns]:
    """Yield the records of batches, in offsets from `start_offset` up to `end_offset`.

    Args:
        pieces: The batches.
        start_offset: The first offset.
        end_offset: The offset after the last.
        path: Their partition, for errors.
        aborted: Transactions whose records are left out; control records are, always.
        columns: Which of `key`, `value` and `headers` to decode.

    Raises:
        CorruptRecordError: A batch has an invalid structure.
        LimitExceededError: A batch decompresses to more than allowed.
    """
    wanted = Wanted(columns, start_offset, end_offset, max_bytes=PIECE_BYTES)
    for piece in pieces:
        table = committed_batches(piece.table, aborted)
        for _, found in decode_pieces(piece.buffer, table, wanted, path=path):
            if found.count:
                yield found


def committed_records(
    source: SourcePartition, start_offset: int, end_offset: int, columns: Collection[str] = COLUMNS
) -> Iterator[RecordColumns]:
    """Yield the committed records of a source between two offsets; see `records_of_pieces`."""
    if start_offset >= end_offset:
        return
    yield from records_of_pieces(
        source.pieces(start_offset, end_offset),
        start_offset,
        end_offset,
        path=source.path,
        aborted=source.aborted_between(start_offset, end_offset),
        columns=columns,
    )


class RecordDigest:
    """A digest of records in their order.

    Attributes:
        count: Records so far.
        size: Bytes of their keys, values and headers.
    """

    def __init__(self) -> None:
        self._streams = [(0, 0, 0)] * _STREAMS  # of each: its bytes, CRC-32C and CRC-32
        self.count = self.size = 0

    def add(self, records: RecordColumns) -> None:
        """Add the next records, with all columns."""
        by_broker = records.timestamp_type == TimestampType.LOG_APPEND_TIME
        arrays = [
            records.offset.astype("<i8"),
            records.timestamp.astype("<i8"),
            by_broker.astype(np.uint8),
        ]
        for column in (records.key, records.value):
            arrays += _fields(column, records.count)
        headers = records.headers
        if headers is None or not int(headers.offsets[-1]):
            arrays.append(np.zeros(records.count, "<i4"))
        else:
            arrays.append(np.diff(headers.offsets).astype("<i4"))
            arrays += _fields(headers.key, len(headers.key))
            arrays += _fields(headers.value, len(headers.value))
        for number, array in enumerate(arrays):
            size, first, second = self._streams[number]
            data = np.ascontiguousarray(array).data.cast("B")
            self._streams[number] = size + len(data), crc32c_after(data, first), crc32(data, second)
        self.count += records.count
        self.size += (
            sum(array.nbytes for array in arrays if array.dtype == np.uint8) - records.count
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordDigest) and self._streams == other._streams

    __hash__ = None  # type: ignore[assignment]  # it changes


def _fields(column: BinaryColumn | None, count: int) -> list[NDArray[np.generic]]:
    """Return the sizes, -1 for null, and the bytes of a column."""
    if column is None:
        return [np.full(count, -1, "<i4"), np.empty(0, np.uint8)]
    sizes = np.diff(column.offsets).astype("<i4")
    if column.validity is not None:
        present = np.unpackbits(column.validity, count=count, bitorder="little")
        sizes[present == 0] = -1
    return [sizes, column.data[int(column.offsets[0]) : int(column.offsets[-1])]]
