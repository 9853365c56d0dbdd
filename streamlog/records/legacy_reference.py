"""The kernels of `legacy_kernels` again, in plain Python; see `streamlog.records.reference`."""

import zlib
from collections.abc import Iterator, Sequence

from streamlog.records import legacy_layout as m
from streamlog.records.layout import (
    COMPRESSION_MASK,
    CURRENT_MAGIC,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    TIMESTAMP_TYPE_MASK,
)
from streamlog.records.record import NO_TIMESTAMP, CompressionType
from streamlog.records.reference import BadRecordError, Batch, Field, Slot

NO_HEADERS = Field(0, 0)


def read_message_header(buffer: bytes, position: int) -> Batch:
    """Return the row of a table for the message at `position`, which is whole."""
    entry = buffer[position:]
    magic = entry[MAGIC_OFFSET]
    offset, timestamp = _int(entry, 0, 8), NO_TIMESTAMP
    attributes = entry[m.MESSAGE_ATTRIBUTES_OFFSET] & m.ATTRIBUTES_V0
    if magic == m.MAGIC_V1:
        attributes = entry[m.MESSAGE_ATTRIBUTES_OFFSET] & m.ATTRIBUTES_V1
        timestamp = _int(entry, m.MESSAGE_TIMESTAMP_OFFSET, 8)
    size = LOG_OVERHEAD + _int(entry, LENGTH_OFFSET, 4)
    crc = int.from_bytes(entry[m.MESSAGE_CRC_OFFSET : MAGIC_OFFSET], "big")
    times = timestamp, timestamp
    return Batch(position, size, offset, offset, -1, magic, crc, attributes, *times, -1, -1, -1, 1)


def find_bad_checksum(buffer: bytes, batches: Sequence[Batch], largest: int) -> int:
    """Return the row of the first message, `largest` bytes and less, whose CRC-32 is wrong."""
    for row, batch in enumerate(batches):
        body = buffer[batch.position + MAGIC_OFFSET : batch.position + batch.size]
        is_looked_at = batch.magic < CURRENT_MAGIC and len(body) <= largest
        if is_looked_at and zlib.crc32(body) != batch.crc:
            return row
    return len(batches)


def choose_messages(
    buffer: bytes, batches: Sequence[Batch], limits: Sequence[int]
) -> list[range | None]:
    """Return where each message lies, or a wrapper's value; None for what is not wanted.

    Raises:
        BadRecordError: A wrapper holds nothing that could be decompressed.
    """
    spans: list[range | None] = []
    for batch in batches:
        span = range(batch.position, batch.position + batch.size)
        codec = batch.attributes & COMPRESSION_MASK
        if batch.last_offset < limits[0] or (not codec and batch.last_offset >= limits[1]):
            spans.append(None)
            continue
        if codec > CompressionType.LZ4:
            raise BadRecordError(m.BAD_WRAPPER_CODEC)
        if codec:
            value = _read_message(buffer[span.start : span.stop]).value
            if value.size < 0:
                raise BadRecordError(m.NULL_WRAPPER)
            span = range(span.start + value.position, span.start + value.position + value.size)
            if span.stop != batch.position + batch.size:
                raise BadRecordError(m.BAD_MESSAGE_FIELD)
        spans.append(span)
    return spans


def count_messages(source: bytes, spans: Sequence[range | None]) -> int:
    """Return how many messages the lengths in the spans lead to."""
    return sum(
        len(list(_whole_messages(source, span, is_strict=False)))
        for span in spans
        if span is not None
    )


def locate_messages(
    source: bytes, batches: Sequence[Batch], spans: Sequence[range | None], limits: Sequence[int]
) -> list[list[Slot]]:
    """Return the wanted slots of each message or wrapper.

    Raises:
        BadRecordError: A message's structure is wrong.
    """
    return [
        [] if span is None else _wanted_slots(source, batch, span, limits)
        for batch, span in zip(batches, spans, strict=True)
    ]


def _wanted_slots(source: bytes, batch: Batch, span: range, limits: Sequence[int]) -> list[Slot]:
    slots = []
    for message in _whole_messages(source, span, is_strict=True):
        entry = source[message.start : message.stop]
        if entry[MAGIC_OFFSET] > m.MAGIC_V1:
            raise BadRecordError(m.BAD_MESSAGE_MAGIC)
        if entry[m.MESSAGE_ATTRIBUTES_OFFSET] & COMPRESSION_MASK:
            raise BadRecordError(m.NESTED)
        slot = _read_message(entry)
        if batch.attributes & TIMESTAMP_TYPE_MASK and entry[MAGIC_OFFSET] == m.MAGIC_V1:
            slot = slot._replace(timestamp=batch.max_timestamp)
        key, value = (
            field._replace(position=message.start + field.position)
            for field in (slot.key, slot.value)
        )
        slots.append(slot._replace(key=key, value=value))
    if not slots:
        raise BadRecordError(m.NO_MESSAGES)
    base = _base(batch, slots[-1].offset, is_strict=limits[2] != 0)
    offsets = [_wrap(base + slot.offset) for slot in slots]
    if limits[2] and offsets != sorted(set(offsets)):
        raise BadRecordError(m.BAD_MESSAGE_ORDER)
    return [
        slot._replace(offset=offset)
        for slot, offset in zip(slots, offsets, strict=True)
        if limits[0] <= offset < limits[1]
    ]


def _base(batch: Batch, last: int, *, is_strict: bool) -> int:
    is_relative = batch.magic == m.MAGIC_V1
    if not batch.attributes & COMPRESSION_MASK or (is_relative and batch.last_offset == 0):
        return 0
    if (is_relative or is_strict) and not 0 <= last <= batch.last_offset:
        raise BadRecordError(m.BAD_WRAPPER_OFFSET)
    return batch.last_offset - last if is_relative else 0


def _whole_messages(source: bytes, span: range, *, is_strict: bool) -> Iterator[range]:
    """Yield where each message lies, up to the first that does not end inside the span."""
    position = span.start
    while span.stop - position >= LOG_OVERHEAD:
        length = _int(source, position + LENGTH_OFFSET, 4)
        if length < m.MIN_LENGTH_V0 and is_strict:
            raise BadRecordError(m.BAD_MESSAGE_LENGTH)
        if length < m.MIN_LENGTH_V0 or length > span.stop - position - LOG_OVERHEAD:
            return
        yield range(position, position + LOG_OVERHEAD + length)
        position += LOG_OVERHEAD + length


def _read_message(entry: bytes) -> Slot:
    """Return one whole message as a slot; positions are relative to it."""
    timestamp, position = NO_TIMESTAMP, m.KEY_SIZE_OFFSET_V0
    if entry[MAGIC_OFFSET] == m.MAGIC_V1:
        if len(entry) < LOG_OVERHEAD + m.MIN_LENGTH_V1:
            raise BadRecordError(m.BAD_MESSAGE_LENGTH)
        timestamp, position = _int(entry, m.MESSAGE_TIMESTAMP_OFFSET, 8), m.KEY_SIZE_OFFSET_V1
    key = _field(entry, position, behind=m.FIELD_SIZE)
    value = _field(entry, key.position + max(key.size, 0), behind=0)
    return Slot(_int(entry, 0, 8), timestamp, key, value, NO_HEADERS, 0)


def _field(entry: bytes, position: int, *, behind: int) -> Field:
    """Return the field whose size stands at `position`; `behind` bytes must follow it."""
    size = _int(entry, position, m.FIELD_SIZE)
    start = position + m.FIELD_SIZE
    if size > len(entry) - start - behind:
        raise BadRecordError(m.BAD_MESSAGE_FIELD)
    return Field(start, max(size, -1))


def _int(entry: bytes, position: int, size: int) -> int:
    return int.from_bytes(entry[position : position + size], "big", signed=True)


def _wrap(value: int) -> int:
    """Return what is left of a sum in Java's long."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
