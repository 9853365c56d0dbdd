"""Messages of formats v0 and v1 are read as Kafka reads them, and damaged ones refused."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from streamlog.binary.compression import GZIP, LZ4, compress
from streamlog.binary.crc import crc32
from streamlog.errors import CorruptRecordError, LimitExceededError
from streamlog.records import legacy
from streamlog.records import slot as s
from streamlog.records.legacy import decode_messages, find_bad_message, with_first_offsets
from streamlog.records.record import CompressionType, Record
from streamlog.records.slots import RecordSlots
from tests.support.batches import text_of
from tests.support.golden import GOLDEN, json_lines
from tests.support.messages import message_set, table_of

T0 = 1_700_000_000_000
EVERYTHING = -(2**63)
CODECS = [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]
THREE = [Record(b"k%d" % place, b"v%d" % place, (), T0 + place) for place in range(3)]

CASES = sorted(
    path.parent
    for folder in ("A-batches", "B-legacy")
    for path in (GOLDEN / folder).glob("*/batch.bin")
    if ("-v0-" in path.parent.name) != ("-v1-" in path.parent.name)
)

# Wrappers of two records, as Kafka's builder made them: offsets 10 and 11, keys k1 and k2.
G13 = (
    "000000000000000b000000456e6ecb2f0001ffffffff000000371f8b08000000000000ff636000032e20160a7fee9907"
    "e631651b82c8324388240337100b742b3fbe059535fa0f0400fb87f2b23a000000"
)
G14 = (
    "000000000000000b00000055831826bc01010000018bcfe56805ffffffff0000003f1f8b08000000000000ff63608003"
    "a9a5b7b29218810cc6eef34f3340224cd98620b2cc10aa02242971679fc842b82a56b02aa3ff4000003c0df1bd4a0000"
    "00"
)
G15 = (
    "000000000000000b000000564c6b9ca90002ffffffff0000004882534e41505059000000000100000001000000343a00"
    "000901200a0000001257e7496e050f1c026b31000000027601060101500b000000108b23e3da0000000000026b32ffff"
    "ffff"
)
G16 = (
    "000000000000000b000000653c9a168f01020000018bcfe56805ffffffff0000004f82534e4150505900000000010000"
    "00010000003b4a00001901341aa5da6a6201000000018bcfe56801181c026b31000000027601060101011d1018dcbe14"
    "a1010905262805000000026b32ffffffff"
)
G17 = (
    "000000000000000b0000005017b01bfd0003ffffffff0000004204224d1860401a3300000012000100910a0000001257"
    "e7496e0f0080026b3100000002760600000200900b000000108b23e3da0d008000026b32ffffffff00000000"
)
G18 = (
    "000000000000000b000000622e14f37601030000018bcfe56805ffffffff0000004c04224d186040823d000000160001"
    "00e01aa5da6a6201000000018bcfe568180080026b3100000002760600000200001d005018dcbe14a10900012600b005"
    "000000026b32ffffffff00000000"
)
G19 = (
    "000000000000000b000000554deef32501090000018bcfe58f0fffffffff0000003f1f8b08000000000000ff63608003"
    "a9b3d6355a8c1c0c0c8cdde79ff6f3034598b20d41649921540523104b70efdd7d1c4d95d17f200000a793126e4a0000"
    "00"
)


def read(buffer: bytes, **settings: Any) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Return offset, timestamp, key and value of each record."""
    found = decode_messages(buffer, table_of(buffer), **settings)
    return list(zip(*columns_of(found), strict=True))


def columns_of(found: RecordSlots) -> list[list[Any]]:
    source = found.source.tobytes()

    def fields(place: int) -> list[bytes | None]:
        spans = found.slots[:, place : place + 2].tolist()
        return [None if size < 0 else source[start : start + size] for start, size in spans]

    numbers = [found.slots[:, place].tolist() for place in (s.SLOT_OFFSET, s.SLOT_TIMESTAMP)]
    return [*numbers, fields(s.SLOT_KEY), fields(s.SLOT_VALUE)]


# ---- what Kafka wrote ----------------------------------------------------------------------------
def test_the_golden_folders_have_all_cases() -> None:
    assert len(CASES) == 76


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_messages_are_what_kafka_reads(case: Any) -> None:
    buffer = (case / "batch.bin").read_bytes()
    lines = json_lines(str(next(case.glob("expect.jsonl*")).relative_to(GOLDEN)))
    records = [line for line in lines if line["kind"] == "record"]
    batches = [line for line in lines if line["kind"] == "batch"]
    table = table_of(buffer)
    assert find_bad_message(buffer, table) == len(table)
    found = decode_messages(buffer, table)
    offsets, timestamps, keys, values = columns_of(found)
    assert offsets == [line["offset"] for line in records]
    assert timestamps == [line["timestamp"] for line in records]
    assert [text_of(key) for key in keys] == [line["key"] for line in records]
    assert [text_of(value) for value in values] == [line["value"] for line in records]
    assert found.rows.tolist() == [line["records"] for line in batches]
    firsts = with_first_offsets(buffer, table).base_offset.tolist()
    assert firsts == [line["baseOffset"] for line in batches]


@pytest.mark.parametrize("golden", [G13, G14, G15, G16, G17, G18, G19])
def test_wrappers_give_their_records(golden: str) -> None:
    buffer = bytes.fromhex(golden)
    times = [-1, -1] if buffer[16] == 0 else [T0, T0 + 5]
    if golden == G19:
        times = [T0 + 9999] * 2  # LogAppendTime: that of the wrapper
    wanted = [(10, times[0], b"k1", b"v1"), (11, times[1], b"k2", None)]
    assert read(buffer) == wanted


# ---- which records -------------------------------------------------------------------------------
@pytest.mark.parametrize("codec", [CompressionType.NONE, *CODECS])
@pytest.mark.parametrize("magic", [0, 1])
def test_only_wanted_offsets_are_given(magic: int, codec: CompressionType) -> None:
    buffer = message_set(magic, THREE * 3, base_offset=50, compression=codec)
    buffer += message_set(magic, THREE, base_offset=70, compression=codec)
    offsets = [row[0] for row in read(buffer, start_offset=52, end_offset=72)]
    assert offsets == [52, 53, 54, 55, 56, 57, 58, 70, 71]
    assert read(buffer, start_offset=73) == []


def test_the_time_of_the_append_is_that_of_the_wrapper_whatever_stands_inside() -> None:
    inner = message_set(1, THREE)
    buffer = wrapper(1, GZIP | 8, T0 + 50, compress(GZIP, inner), offset=2)
    assert [row[1] for row in read(buffer)] == [T0 + 50] * 3


def test_messages_of_v0_in_a_wrapper_of_v1_are_read_without_timestamps() -> None:
    buffer = wrapper(1, GZIP | 8, T0, compress(GZIP, message_set(0, THREE)), offset=12)
    assert [row[:2] for row in read(buffer)] == [(10, -1), (11, -1), (12, -1)]


def test_a_wrapper_of_offset_0_takes_the_offsets_in_it_as_they_are() -> None:
    buffer = wrapper(1, GZIP, T0, compress(GZIP, message_set(1, THREE)), offset=0)
    assert [row[0] for row in read(buffer)] == [0, 1, 2]


def test_a_message_cut_short_at_the_end_of_a_wrapper_is_left_out_as_by_kafka() -> None:
    inner = message_set(0, THREE)
    buffer = wrapper(0, GZIP, None, compress(GZIP, inner[:-1]), offset=2)
    assert [row[0] for row in read(buffer)] == [0, 1]


def test_offsets_of_a_producer_mean_nothing() -> None:
    inner = b"".join(message_set(0, [record], base_offset=7) for record in THREE)
    buffer = wrapper(0, GZIP, None, compress(GZIP, inner), offset=0)
    assert [row[2] for row in read(buffer, is_strict=False)] == [b"k0", b"k1", b"k2"]
    with pytest.raises(CorruptRecordError):
        read(buffer)


@pytest.mark.parametrize("checksum", [0x1A, 0x82, 0x55])
def test_lz4_of_v0_is_read_whatever_its_header_checksum(checksum: int) -> None:
    frame = bytearray(compress(LZ4, message_set(0, THREE)))
    frame[6] = checksum
    assert len(read(wrapper(0, LZ4, None, bytes(frame), offset=2))) == 3


# ---- damage --------------------------------------------------------------------------------------
def wrapper(
    magic: int,
    attributes: int,
    time: int | None,
    value: bytes | None,
    *,
    offset: int = 0,
    surplus: bytes = b"",
) -> bytes:
    """Return a message with any attributes and value."""
    body = struct.pack(">BB", magic, attributes)
    body += b"" if time is None else struct.pack(">q", time)
    body += struct.pack(">ii", -1, -1 if value is None else len(value)) + (value or b"") + surplus
    return struct.pack(">qiI", offset, 4 + len(body), crc32(body)) + body


def packed(change: Callable[[bytearray], None], magic: int = 1) -> bytes:
    """Return a wrapper of three records whose message set was changed."""
    inner = bytearray(message_set(magic, THREE))
    change(inner)
    return wrapper(magic, GZIP, T0 if magic else None, compress(GZIP, inner), offset=100)


def setting(place: int, value: bytes) -> Callable[[bytearray], None]:
    def change(inner: bytearray) -> None:
        inner[place : place + len(value)] = value

    return change


INT_MAX = b"\x7f\xff\xff\xff"
DAMAGED = {
    "inner length below 14": (packed(setting(8, b"\0\0\0\x0d")), "length of a message"),
    "inner length negative": (packed(setting(8, b"\xff\xff\xff\xff")), "length of a message"),
    "v1 in 14 bytes": (packed(setting(8, b"\0\0\0\x0e")), "length of a message"),
    "inner length beyond the set": (packed(setting(8, INT_MAX)), "holds no message"),
    "v2 in a wrapper": (packed(setting(16, b"\x02")), "another format"),
    "magic -1 in a wrapper": (packed(setting(16, b"\xff")), "another format"),
    "nested": (packed(setting(17, b"\x01")), "compressed itself"),
    "key beyond the message": (packed(setting(26, INT_MAX)), "reaches beyond"),
    "value beyond the message": (packed(setting(32, b"\0\0\0\x03")), "reaches beyond"),
    "offsets that go back": (packed(setting(7, b"\x02")), "go back"),
    "an offset twice": (packed(setting(7, b"\x01")), "go back"),
    "v0 offsets behind the wrapper": (packed(setting(66, b"\x01"), 0), "below that of its last"),
    "v1 offsets behind the wrapper": (packed(setting(82, b"\x01"), 1), "below that of its last"),
    "a negative last offset": (packed(setting(76, b"\xff"), 1), "below that of its last"),
    "no value": (wrapper(1, GZIP, T0, None, offset=5), "has no value"),
    "an empty set": (wrapper(0, GZIP, None, compress(GZIP, b""), offset=5), "holds no message"),
    "zstd": (wrapper(1, 4, T0, b"...", offset=5), "codec"),
    "codec 7": (wrapper(0, 7, None, b"...", offset=5), "codec"),
    "no gzip": (wrapper(0, GZIP, None, b"...", offset=5), "gzip data is damaged"),
    "lz4 of v1 with the checksum of v0": (
        wrapper(1, LZ4, T0, message_set(0, THREE, compression=CODECS[2])[26:], offset=5),
        "wrong checksum",
    ),
    "bytes behind the value": (wrapper(1, GZIP, T0, b"..", surplus=b"!"), "reaches beyond"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_refused_by_name_and_place(name: str) -> None:
    damaged, what = DAMAGED[name]
    before = message_set(1, THREE[:1])
    with pytest.raises(CorruptRecordError, match=what) as caught:
        read(before + damaged, start_offset=EVERYTHING, path="some.log", position=1000)
    assert caught.value.path == "some.log"
    assert caught.value.position == 1000 + len(before)


def test_any_flipped_byte_behind_the_checksum_is_noticed() -> None:
    buffer = message_set(1, THREE[:1])
    table = table_of(buffer)
    for place in range(16, len(buffer)):
        flipped = bytearray(buffer)
        flipped[place] ^= 0x10
        assert find_bad_message(flipped, table) == 0


@pytest.mark.parametrize("has_numba", [True, False])
def test_the_first_bad_checksum_is_found_with_and_without_kernels(
    has_numba: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy, "numba_is_loaded", lambda: has_numba)
    messages = [message_set(1, [Record(None, b"x" * size)]) for size in (10, 5000, 20, 6000, 30)]
    buffer = b"".join(messages)
    table = table_of(buffer)
    assert find_bad_message(buffer, table) == 5
    for bad in range(5):
        damaged = bytearray(buffer)
        for row in {bad, 4}:
            damaged[int(table.position[row]) + 30] ^= 1
        assert find_bad_message(damaged, table) == bad


def test_decompression_stops_at_the_limit() -> None:
    bomb = message_set(1, [Record(None, bytes(1 << 20))], compression=CompressionType.GZIP)
    assert len(bomb) < 2000
    with pytest.raises(LimitExceededError) as caught:
        read(bomb, max_decompressed=1 << 16, path="some.log")
    assert caught.value.path == "some.log"
