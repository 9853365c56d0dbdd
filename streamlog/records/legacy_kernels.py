"""Compiled loops over messages of formats v0 and v1. Twins: `streamlog.records.legacy_reference`.

A *message* stands by itself in the log, or it is a *wrapper*: its value is a compressed message
set. Both are read alike: what stands by itself is a message set of one. So a row of the table
comes with a span of bytes, the message itself or the decompressed set, and the messages in all
spans become slots.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.big_endian import read_int32, read_int64
from streamlog.binary.jit import copy_bytes, int64, kernel
from streamlog.records.layout import (
    BASE_OFFSET_OFFSET,
    COMPRESSION_MASK,
    CURRENT_MAGIC,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
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
    NESTED,
    NO_MESSAGES,
    NULL_WRAPPER,
)
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.slot import (
    ALL_ATTRIBUTES,
    ERROR_BATCH,
    ERROR_RECORD,
    OK,
    SLOT_HEADER_COUNT,
    SLOT_HEADERS,
    SLOT_HEADERS_SIZE,
    SLOT_KEY,
    SLOT_KEY_SIZE,
    SLOT_OFFSET,
    SLOT_TIMESTAMP,
    SLOT_VALUE,
    SLOT_VALUE_SIZE,
    SLOT_WIDTH,
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
)

LAST_LEGACY_CODEC: Final = 3  # lz4; zstd came with v2

# What `choose_messages` and `locate_messages` are told: int64[3].
LIMIT_START: Final = 0  # first offset wanted
LIMIT_END: Final = 1  # first offset no longer wanted
LIMIT_ORDER: Final = 2  # 1: offsets in a message set must rise, as on a disk; 0: they may be any

# CRC-32 eight bytes at a time: entry 256 * k + b is what byte b does, k bytes further on.
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


# ---- headers -------------------------------------------------------------------------------------
@kernel
def read_message_header(
    buffer: NDArray[np.uint8], position: int, out_fields: NDArray[np.int64], row: int
) -> None:
    """Fill a row of a table from the whole message of v0 or v1 at `position`.

    Of a wrapper only the last offset is known without decompressing it; it stands for the first
    one, too.

    Args:
        buffer: uint8[m]; the length at `position` was checked.
        position: Where the message begins.
        out_fields: int64[n, 14].
        row: Which row of it to fill.
    """
    magic = int64(buffer[position + MAGIC_OFFSET])
    attributes = int64(buffer[position + MESSAGE_ATTRIBUTES_OFFSET]) & ATTRIBUTES_V0
    timestamp = NO_TIMESTAMP
    if magic == MAGIC_V1:
        attributes = int64(buffer[position + MESSAGE_ATTRIBUTES_OFFSET]) & ATTRIBUTES_V1
        timestamp = read_int64(buffer, position + MESSAGE_TIMESTAMP_OFFSET)
    fields = out_fields[row]
    fields[POSITION] = position
    fields[SIZE] = LOG_OVERHEAD + read_int32(buffer, position + LENGTH_OFFSET)
    fields[BASE_OFFSET] = read_int64(buffer, position + BASE_OFFSET_OFFSET)
    fields[LAST_OFFSET] = fields[BASE_OFFSET]
    fields[LEADER_EPOCH] = NO_PARTITION_LEADER_EPOCH
    fields[MAGIC] = magic
    fields[CRC] = read_int32(buffer, position + MESSAGE_CRC_OFFSET) & 0xFFFFFFFF
    fields[ATTRIBUTES] = attributes
    fields[BASE_TIMESTAMP] = timestamp
    fields[MAX_TIMESTAMP] = timestamp
    fields[PRODUCER_ID] = NO_PRODUCER_ID
    fields[PRODUCER_EPOCH] = NO_PRODUCER_EPOCH
    fields[BASE_SEQUENCE] = NO_SEQUENCE
    fields[COUNT] = 1


@kernel
def find_bad_checksum(
    buffer: NDArray[np.uint8],
    fields: NDArray[np.int64],
    scratch_words: NDArray[np.int64],
    scratch: NDArray[np.uint8],
) -> int:
    """Return the row of the first message whose CRC-32 is wrong, or how many rows there are.

    Rows of format v2, and messages too large for the scratch, are passed over.

    Args:
        buffer: uint8[m].
        fields: int64[n, 14], whole batches and messages in `buffer`.
        scratch_words: int64[k], little-endian: reading a word at a time is twice as fast.
        scratch: uint8[8 * k], the same memory.
    """
    for row in range(len(fields)):
        size = fields[row, SIZE] - MAGIC_OFFSET
        start = fields[row, POSITION] + MAGIC_OFFSET
        if fields[row, MAGIC] == CURRENT_MAGIC or size > scratch.size:
            continue
        if start < 0 or size < 0 or size > buffer.size - start:
            return row
        copy_bytes(scratch, 0, buffer, start, size)
        if crc32(scratch_words, scratch, size) != fields[row, CRC]:
            return row
    return len(fields)


@kernel
def crc32(words: NDArray[np.int64], octets: NDArray[np.uint8], size: int) -> int:
    """Return the CRC-32 of the first `size` bytes of memory seen as words and as bytes."""
    crc = 0xFFFFFFFF
    for place in range(size >> 3):
        word = words[place] ^ crc
        crc = (
            CRC_TABLES[1792 + (word & 0xFF)]
            ^ CRC_TABLES[1536 + (word >> 8 & 0xFF)]
            ^ CRC_TABLES[1280 + (word >> 16 & 0xFF)]
            ^ CRC_TABLES[1024 + (word >> 24 & 0xFF)]
            ^ CRC_TABLES[768 + (word >> 32 & 0xFF)]
            ^ CRC_TABLES[512 + (word >> 40 & 0xFF)]
            ^ CRC_TABLES[256 + (word >> 48 & 0xFF)]
            ^ CRC_TABLES[word >> 56 & 0xFF]
        )
    for place in range(size & ~7, size):
        crc = CRC_TABLES[(crc ^ int64(octets[place])) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


# ---- messages to slots ---------------------------------------------------------------------------
@kernel
def choose_messages(
    buffer: NDArray[np.uint8],
    fields: NDArray[np.int64],
    limits: NDArray[np.int64],
    out_spans: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Find out which messages are wanted, or may hold wanted ones, and where they lie.

    Args:
        buffer: uint8[m]; not trusted.
        fields: int64[n, 14], whole messages of v0 and v1 in `buffer`.
        limits: int64[3], see the `LIMIT_…` constants.
        out_spans: int64[n, 2], begin and end of the message, or of a wrapper's value; begin -1
            for what is not wanted.
        out_totals: int64[12], of which the attributes or-ed are filled, and `ERROR_…`.

    Returns:
        OK, or what is wrong with the wrapper at ERROR_BATCH.
    """
    for row in range(len(fields)):
        out_spans[row, 0] = -1
        out_spans[row, 1] = -1
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
        out_spans[row, 0] = start
        out_spans[row, 1] = end
        out_totals[ALL_ATTRIBUTES] |= fields[row, ATTRIBUTES]
    return OK


@kernel
def find_value(buffer: NDArray[np.uint8], magic: int, position: int, end: int) -> int:
    """Return where the value of a wrapper begins, which ends with it; negative: a status."""
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
def count_messages(source: NDArray[np.uint8], spans: NDArray[np.int64]) -> int:
    """Return how many messages there are at most in the spans, going by their lengths."""
    count = 0
    for row in range(len(spans)):
        position = spans[row, 0]
        end = spans[row, 1]
        while position >= 0 and end - position >= LOG_OVERHEAD:
            length = read_int32(source, position + LENGTH_OFFSET)
            if length < MIN_LENGTH_V0 or length > end - position - LOG_OVERHEAD:
                break
            position += LOG_OVERHEAD + length
            count += 1
    return count


@kernel
def locate_messages(
    source: NDArray[np.uint8],
    fields: NDArray[np.int64],
    spans: NDArray[np.int64],
    limits: NDArray[np.int64],
    out_slots: NDArray[np.int64],
    out_rows: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Check every message in the spans and note where the wanted ones lie.

    Args:
        source: uint8[m], messages and decompressed message sets; not trusted.
        fields: int64[n, 14], headers of the messages and wrappers; not trusted.
        spans: int64[n, 2], where each one, or its message set, begins and ends in `source`,
            inside it; begin -1 to leave it out.
        limits: int64[3], see the `LIMIT_…` constants.
        out_slots: int64[k * 9], a slot a wanted message; k as `count_messages` says.
        out_rows: int64[n], wanted messages of each row.
        out_totals: int64[12], what the `TOTAL_…` and `ERROR_…` constants name; zeros at first.

    Returns:
        OK, or what is wrong with the message at the `ERROR_…` places.
    """
    slot = 0
    for row in range(len(spans)):
        out_rows[row] = 0
        if spans[row, 0] < 0:
            continue
        out_totals[ERROR_BATCH] = row
        count = locate_set(source, fields[row], spans[row], slot, out_slots, out_totals)
        if count < 0:
            return count
        last = out_slots[slot + (count - 1) * SLOT_WIDTH + SLOT_OFFSET]
        base = find_base(fields[row], last, limits)
        if base < 0:
            return base
        count = keep_messages(base, limits, slot, count, out_slots, out_totals)
        if count < 0:
            return count
        out_rows[row] = count
        slot += count * SLOT_WIDTH
    out_totals[TOTAL_ROWS] = slot // SLOT_WIDTH
    return OK


@kernel
def locate_set(
    source: NDArray[np.uint8],
    wrapper: NDArray[np.int64],
    span: NDArray[np.int64],
    slot: int,
    out_slots: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Check the messages of one set and fill their slots; offsets stay as they stand there.

    Args:
        source: uint8[m].
        wrapper: int64[14], the header of the wrapper, or of the only message.
        span: int64[2], where the set begins and ends.
        slot: Where in `out_slots` the first slot begins.
        out_slots: int64[k * 9].
        out_totals: int64[12], of which ERROR_RECORD is filled.

    Returns:
        How many there are, not counting one cut short at the end (Kafka ignores it, too), or what
        is wrong with the message at ERROR_RECORD.
    """
    position, end = span
    is_stamped = wrapper[ATTRIBUTES] & TIMESTAMP_TYPE_MASK != 0
    count = 0
    while end - position >= LOG_OVERHEAD:
        out_totals[ERROR_RECORD] = count
        length = read_int32(source, position + LENGTH_OFFSET)
        if length < MIN_LENGTH_V0:
            return BAD_MESSAGE_LENGTH
        if length > end - position - LOG_OVERHEAD:
            break
        message_end = position + LOG_OVERHEAD + length
        magic = int64(source[position + MAGIC_OFFSET])
        if magic > MAGIC_V1:
            return BAD_MESSAGE_MAGIC
        if int64(source[position + MESSAGE_ATTRIBUTES_OFFSET]) & COMPRESSION_MASK:
            return NESTED
        out_slots[slot + SLOT_OFFSET] = read_int64(source, position + BASE_OFFSET_OFFSET)
        out_slots[slot + SLOT_TIMESTAMP] = NO_TIMESTAMP
        at = position + KEY_SIZE_OFFSET_V0
        if magic == MAGIC_V1:
            if length < MIN_LENGTH_V1:
                return BAD_MESSAGE_LENGTH
            stamp = wrapper[MAX_TIMESTAMP] if is_stamped else read_int64(source, at)
            out_slots[slot + SLOT_TIMESTAMP] = stamp
            at = position + KEY_SIZE_OFFSET_V1
        size = read_int32(source, at)
        at += FIELD_SIZE
        if size > message_end - at - FIELD_SIZE:
            return BAD_MESSAGE_FIELD
        out_slots[slot + SLOT_KEY] = at
        out_slots[slot + SLOT_KEY_SIZE] = max(size, -1)
        at += max(size, 0)
        size = read_int32(source, at)
        at += FIELD_SIZE
        if size > message_end - at:
            return BAD_MESSAGE_FIELD
        out_slots[slot + SLOT_VALUE] = at
        out_slots[slot + SLOT_VALUE_SIZE] = max(size, -1)
        position = message_end
        slot += SLOT_WIDTH
        count += 1
    return count if count > 0 else NO_MESSAGES


@kernel
def find_base(wrapper: NDArray[np.int64], last: int, limits: NDArray[np.int64]) -> int:
    """Return what the offsets of a set are relative to: 0, unless it is a wrapper's of v1.

    A wrapper of v1 with offset 0 comes from a client that left the offsets to the broker.

    Args:
        wrapper: int64[14], the header of the wrapper, or of the only message.
        last: The last offset in the set.
        limits: int64[3]; with LIMIT_ORDER a wrapper of v0, too, has an offset of at least that.

    Returns:
        The base, or BAD_WRAPPER_OFFSET.

    Source: AbstractLegacyRecordBatch.DeepRecordsIterator.
    """
    is_relative = wrapper[MAGIC] == MAGIC_V1
    last_offset = wrapper[LAST_OFFSET]
    if not wrapper[ATTRIBUTES] & COMPRESSION_MASK or (is_relative and last_offset == 0):
        return 0
    if (is_relative or limits[LIMIT_ORDER]) and (last < 0 or last > last_offset):
        return BAD_WRAPPER_OFFSET
    return int64(last_offset - last) if is_relative else 0


@kernel
def keep_messages(
    base: int,
    limits: NDArray[np.int64],
    slot: int,
    count: int,
    out_slots: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Make the offsets of a set absolute, keep the wanted slots, and add them up.

    Args:
        base: What the offsets are relative to.
        limits: int64[3], see the `LIMIT_…` constants.
        slot: Where in `out_slots` the first slot begins.
        count: How many slots there are.
        out_slots: int64[k * 9], changed in place.
        out_totals: int64[12], of which the totals grow.

    Returns:
        How many slots there are now, or BAD_MESSAGE_ORDER.
    """
    key_bytes = key_nulls = value_bytes = value_nulls = 0
    kept = slot
    previous = 0
    for start in range(slot, slot + count * SLOT_WIDTH, SLOT_WIDTH):
        offset = base + out_slots[start + SLOT_OFFSET]
        if limits[LIMIT_ORDER] and start > slot and offset <= previous:
            out_totals[ERROR_RECORD] = (start - slot) // SLOT_WIDTH
            return BAD_MESSAGE_ORDER
        previous = offset
        if offset < limits[LIMIT_START] or offset >= limits[LIMIT_END]:
            continue
        if kept != start:
            for place in range(SLOT_TIMESTAMP, SLOT_HEADERS):
                out_slots[kept + place] = out_slots[start + place]
        out_slots[kept + SLOT_OFFSET] = offset
        size = out_slots[kept + SLOT_KEY_SIZE]
        key_bytes += max(size, 0)
        key_nulls += size < 0
        size = out_slots[kept + SLOT_VALUE_SIZE]
        value_bytes += max(size, 0)
        value_nulls += size < 0
        out_slots[kept + SLOT_HEADERS] = 0
        out_slots[kept + SLOT_HEADERS_SIZE] = 0
        out_slots[kept + SLOT_HEADER_COUNT] = 0
        kept += SLOT_WIDTH
    out_totals[TOTAL_KEY_BYTES] += key_bytes
    out_totals[TOTAL_KEY_NULLS] += key_nulls
    out_totals[TOTAL_VALUE_BYTES] += value_bytes
    out_totals[TOTAL_VALUE_NULLS] += value_nulls
    return (kept - slot) // SLOT_WIDTH
