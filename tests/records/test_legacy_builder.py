"""Message sets of formats v0 and v1 have the bytes that Kafka's own builder makes."""

from typing import Any

import pytest

from streamlog.errors import (
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    StreamLogError,
    UnsupportedCompressionError,
    UnsupportedForMessageFormatError,
)
from streamlog.records.batch import check_crc, scan_batches
from streamlog.records.decode import decode_columns
from streamlog.records.record import CompressionType, Header, Record
from tests.support.batches import message_set
from tests.twins.legacy_builder import LegacyBuilder

T0 = 1_700_000_000_000
R1 = Record(b"k1", b"v1", (), T0)
R2 = Record(b"k2", None, (), T0 + 5)
CODECS = [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]

G10 = (
    "00000000000000000000001257e7496e0000000000026b3100000002763100000000000000010000"
    "0010d5960a780000ffffffff000000027632"
)
G11 = (
    "00000000000000000000001aa5da6a6201000000018bcfe56800000000026b310000000276310000"
    "00000000000100000018dcbe14a101000000018bcfe56805000000026b32ffffffff"
)
G12 = "00000000000000000000001acd3b7c2a01080000018bcfe58f0f000000026b31000000027631"


def test_the_best_known_messages_of_v0_have_their_sizes_and_checksums() -> None:
    buffer = message_set(0, [Record(b"key", b"value"), Record(None, b"value")])
    table = scan_batches(buffer).table
    assert table.position.tolist() == [0, 34]
    assert table.size.tolist() == [34, 31]
    assert table.crc.tolist() == [592888119, 2898297856]
    assert check_crc(buffer, table) == 2


@pytest.mark.parametrize(
    ("golden", "magic", "records", "stamp"),
    [
        (G10, 0, [R1, Record(None, b"v2")], None),
        (G11, 1, [R1, R2], None),
        (G12, 1, [R1], T0 + 9999),
    ],
)
def test_messages_without_compression_have_kafkas_bytes(
    golden: str, magic: int, records: list[Record], stamp: int | None
) -> None:
    assert message_set(magic, records, log_append_time=stamp).hex() == golden


# Header of the wrapper, after its CRC: magic, attributes, timestamp, key.
@pytest.mark.parametrize(
    ("magic", "codec", "stamp", "header"),
    [
        (0, CompressionType.GZIP, None, "0001ffffffff"),
        (0, CompressionType.LZ4, None, "0003ffffffff"),
        (1, CompressionType.SNAPPY, None, "01020000018bcfe56805ffffffff"),
        (1, CompressionType.GZIP, T0 + 9999, "01090000018bcfe58f0fffffffff"),
    ],
)
def test_wrappers_have_kafkas_headers(
    magic: int, codec: CompressionType, stamp: int | None, header: str
) -> None:
    buffer = message_set(magic, [R1, R2], base_offset=10, compression=codec, log_append_time=stamp)
    assert int.from_bytes(buffer[:8], "big") == 11
    assert int.from_bytes(buffer[8:12], "big") == len(buffer) - 12
    assert buffer[16:].hex().startswith(header)


def test_only_format_v0_has_the_wrong_checksum_in_its_lz4_frames() -> None:
    frames = [
        message_set(magic, [R1], compression=CompressionType.LZ4).partition(b"\x04\x22\x4d\x18")[2]
        for magic in (0, 1)
    ]
    assert [frame[:3].hex() for frame in frames] == ["60401a", "604082"]


@pytest.mark.parametrize("codec", [CompressionType.NONE, *CODECS])
@pytest.mark.parametrize("magic", [0, 1])
def test_offset_gaps_survive(magic: int, codec: CompressionType) -> None:
    records = [R1._replace(offset=100), R2._replace(offset=107), R1._replace(offset=2000)]
    buffer = message_set(magic, records, base_offset=100, compression=codec)
    found = decode_columns(buffer, scan_batches(buffer).table)
    assert found.offset.tolist() == [100, 107, 2000]
    assert found.timestamp.tolist() == ([T0, T0 + 5, T0] if magic else [-1, -1, -1])


REFUSED: list[tuple[dict[str, Any], Record, type[StreamLogError]]] = [
    ({}, Record(b"", b"", (Header("h", b""),)), UnsupportedForMessageFormatError),
    ({}, Record(b"", b"", timestamp=-2), InvalidTimestampError),
    ({"base_offset": 5}, Record(b"", b"", offset=4), InvalidRecordError),
    ({}, Record(b"", b"", offset=2**63), InvalidRecordError),
]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("settings", "record", "error"), REFUSED)
def test_what_the_formats_cannot_hold_is_refused(
    magic: int, settings: dict[str, Any], record: Record, error: type[StreamLogError]
) -> None:
    with pytest.raises(error):
        LegacyBuilder(magic, **settings).append(record)


def test_builders_that_kafka_refuses_are_refused() -> None:
    with pytest.raises(UnsupportedCompressionError):
        LegacyBuilder(1, compression=CompressionType.ZSTD)
    with pytest.raises(UnsupportedForMessageFormatError):
        LegacyBuilder(0, log_append_time=T0)
    with pytest.raises(InvalidRequestError):
        LegacyBuilder(2)
    with pytest.raises(InvalidRecordError):
        LegacyBuilder(1).build()
