"""Whether a replica still holds what it held when it was last in sync.

A root may come back without records that it had: restored from an older copy, or after a power cut
that took what was not synced. Its files look sound, and in one boot even its lock file does. Other
replicas know better: they were told a high watermark, or hold records of the same leader epoch.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.log_offsets import LogOffsets
from streamlog.replication.partition_state import PartitionState

__all__ = ["ReplicaPositions", "positions_of", "proof_of_loss"]


class _Log(Protocol):
    @property
    def offsets(self) -> LogOffsets: ...

    @property
    def leader_epochs(self) -> LeaderEpochCache: ...


class ReplicaPositions(NamedTuple):
    """What a replica's files say: its offsets and leader epochs at one moment."""

    node: int
    offsets: LogOffsets
    epochs: LeaderEpochCache

    @property
    def latest_epoch(self) -> int:
        """The last leader epoch, -1 without any."""
        latest = self.epochs.latest_epoch
        return -1 if latest is None else latest


def positions_of(node: int, log: _Log) -> ReplicaPositions:
    """Return the positions of an open log."""
    return ReplicaPositions(node, log.offsets, log.leader_epochs.copy())


def proof_of_loss(
    replica: ReplicaPositions, others: Iterable[ReplicaPositions], state: PartitionState
) -> ReplicaPositions | None:
    """Return a replica that proves that another one lost records; None if there is none.

    Args:
        replica: The replica in doubt.
        others: The replicas that can be reached.
        state: The state of the partition.

    Returns:
        One that knows of committed records that the replica lacks, or has in another epoch; or a
        member of the ISR with more records of the current epoch: a leader appends to its own log
        first.
    """
    for other in others:
        if other.node != replica.node and _proves(other, replica, state.isr, state.leader_epoch):
            return other
    return None


def _proves(
    other: ReplicaPositions, replica: ReplicaPositions, isr: Collection[int], leader_epoch: int
) -> bool:
    end, committed = replica.offsets.end, other.offsets.high_watermark
    if other.node not in isr:
        # One that did not follow the last leaders may remember what an unclean election lost.
        return committed > end and other.latest_epoch >= replica.latest_epoch
    if committed > end or (other.latest_epoch == leader_epoch and other.offsets.end > end):
        return True
    last = committed - 1
    if last < max(replica.offsets.start, other.offsets.start):
        return False
    # None for a record in an older format; a recovery may have given such records an epoch.
    committed_epoch = other.epochs.epoch_for_offset(last)
    return committed_epoch not in (None, replica.epochs.epoch_for_offset(last))
