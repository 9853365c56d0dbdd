"""Compiled loops over the headers of messages of formats v0 and v1, and over their checksums.

Twins: `scan_batches` of `streamlog.records.plain_headers`, which reads all formats, and
`tests.twins.legacy`.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import WORD_SIZE
from streamlog.binary.jit import inlined, int64, kernel, load_word
from streamlog.binary.varint import word_at
from streamlog.records.batch_kernels import BAD_HEADER, BAD_LENGTH, BAD_MAGIC, END, PARTIAL
from streamlog.records.kernels import can_hold
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
)
from streamlog.records.legacy_layout import (
    ATTRIBUTES_V0,
    ATTRIBUTES_V1,
    MAGIC_V1,
    MESSAGE_ATTRIBUTES_OFFSET,
    MESSAGE_CRC_OFFSET,
    MESSAGE_TIMESTAMP_OFFSET,
    MIN_LENGTH_V0,
    MIN_LENGTH_V1,
)
from streamlog.records.record import NO_TIMESTAMP
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


@kernel
def count_batches(buffer: NDArray[np.uint8]) -> int:
    """Return how many messages `scan_batches` would find at most, going by their lengths."""
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
    """Read the headers of the whole messages of v0 and v1 at the front of `buffer`.

    Of a wrapper only the last offset is known without decompressing it; it stands for the first
    one, too.

    Args:
        buffer: uint8[m], any bytes at all; nothing in it is trusted.
        out_fields: int64[n, 14], a row a message, n as `count_batches` says.
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
    """Return END if a whole message can stand at `position`, else what is wrong with it."""
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
    """Return the int32 at `position` by a single load; `buffer` has 8 bytes at least."""
    word = word_at(buffer, position)
    bits = (word & 0xFF) << 24 | (word & 0xFF00) << 8 | word >> 8 & 0xFF00 | word >> 24 & 0xFF
    return (bits ^ 0x8000_0000) - 0x8000_0000


@inlined
def int64_at(buffer: NDArray[np.uint8], position: int) -> int:
    """Return the int64 at `position`; `buffer` has 8 bytes at least."""
    return int32_at(buffer, position) << 32 | int32_at(buffer, position + 4) & 0xFFFF_FFFF


@kernel
def find_bad_checksum(buffer: NDArray[np.uint8], fields: NDArray[np.int64]) -> int:
    """Return the row of the first message whose CRC-32 is wrong, or how many rows there are.

    Args:
        buffer: uint8[m].
        fields: int64[n, 14], whole batches and messages in `buffer`; batches are passed over.
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
    """Return the CRC-32 of the bytes from `start` to `end`, a range that was checked."""
    crc = 0xFFFF_FFFF
    left = (end - start) % WORD_SIZE
    for position in range(start, end - left, WORD_SIZE):
        word = load_word(buffer, position)
        low, high = (word ^ crc) & 0xFFFF_FFFF, word >> 32  # only the lower half has to wait
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
