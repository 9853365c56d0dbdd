"""Records as columns: flat arrays in Arrow's layout, decoded without an object per record.

A binary column is Arrow's: int32 offsets (one more than rows), the bytes of all values, and a
validity bit per row, lowest first (1: not null), left out where nothing is null. Headers are a
list column: for each record a run of key/value pairs, found by int32 offsets of their own.
pyarrow is not needed here; its arrays can be made from these buffers without a copy.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, repeat
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import Buffer, as_source
from streamlog.errors import InvalidTimestampError, LimitExceededError
from streamlog.records import slot as s
from streamlog.records.layout import CONTROL_MASK, MAX_INT32, MAX_INT64, MIN_INT64
from streamlog.records.legacy import IN_ANY_ORDER, IN_ORDER, messages_of
from streamlog.records.record import (
    NO_TIMESTAMP,
    Header,
    Record,
    TimestampType,
    are_plain,
    checked_record,
)
from streamlog.records.slots import MAX_DECOMPRESSED, check_status, naming, records_of
from streamlog.records.table import BatchTable

__all__ = [
    "COLUMNS",
    "BinaryColumn",
    "HeaderColumn",
    "InputColumns",
    "RecordColumns",
    "decode_columns",
    "decode_produced",
    "timestamps_of",
]

COLUMNS: Final = frozenset({"key", "value", "headers"})
_TYPES: Final = {int(each): each for each in TimestampType}  # a call of an enum takes longer


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
            raise _too_large()
        offsets = np.zeros(len(kept) + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        data = as_source(b"".join(value for value in kept if value))
        nulls = sum(value is None for value in kept)
        present = [value is not None for value in kept]
        validity = np.packbits(present, bitorder="little") if nulls else None
        return cls(offsets=offsets, data=data, validity=validity, null_count=nulls)

    @classmethod
    def concatenate(cls, parts: Sequence["BinaryColumn"]) -> "BinaryColumn":
        """Return one column of all values.

        Raises:
            LimitExceededError: It would have 2 GiB.
        """
        ends = list(accumulate(len(part.data) for part in parts))
        if ends[-1] > MAX_INT32:
            raise _too_large()
        starts = [0, *ends[:-1]]
        offsets = [part.offsets[1:] + start for part, start in zip(parts, starts, strict=True)]
        nulls = sum(part.null_count for part in parts)
        return cls(
            np.concatenate([np.zeros(1, np.int32), *offsets], dtype=np.int32),
            np.concatenate([part.data for part in parts]),
            _concatenate_validity(parts) if nulls else None,
            nulls,
        )

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

    @classmethod
    def concatenate(cls, parts: Sequence["HeaderColumn"]) -> "HeaderColumn":
        """Return the headers of all records."""
        starts = [0, *accumulate(len(part.key) for part in parts)]
        offsets = [part.offsets[1:] + start for part, start in zip(parts, starts, strict=False)]
        return cls(
            np.concatenate([np.zeros(1, np.int32), *offsets], dtype=np.int32),
            BinaryColumn.concatenate([part.key for part in parts]),
            BinaryColumn.concatenate([part.value for part in parts]),
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

    @classmethod
    def concatenate(cls, parts: Sequence["RecordColumns"]) -> "RecordColumns":
        """Return all records; each part has the same columns."""
        keys = [part.key for part in parts if part.key is not None]
        values = [part.value for part in parts if part.value is not None]
        headers = [part.headers for part in parts if part.headers is not None]
        return cls(
            count=sum(part.count for part in parts),
            offset=np.concatenate([part.offset for part in parts]),
            timestamp=np.concatenate([part.timestamp for part in parts]),
            timestamp_type=np.concatenate([part.timestamp_type for part in parts]),
            key=BinaryColumn.concatenate(keys) if keys else None,
            value=BinaryColumn.concatenate(values) if values else None,
            headers=HeaderColumn.concatenate(headers) if headers else None,
        )

    def records(self) -> Iterator[Record]:
        """Yield the records as objects; a column that is None reads as null or no headers."""
        return map(
            Record,
            repeat(None, self.count) if self.key is None else self.key,
            repeat(None, self.count) if self.value is None else self.value,
            repeat((), self.count) if self.headers is None else self.headers,
            self.timestamp.tolist(),
            self.offset.tolist(),
            map(_TYPES.__getitem__, self.timestamp_type.tolist()),
        )


def timestamps_of(times: list[int]) -> NDArray[np.int64]:
    """Return timestamps as an array.

    Raises:
        InvalidTimestampError: One does not fit into 64 bits.
    """
    try:
        return np.array(times, np.int64)
    except OverflowError:
        raise InvalidTimestampError(
            "timestamp does not fit into 64 bits", got=max(times, key=abs)
        ) from None


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
        """Return `records` as columns; a timestamp of None becomes `now_ms`.

        Raises:
            InvalidRecordError: A field has a type that it cannot have.
            InvalidTimestampError: A timestamp does not fit into 64 bits.
        """
        kept = list(records)
        if not are_plain(kept):
            kept = [checked_record(record, number) for number, record in enumerate(kept)]
        times = [now_ms if record.timestamp is None else record.timestamp for record in kept]
        has_headers = any(record.headers for record in kept)
        return cls(
            timestamps_of(times),
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

    Source: DefaultRecordBatch.iterator, AbstractLegacyRecordBatch.iterator.
    """
    bounds = start_offset, end_offset
    bits = CONTROL_MASK if drop_control else 0
    parts = []
    with naming(path, position):
        for run in table.by_format():
            totals = np.zeros(s.TOTALS_WIDTH, np.int64)
            find, last_limit = (messages_of, IN_ORDER) if run.is_legacy else (records_of, bits)
            limits = np.array((*bounds, last_limit), np.int64)
            source, spans = find(
                buffer, run, limits=limits, totals=totals, max_decompressed=max_decompressed
            )
            parts.append(_decode(source, run, spans, limits, totals, columns))
    return parts[0] if len(parts) == 1 else RecordColumns.concatenate(parts)


def decode_produced(buffer: Buffer, table: BatchTable) -> RecordColumns:
    """Decode messages of v0 or v1 as a producer sends them: whatever offsets are in them.

    Args:
        buffer: The messages; nothing in them is trusted.
        table: Their headers, as `scan_batches` found them in `buffer`.

    Raises:
        CorruptRecordError: A message's structure is wrong, or compressed bytes are damaged.
        LimitExceededError: Decompressed to more than is ever read.
    """
    limits = np.array((MIN_INT64, MAX_INT64, IN_ANY_ORDER), np.int64)
    totals = np.zeros(s.TOTALS_WIDTH, np.int64)
    source, spans = messages_of(buffer, table, limits=limits, totals=totals)
    return _decode(source, table, spans, limits, totals, COLUMNS)


def _decode(
    source: NDArray[np.uint8],
    table: BatchTable,
    spans: NDArray[np.int64],
    limits: NDArray[np.int64],
    totals: NDArray[np.int64],
    columns: Collection[str],
) -> RecordColumns:
    """Return the wanted records of the chosen batches, which are all of v2, or all older."""
    from streamlog.records import kernels as k

    decode = k.decode_records
    if table.is_legacy:
        from streamlog.records.legacy_kernels import decode_messages as decode
    rows = int(totals[s.TOTAL_ROWS])
    room = min(int(totals[s.TOTAL_BYTES]), MAX_INT32)  # for all keys, and for all values
    longs = np.empty((k.LONGS_WIDTH, rows), np.int64)
    ints = np.empty((k.INTS_WIDTH, rows + 1), np.int32)
    validity = np.full((2, -(-rows // 8)), 0xFF, np.uint8)
    key = np.empty(room if "key" in columns else 0, np.uint8)
    value = np.empty(room if "value" in columns else 0, np.uint8)
    status = decode(source, table.fields, spans, limits, longs, ints, validity, key, value, totals)
    if status == s.OUT_OF_ROOM and room == MAX_INT32:
        raise _too_large()
    check_status(status, table, totals)
    numbers = totals.tolist()
    count = numbers[s.TOTAL_ROWS]
    ints, validity = ints[:, : count + 1], validity[:, : -(-count // 8)]

    def column(data: NDArray[np.uint8], size: int, nulls: int, row: int) -> BinaryColumn:
        data.resize(size, refcheck=False)  # the room that was not needed goes back
        return BinaryColumn(ints[row], data, validity[row] if nulls else None, nulls)

    key_facts = numbers[s.TOTAL_KEY_BYTES], numbers[s.TOTAL_KEY_NULLS], k.INTS_KEY
    value_facts = numbers[s.TOTAL_VALUE_BYTES], numbers[s.TOTAL_VALUE_NULLS], k.INTS_VALUE
    headers = longs[k.LONGS_HEADERS, :count], ints[k.INTS_HEADERS]
    return RecordColumns(
        count=count,
        offset=longs[k.LONGS_OFFSET, :count],
        timestamp=longs[k.LONGS_TIMESTAMP, :count],
        timestamp_type=ints[k.INTS_TYPE, :count],
        key=column(key, *key_facts) if "key" in columns else None,
        value=column(value, *value_facts) if "value" in columns else None,
        headers=_headers(source, *headers) if "headers" in columns else None,
    )


def _headers(
    source: NDArray[np.uint8], positions: NDArray[np.int64], offsets: NDArray[np.int32]
) -> HeaderColumn:
    """Return the headers of checked records, which begin at `positions` of `source`."""
    from streamlog.records import kernels

    count = int(offsets[-1])
    if not count:
        return HeaderColumn(offsets, _NOTHING, _NOTHING)
    pairs = np.empty((count, s.SLOT_WIDTH), np.int64)
    kernels.locate_headers(source, positions, offsets, pairs)
    key = _gather(source, pairs, s.SLOT_KEY)
    return HeaderColumn(offsets, _valid_utf8(key), _gather(source, pairs, s.SLOT_VALUE))


def _gather(source: NDArray[np.uint8], slots: NDArray[np.int64], place: int) -> BinaryColumn:
    """Return the field at `place` of all slots as a column."""
    from streamlog.records import kernels

    sizes = slots[:, place + 1]
    size = int(np.maximum(sizes, 0).sum())
    if size > MAX_INT32:
        raise _too_large()
    offsets = np.empty(len(slots) + 1, np.int32)
    data = np.empty(size, np.uint8)
    copied = kernels.copy_column(source, slots, place, offsets, data)
    assert copied == size, (copied, size)
    nulls = int((sizes < 0).sum())
    validity = np.packbits(sizes >= 0, bitorder="little") if nulls else None
    return BinaryColumn(offsets, data, validity, nulls)


def _concatenate_validity(parts: Sequence[BinaryColumn]) -> NDArray[np.uint8]:
    bits = [
        np.ones(len(part), np.uint8)
        if part.validity is None
        else np.unpackbits(part.validity, count=len(part), bitorder="little")
        for part in parts
    ]
    return np.packbits(np.concatenate(bits), bitorder="little")


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


def _too_large() -> LimitExceededError:
    return LimitExceededError(
        "a column of 2 GiB and more",
        expected=f"at most {MAX_INT32} bytes",
        hint="read fewer bytes at a time",
    )
