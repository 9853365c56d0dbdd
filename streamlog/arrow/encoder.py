"""Encodes the rows of a sink's task as record batches, by partition.

Arrow batches are buffered up to `BUFFER_SIZE` bytes (Spark sends 10,000 rows at a time, which
would make tiny batches for many partitions), joined, and divided by

    the column partition, where not null,
    else murmur2 of the key, as in Kafka's Java client,
    else, without a key, one partition for about one batch, then the next.

Each partition's rows become whole v2 batches in one compiled pass that gathers rows by index. A
row that the topic does not accept (`TopicRules`) is refused here, where its number in the task is
known; appends and commits only see batches. The result depends only on the rows, their order and
`start`, so a repeated task produces the same batches.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamlog.arrow.schema import SinkSchema
from streamlog.arrow.sink_columns import (
    DECIDED_BY_PARTITIONER,
    TIME_OF_BATCH,
    SinkColumns,
    read_columns,
)
from streamlog.arrow.sink_topics import TopicTarget
from streamlog.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnknownTopicError,
)
from streamlog.records.builder import EncodedBatches, encode_columns
from streamlog.records.columns import BinaryColumn, InputColumns
from streamlog.records.partitioner import partition_for_keys
from streamlog.records.record import CompressionType
from streamlog.records.table import BatchTable
from streamlog.records.topic_rules import TopicRules
from streamlog.topic import TopicPartition

__all__ = ["BATCH_SIZE", "BUFFER_SIZE", "BatchSink", "RowEncoder"]

BUFFER_SIZE: Final = 16 << 20
# Large enough to make headers and index entries negligible, small enough that reading one record
# does not mean decoding a megabyte.
BATCH_SIZE: Final = 512 << 10
_ROW_SIZE: Final = 32  # of a row without its bytes: offsets, order, fields of the record
_MAX_SMALL_COUNT: Final = 1 << 16


class BatchSink(Protocol):
    """Receives the encoded batches; implemented by `streamlog.commits.staging.Stager`."""

    def append(self, topic_partition: TopicPartition, batches: EncodedBatches) -> None:
        """Add the next batches of a partition."""
        ...


class RowEncoder:
    """Divides the rows of one task among partitions and encodes them.

    Args:
        sink: Receives the batches.
        schema: Positions of the sink's columns in the Arrow batches.
        topic: The topic of all rows; None: the column `topic`.
        find_topic: Returns partitions and rules of a topic, or raises `UnknownTopicError`.
        compression: The codec for topics whose `compression.type` is `producer`.
        start: Index of the first partition for rows without a key; it differs between the tasks
            of a batch, so that they do not all begin with the same partition.
        now_ms: The time of the batch: the timestamp of rows without one.
        watch: Called with all rows before they are encoded.
        stamps: Whether rows for a topic of LogAppendTime get the time of the batch here; otherwise
            the commit does that.
    """

    def __init__(
        self,
        sink: BatchSink,
        schema: SinkSchema,
        *,
        topic: str | None,
        find_topic: Callable[[str], TopicTarget],
        compression: CompressionType,
        start: int,
        now_ms: int,
        watch: Callable[[SinkColumns], None] | None = None,
        stamps: bool = False,
    ) -> None:
        self._stamps = stamps
        self._sink = sink
        self._columns = schema.indices()
        self._schema = schema.packed()
        self._topic = topic
        self._find_topic = find_topic
        self._compression = compression
        self._start = start
        self._now_ms = now_ms
        self._watch = watch
        self._spread: dict[str, int] = {}  # batches of rows without a key so far, by topic
        self._pending: list[pa.RecordBatch] = []
        self._pending_size = 0
        self._rows = 0  # encoded so far

    @property
    def rows(self) -> int:
        """Number of rows encoded so far."""
        return self._rows

    def append(self, batch: pa.RecordBatch) -> None:
        """Buffer rows; encode the buffered ones first if there would be too many.

        Raises:
            InvalidRequestError: A row or column that the topic or the sink does not accept.
            StorageError: The sink could not write.
        """
        if batch.num_rows == 0:
            return
        batch = batch.select(self._columns)
        size = batch.nbytes + batch.num_rows * _ROW_SIZE
        if self._pending and self._pending_size + size > BUFFER_SIZE:
            self.flush()
        self._pending.append(batch)
        self._pending_size += size

    def flush(self) -> None:
        """Encode the buffered rows.

        Raises:
            InvalidRequestError: A row or column that the topic or the sink does not accept.
            StorageError: The sink could not write.
        """
        if not self._pending:
            return
        batches, self._pending, self._pending_size = self._pending, [], 0
        joined = batches[0] if len(batches) == 1 else _join(batches)
        columns = read_columns(joined, self._schema, first_row=self._rows)
        if self._watch is not None:
            self._watch(columns)
        self._encode(columns)
        self._rows += joined.num_rows

    def _encode(self, columns: SinkColumns) -> None:
        timestamp = columns.timestamp
        if timestamp is None:
            timestamp = np.full(columns.count, self._now_ms, np.int64)
        else:
            timestamp = np.where(timestamp == TIME_OF_BATCH, np.int64(self._now_ms), timestamp)
        records = InputColumns(
            timestamp=timestamp, key=columns.key, value=columns.value, headers=columns.headers
        )
        for topic, rows in self._by_topic(columns):
            target = self._find_topic(topic)
            check = _RowCheck(target, self._rows, self._now_ms)
            check.keys(columns.key, columns.count, rows)
            check.timestamps(timestamp, rows)
            is_stamped = self._stamps and target.rules.is_stamped
            for partition, part in self._by_partition(columns, rows, target, check):
                try:
                    encoded = encode_columns(
                        records,
                        rows=part,
                        compression=target.rules.codec_for(self._compression),
                        level=target.rules.level,
                        batch_size=_batch_size(target.rules),
                        max_decompressed=target.rules.max_decompressed_bytes,
                        log_append_time=self._now_ms if is_stamped else None,
                    )
                except MessageTooLargeError as error:
                    raise check.not_decompressed(error, part) from error
                check.sizes(encoded.table, part)
                self._sink.append(TopicPartition(topic, partition), encoded)

    def _by_topic(self, columns: SinkColumns) -> Iterator[tuple[str, NDArray[np.int64] | None]]:
        """Yield each topic with its rows; None for all of them."""
        if self._topic is not None or columns.topic is None:
            yield self._topic or "", None
            return
        if len(columns.topics) == 1:
            yield columns.topics[0], None
            return
        for code, rows in _groups(columns.topic, None, len(columns.topics)):
            yield columns.topics[code], rows

    def _by_partition(
        self,
        columns: SinkColumns,
        rows: NDArray[np.int64] | None,
        target: TopicTarget,
        check: "_RowCheck",
    ) -> Iterator[tuple[int, NDArray[np.int64] | None]]:
        """Yield each partition with its rows; None for all of them."""
        if columns.partition is not None:
            check.partitions(columns.partition, rows)
        if target.partitions == 1:
            yield 0, rows
            return
        yield from _groups(self._partitions(columns, rows, target), rows, target.partitions)

    def _partitions(
        self, columns: SinkColumns, rows: NDArray[np.int64] | None, target: TopicTarget
    ) -> NDArray[np.int32]:
        """Return the partition of each row of `rows`: int32[k]."""
        count = columns.count if rows is None else rows.size
        chosen = np.full(count, DECIDED_BY_PARTITIONER, np.int32)
        if columns.partition is not None:
            chosen = columns.partition.copy() if rows is None else columns.partition[rows]
        open_rows = chosen == DECIDED_BY_PARTITIONER
        if columns.key is not None and open_rows.any():
            by_key = partition_for_keys(columns.key, target.partitions)
            chosen = np.where(open_rows, by_key if rows is None else by_key[rows], chosen)
            open_rows = chosen == DECIDED_BY_PARTITIONER
        if open_rows.any():
            spread = np.flatnonzero(open_rows)
            source = spread if rows is None else rows[spread]
            chosen[spread] = self._spread_out(columns, source, target)
        return chosen

    def _spread_out(
        self, columns: SinkColumns, rows: NDArray[np.int64], target: TopicTarget
    ) -> NDArray[np.int32]:
        """Return a partition for each row without a key: the same for about one batch of rows."""
        offsets = columns.value.offsets
        sizes = offsets[rows + 1] - offsets[rows].astype(np.int64) + _ROW_SIZE
        done = self._spread.get(target.topic, 0)
        batch = (np.cumsum(sizes) - sizes) // _batch_size(target.rules) + done
        self._spread[target.topic] = int(batch[-1]) + 1
        partitions: NDArray[np.int32] = ((batch + self._start) % target.partitions).astype(np.int32)
        return partitions


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _groups(
    codes: NDArray[np.int32], rows: NDArray[np.int64] | None, count: int
) -> Iterator[tuple[int, NDArray[np.int64] | None]]:
    """Yield each occurring code with its rows, in their order.

    Args:
        codes: int32[k], from 0 to `count` - 1.
        rows: int64[k], the rows that the codes belong to; None: 0, 1, 2 …
        count: Number of possible codes.
    """
    first = int(codes[0])
    if (codes == first).all():
        yield first, rows
        return
    narrow = codes.astype(np.uint16) if count <= _MAX_SMALL_COUNT else codes
    order = np.argsort(narrow, kind="stable")  # radix sort for 16 bits
    borders = np.flatnonzero(np.diff(narrow[order])) + 1
    for part in np.split(order, borders):
        yield int(codes[part[0]]), part if rows is None else rows[part]


def _batch_size(rules: TopicRules) -> int:
    """Return the size to which batches are filled, before compression."""
    return min(BATCH_SIZE, rules.max_record_bytes)


class _RowCheck:
    """Refuses rows that a topic does not accept; errors name the first such row.

    `rows` is always int64[k], or None for all rows.
    """

    __slots__ = ("_first_row", "_now_ms", "_target")

    def __init__(self, target: TopicTarget, first_row: int, now_ms: int) -> None:
        self._target = target
        self._first_row = first_row
        self._now_ms = now_ms

    def keys(self, key: BinaryColumn | None, count: int, rows: NDArray[np.int64] | None) -> None:
        """Refuse rows without a key in a compacted topic."""
        if not self._target.rules.needs_keys:
            return
        if key is None:
            missing = 0
        elif key.validity is None:
            return
        else:
            null = np.unpackbits(key.validity, count=count, bitorder="little") == 0
            found = np.flatnonzero(null if rows is None else null[rows])
            if found.size == 0:
                return
            missing = int(found[0])
        raise InvalidRecordError(
            f"{self._name(rows, missing)} has no key, but its topic {self._target.topic!r} is "
            "compacted",
            got="null",
            expected="a key",
        )

    def timestamps(self, timestamp: NDArray[np.int64], rows: NDArray[np.int64] | None) -> None:
        """Refuse rows outside the topic's time bounds."""
        times = self._target.rules.times(self._now_ms)
        chosen = timestamp if rows is None else timestamp[rows]
        index = times.first_outside(chosen)
        if index is not None:
            raise InvalidTimestampError(
                f"{self._name(rows, index)} has a timestamp outside the bounds of topic "
                f"{self._target.topic!r}",
                got=f"{int(chosen[index])} ms",
                expected=str(times),
            )

    def partitions(self, partition: NDArray[np.int32], rows: NDArray[np.int64] | None) -> None:
        """Refuse rows with a partition that the topic does not have."""
        chosen = partition if rows is None else partition[rows]
        if int(chosen.max()) < self._target.partitions:
            return
        index = int((chosen >= self._target.partitions).argmax())
        raise UnknownTopicError(
            f"{self._name(rows, index)} names a partition that topic {self._target.topic!r} "
            "does not have",
            got=int(chosen[index]),
            expected=f"0 to {self._target.partitions - 1}",
            hint='df.drop("partition") lets the key decide; or '
            f"streamlog topics alter {self._target.topic} --partitions {int(chosen.max()) + 1}",
        )

    def sizes(self, table: BatchTable, rows: NDArray[np.int64] | None) -> None:
        """Refuse batches above the topic's size limits.

        Batches are filled below the limits, so one above them holds a single record.
        """
        limit = self._target.rules.max_record_bytes
        if int(table.size.max()) <= limit:
            return
        batch = int((table.size > limit).argmax())
        index = int(table.base_offset[batch])
        raise MessageTooLargeError(
            f"{self._name(rows, index)} is too large for topic {self._target.topic!r}",
            got=f"{int(table.size[batch])} bytes",
            expected=f"at most {limit}",
            hint=f"streamlog topics alter {self._target.topic} --config max.message.bytes=…",
        )

    def not_decompressed(
        self, error: MessageTooLargeError, rows: NDArray[np.int64] | None
    ) -> MessageTooLargeError:
        """Return an error of the encoder about a record, with the number of its row."""
        topic = self._target.topic
        return MessageTooLargeError(
            f"{self._name(rows, error.offset or 0)} is larger than the decompressed size limit of "
            f"topic {topic!r}",
            got=error.got,
            expected=error.expected,
            hint=f"streamlog topics alter {topic} --config streamlog.max.decompressed.bytes=…",
        )

    def _name(self, rows: NDArray[np.int64] | None, index: int) -> str:
        return f"row {self._first_row + (index if rows is None else int(rows[index]))} of the task"
