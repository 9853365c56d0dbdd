"""The state of one producer in a partition: epoch, last five batches, open transaction.

A batch that repeats one of the five is a retry and is answered with the old offsets; any other
batch must carry the sequence that follows. A transaction is open from its first data batch to
its end marker.
"""

from typing import Final, NamedTuple

from streamlog.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from streamlog.records.control import EndTransactionMarker
from streamlog.records.layout import (
    CONTROL_MASK,
    MAX_INT16,
    MAX_INT32,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
)

__all__ = [
    "BatchMetadata",
    "CompletedTxn",
    "ProducedBatch",
    "ProducerState",
]

BATCHES_TO_RETAIN: Final = 5  # ProducerStateEntry.NUM_BATCHES_TO_RETAIN
NO_COORDINATOR_EPOCH: Final = -1  # ProducerStateEntry: as long as there was no marker
MAX_PRODUCER_EPOCH: Final = MAX_INT16  # Short.MAX_VALUE; the last epoch an id can have


class ProducedBatch(NamedTuple):
    """A row of a `BatchTable`."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; 0 follows 2**31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset - self.base_offset) & MAX_INT32

    @property
    def is_control(self) -> bool:
        """Whether it holds a marker."""
        return bool(self.attributes & CONTROL_MASK)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_MASK)


class BatchMetadata(NamedTuple):
    """The facts kept of a batch, by which a retry is recognized."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        """The sequence of its first record."""
        return (self.last_sequence - self.offset_delta) & MAX_INT32


class CompletedTxn(NamedTuple):
    """A transaction and the offset of the marker that ended it."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerState:
    """The state of one producer; changed in place, copied before a trial.

    Source: org.apache.kafka.storage.internals.log.ProducerStateEntry, ProducerAppendInfo.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        *,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        batches: tuple[BatchMetadata, ...] = (),
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        current_txn_first_offset: int | None = None,
        last_timestamp: int = -1,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches = batches
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_first_offset = current_txn_first_offset
        self.last_timestamp = last_timestamp

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 if no batch is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The offset of the last data record, -1 if no batch is known."""
        return self.batches[-1].last_offset if self.batches else -1

    def copy(self) -> "ProducerState":
        """Return an independent copy."""
        return ProducerState(
            self.producer_id,
            producer_epoch=self.producer_epoch,
            batches=self.batches,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=self.current_txn_first_offset,
            last_timestamp=self.last_timestamp,
        )

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the producer was idle for too long; False while its transaction is open."""
        return (
            self.current_txn_first_offset is None and now_ms - self.last_timestamp >= expiration_ms
        )

    def find_duplicate(self, batch: ProducedBatch) -> BatchMetadata | None:
        """Return the remembered batch that `batch` repeats."""
        if batch.producer_epoch != self.producer_epoch:
            return None
        wanted = (batch.base_sequence, batch.last_sequence)
        for known in self.batches:
            if (known.base_sequence, known.last_sequence) == wanted:
                return known
        return None

    # ---- changes -----------------------------------------------------------------------------
    def append_data(self, batch: ProducedBatch) -> None:
        """Remember a data batch."""
        self._adopt_epoch(batch.producer_epoch)
        metadata = BatchMetadata(
            batch.last_sequence,
            batch.last_offset,
            batch.last_offset - batch.base_offset,
            batch.max_timestamp,
        )
        self.batches = (*self.batches, metadata)[-BATCHES_TO_RETAIN:]
        self.last_timestamp = batch.max_timestamp
        if batch.is_transactional and self.current_txn_first_offset is None:
            self.current_txn_first_offset = batch.base_offset

    def append_marker(
        self, batch: ProducedBatch, marker: EndTransactionMarker
    ) -> CompletedTxn | None:
        """Remember an end marker; return the transaction that it ended, if one was open."""
        self._adopt_epoch(batch.producer_epoch)
        first_offset, self.current_txn_first_offset = self.current_txn_first_offset, None
        self.coordinator_epoch = marker.coordinator_epoch
        self.last_timestamp = batch.max_timestamp
        if first_offset is None:
            return None
        return CompletedTxn(self.producer_id, first_offset, batch.base_offset, not marker.is_commit)

    def _adopt_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.producer_epoch, self.batches = producer_epoch, ()

    # ---- what a leader refuses ---------------------------------------------------------------
    def check_first(self, batch: ProducedBatch) -> None:
        """Raise if a transaction of version 2 begins in the middle of a producer's batches.

        Its first batches are missing then: nothing is known of the producer, or of its epoch.

        Raises:
            OutOfOrderSequenceError: The sequence of the first batch is not 0.

        Source: ProducerAppendInfo.checkSequence; KIP-890.
        """
        begins = batch.is_transactional and self.current_txn_first_offset is None
        if begins and not self.batches and batch.base_sequence != 0:
            raise OutOfOrderSequenceError(
                f"producer {self.producer_id} of epoch {batch.producer_epoch} is not known",
                offset=batch.base_offset,
                got=f"sequence {batch.base_sequence}",
                expected=0,
            )

    def check_data(self, batch: ProducedBatch, *, check_sequence: bool) -> None:
        """Raise if a leader must not append this data batch.

        Raises:
            InvalidProducerEpochError: Of an older epoch.
            OutOfOrderSequenceError: It does not follow the last batch.
            InvalidTxnStateError: Outside a transaction while one is open.
        """
        if batch.producer_epoch < self.producer_epoch:
            raise self._epoch_error(batch, f"at least {self.producer_epoch}")
        if check_sequence:
            self._check_sequence(batch)
        if self.current_txn_first_offset is not None and not batch.is_transactional:
            raise InvalidTxnStateError(
                f"producer {self.producer_id} writes outside of its open transaction",
                offset=batch.base_offset,
                expected="a transactional batch, or an end marker",
            )

    def _check_sequence(self, batch: ProducedBatch) -> None:
        if self.producer_epoch == NO_PRODUCER_EPOCH:
            return  # nothing is known of this producer: it may have been forgotten
        is_new_epoch = batch.producer_epoch != self.producer_epoch
        last = NO_SEQUENCE if is_new_epoch else self.last_sequence
        # -1, for none, is followed by 0 as well.
        expected = (last + 1) & MAX_INT32
        if batch.base_sequence != expected:
            raise OutOfOrderSequenceError(
                f"producer {self.producer_id} of epoch {batch.producer_epoch} is out of order",
                offset=batch.base_offset,
                got=f"sequence {batch.base_sequence}",
                expected=expected,
            )

    def check_marker(
        self, batch: ProducedBatch, marker: EndTransactionMarker, *, transaction_version: int
    ) -> None:
        """Raise if a leader must not append this end marker.

        Args:
            batch: The control batch.
            marker: What is in it.
            transaction_version: From 2 on a marker carries an epoch above the data's, except
                where it is sent again, or where there is no greater one.

        Raises:
            InvalidProducerEpochError: Of an older epoch.
            TransactionCoordinatorFencedError: Of an older coordinator.
        """
        least = self.producer_epoch
        may_be_equal = (
            transaction_version < 2
            or self.current_txn_first_offset is None
            or self.producer_epoch == MAX_PRODUCER_EPOCH
        )
        if not may_be_equal:
            least += 1
        if batch.producer_epoch < least:
            raise self._epoch_error(batch, f"at least {least}")
        if marker.coordinator_epoch < self.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"end marker for producer {self.producer_id} comes from an older coordinator",
                offset=batch.base_offset,
                got=f"coordinator epoch {marker.coordinator_epoch}",
                expected=f"at least {self.coordinator_epoch}",
            )

    def _epoch_error(self, batch: ProducedBatch, expected: str) -> InvalidProducerEpochError:
        return InvalidProducerEpochError(
            f"producer {self.producer_id} uses an older epoch than it had before",
            offset=batch.base_offset,
            got=batch.producer_epoch,
            expected=expected,
        )
