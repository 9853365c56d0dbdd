"""The offset map: for each key of the dirty section the offset of its last record.

It takes a fixed amount of memory, whatever the keys are: a place of 24 bytes a key, 16 of a hash
and 8 of the offset. Kafka's arithmetic says how many keys fit: the memory in places, times the
load factor. Where there are more, the map ends in the middle of the dirty section, and the rest
is another round's.

Beside it a bit is set for each offset that a later one of the same key has overtaken, for the
first 32 million offsets of the dirty section. So a record there, at least every second one of a
round by Kafka's defaults, needs no second search: the memory of its bit is in the cache, that of
its place is not.

Two keys of one hash would be taken for one, and the older record lost. So the hash is keyed with
16 bytes that are drawn for each map and never leave it: `decisions/0004-keyed-offset-map.md`.

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
OVERTAKEN_SIZE: Final = 4 << 20  # bytes, a bit an offset


class OffsetMap:
    """Offsets by keys, in fixed memory.

    Args:
        memory: How many bytes it may take (`log.cleaner.dedupe.buffer.size`).
        load_factor: How full it may get (`log.cleaner.io.buffer.load.factor`).
        random: Draws the key of the hash; one that cannot be guessed.

    Raises:
        InvalidConfigError: There is no room for a single key.
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
                "the cleaner's memory has no room for a single key",
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
        """How many keys it has."""
        return int(self._state[0])

    @property
    def is_full(self) -> bool:
        """Whether no further key fits."""
        return self.size >= self.capacity

    @property
    def utilization(self) -> float:
        """Which share of its places is taken."""
        return self.size / len(self._places)

    @property
    def latest_offset(self) -> int:
        """Up to where, this offset included, all records are in it; -1 for none."""
        return int(self._state[1])

    def update_latest_offset(self, offset: int) -> None:
        """Note that the records up to `offset` need no place of their own."""
        self._state[1] = max(self._state[1], offset)

    def put(self, records: RecordSlots, is_taken: NDArray[np.bool_], start: int) -> int:
        """Put the offsets of records with a key in, in their order, until the map is full.

        Args:
            records: The records.
            is_taken: bool[b], whether those of a batch are put.
            start: Records below this offset are not; the same for all that the map is given.

        Returns:
            How many records were looked at; fewer than there are where the map is full.
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
        """Tell of each record whether it stays.

        Args:
            records: The records.
            ways: int64[b], what may become of each batch's records, see `map_kernels`.

        Returns:
            bool[n], whether it stays, and int64[b, 2], of each batch how many do and how many
            of these are tombstones.
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
