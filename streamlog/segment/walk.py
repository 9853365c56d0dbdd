"""Walks over the sound batches of a log file: each whole, with the right checksum, in order.

After damage, a search byte by byte finds the next sound batch.
"""

import os
import shlex
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import as_source, read_only
from streamlog.binary.crc import crc32, crc32c
from streamlog.errors import CorruptRecordError, LimitExceededError
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    BASE_TIMESTAMP_OFFSET,
    CRC_OFFSET,
    CURRENT_MAGIC,
    LAST_OFFSET_DELTA_OFFSET,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    NO_PARTITION_LEADER_EPOCH,
    RECORD_BATCH_OVERHEAD,
)
from streamlog.records.legacy_layout import MIN_MESSAGE_SIZE
from streamlog.records.plain_headers import MIN_LENGTHS, numba_is_loaded
from streamlog.records.table import (
    BASE_OFFSET,
    LAST_OFFSET,
    LEADER_EPOCH,
    POSITION,
    SIZE,
    BatchTable,
)
from streamlog.segment.file_records import CHUNK_SIZE, Chunk, FileRecords

__all__ = [
    "OnHeaders",
    "OnSound",
    "Place",
    "count_in_order",
    "find_sound",
    "fits_checksum",
    "has_lost_block",
    "has_lost_offset",
    "how_to_go_on",
    "plain_count_in_order",
    "plain_find_candidates",
    "sound_chunks",
    "unsound",
    "walk_headers",
    "walk_sound",
]

_READ_SIZE: Final = 2 << 20  # of a walk that keeps no bytes
_TOGETHER: Final = 4096  # minimum of headers that are checked together


class Place(NamedTuple):
    """A place between two batches, and the requirements on the next batch.

    Attributes:
        position: Byte in the log file.
        next_offset: The lowest offset that may come next.
        leader_epoch: The latest epoch seen, -1 for none.
    """

    position: int
    next_offset: int
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH

    def after(self, position: int, table: BatchTable) -> "Place":
        """Return the place after one or more batches whose positions are relative to `position`."""
        last: list[int] = table.fields[-1].tolist()
        return Place(
            position=position + last[POSITION] + last[SIZE],
            next_offset=last[LAST_OFFSET] + 1,
            leader_epoch=max(self.leader_epoch, int(table.leader_epoch.max())),
        )


OnSound = Callable[[int, NDArray[np.uint8], BatchTable], None]
OnHeaders = Callable[[BatchTable], None]


def walk_sound(
    records: FileRecords, base_offset: int, start: Place, end: int, on_sound: OnSound
) -> Place:
    """Walk over sound batches.

    Args:
        records: The log file.
        base_offset: The segment's base offset.
        start: Where to begin.
        end: End of the file.
        on_sound: Called for each run of sound batches with the run's position in the file, its
            bytes (reused after the call) and its table, positions relative to the bytes.

    Returns:
        The first place without a sound batch; the end of the file if there is none.
    """
    place = start
    for chunk in records.chunks(start.position, end):
        table = chunk.scan.table
        sound = table.slice(0, min(chunk.sound, count_in_order(table, place, base_offset)))
        if len(sound):
            on_sound(chunk.position, chunk.buffer, sound)
            place = place.after(chunk.position, sound)
        if len(sound) < len(table):
            break
    return place


def walk_headers(
    records: FileRecords, base_offset: int, start: Place, end: int, on_headers: OnHeaders
) -> Place:
    """Walk over sound batches without keeping their bytes, over headers of many chunks at once.

    The work per run takes as long for the hundred batches of a chunk as for thousands.

    Args:
        records: The log file.
        base_offset: The segment's base offset.
        start: Where to begin.
        end: End of the file.
        on_headers: Called for each run of sound batches with its table, positions relative to the
            file.

    Returns:
        The first place without a sound batch; the end of the file if there is none.
    """
    place = start
    for table in _sound_tables(records, start.position, end):
        sound = table.slice(0, count_in_order(table, place, base_offset))
        if len(sound):
            on_headers(sound)
            place = place.after(0, sound)
        if len(sound) < len(table):
            break
    return place


def _sound_tables(records: FileRecords, position: int, end: int) -> Iterator[BatchTable]:
    """Yield the headers of the batches up to the first wrong checksum."""
    tables: list[BatchTable] = []
    count = 0
    for chunk in records.chunks(position, end, chunk_size=_READ_SIZE):
        tables.append(chunk.scan.table.slice(0, chunk.sound).moved(chunk.position))
        count += chunk.sound
        if chunk.sound < len(chunk.scan.table):
            break
        if count >= _TOGETHER:
            yield BatchTable.concatenate(tables)
            tables, count = [], 0
    yield BatchTable.concatenate(tables)


def count_in_order(table: BatchTable, before: Place, base_offset: int) -> int:
    """Return how many leading batches ascend in offset and epoch and fit into the segment."""
    _, next_offset, epoch = before
    if not numba_is_loaded():
        return plain_count_in_order(table.fields.tolist(), next_offset, epoch, base_offset)
    from streamlog.segment import kernels

    fields = read_only(table.fields, np.int64)
    return kernels.count_in_order(fields, next_offset, epoch, base_offset)


def plain_count_in_order(
    batches: list[list[int]], next_offset: int, leader_epoch: int, base_offset: int
) -> int:
    """Do the same as the kernel `count_in_order`, on the rows of a table."""
    for count, batch in enumerate(batches):
        epoch = batch[LEADER_EPOCH]
        if batch[BASE_OFFSET] < next_offset or batch[LAST_OFFSET] - base_offset > MAX_INT32:
            return count
        if epoch < leader_epoch and epoch != NO_PARTITION_LEADER_EPOCH:
            return count
        next_offset, leader_epoch = batch[LAST_OFFSET] + 1, max(leader_epoch, epoch)
    return len(batches)


def sound_chunks(
    records: FileRecords, position: int, end: int, *, chunk_size: int
) -> Iterator[Chunk]:
    """Read batches piece by piece and require that all are sound.

    Args:
        records: The log file.
        position: Start of a batch.
        end: Where to stop.
        chunk_size: How much to read at a time; a larger batch is read whole.

    Yields:
        Adjacent pieces; the bytes are reused for the next one.

    Raises:
        CorruptRecordError: Between `position` and `end` there are bytes that are no sound batch.
    """
    for chunk in records.chunks(position, end, chunk_size=chunk_size):
        table = chunk.scan.table
        if chunk.sound < len(table):
            raise unsound(records, chunk.position + int(table.position[chunk.sound]))
        if len(table):
            yield chunk
        position = chunk.position + chunk.scan.consumed
    if position < end:
        raise unsound(records, position)


def unsound(records: FileRecords, position: int) -> CorruptRecordError:
    """Return the error for a place without a sound batch."""
    found = records.file.pread(RECORD_BATCH_OVERHEAD, position)
    return CorruptRecordError(
        "no sound record batch",
        path=records.path,
        position=position,
        got=found.hex() or "the end of the file",
        expected="a batch with the right checksum, following in offset and epoch",
        hint=how_to_go_on(records.path),
    )


def how_to_go_on(path: str) -> str:
    """Return the hint for a damaged log file: restore a copy, or repair it with losses."""
    partition = shlex.quote(os.path.dirname(path))
    return (
        f"restore {path} from a copy, or continue without the damaged batches:"
        f" streamlog repair {partition} --skip-damage --dry-run"
    )


_TELLING: Final = 32  # minimum run of zeros that counts as lost; shorter ones may be data
_BLOCK: Final = 512  # the smallest unit a disk writes; file systems lose multiples of it

_AT_ONCE: Final = 1 << 16  # positions
_FREE: Final = 64 << 20  # bytes of candidates that are checked in any case


def fits_checksum(batch: bytes) -> bool:
    """Return whether a whole batch of any magic matches its stored checksum."""
    if batch[MAGIC_OFFSET] < CURRENT_MAGIC:
        stored = int.from_bytes(batch[LOG_OVERHEAD:MAGIC_OFFSET], "big")
        return crc32(memoryview(batch)[MAGIC_OFFSET:]) == stored
    stored = int.from_bytes(batch[CRC_OFFSET:ATTRIBUTES_OFFSET], "big")
    return len(batch) >= RECORD_BATCH_OVERHEAD and (
        crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]) == stored
    )


def find_sound(records: FileRecords, base_offset: int, place: Place, end: int) -> int | None:
    """Find the first sound batch after `place` whose offsets may follow.

    Args:
        records: The log file.
        base_offset: The segment's base offset.
        place: A place without a sound batch.
        end: End of the file.

    Returns:
        Its position, at any byte; None if there is none.

    Raises:
        LimitExceededError: The file holds so many candidates with wrong checksums that it must be
            crafted to keep the search busy.
    """
    budget = _FREE + 4 * (end - place.position)
    position = place.position + 1
    while end - position >= MIN_MESSAGE_SIZE:
        window = as_source(records.file.pread(min(CHUNK_SIZE, end - position), position))
        find = _find_candidates if numba_is_loaded() else plain_find_candidates
        for at in find(window, end - position, place.next_offset, base_offset + MAX_INT32):
            batch = _batch_at(records, position + at)
            if fits_checksum(batch):
                return position + at
            budget -= len(batch)
            if budget < 0:
                raise LimitExceededError(
                    "too many byte sequences look like batches but are none",
                    path=records.path,
                    position=position + at,
                )
        if window.size >= end - position or window.size < RECORD_BATCH_OVERHEAD:
            break  # searched to its end, or truncated by another process
        position += window.size - RECORD_BATCH_OVERHEAD + 1
    return None


def _find_candidates(
    window: NDArray[np.uint8], left: int, first_offset: int, last_offset: int
) -> Iterator[int]:
    """Yield the positions that the kernel `find_candidate` finds one after another."""
    from streamlog.segment import kernels

    at = kernels.find_candidate(window, 0, left, first_offset, last_offset)
    while at >= 0:
        yield at
        at = kernels.find_candidate(window, at + 1, left, first_offset, last_offset)


def plain_find_candidates(
    window: NDArray[np.uint8], left: int, first_offset: int, last_offset: int
) -> Iterator[int]:
    """Do the same without numba: each append to a file that others read may show half a batch.

    Few positions have a plausible length, so that only the lengths are read all at once.
    """
    view = memoryview(window)
    for start in range(0, window.size - MIN_MESSAGE_SIZE + 1, _AT_ONCE):
        piece = window[start : start + _AT_ONCE + MIN_MESSAGE_SIZE - 1]
        magic = piece[MAGIC_OFFSET : len(piece) - MIN_MESSAGE_SIZE + 1 + MAGIC_OFFSET]
        at = np.flatnonzero(magic <= CURRENT_MAGIC)
        length = piece[at + LENGTH_OFFSET].astype(np.int8).astype(np.int64)
        for place in range(LENGTH_OFFSET + 1, LOG_OVERHEAD):
            length = length << 8 | piece[at + place]
        at += start
        for here in at[(length >= MIN_LENGTHS[0]) & (length <= left - at - LOG_OVERHEAD)].tolist():
            if _may_start(view, here, first_offset, last_offset):
                yield here


def _may_start(window: memoryview, at: int, first_offset: int, last_offset: int) -> bool:
    """Return whether a batch that has room at `at` may start there by its other fields."""
    magic = window[at + MAGIC_OFFSET]
    length = int.from_bytes(window[at + LENGTH_OFFSET : at + LOG_OVERHEAD], "big")
    base_offset = int.from_bytes(window[at : at + LENGTH_OFFSET], "big", signed=True)
    if length < MIN_LENGTHS[magic] or not first_offset <= base_offset <= last_offset:
        return False
    if magic < CURRENT_MAGIC:
        return True
    delta = window[at + LAST_OFFSET_DELTA_OFFSET : at + BASE_TIMESTAMP_OFFSET]
    return len(window) - at >= RECORD_BATCH_OVERHEAD and (
        0 <= int.from_bytes(delta, "big", signed=True) <= last_offset - base_offset
    )


def _batch_at(records: FileRecords, position: int) -> bytes:
    """Return the whole batch whose header `find_candidate` found."""
    head = records.file.pread(LOG_OVERHEAD, position)
    length = int.from_bytes(head[LENGTH_OFFSET:], "big")
    return records.file.pread(LOG_OVERHEAD + length, position)


def has_lost_block(records: FileRecords, start: int, end: int) -> bool:
    """Return whether bytes between two positions look as if they never reached the disk.

    They do if there are zeros where a batch should start, or zeros up to the end of a disk block or
    up to the next sound batch. A block may have been written while it was half full, and not again.

    Args:
        records: The log file.
        start: Where a sound batch should start and none does.
        end: Start of the next sound batch.
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
    """Return whether the offset of the batch at `place` looks as if it never reached the disk.

    The offset is not covered by the checksum. If a block boundary lies right after it, or after the
    leading zero bytes of the length, the earlier block may have been written when the previous
    batch was the last one, and the later block afterwards.
    """
    size = _BLOCK - place.position % _BLOCK
    if size >= LOG_OVERHEAD:
        return False
    head = records.file.pread(LOG_OVERHEAD, place.position)
    offset = int.from_bytes(head[:LENGTH_OFFSET], "big")
    return not any(head[:size]) and offset < place.next_offset


def _is_zero(records: FileRecords, position: int, size: int) -> bool:
    return not any(records.file.pread(size, position))
