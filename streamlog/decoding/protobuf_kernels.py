"""The compiled loop that reads Protobuf's wire format into columns.

An instance of a message begins with the cells of its absent fields, which those on the wire then
replace. So fields may come in any order, repeated ones in pieces, and messages are merged, as the
encoding demands. Twin: `tests.twins.protobuf`.

Source: Protocol Buffers documentation, "Encoding".
"""

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import copy_bytes, inlined, int64, kernel
from streamlog.decoding import protobuf_layout as p
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
    COUNT,
    DATA_BASE,
    DATA_SIZE,
    GOOD,
    ROOM,
    SIZE,
)

__all__ = ["decode_protobuf", "measure_indexes"]

_LONGEST_VARINT = 10  # bytes
_LOW_32 = 0xFFFF_FFFF
_SIGN_32 = 0x8000_0000

Program = tuple[
    NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]
]
Values = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]


@kernel
def decode_protobuf(
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
        program: TABLES, FIELDS, BEGINS, MEMBERS and the pool of bytes, see `protobuf_layout`.
        values: uint8[b]; int64[n], where each value starts; int64[n], where it ends; bool[n],
            whether it is to be decoded: the others become nulls.
        stack: int64[STACK_SIZE], scratch; columns are never nested as deep.
        columns: See `Nodes`.
        buffers: See `Buffers`.
        errors: int64[n, 3], filled where a value is bad: a negative number of `protobuf_layout`,
            the position in the bytes of all values, the table that was being read. If a column is
            full, the last number is its node.
        first: The row to begin with.

    Returns:
        The number of rows that are complete, n unless a column is full.
    """
    data, starts, ends, is_wanted = values
    nodes, saved, _ = columns
    for row in range(first, starts.size):
        save(nodes, saved)
        if is_wanted[row]:
            status, position, table = _run(
                program, data, starts[row], ends[row], nodes, buffers, stack
            )
            full = stack[p.FULL_NODE]
            is_done = finish_row(columns, buffers, errors, row, status, position, table, full)
        else:
            is_done = put_null_row(columns, buffers)
        if not is_done:
            return row
    return starts.size


@kernel
def _run(
    program: Program,
    data: NDArray[np.uint8],
    position: int,
    end: int,
    nodes: NDArray[np.int64],
    buffers: Buffers,
    stack: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Read one value; return the status, the position and the table."""
    tables, fields, begins, members, pool = program
    table = depth = hint = group = int64(0)
    if not _begin(tables, begins, pool, 0, nodes, buffers, stack):
        return ROOM, position, table
    while True:
        before = position
        tag, position = _read_next(data, position, end, group)
        if position < 0:
            return position, before, table
        height = p.FRAME_WIDTH * depth
        if tag == 0:
            is_time = _is_time(tables, table, nodes, buffers[0])
            if depth == 0 or not is_time:
                return (GOOD if is_time else p.BAD_TIME), position, table
            depth -= 1
            table = stack[height - 3]
            end = stack[height - 2]
            group = stack[height - 1]
            continue
        field = _find(tables, fields, table, tag >> 3, hint)
        wire = tag & 7
        if field < 0:
            position = _skip(data, position, end, wire, tag >> 3, stack, height)
        elif wire == _wire_of_message(fields[field, p.KIND]):
            inner_end, position = _read_end(wire, data, position, end)
            if position >= 0:
                status = _enter(program, field, nodes, buffers, stack)
                if status < 0:
                    return status, before, table
                _push(stack, height, table, end, group)
                depth += 1
                table = fields[field, p.TABLE]
                group = int64(0) if wire == p.LENGTH else tag >> 3
                end = inner_end
        else:
            hint = field + 1
            position = _read_field(
                fields, field, members, data, position, end, wire, nodes, buffers, stack, height
            )
        if position < 0:
            return position, before, table


@inlined
def _push(stack: NDArray[np.int64], height: int, table: int, end: int, group: int) -> None:
    """Keep the message around the one that begins; see `FRAME_WIDTH`."""
    stack[height] = table
    stack[height + 1] = end
    stack[height + 2] = group


# ---- numbers -------------------------------------------------------------------------------------
@inlined
def _read_varint(data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Return a varint and the position after it, or a negative status."""
    value = int64(0)
    after = int64(0)
    if position < end and data[position] < 0x80:
        value = int64(data[position])
        after = position + 1
    else:
        value, after = _read_longer(data, position, end)
    return value, after


@kernel
def _read_longer(data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Do the same for varints of any size."""
    value = int64(0)
    for byte in range(_LONGEST_VARINT):
        if position + byte >= end:
            return value, p.TRUNCATED
        group = int64(data[position + byte])
        value |= (group & 0x7F) << 7 * byte
        if group < 0x80:
            return value, position + byte + 1
    return value, p.LONG_NUMBER


@inlined
def _read_tag(data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Return number and wire type of a field, and the position after them or a negative status."""
    tag, after = _read_varint(data, position, end)
    if after >= 0 and (tag < 8 or tag >> 3 > p.MAX_FIELD_NUMBER):
        after = int64(p.BAD_TAG)
    return tag, after


@inlined
def _read_next(data: NDArray[np.uint8], position: int, end: int, group: int) -> tuple[int, int]:
    """Return the next tag of a message, 0 at its end, and the position or a negative status."""
    tag = int64(0)
    if position < end:
        tag, position = _read_tag(data, position, end)
        if group != 0 and tag == (group << 3 | p.END_GROUP):
            tag = int64(0)
    elif group != 0:
        position = int64(p.BAD_GROUP)
    return tag, position


@inlined
def _read_size(data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Return a size that the value has, and the position after it or a negative status."""
    size, after = _read_varint(data, position, end)
    if after >= 0 and (size < 0 or size > end - after):
        after = int64(p.TRUNCATED)
    return size, after


@inlined
def _read_end(wire: int, data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Return where a message ends at the latest, and where it begins or a negative status."""
    if wire == p.LENGTH:
        size, position = _read_size(data, position, end)
        end = position + size
    return end, position


@inlined
def _read_number(kind: int, data: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Return the word of a number, and the position after it or a negative status."""
    word = int64(0)
    if kind <= p.LAST_VARINT:
        word, position = _read_varint(data, position, end)
        if kind == p.INT32:
            word = ((word & _LOW_32) ^ _SIGN_32) - _SIGN_32
        elif kind == p.UINT32:
            word = word & _LOW_32
        elif kind == p.SINT64:
            word = (word >> 1 & (1 << 63) - 1) ^ -(word & 1)
        elif kind == p.SINT32:
            word = (word >> 1 & 0x7FFF_FFFF) ^ -(word & 1)
        elif kind == p.BOOL:
            word = int64(word != 0)
    else:
        size = 8 if kind <= p.LAST_8_BYTES else 4
        if size > end - position:
            position = int64(p.TRUNCATED)
        else:
            word = load_bits(data, position, size)
            if kind == p.SFIXED32:
                word = (word ^ _SIGN_32) - _SIGN_32
            position += size
    return word, position


# ---- fields --------------------------------------------------------------------------------------
@inlined
def _find(
    tables: NDArray[np.int64], fields: NDArray[np.int64], table: int, number: int, hint: int
) -> int:
    """Return the field with a number, -1 if there is none; `hint` is the likely one."""
    low = tables[table, p.FIRST_FIELD]
    high = tables[table, p.FIELDS_END]
    found = int64(-1)
    if low <= hint and hint < high and fields[hint, p.NUMBER] == number:
        found = hint
    else:
        while low < high:
            middle = (low + high) // 2
            if fields[middle, p.NUMBER] < number:
                low = middle + 1
            else:
                high = middle
        if low < tables[table, p.FIELDS_END] and fields[low, p.NUMBER] == number:
            found = low
    return found


@kernel
def _read_field(
    fields: NDArray[np.int64],
    field: int,
    members: NDArray[np.int64],
    data: NDArray[np.uint8],
    position: int,
    end: int,
    wire: int,
    nodes: NDArray[np.int64],
    buffers: Buffers,
    stack: NDArray[np.int64],
    height: int,
) -> int:
    """Read a field that is no message; return the position after it or a negative status."""
    kind = fields[field, p.KIND]
    if wire == p.LENGTH and kind <= p.LAST_4_BYTES and fields[field, p.LIST_NODE] >= 0:
        return _read_packed(fields, field, data, position, end, nodes, buffers, stack)
    if wire != _wire_of(kind):
        return _skip(data, position, end, wire, fields[field, p.NUMBER], stack, height)
    if wire == p.LENGTH or wire == p.START_GROUP:
        size = int64(0)
        after = position
        if wire == p.LENGTH:
            size, position = _read_size(data, position, end)
            after = position + size
        else:
            after = _skip(data, position, end, wire, fields[field, p.NUMBER], stack, height)
            size = stack[p.LAST_TAG] - position
        if position < 0 or after < 0:
            return position if position < 0 else after
        if kind == p.STRING and not is_utf8(data, position, after):
            return p.BAD_TEXT
        if not _set_bytes(fields, field, nodes, buffers, data, position, size):
            stack[p.FULL_NODE] = fields[field, p.NODE]
            return ROOM
        position = after
    else:
        word, position = _read_number(kind, data, position, end)
        if position < 0:
            return position
        if not _set_word(fields, field, nodes, buffers, word):
            stack[p.FULL_NODE] = fields[field, p.NODE]
            return ROOM
    if not _clear_others(fields, field, members, nodes, buffers):
        return p.BAD_ONEOF
    return position


@inlined
def _wire_of(kind: int) -> int:
    """Return the wire type of a kind of field."""
    wire = p.LENGTH
    if kind <= p.LAST_VARINT:
        wire = p.VARINT
    elif kind <= p.LAST_8_BYTES:
        wire = p.EIGHT_BYTES
    elif kind <= p.LAST_4_BYTES:
        wire = p.FOUR_BYTES
    elif kind >= p.GROUP:
        wire = p.START_GROUP
    return wire


@inlined
def _wire_of_message(kind: int) -> int:
    """Return the wire type of a kind that is read field by field, -1 for others."""
    wire = int64(-1)
    if kind >= p.MESSAGE:
        wire = int64(p.LENGTH if kind == p.MESSAGE else p.START_GROUP if kind == p.GROUP else -1)
    return wire


@inlined
def _read_packed(
    fields: NDArray[np.int64],
    field: int,
    data: NDArray[np.uint8],
    position: int,
    end: int,
    nodes: NDArray[np.int64],
    buffers: Buffers,
    stack: NDArray[np.int64],
) -> int:
    """Read packed numbers; return the position after them or a negative status."""
    kind = fields[field, p.KIND]
    size, position = _read_size(data, position, end)
    last = position + size
    while 0 <= position < last:
        word, position = _read_number(kind, data, position, last)
        if position >= 0 and not _set_word(fields, field, nodes, buffers, word):
            stack[p.FULL_NODE] = fields[field, p.NODE]
            position = int64(ROOM)
    return position


@inlined
def _set_word(
    fields: NDArray[np.int64], field: int, nodes: NDArray[np.int64], buffers: Buffers, word: int
) -> bool:
    """Replace the cell of a field, or append an element; return whether there was room."""
    words, valid, _ = buffers
    node = fields[field, p.NODE]
    above = fields[field, p.LIST_NODE]
    has_room = True
    if above < 0:
        cell = nodes[node, BASE] + nodes[node, COUNT] - 1
        words[cell] = word
        valid[cell] = 1
    else:
        has_room = put_word(nodes, words, valid, node, word, 1)
        words[nodes[above, BASE] + nodes[above, COUNT] - 1] = nodes[node, COUNT]
    return has_room


@inlined
def _set_bytes(
    fields: NDArray[np.int64],
    field: int,
    nodes: NDArray[np.int64],
    buffers: Buffers,
    data: NDArray[np.uint8],
    position: int,
    size: int,
) -> bool:
    """Replace the bytes of a field, or append an element; return whether there was room."""
    words, valid, out = buffers
    node = fields[field, p.NODE]
    above = fields[field, p.LIST_NODE]
    has_room = True
    if above < 0:
        cell = nodes[node, BASE] + nodes[node, COUNT] - 1
        used = words[cell - 1] if nodes[node, COUNT] > 1 else int64(0)
        has_room = size <= nodes[node, DATA_SIZE] - used
        if has_room:
            copy_bytes(out, nodes[node, DATA_BASE] + used, data, position, size)
            words[cell] = used + size
            valid[cell] = 1
            nodes[node, SIZE] = used + size
    else:
        has_room = put_bytes(nodes, words, valid, out, node, data, position, size)
        words[nodes[above, BASE] + nodes[above, COUNT] - 1] = nodes[node, COUNT]
    return has_room


@inlined
def _clear_others(
    fields: NDArray[np.int64],
    field: int,
    members: NDArray[np.int64],
    nodes: NDArray[np.int64],
    buffers: Buffers,
) -> bool:
    """Let the other members of a oneof be null; return false if one of them is a message.

    Its fields would have to be taken back. No encoder writes two members.
    """
    valid = buffers[1]
    is_possible = True
    for index in range(fields[field, p.FIRST_MEMBER], fields[field, p.MEMBERS_END]):
        node = members[index] >> 1
        if node != fields[field, p.NODE]:
            cell = nodes[node, BASE] + nodes[node, COUNT] - 1
            if members[index] & 1 and valid[cell] != 0:
                is_possible = False
            valid[cell] = 0
    return is_possible


# ---- messages ------------------------------------------------------------------------------------
@kernel
def _begin(
    tables: NDArray[np.int64],
    begins: NDArray[np.int64],
    pool: NDArray[np.uint8],
    table: int,
    nodes: NDArray[np.int64],
    buffers: Buffers,
    stack: NDArray[np.int64],
) -> bool:
    """Append the cells of an instance without fields; return whether there was room."""
    words, valid, out = buffers
    for index in range(tables[table, p.FIRST_BEGIN], tables[table, p.BEGINS_END]):
        node = begins[index, p.BEGIN_NODE]
        mode = begins[index, p.BEGIN_MODE]
        value = begins[index, p.BEGIN_VALUE]
        if mode == p.PUT_NULL:
            has_room = put_null(nodes, words, valid, out, node)
        elif mode == p.PUT_BYTES:
            size = begins[index, p.BEGIN_SIZE]
            has_room = put_bytes(nodes, words, valid, out, node, pool, value, size)
        else:
            if mode == p.PUT_LIST:
                value = nodes[value, COUNT]
            has_room = put_word(nodes, words, valid, node, value, 1)
        if not has_room:
            stack[p.FULL_NODE] = node
            return False
    return True


@kernel
def _enter(
    program: Program,
    field: int,
    nodes: NDArray[np.int64],
    buffers: Buffers,
    stack: NDArray[np.int64],
) -> int:
    """Begin an element, or let a message be there; return a status."""
    tables, fields, begins, members, pool = program
    words, valid, _ = buffers
    node = fields[field, p.NODE]
    above = fields[field, p.LIST_NODE]
    if above >= 0:
        if not _begin(tables, begins, pool, fields[field, p.TABLE], nodes, buffers, stack):
            return ROOM
        words[nodes[above, BASE] + nodes[above, COUNT] - 1] = nodes[node, COUNT]
        return GOOD
    valid[nodes[node, BASE] + nodes[node, COUNT] - 1] = 1
    return GOOD if _clear_others(fields, field, members, nodes, buffers) else p.BAD_ONEOF


@inlined
def _is_time(
    tables: NDArray[np.int64], table: int, nodes: NDArray[np.int64], words: NDArray[np.int64]
) -> bool:
    """Return whether the seconds and nanoseconds of a message are in range, if it has such."""
    check = tables[table, p.CHECK]
    is_good = True
    if check != p.NO_CHECK:
        node = tables[table, p.CHECKED_NODE]
        seconds = words[nodes[node, BASE] + nodes[node, COUNT] - 1]
        nanos = words[nodes[node + 1, BASE] + nodes[node + 1, COUNT] - 1]
        if check == p.TIMESTAMP:
            is_good = p.MIN_SECONDS <= seconds <= p.MAX_SECONDS and nanos >= 0
        else:
            is_good = -p.MAX_DURATION_SECONDS <= seconds <= p.MAX_DURATION_SECONDS
        is_good = is_good and -p.NANOS_PER_SECOND < nanos < p.NANOS_PER_SECOND
    return is_good


# ---- what is not read ----------------------------------------------------------------------------
@kernel
def _skip(
    data: NDArray[np.uint8],
    position: int,
    end: int,
    wire: int,
    number: int,
    stack: NDArray[np.int64],
    height: int,
) -> int:
    """Skip a field of any wire type; return the position after it or a negative status.

    Args:
        data: uint8[n].
        position: After the field's tag.
        end: Where the message ends.
        wire: The field's wire type.
        number: The field's number.
        stack: int64[STACK_SIZE], whose entries from `height` on are free: for groups within
            groups. Gets `LAST_TAG`.
        height: See `stack`.
    """
    base = height
    highest = base + p.MAX_DEPTH - base // p.FRAME_WIDTH
    while True:
        if wire == p.START_GROUP:
            if height >= highest:
                return p.TOO_DEEP
            stack[height] = number
            height += 1
        elif wire == p.END_GROUP:
            if height == base or stack[height - 1] != number:
                return p.BAD_GROUP
            height -= 1
        else:
            position = _skip_plain(data, position, end, wire)
        if position < 0 or height == base:
            return position
        if position == end:
            return p.BAD_GROUP
        stack[p.LAST_TAG] = position
        tag, position = _read_tag(data, position, end)
        if position < 0:
            return position
        number = tag >> 3
        wire = tag & 7


@inlined
def _skip_plain(data: NDArray[np.uint8], position: int, end: int, wire: int) -> int:
    """Return the position after a field that is no group, or a negative status."""
    size = int64(0)
    if wire == p.VARINT:
        _, position = _read_varint(data, position, end)
    elif wire == p.LENGTH:
        size, position = _read_size(data, position, end)
    elif wire == p.EIGHT_BYTES:
        size = int64(8)
    elif wire == p.FOUR_BYTES:
        size = int64(4)
    else:
        position = int64(p.BAD_TAG)
    if position >= 0:
        position = position + size if size <= end - position else int64(p.TRUNCATED)
    return position


# ---- headers -------------------------------------------------------------------------------------
@kernel
def measure_indexes(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    out_sizes: NDArray[np.int64],
) -> int:
    """Measure the indexes of messages in Confluent's header: a count and as many, as varints.

    Args:
        data: uint8[b].
        starts: int64[n], where they start in each value; negative: not there.
        ends: int64[n], where the values end.
        out_sizes: int64[n], filled with their bytes, or `BAD_INDEXES`.

    Returns:
        n.
    """
    for row in range(starts.size):
        position = starts[row]
        out_sizes[row] = 0
        if position < 0:
            continue
        count, position = _read_varint(data, position, ends[row])
        count = (count >> 1 & (1 << 63) - 1) ^ -(count & 1)
        left = count
        while position >= 0 and 0 < left <= p.MAX_INDEXES:
            _, position = _read_varint(data, position, ends[row])
            left -= 1
        is_good = position >= 0 and 0 <= count <= p.MAX_INDEXES
        out_sizes[row] = position - starts[row] if is_good else p.BAD_INDEXES
    return starts.size
