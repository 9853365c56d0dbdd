"""The coordinator of all transactional ids: requests, markers, timeouts, recovery.

A transaction's end is decided once its prepared state is in `__transaction_state`. Then its markers
are written to all partitions, and the complete state after them. What a crash interrupts is
finished when the server starts again. Appends in progress delay the decision, so that no batch
comes after the marker of its transaction.

Source: kafka.coordinator.transaction.TransactionCoordinator, TransactionStateManager.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple

from streamlog.errors import FencedError, StreamLogError, UnknownTopicError
from streamlog.gateway.broker import Broker
from streamlog.gateway.coordinator_log import (
    CoordinatorLog,
    InternalTopic,
    TxnProducer,
    coordinator_code,
)
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.coordinator import GroupCoordinator
from streamlog.gateway.transactions import state as states
from streamlog.gateway.transactions.state import Ending, TransactionMetadata, TransactionState
from streamlog.protocol.internal_topics import Decoder, parse_internal
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from streamlog.records.validate import AppendOrigin
from streamlog.topic import TopicPartition

__all__ = ["Outcome", "TransactionCoordinator"]

_logger: Final = logging.getLogger(__name__)

TRANSACTION_STATE: Final = Decoder.TRANSACTIONS.value
_FIRST_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 5.0
_MARKERS_AWAITED_S: Final = 5.0
_COMMIT_TYPES: Final = {True: ControlRecordType.COMMIT, False: ControlRecordType.ABORT}


class Outcome(NamedTuple):
    """The answer to a request about a transactional id.

    Attributes:
        code: The error, or NONE.
        producer: The producer to continue with; both numbers -1 with an error.
    """

    code: ErrorCode
    producer: TxnProducer = TxnProducer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class _Entry:
    """A transactional id.

    Attributes:
        metadata: Its state, as in the log.
        is_changing: Whether the next state is being written.
        is_ending: Whether that decides the end: no append may begin.
        appends: How many appends of its transaction are in progress.
        quiet: Set while there are none.
    """

    __slots__ = ("appends", "is_changing", "is_ending", "metadata", "quiet")

    def __init__(self, metadata: TransactionMetadata) -> None:
        self.metadata = metadata
        self.is_changing = self.is_ending = False
        self.appends = 0
        self.quiet = asyncio.Event()
        self.quiet.set()


class TransactionCoordinator:
    """Coordinates transactions; to be used in the event loop.

    Args:
        broker: The broker.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        config = broker.config.serve
        self._log = CoordinatorLog(
            broker,
            InternalTopic(
                TRANSACTION_STATE,
                config.transaction_state_log_num_partitions,
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "segment.bytes": str(config.transaction_state_log_segment_bytes),
                },
            ),
        )
        self._entries: dict[str, _Entry] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loading: asyncio.Task[None] | None = None

    # ---- life -----------------------------------------------------------------------------------
    def start(self) -> None:
        """Begin to finish what a crash interrupted, and to abort and expire what is due."""
        config = self._broker.config.serve
        late_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        expiry_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._spawn(self._at_intervals(late_ms, self._abort_late))
        self._spawn(self._at_intervals(expiry_ms, self._expire_ids))
        self._spawn(self._recover())

    async def _recover(self) -> None:
        try:
            await self.load()
        except StreamLogError as error:
            _logger.warning("transactions are not loaded: %s", error)  # requests try again

    async def load(self) -> None:
        """Read the log, once, and begin to finish the transactions whose end is decided.

        Raises:
            StreamLogError: It cannot be read.
        """
        if self._loading is None or (self._loading.done() and self._failed(self._loading)):
            self._loading = asyncio.create_task(self._load())
        await asyncio.shield(self._loading)

    @staticmethod
    def _failed(task: "asyncio.Task[None]") -> bool:
        return task.cancelled() or task.exception() is not None

    async def prepare(self) -> None:
        """Create the topic of transactions if it is missing."""
        if not self._broker.settings.is_read_only:
            await self._log.create()

    async def _load(self) -> None:
        loaded = await self._log.load()
        for key, value in loaded.values.items():
            record = parse_internal(Decoder.TRANSACTIONS, key, value)
            if record is None or record.value is None:
                continue
            transactional_id = record.key["transactionalId"]
            metadata = TransactionMetadata.of_record(transactional_id, record.value)
            if metadata.state is TransactionState.DEAD:
                continue
            entry = self._entries[transactional_id] = _Entry(metadata)
            for each in (metadata.producer_id, metadata.next_producer_id):
                self._broker.producer_ids.keep_above(each)
            if metadata.state.is_prepared and not self._broker.settings.is_read_only:
                self._spawn(self._complete(entry))

    def begin_to_stop(self) -> None:
        """End timers; markers that are not written yet are written after the next start."""
        for task in list(self._tasks):
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _at_intervals(self, interval_ms: int, work: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            work()

    # ---- InitProducerId -------------------------------------------------------------------------
    async def init_producer(
        self, transactional_id: str, timeout_ms: int, expected: TxnProducer | None
    ) -> Outcome:
        """Return the producer id and a new epoch for a producer; fence those before it.

        Source: TransactionCoordinator.handleInitProducerId.
        """
        if not transactional_id:
            return Outcome(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._broker.config.serve.transaction_max_timeout_ms:
            return Outcome(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        await self.load()
        entry = self._entries.get(transactional_id)
        new_producer_id = NO_PRODUCER_ID
        if entry is None or entry.metadata.is_epoch_exhausted:
            new_producer_id = await self._broker.run(self._broker.producer_ids.assign)
            entry = self._entries.get(transactional_id)  # another request may have come first
        if entry is None:
            entry = self._entries[transactional_id] = _Entry(
                TransactionMetadata(
                    transactional_id=transactional_id,
                    producer_id=new_producer_id,
                    timeout_ms=timeout_ms,
                    updated_ms=self._broker.clock.now_ms(),
                )
            )
        if entry.is_changing:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        decided = states.initialize(
            entry.metadata,
            timeout_ms=timeout_ms,
            expected=expected,
            new_producer_id=new_producer_id,
            now_ms=self._broker.clock.now_ms(),
        )
        if isinstance(decided, TransactionMetadata):
            code = await self._change(entry, decided)
            return Outcome(code, _producer(decided)) if not code else Outcome(code)
        if (
            decided is ErrorCode.CONCURRENT_TRANSACTIONS
            and entry.metadata.state is TransactionState.ONGOING
        ):
            await self._abort(entry)  # the client asks again, and finds the transaction ended
        return Outcome(decided)

    # ---- partitions -----------------------------------------------------------------------------
    async def add_partitions(
        self, transactional_id: str, producer: TxnProducer, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        """Make partitions part of the producer's transaction, and begin it if necessary."""
        found = await self._find(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        now_ms = self._broker.clock.now_ms()
        decided = states.add_partitions(found.metadata, producer, frozenset(partitions), now_ms)
        if not isinstance(decided, TransactionMetadata):
            return decided
        if found.is_changing:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return await self._change(found, decided)

    async def verify(
        self, transactional_id: str, producer: TxnProducer, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        """Return NONE if partitions are part of the producer's transaction."""
        found = await self._find(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        return states.verify_partitions(found.metadata, producer, frozenset(partitions))

    @contextlib.asynccontextmanager
    async def appending(
        self,
        transactional_id: str,
        producer: TxnProducer,
        partitions: Iterable[TopicPartition],
        *,
        adds: bool,
    ) -> AsyncIterator[ErrorCode]:
        """Hold the end of a transaction off while its batches are appended.

        Args:
            transactional_id: The transactional id.
            producer: The producer of the batches.
            partitions: The partitions they are for.
            adds: Whether they become part of the transaction (version 2); otherwise they must be.

        Yields:
            NONE, or the error that forbids the append.
        """
        wanted = list(partitions)
        if adds:
            code = await self.add_partitions(transactional_id, producer, wanted)
        else:
            code = await self.verify(transactional_id, producer, wanted)
        entry = self._entries.get(transactional_id)
        if not code and entry is not None:
            # Checked again: the end may have been decided while the partitions were added.
            code = states.verify_partitions(entry.metadata, producer, frozenset(wanted))
            if not code and entry.is_ending:
                code = ErrorCode.CONCURRENT_TRANSACTIONS
        if code or entry is None:
            yield code
            return
        entry.appends += 1
        entry.quiet.clear()
        try:
            yield code
        finally:
            entry.appends -= 1
            if not entry.appends:
                entry.quiet.set()

    # ---- the end --------------------------------------------------------------------------------
    async def end(
        self, transactional_id: str, producer: TxnProducer, *, is_commit: bool, version: int
    ) -> Outcome:
        """End a transaction; return once it is decided and, as a rule, its markers are written.

        Args:
            transactional_id: The transactional id.
            producer: The producer id and epoch of the client.
            is_commit: Whether to commit it.
            version: The client's transaction version; from 2 on the answer has a new epoch.
        """
        found = await self._find(transactional_id)
        if isinstance(found, ErrorCode):
            return Outcome(found)
        new_producer_id = NO_PRODUCER_ID
        if found.metadata.is_epoch_exhausted:
            new_producer_id = await self._broker.run(self._broker.producer_ids.assign)
        if found.is_changing:
            return Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)
        ending = Ending(producer, is_commit, version, new_producer_id)
        decided = states.end(found.metadata, ending, self._broker.clock.now_ms())
        if not isinstance(decided, TransactionMetadata):
            return Outcome(decided, _producer(found.metadata)) if not decided else Outcome(decided)
        code = await self._prepare(found, decided)
        if code:
            return Outcome(code)
        return Outcome(code, _producer(states.complete(decided, decided.updated_ms)))

    async def _abort(self, entry: _Entry) -> ErrorCode:
        """Abort a transaction that its producer may not end any more, and fence that."""
        if entry.is_changing or entry.metadata.state is not TransactionState.ONGOING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return await self._prepare(entry, states.fence(entry.metadata, self._broker.clock.now_ms()))

    async def _prepare(self, entry: _Entry, decided: TransactionMetadata) -> ErrorCode:
        """Write the decision, then let the markers follow."""
        entry.is_changing = entry.is_ending = True
        try:
            await entry.quiet.wait()
            code = await self._change(entry, decided)
        finally:
            entry.is_ending = False
        if not code:
            completion = self._spawn(self._complete(entry))
            # A client that goes on at once would have to ask again while markers are missing.
            await asyncio.wait([completion], timeout=_MARKERS_AWAITED_S)
        return code

    async def _complete(self, entry: _Entry) -> None:
        """Write the markers of a decided transaction until all are written, then its end."""
        delay, written = _FIRST_RETRY_S, set[TopicPartition]()
        entry.is_changing = True
        metadata = entry.metadata
        while True:
            try:
                left = metadata.partitions - written
                written |= await self._broker.run(self._write_markers, metadata, sorted(left))
                if written >= metadata.partitions and await self._completed(entry, metadata):
                    return
            except Exception:
                _logger.exception("markers of %s: failed", metadata.transactional_id)
            entry.is_changing = True
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_RETRY_S)

    async def _completed(self, entry: _Entry, metadata: TransactionMetadata) -> bool:
        """Note that all markers are written; return whether the end is in the log."""
        if any(each.topic == Decoder.OFFSETS.value for each in metadata.partitions):
            is_commit = metadata.state is TransactionState.PREPARE_COMMIT
            groups = self._broker.coordinator(GroupCoordinator)
            await groups.on_transaction_end(metadata.producer_id, is_commit=is_commit)
        ended = states.complete(metadata, self._broker.clock.now_ms())
        return not await self._change(entry, ended)

    def _write_markers(
        self, metadata: TransactionMetadata, partitions: list[TopicPartition]
    ) -> set[TopicPartition]:
        """Append the end markers, in a thread; return the partitions that need none any more."""
        broker, done = self._broker, set[TopicPartition]()
        if not partitions:
            return done
        number = self._log.partition_of(metadata.transactional_id)
        epoch = broker.partitions.get(TRANSACTION_STATE, number).reader.leader_epoch
        kind = _COMMIT_TYPES[metadata.state is TransactionState.PREPARE_COMMIT]
        marker = build_marker(
            EndTransactionMarker(kind, epoch),
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            timestamp=broker.clock.now_ms(),
        )
        for each in partitions:
            try:
                entry = broker.catalog.topic(each.topic)
                if entry is not None and each.partition in entry.partitions:
                    served = broker.partitions.get(*each)
                    served.append(marker, origin=AppendOrigin.COORDINATOR)
            except UnknownTopicError:
                pass  # deleted: there is nothing to end
            except FencedError as error:
                _logger.warning("marker of %s: %s", metadata.transactional_id, error)
            except StreamLogError as error:
                _logger.warning("marker of %s, again soon: %s", metadata.transactional_id, error)
                continue
            done.add(each)
        return done

    # ---- timers ---------------------------------------------------------------------------------
    def _abort_late(self) -> None:
        now_ms = self._broker.clock.now_ms()
        for entry in list(self._entries.values()):
            if entry.metadata.is_timed_out(now_ms) and not entry.is_changing:
                _logger.info("aborting %s: timed out", entry.metadata.transactional_id)
                self._spawn(self._aborted(entry))

    async def _aborted(self, entry: _Entry) -> None:
        await self._abort(entry)

    def _expire_ids(self) -> None:
        now_ms = self._broker.clock.now_ms()
        expiration_ms = self._broker.config.serve.transactional_id_expiration_ms
        for entry in list(self._entries.values()):
            if entry.metadata.is_expired(now_ms, expiration_ms) and not entry.is_changing:
                self._spawn(self._expire(entry))

    async def _expire(self, entry: _Entry) -> None:
        metadata = entry.metadata
        entry.is_changing = True

        def forget() -> None:
            self._entries.pop(metadata.transactional_id, None)

        try:
            await self._log.append(metadata.transactional_id, [metadata.tombstone], apply=forget)
        except StreamLogError as error:
            _logger.warning("%s does not expire: %s", metadata.transactional_id, error)
        finally:
            entry.is_changing = False

    # ---- what it knows --------------------------------------------------------------------------
    async def transactions(self) -> list[TransactionMetadata]:
        """Return the state of every transactional id."""
        await self.load()
        return [entry.metadata for entry in self._entries.values()]

    async def transaction(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of a transactional id."""
        await self.load()
        entry = self._entries.get(transactional_id)
        return None if entry is None else entry.metadata

    # ---- changes --------------------------------------------------------------------------------
    async def _find(self, transactional_id: str | None) -> _Entry | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if self._broker.settings.is_read_only:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        await self.load()
        found = self._entries.get(transactional_id)
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if found is None else found

    async def _change(self, entry: _Entry, metadata: TransactionMetadata) -> ErrorCode:
        """Write the next state of an id; it counts once it stands in the log."""
        entry.is_changing = True

        def apply() -> None:
            entry.metadata, entry.is_changing = metadata, False

        try:
            await self._log.append(metadata.transactional_id, [metadata.record], apply=apply)
        except StreamLogError as error:
            _logger.warning("state of %s: %s", metadata.transactional_id, error)
            entry.is_changing = False
            return coordinator_code(error)
        except Exception:
            entry.is_changing = False
            raise
        return ErrorCode.NONE


def _producer(metadata: TransactionMetadata) -> TxnProducer:
    return TxnProducer(metadata.producer_id, metadata.producer_epoch)
