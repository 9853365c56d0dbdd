"""Records of a range as a file, made while it is sent: ndjson or Parquet."""

import io
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from streamlog.arrow.schema import COLUMN_NAMES, arrow_schema
from streamlog.records.json_objects import record_object, to_json
from streamlog.records.record import Header, Record, TimestampType
from streamlog.topic import TopicPartition
from streamlog.web.record_filter import RecordFilter
from streamlog.web.record_search import read_range, rows_of

__all__ = ["MAX_BYTES", "download"]

MAX_BYTES: Final = 1 << 30


def download(
    path: str,
    ranges: list[tuple[TopicPartition, int, int]],
    wanted: RecordFilter,
    *,
    is_parquet: bool,
) -> Iterator[bytes]:
    """Yield a file with the records of ranges that match; it ends after about `MAX_BYTES`.

    Args:
        path: The root.
        ranges: Partitions with their first and last (exclusive) offsets.
        wanted: The conditions.
        is_parquet: Whether to write Parquet instead of ndjson as `cat` prints it.

    Raises:
        StreamLogError: A partition cannot be read.
    """
    batches = _batches(path, ranges, wanted)
    return _parquet(batches) if is_parquet else _ndjson(batches)


def _batches(
    path: str, ranges: list[tuple[TopicPartition, int, int]], wanted: RecordFilter
) -> Iterator[pa.RecordBatch]:
    left = MAX_BYTES
    for partition, start, end in ranges:
        if start >= end:
            continue
        for batch in read_range(path, partition, start, end):
            found = wanted.matching(batch)
            left -= found.nbytes
            if found.num_rows:
                yield found
            if left < 0:
                return


def _ndjson(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        lines = []
        for row in rows_of(batch):
            record = Record(
                key=row["key"],
                value=row["value"],
                headers=tuple(Header(each["key"], each["value"]) for each in row["headers"] or ()),
                timestamp=row["timestamp"],
                offset=row["offset"],
                timestamp_type=TimestampType(row["timestampType"]),
            )
            partition = TopicPartition(row["topic"], row["partition"])
            lines.append(to_json(record_object(record, partition, "utf8")) + b"\n")
        yield b"".join(lines)


def _parquet(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    sink = io.BytesIO()
    writer: pq.ParquetWriter | None = None
    for batch in batches:
        if writer is None:
            writer = pq.ParquetWriter(_Drained(sink), batch.schema, compression="zstd")
        writer.write_batch(batch)
        yield _drain(sink)
    if writer is None:
        writer = pq.ParquetWriter(_Drained(sink), arrow_schema(COLUMN_NAMES))
    writer.close()
    yield _drain(sink)


class _Drained(io.RawIOBase):
    """A file that counts what was written to it, while its content is taken away."""

    def __init__(self, sink: io.BytesIO) -> None:
        self._sink, self._size = sink, 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: "bytes | memoryview") -> int:  # type: ignore[override]
        """Write bytes; return their number."""
        self._size += len(data)
        return self._sink.write(data)

    def tell(self) -> int:
        """Return how much was written in all."""
        return self._size


def _drain(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data
