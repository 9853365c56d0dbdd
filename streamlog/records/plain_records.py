"""Loops over the records of few batches in plain Python, for processes that have no numba yet.

Loading numba takes half a second, as much as these loops take for 300,000 records, and 110 MB of
memory. So they handle that many at first, and later as many as a hundredth of a processor can.
Beyond this allowance the compiled twins take over for good: `streamlog.records.kernels` and
`streamlog.records.validate_kernels`, which have the contracts of the functions here.
"""

import struct
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import WORD_SIZE, Buffer
from streamlog.binary.crc import crc32c
from streamlog.records import plain_headers
from streamlog.records import slot as s
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MIN_RECORD_SIZE,
    RECORD_BATCH_OVERHEAD,
    RECORDS_COUNT_OFFSET,
    TIMESTAMP_TYPE_MASK,
)
from streamlog.records.plain_headers import compiled, numba_is_loaded
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    CRC,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    SIZE,
)

__all__ = [
    "Allowance",
    "RecordPlaces",
    "append_loops",
    "choose_batches",
    "copy_headers",
    "count_batches",
    "decode_records",
    "inspect_batches",
    "inspect_records",
    "is_quick",
    "locate_records",
    "record_loops",
]

FEW_RECORDS: Final = 2_000  # at once, take some milliseconds
QUICK_RECORDS: Final = 100  # at once, take a fraction of a millisecond
FEW_BYTES: Final = 256 << 10  # of records at once: two bytes may be a header, which takes as long
RESERVE: Final = 300_000  # take as long as loading numba
PER_SECOND: Final = 10_000  # take a hundredth of a second

_LENGTH: Final = struct.Struct(">i")
_NOTHING: Final[tuple[int, ...]] = (0, 0, 0)  # the facts about a batch without records
_MAX_VARINT: Final = 5  # bytes
_MAX_VARLONG: Final = 10
_BITS_32: Final = (1 << 32) - 1
_BITS_64: Final = (1 << 64) - 1
_INT64_SPAN: Final = 1 << 64


class Allowance:
    """How many records plain loops may handle: a reserve, which time refills.

    Args:
        reserve: How many at once, at most.
        per_second: How many are added each second.
        now: Returns a time in seconds that never goes back.
    """

    __slots__ = ("_left", "_now", "_per_second", "_reserve", "_since")

    def __init__(
        self, reserve: float, per_second: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._left = self._reserve = reserve
        self._per_second, self._now, self._since = per_second, now, now()

    def take(self, records: int) -> bool:
        """Return whether these may be handled; then they are counted."""
        if records > self._left:
            now = self._now()
            refilled = self._left + (now - self._since) * self._per_second
            self._left, self._since = min(refilled, self._reserve), now
            if records > self._left:
                return False
        self._left -= records
        return True

    def has(self, records: int) -> bool:
        """Return whether these may be handled, without counting them."""
        refilled = self._left + (self._now() - self._since) * self._per_second
        return records <= min(refilled, self._reserve)


_allowance: Final = Allowance(RESERVE, PER_SECOND)


def record_loops(records: int, size: int = 0) -> ModuleType:
    """Return the module whose loops suit some records.

    Args:
        records: How many.
        size: Their bytes, as far as the loops go through these; not trusted.
    """
    return sys.modules[__name__] if _are_few(records, size) else compiled("kernels")


def append_loops(source: NDArray[np.uint8], size: int | None = None) -> ModuleType:
    """Return the module whose loops suit an append.

    Args:
        source: Its batches, uint8[m]; not trusted.
        size: Bytes of the records that the loops go through; by default those of the batches.
    """
    if numba_is_loaded():
        return compiled("validate_kernels")
    records = _claims(memoryview(source))[1]
    if _are_few(records, len(source) if size is None else size):
        return sys.modules[__name__]
    return compiled("validate_kernels")


def is_quick(source: Buffer) -> bool:
    """Return whether the loops over an append take no time to load, and little to run."""
    if numba_is_loaded():
        return True
    records = _claims(memoryview(source))[1]
    return records <= QUICK_RECORDS and _allowance.has(records)


def _are_few(records: int, size: int) -> bool:
    if records > FEW_RECORDS or size > FEW_BYTES or numba_is_loaded():
        return False
    return _allowance.take(records)


def _claims(buffer: memoryview) -> tuple[int, int]:
    """Return how many v2 batches the start of `buffer` claims to hold, and how many records."""
    batches = records = position = 0
    while len(buffer) - position >= RECORD_BATCH_OVERHEAD:
        (length,) = _LENGTH.unpack_from(buffer, position + LENGTH_OFFSET)
        (count,) = _LENGTH.unpack_from(buffer, position + RECORDS_COUNT_OFFSET)
        records += max(count, 0)
        batches += 1
        position += LOG_OVERHEAD + max(length, 0)
    return batches, records


# ---- one record ----------------------------------------------------------------------------------
class RecordPlaces(NamedTuple):
    """A record that was checked: where its fields lie, and its numbers as deltas.

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
    timestamp: int = 0
    offset: int = 0
    key: int = 0
    key_size: int = 0
    value: int = 0
    value_size: int = 0
    headers: int = 0
    header_count: int = 0


_BAD_LENGTH: Final = RecordPlaces(s.BAD_RECORD_LENGTH)
_BAD_NUMBER: Final = RecordPlaces(s.BAD_NUMBER)
_BAD_FIELD: Final = RecordPlaces(s.BAD_FIELD_LENGTH)


def _read_varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """Return the varint at `position` and the position after it; -1 if it is none."""
    bits = shift = 0
    for at in range(position, min(position + _MAX_VARINT, end)):
        group = data[at]
        bits |= (group & 0x7F) << shift
        if group < 0x80:
            bits &= _BITS_32
            return bits >> 1 ^ -(bits & 1), at + 1
        shift += 7
    return 0, -1


def _read_varlong(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """Return the varlong at `position` and the position after it; -1 if it is none."""
    bits = shift = 0
    for at in range(position, min(position + _MAX_VARLONG, end)):
        group = data[at]
        bits |= (group & 0x7F) << shift
        if group < 0x80:
            bits &= _BITS_64
            return bits >> 1 ^ -(bits & 1), at + 1
        shift += 7
    return 0, -1


def _skim_record(data: memoryview, position: int, batch_end: int) -> tuple[int, ...] | None:
    """Return the start of `RecordPlaces` for a sound record of short numbers and no headers.

    In the usual order of the fields, each number of one or two bytes: written out, since calls take
    most of the time of `_read_record`, which decides on any other record.

    Args:
        data: The bytes; not trusted.
        position: Start of the record.
        batch_end: Where it must end.
    """
    try:
        length = data[position]
        position += 1
        if length >= 0x80:
            length += (data[position] << 7) - 0x80
            position += 1
        end = position + (length >> 1)
        if length & 1 or length >= 0x4000 or end > batch_end:
            return None
        timestamp, offset = data[position + 1], data[position + 2]
        position += 3
        if timestamp >= 0x80:
            timestamp += (offset << 7) - 0x80
            offset = data[position]
            position += 1
        if offset >= 0x80:
            offset += (data[position] << 7) - 0x80
            position += 1
        if timestamp >= 0x4000 or offset >= 0x4000:
            return None
        key_size = data[position]
        key = position = position + 1
        if key_size & 1 == 0:
            position += key_size >> 1
        if key_size >= 0x80 or position >= end:
            return None
        value_size = data[position]
        position += 1
        if value_size >= 0x80:
            value_size += (data[position] << 7) - 0x80
            position += 1
        if not value_size & 1:
            position += value_size >> 1
        if position + 1 != end or value_size >= 0x4000 or data[position]:
            return None
        timestamp, offset = timestamp >> 1 ^ -(timestamp & 1), offset >> 1 ^ -(offset & 1)
        return end, timestamp, offset, key, key_size >> 1 ^ -(key_size & 1)
    except IndexError:  # no room for all numbers
        return None


def _read_record(data: memoryview, position: int, batch_end: int) -> RecordPlaces:
    """Check the record at `position` completely, and return the positions of its fields."""
    length, position = _read_varint(data, position, batch_end)
    end = position + length
    if position < 0 or length <= 0 or end > batch_end:
        return _BAD_LENGTH
    timestamp, position = _read_varlong(data, position + 1, end)  # after the attributes
    if position < 0:
        return _BAD_NUMBER
    offset, position = _read_varint(data, position, end)
    if position < 0:
        return _BAD_NUMBER
    key_size, key = _read_varint(data, position, end)
    if key < 0 or key_size > end - key:
        return _BAD_FIELD
    value_size, value = _read_varint(data, key + max(key_size, 0), end)
    if value < 0 or value_size > end - value:
        return _BAD_FIELD
    position = value + max(value_size, 0)
    headers, count = position + 1, 0
    if headers != end or data[position]:
        headers, count = _read_headers(data, position, end)
        if headers < 0:
            return RecordPlaces(headers)
    return RecordPlaces(end, timestamp, offset, key, key_size, value, value_size, headers, count)


def _read_headers(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """Check the headers at `position`, which must end the record.

    Returns:
        Their start after their count, and the count; or the error, and 0.
    """
    count, headers = _read_varint(data, position, end)
    if headers < 0 or not 0 <= count <= end - headers:
        return s.BAD_HEADER_COUNT, 0
    position = headers
    for _ in range(count):
        size, position = _read_varint(data, position, end)
        if position < 0 or not 0 <= size <= end - position:
            return s.BAD_HEADER_KEY, 0
        size, position = _read_varint(data, position + size, end)
        if position < 0 or size > end - position:
            return s.BAD_FIELD_LENGTH, 0
        position += max(size, 0)
    return (headers, count) if position == end else (s.BAD_RECORD_END, 0)


def _wrap_int64(value: int) -> int:
    """Return `value` as it overflows in a Java long."""
    return (value + (1 << 63)) % _INT64_SPAN - (1 << 63)


def _can_hold(source: memoryview | NDArray[np.uint8], start: int, end: int) -> bool:
    return 0 <= start <= end <= len(source) >= WORD_SIZE


# ---- appending: twins of `validate_kernels` ------------------------------------------------------
def count_batches(source: NDArray[np.uint8]) -> int:
    """Return how many batches `inspect_batches` finds at most, from their lengths."""
    return _claims(memoryview(source))[0]


def inspect_batches(
    source: NDArray[np.uint8],
    earliest: int,
    latest: int,
    out_fields: NDArray[np.int64],
    out_found: NDArray[np.int64],
    out_seen: NDArray[np.int64],
) -> int:
    """Read and check the v2 batches of an append: headers, checksums, uncompressed records."""
    view, seen = memoryview(source), [0] * s.SEEN_WIDTH
    position = row = 0
    status: int = s.OK
    while status == s.OK and position < len(view):
        status, batch = plain_headers.read_batch(view, position)
        if batch is None:
            break
        size, end = batch[SIZE], position + batch[SIZE]
        if crc32c(view[position + ATTRIBUTES_OFFSET : end]) != batch[CRC]:
            status = s.BAD_CHECKSUM
            break
        out_fields[row] = batch
        seen[s.SEEN_BATCHES], seen[s.SEEN_END] = row + 1, end
        seen[s.SEEN_LARGEST] = max(seen[s.SEEN_LARGEST], size)
        seen[s.ALL_ATTRIBUTES] |= batch[ATTRIBUTES]
        found = _NOTHING
        if batch[COUNT] > 0 and not batch[ATTRIBUTES] & COMPRESSION_MASK:
            seen[s.ERROR_BATCH] = row
            span = position + RECORD_BATCH_OVERHEAD, end
            status, found = _inspect(view, span, batch, (earliest, latest), seen)
        out_found[row] = found
        position = end
        row += 1
    out_seen[:] = seen
    return status


def inspect_records(
    source: NDArray[np.uint8],
    fields: NDArray[np.int64],
    spans: NDArray[np.int64],
    earliest: int,
    latest: int,
    out_found: NDArray[np.int64],
    out_seen: NDArray[np.int64],
) -> int:
    """Check every record of the batches and collect the facts that the rules of appending need."""
    view, seen = memoryview(source), out_seen.tolist()
    seen[s.SEEN_GAPS :] = [0] * (s.SEEN_WIDTH - s.SEEN_GAPS)
    status = s.OK
    for row, (span, batch) in enumerate(zip(spans.tolist(), fields.tolist(), strict=True)):
        found = _NOTHING
        if span[0] >= 0:
            seen[s.ERROR_BATCH] = row
            status, found = _inspect(view, span, batch, (earliest, latest), seen)
        out_found[row] = found
        if status != s.OK:
            break
    out_seen[:] = seen
    return status


def _inspect(
    view: memoryview,
    span: tuple[int, int],
    batch: tuple[int, ...],
    times: tuple[int, int],
    seen: list[int],
) -> tuple[int, tuple[int, ...]]:
    """Check the records of one batch; return the status and the facts, a row of `out_found`."""
    (position, batch_end), (earliest, latest), count = span, times, batch[COUNT]
    seen[s.ERROR_RECORD] = 0
    if not _can_hold(view, position, batch_end):
        return s.OUT_OF_ROOM, _NOTHING
    if count > (batch_end - position) // MIN_RECORD_SIZE:
        seen[s.ERROR_RECORD] = count
        return s.BAD_COUNT, _NOTHING
    is_stamped = batch[ATTRIBUTES] & TIMESTAMP_TYPE_MASK != 0
    base_timestamp, max_stamp = batch[BASE_TIMESTAMP], batch[MAX_TIMESTAMP]
    gaps = batch[LAST_OFFSET] - batch[BASE_OFFSET] + 1 != count
    keyless = untimely = max_timestamp = 0
    for row in range(count):
        found = _skim_record(view, position, batch_end) or _read_record(view, position, batch_end)
        position, delta, offset, _, key_size, *_ = found
        if position < 0:
            seen[s.ERROR_RECORD] = row
            return position, _NOTHING
        timestamp = max_stamp if is_stamped else base_timestamp + delta
        if not earliest <= timestamp <= latest:
            timestamp = _wrap_int64(timestamp)
            untimely += timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest
        if timestamp > max_timestamp or row == 0:
            max_timestamp = timestamp
        if offset != row:
            gaps = True
        if key_size < 0:
            keyless += 1
    seen[s.ERROR_RECORD] = count
    seen[s.SEEN_GAPS] += gaps
    seen[s.SEEN_KEYLESS] += keyless
    seen[s.SEEN_UNTIMELY] += untimely
    seen[s.SEEN_WRONG_MAX] += max_timestamp != max_stamp
    facts = (count, int(gaps), max_timestamp)
    return (s.OK if position == batch_end else s.SURPLUS_BYTES), facts


# ---- reading: twins of `kernels` -----------------------------------------------------------------
def choose_batches(
    fields: NDArray[np.int64],
    limits: NDArray[np.int64],
    out_spans: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Find the batches with wanted records, and the positions of these in the buffer."""
    first, end_offset, drop = limits.tolist()
    out_spans[:] = -1
    for row, batch in enumerate(fields.tolist()):
        count, attributes = batch[COUNT], batch[ATTRIBUTES]
        start, end = batch[POSITION] + RECORD_BATCH_OVERHEAD, batch[POSITION] + batch[SIZE]
        if count <= 0 or attributes & drop:
            continue
        if batch[LAST_OFFSET] < first or batch[BASE_OFFSET] >= end_offset:
            continue
        if not attributes & COMPRESSION_MASK and count > (end - start) // MIN_RECORD_SIZE:
            return _note_error(out_totals, row, count, s.BAD_COUNT)
        out_spans[row] = start, end
        out_totals[s.TOTAL_ROWS] += count
        out_totals[s.TOTAL_BYTES] += end - start
        out_totals[s.ALL_ATTRIBUTES] |= attributes
    return s.OK


def _note_error(out_totals: NDArray[np.int64], batch: int, record: int, status: int) -> int:
    """Record the place of a negative status, and return it."""
    out_totals[s.ERROR_BATCH], out_totals[s.ERROR_RECORD] = batch, record
    return status


def locate_records(
    source: NDArray[np.uint8],
    fields: NDArray[np.int64],
    spans: NDArray[np.int64],
    out_slots: NDArray[np.int64],
    out_totals: NDArray[np.int64],
) -> int:
    """Check every record of the batches and write its slot."""
    slots: list[tuple[int, ...]] = []
    status = s.OK
    for row, (span, batch) in enumerate(zip(spans.tolist(), fields.tolist(), strict=True)):
        status = _walk(source, span, batch, row, out_totals, slots)
        if status != s.OK:
            break
    out_slots[: len(slots)] = np.array(slots, np.int64).reshape(-1, s.SLOT_WIDTH)
    return status


def _walk(
    source: NDArray[np.uint8],
    span: list[int],
    batch: list[int],
    row: int,
    out_totals: NDArray[np.int64],
    slots: list[tuple[int, ...]],
) -> int:
    """Append the slots of one batch's records, up to the first bad one; return the status."""
    position, batch_end = span[0], span[1]
    if position < 0:
        return s.OK
    if not _can_hold(source, position, batch_end):
        return _note_error(out_totals, row, 0, s.OUT_OF_ROOM)
    view = memoryview(source)
    is_stamped = batch[ATTRIBUTES] & TIMESTAMP_TYPE_MASK != 0
    for number in range(batch[COUNT]):
        found = _read_record(view, position, batch_end)
        if found.end < 0:
            return _note_error(out_totals, row, number, found.end)
        timestamp = _wrap_int64(batch[BASE_TIMESTAMP] + found.timestamp)
        position = found.end
        slots.append(
            (
                _wrap_int64(batch[BASE_OFFSET] + found.offset),
                batch[MAX_TIMESTAMP] if is_stamped else timestamp,
                found.key,
                max(found.key_size, -1),
                found.value,
                max(found.value_size, -1),
                found.headers,
                found.end - found.headers,
                found.header_count,
            )
        )
    if position != batch_end:
        return _note_error(out_totals, row, batch[COUNT], s.SURPLUS_BYTES)
    return s.OK


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
    """Check every record of the batches and copy the wanted ones into columns."""
    first, end_offset, _ = limits.tolist()
    wanted: list[tuple[int, ...]] = []
    types: list[int] = []
    for row, (span, batch) in enumerate(zip(spans.tolist(), fields.tolist(), strict=True)):
        if span[0] < 0:
            continue
        if batch[COUNT] > min(out_ints.shape[1] - 1, out_longs.shape[1]) - len(wanted):
            return _note_error(out_totals, row, 0, s.OUT_OF_ROOM)
        found: list[tuple[int, ...]] = []
        status = _walk(source, span, batch, row, out_totals, found)
        if status != s.OK:
            return status
        found = [slot for slot in found if first <= slot[s.SLOT_OFFSET] < end_offset]
        types += [int(batch[ATTRIBUTES] & TIMESTAMP_TYPE_MASK != 0)] * len(found)
        wanted += found
    count = out_totals[s.TOTAL_ROWS] = len(wanted)
    slots = np.array(wanted, np.int64).reshape(-1, s.SLOT_WIDTH)
    out_longs[:, :count] = slots[:, (s.SLOT_OFFSET, s.SLOT_TIMESTAMP, s.SLOT_HEADERS)].T
    out_ints[s.INTS_TYPE, :count] = types
    out_ints[: s.INTS_TYPE, 0] = 0
    out_ints[s.INTS_HEADERS, 1 : count + 1] = slots[:, s.SLOT_HEADER_COUNT].cumsum()
    for column, place, data in (
        (s.INTS_KEY, s.SLOT_KEY, out_key),
        (s.INTS_VALUE, s.SLOT_VALUE, out_value),
    ):
        places = slots[:, place : place + 2]
        room = memoryview(data) if data.size else None
        filled, nulls = _copy_fields(source, places, out_ints[column], out_validity[column], room)
        if filled < 0:
            return filled
        total = s.TOTAL_KEY_BYTES if column == s.INTS_KEY else s.TOTAL_VALUE_BYTES
        out_totals[total : total + 2] = filled, nulls
    return s.OK


def _copy_fields(
    source: NDArray[np.uint8],
    places: NDArray[np.int64],
    out_ends: NDArray[np.int32],
    out_validity: NDArray[np.uint8],
    target: memoryview | None,
) -> tuple[int, int]:
    """Copy fields (position and size, -1 for null) into a column, unless it is left out.

    Returns:
        The number of bytes, or OUT_OF_ROOM; and the number of nulls.
    """
    view = memoryview(source)
    filled = nulls = 0
    for row, (position, size) in enumerate(places.tolist()):
        if size < 0:
            nulls += 1
            out_validity[row >> 3] &= 0xFF ^ 1 << (row & 7)
        elif target is not None:
            if size > len(target) - filled:
                return s.OUT_OF_ROOM, nulls
            target[filled : filled + size] = view[position : position + size]
            filled += size
        out_ends[row + 1] = filled
    return filled, nulls


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
    """Gather the headers of checked records into Arrow's layout; without room, measure them."""
    fields = np.array(list(_headers_of(source, positions, offsets)), np.int64).reshape(-1, 2, 2)
    sizes = fields[:, :, 1]
    filled = np.maximum(sizes, 0).sum(axis=0)
    out_totals[:] = *filled, (sizes[:, 1] < 0).sum()
    if out_offsets.shape[1]:
        out_offsets[:, 0] = 0
        keys = np.zeros(len(out_validity), np.uint8)  # a header's key is never null
        for field, validity, data in ((0, keys, out_key), (1, out_validity, out_value)):
            places = fields[:, field]
            ends, room = out_offsets[field], memoryview(data)
            if _copy_fields(source, places, ends, validity, room)[0] < 0:
                return s.OUT_OF_ROOM
    return len(fields)


def _headers_of(
    source: NDArray[np.uint8], positions: NDArray[np.int64], offsets: NDArray[np.int32]
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield position and size (-1 for null) of each header's key and value."""
    view = memoryview(source)
    for position, count in zip(positions.tolist(), np.diff(offsets).tolist(), strict=True):
        for _ in range(count):
            key_size, key = _read_varint(view, position, len(view))
            value_size, value = _read_varint(view, key + key_size, len(view))
            yield (key, key_size), (value, max(value_size, -1))
            position = value + max(value_size, 0)
