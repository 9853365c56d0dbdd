"""Records as Arrow record batches, made from the buffers the decoder filled, without a copy.

Arrays are built with `pa.Array.from_buffers` only: `pa.array` of a list or a numpy array imports
pandas, which costs each worker half a second and 60 MB. Where the buffers come from is told by
`streamlog.records.columns`; what is added here are the columns that a record does not hold itself
(topic and partition), timestamps in microseconds, and null for a record without headers, as
Spark's Kafka source shows it.
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

__all__ = ["MAX_BATCH_BYTES", "MAX_BATCH_ROWS", "ArrowDecoder"]

# Fewer rows cost more per row, more make the receiving JVM collect garbage: measured with Spark.
MAX_BATCH_ROWS: Final = 50_000
MAX_BATCH_BYTES: Final = 16 << 20
_MICROSECONDS: Final = 1000  # in a millisecond
_MAX_MS: Final = MAX_INT64 // _MICROSECONDS


class ArrowDecoder:
    """Turns fetched batches of records into Arrow record batches of bounded size.

    Args:
        columns: Names of the columns wanted, in the order of the schema.
        invalid_timestamps: For times that microseconds cannot hold: `error`, or `null`.
        max_rows: The most rows of one record batch.
        max_bytes: About the most bytes of one.
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
            partition: Where they are from.

        Yields:
            At most `max_rows` rows each, decoded from about `max_bytes` (one batch of the log at
            least, whatever its size).

        Raises:
            CorruptRecordError: A batch's checksum is right and its structure is not.
            InvalidTimestampError: A time does not fit, and that is an error.
        """
        pieces = info.pieces(
            columns=self._stored, max_rows=self._max_rows, max_bytes=self._max_bytes
        )
        for _, records in pieces:
            batch = self.to_arrow(records, partition)
            for start in range(0, batch.num_rows, self._max_rows):
                yield batch.slice(start, self._max_rows)

    def to_arrow(self, records: RecordColumns, partition: TopicPartition) -> pa.RecordBatch:
        """Return records as one record batch of the wanted columns.

        Args:
            records: The records; their timestamps are turned into microseconds where they are.
            partition: Where they are from.

        Raises:
            InvalidTimestampError: A time does not fit, and that is an error; names the offset.
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
            HEADERS: lambda: _headers(records.headers, count, self.schema.field(HEADERS).type),
        }
        return pa.RecordBatch.from_arrays(
            [make[name]() for name in self._columns], schema=self.schema
        )

    def _same_in_each_row(self, partition: TopicPartition, count: int) -> tuple[pa.Array, pa.Array]:
        """Return the columns of topic and partition; batches share one of each."""
        same = self._same
        if same is None or same[0] != partition or len(same[1]) < count:
            number = _fixed(np.full(count, partition.partition, np.int32), pa.int32())
            same = self._same = partition, _repeated(partition.topic, count), number
        return same[1].slice(0, count), same[2].slice(0, count)

    def _timestamps(self, records: RecordColumns, partition: TopicPartition) -> pa.Array:
        """Return milliseconds as microseconds."""
        times = records.timestamp
        validity, nulls = None, 0
        if records.count and (times.min() < -_MAX_MS or times.max() > _MAX_MS):
            bad = (times > _MAX_MS) | (times < -_MAX_MS)
            if self._fails_on_timestamps:
                at = int(bad.argmax())
                raise InvalidTimestampError(
                    f"a record of {partition} has a time that a timestamp cannot hold",
                    offset=int(records.offset[at]),
                    got=f"{int(times[at])} ms",
                    expected=f"{-_MAX_MS} to {_MAX_MS} ms",
                    hint='.option("invalidTimestamps", "null")',
                )
            times[bad] = 0
            validity, nulls = pa.py_buffer(np.packbits(~bad, bitorder="little")), int(bad.sum())
        np.multiply(times, _MICROSECONDS, out=times)
        return pa.Array.from_buffers(
            pa.timestamp("us", tz="UTC"), records.count, [validity, pa.py_buffer(times)], nulls
        )


def _fixed(values: NDArray[np.int32] | NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], 0)


def _binary(column: BinaryColumn | None, count: int, kind: pa.DataType) -> pa.Array:
    """Return a binary or string column; all null where the decoder gave none."""
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
    """Return a string column that says the same in each row."""
    name = text.encode()
    if len(name) * count > MAX_INT32:
        raise LimitExceededError(
            "a batch holds more records than one column can name the topic of",
            got=str(count),
            expected=f"at most {MAX_INT32 // len(name)}",
        )
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(name))
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(name * count)], 0
    )


def _headers(column: HeaderColumn | None, count: int, kind: pa.DataType) -> pa.Array:
    """Return lists of key and value, null where a record has no headers.

    Source: KafkaRecordToRowConverter.toInternalRowProjector.
    """
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
