"""Records into the partitions of one topic: how a partition is chosen, and the append.

    the partition a record asks for
    else murmur2 of its key, as Kafka's Java client
    else, without a key, one partition for about a batch, then another one

`streamlog produce` and `Producer` both write through this.
"""

import contextlib
import random as random_module
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlog.errors import InvalidRequestError, MessageTooLargeError, UnknownTopicError
from streamlog.records.builder import (
    DEFAULT_BATCH_SIZE,
    EncodedBatches,
    InputColumns,
    encode_columns,
)
from streamlog.records.layout import BASE_OFFSET_OFFSET, LENGTH_OFFSET
from streamlog.records.partitioner import NO_PARTITION, StickyPartitioner, partition_for_keys
from streamlog.records.record import CompressionType
from streamlog.root.manager import LogManager

__all__ = ["Appended", "InputLines", "TopicAppender"]

STICKY_SIZE: Final = 16 << 10  # batch.size of Kafka's producer


class Appended(NamedTuple):
    """What a partition got so far; records of other writers may lie between."""

    base_offset: int
    last_offset: int
    records: int


class InputLines(NamedTuple):
    """The lines of some input that the records for one partition are from.

    Attributes:
        numbers: Of the lines of all records; None: they are from no lines.
        rows: int64[n], which of the records are for the partition.
    """

    numbers: Sequence[int] | None
    rows: NDArray[np.int64]

    @contextlib.contextmanager
    def naming(self, first: int, count: int) -> Iterator[None]:
        """Name the lines in an error about some of the records, or about one of them."""
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


class TopicAppender:
    """Appends records to the partitions of a topic.

    Args:
        manager: The open log root.
        topic: The topic.
        partition: The partition of all records; None: as they ask, or by their keys.
        compression: The codec, where the topic leaves it to the producer.
        batch_size: The most bytes of a batch, unless the topic takes less.
        random: Spreads records without a key.

    Raises:
        UnknownTopicError: There is no such topic or partition.

    Attributes:
        topic: The topic.
        partitions: How many partitions it has.
        batch_size: The most bytes of a batch that holds more than one record.
        appended: What each partition got so far, by its number.
    """

    def __init__(
        self,
        manager: LogManager,
        topic: str,
        *,
        partition: int | None = None,
        compression: CompressionType = CompressionType.NONE,
        batch_size: int = DEFAULT_BATCH_SIZE,
        random: random_module.Random | None = None,
    ) -> None:
        manager.ensure_topic(topic)
        self.topic = topic
        self.appended: dict[int, Appended] = {}
        self._manager, self._partition, self._compression = manager, partition, compression
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
            asked: int32[n], the partitions they ask for, -1 for none; None: none asks.
            lines: The numbers of the lines they are from, for errors; None: they are from none.

        Raises:
            UnknownTopicError: A record asks for a partition that is not there; none was written.
            InvalidRequestError: A record that the topic refuses.
            UnavailableError: A lock or the disk is in the way.
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
                )
                self._check_sizes(encoded)
            self._append_batches(number, encoded, named)

    def _check_sizes(self, encoded: EncodedBatches) -> None:
        """Refuse a record, alone in its batch, that is larger than the topic takes."""
        sizes = encoded.table.size
        if int(sizes.max()) > self._max_size:
            batch = int((sizes > self._max_size).argmax())
            raise MessageTooLargeError(
                f"a record is larger than topic {self.topic} takes",
                offset=int(encoded.table.base_offset[batch]),
                got=f"{int(sizes[batch])} bytes",
                expected=f"at most {self._max_size} (max.message.bytes, segment.bytes)",
            )

    def _append_batches(self, number: int, encoded: EncodedBatches, lines: InputLines) -> None:
        """Append batches one by one, under one lock.

        A leader takes one batch of a client at a time, and its base offset must be 0; that field
        is outside the checksum.
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
                    info = log.append_as_leader(batch)
                self._note(number, info.base_offset, info.last_offset, count)
                first += count

    def flush(self) -> None:
        """Make everything durable that was appended."""
        for number in self.appended:
            self._manager.log(self.topic, number).flush()

    def check_partition(self, number: int) -> None:
        """Raise where the topic has no such partition.

        Raises:
            UnknownTopicError: It has not.
        """
        if number not in self._numbers:
            raise UnknownTopicError(
                f"topic {self.topic} has no partition {number}",
                path=self._manager.root,
                expected=f"0 to {self._numbers[-1]}" if self._numbers else "any",
                hint="leave the partition out to go by the key; `produce` has --ignore-partition",
            )

    def _note(self, number: int, base_offset: int, last_offset: int, count: int) -> None:
        before = self.appended.get(number)
        if before is not None:
            base_offset, count = before.base_offset, before.records + count
        self.appended[number] = Appended(base_offset, last_offset, count)

    def _partitions(
        self, columns: InputColumns, asked: NDArray[np.int32] | None
    ) -> NDArray[np.int32]:
        """Return each record's partition: the one it asks for, its key's, or a sticky one."""
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
