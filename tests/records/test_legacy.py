"""Messages of formats v0 and v1 are read as Kafka reads them, and damaged ones refused."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from streamlog.binary.compression import GZIP, LZ4, compress
from streamlog.binary.crc import crc32
from streamlog.errors import CorruptRecordError, LimitExceededError
from streamlog.records import legacy, plain_headers
from streamlog.records.batch import ScanStop, check_crc, read_batches, scan_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.decode import decode_columns, decode_produced
from streamlog.records.record import CompressionType, Header, Record, TimestampType
from tests.support.batches import header_facts, message_set, record_facts
from tests.support.golden import GOLDEN, json_lines

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

# Wrappers of two records, built by Kafka: offsets 10 and 11, keys k1 and k2.
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
    scan = scan_batches(buffer)
    assert scan.stop is ScanStop.END
    records = decode_columns(buffer, scan.table, **settings).records()
    return [(r.offset, r.timestamp or 0, r.key, r.value) for r in records]


# ---- what Kafka wrote ----------------------------------------------------------------------------
def test_the_golden_folders_have_all_cases() -> None:
    assert len(CASES) == 76


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_messages_are_what_kafka_reads(case: Any) -> None:
    buffer = (case / "batch.bin").read_bytes()
    lines = json_lines(str(next(case.glob("expect.jsonl*")).relative_to(GOLDEN)))
    position = 0
    found = []
    for index, batch in enumerate(read_batches(buffer)):
        batch.check()
        records = [{"batch": index, **record_facts(record)} for record in batch.records()]
        found.append({"kind": "batch", **header_facts(batch, position), "records": len(records)})
        found += [{"kind": "record", **record} for record in records]
        position += batch.size
    own = {"crcSigned", "batchLength", "messageSize", "lastOffsetDelta", "baseTimestamp"}
    wanted = [{key: line[key] for key in line if key not in own} for line in lines[1:]]
    assert found == wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_columns_of_a_whole_file_are_what_kafka_reads(case: Any) -> None:
    buffer = (case / "batch.bin").read_bytes()
    lines = json_lines(str(next(case.glob("expect.jsonl*")).relative_to(GOLDEN)))
    scan = scan_batches(buffer)
    assert (scan.stop, scan.consumed) == (ScanStop.END, len(buffer))
    assert check_crc(buffer, scan.table) == len(scan.table)
    found = [record_facts(r) for r in decode_columns(buffer, scan.table).records()]
    wanted = [line for line in lines if line["kind"] == "record"]
    assert found == [{key: line[key] for key in found[0]} for line in wanted]


@pytest.mark.parametrize("golden", [G13, G14, G15, G16, G17, G18, G19])
def test_53_wrappers_give_their_records(golden: str) -> None:
    buffer = bytes.fromhex(golden)
    times = [-1, -1] if buffer[16] == 0 else [T0, T0 + 5]
    if golden == G19:
        times = [T0 + 9999] * 2  # LogAppendTime: the wrapper's
    wanted = [(10, times[0], b"k1", b"v1"), (11, times[1], b"k2", None)]
    assert read(buffer) == wanted


# ---- which records -------------------------------------------------------------------------------
@pytest.mark.parametrize("codec", [CompressionType.NONE, *CODECS])
@pytest.mark.parametrize("magic", [0, 1])
def test_only_wanted_offsets_are_returned(magic: int, codec: CompressionType) -> None:
    buffer = message_set(magic, THREE * 3, base_offset=50, compression=codec)
    buffer += message_set(magic, THREE, base_offset=70, compression=codec)
    offsets = [row[0] for row in read(buffer, start_offset=52, end_offset=72)]
    assert offsets == [52, 53, 54, 55, 56, 57, 58, 70, 71]
    assert read(buffer, start_offset=73) == []


def test_51_append_time_is_the_wrappers_whatever_the_inner_timestamps() -> None:
    inner = message_set(1, THREE)
    buffer = wrapper(1, GZIP | 8, T0 + 50, compress(GZIP, inner), offset=2)
    assert [row[1] for row in read(buffer)] == [T0 + 50] * 3


def test_messages_of_v0_in_a_wrapper_of_v1_are_read_without_timestamps() -> None:
    buffer = wrapper(1, GZIP | 8, T0, compress(GZIP, message_set(0, THREE)), offset=12)
    assert [row[:2] for row in read(buffer)] == [(10, -1), (11, -1), (12, -1)]


def test_50_a_wrapper_of_offset_0_takes_the_offsets_in_it_as_they_are() -> None:
    buffer = wrapper(1, GZIP, T0, compress(GZIP, message_set(1, THREE)), offset=0)
    assert [row[0] for row in read(buffer)] == [0, 1, 2]


def test_a_message_truncated_at_the_end_of_a_wrapper_is_omitted_as_by_kafka() -> None:
    inner = message_set(0, THREE)
    buffer = wrapper(0, GZIP, None, compress(GZIP, inner[:-1]), offset=2)
    assert [row[0] for row in read(buffer)] == [0, 1]


def test_offsets_of_a_producer_are_ignored() -> None:
    inner = b"".join(message_set(0, [record], base_offset=7) for record in THREE)
    buffer = wrapper(0, GZIP, None, compress(GZIP, inner), offset=0)
    found = decode_produced(buffer, scan_batches(buffer).table, max_decompressed=1 << 20)
    assert list(found.key or ()) == [b"k0", b"k1", b"k2"]
    with pytest.raises(CorruptRecordError):
        read(buffer)


@pytest.mark.parametrize("checksum", [0x1A, 0x82, 0x55])
def test_58_lz4_of_v0_is_read_whatever_its_header_checksum(checksum: int) -> None:
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
    "inner length below 14": (packed(setting(8, b"\0\0\0\x0d")), "invalid message length"),
    "inner length negative": (packed(setting(8, b"\xff\xff\xff\xff")), "invalid message length"),
    "v1 in 14 bytes": (packed(setting(8, b"\0\0\0\x0e")), "invalid message length"),
    "inner length beyond the set": (packed(setting(8, INT_MAX)), "holds no message"),
    "v2 in a wrapper": (packed(setting(16, b"\x02")), "another format"),
    "magic -1 in a wrapper": (packed(setting(16, b"\xff")), "another format"),
    "nested": (packed(setting(17, b"\x01")), "message inside a compressed message"),
    "key beyond the message": (packed(setting(26, INT_MAX)), "reaches beyond"),
    "value beyond the message": (packed(setting(32, b"\0\0\0\x03")), "reaches beyond"),
    "offsets that go back": (packed(setting(7, b"\x02")), "do not ascend"),
    "an offset twice": (packed(setting(7, b"\x01")), "do not ascend"),
    "v0 offsets after the wrapper": (packed(setting(66, b"\x01"), 0), "below that of its last"),
    "49 v1 offsets after the wrapper": (packed(setting(82, b"\x01"), 1), "below that of its last"),
    "a negative last offset": (packed(setting(76, b"\xff"), 1), "below that of its last"),
    "47 no value": (wrapper(1, GZIP, T0, None, offset=5), "has no value"),
    "an empty set": (wrapper(0, GZIP, None, compress(GZIP, b""), offset=5), "holds no message"),
    "55 zstd": (wrapper(1, 4, T0, b"...", offset=5), "codec"),
    "codec 7": (wrapper(0, 7, None, b"...", offset=5), "codec"),
    "no gzip": (wrapper(0, GZIP, None, b"...", offset=5), "gzip data is damaged"),
    "lz4 of v1 with the checksum of v0": (
        wrapper(1, LZ4, T0, message_set(0, THREE, compression=CODECS[2])[26:], offset=5),
        "wrong checksum",
    ),
    "bytes after the value": (wrapper(1, GZIP, T0, b"..", surplus=b"!"), "reaches beyond"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_refused_with_its_kind_and_position(name: str) -> None:
    damaged, what = DAMAGED[name]
    before = message_set(1, THREE[:1])
    with pytest.raises(CorruptRecordError, match=what) as caught:
        read(before + damaged, start_offset=EVERYTHING, path="some.log", position=1000)
    assert caught.value.path == "some.log"
    assert caught.value.position == 1000 + len(before)
    assert caught.value.got is not None and caught.value.expected is not None


def test_46_any_flipped_byte_after_the_checksum_is_detected() -> None:
    buffer = message_set(1, THREE[:1])
    table = scan_batches(buffer).table
    for place in range(16, len(buffer)):
        flipped = bytearray(buffer)
        flipped[place] ^= 0x10
        assert check_crc(flipped, table) == 0


@pytest.mark.parametrize("has_numba", [True, False])
def test_the_first_bad_checksum_is_found_with_and_without_kernels(
    has_numba: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy, "numba_is_loaded", lambda: has_numba)
    messages = [message_set(1, [Record(None, b"x" * size)]) for size in (10, 5000, 20, 6000, 30)]
    buffer = b"".join(messages)
    table = scan_batches(buffer).table
    assert check_crc(buffer, table) == 5
    for bad in range(5):
        damaged = bytearray(buffer)
        for row in {bad, 4}:
            damaged[int(table.position[row]) + 30] ^= 1
        assert check_crc(damaged, table) == bad


def test_decompression_stops_at_the_limit() -> None:
    bomb = message_set(1, [Record(None, bytes(1 << 20))], compression=CompressionType.GZIP)
    assert len(bomb) < 2000
    with pytest.raises(LimitExceededError) as caught:
        read(bomb, max_decompressed=1 << 16, path="some.log")
    assert caught.value.path == "some.log"


# ---- formats mixed -------------------------------------------------------------------------------
def mixed() -> tuple[bytes, list[Record]]:
    """Return batches and messages of all formats, and their records."""
    header = Header("h", b"x")
    builder = BatchBuilder(base_offset=20, compression=CompressionType.GZIP)
    records = [Record(b"a", None, (header,), T0), Record(None, b"b", (), T0 + 1)]
    for record in records:
        builder.append(record)
    stamped = {"base_offset": 30, "log_append_time": T0 + 9}
    parts = [
        message_set(0, THREE),
        message_set(1, THREE, base_offset=10, compression=CompressionType.LZ4),
        builder.build(),
        message_set(1, THREE, compression=CompressionType.SNAPPY, **stamped),
        builder.build()[:7] + b"\x28" + builder.build()[8:],
    ]
    none, create, append = TimestampType(-1), TimestampType(0), TimestampType(1)
    current = [records[0]._replace(offset=20), records[1]._replace(offset=21)]
    wanted = [
        *(r._replace(timestamp=-1, offset=n, timestamp_type=none) for n, r in enumerate(THREE)),
        *(r._replace(offset=10 + n, timestamp_type=create) for n, r in enumerate(THREE)),
        *current,
        *(
            r._replace(offset=30 + n, timestamp=T0 + 9, timestamp_type=append)
            for n, r in enumerate(THREE)
        ),
        *(r._replace(offset=r.offset + 20) for r in current),
    ]
    return b"".join(parts), wanted


@pytest.mark.parametrize("has_numba", [True, False])
def test_a_buffer_of_all_formats_is_one_table(
    has_numba: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_headers, "numba_is_loaded", lambda: has_numba)
    monkeypatch.setattr(legacy, "numba_is_loaded", lambda: has_numba)
    buffer, _ = mixed()
    table, stop, consumed = scan_batches(buffer)
    assert (stop, consumed, len(table)) == (ScanStop.END, len(buffer), 7)
    assert table.magic.tolist() == [0, 0, 0, 1, 2, 1, 2]
    assert table.last_offset.tolist() == [0, 1, 2, 12, 21, 32, 41]
    assert table.count.tolist() == [1, 1, 1, -1, 2, -1, 2]
    assert table.leader_epoch.tolist() == [-1] * 7
    assert check_crc(buffer, table) == 7
    for row, position in enumerate(table.position.tolist()):
        damaged = bytearray(buffer)
        damaged[position + 24] ^= 1
        assert check_crc(damaged, table) == row


def test_columns_of_all_formats_are_one() -> None:
    buffer, wanted = mixed()
    columns = decode_columns(buffer, scan_batches(buffer).table)
    assert list(columns.records()) == wanted
    some = decode_columns(
        buffer, scan_batches(buffer).table, columns=["value"], start_offset=11, end_offset=31
    )
    assert (some.key, some.headers) == (None, None)
    assert list(some.value or ()) == [r.value for r in wanted if 11 <= r.offset < 31]


def test_batches_of_all_formats_are_read_one_by_one() -> None:
    buffer, wanted = mixed()
    assert [record for batch in read_batches(buffer) for record in batch.records()] == wanted


def test_the_file_of_all_formats_that_kafka_wrote_is_read_as_columns() -> None:
    (case,) = (GOLDEN / "A-batches").glob("098-*")
    buffer = (case / "batch.bin").read_bytes()
    lines = json_lines(str(next(case.glob("expect.jsonl*")).relative_to(GOLDEN)))
    wanted = [line for line in lines if line["kind"] == "record"]
    found = [record_facts(r) for r in decode_columns(buffer, scan_batches(buffer).table).records()]
    assert [(r["offset"], r["timestamp"], r["value"], r["headers"]) for r in found] == [
        (r["offset"], r["timestamp"], r["value"], r["headers"]) for r in wanted
    ]


def test_a_legacy_batch_has_none_for_fields_that_its_format_lacks() -> None:
    (batch,) = read_batches(bytes.fromhex(G18), path="some.log", position=7)
    assert repr(batch) == "LegacyRecordBatch(v1, up to offset 11, lz4, 110 bytes)"
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (10, 11, 12)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.is_control, batch.is_transactional, batch.count) == (False, False, None)
    damaged = bytearray.fromhex(G18)
    damaged[-1] ^= 1
    (batch,) = read_batches(damaged, path="some.log", position=7)
    with pytest.raises(CorruptRecordError, match=r"wrong checksum in some.log at byte 7"):
        batch.check()


def test_an_unknown_codec_of_a_message_is_named() -> None:
    (batch,) = read_batches(wrapper(1, 6, T0, b"..."))
    with pytest.raises(CorruptRecordError, match="unknown compression codec"):
        _ = batch.compression_type


def test_54_lengths_that_a_message_cannot_have_stop_the_scan() -> None:
    messages = {magic: bytearray(message_set(magic, THREE[:1])) for magic in (0, 1)}
    messages[0][8:12], messages[1][8:12] = b"\0\0\0\x0d", b"\0\0\0\x15"
    for message in messages.values():
        assert scan_batches(message).stop is ScanStop.BAD_LENGTH
        with pytest.raises(CorruptRecordError, match="invalid batch length"):
            list(read_batches(message))


def test_a_negative_offset_of_a_message_stops_the_scan() -> None:
    message = bytearray(message_set(1, THREE[:1]))
    message[0] = 0x80
    assert scan_batches(message).stop is ScanStop.BAD_HEADER
