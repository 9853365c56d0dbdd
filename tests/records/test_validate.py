"""Validation on append: each rule of Kafka's leader, and which batches stay byte for byte."""

import struct

import numpy as np
import pytest

from streamlog.binary.crc import crc32c
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordListTooLargeError,
    StreamLogError,
    UnsupportedForMessageFormatError,
)
from streamlog.records.batch import RecordBatch, check_crc, scan_batches
from streamlog.records.builder import BatchBuilder, EncodedBatches
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import CompressionType, Header, Record, TimestampType
from streamlog.records.topic_rules import TopicRules
from streamlog.records.validate import AppendOrigin, validate_append

NOW = 1_700_000_000_000
HOUR = 3_600_000
CLIENT, COORDINATOR = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR
COMMIT = AppendOrigin.COMMIT


def batch_of(*records: Record, **settings: object) -> bytes:
    builder = BatchBuilder(**settings)
    for record in records or (Record(b"k", b"v", (), NOW), Record(b"l", None, (), NOW - 5)):
        builder.append(record)
    return builder.build()


def changed(buffer: bytes, position: int, new: bytes) -> bytes:
    target = bytearray(buffer)
    target[position : position + len(new)] = new
    target[17:21] = crc32c(target[21:]).to_bytes(4, "big")
    return bytes(target)


def validate(buffer: bytes, origin: AppendOrigin = CLIENT, **properties: str) -> EncodedBatches:
    keys = {key.replace("_", "."): value for key, value in properties.items()}
    validated = validate_append(
        buffer,
        base_offset=100,
        leader_epoch=7,
        rules=TopicRules.of(LogConfig.from_properties(keys)),
        now_ms=NOW,
        origin=origin,
    )
    scan = scan_batches(validated.buffer)
    assert (scan.table.fields == validated.table.fields).all()
    assert check_crc(validated.buffer, validated.table) == len(validated.table)
    return validated


def only_batch(validated: EncodedBatches) -> RecordBatch:
    assert len(validated.table) == 1
    return RecordBatch(validated.buffer.tobytes())


# ---- what stays, what is assigned --------------------------------------------------------------
def test_sound_bytes_are_unchanged_except_for_their_position() -> None:
    buffer = batch_of(producer_id=5, producer_epoch=1, base_sequence=3)
    batch = only_batch(validate(buffer))
    assert bytes(batch.buffer[17:]) == buffer[17:]
    assert (batch.base_offset, batch.partition_leader_epoch) == (100, 7)


def test_the_callers_bytes_are_never_changed() -> None:
    for properties in (
        {},
        {"compression_type": "zstd"},
        {"message_timestamp_type": "LogAppendTime"},
    ):
        buffer = bytearray(batch_of())
        before = bytes(buffer)
        validated = validate(buffer, **properties)
        validated.buffer[:] = 0
        assert buffer == before


def test_a_wrong_max_timestamp_is_corrected() -> None:
    buffer = changed(batch_of(), 35, (NOW + 999).to_bytes(8, "big"))
    assert only_batch(validate(buffer)).max_timestamp == NOW


def test_append_time_is_stamped_on_all_records() -> None:
    batch = only_batch(validate(batch_of(), message_timestamp_type="LogAppendTime"))
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in batch.records()} == {NOW}
    assert batch.max_timestamp == NOW


def test_several_batches_of_a_commit_get_consecutive_offsets() -> None:
    buffer = batch_of() + batch_of(base_offset=2) + batch_of(base_offset=4)
    validated = validate(buffer, COMMIT)
    assert validated.table.base_offset.tolist() == [100, 102, 104]
    assert validated.table.last_offset.tolist() == [101, 103, 105]


# ---- rebuilding --------------------------------------------------------------------------------
@pytest.mark.parametrize("source", CompressionType)
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_another_codec_rebuilds_the_batch_and_keeps_everything_else(
    source: CompressionType, target: str
) -> None:
    records = [
        Record(b"k", b"", (Header("h", None), Header("h", b"2")), NOW),
        Record(None, b"v" * 300, (), NOW - 7),
    ]
    settings = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 3}
    buffer = batch_of(*records, compression=source, is_transactional=True, **settings)
    batch = only_batch(validate(buffer, compression_type=target))
    assert batch.compression_type is CompressionType.of(target)
    assert [r._replace(sequence=-1) for r in batch.records()] == [
        record._replace(offset=100 + index) for index, record in enumerate(records)
    ]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 1, 3)
    assert batch.is_transactional and batch.max_timestamp == NOW
    if source is CompressionType.of(target):
        assert bytes(batch.buffer[61:]) == buffer[61:]


def test_the_producers_codec_is_kept_by_default() -> None:
    buffer = batch_of(compression=CompressionType.GZIP)
    assert bytes(only_batch(validate(buffer)).buffer[17:]) == buffer[17:]


def test_another_level_alone_is_no_reason_to_rebuild() -> None:
    buffer = batch_of(compression=CompressionType.GZIP, level=1)
    validated = validate(buffer, compression_type="gzip", compression_gzip_level="9")
    assert bytes(only_batch(validated).buffer[61:]) == buffer[61:]


def test_the_topics_level_is_used_when_rebuilding() -> None:
    text = b"".join(b"%d," % (number * 7919 % 10_007) for number in range(3_000))
    sizes = {
        level: only_batch(
            validate(
                batch_of(Record(None, text)), compression_type="gzip", compression_gzip_level=level
            )
        ).size
        for level in ("1", "9")
    }
    assert sizes["9"] < sizes["1"]


def test_offsets_inside_that_are_not_consecutive_are_made_so() -> None:
    buffer = bytearray(batch_of())
    second = buffer.index(b"\x01l"[1:]) - 2  # offset delta, key size, key
    assert buffer[second] == 2
    wrong = changed(bytes(buffer), second, b"\6")
    assert [r.offset for r in RecordBatch(wrong).records()] == [0, 3]
    batch = only_batch(validate(wrong))
    assert [record.offset for record in batch.records()] == [100, 101]


def test_gaps_of_a_coordinators_batch_are_closed() -> None:
    buffer = batch_of(Record(b"a", offset=2), Record(b"b", offset=7))
    batch = only_batch(validate(buffer, COORDINATOR))
    assert [record.offset for record in batch.records()] == [100, 101]
    assert batch.last_offset == 101


def test_markers_of_a_coordinator_are_never_compressed() -> None:
    marker = build_marker(
        EndTransactionMarker(ControlRecordType.ABORT, 1),
        producer_id=5,
        producer_epoch=0,
        timestamp=NOW,
    )
    batch = only_batch(validate(marker, COORDINATOR, compression_type="zstd"))
    assert (batch.compression_type, batch.size) == (CompressionType.NONE, 78)
    assert (batch.base_offset, batch.is_control) == (100, True)


# ---- refusals ----------------------------------------------------------------------------------
def refused(buffer: bytes, origin: AppendOrigin = CLIENT, **properties: str) -> StreamLogError:
    with pytest.raises(StreamLogError) as caught:
        validate(buffer, origin, **properties)
    return caught.value


def test_a_client_sends_exactly_one_batch() -> None:
    error = refused(batch_of() + batch_of())
    assert isinstance(error, InvalidRecordError) and error.got == 2
    assert isinstance(refused(b""), InvalidRecordError)


def test_a_clients_base_offset_is_zero() -> None:
    assert isinstance(refused(batch_of(base_offset=4)), InvalidRecordError)
    validate(batch_of(base_offset=4), COORDINATOR)


@pytest.mark.parametrize(
    ("position", "new"),
    [
        (23, (5).to_bytes(4, "big")),  # more offsets than records
        (23, bytes(4)),  # fewer
        (57, bytes(4)),  # no records
    ],
)
def test_a_client_sends_one_record_an_offset(position: int, new: bytes) -> None:
    error = refused(changed(batch_of(), position, new))
    assert isinstance(error, InvalidRecordError) and "one record per offset" in error.what


def test_a_client_sends_no_control_batch() -> None:
    assert isinstance(refused(batch_of(is_control=True)), InvalidRecordError)


def test_a_client_with_a_producer_id_sends_a_sequence() -> None:
    error = refused(batch_of(producer_id=5, producer_epoch=0))
    assert isinstance(error, InvalidRecordError) and "sequence" in error.what


def test_a_compacted_topic_needs_keys_and_reports_the_records_without() -> None:
    records = [Record(None if index % 2 else b"k") for index in range(16)]
    error = refused(batch_of(*records), cleanup_policy="compact,delete")
    assert isinstance(error, InvalidRecordError)
    assert error.got == "no key in records 1, 3, 5, 7, 9 and 3 more"
    validate(batch_of(Record(b"")), cleanup_policy="compact")
    validate(batch_of(Record(None)), cleanup_policy="delete")


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
def test_timestamps_must_be_within_the_topics_bounds(codec: CompressionType) -> None:
    bounds = {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": "500"}
    for timestamp in (NOW - 1000, NOW + 500, -1):
        validate(batch_of(Record(timestamp=timestamp), compression=codec), **bounds)
    for timestamp in (NOW - 1001, NOW + 501, 0, 2**63 - 1):
        good = Record(timestamp=NOW)
        error = refused(batch_of(good, Record(timestamp=timestamp), compression=codec), **bounds)
        assert isinstance(error, InvalidTimestampError)
        assert error.got == f"{timestamp} ms, in record 1"


def test_by_default_the_limit_is_an_hour_ahead_and_unlimited_in_the_past() -> None:
    validate(batch_of(Record(timestamp=0), Record(timestamp=NOW + HOUR)))
    assert isinstance(refused(batch_of(Record(timestamp=NOW + HOUR + 1))), InvalidTimestampError)


@pytest.mark.parametrize("wanted", ["producer", "lz4"])
def test_negative_timestamps_are_refused_whatever_the_bounds(wanted: str) -> None:
    # Kafka's leader refuses them in batches that it rebuilds, and accepts them in others.
    for timestamp in (-2, -(2**62)):
        times = struct.pack(">qq", timestamp, timestamp)  # base and largest
        error = refused(changed(batch_of(Record(timestamp=0)), 27, times), compression_type=wanted)
        assert isinstance(error, InvalidTimestampError)
        assert (error.got, error.expected) == (
            f"{timestamp} ms, in record 0",
            f"0 to {NOW + HOUR} ms (message.timestamp.before.max.ms, "
            "message.timestamp.after.max.ms)",
        )


def test_append_time_topics_ignore_timestamps() -> None:
    validate(batch_of(Record(timestamp=2**60)), message_timestamp_type="LogAppendTime")


def test_a_producer_does_not_stamp_append_time_itself() -> None:
    claims = batch_of(log_append_time=NOW - 3)
    error = refused(claims, message_timestamp_type="LogAppendTime")
    assert isinstance(error, InvalidTimestampError)
    assert isinstance(refused(batch_of(log_append_time=-1)), InvalidTimestampError)


def test_a_topic_of_create_time_uses_a_claimed_append_time_as_the_largest_timestamp() -> None:
    # As in Kafka: the records show their own times again, which it did not check.
    batch = only_batch(validate(batch_of(log_append_time=NOW - 3)))
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert batch.max_timestamp == NOW - 3
    assert [record.timestamp for record in batch.records()] == [NOW, NOW - 5]
    far = batch_of(log_append_time=NOW + 2 * HOUR)
    assert isinstance(refused(far), InvalidTimestampError)


def test_a_batch_above_max_message_bytes_is_refused() -> None:
    buffer = batch_of(Record(None, bytes(500)))
    validate(buffer, max_message_bytes=str(len(buffer)))
    error = refused(buffer, max_message_bytes=str(len(buffer) - 1))
    assert isinstance(error, MessageTooLargeError) and error.kafka_code == 10


def test_a_batch_that_grows_above_max_message_bytes_when_rebuilt_is_refused() -> None:
    buffer = batch_of(Record(None, bytes(5000)), compression=CompressionType.ZSTD)
    error = refused(buffer, max_message_bytes="1000", compression_type="uncompressed")
    assert isinstance(error, MessageTooLargeError)


def test_an_append_above_a_segment_is_refused() -> None:
    buffer = batch_of() + batch_of()
    size = {"internal_segment_bytes": str(len(buffer) - 1)}
    assert isinstance(refused(buffer, COMMIT, **size), RecordListTooLargeError)


def test_a_wrong_checksum_is_damage() -> None:
    buffer = bytearray(batch_of())
    buffer[-1] ^= 1
    for origin in AppendOrigin:
        error = refused(bytes(buffer), origin)
        assert isinstance(error, CorruptRecordError)
        assert (error.position, error.expected) == (0, f"0x{buffer[17:21].hex()}")


@pytest.mark.parametrize("tail", [b"\0", batch_of()[:-1], bytes(20)])
def test_anything_but_complete_batches_is_damage(tail: bytes) -> None:
    for origin in AppendOrigin:
        assert isinstance(refused(batch_of() + tail, origin), CorruptRecordError)


def test_damaged_records_under_a_valid_checksum_are_damage() -> None:
    for origin in AppendOrigin:
        assert isinstance(refused(changed(batch_of(), 61, b"\x7e"), origin), CorruptRecordError)


def test_an_unknown_format_is_refused() -> None:
    buffer = bytearray(batch_of())
    buffer[16] = 3
    error = refused(bytes(buffer))
    assert isinstance(error, UnsupportedForMessageFormatError)
    assert (error.position, error.got) == (0, "magic 3")


def test_arrays_are_accepted_like_bytes() -> None:
    array = np.frombuffer(batch_of(), np.uint8)
    assert len(validate(array).table) == 1
