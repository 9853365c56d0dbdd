"""SipHash-2-4 of 128 bits: a keyed hash without predictable collisions for anyone without the key.

Four words of state, stirred twice for each 8 bytes of input (the first byte lowest) and once more
for the rest, whose highest byte is the length; then four times for each half of the result. The
key is 16 bytes, drawn at random for each use, and never stored.

Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", and its variant of 128 bits.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.arrays import WORD_SIZE
from streamlog.binary.jit import inlined
from streamlog.binary.varint import word_at

__all__ = ["KEY_SIZE", "siphash"]

KEY_SIZE: Final = 16  # bytes
STATE: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
MARK_LONG: Final = 0xEE  # distinguishes the variant of 128 bits from that of 64
MARK_SECOND_HALF: Final = 0xDD


@inlined
def rotate(word: int, bits: int) -> int:
    """Return an int64 rotated to the left."""
    return word << bits | word >> 64 - bits & (1 << bits) - 1


@inlined
def stir(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    """Return the state after one SipRound."""
    v0 += v1
    v2 += v3
    v1 = rotate(v1, 13) ^ v0
    v3 = rotate(v3, 16) ^ v2
    v0 = rotate(v0, 32)
    v2 += v1
    v0 += v3
    v1 = rotate(v1, 17) ^ v2
    v3 = rotate(v3, 21) ^ v0
    v2 = rotate(v2, 32)
    return v0, v1, v2, v3


@inlined
def siphash(data: NDArray[np.uint8], start: int, end: int, low: int, high: int) -> tuple[int, int]:
    """Return the hash of `data[start:end]`, as two int64.

    Args:
        data: uint8[n], n at least 8.
        start: 0 or more.
        end: At least `start`, at most n.
        low: The first half of the key.
        high: The second half.
    """
    v0, v1 = STATE[0] ^ low, STATE[1] ^ high ^ MARK_LONG
    v2, v3 = STATE[2] ^ low, STATE[3] ^ high
    position = start
    while True:
        left = end - position
        word = 0
        if left > 0:
            word = word_at(data, position)
        if left < WORD_SIZE:
            word = word & (1 << 8 * left) - 1 | (end - start & 0xFF) << 56
        v3 ^= word
        v0, v1, v2, v3 = stir(v0, v1, v2, v3)
        v0, v1, v2, v3 = stir(v0, v1, v2, v3)
        v0 ^= word
        if left < WORD_SIZE:
            break
        position += WORD_SIZE
    v2 ^= MARK_LONG
    for _ in range(4):
        v0, v1, v2, v3 = stir(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= MARK_SECOND_HALF
    for _ in range(4):
        v0, v1, v2, v3 = stir(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3
