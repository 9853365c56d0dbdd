"""The compiled loops of the offset map; `offset_map` says what that is."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import inlined, kernel
from streamlog.binary.siphash import plain_siphash, siphash
from streamlog.records.layout import MAX_INT32
from streamlog.records.slot import OK, OUT_OF_ROOM, SLOT_KEY, SLOT_KEY_SIZE, SLOT_OFFSET

# A place of the map, int64[places, 3]; one of offset 0 is free.
PLACE_LOW: Final = 0  # the first half of the hash
PLACE_HIGH: Final = 1  # the second
PLACE_OFFSET: Final = 2  # plus one, so that fresh memory is free places
PLACE_WIDTH: Final = 3

# What putting changes: int64[3].
STATE_SIZE: Final = 0  # keys in the map
STATE_LATEST: Final = 1  # the offset put last
STATE_MET: Final = 2  # of no meaning, see `fetch_places`

BLOCK: Final = 64  # records whose places are fetched at a time

ABSENT: Final = -1


@kernel
def hash_keys(
    source: NDArray[np.uint8],
    slots: NDArray[np.int64],
    low: int,
    high: int,
    out_hashes: NDArray[np.int64],
) -> int:
    """Hash the key of each record.

    Args:
        source: uint8[m], m at least 8, the bytes the slots point into.
        slots: int64[n, 9].
        low: The first half of the hash's key.
        high: The second half.
        out_hashes: int64[n, 2]; those of records without a key are left alone.

    Returns:
        OK, or OUT_OF_ROOM where a key lies outside of `source`.
    """
    for row in range(len(slots)):
        start, size = slots[row, SLOT_KEY], slots[row, SLOT_KEY_SIZE]
        if size < 0:
            continue
        if start < 0 or size > source.size - start:
            return OUT_OF_ROOM
        out_hashes[row, 0], out_hashes[row, 1] = siphash(source, start, start + size, low, high)
    return OK


@inlined
def first_place(places: NDArray[np.int64], low: int) -> int:
    """Return where the search for a hash begins: 31 of its bits, scaled to the places."""
    return (low & MAX_INT32) * len(places) >> 31


@inlined
def find_place(places: NDArray[np.int64], low: int, high: int) -> int:
    """Return the place of a hash, or the free one where it belongs; one place is free always."""
    place = first_place(places, low)
    while places[place, PLACE_OFFSET] != 0:
        if places[place, PLACE_LOW] == low and places[place, PLACE_HIGH] == high:
            break
        place += 1
        if place == len(places):
            place = 0
    return place


@kernel
def fetch_places(hashes: NDArray[np.int64], start: int, end: int, places: NDArray[np.int64]) -> int:
    """Bring the places of some hashes into the processor's cache, many at a time.

    A search waits for memory, and what it finds there decides a branch, so searches wait one
    after the other. Reads that decide nothing wait together.

    Returns:
        A number of no meaning, which keeps the reads from being left out.
    """
    met = 0
    for row in range(start, end):
        place = first_place(places, hashes[row, 0])
        met |= places[place, PLACE_LOW] ^ places[place, PLACE_OFFSET]
    return met


@kernel
def put_offsets(
    hashes: NDArray[np.int64],
    slots: NDArray[np.int64],
    wanted: NDArray[np.bool_],
    capacity: int,
    places: NDArray[np.int64],
    state: NDArray[np.int64],
) -> int:
    """Put the offsets of records into the map, until it is full.

    Args:
        hashes: int64[n, 2], of the records' keys, of others any numbers.
        slots: int64[n, 9].
        wanted: bool[n], which records to put; each has a key.
        capacity: How many keys the map takes, less than it has places.
        places: int64[p, 3], changed.
        state: int64[3], changed.

    Returns:
        How many records were looked at: all of them, or those before the first that found the
        map full.

    Source: Cleaner.buildOffsetMapForSegment, SkimpyOffsetMap.put.
    """
    met = 0
    for row in range(len(slots)):
        if row % BLOCK == 0:
            met |= fetch_places(hashes, row, min(row + BLOCK, len(slots)), places)
        if not wanted[row]:
            continue
        if state[STATE_SIZE] >= capacity:
            return row
        low, high, offset = hashes[row, 0], hashes[row, 1], slots[row, SLOT_OFFSET]
        place = find_place(places, low, high)
        if places[place, PLACE_OFFSET] == 0:
            places[place, PLACE_LOW], places[place, PLACE_HIGH] = low, high
            state[STATE_SIZE] += 1
        places[place, PLACE_OFFSET] = offset + 1
        state[STATE_LATEST] = offset
    state[STATE_MET] = met
    return len(slots)


@kernel
def find_offsets(
    hashes: NDArray[np.int64],
    slots: NDArray[np.int64],
    places: NDArray[np.int64],
    state: NDArray[np.int64],
    out_offsets: NDArray[np.int64],
) -> int:
    """Look up the offset that the map has for the key of each record.

    Args:
        hashes: int64[n, 2], of the records' keys.
        slots: int64[n, 9].
        places: int64[p, 3].
        state: int64[3]; of what it says nothing is changed.
        out_offsets: int64[n], filled; ABSENT for a record without a key, or one not in the map.

    Returns:
        How many were found.
    """
    found, met = 0, 0
    for row in range(len(slots)):
        if row % BLOCK == 0:
            met |= fetch_places(hashes, row, min(row + BLOCK, len(slots)), places)
        out_offsets[row] = ABSENT
        if slots[row, SLOT_KEY_SIZE] >= 0:
            place = find_place(places, hashes[row, 0], hashes[row, 1])
            offset = places[place, PLACE_OFFSET]
            if offset != 0:
                out_offsets[row] = offset - 1
                found += 1
    state[STATE_MET] = met
    return found


# ---- twins -------------------------------------------------------------------------------------
def plain_hash_keys(keys: list[bytes | None], secret: bytes) -> list[bytes | None]:
    """Return the hash of each key under a secret of 16 bytes."""
    return [None if key is None else plain_siphash(key, secret) for key in keys]


def plain_put_offsets(
    known: dict[bytes, int], records: list[tuple[int, bytes | None]], capacity: int
) -> int:
    """Put offsets by keys, None for a record that is not wanted; return how many were looked at."""
    for row, (offset, key) in enumerate(records):
        if key is None:
            continue
        if len(known) >= capacity:
            return row
        known[key] = offset
    return len(records)


def plain_find_offsets(known: dict[bytes, int], keys: list[bytes | None]) -> list[int]:
    """Return the offset of each key, -1 for none."""
    return [ABSENT if key is None else known.get(key, ABSENT) for key in keys]
