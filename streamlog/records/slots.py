"""Slots of many records: all records of the batches checked, none copied.

For uses of records other than columns, for instance to name those that a topic refuses. See
`streamlog.records.slot` for the layout of a slot.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import WORD_SIZE, Buffer, as_source, read_only
from streamlog.binary.compression import NONE, decompress, most_decompressed
from streamlog.errors import (
    CorruptRecordError,
    LimitExceededError,
    MessageTooLargeError,
)
from streamlog.records import legacy_layout as m
from streamlog.records import slot as s
from streamlog.records.layout import (
    COMPRESSION_MASK,
    MAX_INT32,
    MAX_INT64,
    MIN_INT64,
    MIN_RECORD_SIZE,
    RECORD_BATCH_OVERHEAD,
)
from streamlog.records.plain_records import record_loops
from streamlog.records.table import COUNT, UNKNOWN_COUNT, BatchTable

__all__ = [
    "EVERYTHING",
    "HOW_TO_ALLOW",
    "LocatedRecords",
    "RecordSlots",
    "check_arena",
    "check_decompressed",
    "check_status",
    "decode_slots",
    "inflate",
    "naming",
    "records_of",
    "refusing_larger",
]

HOW_TO_ALLOW: Final = (
    "raise streamlog.max.decompressed.bytes of the topic, or for this read maxDecompressedBytes "
    "(Spark), max_decompressed_bytes (Python) or --max-decompressed-bytes (the command)"
)
MAX_ARENA: Final = MAX_INT32  # of all batches decoded by one call

EVERYTHING: Final = MAX_INT64  # no number of decompressed bytes is enough

# For `choose_batches`: any offsets, and control batches, too.
ALL_RECORDS: Final = np.array((MIN_INT64, MAX_INT64, 0), np.int64)

_NO_OFFSETS: Final = read_only(np.empty(0, np.int32), np.int32)

WHAT_IS_WRONG: Final = {
    s.BAD_COUNT: "batch is too short for its record count",
    s.BAD_RECORD_LENGTH: "invalid record length, or the batch ends before its last record",
    s.BAD_NUMBER: "timestamp or offset of a record is damaged",
    s.BAD_FIELD_LENGTH: "key, value or header reaches beyond its record",
    s.BAD_HEADER_COUNT: "invalid number of headers in a record",
    s.BAD_HEADER_KEY: "header key is null or reaches beyond its record",
    s.BAD_RECORD_END: "record is longer than its fields",
    s.SURPLUS_BYTES: "batch continues after its last record",
    s.OUT_OF_ROOM: "batch lies outside its buffer",
    m.BAD_MESSAGE_LENGTH: "invalid message length",
    m.BAD_MESSAGE_MAGIC: "message set holds a message of another format",
    m.BAD_MESSAGE_FIELD: "key or value reaches beyond its message",
    m.NESTED: "message inside a compressed message is compressed",
    m.NO_MESSAGES: "compressed message holds no message",
    m.BAD_WRAPPER_CODEC: "message codec does not exist in its format",
    m.NULL_WRAPPER: "compressed message has no value",
    m.BAD_WRAPPER_OFFSET: "offset of a compressed message is below that of its last record",
    m.BAD_MESSAGE_ORDER: "message offsets do not ascend",
}


class LocatedRecords(NamedTuple):
    """Located records of batches, not yet checked.

    Attributes:
        source: uint8[m], the bytes of the records, decompressed.
        spans: int64[b, 2 or 3], begin and end of each batch's records in it; begin -1 for a batch
            that is left out.
        table: The processed batches.
    """

    source: NDArray[np.uint8]
    spans: NDArray[np.int64]
    table: BatchTable


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSlots:
    """Positions of the fields of checked records.

    Attributes:
        source: uint8[m], the bytes the slots point into.
        slots: int64[n, 9], one slot per record.
        rows: int64[b], number of records per batch of the table.
    """

    source: NDArray[np.uint8]
    slots: NDArray[np.int64]
    rows: NDArray[np.int64]


def decode_slots(
    buffer: Buffer, table: BatchTable, *, max_decompressed: int, enough: int = EVERYTHING
) -> RecordSlots:
    """Check and locate all records of many batches, including control batches.

    Args:
        buffer: The batches; not trusted.
        table: Their headers, as `scan_batches` found them in `buffer`.
        max_decompressed: Limit of the decompressed size of one batch, in bytes.
        enough: Decompressed bytes that suffice: batches after the one that reaches them are left
            out.

    Raises:
        CorruptRecordError: A record's structure is wrong, or compressed bytes are damaged.
        LimitExceededError: A batch decompresses to more than allowed, or all together to 2 GiB.

    Source: DefaultRecordBatch.iterator, DefaultRecord.readFrom.
    """
    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    source, spans, table = records_of(
        buffer,
        table,
        limits=ALL_RECORDS,
        totals=totals,
        max_decompressed=max_decompressed,
        enough=enough,
    )
    slots = np.empty((int(totals[s.TOTAL_ROWS]), s.SLOT_WIDTH), np.int64)
    locate = record_loops(len(slots), int(totals[s.TOTAL_BYTES])).locate_records
    check_status(locate(source, table.fields, spans, slots, totals), table, totals)
    return RecordSlots(source=source, slots=slots, rows=table.count)


@contextlib.contextmanager
def naming(path: str | None, position: int) -> Iterator[None]:
    """Add the file to errors about a buffer that starts at its `position`."""
    try:
        yield
    except (CorruptRecordError, LimitExceededError) as error:
        error.path = path
        error.position = position + (error.position or 0)
        raise


@contextlib.contextmanager
def refusing_larger(limit: int) -> Iterator[None]:
    """Turn the error about bytes that decompress to more than `limit` into a topic's refusal.

    Raises:
        MessageTooLargeError: They do.
    """
    try:
        yield
    except LimitExceededError as error:
        raise MessageTooLargeError(
            "record batch decompresses to more than the topic accepts",
            path=error.path,
            position=error.position,
            got=f"more than {limit} bytes",
            expected=f"at most {limit} (streamlog.max.decompressed.bytes)",
        ) from error


def records_of(
    buffer: Buffer,
    table: BatchTable,
    *,
    limits: NDArray[np.int64],
    totals: NDArray[np.int64],
    max_decompressed: int,
    enough: int = EVERYTHING,
) -> LocatedRecords:
    """Return the bytes that hold the records of the batches, decompressed, and their positions.

    At least 8 bytes if there is a record, as the kernels need them.

    Args:
        buffer: The batches; not trusted.
        table: Their headers.
        limits: int64[3], which batches are wanted, see `streamlog.records.kernels`.
        totals: int64[9]; filled with upper bounds of rows and bytes and with the or-ed attributes.
        max_decompressed: Limit of the decompressed size of one batch, in bytes.
        enough: Decompressed bytes that suffice: no batch after the one that reaches them is
            decompressed or located.

    Returns:
        The leading batches as located: all of them, unless they decompress to more than `enough`.
        Their spans are int64[b, 2].

    Raises:
        CorruptRecordError: A batch is too short for its count, or compressed bytes are damaged.
        LimitExceededError: A batch decompresses to more than allowed, or all to 2 GiB.
    """
    choose = record_loops(len(table)).choose_batches
    spans = np.empty((len(table), 2), np.int64)
    check_status(choose(table.fields, limits, spans, totals), table, totals)
    source = as_source(buffer)
    if not int(totals[s.ALL_ATTRIBUTES]) & COMPRESSION_MASK:
        return LocatedRecords(source, spans, table)
    source, taken = _decompress(source, table, spans, max_decompressed, enough)
    if taken < len(table):  # the upper bounds must be those of the batches that are left
        table, spans = table.slice(0, taken), spans[:taken]
        totals[:] = 0
        # The spans are discarded: `_decompress` has replaced those in `spans`.
        choose(table.fields, limits, np.empty_like(spans), totals)
    totals[s.TOTAL_BYTES] = source.size
    return LocatedRecords(source, spans, table)


def check_status(status: int, table: BatchTable, totals: NDArray[np.int64] | list[int]) -> None:
    """Raise the error of a kernel's `status` and the `ERROR_…` places of `totals`.

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


def inflate(
    codec: int, data: Buffer, *, max_decompressed: int, position: int, offset: int
) -> Buffer:
    """Decompress the records of one batch.

    Raises:
        CorruptRecordError: The bytes are damaged.
        LimitExceededError: They decompress to more than allowed; the hint names the settings.
    """
    try:
        return decompress(codec, data, max_size=max_decompressed, position=position)
    except (CorruptRecordError, LimitExceededError) as error:
        error.offset = offset
        if isinstance(error, LimitExceededError):
            error.hint = HOW_TO_ALLOW
        raise


def check_decompressed(buffer: Buffer, table: BatchTable, *, max_decompressed: int) -> None:
    """Verify that every v2 batch can be decompressed again; those that must be small are skipped.

    Args:
        buffer: The batches; not trusted.
        table: Their headers.
        max_decompressed: Limit of the decompressed size of one batch's records, in bytes.

    Raises:
        CorruptRecordError: Compressed bytes are damaged.
        LimitExceededError: They decompress to more.
    """
    view = memoryview(buffer)
    codecs = table.codec.tolist()
    for row in np.flatnonzero(table.codec != NONE).tolist():
        where = int(table.position[row])
        records = view[where + RECORD_BATCH_OVERHEAD : where + int(table.size[row])]
        # The bound is cheap; only batches that might exceed the limit are decompressed.
        if most_decompressed(codecs[row], records) > max_decompressed:
            offset = int(table.base_offset[row])
            inflate(
                codecs[row],
                records,
                max_decompressed=max_decompressed,
                position=where,
                offset=offset,
            )


def check_arena(filled: int, position: int) -> None:
    """Refuse more decompressed bytes than int32 offsets can address.

    Raises:
        LimitExceededError: There are 2 GiB.
    """
    if filled > MAX_ARENA:
        raise LimitExceededError(
            "batches decompress to 2 GiB or more",
            position=position,
            hint="read fewer bytes at a time",
        )


def _decompress(
    source: NDArray[np.uint8],
    table: BatchTable,
    spans: NDArray[np.int64],
    max_size: int,
    enough: int,
) -> tuple[NDArray[np.uint8], int]:
    """Concatenate the records of chosen batches until there are enough bytes.

    Returns:
        The bytes, with their positions in `spans`, and how many batches were processed.
    """
    parts: list[Buffer] = []
    filled = batch = 0
    codecs = table.codec.tolist()
    for batch, (start, end) in enumerate(spans.tolist(), 1):
        if start < 0:
            continue
        row = batch - 1
        where, offset = int(table.position[row]), int(table.base_offset[row])
        part: Buffer = source[start:end]
        if codecs[row] != NONE:
            part = inflate(
                codecs[row], part, max_decompressed=max_size, position=where, offset=offset
            )
        # Before arrays of that many rows are allocated: a count is a claim.
        count = int(table.fields[row, COUNT])
        if count > len(part) // MIN_RECORD_SIZE:
            raise CorruptRecordError(
                WHAT_IS_WRONG[s.BAD_COUNT],
                position=where,
                offset=offset,
                got=f"{count} records in {len(part)} bytes",
            )
        spans[row] = filled, filled + len(part)
        filled += len(part)
        parts.append(part)
        check_arena(filled, where)
        if filled >= enough:
            break
    if filled < WORD_SIZE:  # kernels load whole words
        parts.append(bytes(WORD_SIZE))
    return as_source(parts[0] if len(parts) == 1 else b"".join(parts)), batch
