"""Compiled reading of one record, complete checks included. Twin: `tests.twins.records`."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import inlined, kernel, load_word
from streamlog.binary.varint import (
    SIZE_BITS,
    SIZE_MASK,
    read_short_size,
    read_short_varint,
    read_varint,
    read_varlong,
)
from streamlog.records.slot import (
    BAD_FIELD_LENGTH,
    BAD_HEADER_COUNT,
    BAD_HEADER_KEY,
    BAD_NUMBER,
    BAD_RECORD_END,
    BAD_RECORD_LENGTH,
)

DOUBTFUL: Final = -1  # the end of a record that `skim_record` leaves to `read_any_record`
SLACK: Final = 32  # bytes behind a record that is skimmed: five numbers, attributes, one load


class RecordFields(NamedTuple):
    """What `read_record` finds; positions are those of the bytes it read.

    Attributes:
        end: Where the record ends, or a negative status, and then the rest means nothing.
        timestamp: As a delta.
        offset: As a delta.
        key: Position of the key.
        key_size: Below 0 for null.
        value: Position of the value.
        value_size: Below 0 for null.
        headers: Position of the headers, behind their count.
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
    """Check the record at `position` completely, and say where its fields lie.

    This is part of the hottest loops of all. The way of nearly all records is compiled into them;
    what that has doubts about is looked at again, slowly.

    Args:
        source: uint8[m], m at least 8; not trusted.
        position: Where the record begins, 0 or more.
        batch_end: Where the last record of its batch must end, at most m.
    """
    found = skim_record(source, position, min(batch_end, source.size - SLACK))
    if found.end < 0:
        found = read_any_record(source, position, batch_end)
    return found


@inlined
def skim_record(source: NDArray[np.uint8], position: int, latest_end: int) -> RecordFields:
    """Read the record at `position` if it is sound and its numbers have 4 bytes at most.

    Numbers are loaded before anything tells that they lie inside the record: five of them and the
    attributes lead no further than `SLACK` behind its end, and the sizes of key and value are
    compared with that end. A position never goes back, so one look at the end is enough.

    Args:
        source: uint8[m]; not trusted.
        position: Where the record begins, 0 or more.
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
    timestamp, width = read_short_varint(source, position + 1)  # behind the attributes
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
    """Check the record at `position`, whatever it is; see `read_record`."""
    number = read_varint(source, position, batch_end)
    position += number & SIZE_MASK
    end = position + (number >> SIZE_BITS)
    if number == 0 or end <= position or end > batch_end:
        return RecordFields(BAD_RECORD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0)
    position += 1  # behind the attributes, of which no bit means anything yet
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
    """Check the headers at `position`, with which a record must end.

    Returns:
        Where they begin behind their count, and the count; or what is wrong, and 0.
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
    """Check `count` headers from `position` on; return where they end, or what is wrong."""
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
