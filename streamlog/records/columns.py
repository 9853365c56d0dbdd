"""Records as columns: flat arrays in Arrow's layout, without an object per record.

A binary column is Arrow's: int32 offsets (one more than rows), the bytes of all values, and a
validity bit per row, lowest first (1: not null), omitted if nothing is null. Headers are a list
column: each record has a run of key/value pairs, located by int32 offsets of their own. pyarrow is
not needed here; its arrays can wrap these buffers without a copy.

`input_arrays` prepares columns for the kernels that write records.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise, repeat
from operator import is_not, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import as_source, read_only
from streamlog.errors import (
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    LimitExceededError,
)
from streamlog.records.layout import MAX_INT32
from streamlog.records.record import (
    NO_TIMESTAMP,
    Header,
    Record,
    TimestampType,
    are_plain,
    checked_record,
)
from streamlog.records.slot import BAD_HEADER_KEY, BAD_ROW, OK

if TYPE_CHECKING:
    from streamlog.records.write_kernels import Column, Headers

__all__ = [
    "COLUMNS",
    "BinaryColumn",
    "HeaderColumn",
    "InputArrays",
    "InputColumns",
    "RecordColumns",
    "column_arrays",
    "input_arrays",
    "timestamps_of",
    "too_large",
]

COLUMNS: Final = frozenset({"key", "value", "headers"})
_TYPES: Final = {int(each): each for each in TimestampType}  # calling an enum takes longer


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """Values of bytes or null.

    Attributes:
        offsets: int32[n + 1]; value i is `data[offsets[i]:offsets[i + 1]]`.
        data: uint8[m].
        validity: uint8[ceil(n / 8)], bit i % 8 of byte i // 8 set if not null; None: no nulls.
        null_count: Number of nulls.
    """

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]
    validity: NDArray[np.uint8] | None = None
    null_count: int = 0

    @classmethod
    def from_values(cls, values: Iterable[bytes | None]) -> "BinaryColumn":
        """Return a column of `values`.

        Raises:
            LimitExceededError: It would have 2 GiB.
        """
        found: list[Any] = values if isinstance(values, list) else list(values)
        nulls, validity, kept = found.count(None), None, found
        if nulls and nulls == len(found):
            nothing = np.zeros(-(-nulls // 8), np.uint8)
            return cls(np.zeros(nulls + 1, np.int32), np.empty(0, np.uint8), nothing, nulls)
        if nulls:
            present = np.fromiter(map(is_not, found, repeat(None)), np.bool_, len(found))
            validity = np.packbits(present, bitorder="little")
            kept = [value or b"" for value in found]
        sizes = np.fromiter(map(len, kept), np.int64, len(kept))
        if int(sizes.sum()) > MAX_INT32:
            raise too_large()
        offsets = np.zeros(len(kept) + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        data = as_source(b"".join(kept))
        return cls(offsets=offsets, data=data, validity=validity, null_count=nulls)

    @classmethod
    def concatenate(cls, parts: Sequence["BinaryColumn"]) -> "BinaryColumn":
        """Return one column of all values.

        Raises:
            LimitExceededError: It would have 2 GiB.
        """
        ends = list(accumulate(len(part.data) for part in parts))
        if ends[-1] > MAX_INT32:
            raise too_large()
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
        return iter(self.to_list())

    def to_list(self) -> list[bytes | None]:
        """Return the values as objects."""
        data, offsets = self.data.tobytes(), self.offsets.tolist()
        values: list[bytes | None] = [data[a:b] for a, b in pairwise(offsets)]
        if self.validity is not None:
            present = np.unpackbits(self.validity, count=len(self), bitorder="little")
            for row in np.flatnonzero(present == 0).tolist():
                values[row] = None
        return values


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
    def from_values(
        cls, values: Iterable[Sequence[Header | tuple[str, bytes | None]]]
    ) -> "HeaderColumn":
        """Return a column of lists of headers: pairs of key and value."""
        kept = values if isinstance(values, list) else list(values)
        flat = list(chain.from_iterable(kept))
        offsets = np.zeros(len(kept) + 1, np.int32)
        np.cumsum(np.fromiter(map(len, kept), np.int64, len(kept)), out=offsets[1:])
        return cls(
            offsets=offsets,
            key=BinaryColumn.from_values(map(str.encode, map(itemgetter(0), flat))),
            value=BinaryColumn.from_values(map(itemgetter(1), flat)),
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
    """Records, one column per field. A column that is None was not requested, or is all null.

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


class InputColumns(NamedTuple):
    """Records to write.

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
            InvalidRecordError: A field has a wrong type.
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


def _concatenate_validity(parts: Sequence[BinaryColumn]) -> NDArray[np.uint8]:
    bits = [
        np.ones(len(part), np.uint8)
        if part.validity is None
        else np.unpackbits(part.validity, count=len(part), bitorder="little")
        for part in parts
    ]
    return np.packbits(np.concatenate(bits), bitorder="little")


def too_large() -> LimitExceededError:
    """Return the error for a column whose int32 offsets overflow."""
    return LimitExceededError(
        "a column has 2 GiB or more",
        expected=f"at most {MAX_INT32} bytes",
        hint="read fewer bytes at a time",
    )


_NO_BYTES: Final = as_source(b"")
_NO_OFFSETS: Final = read_only(np.empty(0, np.int32), np.int32)
_NO_ROWS: Final = read_only(np.empty(0, np.int64), np.int64)
_NO_HEADERS: Final = (_NO_OFFSETS, _NO_ROWS, _NO_BYTES)


class InputArrays(NamedTuple):
    """Checked records, ready for `write_kernels.write_records`.

    Attributes:
        rows: int64[k], the chosen rows; none: all.
        row_count: Their number.
        timestamps: int64[n].
        key: Keys of n records.
        value: Values of n records.
        headers: Headers per record, start of those of each chosen one, the bytes.
        size: Upper bound of the bytes of all chosen keys, values and headers.
    """

    rows: NDArray[np.int64]
    row_count: int
    timestamps: NDArray[np.int64]
    key: "Column"
    value: "Column"
    headers: "Headers"
    size: int


def input_arrays(
    columns: InputColumns | RecordColumns, rows: NDArray[np.int64] | None
) -> InputArrays:
    """Check records to write.

    Args:
        columns: The records.
        rows: int64[k], which rows to take, in this order; None: all in order.

    Raises:
        InvalidTimestampError: A negative timestamp other than -1.
        InvalidRecordError: A header without a key.
        InvalidRequestError: A row out of range, columns of unequal length, or offsets that
            decrease or exceed the bytes.
    """
    from streamlog.records import write_kernels as kernels

    total = len(columns.timestamp)
    count = total if rows is None else len(rows)
    chosen = _NO_ROWS if rows is None else read_only(rows, np.int64)
    timestamps = read_only(columns.timestamp, np.int64)
    key, value = column_arrays(columns.key, total), column_arrays(columns.value, total)
    if rows is None:
        size = len(key[2]) + len(value[2])
    else:
        size = kernels.size_of_rows(chosen, total, key, value)
    if size == BAD_ROW:
        raise InvalidRequestError("row out of range", expected=f"0 to {total - 1}")
    times = timestamps if rows is None else timestamps[chosen]
    if count and int(times.min()) < NO_TIMESTAMP:
        raise InvalidTimestampError(
            "timestamp is negative", got=int(times.min()), expected="0 and more, or -1"
        )
    headers = _NO_HEADERS
    if columns.headers is not None and count:
        headers = _header_arrays(columns.headers, chosen, count)
    size += len(headers[2])
    return InputArrays(chosen, count, timestamps, key, value, headers, size)


def column_arrays(column: BinaryColumn | None, count: int) -> "Column":
    """Return the arrays of a column; None stands for a column of nulls.

    Args:
        column: The column.
        count: Number of rows it must have.

    Raises:
        InvalidRequestError: It has fewer.
    """
    if column is None:
        return _NO_OFFSETS, _NO_BYTES, _NO_BYTES
    validity = _NO_BYTES if column.validity is None else as_source(column.validity)
    rows = len(column) if column.validity is None else min(len(column), 8 * len(validity))
    if rows < count:
        raise InvalidRequestError(
            "columns of unequal length, or row out of range", got=rows, expected=count
        )
    return read_only(column.offsets, np.int32), validity, as_source(column.data)


def _header_arrays(headers: HeaderColumn, rows: NDArray[np.int64], count: int) -> "Headers":
    """Write the headers of the chosen rows without gaps.

    Args:
        headers: The headers of all rows.
        rows: int64[k], which rows to take; none: the first `count`.
        count: Their number.

    Returns:
        Headers per row, start of those of each chosen row, and the bytes.

    Raises:
        InvalidRecordError: A header without a key.
        InvalidRequestError: A row out of range, or offsets that decrease or exceed the bytes.
    """
    from streamlog.records import write_kernels as kernels

    offsets = read_only(headers.offsets, np.int32)
    key, value = column_arrays(headers.key, 0), column_arrays(headers.value, 0)
    positions = np.empty(count + 1, np.int64)
    status = kernels.place_headers(rows, offsets, key, value, positions)
    if status == BAD_HEADER_KEY:
        raise InvalidRecordError("a header needs a key", got="null", expected="text")
    if status == BAD_ROW:
        raise InvalidRequestError("columns of unequal length", got=len(headers))
    if status != OK:
        raise InvalidRequestError("header offsets decrease, or exceed their columns")
    data = np.empty(int(positions[-1]), np.uint8)
    if kernels.write_header_fields(rows, offsets, key, value, data, count) != len(data):
        raise InvalidRequestError("a column's offsets exceed its bytes")
    return offsets, read_only(positions, np.int64), as_source(data)
