"""Compiled loops over batches and records. Twins in plain Python: `streamlog.records.reference`.

Reading goes in two steps. *Checking* (`scan_batches`, `locate_records`) looks at every length
and every varint before it uses it, allocates nothing, and leaves a *slot* per record: where its
fields lie. *Copying* (`copy_column`, `copy_headers`) then moves whole fields by memcpy into
arrays that were sized from the checked totals. Writing goes the other way: slots are made from
columns (`slot_column`, `write_header_fields`), cut into batches (`plan_batches`) and written out
(`write_records`, `write_headers`).

A slot is a row of int64[n, 9]; its places are the `SLOT_…` constants below. Sizes are -1 for
null, positions are relative to the array that holds the bytes.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.big_endian import (
    read_int8,
    read_int16,
    read_int32,
    read_int64,
    write_int8,
    write_int16,
    write_int32,
    write_int64,
)
from streamlog.binary.jit import copy_bytes, inlined, kernel
from streamlog.binary.varint import (
    SIZE_BITS,
    SIZE_MASK,
    read_long_varlong,
    read_short_varlong,
    read_varint,
    size_of_varlong,
    write_varlong,
)
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    BASE_OFFSET_OFFSET,
    BASE_SEQUENCE_OFFSET,
    BASE_TIMESTAMP_OFFSET,
    CRC_OFFSET,
    CURRENT_MAGIC,
    HEADER_SIZE_UP_TO_MAGIC,
    LAST_OFFSET_DELTA_OFFSET,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAX_INT32,
    MAX_INT64,
    MAX_TIMESTAMP_OFFSET,
    MIN_BATCH_LENGTH,
    MIN_LEGACY_LENGTH,
    PARTITION_LEADER_EPOCH_OFFSET,
    PRODUCER_EPOCH_OFFSET,
    PRODUCER_ID_OFFSET,
    RECORD_BATCH_OVERHEAD,
    RECORDS_COUNT_OFFSET,
    RECORDS_OFFSET,
    TIMESTAMP_TYPE_MASK,
)
from streamlog.records.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    COUNT,
    CRC,
    LAST_OFFSET,
    LEADER_EPOCH,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
)

# ---- a slot -----------------------------------------------------------------------------------
SLOT_OFFSET: Final = 0
SLOT_TIMESTAMP: Final = 1
SLOT_KEY: Final = 2  # position; the size is in the next place, as for value and headers
SLOT_VALUE: Final = 4
SLOT_HEADERS: Final = 6  # position and size of all headers, their count excluded
SLOT_HEADER_COUNT: Final = 8
SLOT_WIDTH: Final = 9

# ---- what `locate_records` counts ---------------------------------------------------------------
TOTAL_ROWS: Final = 0
TOTAL_KEY_BYTES: Final = 1
TOTAL_KEY_NULLS: Final = 2
TOTAL_VALUE_BYTES: Final = 3
TOTAL_VALUE_NULLS: Final = 4
TOTAL_HEADERS: Final = 5
TOTAL_HEADER_KEY_BYTES: Final = 6
TOTAL_HEADER_VALUE_BYTES: Final = 7
TOTAL_HEADER_VALUE_NULLS: Final = 8
ERROR_BATCH: Final = 9  # where a negative status arose
ERROR_RECORD: Final = 10  # in that batch
TOTALS_WIDTH: Final = 11

# ---- Utils.murmur2 of org.apache.kafka.common.utils ---------------------------------------------
MURMUR_SEED: Final = 0x9747B28C
MURMUR_FACTOR: Final = 0x5BD1E995

# ---- status ----------------------------------------------------------------------------------
OK: Final = 0
BAD_RECORD_LENGTH: Final = -1
BAD_NUMBER: Final = -2
BAD_FIELD_LENGTH: Final = -3
BAD_HEADER_COUNT: Final = -4
BAD_HEADER_KEY: Final = -5
BAD_RECORD_END: Final = -6
SURPLUS_BYTES: Final = -7
OUT_OF_ROOM: Final = -8
RECORD_TOO_LARGE: Final = -9

# ---- how a scan may stop; the values of ScanStop -------------------------------------------------
END: Final = 0
PARTIAL: Final = 1
BAD_LENGTH: Final = 2
BAD_MAGIC: Final = 3
BAD_HEADER: Final = 4


# ---- batches -----------------------------------------------------------------------------------
@kernel
def count_batches(buffer: NDArray[np.uint8]) -> int:
    """Return how many batches `scan_batches` would find at most, going by their lengths."""
    count = 0
    position = 0
    while buffer.size - position > HEADER_SIZE_UP_TO_MAGIC:
        length = read_int32(buffer, position + LENGTH_OFFSET)
        if length < MIN_BATCH_LENGTH or length > buffer.size - position - LOG_OVERHEAD:
            break
        position += LOG_OVERHEAD + length
        count += 1
    return count


@kernel
def scan_batches(
    buffer: NDArray[np.uint8], out_fields: NDArray[np.int64], out_counts: NDArray[np.int64]
) -> int:
    """Read the headers of the whole v2 batches at the front of `buffer`.

    Args:
        buffer: uint8[m], any bytes at all; nothing in it is trusted.
        out_fields: int64[n, 14], a row a batch, n as `count_batches` says.
        out_counts: int64[2], filled with the number of batches and of bytes they take.

    Returns:
        Why it stopped: END, PARTIAL, BAD_LENGTH, BAD_MAGIC or BAD_HEADER.
    """
    count = 0
    position = 0
    stop = END
    while position < buffer.size:
        stop = check_batch(buffer, position)
        if stop == END:
            stop = read_header(buffer, position, out_fields, count)
        if stop != END:
            break
        position += out_fields[count, SIZE]
        count += 1
    out_counts[0] = count
    out_counts[1] = position
    return stop


@kernel
def check_batch(buffer: NDArray[np.uint8], position: int) -> int:
    """Return END if a whole v2 batch can stand at `position`, else what is wrong with it."""
    left = buffer.size - position
    if left <= HEADER_SIZE_UP_TO_MAGIC:  # Kafka ignores a tail of just 17 bytes, too
        return PARTIAL
    length = read_int32(buffer, position + LENGTH_OFFSET)
    if length < MIN_LEGACY_LENGTH:
        return BAD_LENGTH
    if length > left - LOG_OVERHEAD:
        return PARTIAL
    if read_int8(buffer, position + MAGIC_OFFSET) != CURRENT_MAGIC:
        return BAD_MAGIC
    return BAD_LENGTH if length < MIN_BATCH_LENGTH else END


@kernel
def read_header(
    buffer: NDArray[np.uint8], position: int, out_fields: NDArray[np.int64], row: int
) -> int:
    """Read the v2 header at `position`, which is inside `buffer`; return END or BAD_HEADER."""
    base_offset = read_int64(buffer, position + BASE_OFFSET_OFFSET)
    delta = read_int32(buffer, position + LAST_OFFSET_DELTA_OFFSET)
    count = read_int32(buffer, position + RECORDS_COUNT_OFFSET)
    if base_offset < 0 or delta < 0 or delta > MAX_INT64 - base_offset or count < 0:
        return BAD_HEADER
    fields = out_fields[row]
    fields[POSITION] = position
    fields[SIZE] = LOG_OVERHEAD + read_int32(buffer, position + LENGTH_OFFSET)
    fields[BASE_OFFSET] = base_offset
    fields[LAST_OFFSET] = base_offset + delta
    fields[LEADER_EPOCH] = read_int32(buffer, position + PARTITION_LEADER_EPOCH_OFFSET)
    fields[MAGIC] = CURRENT_MAGIC
    fields[CRC] = read_int32(buffer, position + CRC_OFFSET) & 0xFFFFFFFF
    fields[ATTRIBUTES] = read_int16(buffer, position + ATTRIBUTES_OFFSET)
    fields[BASE_TIMESTAMP] = read_int64(buffer, position + BASE_TIMESTAMP_OFFSET)
    fields[MAX_TIMESTAMP] = read_int64(buffer, position + MAX_TIMESTAMP_OFFSET)
    fields[PRODUCER_ID] = read_int64(buffer, position + PRODUCER_ID_OFFSET)
    fields[PRODUCER_EPOCH] = read_int16(buffer, position + PRODUCER_EPOCH_OFFSET)
    fields[BASE_SEQUENCE] = read_int32(buffer, position + BASE_SEQUENCE_OFFSET)
    fields[COUNT] = count
    return END


@kernel
def write_headers(fields: NDArray[np.int64], out_buffer: NDArray[np.uint8]) -> None:
    """Write the 61 header bytes of each batch in `fields` at its position, CRC included."""
    for row in range(len(fields)):
        batch = fields[row]
        position = batch[POSITION]
        write_int64(out_buffer, position + BASE_OFFSET_OFFSET, batch[BASE_OFFSET])
        write_int32(out_buffer, position + LENGTH_OFFSET, batch[SIZE] - LOG_OVERHEAD)
        write_int32(out_buffer, position + PARTITION_LEADER_EPOCH_OFFSET, batch[LEADER_EPOCH])
        write_int8(out_buffer, position + MAGIC_OFFSET, batch[MAGIC])
        write_int32(out_buffer, position + CRC_OFFSET, batch[CRC])
        write_int16(out_buffer, position + ATTRIBUTES_OFFSET, batch[ATTRIBUTES])
        delta = batch[LAST_OFFSET] - batch[BASE_OFFSET]
        write_int32(out_buffer, position + LAST_OFFSET_DELTA_OFFSET, delta)
        write_int64(out_buffer, position + BASE_TIMESTAMP_OFFSET, batch[BASE_TIMESTAMP])
        write_int64(out_buffer, position + MAX_TIMESTAMP_OFFSET, batch[MAX_TIMESTAMP])
        write_int64(out_buffer, position + PRODUCER_ID_OFFSET, batch[PRODUCER_ID])
        write_int16(out_buffer, position + PRODUCER_EPOCH_OFFSET, batch[PRODUCER_EPOCH])
        write_int32(out_buffer, position + BASE_SEQUENCE_OFFSET, batch[BASE_SEQUENCE])
        write_int32(out_buffer, position + RECORDS_COUNT_OFFSET, batch[COUNT])


# ---- records to slots ----------------------------------------------------------------------------
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
        limits: int64[2], first offset wanted, and the first no longer wanted.
        out_slots: int64[n * 9], a slot a wanted record; n at least the sum of the counts.
        out_rows: int64[b], wanted records of each batch.
        out_totals: int64[11], what the `TOTAL_…` and `ERROR_…` constants name; zeros at first.

    Returns:
        OK, or what is wrong with the record at the `ERROR_…` places.
    """
    row = 0
    slot = 0
    for batch in range(len(spans)):
        position, end = spans[batch, 0], spans[batch, 1]
        if position < 0:
            continue
        first = row
        base_offset, base_timestamp = fields[batch, BASE_OFFSET], fields[batch, BASE_TIMESTAMP]
        is_stamped = fields[batch, ATTRIBUTES] & TIMESTAMP_TYPE_MASK != 0
        for record in range(fields[batch, COUNT]):
            size = locate_record(source, position, end, out_slots, slot)
            if size < 0:
                return note_error(out_totals, batch, record, size)
            position += size
            out_slots[slot + SLOT_OFFSET] += base_offset
            out_slots[slot + SLOT_TIMESTAMP] += base_timestamp
            if is_stamped:
                out_slots[slot + SLOT_TIMESTAMP] = fields[batch, MAX_TIMESTAMP]
            if limits[0] <= out_slots[slot + SLOT_OFFSET] < limits[1]:
                row += 1
                slot += SLOT_WIDTH
        if position != end:
            return note_error(out_totals, batch, fields[batch, COUNT], SURPLUS_BYTES)
        out_rows[batch] = row - first
    out_totals[TOTAL_ROWS] = row
    add_totals(source, out_slots, row, out_totals)
    return OK


@kernel
def note_error(out_totals: NDArray[np.int64], batch: int, record: int, status: int) -> int:
    """Note where a negative status arose, and return it."""
    out_totals[ERROR_BATCH] = batch
    out_totals[ERROR_RECORD] = record
    return status


@inlined
def locate_record(
    source: NDArray[np.uint8], position: int, end: int, out_slots: NDArray[np.int64], slot: int
) -> int:
    """Check the record at `position` and fill the slot at `slot`, offset and timestamp still as deltas.

    Returns:
        The bytes of the record, or what is wrong with it.
    """
    start = position
    number = read_varint(source, position, end)
    position += number & SIZE_MASK
    length = number >> SIZE_BITS
    if number == 0 or length < 1 or length > end - position:
        return BAD_RECORD_LENGTH
    end = position + length
    position += 1  # behind the attributes, of which no bit means anything yet
    number = read_short_varlong(source, position, end)
    out_slots[slot + SLOT_TIMESTAMP] = number >> SIZE_BITS
    if number == 0:
        out_slots[slot + SLOT_TIMESTAMP], number = read_long_varlong(source, position, end)
    position += number & SIZE_MASK
    offset = read_varint(source, position, end)
    out_slots[slot + SLOT_OFFSET] = offset >> SIZE_BITS
    position += offset & SIZE_MASK
    if number == 0 or offset == 0:
        return BAD_NUMBER
    for place in range(SLOT_KEY, SLOT_HEADERS, 2):
        number = read_varint(source, position, end)
        position += number & SIZE_MASK
        size = number >> SIZE_BITS
        if number == 0 or size > end - position:
            return BAD_FIELD_LENGTH
        out_slots[slot + place] = position
        out_slots[slot + place + 1] = max(size, -1)
        position += max(size, 0)
    number = read_varint(source, position, end)
    position += number & SIZE_MASK
    count = number >> SIZE_BITS
    if number == 0 or count < 0 or count > end - position:
        return BAD_HEADER_COUNT
    out_slots[slot + SLOT_HEADERS] = position
    out_slots[slot + SLOT_HEADERS + 1] = end - position
    out_slots[slot + SLOT_HEADER_COUNT] = count
    if count > 0:
        position = skip_headers(source, position, end, count)
        if position < 0:
            return position
    return end - start if position == end else BAD_RECORD_END


@kernel
def skip_headers(source: NDArray[np.uint8], position: int, end: int, count: int) -> int:
    """Check `count` headers from `position` on; return the position behind them or a status."""
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


@kernel
def add_totals(
    source: NDArray[np.uint8], slots: NDArray[np.int64], count: int, out_totals: NDArray[np.int64]
) -> None:
    """Add up the fields of the first `count` slots, which are checked."""
    key_bytes = key_nulls = value_bytes = value_nulls = headers = 0
    for slot in range(0, count * SLOT_WIDTH, SLOT_WIDTH):
        size = slots[slot + SLOT_KEY + 1]
        key_bytes += max(size, 0)
        key_nulls += size < 0
        size = slots[slot + SLOT_VALUE + 1]
        value_bytes += max(size, 0)
        value_nulls += size < 0
        number = slots[slot + SLOT_HEADER_COUNT]
        if number > 0:
            headers += number
            add_header_totals(source, slots[slot + SLOT_HEADERS], number, out_totals)
    out_totals[TOTAL_KEY_BYTES] = key_bytes
    out_totals[TOTAL_KEY_NULLS] = key_nulls
    out_totals[TOTAL_VALUE_BYTES] = value_bytes
    out_totals[TOTAL_VALUE_NULLS] = value_nulls
    out_totals[TOTAL_HEADERS] = headers


@kernel
def add_header_totals(
    source: NDArray[np.uint8], position: int, count: int, out_totals: NDArray[np.int64]
) -> None:
    """Add up the fields of `count` checked headers from `position` on."""
    for _ in range(count):
        number = read_varint(source, position, source.size)
        size = number >> SIZE_BITS
        out_totals[TOTAL_HEADER_KEY_BYTES] += size
        position += (number & SIZE_MASK) + size
        number = read_varint(source, position, source.size)
        size = number >> SIZE_BITS
        out_totals[TOTAL_HEADER_VALUE_BYTES] += max(size, 0)
        out_totals[TOTAL_HEADER_VALUE_NULLS] += size < 0
        position += (number & SIZE_MASK) + max(size, 0)


# ---- slots to columns ------------------------------------------------------------------------------
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
def copy_headers(
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
        end = position + slots[row, SLOT_HEADERS + 1]
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


# ---- columns to slots ------------------------------------------------------------------------------
@kernel
def slot_column(
    offsets: NDArray[np.int32],
    validity: NDArray[np.uint8],
    rows: NDArray[np.int64],
    place: int,
    out_slots: NDArray[np.int64],
) -> int:
    """Note where one field of each chosen row lies in an Arrow binary column.

    Args:
        offsets: int32[n + 1]; empty for a column of nulls.
        validity: uint8[ceil(n / 8)], a bit a row; empty where nothing is null.
        rows: int64[k], the rows to take, each checked to be in range.
        place: SLOT_KEY or SLOT_VALUE.
        out_slots: int64[k, 9].

    Returns:
        OK, or BAD_FIELD_LENGTH where the offsets decrease.
    """
    for index in range(len(rows)):
        row = rows[index]
        size = -1
        start = 0
        if offsets.size > 0 and (validity.size == 0 or validity[row >> 3] >> (row & 7) & 1):
            start = offsets[row]
            size = offsets[row + 1] - start
            if size < 0 or start < 0:
                return BAD_FIELD_LENGTH
        out_slots[index, place] = start
        out_slots[index, place + 1] = size
    return OK


@kernel
def write_header_fields(
    slots: NDArray[np.int64],
    key: NDArray[np.uint8],
    value: NDArray[np.uint8],
    out_data: NDArray[np.uint8],
    out_offsets: NDArray[np.int64],
) -> int:
    """Write headers one behind the other as they stand in records.

    Args:
        slots: int64[h, 9], a slot a header: key and value.
        key: uint8[…], the bytes of the keys.
        value: uint8[…], the bytes of the values.
        out_data: uint8[m], with room for all, 10 bytes each for the two sizes.
        out_offsets: int64[h + 1], filled with where each header begins.

    Returns:
        The bytes written, or OUT_OF_ROOM.
    """
    filled = 0
    out_offsets[0] = 0
    for row in range(len(slots)):
        size = slots[row, SLOT_KEY + 1]
        filled = write_varlong(out_data, filled, size)
        filled = copy_field(key, slots[row, SLOT_KEY], size, out_data, filled)
        if filled < 0:
            return OUT_OF_ROOM
        size = slots[row, SLOT_VALUE + 1]
        filled = write_varlong(out_data, filled, size)
        filled = copy_field(value, slots[row, SLOT_VALUE], size, out_data, filled)
        if filled < 0:
            return OUT_OF_ROOM
        out_offsets[row + 1] = filled
    return filled


# ---- slots to batches --------------------------------------------------------------------------------
@kernel
def size_of_body(slot: NDArray[np.int64], base_offset: int, base_timestamp: int) -> int:
    """Return the bytes of a record behind its length."""
    size = 1 + size_of_varlong(slot[SLOT_TIMESTAMP] - base_timestamp)
    size += size_of_varlong(slot[SLOT_OFFSET] - base_offset)
    size += size_of_varlong(slot[SLOT_KEY + 1]) + max(slot[SLOT_KEY + 1], 0)
    size += size_of_varlong(slot[SLOT_VALUE + 1]) + max(slot[SLOT_VALUE + 1], 0)
    return size + size_of_varlong(slot[SLOT_HEADER_COUNT]) + slot[SLOT_HEADERS + 1]


@kernel
def plan_batches(slots: NDArray[np.int64], batch_size: int, out_fields: NDArray[np.int64]) -> int:
    """Cut records into batches of at most `batch_size` bytes, at least one record each.

    Args:
        slots: int64[n, 9], offsets rising.
        batch_size: Bytes, header included.
        out_fields: int64[n, 14]; position, size, offsets, timestamps and count are filled.

    Returns:
        The number of batches, or RECORD_TOO_LARGE (a record beyond what int32 counts).
    """
    batch = -1
    position = 0
    for row in range(len(slots)):
        slot = slots[row]
        joins = False
        if batch >= 0:
            fields = out_fields[batch]
            body = size_of_body(slot, fields[BASE_OFFSET], fields[BASE_TIMESTAMP])
            size = size_of_varlong(body) + body
            joins = fields[SIZE] + size <= batch_size
            joins = joins and slot[SLOT_OFFSET] - fields[BASE_OFFSET] <= MAX_INT32
        if not joins:
            if batch >= 0:
                position += out_fields[batch, SIZE]
            batch += 1
            body = size_of_body(slot, slot[SLOT_OFFSET], slot[SLOT_TIMESTAMP])
            size = size_of_varlong(body) + body
            if size > MAX_INT32 - RECORD_BATCH_OVERHEAD:
                return RECORD_TOO_LARGE
            fields = out_fields[batch]
            fields[POSITION] = position
            fields[SIZE] = RECORD_BATCH_OVERHEAD
            fields[BASE_OFFSET] = slot[SLOT_OFFSET]
            fields[BASE_TIMESTAMP] = slot[SLOT_TIMESTAMP]
            fields[MAX_TIMESTAMP] = slot[SLOT_TIMESTAMP]
            fields[COUNT] = 0
        fields[SIZE] += size
        fields[LAST_OFFSET] = slot[SLOT_OFFSET]
        fields[MAX_TIMESTAMP] = max(fields[MAX_TIMESTAMP], slot[SLOT_TIMESTAMP])
        fields[COUNT] += 1
    return batch + 1


@kernel
def write_records(
    fields: NDArray[np.int64],
    slots: NDArray[np.int64],
    key: NDArray[np.uint8],
    value: NDArray[np.uint8],
    headers: NDArray[np.uint8],
    out_buffer: NDArray[np.uint8],
) -> int:
    """Write the records of planned batches, each behind the room of its header.

    Args:
        fields: int64[b, 14], as `plan_batches` made them.
        slots: int64[n, 9], the records of all batches.
        key: uint8[…], the bytes of the keys.
        value: uint8[…], the bytes of the values.
        headers: uint8[…], the written headers.
        out_buffer: uint8[m], with room for all batches.

    Returns:
        The bytes up to the end of the last batch, or OUT_OF_ROOM.
    """
    row = 0
    position = 0
    for batch in range(len(fields)):
        base_offset = fields[batch, BASE_OFFSET]
        base_timestamp = fields[batch, BASE_TIMESTAMP]
        position = fields[batch, POSITION] + RECORDS_OFFSET
        for _ in range(fields[batch, COUNT]):
            slot = slots[row]
            body = size_of_body(slot, base_offset, base_timestamp)
            position = write_varlong(out_buffer, position, body)
            out_buffer[position] = 0  # attributes
            position = write_varlong(
                out_buffer, position + 1, slot[SLOT_TIMESTAMP] - base_timestamp
            )
            position = write_varlong(out_buffer, position, slot[SLOT_OFFSET] - base_offset)
            for place, data in ((SLOT_KEY, key), (SLOT_VALUE, value)):
                size = slot[place + 1]
                position = write_varlong(out_buffer, position, size)
                position = copy_field(data, slot[place], size, out_buffer, position)
                if position < 0:
                    return OUT_OF_ROOM
            position = write_varlong(out_buffer, position, slot[SLOT_HEADER_COUNT])
            size = slot[SLOT_HEADERS + 1]
            position = copy_field(headers, slot[SLOT_HEADERS], size, out_buffer, position)
            if position < 0:
                return OUT_OF_ROOM
            row += 1
    return position


# ---- keys to partitions ------------------------------------------------------------------------------
@kernel
def murmur2(data: NDArray[np.uint8], start: int, end: int) -> int:
    """Return Kafka's 32-bit hash of `data[start:end]`, unsigned."""
    size = end - start
    state = (MURMUR_SEED ^ size) & 0xFFFFFFFF
    tail = start + (size & ~3)
    for position in range(start, tail, 4):
        word = int(data[position]) | int(data[position + 1]) << 8
        word |= int(data[position + 2]) << 16 | int(data[position + 3]) << 24
        word = word * MURMUR_FACTOR & 0xFFFFFFFF
        word = (word ^ word >> 24) * MURMUR_FACTOR & 0xFFFFFFFF
        state = (state * MURMUR_FACTOR & 0xFFFFFFFF) ^ word
    if tail < end:
        for position in range(tail, end):
            state ^= int(data[position]) << 8 * (position - tail)
        state = state * MURMUR_FACTOR & 0xFFFFFFFF
    state = (state ^ state >> 13) * MURMUR_FACTOR & 0xFFFFFFFF
    return state ^ state >> 15


@kernel
def partition_keys(
    slots: NDArray[np.int64],
    data: NDArray[np.uint8],
    partitions: int,
    out_partitions: NDArray[np.int32],
) -> int:
    """Choose a partition for each key.

    Args:
        slots: int64[n, 9], the keys.
        data: uint8[m], their bytes.
        partitions: How many there are.
        out_partitions: int32[n], filled with 0 to `partitions` - 1, or -1 where the key is null.

    Returns:
        OK, or OUT_OF_ROOM where a key lies outside `data`.
    """
    for row in range(len(slots)):
        start, size = slots[row, SLOT_KEY], slots[row, SLOT_KEY + 1]
        if size < 0:
            out_partitions[row] = -1
        elif start < 0 or size > data.size - start:
            return OUT_OF_ROOM
        else:
            out_partitions[row] = (murmur2(data, start, start + size) & MAX_INT32) % partitions
    return OK
