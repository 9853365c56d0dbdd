"""Checksums: CRC-32C (Castagnoli) of format v2 and of snapshots, CRC-32 (IEEE) of v0 and v1."""

import zlib

from crc32c import crc32c as _crc32c

from streamlog.binary.arrays import Buffer

__all__ = ["crc32", "crc32c"]


def crc32c(buffer: Buffer) -> int:
    """Return the CRC-32C of `buffer`, unsigned.

    Source: org.apache.kafka.common.utils.Crc32C.
    """
    return int(_crc32c(buffer))


def crc32(buffer: Buffer) -> int:
    """Return the CRC-32 of `buffer`, unsigned, as zlib computes it."""
    return zlib.crc32(buffer)
