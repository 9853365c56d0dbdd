"""A producer for programs without Spark.

Records are collected for `linger_ms`, or until there is a batch for each partition, and encoded in
one compiled pass. There is no thread: the next call appends waiting records.

A record goes to

    the partition that it names
    else, with a key, murmur2 of the key, as in Kafka's Java client
    else one partition for about a batch, then another one
"""

import contextlib
import random as random_module
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from streamlog.clock import Clock, SystemClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    InvalidOptionError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem
from streamlog.records.acks import Acks
from streamlog.records.builder import (
    DEFAULT_BATCH_SIZE,
    EncodedBatches,
    encode_columns,
)
from streamlog.records.columns import BinaryColumn, HeaderColumn, InputColumns, timestamps_of
from streamlog.records.layout import BASE_OFFSET_OFFSET, LENGTH_OFFSET, MAX_INT64
from streamlog.records.partitioner import NO_PARTITION, StickyPartitioner, partition_for_keys
from streamlog.records.record import NO_TIMESTAMP, CompressionType, Header, Record, checked_record
from streamlog.root.arrow_rows import appending, is_arrow
from streamlog.root.manager import LogManager
from streamlog.root.read_roots import RootPaths

__all__ = [
    "Appended",
    "InputLines",
    "PartitionedAppender",
    "Producer",
    "TopicAppender",
    "TopicFacts",
]


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


_RECORD_SIZE: Final = 32  # upper bound of the overhead of a record
_HEADER_SIZE: Final = 10  # upper bound of the overhead of a header
_BATCH_SIZE: Final = 61  # a batch without records
_PLAIN: Final = frozenset({bytes, type(None)})


class Producer:
    """Sends records to the topics of a log root; close it, or use it as a context manager.

    A record's partition is the one it names, else murmur2 of its key as in Kafka's Java client,
    else, without a key, one partition for about 16 KiB and then another one. There is no producer
    id: a program that sends again after a crash repeats records. `write_table` with `txn_app_id`
    does not.

    Args:
        root: The log root, or roots of a replica set. Topics must exist unless its
            `auto.create.topics.enable` is true.
        compression_type: `none`, `gzip`, `snappy`, `lz4` or `zstd`, used if the `compression.type`
            of the topic is `producer`.
        acks: How many replicas must hold a record before its append returns: 0, 1 or all. All the
            same for a topic with one replica.
        batch_size: Maximum bytes of a batch; the records of a topic are appended once there are
            this many bytes for each of its partitions.
        linger_ms: A `send` this long after the first waiting record appends all of its topic. 0
            appends each record immediately.
        fs: The file system; the machine's own by default.
        clock: For timestamps and `linger_ms`; the machine's own by default.
        random: Spreads records without a key.

    Raises:
        UnknownTopicError: There is no such root.
        InvalidOptionError: A setting is out of range.

    Source: org.apache.kafka.clients.producer.KafkaProducer; the defaults of batch.size and
    linger.ms are ours and Kafka 4.0's.
    """

    def __init__(
        self,
        root: RootPaths,
        *,
        compression_type: str | CompressionType = CompressionType.NONE,
        acks: str | int | Acks = Acks.ALL,
        batch_size: int = DEFAULT_BATCH_SIZE,
        linger_ms: float = 5,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        random: random_module.Random | None = None,
    ) -> None:
        if batch_size < 1 or linger_ms < 0:
            raise InvalidOptionError(
                "invalid batch_size or linger_ms of a producer",
                got=f"batch_size={batch_size}, linger_ms={linger_ms}",
                expected="batch_size of 1 or more bytes, linger_ms of 0 or more",
            )
        self._compression, self._acks = CompressionType.of(compression_type), Acks.of(acks)
        self._batch_size, self._linger_ms = batch_size, linger_ms
        self._clock = clock or SystemClock()
        self._random = random or random_module.Random()
        self._manager = LogManager.open(root, fs=fs, clock=self._clock, random=self._random)
        self._waiting: dict[str, _Waiting] = {}
        self._guard = threading.RLock()
        self._failure: BaseException | None = None
        self._is_closed = False
        self._is_stopped = False  # closed, or failed

    @property
    def pending(self) -> int:
        """Number of records that were sent and are not in the log yet."""
        return sum(each.count for each in self._waiting.values())

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Send one record; `linger_ms`, a full batch, `flush` or `close` appends it to the log.

        Args:
            topic: Its topic.
            value: Its value; None is a tombstone if the topic is compacted.
            key: Its key.
            headers: Its headers, pairs of name and value.
            partition: Its partition; None: chosen by the key, or spread.
            timestamp: Milliseconds since 1970; None: the time of this call.

        Raises:
            UnknownTopicError: There is no such topic or partition.
            InvalidRecordError: A field has a wrong type, or a compacted topic got no key. The
                record was not sent; the producer remains usable.
            MessageTooLargeError: The record exceeds `max.message.bytes`; likewise.
            StreamLogError: Waiting records could not be appended: the producer has failed. Further
                calls report how many records were not appended.

        Source: KafkaProducer.send.
        """
        with self._guard:
            if self._is_stopped:
                self._check_usable()
            waiting = self._waiting.get(topic)
            if waiting is None:
                waiting = self._open(topic)
            if timestamp is None:
                timestamp = self._clock.now_ms()
            pairs: tuple[Header, ...] = ()
            if (
                headers
                or type(key) not in _PLAIN
                or type(value) not in _PLAIN
                or type(timestamp) is not int
            ):
                fields = Record(key, value, cast("tuple[Header, ...]", tuple(headers)), timestamp)
                key, value, pairs, time = checked_record(fields, waiting.count)[:4]
                timestamp = self._clock.now_ms() if time is None else time
            waiting.check(key, timestamp, partition)
            size = _RECORD_SIZE + (len(key) if key else 0) + (len(value) if value else 0)
            if pairs:
                size += sum(_HEADER_SIZE + len(n.encode()) + len(v or b"") for n, v in pairs)
            if size + _BATCH_SIZE > waiting.appender.batch_size:
                self._drain(waiting)  # keep the order of records
                waiting.append_alone(Record(key, value, pairs, timestamp), partition)
                return
            now_ms = self._clock.monotonic_ms()
            waiting.add(key, value, timestamp, size, now_ms)
            if pairs or partition is not None:
                waiting.add_rarities(pairs, partition)
            if waiting.size >= waiting.size_max or now_ms - waiting.since_ms >= self._linger_ms:
                self._drain(waiting)

    def append(self, topic: str, rows: Any) -> None:
        """Append rows of Arrow data at once, after the records that were sent before.

        The partition of a row is that of the column `partition`, else that of its key, else one
        for about 16 KiB and then another one. No row becomes an object.

        Args:
            topic: The topic of all rows.
            rows: A pyarrow Table, RecordBatch or RecordBatchReader, or a DataFrame of pandas or
                Polars, with the columns of `write_table`. It may be larger than memory.

        Raises:
            UnknownTopicError: There is no such topic or partition.
            InvalidRequestError: A column or a row that the topic does not accept. Rows before it,
                some megabytes at a time, are appended.
            StreamLogError: Records could not be appended: the producer has failed.
        """
        with self._guard:
            self._check_usable()
            if not is_arrow(rows):
                raise InvalidRequestError(
                    "append takes Arrow data",
                    got=type(rows).__name__,
                    expected="a pyarrow Table, RecordBatch or RecordBatchReader, or a DataFrame",
                    hint="send takes one record",
                )
            waiting = self._waiting.get(topic) or self._open(topic)
            self._drain(waiting)
            now_ms = self._clock.now_ms()
            for columns, asked in appending().input_columns(rows, topic, now_ms=now_ms):
                try:
                    waiting.appender.append(columns, asked)
                except InvalidRequestError:
                    raise
                except BaseException as error:
                    self._fail(error)
                    raise

    def flush(self) -> None:
        """Append all records sent so far and sync them to the disk.

        Raises:
            StreamLogError: Records could not be appended or synced: the producer has failed.
        """
        with self._guard:
            self._check_usable()
            for waiting in self._waiting.values():
                self._drain(waiting)
            try:
                for waiting in self._waiting.values():
                    waiting.appender.flush()
            except BaseException as error:
                self._fail(error)
                raise

    def close(self) -> None:
        """Append all records sent so far, sync them, and close; idempotent.

        Raises:
            StreamLogError: Records could not be appended or synced; the producer is closed all the
                same.
        """
        with self._guard:
            if self._is_closed:
                return
            try:
                if self._failure is None:
                    self.flush()
            finally:
                self._is_closed = self._is_stopped = True
                self._manager.close()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, topic: str) -> "_Waiting":
        appender = TopicAppender(
            self._manager,
            topic,
            compression=self._compression,
            acks=self._acks,
            batch_size=self._batch_size,
            random=self._random,
        )
        is_compacted = "compact" in self._manager.topic_config(topic).cleanup_policy
        waiting = _Waiting(appender, self._batch_size, is_compacted=is_compacted)
        self._waiting[topic] = waiting
        return waiting

    def _drain(self, waiting: "_Waiting") -> None:
        try:
            waiting.drain()
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        self._failure, self._is_stopped = error, True

    def _check_usable(self) -> None:
        if self._is_closed:
            raise InvalidRequestError("the producer has been closed", path=self._manager.root)
        if self._failure is not None:
            raise InvalidRequestError(
                "the producer has failed",
                path=self._manager.root,
                got=f"{type(self._failure).__name__}: {self._failure}",
                expected="a new producer",
                hint=f"up to {self.pending} records were not appended; read the end of the topic to"
                " see which ones were",
            ) from self._failure


class _Waiting:
    """The records of one topic that are not in the log yet, one list per field."""

    __slots__ = (
        *("appender", "count", "since_ms", "size", "size_max"),
        *("_asked", "_headers", "_is_compacted", "_keys", "_times", "_values"),
    )

    def __init__(self, appender: TopicAppender, batch_size: int, *, is_compacted: bool) -> None:
        self.appender = appender
        self.size_max = batch_size * appender.partitions
        self._is_compacted = is_compacted
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self.size = 0
        self.since_ms = 0.0
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._times: list[int] = []
        self._headers: dict[int, tuple[Header, ...]] = {}  # by row; most rows have none
        self._asked: dict[int, int] = {}  # partitions, likewise

    def check(self, key: bytes | None, timestamp: int, partition: int | None) -> None:
        """Raise for a record that the topic does not accept."""
        if not NO_TIMESTAMP <= timestamp <= MAX_INT64:
            raise InvalidTimestampError(
                "invalid timestamp", got=timestamp, expected="0 or more milliseconds since 1970"
            )
        if key is None and self._is_compacted:
            raise InvalidRecordError(
                f"a record of the compacted topic {self.appender.topic} must have a key",
                got="null",
                expected="a key",
            )
        if partition is not None:
            self.appender.check_partition(partition)

    def add(
        self, key: bytes | None, value: bytes | None, timestamp: int, size: int, now_ms: float
    ) -> None:
        """Keep a record for later."""
        if not self.count:
            self.since_ms = now_ms
        self._keys.append(key)
        self._values.append(value)
        self._times.append(timestamp)
        self.count += 1
        self.size += size

    def add_rarities(self, headers: tuple[Header, ...], partition: int | None) -> None:
        """Keep the optional fields of the last added record, which few records have."""
        if headers:
            self._headers[self.count - 1] = headers
        if partition is not None:
            self._asked[self.count - 1] = partition

    def append_alone(self, record: Record, partition: int | None) -> None:
        """Append a large record by itself."""
        asked = None if partition is None else np.array([partition], np.int32)
        self.appender.append(InputColumns.from_records([record]), asked)

    def drain(self) -> None:
        """Append the waiting records."""
        if not self.count:
            return
        headers = None
        if self._headers:
            rows = (self._headers.get(row, ()) for row in range(self.count))
            headers = HeaderColumn.from_values(rows)
        asked = None
        if self._asked:
            asked = np.full(self.count, NO_PARTITION, np.int32)
            asked[list(self._asked)] = list(self._asked.values())
        columns = InputColumns(
            timestamps_of(self._times),
            BinaryColumn.from_values(self._keys),
            BinaryColumn.from_values(self._values),
            headers,
        )
        self.appender.append(columns, asked)
        self._clear()
