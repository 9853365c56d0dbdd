"""Checksums against their published check values."""

import zlib

import numpy as np

from streamlog.binary.crc import crc32, crc32c


def test_crc32c_of_the_check_string() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_crc32_of_the_check_string() -> None:
    assert crc32(b"123456789") == 0xCBF43926 == zlib.crc32(b"123456789")


def test_every_kind_of_buffer_has_the_same_checksum() -> None:
    text = b"123456789"
    for buffer in (bytearray(text), memoryview(text), np.frombuffer(text, np.uint8)):
        assert crc32c(buffer) == 0xE3069283
        assert crc32(buffer) == 0xCBF43926
