"""LZ4 frames, written and refused like those of Kafka's own streams.

    04 22 4d 18     magic, little-endian 0x184d2204
    FLG             60: version 1, independent blocks, no checksums, no content size
    BD              40: blocks of at most 64 KiB
    [content size]  8 bytes, if FLG says so: skipped
    HC              second byte of xxHash32 over FLG to content size
    repeated: uint32 (little-endian) size, high bit set if stored uncompressed; bytes; [checksum]
    00 00 00 00     end mark; [content checksum]: ignored

Only the first frame is read. Java cannot read dependent blocks (the lz4 tool's default), so
they are refused here too: a log must not hold frames that Kafka cannot read.

In messages of format v0 the header checksum (HC) is wrong: Kafka's first writer included the magic,
and its readers never checked it. Later writers keep that for v0 only; on reading any HC is accepted
there (`with_right_checksum`). Source: KAFKA-3160.

Source: Lz4BlockOutputStream and Lz4BlockInputStream of org.apache.kafka.common.compress.
"""

from typing import Final

import lz4.frame

from streamlog.binary.arrays import Buffer
from streamlog.errors import CorruptRecordError, LimitExceededError

__all__ = ["compress", "decompress", "header_checksum", "with_right_checksum"]

MAGIC: Final = b"\x04\x22\x4d\x18"
MIN_HEADER: Final = len(MAGIC) + 3  # FLG, BD, HC
CONTENT_SIZE_BYTES: Final = 8
MAX_RATIO: Final = 255  # each further byte lengthens a copy by at most this much

# FLG
RESERVED_FLAGS: Final = 0x03  # the lower one means "dictionary", which Java does not support
CONTENT_CHECKSUM: Final = 0x04
CONTENT_SIZE: Final = 0x08
INDEPENDENT_BLOCKS: Final = 0x20
VERSION_MASK: Final = 0xC0
VERSION_1: Final = 0x40
# BD
RESERVED_BD: Final = 0x8F
SMALLEST_BLOCK: Final = 4  # 64 KiB; 7 is 4 MiB

FAST_LEVEL: Final = 9  # Kafka's name for the fast compressor: Lz4BlockOutputStream's default
HC_LEVELS: Final = (3, 12)  # liblz4's range of the high compressor; Java's is 1 to 17

PRIME_1: Final = 2654435761
PRIME_2: Final = 2246822519
PRIME_3: Final = 3266489917
PRIME_4: Final = 668265263
PRIME_5: Final = 374761393
MASK: Final = 0xFFFFFFFF


def compress(data: Buffer, level: int) -> bytes:
    """Return `data` as one frame; `level` 9 is the fast compressor, any other the high one."""
    lowest, highest = HC_LEVELS
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level == FAST_LEVEL else min(max(level, lowest), highest),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return compressed


def decompress(data: Buffer, max_size: int) -> bytes:
    """Return the content of the first frame in `data`, at most `max_size` bytes.

    Raises:
        CorruptRecordError: Not a frame that Kafka reads, damaged, or truncated.
        LimitExceededError: The output would exceed `max_size` bytes.
    """
    frame = _check_header(memoryview(data))
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        part: bytes = stream.decompress(frame, max_length=max_size + 1)
    except RuntimeError as error:
        raise CorruptRecordError("lz4 data is damaged", got=str(error)) from None
    if len(part) > max_size:
        raise LimitExceededError("lz4 data is larger than allowed")
    if not stream.eof:
        raise CorruptRecordError("lz4 data ends too early")
    return part


def header_checksum(descriptor: bytes) -> int:
    """Return the second byte of xxHash32 of `descriptor`, which is shorter than 16 bytes."""
    state = PRIME_5 + len(descriptor)
    words = len(descriptor) // 4 * 4
    for position in range(0, words, 4):
        state += int.from_bytes(descriptor[position : position + 4], "little") * PRIME_3
        state = _rotate(state & MASK, 17) * PRIME_4 & MASK
    for byte in descriptor[words:]:
        state = _rotate((state + byte * PRIME_5) & MASK, 11) * PRIME_1 & MASK
    state = (state ^ state >> 15) * PRIME_2 & MASK
    state = (state ^ state >> 13) * PRIME_3 & MASK
    return (state ^ state >> 16) >> 8 & 0xFF


def _rotate(word: int, count: int) -> int:
    return (word << count | word >> 32 - count) & MASK


def _check_header(view: memoryview) -> Buffer:
    """Check the frame's header by Kafka's rules; return an equivalent frame for liblz4.

    Kafka skips content size and content checksum but liblz4 checks them, so a header that
    announces them is replaced by one that does not.
    """
    if len(view) < MIN_HEADER or bytes(view[:4]) != MAGIC:
        raise CorruptRecordError("not an lz4 frame", got=bytes(view[:4]).hex())
    flags, block = view[4], view[5]
    if flags & VERSION_MASK != VERSION_1 or flags & RESERVED_FLAGS:
        raise CorruptRecordError("lz4 frame of an unknown version", got=f"flags {flags:#04x}")
    if not flags & INDEPENDENT_BLOCKS:
        raise CorruptRecordError("lz4 frame with dependent blocks, which Kafka cannot read")
    if block & RESERVED_BD or block >> 4 < SMALLEST_BLOCK:
        raise CorruptRecordError("lz4 frame of an unknown block size", got=f"{block:#04x}")
    end = MIN_HEADER - 1 + (CONTENT_SIZE_BYTES if flags & CONTENT_SIZE else 0)
    if len(view) <= end:
        raise CorruptRecordError("lz4 data ends too early")
    checksum = header_checksum(bytes(view[4:end]))
    if view[end] != checksum:
        raise CorruptRecordError(
            "lz4 frame header has a wrong checksum",
            got=f"{view[end]:#04x}",
            expected=f"{checksum:#04x}",
        )
    if not flags & (CONTENT_SIZE | CONTENT_CHECKSUM):
        return view
    descriptor = bytes((flags & ~(CONTENT_SIZE | CONTENT_CHECKSUM), block))
    header = MAGIC + descriptor + bytes((header_checksum(descriptor),))
    return header + bytes(view[end + 1 :])


_FLAGS_PLACE: Final = len(MAGIC)
_CHECKSUM_PLACE: Final = len(MAGIC) + 2  # after FLG and BD, without a content size


def with_right_checksum(frame: Buffer) -> Buffer:
    """Return a frame of v0 with the right header checksum; other bytes are returned unchanged."""
    place = _checksum_place(frame)
    if len(frame) <= place:
        return frame
    return _with_checksum(frame, place, header_checksum(bytes(frame[_FLAGS_PLACE:place])))


def _checksum_place(frame: Buffer) -> int:
    has_size = len(frame) > _FLAGS_PLACE and frame[_FLAGS_PLACE] & CONTENT_SIZE
    return _CHECKSUM_PLACE + (CONTENT_SIZE_BYTES if has_size else 0)


def _with_checksum(frame: Buffer, place: int, checksum: int) -> bytes:
    return b"".join((frame[:place], bytes((checksum,)), frame[place + 1 :]))
