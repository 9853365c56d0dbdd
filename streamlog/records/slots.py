"""Slots of many records: from batches, every record checked and none copied; or from columns.

Both ways meet here: what reads records for another purpose than columns (validation, compaction)
works on slots, and batches are written from slots. `streamlog.records.slot` says what one is.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import WORD_SIZE, Buffer, as_source, read_only
from streamlog.binary.compression import NONE, decompress
from streamlog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    LimitExceededError,
)
from streamlog.records import legacy_layout as m
from streamlog.records import slot as s
from streamlog.records.layout import (
    COMPRESSION_MASK,
    MAX_INT32,
    MAX_INT64,
    MIN_INT64,
    MIN_RECORD_SIZE,
)
from streamlog.records.table import COUNT, UNKNOWN_COUNT, BatchTable

if TYPE_CHECKING:
    from streamlog.records.columns import (
        BinaryColumn,
        HeaderColumn,
        InputColumns,
        RecordColumns,
    )

__all__ = [
    "MAX_DECOMPRESSED",
    "RecordSlots",
    "check_status",
    "decode_slots",
    "naming",
    "records_of",
    "slot_column",
    "slots_of",
]

MAX_DECOMPRESSED: Final = 64 << 20  # of one batch; `max.message.bytes` is 1 MiB by default
MAX_ARENA: Final = MAX_INT32  # of all batches decoded by one call
MAX_SIZE_PREFIX: Final = 5  # of a header's key or value
NO_BYTES: Final = as_source(b"")

# For `choose_batches`: whatever their offsets, also control batches.
ALL_RECORDS: Final = np.array((MIN_INT64, MAX_INT64, 0), np.int64)

_NO_OFFSETS: Final = read_only(np.empty(0, np.int32), np.int32)

WHAT_IS_WRONG: Final = {
    s.BAD_COUNT: "batch is too short for its record count",
    s.BAD_RECORD_LENGTH: "record length is impossible, or the batch ends before its last record",
    s.BAD_NUMBER: "timestamp or offset of a record is damaged",
    s.BAD_FIELD_LENGTH: "key, value or header reaches beyond its record",
    s.BAD_HEADER_COUNT: "record has an impossible number of headers",
    s.BAD_HEADER_KEY: "header key is null or reaches beyond its record",
    s.BAD_RECORD_END: "record is longer than its fields",
    s.SURPLUS_BYTES: "batch goes on behind its last record",
    s.OUT_OF_ROOM: "batch lies outside its buffer",
    m.BAD_MESSAGE_LENGTH: "length of a message is impossible",
    m.BAD_MESSAGE_MAGIC: "message set holds a message of another format",
    m.BAD_MESSAGE_FIELD: "key or value reaches beyond its message",
    m.NESTED: "message in a compressed message is compressed itself",
    m.NO_MESSAGES: "compressed message holds no message",
    m.BAD_WRAPPER_CODEC: "message is compressed with a codec that its format does not know",
    m.NULL_WRAPPER: "compressed message has no value",
    m.BAD_WRAPPER_OFFSET: "offset of a compressed message is below that of its last record",
    m.BAD_MESSAGE_ORDER: "offsets in a compressed message go back",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSlots:
    """Where the fields of checked records lie.

    Attributes:
        source: uint8[m], the bytes the slots point into.
        slots: int64[n, 9], a slot a record.
        rows: int64[b], how many of them belong to each batch of the table.
    """

    source: NDArray[np.uint8]
    slots: NDArray[np.int64]
    rows: NDArray[np.int64]


def decode_slots(buffer: Buffer, table: BatchTable) -> RecordSlots:
    """Check all records of many batches, those of control batches too, and say where they lie.

    Args:
        buffer: The batches; nothing in them is trusted.
        table: Their headers, as `scan_batches` found them in `buffer`.

    Raises:
        CorruptRecordError: A record's structure is wrong, or compressed bytes are damaged.
        LimitExceededError: A batch decompresses to more than is ever read, or all together to
            2 GiB.

    Source: DefaultRecordBatch.iterator, DefaultRecord.readFrom.
    """
    from streamlog.records import kernels

    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    source, spans = records_of(buffer, table, limits=ALL_RECORDS, totals=totals)
    slots = np.empty((int(totals[s.TOTAL_ROWS]), s.SLOT_WIDTH), np.int64)
    check_status(kernels.locate_records(source, table.fields, spans, slots, totals), table, totals)
    return RecordSlots(source=source, slots=slots, rows=table.count)


@contextlib.contextmanager
def naming(path: str | None, position: int) -> Iterator[None]:
    """Name the file in errors about a buffer that begins at `position` of it."""
    try:
        yield
    except (CorruptRecordError, LimitExceededError) as error:
        error.path = path
        error.position = position + (error.position or 0)
        raise


def records_of(
    buffer: Buffer,
    table: BatchTable,
    *,
    limits: NDArray[np.int64],
    totals: NDArray[np.int64],
    max_decompressed: int = MAX_DECOMPRESSED,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes that the records of the batches lie in, decompressed, and where.

    They are 8 at least where there is a record, as the kernels need them.

    Args:
        buffer: The batches; nothing in them is trusted.
        table: Their headers.
        limits: int64[3], which batches are wanted, see `streamlog.records.kernels`.
        totals: int64[9]; the rows and the bytes of records there may be and the attributes
            or-ed are filled.
        max_decompressed: The most bytes one batch may decompress to.

    Returns:
        uint8[m] and int64[b, 2]: where each batch's records begin and end in it; begin -1 for a
        batch that is left out.

    Raises:
        CorruptRecordError: A batch is too short for its count, or compressed bytes are damaged.
        LimitExceededError: Decompressed to more than is ever read.
    """
    from streamlog.records import kernels

    spans = np.empty((len(table), 2), np.int64)
    check_status(kernels.choose_batches(table.fields, limits, spans, totals), table, totals)
    source = as_source(buffer)
    if int(totals[s.ALL_ATTRIBUTES]) & COMPRESSION_MASK:
        source = _decompress(source, table, spans, max_decompressed)
        totals[s.TOTAL_BYTES] = source.size
    return source, spans


def check_status(status: int, table: BatchTable, totals: NDArray[np.int64]) -> None:
    """Raise what a kernel's `status` and the `ERROR_…` places of `totals` say.

    Raises:
        CorruptRecordError: The status is not OK.
    """
    if status == s.OK:
        return
    batch, record = int(totals[s.ERROR_BATCH]), int(totals[s.ERROR_RECORD])
    count = int(table.count[batch])
    raise CorruptRecordError(
        WHAT_IS_WRONG[status],
        position=int(table.position[batch]),
        offset=int(table.base_offset[batch]),
        got=f"record {record} of {'a compressed message' if count == UNKNOWN_COUNT else count}",
        expected="sound records",
    )


def _decompress(
    source: NDArray[np.uint8], table: BatchTable, spans: NDArray[np.int64], max_size: int
) -> NDArray[np.uint8]:
    """Put the records of all chosen batches one behind the other; `spans` follows them."""
    parts: list[Buffer] = []
    filled = 0
    codecs = table.codec.tolist()
    for batch, (start, end) in enumerate(spans.tolist()):
        if start < 0:
            continue
        where = int(table.position[batch])
        part: Buffer = source[start:end]
        if codecs[batch] != NONE:
            part = decompress(codecs[batch], part, max_size=max_size, position=where)
        count = int(table.fields[batch, COUNT])
        if count > len(part) // MIN_RECORD_SIZE:
            raise CorruptRecordError(
                WHAT_IS_WRONG[s.BAD_COUNT],
                position=where,
                offset=int(table.base_offset[batch]),
                got=f"{count} records in {len(part)} bytes",
            )
        spans[batch] = filled, filled + len(part)
        filled += len(part)
        parts.append(part)
        if filled > MAX_ARENA:
            raise LimitExceededError(
                "batches decompress to 2 GiB and more",
                position=where,
                hint="read fewer bytes at a time",
            )
    if filled < WORD_SIZE:
        parts.append(bytes(WORD_SIZE))
    return as_source(parts[0] if len(parts) == 1 else b"".join(parts))


def slots_of(
    columns: "InputColumns | RecordColumns", rows: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return a slot per row, with offsets 0, 1, 2 …, and the bytes that their headers lie in.

    Keys and values point into the columns' own data.

    Args:
        columns: The records.
        rows: int64[k], which rows to take, in this order; None: all as they stand.

    Raises:
        InvalidTimestampError: A negative timestamp other than -1.
        InvalidRecordError: A header without a key.
        InvalidRequestError: A row that is not there, columns of unequal length, or offsets that
            fall or do not fit the bytes.
    """
    from streamlog.records import write_kernels

    count = len(columns.timestamp)
    timestamps = read_only(columns.timestamp, np.int64)
    chosen = read_only(np.arange(count) if rows is None else rows, np.int64)
    slots = np.empty((len(chosen), s.SLOT_WIDTH), np.int64)
    status = write_kernels.start_slots(timestamps, chosen, slots)
    if status == s.BAD_TIMESTAMP:
        raise InvalidTimestampError(
            "timestamp is negative",
            got=int(timestamps[chosen].min()),
            expected="0 and more, or -1",
        )
    if status == s.BAD_ROW:
        raise InvalidRequestError("a row that is not there", expected=f"0 to {count - 1}")
    slot_column(columns.key, chosen, s.SLOT_KEY, slots)
    slot_column(columns.value, chosen, s.SLOT_VALUE, slots)
    if columns.headers is None:
        return slots, NO_BYTES
    return slots, _write_headers(columns.headers, chosen, slots)


def slot_column(
    column: "BinaryColumn | None",
    rows: NDArray[np.int64],
    place: int,
    slots: NDArray[np.int64],
) -> None:
    """Note in `slots` where the field of each chosen row lies.

    Args:
        column: The column; None: all null.
        rows: int64[k], read-only, the rows to take.
        place: SLOT_KEY or SLOT_VALUE.
        slots: int64[k, 9].

    Raises:
        InvalidRequestError: The column is too short, or its offsets fall.
    """
    from streamlog.records import write_kernels

    offsets, validity = _NO_OFFSETS, NO_BYTES
    if column is not None:
        offsets = read_only(column.offsets, np.int32)
        if column.validity is not None:
            validity = as_source(column.validity)
    status = write_kernels.slot_column(offsets, validity, rows, place, slots)
    if status == s.BAD_ROW:
        raise InvalidRequestError("columns of unequal length, or a row that is not there")
    if status != s.OK:
        raise InvalidRequestError("a column's offsets fall or are negative")


def _write_headers(
    headers: "HeaderColumn", rows: NDArray[np.int64], slots: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Write the chosen rows' headers one behind the other; note in `slots` where they lie."""
    from streamlog.records import write_kernels

    if len(rows) and int(rows.max()) >= len(headers):
        raise InvalidRequestError("columns of unequal length", got=len(headers))
    first = headers.offsets[rows].astype(np.int64)
    counts = headers.offsets[rows + 1] - first
    if len(counts) and (counts.min() < 0 or first.min() < 0):
        raise InvalidRequestError("the offsets of headers fall or are negative")
    last = np.cumsum(counts)
    total = int(last[-1]) if len(last) else 0
    chosen = read_only(np.arange(total) + np.repeat(first - (last - counts), counts), np.int64)
    pairs = np.empty((total, s.SLOT_WIDTH), np.int64)
    slot_column(headers.key, chosen, s.SLOT_KEY, pairs)
    slot_column(headers.value, chosen, s.SLOT_VALUE, pairs)
    if (pairs[:, s.SLOT_KEY_SIZE] < 0).any():
        raise InvalidRecordError("a header needs a key", got="null", expected="text")
    room = int(pairs[:, s.SLOT_KEY_SIZE].sum() + np.maximum(pairs[:, s.SLOT_VALUE_SIZE], 0).sum())
    written = np.empty(room + total * 2 * MAX_SIZE_PREFIX, np.uint8)
    positions = np.empty(total + 1, np.int64)
    key, value = as_source(headers.key.data), as_source(headers.value.data)
    size = write_kernels.write_header_fields(pairs, key, value, written, positions)
    if size < 0:
        raise InvalidRequestError("a column's offsets reach beyond its bytes")
    slots[:, s.SLOT_HEADERS] = positions[last - counts]
    slots[:, s.SLOT_HEADERS_SIZE] = positions[last] - positions[last - counts]
    slots[:, s.SLOT_HEADER_COUNT] = counts
    return as_source(written[:size])
