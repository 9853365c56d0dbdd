"""The compiled loops of the offset map, see `offset_map`."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import inlined, kernel
from streamlog.binary.siphash import siphash
from streamlog.records.layout import MAX_INT32
from streamlog.records.slot import (
    OK,
    OUT_OF_ROOM,
    SLOT_KEY,
    SLOT_KEY_SIZE,
    SLOT_OFFSET,
    SLOT_VALUE_SIZE,
)

# A place of the map, int64[places, 3]; it is free if its offset is 0.
PLACE_LOW: Final = 0  # the first half of the hash
PLACE_HIGH: Final = 1  # the second
PLACE_OFFSET: Final = 2  # plus one, so that fresh memory is free places
PLACE_WIDTH: Final = 3

# The state of the map: int64[4].
STATE_SIZE: Final = 0  # keys in the map
STATE_LATEST: Final = 1  # the offset put last
STATE_START: Final = 2  # the offset of the bitmap's first bit
STATE_MET: Final = 3  # without meaning, see `fetch_places`

# The rule for the records of a batch.
ALL_GO: Final = 0
ALL_STAY: Final = 1
LAST_STAY: Final = 2  # those that are the last of their key
LAST_VALUES_STAY: Final = 3  # of these, those with a value

# Counts of a batch: int64[b, 2].
COUNT_KEPT: Final = 0
COUNT_TOMBSTONES: Final = 1  # of those kept
COUNT_WIDTH: Final = 2

BLOCK: Final = 64  # records whose places are fetched together


@inlined
def first_place(places: NDArray[np.int64], low: int) -> int:
    """Return the place where the search for a hash begins: 31 of its bits, scaled to the places."""
    return (low & MAX_INT32) * len(places) >> 31


@inlined
def find_place(places: NDArray[np.int64], low: int, high: int) -> int:
    """Return the place of a hash, or the free place for it; at least one place is always free."""
    place = first_place(places, low)
    while places[place, PLACE_OFFSET] != 0:
        if places[place, PLACE_LOW] == low and places[place, PLACE_HIGH] == high:
            break
        place += 1
        if place == len(places):
            place = 0
    return place


@inlined
def hash_key(
    source: NDArray[np.uint8],
    slots: NDArray[np.int64],
    row: int,
    secret: NDArray[np.int64],
    hashes: NDArray[np.int64],
) -> int:
    """Hash the key of a record, which must have one, into its row of a block's int64[BLOCK, 2].

    Returns:
        OK, or OUT_OF_ROOM if the key is outside `source`.
    """
    start, size = slots[row, SLOT_KEY], slots[row, SLOT_KEY_SIZE]
    if start < 0 or size > source.size - start:
        return OUT_OF_ROOM
    low, high = siphash(source, start, start + size, secret[0], secret[1])
    hashes[row % BLOCK, 0], hashes[row % BLOCK, 1] = low, high
    return OK


@kernel
def fetch_places(
    hashes: NDArray[np.int64], wanted: NDArray[np.bool_], count: int, places: NDArray[np.int64]
) -> int:
    """Bring the places of a block's hashes into the processor's cache, many at a time.

    A search waits for memory, and a branch depends on the value, so searches wait one after
    another. Reads without a dependent branch wait in parallel.

    Returns:
        A number without meaning, which keeps the compiler from removing the reads.
    """
    met = 0
    for at in range(count):
        if wanted[at]:
            place = first_place(places, hashes[at, 0])
            met |= places[place, PLACE_LOW] ^ places[place, PLACE_OFFSET]
    return met


@kernel
def put_keys(
    source: NDArray[np.uint8],
    slots: NDArray[np.int64],
    rows: NDArray[np.int64],
    is_taken: NDArray[np.bool_],
    start: int,
    secret: NDArray[np.int64],
    capacity: int,
    places: NDArray[np.int64],
    overtaken: NDArray[np.uint8],
    state: NDArray[np.int64],
    hashes: NDArray[np.int64],
    wanted: NDArray[np.bool_],
) -> int:
    """Put the offsets of records with a key into the map, until it is full.

    Args:
        source: uint8[m], m at least 8, the bytes the slots point into.
        slots: int64[n, 9].
        rows: int64[b], the number of records of each batch.
        is_taken: bool[b], whether the records of a batch are put.
        start: Records below this offset are skipped; the same in each call.
        secret: int64[2], the key of the hash.
        capacity: The maximum number of keys, less than the number of places.
        places: int64[p, 3], changed.
        overtaken: uint8[q], changed: a bit per offset from the map's start on, set once a later
            record of its key is put. Offsets after its end have no bit.
        state: int64[4], changed.
        hashes: int64[BLOCK, 2], scratch memory.
        wanted: bool[BLOCK], scratch memory.

    Returns:
        The number of records handled: all, or those before the first that does not fit; or
        OUT_OF_ROOM if a key is outside `source`.

    Source: Cleaner.buildOffsetMapForSegment, SkimpyOffsetMap.put.
    """
    state[STATE_START] = start
    batch, batch_end = -1, 0
    for block in range(0, len(slots), BLOCK):
        end = min(block + BLOCK, len(slots))
        for row in range(block, end):
            while row >= batch_end:
                batch += 1
                batch_end += rows[batch]
            is_wanted = slots[row, SLOT_KEY_SIZE] >= 0 and slots[row, SLOT_OFFSET] >= start
            wanted[row % BLOCK] = is_wanted and is_taken[batch]
            if wanted[row % BLOCK]:
                status = hash_key(source, slots, row, secret, hashes)
                if status != OK:
                    return status
        state[STATE_MET] |= fetch_places(hashes, wanted, end - block, places)
        for row in range(block, end):
            if not wanted[row % BLOCK]:
                continue
            if state[STATE_SIZE] >= capacity:
                return row
            put_offset(slots[row, SLOT_OFFSET], hashes[row % BLOCK], places, overtaken, state)
    return len(slots)


@inlined
def put_offset(
    offset: int,
    found: NDArray[np.int64],
    places: NDArray[np.int64],
    overtaken: NDArray[np.uint8],
    state: NDArray[np.int64],
) -> None:
    """Put an offset at the place of a hash, int64[2]; set the bit of the offset it replaces."""
    place = find_place(places, found[0], found[1])
    before = places[place, PLACE_OFFSET] - 1
    if before < 0:
        places[place, PLACE_LOW], places[place, PLACE_HIGH] = found[0], found[1]
        state[STATE_SIZE] += 1
    elif before - state[STATE_START] < 8 * overtaken.size:
        bit = before - state[STATE_START]
        overtaken[bit >> 3] |= 1 << (bit & 7)
    places[place, PLACE_OFFSET] = offset + 1
    state[STATE_LATEST] = offset


@kernel
def choose_records(
    source: NDArray[np.uint8],
    slots: NDArray[np.int64],
    rows: NDArray[np.int64],
    ways: NDArray[np.int64],
    secret: NDArray[np.int64],
    places: NDArray[np.int64],
    overtaken: NDArray[np.uint8],
    state: NDArray[np.int64],
    hashes: NDArray[np.int64],
    wanted: NDArray[np.bool_],
    out_keep: NDArray[np.bool_],
    out_counts: NDArray[np.int64],
) -> int:
    """Decide of each record whether it stays.

    One bit decides about records within the bitmap; records before or after it are looked up by
    the hash of their key.

    Args:
        source: uint8[m], m at least 8, the bytes the slots point into.
        slots: int64[n, 9].
        rows: int64[b], the number of records of each batch.
        ways: int64[b], the rule for each batch's records, ALL_GO to LAST_VALUES_STAY.
        secret: int64[2], the key of the hash.
        places: int64[p, 3], the map's places.
        overtaken: uint8[q], see `put_keys`.
        state: int64[4]; only STATE_MET changes.
        hashes: int64[BLOCK, 2], scratch memory.
        wanted: bool[BLOCK], scratch memory.
        out_keep: bool[n].
        out_counts: int64[b, 2], of each batch the records that stay and the tombstones among them.

    Returns:
        OK, or OUT_OF_ROOM if a key is outside `source`.

    Source: Cleaner.shouldRetainRecord.
    """
    out_counts[:] = 0
    batch, batch_end, latest = -1, 0, state[STATE_LATEST]
    for block in range(0, len(slots), BLOCK):
        end, first_batch, first_end = min(block + BLOCK, len(slots)), batch, batch_end
        for row in range(block, end):
            while row >= batch_end:
                batch += 1
                batch_end += rows[batch]
            way, offset = ways[batch], slots[row, SLOT_OFFSET]
            out_keep[row] = way == ALL_STAY or (way != ALL_GO and offset > latest)
            wanted[row % BLOCK] = False
            if way >= LAST_STAY and offset <= latest and slots[row, SLOT_KEY_SIZE] >= 0:
                if way == LAST_VALUES_STAY and slots[row, SLOT_VALUE_SIZE] < 0:
                    continue
                bit = offset - state[STATE_START]
                if 0 <= bit < 8 * overtaken.size:
                    out_keep[row] = overtaken[bit >> 3] >> (bit & 7) & 1 == 0
                    continue
                wanted[row % BLOCK] = True
                status = hash_key(source, slots, row, secret, hashes)
                if status != OK:
                    return status
        state[STATE_MET] |= fetch_places(hashes, wanted, end - block, places)
        batch, batch_end = first_batch, first_end
        for row in range(block, end):
            while row >= batch_end:
                batch += 1
                batch_end += rows[batch]
            if wanted[row % BLOCK]:
                place = find_place(places, hashes[row % BLOCK, 0], hashes[row % BLOCK, 1])
                out_keep[row] = slots[row, SLOT_OFFSET] >= places[place, PLACE_OFFSET] - 1
            if out_keep[row]:
                out_counts[batch, COUNT_KEPT] += 1
                out_counts[batch, COUNT_TOMBSTONES] += slots[row, SLOT_VALUE_SIZE] < 0
    return OK
