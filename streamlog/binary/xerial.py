"""Snappy as framed by snappy-java's streams, which is neither raw snappy nor its official framing.

    82 53 4e 41 50 50 59 00   magic
    00 00 00 01               version, big-endian
    00 00 00 01               oldest version that can read it
    repeated: int32 size, then `size` bytes of raw snappy (32 KiB of data each when written)

The header may be repeated between blocks (concatenated streams), and bytes without a header are
one raw snappy block: both are accepted, as in snappy-java.

Source: org.xerial.snappy.SnappyOutputStream and SnappyInputStream.
"""

import struct
from collections.abc import Iterator
from typing import Final

import snappy

from streamlog.binary.arrays import Buffer
from streamlog.errors import CorruptRecordError, LimitExceededError

__all__ = ["compress", "decompress"]

MAGIC: Final = b"\x82SNAPPY\x00"
VERSION: Final = 1
HEADER: Final = struct.Struct(">8sii")
BLOCK_SIZE: Final = struct.Struct(">i")
MAX_BLOCK: Final = 32 << 10  # when writing; blocks of any size are read
MAX_RATIO: Final = 64  # an element of 2 or 3 bytes copies at most 64
MAX_PREAMBLE: Final = 5  # bytes of the length before raw snappy


def compress(data: Buffer, level: int) -> bytes:
    """Return `data` as a block stream; snappy has no levels, `level` is ignored."""
    view = memoryview(data)
    parts = [HEADER.pack(MAGIC, VERSION, VERSION)]
    for start in range(0, len(view), MAX_BLOCK):
        block = snappy.compress(view[start : start + MAX_BLOCK])
        parts += (BLOCK_SIZE.pack(len(block)), block)
    return b"".join(parts)


def decompress(data: Buffer, max_size: int) -> bytes:
    """Return the content of the blocks in `data`, at most `max_size` bytes.

    Raises:
        CorruptRecordError: Damaged or truncated.
        LimitExceededError: The output would exceed `max_size` bytes.
    """
    parts = []
    for block in _blocks(memoryview(data)):
        size = _uncompressed_size(block)
        max_size -= size
        if max_size < 0:
            raise LimitExceededError("snappy data is larger than allowed")
        try:
            part = snappy.decompress(block)
        except snappy.UncompressError as error:
            raise CorruptRecordError("snappy data is damaged", got=str(error.__cause__)) from None
        if len(part) != size:
            raise CorruptRecordError("snappy block has a wrong size", got=len(part), expected=size)
        parts.append(part)
    return b"".join(parts)


def _blocks(view: memoryview) -> Iterator[memoryview]:
    """Yield the raw snappy blocks of `view`."""
    if len(view) < HEADER.size or bytes(view[: len(MAGIC)]) != MAGIC:
        yield view
        return
    position = 0
    while position + BLOCK_SIZE.size <= len(view):  # up to 3 stray bytes at the end are ignored
        if bytes(view[position : position + 4]) == MAGIC[:4]:
            position = _skip_header(view, position)
            continue
        (size,) = BLOCK_SIZE.unpack_from(view, position)
        position += BLOCK_SIZE.size
        if size < 0 or size > len(view) - position:
            raise CorruptRecordError(
                "snappy block reaches beyond the data",
                got=size,
                expected=f"0 to {len(view) - position}",
            )
        yield view[position : position + size]
        position += size


def _skip_header(view: memoryview, position: int) -> int:
    if len(view) - position < HEADER.size:
        raise CorruptRecordError("snappy data ends in a stream header")
    magic, version, _ = HEADER.unpack_from(view, position)
    if magic != MAGIC or version < VERSION:
        raise CorruptRecordError("snappy stream header is damaged")
    return position + HEADER.size


def _uncompressed_size(block: memoryview) -> int:
    """Return the size that a raw block claims, refusing more than a block of its size can hold."""
    size = 0
    for place, group in enumerate(block[:MAX_PREAMBLE]):
        size |= (group & 0x7F) << 7 * place
        if group < 0x80:
            if size > MAX_RATIO * len(block):
                break
            return size
    raise CorruptRecordError("snappy block has a damaged length")
