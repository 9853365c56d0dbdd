"""Learning the last offset of each key of the dirty section: the first half of a round."""

from collections.abc import Iterator

import numpy as np

from streamlog.cleaner.choosing import segments_between
from streamlog.cleaner.offset_map import OffsetMap
from streamlog.cleaner.transactions import CleanedTransactions
from streamlog.fs.api import FileSystem
from streamlog.partition.read import aborted_between
from streamlog.partition.segments import Segments
from streamlog.records.filter import locate
from streamlog.records.slots import RecordSlots
from streamlog.records.table import BatchTable
from streamlog.segment.file_records import FileRecords
from streamlog.segment.segment import Segment
from streamlog.segment.walk import sound_chunks

__all__ = ["CHUNK_SIZE", "map_offsets"]

CHUNK_SIZE = 1 << 20


def map_offsets(
    fs: FileSystem, segments: Segments, start: int, end: int, offset_map: OffsetMap
) -> Iterator[int]:
    """Put the keys of the dirty section into the map, until it is full.

    Args:
        fs: Where the segments lie.
        segments: The log's.
        start: Where the dirty section starts.
        end: Where it ends.
        offset_map: An empty one.

    Yields:
        How many bytes were read, piece by piece.

    Raises:
        CorruptRecordError: A batch is damaged.
        StorageError: A file cannot be read.

    Source: Cleaner.buildOffsetMap.
    """
    dirty = segments_between(segments, start, end)
    transactions = CleanedTransactions()
    transactions.add(aborted_between(segments, start, end))
    ends = [*(segment.base_offset for segment in dirty[1:]), end]
    for segment, segment_end in zip(dirty, ends, strict=True):
        for size, is_full in _map_segment(fs, segment, start, offset_map, transactions):
            yield size
            if is_full:
                return
        offset_map.update_latest_offset(segment_end - 1)


def _map_segment(
    fs: FileSystem,
    segment: Segment,
    start: int,
    offset_map: OffsetMap,
    transactions: CleanedTransactions,
) -> Iterator[tuple[int, bool]]:
    """Put the keys of one segment into the map; yields bytes read, and whether it is full."""
    found = segment.translate_offset(start)
    position = segment.size if found is None else found.position
    records = FileRecords(fs, segment.path, writable=False)
    for chunk in sound_chunks(records, position, segment.size, chunk_size=CHUNK_SIZE):
        for run, slots in locate(
            chunk.buffer,
            chunk.scan.table,
            max_decompressed=segment.config.readable_decompressed_bytes,
            path=segment.path,
            position=chunk.position,
        ):
            if not _put(run, slots, start, offset_map, transactions):
                yield chunk.scan.consumed, True
                return
        yield chunk.scan.consumed, False
    records.close()


def _put(
    table: BatchTable,
    records: RecordSlots,
    start: int,
    offset_map: OffsetMap,
    transactions: CleanedTransactions,
) -> bool:
    """Put the keys of batches into the map; False where it got full."""
    left_out = transactions.discardable(table, records) | table.is_control
    done = offset_map.put(records, ~left_out, start)
    is_whole = done == len(records.slots)
    count = len(table)
    if not is_whole:
        count = int(np.searchsorted(np.cumsum(records.rows), done, side="right"))
    if count and int(table.last_offset[count - 1]) >= start:
        offset_map.update_latest_offset(int(table.last_offset[count - 1]))
    return is_whole
