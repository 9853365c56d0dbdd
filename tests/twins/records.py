"""The kernels of `streamlog.records` in plain Python: slow, and written to be read.

Each function has the name of its kernel, does the same by other means, and takes and returns plain
values: bytes for arrays of bytes, lists of tuples for tables and slots, None for a null field.
Tests compare the two on arbitrary bytes. The twins of `batch_kernels` are in
`streamlog.records.plain_headers`, which production code uses before numba is loaded.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from streamlog.binary.crc import crc32c
from streamlog.records import filter_kernels as f
from streamlog.records import slot as s
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    DELETE_HORIZON_MASK,
    MIN_RECORD_SIZE,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from tests.twins.binary import plain_murmur2, plain_read_varint, plain_write_varlong


class Batch(NamedTuple):
    """A row of a `BatchTable`."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class Field(NamedTuple):
    """Position of a field; a size of -1 is null."""

    position: int
    size: int


class Slot(NamedTuple):
    """A row of slots."""

    offset: int
    timestamp: int
    key: Field
    value: Field
    headers: Field
    header_count: int


class BadRecordError(Exception):
    """A record is invalid; the argument is the kernels' status."""


# ---- batches to slots --------------------------------------------------------------------------
def choose_batches(batches: Sequence[Batch], limits: Sequence[int]) -> list[range | None]:
    """Return the span of each batch's records, None for a batch left out.

    Raises:
        BadRecordError: An uncompressed batch is too short for its record count.
    """
    start_offset, end_offset, drop = limits
    spans: list[range | None] = []
    for batch in batches:
        span = range(batch.position + RECORD_BATCH_OVERHEAD, batch.position + batch.size)
        is_wanted = (
            batch.record_count > 0
            and not batch.attributes & drop
            and batch.last_offset >= start_offset
            and batch.base_offset < end_offset
        )
        is_plain = batch.attributes & COMPRESSION_MASK == 0
        if is_wanted and is_plain and batch.record_count > len(span) // MIN_RECORD_SIZE:
            raise BadRecordError(s.BAD_COUNT)
        spans.append(span if is_wanted else None)
    return spans


def locate_records(
    source: bytes, batches: Sequence[Batch], spans: Sequence[range | None], limits: Sequence[int]
) -> list[list[Slot]]:
    """Return the wanted slots of each batch.

    Raises:
        BadRecordError: A record's structure is wrong.
    """
    return [
        [] if span is None else list(_wanted_slots(source, batch, span, limits))
        for batch, span in zip(batches, spans, strict=True)
    ]


def _wanted_slots(
    source: bytes, batch: Batch, span: range, limits: Sequence[int]
) -> Iterator[Slot]:
    position = span.start
    for _ in range(batch.record_count):
        length, position = _number(source[: span.stop], position, 32, s.BAD_RECORD_LENGTH)
        if not 1 <= length <= span.stop - position:
            raise BadRecordError(s.BAD_RECORD_LENGTH)
        slot = _read_slot(source[: position + length], position)
        read_headers(source, slot)
        position += length
        offset = _wrap(batch.base_offset + slot.offset)
        timestamp = _wrap(batch.base_timestamp + slot.timestamp)
        if batch.attributes & TIMESTAMP_TYPE_MASK:
            timestamp = batch.max_timestamp
        if limits[0] <= offset < limits[1]:
            yield slot._replace(offset=offset, timestamp=timestamp)
    if position != span.stop:
        raise BadRecordError(s.SURPLUS_BYTES)


def _read_slot(record: bytes, position: int) -> Slot:
    """Return the slot of the record from `position` to the end of `record`, deltas as they are."""
    timestamp, position = _number(record, position + 1, 64, s.BAD_NUMBER)
    offset, position = _number(record, position, 32, s.BAD_NUMBER)
    fields = []
    for _ in range(2):
        size, position = _number(record, position, 32, s.BAD_FIELD_LENGTH)
        if size > len(record) - position:
            raise BadRecordError(s.BAD_FIELD_LENGTH)
        fields.append(Field(position, max(size, -1)))
        position += max(size, 0)
    count, position = _number(record, position, 32, s.BAD_HEADER_COUNT)
    if not 0 <= count <= len(record) - position:
        raise BadRecordError(s.BAD_HEADER_COUNT)
    if count == 0 and position != len(record):
        raise BadRecordError(s.BAD_RECORD_END)
    headers = Field(position, len(record) - position)
    return Slot(offset, timestamp, fields[0], fields[1], headers, count)


def read_headers(source: bytes, slot: Slot) -> list[tuple[Field, Field]]:
    """Return where key and value of each header of a record lie.

    Raises:
        BadRecordError: A header's structure is wrong.
    """
    if slot.header_count == 0:
        return []
    position = slot.headers.position
    record = source[: position + slot.headers.size]
    headers = []
    for _ in range(slot.header_count):
        size, position = _number(record, position, 32, s.BAD_HEADER_KEY)
        if not 0 <= size <= len(record) - position:
            raise BadRecordError(s.BAD_HEADER_KEY)
        key = Field(position, size)
        size, position = _number(record, position + size, 32, s.BAD_FIELD_LENGTH)
        if size > len(record) - position:
            raise BadRecordError(s.BAD_FIELD_LENGTH)
        headers.append((key, Field(position, max(size, -1))))
        position += max(size, 0)
    if position != len(record):
        raise BadRecordError(s.BAD_RECORD_END)
    return headers


def _number(buffer: bytes, position: int, width: int, status: int) -> tuple[int, int]:
    """Return the varint or varlong at `position`, and the position after it."""
    found = plain_read_varint(buffer, position, width=width)
    if found is None:
        raise BadRecordError(status)
    value, size = found
    return value, position + size


def _wrap(value: int) -> int:
    """Return `value` as it overflows in a Java long."""
    return (value + 2**63) % 2**64 - 2**63


# ---- appending ---------------------------------------------------------------------------------
class Found(NamedTuple):
    """Facts about a batch's records for the rules of appending."""

    rows: int = 0
    gaps: int = 0
    max_timestamp: int = 0
    keyless: int = 0
    untimely: int = 0
    has_wrong_max: bool = False


def inspect_batches(
    source: bytes, batches: Sequence[Batch], stop: int, times: range
) -> tuple[list[Found], int]:
    """Return the facts about v2 batches that a scan found, and its `stop`.

    Where a checksum or a record is wrong it ends before that batch, with what is wrong instead.
    """
    found: list[Found] = []
    for batch in batches:
        body = source[batch.position + ATTRIBUTES_OFFSET : batch.position + batch.size]
        if crc32c(body) != batch.crc:
            return found, s.BAD_CHECKSUM
        try:
            is_closed = batch.attributes & COMPRESSION_MASK
            spans = [None] if is_closed else choose_batches([batch], (-(2**63), 2**63, 0))
            found += inspect_records(source, [batch], spans, times)
        except BadRecordError as error:
            return found, error.args[0]
    return found, stop


def inspect_records(
    source: bytes, batches: Sequence[Batch], spans: Sequence[range | None], times: range
) -> list[Found]:
    """Return what the rules of appending ask for of each batch.

    Raises:
        BadRecordError: A record's structure is wrong.
    """
    located = locate_records(source, batches, spans, (-(2**63), 2**63, 0))
    found = []
    for batch, slots in zip(batches, located, strict=True):
        if not slots:
            found.append(Found())
            continue
        timestamps = [slot.timestamp for slot in slots]
        offsets = [slot.offset for slot in slots]
        due = range(batch.base_offset, batch.last_offset + 1)  # may be as many as int32 counts
        found.append(
            Found(
                rows=len(slots),
                gaps=len(due) != len(offsets) or offsets != list(due),
                max_timestamp=max(timestamps),
                keyless=sum(slot.key.size < 0 for slot in slots),
                untimely=sum(time != -1 and time not in times for time in timestamps),
                has_wrong_max=max(timestamps) != batch.max_timestamp,
            )
        )
    return found


# ---- columns -----------------------------------------------------------------------------------
Column = tuple[list[int], bytes, bytes]  # offsets, bytes, validity


Decoded = tuple[list[list[int]], list[int], Column, Column, list[int], list[int]]
"""Three lists of numbers (offsets, timestamps, positions of headers), timestamp types, the columns
of keys and values, how many headers there are before each record and at the end, and the numbers
of nulls in both columns."""


def decode_records(source: bytes, batches: Sequence[Batch], limits: Sequence[int]) -> Decoded:
    """Return the wanted records of batches that are not compressed.

    Raises:
        BadRecordError: A record's structure is wrong.
    """
    spans = choose_batches(batches, limits)
    located = locate_records(source, batches, spans, limits)
    types = [
        int(batch.attributes & TIMESTAMP_TYPE_MASK != 0)
        for batch, slots in zip(batches, located, strict=True)
        for _ in slots
    ]
    return as_columns(source, [slot for found in located for slot in found], types)


def as_columns(source: bytes, slots: Sequence[Slot], types: list[int]) -> Decoded:
    """Return located records, and the types of their timestamps, as columns."""
    keys, values = [slot.key for slot in slots], [slot.value for slot in slots]
    return (
        [
            [slot.offset for slot in slots],
            [slot.timestamp for slot in slots],
            [slot.headers.position for slot in slots],
        ],
        types,
        (*copy_column(source, keys), copy_validity(keys)),
        (*copy_column(source, values), copy_validity(values)),
        [0, *accumulate(slot.header_count for slot in slots)],
        [sum(field.size < 0 for field in fields) for fields in (keys, values)],
    )


def copy_column(source: bytes, fields: Sequence[Field]) -> tuple[list[int], bytes]:
    """Return offsets and bytes of a column of `fields`."""
    values = [source[start : start + size] if size > 0 else b"" for start, size in fields]
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    return offsets, b"".join(values)


def copy_validity(fields: Sequence[Field]) -> bytes:
    """Return a bit per field, lowest first, set where it is not null."""
    bits = sum((field.size >= 0) << index for index, field in enumerate(fields))
    return bits.to_bytes(-(-len(fields) // 8), "little")


# ---- columns to batches ------------------------------------------------------------------------
class Plain(NamedTuple):
    """A record to write."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]]


def write_field(field: bytes | None) -> bytes:
    """Return a field in the layout of records: its size, and its bytes."""
    return plain_write_varlong(-1) if field is None else plain_write_varlong(len(field)) + field


def write_record(record: Plain, timestamp_delta: int, offset_delta: int) -> bytes:
    """Return a record of a batch."""
    body = b"".join(
        (
            b"\0",
            plain_write_varlong(_wrap(timestamp_delta)),
            plain_write_varlong(offset_delta),
            write_field(record.key),
            write_field(record.value),
            plain_write_varlong(len(record.headers)),
            *(write_field(field) for header in record.headers for field in header),
        )
    )
    return plain_write_varlong(len(body)) + body


def write_records(records: Sequence[Plain], batch_size: int) -> list[tuple[list[Plain], bytes]]:
    """Split records into batches; return the records of each, and their bytes."""
    batches: list[tuple[list[Plain], bytes]] = []
    for record in records:
        if batches:
            members, written = batches[-1]
            delta = record.timestamp - members[0].timestamp
            more = written + write_record(record, delta, len(members))
            if RECORD_BATCH_OVERHEAD + len(more) <= batch_size:
                batches[-1] = [*members, record], more
                continue
        batches.append(([record], write_record(record, 0, 0)))
    return batches


def write_records_at(
    records: Sequence[Plain], offsets: Sequence[int], first: int, batch_size: int
) -> list[tuple[int, int, int, bytes]]:
    """Split records at offsets into batches: base and last offset, count and bytes of each."""
    batches: list[tuple[int, int, int, bytes]] = []
    base_timestamp = 0
    for record, offset in zip(records, offsets, strict=True):
        if batches:
            base, _, count, written = batches[-1]
            delta = record.timestamp - base_timestamp
            more = written + write_record(record, delta, offset - base)
            if RECORD_BATCH_OVERHEAD + len(more) <= batch_size and offset - base < 2**31:
                batches[-1] = base, offset, count + 1, more
                continue
        base = batches[-1][1] + 1 if batches else first
        base = base if offset - base < 2**31 else offset
        base_timestamp = record.timestamp
        batches.append((base, offset, 1, write_record(record, 0, offset - base)))
    return batches


# ---- keys to partitions ------------------------------------------------------------------------
def partition_keys(keys: Sequence[bytes | None], partitions: int) -> list[int]:
    """Return the partition of each key, -1 for null."""
    return [-1 if key is None else plain_murmur2(key) % 2**31 % partitions for key in keys]


# ---- batches filtered ----------------------------------------------------------------------------
class Kept(NamedTuple):
    """Decision about a batch: a constant of `filter_kernels`, the horizon, remaining records."""

    fate: int
    horizon: int
    records: list[tuple[int, Plain]]  # with their offsets


def rewrite_batches(
    buffer: bytes, batches: Sequence[Batch], kept: Sequence[Kept]
) -> list[tuple[Batch, bytes]]:
    """Return the remaining batches: headers (no positions) and bytes, with zeros for headers."""
    return [
        _rewritten(buffer, batch, each)
        for batch, each in zip(batches, kept, strict=True)
        if each.fate != f.DROP
    ]


def _rewritten(buffer: bytes, batch: Batch, kept: Kept) -> tuple[Batch, bytes]:
    if kept.fate == f.COPY:
        return batch, buffer[batch.position :][: batch.size]
    room = bytes(RECORD_BATCH_OVERHEAD)
    flags = batch.attributes & (TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK)
    if kept.fate == f.EMPTY:
        empty = batch._replace(size=len(room), attributes=flags, base_timestamp=-1, record_count=0)
        return empty, room
    offsets, records = zip(*kept.records, strict=True)
    times = [record.timestamp for record in records]
    has_horizon = kept.horizon != f.NO_HORIZON
    base_time = kept.horizon if has_horizon else times[0]
    is_old = batch.magic != CURRENT_MAGIC
    base_offset = offsets[0] if is_old else batch.base_offset
    body = b"".join(
        write_record(record, record.timestamp - base_time, offset - base_offset)
        for offset, record in kept.records
    )
    rewritten = batch._replace(
        size=len(room + body),
        base_offset=base_offset,
        last_offset=offsets[-1] if is_old else batch.last_offset,
        magic=CURRENT_MAGIC,
        attributes=flags
        | batch.attributes & COMPRESSION_MASK
        | (DELETE_HORIZON_MASK if has_horizon else 0),
        base_timestamp=base_time,
        max_timestamp=batch.max_timestamp if flags & TIMESTAMP_TYPE_MASK else max(-1, *times),
        record_count=len(records),
    )
    return rewritten, room + body
