"""Compiled loops over messages of formats v0 and v1, and over their headers and checksums.

A *message* is by itself in the log, or it is a *wrapper*: its value is a compressed message set. So
a row of the table comes with a span of bytes, the message itself or the decompressed set, and the
messages in all spans are copied into columns.

Twins: `scan_batches` of `streamlog.records.plain_headers`, which reads all formats, and
`tests.twins.legacy`.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import WORD_SIZE
from streamlog.binary.big_endian import read_int32, read_int64
from streamlog.binary.jit import inlined, int64, kernel, load_word
from streamlog.binary.varint import word_at
from streamlog.records.batch_kernels import BAD_HEADER, BAD_LENGTH, BAD_MAGIC, END, PARTIAL
from streamlog.records.kernels import can_hold, copy_field, note_error
from streamlog.records.layout import (
    BASE_OFFSET_OFFSET,
    COMPRESSION_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE_UP_TO_MAGIC,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_MASK,
)
from streamlog.records.legacy_layout import (
    ATTRIBUTES_V0,
    ATTRIBUTES_V1,
    BAD_MESSAGE_FIELD,
    BAD_MESSAGE_LENGTH,
    BAD_MESSAGE_MAGIC,
    BAD_MESSAGE_ORDER,
    BAD_WRAPPER_CODEC,
    BAD_WRAPPER_OFFSET,
    FIELD_SIZE,
    KEY_SIZE_OFFSET_V0,
    KEY_SIZE_OFFSET_V1,
    MAGIC_V0,
    MAGIC_V1,
    MESSAGE_ATTRIBUTES_OFFSET,
    MESSAGE_CRC_OFFSET,
    MESSAGE_TIMESTAMP_OFFSET,
    MIN_LENGTH_V0,
    MIN_LENGTH_V1,
    MIN_MESSAGE_SIZE,
    NESTED,
    NO_MESSAGES,
    NULL_WRAPPER,
)
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.slot import (
    ALL_ATTRIBUTES,
    ERROR_BATCH,
    INTS_HEADERS,
    INTS_KEY,
    INTS_TYPE,
    INTS_VALUE,
    LIMIT_END,
    LIMIT_START,
    LONGS_HEADERS,
    LONGS_OFFSET,
    LONGS_TIMESTAMP,
    OK,
    OUT_OF_ROOM,
    TOTAL_BYTES,
    TOTAL_KEY_BYTES,
    TOTAL_KEY_NULLS,
    TOTAL_ROWS,
    TOTAL_VALUE_BYTES,
    TOTAL_VALUE_NULLS,
)
from streamlog.records.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    COUNT,
    CRC,
    LAST_OFFSET,
    LEADER_EPOCH,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
    UNKNOWN_COUNT,
)

__all__ = []

# CRC-32 eight bytes at a time: entry 256 * k + b is the effect of byte b, k bytes further on.
CRC_POLYNOMIAL: Final = 0xEDB88320


def _crc_tables() -> NDArray[np.int64]:
    tables = np.arange(256, dtype=np.int64)
    for _ in range(8):
        tables = tables >> 1 ^ np.where(tables & 1, CRC_POLYNOMIAL, 0)
    rows = [tables]
    for _ in range(7):
        rows.append(rows[0][rows[-1] & 0xFF] ^ rows[-1] >> 8)
    return np.concatenate(rows)


CRC_TABLES: Final = _crc_tables()


@kernel
def count_batches(buffer: NDArray[np.uint8]) -> int:
    """Return an upper bound of the messages that `scan_batches` finds, from their lengths."""
    count = position = 0
    while buffer.size - position > HEADER_SIZE_UP_TO_MAGIC:
        length = int32_at(buffer, position + LENGTH_OFFSET)
        if length < MIN_LENGTH_V0 or length > buffer.size - position - LOG_OVERHEAD:
            break
        if buffer[position + MAGIC_OFFSET] > MAGIC_V1:
            break
        position += LOG_OVERHEAD + length
        count += 1
    return count


@kernel
def scan_batches(
    buffer: NDArray[np.uint8], out_fields: NDArray[np.int64], out_counts: NDArray[np.int64]
) -> int:
    """Read the headers of the whole messages of v0 and v1 at the start of `buffer`.

    Without decompression only the last offset of a wrapper is known; it is used for the first one,
    too.

    Args:
        buffer: uint8[m], any bytes; not trusted.
        out_fields: int64[n, 14], one row per message, n from `count_batches`.
        out_counts: int64[2], filled with the number of messages and of bytes they take.

    Returns:
        Why it stopped: END, PARTIAL, BAD_LENGTH, BAD_MAGIC (which may be v2) or BAD_HEADER.
    """
    count = position = 0
    stop = END
    while position < buffer.size:
        stop = check_message(buffer, position)
        if stop != END:
            break
        read_message_header(buffer, position, out_fields, count)
        position += out_fields[count, SIZE]
        count += 1
    out_counts[0] = count
    out_counts[1] = position
    return stop


@inlined
def check_message(buffer: NDArray[np.uint8], position: int) -> int:
    """Return END if a whole message may be at `position`, otherwise the error."""
    left = buffer.size - position
    if left <= HEADER_SIZE_UP_TO_MAGIC:
        return PARTIAL
    length = int32_at(buffer, position + LENGTH_OFFSET)
    if length < MIN_LENGTH_V0 or length > MAX_INT32 - LOG_OVERHEAD:
        return BAD_LENGTH
    if length > left - LOG_OVERHEAD:
        return PARTIAL
    magic = buffer[position + MAGIC_OFFSET]
    if magic > MAGIC_V1:
        return BAD_MAGIC
    if magic == MAGIC_V1 and length < MIN_LENGTH_V1:
        return BAD_LENGTH
    return BAD_HEADER if buffer[position] >= 0x80 else END  # a negative offset


@inlined
def read_message_header(
    buffer: NDArray[np.uint8], position: int, out_fields: NDArray[np.int64], row: int
) -> None:
    """Fill a row of a table from the message at `position`, which `check_message` passed."""
    magic = int64(buffer[position + MAGIC_OFFSET])
    attributes = int64(buffer[position + MESSAGE_ATTRIBUTES_OFFSET]) & ATTRIBUTES_V0
    timestamp = NO_TIMESTAMP
    if magic == MAGIC_V1:
        attributes = int64(buffer[position + MESSAGE_ATTRIBUTES_OFFSET]) & ATTRIBUTES_V1
        timestamp = int64_at(buffer, position + MESSAGE_TIMESTAMP_OFFSET)
    offset = int64_at(buffer, position + BASE_OFFSET_OFFSET)
    fields = out_fields[row]
    fields[POSITION] = position
    fields[SIZE] = LOG_OVERHEAD + int32_at(buffer, position + LENGTH_OFFSET)
    fields[BASE_OFFSET] = offset
    fields[LAST_OFFSET] = offset
    fields[LEADER_EPOCH] = NO_PARTITION_LEADER_EPOCH
    fields[MAGIC] = magic
    fields[CRC] = int32_at(buffer, position + MESSAGE_CRC_OFFSET) & 0xFFFF_FFFF
    fields[ATTRIBUTES] = attributes
    fields[BASE_TIMESTAMP] = timestamp
    fields[MAX_TIMESTAMP] = timestamp
    fields[PRODUCER_ID] = NO_PRODUCER_ID
    fields[PRODUCER_EPOCH] = NO_PRODUCER_EPOCH
    fields[BASE_SEQUENCE] = NO_SEQUENCE
    fields[COUNT] = UNKNOWN_COUNT if attributes & COMPRESSION_MASK else 1


@inlined
def int32_at(buffer: NDArray[np.uint8], position: int) -> int:
    """Return the int32 at `position` with a single load; `buffer` has at least 8 bytes."""
    word = word_at(buffer, position)
    bits = (word & 0xFF) << 24 | (word & 0xFF00) << 8 | word >> 8 & 0xFF00 | word >> 24 & 0xFF
    return (bits ^ 0x8000_0000) - 0x8000_0000


@inlined
def int64_at(buffer: NDArray[np.uint8], position: int) -> int:
    """Return the int64 at `position`; `buffer` has at least 8 bytes."""
    return int32_at(buffer, position) << 32 | int32_at(buffer, position + 4) & 0xFFFF_FFFF


@kernel
def find_bad_checksum(buffer: NDArray[np.uint8], fields: NDArray[np.int64]) -> int:
    """Return the row of the first message with a wrong CRC-32, or the number of rows.

    Args:
        buffer: uint8[m].
        fields: int64[n, 14], whole batches and messages in `buffer`; batches are skipped.
    """
    for row in range(len(fields)):
        if fields[row, MAGIC] == CURRENT_MAGIC:
            continue
        start = fields[row, POSITION] + MAGIC_OFFSET
        end = fields[row, POSITION] + fields[row, SIZE]
        if not can_hold(buffer, start, end) or crc32(buffer, start, end) != fields[row, CRC]:
            return row
    return len(fields)


@inlined
def crc32(buffer: NDArray[np.uint8], start: int, end: int) -> int:
    """Return the CRC-32 of the bytes from `start` to `end`, a checked range."""
    crc = 0xFFFF_FFFF
    left = (end - start) % WORD_SIZE
    for position in range(start, end - left, WORD_SIZE):
        word = load_word(buffer, position)
        low, high = (
            (word ^ crc) & 0xFFFF_FFFF,
            word >> 32,
        )  # only the lower half waits
        ahead = (
            CRC_TABLES[768 + (high & 0xFF)]
            ^ CRC_TABLES[512 + (high >> 8 & 0xFF)]
            ^ CRC_TABLES[256 + (high >> 16 & 0xFF)]
            ^ CRC_TABLES[high >> 24 & 0xFF]
        )
        crc = (ahead ^ CRC_TABLES[1792 + (low & 0xFF)] ^ CRC_TABLES[1536 + (low >> 8 & 0xFF)]) ^ (
            CRC_TABLES[1280 + (low >> 16 & 0xFF)] ^ CRC_TABLES[1024 + (low >> 24)]
        )
    word = word_at(buffer, end - left) ^ crc
    crc >>= 8 * left
    for place in range(left):
        crc ^= CRC_TABLES[256 * (left - 1 - place) + (word >> 8 * place & 0xFF)]
    return crc ^ 0xFFFF_FFFF


LAST_LEGACY_CODEC: Final = 3  # lz4; zstd came with v2

# Columns of spans: int64[n, 3]. Begin is -1 for a message that is left out.
SPAN_BEGIN: Final = 0
SPAN_END: Final = 1
SPAN_BASE: Final = 2  # base of the offsets in it
SPAN_WIDTH: Final = 3

NO_TYPE: Final = -1  # TimestampType.NO_TIMESTAMP_TYPE, which numba would treat as an object

# The third limit of `choose_messages` and the others, after LIMIT_START and LIMIT_END.
LIMIT_ORDER: Final = 2  # 1: offsets must ascend, as on disk; 0: any offsets


# ---- messages to columns -------------------------------------------------------------------------
@kernel
def choose_messages(
    buffer: NDArray[np.uint8],
    fields: NDArray[np.int64],
    limits: NDArray[np.int64],
    out_spans: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Find the messages that are wanted, or may hold wanted ones, and their positions.

    Args:
        buffer: uint8[m]; not trusted.
        fields: int64[n, 14], whole messages of v0 and v1 in `buffer`.
        limits: int64[3], see the `LIMIT_…` constants.
        out_spans: int64[n, 3]; filled with begin and end of the message, or of a wrapper's value;
            begin -1 if it is not wanted.
        out_totals: int64[9]; filled with the or-ed attributes, and `ERROR_…`.

    Returns:
        OK, or the error of the wrapper at ERROR_BATCH.
    """
    for row in range(len(fields)):
        out_spans[row, SPAN_BEGIN] = -1
        out_spans[row, SPAN_END] = -1
        if fields[row, LAST_OFFSET] < limits[LIMIT_START]:
            continue
        start = fields[row, POSITION]
        end = start + fields[row, SIZE]
        codec = fields[row, ATTRIBUTES] & COMPRESSION_MASK
        if codec == 0 and fields[row, LAST_OFFSET] >= limits[LIMIT_END]:
            continue
        if codec != 0:
            out_totals[ERROR_BATCH] = row
            if codec > LAST_LEGACY_CODEC:
                return BAD_WRAPPER_CODEC
            start = find_value(buffer, fields[row, MAGIC], start, end)
            if start < 0:
                return start
        out_spans[row, SPAN_BEGIN] = start
        out_spans[row, SPAN_END] = end
        out_totals[ALL_ATTRIBUTES] |= fields[row, ATTRIBUTES]
    return OK


@kernel
def find_value(buffer: NDArray[np.uint8], magic: int, position: int, end: int) -> int:
    """Return the start of a wrapper's value, which ends with the wrapper; negative: a status."""
    at = position + (KEY_SIZE_OFFSET_V0 if magic == MAGIC_V0 else KEY_SIZE_OFFSET_V1)
    size = max(read_int32(buffer, at), 0)
    at += FIELD_SIZE
    if size > end - at - FIELD_SIZE:
        return BAD_MESSAGE_FIELD
    at += size
    size = read_int32(buffer, at)
    at += FIELD_SIZE
    if size < 0:
        return NULL_WRAPPER
    return at if size == end - at else BAD_MESSAGE_FIELD


@kernel
def survey_sets(
    source: NDArray[np.uint8],
    fields: NDArray[np.int64],
    limits: NDArray[np.int64],
    out_spans: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Compute upper bounds of the messages, and the base of the offsets in each wrapper.

    Args:
        source: uint8[m], messages and decompressed message sets; not trusted.
        fields: int64[n, 14], headers of the messages and wrappers.
        limits: int64[3], see the `LIMIT_…` constants.
        out_spans: int64[n, 3], begin and end of each message, or of its message set, in `source`;
            begin -1 if it is left out. The base of its offsets is filled in.
        out_totals: int64[9]; filled with upper bounds of the messages and of the bytes of their
            keys and values.

    Returns:
        OK, or the error of the wrapper at the `ERROR_…` places.
    """
    for row in range(len(fields)):
        position, end = out_spans[row, SPAN_BEGIN], out_spans[row, SPAN_END]
        out_spans[row, SPAN_BASE] = 0
        if position < 0:
            continue
        out_totals[TOTAL_BYTES] += end - position
        if not fields[row, ATTRIBUTES] & COMPRESSION_MASK:
            out_totals[TOTAL_ROWS] += 1
            out_totals[TOTAL_BYTES] -= MIN_MESSAGE_SIZE
            continue
        count = last = 0
        while end - position >= LOG_OVERHEAD:
            length = read_int32(source, position + LENGTH_OFFSET)
            if length < MIN_LENGTH_V0:
                return note_error(out_totals, row, count, BAD_MESSAGE_LENGTH)
            if length > end - position - LOG_OVERHEAD:
                break  # truncated: left out, as in Kafka
            last = read_int64(source, position + BASE_OFFSET_OFFSET)
            position += LOG_OVERHEAD + length
            count += 1
        base = find_base(fields[row], last, limits) if count > 0 else NO_MESSAGES
        if base < 0:
            return note_error(out_totals, row, max(count - 1, 0), base)
        out_spans[row, SPAN_BASE] = base
        out_totals[TOTAL_ROWS] += count
        out_totals[TOTAL_BYTES] -= count * MIN_MESSAGE_SIZE
    return OK


@kernel
def find_base(wrapper: NDArray[np.int64], last: int, limits: NDArray[np.int64]) -> int:
    """Return the base of the offsets in a wrapper: 0, unless it is of v1.

    A wrapper of v1 with offset 0 comes from a client that left the offsets to the broker.

    Args:
        wrapper: int64[14], its header.
        last: The last offset in the set.
        limits: int64[3]; with LIMIT_ORDER a wrapper of v0, too, has an offset of at least that.

    Returns:
        The base, or BAD_WRAPPER_OFFSET.

    Source: AbstractLegacyRecordBatch.DeepRecordsIterator.
    """
    is_relative = wrapper[MAGIC] == MAGIC_V1
    last_offset = wrapper[LAST_OFFSET]
    if is_relative and last_offset == 0:
        return 0
    if (is_relative or limits[LIMIT_ORDER]) and (last < 0 or last > last_offset):
        return BAD_WRAPPER_OFFSET
    return int64(last_offset - last) if is_relative else 0


class MessageFields(NamedTuple):
    """Result of `read_message`; positions are relative to the bytes it read.

    Attributes:
        end: End of the message; 0 if it is truncated; a negative status, and then the other
            fields are undefined.
        offset: Its offset.
        timestamp: Its own, -1 for none.
        magic: Its format.
        key: Position of the key.
        key_size: Below 0 for null.
        value: Position of the value.
        value_size: Below 0 for null.
    """

    end: int
    offset: int
    timestamp: int
    magic: int
    key: int
    key_size: int
    value: int
    value_size: int


@inlined
def read_message(
    source: NDArray[np.uint8], position: int, set_end: int, forbidden: int, base: int
) -> MessageFields:
    """Check the message at `position` completely, and return the positions of its fields.

    Args:
        source: uint8[m], m at least 8; not trusted.
        position: Start of the message, 0 or more.
        set_end: End of its set, at most m, and at least LOG_OVERHEAD after `position`.
        forbidden: Attribute bits that it must not have: a wrapper contains no wrapper.
        base: Base of its offset.
    """
    length = int32_at(source, position + LENGTH_OFFSET)
    end = position + LOG_OVERHEAD + length
    if length < MIN_LENGTH_V0:
        return MessageFields(BAD_MESSAGE_LENGTH, 0, 0, 0, 0, 0, 0, 0)
    if end > set_end:
        return MessageFields(0, 0, 0, 0, 0, 0, 0, 0)
    magic = int64(source[position + MAGIC_OFFSET])
    if magic > MAGIC_V1:
        return MessageFields(BAD_MESSAGE_MAGIC, 0, 0, 0, 0, 0, 0, 0)
    if magic == MAGIC_V1 and length < MIN_LENGTH_V1:
        return MessageFields(BAD_MESSAGE_LENGTH, 0, 0, 0, 0, 0, 0, 0)
    if int64(source[position + MESSAGE_ATTRIBUTES_OFFSET]) & forbidden:
        return MessageFields(NESTED, 0, 0, 0, 0, 0, 0, 0)
    offset = base + int64_at(source, position + BASE_OFFSET_OFFSET)
    at = position + KEY_SIZE_OFFSET_V0
    timestamp = NO_TIMESTAMP
    if magic == MAGIC_V1:
        timestamp = int64_at(source, at)
        at = position + KEY_SIZE_OFFSET_V1
    key = at + FIELD_SIZE
    key_size = int32_at(source, at)
    if key_size > end - key - FIELD_SIZE:
        return MessageFields(BAD_MESSAGE_FIELD, 0, 0, 0, 0, 0, 0, 0)
    at = key + max(key_size, 0)
    value = at + FIELD_SIZE
    value_size = int32_at(source, at)
    if value_size > end - value:
        return MessageFields(BAD_MESSAGE_FIELD, 0, 0, 0, 0, 0, 0, 0)
    return MessageFields(end, offset, timestamp, magic, key, key_size, value, value_size)


@kernel
def decode_messages(
    source: NDArray[np.uint8],
    fields: NDArray[np.int64],
    spans: NDArray[np.int64],
    limits: NDArray[np.int64],
    out_longs: NDArray[np.int64],
    out_ints: NDArray[np.int32],
    out_validity: NDArray[np.uint8],
    out_key: NDArray[np.uint8],
    out_value: NDArray[np.uint8],
    out_totals: NDArray[np.int64],
) -> int:
    """Check every message in the spans and copy the wanted ones into columns.

    Args:
        source: uint8[m], messages and decompressed message sets; not trusted.
        fields: int64[n, 14], headers of the messages and wrappers; not trusted.
        spans: int64[n, 3], from `survey_sets`.
        limits: int64[3], see the `LIMIT_…` constants.
        out_longs: int64[3, k], see `streamlog.records.kernels.decode_records` for this and the
            following; k at least as many as `survey_sets` counted.
        out_ints: int32[4, k + 1].
        out_validity: uint8[2, ceil(k / 8)].
        out_key: uint8[…].
        out_value: uint8[…].
        out_totals: int64[9].

    Returns:
        OK, or the error of the message at the `ERROR_…` places; OUT_OF_ROOM if a column is too
        short.
    """
    out_ints[:INTS_TYPE, 0] = 0
    row = 0
    previous = -1
    for batch in range(len(spans)):
        position, set_end = spans[batch, SPAN_BEGIN], spans[batch, SPAN_END]
        if position < 0:
            continue
        if not can_hold(source, position, set_end):
            return note_error(out_totals, batch, 0, OUT_OF_ROOM)
        is_wrapper = fields[batch, ATTRIBUTES] & COMPRESSION_MASK != 0
        forbidden = COMPRESSION_MASK if is_wrapper else 0
        count = 0
        while set_end - position >= LOG_OVERHEAD:
            found = read_message(source, position, set_end, forbidden, spans[batch, SPAN_BASE])
            position = found.end
            if position == 0:
                break
            if position < 0:
                return note_error(out_totals, batch, count, position)
            if limits[LIMIT_ORDER] and found.offset <= previous:
                return note_error(out_totals, batch, count, BAD_MESSAGE_ORDER)
            previous = found.offset
            count += 1
            if limits[LIMIT_START] <= found.offset < limits[LIMIT_END]:
                row = put_message(
                    source, found, fields[batch], row,
                    out_longs, out_ints, out_validity, out_key, out_value, out_totals,
                )  # fmt: skip
                if row < 0:
                    return OUT_OF_ROOM
    out_totals[TOTAL_ROWS] = row
    out_totals[TOTAL_KEY_BYTES], out_totals[TOTAL_VALUE_BYTES] = out_ints[:INTS_HEADERS, row]
    return OK


@inlined
def put_message(
    source: NDArray[np.uint8],
    found: MessageFields,
    wrapper: NDArray[np.int64],
    row: int,
    out_longs: NDArray[np.int64],
    out_ints: NDArray[np.int32],
    out_validity: NDArray[np.uint8],
    out_key: NDArray[np.uint8],
    out_value: NDArray[np.uint8],
    out_totals: NDArray[np.int64],
) -> int:
    """Copy a message into a row of the columns; return the next row, or OUT_OF_ROOM."""
    is_stamped = wrapper[ATTRIBUTES] & TIMESTAMP_TYPE_MASK != 0
    is_dated = is_stamped and found.magic == MAGIC_V1
    out_longs[LONGS_OFFSET, row] = found.offset
    out_longs[LONGS_TIMESTAMP, row] = wrapper[MAX_TIMESTAMP] if is_dated else found.timestamp
    out_longs[LONGS_HEADERS, row] = 0
    out_ints[INTS_TYPE, row] = NO_TYPE if wrapper[MAGIC] == MAGIC_V0 else is_stamped
    key_end, value_end = int64(out_ints[INTS_KEY, row]), int64(out_ints[INTS_VALUE, row])
    if found.key_size < 0:
        out_totals[TOTAL_KEY_NULLS] += 1
        out_validity[0, row >> 3] &= 0xFF ^ 1 << (row & 7)
    elif out_key.size > 0:
        key_end = copy_field(source, found.key, found.key_size, out_key, key_end)
    if found.value_size < 0:
        out_totals[TOTAL_VALUE_NULLS] += 1
        out_validity[1, row >> 3] &= 0xFF ^ 1 << (row & 7)
    elif out_value.size > 0:
        value_end = copy_field(source, found.value, found.value_size, out_value, value_end)
    if key_end < 0 or value_end < 0:
        return OUT_OF_ROOM
    out_ints[INTS_KEY, row + 1], out_ints[INTS_VALUE, row + 1] = key_end, value_end
    out_ints[INTS_HEADERS, row + 1] = 0
    return row + 1
