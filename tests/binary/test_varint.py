"""Varints: golden bytes, limits, and the kernels compared with their plain twins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary.arrays import as_source
from streamlog.binary.jit import kernel
from streamlog.binary.varint import (
    SIZE_BITS,
    SIZE_MASK,
    read_short_size,
    read_short_varint,
    read_varint,
    read_varlong,
    size_of_varlong,
    write_varlong,
)
from tests.twins.binary import plain_read_varint, plain_write_varlong

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

# org.apache.kafka.common.utils.ByteUtilsTest
VARINTS = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    -8192: "ff7f",
    8192: "808001",
    -8193: "818001",
    1048575: "feff7f",
    1048576: "80808001",
    2147483647: "feffffff0f",
    -2147483648: "ffffffff0f",
}
VARLONGS = VARINTS | {
    2**63 - 1: "feffffffffffffffff01",
    -(2**63): "ffffffffffffffffff01",
}


# The functions under test are compiled into the kernels that call them.
@kernel
def call_read_varint(buffer, position, end):
    return read_varint(buffer, position, end)


@kernel
def call_read_short_varint(buffer, position):
    return read_short_varint(buffer, position)


@kernel
def call_read_short_size(buffer, position):
    return read_short_size(buffer, position)


@kernel
def call_read_varlong(buffer, position, end):
    return read_varlong(buffer, position, end)


@kernel
def call_write_varlong(buffer, position, value):
    return write_varlong(buffer, position, value)


@kernel
def call_size_of_varlong(value):
    return size_of_varlong(value)


def varint(buffer: bytes, position: int = 0, behind: bytes = bytes(8)) -> tuple[int, int] | None:
    """Read from `buffer`; the bytes in `behind` follow, must not matter, and complete a word."""
    number = call_read_varint(as_source(buffer + behind), position, len(buffer))
    return (number >> SIZE_BITS, number & SIZE_MASK) if number else None


def varlong(buffer: bytes, position: int = 0, behind: bytes = bytes(8)) -> tuple[int, int] | None:
    value, size = call_read_varlong(as_source(buffer + behind), position, len(buffer))
    return (value, size) if size else None


def written(value: int) -> bytes:
    buffer = np.zeros(10, np.uint8)
    return buffer[: call_write_varlong(buffer, 0, value)].tobytes()


@pytest.mark.parametrize("value", VARINTS)
def test_varints_have_kafkas_bytes(value: int) -> None:
    encoded = bytes.fromhex(VARINTS[value])
    assert varint(encoded) == (value, len(encoded))
    assert written(value) == encoded


@pytest.mark.parametrize("value", VARLONGS)
def test_varlongs_have_kafkas_bytes(value: int) -> None:
    encoded = bytes.fromhex(VARLONGS[value])
    assert varlong(encoded) == (value, len(encoded))
    assert written(value) == encoded
    assert call_size_of_varlong(value) == len(encoded)


def test_a_varint_of_six_bytes_is_none() -> None:
    assert varint(bytes.fromhex("808080808001")) is None


def test_a_varlong_of_eleven_bytes_is_none() -> None:
    assert varlong(bytes.fromhex("8080808080808080808001")) is None


@pytest.mark.parametrize("encoded", ["", "80", "ffff", "80808080"])
def test_a_truncated_number_is_none(encoded: str) -> None:
    assert varint(bytes.fromhex(encoded)) is None
    assert varlong(bytes.fromhex(encoded)) is None


def test_reading_stops_at_the_end_even_if_the_buffer_continues() -> None:
    buffer, end = bytes.fromhex("8080"), bytes.fromhex("0100000000000000")
    assert varint(buffer, behind=end) is None
    assert varlong(buffer, behind=end) is None
    assert varint(buffer + end[:1], behind=end) == varlong(buffer + end[:1]) == (8192, 3)


def test_longer_forms_than_needed_are_read() -> None:
    assert varint(bytes.fromhex("8280808000")) == (1, 5)
    assert varlong(bytes.fromhex("82808080808080808000")) == (1, 10)


def test_bits_beyond_the_type_are_dropped_as_java_drops_them() -> None:
    assert varint(bytes.fromhex("808080807e")) == plain_read_varint(
        bytes.fromhex("808080807e"), 0, width=32
    )
    assert varlong(bytes.fromhex("8080808080808080807e")) == (0, 10)


MANY_GROUPS = st.lists(st.sampled_from([0x80, 0xFF]) | st.integers(0, 255), max_size=14).map(bytes)


@given(MANY_GROUPS, st.integers(0, 3), MANY_GROUPS)
def test_reading_any_bytes_agrees_with_the_plain_twin(
    buffer: bytes, position: int, behind: bytes
) -> None:
    behind = behind if len(buffer + behind) >= 8 else behind + bytes(8)
    assert varint(buffer, position, behind) == plain_read_varint(buffer, position, width=32)
    assert varlong(buffer, position, behind) == plain_read_varint(buffer, position, width=64)


@given(INT64)
def test_writing_agrees_with_the_plain_twin(value: int) -> None:
    assert written(value) == plain_write_varlong(value)
    assert call_size_of_varlong(value) == len(plain_write_varlong(value))


@given(INT32)
def test_reading_inverts_writing_of_varints(value: int) -> None:
    encoded = written(value)
    assert varint(encoded) == (value, len(encoded))


@given(INT64)
def test_reading_inverts_writing_of_varlongs(value: int) -> None:
    encoded = written(value)
    assert varlong(encoded) == (value, len(encoded))


@given(st.binary(min_size=8, max_size=8) | INT32.map(plain_write_varlong))
def test_reading_short_numbers_agrees_with_the_plain_twin(text: bytes) -> None:
    source = as_source(text.ljust(8, b"\xff"))
    plain = plain_read_varint(text.ljust(8, b"\xff"), 0, width=32)
    expected = plain if plain is not None and plain[1] <= 4 else None
    for read in (call_read_short_varint, call_read_short_size):
        value, size = read(source, 0)
        assert (None if size == 0 else (value, size)) == expected
