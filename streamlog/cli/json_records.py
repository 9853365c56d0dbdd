"""Records as JSON, one object each: the shape that `cat` prints and `produce` reads.

    {"topic":"orders","partition":0,"offset":7,"timestamp":1700000000000,
     "timestampType":"CreateTime","key":"eu","value":"first","headers":[{"key":"a","value":"b"}]}

JSON.md beside this file is the contract. A field that is not UTF-8 moves to `keyBase64` or
`valueBase64`; nothing is lost. Control characters are escaped, those above U+007F too, and so are
the line separators U+0085, U+2028 and U+2029: a line stays a line whoever splits it.
"""

import base64
import json
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.records.columns import BinaryColumn, HeaderColumn, RecordColumns
from streamlog.records.record import Header, Record
from streamlog.topic import TopicPartition

__all__ = ["ENCODINGS", "format_records", "record_object", "text_field"]

ENCODINGS: Final = ("utf8", "base64", "hex")

_WORST: Final = 6  # bytes of JSON for a byte of text: \u0000
_FIXED_SIZE: Final = 256  # of a record: field names, two integers, the timestamp type
_HEADER_SIZE: Final = 64  # of a header: field names and punctuation


def format_records(
    columns: RecordColumns,
    partition: TopicPartition,
    *,
    encoding: str = "utf8",
    before: bytes = b"",
    after: bytes = b"\n",
) -> memoryview:
    """Return records as JSON objects.

    Args:
        columns: The records, all columns decoded.
        partition: Where they come from.
        encoding: One of `ENCODINGS`: how keys, values and header values become text.
        before: What to write before each object.
        after: What to write behind each object.

    Returns:
        The bytes of all objects.
    """
    from streamlog.cli import json_kernels

    count = columns.count
    headers = _header_arrays(columns.headers, count)
    key, value = _arrays(columns.key, count), _arrays(columns.value, count)
    head = before + _head(partition)
    text_size = key[1].size + value[1].size + headers[1][1].size + headers[2][1].size
    header_count = len(headers[1][0]) - 1
    size = count * (len(head) + len(after) + _FIXED_SIZE)
    out = np.empty(size + header_count * _HEADER_SIZE + text_size * _WORST, np.uint8)
    written = json_kernels.format_records(
        out,
        (np.frombuffer(head, np.uint8), np.frombuffer(after, np.uint8)),
        (columns.offset, columns.timestamp, columns.timestamp_type),
        (key, value),
        headers,
        ENCODINGS.index(encoding),
    )
    return out[:written].data


def record_object(
    record: Record, partition: TopicPartition | None, encoding: str
) -> dict[str, object]:
    """Return one record as an object of the contract; topic and partition null where unknown."""
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
    """Return bytes as the field called `name`; in base64, and so called, where they must be."""
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


def _head(partition: TopicPartition) -> bytes:
    topic = json.dumps(partition.topic)
    return f'{{"topic":{topic},"partition":{partition.partition},"offset":'.encode()


Arrays = tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8]]


def _arrays(column: BinaryColumn | None, count: int) -> Arrays:
    if column is None:
        none = np.zeros(-(-count // 8), np.uint8)
        return np.zeros(count + 1, np.int32), np.empty(0, np.uint8), none
    validity = np.empty(0, np.uint8) if column.validity is None else column.validity
    return column.offsets, column.data, validity


def _header_arrays(
    headers: HeaderColumn | None, count: int
) -> tuple[NDArray[np.int32], Arrays, Arrays]:
    if headers is None:
        empty = _arrays(None, 0)
        return np.zeros(count + 1, np.int32), empty, empty
    keys, values = len(headers.key), len(headers.value)
    return headers.offsets, _arrays(headers.key, keys), _arrays(headers.value, values)
