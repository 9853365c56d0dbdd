"""The simulated disk of a replica: log, epochs, checkpoints and register, with and without a sync.

A record is `(leader epoch, id)` and a batch of its own. The id names the producer, its sequence
number and the kind of record, so that any observed record can be checked without storing it. A
record in an older format has no leader epoch.
"""

from random import Random
from typing import Final

from streamlog.partition.epochs import EpochEntry, LeaderEpochCache
from streamlog.replication.quorum import Acceptor

Record = tuple[int, int]

DATA, TRANSACTIONAL, COMMIT, ABORT = range(4)
NO_EPOCH: Final = -1  # RecordBatch.NO_PARTITION_LEADER_EPOCH
_KIND_BITS: Final = 2
_PRODUCER_BITS: Final = 8


def record_id(producer: int, sequence: int, kind: int) -> int:
    return (sequence << _PRODUCER_BITS | producer) << _KIND_BITS | kind


def kind_of(identity: int) -> int:
    return identity & (1 << _KIND_BITS) - 1


def producer_of(identity: int) -> int:
    return identity >> _KIND_BITS & (1 << _PRODUCER_BITS) - 1


def sequence_of(identity: int) -> int:
    return identity >> _KIND_BITS + _PRODUCER_BITS


class Disk:
    """What one root holds of the partition; the `ReplicaLog` of the protocol.

    Attributes:
        topic_id: In `partition.metadata`; None without a directory of the partition.
        records: From the log start on.
        synced: Records below this offset survive a power cut.
        epoch_file: The content of `leader-epoch-checkpoint`.
        high_watermark_file: The row in `replication-offset-checkpoint`.
        acceptor: The register file, always durable; None after the disk was replaced.
        is_unclean: The records may be fewer than those that were reported to the leader.
        producers: The last sequence number of each producer, and its offset.
        epochs_known_from: The cache has the epochs of records from this offset on; a record without
            an epoch has cleared those below it.
        matched: The records below this offset were found equal to the committed ones.
    """

    def __init__(self, acceptor: Acceptor | None = None, topic_id: str | None = None) -> None:
        self.topic_id = topic_id
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.records: list[Record] = []
        self.epochs = LeaderEpochCache()
        self.synced = 0
        self.epoch_file: tuple[EpochEntry, ...] = ()
        self.high_watermark_file = 0
        self.acceptor = acceptor
        self.is_unclean = False
        self.producers: dict[int, tuple[int, int]] = {}
        self._deleted: dict[int, tuple[int, int]] = {}
        self.epochs_known_from = 0
        self.matched = 0

    def copy(self) -> "Disk":
        """Return a copy of everything that is durable, as a backup has it."""
        other = Disk(self.acceptor, self.topic_id)
        other.log_start_offset = self.log_start_offset
        other.epoch_file = self.epoch_file
        other.epochs_known_from = self.epochs_known_from
        other.high_watermark_file = self.high_watermark_file
        other._deleted = dict(self._deleted)
        other.records = self.records[: max(0, self.synced - self.log_start_offset)]
        other.log_end_offset = self.log_start_offset + len(other.records)
        other.synced = other.log_end_offset
        return other

    def record_at(self, offset: int) -> Record:
        return self.records[offset - self.log_start_offset]

    def records_from(self, offset: int, end: int) -> list[Record]:
        return self.records[offset - self.log_start_offset : end - self.log_start_offset]

    # ---- changes -----------------------------------------------------------------------------
    def append(self, records: list[Record]) -> None:
        offset = self.log_end_offset
        latest = self.epochs.latest_epoch
        for epoch, identity in records:
            if epoch == NO_EPOCH:
                self.forget_epochs()
                self.epochs_known_from = offset + 1
                latest = self.epochs.latest_epoch
            elif latest is None or epoch > latest:
                self.epochs.assign(epoch, offset)
                latest = epoch
            self.producers[producer_of(identity)] = (sequence_of(identity), offset)
            offset += 1
        self.records += records
        self.log_end_offset = offset
        self.epoch_file = self.epochs.entries

    def forget_epochs(self) -> None:
        """Clear the epochs before a record without one (KAFKA-7897)."""
        self.epochs.clear()

    def sync(self) -> None:
        self.synced = self.log_end_offset
        self.epoch_file = self.epochs.entries

    def truncate(self, offset: int) -> None:
        """Remove the records and the epochs at and above an offset, durably."""
        if offset < self.log_start_offset:
            self.restart_at(offset)
            return
        self.epochs.truncate_from_end(offset)
        self.epoch_file = self.epochs.entries
        if offset < self.log_end_offset:
            del self.records[offset - self.log_start_offset :]
            self.log_end_offset = offset
            self.synced = min(self.synced, offset)
            self.matched = min(self.matched, offset)
            self.epochs_known_from = min(self.epochs_known_from, offset)
            self._rebuild_producers()

    def restart_at(self, offset: int) -> None:
        """Remove all records and epochs; the next record goes to `offset`."""
        self.records = []
        self.log_start_offset = self.log_end_offset = self.synced = self.matched = offset
        self.epochs_known_from = 0
        self.epochs.clear()
        self.epoch_file = ()
        self.producers = {}
        self._deleted = {}

    def set_aside(self, topic_id: str | None) -> None:
        """Rename the directory of the partition, and make an empty one of a topic, if any."""
        self.restart_at(0)
        self.topic_id = topic_id
        self.high_watermark_file = 0
        self.is_unclean = False

    def raise_log_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        for at, (_, identity) in enumerate(self.records_from(self.log_start_offset, offset)):
            known = sequence_of(identity), self.log_start_offset + at
            self._deleted[producer_of(identity)] = known
        del self.records[: offset - self.log_start_offset]
        self.log_start_offset = offset
        self.matched = max(self.matched, offset)
        self.epochs.truncate_from_start(offset)
        self.epoch_file = self.epochs.entries

    # ---- faults ------------------------------------------------------------------------------
    def cut_power(self, random: Random) -> None:
        """Lose some of the records that were not synced, from the end."""
        kept = random.randint(max(self.synced, self.log_start_offset), self.log_end_offset)
        del self.records[kept - self.log_start_offset :]
        self.log_end_offset = kept
        self.synced = kept
        self.matched = min(self.matched, kept)

    def load(self, *, is_epoch_file_lost: bool) -> None:
        """Recover after a restart: rebuild the epochs from the file and the records."""
        entries = () if is_epoch_file_lost else self.epoch_file
        self.epochs = LeaderEpochCache(entries)
        self.epochs.truncate_from_end(self.log_end_offset)
        self._recover_epochs()
        self.epoch_file = self.epochs.entries
        self._rebuild_producers()

    def _recover_epochs(self) -> None:
        latest = self.epochs.latest_epoch
        for at, (epoch, _) in enumerate(self.records):
            if epoch != NO_EPOCH and (latest is None or epoch > latest):
                self.epochs.assign(epoch, self.log_start_offset + at)
                latest = epoch

    def _rebuild_producers(self) -> None:
        self.producers = dict(self._deleted)
        for at, (_, identity) in enumerate(self.records, self.log_start_offset):
            self.producers[producer_of(identity)] = (sequence_of(identity), at)
