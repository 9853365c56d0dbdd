"""A log file written anew without what is damaged in it: a person has decided to go on without.

    a temporary file              the sound batches, synced; recovery removes one that a crash left
    <base offset>.log.corrupt-1   the file as it was, for good: nothing removes it
    <base offset>.log             the sound batches, with gaps in their offsets

For a moment the last two are names of one file, so that there is a log whenever this ends.
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
from streamlog.segment.search import find_sound, fits_checksum
from streamlog.segment.walk import Place, unsound, walk_headers, walk_sound

__all__ = ["SoundCopy", "skip_damage"]


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
