"""All codecs: round trips, levels, limits, and false claims."""

import contextlib
import os
import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary import compression as c
from streamlog.binary.arrays import Buffer
from streamlog.errors import (
    CorruptDataError,
    CorruptRecordError,
    InvalidConfigError,
    LimitExceededError,
    UnsupportedCompressionError,
)

REAL = (c.GZIP, c.SNAPPY, c.LZ4, c.ZSTD)
SAMPLES = {
    "nothing": b"",
    "one byte": b"x",
    "zeros": bytes(300_000),
    "noise": random.Random(7).randbytes(200_000),
    "text": b"the quick brown fox jumps over the lazy dog " * 5_000,
    "one block": random.Random(8).randbytes(65_536),
    "one block and a byte": random.Random(9).randbytes(65_537),
}


@pytest.mark.parametrize("codec", (c.NONE, *REAL))
@pytest.mark.parametrize("sample", SAMPLES)
def test_decompressing_inverts_compressing(codec: int, sample: str) -> None:
    data = SAMPLES[sample]
    packed = c.compress(codec, data)
    assert bytes(c.decompress(codec, packed, max_size=len(data))) == data


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, "array"])
def test_every_kind_of_buffer_is_accepted(codec: int, kind: object) -> None:
    def convert(data: bytes) -> Buffer:
        return np.frombuffer(data, np.uint8) if kind == "array" else kind(data)

    packed = c.compress(codec, convert(b"abc" * 100))
    assert bytes(c.decompress(codec, convert(packed), max_size=300)) == b"abc" * 100


@pytest.mark.parametrize("codec", REAL)
def test_a_slice_in_the_middle_of_a_buffer_is_decompressed(codec: int) -> None:
    packed = c.compress(codec, b"abc" * 100)
    view = memoryview(b"before" + packed + b"")[6:]
    assert bytes(c.decompress(codec, view, max_size=300)) == b"abc" * 100


@pytest.mark.parametrize("codec", (c.NONE, *REAL))
@pytest.mark.parametrize("sample", ["zeros", "noise", "text"])
def test_one_byte_more_than_allowed_is_refused(codec: int, sample: str) -> None:
    data = SAMPLES[sample]
    packed = c.compress(codec, data)
    with pytest.raises(LimitExceededError) as caught:
        c.decompress(codec, packed, max_size=len(data) - 1, path="x.log", position=5)
    assert (caught.value.path, caught.value.position) == ("x.log", 5)


@pytest.mark.parametrize("codec", REAL)
def test_data_truncated_at_any_byte_is_damage(codec: int) -> None:
    packed = c.compress(codec, SAMPLES["text"][:3000])
    header_only = 16  # of a snappy stream: without blocks it is a sound, empty stream
    for size in range(len(packed)):
        if codec == c.SNAPPY and header_only <= size < header_only + 4:
            continue
        with pytest.raises(CorruptRecordError):
            c.decompress(codec, packed[:size], max_size=10_000)


@pytest.mark.parametrize("codec", (5, 6, 7))
def test_codecs_that_do_not_exist_are_refused(codec: int) -> None:
    with pytest.raises(CorruptRecordError, match="unknown compression codec"):
        c.decompress(codec, b"abc", max_size=10)
    with pytest.raises(UnsupportedCompressionError):
        c.compress(codec, b"abc")


@pytest.mark.parametrize(
    ("codec", "lowest", "highest"),
    [(c.GZIP, 1, 9), (c.LZ4, 1, 17), (c.ZSTD, -131072, 22)],
)
def test_levels_have_kafkas_bounds(codec: int, lowest: int, highest: int) -> None:
    data = SAMPLES["text"][:5000]
    for level in (lowest, highest):
        packed = c.compress(codec, data, level=level)
        assert bytes(c.decompress(codec, packed, max_size=5000)) == data
    for level in (lowest - 1, highest + 1):
        if (codec, level) != (c.GZIP, 0):
            with pytest.raises(InvalidConfigError):
                c.check_level(codec, level)


def test_default_levels_are_kafkas() -> None:
    assert [c.check_level(codec, None) for codec in (c.GZIP, c.LZ4, c.ZSTD)] == [-1, 9, 3]
    assert c.check_level(c.GZIP, -1) == -1
    for level in (0, 10, -2):
        with pytest.raises(InvalidConfigError):
            c.check_level(c.GZIP, level)


@pytest.mark.parametrize("codec", (c.NONE, c.SNAPPY))
def test_codecs_without_levels_accept_none(codec: int) -> None:
    c.check_level(codec, None)
    with pytest.raises(InvalidConfigError):
        c.check_level(codec, 3)


def test_higher_levels_compress_better() -> None:
    data = b"".join(b"%d:%d;" % (i * 7919 % 1000, i) for i in range(20_000))
    for codec, low, high in ((c.GZIP, 1, 9), (c.LZ4, 9, 17), (c.ZSTD, 1, 19)):
        assert len(c.compress(codec, data, level=high)) < len(c.compress(codec, data, level=low))


@pytest.mark.parametrize("codec", REAL)
def test_a_bomb_costs_no_more_memory_than_allowed(codec: int) -> None:
    bomb = c.compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceededError):
            c.decompress(codec, bomb, max_size=1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("codec", REAL)
@given(data=st.data())
def test_any_damage_is_a_typed_error_or_harmless(codec: int, data: st.DataObject) -> None:
    packed = bytearray(c.compress(codec, SAMPLES["text"][:2000]))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptDataError):
        assert len(c.decompress(codec, packed, max_size=4000)) <= 4000


@pytest.mark.parametrize("codec", REAL)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_typed_error_or_harmless(codec: int, junk: bytes) -> None:
    with contextlib.suppress(CorruptDataError):
        assert len(c.decompress(codec, junk, max_size=1000)) <= 1000


# ---- gzip --------------------------------------------------------------------------------------
def test_consecutive_gzip_members_are_read_and_trailing_bytes_ignored() -> None:
    packed = c.compress(c.GZIP, b"abc") + c.compress(c.GZIP, b"def")
    assert c.decompress(c.GZIP, packed, max_size=6) == b"abcdef"
    assert c.decompress(c.GZIP, packed + b"junk", max_size=6) == b"abcdef"
    with pytest.raises(LimitExceededError):
        c.decompress(c.GZIP, packed, max_size=5)


def test_gzip_with_a_wrong_trailer_is_damage() -> None:
    packed = bytearray(c.compress(c.GZIP, b"abc"))
    packed[-5] ^= 1  # CRC
    with pytest.raises(CorruptRecordError):
        c.decompress(c.GZIP, packed, max_size=10)


def test_gzip_header_flags_that_java_ignores_are_ignored() -> None:
    packed = bytearray(c.compress(c.GZIP, b"abc"))
    packed[3] |= 0xE0
    assert c.decompress(c.GZIP, packed, max_size=10) == b"abc"


def test_gzip_header_has_no_optional_fields_like_javas() -> None:
    assert c.compress(c.GZIP, os.urandom(10))[:8].hex() == "1f8b080000000000"
