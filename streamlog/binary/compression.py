"""The codecs of batches, each framed as Kafka frames it.

    id  codec    framing
    0   none     the bytes themselves
    1   gzip     RFC 1952
    2   snappy   xerial block stream, 32 KiB a block      (`streamlog.binary.xerial`)
    3   lz4      LZ4 frame, independent 64 KiB blocks     (`streamlog.binary.lz4_frame`)
    4   zstd     Zstandard frame without content size     (`streamlog.binary.zstd_frame`)

Compressed bytes come from a disk and are not trusted: output is limited by the caller's
`max_size`, never by a size that the bytes claim. A codec's own exceptions become
`CorruptRecordError`, too much output `LimitExceededError`.
"""

import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from streamlog.binary import lz4_frame, xerial, zstd_frame
from streamlog.binary.arrays import Buffer
from streamlog.errors import (
    CorruptRecordError,
    InvalidConfigError,
    LimitExceededError,
    StreamLogError,
    UnsupportedCompressionError,
)

__all__ = ["CODECS", "GZIP", "LZ4", "NONE", "SNAPPY", "ZSTD", "check_level", "compress",
           "decompress", "most_decompressed"]  # fmt: skip

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

GZIP_FRAMING: Final = 31  # zlib's wbits: the largest window, gzip header and trailer
GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_FLAGS: Final = 3  # position of the header's flags
GZIP_RATIO: Final = 1032  # two bits of deflate copy at most 258 bytes
GZIP_RESERVED: Final = 0xE0  # flags that Java ignores and zlib refuses


class Codec(NamedTuple):
    """One codec: its name, its levels, both directions, and the bound of its output."""

    name: str
    default_level: int
    levels: str  # for messages
    takes_level: Callable[[int], bool]
    compress: Callable[[Buffer, int], bytes]
    decompress: Callable[[Buffer, int], bytes]
    most: Callable[[Buffer], int]


def compress_gzip(data: Buffer, level: int) -> bytes:
    """Return `data` as one gzip member without name or time."""
    stream = zlib.compressobj(level, zlib.DEFLATED, GZIP_FRAMING)
    return stream.compress(data) + stream.flush()


def decompress_gzip(data: Buffer, max_size: int) -> bytes:
    """Return the content of the members in `data`; like Java, ignores bytes after the last one."""
    parts: list[bytes] = []
    rest: Buffer = data
    if len(data) > GZIP_FLAGS and data[GZIP_FLAGS] & GZIP_RESERVED:
        rest = bytearray(data)
        rest[GZIP_FLAGS] &= ~GZIP_RESERVED
    while True:
        stream = zlib.decompressobj(GZIP_FRAMING)
        try:
            part = stream.decompress(rest, max_size + 1)
        except zlib.error as error:
            raise CorruptRecordError("gzip data is damaged", got=str(error)) from None
        max_size -= len(part)
        if max_size < 0:
            raise LimitExceededError("gzip data is larger than allowed")
        if not stream.eof:
            raise CorruptRecordError("gzip data ends too early")
        parts.append(part)
        rest = stream.unused_data
        if not rest.startswith(GZIP_MAGIC):
            return b"".join(parts)


# Source of names, defaults and bounds: CompressionType, GzipCompression, Lz4Compression,
# ZstdCompression of org.apache.kafka.common.compress.
CODECS: Final = {
    GZIP: Codec(
        "gzip", -1, "-1 or 1 to 9", lambda level: level == -1 or 1 <= level <= 9,
        compress_gzip, decompress_gzip,
        lambda data: GZIP_RATIO * len(data),
    ),
    SNAPPY: Codec(
        "snappy", 0, "none", lambda level: False, xerial.compress, xerial.decompress,
        lambda data: xerial.MAX_RATIO * len(data),
    ),
    LZ4: Codec(
        "lz4", 9, "1 to 17", lambda level: 1 <= level <= 17,
        lz4_frame.compress, lz4_frame.decompress,
        lambda data: lz4_frame.MAX_RATIO * len(data),
    ),
    ZSTD: Codec(
        "zstd", 3, "-131072 to 22", lambda level: -131072 <= level <= 22,
        zstd_frame.compress, zstd_frame.decompress,
        zstd_frame.most_decompressed,
    ),
}  # fmt: skip


def check_level(codec: int, level: int | None) -> int:
    """Return `level`, or the codec's default for None.

    Args:
        codec: Id of the codec.
        level: gzip -1 or 1 to 9, lz4 1 to 17, zstd -131072 to 22; the others have none.

    Raises:
        InvalidConfigError: The codec has no such level.
        UnsupportedCompressionError: The codec is unknown.

    Source: CompressionType of org.apache.kafka.common.record.
    """
    if codec == NONE and level is None:
        return 0
    known = CODECS.get(codec)
    if known is None:
        if codec == NONE:
            raise InvalidConfigError("uncompressed data has no compression level", got=level)
        raise UnsupportedCompressionError("unknown compression codec", got=codec)
    if level is None:
        return known.default_level
    if not known.takes_level(level):
        raise InvalidConfigError(
            f"no such compression level of {known.name}", got=level, expected=known.levels
        )
    return level


def compress(codec: int, data: Buffer, *, level: int | None = None) -> bytes:
    """Compress `data`.

    Args:
        codec: Id of the codec; 0 returns the bytes unchanged.
        data: The bytes to compress.
        level: See `check_level`.

    Returns:
        The framed, compressed bytes.

    Raises:
        InvalidConfigError: The codec has no such level.
        UnsupportedCompressionError: The codec is unknown.

    Source: org.apache.kafka.common.compress.Compression.
    """
    level = check_level(codec, level)
    if codec == NONE:
        return bytes(data)
    return CODECS[codec].compress(data, level)


def decompress(
    codec: int,
    data: Buffer,
    *,
    max_size: int,
    path: str | None = None,
    position: int | None = None,
) -> Buffer:
    """Decompress `data` to at most `max_size` bytes.

    Args:
        codec: Id of the codec; 0 returns `data` itself.
        data: Framed, compressed bytes; not trusted.
        max_size: Limit of the output in bytes.
        path: The file, for messages.
        position: Position in the file, for messages.

    Raises:
        CorruptRecordError: The bytes are damaged, truncated, or of an unknown codec.
        LimitExceededError: The output would exceed `max_size` bytes.

    Source: org.apache.kafka.common.compress.Compression.
    """
    try:
        if codec == NONE:
            if len(data) > max_size:
                raise LimitExceededError("uncompressed data is larger than allowed")
            return data
        if codec not in CODECS:
            raise CorruptRecordError("unknown compression codec", got=codec, expected="0 to 4")
        return CODECS[codec].decompress(data, max_size)
    except StreamLogError as error:
        error.path, error.position = path, position
        if isinstance(error, LimitExceededError):
            error.got, error.expected = "more", f"at most {max_size} bytes"
        elif error.expected is None:
            error.expected = "whole, sound data"
        raise


def most_decompressed(codec: int, data: Buffer) -> int:
    """Return an upper bound of the decompressed size of `data`, in bytes, without decompressing it.

    Args:
        codec: Id of the codec.
        data: Framed, compressed bytes; not trusted.

    Raises:
        CorruptRecordError: The bytes are visibly damaged or truncated.
    """
    if codec == NONE:
        return len(data)
    if codec not in CODECS:
        raise CorruptRecordError("unknown compression codec", got=codec, expected="0 to 4")
    return CODECS[codec].most(data)
