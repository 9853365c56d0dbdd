"""How a member of a consumer group comes to its target: one heartbeat after another.

    STABLE        has its target of its epoch
    UNREVOKED     has to give up partitions before it enters the next epoch
    UNRELEASED    is in the target's epoch, waits for partitions that others still have

Source: org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder.
"""

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.assignors import Assignment
from streamlog.gateway.groups.consumer_member import (
    ConsumerMember,
    Reconciliation,
    RefusedHeartbeatError,
)

__all__ = ["Target", "is_waiting", "reconciled"]


class Target(NamedTuple):
    """What a member is to come to.

    Attributes:
        epoch: The epoch of the target assignment.
        assignment: The member's part of it.
        subscribed: The ids of the topics that the member subscribes to.
        held: The partitions that any member has or has to give up.
    """

    epoch: int
    assignment: Assignment
    subscribed: AbstractSet[str]
    held: AbstractSet[tuple[str, int]]


def reconciled(
    member: ConsumerMember,
    target: Target,
    owned: Assignment | None,
    *,
    has_changed: bool,
) -> ConsumerMember:
    """Return a member that is as near to its target as it can be now.

    Args:
        member: The member.
        target: Its target.
        owned: The partitions that it says it has; None if it says nothing.
        has_changed: Whether it has just changed what it subscribes to.

    Raises:
        RefusedHeartbeatError: It is in a state that only a newer broker knows.
    """
    match member.state:
        case Reconciliation.STABLE:
            if member.epoch == target.epoch:
                return _kept_to(member, target, owned) if has_changed else member
        case Reconciliation.UNREVOKED:
            if _has_any(owned, member.revoking):
                return _kept_to(member, target, owned) if has_changed else member
        case Reconciliation.UNRELEASED:
            pass
        case _:
            if owned is None or owned:
                raise RefusedHeartbeatError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in an unknown state. It must abandon all its "
                    "partitions and rejoin.",
                )
            return _advanced(member, target, target.epoch, owned)
    return _advanced(member, target, member.epoch, owned)


def _kept_to(member: ConsumerMember, target: Target, owned: Assignment | None) -> ConsumerMember:
    """Return a member without the partitions of topics that it no longer subscribes to."""
    kept = {each: member.assigned[each] for each in member.assigned if each in target.subscribed}
    if len(kept) == len(member.assigned):
        return member
    revoking = dict(member.revoking)
    for topic in member.assigned.keys() - kept.keys():
        revoking[topic] = revoking.get(topic, frozenset()) | member.assigned[topic]
    if not _has_any(owned, revoking):
        return replace(member, assigned=kept)
    return replace(member, state=Reconciliation.UNREVOKED, assigned=kept, revoking=revoking)


def _advanced(
    member: ConsumerMember, target: Target, epoch: int, owned: Assignment | None
) -> ConsumerMember:
    """Return a member with what it may have now; source: computeNextAssignment."""
    kept: dict[str, frozenset[int]] = {}
    revoked: dict[str, frozenset[int]] = {}
    added: dict[str, frozenset[int]] = {}
    waits = False
    for topic in target.assignment.keys() | member.assigned.keys():
        is_subscribed = topic in target.subscribed
        wanted = target.assignment.get(topic, frozenset()) if is_subscribed else frozenset()
        current = member.assigned.get(topic, frozenset())
        missing = wanted - current
        # What the member itself has to give up is held by no other member.
        own = member.revoking.get(topic, frozenset())
        free = frozenset(
            each for each in missing if each in own or (topic, each) not in target.held
        )
        waits = waits or free != missing
        kept[topic], revoked[topic], added[topic] = wanted & current, current - wanted, free
    if any(revoked.values()) and _has_any(owned, revoked):
        return replace(
            member,
            state=Reconciliation.UNREVOKED,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=_without_empty(kept),
            revoking=_without_empty(revoked),
        )
    return replace(
        member,
        state=Reconciliation.UNRELEASED if waits else Reconciliation.STABLE,
        epoch=target.epoch,
        previous_epoch=member.epoch,
        assigned=_without_empty({each: kept[each] | added[each] for each in kept}),
        revoking={},
    )


def is_waiting(member: ConsumerMember, target: Target) -> bool:
    """Whether a member of the classic protocol waits for partitions that others still have.

    Source: ConsumerGroup.waitingOnUnreleasedPartition.
    """
    if member.state is not Reconciliation.UNRELEASED:
        return False
    return any(
        number not in member.assigned.get(topic, frozenset()) and (topic, number) in target.held
        for topic, numbers in target.assignment.items()
        for number in numbers
    )


def _has_any(owned: Assignment | None, revoked: Assignment) -> bool:
    """Whether a member still has partitions that it has to give up; assumed if it does not say."""
    if owned is None:
        return True
    return any(owned[topic] & revoked.get(topic, frozenset()) for topic in owned)


def _without_empty(assignment: Assignment) -> Assignment:
    return {topic: numbers for topic, numbers in assignment.items() if numbers}
