"""Looking for sound batches where something is wrong, byte by byte."""

from itertools import chain
from typing import Final

from streamlog.binary.arrays import as_source
from streamlog.binary.crc import crc32, crc32c
from streamlog.errors import LimitExceededError
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    CURRENT_MAGIC,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    RECORD_BATCH_OVERHEAD,
)
from streamlog.records.legacy_layout import MIN_MESSAGE_SIZE
from streamlog.segment.file_records import CHUNK_SIZE, FileRecords
from streamlog.segment.walk import Place

__all__ = ["find_sound", "fits_checksum", "has_lost_block", "has_lost_offset"]

_TELLING: Final = 32  # fewer zeros may well be data
_BLOCK: Final = 512  # the least a disk writes at once; file systems lose multiples of it

_FREE: Final = 64 << 20  # bytes of candidates that are checked in any case


def fits_checksum(batch: bytes) -> bool:
    """Tell whether a whole batch, of whatever magic, has the checksum it says it has."""
    if batch[MAGIC_OFFSET] < CURRENT_MAGIC:
        stored = int.from_bytes(batch[LOG_OVERHEAD:MAGIC_OFFSET], "big")
        return crc32(memoryview(batch)[MAGIC_OFFSET:]) == stored
    stored = int.from_bytes(batch[CRC_OFFSET:ATTRIBUTES_OFFSET], "big")
    return len(batch) >= RECORD_BATCH_OVERHEAD and (
        crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]) == stored
    )


def find_sound(records: FileRecords, base_offset: int, place: Place, end: int) -> int | None:
    """Find the first sound batch behind `place` whose offsets could go on.

    Args:
        records: The log file.
        base_offset: The segment's base offset.
        place: Where no sound batch stands.
        end: Where the file ends.

    Returns:
        Its position, at any byte; None where there is none.

    Raises:
        LimitExceededError: There is candidate upon candidate with wrong checksums, as only
            somebody makes them who wants to keep us busy.
    """
    from streamlog.segment import kernels

    budget = _FREE + 4 * (end - place.position)
    position = place.position + 1
    while end - position >= MIN_MESSAGE_SIZE:
        window = as_source(records.file.pread(min(CHUNK_SIZE, end - position), position))
        at = -1
        while True:
            at = kernels.find_candidate(
                window, at + 1, end - position, place.next_offset, base_offset + MAX_INT32
            )
            if at < 0:
                break
            batch = _batch_at(records, position + at)
            if fits_checksum(batch):
                return position + at
            budget -= len(batch)
            if budget < 0:
                raise LimitExceededError(
                    "too many places look like batches and are none",
                    path=records.path,
                    position=position + at,
                )
        if window.size >= end - position or window.size < RECORD_BATCH_OVERHEAD:
            break  # looked at to its end, or cut by somebody else
        position += window.size - RECORD_BATCH_OVERHEAD + 1
    return None


def _batch_at(records: FileRecords, position: int) -> bytes:
    """Return the whole batch whose header `find_candidate` found."""
    head = records.file.pread(LOG_OVERHEAD, position)
    length = int.from_bytes(head[LENGTH_OFFSET:], "big")
    return records.file.pread(LOG_OVERHEAD + length, position)


def has_lost_block(records: FileRecords, start: int, end: int) -> bool:
    """Tell whether bytes between two positions look as if they never reached the disk.

    That is: zeros where a batch should begin, or zeros up to where a block of the disk ends, or up
    to the next sound batch. A block may have been written when it was half full, and not again.

    Args:
        records: The log file.
        start: Where a sound batch should stand and none does.
        end: Where the next sound one stands.
    """
    # A batch's length, its bytes 8 to 11, is never zero; elsewhere short runs of zeros are data.
    if _is_zero(records, start, LOG_OVERHEAD):
        return True
    borders = chain(range(start - start % _BLOCK + _BLOCK, end, _BLOCK), [end])
    return any(
        _is_zero(records, border - _TELLING, _TELLING)
        for border in borders
        if border - start >= _TELLING
    )


def has_lost_offset(records: FileRecords, place: Place) -> bool:
    """Tell whether the offset of the batch at `place` looks as if it never reached the disk.

    It has no checksum. Where a border of blocks comes right behind it, or behind those bytes of the
    length that are zeros anyway, the block in front may have been written when the batch before
    this one was the last, and the one behind it later.
    """
    size = _BLOCK - place.position % _BLOCK
    if size >= LOG_OVERHEAD:
        return False
    head = records.file.pread(LOG_OVERHEAD, place.position)
    offset = int.from_bytes(head[:LENGTH_OFFSET], "big")
    return not any(head[:size]) and offset < place.next_offset


def _is_zero(records: FileRecords, position: int, size: int) -> bool:
    return not any(records.file.pread(size, position))
