"""What a cluster knows: a real broker's metadata log, snapshots, transactions, a first start."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from streamlog.errors import CorruptDataError, CorruptRecordError
from streamlog.fs.files import make_directories, write_file_atomically
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.memory import MemoryFileSystem
from streamlog.handover.cluster_image import (
    ClusterImage,
    PartitionImage,
    encode_bootstrap,
    read_cluster_image,
)
from streamlog.protocol.metadata_records import (
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
from streamlog.records.batch import read_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from tests.support.golden import unpack

NOW = 1_700_000_000_000
METADATA = "/logs/__cluster_metadata-0"
TOPIC_ID = "cWFg3HwMTCePLEybwOOohQ"
OTHER_ID = "TAN-wWuiqYB18BSJ26qtIw"
BEGIN = OtherRecord(MetadataRecordType.BEGIN_TRANSACTION, b"\x01\x17\x00\x00")
END = OtherRecord(MetadataRecordType.END_TRANSACTION, b"\x01\x18\x00\x00")
ABORT = OtherRecord(MetadataRecordType.ABORT_TRANSACTION, b"\x01\x19\x00\x00")
QUOTA = OtherRecord(MetadataRecordType.CLIENT_QUOTA, b"\x01\x0e\x00 whatever it says")
NO_OP = OtherRecord(20, b"\x01\x14\x00\x00")
ORDERS: list[MetadataRecord] = [
    TopicRecord("orders", TOPIC_ID),
    ConfigRecord(TOPIC_RESOURCE, "orders", "retention.ms", "-1"),
    PartitionRecord(TOPIC_ID, 0, (1,), 1, 4, (OTHER_ID,)),
]


def image_of(records: Sequence[MetadataRecord]) -> ClusterImage:
    image = ClusterImage()
    for record in records:
        image.apply(record)
    return image


def written(records: Sequence[MetadataRecord], base_offset: int) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, partition_leader_epoch=1)
    for record in records:
        builder.append(Record(None, encode_metadata_record(record), timestamp=NOW))
    return builder.build()


def put(fs: MemoryFileSystem, name: str, data: bytes) -> None:
    make_directories(fs, METADATA)
    write_file_atomically(fs, f"{METADATA}/{name}", data)


# ---- applying -------------------------------------------------------------------------------
def test_a_new_leader_starts_an_epoch_and_other_changes_do_not() -> None:
    changes = [
        PartitionChangeRecord(TOPIC_ID, 0, -1, None),
        PartitionChangeRecord(TOPIC_ID, 0, None, (1, 2)),
        PartitionChangeRecord(TOPIC_ID, 0, 1, None),
    ]
    image = image_of([*ORDERS, *changes])
    assert image.topics["orders"].partitions == {0: PartitionImage(6, (1, 2))}


def test_settings_change_and_go_and_a_topic_made_again_has_none() -> None:
    image = image_of([*ORDERS, ConfigRecord(TOPIC_RESOURCE, "orders", "retention.ms", "5")])
    assert image.topics["orders"].configs == {"retention.ms": "5"}
    image.apply(ConfigRecord(TOPIC_RESOURCE, "orders", "retention.ms", None))
    assert image.topics["orders"].configs == {}
    image.apply(RemoveTopicRecord(TOPIC_ID))
    assert image.topics == {}
    image.apply(TopicRecord("orders", OTHER_ID))
    assert image.topics["orders"].topic_id == OTHER_ID
    assert image.topics["orders"].partitions == {}


def test_a_transaction_counts_once_it_has_ended() -> None:
    image = image_of([BEGIN, *ORDERS])
    assert image.topics == {}
    image.apply(END)
    assert list(image.topics) == ["orders"]
    for record in [BEGIN, RemoveTopicRecord(TOPIC_ID), ABORT]:
        image.apply(record)
    assert list(image.topics) == ["orders"]


def test_what_holds_for_the_cluster_is_carried_as_it_is() -> None:
    of_broker = ConfigRecord(4, "1", "log.cleaner.threads", "2")
    image = image_of([QUOTA, NO_OP, of_broker, ProducerIdsRecord(2000), *ORDERS])
    assert image.carried == [QUOTA, of_broker]
    assert image.next_producer_id == 2000


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(OTHER_ID, 0, (1,), 1, 0, ()),
        PartitionChangeRecord(TOPIC_ID, 1, 1, None),
        RemoveTopicRecord(OTHER_ID),
    ],
)
def test_a_record_about_nothing_is_damage(record: MetadataRecord) -> None:
    with pytest.raises(CorruptRecordError, match="never created"):
        image_of([*ORDERS, record])


# ---- reading --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("how", "left_out"), [("clean", set()), ("killed", {"default-segments-0"})]
)
def test_a_real_brokers_metadata_tells_of_all_its_directories(
    how: str, left_out: set[str], tmp_path: Path
) -> None:
    root = unpack(f"C-broker/{how}-log.dir.tar.gz", tmp_path) / f"{how}-log.dir"
    image = read_cluster_image(LocalFileSystem(), str(root / "__cluster_metadata-0"))
    told = {f"{name}-{at}" for name, topic in image.topics.items() for at in topic.partitions}
    found = {each.parent.name for each in root.glob("*/partition.metadata")}
    assert told - left_out == found - {"__cluster_metadata-0"}
    for name in {each.rpartition("-")[0] for each in told - left_out}:
        metadata = (root / f"{name}-0" / "partition.metadata").read_text()
        assert image.topics[name].topic_id in metadata
    assert image.features["metadata.version"] == 29
    assert image.topics["compacted"].configs["cleanup.policy"] == "compact"


def test_a_snapshot_stands_for_what_was_before_it() -> None:
    fs = MemoryFileSystem()
    put(fs, "00000000000000000100-0000000002.checkpoint", encode_bootstrap(ORDERS, now_ms=NOW))
    put(fs, "00000000000000000050-0000000001.checkpoint", b"an old one that nobody reads")
    old = written([TopicRecord("old", OTHER_ID)] * 10, 90)
    put(fs, "00000000000000000090.log", old + written([ProducerIdsRecord(9)], 100))
    image = read_cluster_image(fs, METADATA)
    assert list(image.topics) == ["orders"]
    assert image.next_producer_id == 9


def test_damage_names_the_file() -> None:
    fs = MemoryFileSystem()
    data = bytearray(written(ORDERS, 0) + written([NO_OP], len(ORDERS)))
    data[100] ^= 1
    put(fs, "00000000000000000000.log", bytes(data))
    with pytest.raises(CorruptDataError) as caught:
        read_cluster_image(fs, METADATA)
    assert caught.value.path is not None
    assert caught.value.path.startswith(METADATA)


# ---- a first start --------------------------------------------------------------------------
@pytest.mark.parametrize("count", [1, 1000, 2001])
def test_a_bootstrap_file_has_a_header_all_records_and_a_footer(count: int) -> None:
    records = [FeatureLevelRecord("metadata.version", 21), *[NO_OP] * (count - 1)]
    batches = list(read_batches(encode_bootstrap(records, now_ms=NOW)))
    for batch in batches:
        batch.check()
    assert [batch.is_control for batch in batches[:1] + batches[-1:]] == [True, True]
    values = [record.value or b"" for batch in batches[1:-1] for record in batch.records()]
    assert list(map(decode_metadata_record, values)) == records
    offsets = [offset for b in batches for offset in range(b.base_offset, b.next_offset)]
    assert offsets == list(range(count + 2))


def test_a_bootstrap_file_begins_and_ends_as_a_brokers_own(tmp_path: Path) -> None:
    root = unpack("C-broker/clean-log.dir.tar.gz", tmp_path) / "clean-log.dir"
    theirs = list(read_batches((root / "bootstrap.checkpoint").read_bytes()))
    ours = list(read_batches(encode_bootstrap([NO_OP], now_ms=NOW)))
    for mine, real in ((ours[0], theirs[0]), (ours[-1], theirs[-1])):
        assert [(each.key, each.value) for each in mine.records()] == [
            (each.key, each.value) for each in real.records()
        ]
        assert mine.attributes == real.attributes
        assert mine.partition_leader_epoch == real.partition_leader_epoch
