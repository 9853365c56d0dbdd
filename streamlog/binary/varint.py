"""Variable-length integers of format v2: zig-zag, then groups of seven bits, lowest first.

    value      0     -1      1     -2     63     64   ...
    zig-zag    0      1      2      3    126    128   ...
    bytes     00     01     02     03     7e  80 01   ...

A *varint* is an int32 in at most 5 bytes, a *varlong* an int64 in at most 10. Longer forms than
needed are read (Kafka reads them too), longer than the maximum are not. Bits that do not fit
into the type are dropped, as Java's shifts do. Writing needs one function only: the shortest
form of an int32 is the same as varint and as varlong.

Reading a varint gives one int64, `value << 4 | size`, or 0 for bytes that are no such number: a
kernel that returns two things costs several times as much. A varlong does not fit into that, and
is found first and read then.

Source: org.apache.kafka.common.utils.ByteUtils.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import inlined, int64

__all__ = [
    "SIZE_BITS",
    "SIZE_MASK",
    "find_varlong",
    "plain_read_varint",
    "plain_write_varlong",
    "read_varint",
    "read_varlong",
    "size_of_varlong",
    "write_varlong",
]

SIZE_BITS: Final = 4  # of what `read_varint` returns, below the value
SIZE_MASK: Final = (1 << SIZE_BITS) - 1
MAX_VARINT: Final = 5  # bytes
MAX_VARLONG: Final = 10  # bytes
LOW_32_BITS: Final = (1 << 32) - 1
LOW_57_BITS: Final = (1 << 57) - 1
LOW_63_BITS: Final = (1 << 63) - 1


@inlined
def read_varint(buffer: NDArray[np.uint8], position: int, end: int) -> int:
    """Read the varint at `position`, looking at no byte from `end` on.

    Returns:
        `value << SIZE_BITS | size`, or 0 where the number is cut short or too long.
    """
    if position >= end:
        return 0
    bits = int64(buffer[position])
    if bits < 0x80:
        return (bits >> 1 ^ -(bits & 1)) << SIZE_BITS | 1
    bits &= 0x7F
    size = 1
    while size < MAX_VARINT and position + size < end:
        group = int64(buffer[position + size])
        bits |= (group & 0x7F) << 7 * size
        size += 1
        if group < 0x80:
            bits &= LOW_32_BITS
            return (bits >> 1 ^ -(bits & 1)) << SIZE_BITS | size
    return 0


@inlined
def find_varlong(buffer: NDArray[np.uint8], position: int, end: int) -> int:
    """Return the size of the varlong at `position`, looking at no byte from `end` on.

    Returns:
        1 to 10, or 0 where the number is cut short or too long.
    """
    size = 0
    while size < MAX_VARLONG and position + size < end:
        size += 1
        if buffer[position + size - 1] < 0x80:
            return size
    return 0


@inlined
def read_varlong(buffer: NDArray[np.uint8], position: int, size: int) -> int:
    """Return the varlong of `size` bytes at `position`, as `find_varlong` found it."""
    bits = int64(buffer[position]) & 0x7F
    for place in range(1, size):
        bits |= (int64(buffer[position + place]) & 0x7F) << 7 * place
    return (bits >> 1 & LOW_63_BITS) ^ -(bits & 1)


@inlined
def size_of_varlong(value: int) -> int:
    """Return how many bytes `value` takes as varlong; for an int32 also as varint."""
    bits = (value ^ value >> 63) >> 6  # zig-zag's lowest bit stands for the sign
    size = 1
    while bits != 0:
        bits >>= 7
        size += 1
    return size


@inlined
def write_varlong(buffer: NDArray[np.uint8], position: int, value: int) -> int:
    """Write `value` at `position`, where there is room; return the position behind it."""
    bits = value << 1 ^ value >> 63
    while bits & ~0x7F != 0:
        buffer[position] = bits & 0x7F | 0x80
        bits = bits >> 7 & LOW_57_BITS
        position += 1
    buffer[position] = bits
    return position + 1


def plain_read_varint(buffer: bytes, position: int, *, width: int) -> tuple[int, int] | None:
    """Read a varint (`width` 32) or varlong (64); return value and size, or None."""
    groups = bytearray()
    while len(groups) < -(-width // 7):
        chunk = buffer[position + len(groups) :][:1]
        if not chunk:
            return None
        groups += chunk
        if chunk[0] < 128:
            bits = sum((group % 128) * 128**place for place, group in enumerate(groups))
            half, odd = divmod(bits % 2**width, 2)
            return (-half - 1 if odd else half), len(groups)
    return None


def plain_write_varlong(value: int) -> bytes:
    """Return `value`, an int64, as varlong."""
    bits = 2 * value if value >= 0 else -2 * value - 1
    groups = []
    while bits >= 128:
        bits, group = divmod(bits, 128)
        groups.append(group + 128)
    return bytes([*groups, bits])
