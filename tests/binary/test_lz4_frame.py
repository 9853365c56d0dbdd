"""LZ4 frames: those that Kafka writes, those that its reader accepts, and those that it refuses."""

import random

import lz4.frame
import pytest

from streamlog.binary.lz4_frame import compress, decompress, header_checksum
from streamlog.errors import CorruptRecordError

NOISE = random.Random(3).randbytes(100_000)
TEXT = b"some text that repeats itself, " * 20_000


def frame(data: bytes, **options: object) -> bytearray:
    settings = {"block_linked": False, "store_size": False, **options}
    return bytearray(lz4.frame.compress(data, **settings))


def test_the_header_is_the_one_kafka_writes() -> None:
    assert compress(b"abc", 9)[:7].hex() == "04224d18604082"


def test_the_frame_ends_with_an_end_mark_and_no_checksum() -> None:
    assert compress(b"abc", 9)[7:].hex() == "03000080" + b"abc".hex() + "00000000"


def test_incompressible_blocks_are_stored_as_they_are() -> None:
    packed = compress(NOISE, 9)
    assert int.from_bytes(packed[7:11], "little") == 0x80000000 | 65_536
    assert packed[11 : 11 + 65_536] == NOISE[:65_536]


@pytest.mark.parametrize("level", range(1, 18))
def test_every_level_is_read_back(level: int) -> None:
    assert decompress(compress(TEXT[:50_000], level), 50_000) == TEXT[:50_000]


@pytest.mark.parametrize("descriptor", ["6040", "6050", "6070", "7440", "68400100000000000000"])
def test_header_checksums_are_those_of_xxhash(descriptor: str) -> None:
    packed = bytes.fromhex("04224d18" + descriptor)
    checksum = bytes((header_checksum(packed[4:]),))
    # liblz4 itself checks it and raises
    lz4.frame.LZ4FrameDecompressor().decompress(packed + checksum)
    with pytest.raises(RuntimeError, match="headerChecksum"):
        wrong = bytes((checksum[0] ^ 1,))
        lz4.frame.LZ4FrameDecompressor().decompress(packed + wrong)


@pytest.mark.parametrize("size", [4, 5, 6, 7])
def test_blocks_of_64_kib_to_4_mib_are_read(size: int) -> None:
    assert decompress(frame(TEXT, block_size=size), len(TEXT)) == TEXT


def test_content_size_is_skipped_even_if_it_lies() -> None:
    packed = frame(b"abc", store_size=True)
    assert decompress(packed, 10) == b"abc"
    packed[6:14] = (10**15).to_bytes(8, "little")
    packed[14] = header_checksum(bytes(packed[4:14]))
    assert decompress(packed, 10) == b"abc"


def test_a_content_checksum_is_not_verified() -> None:
    packed = frame(TEXT, content_checksum=True)
    packed[-1] ^= 1
    assert decompress(packed, len(TEXT)) == TEXT
    assert decompress(packed[:-4], len(TEXT)) == TEXT


def test_block_checksums_are_verified() -> None:
    packed = frame(NOISE[:1000], block_checksum=True)
    assert decompress(packed, 1000) == NOISE[:1000]
    packed[500] ^= 1
    with pytest.raises(CorruptRecordError):
        decompress(packed, 1000)


def test_only_the_first_frame_is_read() -> None:
    assert decompress(compress(b"abc", 9) + compress(b"def", 9), 10) == b"abc"


def test_a_wrong_header_checksum_is_refused() -> None:
    packed = bytearray(compress(b"abc", 9))
    packed[6] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum"):
        decompress(packed, 10)


def test_a_missing_end_mark_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="too early"):
        decompress(compress(b"abc", 9)[:-4], 10)


def test_dependent_blocks_are_refused_as_kafka_cannot_read_them() -> None:
    with pytest.raises(CorruptRecordError, match="dependent blocks"):
        decompress(frame(TEXT, block_linked=True), len(TEXT))


@pytest.mark.parametrize(
    "header",
    [
        "05224d186040",  # magic
        "04224d18a040",  # version 2
        "04224d186140",  # dictionary
        "04224d186240",  # reserved flag
        "04224d186030",  # blocks of a size that is not defined
        "04224d1860c0",  # reserved bit of the block descriptor
        "04224d186041",  # another
    ],
)
def test_headers_that_kafka_refuses_are_refused(header: str) -> None:
    packed = bytes.fromhex(header)
    packed += bytes((header_checksum(packed[4:]),)) + bytes(4)
    with pytest.raises(CorruptRecordError):
        decompress(packed, 10)


def test_a_block_longer_than_the_frame_allows_is_refused() -> None:
    packed = bytes.fromhex("04224d18604082") + (65_537 | 0x80000000).to_bytes(4, "little")
    with pytest.raises(CorruptRecordError):
        decompress(packed + bytes(65_537) + bytes(4), 1 << 20)
