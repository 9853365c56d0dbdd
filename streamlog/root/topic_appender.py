"""Columns of records, divided among the partitions of a topic and appended as batches.

They are encoded in one compiled pass. A record goes to

    the partition that it names
    else, with a key, murmur2 of the key, as in Kafka's Java client
    else one partition for about a batch, then another one
"""

import contextlib
import random as random_module
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    InvalidRequestError,
    MessageTooLargeError,
    UnknownTopicError,
)
from streamlog.records.acks import Acks
from streamlog.records.builder import (
    DEFAULT_BATCH_SIZE,
    EncodedBatches,
    encode_columns,
)
from streamlog.records.columns import InputColumns
from streamlog.records.layout import BASE_OFFSET_OFFSET, LENGTH_OFFSET
from streamlog.records.partitioner import NO_PARTITION, StickyPartitioner, partition_for_keys
from streamlog.records.record import CompressionType
from streamlog.root.manager import LogManager

__all__ = ["Appended", "InputLines", "PartitionedAppender", "TopicAppender", "TopicFacts"]

STICKY_SIZE: Final = 16 << 10  # batch.size of Kafka's producer


class Appended(NamedTuple):
    """The offsets appended to a partition so far; other writers' records may lie in between."""

    base_offset: int
    last_offset: int
    records: int


class InputLines(NamedTuple):
    """The input lines of the records for one partition.

    Attributes:
        numbers: Line numbers of all records; None if the input has no lines.
        rows: int64[n], indexes of the records for the partition.
    """

    numbers: Sequence[int] | None
    rows: NDArray[np.int64]

    @contextlib.contextmanager
    def naming(self, first: int, count: int) -> Iterator[None]:
        """Add line numbers to an error about some or one of the records."""
        try:
            yield
        except InvalidRequestError as error:
            if isinstance(error, MessageTooLargeError) and error.offset is not None:
                first, count, error.offset = first + error.offset, 1, None
            if self.numbers is not None:
                start, end = (self.numbers[self.rows[at]] for at in (first, first + count - 1))
                where = f"line {start}" if start == end else f"lines {start} to {end}"
                error.what = f"{where} of the input: {error.what}"
            raise


class TopicFacts(Protocol):
    """What an appender asks of its log root: a `LogManager`, or one of an object store."""

    root: str

    def ensure_topic(self, name: str) -> None:
        """Create a topic if it is missing and the root's settings allow that."""
        ...

    def partitions(self, topic: str) -> Sequence[int]:
        """Return the numbers of a topic's partitions."""
        ...

    def topic_config(self, name: str) -> LogConfig:
        """Return the settings of a topic."""
        ...


class PartitionedAppender(ABC):
    """Encodes records by partition of a topic; subclasses append the batches.

    Args:
        manager: The open log root.
        topic: The topic.
        partition: The partition of all records; None: chosen for each record.
        compression: The codec, if the topic's `compression.type` is `producer`.
        acks: How many replicas must hold a batch before the next one is appended.
        batch_size: Maximum bytes of a batch; the topic may lower it.
        random: Spreads records without a key.

    Raises:
        UnknownTopicError: There is no such topic or partition.

    Attributes:
        topic: The topic.
        partitions: Its number of partitions.
        batch_size: Maximum bytes of a batch with more than one record.
        appended: The offsets appended so far, by partition.
    """

    def __init__(
        self,
        manager: TopicFacts,
        topic: str,
        *,
        partition: int | None = None,
        compression: CompressionType = CompressionType.NONE,
        acks: Acks = Acks.ALL,
        batch_size: int = DEFAULT_BATCH_SIZE,
        random: random_module.Random | None = None,
    ) -> None:
        manager.ensure_topic(topic)
        self.topic = topic
        self.appended: dict[int, Appended] = {}
        self._facts, self._partition, self._compression = manager, partition, compression
        self._acks = acks
        self._numbers = manager.partitions(topic)
        self.partitions = len(self._numbers)
        if partition is not None:
            self.check_partition(partition)
        config = manager.topic_config(topic)
        self._max_size = min(config.max_message_bytes, config.effective_segment_bytes)
        self._max_decompressed = config.effective_max_decompressed_bytes
        self.batch_size = min(batch_size, self._max_size)
        self._sticky = StickyPartitioner(
            len(self._numbers), random or random_module.Random(), sticky_bytes=STICKY_SIZE
        )

    def append(
        self,
        columns: InputColumns,
        asked: NDArray[np.int32] | None = None,
        lines: Sequence[int] | None = None,
    ) -> None:
        """Append some records.

        Args:
            columns: The records.
            asked: int32[n], the partitions that records name, -1 for none; None: no record does.
            lines: Their line numbers in the input, for errors; None: the input has no lines.

        Raises:
            UnknownTopicError: A record names a missing partition; nothing was written.
            InvalidRequestError: The topic does not accept a record.
            UnavailableError: A lock was held, or the disk failed.
        """
        if len(columns.timestamp) == 0:
            return
        chosen = self._partitions(columns, asked)
        for number in np.unique(chosen).tolist():
            rows = np.flatnonzero(chosen == number)
            named = InputLines(lines, rows)
            with named.naming(0, len(rows)):
                encoded = encode_columns(
                    columns,
                    rows=None if len(rows) == len(chosen) else rows,
                    compression=self._compression,
                    batch_size=self.batch_size,
                    max_decompressed=self._max_decompressed,
                    log_append_time=self._log_append_time(),
                )
                self._check_sizes(encoded)
            self._append_batches(number, encoded, named)

    def _check_sizes(self, encoded: EncodedBatches) -> None:
        """Raise for a record, alone in its batch, that is too large for the topic."""
        sizes = encoded.table.size
        if int(sizes.max()) > self._max_size:
            batch = int((sizes > self._max_size).argmax())
            raise MessageTooLargeError(
                f"record is too large for topic {self.topic}",
                offset=int(encoded.table.base_offset[batch]),
                got=f"{int(sizes[batch])} bytes",
                expected=f"at most {self._max_size} (max.message.bytes, segment.bytes)",
            )

    def _log_append_time(self) -> int | None:
        """Return the time that batches get here; None if those who append them decide."""
        return None

    @abstractmethod
    def _append_batches(self, number: int, encoded: EncodedBatches, lines: InputLines) -> None:
        """Append batches to a partition."""

    @abstractmethod
    def flush(self) -> None:
        """Make all appended records durable."""

    def discard(self) -> None:  # noqa: B027 - most have nothing to forget
        """Forget what an atomic append has not committed."""

    def check_partition(self, number: int) -> None:
        """Raise if the topic has no such partition.

        Raises:
            UnknownTopicError: There is no such partition.
        """
        if number not in self._numbers:
            raise UnknownTopicError(
                f"topic {self.topic} has no partition {number}",
                path=self._facts.root,
                expected=f"0 to {self._numbers[-1]}" if self._numbers else "any",
                hint="omit the partition to choose by key; `produce` has --ignore-partition",
            )

    def _note(self, number: int, base_offset: int, last_offset: int, count: int) -> None:
        before = self.appended.get(number)
        if before is not None:
            base_offset, count = before.base_offset, before.records + count
        self.appended[number] = Appended(base_offset, last_offset, count)

    def _partitions(
        self, columns: InputColumns, asked: NDArray[np.int32] | None
    ) -> NDArray[np.int32]:
        """Return each record's partition: the one it names, its key's, or a sticky one."""
        count = len(columns.timestamp)
        if self._partition is not None:
            return np.full(count, self._partition, np.int32)
        chosen = np.full(count, NO_PARTITION, np.int32) if asked is None else asked.copy()
        if int(chosen.max()) >= len(self._numbers):
            self.check_partition(int(chosen.max()))
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


class TopicAppender(PartitionedAppender):
    """Appends records to the partitions of a topic in a directory; see `PartitionedAppender`."""

    def __init__(self, manager: LogManager, topic: str, **choices: Any) -> None:
        super().__init__(manager, topic, **choices)
        self._manager = manager

    def _append_batches(self, number: int, encoded: EncodedBatches, lines: InputLines) -> None:
        """Append batches one by one, under one lock.

        A leader accepts one batch of a client at a time, with base offset 0; the checksum does not
        cover that field.
        """
        log = self._manager.log(self.topic, number)
        buffer, table = encoded.buffer, encoded.table
        spans = zip(table.position.tolist(), table.size.tolist(), table.count.tolist(), strict=True)
        first = 0
        with log.writing():
            for position, size, count in spans:
                batch = buffer[position : position + size].copy()
                batch[BASE_OFFSET_OFFSET:LENGTH_OFFSET] = 0
                with lines.naming(first, count):
                    info = log.append_as_leader(batch, acks=self._acks)
                self._note(number, info.base_offset, info.last_offset, count)
                first += count

    def flush(self) -> None:
        """Make all appended records durable."""
        for number in self.appended:
            self._manager.log(self.topic, number).flush()
