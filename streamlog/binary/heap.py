"""Large blocks of memory, kept by the process from one use to the next.

Reading allocates and frees arrays of some megabytes, chunk after chunk. The C library returns
blocks of 128 KiB and more to the system when they are freed; the pages of the next ones are mapped
and zeroed one by one on first touch, which takes as long as decoding into them. glibc raises that
threshold by itself to the size of the largest block of up to 32 MiB freed so far, and then keeps up
to twice as much free memory. So freeing one untouched block is enough. With other C libraries this
has no effect.
"""

from typing import Final

import numpy as np

__all__ = ["KEPT_BLOCK", "keep_large_blocks"]

KEPT_BLOCK: Final = 16 << 20  # bytes; chunks are smaller


def keep_large_blocks() -> None:
    """Let the process keep freed blocks of up to `KEPT_BLOCK` bytes, twice as much in all."""
    np.empty(KEPT_BLOCK, np.uint8)  # freed at once
