"""What the coordinator asks of a group, whatever protocol its members speak.

Source: org.apache.kafka.coordinator.group.Group.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from streamlog.gateway.coordinator_log import KeyValue
from streamlog.gateway.error_codes import ErrorCode

__all__ = [
    "CommittingMember",
    "Group",
    "GroupType",
    "MemberProtocol",
    "SubscribedTopic",
    "TopicOf",
]


class GroupType(Enum):
    """The protocol of a group; the value is its name in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class MemberProtocol(NamedTuple):
    """A way to assign partitions that a member of the classic protocol supports, such as `range`.

    Attributes:
        name: Its name.
        metadata: What the member says about itself: its topics, for a consumer.
    """

    name: str
    metadata: bytes


class SubscribedTopic(NamedTuple):
    """A topic that members subscribe to, as it is now."""

    topic_id: str
    partitions: int


TopicOf = Callable[[str], SubscribedTopic | None]  # of a name; None where it does not exist


class CommittingMember(NamedTuple):
    """The member that commits offsets.

    Attributes:
        member_id: Its member id; empty without one.
        instance_id: Its static name; None without one.
        generation: The generation, or the member epoch; -1 for a commit from outside the group.
        is_transactional: Whether the offsets are part of a transaction.
        version: The version of the request.
    """

    member_id: str
    instance_id: str | None
    generation: int
    is_transactional: bool
    version: int


class Group(Protocol):
    """A group of one kind."""

    @property
    def group_id(self) -> str:
        """Its name."""
        ...

    @property
    def type(self) -> GroupType:
        """Its protocol."""
        ...

    @property
    def state_name(self) -> str:
        """Its state as Kafka prints it."""
        ...

    @property
    def protocol_type(self) -> str:
        """What its members are, `consumer` for consumers; empty if nothing has joined."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted or converted."""
        ...

    def check_commit(self, identity: CommittingMember) -> ErrorCode:
        """Return why these offsets may not be committed, or NONE."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return why offsets may not be fetched, or NONE."""
        ...

    def check_offset_deletion(self) -> ErrorCode:
        """Return why offsets may not be deleted, or NONE."""
        ...

    def committed(self, member_id: str) -> None:
        """Note a sign of life: this member has committed offsets."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads a topic, so that its offsets stay."""
        ...

    def offsets_age_from(self, commit_timestamp_ms: int) -> int | None:
        """Return the time from which a commit's retention counts; None while it does not count."""
        ...

    def tombstones(self) -> list[KeyValue]:
        """Return the records that remove the group from the log."""
        ...

    def described(self) -> dict[str, Any]:
        """Return the fields that DescribeGroups shows of it."""
        ...

    def stop(self) -> None:
        """Answer requests that wait and end timers: the gateway stops, or the group is gone."""
        ...
