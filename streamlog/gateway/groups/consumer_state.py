"""The state of a consumer group (KIP-848) and its changes; without I/O, clock or timers.

A group has an epoch, which rises with each change of its members, of their subscriptions or of
their topics. For each epoch an assignor makes the target: the partitions that each member shall
have. Members come to their target one heartbeat after another (`reconciliation`).

A pattern that members subscribe to is resolved outside; until then it matches nothing.

Each change collects the records that keep it; a change that is refused leaves a draft to discard.

Source: the consumer part of GroupMetadataManager, ConsumerGroup.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from streamlog.gateway.coordinator_log import KeyValue
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.assignors import ASSIGNORS, Assignee, Assignment
from streamlog.gateway.groups.consumer_member import (
    LEAVE_STATIC,
    ClassicSupport,
    ConsumerHeartbeat,
    ConsumerMember,
    RefusedHeartbeatError,
    assignment_of,
    current_value,
    member_value,
    target_value,
    with_current,
    with_member,
)
from streamlog.gateway.groups.group import SubscribedTopic, TopicOf
from streamlog.gateway.groups.members import JoinRequest
from streamlog.gateway.groups.reconciliation import Target, reconciled
from streamlog.gateway.groups.topic_hash import group_hash
from streamlog.gateway.patterns import InvalidPatternError, matching
from streamlog.protocol.consumer_protocol import ConsumerSubscription
from streamlog.protocol.internal_topics import Decoder, InternalRecord, OffsetsKey, encode_internal

__all__ = ["ConsumerGroupState", "Resolved"]


class Resolved(NamedTuple):
    """The topics that a pattern matched.

    Attributes:
        topics: Their names.
        at_ms: When.
    """

    topics: frozenset[str]
    at_ms: int


@dataclass(slots=True)
class ConsumerGroupState:
    """The state of a group, or a draft of its next one.

    Attributes:
        group_id: The group's name.
        epoch: The epoch of the group.
        target_epoch: The epoch of the target assignment; below `epoch` it has to be made again.
        topics_hash: The hash of `topics` in the last record of the epoch.
        topics: The topics that members subscribe to, by name, as far as they exist; looked up with
            each change.
        members: The members by id.
        targets: The target assignment by member id.
        patterns: What the patterns of members have matched.
        has_topics_record: Whether the log has its topics in a record, as brokers before 4.1 wrote.
        records: The records of the changes since `draft`.
    """

    group_id: str
    epoch: int = 0
    target_epoch: int = 0
    topics_hash: int = 0
    topics: dict[str, SubscribedTopic] = field(default_factory=dict, compare=False)
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    patterns: dict[str, Resolved] = field(default_factory=dict)
    has_topics_record: bool = False
    records: list[KeyValue] = field(default_factory=list)

    def draft(self) -> "ConsumerGroupState":
        """Return a copy to change."""
        return replace(
            self,
            topics=dict(self.topics),
            members=dict(self.members),
            targets=dict(self.targets),
            patterns=dict(self.patterns),
            records=[],
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

    def subscribes(self, pattern: str) -> int:
        """Return how many members subscribe to a pattern."""
        return sum(each.regex == pattern for each in self.members.values())

    def subscription(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member subscribes to."""
        found = self.patterns.get(member.regex)
        return frozenset(member.topics) | (frozenset() if found is None else found.topics)

    def is_classic_without(self, leaving: Collection[str]) -> bool:
        """Whether all members but these speak the classic protocol."""
        members = self.members.values()
        return all(each.classic is not None for each in members if each.member_id not in leaving)

    # ---- joining and going on ----------------------------------------------------------------
    def heartbeat(
        self, request: ConsumerHeartbeat, topic_of: TopicOf, default_assignor: str
    ) -> ConsumerMember:
        """Let a member join, or go on; return it with its current assignment.

        Args:
            request: Its heartbeat.
            topic_of: Returns the topic of a name; None where it does not exist.
            default_assignor: The assignor where members wish for none.

        Raises:
            RefusedHeartbeatError: The member is unknown or fenced, or its pattern is invalid.

        Source: GroupMetadataManager.consumerGroupHeartbeat.
        """
        known = self._joined(request) if request.member_epoch == 0 else self._known(request)
        member = known.described(request)
        has_changed = self._update(known, member, topic_of)
        if self.epoch > self.target_epoch:
            self._assign(default_assignor)
        return self.reconcile(member.member_id, request.owned, has_changed=has_changed)

    def join_classic(
        self,
        member_id: str,
        request: JoinRequest,
        subscription: ConsumerSubscription,
        topic_of: TopicOf,
    ) -> bool:
        """Let a member of the classic protocol join, or join again.

        Args:
            member_id: Its id; one that is not known joins.
            request: Its request.
            subscription: What that says.
            topic_of: Returns the topic of a name; None where it does not exist.

        Returns:
            Whether what it subscribes to has changed.

        Raises:
            RefusedHeartbeatError: It is fenced, or its static name is unknown.

        Source: GroupMetadataManager.classicGroupJoinToConsumerGroup.
        """
        instance_id = request.instance_id
        if instance_id is None:
            known = self.members.get(member_id, ConsumerMember(member_id))
        elif request.member_id:
            known = self.named(member_id, instance_id)
        else:
            former = self.static_member(instance_id)
            known = (
                ConsumerMember(member_id) if former is None else self._replace(former, member_id)
            )
        member = replace(
            known,
            instance_id=known.instance_id if instance_id is None else instance_id,
            rack_id=known.rack_id if subscription.rack_id is None else subscription.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=subscription.topics,
            regex="",
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            classic=ClassicSupport(request.session_timeout_ms, request.protocols),
        )
        return self._update(known, member, topic_of)

    def advance(
        self, member_id: str, owned: Assignment, default_assignor: str, *, has_changed: bool
    ) -> ConsumerMember:
        """Make the target if it is due, and bring a member that has joined nearer to it."""
        if self.epoch > self.target_epoch:
            self._assign(default_assignor)
        return self.reconcile(member_id, owned, has_changed=has_changed)

    def _update(self, known: ConsumerMember, member: ConsumerMember, topic_of: TopicOf) -> bool:
        """Take in what a member says; return whether it subscribes to anything else now."""
        had_pattern = self.subscribes(member.regex) if member.regex else 0
        if member != known or member.member_id not in self.members:
            self._put(member)
            self._write(OffsetsKey.CONSUMER_GROUP_MEMBER, member.member_id, member_value(member))
        has_new_names = member.topics != known.topics
        has_new_pattern = member.regex != known.regex
        is_resolved = False
        if has_new_pattern:
            self._forget_patterns()
            if member.regex and not had_pattern:
                _check_pattern(member.regex)
            # Otherwise the epoch rises once the pattern is resolved.
            is_resolved = not member.regex or member.regex in self.patterns
        is_due = self.epoch == 0 or has_new_names or is_resolved
        if self._refresh_topics(topic_of) or is_due:
            self._raise_epoch()
        return has_new_names or has_new_pattern

    def _known(self, request: ConsumerHeartbeat) -> ConsumerMember:
        member = self.named(request.member_id, request.instance_id)
        _check_epoch(member, request)
        return member

    def named(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the member of an id and a static name.

        Raises:
            RefusedHeartbeatError: There is none, or another one has the static name.
        """
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
            return self.members.get(member_id, ConsumerMember(member_id))
        former = self.static_member(instance_id)
        if former is None:
            return self.members.get(member_id, ConsumerMember(member_id))
        if former.classic is None and former.epoch != LEAVE_STATIC:
            raise RefusedHeartbeatError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {former.member_id} member.",
            )
        return self._replace(former, member_id)

    def _replace(self, former: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give a static member that is back its former place under its new id."""
        member = replace(former, member_id=member_id, epoch=0, previous_epoch=0)
        target = self.targets.get(former.member_id, {})
        self._remove(former.member_id)
        self._put(member)
        self.targets[member_id] = target
        self._write(OffsetsKey.CONSUMER_GROUP_MEMBER, member_id, member_value(member))
        self._write(OffsetsKey.CONSUMER_GROUP_TARGET_MEMBER, member_id, target_value(target))
        self._write(OffsetsKey.CONSUMER_GROUP_CURRENT_MEMBER, member_id, current_value(member))
        return member

    # ---- leaving -----------------------------------------------------------------------------
    def leave_for_a_while(self, member: ConsumerMember) -> None:
        """Keep the place of a static member that will be back."""
        away = replace(member, epoch=LEAVE_STATIC, revoking={})
        self._put(away)
        kind = OffsetsKey.CONSUMER_GROUP_CURRENT_MEMBER
        self._write(kind, member.member_id, current_value(away))

    def fence(self, leaving: Iterable[str], topic_of: TopicOf) -> None:
        """Remove members; others get their partitions with their next heartbeats.

        Source: GroupMetadataManager.consumerGroupFenceMembers.
        """
        present = [each for each in leaving if each in self.members]
        for member_id in present:
            self._remove(member_id)
        if present:
            self._forget_patterns()
            self._refresh_topics(topic_of)
            self._raise_epoch()

    # ---- topics ------------------------------------------------------------------------------
    def look_up_topics(self, topic_of: TopicOf) -> None:
        """Look the subscribed topics up."""
        names = {name for each in self.members.values() for name in self.subscription(each)}
        found = ((name, topic_of(name)) for name in sorted(names))
        self.topics = {name: topic for name, topic in found if topic is not None}

    def _refresh_topics(self, topic_of: TopicOf) -> bool:
        """Look the subscribed topics up; return whether they have changed."""
        self.look_up_topics(topic_of)
        former, self.topics_hash = self.topics_hash, group_hash(self.topics)
        return self.topics_hash != former

    def resolve(self, found: Mapping[str, Resolved], topic_of: TopicOf) -> None:
        """Take in what patterns match now.

        Source: GroupMetadataManager.handleRegularExpressionsResult.
        """
        has_changed = False
        for pattern, resolved in found.items():
            if not self.subscribes(pattern):
                continue
            former = self.patterns.get(pattern, Resolved(frozenset(), 0))
            has_changed = has_changed or former.topics != resolved.topics
            self.patterns[pattern] = resolved
            value = {
                "topics": sorted(resolved.topics),
                # To a broker that goes on with the group: look again, topics may be newer.
                "version": 0,
                "timestamp": resolved.at_ms,
            }
            self._write_pattern(pattern, value)
        if self._refresh_topics(topic_of) or has_changed:
            self._raise_epoch()

    def _forget_patterns(self) -> None:
        """Drop what patterns matched that no member subscribes to any more."""
        for pattern in [each for each in self.patterns if not self.subscribes(each)]:
            del self.patterns[pattern]
            self._write_pattern(pattern, None)

    # ---- targets -----------------------------------------------------------------------------
    def _raise_epoch(self) -> None:
        self.epoch += 1
        value = {"epoch": self.epoch, "metadataHash": self.topics_hash}
        self._write(OffsetsKey.CONSUMER_GROUP, None, value)
        if self.has_topics_record:
            self._write(OffsetsKey.CONSUMER_GROUP_PARTITIONS, None, None)
            self.has_topics_record = False

    def _assign(self, default_assignor: str) -> None:
        """Make the target assignment of the current epoch; source: TargetAssignmentBuilder."""
        counts = {each.topic_id: each.partitions for each in self.topics.values()}
        assignees = {
            member_id: Assignee(
                member.instance_id, self._subscribed_ids(member), self.targets.get(member_id, {})
            )
            for member_id, member in self.members.items()
        }
        made = ASSIGNORS[self.assignor(default_assignor)](assignees, counts)
        for member_id, target in made.items():
            if self.targets.get(member_id) != target:
                self.targets[member_id] = target
                kind = OffsetsKey.CONSUMER_GROUP_TARGET_MEMBER
                self._write(kind, member_id, target_value(target))
        self.target_epoch = self.epoch
        kind = OffsetsKey.CONSUMER_GROUP_TARGET
        self._write(kind, None, {"assignmentEpoch": self.target_epoch})

    def _subscribed_ids(self, member: ConsumerMember) -> frozenset[str]:
        names = self.subscription(member)
        return frozenset(self.topics[name].topic_id for name in names if name in self.topics)

    def target_of(self, member: ConsumerMember) -> Target:
        """Return what a member is to come to."""
        return Target(
            self.target_epoch,
            self.targets.get(member.member_id, {}),
            self._subscribed_ids(member),
            {
                (topic, number)
                for each in self.members.values()
                for assignment in (each.assigned, each.revoking)
                for topic, numbers in assignment.items()
                for number in numbers
            },
        )

    def reconcile(
        self, member_id: str, owned: Assignment | None, *, has_changed: bool
    ) -> ConsumerMember:
        """Bring a member nearer to its target, and return it."""
        member = self.members[member_id]
        if not has_changed and member.is_reconciled(self.target_epoch):
            return member
        updated = reconciled(member, self.target_of(member), owned, has_changed=has_changed)
        if updated != member:
            self._put(updated)
            kind = OffsetsKey.CONSUMER_GROUP_CURRENT_MEMBER
            self._write(kind, member_id, current_value(updated))
        return updated

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

    def _write_pattern(self, pattern: str, value: Mapping[str, Any] | None) -> None:
        key = {"groupId": self.group_id, "regularExpression": pattern}
        kind = OffsetsKey.CONSUMER_GROUP_REGEX
        self.records.append(encode_internal(Decoder.OFFSETS, kind, key, value))

    def creation(self) -> list[KeyValue]:
        """Return the records that keep all of it."""
        draft = self.draft()
        value = {"epoch": self.epoch, "metadataHash": self.topics_hash}
        for member_id, member in self.members.items():
            kind = OffsetsKey.CONSUMER_GROUP_MEMBER
            draft._write(kind, member_id, member_value(member))
        draft._write(OffsetsKey.CONSUMER_GROUP, None, value)
        for member_id, target in self.targets.items():
            kind = OffsetsKey.CONSUMER_GROUP_TARGET_MEMBER
            draft._write(kind, member_id, target_value(target))
        kind = OffsetsKey.CONSUMER_GROUP_TARGET
        draft._write(kind, None, {"assignmentEpoch": self.target_epoch})
        for member_id, member in self.members.items():
            kind = OffsetsKey.CONSUMER_GROUP_CURRENT_MEMBER
            draft._write(kind, member_id, current_value(member))
        return draft.records

    def tombstones(self) -> list[KeyValue]:
        """Return the records that remove the group from the log."""
        draft = self.draft()
        for member_id in self.members:
            draft._remove(member_id)
        for pattern in self.patterns:
            draft._write_pattern(pattern, None)
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
                self.epoch, self.topics_hash = value["epoch"], value["metadataHash"]
            case OffsetsKey.CONSUMER_GROUP_TARGET:
                self.target_epoch = value["assignmentEpoch"]
            case OffsetsKey.CONSUMER_GROUP_PARTITIONS:
                self.has_topics_record = True
            case OffsetsKey.CONSUMER_GROUP_TARGET_MEMBER:
                self.targets[member_id] = assignment_of(value["topicPartitions"])
            case OffsetsKey.CONSUMER_GROUP_MEMBER:
                member = self.members.get(member_id, ConsumerMember(member_id))
                self._put(with_member(member, value))
            case OffsetsKey.CONSUMER_GROUP_CURRENT_MEMBER:
                member = self.members.get(member_id, ConsumerMember(member_id))
                self._put(with_current(member, value))
            case OffsetsKey.CONSUMER_GROUP_REGEX:
                topics, at_ms = frozenset(value["topics"]), value["timestamp"]
                self.patterns[record.key["regularExpression"]] = Resolved(topics, at_ms)


def _check_pattern(pattern: str) -> None:
    try:
        matching(pattern)
    except InvalidPatternError as error:
        raise RefusedHeartbeatError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from None


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
