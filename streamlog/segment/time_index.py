"""The time index: the offset up to which no record of a segment has a larger timestamp.

    <base offset>.timeindex, entries of 12 bytes, big-endian:

    | off | size | field           |                                                        |
    |-----|------|-----------------|--------------------------------------------------------|
    |   0 |    8 | timestamp       | int64, ms; the largest of all batches so far           |
    |   8 |    4 | relative offset | int32; last offset of the batch that holds it, less    |
    |     |      |                 | the base offset                                        |

Timestamps strictly increase, offsets never decrease. Each entry of the offset index may bring one;
a last one is forced when the segment stops growing, so that its largest timestamp is known without
a scan. The index counts as full one entry early: that slot is reserved for the last entry.

Brokers extend the file of an active segment with zeros; trailing zeros do not count as entries.
(A real entry of timestamp 0 is lost this way; the scan that replaces it finds the same.)
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import CorruptIndexError, InvalidRequestError
from streamlog.fs.api import FileSystem
from streamlog.records.record import NO_TIMESTAMP
from streamlog.segment.index_file import IndexFile

__all__ = ["TIME_ENTRY_SIZE", "TimeIndex", "TimestampOffset"]

ENTRY: Final = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_ONE_ENTRY: Final = struct.Struct(">qi")
TIME_ENTRY_SIZE: Final = ENTRY.itemsize  # TimeIndex.ENTRY_SIZE
assert TIME_ENTRY_SIZE == 12
assert array("q").itemsize == 8


class TimestampOffset(NamedTuple):
    """No batch up to the one that ends at `offset` holds a larger timestamp.

    Source: org.apache.kafka.storage.internals.log.TimestampOffset.
    """

    timestamp: int
    offset: int


class TimeIndex:
    """The time index of one segment, in memory, with its file.

    Readers may look up entries while one writer adds some.

    Args:
        fs: Its file system.
        path: The file; it need not exist.
        base_offset: The segment's base offset.
        max_size: `segment.index.bytes`: at this size the index is full.

    Source: org.apache.kafka.storage.internals.log.TimeIndex.
    """

    __slots__ = ("_entries", "base_offset", "file", "max_entries")

    def __init__(self, fs: FileSystem, path: str, base_offset: int, *, max_size: int) -> None:
        self.file = IndexFile(fs, path, TIME_ENTRY_SIZE)
        self.base_offset = base_offset
        self.max_entries = max_size // TIME_ENTRY_SIZE
        self._entries = (array("q"), array("i"))

    def load(self, *, log_size: int) -> None:
        """Load the entries of the file.

        Args:
            log_size: Bytes of the segment's log file.

        Raises:
            FileMissingError: The file does not exist.
            CorruptIndexError: It cannot be the index of this segment.
        """
        data, size = self.file.read(log_size=log_size)
        if size % TIME_ENTRY_SIZE:
            raise self._corrupt("length is no multiple of the entry size", got=size)
        entries = np.frombuffer(data, ENTRY)
        real = np.flatnonzero((entries["timestamp"] != 0) | (entries["offset"] != 0))
        count = int(real[-1]) + 1 if len(real) else 0
        timestamps = entries["timestamp"][:count].astype(np.int64)
        offsets = entries["offset"][:count].astype(np.int32)
        self._check(timestamps, offsets)
        self._entries = (_packed("q", timestamps), _packed("i", offsets))
        if count * TIME_ENTRY_SIZE == size:
            self.file.holds(count)

    def _check(self, timestamps: NDArray[np.int64], offsets: NDArray[np.int32]) -> None:
        if len(offsets) == 0:
            return
        if offsets[0] < 0:
            raise self._corrupt("has an offset below the base offset", got=int(offsets[0]))
        if timestamps[0] < 0:
            raise self._corrupt("has a negative timestamp", got=int(timestamps[0]))
        if not (timestamps[1:] > timestamps[:-1]).all():
            raise self._corrupt("has timestamps that do not strictly increase")
        if not (offsets[1:] >= offsets[:-1]).all():
            raise self._corrupt("has offsets that decrease")

    def _corrupt(self, what: str, *, got: object = None) -> CorruptIndexError:
        return CorruptIndexError(
            f"time index {what}", path=self.file.path, offset=self.base_offset, got=got
        )

    # ---- look up -----------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self._entries[0])

    def __getitem__(self, index: int) -> TimestampOffset:
        timestamps, offsets = self._entries
        return TimestampOffset(timestamps[index], self.base_offset + offsets[index])

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the timestamps and the offsets of all entries, as copies."""
        timestamps, offsets = self._entries
        return np.array(timestamps, np.int64), np.array(offsets, np.int64) + self.base_offset

    @property
    def is_full(self) -> bool:
        """Whether the segment should be rolled because of this index."""
        return len(self._entries[0]) >= self.max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base offset) if there is none."""
        timestamps, offsets = self._entries
        if not timestamps:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(timestamps[-1], self.base_offset + offsets[-1])

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry at or below `timestamp`; (-1, base offset) if there is none."""
        timestamps, offsets = self._entries
        at = bisect_right(timestamps, timestamp) - 1
        if at < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(timestamps[at], self.base_offset + offsets[at])

    def lookup_offset(self, offset: int) -> TimestampOffset:
        """Return the last entry at or below `offset`; (-1, base offset) if there is none."""
        timestamps, offsets = self._entries
        at = bisect_right(offsets, offset - self.base_offset) - 1
        if at < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(timestamps[at], self.base_offset + offsets[at])

    # ---- change ------------------------------------------------------------------------------
    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Add an entry if its timestamp is above the last one; `store` writes it to the file.

        Args:
            timestamp: The largest timestamp so far, in ms.
            offset: Last offset of the batch that holds it.
            skip_full_check: Use the slot that is reserved for the last entry.

        Raises:
            InvalidRequestError: The index is full, or offset or timestamp are below the last.

        Source: TimeIndex.maybeAppend.
        """
        if self.is_full and not skip_full_check:
            raise InvalidRequestError(
                "time index is full", path=self.file.path, got=f"{len(self)} entries"
            )
        last = self.last_entry
        if len(self) and offset < last.offset:
            raise self._out_of_order("offset", offset, last.offset)
        if len(self) and timestamp < last.timestamp:
            raise self._out_of_order("timestamp", timestamp, last.timestamp)
        if timestamp > last.timestamp:
            self._append(timestamp, offset)

    def add(self, timestamp: int, offset: int) -> None:
        """Add an entry that is known to follow, if its timestamp is larger and there is room."""
        timestamps = self._entries[0]
        if len(timestamps) < self.max_entries - 1 and timestamp > (
            timestamps[-1] if timestamps else NO_TIMESTAMP
        ):
            self._append(timestamp, offset)

    def _append(self, timestamp: int, offset: int) -> None:
        timestamps, offsets = self._entries
        # Offsets first: a reader goes from a timestamp to its offset.
        offsets.append(offset - self.base_offset)
        timestamps.append(timestamp)

    def _out_of_order(self, field: str, got: int, last: int) -> InvalidRequestError:
        return InvalidRequestError(
            f"{field} is below the last one of the time index",
            path=self.file.path,
            got=got,
            expected=f"at least {last}",
        )

    def extend(self, timestamps: NDArray[np.int64], offsets: NDArray[np.int64]) -> None:
        """Add the entries whose timestamp exceeds all earlier ones, as many as there is room for.

        Args:
            timestamps: int64[n], the largest so far at each point, so they never decrease.
            offsets: int64[n], last offsets of the batches that hold them.
        """
        last = self.last_entry.timestamp
        if len(timestamps) == 0 or int(timestamps[-1]) <= last:
            return
        before = np.empty_like(timestamps)
        before[0] = last
        before[1:] = timestamps[:-1]
        news = np.flatnonzero(timestamps > before)[: max(self.max_entries - 1 - len(self), 0)]
        known_timestamps, known_offsets = self._entries
        relative = (offsets[news] - self.base_offset).astype(np.int32)
        known_offsets.frombytes(relative.tobytes())
        known_timestamps.frombytes(timestamps[news].tobytes())

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        timestamps, offsets = self._entries
        count = bisect_left(offsets, offset - self.base_offset)
        if count < len(offsets):
            self._entries = (timestamps[:count], offsets[:count])
            self.file.keep(count)

    def store(self) -> None:
        """Write the entries that the file lacks.

        Raises:
            StorageError: The file system refused; the next call tries again.
        """
        self.file.store(len(self._entries[0]), self._encode)

    def _encode(self, start: int) -> bytes:
        timestamps, offsets = self._entries
        if start == len(timestamps) - 1:
            return _ONE_ENTRY.pack(timestamps[-1], offsets[-1])
        entries = np.empty(len(timestamps) - start, ENTRY)
        entries["timestamp"] = timestamps[start:]
        entries["offset"] = offsets[start:]
        return entries.tobytes()


def _packed(code: str, values: NDArray[np.int64] | NDArray[np.int32]) -> "array[int]":
    packed = array(code)
    packed.frombytes(values.tobytes())
    return packed
