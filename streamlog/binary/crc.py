"""Checksums: CRC-32C (Castagnoli) of format v2 and of snapshots, CRC-32 (IEEE) of v0 and v1.

Both are the libraries' own functions, `buffer -> int`: a scan calls one per batch, and a wrapper
function took a third of that time.

Source: org.apache.kafka.common.utils.Crc32C, java.util.zip.CRC32.
"""

from collections.abc import Callable
from typing import Final
from zlib import crc32

from crc32c import crc32c as _crc32c

from streamlog.binary.arrays import Buffer

__all__ = ["crc32", "crc32c", "crc32c_after"]

crc32c: Final[Callable[[Buffer], int]] = _crc32c
crc32c_after: Final[Callable[[Buffer, int], int]] = _crc32c  # others, whose checksum it is given
