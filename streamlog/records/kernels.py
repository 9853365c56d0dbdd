"""Compiled loops that read records. Twins in plain Python: `streamlog.records.reference`.

Reading goes in two steps. *Checking* (`choose_batches`, `locate_records`) looks at every length
and every varint before it uses it, allocates nothing, and leaves a slot per record
(`streamlog.records.slot`). *Copying* (`copy_column`, `locate_headers`) then moves whole fields by
memcpy into arrays that were sized from the checked totals.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import copy_bytes, inlined, kernel
from streamlog.binary.varint import (
    SIZE_BITS,
    SIZE_MASK,
    find_varlong,
    read_varint,
    read_varlong,
)
from streamlog.records.layout import (
    COMPRESSION_MASK,
    MIN_RECORD_SIZE,
    RECORDS_OFFSET,
    TIMESTAMP_TYPE_MASK,
)
from streamlog.records.slot import (
    ALL_ATTRIBUTES,
    BAD_COUNT,
    BAD_FIELD_LENGTH,
    BAD_HEADER_COUNT,
    BAD_HEADER_KEY,
    BAD_NUMBER,
    BAD_RECORD_END,
    BAD_RECORD_LENGTH,
    ERROR_BATCH,
    ERROR_RECORD,
    OK,
    OUT_OF_ROOM,
    SLOT_HEADER_COUNT,
    SLOT_HEADERS,
    SLOT_HEADERS_SIZE,
    SLOT_KEY,
    SLOT_KEY_SIZE,
    SLOT_OFFSET,
    SLOT_TIMESTAMP,
    SLOT_VALUE,
    SLOT_VALUE_SIZE,
    SLOT_WIDTH,
    SURPLUS_BYTES,
    TOTAL_HEADER_KEY_BYTES,
    TOTAL_HEADER_VALUE_BYTES,
    TOTAL_HEADER_VALUE_NULLS,
    TOTAL_HEADERS,
    TOTAL_KEY_BYTES,
    TOTAL_KEY_NULLS,
    TOTAL_ROWS,
    TOTAL_VALUE_BYTES,
    TOTAL_VALUE_NULLS,
)
from streamlog.records.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    SIZE,
)

# What `choose_batches` is told: int64[3].
LIMIT_START: Final = 0  # first offset wanted
LIMIT_END: Final = 1  # first offset no longer wanted
LIMIT_DROP: Final = 2  # attribute bits of the batches to leave out


@kernel
def choose_batches(
    fields: NDArray[np.int64],
    limits: NDArray[np.int64],
    out_spans: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Find out which batches hold wanted records, and where in the buffer these lie.

    Args:
        fields: int64[b, 14], the batches' headers; counts and offsets are not trusted.
        limits: int64[3], see the `LIMIT_…` constants.
        out_spans: int64[b, 2], begin and end of the records; begin -1 for a batch left out.
        out_totals: int64[12]; the rows there may be and the attributes or-ed are filled.

    Returns:
        OK, or BAD_COUNT for an uncompressed batch too short for its record count.
    """
    for batch in range(len(fields)):
        count, attributes = fields[batch, COUNT], fields[batch, ATTRIBUTES]
        start = fields[batch, POSITION] + RECORDS_OFFSET
        end = fields[batch, POSITION] + fields[batch, SIZE]
        out_spans[batch, 0] = -1
        out_spans[batch, 1] = -1
        if count <= 0 or attributes & limits[LIMIT_DROP]:
            continue
        if fields[batch, LAST_OFFSET] < limits[LIMIT_START]:
            continue
        if fields[batch, BASE_OFFSET] >= limits[LIMIT_END]:
            continue
        if not attributes & COMPRESSION_MASK and count > (end - start) // MIN_RECORD_SIZE:
            return note_error(out_totals, batch, count, BAD_COUNT)
        out_spans[batch, 0] = start
        out_spans[batch, 1] = end
        out_totals[TOTAL_ROWS] += count
        out_totals[ALL_ATTRIBUTES] |= attributes
    return OK


@kernel
def note_error(out_totals: NDArray[np.int64], batch: int, record: int, status: int) -> int:
    """Note where a negative status arose, and return it."""
    out_totals[ERROR_BATCH] = batch
    out_totals[ERROR_RECORD] = record
    return status


@kernel
def locate_records(
    source: NDArray[np.uint8],
    fields: NDArray[np.int64],
    spans: NDArray[np.int64],
    limits: NDArray[np.int64],
    out_slots: NDArray[np.int64],
    out_rows: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Check every record of the batches and note where the wanted ones lie.

    Args:
        source: uint8[m], records of the batches, decompressed; not trusted.
        fields: int64[b, 14], the batches' headers; not trusted.
        spans: int64[b, 2], where each batch's records begin and end in `source`, inside it;
            begin -1 to leave a batch out.
        limits: int64[3], see the `LIMIT_…` constants.
        out_slots: int64[n * 9], a slot a wanted record; n at least the sum of the counts.
        out_rows: int64[b], wanted records of each batch.
        out_totals: int64[12], what the `TOTAL_…` and `ERROR_…` constants name; zeros at first.

    Returns:
        OK, or what is wrong with the record at the `ERROR_…` places.
    """
    row = 0
    for batch in range(len(spans)):
        out_rows[batch] = 0
        if spans[batch, 0] < 0:
            continue
        out_totals[ERROR_BATCH] = batch
        count = fields[batch, COUNT]
        slot = row * SLOT_WIDTH
        status = locate_batch(
            source, spans[batch, 0], spans[batch, 1], count, slot, out_slots, out_totals
        )
        if status != OK:
            return status
        out_rows[batch] = keep_wanted(fields[batch], limits, slot, out_slots, out_totals)
        row += out_rows[batch]
    out_totals[TOTAL_ROWS] = row
    if out_totals[TOTAL_HEADERS] > 0:
        return check_headers(source, out_slots, out_rows, out_totals)
    return OK


@kernel
def locate_batch(
    source: NDArray[np.uint8],
    position: int,
    batch_end: int,
    count: int,
    slot: int,
    out_slots: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Check `count` records from `position` on, but not their headers, and fill their slots.

    This is the hottest loop of all: nothing but varints is called here, not even for what is
    rare, as a call that is never taken already makes it half as slow again.

    Args:
        source: uint8[m], with the records up to `batch_end`.
        position: Where the first record begins.
        batch_end: Where the last one must end.
        count: How many there must be.
        slot: Where in `out_slots` the first slot begins.
        out_slots: int64[n * 9]; offsets and timestamps are still deltas.
        out_totals: int64[12], of which ERROR_RECORD is filled.

    Returns:
        OK, or what is wrong with the record at ERROR_RECORD.
    """
    for record in range(count):
        out_totals[ERROR_RECORD] = record
        number = read_varint(source, position, batch_end)
        position += number & SIZE_MASK
        length = number >> SIZE_BITS
        if number == 0 or length < 1 or length > batch_end - position:
            return BAD_RECORD_LENGTH
        end = position + length
        position += 1  # behind the attributes, of which no bit means anything yet
        size = find_varlong(source, position, end)
        if size == 0:
            return BAD_NUMBER
        out_slots[slot + SLOT_TIMESTAMP] = read_varlong(source, position, size)
        number = read_varint(source, position + size, end)
        position += size + (number & SIZE_MASK)
        if number == 0:
            return BAD_NUMBER
        out_slots[slot + SLOT_OFFSET] = number >> SIZE_BITS
        number = read_varint(source, position, end)
        position += number & SIZE_MASK
        size = number >> SIZE_BITS
        if number == 0 or size > end - position:
            return BAD_FIELD_LENGTH
        out_slots[slot + SLOT_KEY] = position
        out_slots[slot + SLOT_KEY_SIZE] = max(size, -1)
        position += max(size, 0)
        number = read_varint(source, position, end)
        position += number & SIZE_MASK
        size = number >> SIZE_BITS
        if number == 0 or size > end - position:
            return BAD_FIELD_LENGTH
        out_slots[slot + SLOT_VALUE] = position
        out_slots[slot + SLOT_VALUE_SIZE] = max(size, -1)
        position += max(size, 0)
        number = read_varint(source, position, end)
        position += number & SIZE_MASK
        size = number >> SIZE_BITS
        if number == 0 or size < 0 or size > end - position:
            return BAD_HEADER_COUNT
        out_slots[slot + SLOT_HEADERS] = position
        out_slots[slot + SLOT_HEADERS_SIZE] = end - position
        out_slots[slot + SLOT_HEADER_COUNT] = size
        if size == 0 and position != end:
            return BAD_RECORD_END
        position = end
        slot += SLOT_WIDTH
    return OK if position == batch_end else SURPLUS_BYTES


@kernel
def keep_wanted(
    batch: NDArray[np.int64],
    limits: NDArray[np.int64],
    slot: int,
    out_slots: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Turn the deltas of a batch's slots into values, keep the wanted slots, and add them up.

    Args:
        batch: int64[14], the batch's header.
        limits: int64[3], see the `LIMIT_…` constants.
        slot: Where in `out_slots` its first slot begins.
        out_slots: int64[n * 9], changed in place.
        out_totals: int64[12], of which the totals grow.

    Returns:
        How many slots there are now.
    """
    key_bytes = key_nulls = value_bytes = value_nulls = headers = 0
    is_stamped = batch[ATTRIBUTES] & TIMESTAMP_TYPE_MASK != 0
    kept = slot
    for start in range(slot, slot + batch[COUNT] * SLOT_WIDTH, SLOT_WIDTH):
        offset = batch[BASE_OFFSET] + out_slots[start + SLOT_OFFSET]
        if offset < limits[LIMIT_START] or offset >= limits[LIMIT_END]:
            continue
        timestamp = batch[BASE_TIMESTAMP] + out_slots[start + SLOT_TIMESTAMP]
        if kept != start:
            for place in range(SLOT_KEY, SLOT_WIDTH):
                out_slots[kept + place] = out_slots[start + place]
        out_slots[kept + SLOT_OFFSET] = offset
        out_slots[kept + SLOT_TIMESTAMP] = batch[MAX_TIMESTAMP] if is_stamped else timestamp
        size = out_slots[kept + SLOT_KEY_SIZE]
        key_bytes += max(size, 0)
        key_nulls += size < 0
        size = out_slots[kept + SLOT_VALUE_SIZE]
        value_bytes += max(size, 0)
        value_nulls += size < 0
        headers += out_slots[kept + SLOT_HEADER_COUNT]
        kept += SLOT_WIDTH
    out_totals[TOTAL_KEY_BYTES] += key_bytes
    out_totals[TOTAL_KEY_NULLS] += key_nulls
    out_totals[TOTAL_VALUE_BYTES] += value_bytes
    out_totals[TOTAL_VALUE_NULLS] += value_nulls
    out_totals[TOTAL_HEADERS] += headers
    return (kept - slot) // SLOT_WIDTH


@kernel
def check_headers(
    source: NDArray[np.uint8],
    slots: NDArray[np.int64],
    rows: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Check the headers of all slots and add up their sizes.

    Args:
        source: uint8[m], the bytes the slots point into.
        slots: int64[n * 9].
        rows: int64[b], how many slots belong to each batch.
        out_totals: int64[12], of which the totals grow.

    Returns:
        OK, or what is wrong with the record at the `ERROR_…` places.
    """
    slot = 0
    for batch in range(len(rows)):
        out_totals[ERROR_BATCH] = batch
        for record in range(rows[batch]):
            out_totals[ERROR_RECORD] = record
            position = slots[slot + SLOT_HEADERS]
            end = position + slots[slot + SLOT_HEADERS_SIZE]
            for _ in range(slots[slot + SLOT_HEADER_COUNT]):
                number = read_varint(source, position, end)
                position += number & SIZE_MASK
                size = number >> SIZE_BITS
                if number == 0 or size < 0 or size > end - position:
                    return BAD_HEADER_KEY
                out_totals[TOTAL_HEADER_KEY_BYTES] += size
                position += size
                number = read_varint(source, position, end)
                position += number & SIZE_MASK
                size = number >> SIZE_BITS
                if number == 0 or size > end - position:
                    return BAD_FIELD_LENGTH
                out_totals[TOTAL_HEADER_VALUE_BYTES] += max(size, 0)
                out_totals[TOTAL_HEADER_VALUE_NULLS] += size < 0
                position += max(size, 0)
            if position != end:
                return BAD_RECORD_END
            slot += SLOT_WIDTH
    return OK


# ---- slots to columns ----------------------------------------------------------------------------
@inlined
def copy_field(
    source: NDArray[np.uint8], position: int, size: int, out_data: NDArray[np.uint8], filled: int
) -> int:
    """Copy one field (size -1: null) behind the `filled` bytes; return how many there are now.

    Both ranges are checked here, as memcpy checks nothing; OUT_OF_ROOM if one is too short.
    """
    if size <= 0:
        return filled
    if position < 0 or size > source.size - position or size > out_data.size - filled:
        return OUT_OF_ROOM
    copy_bytes(out_data, filled, source, position, size)
    return filled + size


@kernel
def copy_column(
    source: NDArray[np.uint8],
    slots: NDArray[np.int64],
    place: int,
    out_offsets: NDArray[np.int32],
    out_data: NDArray[np.uint8],
) -> int:
    """Gather one field of all slots into Arrow's binary layout.

    Args:
        source: uint8[m], the bytes the slots point into.
        slots: int64[n, 9].
        place: SLOT_KEY or SLOT_VALUE.
        out_offsets: int32[n + 1].
        out_data: uint8[k], k the total of the sizes.

    Returns:
        The bytes copied, or OUT_OF_ROOM.
    """
    filled = 0
    out_offsets[0] = 0
    for row in range(len(slots)):
        filled = copy_field(source, slots[row, place], slots[row, place + 1], out_data, filled)
        if filled < 0:
            return OUT_OF_ROOM
        out_offsets[row + 1] = filled
    return filled


@kernel
def copy_validity(slots: NDArray[np.int64], place: int, out_validity: NDArray[np.uint8]) -> int:
    """Set a bit per slot whose field is not null, in Arrow's order; return the number of nulls.

    `out_validity` is uint8[ceil(n / 8)] and zero at first.
    """
    nulls = 0
    for row in range(len(slots)):
        if slots[row, place + 1] < 0:
            nulls += 1
        else:
            out_validity[row >> 3] |= 1 << (row & 7)
    return nulls


@kernel
def locate_headers(
    source: NDArray[np.uint8],
    slots: NDArray[np.int64],
    out_offsets: NDArray[np.int32],
    out_slots: NDArray[np.int64],
) -> int:
    """Make a slot per header of the checked records, its key as key and its value as value.

    Args:
        source: uint8[m], the bytes the slots point into.
        slots: int64[n, 9], checked records.
        out_offsets: int32[n + 1], filled with the first header of each record.
        out_slots: int64[h, 9], h the total of the header counts; key and value are filled.

    Returns:
        The number of headers.
    """
    count = 0
    out_offsets[0] = 0
    for row in range(len(slots)):
        position = slots[row, SLOT_HEADERS]
        end = position + slots[row, SLOT_HEADERS_SIZE]
        for _ in range(slots[row, SLOT_HEADER_COUNT]):
            for place in range(SLOT_KEY, SLOT_HEADERS, 2):
                number = read_varint(source, position, end)
                position += number & SIZE_MASK
                size = number >> SIZE_BITS
                out_slots[count, place] = position
                out_slots[count, place + 1] = max(size, -1)
                position += max(size, 0)
            count += 1
        out_offsets[row + 1] = count
    return count
