"""Records as columns: flat arrays in Arrow's layout, decoded without an object per record.

A binary column is Arrow's: int32 offsets (one more than rows), the bytes of all values, and a
validity bit per row, lowest first (1: not null), left out where nothing is null. Headers are a
list column: for each record a run of key/value pairs, found by int32 offsets of their own.
pyarrow is not needed here; its arrays can be made from these buffers without a copy.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import Buffer, as_source
from streamlog.errors import LimitExceededError
from streamlog.records import slot as s
from streamlog.records.layout import MAX_INT32, MAX_INT64, TIMESTAMP_TYPE_MASK
from streamlog.records.record import NO_TIMESTAMP, Header, Record, TimestampType
from streamlog.records.slots import MAX_DECOMPRESSED, RecordSlots, decode_slots
from streamlog.records.table import BatchTable

__all__ = [
    "COLUMNS",
    "BinaryColumn",
    "HeaderColumn",
    "InputColumns",
    "RecordColumns",
    "decode_columns",
]

COLUMNS: Final = frozenset({"key", "value", "headers"})


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """Values of bytes or null.

    Attributes:
        offsets: int32[n + 1]; value i is `data[offsets[i]:offsets[i + 1]]`.
        data: uint8[m].
        validity: uint8[ceil(n / 8)], bit i % 8 of byte i // 8 set where not null; None: no nulls.
        null_count: Number of nulls.
    """

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]
    validity: NDArray[np.uint8] | None = None
    null_count: int = 0

    @classmethod
    def from_values(cls, values: Iterable[bytes | None]) -> "BinaryColumn":
        """Return a column of `values`."""
        kept = list(values)
        sizes = [0 if value is None else len(value) for value in kept]
        total = sum(sizes)
        if total > MAX_INT32:
            raise _too_large(total)
        offsets = np.zeros(len(kept) + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        data = as_source(b"".join(value for value in kept if value))
        nulls = sum(value is None for value in kept)
        present = [value is not None for value in kept]
        validity = np.packbits(present, bitorder="little") if nulls else None
        return cls(offsets=offsets, data=data, validity=validity, null_count=nulls)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[bytes | None]:
        data = self.data.tobytes()
        offsets = self.offsets.tolist()
        values = (data[a:b] for a, b in pairwise(offsets))
        if self.validity is None:
            return values
        present = np.unpackbits(self.validity, count=len(self), bitorder="little").tolist()
        return (value if kept else None for value, kept in zip(values, present, strict=True))


@dataclass(frozen=True, slots=True)
class HeaderColumn:
    """The headers of each record.

    Attributes:
        offsets: int32[n + 1]; record i has the headers `offsets[i]` to `offsets[i + 1]`.
        key: Keys of all headers, never null, valid UTF-8.
        value: Values of all headers.
    """

    offsets: NDArray[np.int32]
    key: BinaryColumn
    value: BinaryColumn

    @classmethod
    def from_values(cls, values: Iterable[Sequence[Header]]) -> "HeaderColumn":
        """Return a column of lists of headers."""
        kept = list(values)
        flat = [header for headers in kept for header in headers]
        offsets = np.zeros(len(kept) + 1, np.int32)
        np.cumsum([len(headers) for headers in kept], out=offsets[1:])
        return cls(
            offsets=offsets,
            key=BinaryColumn.from_values(header.key.encode() for header in flat),
            value=BinaryColumn.from_values(header.value for header in flat),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[tuple[Header, ...]]:
        flat = [
            Header((key or b"").decode(), value)
            for key, value in zip(self.key, self.value, strict=True)
        ]
        offsets = self.offsets.tolist()
        return (tuple(flat[a:b]) for a, b in pairwise(offsets))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """Records, a column a field. A column that is None was not asked for, or is all null.

    Attributes:
        count: Records, n.
        offset: int64[n].
        timestamp: int64[n], ms since 1970, -1 for none.
        timestamp_type: int32[n], values of `TimestampType`.
        key: Keys.
        value: Values.
        headers: Headers.
    """

    count: int
    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    timestamp_type: NDArray[np.int32]
    key: BinaryColumn | None = None
    value: BinaryColumn | None = None
    headers: HeaderColumn | None = None

    def records(self) -> Iterator[Record]:
        """Yield the records as objects; a column that is None reads as null or no headers."""
        return map(
            Record,
            repeat(None, self.count) if self.key is None else self.key,
            repeat(None, self.count) if self.value is None else self.value,
            repeat((), self.count) if self.headers is None else self.headers,
            self.timestamp.tolist(),
            self.offset.tolist(),
            map(TimestampType, self.timestamp_type.tolist()),
        )


_NOTHING: Final = BinaryColumn(np.zeros(1, np.int32), np.empty(0, np.uint8))


class InputColumns(NamedTuple):
    """Records to be written.

    Attributes:
        timestamp: int64[n], ms since 1970, or -1 for none.
        key: Keys; None: all null.
        value: Values; None: all null.
        headers: Headers; None: no record has any.
    """

    timestamp: NDArray[np.int64]
    key: BinaryColumn | None = None
    value: BinaryColumn | None = None
    headers: HeaderColumn | None = None

    @classmethod
    def from_records(
        cls, records: Iterable[Record], *, now_ms: int = NO_TIMESTAMP
    ) -> "InputColumns":
        """Return `records` as columns; a timestamp of None becomes `now_ms`."""
        kept = list(records)
        times = [now_ms if record.timestamp is None else record.timestamp for record in kept]
        has_headers = any(record.headers for record in kept)
        return cls(
            np.array(times, np.int64),
            BinaryColumn.from_values(record.key for record in kept),
            BinaryColumn.from_values(record.value for record in kept),
            HeaderColumn.from_values(r.headers for r in kept) if has_headers else None,
        )


def decode_columns(
    buffer: Buffer,
    table: BatchTable,
    *,
    columns: Collection[str] = COLUMNS,
    start_offset: int = 0,
    end_offset: int = MAX_INT64,
    drop_control: bool = True,
    max_decompressed: int = MAX_DECOMPRESSED,
    path: str | None = None,
    position: int = 0,
) -> RecordColumns:
    """Decode the records of many batches.

    The structure is checked completely before a byte is copied, the CRC is not: whoever read
    the batches has done that (`streamlog.records.batch.check_crc`).

    Args:
        buffer: The batches; nothing in them is trusted.
        table: Their headers, as `scan_batches` found them in `buffer`.
        columns: Which of `key`, `value` and `headers` to copy; the rest costs nothing.
        start_offset: First offset wanted.
        end_offset: First offset no longer wanted.
        drop_control: Leave control batches out, as every consumer does.
        max_decompressed: The most bytes one batch may decompress to.
        path: The file, for messages.
        position: Where `buffer` begins in that file, for messages.

    Returns:
        The records in the order of the buffer.

    Raises:
        CorruptRecordError: A record's structure is wrong, or compressed bytes are damaged.
        LimitExceededError: A batch decompresses to more than `max_decompressed`, or a column
            to 2 GiB: decode fewer batches at a time.

    Source: DefaultRecordBatch.iterator, DefaultRecord.readFrom.
    """
    found = decode_slots(
        buffer,
        table,
        start_offset=start_offset,
        end_offset=end_offset,
        drop_control=drop_control,
        max_decompressed=max_decompressed,
        path=path,
        position=position,
    )
    key = value = headers = None
    totals = found.totals
    if "key" in columns:
        size, nulls = totals[s.TOTAL_KEY_BYTES], totals[s.TOTAL_KEY_NULLS]
        key = _gather(found.source, found.slots, s.SLOT_KEY, size, nulls)
    if "value" in columns:
        size, nulls = totals[s.TOTAL_VALUE_BYTES], totals[s.TOTAL_VALUE_NULLS]
        value = _gather(found.source, found.slots, s.SLOT_VALUE, size, nulls)
    if "headers" in columns:
        headers = _gather_headers(found)
    return RecordColumns(
        count=len(found.slots),
        offset=found.slots[:, s.SLOT_OFFSET].copy(),
        timestamp=found.slots[:, s.SLOT_TIMESTAMP].copy(),
        timestamp_type=_timestamp_types(table, found),
        key=key,
        value=value,
        headers=headers,
    )


def _gather(
    source: NDArray[np.uint8], slots: NDArray[np.int64], place: int, size: int, nulls: int
) -> BinaryColumn:
    """Return the field at `place` of all slots, `size` bytes together, as a column."""
    from streamlog.records import kernels

    if size > MAX_INT32:
        raise _too_large(size)
    offsets = np.empty(len(slots) + 1, np.int32)
    data = np.empty(size, np.uint8)
    copied = kernels.copy_column(source, slots, place, offsets, data)
    assert copied == size, (copied, size)
    validity = None
    if nulls:
        validity = np.zeros(-(-len(slots) // 8), np.uint8)
        kernels.copy_validity(slots, place, validity)
    return BinaryColumn(offsets, data, validity, nulls)


def _gather_headers(found: RecordSlots) -> HeaderColumn:
    from streamlog.records import kernels

    totals = found.totals
    offsets = np.zeros(len(found.slots) + 1, np.int32)
    if not totals[s.TOTAL_HEADERS]:
        return HeaderColumn(offsets, _NOTHING, _NOTHING)
    pairs = np.empty((totals[s.TOTAL_HEADERS], s.SLOT_WIDTH), np.int64)
    kernels.locate_headers(found.source, found.slots, offsets, pairs)
    size = totals[s.TOTAL_HEADER_KEY_BYTES]
    key = _gather(found.source, pairs, s.SLOT_KEY, size, 0)
    size, nulls = totals[s.TOTAL_HEADER_VALUE_BYTES], totals[s.TOTAL_HEADER_VALUE_NULLS]
    value = _gather(found.source, pairs, s.SLOT_VALUE, size, nulls)
    return HeaderColumn(offsets, _valid_utf8(key), value)


def _valid_utf8(column: BinaryColumn) -> BinaryColumn:
    """Return `column` with U+FFFD for bytes that are no UTF-8, as Java reads header keys."""
    if not (column.data & 0x80).any():
        return column
    try:
        column.data.tobytes().decode()
    except UnicodeDecodeError:
        pass
    else:
        starts = column.offsets[:-1]
        starts = starts[starts < len(column.data)]
        if not ((column.data[starts] & 0xC0) == 0x80).any():  # no character across a border
            return column
    replaced = ((value or b"").decode(errors="replace").encode() for value in column)
    return BinaryColumn.from_values(replaced)


def _timestamp_types(table: BatchTable, found: RecordSlots) -> NDArray[np.int32]:
    if not found.totals[s.ALL_ATTRIBUTES] & TIMESTAMP_TYPE_MASK:
        return np.zeros(len(found.slots), np.int32)
    types = ((table.attributes & TIMESTAMP_TYPE_MASK) != 0).astype(np.int32)
    return np.repeat(types, found.rows)


def _too_large(size: int) -> LimitExceededError:
    return LimitExceededError(
        "a column of 2 GiB and more",
        got=size,
        expected=f"at most {MAX_INT32} bytes",
        hint="read fewer bytes at a time",
    )
