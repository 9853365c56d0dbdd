"""Protobuf decoded one value at a time by google.protobuf, in the shape of the columns."""

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from google.protobuf.message import Message

UNSIGNED_64 = (4, 6)  # FieldDescriptor.TYPE_UINT64, TYPE_FIXED64
WRAPPED = "google.protobuf."
MICRO = timedelta(microseconds=1)


def plain_decode_protobuf(kind: type[Message], value: bytes) -> Any:
    """Return a message as `to_pylist` of its column shows it.

    Raises:
        Exception: Whatever google.protobuf raises for bad bytes.
    """
    return _shaped(kind.FromString(value), ())


def plain_measure_indexes(value: bytes, start: int) -> int:
    """Return how many bytes the indexes in a header have; raise ValueError if they are cut off."""
    count, position = _varint(value, start)
    count = count >> 1 ^ -(count & 1)
    if not 0 <= count <= 32:
        raise ValueError(f"{count} indexes")
    for _ in range(count):
        _, position = _varint(value, position)
    return position - start


def _varint(value: bytes, position: int) -> tuple[int, int]:
    number = 0
    for index in range(10):
        if position + index >= len(value):
            raise ValueError("cut off")
        byte = value[position + index]
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            bits = number & (1 << 64) - 1
            return bits, position + index + 1
    raise ValueError("too long")


def _shaped(message: Any, above: tuple[str, ...]) -> Any:
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
        return epoch + _micros(message) * MICRO
    if name == "google.protobuf.Duration":
        return _micros(message) * MICRO
    if name.startswith(WRAPPED) and name.endswith("Value"):
        return _field(message, message.DESCRIPTOR.fields[0], above)
    inside = (*above, name)
    return {field.name: _field(message, field, inside) for field in message.DESCRIPTOR.fields}


def _micros(message: Any) -> int:
    return int(message.seconds * 1_000_000 + message.nanos // 1000)


def _field(message: Any, field: Any, above: tuple[str, ...]) -> Any:
    value = getattr(message, field.name)
    if field.is_repeated:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            of_value = kind.fields_by_name["value"]
            return [(key, _one(value[key], of_value, above)) for key in value]
        return [_one(item, field, above) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(value, field, above)


def _one(value: Any, field: Any, above: tuple[str, ...]) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name in above:
            return value.SerializeToString()
        return _shaped(value, above)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return Decimal(value) if field.type in UNSIGNED_64 else value
