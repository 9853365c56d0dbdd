"""The compiled loop that runs a program for each value: Avro's binary encoding into columns.

Whatever the bytes are, every read is within the value, the columns grow only with the bytes that
were read, and a value with an error leaves nulls. Twin: `tests.twins.avro`.

Source: Apache Avro specification, "Binary Encoding".
"""

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import inlined, int64, kernel
from streamlog.binary.varint import read_varlong
from streamlog.decoding import avro_layout as a
from streamlog.decoding.column_kernels import (
    Buffers,
    Nodes,
    finish_row,
    is_utf8,
    load_bits,
    put_bytes,
    put_null,
    put_null_row,
    put_word,
    save,
)
from streamlog.decoding.column_layout import (
    BASE,
    CAPACITY,
    COUNT,
    DATA_BASE,
    DATA_SIZE,
    GOOD,
    OTHER,
    ROOM,
    SIZE,
)

__all__ = ["decode_avro"]

_INT32_END = 1 << 31
_INT64_MAX = (1 << 63) - 1
_LONGEST_NUMBER = 10  # bytes

Program = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]
Values = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@kernel
def decode_avro(
    program: Program,
    values: Values,
    stack: NDArray[np.int64],
    columns: Nodes,
    buffers: Buffers,
    errors: NDArray[np.int64],
    first: int,
) -> int:
    """Decode values, one row each, from the row `first` on.

    Args:
        program: int64[k], instructions; int64[m] and uint8[m], the pools of numbers and of bytes.
        values: uint8[b], b at least 8; int64[n], where each value starts; int64[n], where it ends;
            int64[n], the place of its program, or -1 for a null.
        stack: int64[STACK_SIZE], scratch.
        columns: See `Nodes`.
        buffers: See `Buffers`.
        errors: int64[n, 3], filled where a value is bad: a negative number of `avro_layout`, the
            position in the bytes of all values, the place of the instruction. If a column is full,
            the last number is its node.
        first: The row to begin with.

    Returns:
        The number of rows that are complete, n unless a column is full.
    """
    data, starts, ends, entries = values
    nodes, saved, _ = columns
    for row in range(first, starts.size):
        save(nodes, saved)
        if entries[row] >= 0:
            status, position, place = _run(
                program, data, starts[row], ends[row], entries[row], nodes, buffers, stack
            )
            full = program[0][place + a.A]
            is_done = finish_row(columns, buffers, errors, row, status, position, place, full)
        else:
            is_done = put_null_row(columns, buffers)
        if not is_done:
            return row
    return starts.size


@kernel
def _run(
    program: Program,
    data: NDArray[np.uint8],
    start: int,
    end: int,
    entry: int,
    nodes: NDArray[np.int64],
    buffers: Buffers,
    stack: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Run a program on one value; return the status, the position and the instruction."""
    code, numbers, pool = program
    words, valid, out = buffers
    position = start
    place = entry
    depth = int64(0)
    empty_items = a.FREE_EMPTY_ITEMS + end - start
    while True:
        todo = code[place]
        node = code[place + a.A]
        before = position
        after = place + a.WIDTH
        if todo <= a.LAST_WORD:
            word, position = _read_word(code, place, numbers, data, position, end)
            if position >= 0 and not put_word(nodes, words, valid, node, word, 1):
                position = int64(ROOM)
        elif todo <= a.LAST_BYTES:
            position = _read_bytes(code, place, pool, data, position, end, nodes, buffers)
        elif todo <= a.LAST_SKIP:
            position = _skip(todo, node, data, position, end)
        elif todo <= a.LAST_CONSTANT:
            if not _put_constant(code, place, pool, nodes, words, valid, out):
                position = int64(ROOM)
        elif todo == a.END:
            return (GOOD if position == end else a.LEFT_OVER), position, place
        else:
            position, after, depth, empty_items = _steer(
                code, place, data, position, end, stack, depth, empty_items
            )
        if position < 0:
            return position, before, place
        place = after


@inlined
def _read_long(data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Return a long and the position after it, or a negative status."""
    value = int64(0)
    after = int64(0)
    if position < end and data[position] < 0x80:
        byte = int64(data[position])
        value = byte >> 1 ^ -(byte & 1)
        after = position + 1
    else:
        value, after = _read_longer(data, position, end)
    return value, after


@kernel
def _read_longer(data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Do the same for any number; a function of its own, as it is long and called in few cases."""
    value, size = read_varlong(data, position, end)
    if size == 0:
        return value, a.TRUNCATED if end - position < _LONGEST_NUMBER else a.LONG_NUMBER
    return value, position + size


@inlined
def _read_word(
    code: NDArray[np.int64],
    place: int,
    numbers: NDArray[np.int64],
    data: NDArray[np.uint8],
    position: int,
    end: int,
) -> tuple[int, int]:
    """Return what an instruction puts into a word, and the position or a negative status."""
    todo = code[place]
    word = int64(0)
    if todo == a.BOOLEAN:
        if position >= end:
            position = int64(a.TRUNCATED)
        else:
            word = int64(data[position])
            position = position + 1 if word <= 1 else int64(a.BAD_BOOLEAN)
    elif todo == a.DOUBLE or todo == a.FLOAT or todo == a.FLOAT_TO_DOUBLE:
        word, position = _read_float(todo, data, position, end)
    else:
        word, position = _read_long(data, position, end)
        if position >= 0:
            if todo == a.LONG:
                factor = code[place + a.B]
                if factor != 1:
                    most = _INT64_MAX // factor
                    if word > most or word < -most:
                        position = int64(a.SCALED_RANGE)
                    else:
                        word *= factor
            elif todo == a.LONG_TO_FLOAT:
                word = int64(np.float32(word).view(np.int32)) & 0xFFFF_FFFF
            elif todo == a.LONG_TO_DOUBLE:
                word = int64(np.float64(word).view(np.int64))
            elif word >= _INT32_END or word < -_INT32_END:
                position = int64(a.INT_RANGE)
            elif todo == a.INT:
                word *= code[place + a.B]
            elif todo == a.INT_TO_FLOAT:
                word = int64(np.float32(word).view(np.int32)) & 0xFFFF_FFFF
            elif todo == a.INT_TO_DOUBLE:
                word = int64(np.float64(word).view(np.int64))
            elif word < 0 or word >= code[place + a.C]:
                position = int64(a.BAD_SYMBOL)
            else:
                word = numbers[code[place + a.B] + word]
                position = int64(a.BAD_SYMBOL) if word < 0 else position
    return word, position


@inlined
def _read_float(todo: int, data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Return the bits of a float or double, and the position or a negative status."""
    size = 8 if todo == a.DOUBLE else 4
    word = int64(0)
    if size > end - position:
        position = int64(a.TRUNCATED)
    else:
        word = load_bits(data, position, size)
        if todo == a.FLOAT_TO_DOUBLE:
            word = int64(np.float64(np.int32(word).view(np.float32)).view(np.int64))
        position += size
    return word, position


@inlined
def _read_bytes(
    code: NDArray[np.int64],
    place: int,
    pool: NDArray[np.uint8],
    data: NDArray[np.uint8],
    position: int,
    end: int,
    nodes: NDArray[np.int64],
    buffers: Buffers,
) -> int:
    """Append bytes to a node; return the position after them or a negative status."""
    words, valid, out = buffers
    todo = code[place]
    node = code[place + a.A]
    size = int64(code[place + a.B])
    if todo == a.FIXED_DECIMAL:
        size = int64(code[place + a.C])
    elif todo != a.FIXED_BYTES:
        size, position = _read_long(data, position, end)
    if position < 0:
        return position
    if size < 0:
        return a.NEGATIVE_SIZE
    if size > end - position:
        return a.TRUNCATED
    if todo == a.DECIMAL or todo == a.FIXED_DECIMAL:
        status = _put_decimal(
            nodes, words, valid, out, node, pool, code[place + a.B], data, position, size
        )
        return position + size if status == GOOD else status
    if (todo == a.TEXT or (todo == a.FIXED_BYTES and code[place + a.C] == 1)) and not is_utf8(
        data, position, position + size
    ):
        return a.BAD_TEXT
    if not put_bytes(nodes, words, valid, out, node, data, position, size):
        return ROOM
    return position + size


@kernel
def _put_decimal(
    nodes: NDArray[np.int64],
    words: NDArray[np.int64],
    valid: NDArray[np.uint8],
    out: NDArray[np.uint8],
    node: int,
    pool: NDArray[np.uint8],
    bounds: int,
    data: NDArray[np.uint8],
    position: int,
    size: int,
) -> int:
    """Append a decimal, turned from big-endian to the little-endian of Arrow; return a status.

    Args:
        nodes: NODES, as for all other arguments.
        words: Words.
        valid: Validity.
        out: Bytes.
        node: The column.
        pool: Has the least and the greatest value at `bounds`, little-endian.
        bounds: See `pool`.
        data: Has the number, in two's complement; the caller has checked the range.
        position: Where it starts.
        size: Its bytes.
    """
    width = nodes[node, OTHER]
    count = nodes[node, COUNT]
    used = nodes[node, SIZE]
    if count >= nodes[node, CAPACITY] or width > nodes[node, DATA_SIZE] - used:
        return ROOM
    start = nodes[node, DATA_BASE] + used
    fill = 0xFF if size > 0 and data[position] >= 0x80 else 0
    for byte in range(max(width, size)):
        value = int64(data[position + size - 1 - byte]) if byte < size else fill
        if byte < width:
            out[start + byte] = value
        elif value != fill:
            return a.BAD_DECIMAL
    if width < size and (out[start + width - 1] >= 0x80) != (fill == 0xFF):
        return a.BAD_DECIMAL
    if _is_less(out, start, pool, bounds, width) or _is_less(
        pool, bounds + width, out, start, width
    ):
        return a.BAD_DECIMAL
    words[nodes[node, BASE] + count] = 0
    valid[nodes[node, BASE] + count] = 1
    nodes[node, COUNT] = count + 1
    nodes[node, SIZE] = used + width
    return GOOD


@kernel
def _is_less(
    left: NDArray[np.uint8], at: int, right: NDArray[np.uint8], other: int, width: int
) -> bool:
    """Return whether one number is less than another: little-endian, two's complement."""
    for byte in range(width - 1, -1, -1):
        flip = 0x80 if byte == width - 1 else 0
        one = int64(left[at + byte]) ^ flip
        two = int64(right[other + byte]) ^ flip
        if one != two:
            return one < two
    return False


@inlined
def _skip(todo: int, size: int, data: NDArray[np.uint8], position: int, end: int) -> int:
    """Return the position after what an instruction skips, or a negative status."""
    if todo != a.SKIP_SIZE:
        size, position = _read_long(data, position, end)
    if todo == a.SKIP_VARINT or position < 0:
        return position
    if size < 0:
        return a.NEGATIVE_SIZE
    if size > end - position:
        return a.TRUNCATED
    return position + size


@inlined
def _put_constant(
    code: NDArray[np.int64],
    place: int,
    pool: NDArray[np.uint8],
    nodes: NDArray[np.int64],
    words: NDArray[np.int64],
    valid: NDArray[np.uint8],
    out: NDArray[np.uint8],
) -> bool:
    """Append what the value does not contain; return whether there was room."""
    todo = code[place]
    node = code[place + a.A]
    other = code[place + a.B]
    if todo == a.NULL:
        return put_null(nodes, words, valid, out, node)
    if todo == a.BYTES_OF:
        return put_bytes(nodes, words, valid, out, node, pool, other, code[place + a.C])
    word = int64(0)
    if todo == a.WORD_OF:
        word = other
    elif todo == a.END_LIST:
        word = nodes[other, COUNT]
    return put_word(nodes, words, valid, node, word, 1)


@inlined
def _steer(
    code: NDArray[np.int64],
    place: int,
    data: NDArray[np.uint8],
    position: int,
    end: int,
    stack: NDArray[np.int64],
    depth: int,
    empty_items: int,
) -> tuple[int, int, int, int]:
    """Return the position or a negative status, the next instruction, depth, and items left."""
    todo = code[place]
    after = place + a.WIDTH
    if todo == a.JUMP:
        after = code[place + a.A]
    elif todo == a.UNION:
        branch, position = _read_long(data, position, end)
        if position >= 0:
            if branch < 0 or branch >= code[place + a.A]:
                position = int64(a.BAD_BRANCH)
            else:
                after += a.WIDTH * branch
    elif todo == a.NEXT_ITEM and stack[depth - 1] > 0:
        stack[depth - 1] -= 1
    elif todo == a.NEXT_ITEM:
        count, position = _read_count(data, position, end)
        if position >= 0:
            least = code[place + a.B]
            if count == 0:
                depth -= 1
                after = code[place + a.A]
            elif count > (empty_items if least == 0 else (end - position) // least):
                position = int64(a.TOO_MANY)
            else:
                empty_items -= count if least == 0 else 0
                stack[depth - 1] = count - 1
    elif todo == a.RETURN:
        depth -= 1
        after = stack[depth]
    elif todo == a.FAIL:
        position = int64(a.FAILED)
    elif depth >= stack.size:
        position = int64(a.TOO_DEEP)
    else:
        stack[depth] = 0 if todo == a.OPEN_BLOCKS else after
        after = after if todo == a.OPEN_BLOCKS else code[place + a.A]
        depth += 1
    return position, after, depth, empty_items


@inlined
def _read_count(data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Return how many items a block has, and the position or a negative status."""
    count, position = _read_long(data, position, end)
    if position >= 0 and count < 0:
        size, position = _read_long(data, position, end)
        if position >= 0 and (size < 0 or size > end - position):
            position = int64(a.NEGATIVE_SIZE if size < 0 else a.TRUNCATED)
        if count < -_INT64_MAX:  # it has no opposite
            position = int64(a.TOO_MANY)
        else:
            count = -count
    return count, position
