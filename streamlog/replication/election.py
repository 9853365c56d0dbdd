"""The controller's decisions: which replica leads a partition, and whether its ISR may change.

    type        may lead, in this order
    ONLINE      current leader, ISR, ELR, last-known leader
    PREFERRED   preferred replica (first of the assignment) if in the ISR, then as ONLINE
    UNCLEAN     as ONLINE, then any replica that is online

Up to the last-known leader a replica must be online and complete: the caller examines whether it
still holds what it held. Offline and incomplete ones leave the ISR when another leader is elected.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from streamlog.replication.isr import effective_min_isr
from streamlog.replication.messages import AlterPartition, Errors
from streamlog.replication.partition_state import NO_LEADER, LeaderRecovery, PartitionState
from streamlog.replication.reassignment import complete_reassignment

__all__ = [
    "PREFERENCE",
    "Election",
    "ElectionType",
    "Eligibility",
    "alter_partition",
    "elect",
    "unclean_shutdown",
]


class ElectionType(Enum):
    """How far an election may go.

    Source: org.apache.kafka.controller.PartitionChangeBuilder.Election.
    """

    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class Eligibility(Enum):
    """Why a replica may lead."""

    PREFERRED = "first of the assignment, in sync"
    CURRENT_LEADER = "leads already"
    IN_SYNC = "in sync"
    ELIGIBLE = "eligible leader replica: holds every committed record (KIP-966)"
    LAST_KNOWN_LEADER = "led last, before ISR and ELR became empty"
    ONLINE = "online; committed records may be lost"

    @property
    def is_clean(self) -> bool:
        """Whether such a leader holds every committed record."""
        return self not in (Eligibility.LAST_KNOWN_LEADER, Eligibility.ONLINE)


_ONLINE: Final = (
    Eligibility.CURRENT_LEADER,
    Eligibility.IN_SYNC,
    Eligibility.ELIGIBLE,
    Eligibility.LAST_KNOWN_LEADER,
)
PREFERENCE: Final = {
    ElectionType.ONLINE: _ONLINE,
    ElectionType.PREFERRED: (Eligibility.PREFERRED, *_ONLINE),
    ElectionType.UNCLEAN: (*_ONLINE, Eligibility.ONLINE),
}


@dataclass(frozen=True, slots=True)
class Election:
    """The outcome of an election.

    Attributes:
        leader: The elected node, `NO_LEADER` if none may lead.
        reason: Why it may lead, None without a leader.
        state: The next partition state; the same object if nothing changes, or without a leader.
    """

    leader: int
    reason: Eligibility | None
    state: PartitionState


def _complete(_node: int) -> bool:
    return True


def elect(
    state: PartitionState,
    kind: ElectionType,
    *,
    online: Collection[int],
    min_insync_replicas: int,
    complete: Callable[[int], bool] = _complete,
) -> Election:
    """Elect a leader: the first replica, in assignment order, that the type of election allows.

    Args:
        state: The current partition state.
        kind: How far the election may go.
        online: The nodes that can be reached.
        min_insync_replicas: The topic's setting; decides about eligible leader replicas.
        complete: Whether an online node holds all that it held when it was last in sync. False for
            a disk that was replaced, restored from an older copy or cut by a power loss.

    Source: org.apache.kafka.controller.PartitionChangeBuilder.electLeader.
    """
    sound = frozenset(node for node in state.replicas if node in online and complete(node))
    for reason in PREFERENCE[kind]:
        allowed = _allowed(reason, state, online=online, sound=sound)
        for node in state.replicas:
            if node in allowed:
                incomplete = frozenset(online) - sound
                after = _after(state, node, reason, sound, incomplete, min_insync_replicas)
                return Election(node, reason, after)
    return Election(NO_LEADER, None, state)


def _allowed(
    reason: Eligibility, state: PartitionState, *, online: Collection[int], sound: frozenset[int]
) -> Collection[int]:
    """Return the nodes that may lead for a reason: the table of elections."""
    in_sync = sound.intersection(state.isr)
    if reason is Eligibility.PREFERRED:
        return in_sync.intersection(state.replicas[:1])
    if reason is Eligibility.CURRENT_LEADER:
        return in_sync.intersection((state.leader,))
    if reason is Eligibility.IN_SYNC:
        return in_sync
    if reason is Eligibility.ELIGIBLE:
        return sound.intersection(state.elr)
    if reason is Eligibility.LAST_KNOWN_LEADER:
        is_last = not state.isr and not state.elr
        return sound.intersection((state.last_known_leader,)) if is_last else frozenset()
    return online


def _after(
    state: PartitionState,
    leader: int,
    reason: Eligibility,
    sound: frozenset[int],
    incomplete: frozenset[int],
    min_insync_replicas: int,
) -> PartitionState:
    """Return the partition state after an election."""
    if not reason.is_clean:
        # Nothing that other replicas hold counts as committed from now on.
        return replace(
            state.with_leader(leader),
            isr=(leader,),
            elr=(),
            last_known_leader=NO_LEADER,
            recovery=LeaderRecovery.RECOVERING,
        )
    if leader == state.leader:
        return state
    after = state.with_leader(leader)
    isr = tuple(node for node in state.isr if node in sound) or (leader,)
    if isr == state.isr:
        return after
    min_isr = effective_min_isr(min_insync_replicas, len(state.replicas))
    changed = after.with_isr(isr, min_isr=min_isr, unclean=incomplete)
    return replace(changed, partition_epoch=state.partition_epoch + 1)


def unclean_shutdown(
    state: PartitionState, nodes: Collection[int], *, min_insync_replicas: int
) -> PartitionState:
    """Return the state without nodes that may have lost records: out of ISR and ELR.

    A leader among them leads no longer. While others are left in either set, one of them may be
    elected; otherwise the last-known leader is remembered. The partition epoch rises in any case:
    a leader's proposal to let such a node join, still in flight, counts on records that it may have
    lost (KAFKA-14139, by broker epochs there).

    Source: org.apache.kafka.controller.ReplicationControlManager.handleUncleanBrokerShutdown.
    """
    if not set(state.replicas).intersection(nodes):
        return state
    isr = tuple(node for node in state.isr if node not in nodes)
    min_isr = effective_min_isr(min_insync_replicas, len(state.replicas))
    changed = state.with_isr(isr, min_isr=min_isr, unclean=nodes)
    if state.leader not in nodes:
        return changed
    return replace(changed.with_leader(NO_LEADER), partition_epoch=changed.partition_epoch)


def alter_partition(
    state: PartitionState,
    request: AlterPartition,
    *,
    min_insync_replicas: int,
    eligible: Collection[int] | None = None,
) -> PartitionState | Errors:
    """Return the partition state with the ISR that a leader proposes, or why it is refused.

    A proposal also states that the leader has recovered from an unclean election. If it brings the
    last added replica into the ISR, it completes a reassignment; if the leader leaves with it, the
    returned state has another leader.

    Args:
        state: The current partition state.
        request: The proposal.
        min_insync_replicas: The topic's setting; decides about eligible leader replicas.
        eligible: The nodes that may be in the ISR, None for all replicas.

    Source: org.apache.kafka.controller.ReplicationControlManager.validateAlterPartitionData.
    """
    if request.leader_epoch > state.leader_epoch or request.leader != state.leader:
        known = request.leader_epoch >= state.leader_epoch
        return Errors.INVALID_REQUEST if known else Errors.FENCED_LEADER_EPOCH
    if request.leader_epoch < state.leader_epoch:
        return Errors.FENCED_LEADER_EPOCH
    if request.partition_epoch != state.partition_epoch:
        return Errors.INVALID_UPDATE_VERSION
    if request.leader not in request.isr or not set(request.isr) <= set(state.replicas):
        return Errors.INVALID_REQUEST
    if eligible is not None and not set(request.isr) <= {*eligible, *state.isr}:
        return Errors.INELIGIBLE_REPLICA
    min_isr = effective_min_isr(min_insync_replicas, len(state.replicas))
    changed = state.with_isr(request.isr, min_isr=min_isr)
    recovered = replace(changed, recovery=LeaderRecovery.RECOVERED)
    return complete_reassignment(recovered, min_insync_replicas=min_insync_replicas)
