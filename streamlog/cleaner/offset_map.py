"""The offset map: for each key of the dirty section the offset of its last record.

It takes a fixed amount of memory for keys of any length: a place of 24 bytes per key, 16 for a hash
and 8 for the offset. As in Kafka, the number of keys that fit is the number of places times the
load factor. If there are more keys, the map ends in the middle of the dirty section, and another
round handles the rest.

A bitmap marks each offset whose key has a later offset, for the first 32 million offsets of the
dirty section. A record there, at least every second one of a round by Kafka's defaults, needs no
second search: its bit is in the processor's cache, its place is not.

Two keys with the same hash would be taken for one, and the older record lost. So the hash is keyed
with 16 random bytes that never leave the map: `decisions/0004-keyed-offset-map.md`.

Source: org.apache.kafka.storage.internals.log.SkimpyOffsetMap.
"""

import random as random_module
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import read_only
from streamlog.errors import InvalidConfigError
from streamlog.records.layout import MAX_INT32
from streamlog.records.slots import RecordSlots

__all__ = ["BYTES_PER_KEY", "OffsetMap"]

BYTES_PER_KEY: Final = 24
OVERTAKEN_SIZE: Final = 4 << 20  # bytes of the bitmap, a bit per offset


class OffsetMap:
    """Offsets by keys, in fixed memory.

    Args:
        memory: Its memory in bytes (`log.cleaner.dedupe.buffer.size`).
        load_factor: The maximum share of used places (`log.cleaner.io.buffer.load.factor`).
        random: For the key of the hash, which must not be guessable.

    Raises:
        InvalidConfigError: The memory is too small for a single key.
    """

    __slots__ = ("_overtaken", "_places", "_room", "_secret", "_state", "capacity")

    def __init__(
        self, *, memory: int, load_factor: float = 0.9, random: random_module.Random
    ) -> None:
        from streamlog.cleaner import map_kernels as k

        count = min(memory, MAX_INT32) // BYTES_PER_KEY
        self.capacity: Final = min(int(count * load_factor), count - 1)
        if self.capacity < 1:
            raise InvalidConfigError(
                "cleaner memory is too small for a single key",
                got=f"{memory} bytes",
                expected=f"at least {2 * BYTES_PER_KEY} (log.cleaner.dedupe.buffer.size)",
            )
        self._places = np.zeros((count, k.PLACE_WIDTH), np.int64)
        self._overtaken = np.zeros(OVERTAKEN_SIZE, np.uint8)
        self._room = np.empty((k.BLOCK, 2), np.int64), np.empty(k.BLOCK, np.bool_)
        self._state = np.array((0, -1, 0, 0), np.int64)
        halves = [random.getrandbits(64) - (1 << 63) for _ in range(2)]
        self._secret = np.array(halves, np.int64)

    @property
    def size(self) -> int:
        """The number of keys."""
        return int(self._state[0])

    @property
    def is_full(self) -> bool:
        """Whether no further key fits."""
        return self.size >= self.capacity

    @property
    def utilization(self) -> float:
        """The share of used places."""
        return self.size / len(self._places)

    @property
    def latest_offset(self) -> int:
        """The offset up to which, inclusive, all records are in the map; -1 for none."""
        return int(self._state[1])

    def update_latest_offset(self, offset: int) -> None:
        """Record that all records up to `offset` are in the map or need no place."""
        self._state[1] = max(self._state[1], offset)

    def put(self, records: RecordSlots, is_taken: NDArray[np.bool_], start: int) -> int:
        """Put the offsets of records with a key into the map, in order, until it is full.

        Args:
            records: The records.
            is_taken: bool[b], whether the records of a batch are put.
            start: Records below this offset are skipped; the same in all calls.

        Returns:
            The number of records handled; less than all if the map is full.
        """
        from streamlog.cleaner import map_kernels as k

        looked_at = k.put_keys(
            records.source,
            records.slots,
            read_only(records.rows, np.int64),
            read_only(is_taken, np.bool_),
            start,
            self._secret,
            self.capacity,
            self._places,
            self._overtaken,
            self._state,
            *self._room,
        )
        assert looked_at >= 0, looked_at
        return looked_at

    def choose(
        self, records: RecordSlots, ways: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return of each record whether it stays.

        Args:
            records: The records.
            ways: int64[b], the rule for each batch's records, see `map_kernels`.

        Returns:
            bool[n], whether it stays, and int64[b, 2], of each batch the number of records that
            stay and the number of tombstones among them.
        """
        from streamlog.cleaner import map_kernels as k

        keep = np.empty(len(records.slots), np.bool_)
        counts = np.empty((len(records.rows), k.COUNT_WIDTH), np.int64)
        status = k.choose_records(
            records.source,
            records.slots,
            read_only(records.rows, np.int64),
            read_only(ways, np.int64),
            self._secret,
            self._places,
            self._overtaken,
            self._state,
            *self._room,
            keep,
            counts,
        )
        assert status == 0, status
        return keep, counts
