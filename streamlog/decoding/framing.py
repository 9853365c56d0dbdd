"""Confluent's prefix of serialized values: a zero byte and the id of the schema, big-endian.

In Protobuf the indexes of the message follow: how many there are, then each of them, from the
outermost message inwards, as zig-zag varints; a single 0 stands for the first message.

Source: Confluent's documentation, "Formats, Serializers, and Deserializers", "Wire format".
"""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["PREFIX_SIZE", "MAGIC", "NO_ID", "data_of", "ids_of", "spans_of", "without_prefixes"]

MAGIC: Final = 0
PREFIX_SIZE: Final = 5  # the magic byte and an int32
NO_ID: Final = -1


def spans_of(values: pa.BinaryArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return int64[n], int64[n]: where each value starts and ends in `data_of(values)`."""
    count = len(values)
    if count == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    stored = np.frombuffer(values.buffers()[1], np.int32)
    offsets = stored[values.offset : values.offset + count + 1].astype(np.int64)
    return offsets[:-1], offsets[1:]


def data_of(values: pa.BinaryArray) -> NDArray[np.uint8]:
    """Return uint8[m], the bytes that all values share."""
    data = values.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def ids_of(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return int64[n]: the schema id of each value, `NO_ID` where there is no header.

    Args:
        data: uint8[m], the bytes of all values.
        starts: int64[n], their first positions.
        ends: int64[n], the positions after them.
    """
    ids = np.full(len(starts), NO_ID, np.int64)
    is_long = np.flatnonzero(ends - starts >= PREFIX_SIZE)
    framed = is_long[data[starts[is_long]] == MAGIC]
    at = starts[framed]
    found = np.zeros(len(framed), np.int64)
    for byte in range(1, PREFIX_SIZE):
        found = found << 8 | data[at + byte]
    ids[framed] = found
    return ids


def without_prefixes(values: pa.BinaryArray, has_prefix: NDArray[np.bool_]) -> pa.BinaryArray:
    """Return values without the first `PREFIX_SIZE` bytes of some of them.

    Args:
        values: pa.BinaryArray[n].
        has_prefix: bool[n]; those values are long enough.
    """
    if not has_prefix.any():
        return values
    starts, ends = spans_of(values)
    keeps = np.ones(ends[-1], bool)
    keeps[: starts[0]] = False
    for byte in range(PREFIX_SIZE):
        keeps[starts[has_prefix] + byte] = False
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(ends - starts - PREFIX_SIZE * has_prefix, out=offsets[1:])
    data = data_of(values)[: ends[-1]][keeps]
    validity = values.is_valid().buffers()[1]
    return pa.Array.from_buffers(
        pa.binary(), len(values), [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
