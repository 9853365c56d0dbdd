"""What consumers say in a classic group: the bytes of their subscriptions and assignments.

    int16 version, then the fields of that version

Source: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json,
org.apache.kafka.clients.consumer.internals.ConsumerProtocol; Kafka 4.2.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from streamlog.errors import CorruptRecordError
from streamlog.protocol.messages import Field, Message

__all__ = [
    "CONSUMER_PROTOCOL",
    "ConsumerSubscription",
    "decode_consumer_assignment",
    "decode_consumer_subscription",
    "encode_consumer_assignment",
    "parse_assignment",
    "parse_subscription",
    "subscribed_topics",
]

CONSUMER_PROTOCOL: Final = "consumer"  # ConsumerProtocol.PROTOCOL_TYPE
_LATEST: Final = 3
_NUMBER: Final = struct.Struct(">h")

_OWNED: Final = (Field("topic", "string"), Field("partitions", "[]int32"))
_SUBSCRIPTION: Final = Message(
    "ConsumerProtocolSubscription",
    Field("topics", "[]string"),
    Field("userData", "bytes", nullable="0+"),
    Field("ownedPartitions", "[]TopicPartition", "1+", fields=_OWNED),
    Field("generationId", "int32", "2+"),
    Field("rackId", "string", "3+", nullable="3+"),
    versions="0-3",
    flexible="none",
    text_errors="replace",
)
_ASSIGNMENT: Final = Message(
    "ConsumerProtocolAssignment",
    Field("assignedPartitions", "[]TopicPartition", fields=_OWNED),
    Field("userData", "bytes", nullable="0+"),
    versions="0-3",
    flexible="none",
    text_errors="replace",
)


class ConsumerSubscription(NamedTuple):
    """What a consumer says when it joins.

    Attributes:
        version: The version of its bytes.
        topics: The names it subscribes to.
        owned: The partitions it has, by topic name.
        rack_id: Its rack; None if unknown.
    """

    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None


def decode_consumer_subscription(data: bytes) -> dict[str, Any]:
    """Return the fields of a subscription.

    Raises:
        CorruptRecordError: The bytes hold no subscription.
    """
    return _SUBSCRIPTION.decode(data, _version_of(data), 2).values


def decode_consumer_assignment(data: bytes) -> dict[str, Any]:
    """Return the fields of an assignment.

    Raises:
        CorruptRecordError: The bytes hold no assignment.
    """
    return _ASSIGNMENT.decode(data, _version_of(data), 2).values


def parse_subscription(data: bytes) -> ConsumerSubscription:
    """Return what a consumer said when it joined.

    Raises:
        CorruptRecordError: The bytes hold no subscription.
    """
    values = decode_consumer_subscription(data)
    owned = _by_topic(values.get("ownedPartitions") or ())
    topics = tuple(sorted(set(values["topics"])))
    return ConsumerSubscription(_version_of(data), topics, owned, values.get("rackId") or None)


def parse_assignment(data: bytes) -> tuple[Mapping[str, frozenset[int]], bytes]:
    """Return the partitions that a leader assigned by topic name, and its assignor's own bytes.

    Raises:
        CorruptRecordError: The bytes hold no assignment.
    """
    values = decode_consumer_assignment(data)
    return _by_topic(values["assignedPartitions"]), values["userData"] or b""


def encode_consumer_assignment(assigned: Mapping[str, frozenset[int]], version: int) -> bytes:
    """Return the bytes that assign partitions, given by topic name, to a consumer."""
    topics = [{"topic": each, "partitions": sorted(assigned[each])} for each in sorted(assigned)]
    values = {"assignedPartitions": topics, "userData": None}
    return _NUMBER.pack(version) + _ASSIGNMENT.encode(values, version)


def subscribed_topics(subscription: bytes) -> list[str]:
    """Return the topics that a consumer of a classic group subscribes to.

    Args:
        subscription: What it sent as its metadata when it joined.

    Raises:
        CorruptRecordError: The bytes hold no subscription.
    """
    # Version 0 is the beginning of all versions; that is how Kafka's coordinator reads them.
    topics: list[str] = _SUBSCRIPTION.decode(subscription, 0, 2).values["topics"]
    return topics


def _by_topic(topics: Any) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for each in topics:
        numbers = frozenset(each["partitions"])
        found[each["topic"]] = found.get(each["topic"], frozenset()) | numbers
    return found


def _version_of(data: bytes) -> int:
    """Return the version of bytes; of a newer one the fields known here come first."""
    if len(data) < _NUMBER.size:
        raise CorruptRecordError("bytes are too short", got=f"{len(data)} bytes", expected=2)
    version: int = _NUMBER.unpack_from(data)[0]
    if version < 0:
        raise CorruptRecordError("negative version", got=version)
    return min(version, _LATEST)
