"""One batch and scans of many: allowed changes in place, damage, and mere ends of the data."""

import struct

import pytest

from streamlog.binary.crc import crc32c
from streamlog.errors import CorruptRecordError
from streamlog.records.batch import (
    RecordBatch,
    ScanStop,
    check_crc,
    increment_sequence,
    read_batches,
    scan_batches,
)
from streamlog.records.builder import BatchBuilder, patch_batches
from streamlog.records.record import CompressionType, Header, Record, TimestampType

T0 = 1_700_000_000_000


def batch_of(count: int = 3, **settings: object) -> bytes:
    builder = BatchBuilder(**settings)
    for index in range(count):
        builder.append(Record(b"key", b"value %d" % index, (), T0 + index))
    return builder.build()


def changed(buffer: bytes, position: int, new: bytes, *, repair: bool = True) -> bytes:
    """Return the batch with other bytes at `position`, by default with a valid checksum."""
    target = bytearray(buffer)
    target[position : position + len(new)] = new
    if repair:
        target[17:21] = crc32c(target[21:]).to_bytes(4, "big")
    return bytes(target)


# ---- the view ----------------------------------------------------------------------------------
def test_sequences_wrap_to_zero() -> None:
    batch = RecordBatch(batch_of(3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert batch.last_sequence == 0
    assert [record.sequence for record in batch.records()] == [2**31 - 2, 2**31 - 1, 0]


@pytest.mark.parametrize(
    ("sequence", "increment", "wanted"),
    [
        (0, 0, 0),
        (5, 3, 8),
        (2**31 - 1, 1, 0),
        (2**31 - 2, 3, 1),
        (5, -1, -(2**31) + 4),  # Kafka's reader returns this for an impossible offset delta
    ],
)
def test_sequences_count_as_kafkas_do(sequence: int, increment: int, wanted: int) -> None:
    assert increment_sequence(sequence, increment) == wanted


def test_no_sequence_stays_none() -> None:
    batch = RecordBatch(batch_of(3))
    assert batch.last_sequence == -1
    assert {record.sequence for record in batch.records()} == {-1}


def test_base_offset_and_leader_epoch_may_change_without_the_checksum() -> None:
    for position, size in ((0, 8), (12, 4)):
        batch = RecordBatch(changed(batch_of(), position, b"\1" * size, repair=False))
        assert batch.is_valid
        batch.check()


def test_every_byte_after_the_checksum_counts() -> None:
    buffer = batch_of()
    for position in range(17, len(buffer)):
        wrong = bytes((buffer[position] ^ 0x10,))
        batch = RecordBatch(changed(buffer, position, wrong, repair=False), path="x.log")
        assert not batch.is_valid
        with pytest.raises(CorruptRecordError, match="checksum"):
            batch.check()


def test_a_changed_last_offset_delta_breaks_the_checksum() -> None:
    assert not RecordBatch(changed(batch_of(), 23, b"\0\0\0\7", repair=False)).is_valid


def test_append_time_is_the_time_of_all_records_and_clears_unused_bits() -> None:
    import numpy as np

    buffer = changed(batch_of(), 21, b"\x40\x80")  # bits without a meaning here
    array = np.frombuffer(buffer, np.uint8).copy()
    patch_batches(
        array, scan_batches(array).table, base_offset=0, leader_epoch=0, max_timestamp=T0 + 99
    )
    batch = RecordBatch(array.tobytes())
    batch.check()
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert int.from_bytes(batch.buffer[21:23], "big") == 0x08
    assert {record.timestamp for record in batch.records()} == {T0 + 99}
    assert {record.timestamp_type for record in batch.records()} == {batch.timestamp_type}


@pytest.mark.parametrize("is_control", [False, True])
def test_a_batch_without_records_keeps_every_field(is_control: bool) -> None:
    """The header that remains after compaction removed all records, field by field."""
    attributes = 0x30 if is_control else 0x10
    header = struct.pack(">qiibIhiqqqhii", 23, 49, 15, 2, 0, attributes, 37, -1, -1, 2342, 16, 9, 0)
    batch = RecordBatch(changed(header, 0, b""))
    assert (len(header), batch.size, batch.is_valid) == (61, 61, True)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (23, 60, 61)
    assert (batch.producer_id, batch.producer_epoch) == (2342, 16)
    assert (batch.base_sequence, batch.last_sequence) == (9, 46)
    assert (batch.base_timestamp, batch.max_timestamp) == (-1, -1)
    assert (batch.partition_leader_epoch, batch.count) == (15, 0)
    assert (batch.is_transactional, batch.is_control) == (True, is_control)
    assert batch.delete_horizon_ms is None
    assert list(batch.records()) == []


def test_null_and_empty_are_distinct() -> None:
    builder = BatchBuilder()
    builder.append(Record(None, b"", (Header("", None), Header("", b"")), -1))
    builder.append(Record(b"", None, (), None))
    first, second = RecordBatch(builder.build()).records()
    assert (first.key, first.value, first.timestamp) == (None, b"", -1)
    assert first.headers == (Header("", None), Header("", b""))
    assert (second.key, second.value, second.headers) == (b"", None, ())


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("count", [1, 2, 4, 100, 2**31 - 1])
def test_a_wrong_record_count_is_damage(codec: CompressionType, count: int) -> None:
    buffer = changed(batch_of(3, compression=codec), 57, count.to_bytes(4, "big"))
    with pytest.raises(CorruptRecordError):
        list(RecordBatch(buffer).records())


def test_a_record_count_of_zero_is_an_empty_batch_whatever_follows() -> None:
    assert list(RecordBatch(changed(batch_of(3), 57, bytes(4))).records()) == []


def test_a_negative_record_count_is_damage() -> None:
    with pytest.raises(CorruptRecordError, match="negative record count"):
        list(RecordBatch(changed(batch_of(3), 57, b"\xff" * 4)).records())


@pytest.mark.parametrize("bits", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_damage(bits: int) -> None:
    batch = RecordBatch(changed(batch_of(), 22, bytes((bits,))))
    with pytest.raises(CorruptRecordError, match="codec"):
        _ = batch.compression_type
    with pytest.raises(CorruptRecordError, match="codec"):
        list(batch.records())


def test_reserved_attribute_bits_are_ignored() -> None:
    batch = RecordBatch(changed(batch_of(), 21, b"\xff\x80"))
    assert len(list(batch.records())) == 3


def test_a_batch_cannot_be_changed_through_its_view() -> None:
    batch = RecordBatch(bytearray(batch_of()))
    with pytest.raises(TypeError):
        batch.buffer[0] = 1


# ---- many --------------------------------------------------------------------------------------
def test_a_scan_finds_every_batch_and_the_end() -> None:
    parts = [batch_of(n, base_offset=10 * n, compression=CompressionType.LZ4) for n in (1, 2, 3)]
    scan = scan_batches(b"".join(parts))
    assert (scan.stop, scan.consumed) == (ScanStop.END, sum(map(len, parts)))
    assert scan.table.base_offset.tolist() == [10, 20, 30]
    assert scan.table.last_offset.tolist() == [10, 21, 32]
    assert scan.table.count.tolist() == [1, 2, 3]
    assert scan.table.codec.tolist() == [3, 3, 3]
    assert scan.table.end == scan.consumed
    assert not scan.table.is_control.any() and not scan.table.is_transactional.any()


def test_no_bytes_are_an_empty_scan() -> None:
    scan = scan_batches(b"")
    assert (len(scan.table), scan.stop, scan.consumed) == (0, ScanStop.END, 0)
    assert (repr(scan.table), scan.table.end) == ("BatchTable(empty)", 0)


def test_a_batch_truncated_anywhere_is_partial() -> None:
    first, second = batch_of(2), batch_of(3)
    for size in range(1, len(second)):
        scan = scan_batches(first + second[:size])
        assert (len(scan.table), scan.stop, scan.consumed) == (1, ScanStop.PARTIAL, len(first))


def test_up_to_17_stray_bytes_are_partial_and_more_zeros_a_bad_length() -> None:
    for count in range(1, 18):
        assert scan_batches(batch_of() + bytes(count)).stop is ScanStop.PARTIAL
    assert scan_batches(batch_of() + bytes(18)).stop is ScanStop.BAD_LENGTH


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 48, 2**31 - 12, 2**31 - 1])
def test_impossible_lengths_stop_the_scan(length: int) -> None:
    buffer = batch_of() + changed(batch_of(), 8, length.to_bytes(4, "big", signed=True))
    scan = scan_batches(buffer)
    assert (len(scan.table), scan.stop) == (1, ScanStop.BAD_LENGTH)


def test_a_length_beyond_the_buffer_is_a_partial_batch() -> None:
    scan = scan_batches(changed(batch_of(), 8, (2**31 - 13).to_bytes(4, "big")))
    assert scan.stop is ScanStop.PARTIAL


@pytest.mark.parametrize("magic", [3, 6, 127, 128, 255])
def test_other_formats_stop_the_scan(magic: int) -> None:
    # Magic is outside the checksum: only this check keeps it out of the log.
    assert scan_batches(changed(batch_of(), 16, bytes((magic,)))).stop is ScanStop.BAD_MAGIC


@pytest.mark.parametrize(
    ("position", "new"),
    [
        (0, b"\x80"),  # negative base offset
        (0, b"\x7f" + b"\xff" * 7),  # last offset beyond 63 bits
        (23, b"\xff" * 4),  # last offset before the base offset
        (57, b"\xff" * 4),  # negative count
    ],
)
def test_headers_that_would_break_the_log_stop_the_scan(position: int, new: bytes) -> None:
    scan = scan_batches(batch_of() + changed(batch_of(), position, new))
    assert (len(scan.table), scan.stop) == (1, ScanStop.BAD_HEADER)


def test_the_first_wrong_checksum_is_found() -> None:
    parts = [batch_of(base_offset=3 * n) for n in range(4)]
    buffer = b"".join(parts)
    assert check_crc(buffer, scan_batches(buffer).table) == 4
    for bad in range(4):
        wrong = bytearray(buffer)
        wrong[bad * len(parts[0]) + 70] ^= 1
        assert check_crc(wrong, scan_batches(wrong).table) == bad


def test_a_table_is_sliced_selected_moved_and_joined() -> None:
    import numpy as np

    from streamlog.records.table import BatchTable

    table = scan_batches(b"".join(batch_of(base_offset=3 * n) for n in range(4))).table
    assert table.slice(1, 3).base_offset.tolist() == [3, 6]
    assert table.select(np.array([True, False, False, True])).base_offset.tolist() == [0, 9]
    moved = table.moved(100)
    assert (moved.position - table.position).tolist() == [100] * 4
    assert BatchTable.concatenate([table, moved]).base_offset.tolist() == [0, 3, 6, 9] * 2
    assert len(BatchTable.concatenate([])) == 0
    assert "4 batches, offsets 0 to 11" in repr(table)


def test_batches_are_read_one_by_one_up_to_a_partial_one() -> None:
    parts = [batch_of(base_offset=3 * n) for n in range(3)]
    batches = list(read_batches(b"".join(parts)[:-1]))
    assert [bytes(batch.buffer) for batch in batches] == parts[:2]
    assert [batch.next_offset for batch in batches] == [3, 6]


def test_errors_of_reading_name_file_and_position() -> None:
    buffer = batch_of() + changed(batch_of(), 8, b"\0\0\0\5")
    with pytest.raises(CorruptRecordError) as caught:
        list(read_batches(buffer, path="0.log", position=1000))
    assert (caught.value.path, caught.value.position) == ("0.log", 1000 + len(batch_of()))
    (batch,) = read_batches(changed(batch_of(), 61, b"\x7f"), path="0.log", position=50)
    with pytest.raises(CorruptRecordError) as caught:
        list(batch.records())
    assert (caught.value.path, caught.value.position) == ("0.log", 50)
