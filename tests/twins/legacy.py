"""The kernels of `legacy_kernels` in plain Python; see `tests.twins.records`."""

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
from tests.twins.records import BadRecordError, Batch, Decoded, Field, Slot, as_columns


def find_bad_checksum(buffer: bytes, batches: Sequence[Batch]) -> int:
    """Return the row of the first message whose CRC-32 is wrong."""
    for row, batch in enumerate(batches):
        body = buffer[batch.position + MAGIC_OFFSET : batch.position + batch.size]
        if batch.magic < CURRENT_MAGIC and zlib.crc32(body) != batch.crc:
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
            value = _read_message(buffer, span).value
            if value.size < 0:
                raise BadRecordError(m.NULL_WRAPPER)
            if value.position + value.size != span.stop:
                raise BadRecordError(m.BAD_MESSAGE_FIELD)
            span = range(value.position, span.stop)
        spans.append(span)
    return spans


def survey_sets(
    source: bytes, batches: Sequence[Batch], spans: Sequence[range | None], limits: Sequence[int]
) -> tuple[int, list[int]]:
    """Return how many messages there may be, and what the offsets in each span are relative to.

    Raises:
        BadRecordError: A wrapper holds no message, or its offset is below those in it.
    """
    rows, bases = 0, []
    for batch, span in zip(batches, spans, strict=True):
        bases.append(0)
        if span is None:
            continue
        if not batch.attributes & COMPRESSION_MASK:
            rows += 1
            continue
        offsets = [_int(source, message.start, 8) for message in _whole_messages(source, span)]
        if not offsets:
            raise BadRecordError(m.NO_MESSAGES)
        rows += len(offsets)
        bases[-1] = _base(batch, offsets[-1], is_strict=limits[2] != 0)
    return rows, bases


def _base(batch: Batch, last: int, *, is_strict: bool) -> int:
    is_relative = batch.magic == m.MAGIC_V1
    if is_relative and batch.last_offset == 0:
        return 0
    if (is_relative or is_strict) and not 0 <= last <= batch.last_offset:
        raise BadRecordError(m.BAD_WRAPPER_OFFSET)
    return batch.last_offset - last if is_relative else 0


def decode_messages(
    source: bytes, batches: Sequence[Batch], spans: Sequence[range | None], limits: Sequence[int]
) -> Decoded:
    """Return the wanted records; see `reference.decode_records`.

    Raises:
        BadRecordError: A message's structure is wrong.
    """
    _, bases = survey_sets(source, batches, spans, limits)
    slots: list[Slot] = []
    types: list[int] = []
    previous = -1
    for batch, span, base in zip(batches, spans, bases, strict=True):
        if span is None:
            continue
        is_stamped = batch.attributes & TIMESTAMP_TYPE_MASK != 0
        for slot in _slots(source, batch, span, base):
            if limits[2] and slot.offset <= previous:
                raise BadRecordError(m.BAD_MESSAGE_ORDER)
            previous = slot.offset
            if limits[0] <= slot.offset < limits[1]:
                slots.append(slot)
                types.append(int(is_stamped) if batch.magic == m.MAGIC_V1 else -1)
    return as_columns(source, slots, types)


def _slots(source: bytes, batch: Batch, span: range, base: int) -> Iterator[Slot]:
    for message in _whole_messages(source, span):
        slot = _read_message(source, message, is_inner=batch.attributes & COMPRESSION_MASK != 0)
        slot = slot._replace(offset=_wrap(base + slot.offset))
        is_v1 = source[message.start + MAGIC_OFFSET] == m.MAGIC_V1
        if batch.attributes & TIMESTAMP_TYPE_MASK and is_v1:
            slot = slot._replace(timestamp=batch.max_timestamp)
        yield slot


def _whole_messages(source: bytes, span: range) -> Iterator[range]:
    """Yield where each message lies, up to the first that does not end inside the span."""
    position = span.start
    while span.stop - position >= LOG_OVERHEAD:
        length = _int(source, position + LENGTH_OFFSET, 4)
        if length < m.MIN_LENGTH_V0:
            raise BadRecordError(m.BAD_MESSAGE_LENGTH)
        if length > span.stop - position - LOG_OVERHEAD:
            return
        yield range(position, position + LOG_OVERHEAD + length)
        position += LOG_OVERHEAD + length


def _read_message(source: bytes, span: range, *, is_inner: bool = False) -> Slot:
    """Return the message in the span, which is whole, as a slot."""
    entry = source[span.start : span.stop]
    timestamp, at = NO_TIMESTAMP, m.KEY_SIZE_OFFSET_V0
    if entry[MAGIC_OFFSET] > m.MAGIC_V1:
        raise BadRecordError(m.BAD_MESSAGE_MAGIC)
    if entry[MAGIC_OFFSET] == m.MAGIC_V1:
        if len(entry) < LOG_OVERHEAD + m.MIN_LENGTH_V1:
            raise BadRecordError(m.BAD_MESSAGE_LENGTH)
        timestamp, at = _int(entry, m.MESSAGE_TIMESTAMP_OFFSET, 8), m.KEY_SIZE_OFFSET_V1
    if is_inner and entry[m.MESSAGE_ATTRIBUTES_OFFSET] & COMPRESSION_MASK:
        raise BadRecordError(m.NESTED)
    key = _field(source, span.start + at, span.stop - m.FIELD_SIZE)
    value = _field(source, key.position + max(key.size, 0), span.stop)
    return Slot(_int(entry, 0, 8), timestamp, key, value, Field(0, 0), 0)


def _field(source: bytes, position: int, end: int) -> Field:
    """Return the field whose size stands at `position` and which ends at `end` at the latest."""
    size = _int(source, position, m.FIELD_SIZE)
    start = position + m.FIELD_SIZE
    if size > end - start:
        raise BadRecordError(m.BAD_MESSAGE_FIELD)
    return Field(start, max(size, -1))


def _int(entry: bytes, position: int, size: int) -> int:
    return int.from_bytes(entry[position : position + size], "big", signed=True)


def _wrap(value: int) -> int:
    """Return what is left of a sum in Java's long."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
