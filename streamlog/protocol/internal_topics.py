"""Records of `__consumer_offsets` and `__transaction_state`, the internal topics of brokers.

    key    int16 type, then the fields of that type's key
    value  int16 version, then the fields of that version; null removes the entry of the key

Records of Streams groups and share groups are not decoded.

Source: the message definitions of Kafka's group coordinator and transaction coordinator, 4.2.0.
"""

import base64
import struct
from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

from streamlog.errors import CorruptRecordError
from streamlog.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL,
    decode_consumer_assignment,
    decode_consumer_subscription,
)
from streamlog.protocol.messages import Field, Message
from streamlog.records.record import Record

__all__ = [
    "Decoder",
    "InternalRecord",
    "OffsetsKey",
    "decode_internal",
    "encode_internal",
    "parse_internal",
]


class Decoder(Enum):
    """The internal topic that records belong to."""

    OFFSETS = "__consumer_offsets"
    TRANSACTIONS = "__transaction_state"


class OffsetsKey(IntEnum):
    """The type of a record of `__consumer_offsets`: the number that its key begins with.

    Source: org.apache.kafka.coordinator.group.generated.CoordinatorRecordType.
    """

    OFFSET_COMMIT = 1
    CLASSIC_GROUP = 2
    CONSUMER_GROUP = 3
    CONSUMER_GROUP_PARTITIONS = 4
    CONSUMER_GROUP_MEMBER = 5
    CONSUMER_GROUP_TARGET = 6
    CONSUMER_GROUP_TARGET_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER = 8
    CONSUMER_GROUP_REGEX = 16


def _message(name: str, *fields: Field, versions: str = "0", flexible: str = "none") -> Message:
    return Message(name, *fields, versions=versions, flexible=flexible, text_errors="replace")


# ---- __consumer_offsets -------------------------------------------------------------------------
_COMMIT_KEY: Final = _message(
    "OffsetCommitKey",
    Field("group", "string"),
    Field("topic", "string"),
    Field("partition", "int32"),
)
_COMMIT: Final = _message(
    "OffsetCommitValue",
    Field("offset", "int64"),
    Field("leaderEpoch", "int32", "3+"),
    Field("metadata", "string"),
    Field("commitTimestamp", "int64"),
    Field("expireTimestamp", "int64", "1"),
    Field("topicId", "uuid", "4+", tag=0),
    versions="0-4",
    flexible="4+",
)
_CLASSIC_GROUP_KEY: Final = _message("GroupMetadataKey", Field("group", "string"))
_CLASSIC_MEMBER: Final = (
    Field("memberId", "string"),
    Field("groupInstanceId", "string", "3+", nullable="3+"),
    Field("clientId", "string"),
    Field("clientHost", "string"),
    Field("rebalanceTimeout", "int32", "1+"),
    Field("sessionTimeout", "int32"),
    Field("subscription", "bytes"),
    Field("assignment", "bytes"),
)
_CLASSIC_GROUP: Final = _message(
    "GroupMetadataValue",
    Field("protocolType", "string"),
    Field("generation", "int32"),
    Field("protocol", "string", nullable="0+"),
    Field("leader", "string", nullable="0+"),
    Field("currentStateTimestamp", "int64", "2+"),
    Field("members", "[]MemberMetadata", fields=_CLASSIC_MEMBER),
    versions="0-4",
    flexible="4+",
)
_GROUP_KEY: Final = _message("ConsumerGroupMetadataKey", Field("groupId", "string"))
_MEMBER_KEY: Final = _message(
    "ConsumerGroupMemberMetadataKey", Field("groupId", "string"), Field("memberId", "string")
)
_REGEX_KEY: Final = _message(
    "ConsumerGroupRegularExpressionKey",
    Field("groupId", "string"),
    Field("regularExpression", "string"),
)
_ASSIGNED: Final = (Field("topicId", "uuid"), Field("partitions", "[]int32"))
_PARTITIONS: Final = (
    Field("topicId", "uuid"),
    Field("topicName", "string"),
    Field("numPartitions", "int32"),
    Field(
        "partitionMetadata",
        "[]PartitionMetadata",
        fields=(Field("partition", "int32"), Field("racks", "[]string")),
    ),
)
_GROUP: Final = _message(
    "ConsumerGroupMetadataValue",
    Field("epoch", "int32"),
    Field("metadataHash", "int64", tag=0),
    flexible="0+",
)
_GROUP_PARTITIONS: Final = _message(
    "ConsumerGroupPartitionMetadataValue",
    Field("topics", "[]TopicMetadata", fields=_PARTITIONS),
    flexible="0+",
)
_CLASSIC_METADATA: Final = (
    Field("sessionTimeoutMs", "int32"),
    Field(
        "supportedProtocols",
        "[]ClassicProtocol",
        fields=(Field("name", "string"), Field("metadata", "bytes")),
    ),
)
_MEMBER: Final = _message(
    "ConsumerGroupMemberMetadataValue",
    Field("instanceId", "string", nullable="0+"),
    Field("rackId", "string", nullable="0+"),
    Field("clientId", "string"),
    Field("clientHost", "string"),
    Field("subscribedTopicNames", "[]string"),
    Field("subscribedTopicRegex", "string", nullable="0+"),
    Field("rebalanceTimeoutMs", "int32"),
    Field("serverAssignor", "string", nullable="0+"),
    # A broker takes a member without this field for a classic one: its null has to be written.
    Field(
        "classicMemberMetadata",
        "ClassicMemberMetadata",
        nullable="0+",
        tag=0,
        fields=_CLASSIC_METADATA,
    ),
    flexible="0+",
)
_TARGET: Final = _message(
    "ConsumerGroupTargetAssignmentMetadataValue", Field("assignmentEpoch", "int32"), flexible="0+"
)
_TARGET_MEMBER: Final = _message(
    "ConsumerGroupTargetAssignmentMemberValue",
    Field("topicPartitions", "[]TopicPartition", fields=_ASSIGNED),
    flexible="0+",
)
_CURRENT: Final = _message(
    "ConsumerGroupCurrentMemberAssignmentValue",
    Field("memberEpoch", "int32"),
    Field("previousMemberEpoch", "int32"),
    Field("state", "int8"),
    Field("assignedPartitions", "[]TopicPartitions", fields=_ASSIGNED),
    Field("partitionsPendingRevocation", "[]TopicPartitions", fields=_ASSIGNED),
    flexible="0+",
)
_REGEX: Final = _message(
    "ConsumerGroupRegularExpressionValue",
    Field("topics", "[]string"),
    Field("version", "int64"),
    Field("timestamp", "int64"),
    flexible="0+",
)

# ---- __transaction_state ------------------------------------------------------------------------
_TRANSACTION_KEY: Final = _message("TransactionLogKey", Field("transactionalId", "string"))
_TRANSACTION: Final = _message(
    "TransactionLogValue",
    Field("producerId", "int64"),
    Field("producerEpoch", "int16"),
    Field("transactionTimeoutMs", "int32"),
    Field("transactionStatus", "int8"),
    Field(
        "transactionPartitions",
        "[]PartitionsSchema",
        nullable="0+",
        fields=(Field("topic", "string"), Field("partitionIds", "[]int32")),
    ),
    Field("transactionLastUpdateTimestampMs", "int64"),
    Field("transactionStartTimestampMs", "int64"),
    Field("previousProducerId", "int64", "1+", tag=0, default=-1),
    Field("nextProducerId", "int64", "1+", tag=1, default=-1),
    Field("clientTransactionVersion", "int16", "1+", tag=2, default=0),
    Field("nextProducerEpoch", "int16", "1+", tag=3, default=-1),
    versions="0-1",
    flexible="1+",
)


_NUMBER: Final = struct.Struct(">h")


class _Type(NamedTuple):
    """A type of record: its key and its value."""

    key: Message
    value: Message


_TYPES: Final = {
    Decoder.OFFSETS: {
        0: _Type(_COMMIT_KEY, _COMMIT),
        1: _Type(_COMMIT_KEY, _COMMIT),
        2: _Type(_CLASSIC_GROUP_KEY, _CLASSIC_GROUP),
        3: _Type(_GROUP_KEY, _GROUP),
        4: _Type(_GROUP_KEY, _GROUP_PARTITIONS),
        5: _Type(_MEMBER_KEY, _MEMBER),
        6: _Type(_GROUP_KEY, _TARGET),
        7: _Type(_MEMBER_KEY, _TARGET_MEMBER),
        8: _Type(_MEMBER_KEY, _CURRENT),
        16: _Type(_REGEX_KEY, _REGEX),
    },
    Decoder.TRANSACTIONS: {0: _Type(_TRANSACTION_KEY, _TRANSACTION)},
}


# ---- encoding -----------------------------------------------------------------------------------
def encode_internal(
    decoder: Decoder,
    kind: int,
    key: Mapping[str, Any],
    value: Mapping[str, Any] | None = None,
    *,
    version: int = 0,
) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record, the value None for a removal.

    Args:
        decoder: The topic.
        kind: The type of the record, such as an `OffsetsKey`; 0 for a transaction.
        key: The fields of its key.
        value: The fields of its value.
        version: The version that the value is written in.

    Raises:
        InvalidRequestError: A field is missing or outside its type.
    """
    found = _TYPES[decoder][kind]
    encoded = _NUMBER.pack(kind) + found.key.encode(key, 0)
    if value is None:
        return encoded, None
    return encoded, _NUMBER.pack(version) + found.value.encode(value, version)


# ---- decoding -----------------------------------------------------------------------------------
class InternalRecord(NamedTuple):
    """A decoded record.

    Attributes:
        kind: The type of its key.
        key: The fields of its key.
        version: The version of its value; -1 for a removal.
        value: The fields of its value; None for a removal.
    """

    kind: int
    key: dict[str, Any]
    version: int
    value: dict[str, Any] | None


def parse_internal(
    decoder: Decoder, key: bytes | None, value: bytes | None
) -> InternalRecord | None:
    """Decode key and value of a record.

    Returns:
        The record; None where type or version are unknown, or the bytes are malformed.
    """
    if key is None:
        return None
    try:
        kind = _number_of(key)
        found = _TYPES[decoder].get(kind)
        if found is None:
            return None
        fields = found.key.decode(key, 0, 2).values
        if value is None:
            return InternalRecord(kind, fields, -1, None)
        version = _number_of(value)
        return InternalRecord(kind, fields, version, found.value.decode(value, version, 2).values)
    except CorruptRecordError:
        return None


def decode_internal(
    decoder: Decoder, record: Record
) -> tuple[dict[str, Any], dict[str, Any] | None] | None:
    """Decode a record of an internal topic into objects for JSON.

    Args:
        decoder: The topic.
        record: The record.

    Returns:
        Key and value, the value None for a removal. None where type or version are unknown, or
        the bytes are malformed.

    Source: OffsetsMessageParser, TransactionLogMessageParser of kafka.tools.DumpLogSegments.
    """
    parsed = parse_internal(decoder, record.key, record.value)
    if parsed is None:
        return None
    key = {"type": str(parsed.kind), "data": _as_json(parsed.key)}
    if parsed.value is None:
        return key, None
    if parsed.value.get("protocolType") == CONSUMER_PROTOCOL:
        try:
            _decode_members(parsed.value["members"])
        except CorruptRecordError:
            return None
    return key, {"version": str(parsed.version), "data": _as_json(parsed.value)}


def _decode_members(members: list[dict[str, Any]]) -> None:
    """Replace the bytes of members by the messages of the consumer protocol they hold."""
    for member in members:
        if member["subscription"]:
            member["subscription"] = decode_consumer_subscription(member["subscription"])
        if member["assignment"]:
            member["assignment"] = decode_consumer_assignment(member["assignment"])


def _number_of(data: bytes) -> int:
    """Return the int16 that keys and values begin with."""
    if len(data) < 2:
        raise CorruptRecordError("record is too short", got=f"{len(data)} bytes", expected=2)
    number: int = _NUMBER.unpack_from(data)[0]
    return number


def _as_json(value: Any) -> Any:
    """Return a value with base64 in place of bytes."""
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value
