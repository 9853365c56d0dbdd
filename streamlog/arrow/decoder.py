"""Records as Arrow record batches that share the buffers of decoded columns, without copying.

Arrays are built with `pa.Array.from_buffers` only: `pa.array` of a list or a numpy array imports
pandas, which costs each worker half a second and 60 MB. `streamlog.records.columns` describes the
buffers. This module adds the columns that a record does not contain (topic and partition),
converts timestamps to microseconds, and makes missing headers null, as Spark's Kafka source does.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamlog.arrow.schema import HEADERS, arrow_schema
from streamlog.errors import InvalidTimestampError, LimitExceededError
from streamlog.records.columns import BinaryColumn, HeaderColumn, RecordColumns
from streamlog.records.layout import MAX_INT32, MAX_INT64
from streamlog.topic import TopicPartition

if TYPE_CHECKING:
    from streamlog.partition.read import FetchInfo

__all__ = ["MAX_BATCH_BYTES", "MAX_BATCH_ROWS", "ArrowDecoder", "headers_array"]

# Measured with Spark: fewer rows cost more per row, more rows make the JVM collect garbage.
MAX_BATCH_ROWS: Final = 50_000
MAX_BATCH_BYTES: Final = 16 << 20
_MICROSECONDS: Final = 1000  # per millisecond
_MAX_MS: Final = MAX_INT64 // _MICROSECONDS


class ArrowDecoder:
    """Converts fetched records to Arrow record batches of bounded size; not thread-safe.

    Args:
        columns: Names of columns, in the order of the schema.
        invalid_timestamps: Result for times that microseconds cannot hold: `error` or `null`.
        max_rows: Maximum rows of a record batch.
        max_bytes: Approximate maximum size of a record batch.
    """

    def __init__(
        self,
        columns: tuple[str, ...],
        *,
        invalid_timestamps: str = "error",
        max_rows: int = MAX_BATCH_ROWS,
        max_bytes: int = MAX_BATCH_BYTES,
    ) -> None:
        self.schema = arrow_schema(columns)
        self._columns = columns
        self._stored = frozenset(columns) & {"key", "value", HEADERS}
        self._fails_on_timestamps = invalid_timestamps == "error"
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._same: tuple[TopicPartition, pa.Array, pa.Array] | None = None

    def decode(self, info: "FetchInfo", partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a fetch.

        Args:
            info: Whole, checked batches.
            partition: Their partition.

        Yields:
            At most `max_rows` rows each, decoded from about `max_bytes`, but at least from one
            batch of the log, whatever its size.

        Raises:
            CorruptRecordError: A batch with a valid checksum is malformed.
            InvalidTimestampError: A time does not fit, under `invalid_timestamps="error"`.
        """
        pieces = info.pieces(
            columns=self._stored, max_rows=self._max_rows, max_bytes=self._max_bytes
        )
        for _, records in pieces:
            batch = self.to_arrow(records, partition)
            for start in range(0, batch.num_rows, self._max_rows):
                yield batch.slice(start, self._max_rows)

    def to_arrow(self, records: RecordColumns, partition: TopicPartition) -> pa.RecordBatch:
        """Return records as one record batch.

        Args:
            records: The records. Their timestamps are converted in place.
            partition: Their partition.

        Raises:
            InvalidTimestampError: A time does not fit, under `invalid_timestamps="error"`.
        """
        count = records.count
        topic, number = self._same_in_each_row(partition, count)
        make: dict[str, Callable[[], pa.Array]] = {
            "key": lambda: _binary(records.key, count, pa.binary()),
            "value": lambda: _binary(records.value, count, pa.binary()),
            "topic": lambda: topic,
            "partition": lambda: number,
            "offset": lambda: _fixed(records.offset, pa.int64()),
            "timestamp": lambda: self._timestamps(records, partition),
            "timestampType": lambda: _fixed(records.timestamp_type, pa.int32()),
            HEADERS: lambda: headers_array(records.headers, count),
        }
        return pa.RecordBatch.from_arrays(
            [make[name]() for name in self._columns], schema=self.schema
        )

    def _same_in_each_row(self, partition: TopicPartition, count: int) -> tuple[pa.Array, pa.Array]:
        """Return the columns topic and partition: slices of arrays that all batches share."""
        same = self._same
        if same is None or same[0] != partition or len(same[1]) < count:
            number = _fixed(np.full(count, partition.partition, np.int32), pa.int32())
            same = self._same = partition, _repeated(partition.topic, count), number
        return same[1].slice(0, count), same[2].slice(0, count)

    def _timestamps(self, records: RecordColumns, partition: TopicPartition) -> pa.Array:
        """Convert milliseconds to microseconds, in the buffer of the records."""
        times = records.timestamp
        validity, nulls = None, 0
        if records.count and (times.min() < -_MAX_MS or times.max() > _MAX_MS):
            bad = (times > _MAX_MS) | (times < -_MAX_MS)
            if self._fails_on_timestamps:
                at = int(bad.argmax())
                raise InvalidTimestampError(
                    f"record of {partition}: time does not fit into microseconds",
                    offset=int(records.offset[at]),
                    got=f"{int(times[at])} ms",
                    expected=f"{-_MAX_MS} to {_MAX_MS} ms",
                    hint='.option("invalidTimestamps", "null")',
                )
            times[bad] = 0  # any value that does not overflow below: these rows are null
            validity, nulls = pa.py_buffer(np.packbits(~bad, bitorder="little")), int(bad.sum())
        np.multiply(times, _MICROSECONDS, out=times)
        return pa.Array.from_buffers(
            pa.timestamp("us", tz="UTC"), records.count, [validity, pa.py_buffer(times)], nulls
        )


def _fixed(values: NDArray[np.int32] | NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], 0)


def _binary(column: BinaryColumn | None, count: int, kind: pa.DataType) -> pa.Array:
    """Return a binary or string column; all null without a decoded column."""
    if column is None:
        bits = pa.py_buffer(bytes(-(-count // 8)))
        offsets = pa.py_buffer(bytes(4 * (count + 1)))
        return pa.Array.from_buffers(kind, count, [bits, offsets, pa.py_buffer(b"")], count)
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    return pa.Array.from_buffers(
        kind,
        count,
        [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)],
        column.null_count,
    )


def _repeated(text: str, count: int) -> pa.Array:
    """Return a string column with the same text in each row."""
    name = text.encode()
    if len(name) * count > MAX_INT32:
        raise LimitExceededError(
            "batch has too many records for its topic column",
            got=str(count),
            expected=f"at most {MAX_INT32 // len(name)}",
        )
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(name))
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(name * count)], 0
    )


def headers_array(column: HeaderColumn | None, count: int) -> pa.ListArray:
    """Return lists of key and value, null for a record without headers.

    Args:
        column: The headers of all records; None if none has any.
        count: Number of records.

    Source: KafkaRecordToRowConverter.toInternalRowProjector.
    """
    kind = arrow_schema((HEADERS,)).field(HEADERS).type
    if column is None:
        offsets, total, key, value = np.zeros(count + 1, np.int32), 0, None, None
    else:
        offsets, total, key, value = column.offsets, len(column.key), column.key, column.value
    pairs = pa.Array.from_buffers(
        kind.value_type,
        total,
        [None],
        0,
        children=[_binary(key, total, pa.string()), _binary(value, total, pa.binary())],
    )
    present = np.diff(offsets) > 0
    nulls = count - int(present.sum())
    validity = pa.py_buffer(np.packbits(present, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(
        kind, count, [validity, pa.py_buffer(offsets)], nulls, children=[pairs]
    )
