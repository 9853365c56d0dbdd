"""A segment's log file, read through its two sparse indexes.

The indexes are loaded on first use, or rebuilt in memory by one scan if they are missing or
invalid. Their files may lag a little behind a growing log, because writing them on each append of
16 KiB would add a tenth to its time. Opening the log walks from the last entry to its end anyway
and adds the missing entries.

Each entry is verified when it is used: a batch of exactly that last offset must follow (in an
index written by Kafka before 4.0 possibly a little later). If it does not, the index is distrusted
and rebuilt by a scan.
"""

import contextlib
import logging
from threading import RLock
from typing import Final

import numpy as np

from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptIndexError,
    CorruptRecordError,
    FileMissingError,
    InvalidRequestError,
    StorageError,
)
from streamlog.fs.api import Buffer, FileSystem
from streamlog.records.batch import BatchTable, check_crc
from streamlog.records.columns import RecordColumns
from streamlog.records.decode import decode_columns
from streamlog.records.layout import MAX_INT32, MAX_INT64, RECORD_BATCH_OVERHEAD
from streamlog.records.plain_headers import max_timestamp_of
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.table import LAST_OFFSET, LEADER_EPOCH, POSITION, SIZE
from streamlog.segment.file_records import (
    MAX_SEGMENT_SIZE,
    Chunk,
    FileRecords,
    OffsetPosition,
    TimestampAndOffset,
)
from streamlog.segment.filenames import FileSuffix, SegmentSuffix, segment_file_name
from streamlog.segment.index_file import IndexFile
from streamlog.segment.indexes import NO_OFFSET, IndexState, SegmentIndexes
from streamlog.segment.offset_index import IndexEntry
from streamlog.segment.time_index import TimestampOffset
from streamlog.segment.walk import (
    Place,
    count_in_order,
    find_sound,
    sound_chunks,
    unsound,
    walk_headers,
)

__all__ = ["SEARCH_SIZE", "IndexedRecords", "first_of", "largest_from"]

_logger = logging.getLogger(__name__)

_LAG: Final = 16  # multiple of `index.interval.bytes` by which the index files may lag


class IndexedRecords:
    """The log file of one segment with its offset index and time index.

    Args:
        fs: Their file system.
        directory: The partition's directory.
        base_offset: The segment's base offset.
        config: The topic's settings.
        writable: Whether the log file may be changed.
        suffix: Suffix of the file names.

    Attributes:
        records: The log file.
        size: Its bytes that count as batches.
        tail_size: Bytes after them as of the last `extend`: torn, damaged or being written.
        is_distrusted: Whether an index file was found wrong; the index in memory is right.
    """

    __slots__ = (
        "_directory",
        "_end",
        "_fs",
        "_indexes",
        "_loading",
        "_searched",
        "_stored",
        "_suffix",
        "base_offset",
        "config",
        "is_distrusted",
        "records",
        "size",
        "tail_size",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        *,
        config: LogConfig,
        writable: bool,
        suffix: SegmentSuffix = SegmentSuffix.NONE,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._end: tuple[Place, IndexState] | None = None
        self._indexes: SegmentIndexes | None = None
        self._loading = RLock()
        self._searched = (-1, -1)
        self._stored = -1  # position that the index files cover, if they have an entry
        self._suffix = suffix
        self.base_offset = base_offset
        self.config = config
        self.is_distrusted = False
        name = segment_file_name(base_offset, FileSuffix.LOG, suffix)
        self.records = FileRecords(fs, f"{directory}/{name}", writable=writable)
        self.size = 0
        self.tail_size = 0

    # ---- the indexes -------------------------------------------------------------------------
    @property
    def indexes(self) -> SegmentIndexes:
        """Both indexes, loaded or rebuilt."""
        return self._indexes or self._load()

    def index_files(self) -> tuple[IndexFile, IndexFile]:
        """Return the files of both indexes without loading them."""
        return (self._indexes or self._new_indexes()).files

    def start_empty(self) -> SegmentIndexes:
        """Start with empty indexes."""
        indexes = self._new_indexes()
        indexes.is_made = True
        self._indexes = indexes
        self._end = Place(0, self.base_offset), IndexState()
        return indexes

    def _new_indexes(self) -> SegmentIndexes:
        max_size = self.config.segment_index_bytes
        return SegmentIndexes(
            self._fs, self._directory, self.base_offset, max_size=max_size, suffix=self._suffix
        )

    def _load(self) -> SegmentIndexes:
        with self._loading:
            if self._indexes is not None:
                return self._indexes
            indexes = self._new_indexes()
            try:
                # A writer may be active: the size of the file counts, not the one in this handle.
                indexes.load(log_size=self.records.file.stat().size)
            except (FileMissingError, CorruptIndexError) as error:
                indexes = self._make(error)
            self._indexes = indexes
            return indexes

    def _distrust(self, error: CorruptIndexError) -> SegmentIndexes:
        with self._loading:
            self.is_distrusted = True
            self._indexes = self._make(error)
            return self._indexes

    def _make(self, why: CorruptIndexError | FileMissingError) -> SegmentIndexes:
        """Build both indexes in memory from the headers, up to the first batch out of order."""
        if self.size > self.config.index_interval_bytes:
            _logger.info("scanning %s for its indexes: %s", self.records.path, why)
        indexes = self._new_indexes()
        indexes.is_made = True
        self._stored = -1
        state, place = IndexState(), Place(0, self.base_offset)
        for chunk in self.records.chunks(0, self.size):
            table = chunk.scan.table
            in_order = table.slice(0, count_in_order(table, place, self.base_offset))
            if len(in_order):
                interval = self.config.index_interval_bytes
                state = indexes.add(in_order, chunk.position, interval, state)
                place = place.after(chunk.position, in_order)
            if len(in_order) < len(table):
                break
        return indexes

    # ---- by offset ---------------------------------------------------------------------------
    def translate_offset(self, offset: int, *, is_whole: bool = False) -> OffsetPosition | None:
        """Find the first batch whose last offset is at or above `offset`; None if there is none.

        Args:
            offset: The offset to find.
            is_whole: Whether all batches must end within the file.

        Raises:
            CorruptRecordError: The walk met bytes that are no batch.

        Source: LogSegment.translateOffset.
        """
        indexes = self._indexes or self._load()
        entry = indexes.offset.lookup(offset)
        if entry is not None and entry.position >= self.size:
            return None
        try:
            return self.records.find(offset, entry, self.size, is_whole=is_whole)
        except CorruptIndexError as error:
            entry = self._distrust(error).offset.lookup(offset)
            return self.records.find(offset, entry, self.size, is_whole=is_whole)

    # ---- by time -----------------------------------------------------------------------------
    def offset_for_timestamp(self, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
        """Find the first record from `start_offset` on with a timestamp of at least `timestamp`.

        Control records count, as in Kafka.

        Raises:
            CorruptRecordError: A batch that had to be decoded is damaged.

        Source: LogSegment.findOffsetByTimestamp.
        """
        entry = self.indexes.time.lookup(timestamp)
        first = entry.offset if self._keeps_promise(entry) else self.base_offset
        begin = self.translate_offset(max(first, start_offset))
        if begin is None:
            return None
        end = begin.position
        for chunk in self.records.chunks(begin.position, self.size, chunk_size=SEARCH_SIZE):
            table = chunk.scan.table
            young = (table.max_timestamp >= timestamp) & (table.last_offset >= start_offset)
            for row in np.flatnonzero(young).tolist():
                batch = table.slice(row, row + 1)
                if row >= chunk.sound and check_crc(chunk.buffer, batch) == 0:
                    raise self.unsound(chunk.position + int(batch.position[0]))
                found = first_of(
                    batch,
                    chunk,
                    timestamp,
                    start_offset,
                    path=self.records.path,
                    max_decompressed=self.config.readable_decompressed_bytes,
                )
                if found is not None:
                    return found
            end = chunk.position + chunk.scan.consumed
        if end < self.size:
            raise self.unsound(end)
        return None

    def latest(self, start_offset: int, end_offset: int = MAX_INT64) -> TimestampAndOffset | None:
        """Find the first record with the largest timestamp between two offsets.

        Raises:
            CorruptRecordError: A batch that had to be decoded is damaged.
        """
        found = self.offset_for_timestamp(self.at_end()[1].max_timestamp, start_offset)
        if found is not None and found.offset < end_offset:
            return found
        begin = self.translate_offset(start_offset)
        if begin is None or start_offset >= end_offset:
            return None
        bound = self.translate_offset(end_offset)
        end = self.size if bound is None else bound.position
        limit = self.config.readable_decompressed_bytes
        largest = largest_from(
            self.records, begin.position, end, start_offset, max_decompressed=limit
        )
        return None if largest < 0 else self.offset_for_timestamp(largest, start_offset)

    def _keeps_promise(self, entry: TimestampOffset) -> bool:
        """Return whether a batch with this last offset and largest timestamp exists."""
        found = self.translate_offset(entry.offset)
        if found is None or found.last_offset != entry.offset:
            return False
        head = self.records.file.pread(RECORD_BATCH_OVERHEAD, found.position)
        return max_timestamp_of(head) == entry.timestamp

    # ---- the end -----------------------------------------------------------------------------
    def at_end(self) -> tuple[Place, IndexState]:
        """Return the place after the last batch, and the state for the next index entry.

        Raises:
            CorruptRecordError: The bytes after the last index entry are not sound.
        """
        return self._end or self._look_for_end()

    def _look_for_end(self) -> tuple[Place, IndexState]:
        with self._loading:  # two threads that copy to replicas would add each index entry twice
            found = self._end
            if found is None:
                found = self._find_end(self.size)
                if found[0].position < self.size:
                    raise self.unsound(found[0].position)
                self._end = found
            return found

    def append(self, buffer: Buffer, table: BatchTable) -> None:
        """Write whole batches after the last one; see `Segment.append`."""
        self.at_end()
        last: list[int] = table.fields[-1].tolist()
        self._check_limits(last)
        self.records.append(buffer, self.size)
        self._note(self.size, table, last)

    def check_limits(self, table: BatchTable) -> None:
        """Refuse batches that would make the segment too large.

        Raises:
            InvalidRequestError: Positions or offsets do not fit into the segment.
        """
        self._check_limits(table.fields[-1].tolist())

    def _check_limits(self, last: list[int]) -> None:
        size, last_offset = last[POSITION] + last[SIZE], last[LAST_OFFSET]
        if last_offset - self.base_offset > MAX_INT32 or size > MAX_SEGMENT_SIZE - self.size:
            raise InvalidRequestError(
                "append exceeds the limits of the segment",
                path=self.records.path,
                got=f"last offset {last_offset}, {self.size} + {size} bytes",
                expected=f"at most {self.base_offset + MAX_INT32} and {MAX_SEGMENT_SIZE} bytes",
            )

    def cut_torn_tail(self) -> int:
        """Keep whole batches of a failed append and truncate the rest; return their number."""
        end = self.records.file.stat().size
        standing = self.walk_to(end)
        if end > self.size:
            self.records.file.truncate(self.size)
        return standing

    def take_in(self, table: BatchTable, position: int = 0) -> None:
        """Add sound batches at the end to the log: their index entries in memory, and the size.

        Args:
            table: One or more batches.
            position: What their positions are relative to.
        """
        self._note(position, table, table.fields[-1].tolist())

    def _note(self, position: int, table: BatchTable, last: list[int]) -> None:
        """Take in a table whose positions are relative to `position`; `last` is its last row."""
        place, state = self._end or self.at_end()
        indexes = self._indexes or self._load()
        state = indexes.add(table, position, self.config.index_interval_bytes, state)
        size = position + last[POSITION] + last[SIZE]
        epoch = max(place.leader_epoch, last[LEADER_EPOCH])
        self._end = Place(size, last[LAST_OFFSET] + 1, epoch), state
        self.size = size

    def extend(self) -> bool:
        """Take in whole, sound batches written since the last call; True if anything changed.

        A bad batch ends the log, like one that is still being written. But if a sound batch
        follows, the bad one is damage and must not hide the later batches: the log continues there,
        and reading the damaged range raises an error.
        """
        end = self.records.file.stat().size
        is_news = self._end is None or end < self.size
        if is_news:
            self._end = self._find_end(end)
            self.size = self._end[0].position
        before = self.size
        if end > self.size:
            self.walk_to(end)
            while self._skip_damage(end):
                self.walk_to(end)
        self.tail_size = end - self.size
        return is_news or self.size > before

    def _skip_damage(self, end: int) -> bool:
        """Move the end to the next sound batch; False if there is none."""
        place, state = self.at_end()
        if place.position == end or self._searched == (place.position, end):
            return False
        self._searched = place.position, end  # the search is slow: not again for the same bytes
        position = find_sound(self.records, self.base_offset, place, end)
        if position is None:
            return False
        _logger.warning("%s is damaged at byte %d", self.records.path, place.position)
        self._end = place._replace(position=position), state
        return True

    def walk_to(self, end: int) -> int:
        """Take in the sound batches between the last one and `end`; return how many there are."""
        count = 0

        def on_headers(table: BatchTable) -> None:
            nonlocal count
            count += len(table)
            self.take_in(table)

        walk_headers(self.records, self.base_offset, self.at_end()[0], end, on_headers)
        return count

    def start_over(self, known_size: int, end: int) -> Place:
        """Trust only the first `known_size` bytes of a file that ends at `end`.

        Returns:
            The place to continue from; `take_in` adds what follows.
        """
        self.size = end  # the walk must be able to read everything
        found = self._find_end(known_size) if 0 < known_size <= end else None
        if found is None or found[0].position != known_size:
            self.start_empty()
            found = Place(0, self.base_offset), IndexState()
        self._end, self.size = found, found[0].position
        return found[0]

    def cut(self, offset: int, position: int) -> None:
        """Truncate the file before the batch that starts at `position` and holds `offset`."""
        self.records.file.truncate(position)
        self.size = position
        self._end = None  # found again on the next append
        self.indexes.truncate_to(offset, position)
        self.store_indexes()

    def seal_indexes(self) -> None:
        """Add the largest timestamp to the time index, even if it is full, and store both indexes.

        Both files exist and are complete afterwards; a missing one would request recovery. If the
        disk refuses one, both are removed: readers of a sealed segment do not check it for missing
        entries, but opening the log for writing rebuilds missing files.
        """
        state, time = self.at_end()[1], self.indexes.time
        if state.max_timestamp > time.last_entry.timestamp:
            time.maybe_append(
                state.max_timestamp, state.offset_of_max_timestamp, skip_full_check=True
            )
        if self.store_indexes(create=True) or self.store_indexes(create=True):
            return
        for file in self.index_files():  # a stale index would look complete
            with contextlib.suppress(StorageError):
                file.remove()

    def store_indexes_if_due(self) -> None:
        """Write the indexes if their files lag too far behind."""
        lag = _LAG * self.config.index_interval_bytes
        if not 0 <= self._stored <= self.size < self._stored + lag:
            self.store_indexes()

    def store_indexes(self, *, create: bool = False) -> bool:
        """Write the indexes to their files; False if the disk refused, until the next call."""
        indexes = self._indexes or self._load()
        try:
            indexes.store()
            self._stored = self.size if len(indexes.offset) else -1
            if create:
                for file in indexes.files:
                    file.create()
        except StorageError as error:
            _logger.warning("index of %s lags behind: %s", self.records.path, error)
            return False
        return True

    def _find_end(self, end: int) -> tuple[Place, IndexState]:
        """Walk from the last index entry before `end` to the last sound batch before `end`.

        Drops index entries of later batches in memory.

        Returns:
            The place after that batch, and the state that determines the next index entry.
        """
        limit = end
        while True:
            entry, latest = self._last_promises(limit)
            self.indexes.offset.truncate_to_position(limit)
            place, state = self._walk_from(entry, IndexState(0, *latest), end)
            if entry is None or place.position > entry.position:
                break
            limit = entry.position  # the log was truncated within the indexed batch
        self.indexes.truncate_to(place.next_offset, place.position)
        return place, state

    def _walk_from(
        self, entry: IndexEntry | None, state: IndexState, end: int
    ) -> tuple[Place, IndexState]:
        """Walk from the last entry to `end`, adding later entries as they are due."""
        position, promised = (0, NO_OFFSET) if entry is None else (entry.position, entry.offset)
        interval = self.config.index_interval_bytes

        def on_headers(table: BatchTable) -> None:
            nonlocal state
            # Walked again: an entry's own batches count toward the bytes since that entry.
            own = int(np.searchsorted(table.last_offset, promised, side="right"))
            if own:
                state = state.after(table.slice(0, own))
            state = self.indexes.add(table.slice(own, len(table)), 0, interval, state)

        start = Place(position, self.base_offset)
        place = walk_headers(self.records, self.base_offset, start, end, on_headers)
        return place, state

    def _last_promises(self, end: int) -> tuple[IndexEntry | None, TimestampOffset]:
        """Return the last verified index entry before `end` and its time entry."""
        indexes = self.indexes
        entry = indexes.offset.lookup_position(end - 1)
        if entry is None:
            return None, TimestampOffset(NO_TIMESTAMP, NO_OFFSET)
        try:
            self.records.find(entry.offset, entry, end)
            latest = indexes.time.lookup_offset(entry.offset)
            if not indexes.is_made and not self._keeps_promise(latest):
                raise CorruptIndexError(
                    "time index names a batch that does not exist",
                    path=indexes.time.file.path,
                    offset=latest.offset,
                )
        except CorruptIndexError as error:
            indexes = self._distrust(error)
            entry = indexes.offset.lookup_position(end - 1)
            latest = indexes.time.lookup_offset(entry.offset if entry else NO_OFFSET)
        return entry, latest if latest.timestamp >= 0 else latest._replace(offset=NO_OFFSET)

    def unsound(self, position: int) -> CorruptRecordError:
        """Return the error for a place without a sound batch."""
        return unsound(self.records, position)

    def close(self) -> None:
        """Release the handles; a later call opens the files again."""
        self.records.close()
        if self._indexes is not None:
            self._indexes.close()


SEARCH_SIZE: Final = 128 << 10  # a search by time ends a few batches after its index entry


def first_of(
    batch: BatchTable,
    chunk: Chunk,
    timestamp: int,
    start_offset: int,
    *,
    path: str,
    max_decompressed: int,
) -> TimestampAndOffset | None:
    """Find the first record of a batch, from an offset on, with at least a given timestamp.

    Args:
        batch: The batch alone.
        chunk: The chunk that holds it.
        timestamp: Milliseconds since 1970.
        start_offset: Records below it do not count.
        path: The file, for messages.
        max_decompressed: Limit of the decompressed size of a batch, in bytes.

    Raises:
        CorruptRecordError: Its checksum is right but its structure is not.
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
        position: Start of the batch with that offset; it may hold earlier records, too.
        end: End of the sound batches.
        start_offset: The offset.
        max_decompressed: Limit of the decompressed size of a batch, in bytes.

    Raises:
        CorruptRecordError: The walk met bytes that are no sound batch.
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
