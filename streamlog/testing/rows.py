"""Rows in the forms that tests use, converted to records.

A row is a string or bytes (the value), a `Record`, or has fields (a dict or a Spark `Row`):

    key, value    bytes, a string, None, or any JSON value, which becomes its JSON text
    headers       a dict, or pairs
    timestamp     milliseconds since 1970, or a datetime
    partition     default: by key; round robin without a key
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from streamlog.errors import InvalidRequestError
from streamlog.records.record import Header, Record
from streamlog.testing.frames import hides_helper

__all__ = ["PlacedRecord", "to_record"]
__tracebackhide__ = hides_helper

_FIELDS: Final = ("key", "value", "headers", "timestamp", "partition")


class PlacedRecord(NamedTuple):
    """A record and its requested partition; None for any."""

    record: Record
    partition: int | None


def to_record(row: object) -> PlacedRecord:
    """Return the record of a row.

    Raises:
        InvalidRequestError: The row has another form.
    """
    if isinstance(row, Record):
        return PlacedRecord(row, None)
    if isinstance(row, str | bytes):
        return PlacedRecord(Record(value=_to_bytes(row)), None)
    fields = row.asDict() if hasattr(row, "asDict") else row
    if not isinstance(fields, Mapping) or not set(fields) <= set(_FIELDS):
        raise InvalidRequestError(
            "unknown fields in a row of a topic",
            got=repr(row),
            expected=", ".join(_FIELDS),
            hint='put your own columns in the value: {"value": row}',
        )
    record = Record(
        key=_to_bytes(fields.get("key")),
        value=_to_bytes(fields.get("value")),
        headers=_to_headers(fields.get("headers") or ()),
        timestamp=_to_milliseconds(fields.get("timestamp")),
    )
    return PlacedRecord(record, fields.get("partition"))


def _to_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False).encode()


def _to_headers(headers: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> tuple[Header, ...]:
    pairs: Iterable[tuple[str, Any]] = headers.items() if isinstance(headers, Mapping) else headers
    return tuple(Header(key, _to_bytes(value)) for key, value in pairs)


def _to_milliseconds(timestamp: Any) -> int | None:
    return round(timestamp.timestamp() * 1000) if isinstance(timestamp, datetime) else timestamp
