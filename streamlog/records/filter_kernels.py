"""The compiled loop of compaction: batches in, batches with fewer records out.

The fate of each batch is already decided (`streamlog.records.filter`). This loop writes the results
without gaps and without an object per record. Twin: `tests.twins.records`.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import inlined, kernel
from streamlog.binary.varint import size_of_varlong, write_varlong
from streamlog.records.kernels import copy_field
from streamlog.records.layout import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    DELETE_HORIZON_MASK,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from streamlog.records.slot import (
    OUT_OF_ROOM,
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
    BASE_TIMESTAMP,
    COUNT,
    LAST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    SIZE,
    WIDTH,
)
from streamlog.records.write_kernels import size_of_deltas, write_deltas

# Fate of a batch.
DROP: Final = 0  # it is removed
COPY: Final = 1  # its bytes are copied unchanged
REWRITE: Final = 2  # it is rebuilt from the remaining records
EMPTY: Final = 3  # only its header stays, for its offsets and its producer

NO_HORIZON: Final = -1
EMPTY_BASE_TIMESTAMP: Final = -1  # DefaultRecordBatch.writeEmptyHeader
KEPT_WHEN_EMPTY: Final = TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK
KEPT_WHEN_REWRITTEN: Final = KEPT_WHEN_EMPTY | COMPRESSION_MASK


@kernel
def rewrite_batches(
    buffer: NDArray[np.uint8],
    fields: NDArray[np.int64],
    fates: NDArray[np.int64],
    horizons: NDArray[np.int64],
    source: NDArray[np.uint8],
    slots: NDArray[np.int64],
    rows: NDArray[np.int64],
    keep: NDArray[np.bool_],
    out_fields: NDArray[np.int64],
    out_buffer: NDArray[np.uint8],
) -> int:
    """Write the remaining batches without gaps, uncompressed if they are rewritten.

    Rewritten and empty batches have zeros for their headers; `out_fields` holds the headers.

    Args:
        buffer: uint8[m], the batches.
        fields: int64[b, 14], their headers.
        fates: int64[b], DROP, COPY, REWRITE or EMPTY.
        horizons: int64[b], the delete horizon that a rewritten batch gets, NO_HORIZON for none.
        source: uint8[k], the bytes that the slots point into.
        slots: int64[n, 9], the records of all batches; checked.
        rows: int64[b], number of records per batch.
        keep: bool[n], whether a record stays; at least one per rewritten batch.
        out_fields: int64[b, 14].
        out_buffer: uint8[q].

    Returns:
        How many batches were written, or OUT_OF_ROOM if q is too small or a field lies outside
        `source`.
    """
    count, filled, row = 0, 0, 0
    for batch in range(len(fates)):
        end = row + rows[batch]
        fate = fates[batch]
        if fate != DROP:
            out = out_fields[count]
            for place in range(WIDTH):
                out[place] = fields[batch, place]
            out[POSITION] = filled
            if fate == COPY:
                filled = copy_field(
                    buffer, fields[batch, POSITION], fields[batch, SIZE], out_buffer, filled
                )
            else:
                if out_buffer.size - filled < RECORD_BATCH_OVERHEAD:
                    return OUT_OF_ROOM
                out_buffer[filled : filled + RECORD_BATCH_OVERHEAD] = 0
                filled += RECORD_BATCH_OVERHEAD
                if fate == EMPTY:
                    empty_header(out)
                else:
                    filled = rewrite_batch(
                        source, slots, row, end, keep, horizons[batch], out, out_buffer, filled
                    )
            if filled < 0:
                return OUT_OF_ROOM
            out[SIZE] = filled - out[POSITION]
            count += 1
        row = end
    return count


@inlined
def empty_header(out: NDArray[np.int64]) -> None:
    """Turn a batch's header into that of an empty one.

    Source: DefaultRecordBatch.writeEmptyHeader.
    """
    out[ATTRIBUTES] &= KEPT_WHEN_EMPTY
    out[BASE_TIMESTAMP] = EMPTY_BASE_TIMESTAMP
    out[COUNT] = 0


@kernel
def rewrite_batch(
    source: NDArray[np.uint8],
    slots: NDArray[np.int64],
    start: int,
    end: int,
    keep: NDArray[np.bool_],
    horizon: int,
    out: NDArray[np.int64],
    out_buffer: NDArray[np.uint8],
    filled: int,
) -> int:
    """Write the remaining records of one batch, and adapt its header, `out`.

    Returns:
        Where they end, or OUT_OF_ROOM.

    Source: MemoryRecords.buildRetainedRecordsInto.
    """
    count, last_offset, largest, base_timestamp = 0, 0, -1, horizon
    for row in range(start, end):
        if not keep[row]:
            continue
        slot = slots[row]
        timestamp, last_offset = slot[SLOT_TIMESTAMP], slot[SLOT_OFFSET]
        if count == 0:
            if out[MAGIC] != CURRENT_MAGIC:
                out[BASE_OFFSET] = last_offset
            if horizon == NO_HORIZON:
                base_timestamp = timestamp
        filled = write_slot(
            source, slot, timestamp - base_timestamp, last_offset - out[BASE_OFFSET],
            out_buffer, filled,
        )  # fmt: skip
        if filled < 0:
            return OUT_OF_ROOM
        largest = max(largest, timestamp)
        count += 1
    if out[MAGIC] != CURRENT_MAGIC:
        out[LAST_OFFSET] = last_offset
        out[MAGIC] = CURRENT_MAGIC
    if out[ATTRIBUTES] & TIMESTAMP_TYPE_MASK == 0:
        out[MAX_TIMESTAMP] = largest
    out[ATTRIBUTES] &= KEPT_WHEN_REWRITTEN
    if horizon != NO_HORIZON:
        out[ATTRIBUTES] |= DELETE_HORIZON_MASK
    out[BASE_TIMESTAMP] = base_timestamp
    out[COUNT] = count
    return filled


@inlined
def write_slot(
    source: NDArray[np.uint8],
    slot: NDArray[np.int64],
    timestamp_delta: int,
    offset_delta: int,
    out_buffer: NDArray[np.uint8],
    filled: int,
) -> int:
    """Write one record; return where it ends, or OUT_OF_ROOM."""
    key_size, value_size = slot[SLOT_KEY_SIZE], slot[SLOT_VALUE_SIZE]
    deltas = timestamp_delta, offset_delta
    body = size_of_deltas(deltas)
    body += size_of_varlong(key_size) + max(key_size, 0)
    body += size_of_varlong(value_size) + max(value_size, 0)
    body += size_of_varlong(slot[SLOT_HEADER_COUNT]) + slot[SLOT_HEADERS_SIZE]
    if size_of_varlong(body) + body > out_buffer.size - filled:
        return OUT_OF_ROOM
    filled = write_deltas(out_buffer, filled, body, deltas)
    filled = write_varlong(out_buffer, filled, key_size)
    filled = copy_field(source, slot[SLOT_KEY], key_size, out_buffer, filled)
    if filled >= 0:
        filled = write_varlong(out_buffer, filled, value_size)
        filled = copy_field(source, slot[SLOT_VALUE], value_size, out_buffer, filled)
    if filled >= 0:
        filled = write_varlong(out_buffer, filled, slot[SLOT_HEADER_COUNT])
        headers_size = slot[SLOT_HEADERS_SIZE]
        filled = copy_field(source, slot[SLOT_HEADERS], headers_size, out_buffer, filled)
    return filled
