"""Compiled loops over batch headers. Twins: `streamlog.records.plain_headers`."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.big_endian import (
    read_int8,
    read_int16,
    read_int32,
    read_int64,
    write_int8,
    write_int16,
    write_int32,
    write_int64,
)
from streamlog.binary.jit import crc32c_of, kernel
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    BASE_OFFSET_OFFSET,
    BASE_SEQUENCE_OFFSET,
    BASE_TIMESTAMP_OFFSET,
    CRC_OFFSET,
    CURRENT_MAGIC,
    HEADER_SIZE_UP_TO_MAGIC,
    LAST_OFFSET_DELTA_OFFSET,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    MAX_INT64,
    MAX_TIMESTAMP_OFFSET,
    MIN_BATCH_LENGTH,
    MIN_LEGACY_LENGTH,
    PARTITION_LEADER_EPOCH_OFFSET,
    PRODUCER_EPOCH_OFFSET,
    PRODUCER_ID_OFFSET,
    RECORD_BATCH_OVERHEAD,
    RECORDS_COUNT_OFFSET,
)
from streamlog.records.slot import OUT_OF_ROOM
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

# Why a scan may stop; the values of ScanStop.
END: Final = 0
PARTIAL: Final = 1
BAD_LENGTH: Final = 2
BAD_MAGIC: Final = 3
BAD_HEADER: Final = 4

# State of `scan_sound`, carried from piece to piece: int64[4].
STATE_COUNT: Final = 0
STATE_SOUND: Final = 1
STATE_POSITION: Final = 2
STATE_WANTED: Final = 3
STATE_WIDTH: Final = 4


@kernel
def count_batches(buffer: NDArray[np.uint8]) -> int:
    """Return an upper bound of the batches that `scan_batches` finds, from their lengths."""
    count = 0
    position = 0
    while buffer.size - position > HEADER_SIZE_UP_TO_MAGIC:
        length = read_int32(buffer, position + LENGTH_OFFSET)
        if length < MIN_BATCH_LENGTH or length > buffer.size - position - LOG_OVERHEAD:
            break
        if buffer[position + MAGIC_OFFSET] != CURRENT_MAGIC:
            break
        position += LOG_OVERHEAD + length
        count += 1
    return count


@kernel
def scan_batches(
    buffer: NDArray[np.uint8], out_fields: NDArray[np.int64], out_counts: NDArray[np.int64]
) -> int:
    """Read the headers of the whole v2 batches at the start of `buffer`.

    Args:
        buffer: uint8[m], any bytes; not trusted.
        out_fields: int64[n, 14], one row per batch, n from `count_batches`.
        out_counts: int64[2], filled with the number of batches and of bytes they take.

    Returns:
        Why it stopped: END, PARTIAL, BAD_LENGTH, BAD_MAGIC (which may be v0 or v1) or BAD_HEADER.
    """
    count = 0
    position = 0
    stop = END
    while position < buffer.size:
        stop = check_batch(buffer, position)
        if stop == END:
            stop = read_header(buffer, position, out_fields, count)
        if stop != END:
            break
        position += out_fields[count, SIZE]
        count += 1
    out_counts[0] = count
    out_counts[1] = position
    return stop


@kernel
def scan_sound(
    buffer: NDArray[np.uint8], out_fields: NDArray[np.int64], state: NDArray[np.int64]
) -> int:
    """Continue a scan of v2 batches in a buffer that has grown, and check their checksums.

    Args:
        buffer: uint8[m], any bytes; not trusted.
        out_fields: int64[n, 14], one row per batch, starting with those found so far.
        state: int64[4], carried from call to call: batches found, how many of them from the
            first have the right checksum, where to continue, and the claimed end of the batch
            there; initially zeros.

    Returns:
        Why it stopped, as `scan_batches`; OUT_OF_ROOM if `out_fields` is full.
    """
    stop = END
    while state[STATE_POSITION] < buffer.size:
        count, position = state[STATE_COUNT], state[STATE_POSITION]
        stop = check_batch(buffer, position)
        if stop == END and count == len(out_fields):
            stop = OUT_OF_ROOM
        if stop == END:
            stop = read_header(buffer, position, out_fields, count)
        if stop != END:
            break
        size = out_fields[count, SIZE]
        if state[STATE_SOUND] == count:
            state[STATE_SOUND] += crc_of_batch(buffer, position, size) == out_fields[count, CRC]
        state[STATE_COUNT] += 1
        state[STATE_POSITION] += size
    state[STATE_WANTED] = position = state[STATE_POSITION]
    if buffer.size - position >= LOG_OVERHEAD:
        state[STATE_WANTED] += LOG_OVERHEAD + read_int32(buffer, position + LENGTH_OFFSET)
    return stop


@kernel
def check_batch(buffer: NDArray[np.uint8], position: int) -> int:
    """Return END if a whole v2 batch may be at `position`, otherwise the error."""
    left = buffer.size - position
    if left <= HEADER_SIZE_UP_TO_MAGIC:  # Kafka ignores a tail of just 17 bytes, too
        return PARTIAL
    length = read_int32(buffer, position + LENGTH_OFFSET)
    if length < MIN_LEGACY_LENGTH or length > MAX_INT32 - LOG_OVERHEAD:
        return BAD_LENGTH
    if length > left - LOG_OVERHEAD:
        return PARTIAL
    if read_int8(buffer, position + MAGIC_OFFSET) != CURRENT_MAGIC:
        return BAD_MAGIC
    return BAD_LENGTH if length < MIN_BATCH_LENGTH else END


@kernel
def read_header(
    buffer: NDArray[np.uint8], position: int, out_fields: NDArray[np.int64], row: int
) -> int:
    """Read the v2 header at `position`, which is inside `buffer`; return END or BAD_HEADER."""
    base_offset = read_int64(buffer, position + BASE_OFFSET_OFFSET)
    delta = read_int32(buffer, position + LAST_OFFSET_DELTA_OFFSET)
    count = read_int32(buffer, position + RECORDS_COUNT_OFFSET)
    if base_offset < 0 or delta < 0 or delta > MAX_INT64 - base_offset or count < 0:
        return BAD_HEADER
    fields = out_fields[row]
    fields[POSITION] = position
    fields[SIZE] = LOG_OVERHEAD + read_int32(buffer, position + LENGTH_OFFSET)
    fields[BASE_OFFSET] = base_offset
    fields[LAST_OFFSET] = base_offset + delta
    fields[LEADER_EPOCH] = read_int32(buffer, position + PARTITION_LEADER_EPOCH_OFFSET)
    fields[MAGIC] = CURRENT_MAGIC
    fields[CRC] = read_int32(buffer, position + CRC_OFFSET) & 0xFFFFFFFF
    fields[ATTRIBUTES] = read_int16(buffer, position + ATTRIBUTES_OFFSET)
    fields[BASE_TIMESTAMP] = read_int64(buffer, position + BASE_TIMESTAMP_OFFSET)
    fields[MAX_TIMESTAMP] = read_int64(buffer, position + MAX_TIMESTAMP_OFFSET)
    fields[PRODUCER_ID] = read_int64(buffer, position + PRODUCER_ID_OFFSET)
    fields[PRODUCER_EPOCH] = read_int16(buffer, position + PRODUCER_EPOCH_OFFSET)
    fields[BASE_SEQUENCE] = read_int32(buffer, position + BASE_SEQUENCE_OFFSET)
    fields[COUNT] = count
    return END


@kernel
def find_bad_checksum(buffer: NDArray[np.uint8], fields: NDArray[np.int64]) -> int:
    """Compare stored and computed checksums of v2 batches.

    Args:
        buffer: uint8[m], the batches.
        fields: int64[b, 14], their headers.

    Returns:
        The first batch with a wrong checksum, or outside `buffer`; b for none.
    """
    for row in range(len(fields)):
        position, size = fields[row, POSITION], fields[row, SIZE]
        if not lies_in(buffer, position, size):
            return row
        if crc_of_batch(buffer, position, size) != fields[row, CRC]:
            return row
    return len(fields)


@kernel
def lies_in(buffer: NDArray[np.uint8], position: int, size: int) -> bool:
    """Return whether a batch of `size` bytes at `position`, header included, lies in `buffer`."""
    return position >= 0 and RECORD_BATCH_OVERHEAD <= size <= buffer.size - position


@kernel
def crc_of_batch(buffer: NDArray[np.uint8], position: int, size: int) -> int:
    """Return the checksum over a batch, which lies in `buffer`."""
    return crc32c_of(buffer, position + ATTRIBUTES_OFFSET, size - ATTRIBUTES_OFFSET)


@kernel
def write_headers(
    fields: NDArray[np.int64],
    out_buffer: NDArray[np.uint8],
    are_new: bool,  # noqa: FBT001 - kernels are called by position
) -> int:
    """Write the 61 header bytes of each batch in `fields` at its position, including the CRC.

    If bytes that the CRC covers change, it is computed again and also stored in `fields`.

    Args:
        fields: int64[b, 14].
        out_buffer: uint8[m].
        are_new: Whether `out_buffer` has no headers yet.

    Returns:
        How many were written; fewer than b if the next one does not lie in `out_buffer`.
    """
    for row in range(len(fields)):
        batch = fields[row]
        position, size = batch[POSITION], batch[SIZE]
        if not lies_in(out_buffer, position, size):
            return row
        is_stale = are_new or checksummed_differs(batch, out_buffer, position)
        write_int64(out_buffer, position + BASE_OFFSET_OFFSET, batch[BASE_OFFSET])
        write_int32(out_buffer, position + LENGTH_OFFSET, size - LOG_OVERHEAD)
        write_int32(out_buffer, position + PARTITION_LEADER_EPOCH_OFFSET, batch[LEADER_EPOCH])
        write_int8(out_buffer, position + MAGIC_OFFSET, batch[MAGIC])
        write_int16(out_buffer, position + ATTRIBUTES_OFFSET, batch[ATTRIBUTES])
        delta = batch[LAST_OFFSET] - batch[BASE_OFFSET]
        write_int32(out_buffer, position + LAST_OFFSET_DELTA_OFFSET, delta)
        write_int64(out_buffer, position + BASE_TIMESTAMP_OFFSET, batch[BASE_TIMESTAMP])
        write_int64(out_buffer, position + MAX_TIMESTAMP_OFFSET, batch[MAX_TIMESTAMP])
        write_int64(out_buffer, position + PRODUCER_ID_OFFSET, batch[PRODUCER_ID])
        write_int16(out_buffer, position + PRODUCER_EPOCH_OFFSET, batch[PRODUCER_EPOCH])
        write_int32(out_buffer, position + BASE_SEQUENCE_OFFSET, batch[BASE_SEQUENCE])
        write_int32(out_buffer, position + RECORDS_COUNT_OFFSET, batch[COUNT])
        if is_stale:
            batch[CRC] = crc_of_batch(out_buffer, position, size)
        write_int32(out_buffer, position + CRC_OFFSET, batch[CRC])
    return len(fields)


@kernel
def checksummed_differs(batch: NDArray[np.int64], buffer: NDArray[np.uint8], position: int) -> bool:
    """Return whether fields covered by the CRC differ between the header and `batch`."""
    differs: bool = (
        read_int16(buffer, position + ATTRIBUTES_OFFSET) != batch[ATTRIBUTES]
        or read_int32(buffer, position + LAST_OFFSET_DELTA_OFFSET)
        != batch[LAST_OFFSET] - batch[BASE_OFFSET]
        or read_int64(buffer, position + BASE_TIMESTAMP_OFFSET) != batch[BASE_TIMESTAMP]
        or read_int64(buffer, position + MAX_TIMESTAMP_OFFSET) != batch[MAX_TIMESTAMP]
        or read_int64(buffer, position + PRODUCER_ID_OFFSET) != batch[PRODUCER_ID]
        or read_int16(buffer, position + PRODUCER_EPOCH_OFFSET) != batch[PRODUCER_EPOCH]
        or read_int32(buffer, position + BASE_SEQUENCE_OFFSET) != batch[BASE_SEQUENCE]
        or read_int32(buffer, position + RECORDS_COUNT_OFFSET) != batch[COUNT]
    )
    return differs


@kernel
def place_batches(
    fields: NDArray[np.int64], out_buffer: NDArray[np.uint8], base_offset: int, leader_epoch: int
) -> int:
    """Call `renumber` and then `write_headers`; return the result of the latter."""
    renumber(fields, base_offset, leader_epoch)
    return write_headers(fields, out_buffer, False)  # noqa: FBT003 - called by position


@kernel
def renumber(fields: NDArray[np.int64], base_offset: int, leader_epoch: int) -> int:
    """Give the batches consecutive offsets from `base_offset` on, and the epoch, in place.

    Returns:
        The offset after the last one.
    """
    for row in range(len(fields)):
        span = fields[row, LAST_OFFSET] - fields[row, BASE_OFFSET] + 1
        fields[row, BASE_OFFSET] = base_offset
        fields[row, LAST_OFFSET] = base_offset + span - 1
        fields[row, LEADER_EPOCH] = leader_epoch
        base_offset += span
    return base_offset
