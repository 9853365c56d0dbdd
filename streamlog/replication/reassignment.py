"""Moving a partition to other nodes: the new replicas catch up first, then the old ones go.

    begin      replicas = target + leaving, `adding` and `removing` are noted
    meanwhile  the leader serves old and new followers; the new ones join the ISR one by one
    complete   all added replicas are in sync: the leaving ones leave replicas and ISR

Source: org.apache.kafka.controller.PartitionReassignmentReplicas.
"""

from dataclasses import replace

from streamlog.errors import InvalidRequestError
from streamlog.replication.isr import effective_min_isr
from streamlog.replication.partition_state import PartitionState

__all__ = ["begin_reassignment", "complete_reassignment"]


def begin_reassignment(state: PartitionState, target: tuple[int, ...]) -> PartitionState:
    """Return the state in which replicas on other nodes catch up.

    A second reassignment replaces one in progress; the replicas that only the first would have
    added leave. Pass the result to `complete_reassignment`: one that adds nothing is complete.

    Args:
        state: The current partition state.
        target: The replicas in the end; the first is the preferred leader.

    Raises:
        InvalidRequestError: No target, or a node twice.
    """
    if not target or len(set(target)) != len(target):
        raise InvalidRequestError(
            "a reassignment needs distinct target nodes", got=f"nodes {list(target)}"
        )
    original = [node for node in state.replicas if node not in state.adding]
    leaving = tuple(node for node in state.replicas if node not in target)
    return replace(
        state,
        replicas=(*target, *leaving),
        adding=tuple(node for node in target if node not in original),
        removing=leaving,
        partition_epoch=state.partition_epoch + 1,
    )


def complete_reassignment(state: PartitionState, *, min_insync_replicas: int) -> PartitionState:
    """Return the state without the leaving replicas; the same object if it is too early.

    The added replicas must be in sync, and with them at least `min.insync.replicas` of those that
    stay. A leader that leaves hands over to the first replica in sync, in a new leader epoch.

    Args:
        state: The current partition state; counts as one change with what led to it.
        min_insync_replicas: The topic's setting.
    """
    if not state.adding and not state.removing:
        return state
    replicas = tuple(node for node in state.replicas if node not in state.removing)
    isr = tuple(node for node in state.isr if node not in state.removing)
    enough = max(1, effective_min_isr(min_insync_replicas, len(replicas)))
    if not set(state.adding) <= set(isr) or len(isr) < enough:
        return state
    after = state
    if state.leader in state.removing:
        after = state.with_leader(next(node for node in replicas if node in isr))
    return replace(
        after,
        replicas=replicas,
        isr=isr,
        elr=(),
        adding=(),
        removing=(),
        partition_epoch=state.partition_epoch,
    )
