"""Variable-length integers of format v2: zig-zag, then groups of seven bits, lowest first.

    value      0     -1      1     -2     63     64   ...
    zig-zag    0      1      2      3    126    128   ...
    bytes     00     01     02     03     7e  80 01   ...

A *varint* is an int32 in at most 5 bytes, a *varlong* an int64 in at most 10. Longer forms than
needed are read (Kafka reads them too), longer than the maximum are not. Bits that do not fit
into the type are dropped, as Java's shifts do. Writing needs one function only: the shortest
form of an int32 is the same as varint and as varlong.

Source: org.apache.kafka.common.utils.ByteUtils.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import kernel

__all__ = [
    "BAD_VARINT",
    "plain_read_varint",
    "plain_write_varlong",
    "read_varint",
    "read_varlong",
    "size_of_varlong",
    "write_varlong",
]

BAD_VARINT: Final = -1  # instead of a next position: the number is cut short or too long
MAX_VARINT_SHIFT: Final = 28  # of the fifth byte
MAX_VARLONG_SHIFT: Final = 63  # of the tenth byte
LOW_57_BITS: Final = (1 << 57) - 1
LOW_63_BITS: Final = (1 << 63) - 1


@kernel
def read_varint(buffer: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Read the varint at `position`, looking at no byte from `end` on.

    Returns:
        The value, and the position behind it or BAD_VARINT.
    """
    bits = 0
    shift = 0
    while position < end:
        group = int(buffer[position])
        position += 1
        bits |= (group & 0x7F) << shift
        if group < 0x80:
            bits &= 0xFFFFFFFF
            return bits >> 1 ^ -(bits & 1), position
        if shift == MAX_VARINT_SHIFT:
            break
        shift += 7
    return 0, BAD_VARINT


@kernel
def read_varlong(buffer: NDArray[np.uint8], position: int, end: int) -> tuple[int, int]:
    """Read the varlong at `position`, looking at no byte from `end` on.

    Returns:
        The value, and the position behind it or BAD_VARINT.
    """
    bits = np.int64(0)
    shift = 0
    while position < end:
        group = int(buffer[position])
        position += 1
        bits |= np.int64(group & 0x7F) << np.int64(shift)
        if group < 0x80:
            return (bits >> 1 & LOW_63_BITS) ^ -(bits & 1), position
        if shift == MAX_VARLONG_SHIFT:
            break
        shift += 7
    return np.int64(0), BAD_VARINT


@kernel
def size_of_varlong(value: int) -> int:
    """Return how many bytes `value` takes as varlong; for an int32 also as varint."""
    bits = value ^ value >> 63  # 63 bits: the sign takes part in the last group
    size = 1
    bits >>= 6
    while bits != 0:
        bits >>= 7
        size += 1
    return size


@kernel
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
    """Read a varint (`width` 32) or varlong (64); return value and next position, or None."""
    groups = bytearray()
    while len(groups) < -(-width // 7):
        chunk = buffer[position + len(groups) :][:1]
        if not chunk:
            return None
        groups += chunk
        if chunk[0] < 128:
            bits = sum((group % 128) * 128**place for place, group in enumerate(groups))
            bits %= 1 << width
            half, odd = divmod(bits, 2)
            return (-half - 1 if odd else half), position + len(groups)
    return None


def plain_write_varlong(value: int) -> bytes:
    """Return `value`, an int64, as varlong."""
    bits = 2 * value if value >= 0 else -2 * value - 1
    groups = []
    while bits >= 128:
        bits, group = divmod(bits, 128)
        groups.append(group + 128)
    return bytes([*groups, bits])
