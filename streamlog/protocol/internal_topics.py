"""What brokers keep in `__consumer_offsets` and `__transaction_state`: records taken apart.

    key    int16 type, then the fields of that type's key
    value  int16 version, then the fields of that version; null removes what the key names

The fields stand one behind the other as in Kafka's protocol. In a *flexible* version strings and
lists begin with their length plus one as an unsigned varint, and each structure ends in tagged
fields, of which unknown ones are passed over. Streams and share groups' values are not taken
apart.

Source: the message definitions of Kafka's group coordinator and transaction coordinator, 4.2.0.
"""

import base64
import struct
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from streamlog.errors import CorruptRecordError
from streamlog.records.record import Record

__all__ = ["Decoder", "decode_internal"]


class Decoder(Enum):
    """Of which internal topic records are."""

    OFFSETS = "__consumer_offsets"
    TRANSACTIONS = "__transaction_state"


class _List(NamedTuple):
    """A list of numbers, strings or structures; null where it may be."""

    element: "str | _Struct"


class _Struct(NamedTuple):
    """Fields in order, and those that may follow by tag.

    Attributes:
        fields: Names and types: `i8` to `i64`, `uuid`, `text`, `bytes`, a list, a structure.
        is_flexible: Whether lengths are varints and tagged fields follow.
        tagged: Names and types by tag.
    """

    fields: "Mapping[str, str | _List | _Struct]"
    is_flexible: bool = False
    tagged: Mapping[int, tuple[str, str]] | None = None


def _flexible(
    fields: Mapping[str, Any], tagged: Mapping[int, tuple[str, str]] | None = None
) -> _Struct:
    return _Struct(fields, is_flexible=True, tagged=tagged)


# ---- __consumer_offsets -----------------------------------------------------------------------
_GROUP: Final = _Struct({"groupId": "text"})
_MEMBER_OF_GROUP: Final = _Struct({"groupId": "text", "memberId": "text"})
_COMMITTED: Final = _Struct({"group": "text", "topic": "text", "partition": "i32"})
_ASSIGNED: Final = _List(_flexible({"topicId": "uuid", "partitions": _List("i32")}))

_OFFSET: Final = {"offset": "i64", "metadata": "text", "commitTimestamp": "i64"}
_OFFSET_WITH_EPOCH: Final = {
    "offset": "i64",
    "leaderEpoch": "i32",
    "metadata": "text",
    "commitTimestamp": "i64",
}
_OFFSETS: Final = {
    0: _Struct(_OFFSET),
    1: _Struct({**_OFFSET, "expireTimestamp": "i64"}),
    2: _Struct(_OFFSET),
    3: _Struct(_OFFSET_WITH_EPOCH),
    4: _flexible(_OFFSET_WITH_EPOCH, {0: ("topicId", "uuid")}),
}


def _group_metadata(version: int) -> _Struct:
    """Return the value of a classic group."""
    member: dict[str, str] = {"memberId": "text"}
    if version >= 3:
        member["groupInstanceId"] = "text"
    member |= {"clientId": "text", "clientHost": "text"}
    if version >= 1:
        member["rebalanceTimeout"] = "i32"
    member |= {"sessionTimeout": "i32", "subscription": "bytes", "assignment": "bytes"}
    group: dict[str, Any] = {"protocolType": "text", "generation": "i32"}
    group |= {"protocol": "text", "leader": "text"}
    if version >= 2:
        group["currentStateTimestamp"] = "i64"
    is_flexible = version >= 4
    group["members"] = _List(_Struct(member, is_flexible))
    return _Struct(group, is_flexible)


_MEMBER: Final = _flexible(
    {
        "instanceId": "text",
        "rackId": "text",
        "clientId": "text",
        "clientHost": "text",
        "subscribedTopicNames": _List("text"),
        "subscribedTopicRegex": "text",
        "rebalanceTimeoutMs": "i32",
        "serverAssignor": "text",
    }
)
_PARTITION_RACKS: Final = _flexible({"partition": "i32", "racks": _List("text")})
_PARTITIONS_OF_TOPIC: Final = _flexible(
    {
        "topicId": "uuid",
        "topicName": "text",
        "numPartitions": "i32",
        "partitionMetadata": _List(_PARTITION_RACKS),
    }
)
_CURRENT_ASSIGNMENT: Final = _flexible(
    {
        "memberEpoch": "i32",
        "previousMemberEpoch": "i32",
        "state": "i8",
        "assignedPartitions": _ASSIGNED,
        "partitionsPendingRevocation": _ASSIGNED,
    }
)
_RESOLVED_REGEX: Final = _flexible({"topics": _List("text"), "version": "i64", "timestamp": "i64"})


class _Type(NamedTuple):
    """A type of record: its key, and its value by version."""

    key: _Struct
    values: Mapping[int, _Struct]


_CONSUMER_OFFSETS: Final = {
    0: _Type(_COMMITTED, _OFFSETS),
    1: _Type(_COMMITTED, _OFFSETS),
    2: _Type(
        _Struct({"group": "text"}), {version: _group_metadata(version) for version in range(5)}
    ),
    3: _Type(_GROUP, {0: _flexible({"epoch": "i32"}, {0: ("metadataHash", "i64")})}),
    4: _Type(_GROUP, {0: _flexible({"topics": _List(_PARTITIONS_OF_TOPIC)})}),
    5: _Type(_MEMBER_OF_GROUP, {0: _MEMBER}),
    6: _Type(_GROUP, {0: _flexible({"assignmentEpoch": "i32"})}),
    7: _Type(_MEMBER_OF_GROUP, {0: _flexible({"topicPartitions": _ASSIGNED})}),
    8: _Type(_MEMBER_OF_GROUP, {0: _CURRENT_ASSIGNMENT}),
    16: _Type(_Struct({"groupId": "text", "regularExpression": "text"}), {0: _RESOLVED_REGEX}),
}

# What a consumer tells of itself inside of a group's members: int16 version, then this.
_TOPIC_PARTITIONS: Final = _List(_Struct({"topic": "text", "partitions": _List("i32")}))
_SUBSCRIPTION: Final[Mapping[str, str | _List]] = {
    "topics": _List("text"),
    "userData": "bytes",
    "ownedPartitions": _TOPIC_PARTITIONS,  # from version 1 on
    "generationId": "i32",  # 2
    "rackId": "text",  # 3
}
_FIRST_SUBSCRIPTION_FIELDS: Final = 2
_ASSIGNMENT: Final = _Struct({"assignedPartitions": _TOPIC_PARTITIONS, "userData": "bytes"})
_CONSUMER: Final = "consumer"  # ConsumerProtocol.PROTOCOL_TYPE


# ---- __transaction_state ----------------------------------------------------------------------
def _transaction(*, is_flexible: bool) -> _Struct:
    partitions = _Struct({"topic": "text", "partitionIds": _List("i32")}, is_flexible)
    fields: dict[str, str | _List | _Struct] = {
        "producerId": "i64",
        "producerEpoch": "i16",
        "transactionTimeoutMs": "i32",
        "transactionStatus": "i8",
        "transactionPartitions": _List(partitions),
        "transactionLastUpdateTimestampMs": "i64",
        "transactionStartTimestampMs": "i64",
    }
    tagged = {
        0: ("previousProducerId", "i64"),
        1: ("nextProducerId", "i64"),
        2: ("clientTransactionVersion", "i16"),
        3: ("nextProducerEpoch", "i16"),
    }
    return _Struct(fields, is_flexible, tagged if is_flexible else None)


_TRANSACTION_STATE: Final = {
    0: _Type(
        _Struct({"transactionalId": "text"}),
        {0: _transaction(is_flexible=False), 1: _transaction(is_flexible=True)},
    )
}
_TYPES: Final = {Decoder.OFFSETS: _CONSUMER_OFFSETS, Decoder.TRANSACTIONS: _TRANSACTION_STATE}


# ---- decoding ---------------------------------------------------------------------------------
def decode_internal(
    decoder: Decoder, record: Record
) -> tuple[dict[str, Any], dict[str, Any] | None] | None:
    """Take a record of an internal topic apart.

    Args:
        decoder: Which topic it is of.
        record: The record.

    Returns:
        Key and value, the value None for a removal; None for a record of a type, or a version,
        that is not known here, and for bytes that are none of it.

    Source: OffsetsMessageParser, TransactionLogMessageParser of kafka.tools.DumpLogSegments.
    """
    if record.key is None:
        return None
    try:
        reader = _Reader(record.key)
        number = reader.number("i16")
        found = _TYPES[decoder].get(number)
        if found is None:
            return None
        key = {"type": str(number), "data": reader.structure(found.key)}
        if record.value is None:
            return key, None
        reader = _Reader(record.value)
        version = reader.number("i16")
        if version not in found.values:
            return None
        data = reader.structure(found.values[version])
        if data.get("protocolType") == _CONSUMER:
            _decode_members(data["members"])
        return key, {"version": str(version), "data": data}
    except CorruptRecordError:
        return None


def _decode_members(members: list[dict[str, Any]]) -> None:
    """Put what consumers say of themselves in the place of its bytes."""
    for member in members:
        data = base64.b64decode(member["subscription"] or "")
        if data:
            reader = _Reader(data)
            count = _FIRST_SUBSCRIPTION_FIELDS + reader.number("i16")
            known = dict(list(_SUBSCRIPTION.items())[:count])
            member["subscription"] = reader.structure(_Struct(known))
        data = base64.b64decode(member["assignment"] or "")
        if data:
            reader = _Reader(data)
            reader.number("i16")
            member["assignment"] = reader.structure(_ASSIGNMENT)


_NUMBERS: Final = {
    name: struct.Struct(code)
    for name, code in {"i8": ">b", "i16": ">h", "i32": ">i", "i64": ">q"}.items()
}
_UUID_SIZE: Final = 16
_MAX_VARINT: Final = 5


class _Reader:
    """Reads fields from bytes, none of which is trusted."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def structure(self, kind: _Struct) -> dict[str, Any]:
        """Read a structure."""
        values = {
            name: self._value(each, is_flexible=kind.is_flexible)
            for name, each in kind.fields.items()
        }
        if kind.is_flexible:
            for _ in range(self._varint()):
                tag, size = self._varint(), self._varint()
                inner = _Reader(self._take(size))
                if kind.tagged is not None and tag in kind.tagged:
                    name, each = kind.tagged[tag]
                    values[name] = inner._value(each, is_flexible=True)
        return values

    def number(self, kind: str) -> int:
        """Read an integer of a fixed size."""
        form = _NUMBERS[kind]
        value: int = form.unpack(self._take(form.size))[0]
        return value

    def _value(self, kind: "str | _List | _Struct", *, is_flexible: bool) -> Any:
        if isinstance(kind, _Struct):
            return self.structure(kind)
        if isinstance(kind, _List):
            return self._list(kind, is_flexible=is_flexible)
        if kind == "uuid":
            text = base64.urlsafe_b64encode(self._take(_UUID_SIZE)).decode("ascii")
            return text.rstrip("=")
        if kind in ("text", "bytes"):
            size = self._size("i16" if kind == "text" else "i32", is_flexible=is_flexible)
            if size < 0:
                return None
            data = self._take(size)
            is_text = kind == "text"
            return data.decode("utf-8", "replace") if is_text else base64.b64encode(data).decode()
        return self.number(kind)

    def _list(self, kind: _List, *, is_flexible: bool) -> list[Any] | None:
        size = self._size("i32", is_flexible=is_flexible)
        if size < 0:
            return None
        if size > len(self._data) - self._at:  # each element takes a byte at least
            raise self._malformed()
        return [self._value(kind.element, is_flexible=is_flexible) for _ in range(size)]

    def _size(self, kind: str, *, is_flexible: bool) -> int:
        return self._varint() - 1 if is_flexible else self.number(kind)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 7 * _MAX_VARINT, 7):
            [byte] = self._take(1)
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
        raise self._malformed()

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise self._malformed()
        self._at += size
        return taken

    def _malformed(self) -> CorruptRecordError:
        return CorruptRecordError("not a record of an internal topic", position=self._at)
