"""A producer for programs without Spark.

Records are collected for `linger_ms`, or until there is a batch for each partition, and encoded in
one compiled pass. There is no thread: the next call appends waiting records.
"""

import random as random_module
import threading
from collections.abc import Iterable
from typing import Any, Final, cast

import numpy as np

from streamlog.clock import Clock, SystemClock
from streamlog.errors import (
    InvalidOptionError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
)
from streamlog.fs.api import FileSystem
from streamlog.records.acks import Acks
from streamlog.records.builder import (
    DEFAULT_BATCH_SIZE,
)
from streamlog.records.columns import BinaryColumn, HeaderColumn, InputColumns, timestamps_of
from streamlog.records.layout import MAX_INT64
from streamlog.records.partitioner import NO_PARTITION
from streamlog.records.record import NO_TIMESTAMP, CompressionType, Header, Record, checked_record
from streamlog.root.arrow_rows import appending, is_arrow
from streamlog.root.manager import LogManager
from streamlog.root.read_roots import RootPaths
from streamlog.root.topic_appender import TopicAppender

__all__ = ["Producer"]

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
