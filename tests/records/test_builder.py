"""Building: refused input, sizes of batches, and their place in a partition."""

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import (
    InvalidConfigError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    UnsupportedCompressionError,
)
from streamlog.records.batch import RecordBatch, check_crc, scan_batches
from streamlog.records.builder import BatchBuilder, encode_columns, patch_batches
from streamlog.records.columns import BinaryColumn, HeaderColumn, InputColumns
from streamlog.records.decode import decode_columns
from streamlog.records.record import CompressionType, Header, Record


def columns_of(*records: Record) -> InputColumns:
    return InputColumns.from_records(records)


def values(count: int, size: int) -> InputColumns:
    noise = np.random.default_rng(1).bytes(size)
    return columns_of(*(Record(b"%d" % index, noise, (), index) for index in range(count)))


# ---- record by record --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("base_offset", -1),
        ("base_offset", 2**63),
        ("last_offset", -1),
        ("last_offset", 2**31),
        ("producer_id", -2),
        ("producer_id", 2**63),
        ("producer_epoch", 2**15),
        ("base_sequence", -2),
        ("base_sequence", 2**31),
        ("partition_leader_epoch", 2**31),
        ("log_append_time", 2**63),
        ("delete_horizon_ms", -2),
    ],
)
def test_a_number_too_large_for_its_field_is_refused(name: str, value: int) -> None:
    with pytest.raises(InvalidRequestError, match="for a batch") as caught:
        BatchBuilder(**{name: value})
    assert caught.value.got == value


WRONG_FIELDS = [
    (Record(value="text"), "value must be bytes or None, got str"),
    (Record(key="text"), "key must be bytes or None, got str"),
    (Record(value=""), "value must be bytes or None, got str"),
    (Record(value=array("i", [1])), "value must be bytes or None, got array"),
    (Record(headers=[("k", "text")]), "header value must be bytes or None, got str"),
    (Record(headers=[(b"k", b"v")]), "header key must be str, got bytes"),
    (Record(headers=["k"]), "not enough values to unpack"),
    (Record(timestamp=1.5), "timestamp must be int or None, got float"),
    ("text", "must be a Record, got str"),
    (None, "must be a Record, got NoneType"),
]


@pytest.mark.parametrize(("record", "what"), WRONG_FIELDS)
def test_a_field_of_a_wrong_type_is_refused_with_its_record(record, what) -> None:
    with pytest.raises(InvalidRecordError, match=f"record 1: {what}"):
        columns_of(Record(value=b"sound"), record)
    builder = BatchBuilder()
    builder.append(Record(value=b"sound"))
    with pytest.raises(InvalidRecordError, match=f"record 1: {what}"):
        builder.append(record)
    assert [each.value for each in RecordBatch(builder.build()).records()] == [b"sound"]


def test_buffers_and_pairs_are_accepted_as_bytes_and_headers() -> None:
    loose = Record(bytearray(b"k"), memoryview(array("i", [7])), [("h", bytearray(b"v"))], 5)
    strict = Record(b"k", array("i", [7]).tobytes(), (Header("h", b"v"),), 5)
    encoded = [encode_columns(columns_of(each)).buffer.tobytes() for each in (loose, strict)]
    assert encoded[0] == encoded[1]
    builder = BatchBuilder(compression="lz4")
    builder.append(loose)
    batch = RecordBatch(builder.build())
    assert batch.compression_type is CompressionType.LZ4
    assert [each[:4] for each in batch.records()] == [strict[:4]]


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    with pytest.raises(InvalidTimestampError, match="64 bits"):
        columns_of(Record(timestamp=2**63))


@pytest.mark.parametrize("name", ["lzma", "", 3])
def test_an_unknown_codec_is_refused(name: object) -> None:
    with pytest.raises(UnsupportedCompressionError, match="unknown compression type"):
        CompressionType.of(name)


def test_offsets_must_rise() -> None:
    builder = BatchBuilder(base_offset=10)
    builder.append(Record(offset=12))
    for offset in (0, 11, 12):
        with pytest.raises(InvalidRecordError, match="offset"):
            builder.append(Record(offset=offset))
    builder.append(Record())
    assert [r.offset for r in RecordBatch(builder.build()).records()] == [12, 13]


def test_an_offset_too_far_from_the_base_is_refused() -> None:
    builder = BatchBuilder()
    builder.append(Record(offset=2**31 - 1))
    with pytest.raises(InvalidRecordError):
        builder.append(Record())


@pytest.mark.parametrize("timestamp", [-2, -(2**63)])
def test_negative_timestamps_other_than_none_are_refused(timestamp: int) -> None:
    with pytest.raises(InvalidTimestampError):
        BatchBuilder().append(Record(timestamp=timestamp))
    with pytest.raises(InvalidTimestampError):
        encode_columns(InputColumns(np.array([5, timestamp])))


def test_a_timestamp_beyond_63_bits_is_refused() -> None:
    with pytest.raises(InvalidTimestampError):
        BatchBuilder().append(Record(timestamp=2**63))


def test_a_header_without_a_key_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="key"):
        BatchBuilder().append(Record(headers=(Header(None, b"x"),)))
    headers = HeaderColumn(
        np.array([0, 1], np.int32),
        BinaryColumn.from_values([None]),
        BinaryColumn.from_values([b"x"]),
    )
    with pytest.raises(InvalidRecordError, match="key"):
        encode_columns(InputColumns(np.array([0]), headers=headers))


def test_a_batch_without_records_is_refused() -> None:
    with pytest.raises(InvalidRecordError):
        BatchBuilder().build()


def test_an_unknown_level_is_refused_at_once() -> None:
    with pytest.raises(InvalidConfigError):
        BatchBuilder(compression=CompressionType.GZIP, level=11)


def test_a_transactional_batch_needs_a_producer() -> None:
    with pytest.raises(InvalidRequestError):
        BatchBuilder(is_transactional=True)


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=100),
            st.none() | st.binary(max_size=100),
            st.lists(st.builds(Header, st.text(max_size=5), st.binary(max_size=5))).map(tuple),
        ).map(lambda fields: Record(*fields)),
        min_size=1,
        max_size=5,
    )
)
def test_the_estimate_of_a_size_is_never_too_small(records: list[Record]) -> None:
    builder = BatchBuilder()
    for record in records:
        estimate = builder.size_with(record)
        builder.append(record)
        assert builder.size <= estimate
    assert len(builder.build()) == builder.size
    assert builder.count == len(records)


# ---- columns -----------------------------------------------------------------------------------
@given(st.lists(st.integers(0, 300), max_size=30), st.integers(61, 1000))
def test_batches_fit_and_only_a_large_record_stands_alone(
    sizes: list[int], batch_size: int
) -> None:
    columns = columns_of(*(Record(None, bytes(size), (), 0) for size in sizes))
    table = encode_columns(columns, batch_size=batch_size).table
    for index in range(len(table)):
        assert table.size[index] <= batch_size or table.count[index] == 1
    assert int(table.count.sum()) == len(sizes)
    assert table.base_offset.tolist() == [0, *(table.last_offset[:-1] + 1).tolist()][: len(table)]


@pytest.mark.parametrize("codec", list(CompressionType)[1:])
@pytest.mark.parametrize("batch_size", [1000, 16_384, 100_000, 1_048_588])
def test_incompressible_records_fit_too(codec: CompressionType, batch_size: int) -> None:
    noise = np.random.default_rng(2).bytes(2_000_000)
    columns = columns_of(*(Record(None, noise[a : a + 90]) for a in range(0, 2_000_000, 90)))
    table = encode_columns(columns, compression=codec, batch_size=batch_size).table
    assert int(table.size.max()) <= batch_size
    assert int(table.size[0]) > batch_size * 0.8


def test_rows_are_selected_and_ordered() -> None:
    headers = [(), (Header("a", b"1"), Header("b", None)), (Header("c", b""),), ()]
    records = [Record(b"%d" % i, None, headers[i], i) for i in range(4)]
    encoded = encode_columns(columns_of(*records), rows=np.array([2, 0, 1, 2]))
    found = list(decode_columns(encoded.buffer, encoded.table).records())
    assert found == [
        records[row]._replace(offset=offset) for offset, row in enumerate([2, 0, 1, 2])
    ]
    assert encoded.records == 4


@pytest.mark.parametrize("row", [-1, 4, 2**62])
def test_a_missing_row_is_refused(row: int) -> None:
    with pytest.raises(InvalidRequestError):
        encode_columns(values(4, 10), rows=np.array([0, row]))


def test_no_records_are_no_batches() -> None:
    encoded = encode_columns(columns_of())
    assert (len(encoded.table), encoded.buffer.size, encoded.records) == (0, 0, 0)


def test_columns_of_unequal_length_are_refused() -> None:
    short = BinaryColumn.from_values([b"a"])
    for column in ({"key": short}, {"value": short}):
        with pytest.raises(InvalidRequestError, match="length"):
            encode_columns(InputColumns(np.array([1, 2]), **column))
    headers = HeaderColumn.from_values([()])
    with pytest.raises(InvalidRequestError, match="length"):
        encode_columns(InputColumns(np.array([1, 2]), headers=headers))


@pytest.mark.parametrize("offsets", [[0, 100], [3, 1], [-4, 2]])
def test_offsets_beyond_their_bytes_are_refused(offsets: list[int]) -> None:
    column = BinaryColumn(np.array(offsets, np.int32), np.zeros(5, np.uint8))
    with pytest.raises(InvalidRequestError):
        encode_columns(InputColumns(np.array([1]), value=column))


def test_slices_of_larger_columns_are_written() -> None:
    whole = BinaryColumn.from_values([b"zero", b"one", b"two", b"three"])
    part = BinaryColumn(whole.offsets[1:4], whole.data)
    encoded = encode_columns(InputColumns(np.zeros(2, np.int64), value=part))
    found = decode_columns(encoded.buffer, encoded.table)
    assert list(found.value or ()) == [b"one", b"two"]


# ---- the place in a partition ------------------------------------------------------------------
def test_patching_gives_consecutive_offsets_and_wrapping_sequences() -> None:
    encoded = encode_columns(values(10, 100), batch_size=400)
    counts = encoded.table.count.tolist()
    assert len(counts) > 2
    patched = patch_batches(
        encoded.buffer,
        encoded.table,
        base_offset=1000,
        leader_epoch=7,
        producer_id=2**62,
        producer_epoch=0,
        base_sequence=2**31 - 4,
    )
    assert (scan_batches(encoded.buffer).table.fields == patched.fields).all()
    assert check_crc(encoded.buffer, patched) == len(patched)
    assert decode_columns(encoded.buffer, patched).offset.tolist() == list(range(1000, 1010))
    sequences = [
        record.sequence
        for position, size in zip(patched.position.tolist(), patched.size.tolist(), strict=True)
        for record in RecordBatch(encoded.buffer[position : position + size]).records()
    ]
    assert sequences == [*range(2**31 - 4, 2**31), *range(6)]
    assert set(patched.leader_epoch.tolist()) == {7}


def test_patching_keeps_producers_that_are_not_passed() -> None:
    builder = BatchBuilder(producer_id=9, producer_epoch=2, base_sequence=5)
    builder.append(Record(b"k"))
    buffer = np.frombuffer(builder.build(), np.uint8).copy()
    before = scan_batches(buffer).table
    patched = patch_batches(buffer, before, base_offset=3, leader_epoch=1)
    assert (patched.producer_id[0], patched.producer_epoch[0], patched.base_sequence[0]) == (
        9,
        2,
        5,
    )
    assert patched.crc[0] == before.crc[0]
    assert check_crc(buffer, patched) == 1
    assert before.base_offset[0] == 0, "the caller's table stays as it was"
