"""Records as lines of JSON, in the shape that `streamlog/cli/JSON.md` promises, compiled."""

import json
from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import as_source, read_only
from streamlog.records import json_kernels
from streamlog.records.columns import BinaryColumn, HeaderColumn, RecordColumns
from streamlog.records.json_objects import ENCODINGS
from streamlog.topic import TopicPartition

__all__ = ["format_records"]

_WORST: Final = 6  # maximum bytes of JSON per byte of text: \u0000
_FIXED_SIZE: Final = 256  # per record: field names, two integers, the timestamp type
_HEADER_SIZE: Final = 64  # per header: field names and punctuation


def format_records(
    columns: RecordColumns,
    partition: TopicPartition,
    *,
    encoding: str = "utf8",
    before: bytes = b"",
    after: bytes = b"\n",
    written: Collection[str] = (),
    rest: BinaryColumn | None = None,
) -> memoryview:
    """Return records as JSON objects, in the shape that JSON.md documents.

    A field that is not UTF-8 moves to `keyBase64` or `valueBase64`. Control characters and the
    line separators U+0085, U+2028 and U+2029 are escaped, so every line splitter sees one line.

    Args:
        columns: The records, all columns decoded.
        partition: Their partition.
        encoding: One of `ENCODINGS`, for keys, values and header values.
        before: Written before each object.
        after: Written after each object.
        written: `key` and `value`, as far as they are JSON already: each text begins with a comma
            and the name of the field.
        rest: Text for the end of each object, before the closing brace; empty for none.

    Returns:
        The bytes of all objects.
    """
    count, at = columns.count, ENCODINGS.index(encoding)
    headers = _header_arrays(columns.headers, count)
    key, value = _arrays(columns.key, count), _arrays(columns.value, count)
    head = before + _head(partition)
    ending = _arrays(rest, 0)
    texts = (key, value, ending, headers[1], headers[2])
    text_size = sum(each[1].size for each in texts)
    header_count = len(headers[1][0]) - 1
    size = count * (len(head) + len(after) + _FIXED_SIZE)
    # Room for the worst case: the kernels do not check bounds.
    out = np.empty(size + header_count * _HEADER_SIZE + text_size * _WORST, np.uint8)
    own = [json_kernels.WRITTEN if name in written else at for name in ("key", "value")]
    end = json_kernels.format_records(
        out,
        (np.frombuffer(head, np.uint8), np.frombuffer(after, np.uint8)),
        (
            read_only(columns.offset, np.int64),
            read_only(columns.timestamp, np.int64),
            read_only(columns.timestamp_type, np.int32),
        ),
        (key, value),
        headers,
        (own[0], own[1], at),
        ending,
    )
    return out[:end].data


def _head(partition: TopicPartition) -> bytes:
    topic = json.dumps(partition.topic)
    return f'{{"topic":{topic},"partition":{partition.partition},"offset":'.encode()


Arrays = tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.uint8]]


def _arrays(column: BinaryColumn | None, count: int) -> Arrays:
    if column is None:
        offsets, nulls = np.zeros(count + 1, np.int32), bytes(-(-count // 8))
        return read_only(offsets, np.int32), as_source(b""), as_source(nulls)
    validity = as_source(b"" if column.validity is None else column.validity)
    return read_only(column.offsets, np.int32), as_source(column.data), validity


def _header_arrays(
    headers: HeaderColumn | None, count: int
) -> tuple[NDArray[np.int32], Arrays, Arrays]:
    if headers is None:
        empty = _arrays(None, 0)
        return read_only(np.zeros(count + 1, np.int32), np.int32), empty, empty
    keys, values = len(headers.key), len(headers.value)
    runs = read_only(headers.offsets, np.int32)
    return runs, _arrays(headers.key, keys), _arrays(headers.value, values)
