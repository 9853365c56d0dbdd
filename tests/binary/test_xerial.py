"""Snappy in the framing of snappy-java."""

import struct

import pytest
import snappy

from streamlog.binary.xerial import compress, decompress
from streamlog.errors import CorruptRecordError, LimitExceededError

HEADER = bytes.fromhex("82534e41505059000000000100000001")


def block(data: bytes) -> bytes:
    raw: bytes = snappy.compress(data)
    return struct.pack(">i", len(raw)) + raw


def test_the_header_and_blocks_of_32_kib_are_written() -> None:
    packed = compress(bytes(70_000), 0)
    assert packed[:16] == HEADER
    sizes = []
    position = 16
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        sizes.append(len(snappy.decompress(packed[position + 4 : position + 4 + size])))
        position += 4 + size
    assert sizes == [32_768, 32_768, 4_464]


def test_blocks_of_any_size_are_read() -> None:
    packed = HEADER + block(b"a") + block(bytes(100_000)) + block(b"")
    assert decompress(packed, 200_000) == b"a" + bytes(100_000)


def test_raw_snappy_without_header_is_read() -> None:
    assert decompress(snappy.compress(b"hello " * 50), 1000) == b"hello " * 50


def test_repeated_headers_are_read() -> None:
    packed = HEADER + block(b"abc") + HEADER + HEADER + block(b"def")
    assert decompress(packed, 10) == b"abcdef"


def test_up_to_three_stray_bytes_at_the_end_are_ignored() -> None:
    assert decompress(HEADER + block(b"abc") + b"\0\0\0", 10) == b"abc"


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 100])
def test_a_block_that_reaches_beyond_the_data_is_damage(size: int) -> None:
    with pytest.raises(CorruptRecordError, match="beyond"):
        decompress(HEADER + struct.pack(">i", size) + b"abc", 10)


def test_a_truncated_header_or_version_0_is_damage() -> None:
    with pytest.raises(CorruptRecordError):
        decompress(HEADER + block(b"abc") + HEADER[:10], 10)
    with pytest.raises(CorruptRecordError):
        decompress(HEADER + HEADER[:8] + bytes(8), 10)


def test_a_raw_length_that_no_block_of_its_size_can_hold_is_damage() -> None:
    with pytest.raises(CorruptRecordError, match="damaged length"):
        decompress(b"\xff\xff\xff\x7f" + b"abc", 1 << 30)


def test_all_blocks_together_are_bounded() -> None:
    packed = HEADER + block(bytes(60)) * 3
    assert len(decompress(packed, 180)) == 180
    with pytest.raises(LimitExceededError):
        decompress(packed, 179)
