"""Compiled loops over a segment's bytes. Twins: `tests.twins.segment`.

They neither copy nor check records: they walk headers (`find_batch`), search for headers byte by
byte (`find_candidate`), choose the batches that get an index entry (`index_entries`) and count the
batches that follow each other in order (`count_in_order`).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.big_endian import read_int32, read_int64
from streamlog.binary.jit import kernel
from streamlog.records.layout import (
    BASE_OFFSET_OFFSET,
    CURRENT_MAGIC,
    LAST_OFFSET_DELTA_OFFSET,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    MAX_INT64,
    MIN_BATCH_LENGTH,
    NO_PARTITION_LEADER_EPOCH,
    RECORD_BATCH_OVERHEAD,
)
from streamlog.records.legacy_kernels import int32_at
from streamlog.records.legacy_layout import (
    MAGIC_V0,
    MAGIC_V1,
    MIN_LENGTH_V0,
    MIN_LENGTH_V1,
    MIN_MESSAGE_SIZE,
)
from streamlog.records.table import (
    BASE_OFFSET,
    LAST_OFFSET,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    POSITION,
    SIZE,
)
from streamlog.segment.walk_layout import (
    CONTINUE,
    ENTRY_MISSED,
    FOUND,
    NO_PROMISE,
    UNSOUND,
    WALK_BASE_OFFSET,
    WALK_LAST_OFFSET,
    WALK_POSITION,
    WALK_PROMISED,
    WALK_SIZE,
)

__all__ = ["count_in_order", "find_batch", "find_candidate", "index_entries"]

# ---- places in the state of `index_entries` ------------------------------------------------------
STATE_BYTES: Final = 0  # bytes since the batch of the last entry, that batch included
STATE_TIMESTAMP: Final = 1  # the largest timestamp so far
STATE_OFFSET: Final = 2  # last offset of the batch that holds it
STATE_WIDTH: Final = 3

# ---- places in a row of what `index_entries` fills -----------------------------------------------
ENTRY_OFFSET: Final = 0
ENTRY_POSITION: Final = 1
ENTRY_TIMESTAMP: Final = 2
ENTRY_TIMESTAMP_OFFSET: Final = 3
ENTRY_WIDTH: Final = 4


@kernel
def find_batch(buffer: NDArray[np.uint8], offset: int, walk: NDArray[np.int64]) -> int:
    """Walk over headers to the first batch that reaches `offset`.

    Args:
        buffer: uint8[n], starting at a batch; its content is not trusted.
        offset: The offset to find.
        walk: int64[5]. On entry: 0, and the last offset that an index entry promised for a batch
            on the way (NO_PROMISE: none, or already met). On return: the position of the batch, or
            where to continue, possibly after `buffer`; the promise still open; and if FOUND the
            batch's base offset, last offset and size.

    Returns:
        FOUND, CONTINUE, UNSOUND or ENTRY_MISSED.
    """
    position = walk[WALK_POSITION]
    promised = walk[WALK_PROMISED]
    status = CONTINUE
    while has_header(buffer, position):
        length = read_int32(buffer, position + LENGTH_OFFSET)
        base_offset = read_int64(buffer, position + BASE_OFFSET_OFFSET)
        delta = read_delta(buffer, position)
        if length < least_length(buffer, position):
            status = UNSOUND
            break
        if base_offset < 0 or delta < 0 or delta > MAX_INT64 - base_offset:
            status = UNSOUND
            break
        last_offset = base_offset + delta
        if promised != NO_PROMISE and last_offset >= promised:
            if last_offset > promised:
                status = ENTRY_MISSED
                break
            promised = NO_PROMISE
        if last_offset >= offset:
            walk[WALK_BASE_OFFSET] = base_offset
            walk[WALK_LAST_OFFSET] = last_offset
            walk[WALK_SIZE] = LOG_OVERHEAD + length
            status = FOUND
            break
        position += LOG_OVERHEAD + length
    walk[WALK_POSITION] = position
    walk[WALK_PROMISED] = promised
    return status


@kernel
def has_header(buffer: NDArray[np.uint8], position: int) -> bool:
    """Return whether the bytes left suffice for the smallest batch of the format found there."""
    left = buffer.size - position
    if left < MIN_MESSAGE_SIZE:
        return False
    return buffer[position + MAGIC_OFFSET] != CURRENT_MAGIC or left >= RECORD_BATCH_OVERHEAD


@kernel
def least_length(buffer: NDArray[np.uint8], position: int) -> int:
    """Return the smallest length in the format found there; MAX_INT64 for an unknown format."""
    magic = buffer[position + MAGIC_OFFSET]
    if magic == CURRENT_MAGIC:
        return MIN_BATCH_LENGTH
    if magic == MAGIC_V1:
        return MIN_LENGTH_V1
    return MIN_LENGTH_V0 if magic == MAGIC_V0 else MAX_INT64


@kernel
def read_delta(buffer: NDArray[np.uint8], position: int) -> int:
    """Return the stated difference of the last offset from the one at `position`."""
    if buffer[position + MAGIC_OFFSET] != CURRENT_MAGIC:
        return 0
    return read_int32(buffer, position + LAST_OFFSET_DELTA_OFFSET)


@kernel
def find_candidate(
    buffer: NDArray[np.uint8], position: int, left: int, first_offset: int, last_offset: int
) -> int:
    """Find the next place where a batch with plausible offsets may start.

    Args:
        buffer: uint8[n], any bytes.
        position: Where to start.
        left: Bytes of the file from the start of `buffer` on; n or more.
        first_offset: The lowest plausible base offset.
        last_offset: The highest plausible last offset.

    Returns:
        The position of a whole header with plausible fields, or -1.
    """
    for at in range(position, buffer.size - MIN_MESSAGE_SIZE + 1):
        if buffer[at + MAGIC_OFFSET] > CURRENT_MAGIC:
            continue
        length = int32_at(buffer, at + LENGTH_OFFSET)  # 0 in runs of zeros, which may be long
        if length < MIN_LENGTH_V0 or length > left - at - LOG_OVERHEAD:
            continue
        if length < least_length(buffer, at) or not has_header(buffer, at):
            continue
        base_offset = read_int64(buffer, at + BASE_OFFSET_OFFSET)
        if base_offset < first_offset or base_offset > last_offset:
            continue
        delta = read_delta(buffer, at)
        if delta >= 0 and delta <= last_offset - base_offset:
            return at
    return -1


@kernel
def count_in_order(
    fields: NDArray[np.int64], next_offset: int, leader_epoch: int, base_offset: int
) -> int:
    """Return how many leading batches ascend in offset and epoch and fit into the segment.

    Args:
        fields: int64[n, 14], the rows of a batch table.
        next_offset: The lowest offset that may come next.
        leader_epoch: The latest epoch so far.
        base_offset: The segment's base offset.
    """
    previous = next_offset - 1  # not `last + 1 > first`: an offset may be the largest int64
    for row in range(len(fields)):
        first, last = fields[row, BASE_OFFSET], fields[row, LAST_OFFSET]
        epoch = fields[row, LEADER_EPOCH]
        if first <= previous or last - base_offset > MAX_INT32:
            return row
        if epoch < leader_epoch and epoch != NO_PARTITION_LEADER_EPOCH:
            return row
        previous, leader_epoch = last, max(leader_epoch, epoch)
    return len(fields)


@kernel
def index_entries(
    fields: NDArray[np.int64],
    start: int,
    interval: int,
    state: NDArray[np.int64],
    out_entries: NDArray[np.int64],
) -> int:
    """Choose the batches that get an index entry, by Kafka's rule since 4.0.

    A batch gets one if more than `interval` bytes lie between the start of the last batch with an
    entry (or of the segment) and its own start.

    Args:
        fields: int64[n, 14], the rows of a batch table.
        start: Position in the segment that the table's positions are relative to.
        interval: `index.interval.bytes`.
        state: int64[3], carried from batch to batch: bytes since the last entry, largest
            timestamp so far and the last offset of the batch that holds it.
        out_entries: int64[n, 4]: offset and position for the offset index, timestamp and its
            offset for the time index.

    Returns:
        The number of entries.

    Source: LogSegment.append (KAFKA-806), LogSegment.recover.
    """
    count = 0
    for row in range(len(fields)):
        batch = fields[row]
        if batch[MAX_TIMESTAMP] > state[STATE_TIMESTAMP]:
            state[STATE_TIMESTAMP] = batch[MAX_TIMESTAMP]
            state[STATE_OFFSET] = batch[LAST_OFFSET]
        if state[STATE_BYTES] > interval:
            out_entries[count, ENTRY_OFFSET] = batch[LAST_OFFSET]
            out_entries[count, ENTRY_POSITION] = start + batch[POSITION]
            out_entries[count, ENTRY_TIMESTAMP] = state[STATE_TIMESTAMP]
            out_entries[count, ENTRY_TIMESTAMP_OFFSET] = state[STATE_OFFSET]
            count += 1
            state[STATE_BYTES] = 0
        state[STATE_BYTES] += batch[SIZE]
    return count
