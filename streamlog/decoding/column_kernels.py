"""Compiled steps that append cells to columns; see `streamlog.decoding.columns`.

Each returns whether there was room. All ranges are checked before bytes are copied.
"""

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import WORD_SIZE
from streamlog.binary.jit import copy_bytes, inlined, int64, kernel, load_word
from streamlog.decoding.column_layout import (
    BASE,
    BYTES,
    CAPACITY,
    COUNT,
    DATA_BASE,
    DATA_SIZE,
    FIXED,
    GOOD,
    KIND,
    LIST,
    OTHER,
    ROOM,
    SIZE,
)

__all__ = [
    "Buffers",
    "Nodes",
    "finish_row",
    "is_utf8",
    "load_bits",
    "put_bytes",
    "put_null",
    "put_null_row",
    "put_word",
    "restore",
    "save",
]

# As `Columns` has them: NODES, int64[nodes, 2] for what is taken back, and int64[k], the nodes with
# a cell per row; words, validity and bytes.
Nodes = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
Buffers = tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint8]]


@inlined
def put_word(
    nodes: NDArray[np.int64],
    words: NDArray[np.int64],
    valid: NDArray[np.uint8],
    node: int,
    word: int,
    is_valid: int,
) -> bool:
    """Append a cell with a word to a node; return whether there was room."""
    count = nodes[node, COUNT]
    has_room: bool = count < nodes[node, CAPACITY]
    if has_room:
        words[nodes[node, BASE] + count] = word
        valid[nodes[node, BASE] + count] = is_valid
        nodes[node, COUNT] = count + 1
    return has_room


@inlined
def put_bytes(
    nodes: NDArray[np.int64],
    words: NDArray[np.int64],
    valid: NDArray[np.uint8],
    out: NDArray[np.uint8],
    node: int,
    source: NDArray[np.uint8],
    position: int,
    size: int,
) -> bool:
    """Append a cell of bytes to a node; the caller has checked the range of `source`."""
    count = nodes[node, COUNT]
    used = nodes[node, SIZE]
    has_room: bool = count < nodes[node, CAPACITY] and size <= nodes[node, DATA_SIZE] - used
    if has_room:
        copy_bytes(out, nodes[node, DATA_BASE] + used, source, position, size)
        words[nodes[node, BASE] + count] = used + size
        valid[nodes[node, BASE] + count] = 1
        nodes[node, COUNT] = count + 1
        nodes[node, SIZE] = used + size
    return has_room


@kernel
def put_null(
    nodes: NDArray[np.int64],
    words: NDArray[np.int64],
    valid: NDArray[np.uint8],
    out: NDArray[np.uint8],
    node: int,
) -> bool:
    """Append a null to a node; to those below it, the caller does."""
    count = nodes[node, COUNT]
    if count >= nodes[node, CAPACITY]:
        return False
    word = int64(0)
    kind = nodes[node, KIND]
    if kind == BYTES:
        word = nodes[node, SIZE]
    elif kind == LIST:
        word = nodes[nodes[node, OTHER], COUNT]
    elif kind == FIXED:
        used = nodes[node, SIZE]
        if nodes[node, OTHER] > nodes[node, DATA_SIZE] - used:
            return False
        start = nodes[node, DATA_BASE] + used
        out[start : start + nodes[node, OTHER]] = 0
        nodes[node, SIZE] = used + nodes[node, OTHER]
    words[nodes[node, BASE] + count] = word
    valid[nodes[node, BASE] + count] = 0
    nodes[node, COUNT] = count + 1
    return True


@inlined
def save(nodes: NDArray[np.int64], saved: NDArray[np.int64]) -> None:
    """Keep how many cells and bytes there are."""
    for node in range(nodes.shape[0]):
        saved[node, 0] = nodes[node, COUNT]
        saved[node, 1] = nodes[node, SIZE]


@inlined
def restore(nodes: NDArray[np.int64], saved: NDArray[np.int64]) -> None:
    """Drop the cells and bytes that were appended since `save`."""
    for node in range(nodes.shape[0]):
        nodes[node, COUNT] = saved[node, 0]
        nodes[node, SIZE] = saved[node, 1]


@kernel
def put_null_row(columns: Nodes, buffers: Buffers) -> bool:
    """Replace what was appended since `save` by a null; return whether there was room.

    Args:
        columns: See `Nodes`.
        buffers: See `Buffers`.
    """
    nodes, saved, each_row = columns
    words, valid, out = buffers
    restore(nodes, saved)
    for index in range(each_row.size):
        if not put_null(nodes, words, valid, out, each_row[index]):
            restore(nodes, saved)
            return False
    return True


@inlined
def finish_row(
    columns: Nodes,
    buffers: Buffers,
    errors: NDArray[np.int64],
    row: int,
    status: int,
    position: int,
    place: int,
    full: int,
) -> bool:
    """Note what decoding a row came to; return false if it has to be decoded again, with more room.

    Args:
        columns: See `Nodes`.
        buffers: See `Buffers`.
        errors: int64[n, 3], gets `status`, `position` and `place`; without room, `full` at the end.
        row: The row.
        status: `GOOD`, `ROOM`, or another negative number: the row becomes a null.
        position: Where in the bytes of all values.
        place: Where in the schema.
        full: The node without room.
    """
    is_done = status != ROOM
    if not is_done:
        restore(columns[0], columns[1])
        errors[row, 2] = full
    else:
        errors[row, 0] = status
        errors[row, 1] = position
        errors[row, 2] = place
        if status != GOOD:
            is_done = put_null_row(columns, buffers)
    return is_done


@inlined
def load_bits(data: NDArray[np.uint8], position: int, size: int) -> int:
    """Return little-endian bytes as an int64, not extended; the caller has checked the range."""
    word = int64(0)
    for byte in range(size):
        word |= int64(data[position + byte]) << 8 * byte
    return word


_HIGH_BITS = -0x7F7F_7F7F_7F7F_7F80  # the highest bit of each of eight bytes


@kernel
def is_utf8(data: NDArray[np.uint8], position: int, end: int) -> bool:
    """Return whether bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.

    Args:
        data: uint8[n]; the caller has checked the range.
        position: The first byte.
        end: The position after the last one.
    """
    while position < end:
        left = end - position
        if position + WORD_SIZE <= data.size:
            word = load_word(data, position)
            if left < WORD_SIZE:
                word &= (1 << 8 * left) - 1
            if word & _HIGH_BITS == 0:
                position += min(left, WORD_SIZE)
                continue
        first = int64(data[position])
        position += 1
        if first < 0x80:
            continue
        low = int64(0x80)
        high = int64(0xBF)
        more = int64(1)
        if first >= 0xF0:
            more = int64(3)
            low = int64(0x90) if first == 0xF0 else low
            high = int64(0x8F) if first == 0xF4 else high
        elif first >= 0xE0:
            more = int64(2)
            low = int64(0xA0) if first == 0xE0 else low
            high = int64(0x9F) if first == 0xED else high
        if first < 0xC2 or first > 0xF4 or more > end - position:
            return False
        for _ in range(more):
            if data[position] < low or data[position] > high:
                return False
            low = int64(0x80)
            high = int64(0xBF)
            position += 1
    return True
