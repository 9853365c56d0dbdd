"""XXH3: hashes that the library of its authors made, of every way through the code."""

import pytest

from streamlog.binary.xxh3 import xxh3_64

# xxhash 4.1 (PyPI), xxh3_64_intdigest of the bytes 0, 1 … 250, 0, 1 …
VECTORS = {
    0: 0x2D06800538D394C2,
    1: 0xC44BDFF4074EECDB,
    4: 0x60DAB036A58211F2,
    8: 0x3A1C2D7C85AF88F8,
    9: 0xE9612598145BB9DC,
    16: 0x8355E3A6F61770DB,
    17: 0x9EF341A99DE37328,
    80: 0xABB472EDD4E038CF,
    128: 0x85C6174C7FF4C46B,
    129: 0xEC7642B431BA3E5A,
    240: 0x375A384D957FE865,
    241: 0x02E8CD95421C6D02,
    1024: 0xE5D78BAFA45B2AA5,
    1025: 0xE95C42288F28186E,
    2500: 0x76EBAE7C9D5CDC5C,
}


@pytest.mark.parametrize(("size", "expected"), VECTORS.items())
def test_the_hash_is_that_of_its_authors(size: int, expected: int) -> None:
    assert xxh3_64(bytes(at % 251 for at in range(size))) == expected
