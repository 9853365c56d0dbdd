"""A consumer group (KIP-848): heartbeats in turn, timeouts, answers after the append; without I/O.

One change at a time is appended; the heartbeats that come meanwhile wait for it. A change that
cannot be stored is dropped, and its heartbeat answers the error.

Source: org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup and the consumer part of
GroupMetadataManager.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from streamlog.gateway.coordinator_log import KeyValue
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.assignors import ASSIGNORS, Assignment
from streamlog.gateway.groups.consumer_state import (
    LEAVE,
    LEAVE_STATIC,
    ConsumerGroupState,
    ConsumerHeartbeat,
    ConsumerMember,
    Reconciliation,
    RefusedHeartbeatError,
)
from streamlog.gateway.groups.group import CommittingMember, GroupType
from streamlog.gateway.groups.members import GroupWorld, Reply
from streamlog.protocol.internal_topics import InternalRecord

__all__ = ["ConsumerGroup", "heartbeat_error"]

_logger: Final = logging.getLogger(__name__)

_DEFAULT_ASSIGNOR: Final = next(iter(ASSIGNORS))
_MEMBER_EPOCHS: Final = 9  # the first OffsetCommit with them
_CONSUMER_MEMBER: Final = 1  # ConsumerGroupDescribe: a member of this protocol

_Change = Callable[[ConsumerGroupState], dict[str, Any]]


class _Waiting(NamedTuple):
    """A change that waits for its turn; `reply` is None for that of a timer."""

    change: _Change
    reply: Reply | None


class ConsumerGroup:
    """A group of the consumer protocol.

    Args:
        group_id: Its name.
        world: What it needs from outside.
        replaces: Tombstones of the group of the same name that it replaces; they are appended
            with its first change.

    Attributes:
        state: Its state, as it is in the log.
    """

    type: Final = GroupType.CONSUMER

    def __init__(self, group_id: str, world: GroupWorld, replaces: Sequence[KeyValue] = ()) -> None:
        self._group_id, self._world = group_id, world
        self.state = ConsumerGroupState(group_id)
        self._replaces = list(replaces)
        self._waiting: deque[_Waiting] = deque()
        self._is_storing = False
        self._is_dead = False

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
        return "consumer"

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and none that are about to join."""
        return not (self.state.members or self._is_storing or self._waiting)

    @property
    def is_stored(self) -> bool:
        """Whether anything of it is in the log, or about to be."""
        return self.state.epoch > 0 or not self.is_empty

    def check_commit(self, identity: CommittingMember) -> ErrorCode:
        """Return why these offsets may not be committed, or NONE.

        Source: ConsumerGroup.validateOffsetCommit.
        """
        if identity.generation < 0 and not self.state.members:
            return ErrorCode.NONE
        member = self.state.members.get(identity.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not identity.is_transactional and identity.version < _MEMBER_EPOCHS:
            return ErrorCode.UNSUPPORTED_VERSION
        if identity.generation == member.epoch:
            return ErrorCode.NONE
        # TxnOffsetCommit has no error of its own for epochs.
        is_transactional = identity.is_transactional
        return ErrorCode.ILLEGAL_GENERATION if is_transactional else ErrorCode.STALE_MEMBER_EPOCH

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return why offsets may not be fetched, or NONE.

        Source: ConsumerGroup.validateOffsetFetch.
        """
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.state.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def check_offset_deletion(self) -> ErrorCode:
        """Return why offsets may not be deleted, or NONE."""
        return ErrorCode.NONE

    def committed(self, member_id: str) -> None:
        """Note a commit: no sign of life in this protocol, only heartbeats are."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads a topic, so that its offsets stay."""
        return any(topic in each.topics for each in self.state.members.values())

    def offsets_age_from(self, commit_timestamp_ms: int) -> int | None:
        """Return the time from which a commit's retention counts."""
        return commit_timestamp_ms

    def tombstones(self) -> list[KeyValue]:
        """Return the records that remove the group from the log."""
        return self.state.tombstones()

    def described(self) -> dict[str, Any]:
        """Return the fields that ConsumerGroupDescribe shows of it."""
        state = self.state
        names = {topic.topic_id: name for name, topic in state.topics.items()}
        return {
            "groupId": self._group_id,
            "groupState": self.state_name,
            "groupEpoch": state.epoch,
            "assignmentEpoch": state.target_epoch,
            "assignorName": state.assignor(_DEFAULT_ASSIGNOR),
            "members": [
                {
                    "memberId": member.member_id,
                    "instanceId": member.instance_id,
                    "rackId": member.rack_id,
                    "memberEpoch": member.epoch,
                    "clientId": member.client_id,
                    "clientHost": member.client_host,
                    "subscribedTopicNames": list(member.topics),
                    "subscribedTopicRegex": member.regex or "",
                    "assignment": _described(member.assigned, names),
                    "targetAssignment": _described(state.targets.get(member.member_id, {}), names),
                    "memberType": _CONSUMER_MEMBER,
                }
                for member in state.members.values()
            ],
        }

    def stop(self) -> None:
        """Answer requests that wait and end timers: the gateway stops, or the group is gone."""
        self._is_dead = True
        for member_id in self.state.members:
            self._cancel_timers(member_id)
        while self._waiting:
            reply = self._waiting.popleft().reply
            if reply is not None:
                reply(heartbeat_error(ErrorCode.NOT_COORDINATOR))

    @classmethod
    def of_records(
        cls, group_id: str, records: Iterable[InternalRecord], world: GroupWorld
    ) -> "ConsumerGroup":
        """Return the group that records keep; the sessions of its members begin again."""
        group = cls(group_id, world)
        for record in records:
            group.state.restore(record)
        for member in group.state.members.values():
            group._expect_heartbeat(member.member_id)
            if member.state is Reconciliation.UNREVOKED:
                group._expect_revocation(member)
        return group

    # ---- heartbeats --------------------------------------------------------------------------
    def heartbeat(self, request: ConsumerHeartbeat, reply: Reply) -> None:
        """Let a member join, go on or leave; see ConsumerGroupHeartbeat."""
        if self._is_dead:
            reply(heartbeat_error(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        is_leaving = request.member_epoch in (LEAVE, LEAVE_STATIC)
        change = self._left if is_leaving else self._gone_on
        self._submit(lambda draft: change(draft, request), reply)

    def _gone_on(self, draft: ConsumerGroupState, request: ConsumerHeartbeat) -> dict[str, Any]:
        settings = self._world.settings()
        is_full = len(draft.members) >= settings.group_consumer_max_size
        if is_full and request.member_id not in draft.members:
            raise RefusedHeartbeatError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "The consumer group has reached its maximum capacity of "
                f"{settings.group_consumer_max_size} members.",
            )
        former = draft.members.get(request.member_id)
        member = draft.heartbeat(request, self._world.topic_of, _DEFAULT_ASSIGNOR)
        self._expect_heartbeat(member.member_id)
        response: dict[str, Any] = {
            "errorCode": int(ErrorCode.NONE),
            "memberId": member.member_id,
            "memberEpoch": member.epoch,
            "heartbeatIntervalMs": settings.group_consumer_heartbeat_interval_ms,
        }
        if request.is_full or former is None or former.assigned != member.assigned:
            partitions = [
                {"topicId": topic, "partitions": sorted(numbers)}
                for topic, numbers in member.assigned.items()
            ]
            response["assignment"] = {"topicPartitions": partitions}
        return response

    def _left(self, draft: ConsumerGroupState, request: ConsumerHeartbeat) -> dict[str, Any]:
        draft.leave(request, self._world.topic_of)
        return {
            "errorCode": int(ErrorCode.NONE),
            "memberId": request.member_id,
            "memberEpoch": request.member_epoch,
        }

    # ---- one change after another ------------------------------------------------------------
    def _submit(self, change: _Change, reply: Reply | None) -> None:
        self._waiting.append(_Waiting(change, reply))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self._is_storing:
            change, reply = self._waiting.popleft()
            draft = self.state.draft()
            try:
                response = change(draft)
            except RefusedHeartbeatError as refused:
                response = heartbeat_error(refused.code, refused.message)
            except Exception:
                _logger.exception("group %s: heartbeat failed", self._group_id)
                response = heartbeat_error(ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                if draft.records:
                    self._store(draft, response, reply)
                    continue
            if reply is not None:
                reply(response)

    def _store(
        self, draft: ConsumerGroupState, response: dict[str, Any], reply: Reply | None
    ) -> None:
        def stored(code: ErrorCode) -> None:
            self._is_storing = False
            if code is ErrorCode.NONE:
                self._replaces.clear()
                self._adopt(draft)
            if reply is not None:
                reply(response if code is ErrorCode.NONE else heartbeat_error(code))
            self._go_on()

        self._is_storing = True
        records = [*self._replaces, *draft.records]
        draft.records.clear()
        self._world.persist(self._group_id, records, stored)

    def _adopt(self, draft: ConsumerGroupState) -> None:
        former, self.state = self.state, draft
        if self._is_dead:
            return
        for member_id in former.members.keys() - draft.members.keys():
            self._cancel_timers(member_id)
        for member in draft.members.values():
            if member == former.members.get(member.member_id):
                continue
            if member.state is Reconciliation.UNREVOKED:
                self._expect_revocation(member)
            else:
                self._world.timers.cancel((self._group_id, "revocation", member.member_id))

    # ---- timeouts ----------------------------------------------------------------------------
    def _expect_heartbeat(self, member_id: str) -> None:
        self._world.timers.schedule(
            (self._group_id, "session", member_id),
            self._world.settings().group_consumer_session_timeout_ms,
            lambda: self._submit(lambda draft: self._expired(draft, member_id), None),
        )

    def _expect_revocation(self, member: ConsumerMember) -> None:
        def expired(draft: ConsumerGroupState) -> dict[str, Any]:
            known = draft.members.get(member.member_id)
            if known is not None and known.epoch == member.epoch:
                return self._expired(draft, member.member_id)
            return {}

        self._world.timers.schedule(
            (self._group_id, "revocation", member.member_id),
            member.rebalance_timeout_ms,
            lambda: self._submit(expired, None),
        )

    def _expired(self, draft: ConsumerGroupState, member_id: str) -> dict[str, Any]:
        """Remove a member that was silent for too long, or gave nothing up in time."""
        _logger.info("group %s: member %s is removed, its time is up", self._group_id, member_id)
        draft.fence(member_id, self._world.topic_of)
        return {}

    def _cancel_timers(self, member_id: str) -> None:
        self._world.timers.cancel((self._group_id, "session", member_id))
        self._world.timers.cancel((self._group_id, "revocation", member_id))


def heartbeat_error(code: ErrorCode, message: str | None = None) -> dict[str, Any]:
    """Return a ConsumerGroupHeartbeat response with an error."""
    return {"errorCode": int(code), "errorMessage": message}


def _described(assignment: Assignment, names: Mapping[str, str]) -> dict[str, Any]:
    """Return an assignment as responses have it, without topics that are gone."""
    return {
        "topicPartitions": [
            {"topicId": topic, "topicName": names[topic], "partitions": sorted(numbers)}
            for topic, numbers in assignment.items()
            if topic in names
        ]
    }
