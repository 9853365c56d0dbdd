"""Compiled loops that turn columns into record batches. Twins: `streamlog.records.reference`."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import copy_bytes, kernel
from streamlog.binary.varint import size_of_varlong, write_varlong
from streamlog.records.layout import RECORD_BATCH_OVERHEAD

OUT_OF_ROOM: Final = -1


@kernel
def field_length(
    offsets: NDArray[np.int32], validity: NDArray[np.uint8], row: int
) -> int:
    """Return the bytes of string `row`, -1 for null.

    Args:
        offsets: int32[n + 1]; of length 1 for a column that is not there.
        validity: uint8[n / 8], bits lowest first; of length 0 where nothing is null.
        row: Which string.
    """
    if offsets.size <= 1:
        return -1
    if validity.size > 0 and validity[row >> 3] >> (row & 7) & 1 == 0:
        return -1
    return int(offsets[row + 1]) - int(offsets[row])


@kernel
def headers_size(header: tuple, row: int) -> int:  # type: ignore[type-arg]
    """Return the bytes of a row's header count and headers.

    Args:
        header: Offsets int32[n + 1] (length 1: no headers), then offsets, data and validity of
            the keys, then of the values.
        row: Which record.
    """
    if header[0].size <= 1:
        return 1
    first, end = int(header[0][row]), int(header[0][row + 1])
    size = size_of_varlong(end - first)
    for index in range(first, end):
        length = field_length(header[1], header[3], index)
        size += size_of_varlong(length) + max(length, 0)
        length = field_length(header[4], header[6], index)
        size += size_of_varlong(length) + max(length, 0)
    return size


@kernel
def body_size(
    key: tuple,  # type: ignore[type-arg]
    value: tuple,  # type: ignore[type-arg]
    header: tuple,  # type: ignore[type-arg]
    row: int,
    timestamp_delta: int,
    offset_delta: int,
) -> int:
    """Return the bytes of a record without its length; arguments as in `write_records`."""
    key_length = field_length(key[0], key[2], row)
    value_length = field_length(value[0], value[2], row)
    return (
        1
        + size_of_varlong(timestamp_delta)
        + size_of_varlong(offset_delta)
        + size_of_varlong(key_length)
        + max(key_length, 0)
        + size_of_varlong(value_length)
        + max(value_length, 0)
        + headers_size(header, row)
    )


@kernel
def plan_batches(
    rows: NDArray[np.int64],
    timestamp: NDArray[np.int64],
    key: tuple,  # type: ignore[type-arg]
    value: tuple,  # type: ignore[type-arg]
    header: tuple,  # type: ignore[type-arg]
    batch_size: int,
    out_plan: NDArray[np.int64],
) -> int:
    """Decide which records go into which batch, filling each up to `batch_size`.

    Args:
        rows: int64[k], the records in the order they are to be written.
        timestamp: int64[n].
        key: Offsets, data, validity.
        value: The same.
        header: See `headers_size`.
        batch_size: The most bytes of a batch; one record may exceed it alone.
        out_plan: int64[3, m]: for each batch the index into `rows` behind its last record, its
            size in bytes, its largest timestamp.

    Returns:
        The number of batches, or OUT_OF_ROOM.
    """
    count = 0
    first = 0
    size = RECORD_BATCH_OVERHEAD
    largest = np.int64(-1)
    for index in range(rows.size):
        row = rows[index]
        if index == first:
            base = timestamp[row]
        body = body_size(key, value, header, row, timestamp[row] - base, index - first)
        record = size_of_varlong(body) + body
        if index > first and size + record > batch_size:
            if count == out_plan.shape[1]:
                return OUT_OF_ROOM
            out_plan[0, count] = index
            out_plan[1, count] = size
            out_plan[2, count] = largest
            count += 1
            first = index
            base = timestamp[row]
            body = body_size(key, value, header, row, np.int64(0), 0)
            record = size_of_varlong(body) + body
            size = RECORD_BATCH_OVERHEAD
            largest = np.int64(-1)
        size += record
        largest = max(largest, timestamp[row])
    if rows.size > first:
        if count == out_plan.shape[1]:
            return OUT_OF_ROOM
        out_plan[0, count] = rows.size
        out_plan[1, count] = size
        out_plan[2, count] = largest
        count += 1
    return count


@kernel
def write_field(
    target: NDArray[np.uint8],
    position: int,
    column: tuple,  # type: ignore[type-arg]
    row: int,
) -> int:
    """Write length and bytes of string `row` at `position` of uint8[n]; return the end.

    `column` is offsets, data, validity. The caller has made room.
    """
    length = field_length(column[0], column[2], row)
    position = write_varlong(target, position, length)
    if length > 0:
        start = np.int64(column[0][row])
        if length > target.size - position or length > column[1].size - start:
            raise IndexError
        copy_bytes(target, position, column[1], start, length)
        position += length
    return position


@kernel
def write_records(
    target: NDArray[np.uint8],
    position: int,
    rows: NDArray[np.int64],
    span: tuple,  # type: ignore[type-arg]
    timestamp: NDArray[np.int64],
    key: tuple,  # type: ignore[type-arg]
    value: tuple,  # type: ignore[type-arg]
    header: tuple,  # type: ignore[type-arg]
) -> int:
    """Write the records of one batch at `position` of uint8[n], where `plan_batches` made room.

    Args:
        target: uint8[n].
        position: Where the first record goes.
        rows: int64[k].
        span: (first, end) indexes into `rows`.
        timestamp: int64[n].
        key: Offsets, data, validity.
        value: The same.
        header: See `headers_size`.

    Returns:
        The position behind the last record.
    """
    first, end = span
    base = timestamp[rows[first]]
    for index in range(first, end):
        row = rows[index]
        delta = timestamp[row] - base
        body = body_size(key, value, header, row, delta, index - first)
        position = write_varlong(target, position, body)
        target[position] = 0
        position = write_varlong(target, position + 1, delta)
        position = write_varlong(target, position, index - first)
        position = write_field(target, position, key, row)
        position = write_field(target, position, value, row)
        if header[0].size <= 1:
            target[position] = 0
            position += 1
            continue
        start, stop = int(header[0][row]), int(header[0][row + 1])
        position = write_varlong(target, position, stop - start)
        for at in range(start, stop):
            position = write_field(target, position, (header[1], header[2], header[3]), at)
            position = write_field(target, position, (header[4], header[5], header[6]), at)
    return position
