"""The two sparse indexes of a segment, kept in step with its batches.

Both have entries at the same batches, chosen by one rule (`kernels.index_entries`), so both are
determined by the log file and `index.interval.bytes`: a rebuilt index equals the original.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import read_only
from streamlog.fs.api import FileSystem
from streamlog.records.batch import BatchTable
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.table import LAST_OFFSET, MAX_TIMESTAMP, POSITION, SIZE
from streamlog.segment.filenames import FileSuffix, SegmentSuffix, segment_file_name
from streamlog.segment.index_file import IndexFile
from streamlog.segment.offset_index import OffsetIndex
from streamlog.segment.time_index import TimeIndex

__all__ = ["NO_OFFSET", "IndexState", "SegmentIndexes", "choose_entries"]

NO_OFFSET: Final = -1
_FEW: Final = 8  # up to this many batches are handled one by one


class IndexState(NamedTuple):
    """State that determines whether the next batch gets an index entry, and which.

    Attributes:
        bytes_since_entry: From the batch of the last entry (or position 0) to here.
        max_timestamp: The largest timestamp so far, in ms, -1 for none.
        offset_of_max_timestamp: Last offset of the batch with that timestamp, -1 for none.
    """

    bytes_since_entry: int = 0
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = NO_OFFSET

    def after(self, table: BatchTable) -> "IndexState":
        """Return the state after one or more batches, none of which gets an entry."""
        size = self.bytes_since_entry + int(table.size.sum())
        largest = int(table.max_timestamp.argmax())
        timestamp = int(table.max_timestamp[largest])
        if timestamp <= self.max_timestamp:
            return self._replace(bytes_since_entry=size)
        return IndexState(size, timestamp, int(table.last_offset[largest]))


def choose_entries(
    table: BatchTable, start: int, interval: int, state: IndexState
) -> tuple[NDArray[np.int64], IndexState]:
    """Choose the batches that get an index entry.

    Args:
        table: The batches.
        start: Position in the segment that the table's positions are relative to.
        interval: `index.interval.bytes`.
        state: The state before these batches.

    Returns:
        The entries, int64[n, 4] (offset and position for the offset index, timestamp and its
        offset for the time index), and the state after these batches.
    """
    from streamlog.segment import kernels

    carried = np.array(state, np.int64)
    entries = np.empty((len(table), kernels.ENTRY_WIDTH), np.int64)
    fields = read_only(table.fields, np.int64)
    count = kernels.index_entries(fields, start, interval, carried, entries)
    return entries[:count], IndexState(*carried.tolist())


class SegmentIndexes:
    """Offset index and time index of one segment.

    Args:
        fs: Their file system.
        directory: The partition's directory.
        base_offset: The segment's base offset.
        max_size: `segment.index.bytes`.
        suffix: Suffix of the file names.

    Attributes:
        is_made: Whether this process built them from the batches.
    """

    __slots__ = ("is_made", "offset", "time")

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        *,
        max_size: int,
        suffix: SegmentSuffix = SegmentSuffix.NONE,
    ) -> None:
        self.is_made = False
        name = segment_file_name(base_offset, FileSuffix.OFFSET_INDEX, suffix)
        self.offset = OffsetIndex(fs, f"{directory}/{name}", base_offset, max_size=max_size)
        name = segment_file_name(base_offset, FileSuffix.TIME_INDEX, suffix)
        self.time = TimeIndex(fs, f"{directory}/{name}", base_offset, max_size=max_size)

    @property
    def files(self) -> tuple[IndexFile, IndexFile]:
        """The files of both."""
        return self.offset.file, self.time.file

    def load(self, *, log_size: int) -> None:
        """Load both from their files.

        Raises:
            FileMissingError: A file does not exist.
            CorruptIndexError: A file cannot be an index of this segment.
        """
        self.offset.load(log_size=log_size)
        self.time.load(log_size=log_size)

    def add(self, table: BatchTable, start: int, interval: int, state: IndexState) -> IndexState:
        """Add the entries that are due for batches, in memory; `store` writes them.

        Args:
            table: The batches.
            start: Position in the segment that the table's positions are relative to.
            interval: `index.interval.bytes`.
            state: The state before these batches.

        Returns:
            The state after these batches.
        """
        if len(table) <= _FEW:
            return self._add_few(table.fields.tolist(), start, interval, state)
        entries, state = choose_entries(table, start, interval, state)
        if len(entries):
            offset, position, timestamp, timestamp_offset = entries.T
            self.offset.extend(offset, position)
            self.time.extend(timestamp, timestamp_offset)
        return state

    def _add_few(
        self, batches: list[list[int]], start: int, interval: int, state: IndexState
    ) -> IndexState:
        """Do the same as `add` batch by batch: for one or two batches a kernel call costs more."""
        since, timestamp, offset = state
        for batch in batches:
            if batch[MAX_TIMESTAMP] > timestamp:
                timestamp, offset = batch[MAX_TIMESTAMP], batch[LAST_OFFSET]
            if since > interval:
                self.offset.add(batch[LAST_OFFSET], start + batch[POSITION])
                self.time.add(timestamp, offset)
                since = 0
            since += batch[SIZE]
        return IndexState(since, timestamp, offset)

    def truncate_to(self, offset: int, position: int) -> None:
        """Drop the entries of batches that reach `offset`, or that start at or after `position`."""
        self.offset.truncate_to_position(position)
        self.offset.truncate_to(offset)
        self.time.truncate_to(offset)

    def store(self) -> None:
        """Write the entries that the files lack.

        Raises:
            StorageError: The file system refused; the next call tries again.
        """
        self.offset.store()
        self.time.store()

    def close(self) -> None:
        """Release the handles."""
        for file in self.files:
            file.close()
