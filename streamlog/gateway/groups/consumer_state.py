"""The state of a consumer group (KIP-848) and its changes; without I/O, clock or timers.

A group has an epoch, which rises with each change of its members, of their subscriptions or of
their topics. For each epoch an assignor makes the target: the partitions that each member shall
have. Members come to their target one heartbeat after another:

    STABLE        has its target of its epoch
    UNREVOKED     has to give up partitions before it enters the next epoch
    UNRELEASED    is in the target's epoch, waits for partitions that others still have

Each change collects the records that keep it; a change that is refused leaves a draft to discard.

Source: the consumer part of GroupMetadataManager, CurrentAssignmentBuilder, ConsumerGroup.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, NamedTuple

from streamlog.gateway.coordinator_log import KeyValue
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.assignors import ASSIGNORS, Assignee, Assignment
from streamlog.protocol.internal_topics import Decoder, InternalRecord, OffsetsKey, encode_internal

__all__ = [
    "LEAVE",
    "LEAVE_STATIC",
    "ConsumerGroupState",
    "ConsumerHeartbeat",
    "ConsumerMember",
    "RefusedHeartbeatError",
    "Reconciliation",
    "SubscribedTopic",
]

LEAVE: Final = -1  # the member epoch of a member that leaves
LEAVE_STATIC: Final = -2  # that of a static member that will be back


class RefusedHeartbeatError(Exception):
    """A heartbeat that changes nothing.

    Attributes:
        code: The error to answer.
        message: The text to answer.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class ConsumerHeartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request; None where the member has not changed a field.

    Attributes:
        member_id: The member's id.
        member_epoch: Its epoch; 0 to join, `LEAVE` or `LEAVE_STATIC` to leave.
        instance_id: Its static name; None without one.
        rack_id: Its rack.
        rebalance_timeout_ms: How long it may take to give up partitions; -1 unchanged.
        topics: The names it subscribes to.
        assignor: The assignor it asks for.
        owned: The partitions it has.
        client_id: The client's name for itself.
        client_host: Its address.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topics: tuple[str, ...] | None
    assignor: str | None
    owned: Assignment | None
    client_id: str
    client_host: str

    @property
    def is_full(self) -> bool:
        """Whether it has all fields, so that the answer has to have the assignment."""
        has_all = self.rebalance_timeout_ms != -1 and self.topics is not None
        return self.member_epoch == 0 or (has_all and self.owned is not None)


class Reconciliation(IntEnum):
    """How far a member is; the numbers stand in records. Source: MemberState."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127  # written by a newer broker


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member of a consumer group.

    Attributes:
        member_id: Its id.
        instance_id: Its static name; None without one.
        rack_id: Its rack; None if unknown.
        client_id: The client's name for itself.
        client_host: Its address.
        topics: The names it subscribes to, in order.
        regex: The pattern it subscribes to, in a log that a broker wrote.
        rebalance_timeout_ms: How long it may take to give up partitions.
        assignor: The assignor it asks for; None without a wish.
        epoch: Its epoch; `LEAVE_STATIC` while a static member is away.
        previous_epoch: The epoch before; it may still be in the requests of the member.
        state: How far it is.
        assigned: Its partitions.
        revoking: Partitions that it has to give up.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: Reconciliation = Reconciliation.STABLE
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)

    def is_reconciled(self, epoch: int) -> bool:
        """Whether it has the target of an epoch."""
        return self.state is Reconciliation.STABLE and self.epoch == epoch

    def described(self, request: ConsumerHeartbeat) -> "ConsumerMember":
        """Return the member with the fields that a heartbeat has."""
        timeout_ms = request.rebalance_timeout_ms
        return replace(
            self,
            instance_id=self.instance_id if request.instance_id is None else request.instance_id,
            rack_id=self.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=self.topics if request.topics is None else tuple(sorted(set(request.topics))),
            rebalance_timeout_ms=self.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            assignor=self.assignor if request.assignor is None else request.assignor,
        )


class SubscribedTopic(NamedTuple):
    """A topic of a group as its target assignment saw it."""

    topic_id: str
    partitions: int


_TopicOf = Callable[[str], SubscribedTopic | None]


@dataclass(slots=True)
class ConsumerGroupState:
    """The state of a group, or a draft of its next one.

    Attributes:
        group_id: The group's name.
        epoch: The epoch of the group.
        target_epoch: The epoch of the target assignment; below `epoch` it has to be made again.
        topics: The topics that members subscribe to, by name, as far as they exist.
        members: The members by id.
        targets: The target assignment by member id.
        records: The records of the changes since `draft`.
    """

    group_id: str
    epoch: int = 0
    target_epoch: int = 0
    topics: dict[str, SubscribedTopic] = field(default_factory=dict)
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    records: list[KeyValue] = field(default_factory=list)

    def draft(self) -> "ConsumerGroupState":
        """Return a copy to change."""
        return ConsumerGroupState(
            self.group_id,
            self.epoch,
            self.target_epoch,
            dict(self.topics),
            dict(self.members),
            dict(self.targets),
        )

    @property
    def name(self) -> str:
        """The state as Kafka prints it; source: ConsumerGroup.maybeUpdateGroupState."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        members = self.members.values()
        is_stable = all(each.is_reconciled(self.target_epoch) for each in members)
        return "Stable" if is_stable else "Reconciling"

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """Return the member of a static name."""
        members = self.members.values()
        return next((each for each in members if each.instance_id == instance_id), None)

    def assignor(self, default: str) -> str:
        """Return the assignor that most members ask for."""
        wishes = Counter(each.assignor for each in self.members.values() if each.assignor)
        wished = max(wishes, key=lambda each: wishes[each], default=default)
        return wished if wished in ASSIGNORS else default

    # ---- heartbeats --------------------------------------------------------------------------
    def heartbeat(
        self, request: ConsumerHeartbeat, topic_of: _TopicOf, default_assignor: str
    ) -> ConsumerMember:
        """Let a member join, or go on; return it with its current assignment.

        Args:
            request: Its heartbeat.
            topic_of: Returns the topic of a name; None where it does not exist.
            default_assignor: The assignor where members wish for none.

        Raises:
            RefusedHeartbeatError: The member is unknown or fenced.

        Source: GroupMetadataManager.consumerGroupHeartbeat.
        """
        known = self._joined(request) if request.member_epoch == 0 else self._known(request)
        member = known.described(request)
        is_new = member.member_id not in self.members
        if member != known or is_new:
            self._put(member)
            self._write(OffsetsKey.CONSUMER_GROUP_MEMBER, member.member_id, _member_value(member))
        has_changed = self._refresh_topics(topic_of)
        if has_changed or member.topics != known.topics or (is_new and not member.topics):
            self._raise_epoch()
        if self.epoch > self.target_epoch:
            self._assign(default_assignor)
        return self._reconcile(member, request.owned)

    def _known(self, request: ConsumerHeartbeat) -> ConsumerMember:
        member = self._named(request.member_id, request.instance_id)
        _check_epoch(member, request)
        return member

    def _named(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is None:
            member = self.members.get(member_id)
            if member is None:
                raise RefusedHeartbeatError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"Member {member_id} is not a member of group {self.group_id}.",
                )
            return member
        member = self.static_member(instance_id)
        if member is None:
            raise RefusedHeartbeatError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
            )
        if member.member_id != member_id:
            raise RefusedHeartbeatError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.member_id}.",
            )
        return member

    def _joined(self, request: ConsumerHeartbeat) -> ConsumerMember:
        """Return the member that joins: new, known already, or in place of a static one."""
        member_id, instance_id = request.member_id, request.instance_id
        if instance_id is None:
            member = self.members.get(member_id, ConsumerMember(member_id))
            _check_epoch(member, request)
            return member
        former = self.static_member(instance_id)
        if former is None:
            return ConsumerMember(member_id)
        if former.epoch != LEAVE_STATIC:
            raise RefusedHeartbeatError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by member {former.member_id}.",
            )
        return self._replace(former, member_id)

    def _replace(self, former: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give a static member that is back its former place under its new id."""
        member = replace(former, member_id=member_id, epoch=0, previous_epoch=0)
        target = self.targets.get(former.member_id, {})
        self._remove(former.member_id)
        self._put(member)
        self.targets[member_id] = target
        self._write(OffsetsKey.CONSUMER_GROUP_MEMBER, member_id, _member_value(member))
        self._write(OffsetsKey.CONSUMER_GROUP_TARGET_MEMBER, member_id, _target_value(target))
        self._write(OffsetsKey.CONSUMER_GROUP_CURRENT_MEMBER, member_id, _current_value(member))
        return member

    # ---- leaving -----------------------------------------------------------------------------
    def leave(self, request: ConsumerHeartbeat, topic_of: _TopicOf) -> None:
        """Remove a member; keep the place of a static one that will be back.

        Raises:
            RefusedHeartbeatError: The member is unknown or fenced.

        Source: GroupMetadataManager.consumerGroupLeave.
        """
        member = self._named(request.member_id, request.instance_id)
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC:
            self._put(replace(member, epoch=LEAVE_STATIC, revoking={}))
            value = _current_value(self.members[member.member_id])
            self._write(OffsetsKey.CONSUMER_GROUP_CURRENT_MEMBER, member.member_id, value)
        else:
            self.fence(member.member_id, topic_of)

    def fence(self, member_id: str, topic_of: _TopicOf) -> None:
        """Remove a member; others get its partitions with their next heartbeats."""
        if member_id in self.members:
            self._remove(member_id)
            self._refresh_topics(topic_of)
            self._raise_epoch()

    # ---- targets -----------------------------------------------------------------------------
    def _refresh_topics(self, topic_of: _TopicOf) -> bool:
        """Look the subscribed topics up; return whether they have changed."""
        names = sorted({name for each in self.members.values() for name in each.topics})
        found = {name: topic for name in names if (topic := topic_of(name)) is not None}
        if found == self.topics:
            return False
        self.topics = found
        self._write(OffsetsKey.CONSUMER_GROUP_PARTITIONS, None, _topics_value(found))
        return True

    def _raise_epoch(self) -> None:
        self.epoch += 1
        self._write(OffsetsKey.CONSUMER_GROUP, None, {"epoch": self.epoch, "metadataHash": 0})

    def _assign(self, default_assignor: str) -> None:
        """Make the target assignment of the current epoch; source: TargetAssignmentBuilder."""
        counts = {each.topic_id: each.partitions for each in self.topics.values()}
        assignees = {}
        for member_id, member in self.members.items():
            ids = frozenset(
                self.topics[name].topic_id for name in member.topics if name in self.topics
            )
            assigned = self.targets.get(member_id, {})
            assignees[member_id] = Assignee(member.instance_id, ids, assigned)
        made = ASSIGNORS[self.assignor(default_assignor)](assignees, counts)
        for member_id, target in made.items():
            if self.targets.get(member_id) != target:
                self.targets[member_id] = target
                kind = OffsetsKey.CONSUMER_GROUP_TARGET_MEMBER
                self._write(kind, member_id, _target_value(target))
        self.target_epoch = self.epoch
        kind = OffsetsKey.CONSUMER_GROUP_TARGET
        self._write(kind, None, {"assignmentEpoch": self.target_epoch})

    # ---- reconciliation ----------------------------------------------------------------------
    def _reconcile(self, member: ConsumerMember, owned: Assignment | None) -> ConsumerMember:
        """Bring a member nearer to its target.

        Args:
            member: The member.
            owned: The partitions that it says it has; None if it says nothing.

        Source: CurrentAssignmentBuilder.build.
        """
        match member.state:
            case Reconciliation.STABLE:
                if member.epoch == self.target_epoch:
                    return member
                updated = self._advanced(member, member.epoch, owned)
            case Reconciliation.UNREVOKED:
                if _has_any(owned, member.revoking):
                    return member
                updated = self._advanced(member, member.epoch + 1, owned)
            case Reconciliation.UNRELEASED:
                updated = self._advanced(member, member.epoch, owned)
            case _:
                if owned is None or owned:
                    raise RefusedHeartbeatError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The consumer group member is in an unknown state. It must abandon all "
                        "its partitions and rejoin.",
                    )
                updated = self._advanced(member, self.target_epoch, owned)
        if updated != member:
            self._put(updated)
            kind = OffsetsKey.CONSUMER_GROUP_CURRENT_MEMBER
            self._write(kind, member.member_id, _current_value(updated))
        return updated

    def _advanced(
        self, member: ConsumerMember, epoch: int, owned: Assignment | None
    ) -> ConsumerMember:
        """Return a member with what it may have now.

        Source: CurrentAssignmentBuilder.computeNextAssignment.
        """
        target = self.targets.get(member.member_id, {})
        kept, revoked, added = {}, {}, {}
        is_held = False
        in_use = self._partitions_in_use()
        for topic in target.keys() | member.assigned.keys():
            wanted = target.get(topic, frozenset())
            current = member.assigned.get(topic, frozenset())
            missing = wanted - current
            free = frozenset(each for each in missing if (topic, each) not in in_use)
            is_held = is_held or free != missing
            kept[topic], revoked[topic], added[topic] = wanted & current, current - wanted, free
        former = member.epoch
        if any(revoked.values()) and _has_any(owned, revoked):
            return replace(
                member,
                state=Reconciliation.UNREVOKED,
                epoch=epoch,
                previous_epoch=former,
                assigned=_without_empty(kept),
                revoking=_without_empty(revoked),
            )
        return replace(
            member,
            state=Reconciliation.UNRELEASED if is_held else Reconciliation.STABLE,
            epoch=self.target_epoch,
            previous_epoch=former,
            assigned=_without_empty({each: kept[each] | added[each] for each in kept}),
            revoking={},
        )

    def _partitions_in_use(self) -> set[tuple[str, int]]:
        return {
            (topic, number)
            for member in self.members.values()
            for assignment in (member.assigned, member.revoking)
            for topic, numbers in assignment.items()
            for number in numbers
        }

    # ---- records -----------------------------------------------------------------------------
    def _put(self, member: ConsumerMember) -> None:
        self.members[member.member_id] = member

    def _remove(self, member_id: str) -> None:
        del self.members[member_id]
        self.targets.pop(member_id, None)
        for kind in (
            OffsetsKey.CONSUMER_GROUP_CURRENT_MEMBER,
            OffsetsKey.CONSUMER_GROUP_TARGET_MEMBER,
            OffsetsKey.CONSUMER_GROUP_MEMBER,
        ):
            self._write(kind, member_id, None)

    def _write(
        self, kind: OffsetsKey, member_id: str | None, value: Mapping[str, Any] | None
    ) -> None:
        key = {"groupId": self.group_id}
        if member_id is not None:
            key["memberId"] = member_id
        self.records.append(encode_internal(Decoder.OFFSETS, kind, key, value))

    def tombstones(self) -> list[KeyValue]:
        """Return the records that remove the group from the log."""
        draft = self.draft()
        for member_id in self.members:
            draft._remove(member_id)
        for kind in (
            OffsetsKey.CONSUMER_GROUP_TARGET,
            OffsetsKey.CONSUMER_GROUP_PARTITIONS,
            OffsetsKey.CONSUMER_GROUP,
        ):
            draft._write(kind, None, None)
        return draft.records

    def restore(self, record: InternalRecord) -> None:
        """Take in a record that keeps a part of the group, in any order of parts."""
        value = record.value or {}
        member_id = record.key.get("memberId", "")
        match record.kind:
            case OffsetsKey.CONSUMER_GROUP:
                self.epoch = value["epoch"]
            case OffsetsKey.CONSUMER_GROUP_TARGET:
                self.target_epoch = value["assignmentEpoch"]
            case OffsetsKey.CONSUMER_GROUP_PARTITIONS:
                self.topics = {
                    each["topicName"]: SubscribedTopic(each["topicId"], each["numPartitions"])
                    for each in value["topics"]
                }
            case OffsetsKey.CONSUMER_GROUP_TARGET_MEMBER:
                self.targets[member_id] = _assignment(value["topicPartitions"])
            case OffsetsKey.CONSUMER_GROUP_MEMBER:
                member = self.members.get(member_id, ConsumerMember(member_id))
                self._put(_with_member(member, value))
            case OffsetsKey.CONSUMER_GROUP_CURRENT_MEMBER:
                member = self.members.get(member_id, ConsumerMember(member_id))
                self._put(_with_current(member, value))
            case _:  # a pattern and its topics: members with patterns are not served
                pass


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    """Refuse an epoch that is neither the member's nor, after a lost answer, the one before.

    Source: GroupMetadataManager.throwIfConsumerGroupMemberEpochIsInvalid.
    """
    got = request.member_epoch
    if got == member.epoch:
        return
    has_missed_answer = got == member.previous_epoch and _is_part(request.owned, member.assigned)
    if got > member.epoch or not has_missed_answer:
        kind = "greater" if got > member.epoch else "smaller"
        raise RefusedHeartbeatError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {kind} member epoch ({got}) than the one known by "
            f"the group coordinator ({member.epoch}). The member must abandon all its partitions "
            "and rejoin.",
        )


def _is_part(owned: Assignment | None, assigned: Assignment) -> bool:
    if owned is None:
        return False
    return all(owned[topic] <= assigned.get(topic, frozenset()) for topic in owned)


def _has_any(owned: Assignment | None, revoked: Assignment) -> bool:
    """Whether a member still has partitions that it has to give up; assumed if it does not say."""
    if owned is None:
        return True
    return any(owned[topic] & revoked.get(topic, frozenset()) for topic in owned)


def _without_empty(assignment: Assignment) -> Assignment:
    return {topic: numbers for topic, numbers in assignment.items() if numbers}


# ---- values of records --------------------------------------------------------------------------
def _partitions(assignment: Assignment) -> list[dict[str, Any]]:
    return [
        {"topicId": topic, "partitions": sorted(numbers)} for topic, numbers in assignment.items()
    ]


def _assignment(topics: Sequence[Mapping[str, Any]]) -> Assignment:
    return {each["topicId"]: frozenset(each["partitions"]) for each in topics}


def _target_value(target: Assignment) -> dict[str, Any]:
    return {"topicPartitions": _partitions(target)}


def _topics_value(topics: Mapping[str, SubscribedTopic]) -> dict[str, Any]:
    return {
        "topics": [
            {
                "topicId": topic.topic_id,
                "topicName": name,
                "numPartitions": topic.partitions,
                "partitionMetadata": [],
            }
            for name, topic in topics.items()
        ]
    }


def _member_value(member: ConsumerMember) -> dict[str, Any]:
    return {
        "instanceId": member.instance_id,
        "rackId": member.rack_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "subscribedTopicNames": list(member.topics),
        "subscribedTopicRegex": member.regex,
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "serverAssignor": member.assignor,
        "classicMemberMetadata": None,
    }


def _with_member(member: ConsumerMember, value: Mapping[str, Any]) -> ConsumerMember:
    return replace(
        member,
        instance_id=value["instanceId"],
        rack_id=value["rackId"],
        client_id=value["clientId"],
        client_host=value["clientHost"],
        topics=tuple(value["subscribedTopicNames"]),
        regex=value["subscribedTopicRegex"],
        rebalance_timeout_ms=value["rebalanceTimeoutMs"],
        assignor=value["serverAssignor"],
    )


def _current_value(member: ConsumerMember) -> dict[str, Any]:
    return {
        "memberEpoch": member.epoch,
        "previousMemberEpoch": member.previous_epoch,
        "state": int(member.state),
        "assignedPartitions": _partitions(member.assigned),
        "partitionsPendingRevocation": _partitions(member.revoking),
    }


def _with_current(member: ConsumerMember, value: Mapping[str, Any]) -> ConsumerMember:
    states = {int(each): each for each in Reconciliation}
    return replace(
        member,
        epoch=value["memberEpoch"],
        previous_epoch=value["previousMemberEpoch"],
        state=states.get(value["state"], Reconciliation.UNKNOWN),
        assigned=_assignment(value["assignedPartitions"]),
        revoking=_assignment(value["partitionsPendingRevocation"]),
    )
