"""What a classic group consists of: its states, its members, their requests and answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, NamedTuple

from streamlog.clock import Clock
from streamlog.config.group_config import GroupConfig
from streamlog.config.serve_config import ServeConfig
from streamlog.gateway.coordinator_log import KeyValue
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.group import Group, MemberProtocol, TopicOf
from streamlog.gateway.groups.timers import Timers

__all__ = [
    "ClassicMember",
    "GroupState",
    "GroupWorld",
    "JoinRequest",
    "LeavingMember",
    "Reply",
    "SyncRequest",
    "join_error",
    "selected_protocol",
    "sync_error",
]

Reply = Callable[[dict[str, Any]], None]  # takes the fields of a response; called once
Resolution = Callable[[Mapping[str, frozenset[str]] | None], None]


class GroupState(Enum):
    """The state of a classic group; the value is its name as Kafka prints it.

    Source: org.apache.kafka.coordinator.group.classic.ClassicGroupState.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class JoinRequest(NamedTuple):
    """A JoinGroup request.

    Attributes:
        member_id: The member's id; empty for a new member.
        instance_id: Its static name; None without one.
        client_id: The client's name for itself.
        client_host: Its address.
        protocol_type: What it is: `consumer`, `connect`.
        protocols: What it supports, the preferred one first.
        session_timeout_ms: How long it may be silent.
        rebalance_timeout_ms: How long it may take to join again.
        needs_member_id: Whether a new member is given an id first and joins with it (KIP-394).
        can_skip_assignment: Whether a leader can be asked to keep the assignment (KIP-814).
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    needs_member_id: bool = True
    can_skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class GroupWorld:
    """What groups need from outside.

    Attributes:
        clock: The clock.
        random: The source of member ids.
        timers: Calls them later.
        settings: Returns the root's settings for `serve` as of now.
        persist: Appends records of the group of this name to the log, then calls back: with
            NONE, or with the error to answer.
        topic_of: Returns the topic of a name; None where it does not exist.
        name_of: Returns the name of a topic id; None where it does not exist.
        topics: Returns all topics by name; the same object as long as they are the same.
        resolve: Looks what patterns match, then calls back: with the names of topics by pattern,
            or None if that failed.
        limits: Returns the settings of the group of this name.
        become: Lets a group take the place of the one of its name.
    """

    clock: Clock
    random: Random
    timers: Timers
    settings: Callable[[], ServeConfig]
    persist: Callable[[str, Sequence[KeyValue], Callable[[ErrorCode], None]], None]
    topic_of: TopicOf
    name_of: Callable[[str], str | None]
    topics: Callable[[], Mapping[str, object]]
    resolve: Callable[[frozenset[str], Resolution], None]
    limits: Callable[[str], GroupConfig]
    become: Callable[[Group], None]


class SyncRequest(NamedTuple):
    """A SyncGroup request; the leader's has the assignments of all members."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class LeavingMember(NamedTuple):
    """A member that leaves, or that an administrator removes by its static name."""

    member_id: str
    instance_id: str | None


@dataclass(slots=True)
class ClassicMember:
    """A member of a classic group.

    Attributes:
        member_id: Its id.
        instance_id: Its static name; None without one.
        client_id: The client's name for itself.
        client_host: Its address.
        session_timeout_ms: How long it may be silent.
        rebalance_timeout_ms: How long it may take to join again.
        protocols: What it supports, the preferred one first.
        assignment: What the leader assigned to it.
        is_new: Whether it waits for its first JoinGroup answer.
        join_reply: Answers its JoinGroup request that waits; None without one.
        sync_reply: Answers its SyncGroup request that waits; None without one.

    Source: org.apache.kafka.coordinator.group.classic.ClassicGroupMember.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_reply: Reply | None = None
    sync_reply: Reply | None = None

    @property
    def waits(self) -> bool:
        """Whether a request of it waits: a sign of life as long as it does."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """Return what it says about itself in a protocol."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the protocol that it prefers among candidates that it supports."""
        return next(each.name for each in self.protocols if each.name in candidates)

    def answer_join(self, response: dict[str, Any]) -> None:
        """Answer its JoinGroup request, if one waits."""
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            reply(response)

    def answer_sync(self, response: dict[str, Any]) -> bool:
        """Answer its SyncGroup request; return whether one waited."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is not None:
            reply(response)
        return reply is not None


def join_error(code: ErrorCode, member_id: str = "") -> dict[str, Any]:
    """Return a JoinGroup response with an error."""
    return {
        "errorCode": int(code),
        "memberId": member_id,
        "generationId": -1,
        "protocolType": None,
        "protocolName": None,
        "leader": "",
        "skipAssignment": False,
        "members": [],
    }


def sync_error(code: ErrorCode) -> dict[str, Any]:
    """Return a SyncGroup response with an error."""
    return {
        "errorCode": int(code),
        "protocolType": None,
        "protocolName": None,
        "assignment": b"",
    }


def selected_protocol(members: Sequence[ClassicMember]) -> str:
    """Return the protocol that all members support and most of them prefer.

    Source: ClassicGroup.selectProtocol.
    """
    candidates = set.intersection(*({each.name for each in one.protocols} for one in members))
    votes: dict[str, int] = {}
    for member in members:
        vote = member.vote(candidates)
        votes[vote] = votes.get(vote, 0) + 1
    return max(votes, key=lambda name: votes[name])
