"""The hash of keys: golden values, and the kernel compared with its plain twin."""

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary.arrays import as_source
from streamlog.binary.murmur2 import murmur2
from tests.support.golden import GOLDEN
from tests.twins.binary import plain_murmur2


def test_hashes_are_kafkas() -> None:
    golden = json.loads((GOLDEN / "G-partitioner" / "murmur2.json").read_text())
    for line in golden["keys"]:
        key = base64.b64decode(line["key"])
        assert murmur2(as_source(key), 0, len(key)) == line["murmur2"] % 2**32


@given(st.binary(max_size=40), st.binary(max_size=5), st.binary(max_size=5))
def test_hashing_agrees_with_the_plain_twin(key: bytes, before: bytes, after: bytes) -> None:
    data = as_source(before + key + after)
    assert murmur2(data, len(before), len(before) + len(key)) == plain_murmur2(key)
