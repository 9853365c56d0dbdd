"""The state that a partition's replicas agree on: leader, epochs, ISR.

Every log root of a replica set keeps a copy of it, and a majority of the copies decides. A root is
a node: replicas are named by the `node.id` of their roots.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple

__all__ = ["NO_LEADER", "LeaderRecovery", "PartitionState", "ReplicationEvents"]

NO_LEADER: Final = -1  # LeaderConstants.NO_LEADER


class LeaderRecovery(Enum):
    """Whether the leader was elected from the replicas in sync."""

    RECOVERED = 0
    RECOVERING = 1  # after an unclean election, until the leader has taken stock of its log


class ReplicationEvents(NamedTuple):
    """Changes of a partition's state since its creation.

    Attributes:
        isr_shrinks: Changes by which a replica left the ISR.
        isr_expands: Changes by which a replica joined the ISR.
        unclean_leader_elections: Elections of a leader that may lack committed records.

    Source: kafka.server.ReplicaManager, org.apache.kafka.controller.metrics.
    """

    isr_shrinks: int = 0
    isr_expands: int = 0
    unclean_leader_elections: int = 0

    def plus(self, other: "ReplicationEvents") -> "ReplicationEvents":
        """Return the sums."""
        return ReplicationEvents(*map(sum, zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Who leads a partition, and which replicas hold every committed record.

    Attributes:
        topic_id: The id of its topic, 22 characters of base64.
        replicas: The nodes with a replica; the first is the preferred leader.
        isr: The in-sync replicas; they hold everything below the high watermark.
        leader: The node that takes writes, `NO_LEADER` while there is none.
        leader_epoch: Raised by one with each change of leader.
        partition_epoch: Raised by one with each change of this state.
        elr: Eligible leader replicas: left an ISR that fell below `min.insync.replicas`, and may
            lead while the ISR is empty.
        last_known_leader: The last leader before ISR and ELR became empty, `NO_LEADER` otherwise.
        recovery: Whether the leader was elected cleanly.
        adding: Replicas that a reassignment adds.
        removing: Replicas that a reassignment removes.
        events: Counts of earlier changes; two states that differ in them only are equal.

    Source: org.apache.kafka.metadata.PartitionRegistration, KIP-966.
    """

    topic_id: str
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    last_known_leader: int = NO_LEADER
    recovery: LeaderRecovery = LeaderRecovery.RECOVERED
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    events: ReplicationEvents = field(default=ReplicationEvents(), compare=False)

    @classmethod
    def created(cls, topic_id: str, replicas: tuple[int, ...]) -> "PartitionState":
        """Return the state of a new partition: the first replica leads, all are in sync."""
        return cls(topic_id=topic_id, replicas=replicas, isr=replicas, leader=replicas[0])

    @property
    def has_leader(self) -> bool:
        """Whether a node leads the partition."""
        return self.leader != NO_LEADER

    def with_isr(
        self, isr: tuple[int, ...], *, min_isr: int = 1, unclean: Collection[int] = ()
    ) -> "PartitionState":
        """Return the next state, of the same leader, with another ISR and the ELR that follows.

        While the ISR is below its minimum, the high watermark stands still, so a replica that
        leaves it then keeps every committed record: it becomes an eligible leader replica.

        Args:
            isr: The new ISR.
            min_isr: `min.insync.replicas`, at most the number of replicas.
            unclean: Replicas that may have lost committed records; they are not eligible.

        Source: org.apache.kafka.controller.PartitionChangeBuilder.maybePopulateTargetElr.
        """
        elr: tuple[int, ...] = ()
        last_known_leader = NO_LEADER
        if len(isr) < min(min_isr, len(self.replicas)):
            leaving = {*self.isr, *self.elr} - {*isr, *unclean}
            elr = tuple(node for node in self.replicas if node in leaving)
            if not isr and not elr:
                last_known_leader = self.leader if self.has_leader else self.last_known_leader
        return replace(
            self,
            isr=isr,
            elr=elr,
            last_known_leader=last_known_leader,
            partition_epoch=self.partition_epoch + 1,
        )

    def with_leader(self, leader: int) -> "PartitionState":
        """Return the next state, led by `leader` in a new epoch; also for the same leader again."""
        return replace(
            self,
            leader=leader,
            leader_epoch=self.leader_epoch + 1,
            partition_epoch=self.partition_epoch + 1,
        )

    def counted(self, before: "PartitionState", *, is_forced: bool = False) -> "PartitionState":
        """Return this state, which follows `before`, with the events between the two counted.

        A replica that a reassignment removes does not shrink the ISR.

        Args:
            before: The state that this one replaces.
            is_forced: No majority of the roots was asked: an unclean election in any case.
        """
        left = {*before.isr}.intersection(self.replicas).difference(self.isr)
        is_recovering = self.recovery is LeaderRecovery.RECOVERING
        had_recovered = before.recovery is LeaderRecovery.RECOVERED
        is_unclean = is_recovering and (had_recovered or self.leader != before.leader)
        is_unclean |= is_forced
        now = ReplicationEvents(bool(left), not {*self.isr} <= {*before.isr}, is_unclean)
        return replace(self, events=before.events.plus(now))
