"""LZ4 frames in messages of format v0: their header checksum is computed wrongly.

The frame's own rule is a checksum over FLG to content size. Kafka's first writer took the magic
in front, too, and its readers never looked. Later ones keep to that for v0, and for v0 only: what
is written has the wrong checksum, what is read may have any.

Source: Lz4BlockOutputStream (useBrokenFlagDescriptorChecksum) and Lz4BlockInputStream
(ignoreFlagDescriptorChecksum) of org.apache.kafka.common.compress; KAFKA-3160.
"""

from typing import Final

from streamlog.binary.arrays import Buffer
from streamlog.binary.lz4_frame import CONTENT_SIZE, CONTENT_SIZE_BYTES, MAGIC, header_checksum

__all__ = ["with_right_checksum"]

_FLAGS_PLACE: Final = len(MAGIC)
_CHECKSUM_PLACE: Final = len(MAGIC) + 2  # behind FLG and BD, where there is no content size


def with_right_checksum(frame: Buffer) -> Buffer:
    """Return a frame of v0 as one that any reader takes; what is no frame comes back as it is."""
    place = _checksum_place(frame)
    if len(frame) <= place:
        return frame
    return _with_checksum(frame, place, header_checksum(bytes(frame[_FLAGS_PLACE:place])))


def _checksum_place(frame: Buffer) -> int:
    has_size = len(frame) > _FLAGS_PLACE and frame[_FLAGS_PLACE] & CONTENT_SIZE
    return _CHECKSUM_PLACE + (CONTENT_SIZE_BYTES if has_size else 0)


def _with_checksum(frame: Buffer, place: int, checksum: int) -> bytes:
    return b"".join((frame[:place], bytes((checksum,)), frame[place + 1 :]))
