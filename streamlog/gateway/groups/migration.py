"""Groups between the protocols: members of the classic one in a consumer group (KIP-848).

A classic group of consumers becomes a consumer group when the first member of that protocol joins;
its members stay, and are told to join again. The way back is the same: once only classic members
are left, the group becomes a classic one.

Source: ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup, and the classic part of
consumer groups in GroupMetadataManager.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from streamlog.errors import CorruptRecordError
from streamlog.gateway.coordinator_log import KeyValue
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.assignors import Assignment
from streamlog.gateway.groups.classic import ClassicGroup
from streamlog.gateway.groups.consumer_member import (
    ClassicSupport,
    ConsumerMember,
    Reconciliation,
    RefusedHeartbeatError,
)
from streamlog.gateway.groups.consumer_state import ConsumerGroupState
from streamlog.gateway.groups.group import TopicOf
from streamlog.gateway.groups.members import ClassicMember, GroupWorld, JoinRequest, SyncRequest
from streamlog.gateway.groups.reconciliation import is_waiting
from streamlog.gateway.groups.topic_hash import group_hash
from streamlog.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL,
    ConsumerSubscription,
    encode_consumer_assignment,
    parse_assignment,
    parse_subscription,
)

__all__ = [
    "assigned_bytes",
    "by_topic_id",
    "check_sync",
    "check_upgrade",
    "classic_group",
    "consumer_state",
    "needs_to_join",
    "supports",
    "what_it_says",
]

_NameOf = Callable[[str], str | None]  # of a topic id


# ---- requests of classic members ----------------------------------------------------------------
def supports(members: Iterable[ConsumerMember], request: JoinRequest) -> bool:
    """Whether a member has a protocol in common with the classic members of a group.

    Source: ConsumerGroup.supportsClassicProtocols.
    """
    known = [
        {protocol.name for protocol in each.classic.protocols}
        for each in members
        if each.classic is not None
    ]
    names = {each.name for each in request.protocols}
    return request.protocol_type == CONSUMER_PROTOCOL and bool(names.intersection(*known))


def what_it_says(request: JoinRequest) -> ConsumerSubscription:
    """Return what a consumer says when it joins; all its protocols have the same.

    Raises:
        RefusedHeartbeatError: The bytes hold no subscription.
    """
    try:
        return parse_subscription(request.protocols[0].metadata)
    except CorruptRecordError as error:
        raise RefusedHeartbeatError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None


def check_sync(member: ConsumerMember, request: SyncRequest, epoch: int) -> ErrorCode:
    """Return why a member may not have its assignment now, or NONE.

    Args:
        member: The member.
        request: Its request.
        epoch: The epoch of the group.
    """
    if member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if request.generation != member.epoch:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or (
        request.protocol_name not in (None, member.classic.protocols[0].name)
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    # One that has to give partitions up has joined for this epoch already.
    if epoch > member.epoch and member.state is not Reconciliation.UNREVOKED:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def needs_to_join(state: ConsumerGroupState, member: ConsumerMember) -> bool:
    """Whether a member has to join again: to enter an epoch, to give up or to get partitions."""
    if member.epoch < state.epoch or member.state is Reconciliation.UNREVOKED:
        return True
    is_waiting_for_others = is_waiting(member, state.target_of(member))
    return member.state is Reconciliation.UNRELEASED and not is_waiting_for_others


def by_topic_id(assigned: Mapping[str, frozenset[int]], topic_of: TopicOf) -> Assignment:
    """Return partitions given by topic name under the ids of the topics that exist."""
    topics = {name: topic_of(name) for name in assigned}
    return {
        topic.topic_id: assigned[name]
        for name, topic in topics.items()
        if topic is not None and assigned[name]
    }


def assigned_bytes(member: ConsumerMember, assigned: Assignment, name_of: _NameOf) -> bytes:
    """Return an assignment as a member of the classic protocol reads it."""
    assert member.classic is not None
    version = parse_subscription(member.classic.protocols[0].metadata).version
    named = {name: assigned[each] for each in assigned if (name := name_of(each)) is not None}
    return encode_consumer_assignment(named, version)


# ---- from one protocol to the other -------------------------------------------------------------
def consumer_state(group: ClassicGroup, topic_of: TopicOf) -> ConsumerGroupState:
    """Return the state of the consumer group that a classic group with members becomes.

    Raises:
        RefusedHeartbeatError: What its members or its leader said is unknown to the server.
    """
    generation = group.generation
    state = ConsumerGroupState(group.group_id, epoch=generation, target_epoch=generation)
    for member_id, member in group.members.items():
        try:
            assigned, user_data = (
                parse_assignment(member.assignment) if member.assignment else ({}, b"")
            )
            metadata = member.metadata(group.protocol) or member.protocols[0].metadata
            subscription = parse_subscription(metadata)
        except CorruptRecordError:
            raise _not_upgraded(group, "the embedded consumer protocol is malformed.") from None
        if user_data:
            raise _not_upgraded(
                group,
                "an unsupported custom assignor is in use. Please refer to the documentation or "
                "switch to a default assignor before re-attempting the upgrade.",
            )
        target = by_topic_id(assigned, topic_of)
        state.targets[member_id] = target
        state.members[member_id] = ConsumerMember(
            member_id,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=subscription.topics,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicSupport(member.session_timeout_ms, member.protocols),
            epoch=generation,
            previous_epoch=generation,
            assigned=target,
        )
    state.look_up_topics(topic_of)
    state.topics_hash = group_hash(state.topics)
    return state


def _not_upgraded(group: ClassicGroup, why: str) -> RefusedHeartbeatError:
    return RefusedHeartbeatError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {why}",
    )


def check_upgrade(group: ClassicGroup, policy: str, max_size: int) -> None:
    """Check that a classic group with members may become a consumer group.

    Args:
        group: The group.
        policy: The setting `group.consumer.migration.policy`.
        max_size: The setting `group.consumer.max.size`.

    Raises:
        RefusedHeartbeatError: It may not.

    Source: GroupMetadataManager.validateOnlineUpgrade.
    """
    if policy not in ("upgrade", "bidirectional"):
        raise _not_upgraded(group, "online upgrade is disabled.")
    if group.protocol_type != CONSUMER_PROTOCOL:
        raise _not_upgraded(group, "the group does not use the consumer embedded protocol.")
    if len(group.members) > max_size:
        raise _not_upgraded(group, "the group size exceeds the consumer group maximum size.")


def classic_group(
    state: ConsumerGroupState, leaving: Collection[str], world: GroupWorld
) -> tuple[ClassicGroup, KeyValue]:
    """Return the classic group that a consumer group becomes, and the record that keeps it.

    Args:
        state: The group; all members but those that leave speak the classic protocol.
        leaving: The ids of members that leave.
        world: What groups need from outside.
    """
    members = []
    for member_id, member in state.members.items():
        if member_id in leaving:
            continue
        assert member.classic is not None
        target = state.targets.get(member_id, {})
        members.append(
            ClassicMember(
                member_id=member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.classic.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                protocols=member.classic.protocols,
                assignment=assigned_bytes(member, target, world.name_of),
            )
        )
    group = ClassicGroup.of_members(state.group_id, members, state.epoch, world)
    return group, group.record({each.member_id: each.assignment for each in members})
