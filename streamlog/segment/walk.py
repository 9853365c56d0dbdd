"""Walking over the sound batches of a log file: each whole, its checksum right, in order."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import CorruptRecordError
from streamlog.records.batch import BatchTable, check_crc
from streamlog.records.layout import (
    MAX_INT32,
    NO_PARTITION_LEADER_EPOCH,
    RECORD_BATCH_OVERHEAD,
)
from streamlog.segment.file_records import Chunk, FileRecords

__all__ = [
    "OnSound",
    "Place",
    "count_in_order",
    "rewrite_sound",
    "sound_chunks",
    "unsound",
    "walk_sound",
]


class Place(NamedTuple):
    """A place between two batches, and what the ones before it leave to be checked.

    Attributes:
        position: Byte in the log file.
        next_offset: The lowest offset that may come next.
        leader_epoch: The latest epoch seen, -1 for none.
    """

    position: int
    next_offset: int
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH

    def behind(self, position: int, table: BatchTable) -> "Place":
        """Return the place behind batches, one or more, whose positions count from `position`."""
        return Place(
            position=position + table.end,
            next_offset=int(table.last_offset[-1]) + 1,
            leader_epoch=max(self.leader_epoch, int(table.leader_epoch.max())),
        )


OnSound = Callable[[int, NDArray[np.uint8], BatchTable], None]


def walk_sound(
    records: FileRecords, base_offset: int, start: Place, end: int, on_sound: OnSound
) -> Place:
    """Walk over the batches that need no decision.

    Args:
        records: The log file.
        base_offset: The segment's base offset.
        start: Where to begin.
        end: Where the file ends.
        on_sound: Called for each run of sound batches with the run's position in the file, its
            bytes (used again after the call) and its table, positions relative to the bytes.

    Returns:
        The first place where no sound batch stands; the end of the file if all is well.
    """
    place = start
    for chunk in records.chunks(start.position, end):
        table = chunk.scan.table
        in_order = table.slice(0, count_in_order(table, place, base_offset))
        sound = in_order.slice(0, check_crc(chunk.buffer, in_order))
        if len(sound):
            on_sound(chunk.position, chunk.buffer, sound)
            place = place.behind(chunk.position, sound)
        if len(sound) < len(table):
            break
    return place


def count_in_order(table: BatchTable, before: Place, base_offset: int) -> int:
    """Return how many batches go on in offset and epoch, and fit into the segment."""
    if len(table) == 0:
        return 0
    lowest = np.concatenate(([before.next_offset], table.last_offset[:-1] + 1))
    epochs = np.concatenate(([before.leader_epoch], table.leader_epoch))
    latest = np.maximum.accumulate(epochs)[:-1]
    fits = (
        (table.base_offset >= lowest)
        & (table.last_offset - base_offset <= MAX_INT32)
        & ((table.leader_epoch >= latest) | (table.leader_epoch == NO_PARTITION_LEADER_EPOCH))
    )
    return len(table) if fits.all() else int(fits.argmin())


def sound_chunks(
    records: FileRecords, position: int, end: int, *, chunk_size: int
) -> Iterator[Chunk]:
    """Read from one batch to the next, piece by piece, and compare the checksums.

    Args:
        records: The log file.
        position: Where a batch starts.
        end: Where to stop.
        chunk_size: How much to read at a time; a larger batch is read whole.

    Yields:
        Pieces that touch each other; the bytes are used again for the next.

    Raises:
        CorruptRecordError: Between `position` and `end` something is no sound batch.
    """
    for chunk in records.chunks(position, end, chunk_size=chunk_size):
        table = chunk.scan.table
        sound = check_crc(chunk.buffer, table)
        if sound < len(table):
            raise unsound(records, chunk.position + int(table.position[sound]))
        if len(table):
            yield chunk
        position = chunk.position + chunk.scan.consumed
    if position < end:
        raise unsound(records, position)


def unsound(records: FileRecords, position: int) -> CorruptRecordError:
    """Return the error for a place where no sound batch stands."""
    found = records.file.pread(RECORD_BATCH_OVERHEAD, position)
    return CorruptRecordError(
        "no sound record batch where one should stand",
        path=records.path,
        position=position,
        got=found.hex() or "the end of the file",
        expected="a batch of right checksum that goes on in offset and epoch",
        hint=f"restore {records.path} from a copy",
    )


def rewrite_sound(records: FileRecords, base_offset: int, position: int, end: int) -> Place:
    """Write the sound batches between `position` and `end` once more, as they are.

    Returns:
        The first place where no sound batch stands; nothing from there on was written.
    """

    def on_sound(start: int, buffer: NDArray[np.uint8], table: BatchTable) -> None:
        size = int(table.position[-1] + table.size[-1])
        records.append(buffer[:size], start)

    return walk_sound(records, base_offset, Place(position, base_offset), end, on_sound)
