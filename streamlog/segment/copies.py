"""A log file written anew in blocks of its own, for a file that no sync can be believed of.

After a write that the disk refused, the kernel calls the page clean: what is read is right until
the page leaves the cache. The same bytes written once more where they stand are not enough. Of
blocks that never held anything else, ext4 remembers that they are to be taken for empty; a later
sync writes them, succeeds, and they read as zeros all the same (Linux 6.18; XFS does better).

    a temporary file     the sound batches, written and synced; a crash leaves it, and the
                         next recovery removes it
    <base offset>.log    replaced by that in one step, and the directory synced

This costs a segment's bytes and as much room (up to `segment.bytes`, 1 GiB unless told otherwise),
also where nothing failed and a process was merely killed inside of a sync: the kernel tells of a
lost write once, to whoever waits for that sync, and a dead process tells nobody. What lies below
the recovery point is surely on the disk; it is copied all the same, because the suspicious blocks
behind it are part of the same file. To write only those anew they would have to be cut off first,
and a crash before they are back would lose records that were acknowledged; keeping them in a third
file meanwhile would be one more state for every recovery, to save a copy after such a kill.
Without the room the partition cannot be opened for writing (`DiskFullError`), nothing is changed,
readers go on, and the next opening tries again.
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
    """Put a copy of a log file in its place, durably; `records` goes on with the copy.

    Args:
        fs: Where it lies.
        records: The log file.
        base_offset: The segment's base offset.
        size: Its bytes of whole, sound batches; what lies behind them is left out.

    Raises:
        CorruptRecordError: What is read now is not what was written; nothing was replaced.
        StorageError: The file cannot be read, or the copy not be written.
    """
    with temporary_copy(fs, records.path) as copy:

        def on_sound(start: int, buffer: NDArray[np.uint8], table: BatchTable) -> None:
            copy.pwrite(buffer[: table.end], start)

        place = walk_sound(records, base_offset, Place(0, base_offset), size, on_sound)
        if place.position < size:
            raise unsound(records, place.position)
    records.replace_by(copy.path)


class SoundCopy(NamedTuple):
    """What became of a log file.

    Attributes:
        next_offset: The offset behind its last sound batch.
        skipped_size: How many bytes are left out; 0: it was sound and is as it was.
    """

    next_offset: int
    skipped_size: int


def skip_damage(fs: FileSystem, records: FileRecords, base_offset: int) -> SoundCopy:
    """Leave out of a log file what is no sound batch; durable, the file itself is kept aside.

    Args:
        fs: Where it lies.
        records: The log file, which goes on with what is left.
        base_offset: The segment's base offset.

    Raises:
        CorruptRecordError: A batch of right checksum is out of order, so that nobody can tell which
            ones are wrong; nothing was changed.
        LimitExceededError: Somebody made too much look like batches to find the sound ones.
        StorageError: The file cannot be read, or the copy not be written.
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
    """Raise where a batch of right checksum was not taken."""
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
