"""Writing for `produce`: records to their partitions, in batches, durable before it reports."""

import io
import random
from typing import IO, Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamlog.cli.produce_input import BadLineError, Chunk, Input, read_chunks
from streamlog.cli.progress import Progress
from streamlog.cli.settings import Settings
from streamlog.errors import UnknownTopicError
from streamlog.log.manager import LogManager
from streamlog.records.builder import (
    DEFAULT_BATCH_SIZE,
    EncodedBatches,
    InputColumns,
    encode_columns,
)
from streamlog.records.layout import BASE_OFFSET_OFFSET, LENGTH_OFFSET
from streamlog.records.partitioner import NO_PARTITION, StickyPartitioner, partition_for_keys
from streamlog.records.record import CompressionType

__all__ = ["Producer", "Target", "produce_all"]

STICKY_SIZE: Final = 16 << 10  # batch.size of Kafka's producer


class Parser(Protocol):
    """Makes records of input."""

    def parse(self, chunk: Chunk) -> Input:
        """Return the records of some lines."""
        ...


class Target(NamedTuple):
    """Where the records go.

    Attributes:
        topic: The topic.
        partition: The partition of all of them; None: as the records say, or by their keys.
        compression: The codec.
    """

    topic: str
    partition: int | None
    compression: CompressionType


class _Appended(NamedTuple):
    base_offset: int
    last_offset: int
    records: int


class Producer:
    """Appends records to the partitions of a topic.

    Args:
        manager: The open log root.
        target: The topic, and what is the same for all records.
    """

    def __init__(self, manager: LogManager, target: Target) -> None:
        manager.ensure_topic(target.topic)
        self._manager, self._target = manager, target
        self._numbers = manager.partitions(target.topic)
        if target.partition is not None:
            self._check_partition(target.partition)
        config = manager.topic_config(target.topic)
        self._batch_size = min(
            DEFAULT_BATCH_SIZE, config.max_message_bytes, config.effective_segment_bytes
        )
        self._sticky = StickyPartitioner(
            len(self._numbers), random.Random(), sticky_bytes=STICKY_SIZE
        )
        self._appended: dict[int, _Appended] = {}

    def append(self, records: Input) -> None:
        """Write some records.

        Raises:
            UnknownTopicError: A record asks for a partition that is not there.
            InvalidRequestError: A record that the topic refuses.
            UnavailableError: A lock or the disk is in the way.
        """
        columns = records.columns
        if len(columns.timestamp) == 0:
            return
        chosen = self._partitions(columns, records.partition)
        for number in np.unique(chosen).tolist():
            rows = np.flatnonzero(chosen == number)
            encoded = encode_columns(
                columns,
                rows=None if len(rows) == len(chosen) else rows,
                compression=self._target.compression,
                batch_size=self._batch_size,
            )
            self._append_batches(number, encoded)

    def _append_batches(self, number: int, encoded: EncodedBatches) -> None:
        """Append batches one by one, under one lock.

        A leader takes one batch of a client at a time, and its base offset must be 0; that field
        is outside the checksum.
        """
        log = self._manager.log(self._target.topic, number)
        buffer, table = encoded.buffer, encoded.table
        spans = zip(table.position.tolist(), table.size.tolist(), table.count.tolist(), strict=True)
        with log.writing():
            for position, size, count in spans:
                batch = buffer[position : position + size].copy()
                batch[BASE_OFFSET_OFFSET:LENGTH_OFFSET] = 0
                info = log.append_as_leader(batch)
                self._note(number, info.base_offset, info.last_offset, count)

    def flush(self) -> None:
        """Make everything durable that was appended."""
        for number in self._appended:
            self._manager.log(self._target.topic, number).flush()

    def rows(self) -> list[dict[str, Any]]:
        """Return what was appended: a row for each partition."""
        return [
            {
                "topic": self._target.topic,
                "partition": number,
                "baseOffset": appended.base_offset,
                "lastOffset": appended.last_offset,
                "count": appended.records,
            }
            for number, appended in sorted(self._appended.items())
        ]

    def _note(self, number: int, base_offset: int, last_offset: int, count: int) -> None:
        before = self._appended.get(number)
        if before is not None:
            base_offset, count = before.base_offset, before.records + count
        self._appended[number] = _Appended(base_offset, last_offset, count)

    def _partitions(
        self, columns: InputColumns, asked: NDArray[np.int32] | None
    ) -> NDArray[np.int32]:
        """Return each record's partition: the one it asks for, its key's, or a sticky one."""
        count = len(columns.timestamp)
        if self._target.partition is not None:
            return np.full(count, self._target.partition, np.int32)
        chosen = np.full(count, NO_PARTITION, np.int32) if asked is None else asked.copy()
        if count and int(chosen.max()) >= len(self._numbers):
            self._check_partition(int(chosen.max()))
        if columns.key is not None:
            by_key = partition_for_keys(columns.key, len(self._numbers))
            chosen = np.where(chosen == NO_PARTITION, by_key, chosen)
        free = np.flatnonzero(chosen == NO_PARTITION)
        if len(free):
            chosen[free] = self._sticky_partitions(columns, free)
        return chosen

    def _sticky_partitions(
        self, columns: InputColumns, rows: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return partitions for records without a key, a batch's worth of bytes each in turn."""
        sizes = np.ones(len(rows), np.int64)
        if columns.value is not None:
            sizes += np.diff(columns.value.offsets)[rows]
        turns = (np.cumsum(sizes) - sizes) // STICKY_SIZE
        turns = np.unique(turns, return_inverse=True)[1]
        last = int(turns[-1]) + 1
        drawn = [self._sticky.partition(STICKY_SIZE) for _ in range(last)]
        return np.array(drawn, np.int32)[turns]

    def _check_partition(self, number: int) -> None:
        if number not in self._numbers:
            raise UnknownTopicError(
                f"topic {self._target.topic} has no partition {number}",
                path=self._manager.root,
                expected=f"0 to {self._numbers[-1]}" if self._numbers else "any",
                hint="leave the partition out (jq -c 'del(.partition)') to go by the key",
            )


def produce_all(settings: Settings, producer: Producer, parser: Parser, stream: IO[bytes]) -> None:
    """Append all of `stream`; what was appended is durable however this ends.

    Raises:
        BadLineError: A line is no record; the ones before it were appended.
        StreamLogError: A record cannot be written; those before it were, or some of its chunk.
    """
    try:
        with Progress(settings, "producing", _size_of(stream)) as progress:
            for chunk in read_chunks(stream):
                try:
                    producer.append(parser.parse(chunk))
                except BadLineError as error:
                    if error.before is not None:
                        producer.append(error.before)
                    raise
                progress.advance(len(chunk.data))
    finally:
        producer.flush()


def _size_of(stream: IO[bytes]) -> int | None:
    """Return how much there is to read, where the input is a file; None for a pipe."""
    if not stream.seekable():
        return None
    here = stream.tell()
    size = stream.seek(0, io.SEEK_END) - here
    stream.seek(here)
    return size
