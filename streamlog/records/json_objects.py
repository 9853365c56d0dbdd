"""Records as JSON objects, in the shape that `streamlog/cli/JSON.md` promises."""

import base64
import json
from typing import Any, Final

from streamlog.records.record import Header, Record
from streamlog.topic import TopicPartition

__all__ = ["ENCODINGS", "ESCAPED", "record_object", "text_field", "to_json"]

ENCODINGS: Final = ("utf8", "base64", "hex")  # of keys, values and header values
# Legal in JSON strings, but they split lines or control a terminal.
ESCAPED: Final = {c: f"\\u{c:04x}" for c in (*range(0x7F, 0xA0), 0x2028, 0x2029)}


def to_json(row: Any) -> bytes:
    """Return a row, or any other value that JSON has, as one line of JSON."""
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    return text.translate(ESCAPED).encode("utf-8", "surrogateescape")


def record_object(
    record: Record, partition: TopicPartition | None, encoding: str
) -> dict[str, object]:
    """Return a record as the JSON object documented in JSON.md; unknown partitions are null."""
    topic, number = (None, None) if partition is None else partition
    return {
        "topic": topic,
        "partition": number,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type.label,
        **text_field("key", record.key, encoding),
        **text_field("value", record.value, encoding),
        "headers": [_header_object(header, encoding) for header in record.headers],
    }


def _header_object(header: Header, encoding: str) -> dict[str, object]:
    return {"key": header.key, **text_field("value", header.value, encoding)}


def text_field(name: str, value: bytes | None, encoding: str) -> dict[str, str | None]:
    """Return bytes as the field `name`, or as `nameBase64` if they are not valid UTF-8."""
    if value is None:
        return {name: None}
    if encoding == "hex":
        return {name: value.hex()}
    if encoding == "utf8":
        try:
            return {name: value.decode("utf-8")}
        except UnicodeDecodeError:
            name += "Base64"
    return {name: base64.b64encode(value).decode("ascii")}
