"""Walking from batch header to batch header, checking no more than the headers."""

import struct
from typing import Final, NamedTuple

import numpy as np

from streamlog.records.layout import (
    CURRENT_MAGIC,
    LAST_OFFSET_DELTA_OFFSET,
    LOG_OVERHEAD,
    MAX_INT64,
    RECORD_BATCH_OVERHEAD,
)
from streamlog.records.legacy_layout import MIN_MESSAGE_SIZE
from streamlog.records.plain_headers import FEW, MIN_LENGTHS, numba_is_loaded
from streamlog.segment.walk_layout import (
    CONTINUE,
    FOUND,
    NO_PROMISE,
    WALK_PROMISED,
    WALK_WIDTH,
)

__all__ = ["HeaderWalk", "walk"]

_PREFIX: Final = struct.Struct(">qiiB")  # base offset, length, epoch or CRC-32, magic
_DELTA: Final = struct.Struct(">i")


class HeaderWalk(NamedTuple):
    """How a walk ended.

    Attributes:
        status: FOUND, CONTINUE, UNSOUND or ENTRY_MISSED.
        position: Of the batch it ended at, or where to go on; relative to the buffer.
        promised: The promise that is still open, or NO_PROMISE.
        base_offset: Of the batch that was found, as the next two; of a compressed message of v0
            or v1 its last offset.
        last_offset: Its last offset.
        size: Its bytes.
    """

    status: int
    position: int
    promised: int
    base_offset: int = -1
    last_offset: int = -1
    size: int = 0


def walk(buffer: bytes, offset: int, promised: int) -> HeaderWalk:
    """Walk to the first batch that reaches `offset`.

    Args:
        buffer: Begins at a batch; nothing in it is trusted.
        offset: The offset that is looked for.
        promised: The last offset that an index entry promised for a batch on the way.
    """
    # Batches of some size have an index entry each; then the first header decides.
    found = _walk_few(buffer, offset, promised, most=1 if numba_is_loaded() else FEW)
    if found is not None:
        return found
    from streamlog.segment import kernels

    state = np.zeros(WALK_WIDTH, np.int64)
    state[WALK_PROMISED] = promised
    status = kernels.find_batch(np.frombuffer(buffer, np.uint8), offset, state)
    return HeaderWalk(status, *state.tolist())


def _walk_few(buffer: bytes, offset: int, promised: int, *, most: int) -> HeaderWalk | None:
    """Walk over up to `most` sound headers without numba; None: that does not decide."""
    position = 0
    for _ in range(most):
        left = len(buffer) - position
        if left < MIN_MESSAGE_SIZE:
            return HeaderWalk(CONTINUE, position, promised)
        base, length, _, magic = _PREFIX.unpack_from(buffer, position)
        delta = 0
        if magic == CURRENT_MAGIC:
            if left < RECORD_BATCH_OVERHEAD:
                return HeaderWalk(CONTINUE, position, promised)
            (delta,) = _DELTA.unpack_from(buffer, position + LAST_OFFSET_DELTA_OFFSET)
        last, size = base + delta, LOG_OVERHEAD + length
        if magic > CURRENT_MAGIC or length < MIN_LENGTHS[magic]:
            return None
        if base < 0 or delta < 0 or last > MAX_INT64 or last > promised != NO_PROMISE:
            return None
        promised = NO_PROMISE if last == promised else promised
        if last >= offset:
            return HeaderWalk(FOUND, position, promised, base, last, size)
        position += size
    return None
