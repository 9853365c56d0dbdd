"""Compiled loops that read records. Twins: `tests.twins.records`.

`choose_batches` computes upper bounds, so that the caller can allocate large enough arrays. Then
one pass checks every length and every varint of every record before using it, and either copies
the fields into columns (`decode_records`, whole fields by memcpy) or writes a slot per record
(`locate_records`; see `streamlog.records.slot`).
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import WORD_SIZE
from streamlog.binary.jit import copy_bytes, inlined, int64, kernel, load_word, prefetch, store
from streamlog.binary.varint import (
    SIZE_BITS,
    SIZE_MASK,
    read_short_size,
    read_short_varint,
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
    INTS_HEADERS,
    INTS_KEY,
    INTS_TYPE,
    INTS_VALUE,
    LIMIT_DROP,
    LIMIT_END,
    LIMIT_START,
    LONGS_HEADERS,
    LONGS_OFFSET,
    LONGS_TIMESTAMP,
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
    SURPLUS_BYTES,
    TOTAL_BYTES,
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

__all__ = []

DOUBTFUL: Final = -1  # the end of a record that `skim_record` leaves to `read_any_record`
SLACK: Final = 32  # bytes needed after a skimmed record: five numbers, attributes, one load


class RecordFields(NamedTuple):
    """Result of `read_record`; positions are relative to the bytes it read.

    Attributes:
        end: End of the record, or a negative status; then the other fields are undefined.
        timestamp: As a delta.
        offset: As a delta.
        key: Position of the key.
        key_size: Below 0 for null.
        value: Position of the value.
        value_size: Below 0 for null.
        headers: Position of the headers, after their count.
        header_count: Number of headers.
    """

    end: int
    timestamp: int
    offset: int
    key: int
    key_size: int
    value: int
    value_size: int
    headers: int
    header_count: int


@inlined
def read_record(source: NDArray[np.uint8], position: int, batch_end: int) -> RecordFields:
    """Check the record at `position` completely, and return the positions of its fields.

    Part of the hottest loops. The fast path of nearly all records is compiled into them; a record
    that it cannot decide is read again, slowly.

    Args:
        source: uint8[m], m at least 8; not trusted.
        position: Start of the record, 0 or more.
        batch_end: Where the last record of its batch must end, at most m.
    """
    found = skim_record(source, position, min(batch_end, source.size - SLACK))
    if found.end < 0:
        found = read_any_record(source, position, batch_end)
    return found


@inlined
def skim_record(source: NDArray[np.uint8], position: int, latest_end: int) -> RecordFields:
    """Read the record at `position` if it is sound and its numbers have at most 4 bytes.

    Numbers are loaded before it is known that they lie inside the record: five of them and the
    attributes reach at most `SLACK` after its end, and the sizes of key and value are compared
    with that end. A position never decreases, so one comparison with the end is enough.

    Args:
        source: uint8[m]; not trusted.
        position: Start of the record, 0 or more.
        latest_end: Where it must end, at most m - SLACK.

    Returns:
        Its fields; end DOUBTFUL for any other record.
    """
    if position > latest_end:
        return RecordFields(DOUBTFUL, 0, 0, 0, 0, 0, 0, 0, 0)
    length, width = read_short_size(source, position)
    position += width
    end = position + length
    if width == 0 or length <= 0 or end > latest_end:
        return RecordFields(DOUBTFUL, 0, 0, 0, 0, 0, 0, 0, 0)
    timestamp, width = read_short_varint(source, position + 1)  # after the attributes
    position += 1 + width
    offset, offset_width = read_short_varint(source, position)
    if width == 0 or offset_width == 0:
        return RecordFields(DOUBTFUL, 0, 0, 0, 0, 0, 0, 0, 0)
    position += offset_width
    key_size, width = read_short_size(source, position)
    key = position + width
    if width == 0 or key_size > end - key:
        return RecordFields(DOUBTFUL, 0, 0, 0, 0, 0, 0, 0, 0)
    position = key + max(key_size, 0)
    value_size, width = read_short_size(source, position)
    value = position + width
    if width == 0 or value_size > end - value:
        return RecordFields(DOUBTFUL, 0, 0, 0, 0, 0, 0, 0, 0)
    position = value + max(value_size, 0)
    headers, count = position + 1, 0
    if headers != end or load_word(source, position) & 0xFF != 0:
        headers, count = read_headers(source, position, end)
        if headers < 0:
            return RecordFields(DOUBTFUL, 0, 0, 0, 0, 0, 0, 0, 0)
    return RecordFields(end, timestamp, offset, key, key_size, value, value_size, headers, count)


@kernel
def read_any_record(source: NDArray[np.uint8], position: int, batch_end: int) -> RecordFields:
    """Check the record at `position`, whatever it contains; see `read_record`."""
    number = read_varint(source, position, batch_end)
    position += number & SIZE_MASK
    end = position + (number >> SIZE_BITS)
    if number == 0 or end <= position or end > batch_end:
        return RecordFields(BAD_RECORD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0)
    position += 1  # after the attributes, of which no bit has a meaning yet
    timestamp, size = read_varlong(source, position, end)
    offset = read_varint(source, position + size, end)
    position += size + (offset & SIZE_MASK)
    if size == 0 or offset == 0:
        return RecordFields(BAD_NUMBER, 0, 0, 0, 0, 0, 0, 0, 0)
    number = read_varint(source, position, end)
    key = position + (number & SIZE_MASK)
    key_size = number >> SIZE_BITS
    if number == 0 or key_size > end - key:
        return RecordFields(BAD_FIELD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0)
    position = key + max(key_size, 0)
    number = read_varint(source, position, end)
    value = position + (number & SIZE_MASK)
    value_size = number >> SIZE_BITS
    if number == 0 or value_size > end - value:
        return RecordFields(BAD_FIELD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0)
    headers, count = read_headers(source, value + max(value_size, 0), end)
    return RecordFields(
        end if headers >= 0 else headers,
        timestamp, offset >> SIZE_BITS, key, key_size, value, value_size, headers, count,
    )  # fmt: skip


@kernel
def read_headers(source: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Check the headers at `position`, which must end the record.

    Returns:
        Their start after their count, and the count; or the error, and 0.
    """
    number = read_varint(source, position, end)
    headers = position + (number & SIZE_MASK)
    count = number >> SIZE_BITS
    if number == 0 or count < 0 or count > end - headers:
        return BAD_HEADER_COUNT, 0
    position = headers if count == 0 else skip_headers(source, headers, end, count)
    if position != end:
        return position if position < 0 else BAD_RECORD_END, 0
    return headers, count


@kernel
def skip_headers(source: NDArray[np.uint8], position: int, end: int, count: int) -> int:
    """Check `count` headers from `position` on; return where they end, or the error."""
    for _ in range(count):
        number = read_varint(source, position, end)
        position += number & SIZE_MASK
        size = number >> SIZE_BITS
        if number == 0 or size < 0 or size > end - position:
            return BAD_HEADER_KEY
        position += size
        number = read_varint(source, position, end)
        position += number & SIZE_MASK
        size = number >> SIZE_BITS
        if number == 0 or size > end - position:
            return BAD_FIELD_LENGTH
        position += max(size, 0)
    return position


# The position of a record is known only from the length of the previous one, so reading waits for
# each of them; bytes this far ahead are therefore prefetched.
AHEAD: Final = 1024
CACHE_LINE: Final = 64


@kernel
def choose_batches(
    fields: NDArray[np.int64],
    limits: NDArray[np.int64],
    out_spans: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Find the batches with wanted records, and the positions of these in the buffer.

    Args:
        fields: int64[b, 14], the batches' headers; counts and offsets are not trusted.
        limits: int64[3], see the `LIMIT_…` constants.
        out_spans: int64[b, 2], begin and end of the records; begin -1 for a batch left out.
        out_totals: int64[9]; filled with upper bounds of rows and bytes and with the or-ed
            attributes.

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
        out_totals[TOTAL_BYTES] += end - start
        out_totals[ALL_ATTRIBUTES] |= attributes
    return OK


@kernel
def note_error(out_totals: NDArray[np.int64], batch: int, record: int, status: int) -> int:
    """Record the place of a negative status, and return it."""
    out_totals[ERROR_BATCH] = batch
    out_totals[ERROR_RECORD] = record
    return status


# ---- batches to slots ----------------------------------------------------------------------------
@kernel
def locate_records(
    source: NDArray[np.uint8],
    fields: NDArray[np.int64],
    spans: NDArray[np.int64],
    out_slots: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Check every record of the batches and write its slot.

    Args:
        source: uint8[m], records of the batches, decompressed; not trusted.
        fields: int64[b, 14], the batches' headers; not trusted.
        spans: int64[b, 2], begin and end of each batch's records in `source`; begin -1 to leave a
            batch out.
        out_slots: int64[n, 9], one slot per record; n at least the sum of the counts.
        out_totals: int64[9]; the `ERROR_…` places are filled.

    Returns:
        OK, or the error of the record at the `ERROR_…` places.
    """
    row = 0
    for batch in range(len(spans)):
        position, batch_end = spans[batch, 0], spans[batch, 1]
        if position < 0:
            continue
        if not can_hold(source, position, batch_end):
            return note_error(out_totals, batch, 0, OUT_OF_ROOM)
        is_stamped = fields[batch, ATTRIBUTES] & TIMESTAMP_TYPE_MASK != 0
        for record in range(fields[batch, COUNT]):
            found = read_record(source, position, batch_end)
            if found.end < 0:
                return note_error(out_totals, batch, record, found.end)
            timestamp = fields[batch, BASE_TIMESTAMP] + found.timestamp
            slot = out_slots[row]
            slot[SLOT_OFFSET] = fields[batch, BASE_OFFSET] + found.offset
            slot[SLOT_TIMESTAMP] = fields[batch, MAX_TIMESTAMP] if is_stamped else timestamp
            slot[SLOT_KEY] = found.key
            slot[SLOT_KEY_SIZE] = max(found.key_size, -1)
            slot[SLOT_VALUE] = found.value
            slot[SLOT_VALUE_SIZE] = max(found.value_size, -1)
            slot[SLOT_HEADERS] = found.headers
            slot[SLOT_HEADERS_SIZE] = found.end - found.headers
            slot[SLOT_HEADER_COUNT] = found.header_count
            position = found.end
            row += 1
        if position != batch_end:
            return note_error(out_totals, batch, fields[batch, COUNT], SURPLUS_BYTES)
    return OK


@kernel
def can_hold(source: NDArray[np.uint8], start: int, end: int) -> bool:
    """Return whether `read_record` may read from `start` to `end`."""
    return 0 <= start <= end <= source.size and source.size >= WORD_SIZE


# ---- batches to columns --------------------------------------------------------------------------
Outputs = tuple[
    NDArray[np.int64], NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]
]  # longs, ints, validity, keys, values


@kernel
def decode_records(
    source: NDArray[np.uint8],
    fields: NDArray[np.int64],
    spans: NDArray[np.int64],
    limits: NDArray[np.int64],
    out_longs: NDArray[np.int64],
    out_ints: NDArray[np.int32],
    out_validity: NDArray[np.uint8],
    out_key: NDArray[np.uint8],
    out_value: NDArray[np.uint8],
    out_totals: NDArray[np.int64],
) -> int:
    """Check every record of the batches and copy the wanted ones into columns.

    Args:
        source: uint8[m], records of the batches, decompressed; not trusted.
        fields: int64[b, 14], the batches' headers; not trusted.
        spans: int64[b, 2], begin and end of each batch's records in `source`; begin -1 to leave a
            batch out.
        limits: int64[3], see the `LIMIT_…` constants.
        out_longs: int64[3, n], see the `LONGS_…` constants; n at least the sum of the counts.
        out_ints: int32[4, n + 1], see the `INTS_…` constants.
        out_validity: uint8[2, ceil(n / 8)], all ones; the bit of a null key (row 0) or value
            (row 1) is cleared, in Arrow's order.
        out_key: uint8[k], room for all keys; k 0 to leave them out.
        out_value: uint8[v], room for all values; v 0 to leave them out.
        out_totals: int64[9], see the `TOTAL_…` and `ERROR_…` constants; initially zeros.

    Returns:
        OK, or the error of the record at the `ERROR_…` places; OUT_OF_ROOM if a column is too
        short.
    """
    out_ints[:INTS_TYPE, 0] = 0
    outputs = out_longs, out_ints, out_validity, out_key, out_value
    row = 0
    for batch in range(len(spans)):
        start, end = spans[batch, 0], spans[batch, 1]
        if start < 0:
            continue
        has_room = fields[batch, COUNT] < out_ints.shape[1] - row <= out_longs.shape[1] + 1 - row
        if not (can_hold(source, start, end) and has_room):
            return note_error(out_totals, batch, 0, OUT_OF_ROOM)
        end = decode_batch(source, fields, spans, limits, batch, row, outputs, out_totals)
        if end < 0:
            return end
        is_stamped = fields[batch, ATTRIBUTES] & TIMESTAMP_TYPE_MASK != 0
        out_ints[INTS_TYPE, row:end] = is_stamped
        if is_stamped:
            out_longs[LONGS_TIMESTAMP, row:end] = fields[batch, MAX_TIMESTAMP]
        row = end
    out_totals[TOTAL_ROWS] = row
    out_totals[TOTAL_KEY_BYTES] = out_ints[INTS_KEY, row]
    out_totals[TOTAL_VALUE_BYTES] = out_ints[INTS_VALUE, row]
    return OK


@kernel
def decode_batch(
    source: NDArray[np.uint8],
    fields: NDArray[np.int64],
    spans: NDArray[np.int64],
    limits: NDArray[np.int64],
    index: int,
    row: int,
    outputs: Outputs,
    out_totals: NDArray[np.int64],
) -> int:
    """Check the records of batch `index` and copy the wanted ones, from `row` on, if there is room.

    Returns:
        The row after the last, or the error of the record at the `ERROR_…` places.
    """
    out_longs, out_ints, validity, out_key, out_value = outputs
    batch, position, batch_end = fields[index], spans[index, 0], spans[index, 1]
    offsets, times = out_longs[LONGS_OFFSET], out_longs[LONGS_TIMESTAMP]
    header_places, header_counts = out_longs[LONGS_HEADERS], out_ints[INTS_HEADERS]
    keys, values = out_ints[INTS_KEY], out_ints[INTS_VALUE]
    start_offset, end_offset = limits[LIMIT_START], limits[LIMIT_END]
    base_offset, base_timestamp = batch[BASE_OFFSET], batch[BASE_TIMESTAMP]
    key_end, value_end, headers = int64(keys[row]), int64(values[row]), int64(header_counts[row])
    for record in range(batch[COUNT]):
        prefetch(source, position + AHEAD)
        prefetch(source, position + AHEAD + CACHE_LINE)
        found = read_record(source, position, batch_end)
        position = found.end
        if position < 0:
            return note_error(out_totals, index, record, position)
        offset = base_offset + found.offset
        if not start_offset <= offset < end_offset:
            continue
        store(offsets, row, offset)
        store(times, row, base_timestamp + found.timestamp)
        store(header_places, row, found.headers)
        key_end = take_field(source, found.key, found.key_size, out_key, key_end)
        value_end = take_field(source, found.value, found.value_size, out_value, value_end)
        if key_end < 0 or value_end < 0:
            return OUT_OF_ROOM
        if found.key_size < 0 or found.value_size < 0:
            note_nulls(found, row, validity, out_totals)
        headers += found.header_count
        row += 1
        store(keys, row, key_end)
        store(values, row, value_end)
        store(header_counts, row, headers)
    if position != batch_end:
        return note_error(out_totals, index, batch[COUNT], SURPLUS_BYTES)
    return row


@inlined
def take_field(
    source: NDArray[np.uint8], position: int, size: int, out_data: NDArray[np.uint8], filled: int
) -> int:
    """Do the same as `copy_field` if there is room for the column at all."""
    if out_data.size > 0:
        filled = copy_field(source, position, size, out_data, filled)
    return filled


@inlined
def note_nulls(
    found: RecordFields, row: int, out_validity: NDArray[np.uint8], out_totals: NDArray[np.int64]
) -> None:
    """Count and mark the null fields of a record."""
    if found.key_size < 0:
        out_totals[TOTAL_KEY_NULLS] += 1
        out_validity[0, row >> 3] &= 0xFF ^ 1 << (row & 7)
    if found.value_size < 0:
        out_totals[TOTAL_VALUE_NULLS] += 1
        out_validity[1, row >> 3] &= 0xFF ^ 1 << (row & 7)


# ---- slots to columns ----------------------------------------------------------------------------
@inlined
def copy_field(
    source: NDArray[np.uint8], position: int, size: int, out_data: NDArray[np.uint8], filled: int
) -> int:
    """Copy one field (size -1: null) after the `filled` bytes; return the new number of bytes.

    Checks both ranges, since memcpy checks nothing; OUT_OF_ROOM if one is too short.
    """
    if size <= 0:
        return filled
    if position < 0 or size > source.size - position or size > out_data.size - filled:
        return OUT_OF_ROOM
    copy_bytes(out_data, filled, source, position, size)
    return filled + size


@kernel
def copy_headers(
    source: NDArray[np.uint8],
    positions: NDArray[np.int64],
    offsets: NDArray[np.int32],
    out_offsets: NDArray[np.int32],
    out_validity: NDArray[np.uint8],
    out_key: NDArray[np.uint8],
    out_value: NDArray[np.uint8],
    out_totals: NDArray[np.int64],
) -> int:
    """Gather the headers of checked records into Arrow's binary layout; without room, measure them.

    A header takes at least two bytes, so nothing wider than its two offsets is kept of each.

    Args:
        source: uint8[m], the bytes that hold the headers, checked.
        positions: int64[n], start of the headers of each record.
        offsets: int32[n + 1], the first header of each record.
        out_offsets: int32[2, h + 1], of keys and of values; int32[2, 0] only measures.
        out_validity: uint8[ceil(h / 8)], one bit per value, all set.
        out_key: uint8[k], k the bytes of all keys.
        out_value: uint8[v], v the bytes of all values.
        out_totals: int64[3], which becomes k, v and the number of null values.

    Returns:
        The number of headers, or OUT_OF_ROOM.
    """
    copies = out_offsets.shape[1] > 0
    out_totals[:] = 0
    if copies:
        out_offsets[:, 0] = 0
    count = 0
    for row in range(len(positions)):
        position = positions[row]
        for _ in range(offsets[row + 1] - offsets[row]):
            for field in range(2):
                number = read_varint(source, position, source.size)
                position += number & SIZE_MASK
                size = number >> SIZE_BITS
                filled = out_totals[field]
                out_totals[field] = filled + max(size, 0)
                if field == 1 and size < 0:
                    out_totals[2] += 1
                if copies:
                    room = out_key if field == 0 else out_value
                    if copy_field(source, position, size, room, filled) < 0:
                        return OUT_OF_ROOM
                    out_offsets[field, count + 1] = out_totals[field]
                    if field == 1 and size < 0:
                        out_validity[count >> 3] &= 0xFF ^ 1 << (count & 7)
                position += max(size, 0)
            count += 1
    return count
