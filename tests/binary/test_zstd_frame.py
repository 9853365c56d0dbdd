"""Zstandard frames: claims are not trusted, truncation is noticed."""

import random

import pytest
import zstandard

from streamlog.binary.zstd_frame import MAX_WINDOW, compress, decompress
from streamlog.errors import CorruptRecordError, LimitExceededError

TEXT = b"some text that repeats itself, " * 20_000
NOISE = random.Random(3).randbytes(300_000)


def test_the_frame_has_no_content_size_and_no_checksum() -> None:
    packed = compress(TEXT, 3)
    assert packed[:5].hex() == "28b52ffd00"
    parameters = zstandard.get_frame_parameters(packed)
    assert parameters.content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert not parameters.has_checksum


@pytest.mark.parametrize("level", [-131072, -5, 1, 3, 19, 22])
def test_every_level_is_read_back(level: int) -> None:
    for data in (TEXT, NOISE):
        assert decompress(compress(data, level), len(data)) == data


def test_streams_as_kafka_writes_them_are_read_at_every_level() -> None:
    for level in (1, 3, 19, 22):
        stream = zstandard.ZstdCompressor(level=level).compressobj()
        packed = stream.compress(TEXT) + stream.flush()
        assert decompress(packed, len(TEXT)) == TEXT


def test_content_size_checksum_and_single_segment_are_read() -> None:
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
    assert decompress(packed, len(TEXT)) == TEXT
    with pytest.raises(CorruptRecordError):
        decompress(packed[:-4] + bytes(4), len(TEXT))


def test_a_declared_size_does_not_raise_the_limit() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(200 << 20))
    with pytest.raises(LimitExceededError):
        decompress(bomb, 1 << 20)


def test_a_declared_size_beyond_what_the_blocks_can_hold_is_damage() -> None:
    packed = bytearray(zstandard.ZstdCompressor().compress(bytes(70_000)))
    assert packed[4] >> 6 == 2  # a size of four bytes
    packed[6:10] = (2**31).to_bytes(4, "little")
    with pytest.raises(CorruptRecordError):
        decompress(packed, 2**32)


def test_several_frames_and_skippable_ones_are_read() -> None:
    skippable = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"12345"
    packed = compress(b"abc", 3) + skippable + compress(b"def", 3)
    assert decompress(packed, 6) == b"abcdef"
    with pytest.raises(LimitExceededError):
        decompress(packed, 5)


def test_bytes_after_the_last_frame_are_damage() -> None:
    with pytest.raises(CorruptRecordError):
        decompress(compress(b"abc", 3) + b"junk", 10)


def test_a_frame_truncated_between_its_blocks_is_damage() -> None:
    # The decoder's own stream would silently return what it has.
    packed = compress(NOISE, 3)
    first_block = 6 + 3 + (int.from_bytes(packed[6:9], "little") >> 3)
    with pytest.raises(CorruptRecordError, match="too early"):
        decompress(packed[:first_block], len(NOISE))


def test_a_window_wider_than_kafkas_limit_is_refused() -> None:
    header = bytearray(bytes.fromhex("28b52ffd0000"))
    exponent = MAX_WINDOW.bit_length() - 1 - 10
    empty_last_block = bytes.fromhex("010000")
    header[5] = exponent << 3
    assert decompress(bytes(header) + empty_last_block, 0) == b""
    header[5] = (exponent << 3) + 1
    with pytest.raises(CorruptRecordError, match="window"):
        decompress(bytes(header) + empty_last_block, 0)


@pytest.mark.parametrize("flag", [0x01, 0x02, 0x03, 0x08])
def test_dictionaries_and_the_reserved_bit_are_refused(flag: int) -> None:
    packed = bytearray(compress(b"abc", 3))
    packed[4] |= flag
    with pytest.raises(CorruptRecordError, match="dictionary"):
        decompress(packed, 10)


def test_threads_do_not_share_a_context() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        packed = list(pool.map(lambda level: compress(TEXT, level), [1, 3, 5, 7] * 5))
        found = list(pool.map(lambda data: decompress(data, len(TEXT)), packed))
    assert all(data == TEXT for data in found)
