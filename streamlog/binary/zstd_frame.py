"""Zstandard frames, walked before they are decompressed.

    28 b5 2f fd        magic, little-endian 0xfd2fb528
    descriptor         bits 7-6 content size field, 5 single segment, 3 reserved, 2 checksum,
                       1-0 dictionary id
    [window]           exponent (5 bits) and mantissa (3 bits)
    [dictionary id]    refused: Kafka uses none
    [content size]     a claim, and treated as one
    repeated: 3 bytes (little-endian): bit 0 last block, 1-2 type, 3-23 size; the block
    [checksum]         4 bytes

The decoder's streams end silently at a truncated frame, and its one-call form trusts a declared
size over the caller's limit. So the blocks are walked first: that finds the end of the frame, and
limits the output, since no block holds more than 128 KiB.

Source: RFC 8878; org.apache.kafka.common.compress.ZstdCompression.
"""

import threading
from typing import Final, NamedTuple

import zstandard

from streamlog.binary.arrays import Buffer
from streamlog.errors import CorruptRecordError, LimitExceededError

__all__ = ["compress", "decompress", "most_decompressed"]

MAGIC: Final = b"\x28\xb5\x2f\xfd"
SKIPPABLE_MAGIC: Final = range(0x184D2A50, 0x184D2A60)
MAX_BLOCK: Final = 128 << 10
# The widest window that Kafka writes (level 22) and that its reader accepts. Not a minimum of
# memory: the decoder touches only as much of it as it decompresses.
MAX_WINDOW: Final = 1 << 27
CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)
RAW, RLE, COMPRESSED = 0, 1, 2  # types of a block


class Frame(NamedTuple):
    """The end of a frame, and the upper bound of its content."""

    end: int
    max_size: int


class _Contexts(threading.local):
    """The library's contexts: expensive to create, and not shareable between threads."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        self.level = 3
        self._compressor: zstandard.ZstdCompressor | None = None

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        """Return the compressor of `level`, kept until another level is requested."""
        if self._compressor is None or level != self.level:
            self.level = level
            self._compressor = zstandard.ZstdCompressor(
                level=level, write_content_size=False, write_checksum=False, write_dict_id=False
            )
        return self._compressor


_contexts: Final = _Contexts()


def compress(data: Buffer, level: int) -> bytes:
    """Return `data` as one frame that, like Kafka's, does not state its content's size."""
    return _contexts.compressor(level).compress(memoryview(data))


def decompress(data: Buffer, max_size: int) -> bytes:
    """Return the content of the frames in `data`, at most `max_size` bytes.

    Raises:
        CorruptRecordError: Damaged, truncated, followed by other bytes, or in need of a
            dictionary or of a wider window than Kafka accepts.
        LimitExceededError: The output would exceed `max_size` bytes.
    """
    view = memoryview(data).cast("B")
    parts: list[bytes] = []
    position = 0
    while position < len(view) or not parts:
        frame = _walk(view, position)
        if frame.max_size:
            part = _decompress_frame(view[position : frame.end], frame.max_size, max_size)
            max_size -= len(part)
            parts.append(part)
        else:
            parts.append(b"")
        position = frame.end
    return parts[0] if len(parts) == 1 else b"".join(parts)


def most_decompressed(data: Buffer) -> int:
    """Return an upper bound of the content of all frames in `data`.

    Raises:
        CorruptRecordError: Damaged or truncated.
    """
    view = memoryview(data)
    most = position = 0
    while position < len(view):
        frame = _walk(view, position)
        most, position = most + frame.max_size, frame.end
    return most


def _decompress_frame(frame: memoryview, bound: int, max_size: int) -> bytes:
    decompressor = _contexts.decompressor
    try:
        declared = zstandard.get_frame_parameters(frame).content_size
        if declared != zstandard.CONTENTSIZE_UNKNOWN and declared > bound:
            raise CorruptRecordError("zstd frame declares more than its blocks can hold")
        if bound <= max_size:
            return decompressor.decompress(frame, max_output_size=bound)
        with decompressor.stream_reader(frame) as stream:
            part: bytes = stream.read(max_size + 1)
    except zstandard.ZstdError as error:
        raise CorruptRecordError("zstd data is damaged", got=str(error)) from None
    if len(part) > max_size:
        raise LimitExceededError("zstd data is larger than allowed")
    return part


def _walk(view: memoryview, start: int) -> Frame:
    """Return the extent of the frame at `start` without decompressing it."""
    if bytes(view[start : start + 4]) != MAGIC:
        return _walk_skippable(view, start)
    if len(view) - start < 6:
        raise CorruptRecordError("zstd data ends too early")
    descriptor = view[start + 4]
    single_segment = descriptor >> 5 & 1
    if descriptor & 0x0B:
        raise CorruptRecordError("zstd frame needs a dictionary or a newer reader")
    max_block = MAX_BLOCK
    if not single_segment:
        exponent, mantissa = view[start + 5] >> 3, view[start + 5] & 7
        window = (1 << 10 + exponent) + (1 << 7 + exponent) * mantissa
        if window > MAX_WINDOW:
            raise CorruptRecordError(
                "zstd window is wider than Kafka accepts", got=window, expected=MAX_WINDOW
            )
        max_block = min(MAX_BLOCK, window)
    size_bytes = CONTENT_SIZE_BYTES[descriptor >> 6] or single_segment
    position = start + 5 + (1 - single_segment) + size_bytes
    return _walk_blocks(view, position, max_block, 4 if descriptor & 4 else 0)


def _walk_blocks(view: memoryview, position: int, max_block: int, checksum_size: int) -> Frame:
    bound = 0
    is_last = False
    while not is_last:
        header = int.from_bytes(view[position : position + 3], "little")
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        position += 3 + (1 if kind == RLE else size)
        if kind > COMPRESSED or size > max_block:
            raise CorruptRecordError("zstd block is damaged")
        if position > len(view):
            raise CorruptRecordError("zstd data ends too early")
        bound += max_block if kind == COMPRESSED else size
    if checksum_size > len(view) - position:
        raise CorruptRecordError("zstd data ends too early")
    return Frame(position + checksum_size, bound)


def _walk_skippable(view: memoryview, start: int) -> Frame:
    magic = int.from_bytes(view[start : start + 4], "little")
    size = int.from_bytes(view[start + 4 : start + 8], "little")
    if magic not in SKIPPABLE_MAGIC or len(view) - start < 8:
        raise CorruptRecordError("not a zstd frame", got=bytes(view[start : start + 4]).hex())
    if size > len(view) - start - 8:
        raise CorruptRecordError("zstd data ends too early")
    return Frame(start + 8 + size, 0)
