"""Records of cluster metadata: as a real controller wrote them, there and back, and cut short."""

import pytest

from streamlog.errors import CorruptRecordError
from streamlog.protocol.metadata_records import (
    NO_LEADER,
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    MetadataRecordType,
    OtherRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)

TOPIC_ID = "cWFg3HwMTCePLEybwOOohQ"
DIRECTORY_ID = "TAN-wWuiqYB18BSJ26qtIw"

# Written by the controller of a 4.2.0 broker.
REAL: list[tuple[bytes, MetadataRecord]] = [
    (b"\x01\x0c\x00\x11metadata.version\x00\x1d\x00", FeatureLevelRecord("metadata.version", 29)),
    (
        b"\x01\x02\x00\x0bcodec-noneqa`\xdc|\x0cL'\x8f,L\x9b\xc0\xe3\xa8\x85\x00",
        TopicRecord("codec-none", TOPIC_ID),
    ),
    (
        b"\x01\x04\x00\x02\x0bcodec-none\x15index.interval.bytes\x051024\x00",
        ConfigRecord(TOPIC_RESOURCE, "codec-none", "index.interval.bytes", "1024"),
    ),
    (b"\x01\x18\x00\x00", OtherRecord(MetadataRecordType.END_TRANSACTION, b"\x01\x18\x00\x00")),
]
OURS: list[MetadataRecord] = [
    PartitionRecord(TOPIC_ID, 7, (1,), NO_LEADER, 2**31 - 1, (DIRECTORY_ID,)),
    PartitionRecord(TOPIC_ID, 0, (3, 1, 2), 3, 0, (DIRECTORY_ID, TOPIC_ID, DIRECTORY_ID)),
    PartitionChangeRecord(TOPIC_ID, 300, None, None),
    PartitionChangeRecord(TOPIC_ID, 0, NO_LEADER, (2, 3)),
    ConfigRecord(TOPIC_RESOURCE, "t", "retention.ms", None),
    ConfigRecord(4, "", "k" * 300, "ключ"),
    RemoveTopicRecord(TOPIC_ID),
    ProducerIdsRecord(2**40),
]
ALL = [*(data for data, _ in REAL), *map(encode_metadata_record, OURS)]


@pytest.mark.parametrize(("data", "record"), REAL)
def test_what_a_controller_wrote_is_understood_and_written_alike(
    data: bytes, record: MetadataRecord
) -> None:
    assert decode_metadata_record(data) == record
    assert encode_metadata_record(record) == data


@pytest.mark.parametrize("record", OURS)
def test_a_record_comes_back_as_it_was_written(record: MetadataRecord) -> None:
    assert decode_metadata_record(encode_metadata_record(record)) == record


def test_a_partition_of_a_controller_without_directories_has_none() -> None:
    record = PartitionRecord(TOPIC_ID, 1, (1,), 1, 4)
    written = encode_metadata_record(record)
    version_0 = written[:2] + b"\x00" + written[3:-2] + b"\x00"
    assert decode_metadata_record(version_0) == record


@pytest.mark.parametrize("data", ALL)
def test_a_truncated_record_is_refused(data: bytes) -> None:
    for size in range(len(data)):
        try:
            found = decode_metadata_record(data[:size])
        except CorruptRecordError:
            continue
        # Records that are not decoded are kept as they are, once their api key is known.
        assert found == OtherRecord(MetadataRecordType.END_TRANSACTION, data[:size])


@pytest.mark.parametrize(
    "data",
    [
        b"\x02\x0c\x00\x02a\x00\x01\x00",
        b"\x01\xff\xff\xff\xff\xff\x00",
        b"\x01\x0c\x00\x00\x00\x01\x00",
        b"\x01\x0c\x00\x02\xff\x00\x01\x00",
    ],
    ids=["frame of version 2", "endless varint", "null for a string", "not UTF-8"],
)
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="cluster metadata record"):
        decode_metadata_record(data)
