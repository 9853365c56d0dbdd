"""Appending Arrow data to a partition or through a producer, without an object for each record.

`streamlog.root.arrow_rows` calls this module by its name: the layers below do not know pyarrow.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamlog.arrow.encoder import RowEncoder
from streamlog.arrow.schema import SinkSchema
from streamlog.arrow.sink_batches import open_rows
from streamlog.arrow.sink_columns import DECIDED_BY_PARTITIONER, TIME_OF_BATCH, read_columns
from streamlog.arrow.sink_topics import TopicTarget
from streamlog.errors import InvalidRecordError
from streamlog.partition.append import AppendInfo
from streamlog.partition.log import Log
from streamlog.records.acks import Acks
from streamlog.records.builder import EncodedBatches
from streamlog.records.columns import InputColumns
from streamlog.records.layout import BASE_OFFSET_OFFSET, LENGTH_OFFSET
from streamlog.records.record import CompressionType
from streamlog.records.topic_rules import TopicRules
from streamlog.topic import TopicPartition

__all__ = ["append_rows", "input_columns"]


def append_rows(
    log: Log,
    partition: TopicPartition,
    data: Any,
    *,
    compression: CompressionType,
    acks: Acks,
    now_ms: int,
) -> AppendInfo:
    """Append all rows to one partition. Nothing is written before all rows were checked.

    Args:
        log: The open partition.
        partition: Its topic and number.
        data: See `streamlog.arrow.sink_batches.open_rows`.
        compression: The codec, if the topic's `compression.type` is `producer`.
        acks: How many replicas must hold each batch before the next one is appended.
        now_ms: The timestamp of rows without one.

    Returns:
        The offsets of all rows.

    Raises:
        InvalidRequestError: A column or a row that the topic does not accept, or a row that names
            another partition; nothing was written.
        StreamLogError: As `Log.append_as_leader`; batches before the failed one are appended.
    """
    rows = open_rows(data, partition.topic)
    target = TopicTarget(partition.topic, 1, TopicRules.of(log.config))
    sink = _Kept()
    encoder = RowEncoder(
        sink,
        rows.schema._replace(partition=None),
        topic=partition.topic,
        find_topic=lambda topic: target,
        compression=compression,
        start=0,
        now_ms=now_ms,
    )
    first = 0
    for piece in rows.pieces:
        _check_partition(piece, rows.schema, partition, first)
        encoder.append(piece)
        first += piece.num_rows
    encoder.flush()
    if not sink.batches:
        raise InvalidRecordError("append of no records", expected="one row or more")
    infos: list[AppendInfo] = []
    with log.writing():
        for batch in sink.each():
            infos.append(log.append_as_leader(batch, acks=acks))
    latest = max(infos, key=lambda info: info.max_timestamp)
    return AppendInfo(
        base_offset=infos[0].base_offset,
        last_offset=infos[-1].last_offset,
        max_timestamp=latest.max_timestamp,
        offset_of_max_timestamp=latest.offset_of_max_timestamp,
        log_append_time=infos[-1].log_append_time,
        leader_epoch=infos[-1].leader_epoch,
    )


class _Kept:
    """Keeps encoded batches; see `streamlog.arrow.encoder.BatchSink`."""

    def __init__(self) -> None:
        self.batches: list[EncodedBatches] = []

    def append(self, topic_partition: TopicPartition, batches: EncodedBatches) -> None:
        """Keep batches."""
        del topic_partition
        self.batches.append(batches)

    def each(self) -> Iterator[NDArray[np.uint8]]:
        """Yield batch by batch, with base offset 0: that is how a leader takes them."""
        for buffer, table in self.batches:
            for position, size in zip(table.position.tolist(), table.size.tolist(), strict=True):
                batch = buffer[position : position + size].copy()
                batch[BASE_OFFSET_OFFSET:LENGTH_OFFSET] = 0  # the checksum does not cover it
                yield batch


def _check_partition(
    piece: pa.RecordBatch, schema: SinkSchema, partition: TopicPartition, first_row: int
) -> None:
    """Raise for a row that names another partition."""
    named = _partitions(piece, schema, first_row)
    if named is None:
        return
    others = (named != partition.partition) & (named != DECIDED_BY_PARTITIONER)
    if others.any():
        row = int(others.argmax())
        raise InvalidRecordError(
            f"row {first_row + row} names another partition than that of the log",
            got=int(named[row]),
            expected=f"{partition.partition}, or null",
            hint="leave out the column partition, or use write_table",
        )


def _partitions(
    piece: pa.RecordBatch, schema: SinkSchema, first_row: int
) -> NDArray[np.int32] | None:
    if schema.partition is None:
        return None
    return read_columns(piece, schema, first_row=first_row).partition


def input_columns(
    data: Any, topic: str, *, now_ms: int
) -> Iterator[tuple[InputColumns, NDArray[np.int32] | None]]:
    """Yield the rows of Arrow data, and the partitions that they name.

    Args:
        data: See `streamlog.arrow.sink_batches.open_rows`.
        topic: The topic of all rows.
        now_ms: The timestamp of rows without one.

    Yields:
        Some rows, and int32[n] with -1 for a row that names no partition; None if none does.

    Raises:
        InvalidRequestError: A column or a row that a log does not accept.
    """
    rows = open_rows(data, topic)
    first = 0
    for piece in rows.pieces:
        columns = read_columns(piece, rows.schema, first_row=first)
        first += piece.num_rows
        timestamp = columns.timestamp
        if timestamp is None:
            timestamp = np.full(columns.count, now_ms, np.int64)
        else:
            timestamp = np.where(timestamp == TIME_OF_BATCH, np.int64(now_ms), timestamp)
        yield (
            InputColumns(
                timestamp=timestamp, key=columns.key, value=columns.value, headers=columns.headers
            ),
            columns.partition,
        )
