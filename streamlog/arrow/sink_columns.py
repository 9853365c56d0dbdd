"""The rows of a sink as flat arrays over Arrow's buffers.

`read_columns` views the buffers of an Arrow record batch, which may be a slice. No row becomes a
Python object, and no byte of keys, values or headers is copied.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamlog.arrow.schema import HEADERS_TYPE, SinkSchema
from streamlog.errors import InvalidRecordError, InvalidRequestError, InvalidTimestampError
from streamlog.records.columns import BinaryColumn, HeaderColumn
from streamlog.records.record import NO_TIMESTAMP

__all__ = ["DECIDED_BY_PARTITIONER", "TIME_OF_BATCH", "SinkColumns", "read_columns"]

DECIDED_BY_PARTITIONER: Final = -1
TIME_OF_BATCH: Final = -(2**63)  # below every timestamp of Spark


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumns:
    """Rows as flat arrays.

    Attributes:
        count: Number of rows, n.
        value: The values.
        key: The keys; None if no row has one.
        headers: The headers; None if no row has any.
        topics: The topics of the rows; empty without a column topic.
        topic: int32[n], positions in `topics`; None without a column topic.
        partition: int32[n], `DECIDED_BY_PARTITIONER` where null; None without such a column.
        timestamp: int64[n] in milliseconds, `TIME_OF_BATCH` where null; None if no row has one.
    """

    count: int
    value: BinaryColumn
    key: BinaryColumn | None
    headers: HeaderColumn | None
    topics: tuple[str, ...]
    topic: NDArray[np.int32] | None
    partition: NDArray[np.int32] | None
    timestamp: NDArray[np.int64] | None


def read_columns(batch: pa.RecordBatch, schema: SinkSchema, *, first_row: int = 0) -> SinkColumns:
    """View an Arrow record batch as flat arrays.

    Args:
        batch: The rows. It may be a slice and use Arrow's `large_` types.
        schema: Positions of the columns in `batch`.
        first_row: Number of the first row, for errors.

    Returns:
        The columns, sharing the bytes of `batch`.

    Raises:
        InvalidRequestError: The Arrow type of a column does not fit its Spark type.
        InvalidRecordError: A row has no topic, a negative partition, or a header without a key.
        InvalidTimestampError: A timestamp before 1970, except -1 ms (no timestamp).
    """
    topics, topic = _read_topics(_column(batch, schema.topic), first_row)
    key = _column(batch, schema.key)
    headers = _column(batch, schema.headers)
    return SinkColumns(
        count=batch.num_rows,
        value=_read_binary(batch.column(schema.value), "value"),
        key=None if key is None or key.null_count == len(key) else _read_binary(key, "key"),
        headers=None if headers is None else _read_headers(headers, first_row),
        topics=topics,
        topic=topic,
        partition=_read_partitions(_column(batch, schema.partition), first_row),
        timestamp=_read_timestamps(_column(batch, schema.timestamp), first_row),
    )


def _column(batch: pa.RecordBatch, index: int | None) -> pa.Array | None:
    return None if index is None else batch.column(index)


def _unexpected(name: str, column: pa.Array, expected: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{name} attribute unsupported Arrow type", got=column.type, expected=expected
    )


# ---- buffers ---------------------------------------------------------------------------------
def _read_binary(column: pa.Array, name: str) -> BinaryColumn:
    kind = column.type
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.binary())  # raises if it does not fit into 32-bit offsets
    elif not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        raise _unexpected(name, column, "string or binary")
    _, offsets, data = column.buffers()
    return BinaryColumn(
        offsets=_values(offsets, np.dtype(np.int32), column.offset, len(column) + 1),
        data=_bytes(data),
        validity=_validity(column),
        null_count=column.null_count,
    )


def _values(buffer: pa.Buffer | None, dtype: np.dtype[Any], start: int, count: int) -> NDArray[Any]:
    """View `count` numbers of a buffer; empty columns have no buffers in Arrow."""
    if buffer is None or buffer.size < (start + count) * dtype.itemsize:
        return np.zeros(count, dtype)
    return np.frombuffer(buffer, dtype, count, start * dtype.itemsize)


def _bytes(buffer: pa.Buffer | None) -> NDArray[np.uint8]:
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def _validity(column: pa.Array) -> NDArray[np.uint8] | None:
    """Return the bitmap of valid rows, starting with the first row; None if all are valid."""
    buffer = column.buffers()[0]
    if buffer is None or column.null_count == 0:
        return None
    bitmap = np.frombuffer(buffer, np.uint8)
    start, shift = divmod(column.offset, 8)
    end = (column.offset + len(column) + 7) // 8
    if shift == 0:
        return bitmap[start:end]
    bits = np.unpackbits(bitmap[start:end], bitorder="little")[shift : shift + len(column)]
    return np.packbits(bits, bitorder="little")


def _is_null(column: pa.Array) -> NDArray[np.bool_] | None:
    """Return bool[n]; None if no row is null."""
    bitmap = _validity(column)
    if bitmap is None:
        return None
    nulls: NDArray[np.bool_] = np.unpackbits(bitmap, count=len(column), bitorder="little") == 0
    return nulls


# ---- columns ---------------------------------------------------------------------------------
def _read_headers(column: pa.Array, first_row: int) -> HeaderColumn | None:
    kind = column.type
    if pa.types.is_large_list(kind):
        column = column.cast(pa.list_(kind.value_type))
    elif not pa.types.is_list(kind):
        raise _unexpected("headers", column, HEADERS_TYPE)
    ends = _values(column.buffers()[1], np.dtype(np.int32), column.offset, len(column) + 1)
    counts = np.diff(ends)
    null_rows = _is_null(column)
    if null_rows is not None:
        counts[null_rows] = 0
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    pairs = column.flatten()  # drops the items that null lists may hide
    if len(pairs) == 0:
        return None
    keys = pairs.field(0)
    for nulls in (_is_null(pairs), _is_null(keys)):
        if nulls is not None:
            row = int(np.searchsorted(offsets, nulls.argmax(), side="right")) - 1
            raise InvalidRecordError(
                f"row {first_row + row}: header is null or has no key",
                expected="a key in each header; its value may be null",
            )
    return HeaderColumn(
        offsets=offsets,
        key=_read_binary(keys, "headers.key"),
        value=_read_binary(pairs.field(1), "headers.value"),
    )


def _read_topics(
    column: pa.Array | None, first_row: int
) -> tuple[tuple[str, ...], NDArray[np.int32] | None]:
    if column is None:
        return (), None
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise _unexpected("topic", column, "string")
    nulls = _is_null(column)
    if nulls is not None:
        raise InvalidRecordError(
            f"null topic present in the data, row {first_row + int(nulls.argmax())}",
            hint='.option("topic", "NAME")',
        )
    encoded = column.dictionary_encode()
    indices = encoded.indices
    codes = _values(indices.buffers()[1], np.dtype(np.int32), indices.offset, len(indices))
    return tuple(encoded.dictionary.to_pylist()), codes


def _read_partitions(column: pa.Array | None, first_row: int) -> NDArray[np.int32] | None:
    if column is None:
        return None
    if not pa.types.is_int32(column.type):
        raise _unexpected("partition", column, "int")
    partitions = _values(column.buffers()[1], np.dtype(np.int32), column.offset, len(column))
    nulls = _is_null(column)
    if nulls is not None:
        partitions = np.where(nulls, np.int32(0), partitions)
    if (partitions < 0).any():
        row = int((partitions < 0).argmax())
        raise InvalidRecordError(
            f"row {first_row + row}: partition is negative",
            got=int(partitions[row]),
            expected="0 or more, or null",
        )
    if nulls is not None:
        partitions[nulls] = DECIDED_BY_PARTITIONER
    return partitions


def _read_timestamps(column: pa.Array | None, first_row: int) -> NDArray[np.int64] | None:
    if column is None or column.null_count == len(column):
        return None
    kind = column.type
    if not pa.types.is_timestamp(kind) or kind.unit != "us" or kind.tz is None:
        raise _unexpected("timestamp", column, "timestamp[us] with a time zone")
    microseconds = _values(column.buffers()[1], np.dtype(np.int64), column.offset, len(column))
    milliseconds = microseconds // 1000  # towards the past, as DateTimeUtils.microsToMillis
    nulls = _is_null(column)
    if nulls is not None:
        milliseconds[nulls] = 0
    if (milliseconds < NO_TIMESTAMP).any():
        row = int((milliseconds < NO_TIMESTAMP).argmax())
        raise InvalidTimestampError(
            f"row {first_row + row} has a timestamp before 1970",
            got=f"{int(milliseconds[row])} ms",
            expected="0 or more, or null for the time of the batch",
        )
    if nulls is not None:
        milliseconds[nulls] = TIME_OF_BATCH
    return milliseconds
