"""Big-endian integers: the kernels compared with their plain twins."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary import big_endian as be
from streamlog.binary.arrays import as_source
from tests.twins.binary import plain_read_int, plain_write_int

READERS = {1: be.read_int8, 2: be.read_int16, 4: be.read_int32, 8: be.read_int64}
WRITERS = {1: be.write_int8, 2: be.write_int16, 4: be.write_int32, 8: be.write_int64}


@given(st.binary(min_size=12, max_size=12), st.integers(0, 4))
def test_reading_agrees_with_the_plain_twin(buffer: bytes, position: int) -> None:
    for size, read in READERS.items():
        assert read(as_source(buffer), position) == plain_read_int(buffer, position, size)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 4))
def test_writing_agrees_with_the_plain_twin(value: int, position: int) -> None:
    for size, write in WRITERS.items():
        buffer, plain = np.full(12, 7, np.uint8), bytearray(b"\7" * 12)
        write(buffer, position, value)
        plain_write_int(plain, position, size, value)
        assert buffer.tobytes() == plain


@given(st.integers(-(2**63), 2**63 - 1))
def test_reading_inverts_writing(value: int) -> None:
    buffer = np.zeros(8, np.uint8)
    be.write_int64(buffer, 0, value)
    assert be.read_int64(as_source(buffer), 0) == value


@pytest.mark.parametrize("read", READERS.values())
def test_reading_beyond_the_array_raises_instead_of_reading_it(
    read: Callable[..., int],
) -> None:
    with pytest.raises(IndexError):
        read(as_source(b""), 0)
