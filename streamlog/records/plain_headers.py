"""Headers of a few batches, in plain Python: what `batch_kernels` does, without numba.

Loading numba takes 0.6 seconds of CPU and more. A commit of a few rows, a planner that looks
whether a log has grown, a command that prints offsets: they need no other kernel than those for
headers, and look at a handful of them, which takes microseconds here. So a process that has not
loaded numba yet comes here for up to `FEW` batches, and one that has never does. Twins of the
kernels of the same names, and tested against them.
"""

import sys
from types import ModuleType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    BATCH_HEADER,
    CURRENT_MAGIC,
    HEADER_SIZE_UP_TO_MAGIC,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    MAX_INT64,
    MIN_BATCH_LENGTH,
    MIN_LEGACY_LENGTH,
    RECORD_BATCH_OVERHEAD,
)
from streamlog.records.table import BASE_OFFSET, LAST_OFFSET, LEADER_EPOCH, ScanStop

__all__ = [
    "FEW",
    "header_loops",
    "numba_is_loaded",
    "renumber",
    "scan_batches",
    "write_headers",
]

FEW: Final = 256  # take a millisecond


def numba_is_loaded() -> bool:
    """Tell whether this process has paid for numba already."""
    return "numba" in sys.modules


def header_loops(batches: int) -> ModuleType:
    """Return the module whose `renumber` and `write_headers` are for so many batches."""
    if batches <= FEW and not numba_is_loaded():
        return sys.modules[__name__]
    from streamlog.records import batch_kernels

    return batch_kernels


def scan_batches(
    buffer: memoryview, most: int = MAX_INT32
) -> tuple[list[tuple[int, ...]], ScanStop, int]:
    """Read the headers of the whole v2 batches at the front of `buffer`.

    Args:
        buffer: Any bytes at all; nothing in it is trusted.
        most: How many batches to read; END then does not say that the buffer ends.

    Returns:
        The rows of a `BatchTable`, why it stopped, and how many bytes the batches take.
    """
    rows: list[tuple[int, ...]] = []
    position = 0
    while position < len(buffer) and len(rows) < most:
        stop, size = _check_batch(buffer, position)
        if stop is not ScanStop.END:
            return rows, stop, position
        base, _, epoch, magic, crc, bits, delta, *others = BATCH_HEADER.unpack_from(
            buffer, position
        )
        if base < 0 or delta < 0 or base + delta > MAX_INT64 or others[-1] < 0:
            return rows, ScanStop.BAD_HEADER, position
        rows.append((position, size, base, base + delta, epoch, magic, crc, bits, *others))
        position += size
    return rows, ScanStop.END, position


def _check_batch(buffer: memoryview, position: int) -> tuple[ScanStop, int]:
    """Return END if a whole v2 batch can stand at `position`, else what is wrong; and its size."""
    left = len(buffer) - position
    if left <= HEADER_SIZE_UP_TO_MAGIC:
        return ScanStop.PARTIAL, 0
    field = buffer[position + LENGTH_OFFSET : position + LOG_OVERHEAD]
    length = int.from_bytes(field, "big", signed=True)
    if not MIN_LEGACY_LENGTH <= length <= MAX_INT32 - LOG_OVERHEAD:
        return ScanStop.BAD_LENGTH, 0
    if length > left - LOG_OVERHEAD:
        return ScanStop.PARTIAL, 0
    if buffer[position + MAGIC_OFFSET] != CURRENT_MAGIC:
        return ScanStop.BAD_MAGIC, 0
    if length < MIN_BATCH_LENGTH:
        return ScanStop.BAD_LENGTH, 0
    return ScanStop.END, LOG_OVERHEAD + length


def write_headers(
    fields: NDArray[np.int64], out_buffer: NDArray[np.uint8], out_stale: NDArray[np.int64]
) -> int:
    """Write the 61 header bytes of each batch in `fields` at its position, CRC included.

    Args:
        fields: int64[b, 14].
        out_buffer: uint8[m].
        out_stale: int64[b], filled with the rows where bytes that the CRC covers changed.

    Returns:
        How many those are.
    """
    view = memoryview(out_buffer)
    stale = 0
    for row, (position, size, base, last, epoch, magic, crc, bits, *others) in enumerate(
        fields.tolist()
    ):
        header = BATCH_HEADER.pack(
            base, size - LOG_OVERHEAD, epoch, magic, crc, bits, last - base, *others
        )
        place = view[position : position + RECORD_BATCH_OVERHEAD]
        if place[ATTRIBUTES_OFFSET:] != header[ATTRIBUTES_OFFSET:]:
            out_stale[stale] = row
            stale += 1
        place[:] = header
    return stale


def renumber(fields: NDArray[np.int64], base_offset: int, leader_epoch: int) -> int:
    """Give the batches offsets without a gap from `base_offset` on, and the epoch, in place.

    Returns:
        The offset behind the last one.
    """
    for batch in fields:
        span = int(batch[LAST_OFFSET] - batch[BASE_OFFSET]) + 1
        batch[BASE_OFFSET] = base_offset
        batch[LAST_OFFSET] = base_offset + span - 1
        batch[LEADER_EPOCH] = leader_epoch
        base_offset += span
    return base_offset
