"""Variable-length integers of format v2: zig-zag, then groups of seven bits, lowest first.

    value      0     -1      1     -2     63     64   ...
    zig-zag    0      1      2      3    126    128   ...
    bytes     00     01     02     03     7e  80 01   ...

A *varint* is an int32 in at most 5 bytes, a *varlong* an int64 in at most 10. Longer forms than
necessary are accepted, as in Kafka; forms longer than the maximum are not. Bits that do not fit
into the type are dropped, as Java's shifts do. Writing needs only one function: the shortest form
of an int32 is the same as varint and as varlong.

A number is read with one load of 8 bytes, which covers all but the longest varlongs, and each
common size has a branch of its own, since processors predict those well. Reading a varint returns
one int64, `value << 4 | size`, or 0 for bytes that are no such number.

Source: org.apache.kafka.common.utils.ByteUtils.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import WORD_SIZE
from streamlog.binary.jit import inlined, int64, load_word, store

__all__ = [
    "SIZE_BITS",
    "SIZE_MASK",
    "read_short_size",
    "read_short_varint",
    "read_varint",
    "read_varlong",
    "size_of_varlong",
    "write_varlong",
]

SIZE_BITS: Final = 4  # of what `read_varint` returns, below the value
SIZE_MASK: Final = (1 << SIZE_BITS) - 1
MAX_VARLONG: Final = 10  # bytes
LOW_57_BITS: Final = (1 << 57) - 1
LOW_63_BITS: Final = (1 << 63) - 1


@inlined
def word_at(buffer: NDArray[np.uint8], position: int) -> int:
    """Return 8 bytes from `position` on, the first one lowest, with a single load.

    Bytes from the end of `buffer` on are not read; their bits are undefined.

    Args:
        buffer: uint8[n], n at least 8.
        position: 0 or more.
    """
    start = min(position, buffer.size - WORD_SIZE)
    return load_word(buffer, start) >> (8 * (position - start) & 63)


@inlined
def read_varint(buffer: NDArray[np.uint8], position: int, end: int) -> int:
    """Read the varint at `position`, ignoring bytes from `end` on.

    Args:
        buffer: uint8[n], n at least 8.
        position: 0 or more.
        end: At most n.

    Returns:
        `value << SIZE_BITS | size`, or 0 if the number is truncated or too long.
    """
    word = word_at(buffer, position)
    if word & 0x80 == 0:
        size = 1
        bits = word & 0x7F
    elif word & 0x8000 == 0:
        size = 2
        bits = word & 0x7F | word >> 1 & 0x3F80
    else:
        size = 3 + (word >> 23 & 1) + (word >> 23 & word >> 31 & 1)
        bits = word & 0x7F | word >> 1 & 0x3F80 | word >> 2 & 0x1F_C000
        bits |= word >> 3 & 0x0FE0_0000 | word >> 4 & 0xF000_0000
        bits &= (1 << 7 * size) - 1
        if word >> 8 * size - 1 & 1:
            return 0
    if size > end - position:
        return 0
    return (bits >> 1 ^ -(bits & 1)) << SIZE_BITS | size


@inlined
def read_varlong(buffer: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Read the varlong at `position`, ignoring bytes from `end` on.

    Args:
        buffer: uint8[n], n at least 8.
        position: 0 or more.
        end: At most n.

    Returns:
        The value and its size, 1 to 10; size 0 if the number is truncated or too long.
    """
    word = word_at(buffer, position)
    size = 1
    bits = word & 0x7F
    group = word & 0xFF
    while group >= 0x80 and size < WORD_SIZE:
        group = word >> 8 * size & 0xFF
        bits |= (group & 0x7F) << 7 * size
        size += 1
    while group >= 0x80 and size < MAX_VARLONG and position + size < end:
        group = int64(buffer[position + size])
        bits |= (group & 0x7F) << 7 * size
        size += 1
    if group >= 0x80 or size > end - position:
        size = 0
    return (bits >> 1 & LOW_63_BITS) ^ -(bits & 1), size


@inlined
def read_short_varint(buffer: NDArray[np.uint8], position: int) -> tuple[int, int]:
    """Read the varint of at most 4 bytes at `position`.

    Args:
        buffer: uint8[n], n at least `position` + 8, which is not checked.
        position: 0 or more.

    Returns:
        The value and its size, 1 to 4; size 0 for a longer one.
    """
    return short_varint_of(load_word(buffer, position))


@inlined
def read_short_size(buffer: NDArray[np.uint8], position: int) -> tuple[int, int]:
    """Do the same, faster for sizes: rarely negative, mostly 1 or 2 bytes long."""
    word = load_word(buffer, position)
    if word & 0x81 == 0:
        return word >> 1 & 0x3F, 1
    if word & 0x8081 == 0x80:
        return word >> 1 & 0x3F | word >> 2 & 0x1FC0, 2
    return short_varint_of(word)


@inlined
def short_varint_of(word: int) -> tuple[int, int]:
    """Return the varint in the low 4 bytes of `word` and its size; size 0 if it is longer."""
    bits = word & 0x7F
    size = 1
    if word & 0x80 != 0:
        bits |= word >> 1 & 0x3F80
        size = 2
        if word & 0x8000 != 0:
            bits |= word >> 2 & 0x1F_C000 | word >> 3 & 0x0FE0_0000 & -(word >> 23 & 1)
            size = 3 + (word >> 23 & 1)
            if word >> 8 * size - 1 & 1:
                size = 0
    return bits >> 1 ^ -(bits & 1), size


@inlined
def size_of_varlong(value: int) -> int:
    """Return how many bytes `value` takes as varlong; for an int32 also as varint."""
    bits = (value ^ value >> 63) >> 6  # zig-zag's lowest bit is the sign
    size = 1
    while bits != 0:
        bits >>= 7
        size += 1
    return size


@inlined
def write_varlong(buffer: NDArray[np.uint8], position: int, value: int) -> int:
    """Write `value` at `position`; return the position after it.

    The range is unchecked: the caller has verified that `size_of_varlong` bytes fit.
    """
    bits = value << 1 ^ value >> 63
    while bits & ~0x7F != 0:
        store(buffer, position, bits & 0x7F | 0x80)
        bits = bits >> 7 & LOW_57_BITS
        position += 1
    store(buffer, position, bits)
    return position + 1
