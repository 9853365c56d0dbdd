"""Records of `__cluster_metadata-0`, a KRaft cluster's own log, which hold its topics.

The value of each record is a message in a frame:

    | frame 1 | api key | version | message |     the first three are unsigned varints

Only records about topics are decoded. All others, of users and quotas for instance, stay bytes,
so that they can be written again as they were.

Source: the message definitions of Kafka's metadata module, 4.2.0.
"""

from enum import IntEnum
from typing import Any, Final, NamedTuple

from streamlog.errors import CorruptRecordError
from streamlog.protocol.messages import (
    Field,
    Message,
    read_unsigned_varint,
    write_unsigned_varint,
)

__all__ = [
    "GROUP_RESOURCE",
    "NO_LEADER",
    "TOPIC_RESOURCE",
    "ConfigRecord",
    "FeatureLevelRecord",
    "MetadataRecord",
    "MetadataRecordType",
    "OtherRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RemoveTopicRecord",
    "TopicRecord",
    "decode_metadata_record",
    "encode_metadata_record",
]

NO_LEADER: Final = -1  # LeaderConstants.NO_LEADER
TOPIC_RESOURCE: Final = 2  # ConfigResource.Type.TOPIC
GROUP_RESOURCE: Final = 32  # ConfigResource.Type.GROUP
_FRAME_VERSION: Final = 1


class MetadataRecordType(IntEnum):
    """The message of a record; the value is its api key.

    Source: org.apache.kafka.common.metadata.MetadataRecordType.
    """

    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    REMOVE_TOPIC = 9
    DELEGATION_TOKEN = 10
    USER_SCRAM_CREDENTIAL = 11
    FEATURE_LEVEL = 12
    CLIENT_QUOTA = 14
    PRODUCER_IDS = 15
    ACCESS_CONTROL_ENTRY = 18
    REMOVE_ACCESS_CONTROL_ENTRY = 19
    REMOVE_USER_SCRAM_CREDENTIAL = 22
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25
    REMOVE_DELEGATION_TOKEN = 26


class TopicRecord(NamedTuple):
    """A new topic."""

    name: str
    topic_id: str


class PartitionRecord(NamedTuple):
    """A new partition, or the state of a partition.

    Attributes:
        topic_id: The id of its topic.
        partition: Its number.
        replicas: The nodes with a replica; here all of them are in sync.
        leader: The leader's node, -1 for none.
        leader_epoch: The leader's epoch.
        directories: The id of each replica's log.dir.
    """

    topic_id: str
    partition: int
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    directories: tuple[str, ...] = ()


class PartitionChangeRecord(NamedTuple):
    """A change of a partition; any leader, even the same one, starts a new epoch."""

    topic_id: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...] | None


class ConfigRecord(NamedTuple):
    """A new value of a setting; None removes it."""

    resource_type: int
    resource_name: str
    key: str
    value: str | None


class RemoveTopicRecord(NamedTuple):
    """The deletion of a topic, with its partitions and settings."""

    topic_id: str


class ProducerIdsRecord(NamedTuple):
    """All producer ids below this one are assigned."""

    next_producer_id: int


class FeatureLevelRecord(NamedTuple):
    """The level of a feature such as `metadata.version`."""

    name: str
    level: int


class OtherRecord(NamedTuple):
    """Any other record, not decoded."""

    api_key: int
    data: bytes


MetadataRecord = (
    TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | RemoveTopicRecord
    | ProducerIdsRecord
    | FeatureLevelRecord
    | OtherRecord
)


_MESSAGES: Final[dict[int, Message]] = {
    MetadataRecordType.TOPIC: Message(
        "TopicRecord", Field("name", "string"), Field("topicId", "uuid"), flexible="0+"
    ),
    MetadataRecordType.PARTITION: Message(
        "PartitionRecord",
        Field("partitionId", "int32"),
        Field("topicId", "uuid"),
        Field("replicas", "[]int32"),
        Field("isr", "[]int32"),
        Field("removingReplicas", "[]int32"),
        Field("addingReplicas", "[]int32"),
        Field("leader", "int32"),
        Field("leaderEpoch", "int32"),
        Field("partitionEpoch", "int32"),
        Field("directories", "[]uuid", "1+"),
        versions="0-2",
        flexible="0+",
    ),
    MetadataRecordType.CONFIG: Message(
        "ConfigRecord",
        Field("resourceType", "int8"),
        Field("resourceName", "string"),
        Field("name", "string"),
        Field("value", "string", nullable="0+"),
        flexible="0+",
    ),
    MetadataRecordType.PARTITION_CHANGE: Message(
        "PartitionChangeRecord",
        Field("partitionId", "int32"),
        Field("topicId", "uuid"),
        Field("leader", "int32", tag=1),
        Field("replicas", "[]int32", nullable="0+", tag=2, default=None),
        versions="0-2",
        flexible="0+",
    ),
    MetadataRecordType.REMOVE_TOPIC: Message(
        "RemoveTopicRecord", Field("topicId", "uuid"), flexible="0+"
    ),
    MetadataRecordType.PRODUCER_IDS: Message(
        "ProducerIdsRecord",
        Field("brokerId", "int32"),
        Field("brokerEpoch", "int64"),
        Field("nextProducerId", "int64"),
        flexible="0+",
    ),
    MetadataRecordType.FEATURE_LEVEL: Message(
        "FeatureLevelRecord",
        Field("name", "string"),
        Field("featureLevel", "int16"),
        flexible="0+",
    ),
}


# ---- decoding -----------------------------------------------------------------------------------
def decode_metadata_record(data: bytes) -> MetadataRecord:
    """Decode the value of a record.

    Raises:
        CorruptRecordError: The frame or the message is malformed, or of an unknown version.

    Source: org.apache.kafka.server.common.serialization.AbstractApiMessageSerde.
    """
    try:
        return _decode_framed(data)
    except CorruptRecordError as error:
        raise CorruptRecordError(
            f"cluster metadata record {data[:40].hex()}: {error.what}",
            position=error.position,
            got=error.got,
            expected=error.expected,
        ) from error


def _decode_framed(data: bytes) -> MetadataRecord:
    frame, at = read_unsigned_varint(data, 0, len(data))
    if frame != _FRAME_VERSION:
        raise CorruptRecordError("unknown frame version", got=frame, expected=_FRAME_VERSION)
    api_key, at = read_unsigned_varint(data, at, len(data))
    version, at = read_unsigned_varint(data, at, len(data))
    message = _MESSAGES.get(api_key)
    if message is None:
        return OtherRecord(api_key, data)
    return _record_of(api_key, message.decode(data, version, at).values)


def _record_of(api_key: int, values: dict[str, Any]) -> MetadataRecord:
    match api_key:
        case MetadataRecordType.TOPIC:
            return TopicRecord(values["name"], values["topicId"])
        case MetadataRecordType.PARTITION:
            return PartitionRecord(
                topic_id=values["topicId"],
                partition=values["partitionId"],
                replicas=tuple(values["replicas"]),
                leader=values["leader"],
                leader_epoch=values["leaderEpoch"],
                directories=tuple(values.get("directories", ())),
            )
        case MetadataRecordType.CONFIG:
            names = values["resourceName"], values["name"]
            return ConfigRecord(values["resourceType"], *names, values["value"])
        case MetadataRecordType.PARTITION_CHANGE:
            replicas = values.get("replicas")
            return PartitionChangeRecord(
                topic_id=values["topicId"],
                partition=values["partitionId"],
                leader=values.get("leader"),
                replicas=None if replicas is None else tuple(replicas),
            )
        case MetadataRecordType.REMOVE_TOPIC:
            return RemoveTopicRecord(values["topicId"])
        case MetadataRecordType.PRODUCER_IDS:
            return ProducerIdsRecord(values["nextProducerId"])
    return FeatureLevelRecord(values["name"], values["featureLevel"])


# ---- encoding -----------------------------------------------------------------------------------
def encode_metadata_record(record: MetadataRecord) -> bytes:
    """Return the value of a record; all replicas of a partition are in sync.

    Source: org.apache.kafka.common.metadata.PartitionRecord and its siblings.
    """
    match record:
        case TopicRecord():
            values: dict[str, Any] = {"name": record.name, "topicId": record.topic_id}
            return _framed(MetadataRecordType.TOPIC, values)
        case PartitionRecord():
            return _encode_partition(record)
        case ConfigRecord():
            values = {
                "resourceType": record.resource_type,
                "resourceName": record.resource_name,
                "name": record.key,
                "value": record.value,
            }
            return _framed(MetadataRecordType.CONFIG, values)
        case PartitionChangeRecord():
            values = {"partitionId": record.partition, "topicId": record.topic_id}
            if record.leader is not None:
                values["leader"] = record.leader
            if record.replicas is not None:
                values["replicas"] = record.replicas
            return _framed(MetadataRecordType.PARTITION_CHANGE, values)
        case RemoveTopicRecord():
            return _framed(MetadataRecordType.REMOVE_TOPIC, {"topicId": record.topic_id})
        case ProducerIdsRecord():
            # No broker was given this block: the next one starts after it.
            values = {"brokerId": -1, "brokerEpoch": -1, "nextProducerId": record.next_producer_id}
            return _framed(MetadataRecordType.PRODUCER_IDS, values)
        case FeatureLevelRecord():
            values = {"name": record.name, "featureLevel": record.level}
            return _framed(MetadataRecordType.FEATURE_LEVEL, values)
        case OtherRecord():
            return record.data


def _encode_partition(record: PartitionRecord) -> bytes:
    values = {
        "partitionId": record.partition,
        "topicId": record.topic_id,
        "replicas": record.replicas,
        "isr": record.replicas,
        "removingReplicas": (),
        "addingReplicas": (),
        "leader": record.leader,
        "leaderEpoch": record.leader_epoch,
        "partitionEpoch": 0,
        "directories": record.directories,
    }
    return _framed(MetadataRecordType.PARTITION, values, version=1)  # the first with directories


def _framed(api_key: MetadataRecordType, values: dict[str, Any], *, version: int = 0) -> bytes:
    out = bytearray()
    for number in (_FRAME_VERSION, api_key, version):
        write_unsigned_varint(out, number)
    return bytes(out) + _MESSAGES[api_key].encode(values, version)
