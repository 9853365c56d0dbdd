"""Columns of records as the kernels that write them take them; see `write_kernels`."""

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import as_source, read_only
from streamlog.errors import InvalidRecordError, InvalidRequestError, InvalidTimestampError
from streamlog.records.columns import BinaryColumn, HeaderColumn, InputColumns, RecordColumns
from streamlog.records.record import NO_TIMESTAMP
from streamlog.records.slot import BAD_HEADER_KEY, BAD_ROW, OK

if TYPE_CHECKING:
    from streamlog.records.write_kernels import Column, Headers

__all__ = ["InputArrays", "column_arrays", "input_arrays"]

_NO_BYTES: Final = as_source(b"")
_NO_OFFSETS: Final = read_only(np.empty(0, np.int32), np.int32)
_NO_ROWS: Final = read_only(np.empty(0, np.int64), np.int64)
_NO_HEADERS: Final = (_NO_OFFSETS, _NO_ROWS, _NO_BYTES)


class InputArrays(NamedTuple):
    """Checked records, ready for `write_kernels.write_records`.

    Attributes:
        rows: int64[k], which ones; none: all.
        row_count: How many.
        timestamps: int64[n].
        key: Keys of n records.
        value: Values of n records.
        headers: Which headers each record has, where those of each chosen one begin, the bytes.
        size: Bytes of all chosen keys, values and headers, at most.
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
    """Check records that are to be written.

    Args:
        columns: The records.
        rows: int64[k], which rows to take, in this order; None: all as they stand.

    Raises:
        InvalidTimestampError: A negative timestamp other than -1.
        InvalidRecordError: A header without a key.
        InvalidRequestError: A row that is not there, columns of unequal length, or offsets that
            fall or do not fit the bytes.
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
        raise InvalidRequestError("a row that is not there", expected=f"0 to {total - 1}")
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
    """Return the arrays of a column, None for one of nulls.

    Args:
        column: The column.
        count: How many rows it must have.

    Raises:
        InvalidRequestError: It has fewer.
    """
    if column is None:
        return _NO_OFFSETS, _NO_BYTES, _NO_BYTES
    validity = _NO_BYTES if column.validity is None else as_source(column.validity)
    rows = len(column) if column.validity is None else min(len(column), 8 * len(validity))
    if rows < count:
        raise InvalidRequestError(
            "columns of unequal length, or a row that is not there", got=rows, expected=count
        )
    return read_only(column.offsets, np.int32), validity, as_source(column.data)


def _header_arrays(headers: HeaderColumn, rows: NDArray[np.int64], count: int) -> "Headers":
    """Write the headers of the chosen rows one behind the other.

    Args:
        headers: The headers of all rows.
        rows: int64[k], which rows to take; none: the first `count`.
        count: How many.

    Returns:
        Which headers each row has, where those of each chosen row begin, and the bytes.

    Raises:
        InvalidRecordError: A header without a key.
        InvalidRequestError: A row that is not there, or offsets that fall or do not fit.
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
        raise InvalidRequestError("the offsets of headers fall, or do not fit their columns")
    data = np.empty(int(positions[-1]), np.uint8)
    if kernels.write_header_fields(rows, offsets, key, value, data, count) != len(data):
        raise InvalidRequestError("a column's offsets reach beyond its bytes")
    return offsets, read_only(positions, np.int64), as_source(data)
