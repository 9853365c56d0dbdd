"""Rewritten log files: a copy in fresh blocks, and a copy without damaged batches.

A fresh copy (`replace_by_copy`) is needed after a failed sync. The kernel then marks the page
clean: reads return the right bytes until the page leaves the cache. Writing the same bytes again in
place is not enough. ext4 remembers blocks that never held data as unwritten; a later sync writes
them and succeeds, and they still read as zeros (Linux 6.18; XFS behaves better).

    a temporary file     the sound batches, written and synced; after a crash the next recovery
                         removes it
    <base offset>.log    atomically replaced by it, and the directory synced

This takes a segment's bytes in time and space (up to `segment.bytes`, by default 1 GiB), also if
nothing failed and a process was merely killed during a sync: the kernel reports a lost write once,
to the caller of that sync, and a dead process cannot record it. The bytes below the recovery point
are certainly on the disk but belong to the same file as the doubtful blocks. Rewriting only those
would require truncating them first, and a crash in between would lose acknowledged records; keeping
them in a third file meanwhile would add a state to every recovery. Without enough space the
partition cannot be opened for writing (`DiskFullError`), nothing is changed, readers continue, and
the next open tries again.

A copy without damage (`skip_damage`) is made only on request:

    a temporary file              the sound batches, synced; after a crash recovery removes it
    <base offset>.log.corrupt-1   the original file, kept for good
    <base offset>.log             the sound batches, with gaps in their offsets

The last two are for a moment names of one file, so that a log exists at every moment.
"""

import itertools
import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.fs.api import FileSystem
from streamlog.fs.files import temporary_copy
from streamlog.records.layout import LENGTH_OFFSET, LOG_OVERHEAD, MIN_LEGACY_LENGTH
from streamlog.records.table import BatchTable
from streamlog.segment.file_records import FileRecords
from streamlog.segment.walk import (
    Place,
    find_sound,
    fits_checksum,
    unsound,
    walk_headers,
    walk_sound,
)

__all__ = ["SoundCopy", "replace_by_copy", "skip_damage"]


def replace_by_copy(fs: FileSystem, records: FileRecords, base_offset: int, size: int) -> None:
    """Durably replace a log file by a copy; `records` continues with the copy.

    Args:
        fs: Its file system.
        records: The log file.
        base_offset: The segment's base offset.
        size: Its bytes of whole, sound batches; later bytes are left out.

    Raises:
        CorruptRecordError: The bytes read differ from those written; nothing was replaced.
    """
    with temporary_copy(fs, records.path) as copy:

        def on_sound(start: int, buffer: NDArray[np.uint8], table: BatchTable) -> None:
            copy.pwrite(buffer[: table.end], start)

        place = walk_sound(records, base_offset, Place(0, base_offset), size, on_sound)
        if place.position < size:
            raise unsound(records, place.position)
    records.replace_by(copy.path)


class SoundCopy(NamedTuple):
    """Result of `skip_damage`.

    Attributes:
        next_offset: The offset after the last sound batch.
        skipped_size: Bytes left out; 0 means the file was sound and is unchanged.
    """

    next_offset: int
    skipped_size: int


def skip_damage(fs: FileSystem, records: FileRecords, base_offset: int) -> SoundCopy:
    """Durably remove bytes that are no sound batch from a log file; the original is kept.

    Args:
        fs: Its file system.
        records: The log file; continues with the copy.
        base_offset: The segment's base offset.

    Raises:
        CorruptRecordError: A batch with the right checksum is out of order, so the wrong ones
            cannot be determined; nothing was changed.
        LimitExceededError: Too many byte sequences look like batches to find the sound ones.
    """
    end = records.file.stat().size
    place = walk_headers(records, base_offset, Place(0, base_offset), end, _leave)
    if place.position == end:
        return SoundCopy(place.next_offset, 0)
    with temporary_copy(fs, records.path) as copy:
        size = 0

        def on_sound(position: int, buffer: NDArray[np.uint8], table: BatchTable) -> None:
            nonlocal size
            copy.pwrite(buffer[: table.end], size)
            size += table.end

        start: int | None = 0
        place = Place(0, base_offset)
        while start is not None and place.position < end:
            place = place._replace(position=start)
            place = walk_sound(records, base_offset, place, end, on_sound)
            _refuse_sound(records, place.position, end)
            start = find_sound(records, base_offset, place, end)
    fs.link(records.path, _free_name(fs, records.path))
    records.replace_by(copy.path)
    return SoundCopy(place.next_offset, end - size)


def _leave(table: BatchTable) -> None:
    pass


def _refuse_sound(records: FileRecords, position: int, end: int) -> None:
    """Raise an error if a batch with the right checksum was left out."""
    head = records.file.pread(LOG_OVERHEAD, position)
    length = int.from_bytes(head[LENGTH_OFFSET:], "big", signed=True)
    if MIN_LEGACY_LENGTH <= length <= end - position - LOG_OVERHEAD and fits_checksum(
        records.file.pread(LOG_OVERHEAD + length, position)
    ):
        raise unsound(records, position)


def _free_name(fs: FileSystem, path: str) -> str:
    names = set(fs.list(os.path.dirname(path)))
    numbered = (f"{path}.corrupt-{number}" for number in itertools.count(1))
    return next(each for each in numbered if os.path.basename(each) not in names)
