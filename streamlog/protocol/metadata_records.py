"""Records of a KRaft cluster's own log, `__cluster_metadata-0`: what a broker knows its topics by.

The value of each record is a message of Kafka's, in its flexible encoding:

    | frame 1 | api key | version | fields … | tagged fields |     the first three are uvarints

Strings and arrays are preceded by their length plus one as a uvarint, a length of 0 means null;
ids are 16 bytes; numbers are big-endian. Only the records that tell of topics are understood
here. All others are kept as bytes: what they say of users and quotas holds wherever they go.
"""

import base64
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from streamlog.errors import CorruptRecordError

__all__ = [
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
_FRAME_VERSION: Final = 1
_DIRECTORIES_SINCE: Final = 1  # version of PartitionRecord that has directory ids
_LEADER_TAG: Final = 1  # of PartitionChangeRecord
_REPLICAS_TAG: Final = 2
_UVARINT_MAX_SIZE: Final = 5
_UUID_SIZE: Final = 16


class MetadataRecordType(IntEnum):
    """Which message a record holds; the value is its api key.

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
    """A topic is made."""

    name: str
    topic_id: str


class PartitionRecord(NamedTuple):
    """A partition is made, or stands like this.

    Attributes:
        topic_id: Of its topic.
        partition: Its number.
        replicas: The nodes that hold it; here all of them are in sync.
        leader: The node that leads it, -1 for none.
        leader_epoch: The epoch of that leader.
        directories: The id of the log.dir that holds it, for each replica.
    """

    topic_id: str
    partition: int
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    directories: tuple[str, ...] = ()


class PartitionChangeRecord(NamedTuple):
    """A partition changes; a leader that is given starts a new epoch, even if it is the old one."""

    topic_id: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...] | None


class ConfigRecord(NamedTuple):
    """A setting gets a value, or loses the one it had (None)."""

    resource_type: int
    resource_name: str
    key: str
    value: str | None


class RemoveTopicRecord(NamedTuple):
    """A topic goes, with all that is its own."""

    topic_id: str


class ProducerIdsRecord(NamedTuple):
    """Producer ids below this one are given away."""

    next_producer_id: int


class FeatureLevelRecord(NamedTuple):
    """A feature, such as `metadata.version`, is in force at this level."""

    name: str
    level: int


class OtherRecord(NamedTuple):
    """Any other record, as it is."""

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


# ---- reading --------------------------------------------------------------------------------
def decode_metadata_record(data: bytes) -> MetadataRecord:
    """Return what the value of a record says.

    Raises:
        CorruptRecordError: It is no such message.

    Source: org.apache.kafka.server.common.serialization.AbstractApiMessageSerde.
    """
    fields = _Fields(data)
    frame, api_key, version = fields.uvarint(), fields.uvarint(), fields.uvarint()
    if frame != _FRAME_VERSION:
        raise _malformed(data, f"frame version {frame}", _FRAME_VERSION)
    match api_key:
        case MetadataRecordType.TOPIC:
            return TopicRecord(fields.string(), fields.uuid())
        case MetadataRecordType.PARTITION:
            return _decode_partition(fields, version)
        case MetadataRecordType.CONFIG:
            resource_type = fields.int8()
            name, key = fields.string(), fields.string()
            return ConfigRecord(resource_type, name, key, fields.nullable_string())
        case MetadataRecordType.PARTITION_CHANGE:
            return _decode_partition_change(fields)
        case MetadataRecordType.REMOVE_TOPIC:
            return RemoveTopicRecord(fields.uuid())
        case MetadataRecordType.PRODUCER_IDS:
            fields.int32(), fields.int64()  # whose block was the last, and that broker's epoch
            return ProducerIdsRecord(fields.int64())
        case MetadataRecordType.FEATURE_LEVEL:
            return FeatureLevelRecord(fields.string(), fields.int16())
    return OtherRecord(api_key, data)


def _decode_partition(fields: "_Fields", version: int) -> PartitionRecord:
    partition, topic_id = fields.int32(), fields.uuid()
    replicas = fields.int32s()
    for _ in ("isr", "removing replicas", "adding replicas"):
        fields.int32s()
    leader, leader_epoch = fields.int32(), fields.int32()
    fields.int32()  # partition epoch
    directories = fields.uuids() if version >= _DIRECTORIES_SINCE else ()
    return PartitionRecord(topic_id, partition, replicas, leader, leader_epoch, directories)


def _decode_partition_change(fields: "_Fields") -> PartitionChangeRecord:
    partition, topic_id = fields.int32(), fields.uuid()
    leader = replicas = None
    for tag, value in fields.tagged():
        if tag == _LEADER_TAG:
            leader = value.int32()
        elif tag == _REPLICAS_TAG:
            replicas = value.int32s()
    return PartitionChangeRecord(topic_id, partition, leader, replicas)


class _Fields:
    """A message's fields, one after the other; every read is within the bytes there are."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise _malformed(self._data, f"{len(self._data)} bytes", f"at least {end}")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def uvarint(self) -> int:
        value = 0
        for turn in range(_UVARINT_MAX_SIZE):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * turn
            if byte < 0x80:
                return value
        raise _malformed(self._data, "an unsigned varint of more bytes", _UVARINT_MAX_SIZE)

    def int8(self) -> int:
        return int.from_bytes(self.take(1), "big", signed=True)

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def uuid(self) -> str:
        return base64.urlsafe_b64encode(self.take(_UUID_SIZE)).decode("ascii").rstrip("=")

    def nullable_string(self) -> str | None:
        length = self.uvarint()
        if length == 0:
            return None
        try:
            return self.take(length - 1).decode("utf-8")
        except UnicodeDecodeError as error:
            raise _malformed(self._data, "a string that is not UTF-8", "UTF-8") from error

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise _malformed(self._data, "null", "a string")
        return text

    def int32s(self) -> tuple[int, ...]:
        count = max(0, self.uvarint() - 1)
        return struct.unpack(f">{count}i", self.take(4 * count))

    def uuids(self) -> tuple[str, ...]:
        count = max(0, self.uvarint() - 1)
        rest = _Fields(self.take(_UUID_SIZE * count))
        return tuple(rest.uuid() for _ in range(count))

    def tagged(self) -> Iterator[tuple[int, "_Fields"]]:
        for _ in range(self.uvarint()):
            tag, size = self.uvarint(), self.uvarint()
            yield tag, _Fields(self.take(size))


def _malformed(data: bytes, got: object, expected: object) -> CorruptRecordError:
    return CorruptRecordError(
        f"not a record of cluster metadata: {data[:40].hex()}", got=got, expected=expected
    )


# ---- writing --------------------------------------------------------------------------------
def encode_metadata_record(record: MetadataRecord) -> bytes:
    """Return the value of the record that says this.

    Partitions are written as those of one log.dir that all replicas share the fate of: everyone
    who holds them is in sync.

    Source: org.apache.kafka.common.metadata.PartitionRecord and its siblings.
    """
    match record:
        case TopicRecord():
            body = _string(record.name) + _uuid(record.topic_id)
            return _framed(MetadataRecordType.TOPIC, body)
        case PartitionRecord():
            return _encode_partition(record)
        case ConfigRecord():
            texts = _string(record.resource_name) + _string(record.key) + _string(record.value)
            body = struct.pack(">b", record.resource_type) + texts
            return _framed(MetadataRecordType.CONFIG, body)
        case PartitionChangeRecord():
            tagged = {}
            if record.leader is not None:
                tagged[_LEADER_TAG] = struct.pack(">i", record.leader)
            if record.replicas is not None:
                tagged[_REPLICAS_TAG] = _int32s(record.replicas)
            body = struct.pack(">i", record.partition) + _uuid(record.topic_id)
            return _framed(MetadataRecordType.PARTITION_CHANGE, body, tagged=tagged)
        case RemoveTopicRecord():
            return _framed(MetadataRecordType.REMOVE_TOPIC, _uuid(record.topic_id))
        case ProducerIdsRecord():
            body = struct.pack(">iqq", -1, -1, record.next_producer_id)
            return _framed(MetadataRecordType.PRODUCER_IDS, body)
        case FeatureLevelRecord():
            body = _string(record.name) + struct.pack(">h", record.level)
            return _framed(MetadataRecordType.FEATURE_LEVEL, body)
        case OtherRecord():
            return record.data


def _encode_partition(record: PartitionRecord) -> bytes:
    replicas = _int32s(record.replicas)
    body = struct.pack(">i", record.partition) + _uuid(record.topic_id)
    body += replicas + replicas + _int32s(()) + _int32s(())
    body += struct.pack(">iii", record.leader, record.leader_epoch, 0)
    body += _uvarint(len(record.directories) + 1) + b"".join(map(_uuid, record.directories))
    return _framed(MetadataRecordType.PARTITION, body, version=_DIRECTORIES_SINCE)


def _framed(
    api_key: int, body: bytes, *, version: int = 0, tagged: dict[int, bytes] | None = None
) -> bytes:
    front = _uvarint(_FRAME_VERSION) + _uvarint(api_key) + _uvarint(version)
    tags = [
        _uvarint(tag) + _uvarint(len(value)) + value
        for tag, value in sorted((tagged or {}).items())
    ]
    return front + body + _uvarint(len(tags)) + b"".join(tags)


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _string(text: str | None) -> bytes:
    if text is None:
        return _uvarint(0)
    data = text.encode("utf-8")
    return _uvarint(len(data) + 1) + data


def _uuid(text: str) -> bytes:
    return base64.urlsafe_b64decode(f"{text}==")


def _int32s(values: tuple[int, ...]) -> bytes:
    return _uvarint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)
