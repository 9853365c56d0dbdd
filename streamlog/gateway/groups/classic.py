"""A classic group: members join, their leader assigns, all of them sync; without I/O.

    Empty                          PreparingRebalance    a member joins
    PreparingRebalance             CompletingRebalance   all have joined, or the time is up
    PreparingRebalance             Empty                 the last member has left
    CompletingRebalance            Stable                the leader's assignment is in the log
    CompletingRebalance, Stable    PreparingRebalance    a member joins, leaves, fails or changes
    any                            Dead                  the group is removed

Answers may come later: each request has a `reply`. What must be durable goes to `persist`, which
calls back with the outcome.

Source: org.apache.kafka.coordinator.group.classic.ClassicGroup and the classic part of
GroupMetadataManager.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from streamlog.gateway.coordinator_log import KeyValue
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.classic_records import (
    group_record,
    group_tombstone,
    members_of,
    topics_of,
)
from streamlog.gateway.groups.group import CommittingMember, GroupType, MemberProtocol
from streamlog.gateway.groups.members import (
    ClassicMember,
    GroupState,
    GroupWorld,
    JoinRequest,
    LeavingMember,
    Reply,
    SyncRequest,
    join_error,
    selected_protocol,
    sync_error,
)
from streamlog.protocol.consumer_protocol import CONSUMER_PROTOCOL

__all__ = ["ClassicGroup"]

_NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000  # classicGroupNewMemberJoinTimeoutMs


_CAN_REBALANCE: Final = (GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY)


class ClassicGroup:
    """A group of the classic protocol.

    Args:
        group_id: Its name.
        world: What it needs from outside.

    Attributes:
        state: Its state.
        generation: How many rebalances it has completed.
        protocol: The selected protocol; None before the first one.
        leader: The member that assigns; None without members.
        members: Its members by id.
        needs_rebalance: Whether `start` begins with a rebalance.
    """

    type: Final = GroupType.CLASSIC

    def __init__(self, group_id: str, world: GroupWorld) -> None:
        self._group_id, self._world = group_id, world
        self.state = GroupState.EMPTY
        self._previous = GroupState.DEAD
        self._since_ms: int | None = world.clock.now_ms()
        self.generation = 0
        self._protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self._static: dict[str, str] = {}
        self._pending_joins: set[str] = set()
        self._pending_syncs: set[str] = set()
        self._has_new_member = False
        self._subscribed: frozenset[str] | None = None
        self.needs_rebalance = False

    # ---- what the coordinator asks -----------------------------------------------------------
    @property
    def group_id(self) -> str:
        """Its name."""
        return self._group_id

    @property
    def state_name(self) -> str:
        """Its state as Kafka prints it."""
        return self.state.value

    @property
    def protocol_type(self) -> str:
        """What its members are; empty for a group that only has offsets."""
        return self._protocol_type or ""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is GroupState.EMPTY

    def check_commit(self, identity: CommittingMember) -> ErrorCode:
        """Return why these offsets may not be committed, or NONE.

        Source: ClassicGroup.validateOffsetCommit.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if identity.generation < 0 and self.is_empty:
            return ErrorCode.NONE
        if identity.generation >= 0 or identity.member_id or identity.instance_id is not None:
            code = self._check_member(identity.member_id, identity.instance_id)
            if code is not ErrorCode.NONE:
                return code
            if identity.generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not identity.is_transactional and not self.is_empty:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not identity.is_transactional and self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return why offsets may not be fetched, or NONE: the classic protocol has no epochs."""
        del member_id, member_epoch
        return ErrorCode.NONE

    def check_offset_deletion(self) -> ErrorCode:
        """Return why offsets may not be deleted, or NONE."""
        if self.is_empty or self._protocol_type == CONSUMER_PROTOCOL:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def committed(self, member_id: str) -> None:
        """Note a sign of life: this member has committed offsets."""
        member = self.members.get(member_id)
        if member and self.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._expect_heartbeat(member)

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads a topic; assumed of consumers whose topics are unknown."""
        if self._subscribed is None:
            return self._protocol_type == CONSUMER_PROTOCOL
        return topic in self._subscribed

    def offsets_age_from(self, commit_timestamp_ms: int) -> int | None:
        """Return the time from which a commit's retention counts; None while it does not count.

        Source: ClassicGroup.offsetExpirationCondition.
        """
        if self._protocol_type is None:
            return commit_timestamp_ms
        if self.is_empty:
            return commit_timestamp_ms if self._since_ms is None else self._since_ms
        knows_topics = self._protocol_type == CONSUMER_PROTOCOL and self._subscribed is not None
        return commit_timestamp_ms if knows_topics and self.state is GroupState.STABLE else None

    def described(self) -> dict[str, Any]:
        """Return the fields that DescribeGroups shows of it."""
        is_stable = self.state is GroupState.STABLE
        return {
            "groupId": self._group_id,
            "groupState": self.state.value,
            "protocolType": self.protocol_type,
            "protocolData": (self.protocol or "") if is_stable else "",
            "members": [
                {
                    "memberId": member.member_id,
                    "groupInstanceId": member.instance_id,
                    "clientId": member.client_id,
                    "clientHost": member.client_host,
                    "memberMetadata": member.metadata(self.protocol) if is_stable else b"",
                    "memberAssignment": member.assignment,
                }
                for member in self.members.values()
            ],
        }

    def stop(self) -> None:
        """Answer requests that wait and end timers: the gateway stops, or the group is gone."""
        self._move(GroupState.DEAD)
        self._world.timers.cancel((self._group_id, "join"))
        self._world.timers.cancel((self._group_id, "sync"))
        for member_id in [*self.members, *self._pending_joins]:
            self._world.timers.cancel((self._group_id, "heartbeat", member_id))
        for member in self.members.values():
            member.answer_join(join_error(ErrorCode.NOT_COORDINATOR, member.member_id))
            member.answer_sync(sync_error(ErrorCode.NOT_COORDINATOR))

    # ---- records -----------------------------------------------------------------------------
    def record(self, assignments: Mapping[str, bytes]) -> KeyValue:
        """Return the record that keeps it.

        Source: GroupCoordinatorRecordHelpers.newGroupMetadataRecord.
        """
        fields = {
            "protocolType": self.protocol_type,
            "generation": self.generation,
            "protocol": self.protocol,
            "leader": self.leader,
            "currentStateTimestamp": -1 if self._since_ms is None else self._since_ms,
        }
        return group_record(self._group_id, fields, self.members.values(), assignments)

    def tombstones(self) -> list[KeyValue]:
        """Return the records that remove it from the log."""
        return [group_tombstone(self._group_id)]

    @classmethod
    def of_record(
        cls, group_id: str, value: Mapping[str, Any], world: GroupWorld
    ) -> "ClassicGroup":
        """Return the group that a record keeps; the sessions of its members begin again."""
        group = cls(group_id, world)
        group.generation = value["generation"]
        group._protocol_type = value["protocolType"] or None
        group.protocol, group.leader = value["protocol"], value["leader"]
        since_ms = value.get("currentStateTimestamp", -1)
        group._since_ms = None if since_ms == -1 else since_ms
        for member in members_of(value):
            group._enter(member)
            group._expect_heartbeat(member)
        if group.members:
            group.state = GroupState.STABLE
        group._read_subscriptions()
        if len(group.members) > world.settings().group_max_size:
            group._prepare_rebalance()
        return group

    @classmethod
    def of_members(
        cls, group_id: str, members: Sequence[ClassicMember], generation: int, world: GroupWorld
    ) -> "ClassicGroup":
        """Return the group of consumers that have what they are assigned; call `start` then.

        Source: ClassicGroup.fromConsumerGroup.
        """
        group = cls(group_id, world)
        group.generation, group._protocol_type = generation, CONSUMER_PROTOCOL
        group.protocol, group.leader = selected_protocol(members), members[0].member_id
        for member in members:
            group._enter(member)
        group._move(GroupState.STABLE)
        group._read_subscriptions()
        return group

    def start(self) -> None:
        """Begin the sessions of the members, and a rebalance if one is needed."""
        for member in self.members.values():
            self._expect_heartbeat(member)
        if self.needs_rebalance:
            self._prepare_rebalance()

    def _enter(self, member: ClassicMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id

    def _read_subscriptions(self) -> None:
        self._subscribed = None
        if self._protocol_type == CONSUMER_PROTOCOL:
            self._subscribed = topics_of(self.members.values(), self.protocol)

    def give_way(self) -> None:
        """Let members that wait join again: the group is about to become a consumer group."""
        for member in self.members.values():
            member.answer_join(join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            member.answer_sync(sync_error(ErrorCode.REBALANCE_IN_PROGRESS))

    # ---- JoinGroup ---------------------------------------------------------------------------
    def join(self, request: JoinRequest, reply: Reply) -> None:
        """Let a member join; see JoinGroup. The answer may wait for the other members.

        Source: GroupMetadataManager.classicGroupJoinToClassicGroup.
        """
        member_id = request.member_id
        if self.state is GroupState.DEAD:
            reply(join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id))
        elif not self._has_room(member_id):
            self._remove(member_id)
            reply(join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not self._supports(request):
            reply(join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif not member_id:
            self._join_new(request, reply)
        elif member_id in self._pending_joins and request.instance_id is None:
            self._add(request, member_id, reply)
        else:
            code = self._check_member(member_id, request.instance_id)
            if code is ErrorCode.NONE:
                self._join_again(request, self.members[member_id], reply)
            else:
                reply(join_error(code, member_id))

    def _has_room(self, member_id: str) -> bool:
        """Whether a member may join under `group.max.size`; source: acceptJoiningMember."""
        limit = self._world.settings().group_max_size
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            # The number of members may be above a limit that was lowered: the last ones to rejoin
            # have to go.
            return (member is not None and member.join_reply is not None) or self._joined < limit
        return self.is_empty or member is not None or len(self.members) < limit

    def _supports(self, request: JoinRequest) -> bool:
        names = {each.name for each in request.protocols}
        if self.is_empty:
            return bool(request.protocol_type and names)
        return request.protocol_type == self._protocol_type and any(
            all(any(each.name == name for each in one.protocols) for one in self.members.values())
            for name in names
        )

    def _join_new(self, request: JoinRequest, reply: Reply) -> None:
        prefix = request.client_id if request.instance_id is None else request.instance_id
        member_id = f"{prefix}-{uuid.UUID(int=self._world.random.getrandbits(128), version=4)}"
        known = self._static.get(request.instance_id) if request.instance_id is not None else None
        if known is not None:
            self._replace_static(request, known, member_id, reply)
        elif request.instance_id is None and request.needs_member_id:
            self._pending_joins.add(member_id)
            self._world.timers.schedule(
                (self._group_id, "heartbeat", member_id),
                request.session_timeout_ms,
                lambda: self._expire(member_id),
            )
            reply(join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(request, member_id, reply)

    def _add(self, request: JoinRequest, member_id: str, reply: Reply) -> None:
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            is_new=True,
            join_reply=reply,
        )
        if self.state is GroupState.PREPARING_REBALANCE and self._previous is GroupState.EMPTY:
            self._has_new_member = True
        if not self.members:
            self._protocol_type = request.protocol_type
        if member.instance_id is not None:
            self._static[member.instance_id] = member_id
        self.members[member_id] = member
        self._pending_joins.discard(member_id)
        if self.leader is None:
            self.leader = member_id
        # A new member does not know its id and sends no heartbeats; its request may be given up.
        self._expect_heartbeat(member, _NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance()

    def _join_again(self, request: JoinRequest, member: ClassicMember, reply: Reply) -> None:
        is_same = member.protocols == request.protocols
        if self.state is GroupState.STABLE:
            # The leader joins again where something changed that no metadata shows.
            answers_now = is_same and self.leader != member.member_id
        else:
            answers_now = is_same and self.state is GroupState.COMPLETING_REBALANCE
        if self.is_empty:
            reply(join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        elif answers_now:  # its former answer was lost, or nothing changed
            reply(self._joined_answer(member))
        else:
            self._update(member, request, reply)
            self._rebalance()

    def _update(self, member: ClassicMember, request: JoinRequest, reply: Reply) -> None:
        if member.join_reply is not None:  # of a connection that was given up
            member.join_reply(join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.join_reply = reply

    def _joined_answer(self, member: ClassicMember) -> dict[str, Any]:
        is_leader = self.leader == member.member_id
        return {
            "errorCode": int(ErrorCode.NONE),
            "generationId": self.generation,
            "protocolType": self._protocol_type,
            "protocolName": self.protocol,
            "leader": self.leader or "",
            "skipAssignment": False,
            "memberId": member.member_id,
            "members": self._listed_members() if is_leader else [],
        }

    def _listed_members(self) -> list[dict[str, Any]]:
        return [
            {
                "memberId": each.member_id,
                "groupInstanceId": each.instance_id,
                "metadata": each.metadata(self.protocol),
            }
            for each in self.members.values()
        ]

    # ---- static members ----------------------------------------------------------------------
    def _replace_static(self, request: JoinRequest, old_id: str, new_id: str, reply: Reply) -> None:
        """Give a static member that restarted a new id; its old one is fenced.

        Source: GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin.
        """
        former_leader, old = self.leader, self.members[old_id]
        former = (old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms)
        old.answer_join(join_error(ErrorCode.FENCED_INSTANCE_ID, old_id))
        old.answer_sync(sync_error(ErrorCode.FENCED_INSTANCE_ID))
        member = self._rename(old_id, new_id)
        self._update(member, request, reply)
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._prepare_rebalance()  # the leader may have assigned to the old id already
        elif self.state is not GroupState.STABLE:
            self._complete_join_if_all_joined()
        elif selected_protocol(list(self.members.values())) != self.protocol:
            self._rebalance()
        else:
            assignments = {each.member_id: each.assignment for each in self.members.values()}
            self._world.persist(
                self._group_id,
                [self.record(assignments)],
                lambda code: self._static_replaced(
                    code, request, member, old_id, former_leader, former
                ),
            )

    def _rename(self, old_id: str, new_id: str) -> ClassicMember:
        """Give a member another id; it keeps its place."""
        member = self.members[old_id]
        self.members = {
            (new_id if key == old_id else key): each for key, each in self.members.items()
        }
        member.member_id = new_id
        self._world.timers.cancel((self._group_id, "heartbeat", old_id))
        if member.instance_id is not None:
            self._static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        self._expect_heartbeat(member)
        return member

    def _static_replaced(
        self,
        code: ErrorCode,
        request: JoinRequest,
        member: ClassicMember,
        old_id: str,
        former_leader: str | None,
        former: tuple[tuple[MemberProtocol, ...], int, int],
    ) -> None:
        """Answer a static member once its new id stands in the log, or take the id back."""
        if self.members.get(member.member_id) is not member:
            return  # replaced or removed meanwhile, and answered then
        answer = self._joined_answer(member)
        if code is ErrorCode.NONE:
            if request.can_skip_assignment:
                answer["skipAssignment"] = self.leader == member.member_id
            else:  # named as leader by its old id, it does not assign
                answer |= {"leader": former_leader or "", "members": []}
            member.answer_join(answer)
            return
        failed = {"errorCode": int(code), "memberId": "", "leader": former_leader or ""}
        member.answer_join(answer | failed | {"members": []})
        member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = former
        self._rename(member.member_id, old_id)

    # ---- a rebalance -------------------------------------------------------------------------
    @property
    def _joined(self) -> int:
        return sum(each.join_reply is not None for each in self.members.values())

    @property
    def _have_all_joined(self) -> bool:
        return not self._pending_joins and self._joined == len(self.members)

    def _rebalance(self) -> None:
        """Begin a rebalance, or complete the one in progress if that is possible now."""
        if self.state in _CAN_REBALANCE:
            self._prepare_rebalance()
        else:
            self._complete_join_if_all_joined()

    def _complete_join_if_all_joined(self) -> None:
        """Complete the join phase, unless it is that of a new group, which waits for others."""
        is_over = self._have_all_joined and self._previous is not GroupState.EMPTY
        if self.state is GroupState.PREPARING_REBALANCE and is_over:
            self._complete_join()

    def _prepare_rebalance(self) -> None:
        """Ask all members to join again; source: GroupMetadataManager.prepareRebalance."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._drop_assignments(ErrorCode.REBALANCE_IN_PROGRESS)
        self._pending_syncs.clear()
        self._world.timers.cancel((self._group_id, "sync"))
        is_initial = self.is_empty
        self._move(GroupState.PREPARING_REBALANCE)
        if is_initial:
            delay_ms = self._world.settings().group_initial_rebalance_delay_ms
            self._wait_for_more(delay_ms, max(self._rebalance_timeout_ms - delay_ms, 0))
        elif self._have_all_joined:
            self._complete_join()
        else:
            self._wait_for_joins()

    def _wait_for_more(self, delay_ms: int, remaining_ms: int) -> None:
        """Give the members of a new group time to join; each newcomer prolongs it."""

        def is_over() -> None:
            if self._has_new_member and remaining_ms:
                self._has_new_member = False
                again_ms = min(
                    self._world.settings().group_initial_rebalance_delay_ms, remaining_ms
                )
                self._wait_for_more(again_ms, max(remaining_ms - delay_ms, 0))
            else:
                self._complete_join()

        self._world.timers.schedule((self._group_id, "join"), delay_ms, is_over)

    def _wait_for_joins(self) -> None:
        self._world.timers.schedule(
            (self._group_id, "join"), self._rebalance_timeout_ms, self._complete_join
        )

    @property
    def _rebalance_timeout_ms(self) -> int:
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def _complete_join(self) -> None:
        """End the join phase: begin the next generation with the members that joined.

        Source: GroupMetadataManager.completeClassicGroupJoin.
        """
        self._world.timers.cancel((self._group_id, "join"))
        for member in [each for each in self.members.values() if each.join_reply is None]:
            if member.instance_id is None:  # a static member keeps its place until it expires
                self._world.timers.cancel((self._group_id, "heartbeat", member.member_id))
                self._remove(member.member_id)
        if self.members and not self._elect_joined_leader():
            self._wait_for_joins()
            return
        self.generation += 1
        self._pending_syncs.clear()
        self._has_new_member = False
        members = list(self.members.values())
        self.protocol = selected_protocol(members) if members else None
        self._read_subscriptions()
        if not members:
            self._move(GroupState.EMPTY)
            # If this is lost, the former generation comes back and its members expire.
            self._world.persist(self._group_id, [self.record({})], lambda code: None)
            return
        self._move(GroupState.COMPLETING_REBALANCE)
        for member in members:
            member.answer_join(self._joined_answer(member))
            member.is_new = False
            self._pending_syncs.add(member.member_id)
            self._expect_heartbeat(member)
        generation = self.generation
        self._world.timers.schedule(
            (self._group_id, "sync"),
            self._rebalance_timeout_ms,
            lambda: self._expire_syncs(generation),
        )

    def _elect_joined_leader(self) -> bool:
        """Let a member that joined lead; return whether there is one."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join_reply is None:
            joined = (each for each in self.members.values() if each.join_reply is not None)
            leader = next(joined, None)
        if leader is None:
            return False
        self.leader = leader.member_id
        return True

    # ---- SyncGroup ---------------------------------------------------------------------------
    def sync(self, request: SyncRequest, reply: Reply) -> None:
        """Answer a member its assignment, once the leader has sent it; see SyncGroup.

        Source: GroupMetadataManager.classicGroupSyncToClassicGroup.
        """
        code = self._check_sync(request)
        if code is not ErrorCode.NONE:
            reply(sync_error(code))
            return
        member = self.members[request.member_id]
        self._pending_syncs.discard(request.member_id)
        if not self._pending_syncs:
            self._world.timers.cancel((self._group_id, "sync"))
        if self.state is GroupState.STABLE:
            reply(self._synced_answer(member))
            return
        if member.sync_reply is not None:  # of a connection that was given up
            member.sync_reply(sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        member.sync_reply = reply
        if self.leader == request.member_id:
            assignments = {each: request.assignments.get(each, b"") for each in self.members}
            self._world.persist(
                self._group_id,
                [self.record(assignments)],
                lambda code: self._assigned(code, request.generation, assignments),
            )

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = self._check_member(request.member_id, request.instance_id)
        if code is not ErrorCode.NONE:
            return code
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, self._protocol_type) or (
            request.protocol_name not in (None, self.protocol)
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _assigned(self, code: ErrorCode, generation: int, assignments: Mapping[str, bytes]) -> None:
        """Hand out assignments that stand in the log; begin again if they could not be stored."""
        if self.state is not GroupState.COMPLETING_REBALANCE or generation != self.generation:
            return
        if code is not ErrorCode.NONE:
            self._drop_assignments(code)
            self._rebalance()
            return
        self._move(GroupState.STABLE)
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.answer_sync(self._synced_answer(member)):
                # A session that ended during the wait was ignored.
                self._expect_heartbeat(member)

    def _synced_answer(self, member: ClassicMember) -> dict[str, Any]:
        return {
            "errorCode": int(ErrorCode.NONE),
            "protocolType": self._protocol_type,
            "protocolName": self.protocol,
            "assignment": member.assignment,
        }

    def _drop_assignments(self, code: ErrorCode) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.answer_sync(sync_error(code)):
                self._expect_heartbeat(member)

    def _expire_syncs(self, generation: int) -> None:
        """Remove the members that joined but never synced."""
        in_progress = self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        if generation == self.generation and in_progress and self._pending_syncs:
            for member_id in list(self._pending_syncs):
                self._world.timers.cancel((self._group_id, "heartbeat", member_id))
                self._remove(member_id)
            self._prepare_rebalance()

    # ---- Heartbeat and LeaveGroup --------------------------------------------------------------
    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Note a sign of life; return what the member has to know."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = self._check_member(member_id, instance_id)
        if code is not ErrorCode.NONE:
            return code
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.is_empty:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._expect_heartbeat(self.members[member_id])
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, leaving: Sequence[LeavingMember]) -> list[ErrorCode]:
        """Remove members; return the outcome of each."""
        codes = [self._leave(each) for each in leaving]
        if ErrorCode.NONE in codes:
            if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._rebalance()
            else:
                self._complete_join_if_all_joined()
        return codes

    def _leave(self, leaving: LeavingMember) -> ErrorCode:
        member_id = leaving.member_id
        if not member_id:  # an administrator removes a static member by its name
            member_id = self._static.get(leaving.instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id not in self._pending_joins:
            code = self._check_member(member_id, leaving.instance_id)
            if code is not ErrorCode.NONE:
                return code
        self._world.timers.cancel((self._group_id, "heartbeat", member_id))
        self._answer_removed(member_id)
        self._remove(member_id)
        return ErrorCode.NONE

    # ---- members -----------------------------------------------------------------------------
    def _check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return whether a member exists and is not fenced; source: validateMember."""
        if instance_id is not None:
            known = self._static.get(instance_id)
            if known is not None and known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _expect_heartbeat(self, member: ClassicMember, timeout_ms: int | None = None) -> None:
        member_id = member.member_id
        self._world.timers.schedule(
            (self._group_id, "heartbeat", member_id),
            member.session_timeout_ms if timeout_ms is None else timeout_ms,
            lambda: self._expire(member_id),
        )

    def _expire(self, member_id: str) -> None:
        """Remove a member that was silent for too long.

        Source: GroupMetadataManager.expireClassicGroupMemberHeartbeat.
        """
        member = self.members.get(member_id)
        if member_id in self._pending_joins:
            self._remove(member_id)
            if self.state is GroupState.PREPARING_REBALANCE and self._have_all_joined:
                self._complete_join()
        elif member is not None and not member.waits:
            self._answer_removed(member_id)
            self._remove(member_id)
            if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._rebalance()
            elif self.state is GroupState.PREPARING_REBALANCE and self._have_all_joined:
                self._complete_join()

    def _answer_removed(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None:
            member.answer_join(join_error(ErrorCode.UNKNOWN_MEMBER_ID))
            member.answer_sync(sync_error(ErrorCode.UNKNOWN_MEMBER_ID))

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self._pending_joins.discard(member_id)
        self._pending_syncs.discard(member_id)

    def _move(self, state: GroupState) -> None:
        self._previous, self.state = self.state, state
        self._since_ms = self._world.clock.now_ms()
