"""Large blocks of memory, kept by the process from one use to the next.

Reading makes arrays of some megabytes and lets them go again, chunk after chunk. The C library
hands blocks of 128 KiB and more back to the system when they are freed; the next ones come with
pages that are mapped and zeroed one by one on first touch, which takes as long as decoding what
is put there. glibc moves that border by itself, to the size of the largest block of up to 32 MiB
that was freed so far, and then keeps up to twice as much free memory. So one block that nobody
touches is enough. Elsewhere this changes nothing.
"""

from typing import Final

import numpy as np

__all__ = ["KEPT_BLOCK", "keep_large_blocks"]

KEPT_BLOCK: Final = 16 << 20  # bytes; the chunks that are read are smaller


def keep_large_blocks() -> None:
    """Let the process keep freed blocks of up to `KEPT_BLOCK` bytes, twice as much in all."""
    np.empty(KEPT_BLOCK, np.uint8)  # gone at once
