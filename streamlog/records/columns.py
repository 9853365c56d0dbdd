"""Records as columns: flat arrays in Arrow's layout, decoded without an object per record.

A binary column is Arrow's: int32 offsets (one more than rows), the bytes of all values, and a
validity bit per row, lowest first (1: not null), left out where nothing is null. Headers are a
list column: for each record a run of key/value pairs, found by int32 offsets of their own.
pyarrow is not needed here; its arrays can be made from these buffers without a copy.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import Buffer, as_source
from streamlog.binary.compression import NONE, decompress
from streamlog.errors import CorruptRecordError, LimitExceededError
from streamlog.records.layout import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    MAX_INT32,
    MAX_INT64,
    MIN_RECORD_SIZE,
    RECORDS_OFFSET,
    TIMESTAMP_TYPE_MASK,
)
from streamlog.records.record import Header, Record, TimestampType
from streamlog.records.table import BatchTable

__all__ = [
    "COLUMNS",
    "MAX_DECOMPRESSED",
    "BinaryColumn",
    "HeaderColumn",
    "RecordColumns",
    "RecordSlots",
    "decode_columns",
    "decode_slots",
]

COLUMNS: Final = frozenset({"key", "value", "headers"})
MAX_DECOMPRESSED: Final = 64 << 20  # of one batch; `max.message.bytes` is 1 MiB by default
MAX_ARENA: Final = MAX_INT32  # of all batches decoded by one call

_NO_BYTES: Final = np.empty(0, np.uint8)


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
            raise _column_too_large("values", total)
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
        values = (data[a:b] for a, b in zip(offsets, offsets[1:], strict=False))
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
        return (tuple(flat[a:b]) for a, b in zip(offsets, offsets[1:], strict=False))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSlots:
    """Where the fields of checked records lie; see `streamlog.records.kernels` for a slot.

    Attributes:
        source: uint8[m], the records' bytes, decompressed.
        slots: int64[n, 9], a slot a record.
        rows: int64[b], how many of them belong to each batch of the table.
        totals: int64[11], their sizes, as the kernels' `TOTAL_…` constants name them.
    """

    source: NDArray[np.uint8]
    slots: NDArray[np.int64]
    rows: NDArray[np.int64]
    totals: NDArray[np.int64]


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
    from streamlog.records import kernels as k

    source, slots, totals = found.source, found.slots, found.totals.tolist()
    key = value = headers = None
    if "key" in columns:
        key = _copy_column(
            source, slots, k.SLOT_KEY, totals[k.TOTAL_KEY_BYTES], totals[k.TOTAL_KEY_NULLS]
        )
    if "value" in columns:
        value = _copy_column(
            source, slots, k.SLOT_VALUE, totals[k.TOTAL_VALUE_BYTES], totals[k.TOTAL_VALUE_NULLS]
        )
    if "headers" in columns:
        headers = _copy_headers(source, slots, totals)
    return RecordColumns(
        count=len(slots),
        offset=slots[:, k.SLOT_OFFSET].copy(),
        timestamp=slots[:, k.SLOT_TIMESTAMP].copy(),
        timestamp_type=_timestamp_types(table, found.rows),
        key=key,
        value=value,
        headers=headers,
    )


def decode_slots(
    buffer: Buffer,
    table: BatchTable,
    *,
    start_offset: int = 0,
    end_offset: int = MAX_INT64,
    drop_control: bool = True,
    max_decompressed: int = MAX_DECOMPRESSED,
    path: str | None = None,
    position: int = 0,
) -> RecordSlots:
    """Check the records of many batches and say where their fields lie, copying none.

    Args and raises: see `decode_columns`.
    """
    from streamlog.records import kernels as k

    wanted = (table.count > 0) & (table.last_offset >= start_offset)
    wanted &= table.base_offset < end_offset
    if drop_control:
        wanted &= (table.attributes & CONTROL_MASK) == 0
    source, spans = _records_of(buffer, table, wanted, max_decompressed, path, position)
    room = np.where(wanted, spans[:, 1] - np.maximum(spans[:, 0], 0), MAX_INT64)
    impossible = table.count > room // MIN_RECORD_SIZE
    if impossible.any():
        batch = int(np.argmax(impossible))
        raise CorruptRecordError(
            "batch is too short for its record count",
            path=path,
            position=position + int(table.position[batch]),
            offset=int(table.base_offset[batch]),
            got=f"{table.count[batch]} records in {room[batch]} bytes",
        )
    count = int(table.count[wanted].sum())
    slots = np.empty(count * k.SLOT_WIDTH, np.int64)
    rows = np.zeros(len(table), np.int64)
    totals = np.zeros(k.TOTALS_WIDTH, np.int64)
    limits = np.array((start_offset, end_offset), np.int64)
    status = k.locate_records(source, table.fields, spans, limits, slots, rows, totals)
    if status != k.OK:
        raise _corrupt(status, table, totals.tolist(), path, position)
    return RecordSlots(source=source, slots=slots.reshape(count, k.SLOT_WIDTH)[: totals[k.TOTAL_ROWS]], rows=rows, totals=totals)


def _records_of(
    buffer: Buffer,
    table: BatchTable,
    wanted: NDArray[np.bool_],
    max_decompressed: int,
    path: str | None,
    position: int,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return one array with the records of the wanted batches, and where in it they lie.

    Uncompressed batches stay where they are; with a compressed one among them, all are put
    one behind the other into an arena.
    """
    source = as_source(buffer)
    spans = np.full((len(table), 2), -1, np.int64)
    spans[:, 0][wanted] = table.position[wanted] + RECORDS_OFFSET
    spans[:, 1][wanted] = table.position[wanted] + table.size[wanted]
    spans[:, 1][~wanted] = MAX_INT64  # nothing is read there
    codecs = table.attributes & COMPRESSION_MASK
    if not (codecs[wanted] != NONE).any():
        return source, spans
    parts: list[Buffer] = []
    filled = 0
    for batch in np.flatnonzero(wanted).tolist():
        start, end = spans[batch].tolist()
        part = decompress(
            int(codecs[batch]),
            source[start:end],
            max_size=max_decompressed,
            path=path,
            position=position + int(table.position[batch]),
        )
        parts.append(part)
        spans[batch] = filled, filled + len(part)
        filled += len(part)
        if filled > MAX_ARENA:
            raise LimitExceededError(
                "batches decompress to 2 GiB and more",
                path=path,
                position=position,
                hint="read fewer bytes at a time",
            )
    return as_source(parts[0] if len(parts) == 1 else b"".join(parts)), spans


def _copy_column(
    source: NDArray[np.uint8], slots: NDArray[np.int64], place: int, size: int, nulls: int
) -> BinaryColumn:
    from streamlog.records import kernels as k

    if size > MAX_INT32:
        raise _column_too_large("a column", size)
    offsets = np.empty(len(slots) + 1, np.int32)
    data = np.empty(size, np.uint8)
    copied = k.copy_column(source, slots, place, offsets, data)
    assert copied == size, (copied, size)
    validity = None
    if nulls:
        validity = np.zeros(-(-len(slots) // 8), np.uint8)
        k.copy_validity(slots, place, validity)
    return BinaryColumn(offsets=offsets, data=data, validity=validity, null_count=nulls)


def _copy_headers(
    source: NDArray[np.uint8], slots: NDArray[np.int64], totals: list[int]
) -> HeaderColumn:
    from streamlog.records import kernels as k

    count = totals[k.TOTAL_HEADERS]
    offsets = np.zeros(len(slots) + 1, np.int32)
    pairs = np.empty((count, k.SLOT_WIDTH), np.int64)
    if count:
        k.copy_headers(source, slots, offsets, pairs)
    key = _copy_column(source, pairs, k.SLOT_KEY, totals[k.TOTAL_HEADER_KEY_BYTES], 0)
    value = _copy_column(
        source,
        pairs,
        k.SLOT_VALUE,
        totals[k.TOTAL_HEADER_VALUE_BYTES],
        totals[k.TOTAL_HEADER_VALUE_NULLS],
    )
    return HeaderColumn(offsets=offsets, key=_valid_utf8(key), value=value)


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


def _timestamp_types(table: BatchTable, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    types = ((table.attributes & TIMESTAMP_TYPE_MASK) != 0).astype(np.int32)
    if not types.any():
        return np.zeros(int(rows.sum()), np.int32)
    return np.repeat(types, rows)


def _column_too_large(what: str, size: int) -> LimitExceededError:
    return LimitExceededError(
        f"{what} of 2 GiB and more",
        got=size,
        expected=f"at most {MAX_INT32} bytes",
        hint="read fewer bytes at a time",
    )


def _corrupt(
    status: int, table: BatchTable, totals: list[int], path: str | None, position: int
) -> CorruptRecordError:
    from streamlog.records import kernels as k

    what = {
        k.BAD_RECORD_LENGTH: "record length is impossible, or the batch ends before its last record",
        k.BAD_NUMBER: "timestamp or offset of a record is damaged",
        k.BAD_FIELD_LENGTH: "key, value or header reaches beyond its record",
        k.BAD_HEADER_COUNT: "record has an impossible number of headers",
        k.BAD_HEADER_KEY: "header key is null or reaches beyond its record",
        k.BAD_RECORD_END: "record is longer than its fields",
        k.SURPLUS_BYTES: "batch goes on behind its last record",
    }[status]
    batch = totals[k.ERROR_BATCH]
    return CorruptRecordError(
        what,
        path=path,
        position=position + int(table.position[batch]),
        offset=int(table.base_offset[batch]),
        got=f"record {totals[k.ERROR_RECORD]} of {table.count[batch]}",
        expected="sound records",
    )
