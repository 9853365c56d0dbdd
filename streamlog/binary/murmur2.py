"""murmur2, the hash by which Kafka's Java client turns a key into a partition.

Source: org.apache.kafka.common.utils.Utils.murmur2.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from streamlog.binary.jit import int64, kernel

__all__ = ["murmur2"]

SEED: Final = 0x9747B28C
FACTOR: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF


@kernel
def murmur2(data: NDArray[np.uint8], start: int, end: int) -> int:
    """Return the 32-bit hash of `data[start:end]`, unsigned."""
    state = (SEED ^ end - start) & MASK
    tail = start + (end - start & ~3)
    for position in range(start, tail, 4):
        word = int64(data[position]) | int64(data[position + 1]) << 8
        word |= int64(data[position + 2]) << 16 | int64(data[position + 3]) << 24
        word = word * FACTOR & MASK
        word = (word ^ word >> 24) * FACTOR & MASK
        state = (state * FACTOR & MASK) ^ word
    if tail < end:
        for position in range(tail, end):
            state ^= int64(data[position]) << 8 * (position - tail)
        state = state * FACTOR & MASK
    state = (state ^ state >> 13) * FACTOR & MASK
    return state ^ state >> 15
