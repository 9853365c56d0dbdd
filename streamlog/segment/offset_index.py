"""The offset index: the byte of a segment at which to start looking for an offset.

    <base offset>.index, entries of 8 bytes, big-endian:

    | off | size | field           |                                                        |
    |-----|------|-----------------|--------------------------------------------------------|
    |   0 |    4 | relative offset | int32; last offset of a batch, less the base offset    |
    |   4 |    4 | position        | int32; start of that batch in the log file             |

Sparse: about one entry every `index.interval.bytes`, none for the first batch. Both fields
strictly increase. Kafka before 4.0 wrote the last offset of a whole append with the position of
its start, which serves lookups as well. Brokers extend the file of an active segment with zeros;
trailing zeros are no entries, since no entry points at position 0.

There is no checksum: an index is a hint. `load` refuses a file that cannot be an index of this
segment, and every use of an entry verifies that the batch exists.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import CorruptIndexError, InvalidRequestError
from streamlog.fs.api import FileSystem
from streamlog.records.layout import MAX_INT32
from streamlog.segment.index_file import IndexFile

__all__ = ["OFFSET_ENTRY_SIZE", "IndexEntry", "OffsetIndex"]

ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])
_ONE_ENTRY: Final = struct.Struct(">ii")
OFFSET_ENTRY_SIZE: Final = ENTRY.itemsize  # OffsetIndex.ENTRY_SIZE
assert OFFSET_ENTRY_SIZE == 8
assert array("i").itemsize == 4


class IndexEntry(NamedTuple):
    """Batches from `position` on reach up to `offset`.

    Source: org.apache.kafka.storage.internals.log.OffsetPosition.
    """

    offset: int
    position: int


class OffsetIndex:
    """The offset index of one segment, in memory, with its file.

    Readers may look up entries while one writer adds some.

    Args:
        fs: Its file system.
        path: The file; it need not exist.
        base_offset: The segment's base offset.
        max_size: `segment.index.bytes`: at this size the index is full.

    Source: org.apache.kafka.storage.internals.log.OffsetIndex.
    """

    __slots__ = ("_entries", "base_offset", "file", "max_entries")

    def __init__(self, fs: FileSystem, path: str, base_offset: int, *, max_size: int) -> None:
        self.file = IndexFile(fs, path, OFFSET_ENTRY_SIZE)
        self.base_offset = base_offset
        self.max_entries = max_size // OFFSET_ENTRY_SIZE
        self._entries = (array("i"), array("i"))

    def load(self, *, log_size: int) -> None:
        """Load the entries of the file.

        Args:
            log_size: Bytes of the segment's log file.

        Raises:
            FileMissingError: The file does not exist.
            CorruptIndexError: It cannot be the index of this segment.
        """
        data, size = self.file.read(log_size=log_size)
        if size % OFFSET_ENTRY_SIZE:
            raise self._corrupt("length is no multiple of the entry size", got=size)
        entries = np.frombuffer(data, ENTRY)
        real = np.flatnonzero(entries["position"])
        count = int(real[-1]) + 1 if len(real) else 0
        offsets = entries["offset"][:count].astype(np.int32)
        positions = entries["position"][:count].astype(np.int32)
        self._check(offsets, positions, log_size)
        self._entries = (_packed(offsets), _packed(positions))
        if count * OFFSET_ENTRY_SIZE == size:
            self.file.holds(count)

    def _check(
        self, offsets: NDArray[np.int32], positions: NDArray[np.int32], log_size: int
    ) -> None:
        if len(offsets) == 0:
            return
        if offsets[0] < 0:
            raise self._corrupt("has an offset below the base offset", got=int(offsets[0]))
        if positions[0] <= 0 or int(positions[-1]) >= log_size:
            raise self._corrupt(
                "points outside the segment",
                got=f"positions {positions[0]} to {positions[-1]}",
                expected=f"positions below {log_size}",
            )
        if not ((offsets[1:] > offsets[:-1]).all() and (positions[1:] > positions[:-1]).all()):
            raise self._corrupt("does not strictly increase")

    def _corrupt(
        self, what: str, *, got: object = None, expected: object = None
    ) -> CorruptIndexError:
        return CorruptIndexError(
            f"offset index {what}",
            path=self.file.path,
            offset=self.base_offset,
            got=got,
            expected=expected,
        )

    # ---- look up -----------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self._entries[0])

    def __getitem__(self, index: int) -> IndexEntry:
        offsets, positions = self._entries
        return IndexEntry(self.base_offset + offsets[index], positions[index])

    @property
    def is_full(self) -> bool:
        """Whether the segment should be rolled because of this index."""
        return len(self._entries[0]) >= self.max_entries

    def lookup(self, offset: int) -> IndexEntry | None:
        """Return the last entry at or below `offset`; None: start at position 0."""
        offsets, positions = self._entries
        at = bisect_right(offsets, offset - self.base_offset) - 1
        if at < 0:
            return None
        return IndexEntry(self.base_offset + offsets[at], positions[at])

    def lookup_position(self, position: int) -> IndexEntry | None:
        """Return the last entry that points at or below `position`; None if there is none."""
        offsets, positions = self._entries
        at = bisect_right(positions, position, hi=len(offsets)) - 1
        if at < 0:
            return None
        return IndexEntry(self.base_offset + offsets[at], positions[at])

    def lookup_from(self, position: int) -> IndexEntry | None:
        """Return the first entry that points at or above `position`; None if there is none."""
        offsets, positions = self._entries
        at = bisect_left(positions, position, hi=len(offsets))
        if at == len(offsets):
            return None
        return IndexEntry(self.base_offset + offsets[at], positions[at])

    # ---- change ------------------------------------------------------------------------------
    def append(self, offset: int, position: int) -> None:
        """Add an entry after the last one; `store` writes it to the file.

        Args:
            offset: Last offset of a batch, above that of the last entry.
            position: Start of the batch in the log file.

        Raises:
            InvalidRequestError: The index is full, or the entry does not follow the last one.
        """
        if self.is_full:
            raise InvalidRequestError(
                "offset index is full", path=self.file.path, got=f"{len(self)} entries"
            )
        relative = offset - self.base_offset
        offsets = self._entries[0]
        if not 0 <= relative <= MAX_INT32 or (offsets and relative <= offsets[-1]):
            raise InvalidRequestError(
                "offset must be above the last one of the index",
                path=self.file.path,
                got=offset,
                expected=f"above {self[-1].offset if offsets else self.base_offset - 1}",
            )
        self.add(offset, position)

    def add(self, offset: int, position: int) -> None:
        """Add an entry that is known to follow, if there is room."""
        offsets, positions = self._entries
        if len(offsets) < self.max_entries:
            # Positions first: a reader goes from an offset to its position.
            positions.append(position)
            offsets.append(offset - self.base_offset)

    def extend(self, offsets: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        """Add entries that are known to follow, as many as there is room for.

        Args:
            offsets: int64[n], last offsets of batches, ascending.
            positions: int64[n], starts of those batches.
        """
        room = max(self.max_entries - len(self), 0)
        known_offsets, known_positions = self._entries
        relative = offsets[:room] - self.base_offset
        known_positions.frombytes(positions[:room].astype(np.int32).tobytes())
        known_offsets.frombytes(relative.astype(np.int32).tobytes())

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        self._keep(bisect_left(self._entries[0], offset - self.base_offset))

    def truncate_to_position(self, position: int) -> None:
        """Drop the entries that point at or after `position`."""
        self._keep(bisect_left(self._entries[1], position))

    def _keep(self, count: int) -> None:
        offsets, positions = self._entries
        if count < len(offsets):
            self._entries = (offsets[:count], positions[:count])
            self.file.keep(count)

    def store(self) -> None:
        """Write the entries that the file lacks.

        Raises:
            StorageError: The file system refused; the next call tries again.
        """
        self.file.store(len(self._entries[0]), self._encode)

    def _encode(self, start: int) -> bytes:
        offsets, positions = self._entries
        if start == len(offsets) - 1:
            return _ONE_ENTRY.pack(offsets[-1], positions[-1])
        entries = np.empty(len(offsets) - start, ENTRY)
        entries["offset"] = offsets[start:]
        entries["position"] = positions[start:]
        return entries.tobytes()


def _packed(values: NDArray[np.int64] | NDArray[np.int32]) -> "array[int]":
    packed = array("i")
    packed.frombytes(values.astype(np.int32).tobytes())
    return packed
