"""The wrong header checksum of lz4 frames in messages of format v0."""

import pytest

from streamlog.binary.lz4_frame import (
    CONTENT_SIZE,
    compress,
    decompress,
    header_checksum,
    with_right_checksum,
)
from streamlog.errors import CorruptRecordError
from tests.twins.legacy_builder import with_wrong_checksum

DATA = b"a message set" * 20
FRAME = compress(DATA, 9)


def test_59_the_wrong_checksum_is_the_one_that_kafka_0_8_wrote() -> None:
    assert FRAME[4:7].hex() == "604082"
    assert with_wrong_checksum(FRAME)[4:7].hex() == "60401a"
    assert with_wrong_checksum(FRAME)[7:] == FRAME[7:]


@pytest.mark.parametrize("checksum", [0x1A, 0x82, 0x00])
def test_any_checksum_is_corrected(checksum: int) -> None:
    frame = FRAME[:6] + bytes((checksum,)) + FRAME[7:]
    assert decompress(with_right_checksum(frame), len(DATA)) == DATA


def test_the_checksum_after_a_content_size_is_corrected() -> None:
    descriptor = bytes((FRAME[4] | CONTENT_SIZE, FRAME[5])) + len(DATA).to_bytes(8, "little")
    frame = FRAME[:4] + descriptor + b"\0" + FRAME[7:]
    mended = with_right_checksum(memoryview(frame))
    assert bytes(mended)[14] == header_checksum(descriptor)
    assert decompress(mended, len(DATA)) == DATA


@pytest.mark.parametrize("frame", [b"", b"\x04\x22\x4d\x18", FRAME[:6], b"no frame at all"])
def test_other_bytes_are_left_to_the_frame_reader(frame: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(with_right_checksum(frame), 100)
