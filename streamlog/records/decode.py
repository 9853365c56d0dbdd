"""Decoding batches into columns: all at once, or a limited number of bytes at a time.

The size of a piece is decided only here, by known bytes: those of compressed batches from their
headers, those of decompressed ones once they are decompressed. Earlier batches do not predict
later ones, and claims of a batch are not trusted.
"""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import Buffer
from streamlog.config.log_config import DEFAULT_MAX_DECOMPRESSED_BYTES
from streamlog.records import slot as s
from streamlog.records.columns import (
    COLUMNS,
    BinaryColumn,
    HeaderColumn,
    RecordColumns,
    too_large,
)
from streamlog.records.layout import CONTROL_MASK, MAX_INT32, MAX_INT64, MIN_INT64
from streamlog.records.legacy import IN_ANY_ORDER, IN_ORDER, messages_of
from streamlog.records.plain_headers import compiled
from streamlog.records.plain_records import record_loops
from streamlog.records.slots import EVERYTHING, LocatedRecords, check_status, naming, records_of
from streamlog.records.table import UNKNOWN_COUNT, BatchTable

__all__ = ["PIECE_BYTES", "Wanted", "decode_columns", "decode_pieces", "decode_produced"]

PIECE_BYTES: Final = 8 << 20  # of records for one use after the other
UNKNOWN_RECORD_SIZE: Final = 8  # compressed, of a message that does not state its number of records
_NOTHING: Final = BinaryColumn(np.zeros(1, np.int32), np.empty(0, np.uint8))


class Wanted(NamedTuple):
    """Which records and fields to decode, and how much at a time.

    Attributes:
        columns: Which of `key`, `value` and `headers` to copy; the others cost nothing.
        start_offset: First offset wanted.
        end_offset: First offset no longer wanted.
        drop_control: Leave out control batches, as every consumer does.
        max_decompressed: Limit of the decompressed size of one batch, in bytes.
        max_rows: Approximate limit of records per piece.
        max_bytes: Approximate limit of bytes per piece, decompressed.
    """

    columns: Collection[str] = COLUMNS
    start_offset: int = 0
    end_offset: int = MAX_INT64
    drop_control: bool = True
    max_decompressed: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    max_rows: int = EVERYTHING
    max_bytes: int = EVERYTHING


def decode_columns(
    buffer: Buffer,
    table: BatchTable,
    *,
    columns: Collection[str] = COLUMNS,
    start_offset: int = 0,
    end_offset: int = MAX_INT64,
    drop_control: bool = True,
    max_decompressed: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    path: str | None = None,
    position: int = 0,
) -> RecordColumns:
    """Decode the records of many batches, all at once; see `decode_pieces`.

    Args:
        buffer: The batches; not trusted.
        table: Their headers, as `scan_batches` found them in `buffer`.
        columns: Which of `key`, `value` and `headers` to copy; the others cost nothing.
        start_offset: First offset wanted.
        end_offset: First offset no longer wanted.
        drop_control: Leave out control batches, as every consumer does.
        max_decompressed: Limit of the decompressed size of one batch, in bytes.
        path: The file, for messages.
        position: Position of `buffer` in that file, for messages.

    Returns:
        The records in the order of the buffer.

    Raises:
        CorruptRecordError: A record's structure is wrong, or compressed bytes are damaged.
        LimitExceededError: A batch decompresses to more than `max_decompressed`, or a column
            to 2 GiB: decode fewer batches at a time.
    """
    wanted = Wanted(columns, start_offset, end_offset, drop_control, max_decompressed)
    with naming(path, position):
        # v2 batches and older messages have separate kernels.
        parts = [_decode_front(buffer, run, wanted)[0] for run in table.by_format()]
    return parts[0] if len(parts) == 1 else RecordColumns.concatenate(parts)


def decode_pieces(
    buffer: Buffer,
    table: BatchTable,
    wanted: Wanted,
    *,
    path: str | None = None,
    position: int = 0,
) -> Iterator[tuple[BatchTable, RecordColumns]]:
    """Decode the records of many batches, a limited amount at a time.

    The decompressed size of a batch is known only after decompression, never from its claims. So
    batches are decompressed one by one until a piece is large enough: however small they are, a
    piece takes the memory of `max_bytes` and one more batch. The structure is checked completely
    before a byte is copied. The CRC is not: the reader of the batches has checked it
    (`streamlog.records.batch.check_crc`).

    Args:
        buffer: The batches; not trusted.
        table: Their headers, as `scan_batches` found them in `buffer`.
        wanted: Which records and fields, and how much at a time.
        path: The file, for messages.
        position: Position of `buffer` in that file, for messages.

    Yields:
        One or more batches and their records, in the order of the buffer.

    Raises:
        CorruptRecordError: A record's structure is wrong, or compressed bytes are damaged.
        LimitExceededError: A batch decompresses to more than `max_decompressed`.

    Source: DefaultRecordBatch.iterator, AbstractLegacyRecordBatch.iterator.
    """
    for run in table.by_format() if len(table) else ():
        first = 0
        while first < len(run):
            rest = run.slice(first, len(run))
            with naming(path, position):
                records, done = _decode_front(
                    buffer, rest.slice(0, _first_piece(rest, wanted)), wanted
                )
            first += len(done)
            yield done, records


def _first_piece(table: BatchTable, wanted: Wanted) -> int:
    """Return how many leading batches, one or more, make a piece according to their headers.

    A compressed message of v0 or v1 does not state its number of records; they are assumed to be
    small.
    """
    if wanted.max_rows == EVERYTHING and wanted.max_bytes == EVERYTHING:
        return len(table)
    guess = table.size // UNKNOWN_RECORD_SIZE + 1
    rows = np.cumsum(np.where(table.count == UNKNOWN_COUNT, guess, table.count))
    few = np.searchsorted(rows, wanted.max_rows, side="right")
    small = np.searchsorted(np.cumsum(table.size), wanted.max_bytes, side="right")
    return max(1, int(min(few, small)))


def _decode_front(
    buffer: Buffer, table: BatchTable, wanted: Wanted
) -> tuple[RecordColumns, BatchTable]:
    """Return the records of the leading batches of one format, v2 or older, and these batches."""
    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    bits = CONTROL_MASK if wanted.drop_control else 0
    find, last_limit = (messages_of, IN_ORDER) if table.is_legacy else (records_of, bits)
    limits = np.array((wanted.start_offset, wanted.end_offset, last_limit), np.int64)
    found = find(
        buffer,
        table,
        limits=limits,
        totals=totals,
        max_decompressed=wanted.max_decompressed,
        enough=wanted.max_bytes,
    )
    return _decode(found, limits, totals, wanted.columns), found.table


def decode_produced(buffer: Buffer, table: BatchTable, *, max_decompressed: int) -> RecordColumns:
    """Decode messages of v0 or v1 as a producer sends them, with any offsets.

    Args:
        buffer: The messages; not trusted.
        table: Their headers, as `scan_batches` found them in `buffer`.
        max_decompressed: Limit of the decompressed size of one message, in bytes.

    Raises:
        CorruptRecordError: A message's structure is wrong, or compressed bytes are damaged.
        LimitExceededError: A message decompresses to more than allowed.
    """
    limits = np.array((MIN_INT64, MAX_INT64, IN_ANY_ORDER), np.int64)
    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    found = messages_of(
        buffer, table, limits=limits, totals=totals, max_decompressed=max_decompressed
    )
    return _decode(found, limits, totals, COLUMNS)


def _decode(
    found: LocatedRecords,
    limits: NDArray[np.int64],
    totals: NDArray[np.int64],
    columns: Collection[str],
) -> RecordColumns:
    """Return the wanted records of located batches of one format, v2 or older."""
    source, spans, table = found
    rows = int(totals[s.TOTAL_ROWS])
    if table.is_legacy:
        decode = compiled("legacy_kernels").decode_messages
    else:
        decode = record_loops(rows, int(totals[s.TOTAL_BYTES])).decode_records
    room = min(int(totals[s.TOTAL_BYTES]), MAX_INT32)  # for all keys, and for all values
    longs = np.empty((s.LONGS_WIDTH, rows), np.int64)
    ints = np.empty((s.INTS_WIDTH, rows + 1), np.int32)
    validity = np.full((2, -(-rows // 8)), 0xFF, np.uint8)
    key = np.empty(room if "key" in columns else 0, np.uint8)
    value = np.empty(room if "value" in columns else 0, np.uint8)
    status = decode(source, table.fields, spans, limits, longs, ints, validity, key, value, totals)
    if status == s.OUT_OF_ROOM and room == MAX_INT32:
        raise too_large()
    check_status(status, table, totals)
    numbers = totals.tolist()
    count = numbers[s.TOTAL_ROWS]
    ints, validity = ints[:, : count + 1], validity[:, : -(-count // 8)]

    def column(data: NDArray[np.uint8], size: int, nulls: int, row: int) -> BinaryColumn:
        data.resize(size, refcheck=False)  # release the unused room
        return BinaryColumn(ints[row], data, validity[row] if nulls else None, nulls)

    key_facts = numbers[s.TOTAL_KEY_BYTES], numbers[s.TOTAL_KEY_NULLS], s.INTS_KEY
    value_facts = numbers[s.TOTAL_VALUE_BYTES], numbers[s.TOTAL_VALUE_NULLS], s.INTS_VALUE
    headers = longs[s.LONGS_HEADERS, :count], ints[s.INTS_HEADERS]
    return RecordColumns(
        count=count,
        offset=longs[s.LONGS_OFFSET, :count],
        timestamp=longs[s.LONGS_TIMESTAMP, :count],
        timestamp_type=ints[s.INTS_TYPE, :count],
        key=column(key, *key_facts) if "key" in columns else None,
        value=column(value, *value_facts) if "value" in columns else None,
        headers=_headers(source, *headers) if "headers" in columns else None,
    )


def _headers(
    source: NDArray[np.uint8], positions: NDArray[np.int64], offsets: NDArray[np.int32]
) -> HeaderColumn:
    """Return the headers of checked records, which start at `positions` of `source`."""
    count = int(offsets[-1])
    if not count:
        return HeaderColumn(offsets, _NOTHING, _NOTHING)
    copy = record_loops(count).copy_headers
    totals, nothing = np.zeros(3, np.int64), np.empty(0, np.uint8)
    no_offsets = np.empty((2, 0), np.int32)
    copy(source, positions, offsets, no_offsets, nothing, nothing, nothing, totals)
    key_size, value_size, nulls = totals.tolist()
    places = np.empty((2, count + 1), np.int32)
    validity = np.full(-(-count // 8), 0xFF, np.uint8)
    key, value = np.empty(key_size, np.uint8), np.empty(value_size, np.uint8)
    copied = copy(source, positions, offsets, places, validity, key, value, totals)
    assert copied == count, (copied, count)
    return HeaderColumn(
        offsets,
        _valid_utf8(BinaryColumn(places[0], key)),
        BinaryColumn(places[1], value, validity if nulls else None, nulls),
    )


def _valid_utf8(column: BinaryColumn) -> BinaryColumn:
    """Return `column` with U+FFFD in place of invalid UTF-8, as Java reads header keys."""
    if not (column.data & 0x80).any():
        return column
    try:
        column.data.tobytes().decode()
    except UnicodeDecodeError:
        pass
    else:
        starts = column.offsets[:-1]
        starts = starts[starts < len(column.data)]
        if not ((column.data[starts] & 0xC0) == 0x80).any():  # no character spans two values
            return column
    replaced = ((value or b"").decode(errors="replace").encode() for value in column)
    return BinaryColumn.from_values(replaced)
