"""The state of a transactional id, and what each request makes of it; pure.

    Empty → Ongoing → PrepareCommit → CompleteCommit → Ongoing …
                    → PrepareAbort  → CompleteAbort

Each function returns the next metadata, to be written to `__transaction_state` before it counts, or
the error to answer with.

Transactions of version 2 (KIP-890) raise the producer's epoch with each end, so that a late batch
of one transaction cannot become part of the next.

Source: TransactionMetadata and TransactionCoordinator of kafka.coordinator.transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, NamedTuple

from streamlog.gateway.coordinator_log import KeyValue, TxnProducer
from streamlog.gateway.error_codes import ErrorCode
from streamlog.protocol.internal_topics import Decoder, encode_internal
from streamlog.records.layout import MAX_INT16, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from streamlog.topic import TopicPartition

__all__ = [
    "Ending",
    "TransactionMetadata",
    "TransactionState",
    "add_partitions",
    "complete",
    "end",
    "fence",
    "initialize",
    "verify_partitions",
]

EPOCH_BUMPS: Final = 2  # TransactionVersion.TV_2
_LOG_VALUE_VERSION: Final = 1  # TransactionVersion.transactionLogValueVersion, flexible
_NOT_STARTED: Final = -1


class TransactionState(Enum):
    """The states; the value is the one in records.

    Source: org.apache.kafka.coordinator.transaction.TransactionState.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that Kafka's tools show: `CompleteCommit`."""
        return "".join(word.title() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the end is decided, and markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """Whether the last transaction ended with all its markers."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """What is known of a transactional id.

    Attributes:
        transactional_id: The id.
        producer_id: Its producer id.
        producer_epoch: The epoch of that producer; -1 before the first one.
        timeout_ms: When a transaction that does not end is aborted.
        state: The state.
        updated_ms: When it last changed.
        started_ms: When the transaction began; -1 without one.
        partitions: The partitions of the transaction.
        last_producer_epoch: The epoch before, for a client that repeats a request; -1 for none.
        previous_producer_id: The producer id before, for the same reason.
        next_producer_id: The producer id after this transaction, whose epochs are exhausted.
        client_version: The transaction version of the client that ended it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    updated_ms: int
    started_ms: int = _NOT_STARTED
    partitions: frozenset[TopicPartition] = frozenset()
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next epoch must be that of another producer id.

        A client never gets the greatest epoch, so that it can always be fenced.
        """
        return self.producer_epoch >= MAX_INT16 - 1

    @property
    def bumps_epochs(self) -> bool:
        """Whether its last end raised the epoch."""
        return self.client_version >= EPOCH_BUMPS

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether its transaction is to be aborted."""
        return self.state is TransactionState.ONGOING and now_ms > self.started_ms + self.timeout_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the id was unused for too long, and has no transaction."""
        idle = self.state is TransactionState.EMPTY or self.state.is_complete
        return idle and self.updated_ms <= now_ms - expiration_ms

    # ---- records -------------------------------------------------------------------------------
    @property
    def record(self) -> KeyValue:
        """The record of `__transaction_state`.

        Source: TransactionLog.valueToBytes.
        """
        topics: dict[str, list[int]] = {}
        for each in sorted(self.partitions):
            topics.setdefault(each.topic, []).append(each.partition)
        partitions = [{"topic": topic, "partitionIds": ids} for topic, ids in topics.items()]
        value = {
            "producerId": self.producer_id,
            "producerEpoch": self.producer_epoch,
            "transactionTimeoutMs": self.timeout_ms,
            "transactionStatus": self.state.value,
            "transactionPartitions": None if self.state is TransactionState.EMPTY else partitions,
            "transactionLastUpdateTimestampMs": self.updated_ms,
            "transactionStartTimestampMs": self.started_ms,
            "previousProducerId": self.previous_producer_id,
            "nextProducerId": self.next_producer_id,
            "clientTransactionVersion": self.client_version,
        }
        key = {"transactionalId": self.transactional_id}
        return encode_internal(Decoder.TRANSACTIONS, 0, key, value, version=_LOG_VALUE_VERSION)

    @property
    def tombstone(self) -> KeyValue:
        """The record that removes the id."""
        key = {"transactionalId": self.transactional_id}
        return encode_internal(Decoder.TRANSACTIONS, 0, key)

    @classmethod
    def of_record(cls, transactional_id: str, value: Mapping[str, Any]) -> "TransactionMetadata":
        """Return the metadata that a record's fields hold.

        Source: TransactionLog.readTxnRecordValue.
        """
        return cls(
            transactional_id=transactional_id,
            producer_id=value["producerId"],
            producer_epoch=value["producerEpoch"],
            timeout_ms=value["transactionTimeoutMs"],
            state=TransactionState(value["transactionStatus"]),
            updated_ms=value["transactionLastUpdateTimestampMs"],
            started_ms=value["transactionStartTimestampMs"],
            partitions=frozenset(
                TopicPartition(topic["topic"], number)
                for topic in value["transactionPartitions"] or ()
                for number in topic["partitionIds"]
            ),
            previous_producer_id=value.get("previousProducerId", NO_PRODUCER_ID),
            next_producer_id=value.get("nextProducerId", NO_PRODUCER_ID),
            client_version=value.get("clientTransactionVersion", 0),
        )


class Ending(NamedTuple):
    """A request to end a transaction.

    Attributes:
        producer: The producer id and epoch of the client.
        is_commit: Whether to commit it.
        version: The client's transaction version.
        new_producer_id: The producer id to continue with if the epochs are exhausted.
    """

    producer: TxnProducer
    is_commit: bool
    version: int
    new_producer_id: int = NO_PRODUCER_ID


# ---- InitProducerId -----------------------------------------------------------------------------
def initialize(
    known: TransactionMetadata,
    *,
    timeout_ms: int,
    expected: TxnProducer | None,
    new_producer_id: int,
    now_ms: int,
) -> TransactionMetadata | ErrorCode:
    """Return the id with the epoch of a producer that starts, or goes on after an error.

    An open transaction must be aborted first: `fence`.

    Args:
        known: The id's state.
        timeout_ms: The producer's timeout.
        expected: What the producer believes to have; None for one that starts.
        new_producer_id: The producer id to use if the epochs of the present one are exhausted.
        now_ms: The time.

    Source: TransactionCoordinator.prepareInitProducerIdTransit.
    """
    if expected is not None and not _may_continue(known, expected):
        return ErrorCode.PRODUCER_FENCED
    if known.state.is_prepared or known.state is TransactionState.ONGOING:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    blank = replace(
        known,
        state=TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=_NOT_STARTED,
        updated_ms=now_ms,
        previous_producer_id=known.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
    epoch = known.producer_epoch
    if known.is_epoch_exhausted and (expected is None or expected.producer_epoch == epoch):
        last = NO_PRODUCER_EPOCH if expected is None else epoch
        return replace(
            blank, producer_id=new_producer_id, producer_epoch=0, last_producer_epoch=last
        )
    if expected is None:
        return replace(blank, producer_epoch=epoch + 1, last_producer_epoch=NO_PRODUCER_EPOCH)
    if epoch in (NO_PRODUCER_EPOCH, expected.producer_epoch):
        return replace(blank, producer_epoch=epoch + 1, last_producer_epoch=epoch)
    if expected.producer_epoch == known.last_producer_epoch:
        return blank  # the request is repeated: its answer was lost
    return ErrorCode.PRODUCER_FENCED


def _may_continue(known: TransactionMetadata, expected: TxnProducer) -> bool:
    """Whether a producer with this id may go on; its epoch is compared later."""
    return (
        known.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == known.producer_id
        or (
            expected.producer_id == known.previous_producer_id
            and expected.producer_epoch >= MAX_INT16 - 1
        )
    )


# ---- partitions ---------------------------------------------------------------------------------
def _check_producer(known: TransactionMetadata, producer: TxnProducer) -> ErrorCode:
    if known.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != producer.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if known.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE


def add_partitions(
    known: TransactionMetadata,
    producer: TxnProducer,
    partitions: frozenset[TopicPartition],
    now_ms: int,
) -> TransactionMetadata | ErrorCode:
    """Return the transaction with more partitions, begun if necessary; NONE where it has them.

    Source: TransactionCoordinator.handleAddPartitionsToTransaction.
    """
    code = _check_producer(known, producer)
    if code:
        return code
    is_ongoing = known.state is TransactionState.ONGOING
    if is_ongoing and partitions <= known.partitions:
        return ErrorCode.NONE
    return replace(
        known,
        state=TransactionState.ONGOING,
        partitions=known.partitions | partitions,
        started_ms=known.started_ms if is_ongoing else now_ms,
        updated_ms=now_ms,
    )


def verify_partitions(
    known: TransactionMetadata, producer: TxnProducer, partitions: frozenset[TopicPartition]
) -> ErrorCode:
    """Return NONE if the partitions are part of the producer's transaction.

    Source: TransactionCoordinator.handleVerifyPartitionsInTransaction.
    """
    code = _check_producer(known, producer)
    if not code and not partitions <= known.partitions:
        return ErrorCode.TRANSACTION_ABORTABLE
    return code


# ---- the end ------------------------------------------------------------------------------------
def fence(known: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return an open transaction on its way to be aborted, with an epoch that no client has.

    Source: TransactionMetadata.prepareFenceProducerEpoch.
    """
    return replace(
        known,
        state=TransactionState.PREPARE_ABORT,
        producer_epoch=known.producer_epoch + 1,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        updated_ms=now_ms,
        client_version=0,  # so that the former epoch is not taken for a repeated request
    )


def end(known: TransactionMetadata, wanted: Ending, now_ms: int) -> TransactionMetadata | ErrorCode:
    """Return the transaction with its end decided; NONE where this end was reached before.

    Source: TransactionCoordinator.endTransaction, endTransactionWithTV1.
    """
    if wanted.version >= EPOCH_BUMPS:
        return _end_and_bump(known, wanted, now_ms)
    if known.producer_id != wanted.producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != wanted.producer.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if known.state is TransactionState.ONGOING:
        return replace(known, state=_prepared(wanted), updated_ms=now_ms, client_version=0)
    return _repeated(known, wanted)


def _end_and_bump(
    known: TransactionMetadata, wanted: Ending, now_ms: int
) -> TransactionMetadata | ErrorCode:
    producer_id, epoch = wanted.producer
    has_rotated = (
        known.previous_producer_id == producer_id
        and epoch == MAX_INT16 - 1
        and known.producer_epoch == 0
    )
    if known.producer_id != producer_id and not has_rotated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_repeated = has_rotated or (known.bumps_epochs and known.producer_epoch == epoch + 1)
    is_next = known.producer_epoch == epoch and known.producer_id == producer_id
    if known.state.is_prepared:
        is_valid = is_repeated
    else:
        is_valid = is_next or (is_repeated and known.state.is_complete)
    if not is_valid:
        return ErrorCode.PRODUCER_FENCED
    if known.state is TransactionState.ONGOING:
        return _bumped(known, wanted, now_ms)
    if is_repeated:
        return _repeated(known, wanted)
    if wanted.is_commit:
        return ErrorCode.INVALID_TXN_STATE
    # The client does not know whether its batches reached a partition: it gets a new epoch.
    return replace(_bumped(known, wanted, now_ms), partitions=frozenset(), started_ms=now_ms)


def _bumped(known: TransactionMetadata, wanted: Ending, now_ms: int) -> TransactionMetadata:
    return replace(
        known,
        state=_prepared(wanted),
        producer_epoch=known.producer_epoch + 1,
        last_producer_epoch=known.producer_epoch,
        next_producer_id=wanted.new_producer_id if known.is_epoch_exhausted else NO_PRODUCER_ID,
        updated_ms=now_ms,
        client_version=wanted.version,
    )


def _prepared(wanted: Ending) -> TransactionState:
    if wanted.is_commit:
        return TransactionState.PREPARE_COMMIT
    return TransactionState.PREPARE_ABORT


def _repeated(known: TransactionMetadata, wanted: Ending) -> ErrorCode:
    """Return the answer to an end of a transaction that has ended, or is ending."""
    same = (
        (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        if wanted.is_commit
        else (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
    )
    if known.state not in same:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if known.state.is_prepared else ErrorCode.NONE


def complete(known: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return a decided transaction once all its markers are written.

    Source: TransactionMetadata.prepareComplete.
    """
    is_commit = known.state is TransactionState.PREPARE_COMMIT
    ended = replace(
        known,
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now_ms,
    )
    if known.next_producer_id == NO_PRODUCER_ID:
        return ended
    return replace(
        ended,
        producer_id=known.next_producer_id,
        producer_epoch=0,
        last_producer_epoch=known.producer_epoch,
        previous_producer_id=known.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
