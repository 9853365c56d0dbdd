"""Checks that refuse a commit before it is decided; nothing may be refused afterwards."""

import struct

import numpy as np
import pytest

from streamlog.binary.crc import crc32c
from streamlog.commits.admission import gather
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.staging import StagedFile, Stager, StagingArea
from streamlog.errors import (
    CorruptRecordError,
    InconsistentTopicIdError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    MessageTooLargeError,
    RecordListTooLargeError,
    StreamLogError,
    UnsupportedCompressionError,
)
from streamlog.fs.api import OpenMode
from streamlog.records.batch import read_batches, scan_batches
from streamlog.records.builder import BatchBuilder, EncodedBatches, InputColumns, encode_columns
from streamlog.records.record import CompressionType, Record, TimestampType
from streamlog.topic import TopicPartition
from tests.support.commits import APP, NOW, Scene, batches_of

HOUR = 3_600_000


def stage(scene: Scene, *records: Record, codec: CompressionType | None = None) -> StagedFile:
    columns = InputColumns.from_records(list(records), now_ms=NOW)
    encoded = encode_columns(columns, compression=codec or CompressionType.NONE)
    return stage_batches(scene, encoded, len(records))


def stage_batches(scene: Scene, encoded: EncodedBatches, rows: int) -> StagedFile:
    with Stager(scene.log_root, APP, 0, 0, random=scene.random) as stager:
        stager.append(TopicPartition("t", 0), encoded)
        return stager.finish(rows=rows, checksum=0)


def refuse(scene: Scene, staged: StagedFile, kind: type[StreamLogError], words: str) -> None:
    """Expect a refusal after which nothing is decided and the partition is free."""
    with pytest.raises(kind, match=words):
        scene.commit(0, [staged])
    assert scene.pending_names() == []
    assert scene.values(0) == []
    scene.append(1, b"x")
    assert scene.commit(0).parts[0].base_offset == 0


# ---- against the topic --------------------------------------------------------------------------
def test_a_batch_above_max_message_bytes() -> None:
    scene = Scene(configs={"max.message.bytes": "1000"})
    refuse(scene, stage(scene, Record(value=b"x" * 2000)), MessageTooLargeError, "max.message")


@pytest.mark.parametrize("codec", [c for c in CompressionType if c is not CompressionType.NONE])
def test_a_batch_that_decompresses_to_more_than_its_topic_allows(codec: CompressionType) -> None:
    limits = {"max.message.bytes": "100000", "streamlog.max.decompressed.bytes": "300000"}
    scene = Scene(configs=limits)
    refuse(
        scene,
        stage(scene, Record(value=b"x"), Record(value=b"x" * 300_001), codec=codec),
        MessageTooLargeError,
        "streamlog.max.decompressed.bytes",
    )


@pytest.mark.parametrize("codec", [c for c in CompressionType if c is not CompressionType.NONE])
def test_a_batch_that_decompresses_to_what_its_topic_allows(codec: CompressionType) -> None:
    limits = {"max.message.bytes": "100000", "streamlog.max.decompressed.bytes": "300100"}
    scene = Scene(configs=limits)
    value = b"x" * 300_000
    scene.commit(0, [stage(scene, Record(value=value), codec=codec)])
    assert scene.values(0) == [value]


def test_a_batch_above_segment_bytes() -> None:
    scene = Scene(configs={"internal.segment.bytes": "1000"})
    refuse(scene, stage(scene, Record(value=b"x" * 2000)), RecordListTooLargeError, "segment.bytes")


def test_another_codec_than_the_topic_has() -> None:
    scene = Scene(configs={"compression.type": "zstd"})
    staged = stage(scene, Record(value=b"x"), codec=CompressionType.LZ4)
    with pytest.raises(UnsupportedCompressionError, match="zstd"):
        scene.commit(0, [staged])
    right = stage(scene, Record(value=b"x"), codec=CompressionType.ZSTD)
    scene.commit(0, [right])
    assert scene.values(0) == [b"x"]


@pytest.mark.parametrize("codec", list(CompressionType))
def test_every_codec_goes_where_the_topic_leaves_it_to_the_producer(
    codec: CompressionType,
) -> None:
    scene = Scene()
    scene.commit(0, [stage(scene, *(Record(value=b"x%d" % n) for n in range(9)), codec=codec)])
    assert scene.values(0) == [b"x%d" % n for n in range(9)]


@pytest.mark.parametrize("timestamp", [NOW + 2 * HOUR, 2**62])
def test_a_timestamp_from_the_future(timestamp: int) -> None:
    scene = Scene()
    staged = stage(scene, Record(value=b"x", timestamp=timestamp))
    refuse(scene, staged, InvalidTimestampError, "after.max.ms")


@pytest.mark.parametrize("timestamp", [-2, -(2**62)])
def test_a_negative_timestamp(timestamp: int) -> None:
    scene = Scene()
    encoded = encode_columns(InputColumns.from_records([Record(value=b"x", timestamp=0)]))
    batch = bytearray(encoded.buffer)
    batch[27:43] = struct.pack(">qq", timestamp, timestamp)  # base and largest; no builder does it
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    table = scan_batches(batch).table
    staged = stage_batches(scene, EncodedBatches(np.frombuffer(batch, np.uint8), table), 1)
    refuse(scene, staged, InvalidTimestampError, f"got {timestamp} ms, expected 0 to ")


def test_a_timestamp_from_the_past_hidden_behind_a_later_one() -> None:
    scene = Scene(configs={"message.timestamp.before.max.ms": str(HOUR)})
    staged = stage(scene, Record(value=b"x", timestamp=NOW), Record(value=b"y", timestamp=1))
    refuse(scene, staged, InvalidTimestampError, "before.max.ms")


def test_a_topic_that_stamps_takes_any_timestamp_and_stamps_all_alike() -> None:
    scene = Scene(configs={"message.timestamp.type": "LogAppendTime"})
    scene.commit(0, [stage(scene, Record(value=b"x", timestamp=5), Record(value=b"y"))])
    batch = next(iter(read_batches(scene.manager.log("t", 0).read(0).buffer)))
    batch.check()
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in batch.records()] == [NOW, NOW]


def test_a_missing_timestamp_is_within_all_bounds() -> None:
    scene = Scene(configs={"message.timestamp.before.max.ms": str(HOUR)})
    scene.commit(0, [stage(scene, Record(value=b"x", timestamp=-1))])
    assert scene.values(0) == [b"x"]


def test_a_null_key_in_a_compacted_topic() -> None:
    scene = Scene(configs={"cleanup.policy": "compact"})
    staged = stage(scene, Record(b"k", b"x"), Record(None, b"y"))
    refuse(scene, staged, InvalidRecordError, "key in every record")


def test_keys_and_tombstones_go_into_a_compacted_topic() -> None:
    scene = Scene(configs={"cleanup.policy": "compact"})
    scene.commit(0, [stage(scene, Record(b"k", b"x"), Record(b"k", None), Record(b"", b""))])
    assert scene.values(0) == [b"x", None, b""]


@pytest.mark.parametrize("kind", ["control", "transactional", "horizon", "stamped"])
def test_batches_that_a_sink_never_writes(kind: str) -> None:
    builder = {
        "control": BatchBuilder(is_control=True),
        "transactional": BatchBuilder(is_transactional=True, producer_id=1, producer_epoch=0),
        "horizon": BatchBuilder(delete_horizon_ms=NOW),
        "stamped": BatchBuilder(log_append_time=NOW),
    }[kind]
    builder.append(Record(b"k", b"v", (), NOW))
    scene = Scene()
    built = bytearray(builder.build())
    encoded = EncodedBatches(_array(built), scan_batches(built).table)
    words = "LogAppendTime" if kind == "stamped" else "plain batches"
    kinds = InvalidTimestampError if kind == "stamped" else InvalidRecordError
    refuse(scene, stage_batches(scene, encoded, 1), kinds, words)


def _array(content: bytearray):
    import numpy as np

    return np.frombuffer(content, np.uint8)


def test_settings_that_change_after_the_decision_refuse_nothing() -> None:
    """The log rolls instead; see `test_apply`."""
    scene = Scene(configs={"internal.segment.bytes": "5000"})
    scene.commit(0, [stage(scene, Record(value=b"x" * 3000))])
    assert scene.values(0) == [b"x" * 3000]


# ---- against what tasks say -----------------------------------------------------------------
def test_reports_of_another_commit() -> None:
    scene = Scene()
    for staged in (scene.stage(1), scene.stage(0, app="other")):
        with pytest.raises(InvalidRequestError, match="another commit"):
            scene.commit(0, [staged])


def test_two_reports_of_one_task() -> None:
    scene = Scene()
    with pytest.raises(InvalidRequestError, match="task reported two staged files"):
        scene.commit(0, [scene.stage(0), scene.stage(0)])


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../../../../etc/passwd"},
        {"name": ""},
        {"rows": 5},
        {"size": 10},
    ],
    ids=str,
)
def test_an_impossible_report(change: dict[str, object]) -> None:
    scene = Scene()
    staged = scene.stage(0)._replace(**change)
    with pytest.raises(InvalidRequestError):
        scene.commit(0, [staged])
    assert scene.pending_names() == []


@pytest.mark.parametrize(
    "change",
    [
        {"position": -1},
        {"position": 10**9},
        {"size": 0},
        {"size": 2**62},
        {"batches": 0},
        {"topic": "../x"},
        {"partition": -1},
    ],
    ids=str,
)
def test_an_impossible_extent(change: dict[str, object]) -> None:
    scene = Scene()
    staged = scene.stage(0, {0: [b"x"]})
    extent = staged.extents[0]._replace(**change)
    with pytest.raises(InvalidRequestError):
        scene.commit(0, [staged._replace(extents=(extent,))])


@pytest.mark.parametrize(
    "change", [{"batches": 2}, {"size": 70}, {"position": 1, "size": 70}], ids=str
)
def test_an_extent_that_does_not_fit_the_bytes(change: dict[str, object]) -> None:
    scene = Scene()
    staged = scene.stage(0, {0: [b"x"]})
    extent = staged.extents[0]._replace(**change)
    with pytest.raises(CorruptRecordError, match="staged"):
        scene.commit(0, [staged._replace(extents=(extent,))])


def test_more_records_than_the_bytes_hold() -> None:
    scene = Scene()
    staged = scene.stage(0, {0: [b"x"]})
    extent = staged.extents[0]._replace(records=2)
    with pytest.raises(CorruptRecordError, match="do not hold the records"):
        scene.commit(0, [staged._replace(extents=(extent,), rows=2)])


def test_a_staged_file_that_is_gone_or_cut() -> None:
    scene = Scene()
    staged = scene.stage(0)
    path = StagingArea(scene.log_root).file_path(APP, staged.name)
    with scene.fs.open(path, OpenMode.WRITE) as file:
        file.truncate(staged.size - 1)
    with pytest.raises(CorruptRecordError, match="does not have the size"):
        scene.commit(0, [staged])
    scene.fs.remove(path)
    with pytest.raises(CorruptRecordError, match="is missing"):
        scene.commit(0, [staged])


def test_tasks_that_saw_different_topics_of_one_name() -> None:
    scene = Scene()
    first = scene.stage(0, {0: [b"x"]})
    scene.manager.delete_topic("t")
    scene.manager.create_topic("t", 2)
    second = scene.stage(0, {0: [b"y"]}, task=1)
    with pytest.raises(InconsistentTopicIdError):
        scene.commit(0, [first, second])


# ---- order ----------------------------------------------------------------------------------
def test_batches_of_a_partition_stand_in_the_order_of_the_tasks() -> None:
    scene = Scene()
    files = [scene.stage(0, {0: [b"%d" % task] * 3}, task=task) for task in range(12)]
    scene.commit(0, files[::-1])
    assert scene.values(0) == [b"%d" % task for task in range(12) for _ in range(3)]


def test_gather_keeps_the_parts_in_the_order_of_the_partitions() -> None:
    scene = Scene()
    files = [scene.stage(0, {1: [b"a"]}, task=1), scene.stage(0, {0: [b"b"], 1: [b"c"]}, task=0)]
    commit = gather(CommitIdentity(APP, 0), files)
    assert [part.topic_partition.partition for part in commit.parts] == [0, 1]
    assert [extent.file for extent in commit.parts[1].extents] == [0, 1]
    assert [file.name for file in commit.files] == [files[1].name, files[0].name]


def test_a_deterministic_query_writes_the_same_bytes_twice() -> None:
    logs = []
    for order in (1, -1):
        scene = Scene()
        for version in range(3):
            rows = [{0: [b"%d %d" % (version, task)] * 4} for task in range(5)]
            files = [scene.stage(version, part, task=task) for task, part in enumerate(rows)]
            scene.commit(version, files[::order])
        logs.append(bytes(scene.manager.log("t", 0).read(0, 1 << 20).buffer))
    assert logs[0] == logs[1]


def test_batches_of_does_what_the_tests_here_rely_on() -> None:
    assert len(batches_of([b"x" * 20] * 6).table) > 1
