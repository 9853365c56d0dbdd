"""The keyed hash: its authors' vectors, and the kernel compared with its plain twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary.arrays import as_source
from streamlog.binary.siphash import KEY_SIZE, siphash
from tests.twins.binary import plain_siphash

KEY = bytes(range(KEY_SIZE))
# vectors_sip128 of the reference implementation: the hash of 0, 1, 2 … under the key above.
VECTORS = {0: "a3817f04ba25a8e66df67214c7550293", 1: "da87c1d86b99af44347659119b22fc45"}


def compiled(data: bytes, key: bytes, before: bytes = b"") -> bytes:
    source = as_source(before + data + bytes(8))
    low, high = np.frombuffer(key, "<i8").tolist()
    halves = siphash(source, len(before), len(before) + len(data), low, high)
    return b"".join(half.to_bytes(8, "little", signed=True) for half in halves)


@pytest.mark.parametrize(("size", "expected"), VECTORS.items())
def test_the_hash_has_the_authors_vectors(size: int, expected: str) -> None:
    assert plain_siphash(bytes(range(size)), KEY).hex() == expected
    assert compiled(bytes(range(size)), KEY).hex() == expected


@given(st.binary(max_size=70), st.binary(min_size=KEY_SIZE, max_size=KEY_SIZE), st.binary())
def test_the_kernel_agrees_with_its_twin(data: bytes, key: bytes, before: bytes) -> None:
    assert compiled(data, key, before) == plain_siphash(data, key)


def test_the_last_bytes_of_an_array_are_hashed_without_reading_beyond_it() -> None:
    data = bytes(range(64))
    low, high = np.frombuffer(KEY, "<i8").tolist()
    for start in range(64):
        halves = siphash(as_source(data), start, 64, low, high)
        found = b"".join(half.to_bytes(8, "little", signed=True) for half in halves)
        assert found == plain_siphash(data[start:], KEY)
