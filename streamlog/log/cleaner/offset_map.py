"""The offset map: for each key of the dirty section the offset of its last record.

It takes a fixed amount of memory, whatever the keys are: a place of 24 bytes a key, 16 of a hash
and 8 of the offset. Kafka's arithmetic says how many keys fit: the memory in places, times the
load factor. Where there are more, the map ends in the middle of the dirty section, and the rest
is another round's.

Two keys of one hash would be taken for one, and the older record lost. So the hash is keyed with
16 bytes that are drawn for each map and never leave it: `decisions/0004-keyed-offset-map.md`.

Source: org.apache.kafka.storage.internals.log.SkimpyOffsetMap.
"""

import random as random_module
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import InvalidConfigError
from streamlog.records.layout import MAX_INT32
from streamlog.records.slots import RecordSlots

__all__ = ["BYTES_PER_KEY", "OffsetMap"]

BYTES_PER_KEY: Final = 24


class OffsetMap:
    """Offsets by keys, in fixed memory.

    Args:
        memory: How many bytes it may take (`log.cleaner.dedupe.buffer.size`).
        load_factor: How full it may get (`log.cleaner.io.buffer.load.factor`).
        random: Draws the key of the hash; one that cannot be guessed.

    Raises:
        InvalidConfigError: There is no room for a single key.
    """

    __slots__ = ("_high", "_low", "_places", "_state", "capacity")

    def __init__(
        self, *, memory: int, load_factor: float = 0.9, random: random_module.Random
    ) -> None:
        from streamlog.log.cleaner import map_kernels as k

        count = min(memory, MAX_INT32) // BYTES_PER_KEY
        self.capacity: Final = min(int(count * load_factor), count - 1)
        if self.capacity < 1:
            raise InvalidConfigError(
                "the cleaner's memory has no room for a single key",
                got=f"{memory} bytes",
                expected=f"at least {2 * BYTES_PER_KEY} (log.cleaner.dedupe.buffer.size)",
            )
        self._places = np.zeros((count, k.PLACE_WIDTH), np.int64)
        self._state = np.array((0, -1, 0), np.int64)
        self._low, self._high = (random.getrandbits(64) - (1 << 63) for _ in range(2))

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

    def hashes(self, records: RecordSlots) -> NDArray[np.int64]:
        """Return the hashes of the records' keys, int64[n, 2]; of no meaning without a key."""
        from streamlog.log.cleaner import map_kernels as k

        hashes = np.empty((len(records.slots), 2), np.int64)
        status = k.hash_keys(records.source, records.slots, self._low, self._high, hashes)
        assert status == 0, status
        return hashes

    def put(self, records: RecordSlots, wanted: NDArray[np.bool_]) -> int:
        """Put the offsets of records in, in their order, until the map is full.

        Args:
            records: The records.
            wanted: bool[n], which of them; each has a key.

        Returns:
            How many records were looked at; fewer than there are where the map is full.
        """
        from streamlog.log.cleaner import map_kernels as k

        hashes = self.hashes(records)
        return k.put_offsets(
            hashes, records.slots, wanted, self.capacity, self._places, self._state
        )

    def find(self, records: RecordSlots) -> NDArray[np.int64]:
        """Return the offset of the last record of each record's key, int64[n]; -1 for none."""
        from streamlog.log.cleaner import map_kernels as k

        offsets = np.empty(len(records.slots), np.int64)
        hashes = self.hashes(records)
        k.find_offsets(hashes, records.slots, self._places, self._state, offsets)
        return offsets
