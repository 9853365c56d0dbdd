"""A member of a consumer group, its heartbeats, and the records that keep it.

A member speaks the consumer protocol (KIP-848), or the classic one in a group that is being
upgraded or downgraded.

Source: org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, NamedTuple

from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.assignors import Assignment
from streamlog.gateway.groups.group import MemberProtocol

__all__ = [
    "LEAVE",
    "LEAVE_STATIC",
    "ClassicSupport",
    "ConsumerHeartbeat",
    "ConsumerMember",
    "Reconciliation",
    "RefusedHeartbeatError",
    "assignment_of",
    "current_value",
    "member_value",
    "target_value",
    "with_current",
    "with_member",
]

LEAVE: Final = -1  # the member epoch of a member that leaves
LEAVE_STATIC: Final = -2  # that of a static member that will be back


class RefusedHeartbeatError(Exception):
    """A request of a member that changes nothing.

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
        regex: The pattern it subscribes to; empty for none.
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
    regex: str | None
    assignor: str | None
    owned: Assignment | None
    client_id: str
    client_host: str

    @property
    def is_full(self) -> bool:
        """Whether it has all fields, so that the answer has to have the assignment."""
        subscribes = self.topics is not None or self.regex is not None
        has_all = self.rebalance_timeout_ms != -1 and subscribes
        return self.member_epoch == 0 or (has_all and self.owned is not None)


class Reconciliation(IntEnum):
    """How far a member is; the numbers stand in records. Source: MemberState."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127  # written by a newer broker


class ClassicSupport(NamedTuple):
    """What a member of the classic protocol said when it joined.

    Attributes:
        session_timeout_ms: How long it may be silent.
        protocols: What it supports, the preferred one first.
    """

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]


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
        regex: The pattern it subscribes to; empty for none.
        rebalance_timeout_ms: How long it may take to give up partitions.
        assignor: The assignor it asks for; None without a wish.
        classic: What it said, if it speaks the classic protocol; None for a consumer's.
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
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicSupport | None = None
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
            regex=self.regex if request.regex is None else request.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            assignor=self.assignor if request.assignor is None else request.assignor,
            classic=None,
        )


# ---- values of records --------------------------------------------------------------------------
def _partitions(assignment: Assignment) -> list[dict[str, Any]]:
    return [
        {"topicId": topic, "partitions": sorted(numbers)} for topic, numbers in assignment.items()
    ]


def assignment_of(topics: Sequence[Mapping[str, Any]]) -> Assignment:
    """Return the assignment that a field of a record holds."""
    return {each["topicId"]: frozenset(each["partitions"]) for each in topics}


def target_value(target: Assignment) -> dict[str, Any]:
    """Return the value of a record of a member's target."""
    return {"topicPartitions": _partitions(target)}


def member_value(member: ConsumerMember) -> dict[str, Any]:
    """Return the value of a record of what a member said."""
    classic = None
    if member.classic is not None:
        protocols = [
            {"name": each.name, "metadata": each.metadata} for each in member.classic.protocols
        ]
        classic = {
            "sessionTimeoutMs": member.classic.session_timeout_ms,
            "supportedProtocols": protocols,
        }
    return {
        "instanceId": member.instance_id,
        "rackId": member.rack_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "subscribedTopicNames": list(member.topics),
        "subscribedTopicRegex": member.regex,
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "serverAssignor": member.assignor,
        "classicMemberMetadata": classic,
    }


def with_member(member: ConsumerMember, value: Mapping[str, Any]) -> ConsumerMember:
    """Return a member with what a record says that it said."""
    classic = value["classicMemberMetadata"]
    return replace(
        member,
        instance_id=value["instanceId"],
        rack_id=value["rackId"],
        client_id=value["clientId"],
        client_host=value["clientHost"],
        topics=tuple(sorted(value["subscribedTopicNames"])),
        regex=value["subscribedTopicRegex"] or "",
        rebalance_timeout_ms=value["rebalanceTimeoutMs"],
        assignor=value["serverAssignor"],
        classic=classic
        and ClassicSupport(
            classic["sessionTimeoutMs"],
            tuple(
                MemberProtocol(each["name"], each["metadata"])
                for each in classic["supportedProtocols"]
            ),
        ),
    )


def current_value(member: ConsumerMember) -> dict[str, Any]:
    """Return the value of a record of a member's epoch and partitions."""
    return {
        "memberEpoch": member.epoch,
        "previousMemberEpoch": member.previous_epoch,
        "state": int(member.state),
        "assignedPartitions": _partitions(member.assigned),
        "partitionsPendingRevocation": _partitions(member.revoking),
    }


def with_current(member: ConsumerMember, value: Mapping[str, Any]) -> ConsumerMember:
    """Return a member with the epoch and the partitions of a record."""
    states = {int(each): each for each in Reconciliation}
    return replace(
        member,
        epoch=value["memberEpoch"],
        previous_epoch=value["previousMemberEpoch"],
        state=states.get(value["state"], Reconciliation.UNKNOWN),
        assigned=assignment_of(value["assignedPartitions"]),
        revoking=assignment_of(value["partitionsPendingRevocation"]),
    )
