"""Compiled loops that write records. Twins in plain Python: `streamlog.records.reference`.

Columns become slots (`start_slots`, `slot_column`, `write_header_fields`), slots are cut into
batches (`plan_batches`) and written out (`write_records`; the batches' headers by
`streamlog.records.batch_kernels.write_headers`).
"""

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import int64, kernel
from streamlog.binary.murmur2 import murmur2
from streamlog.binary.varint import size_of_varlong, write_varlong
from streamlog.records.kernels import copy_field
from streamlog.records.layout import (
    CURRENT_MAGIC,
    MAX_INT32,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
    RECORDS_OFFSET,
)
from streamlog.records.slot import (
    BAD_FIELD_LENGTH,
    BAD_ROW,
    BAD_TIMESTAMP,
    OK,
    OUT_OF_ROOM,
    RECORD_TOO_LARGE,
    SLOT_HEADER_COUNT,
    SLOT_HEADERS,
    SLOT_HEADERS_SIZE,
    SLOT_KEY,
    SLOT_KEY_SIZE,
    SLOT_OFFSET,
    SLOT_TIMESTAMP,
    SLOT_VALUE,
    SLOT_VALUE_SIZE,
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


# ---- columns to slots --------------------------------------------------------------------------
@kernel
def start_slots(
    timestamps: NDArray[np.int64], rows: NDArray[np.int64], out_slots: NDArray[np.int64]
) -> int:
    """Fill offset (0, 1, 2 …) and timestamp of each chosen row, and no headers.

    Args:
        timestamps: int64[n], at least 0, or -1 for none.
        rows: int64[k], the rows to take.
        out_slots: int64[k, 9].

    Returns:
        OK, BAD_ROW or BAD_TIMESTAMP.
    """
    for index in range(len(rows)):
        row = rows[index]
        if row < 0 or row >= len(timestamps):
            return BAD_ROW
        if timestamps[row] < -1:
            return BAD_TIMESTAMP
        out_slots[index, SLOT_OFFSET] = index
        out_slots[index, SLOT_TIMESTAMP] = timestamps[row]
        out_slots[index, SLOT_HEADERS] = 0
        out_slots[index, SLOT_HEADERS_SIZE] = 0
        out_slots[index, SLOT_HEADER_COUNT] = 0
    return OK


@kernel
def slot_column(
    offsets: NDArray[np.int32],
    validity: NDArray[np.uint8],
    rows: NDArray[np.int64],
    place: int,
    out_slots: NDArray[np.int64],
) -> int:
    """Note where one field of each chosen row lies in an Arrow binary column.

    Args:
        offsets: int32[n + 1]; empty for a column of nulls.
        validity: uint8[ceil(n / 8)], a bit a row; empty where nothing is null.
        rows: int64[k], the rows to take.
        place: SLOT_KEY or SLOT_VALUE.
        out_slots: int64[k, 9].

    Returns:
        OK, BAD_ROW, or BAD_FIELD_LENGTH where the offsets fall or are negative.
    """
    count = len(offsets) - 1
    if validity.size > 0:
        count = min(count, 8 * validity.size)
    for index in range(len(rows)):
        row = rows[index]
        size = -1
        start = 0
        if offsets.size > 0:
            if row < 0 or row >= count:
                return BAD_ROW
            if validity.size == 0 or validity[row >> 3] >> (row & 7) & 1:
                start = int64(offsets[row])
                size = int64(offsets[row + 1]) - start
                if size < 0 or start < 0:
                    return BAD_FIELD_LENGTH
        out_slots[index, place] = start
        out_slots[index, place + 1] = size
    return OK


@kernel
def write_header_fields(
    slots: NDArray[np.int64],
    key: NDArray[np.uint8],
    value: NDArray[np.uint8],
    out_data: NDArray[np.uint8],
    out_positions: NDArray[np.int64],
) -> int:
    """Write headers one behind the other as they stand in records.

    Args:
        slots: int64[h, 9], a slot a header: key and value.
        key: uint8[…], the bytes of the keys.
        value: uint8[…], the bytes of the values.
        out_data: uint8[m], with room for all, 10 bytes each for the two sizes.
        out_positions: int64[h + 1], filled with where each header begins.

    Returns:
        The bytes written, or OUT_OF_ROOM.
    """
    filled = 0
    out_positions[0] = 0
    for row in range(len(slots)):
        size = slots[row, SLOT_KEY_SIZE]
        filled = write_varlong(out_data, filled, size)
        filled = copy_field(key, slots[row, SLOT_KEY], size, out_data, filled)
        if filled < 0:
            return OUT_OF_ROOM
        size = slots[row, SLOT_VALUE_SIZE]
        filled = write_varlong(out_data, filled, size)
        filled = copy_field(value, slots[row, SLOT_VALUE], size, out_data, filled)
        if filled < 0:
            return OUT_OF_ROOM
        out_positions[row + 1] = filled
    return filled


# ---- slots to batches --------------------------------------------------------------------------
@kernel
def size_of_body(slots: NDArray[np.int64], row: int, base_offset: int, base_timestamp: int) -> int:
    """Return the bytes of a record behind its length."""
    key_size, value_size = slots[row, SLOT_KEY_SIZE], slots[row, SLOT_VALUE_SIZE]
    size: int = (
        1
        + size_of_varlong(slots[row, SLOT_TIMESTAMP] - base_timestamp)
        + size_of_varlong(slots[row, SLOT_OFFSET] - base_offset)
        + size_of_varlong(key_size)
        + max(key_size, 0)
        + size_of_varlong(value_size)
        + max(value_size, 0)
        + size_of_varlong(slots[row, SLOT_HEADER_COUNT])
        + slots[row, SLOT_HEADERS_SIZE]
    )
    return size


@kernel
def plan_batches(
    slots: NDArray[np.int64],
    batch_size: int,
    attributes: int,
    out_fields: NDArray[np.int64],
) -> int:
    """Cut records into batches of at most `batch_size` bytes, at least one record each.

    Args:
        slots: int64[n, 9], offsets rising.
        batch_size: Bytes, header included.
        attributes: The attribute bits of all batches.
        out_fields: int64[b, 14], a row a batch, uncompressed; without epoch, producer and CRC.

    Returns:
        The number of batches, RECORD_TOO_LARGE (a record beyond what int32 counts), or
        OUT_OF_ROOM where there are more than b.
    """
    batch = -1
    end = size = base_offset = base_timestamp = 0
    for row in range(len(slots)):
        offset, timestamp = slots[row, SLOT_OFFSET], slots[row, SLOT_TIMESTAMP]
        body = size_of_body(slots, row, base_offset, base_timestamp)
        record = size_of_varlong(body) + body
        if batch < 0 or record > batch_size - size or offset - base_offset > MAX_INT32:
            batch += 1
            if batch == len(out_fields):
                return OUT_OF_ROOM
            base_offset, base_timestamp = offset, timestamp
            body = size_of_body(slots, row, base_offset, base_timestamp)
            record = size_of_varlong(body) + body
            if record > MAX_INT32 - RECORD_BATCH_OVERHEAD:
                return RECORD_TOO_LARGE
            start_batch(out_fields, batch, end, attributes)
            out_fields[batch, BASE_OFFSET] = base_offset
            out_fields[batch, BASE_TIMESTAMP] = base_timestamp
            out_fields[batch, MAX_TIMESTAMP] = timestamp
            size = RECORD_BATCH_OVERHEAD
            end += size
        size += record
        end += record
        out_fields[batch, SIZE] = size
        out_fields[batch, LAST_OFFSET] = offset
        out_fields[batch, COUNT] += 1
        if timestamp > out_fields[batch, MAX_TIMESTAMP]:
            out_fields[batch, MAX_TIMESTAMP] = timestamp
    return batch + 1


@kernel
def start_batch(out_fields: NDArray[np.int64], batch: int, position: int, attributes: int) -> None:
    """Fill what is the same for every new batch."""
    out_fields[batch, POSITION] = position
    out_fields[batch, LEADER_EPOCH] = NO_PARTITION_LEADER_EPOCH
    out_fields[batch, MAGIC] = CURRENT_MAGIC
    out_fields[batch, CRC] = 0
    out_fields[batch, ATTRIBUTES] = attributes
    out_fields[batch, PRODUCER_ID] = NO_PRODUCER_ID
    out_fields[batch, PRODUCER_EPOCH] = NO_PRODUCER_EPOCH
    out_fields[batch, BASE_SEQUENCE] = NO_SEQUENCE
    out_fields[batch, COUNT] = 0


@kernel
def write_records(
    fields: NDArray[np.int64],
    slots: NDArray[np.int64],
    key: NDArray[np.uint8],
    value: NDArray[np.uint8],
    headers: NDArray[np.uint8],
    out_buffer: NDArray[np.uint8],
) -> int:
    """Write the records of planned batches, each behind the room of its header.

    Args:
        fields: int64[b, 14], as `plan_batches` made them.
        slots: int64[n, 9], the records of all batches.
        key: uint8[…], the bytes of the keys.
        value: uint8[…], the bytes of the values.
        headers: uint8[…], the written headers.
        out_buffer: uint8[m], with room for all batches.

    Returns:
        The bytes up to the end of the last batch, or OUT_OF_ROOM.
    """
    row = 0
    position = 0
    for batch in range(len(fields)):
        base_offset, base_timestamp = fields[batch, BASE_OFFSET], fields[batch, BASE_TIMESTAMP]
        position = fields[batch, POSITION] + RECORDS_OFFSET
        for _ in range(fields[batch, COUNT]):
            body = size_of_body(slots, row, base_offset, base_timestamp)
            position = write_varlong(out_buffer, position, body)
            out_buffer[position] = 0  # attributes
            delta = slots[row, SLOT_TIMESTAMP] - base_timestamp
            position = write_varlong(out_buffer, position + 1, delta)
            position = write_varlong(out_buffer, position, slots[row, SLOT_OFFSET] - base_offset)
            size = slots[row, SLOT_KEY_SIZE]
            position = write_varlong(out_buffer, position, size)
            position = copy_field(key, slots[row, SLOT_KEY], size, out_buffer, position)
            if position < 0:
                return OUT_OF_ROOM
            size = slots[row, SLOT_VALUE_SIZE]
            position = write_varlong(out_buffer, position, size)
            position = copy_field(value, slots[row, SLOT_VALUE], size, out_buffer, position)
            if position < 0:
                return OUT_OF_ROOM
            position = write_varlong(out_buffer, position, slots[row, SLOT_HEADER_COUNT])
            size = slots[row, SLOT_HEADERS_SIZE]
            position = copy_field(headers, slots[row, SLOT_HEADERS], size, out_buffer, position)
            if position < 0:
                return OUT_OF_ROOM
            row += 1
    return position


# ---- keys to partitions ------------------------------------------------------------------------
@kernel
def partition_keys(
    slots: NDArray[np.int64],
    data: NDArray[np.uint8],
    partitions: int,
    out_partitions: NDArray[np.int32],
) -> int:
    """Choose a partition for each key.

    Args:
        slots: int64[n, 9], the keys.
        data: uint8[m], their bytes.
        partitions: How many there are.
        out_partitions: int32[n], filled with 0 to `partitions` - 1, or -1 where the key is null.

    Returns:
        OK, or OUT_OF_ROOM where a key lies outside `data`.
    """
    for row in range(len(slots)):
        start, size = slots[row, SLOT_KEY], slots[row, SLOT_KEY_SIZE]
        if size < 0:
            out_partitions[row] = -1
        elif start < 0 or size > data.size - start:
            return OUT_OF_ROOM
        else:
            out_partitions[row] = (murmur2(data, start, start + size) & MAX_INT32) % partitions
    return OK
