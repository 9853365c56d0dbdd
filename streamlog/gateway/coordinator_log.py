"""An internal topic as the store of a coordinator: the latest value of each key counts.

Appends are queued and written one after another, those that wait together in one append per
partition. Memory advances in the order of the log, and only once the records stand in it:
`append` calls `apply` in the event loop after that, before anything that was queued later.

A transactional record (an offset commit of a transaction) counts from its commit marker on.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime, CoordinatorLoaderImpl.
"""

import asyncio
import itertools
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from streamlog.errors import StreamLogError
from streamlog.gateway.broker import Broker
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.partition.read import FetchInfo
from streamlog.partition.reader import LogReader
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import parse_marker
from streamlog.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from streamlog.records.record import IsolationLevel, Record
from streamlog.records.validate import AppendOrigin
from streamlog.root.topics import topic_exists

__all__ = [
    "CoordinatorLog",
    "InternalTopic",
    "KeyValue",
    "LoadedState",
    "TxnProducer",
    "coordinator_code",
    "java_hash",
]

_READ_BYTES: Final = 4 << 20
_UTF16_UNIT: Final = struct.Struct(">H")

KeyValue = tuple[bytes, bytes | None]  # a value of None removes the key


class InternalTopic(NamedTuple):
    """The topic of a coordinator, as it is created on first use.

    Attributes:
        name: Its name.
        partitions: How many partitions it gets.
        configs: Its settings.
    """

    name: str
    partitions: int
    configs: Mapping[str, str]


class TxnProducer(NamedTuple):
    """The producer in whose transaction records are appended."""

    producer_id: int
    producer_epoch: int


_NO_PRODUCER: Final = TxnProducer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(slots=True)
class LoadedState:
    """The state that a log's records add up to.

    Attributes:
        values: The latest value of each key.
        pending: By producer id, the records of its open transaction, the latest of each key.
    """

    values: dict[bytes, bytes] = field(default_factory=dict)
    pending: dict[int, dict[bytes, bytes | None]] = field(default_factory=dict)


@dataclass(slots=True)
class _Write:
    """An append that waits for its turn."""

    partition_key: str
    batch: bytes
    apply: Callable[[], None] | None
    done: "asyncio.Future[None]"


class CoordinatorLog:
    """The records of a coordinator; to be used in the event loop.

    Args:
        broker: The broker.
        topic: The topic.
    """

    def __init__(self, broker: Broker, topic: InternalTopic) -> None:
        self._creation = threading.Lock()
        self._broker, self._topic = broker, topic
        self._waiting: list[_Write] = []
        self._drain: asyncio.Task[None] | None = None

    @property
    def partition_count(self) -> int:
        """The number of partitions that the topic has, or will be created with."""
        entry = self._broker.catalog.topic(self._topic.name)
        return self._topic.partitions if entry is None else len(entry.partitions)

    def partition_of(self, key: str) -> int:
        """Return the partition with the records of a group or a transactional id.

        Source: GroupCoordinatorService.partitionFor, TransactionStateManager.partitionFor.
        """
        value = java_hash(key)
        # As Utils.abs, not Utils.toPositive: the smallest int32 has no absolute value.
        return (0 if value == -(1 << 31) else abs(value)) % self.partition_count

    async def create(self) -> None:
        """Create the topic if it is missing; appends do so themselves.

        Raises:
            StreamLogError: It cannot be created.
        """
        if self._broker.catalog.topic(self._topic.name) is None:
            await self._broker.run(self._create)

    async def load(self) -> LoadedState:
        """Read all records.

        Raises:
            CorruptDataError: Records are damaged.
            StorageError: They cannot be read.
        """
        return await self._broker.run(self._load)

    async def append(
        self,
        partition_key: str,
        records: Sequence[KeyValue],
        *,
        apply: Callable[[], None] | None = None,
        producer: TxnProducer = _NO_PRODUCER,
    ) -> None:
        """Append records as one batch; return once they stand in the log.

        Args:
            partition_key: The group or the transactional id that they belong to.
            records: Keys and values; without any, only `apply` is called in its turn.
            apply: Called in the event loop when they stand in the log, in the log's order, also
                if the caller is cancelled meanwhile.
            producer: The producer of the transaction that they are part of.

        Raises:
            StreamLogError: They were not appended, or that is unknown; `apply` was not called.
        """
        await asyncio.shield(self.submit(partition_key, records, apply=apply, producer=producer))

    def submit(
        self,
        partition_key: str,
        records: Sequence[KeyValue],
        *,
        apply: Callable[[], None] | None = None,
        producer: TxnProducer = _NO_PRODUCER,
    ) -> "asyncio.Future[None]":
        """Queue an append, and return its outcome to come; see `append`."""
        batch = self._encoded(records, producer) if records else b""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(partition_key, batch, apply, done))
        if self._drain is None:
            self._drain = asyncio.create_task(self._write_waiting())
        return done

    def _encoded(self, records: Sequence[KeyValue], producer: TxnProducer) -> bytes:
        builder = BatchBuilder(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_transactional=producer.producer_id != NO_PRODUCER_ID,
        )
        now_ms = self._broker.clock.now_ms()
        for key, value in records:
            builder.append(Record(key, value, timestamp=now_ms))
        return builder.build()

    async def _write_waiting(self) -> None:
        try:
            while self._waiting:
                writes, self._waiting = self._waiting, []
                outcomes = await self._broker.run(self._write_together, writes)
                for write, error in zip(writes, outcomes, strict=True):
                    self._finish(write, error)
        finally:
            self._drain = None

    @staticmethod
    def _finish(write: _Write, error: Exception | None) -> None:
        try:
            if error is None and write.apply is not None:
                write.apply()
        except Exception as raised:  # noqa: BLE001 - raised where it is awaited
            error = raised
        if error is None:
            write.done.set_result(None)
        else:
            write.done.set_exception(error)
            write.done.exception()  # the caller may have been cancelled

    # ---- in a thread -------------------------------------------------------------------------
    def _write_together(self, writes: list[_Write]) -> list[Exception | None]:
        """Append what waits; return an error for each write that failed."""
        if self._broker.settings.is_read_only:
            return [None] * len(writes)  # coordinators work in memory only
        outcomes: dict[int, Exception] = {}
        try:
            self._create()
            by_partition: dict[int, list[int]] = {}
            for at, write in enumerate(writes):
                if write.batch:
                    by_partition.setdefault(self.partition_of(write.partition_key), []).append(at)
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            return [error] * len(writes)
        for partition, places in by_partition.items():
            outcomes |= self._append(partition, {at: writes[at].batch for at in places})
        return [outcomes.get(at) for at in range(len(writes))]

    def _append(self, partition: int, batches: dict[int, bytes]) -> dict[int, Exception]:
        """Append batches at once; one by one where they are refused together."""
        try:
            served = self._broker.partitions.get(self._topic.name, partition)
            served.append(b"".join(batches.values()), origin=AppendOrigin.COORDINATOR)
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            if len(batches) == 1 or not _is_refused(error):
                return dict.fromkeys(batches, error)
            failed: dict[int, Exception] = {}
            for at, batch in batches.items():
                failed |= self._append(partition, {at: batch})
            return failed
        return {}

    def _create(self) -> None:
        manager, topic = self._broker.manager, self._topic
        with self._creation:  # several clients may look for the coordinator at once
            if topic_exists(manager.log_root, topic.name):
                return
            manager.create_topic(topic.name, topic.partitions, topic.configs, if_not_exists=True)

    def _load(self) -> LoadedState:
        state, manager = LoadedState(), self._broker.manager
        if topic_exists(manager.log_root, self._topic.name):
            for partition in manager.partitions(self._topic.name):
                with manager.reader(self._topic.name, partition) as reader:
                    _Replay(state).run(reader)
        return state


def _is_refused(error: Exception) -> bool:
    """Whether the records were refused; otherwise another attempt could append them twice."""
    return isinstance(error, StreamLogError) and code_of(error) in (
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
    )


class _Replay:
    """Adds the records of one partition to a state."""

    def __init__(self, state: LoadedState) -> None:
        self._state = state
        self._offsets: dict[bytes, int] = {}
        self._pending: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}

    def run(self, reader: LogReader) -> None:
        offset, end = reader.log_start_offset, reader.high_watermark
        while offset < end:
            info = reader.read(offset, _READ_BYTES, isolation=IsolationLevel.READ_UNCOMMITTED)
            self._read(info)
            if info.next_offset <= offset:
                break
            offset = info.next_offset
        for producer_id, records in self._pending.items():
            pending = self._state.pending.setdefault(producer_id, {})
            for key, (at, value) in records.items():
                if at > self._offsets.get(key, -1):  # else overtaken already
                    pending[key] = value

    def _read(self, info: FetchInfo) -> None:
        table = info.table
        special = (table.is_transactional | table.is_control).tolist()
        for is_special, group in itertools.groupby(range(len(table)), special.__getitem__):
            rows = list(group)
            if is_special:
                self._read_transactional(info, rows)
            else:
                plain = replace(info, table=table.slice(rows[0], rows[-1] + 1))
                for record in plain.records():
                    self._put(record.key, record.offset, record.value)

    def _read_transactional(self, info: FetchInfo, rows: list[int]) -> None:
        batches = replace(info, table=info.table.slice(rows[0], rows[-1] + 1)).batches()
        for batch in batches:
            for record in batch.records():
                if not batch.is_control:
                    if record.key is not None:
                        pending = self._pending.setdefault(batch.producer_id, {})
                        pending[record.key] = (record.offset, record.value)
                    continue
                marker = parse_marker(record)
                if marker is not None:
                    self._end(batch.producer_id, is_commit=marker.is_commit)

    def _end(self, producer_id: int, *, is_commit: bool) -> None:
        for key, (offset, value) in self._pending.pop(producer_id, {}).items():
            # What was committed without a transaction after this record stays.
            if is_commit and offset > self._offsets.get(key, -1):
                self._put(key, offset, value)

    def _put(self, key: bytes | None, offset: int, value: bytes | None) -> None:
        if key is None:
            return
        self._offsets[key] = offset
        if value is None:
            self._state.values.pop(key, None)
        else:
            self._state.values[key] = value


def java_hash(text: str) -> int:
    """Return `text.hashCode()` of Java, an int32."""
    data, value = text.encode("utf-16-be", "surrogatepass"), 0
    for (unit,) in _UTF16_UNIT.iter_unpack(data):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def coordinator_code(error: StreamLogError) -> ErrorCode:
    """Return the code that a coordinator answers with when its append failed.

    Source: CoordinatorOperationExceptionHelper.handleOperationException.
    """
    match code_of(error):
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case code:
            return code
