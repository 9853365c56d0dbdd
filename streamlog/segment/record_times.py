"""The timestamps of single records: of a batch its header tells but the largest."""

from typing import Final

import numpy as np

from streamlog.records.batch import BatchTable
from streamlog.records.columns import RecordColumns
from streamlog.records.decode import decode_columns
from streamlog.records.record import NO_TIMESTAMP
from streamlog.segment.file_records import Chunk, FileRecords, TimestampAndOffset
from streamlog.segment.walk import sound_chunks

__all__ = ["SEARCH_SIZE", "first_of", "largest_from"]

SEARCH_SIZE: Final = 128 << 10  # a search by time ends some batches behind its index entry


def first_of(
    batch: BatchTable,
    chunk: Chunk,
    timestamp: int,
    start_offset: int,
    *,
    path: str,
    max_decompressed: int,
) -> TimestampAndOffset | None:
    """Find the first record of a batch, from an offset on, that is not older than a time.

    Args:
        batch: The batch alone.
        chunk: Where it lies.
        timestamp: Milliseconds since 1970.
        start_offset: Records below it do not count.
        path: The file, for messages.
        max_decompressed: The most bytes that a batch may decompress to.

    Raises:
        CorruptRecordError: Its checksum is right and its structure is not.
    """
    records = _decoded(batch, chunk, start_offset, path, max_decompressed)
    hits = np.flatnonzero(records.timestamp >= timestamp)
    if not hits.size:
        return None
    at = int(hits[0])
    epoch = int(batch.leader_epoch[0])
    return TimestampAndOffset(int(records.offset[at]), int(records.timestamp[at]), epoch)


def largest_from(
    records: FileRecords, position: int, end: int, start_offset: int, *, max_decompressed: int
) -> int:
    """Return the largest timestamp of the records from an offset on, -1 for none.

    Args:
        records: The log file.
        position: Where the batch of that offset begins; it may hold earlier records, too.
        end: Where the sound batches end.
        start_offset: The offset.
        max_decompressed: The most bytes that a batch may decompress to.

    Raises:
        CorruptRecordError: Something on the way is no sound batch.
    """
    largest = NO_TIMESTAMP
    for chunk in sound_chunks(records, position, end, chunk_size=SEARCH_SIZE):
        table = chunk.scan.table
        if chunk.position == position:
            one = table.slice(0, 1)
            first = _decoded(one, chunk, start_offset, records.path, max_decompressed)
            largest = int(first.timestamp.max(initial=NO_TIMESTAMP))
            table = table.slice(1, len(table))
        largest = max(largest, int(table.max_timestamp.max(initial=NO_TIMESTAMP)))
    return largest


def _decoded(
    batch: BatchTable, chunk: Chunk, start_offset: int, path: str, max_decompressed: int
) -> RecordColumns:
    return decode_columns(
        chunk.buffer,
        batch,
        columns=frozenset(),
        start_offset=start_offset,
        drop_control=False,
        max_decompressed=max_decompressed,
        path=path,
        position=chunk.position,
    )
