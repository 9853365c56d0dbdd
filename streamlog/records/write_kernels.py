"""Compiled loops that write records. Twins: `tests.twins.records`.

Records come as columns in Arrow's layout. Headers are written first, for all records without gaps
(`write_header_fields`); then the records, split into batches (`write_records`). The batch headers
are left to `streamlog.records.batch_kernels.write_headers`.

A *column* is three arrays: offsets, int32[n + 1], empty for a column of nulls; validity,
uint8[ceil(n / 8)], one bit per row, empty if nothing is null; the bytes, uint8[m]. *Rows* are the
chosen records, int64[k]; an empty array stands for all in order.
"""

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import inlined, int64, kernel, store
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
)
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.slot import (
    BAD_FIELD_LENGTH,
    BAD_HEADER_COUNT,
    BAD_HEADER_KEY,
    BAD_ROW,
    OK,
    OUT_OF_ROOM,
    RECORD_TOO_LARGE,
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

Column = tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8]]
Headers = tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.uint8]]

NULL = -1  # the size of a null field
FALLING = -2  # a column's offsets decrease


@inlined
def field_of(column: Column, row: int) -> tuple[int, int]:
    """Return start and size of a field, NULL, or FALLING; the row must exist."""
    offsets, validity, _ = column
    start, size = 0, NULL
    if offsets.size > 0 and (validity.size == 0 or validity[row >> 3] >> (row & 7) & 1):
        start = int64(offsets[row])
        size = int64(offsets[row + 1]) - start
        if size < 0:
            size = FALLING
    return start, size


@inlined
def write_field(
    column: Column, start: int, size: int, out_data: NDArray[np.uint8], position: int
) -> int:
    """Write a field with its size; there must be room.

    Returns:
        Its end; OUT_OF_ROOM if it lies outside the column, or if a previous one did.
    """
    return write_counted(column[2], (size, start, size), out_data, position)


@inlined
def write_counted(
    source: NDArray[np.uint8],
    count_and_bytes: tuple[int, int, int],
    out_data: NDArray[np.uint8],
    position: int,
) -> int:
    """Write a count and then bytes of `source` (start, size); see `write_field`."""
    count, start, size = count_and_bytes
    if position < 0:
        return position
    position = write_varlong(out_data, position, count)
    return copy_field(source, start, size, out_data, position)


# ---- headers -----------------------------------------------------------------------------------
@kernel
def place_headers(
    rows: NDArray[np.int64],
    offsets: NDArray[np.int32],
    key: Column,
    value: Column,
    out_positions: NDArray[np.int64],
) -> int:
    """Compute the bytes that the headers of each chosen row take.

    Args:
        rows: int64[k], or none.
        offsets: int32[n + 1]; row i has the headers `offsets[i]` to `offsets[i + 1]`.
        key: The keys of all headers.
        value: Their values.
        out_positions: int64[k + 1], filled with the start of each row's headers.

    Returns:
        OK; BAD_ROW; BAD_HEADER_COUNT if the offsets decrease or exceed the columns;
        BAD_HEADER_KEY for a null key; BAD_FIELD_LENGTH if a column's offsets decrease.
    """
    filled = 0
    headers = min(len(key[0]), len(value[0]) if len(value[0]) > 0 else MAX_INT32) - 1
    for index in range(len(out_positions) - 1):
        row = rows[index] if rows.size > 0 else index
        if row < 0 or row >= len(offsets) - 1:
            return BAD_ROW
        if not 0 <= offsets[row] <= offsets[row + 1] <= max(headers, 0):
            return BAD_HEADER_COUNT
        out_positions[index] = filled
        for header in range(offsets[row], offsets[row + 1]):
            _, key_size = field_of(key, header)
            _, value_size = field_of(value, header)
            if key_size == NULL:
                return BAD_HEADER_KEY
            if key_size == FALLING or value_size == FALLING:
                return BAD_FIELD_LENGTH
            filled += size_of_field(key_size) + size_of_field(value_size)
    out_positions[len(out_positions) - 1] = filled
    return OK


@kernel
def write_header_fields(
    rows: NDArray[np.int64],
    offsets: NDArray[np.int32],
    key: Column,
    value: Column,
    out_data: NDArray[np.uint8],
    count: int,
) -> int:
    """Write the headers of the chosen rows without gaps, in the layout of records.

    Args:
        rows: int64[k], or none.
        offsets: int32[n + 1], headers per row, checked by `place_headers`.
        key: The keys of all headers.
        value: Their values.
        out_data: uint8[m], m from `place_headers`.
        count: Number of rows.

    Returns:
        The bytes written, or OUT_OF_ROOM if a field lies outside its column.
    """
    filled = 0
    for index in range(count):
        row = rows[index] if rows.size > 0 else index
        for header in range(offsets[row], offsets[row + 1]):
            key_start, key_size = field_of(key, header)
            value_start, value_size = field_of(value, header)
            if size_of_field(key_size) + size_of_field(value_size) > len(out_data) - filled:
                return OUT_OF_ROOM
            filled = write_field(key, key_start, key_size, out_data, filled)
            filled = write_field(value, value_start, value_size, out_data, filled)
            if filled < 0:
                return OUT_OF_ROOM
    return filled


# ---- records -----------------------------------------------------------------------------------
@kernel
def size_of_rows(rows: NDArray[np.int64], count: int, key: Column, value: Column) -> int:
    """Add up the sizes of the keys and values of the chosen rows.

    Args:
        rows: int64[k].
        count: Number of rows to choose from.
        key: Their keys.
        value: Their values.

    Returns:
        The bytes, or BAD_ROW.
    """
    total = 0
    for row in rows:
        if row < 0 or row >= count:
            return BAD_ROW
        total += max(field_of(key, row)[1], 0) + max(field_of(value, row)[1], 0)
    return total


@kernel
def write_records(
    rows: NDArray[np.int64],
    count: int,
    timestamps: NDArray[np.int64],
    key: Column,
    value: Column,
    headers: Headers,
    offsets: NDArray[np.int64] | None,
    batch_size: int,
    attributes: int,
    out_fields: NDArray[np.int64],
    out_buffer: NDArray[np.uint8],
) -> int:
    """Write records as batches of at most `batch_size` bytes, at least one record each.

    Each batch has room for its header. It begins at the offset after the last record of the
    previous one, if its own first record is not too far from there.

    Args:
        rows: int64[k], or none; checked by `size_of_rows`.
        count: Number of chosen rows.
        timestamps: int64[n], at least 0, or -1 for none.
        key: The keys.
        value: The values.
        headers: Headers per row, int32[n + 1], empty if no record has any; start of those of each
            chosen row in the bytes, int64[k + 1]; the bytes, uint8[…].
        offsets: int64[k + 1], ascending: the offset before the first batch, then those of the
            records. None: consecutive from 0, for which numba compiles a kernel of its own that
            is faster by several percent.
        batch_size: Bytes, including the header.
        attributes: The attribute bits of all batches.
        out_fields: int64[b, 14], one row per batch, uncompressed; without epoch, producer and CRC.
        out_buffer: uint8[m].

    Returns:
        The number of batches; RECORD_TOO_LARGE (a record beyond the range of int32);
        BAD_FIELD_LENGTH if a column's offsets decrease or exceed its bytes, or if these are more
        than m; OUT_OF_ROOM if there are more than b batches.
    """
    batch, position, base_offset, base_timestamp = -1, 0, 0, 0
    start, max_timestamp = 0, NO_TIMESTAMP  # of the current batch; its row is filled at its end
    for index in range(count):
        row = rows[index] if rows.size > 0 else index
        offset, timestamp = offset_of(offsets, index), timestamps[row]
        key_start, key_size = field_of(key, row)
        value_start, value_size = field_of(value, row)
        count_and_bytes = headers_of(headers, row, index)
        fields = size_of_fields(key_size, value_size, count_and_bytes)
        deltas = timestamp - base_timestamp, offset - base_offset
        body, record = sizes_of_record(deltas, fields)
        if batch < 0 or is_far(offsets, deltas[1]) or record > batch_size - (position - start):
            last_offset = offset_of(offsets, index - 1)
            if batch >= 0:
                end_batch(out_fields[batch], position, last_offset, index, max_timestamp)
            base_offset = base_of(offsets, last_offset, offset)
            batch, start, deltas = batch + 1, position, (0, offset - base_offset)
            if batch == len(out_fields):
                return OUT_OF_ROOM
            base_timestamp = max_timestamp = timestamp
            body, record = sizes_of_record(deltas, fields)
            if record > MAX_INT32 - RECORD_BATCH_OVERHEAD:
                return RECORD_TOO_LARGE
            out_fields[batch, COUNT] = index  # of its first record; `end_batch` makes it a number
            position = start_batch(out_fields[batch], position, attributes, base_offset, timestamp)
        if key_size < NULL or value_size < NULL or record > out_buffer.size - position:
            return BAD_FIELD_LENGTH
        max_timestamp = max(max_timestamp, timestamp)
        position = write_deltas(out_buffer, position, body, deltas)
        position = write_field(key, key_start, key_size, out_buffer, position)
        position = write_field(value, value_start, value_size, out_buffer, position)
        position = write_counted(headers[2], count_and_bytes, out_buffer, position)
        if position < 0:
            return BAD_FIELD_LENGTH
    if batch >= 0:
        end_batch(out_fields[batch], position, offset_of(offsets, count - 1), count, max_timestamp)
    return batch + 1


@inlined
def offset_of(offsets: NDArray[np.int64] | None, index: int) -> int:
    """Return the offset of a chosen record; that of -1 comes before the first batch."""
    if offsets is None:
        return index
    return int64(offsets[index + 1])


@inlined
def is_far(offsets: NDArray[np.int64] | None, delta: int) -> bool:
    """Return whether a record cannot be in a batch that begins `delta` offsets before it."""
    return offsets is not None and delta > MAX_INT32


@inlined
def base_of(offsets: NDArray[np.int64] | None, last_offset: int, offset: int) -> int:
    """Return where the batch of a record begins: after the last offset, if that is not too far."""
    base_offset = last_offset + 1
    return offset if is_far(offsets, offset - base_offset) else base_offset


@inlined
def headers_of(headers: Headers, row: int, index: int) -> tuple[int, int, int]:
    """Return the number of a record's headers, their start in the bytes, and their size."""
    offsets, positions, _ = headers
    count = start = size = 0
    if offsets.size > 0:
        count = int64(offsets[row + 1]) - int64(offsets[row])
        start = positions[index]
        size = positions[index + 1] - start
    return count, start, size


@inlined
def size_of_fields(key_size: int, value_size: int, count_and_bytes: tuple[int, int, int]) -> int:
    """Return the bytes of a record's fields with their sizes, and of its headers."""
    size = size_of_field(key_size) + size_of_field(value_size)
    return size + size_of_varlong(count_and_bytes[0]) + count_and_bytes[2]


@inlined
def sizes_of_record(deltas: tuple[int, int], fields: int) -> tuple[int, int]:
    """Return the bytes of a record without its size, and with it.

    Args:
        deltas: Those of timestamp and offset.
        fields: The bytes of its fields.
    """
    body = size_of_deltas(deltas) + fields
    return body, size_of_varlong(body) + body


@inlined
def size_of_deltas(deltas: tuple[int, int]) -> int:
    """Return the bytes of a record's attributes and its deltas, of timestamp and offset."""
    return 1 + size_of_varlong(deltas[0]) + size_of_varlong(deltas[1])


@inlined
def write_deltas(
    out_buffer: NDArray[np.uint8], position: int, body: int, deltas: tuple[int, int]
) -> int:
    """Write the bytes before the fields of a record of `body` bytes; there must be room."""
    position = write_varlong(out_buffer, position, body)
    store(out_buffer, position, 0)  # attributes
    position = write_varlong(out_buffer, position + 1, deltas[0])
    return write_varlong(out_buffer, position, deltas[1])


@inlined
def size_of_field(size: int) -> int:
    """Return the bytes of a field with its size."""
    return size_of_varlong(size) + max(size, 0)


@inlined
def start_batch(
    out_batch: NDArray[np.int64],
    position: int,
    attributes: int,
    base_offset: int,
    base_timestamp: int,
) -> int:
    """Fill the batch fields known before its records; return the start of the first record."""
    out_batch[POSITION] = position
    out_batch[BASE_OFFSET] = base_offset
    out_batch[LEADER_EPOCH] = NO_PARTITION_LEADER_EPOCH
    out_batch[MAGIC] = CURRENT_MAGIC
    out_batch[CRC] = 0
    out_batch[ATTRIBUTES] = attributes
    out_batch[BASE_TIMESTAMP] = base_timestamp
    out_batch[PRODUCER_ID] = NO_PRODUCER_ID
    out_batch[PRODUCER_EPOCH] = NO_PRODUCER_EPOCH
    out_batch[BASE_SEQUENCE] = NO_SEQUENCE
    return position + RECORD_BATCH_OVERHEAD


@inlined
def end_batch(
    out_batch: NDArray[np.int64], end: int, last_offset: int, index: int, max_timestamp: int
) -> None:
    """Fill the fields of a batch that are known after its records; `index` is the next one's."""
    out_batch[COUNT] = index - out_batch[COUNT]
    out_batch[SIZE] = end - out_batch[POSITION]
    out_batch[LAST_OFFSET] = last_offset
    out_batch[MAX_TIMESTAMP] = max_timestamp


# ---- keys to partitions ------------------------------------------------------------------------
@kernel
def partition_keys(key: Column, partitions: int, out_partitions: NDArray[np.int32]) -> int:
    """Choose a partition for each key.

    Args:
        key: The keys of n records.
        partitions: Their number.
        out_partitions: int32[n], filled with 0 to `partitions` - 1, or -1 if the key is null.

    Returns:
        OK, or BAD_FIELD_LENGTH if a key lies outside the column's bytes.
    """
    data = key[2]
    for row in range(len(out_partitions)):
        start, size = field_of(key, row)
        if size == NULL:
            out_partitions[row] = -1
        elif start < 0 or size < 0 or size > data.size - start:
            return BAD_FIELD_LENGTH
        else:
            out_partitions[row] = (murmur2(data, start, start + size) & MAX_INT32) % partitions
    return OK
