"""A consumer group (KIP-848): requests in turn, timeouts, answers after the append; without I/O.

One change at a time is appended; the requests that come meanwhile wait for it. A change that
cannot be stored is dropped, and its request answers the error.

Members of the classic protocol belong to it while a group is upgraded or downgraded one by one
(`migration`): they join and sync as in a classic group, but alone. A heartbeat tells them to join
again when they have to give something up, or may get more.

Source: org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup and the consumer part of
GroupMetadataManager.
"""

import logging
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from streamlog.config.group_config import GroupConfig
from streamlog.gateway.coordinator_log import KeyValue
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.assignors import Assignment
from streamlog.gateway.groups.classic import ClassicGroup
from streamlog.gateway.groups.consumer_member import (
    LEAVE,
    LEAVE_STATIC,
    ConsumerHeartbeat,
    ConsumerMember,
    Reconciliation,
    RefusedHeartbeatError,
)
from streamlog.gateway.groups.consumer_state import ConsumerGroupState, Resolved
from streamlog.gateway.groups.group import CommittingMember, GroupType
from streamlog.gateway.groups.members import (
    GroupWorld,
    JoinRequest,
    LeavingMember,
    Reply,
    SyncRequest,
    join_error,
    sync_error,
)
from streamlog.gateway.groups.migration import (
    assigned_bytes,
    by_topic_id,
    check_sync,
    classic_group,
    needs_to_join,
    supports,
    what_it_says,
)
from streamlog.protocol.consumer_protocol import CONSUMER_PROTOCOL
from streamlog.protocol.internal_topics import InternalRecord

__all__ = ["ConsumerGroup", "heartbeat_error"]

_logger: Final = logging.getLogger(__name__)

_MEMBER_EPOCHS: Final = 9  # the first OffsetCommit with them
_CLASSIC_MEMBER: Final = 0  # ConsumerGroupDescribe: the protocol of a member
_CONSUMER_MEMBER: Final = 1
_RESOLVE_AGAIN_MS: Final = 10_000  # GroupMetadataManager.REGEX_BATCH_REFRESH_MIN_INTERVAL_MS

_Failed = Callable[[ErrorCode, str | None], dict[str, Any]]


class _Step:
    """A change on its way into the log.

    Attributes:
        draft: The next state of the group.
        successor: The classic group that the group becomes with this change.
        on_stored: Called once the change is in the log.
    """

    def __init__(self, draft: ConsumerGroupState) -> None:
        self.draft = draft
        self.successor: ClassicGroup | None = None
        self.on_stored: Callable[[], None] | None = None


_Change = Callable[[_Step], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A change that waits for its turn; `reply` is None for that of a timer."""

    change: _Change
    reply: Reply | None
    failed: _Failed


class ConsumerGroup:
    """A group of the consumer protocol.

    Args:
        group_id: Its name.
        world: What it needs from outside.
        replaces: The classic group of the same name that it takes the place of, with its first
            change in the log.
        state: The state that it begins with in that case, if the other one has members.

    Attributes:
        state: Its state, as it is in the log.
        replaces: The classic group whose place it takes; None once that is in the log.
    """

    type: Final = GroupType.CONSUMER

    def __init__(
        self,
        group_id: str,
        world: GroupWorld,
        replaces: ClassicGroup | None = None,
        state: ConsumerGroupState | None = None,
    ) -> None:
        self._group_id, self._world = group_id, world
        self.state = ConsumerGroupState(group_id) if state is None else state
        self.replaces = replaces
        self._first_records: list[KeyValue] = [] if replaces is None else replaces.tombstones()
        if state is not None:
            self._first_records += state.creation()
        self._waiting: deque[_Waiting] = deque()
        self._has_stored = False
        self._is_storing = False
        self._is_dead = False
        self._is_resolving = False
        self._topics_resolved: Mapping[str, Any] | None = None

    # ---- what the coordinator asks -----------------------------------------------------------
    @property
    def group_id(self) -> str:
        """Its name."""
        return self._group_id

    @property
    def state_name(self) -> str:
        """Its state as Kafka prints it."""
        return "Dead" if self._is_dead else self.state.name

    @property
    def protocol_type(self) -> str:
        """What its members are."""
        return CONSUMER_PROTOCOL

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and none that are about to join."""
        return not (self.state.members or self._is_storing or self._waiting)

    @property
    def is_stored(self) -> bool:
        """Whether anything of it is in the log, or about to be."""
        return bool(self._has_stored or self._is_storing or self._waiting)

    def check_commit(self, identity: CommittingMember) -> ErrorCode:
        """Return why these offsets may not be committed, or NONE.

        Source: ConsumerGroup.validateOffsetCommit.
        """
        is_transactional = identity.is_transactional
        if identity.generation < 0 and not self.state.members:
            return ErrorCode.NONE
        names_member = identity.member_id or identity.instance_id is not None
        if is_transactional and identity.generation == -1 and not names_member:
            return ErrorCode.NONE
        member = self.state.members.get(identity.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_classic = member.classic is not None
        if not is_transactional and not is_classic and identity.version < _MEMBER_EPOCHS:
            return ErrorCode.UNSUPPORTED_VERSION
        if identity.generation == member.epoch:
            return ErrorCode.NONE
        # TxnOffsetCommit and the classic protocol have no error of their own for epochs.
        if is_transactional or is_classic:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.STALE_MEMBER_EPOCH

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return why offsets may not be fetched, or NONE.

        Source: ConsumerGroup.validateOffsetFetch.
        """
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.state.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.epoch:
            return ErrorCode.NONE
        is_classic = member.classic is not None
        return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def check_offset_deletion(self) -> ErrorCode:
        """Return why offsets may not be deleted, or NONE."""
        return ErrorCode.NONE

    def committed(self, member_id: str) -> None:
        """Note a commit: no sign of life in this protocol, only heartbeats are."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads a topic, so that its offsets stay."""
        return any(topic in self.state.subscription(each) for each in self.state.members.values())

    def offsets_age_from(self, commit_timestamp_ms: int) -> int | None:
        """Return the time from which a commit's retention counts."""
        return commit_timestamp_ms

    def tombstones(self) -> list[KeyValue]:
        """Return the records that remove the group from the log."""
        return self.state.tombstones()

    def described(self) -> dict[str, Any]:
        """Return the fields that ConsumerGroupDescribe shows of it."""
        state = self.state
        return {
            "groupId": self._group_id,
            "groupState": self.state_name,
            "groupEpoch": state.epoch,
            "assignmentEpoch": state.target_epoch,
            "assignorName": state.assignor(self._default_assignor),
            "members": [
                {
                    "memberId": member.member_id,
                    "instanceId": member.instance_id,
                    "rackId": member.rack_id,
                    "memberEpoch": member.epoch,
                    "clientId": member.client_id,
                    "clientHost": member.client_host,
                    "subscribedTopicNames": list(member.topics),
                    "subscribedTopicRegex": member.regex,
                    "assignment": self._shown(member.assigned),
                    "targetAssignment": self._shown(state.targets.get(member.member_id, {})),
                    "memberType": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
                }
                for member in state.members.values()
            ],
        }

    def _shown(self, assignment: Assignment) -> dict[str, Any]:
        """Return an assignment as responses have it, without topics that are gone."""
        named = [(each, self._world.name_of(each)) for each in assignment]
        return {
            "topicPartitions": [
                {"topicId": topic, "topicName": name, "partitions": sorted(assignment[topic])}
                for topic, name in named
                if name is not None
            ]
        }

    def stop(self) -> None:
        """Answer requests that wait and end timers: the gateway stops, or the group is gone."""
        self._is_dead = True
        for member_id in self.state.members:
            self._cancel_timers(member_id)
        while self._waiting:
            waiting = self._waiting.popleft()
            if waiting.reply is not None:
                waiting.reply(waiting.failed(ErrorCode.NOT_COORDINATOR, None))

    @classmethod
    def of_records(
        cls, group_id: str, records: Iterable[InternalRecord], world: GroupWorld
    ) -> "ConsumerGroup":
        """Return the group that records keep; the sessions of its members begin again."""
        group = cls(group_id, world)
        group._has_stored = True
        for record in records:
            group.state.restore(record)
        group.state.look_up_topics(world.topic_of)
        for member in group.state.members.values():
            group._expect_sign(member.member_id)
            if member.state is Reconciliation.UNREVOKED and member.classic is None:
                group._expect_revocation(member)
        return group

    @property
    def _default_assignor(self) -> str:
        return str(self._world.settings().group_consumer_assignors[0])

    # ---- heartbeats --------------------------------------------------------------------------
    def heartbeat(self, request: ConsumerHeartbeat, reply: Reply) -> None:
        """Let a member join, go on or leave; see ConsumerGroupHeartbeat."""
        is_leaving = request.member_epoch in (LEAVE, LEAVE_STATIC)
        change = self._left if is_leaving else self._gone_on
        self._ask(lambda step: change(step, request), reply, heartbeat_error)

    def _gone_on(self, step: _Step, request: ConsumerHeartbeat) -> dict[str, Any]:
        draft = step.draft
        self._check_room(draft, request.member_id)
        former = draft.members.get(request.member_id)
        member = draft.heartbeat(request, self._world.topic_of, self._default_assignor)
        self._expect_sign(member.member_id)
        self._world.timers.cancel((self._group_id, "join", member.member_id))
        self._world.timers.cancel((self._group_id, "sync", member.member_id))
        step.on_stored = self._resolve_patterns
        if not draft.records:
            self._resolve_patterns()
        response: dict[str, Any] = {
            "errorCode": int(ErrorCode.NONE),
            "memberId": member.member_id,
            "memberEpoch": member.epoch,
            "heartbeatIntervalMs": self._limits().consumer_heartbeat_interval_ms,
        }
        if request.is_full or former is None or former.assigned != member.assigned:
            partitions = [
                {"topicId": topic, "partitions": sorted(numbers)}
                for topic, numbers in member.assigned.items()
            ]
            response["assignment"] = {"topicPartitions": partitions}
        return response

    def _check_room(self, draft: ConsumerGroupState, member_id: str) -> None:
        limit = self._world.settings().group_consumer_max_size
        if len(draft.members) >= limit and member_id not in draft.members:
            raise RefusedHeartbeatError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _left(self, step: _Step, request: ConsumerHeartbeat) -> dict[str, Any]:
        member = step.draft.named(request.member_id, request.instance_id)
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC:
            step.draft.leave_for_a_while(member)
        else:
            self._fence(step, [member.member_id])
        return {
            "errorCode": int(ErrorCode.NONE),
            "memberId": request.member_id,
            "memberEpoch": request.member_epoch,
        }

    # ---- members of the classic protocol -----------------------------------------------------
    def join(self, request: JoinRequest, reply: Reply) -> None:
        """Let a member of the classic protocol join, or join again; see JoinGroup."""

        def failed(code: ErrorCode, message: str | None) -> dict[str, Any]:
            return join_error(code)  # as GroupCoordinatorService.joinGroup: without the member's id

        self._ask(lambda step: self._joined(step, request), reply, failed)

    def _joined(self, step: _Step, request: JoinRequest) -> dict[str, Any]:
        """Source: GroupMetadataManager.classicGroupJoinToConsumerGroup."""
        world, draft = self._world, step.draft
        member_id = request.member_id
        if not member_id:
            member_id = str(uuid.UUID(int=world.random.getrandbits(128), version=4))
        self._check_room(draft, member_id)
        if not supports(draft.members.values(), request):
            raise RefusedHeartbeatError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        is_dynamic = request.instance_id is None
        if not request.member_id and is_dynamic and request.needs_member_id:
            return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        subscription = what_it_says(request)
        replaced = None if is_dynamic else draft.static_member(request.instance_id or "")
        is_last = (
            replaced is not None
            and replaced.classic is None
            and self._may_downgrade(draft, [replaced.member_id], joining=1)
        )
        has_changed = draft.join_classic(member_id, request, subscription, world.topic_of)
        owned = by_topic_id(subscription.owned, world.topic_of)
        if is_last:
            if not has_changed:
                draft.reconcile(member_id, owned, has_changed=False)
            member = draft.members[member_id]
            self._downgrade(step, (), needs_rebalance=has_changed)
        else:
            member = draft.advance(
                member_id, owned, self._default_assignor, has_changed=has_changed
            )
        step.on_stored = lambda: self._expect_sync(member, request.rebalance_timeout_ms)
        if not draft.records:
            step.on_stored()
        return {
            **join_error(ErrorCode.NONE, member_id),
            "generationId": member.epoch,
            "protocolType": CONSUMER_PROTOCOL,
            "protocolName": request.protocols[0].name,
        }

    def sync(self, request: SyncRequest, reply: Reply) -> None:
        """Answer what a member of the classic protocol has now; see SyncGroup."""
        self._ask(
            lambda step: self._synced(step.draft, request), reply, lambda code, _: sync_error(code)
        )

    def _synced(self, state: ConsumerGroupState, request: SyncRequest) -> dict[str, Any]:
        """Source: GroupMetadataManager.classicGroupSyncToConsumerGroup."""
        member = state.named(request.member_id, request.instance_id)
        code = check_sync(member, request, state.epoch)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._expect_join(member)
        if code is not ErrorCode.NONE:
            raise RefusedHeartbeatError(code, "")
        self._world.timers.cancel((self._group_id, "sync", member.member_id))
        self._expect_sign(member.member_id)
        return {
            "errorCode": int(ErrorCode.NONE),
            "protocolType": request.protocol_type,
            "protocolName": request.protocol_name,
            "assignment": assigned_bytes(member, member.assigned, self._world.name_of),
        }

    def classic_heartbeat(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Note a sign of life; return what the member has to know.

        Source: GroupMetadataManager.classicGroupHeartbeatToConsumerGroup.
        """
        if self._is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            member = self.state.named(member_id, instance_id)
        except RefusedHeartbeatError as refused:
            return refused.code
        if member.classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != member.epoch:
            return ErrorCode.ILLEGAL_GENERATION
        self._expect_sign(member_id)
        if not needs_to_join(self.state, member):
            return ErrorCode.NONE
        self._expect_join(member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def leave(self, leaving: Sequence[LeavingMember], reply: Reply) -> None:
        """Remove members, as LeaveGroup asks; answer the outcome of each as `codes`.

        Source: GroupMetadataManager.classicGroupLeaveToConsumerGroup.
        """
        codes: list[ErrorCode] = []

        def removed(step: _Step) -> dict[str, Any]:
            present: dict[str, None] = {}
            for each in leaving:
                try:
                    present[self._leaving(step.draft, each)] = None
                except RefusedHeartbeatError as refused:
                    codes.append(refused.code)
                else:
                    codes.append(ErrorCode.NONE)
            if present:
                self._fence(step, present)
            return {}

        def answer(response: dict[str, Any]) -> None:
            failed = response.get("errorCode")
            reply({"codes": codes if failed is None else [failed] * len(leaving)})

        self._ask(removed, answer, heartbeat_error)

    @staticmethod
    def _leaving(draft: ConsumerGroupState, leaving: LeavingMember) -> str:
        """Return the id of a member that leaves, or that an administrator removes by its name."""
        if leaving.member_id or leaving.instance_id is None:
            return draft.named(leaving.member_id, leaving.instance_id).member_id
        static = draft.static_member(leaving.instance_id)
        if static is None:
            raise RefusedHeartbeatError(ErrorCode.UNKNOWN_MEMBER_ID, "")
        return static.member_id

    # ---- back to a classic group -------------------------------------------------------------
    def _fence(self, step: _Step, leaving: Collection[str]) -> None:
        if self._may_downgrade(step.draft, leaving):
            self._downgrade(step, leaving, needs_rebalance=True)
        else:
            step.draft.fence(leaving, self._world.topic_of)

    def _may_downgrade(
        self, draft: ConsumerGroupState, leaving: Collection[str], *, joining: int = 0
    ) -> bool:
        """Whether a group of classic members only remains, and may become a classic one.

        Source: GroupMetadataManager.validateOnlineDowngradeWithFencedMembers.
        """
        settings = self._world.settings()
        left = len(draft.members) - len(leaving) + joining
        is_allowed = settings.group_consumer_migration_policy in ("downgrade", "bidirectional")
        is_due = left > 0 and draft.is_classic_without(leaving)
        return is_due and is_allowed and left <= settings.group_max_size

    def _downgrade(self, step: _Step, leaving: Collection[str], *, needs_rebalance: bool) -> None:
        draft, world = step.draft, self._world
        successor, record = classic_group(draft, leaving, world)
        successor.needs_rebalance = needs_rebalance
        draft.records += [*draft.tombstones(), record]
        step.successor = successor

    # ---- one change after another ------------------------------------------------------------
    def _ask(self, change: _Change, reply: Reply, failed: _Failed) -> None:
        if self._is_dead:
            reply(failed(ErrorCode.COORDINATOR_NOT_AVAILABLE, None))
        else:
            self._waiting.append(_Waiting(change, reply, failed))
            self._go_on()

    def _submit(self, change: _Change) -> None:
        if not self._is_dead:
            self._waiting.append(_Waiting(change, None, heartbeat_error))
            self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self._is_storing:
            waiting = self._waiting.popleft()
            step = _Step(self.state.draft())
            try:
                response = waiting.change(step)
            except RefusedHeartbeatError as refused:
                response = waiting.failed(refused.code, refused.message)
            except Exception:
                _logger.exception("group %s: request failed", self._group_id)
                response = waiting.failed(ErrorCode.UNKNOWN_SERVER_ERROR, None)
            else:
                if step.draft.records:
                    self._store(step, response, waiting)
                    continue
            if waiting.reply is not None:
                waiting.reply(response)

    def _store(self, step: _Step, response: dict[str, Any], waiting: _Waiting) -> None:
        def stored(code: ErrorCode) -> None:
            self._is_storing = False
            if code is ErrorCode.NONE:
                self._has_stored = True
                self._first_records.clear()
                self._adopt(step)
            if waiting.reply is not None:
                is_stored = code is ErrorCode.NONE
                waiting.reply(response if is_stored else waiting.failed(code, None))
            self._go_on()

        self._is_storing = True
        records = [*self._first_records, *step.draft.records]
        step.draft.records.clear()
        self._world.persist(self._group_id, records, stored)

    def _adopt(self, step: _Step) -> None:
        former, self.state = self.state, step.draft
        if self.replaces is not None:
            self.replaces.stop()
            self.replaces = None
        if self._is_dead:
            return
        if step.successor is not None:
            self.stop()
            for member_id in former.members:
                self._cancel_timers(member_id)
            self._world.become(step.successor)
            step.successor.start()
            return
        for member_id in former.members.keys() - step.draft.members.keys():
            self._cancel_timers(member_id)
        for member in step.draft.members.values():
            if member == former.members.get(member.member_id):
                continue
            if member.state is Reconciliation.UNREVOKED and member.classic is None:
                self._expect_revocation(member)
            else:
                self._world.timers.cancel((self._group_id, "revocation", member.member_id))
        if step.on_stored is not None:
            step.on_stored()

    # ---- patterns ----------------------------------------------------------------------------
    def _resolve_patterns(self) -> None:
        """Look again what the patterns of members match, if that is due.

        Source: GroupMetadataManager.maybeUpdateRegularExpressions.
        """
        state, now_ms = self.state, self._world.clock.now_ms()
        wanted = frozenset(each.regex for each in state.members.values() if each.regex)
        if not wanted or self._is_resolving or self._is_dead:
            return
        topics = self._world.topics()
        last_ms = max((each.at_ms for each in state.patterns.values()), default=None)
        if last_ms is not None:
            interval_ms = self._world.settings().group_consumer_regex_refresh_interval_ms
            is_due = (
                len(wanted) != len(state.patterns)
                or topics is not self._topics_resolved
                or now_ms > last_ms + interval_ms
            )
            if now_ms <= last_ms + _RESOLVE_AGAIN_MS or not is_due:
                return

        def resolved(found: Mapping[str, frozenset[str]] | None) -> None:
            self._is_resolving = False
            if found is not None:
                self._topics_resolved = topics
                patterns = {each: Resolved(found[each], now_ms) for each in found}
                self._submit(lambda step: self._taken_in(step.draft, patterns))

        self._is_resolving = True
        self._world.resolve(wanted, resolved)

    def _taken_in(
        self, draft: ConsumerGroupState, patterns: Mapping[str, Resolved]
    ) -> dict[str, Any]:
        draft.resolve(patterns, self._world.topic_of)
        return {}

    # ---- timeouts ----------------------------------------------------------------------------
    def _limits(self) -> GroupConfig:
        return self._world.limits(self._group_id)

    def expect_members(self) -> None:
        """Begin the sessions of members that it took over from a classic group."""
        for member_id in self.state.members:
            self._expect_sign(member_id)

    def _expect_sign(self, member_id: str) -> None:
        """Begin the session of a member again."""
        member = self.state.members.get(member_id)
        classic = None if member is None else member.classic
        timeout_ms = self._limits().consumer_session_timeout_ms
        if classic is not None:
            timeout_ms = classic.session_timeout_ms
        self._expect("session", member_id, timeout_ms)

    def _expect_join(self, member: ConsumerMember) -> None:
        """Let a member of the classic protocol join again in time, from its first notice on."""
        key = (self._group_id, "join", member.member_id)
        if not self._world.timers.is_scheduled(key):
            self._expect("join", member.member_id, member.rebalance_timeout_ms)

    def _expect_sync(self, member: ConsumerMember, timeout_ms: int) -> None:
        if self._is_dead:
            return
        self._world.timers.cancel((self._group_id, "join", member.member_id))
        self._expect_sign(member.member_id)
        self._expect("sync", member.member_id, timeout_ms)

    def _expect(self, what: str, member_id: str, timeout_ms: int) -> None:
        self._world.timers.schedule(
            (self._group_id, what, member_id),
            timeout_ms,
            lambda: self._submit(lambda step: self._expired(step, member_id)),
        )

    def _expect_revocation(self, member: ConsumerMember) -> None:
        def expired(step: _Step) -> dict[str, Any]:
            known = step.draft.members.get(member.member_id)
            if known is not None and known.epoch == member.epoch:
                return self._expired(step, member.member_id)
            return {}

        self._world.timers.schedule(
            (self._group_id, "revocation", member.member_id),
            member.rebalance_timeout_ms,
            lambda: self._submit(expired),
        )

    def _expired(self, step: _Step, member_id: str) -> dict[str, Any]:
        """Remove a member that was silent for too long, or gave nothing up in time."""
        if member_id in step.draft.members:
            _logger.info(
                "group %s: member %s is removed, its time is up", self._group_id, member_id
            )
            self._fence(step, [member_id])
        return {}

    def _cancel_timers(self, member_id: str) -> None:
        for what in ("session", "revocation", "join", "sync"):
            self._world.timers.cancel((self._group_id, what, member_id))


def heartbeat_error(code: ErrorCode, message: str | None = None) -> dict[str, Any]:
    """Return a ConsumerGroupHeartbeat response with an error."""
    return {"errorCode": int(code), "errorMessage": message}
