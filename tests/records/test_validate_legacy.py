"""Messages of formats v0 and v1 from a client become a batch of v2, as in Kafka."""

import pytest

from streamlog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    StreamLogError,
)
from streamlog.records.record import CompressionType, Record, TimestampType
from streamlog.records.validate import AppendOrigin
from tests.records.test_validate import CLIENT, HOUR, NOW, only_batch, validate
from tests.support.batches import message_set

CODECS = [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]
RECORDS = [Record(b"k", b"v", (), NOW), Record(None, b"", (), NOW - 5), Record(b"l", None, (), -1)]


def refused(buffer: bytes, origin: AppendOrigin = CLIENT, **properties: str) -> StreamLogError:
    with pytest.raises(StreamLogError) as caught:
        validate(buffer, origin, **properties)
    return caught.value


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_become_one_batch_of_the_codec_they_came_with(
    magic: int, codec: CompressionType
) -> None:
    batch = only_batch(validate(message_set(magic, RECORDS, base_offset=5, compression=codec)))
    assert (batch.magic, batch.compression_type, batch.partition_leader_epoch) == (2, codec, 7)
    assert (batch.producer_id, batch.base_sequence) == (-1, -1)
    times = [NOW, NOW - 5, -1] if magic else [-1, -1, -1]
    assert list(batch.records()) == [
        record._replace(offset=100 + place, timestamp=time)
        for place, (record, time) in enumerate(zip(RECORDS, times, strict=True))
    ]
    assert batch.max_timestamp == (NOW if magic else -1)


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("codec", CODECS)
def test_messages_get_the_codec_that_the_topic_wants(codec: CompressionType, wanted: str) -> None:
    buffer = message_set(1, RECORDS, compression=codec)
    batch = only_batch(validate(buffer, compression_type=wanted))
    assert batch.compression_type is CompressionType.of(wanted)
    assert [r.key for r in batch.records()] == [r.key for r in RECORDS]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_topic_of_append_time_stamps_what_it_converts(magic: int) -> None:
    buffer = message_set(magic, RECORDS)
    batch = only_batch(validate(buffer, message_timestamp_type="LogAppendTime"))
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in batch.records()} == {NOW}


@pytest.mark.parametrize("codec", CODECS)
def test_a_claimed_append_time_becomes_the_producers_time(codec: CompressionType) -> None:
    buffer = message_set(1, RECORDS, compression=codec, log_append_time=NOW - 9)
    batch = only_batch(validate(buffer))
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert {record.timestamp for record in batch.records()} == {NOW - 9}
    error = refused(buffer, message_timestamp_type="LogAppendTime")
    assert isinstance(error, InvalidTimestampError)
    none = message_set(1, RECORDS, compression=codec, log_append_time=-1)
    assert isinstance(refused(none), InvalidTimestampError)


def test_default_offsets_of_a_producer_are_ignored() -> None:
    buffer = b"".join(message_set(0, [record], base_offset=9) for record in RECORDS)
    offsets = [record.offset for record in only_batch(validate(buffer)).records()]
    assert offsets == [100, 101, 102]


REFUSED = [
    (message_set(0, RECORDS) + message_set(1, RECORDS), InvalidRecordError),
    (message_set(1, RECORDS, compression=CODECS[1]) * 2, InvalidRecordError),
    (message_set(1, RECORDS) + message_set(1, RECORDS, compression=CODECS[1]), InvalidRecordError),
    (message_set(1, [Record(b"k", b"v", (), NOW + 48 * HOUR)]), InvalidTimestampError),
    (message_set(1, RECORDS)[:-1], CorruptRecordError),
    (message_set(1, [Record(None, bytes(2_000_000))]), MessageTooLargeError),
]


@pytest.mark.parametrize(("buffer", "error"), REFUSED)
def test_messages_refused_by_a_leader_are_refused(
    buffer: bytes, error: type[StreamLogError]
) -> None:
    assert isinstance(refused(buffer, message_timestamp_after_max_ms=str(HOUR)), error)


def test_a_wrong_checksum_is_damage_for_every_sender() -> None:
    damaged = bytearray(message_set(1, RECORDS))
    damaged[20] ^= 1
    for origin in AppendOrigin:
        assert isinstance(refused(bytes(damaged), origin), CorruptRecordError)


def test_a_compacted_topic_needs_keys() -> None:
    error = refused(message_set(1, RECORDS), cleanup_policy="compact")
    assert isinstance(error, InvalidRecordError)
    assert "record 1" in str(error)
