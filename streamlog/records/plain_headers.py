"""Headers of a few batches in plain Python: the work of `batch_kernels` without numba.

Loading numba takes at least 0.6 seconds of CPU. A commit of a few rows, a planner that checks
whether a log has grown, or a command that prints offsets needs no kernels but those for headers,
and only for a handful of them, which takes microseconds here. So a process without numba uses this
module for up to `FEW` batches; a process that has loaded numba never does. The functions are twins
of the kernels of the same names, and tested against them.
"""

import struct
import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.crc import crc32c
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    BATCH_HEADER,
    COMPRESSION_MASK,
    CRC_OFFSET,
    CURRENT_MAGIC,
    HEADER_SIZE_UP_TO_MAGIC,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    MAX_INT64,
    MAX_TIMESTAMP_OFFSET,
    MIN_BATCH_LENGTH,
    MIN_LEGACY_LENGTH,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
)
from streamlog.records.legacy_layout import (
    ATTRIBUTES_V0,
    ATTRIBUTES_V1,
    MAGIC_V0,
    MAGIC_V1,
    MESSAGE_HEADER,
    MESSAGE_TIMESTAMP_OFFSET,
    MIN_LENGTH_V0,
    MIN_LENGTH_V1,
    MIN_MESSAGE_SIZE,
)
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.table import (
    BASE_OFFSET,
    CRC,
    LAST_OFFSET,
    LEADER_EPOCH,
    POSITION,
    SIZE,
    UNKNOWN_COUNT,
    ScanStop,
)

__all__ = [
    "FEW",
    "compiled",
    "find_bad_checksum",
    "header_loops",
    "max_timestamp_of",
    "MIN_LENGTHS",
    "numba_is_loaded",
    "place_batches",
    "read_batch",
    "read_header",
    "read_message_header",
    "renumber",
    "scan_batches",
    "write_headers",
]

FEW: Final = 256  # take a millisecond
MIN_LENGTHS: Final = (MIN_LENGTH_V0, MIN_LENGTH_V1, MIN_BATCH_LENGTH)  # by magic
TIMESTAMP: Final = struct.Struct(">q")
_TIMESTAMP_PLACES: Final = {
    MAGIC_V1: MESSAGE_TIMESTAMP_OFFSET,
    CURRENT_MAGIC: MAX_TIMESTAMP_OFFSET,
}


def numba_is_loaded() -> bool:
    """Return whether this process has already loaded numba."""
    return "numba" in sys.modules


def header_loops(batches: int) -> ModuleType:
    """Return the module whose loops over headers suit this number of batches."""
    if batches <= FEW and not numba_is_loaded():
        return sys.modules[__name__]
    return compiled("batch_kernels")


@cache
def compiled(name: str) -> ModuleType:
    """Return a module of kernels of this package; the first call loads numba.

    For frequent calls: an `import` in a function takes a microsecond each time.
    """
    return import_module(f"streamlog.records.{name}")


def scan_batches(
    buffer: memoryview, most: int = MAX_INT32
) -> tuple[list[tuple[int, ...]], ScanStop, int]:
    """Read the headers of the whole batches, of any format, at the start of `buffer`.

    Args:
        buffer: Any bytes; not trusted.
        most: How many batches to read; END then does not mean that the buffer ends.

    Returns:
        The rows of a `BatchTable`, why it stopped, and how many bytes the batches take.
    """
    rows: list[tuple[int, ...]] = []
    position = 0
    while position < len(buffer) and len(rows) < most:
        stop, size, magic = _check_batch(buffer, position)
        if stop is not ScanStop.END:
            return rows, stop, position
        read = read_header if magic == CURRENT_MAGIC else read_message_header
        row = read(buffer, position, size)
        if row is None or row[BASE_OFFSET] < 0:
            return rows, ScanStop.BAD_HEADER, position
        rows.append(row)
        position += size
    return rows, ScanStop.END, position


def _check_batch(buffer: memoryview, position: int) -> tuple[ScanStop, int, int]:
    """Return END if a whole batch may be at `position`, otherwise the error; size and magic.

    The magic is that of v2 unless it was read.
    """
    left = len(buffer) - position
    if left <= HEADER_SIZE_UP_TO_MAGIC:
        return ScanStop.PARTIAL, 0, CURRENT_MAGIC
    field = buffer[position + LENGTH_OFFSET : position + LOG_OVERHEAD]
    length = int.from_bytes(field, "big", signed=True)
    if not MIN_LEGACY_LENGTH <= length <= MAX_INT32 - LOG_OVERHEAD:
        return ScanStop.BAD_LENGTH, 0, CURRENT_MAGIC
    if length > left - LOG_OVERHEAD:
        return ScanStop.PARTIAL, 0, CURRENT_MAGIC
    magic = buffer[position + MAGIC_OFFSET]
    if magic > CURRENT_MAGIC:
        return ScanStop.BAD_MAGIC, 0, magic
    if length < MIN_LENGTHS[magic]:
        return ScanStop.BAD_LENGTH, 0, magic
    return ScanStop.END, LOG_OVERHEAD + length, magic


def read_batch(buffer: memoryview, position: int) -> tuple[ScanStop, tuple[int, ...] | None]:
    """Return the row of the whole v2 batch at `position`; None, and why, if there is none."""
    stop, size, magic = _check_batch(buffer, position)
    if magic != CURRENT_MAGIC:
        return ScanStop.BAD_MAGIC, None
    if stop is not ScanStop.END:
        return stop, None
    row = read_header(buffer, position, size)
    if row is None or row[BASE_OFFSET] < 0:
        return ScanStop.BAD_HEADER, None
    return stop, row


def read_header(buffer: memoryview, position: int, size: int) -> tuple[int, ...] | None:
    """Return the row of the v2 batch of `size` bytes at `position`, None for an invalid one."""
    base, _, epoch, magic, crc, bits, delta, *others = BATCH_HEADER.unpack_from(buffer, position)
    if delta < 0 or base + delta > MAX_INT64 or others[-1] < 0:
        return None
    return (position, size, base, base + delta, epoch, magic, crc, bits, *others)


def read_message_header(buffer: memoryview, position: int, size: int) -> tuple[int, ...]:
    """Return the row of the message of v0 or v1 of `size` bytes at `position`."""
    offset, _, crc, magic, bits = MESSAGE_HEADER.unpack_from(buffer, position)
    bits &= ATTRIBUTES_V0 if magic == MAGIC_V0 else ATTRIBUTES_V1
    timestamp = NO_TIMESTAMP
    if magic == MAGIC_V1:
        (timestamp,) = TIMESTAMP.unpack_from(buffer, position + MESSAGE_TIMESTAMP_OFFSET)
    count = UNKNOWN_COUNT if bits & COMPRESSION_MASK else 1
    return (
        *(position, size, offset, offset, NO_PARTITION_LEADER_EPOCH, magic, crc, bits),
        *(timestamp, timestamp, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count),
    )


def max_timestamp_of(head: bytes) -> int | None:
    """Return the largest timestamp of the batch, of any format, that starts with `head`.

    Args:
        head: Its first 61 bytes, or all of a shorter one.

    Returns:
        The time in ms, -1 for none; None if these are too few bytes for a batch.
    """
    if len(head) < MIN_MESSAGE_SIZE:
        return None
    place = _TIMESTAMP_PLACES.get(head[MAGIC_OFFSET])
    if place is None:
        return NO_TIMESTAMP
    if len(head) < place + TIMESTAMP.size:
        return None
    return int(TIMESTAMP.unpack_from(head, place)[0])


def find_bad_checksum(buffer: NDArray[np.uint8], fields: NDArray[np.int64]) -> int:
    """Compare stored and computed checksums of v2 batches.

    Args:
        buffer: uint8[m], the batches.
        fields: int64[b, 14], their headers.

    Returns:
        The first batch with a wrong checksum, or outside `buffer`; b for none.
    """
    view = memoryview(buffer)
    places = fields[:, (POSITION, SIZE, CRC)].tolist()
    for row, (position, size, crc) in enumerate(places):
        if not _lies_in(view, position, size):
            return row
        if crc32c(view[position + ATTRIBUTES_OFFSET : position + size]) != crc:
            return row
    return len(fields)


def _lies_in(buffer: memoryview, position: int, size: int) -> bool:
    return position >= 0 and RECORD_BATCH_OVERHEAD <= size <= len(buffer) - position


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
    view = memoryview(out_buffer)
    for row, (position, size, base, last, epoch, magic, crc, bits, *others) in enumerate(
        fields.tolist()
    ):
        if not _lies_in(view, position, size):
            return row
        batch = view[position : position + size]
        header = BATCH_HEADER.pack(
            base, size - LOG_OVERHEAD, epoch, magic, crc, bits, last - base, *others
        )
        checksummed = slice(ATTRIBUTES_OFFSET, RECORD_BATCH_OVERHEAD)
        is_stale = are_new or batch[checksummed] != header[checksummed]
        batch[:RECORD_BATCH_OVERHEAD] = header
        if is_stale:
            fields[row, CRC] = crc = crc32c(batch[ATTRIBUTES_OFFSET:])
            batch[CRC_OFFSET:ATTRIBUTES_OFFSET] = crc.to_bytes(4, "big")
    return len(fields)


def place_batches(
    fields: NDArray[np.int64], out_buffer: NDArray[np.uint8], base_offset: int, leader_epoch: int
) -> int:
    """Call `renumber` and then `write_headers`; return the result of the latter."""
    renumber(fields, base_offset, leader_epoch)
    return write_headers(fields, out_buffer, False)  # noqa: FBT003 - called by position


def renumber(fields: NDArray[np.int64], base_offset: int, leader_epoch: int) -> int:
    """Give the batches consecutive offsets from `base_offset` on, and the epoch, in place.

    Returns:
        The offset after the last one.
    """
    for batch in fields:
        span = int(batch[LAST_OFFSET] - batch[BASE_OFFSET]) + 1
        batch[BASE_OFFSET] = base_offset
        batch[LAST_OFFSET] = base_offset + span - 1
        batch[LEADER_EPOCH] = leader_epoch
        base_offset += span
    return base_offset
