"""Columns: filters, choices, errors, and the cost of hostile bytes."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.binary.crc import crc32c
from streamlog.errors import CorruptDataError, CorruptRecordError, LimitExceededError
from streamlog.records.batch import scan_batches
from streamlog.records.builder import BatchBuilder, encode_columns
from streamlog.records.columns import BinaryColumn, HeaderColumn, InputColumns, RecordColumns
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.decode import decode_columns
from streamlog.records.record import CompressionType, Header, Record, TimestampType

TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
HEADERS = st.lists(st.builds(Header, TEXT, st.none() | st.binary(max_size=5)), max_size=3)
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=10),
        st.none() | st.binary(max_size=10),
        HEADERS.map(tuple),
        st.integers(-1, 2**63 - 1),
    ).map(lambda fields: Record(*fields)),
    max_size=8,
)


def numbered(count: int, base_offset: int = 0, **settings: object) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, **settings)
    for index in range(count):
        builder.append(Record(b"k", b"%d" % (base_offset + index), (), index))
    return builder.build()


def decode(buffer: bytes, **options: object) -> RecordColumns:
    return decode_columns(buffer, scan_batches(buffer).table, **options)


def with_records(records: bytes, count: int, **fields: bytes) -> bytes:
    """Return a batch of these bytes with a valid checksum."""
    buffer = bytearray(numbered(1)[:61] + records)
    buffer[8:12] = (len(buffer) - 12).to_bytes(4, "big")
    buffer[57:61] = count.to_bytes(4, "big")
    buffer[17:21] = crc32c(buffer[21:]).to_bytes(4, "big")
    return bytes(buffer)


# ---- laws --------------------------------------------------------------------------------------
@given(st.lists(st.none() | st.binary(max_size=3), max_size=20))
def test_a_column_has_the_values_that_it_was_made_of(values: list[bytes | None]) -> None:
    column = BinaryColumn.from_values(values)
    assert column.to_list() == list(column) == values
    assert column.null_count == values.count(None)
    assert (column.validity is None) == (None not in values)
    twice = BinaryColumn.concatenate([column, column])
    assert twice.to_list() == values * 2


@given(RECORDS, st.sampled_from(list(CompressionType)), st.integers(61, 200))
def test_decoding_inverts_encoding(
    records: list[Record], codec: CompressionType, batch_size: int
) -> None:
    encoded = encode_columns(
        InputColumns.from_records(records), compression=codec, batch_size=batch_size
    )
    found = list(decode_columns(encoded.buffer, encoded.table).records())
    assert found == [record._replace(offset=offset) for offset, record in enumerate(records)]


@given(st.lists(st.none() | st.binary(max_size=5)))
def test_a_binary_column_gives_back_its_values(values: list[bytes | None]) -> None:
    column = BinaryColumn.from_values(values)
    assert (list(column), len(column)) == (values, len(values))
    assert column.null_count == values.count(None)
    assert (column.validity is None) == (column.null_count == 0)


@given(st.lists(HEADERS, max_size=5))
def test_a_header_column_gives_back_its_headers(values: list[list[Header]]) -> None:
    column = HeaderColumn.from_values(values)
    assert (list(column), len(column)) == ([tuple(v) for v in values], len(values))


@given(st.integers(-5, 40), st.integers(-5, 40))
def test_a_filter_by_offsets_selects_the_same_as_a_later_filter(start: int, end: int) -> None:
    buffer = numbered(7) + numbered(5, 10, compression=CompressionType.GZIP) + numbered(9, 20)
    found = decode(buffer, start_offset=start, end_offset=end)
    everything = [*range(7), *range(10, 15), *range(20, 29)]
    wanted = [offset for offset in everything if start <= offset < end]
    assert found.offset.tolist() == wanted
    assert list(found.value or ()) == [b"%d" % offset for offset in wanted]
    assert found.count == len(found.timestamp) == len(found.timestamp_type) == len(wanted)


# ---- choices -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "columns", [(), ("key",), ("value",), ("headers",), ("key", "value", "headers")]
)
def test_only_the_named_columns_are_decoded(columns: tuple[str, ...]) -> None:
    found = decode(numbered(3), columns=columns)
    assert {"key", "value", "headers"} - set(columns) == {
        name for name in ("key", "value", "headers") if getattr(found, name) is None
    }
    assert found.offset.tolist() == [0, 1, 2]
    assert [record.offset for record in found.records()] == [0, 1, 2]


def test_keys_and_values_use_no_more_memory_than_their_bytes() -> None:
    found = decode(numbered(300))
    assert found.key is not None and found.value is not None
    for column in (found.key, found.value):
        assert column.data.base is None and len(column.data) == column.offsets[-1]


def test_control_batches_are_dropped_unless_asked_for() -> None:
    marker = build_marker(
        EndTransactionMarker(ControlRecordType.COMMIT, 1),
        producer_id=7,
        producer_epoch=0,
        timestamp=5,
        base_offset=3,
    )
    buffer = numbered(3) + marker + numbered(2, 4)
    assert decode(buffer).offset.tolist() == [0, 1, 2, 4, 5]
    assert decode(buffer, drop_control=False).offset.tolist() == [0, 1, 2, 3, 4, 5]


def test_append_time_is_the_time_of_every_record_of_its_batch_only() -> None:
    found = decode(numbered(2) + numbered(3, 2, log_append_time=999))
    assert found.timestamp.tolist() == [0, 1, 999, 999, 999]
    assert found.timestamp_type.tolist() == [0, 0, 1, 1, 1]
    assert found.timestamp_type.dtype == np.int32
    assert [r.timestamp_type for r in found.records()][-1] is TimestampType.LOG_APPEND_TIME


def test_an_empty_table_gives_empty_columns_of_arrows_layout() -> None:
    found = decode(b"")
    assert found.count == 0 and list(found.records()) == []
    assert found.key is not None and found.key.offsets.tolist() == [0]
    assert found.headers is not None and found.headers.offsets.tolist() == [0]


def test_compressed_and_plain_batches_mix() -> None:
    buffer = b"".join(
        numbered(3, 3 * index, compression=codec) for index, codec in enumerate(CompressionType)
    )
    found = decode(buffer)
    assert list(found.value or ()) == [b"%d" % offset for offset in range(15)]


def test_delete_horizons_do_not_change_timestamps() -> None:
    builder = BatchBuilder(delete_horizon_ms=10**13)
    builder.append(Record(b"k", None, (), 5))
    assert decode(builder.build()).timestamp.tolist() == [5]


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (b"\x80", "\ufffd"),
        (b"a\xc3", "a\ufffd"),
        ("é".encode(), "é"),
        (b"plain", "plain"),
    ],
)
def test_header_keys_of_invalid_utf8_are_decoded_as_by_java(key: bytes, shown: str) -> None:
    header = bytes((2 * len(key),)) + key + b"\x01"
    body = b"\0\0\0\1\1\2" + header
    found = decode(with_records(bytes((2 * len(body),)) + body, 1))
    assert found.headers is not None
    assert list(found.headers) == [(Header(shown, None),)]


def test_a_character_split_over_two_header_keys_is_two_invalid_ones() -> None:
    body = b"\0\0\0\1\1\4" + b"\2\xc3\1" + b"\2\xa9\1"
    found = decode(with_records(bytes((2 * len(body),)) + body, 1))
    assert found.headers is not None
    assert list(found.headers) == [(Header("\ufffd", None), Header("\ufffd", None))]


# ---- hostile bytes -----------------------------------------------------------------------------
HOSTILE = {
    "no records at all": (b"", 1),
    "length 0": (b"\0" + bytes(10), 1),
    "negative length": (b"\1" + bytes(10), 1),
    "length over the end": (b"\x7e" + bytes(10), 1),
    "length of 2 GiB": (b"\xfe\xff\xff\xff\x0f" + bytes(10), 1),
    "length of six bytes": (b"\x80\x80\x80\x80\x80\1" + bytes(10), 1),
    "timestamp of eleven bytes": (b"\x20\0" + b"\x80" * 10 + b"\1" + bytes(4), 1),
    "timestamp cut short": (b"\4\0\x80" + bytes(6), 1),
    "offset of six bytes": (b"\x18\0\0" + b"\x80" * 5 + b"\1" + bytes(3), 1),
    "key over the end": (b"\x0e\0\0\0\x7e\1\0\0", 1),
    "key of 2 GiB": (b"\x18\0\0\0\xfe\xff\xff\xff\x0f\1\0\0\0", 1),
    "value over the end": (b"\x0e\0\0\0\1\x7e\0\0", 1),
    "negative header count": (b"\x0c\0\0\0\1\1\1", 1),
    "header count over the bytes": (b"\x0c\0\0\0\1\1\2", 1),
    "header count of 2 GiB": (b"\x14\0\0\0\1\1\xfe\xff\xff\xff\x0f", 1),
    "null header key": (b"\x10\0\0\0\1\1\2\1\1", 1),
    "header key over the end": (b"\x10\0\0\0\1\1\2\x7e\1", 1),
    "header value over the end": (b"\x10\0\0\0\1\1\2\0\x7e", 1),
    "header value missing": (b"\x0e\0\0\0\1\1\2\0", 1),
    "bytes after the headers": (b"\x0e\0\0\0\1\1\0\0", 1),
    "bytes after the last header": (b"\x12\0\0\0\1\1\2\0\1\0", 1),
    "bytes after the last record": (b"\x0c\0\0\0\1\1\0" + b"\0", 1),
    "one record too few": (b"\x0c\0\0\0\1\1\0", 2),
    "2**31 - 1 records": (b"\x0c\0\0\0\1\1\0", 2**31 - 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_are_damage(name: str) -> None:
    records, count = HOSTILE[name]
    with pytest.raises(CorruptRecordError) as caught:
        decode(with_records(records, count), path="0.log", position=100)
    assert (caught.value.path, caught.value.position) == ("0.log", 100)
    assert caught.value.got and caught.value.expected


@pytest.mark.parametrize("size", [-2, -3, -(2**31)])
def test_any_negative_size_of_key_value_or_header_value_is_null(size: int) -> None:
    from streamlog.records.builder import encode_varlong

    null = encode_varlong(size)
    body = b"\0\0\0" + null + null + b"\2\0" + null
    found = decode(with_records(encode_varlong(len(body)) + body, 1))
    (record,) = found.records()
    assert (record.key, record.value, record.headers) == (None, None, (Header("", None),))


def test_offset_deltas_that_do_not_rise_are_read_as_kafka_reads_them() -> None:
    def record(delta: bytes) -> bytes:
        return b"\x0c\0\0" + delta + b"\1\1\0"

    buffer = with_records(record(b"\4") + record(b"\4") + record(b"\1") + record(b"\0"), 4)
    assert decode(buffer, start_offset=-9).offset.tolist() == [2, 2, -1, 0]
    assert decode(buffer, start_offset=0, end_offset=2).offset.tolist() == [0]


def test_timestamps_wrap_as_javas_do() -> None:
    from streamlog.records.builder import encode_varlong

    body = b"\0" + encode_varlong(2**63 - 1) + b"\0\1\1\0"
    buffer = bytearray(with_records(encode_varlong(len(body)) + body, 1))
    buffer[27:35] = (5).to_bytes(8, "big")
    assert decode(bytes(buffer)).timestamp.tolist() == [-(2**63) + 4]


def test_offsets_near_the_end_of_63_bits_are_read() -> None:
    buffer = numbered(2, 2**63 - 10)
    assert decode(buffer).offset.tolist() == [2**63 - 10, 2**63 - 9]


@pytest.mark.parametrize("codec", list(CompressionType)[1:])
def test_a_bomb_is_refused_at_the_limit_and_costs_little(codec: CompressionType) -> None:
    builder = BatchBuilder(compression=codec)
    builder.append(Record(None, bytes(32 << 20)))
    buffer = builder.build()
    table = scan_batches(buffer).table
    decode_columns(buffer, table, max_decompressed=33 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceededError) as caught:
            decode_columns(buffer, table, max_decompressed=1 << 20, path="0.log", position=7)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert (caught.value.path, caught.value.position) == ("0.log", 7)
    assert caught.value.got and caught.value.expected


def test_a_count_that_only_decompression_disproves_costs_nothing() -> None:
    buffer = bytearray(numbered(3, compression=CompressionType.ZSTD))
    buffer[57:61] = (2**31 - 1).to_bytes(4, "big")
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match="too short"):
            decode(bytes(buffer))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@given(st.binary(max_size=120), st.integers(0, 2**31 - 1), st.integers(0, 255))
def test_arbitrary_bytes_with_a_valid_checksum_are_records_or_damage(
    records: bytes, count: int, attributes: int
) -> None:
    buffer = bytearray(with_records(records, count))
    buffer[22] = attributes
    try:
        found = decode(bytes(buffer), max_decompressed=1 << 20)
    except CorruptDataError:
        return
    assert len(list(found.records())) == found.count <= len(records) * 1024
