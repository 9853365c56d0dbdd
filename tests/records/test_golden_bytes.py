"""Bytes produced by Kafka's own classes, read and written."""

from typing import NamedTuple

import pytest

from streamlog.records.batch import RecordBatch, scan_batches
from streamlog.records.builder import BatchBuilder, encode_columns, patch_batches
from streamlog.records.columns import InputColumns
from streamlog.records.control import (
    ControlRecordType,
    EndTransactionMarker,
    build_marker,
    parse_control_key,
    parse_marker,
)
from streamlog.records.record import CompressionType, Header, Record, TimestampType

T0 = 1_700_000_000_000
R1 = Record(b"k1", b"v1", (), T0)
R2 = Record(b"k2", None, (), T0 + 5)
R3 = Record(None, b"v3", (Header("h", b"x"), Header("n", None)), T0 + 3)
LONG = Record(b"key", b"a" * 200, (), T0)

G01 = (
    "0000000000000064000000550000000702978a78cc0000000000020000018bcfe568000000018bcfe56805"
    "ffffffffffffffffffffffffffff0000000314000000046b310476310010000a02046b3201001e00060401"
    "0476330402680278026e01"
)
G02 = (
    "00000000000000000000003c00000000026ba48e850000000000000000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff0000000114000000046b3104763100"
)
G03 = (
    "000000000000000000000045000000000278cc3f2c0008000000010000018bcfe568000000018bcfe58f0f"
    "ffffffffffffffffffffffffffff0000000214000000046b310476310010000a02046b320100"
)
G04 = (
    "0000000000000005000000450000000102a1d88f790000000000010000018bcfe568000000018bcfe56805"
    "000000000000002a00030000000a0000000214000000046b310476310010000a02046b320100"
)
G05 = (
    "00000000000000070000003c0000000102d1c15d9d0010000000000000018bcfe568000000018bcfe56800"
    "000000000000002a00030000000c0000000114000000046b3104763100"
)
G06 = (
    "00000000000000080000004200000001028fbdce5d0030000000000000018bcfe568640000018bcfe56864"
    "000000000000002a0003ffffffff000000012000000008000000010c00000000000900"
)
G07 = (
    "00000000000000080000004200000001027b8318150030000000000000018bcfe568640000018bcfe56864"
    "000000000000002a0003ffffffff000000012000000008000000000c00000000000900"
)
G08 = (
    "00000000000000050000003100000001027722a986000000000001ffffffffffffffff0000018bcfe56805"
    "000000000000002a00030000000a00000000"
)
G09 = (
    "00000000000000640000003d00000007028ea706680040000000020000018bd50bc4000000018bcfe56805"
    "ffffffffffffffffffffffffffff000000011600f5efb25202046b320100"
)
G28 = (
    "00000000000000000000004a0000000102c6d072930020000000000000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff000000013000000008000000021c0000000000010200000001000100"
    "00"
)
COMPRESSED = {
    "G20 gzip": (
        "000000000000000a000000540000000002f23053ec0001000000000000018bcfe568000000018bcfe56800"
        "ffffffffffffffffffffffffffff000000011f8b08000000000000ff5bc2ccc0c0c0969d5a398139719800"
        "0600d354db96d4000000"
    ),
    "G21 snappy": (
        "000000000000000a00000061000000000284d722b00002000000000000018bcfe568000000018bcfe56800"
        "ffffffffffffffffffffffffffff0000000182534e415050590000000001000000010000001cd4012ca403"
        "000000066b6579900361fe0100fe0100fe01000d010000"
    ),
    "G22 lz4": (
        "000000000000000a000000560000000002c6ffc8df0003000000000000018bcfe568000000018bcfe56800"
        "ffffffffffffffffffffffffffff0000000104224d1860408216000000cfa403000000066b657990036101"
        "00b050616161610000000000"
    ),
    "G23 zstd": (
        "000000000000000a0000005100000000020a621ff70004000000000000018bcfe568000000018bcfe56800"
        "ffffffffffffffffffffffffffff0000000128b52ffd0058a4000068a403000000066b6579900361000100"
        "440a2401010000"
    ),
    "G24 gzip": (
        "000000000000000a000000590000000002068d9d990001000000010000018bcfe568000000018bcfe56805"
        "ffffffffffffffffffffffffffff000000021f8b08000000000000ff1361606060c936642933641060e062"
        "62c93662640000be61dd5f14000000"
    ),
    "G25 snappy": (
        "000000000000000a0000005b0000000002882a802a0002000000010000018bcfe568000000018bcfe56805"
        "ffffffffffffffffffffffffffff0000000282534e4150505900000000010000000100000016144c140000"
        "00046b310476310010000a02046b320100"
    ),
    "G26 lz4": (
        "000000000000000a000000540000000002e6335faa0003000000010000018bcfe568000000018bcfe56805"
        "ffffffffffffffffffffffffffff0000000204224d186040821400008014000000046b310476310010000a"
        "02046b32010000000000"
    ),
    "G27 zstd": (
        "000000000000000a000000510000000002bb46d8ce0004000000010000018bcfe568000000018bcfe56805"
        "ffffffffffffffffffffffffffff0000000228b52ffd0058a0000014000000046b310476310010000a0204"
        "6b320100010000"
    ),
}


class Plain(NamedTuple):
    """An uncompressed batch: how it is built, its records, and its bytes."""

    builder: BatchBuilder
    records: list[Record]
    golden: str


PLAIN = {
    "G01": Plain(BatchBuilder(base_offset=100, partition_leader_epoch=7), [R1, R2, R3], G01),
    "G02": Plain(BatchBuilder(partition_leader_epoch=0), [R1], G02),
    "G03": Plain(BatchBuilder(partition_leader_epoch=0, log_append_time=T0 + 9999), [R1, R2], G03),
    "G04": Plain(
        BatchBuilder(
            base_offset=5,
            partition_leader_epoch=1,
            producer_id=42,
            producer_epoch=3,
            base_sequence=10,
        ),
        [R1, R2],
        G04,
    ),
    "G05": Plain(
        BatchBuilder(
            base_offset=7,
            partition_leader_epoch=1,
            producer_id=42,
            producer_epoch=3,
            base_sequence=12,
            is_transactional=True,
        ),
        [R1],
        G05,
    ),
    "G09": Plain(
        BatchBuilder(
            base_offset=100,
            last_offset=102,
            partition_leader_epoch=7,
            delete_horizon_ms=1_700_086_400_000,
        ),
        [R2._replace(offset=101)],
        G09,
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_built_batches_have_kafkas_bytes(name: str) -> None:
    case = PLAIN[name]
    for record in case.records:
        case.builder.append(record)
    assert case.builder.build().hex() == case.golden


@pytest.mark.parametrize("name", PLAIN)
def test_kafkas_bytes_are_read_as_the_records(name: str) -> None:
    case = PLAIN[name]
    batch = RecordBatch(bytes.fromhex(case.golden))
    batch.check()
    found = list(batch.records())
    assert [(r.key, r.value, r.headers) for r in found] == [
        (r.key, r.value, r.headers) for r in case.records
    ]
    if batch.timestamp_type is TimestampType.CREATE_TIME:
        assert [r.timestamp for r in found] == [r.timestamp for r in case.records]
    else:
        assert {r.timestamp for r in found} == {T0 + 9999}


@pytest.mark.parametrize("name", ["G01", "G02", "G04"])
def test_encoded_columns_have_kafkas_bytes_once_they_have_their_place(name: str) -> None:
    case = PLAIN[name]
    wanted = RecordBatch(bytes.fromhex(case.golden))
    encoded = encode_columns(InputColumns.from_records(case.records))
    patch_batches(
        encoded.buffer,
        encoded.table,
        base_offset=wanted.base_offset,
        leader_epoch=wanted.partition_leader_epoch,
        producer_id=wanted.producer_id,
        producer_epoch=wanted.producer_epoch,
        base_sequence=wanted.base_sequence,
    )
    assert encoded.buffer.tobytes().hex() == case.golden


def test_encoded_columns_of_append_time_have_kafkas_bytes() -> None:
    encoded = encode_columns(InputColumns.from_records([R1, R2]), log_append_time=T0 + 9999)
    patch_batches(encoded.buffer, encoded.table, base_offset=0, leader_epoch=0)
    assert encoded.buffer.tobytes().hex() == G03


@pytest.mark.parametrize(
    ("kind", "golden"), [(ControlRecordType.COMMIT, G06), (ControlRecordType.ABORT, G07)]
)
def test_markers_have_kafkas_bytes_both_ways(kind: ControlRecordType, golden: str) -> None:
    marker = EndTransactionMarker(kind, 9)
    built = build_marker(
        marker,
        producer_id=42,
        producer_epoch=3,
        timestamp=T0 + 100,
        base_offset=8,
        partition_leader_epoch=1,
    )
    assert built.hex() == golden
    assert len(built) == 78
    batch = RecordBatch(built)
    assert (batch.is_control, batch.is_transactional, batch.base_sequence) == (True, True, -1)
    (record,) = batch.records()
    assert parse_marker(record) == marker


def test_an_empty_retained_batch_is_read_and_keeps_its_offsets_and_sequences() -> None:
    batch = RecordBatch(bytes.fromhex(G08))
    batch.check()
    assert list(batch.records()) == []
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (5, 6, 7)
    assert (batch.base_sequence, batch.last_sequence, batch.producer_id) == (10, 11, 42)
    assert (batch.base_timestamp, batch.max_timestamp, batch.size) == (-1, T0 + 5, 61)
    assert len(scan_batches(bytes.fromhex(G08)).table) == 1


def test_a_delete_horizon_stands_in_place_of_the_base_timestamp() -> None:
    batch = RecordBatch(bytes.fromhex(G09))
    assert batch.delete_horizon_ms == batch.base_timestamp == 1_700_086_400_000
    (record,) = batch.records()
    assert (record.offset, record.timestamp) == (101, T0 + 5)


def test_a_kraft_control_batch_is_read_but_is_no_marker() -> None:
    batch = RecordBatch(bytes.fromhex(G28))
    batch.check()
    (record,) = batch.records()
    assert parse_control_key(record.key) is ControlRecordType.LEADER_CHANGE
    assert parse_marker(record) is None
    assert not batch.is_transactional


@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed_batches_are_read(name: str) -> None:
    batch = RecordBatch(bytes.fromhex(COMPRESSED[name]))
    batch.check()
    wanted = [LONG] if batch.count == 1 else [R1, R2]
    assert list(batch.records()) == [
        record._replace(offset=10 + index) for index, record in enumerate(wanted)
    ]


@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed_batches_built_here_differ_only_in_the_compressed_bytes(name: str) -> None:
    golden = RecordBatch(bytes.fromhex(COMPRESSED[name]))
    codec = CompressionType.of(name.split()[1])
    builder = BatchBuilder(base_offset=10, partition_leader_epoch=0, compression=codec)
    for record in [LONG] if golden.count == 1 else [R1, R2]:
        builder.append(record)
    built = RecordBatch(builder.build())
    built.check()
    assert bytes(built.buffer[:8]) == bytes(golden.buffer[:8])
    assert bytes(built.buffer[21:61]) == bytes(golden.buffer[21:61])
    assert list(built.records()) == list(golden.records())
