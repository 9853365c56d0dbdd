"""A producer for programs without Spark: records in, batches in the log.

Records are gathered for `linger_ms`, or until a batch for each partition is together, and encoded
in one compiled pass. No thread runs: what waits is appended by the next call.
"""

import os
import random as random_module
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Final, cast

import numpy as np

from streamlog.clock import Clock, SystemClock
from streamlog.errors import InvalidOptionError, InvalidRecordError, InvalidRequestError
from streamlog.fs.api import FileSystem
from streamlog.log.manager import LogManager
from streamlog.log.topic_appender import TopicAppender
from streamlog.records.builder import DEFAULT_BATCH_SIZE
from streamlog.records.columns import InputColumns
from streamlog.records.partitioner import NO_PARTITION
from streamlog.records.record import CompressionType, Header, Record, checked_record

__all__ = ["Producer"]

_RECORD_SIZE: Final = 32  # more than a record takes besides its bytes
_HEADER_SIZE: Final = 10  # the same of one of its headers
_BATCH_SIZE: Final = 61  # of a batch without records
_PLAIN: Final = frozenset({bytes, type(None)})


class Producer:
    """Sends records to the topics of a log root; close it, or use it as a context manager.

    A record's partition is the one it asks for, else murmur2 of its key as in Kafka's Java client,
    else, without a key, one partition for about 16 KiB and then another one. Each record is
    appended once; there is no producer id, so a program that sends again after a crash repeats
    what it had sent. `write_table` with `txn_app_id` does not.

    Args:
        root: The log root; its topics are created beforehand, unless the root's
            `auto.create.topics.enable` is true.
        compression_type: `none`, `gzip`, `snappy`, `lz4` or `zstd`, where the topic's
            `compression.type` leaves that to the producer.
        batch_size: Bytes; a topic's records are appended when so many are together for each of
            its partitions, and no batch is larger.
        linger_ms: A record is appended by the first call of `send` that comes this long after
            the record did, at the latest. 0 appends each record at once.
        fs: The file system; the machine's own by default.
        clock: Gives timestamps and measures `linger_ms`; the machine's own by default.
        random: Spreads records without a key.

    Raises:
        UnknownTopicError: There is no such root.
        InvalidOptionError: A setting is impossible.

    Source: org.apache.kafka.clients.producer.KafkaProducer; the defaults of batch.size and
    linger.ms are ours and Kafka 4.0's.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        compression_type: str | CompressionType = CompressionType.NONE,
        batch_size: int = DEFAULT_BATCH_SIZE,
        linger_ms: float = 5,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        random: random_module.Random | None = None,
    ) -> None:
        if batch_size < 1 or linger_ms < 0:
            raise InvalidOptionError(
                "a producer's batch_size or linger_ms is impossible",
                got=f"batch_size={batch_size}, linger_ms={linger_ms}",
                expected="batch_size of 1 or more bytes, linger_ms of 0 or more",
            )
        self._compression = CompressionType.of(compression_type)
        self._batch_size, self._linger_ms = batch_size, linger_ms
        self._clock = clock or SystemClock()
        self._random = random or random_module.Random()
        self._manager = LogManager.open(root, fs=fs, clock=self._clock, random=self._random)
        self._waiting: dict[str, _Waiting] = {}
        self._guard = threading.RLock()
        self._failure: BaseException | None = None
        self._is_closed = False

    @property
    def pending(self) -> int:
        """How many records were sent and are not in the log yet."""
        return sum(len(each.records) for each in self._waiting.values())

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
        """Send one record; it is in the log after `linger_ms`, a full batch, `flush` or `close`.

        Args:
            topic: Its topic.
            value: Its value; None is a tombstone where the topic is compacted.
            key: Its key.
            headers: Its headers, pairs of name and value.
            partition: Its partition; by its key, or spread, where None.
            timestamp: ms since 1970; None: the time of this call.

        Raises:
            UnknownTopicError: There is no such topic or partition.
            InvalidRecordError: A field has a wrong type, or the topic is compacted and there is
                no key. This record was not sent; the producer goes on.
            MessageTooLargeError: It exceeds the topic's `max.message.bytes`; likewise.
            StreamLogError: Records that waited could not be appended: this producer has failed,
                and says how many were not appended.

        Source: KafkaProducer.send.
        """
        with self._guard:
            self._check_usable()
            waiting = self._waiting.get(topic)
            if waiting is None:
                waiting = self._open(topic)
            if timestamp is None:
                timestamp = self._clock.now_ms()
            pairs = cast("tuple[Header, ...]", tuple(headers)) if headers else ()  # checked below
            record = Record(key, value, pairs, timestamp)
            record, size = waiting.checked(record, partition)
            if size + _BATCH_SIZE > waiting.appender.batch_size:
                self._drain(waiting)  # what was sent before comes before
                waiting.append_alone(record, partition)
                return
            now_ms = self._clock.monotonic_ms()
            waiting.add(record, partition, size, now_ms)
            if waiting.is_due(now_ms, self._linger_ms):
                self._drain(waiting)

    def flush(self) -> None:
        """Append all records sent so far and sync them to the disk.

        Raises:
            StreamLogError: Records could not be appended, or not be synced: the producer has
                failed.
        """
        with self._guard:
            self._check_usable()
            for waiting in self._waiting.values():
                self._drain(waiting)
            try:
                for waiting in self._waiting.values():
                    waiting.appender.flush()
            except BaseException as error:
                self._failure = error
                raise

    def close(self) -> None:
        """Append all records sent so far, sync them, and leave; twice does no harm.

        Raises:
            StreamLogError: Records could not be appended or synced; all is closed nevertheless.
        """
        with self._guard:
            if self._is_closed:
                return
            try:
                if self._failure is None:
                    self.flush()
            finally:
                self._is_closed = True
                self._manager.close()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self, topic: str) -> "_Waiting":
        appender = TopicAppender(
            self._manager,
            topic,
            compression=self._compression,
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
            self._failure = error
            raise

    def _check_usable(self) -> None:
        if self._is_closed:
            raise InvalidRequestError("the producer has been closed", path=self._manager.root)
        if self._failure is not None:
            raise InvalidRequestError(
                "the producer has failed before",
                path=self._manager.root,
                got=f"{type(self._failure).__name__}: {self._failure}",
                expected="a new producer",
                hint=f"up to {self.pending} records were not appended; read the topic's end to"
                " see which were",
            ) from self._failure


class _Waiting:
    """The records of one topic that are not in the log yet."""

    __slots__ = (
        *("appender", "records", "_asked", "_has_asked", "_since_ms", "_size"),
        *("_size_max", "_is_compacted"),
    )

    def __init__(self, appender: TopicAppender, batch_size: int, *, is_compacted: bool) -> None:
        self.appender = appender
        self._size_max = batch_size * appender.partitions
        self._is_compacted = is_compacted
        self._clear()

    def _clear(self) -> None:
        self.records: list[Record] = []
        self._asked: list[int] = []
        self._has_asked = False
        self._since_ms = 0.0
        self._size = 0

    def checked(self, record: Record, partition: int | None) -> tuple[Record, int]:
        """Return a record of the right types and its size at most; refuse what cannot be sent."""
        if (
            record.headers
            or type(record.key) not in _PLAIN
            or type(record.value) not in _PLAIN
            or type(record.timestamp) is not int
        ):
            record = checked_record(record, len(self.records))
        key, value = record.key, record.value
        if key is None and self._is_compacted:
            raise InvalidRecordError(
                f"topic {self.appender.topic} is compacted, and this record has no key",
                got="null",
                expected="a key",
            )
        if partition is not None:
            self.appender.check_partition(partition)
        size = _RECORD_SIZE + (len(key) if key else 0) + (len(value) if value else 0)
        for name, content in record.headers:
            size += _HEADER_SIZE + len(name.encode()) + len(content or b"")
        return record, size

    def add(self, record: Record, partition: int | None, size: int, now_ms: float) -> None:
        """Keep a record for later."""
        if not self.records:
            self._since_ms = now_ms
        self.records.append(record)
        if partition is not None:
            self._has_asked = True
        self._asked.append(NO_PARTITION if partition is None else partition)
        self._size += size

    def is_due(self, now_ms: float, linger_ms: float) -> bool:
        """Tell whether what waits should be appended."""
        return self._size >= self._size_max or now_ms - self._since_ms >= linger_ms

    def append_alone(self, record: Record, partition: int | None) -> None:
        """Append a large record by itself."""
        asked = None if partition is None else np.array([partition], np.int32)
        self.appender.append(InputColumns.from_records([record]), asked)

    def drain(self) -> None:
        """Append what waits."""
        if not self.records:
            return
        asked = np.array(self._asked, np.int32) if self._has_asked else None
        self.appender.append(InputColumns.from_records(self.records), asked)
        self._clear()
