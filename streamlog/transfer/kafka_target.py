"""Copying to a Kafka cluster: a topic that only the copy writes to.

The cluster gives offsets, one record after the other. So a record gets the offset that it has at
the source if each one before it is there; nothing but the end of the partition says how far a copy
has come. That holds only while no other process writes: the first record of a call is sent alone,
and the offset of the last one of each lot is compared with the one that it must get.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from streamlog.clock import Clock, SystemClock
from streamlog.errors import (
    InvalidConfigError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    StreamLogError,
    UnavailableError,
)
from streamlog.records.columns import RecordColumns
from streamlog.topic import TopicPartition
from streamlog.transfer.configs import accepted_configs
from streamlog.transfer.ends import CopyTopic
from streamlog.transfer.kafka_client import KafkaClient, failure_of
from streamlog.transfer.kafka_source import KafkaReader

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

__all__ = ["KafkaTarget"]

_QUIET_MS: Final = 2_000  # without a change: what a killed copy sent has arrived
_SETTLING_MS: Final = 30_000
_LOOK_MS: Final = 500
_LOT: Final = 5_000  # records between two looks at offsets
_BATCH_SIZE: Final = 1_000_000  # librdkafka's own
_LIMITS: Final = ("max.message.bytes", "segment.bytes", "internal.segment.bytes")  # of a batch
_POLL_S: Final = 0.1
_OWN_KEYS: Final = ("streamlog.", "internal.")
_TIMESTAMP_TYPE: Final = "message.timestamp.type"
_BY_BROKER: Final = "LogAppendTime"


class KafkaTarget:
    """A Kafka cluster to copy to.

    Args:
        client: The cluster.
        clock: For time limits.
    """

    def __init__(self, client: KafkaClient, *, clock: Clock | None = None) -> None:
        self._client, self.name = client, client.name
        self._clock = clock or SystemClock()
        self._reader = KafkaReader(client, clock=self._clock)
        self._counts: dict[str, int] = {}
        self._settled: set[str] = set()
        self._producers: dict[str, Producer] = {}

    # ---- topics ------------------------------------------------------------------------------
    def begin(self, topic: CopyTopic) -> tuple[str, ...]:
        """Create a topic, or check one that is there and give it missing partitions.

        Returns:
            Remarks about what is not taken over.

        Raises:
            InvalidRequestError: The cluster sets the times of the topic's records, or refuses it.
            UnavailableError: The cluster does not answer.
        """
        count = max(topic.partitions, default=0) + 1
        found = len(self._client.partitions().get(topic.name, ()))
        self._counts[topic.name] = max(count, found)
        if not found:
            configs, remarks = self._accepted(topic, count)
            self._client.create_topic(topic.name, count, configs)
            self._wait_for(topic.name, count)
            self._settled.add(topic.name)
            return ("the cluster gave it an id of its own", *remarks)
        configs = self._client.effective_configs(topic.name)
        if configs.get(_TIMESTAMP_TYPE) == _BY_BROKER:
            raise InvalidRequestError(
                f"the cluster gives the records of topic {topic.name} times of its own",
                path=self.name,
                got=f"{_TIMESTAMP_TYPE}={_BY_BROKER}",
                expected="CreateTime",
                hint=f"alter {_TIMESTAMP_TYPE} of the topic, or copy to another cluster",
            )
        if found < count:
            self._client.add_partitions(topic.name, count)
            self._wait_for(topic.name, count)
        return ()

    def _accepted(self, topic: CopyTopic, count: int) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return the settings that the cluster accepts, and remarks about the others."""

        def check(configs: dict[str, str]) -> None:
            for key, value in configs.items():
                if key.startswith(_OWN_KEYS):
                    raise InvalidConfigError("a cluster does not know it")
                if key == _TIMESTAMP_TYPE and value == _BY_BROKER:
                    raise InvalidConfigError("the copy keeps the times of the source")
            self._client.create_topic(topic.name, count, configs, dry_run=True)

        return accepted_configs(topic.configs, check)

    def _wait_for(self, topic: str, count: int) -> None:
        """Wait until all brokers that are asked know a topic."""
        deadline = self._clock.monotonic_ms() + _SETTLING_MS
        partitions = [TopicPartition(topic, number) for number in range(count)]
        while True:
            try:
                if len(self._client.partitions().get(topic, ())) >= count:
                    self._client.end_offsets(partitions, is_stable=False)
                    return
            except StreamLogError:  # a leader is still being elected
                if self._clock.monotonic_ms() > deadline:
                    raise
            if self._clock.monotonic_ms() > deadline:
                raise UnavailableError(f"topic {topic} does not appear", path=self.name)
            self._clock.sleep_ms(_LOOK_MS)

    # ---- offsets -----------------------------------------------------------------------------
    def offsets(self, partition: TopicPartition) -> tuple[int, int]:
        """Return where a partition starts and ends."""
        (start,) = self._client.start_offsets([partition])
        (end,) = self._client.end_offsets([partition], is_stable=False)
        return start, end

    def ends(self, partitions: Sequence[TopicPartition]) -> list[int]:
        """Return where partitions end, 0 for those that are not there yet."""
        known = self._client.partitions()
        there = [each for each in partitions if each.partition in known.get(each.topic, ())]
        found = self._client.end_offsets(there, is_stable=False) if there else []
        ends = dict(zip(there, found, strict=True))
        return [ends.get(each, 0) for each in partitions]

    def settle(self, topic: str) -> None:
        """Wait until a topic has not grown for two seconds, once.

        What a killed copy had sent may still be on its way.

        Raises:
            InvalidRequestError: It keeps growing: another process writes to it.
        """
        if topic in self._settled:
            return
        partitions = [TopicPartition(topic, number) for number in range(self._counts[topic])]
        ends = self._client.end_offsets(partitions, is_stable=False)
        began = since = self._clock.monotonic_ms()
        while self._clock.monotonic_ms() - since < _QUIET_MS:
            self._clock.sleep_ms(_LOOK_MS)
            now = self._client.end_offsets(partitions, is_stable=False)
            if now != ends:
                ends, since = now, self._clock.monotonic_ms()
            if since - began > _SETTLING_MS:
                raise _another_writer(f"{self.name}/{topic}", got=f"log end offsets {ends}")
        self._settled.add(topic)

    def records(
        self, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> Iterator[RecordColumns]:
        """Yield what a partition holds between two offsets; see `KafkaReader.read`."""
        for read in self._reader.read(partition, start_offset, end_offset):
            yield read.columns

    # ---- writing -----------------------------------------------------------------------------
    def sender(self, partition: TopicPartition, end_offset: int) -> "Sender":
        """Return what appends to a partition that ends at `end_offset`."""
        topic = partition.topic
        if topic not in self._producers:
            configs = self._client.effective_configs(topic)
            limits = [int(configs[key]) for key in _LIMITS if configs.get(key)]
            size = min([_BATCH_SIZE, *limits])
            self._producers[topic] = self._client.producer(max_batch_size=size)
        path = f"{self.name}/{partition}"
        return Sender(self._producers[topic], partition, end_offset, path)

    def close(self) -> None:
        """Give up what is not sent, and close connections."""
        self._reader.close()
        while self._producers:
            _, producer = self._producers.popitem()
            producer.purge()
            producer.flush(0)


class Sender:
    """Appends records to a partition, and compares the offsets that they get.

    Args:
        producer: An idempotent producer that keeps the order.
        partition: The partition.
        end_offset: Where it ends: the offset that the next record must get.
        path: Its name in errors.
    """

    def __init__(
        self,
        producer: "Producer",
        partition: TopicPartition,
        end_offset: int,
        path: str,
    ) -> None:
        self._producer, self._partition, self.path = producer, partition, path
        self.end_offset = end_offset
        self._is_first = True
        self._awaited: list[int] = []
        self._failure: StreamLogError | None = None

    def send(self, records: RecordColumns) -> None:
        """Send records; the next call, or `finish`, raises what is wrong with them.

        Raises:
            InvalidTimestampError: A record has a time that librdkafka cannot send.
            InvalidRecordError: A header has a key that librdkafka cannot send.
            InvalidRequestError: Another process writes to the partition, or a record is refused.
            UnavailableError: The cluster did not take a record in time.
        """
        self._refuse_unsendable(records)
        rows = _Rows.of(records)
        first = 0
        if self._is_first:  # nothing else is sent before it has arrived where it must
            self._produce(rows.part(0, 1), is_watched=True)
            self.finish()
            self._is_first, first = False, 1
        for start in range(first, records.count, _LOT):
            last = min(start + _LOT, records.count) - 1
            self._produce(rows.part(start, last))
            self._produce(rows.part(last, last + 1), is_watched=True)
            self._poll(0)

    def _refuse_unsendable(self, records: RecordColumns) -> None:
        """Refuse what librdkafka would change without an error."""
        if (records.timestamp == 0).any():
            row = int((records.timestamp == 0).argmax())
            raise InvalidTimestampError(
                "librdkafka cannot send a record of the time 0: it takes it for the present",
                path=self.path,
                offset=int(records.offset[row]),
                hint="leave out the topic, or hand the root to a broker: `streamlog handover`",
            )
        if records.headers is not None and (records.headers.key.data == 0).any():
            key = (
                int(
                    np.searchsorted(
                        records.headers.key.offsets,
                        (records.headers.key.data == 0).argmax(),
                        "right",
                    )
                )
                - 1
            )
            row = int(np.searchsorted(records.headers.offsets, key, "right")) - 1
            raise InvalidRecordError(
                "librdkafka cannot send a header whose key has a zero byte: it ends the key there",
                path=self.path,
                offset=int(records.offset[row]),
                hint="leave out the topic, or hand the root to a broker: `streamlog handover`",
            )

    def _produce(self, rows: "_Rows", *, is_watched: bool = False) -> None:
        """Hand records to librdkafka; nothing is done for each but the call."""
        from confluent_kafka import KafkaException

        produce, topic, partition = self._producer.produce, *self._partition
        callback = self._watch(self.end_offset) if is_watched else None
        count, nothing = len(rows.values), list[Any]()
        while rows.values:
            left = iter(rows.values)
            keys = repeat(None) if rows.keys is None else rows.keys
            headed = repeat(nothing) if rows.headers is None else rows.headers
            try:
                for value, key, headers, time in zip(
                    left, keys, headed, rows.timestamps, strict=False
                ):
                    produce(topic, value, key, partition, callback, timestamp=time, headers=headers)
                break
            except BufferError:  # the queue is full: this record again when there is room
                rows = rows.part(len(rows.values) - length_hint(left) - 1, len(rows.values))
                self._poll(_POLL_S)
            except KafkaException as error:
                raise failure_of(error.args[0], path=self.path) from None
        self.end_offset += count

    def _watch(self, expected: int) -> Callable[["KafkaError | None", "Message"], None]:
        """Return a callback that compares the offset of a record with the one it must have."""
        self._awaited.append(expected)

        def delivered(error: "KafkaError | None", message: "Message") -> None:
            self._awaited.remove(expected)
            if self._failure is not None:
                return
            if error is not None:
                self._failure = failure_of(error, path=self.path)
            elif message.offset() != expected:
                self._failure = _another_writer(
                    self.path,
                    got=f"offset {message.offset()} for a record",
                    expected=expected,
                )

        return delivered

    def _poll(self, timeout: float) -> None:
        """Take answers of the cluster; raise what is wrong, and send no more."""
        from confluent_kafka import KafkaException

        try:
            self._producer.poll(timeout)
        except KafkaException as error:  # fatal for the producer
            self._failure = self._failure or failure_of(error.args[0], path=self.path)
        if self._failure is not None:
            self._producer.purge()
            raise self._failure

    def finish(self) -> None:
        """Wait until the cluster has everything that was sent.

        Raises:
            StreamLogError: See `send`.
        """
        while self._awaited:
            self._poll(_POLL_S)


class _Rows(NamedTuple):
    """Records as librdkafka takes them; None: no record has a key, or a header."""

    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[list[Any]] | None
    timestamps: list[int]

    @classmethod
    def of(cls, records: RecordColumns) -> "_Rows":
        """Return all fields of records as objects."""
        key, value, headers = records.key, records.value, records.headers
        has_headers = headers is not None and len(headers.key) > 0
        return cls(
            [None] * records.count if value is None else value.to_list(),
            None if key is None or key.null_count == records.count else key.to_list(),
            list(map(list, headers)) if headers is not None and has_headers else None,
            records.timestamp.tolist(),
        )

    def part(self, first: int, end: int) -> "_Rows":
        """Return some of them."""
        return _Rows(
            self.values[first:end],
            None if self.keys is None else self.keys[first:end],
            None if self.headers is None else self.headers[first:end],
            self.timestamps[first:end],
        )


def _another_writer(path: str, *, got: object, expected: object = None) -> StreamLogError:
    return InvalidRequestError(
        "another process writes to the target",
        path=path,
        got=got,
        expected=expected,
        hint="stop its writers; if they have written, delete the topic there and copy again",
    )
