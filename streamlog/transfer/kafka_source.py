"""Copying from a Kafka cluster: its committed records, in batches with their own offsets.

librdkafka gives records, not batches. So batches are built here, from records that follow one
another and share what a batch has once: the leader epoch and, if brokers set the time, the time.
A batch also covers the offsets without a record before it: those that compaction, markers of
transactions and aborted transactions left.
"""

import gc
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.clock import Clock, SystemClock
from streamlog.errors import (
    InvalidRecordError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnavailableError,
)
from streamlog.partition.segments import OffsetAndTimestamp
from streamlog.records.builder import KeptOffsets, encode_columns
from streamlog.records.columns import BinaryColumn, HeaderColumn, RecordColumns
from streamlog.records.record import NO_TIMESTAMP, CompressionType, TimestampType
from streamlog.records.table import BatchTable
from streamlog.segment.txn_index import AbortedTxn
from streamlog.topic import TopicPartition
from streamlog.transfer.ends import CopyTopic, Epochs, Piece
from streamlog.transfer.kafka_client import KafkaClient, failure_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

__all__ = ["KafkaReader", "KafkaSource"]

_PIECE_BYTES: Final = 1_000_000  # what is done with it stays in the cache; a batch of 1 MiB
_PIECE_ROWS: Final = 20_000
_ROWS_AT_FIRST: Final = 100  # records asked for, before their size is known
_LOOK_S: Final = 0.1
_PATIENCE_MS: Final = 60_000  # without a record
_NO_EPOCH: Final = -1
# By librdkafka's numbers: none, which batches of v2 write as CreateTime -1; CreateTime; by brokers.
_NO_TYPE: Final = 0
_TYPES: Final = np.array(
    [TimestampType.CREATE_TIME, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME], np.int32
)


class ReadRecords(NamedTuple):
    """Records as they were read.

    Attributes:
        columns: The records.
        epochs: int64[n], the leader epoch of each, -1 if the broker gives none.
        size: Bytes of keys and values.
    """

    columns: RecordColumns
    epochs: NDArray[np.int64]
    size: int

    @classmethod
    def from_messages(cls, messages: "Sequence[Message]", path: str) -> "ReadRecords":
        """Return what librdkafka's consumer returned, without errors.

        Raises:
            InvalidRecordError: A header's key is not UTF-8; names `path` and offset.
        """
        from confluent_kafka import Message

        count = len(messages)
        key = BinaryColumn.from_values(map(Message.key, messages))
        value = BinaryColumn.from_values(map(Message.value, messages))
        headers = _headers_of(messages, path)
        pairs = chain.from_iterable(map(Message.timestamp, messages))
        types, times = np.fromiter(pairs, np.int64, 2 * count).reshape(-1, 2).T
        epochs = list(map(Message.leader_epoch, messages))
        if None in epochs:
            epochs = [_NO_EPOCH if each is None else each for each in epochs]
        columns = RecordColumns(
            count=count,
            offset=np.fromiter(map(Message.offset, messages), np.int64, count),
            timestamp=np.where(types == _NO_TYPE, NO_TIMESTAMP, times),
            timestamp_type=_TYPES[types],
            key=key,
            value=value,
            headers=headers,
        )
        size = len(key.data) + len(value.data)
        return cls(columns, np.fromiter(epochs, np.int64, count), size)


class KafkaReader:
    """Reads committed records of one partition after the other.

    Args:
        client: The cluster.
        clock: For time limits.
    """

    def __init__(self, client: KafkaClient, *, clock: Clock | None = None) -> None:
        self._client, self._clock = client, clock or SystemClock()
        self._consumer: Consumer | None = None
        self._turn = 0

    def read(
        self, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> Iterator[ReadRecords]:
        """Yield the records between two offsets, some at a time; a second call ends the first.

        Raises:
            OffsetOutOfRangeError: The cluster has deleted records that come next.
            UnavailableError: No record came in time.
            InvalidRecordError: A header's key is not UTF-8.
            InvalidRequestError: The client lacks a permission.
        """
        from confluent_kafka import TopicPartition as Place

        if start_offset >= end_offset:
            return
        if self._consumer is None:
            self._consumer = self._client.consumer()
        self._turn = turn = self._turn + 1
        self._consumer.assign([Place(partition.topic, partition.partition, start_offset)])
        path = f"{self._client.name}/{partition}"
        position, rows, since = start_offset, _ROWS_AT_FIRST, self._clock.monotonic_ms()
        while position < end_offset and turn == self._turn:
            read, reached = self._next_records(rows, path, position, end_offset)
            position = max(position, reached)
            if read is not None:
                count = read.columns.count
                rows = max(1, min(_PIECE_ROWS, _PIECE_BYTES * count // (read.size + 1)))
                yield read
                since = self._clock.monotonic_ms()
            elif position < end_offset and self._clock.monotonic_ms() - since > _PATIENCE_MS:
                raise UnavailableError(
                    "no more records arrive",
                    path=path,
                    offset=position,
                    got=self._client.problem,
                    expected=f"records up to offset {end_offset}",
                )

    def _next_records(
        self, rows: int, path: str, position: int, end_offset: int
    ) -> tuple[ReadRecords | None, int]:
        """Return the next records below an offset, and the offset after all that was read.

        An object for each is unavoidable, but none is in a cycle. So no cycles are looked for while
        they are there: that took a quarter of a copy's time.
        """
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            messages, reached = self._next(rows, path, position)
            kept = messages[: bisect_left(messages, end_offset, key=_offset)]
            read = ReadRecords.from_messages(kept, path) if kept else None
            del messages, kept
            return read, reached
        finally:
            if was_enabled:
                gc.enable()

    def _next(self, rows: int, path: str, position: int) -> tuple[list[Any], int]:
        """Return the next records, and the offset after all that was read or passed over."""
        from confluent_kafka import KafkaError, Message

        assert self._consumer is not None, "read made it"
        found = self._consumer.consume(rows, _LOOK_S)
        reached = position
        if any(map(Message.error, found)):
            for each in found:
                error = each.error()
                if error is None:
                    continue
                if error.code() == KafkaError._PARTITION_EOF:
                    reached = max(reached, each.offset())
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise OffsetOutOfRangeError(
                        "the cluster has deleted records that come next",
                        path=path,
                        offset=position,
                        got=error.str(),
                    )
                elif not error.retriable():
                    raise failure_of(error, path=path)
            found = [each for each in found if each.error() is None]
        if found:
            reached = max(reached, found[-1].offset() + 1)
        return found, reached

    def close(self) -> None:
        """Close connections."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


def _headers_of(messages: "Sequence[Message]", path: str) -> HeaderColumn | None:
    """Return the headers of all records, None if no record has any."""
    from confluent_kafka import Message

    found: list[Any] = []
    try:
        found.extend(map(Message.headers, messages))  # keeps those before a failure
    except (SystemError, UnicodeDecodeError):  # the former, up to 2.16, for the latter
        raise InvalidRecordError(
            "a header's key is not UTF-8, and confluent-kafka cannot read it",
            path=path,
            offset=_offset(messages[len(found)]),
            hint="copy the log.dir of a broker instead",
        ) from None
    if not any(found):
        return None
    return HeaderColumn.from_values([some or () for some in found])


def _offset(message: Any) -> int:
    return int(message.offset())


class KafkaSource:
    """A Kafka cluster to copy from; see `CopySource`.

    Args:
        client: The cluster.
        wanted: The topics that will be copied; empty: all but the cluster's own.

    Raises:
        InvalidOptionError: `compression.type` among the client's settings is unknown.
    """

    is_rebuilt = True

    def __init__(self, client: KafkaClient, wanted: Sequence[str] = ()) -> None:
        self._client, self._wanted, self.name = client, frozenset(wanted), client.name
        codec = client.settings.get("compression.type", client.settings.get("compression.codec"))
        self._codec = CompressionType.of(codec)
        self._reader = KafkaReader(client)
        self._topics: dict[str, CopyTopic] | None = None

    def topics(self) -> dict[str, CopyTopic]:
        """See `CopySource.topics`; only topics that are wanted are asked about.

        Raises:
            InvalidRequestError: A topic that belongs to the cluster itself is wanted.
        """
        if self._topics is None:
            found = {}
            for name, numbers in self._client.partitions().items():
                found[name] = CopyTopic(name, None, numbers, {})
                if self._wanted and name not in self._wanted:
                    continue
                known = self._client.describe(name)
                if known.is_internal:
                    del found[name]
                    self._refuse_internal(name)
                    continue
                found[name] = CopyTopic(name, known.topic_id, numbers, known.configs)
            self._topics = found
        return self._topics

    def _refuse_internal(self, name: str) -> None:
        if name in self._wanted:
            raise InvalidRequestError(
                f"topic {name} belongs to the cluster itself",
                path=self.name,
                hint="copy the log.dir of a broker to keep it",
            )

    def open(self, partition: TopicPartition) -> "_KafkaPartition":
        """See `CopySource.open`."""
        return _KafkaPartition(self._client, self._reader, partition, self._codec)

    def close(self) -> None:
        """Close connections."""
        self._reader.close()


class _KafkaPartition:
    """A partition of a cluster, up to its last stable offset; see `SourcePartition`."""

    has_transactions = False  # of those that are committed, the records alone are read
    may_overwrite = False

    def __init__(
        self,
        client: KafkaClient,
        reader: KafkaReader,
        partition: TopicPartition,
        codec: CompressionType,
    ) -> None:
        self._client, self._reader, self._partition = client, reader, partition
        self._codec = codec
        self.path = f"{client.name}/{partition}"
        (self.end_offset,) = client.end_offsets([partition], is_stable=True)
        (self.log_start_offset,) = client.start_offsets([partition])
        self._epochs: list[tuple[int, int]] = []

    @property
    def stable_offset(self) -> int:
        """See `SourcePartition.stable_offset`."""
        return self.end_offset

    @property
    def epochs(self) -> Epochs:
        """Those of the records that were read."""
        return tuple(self._epochs)

    def pieces(self, start_offset: int, end_offset: int) -> Iterator[Piece]:
        """See `SourcePartition.pieces`; batches begin at `start_offset`, and end at the end."""
        end = min(end_offset, self.end_offset)
        begin = max(start_offset, self.log_start_offset)
        self._epochs = [each for each in self._epochs if each[1] < begin]
        is_first = begin == self.log_start_offset
        held: list[ReadRecords] = []
        for read in self._reader.read(self._partition, begin, end):
            size, rows = sum(each.size for each in held), sum(len(each.epochs) for each in held)
            if held and (size + read.size > _PIECE_BYTES or rows + len(read.epochs) > _PIECE_ROWS):
                middle = int(held[-1].columns.offset[-1]) + 1
                yield self._piece(held, begin, middle, is_first=is_first)
                held, begin, is_first = [], middle, False
            held.append(read)
        if held:
            yield self._piece(held, begin, end, is_first=is_first)

    def _piece(self, held: list[ReadRecords], begin: int, end: int, *, is_first: bool) -> Piece:
        """Build the batches between two offsets, all of which they cover."""
        records = held[0].columns
        if len(held) > 1:
            records = RecordColumns.concatenate(_with_headers([each.columns for each in held]))
        epochs = np.concatenate([each.epochs for each in held])
        parts, tables, filled = [], [], 0
        borders = _borders(records, epochs)
        for first, last in pairwise(borders):
            offsets = records.offset[first:last]
            is_whole = first == 0 and last == records.count
            start = begin if first == 0 else int(records.offset[first - 1]) + 1
            stop = end if last == records.count else int(offsets[-1]) + 1
            epoch = int(epochs[first])
            by_broker = records.timestamp_type[first] == TimestampType.LOG_APPEND_TIME
            built = encode_columns(
                records,
                rows=None if is_whole else np.arange(first, last),
                compression=self._codec,
                log_append_time=int(records.timestamp[first]) if by_broker else None,
                kept=KeptOffsets(offsets, start, stop, epoch),
            )
            parts.append(built.buffer)
            tables.append(built.table.moved(filled))
            filled += len(built.buffer)
            if epoch >= 0 and (not self._epochs or epoch > self._epochs[-1][0]):
                self._epochs.append((epoch, start))
        return Piece(
            memoryview(parts[0] if len(parts) == 1 else np.concatenate(parts)),
            BatchTable.concatenate(tables),
            end,
            segment_base=begin if is_first else None,
            is_staged=True,
        )

    def aborted_between(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """See `SourcePartition.aborted_between`: their records are not read."""
        del start_offset, end_offset
        return []

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """See `SourcePartition.offset_for_timestamp`."""
        found = self._client.offset_for_timestamp(self._partition, timestamp)
        return None if found is None else OffsetAndTimestamp(*found)

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """Return the number of offsets; a cluster does not tell their bytes."""
        return max(0, end_offset - start_offset)

    def close(self) -> None:
        """See `SourcePartition.close`; the source closes the connections."""


def _with_headers(parts: list[RecordColumns]) -> list[RecordColumns]:
    """Return parts of which all or none have a column of headers."""
    if all(part.headers is None for part in parts):
        return parts
    return [
        part
        if part.headers is not None
        else replace(part, headers=HeaderColumn.from_values([()] * part.count))
        for part in parts
    ]


def _borders(records: RecordColumns, epochs: NDArray[np.int64]) -> list[int]:
    """Return where records begin that do not fit into the batch of those before, and the ends."""
    types, times = records.timestamp_type, records.timestamp
    differs = (epochs[1:] != epochs[:-1]) | (types[1:] != types[:-1])
    by_broker = types[1:] == TimestampType.LOG_APPEND_TIME
    differs |= by_broker & (times[1:] != times[:-1])
    return [0, *(np.flatnonzero(differs) + 1).tolist(), records.count]
