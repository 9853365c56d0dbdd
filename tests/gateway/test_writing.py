"""Produce in every version: what is appended, what is refused, and how."""

import time
from pathlib import Path
from typing import Any

import pytest

from streamlog import CompressionType, LogManager, Record
from streamlog.gateway.error_codes import ErrorCode
from streamlog.protocol.apis import apis
from streamlog.records.builder import BatchBuilder
from tests.gateway.wire_client import WireClient

VERSIONS = range(3, 14)
NOW = int(time.time() * 1000)


def batch(*records: Record | bytes, **how: Any) -> bytes:
    builder = BatchBuilder(**how)
    for each in records:
        builder.append(each if isinstance(each, Record) else Record(b"k", each, timestamp=NOW))
    return builder.build()


class Topic:
    """A topic that a client writes to."""

    def __init__(self, client: WireClient, root: Path, name: str = "orders", **configs: str):
        self.client, self.root, self.name = client, root, name
        with LogManager.open(str(root)) as manager:
            described = manager.create_topic(
                name, 2, {key.replace("_", "."): value for key, value in configs.items()}
            )
        self.topic_id = described.topic_id

    def request(self, *partitions: tuple[int, bytes | None], acks: int = -1) -> dict[str, Any]:
        data = [{"index": index, "records": records} for index, records in partitions]
        topic = {"name": self.name, "topicId": self.topic_id, "partitionData": data}
        return {"transactionalId": None, "acks": acks, "timeoutMs": 30_000, "topicData": [topic]}

    def produce(self, records: bytes | None, version: int = 11, **how: Any) -> dict[str, Any]:
        (answer,) = self.produce_all((0, records), version=version, **how)
        return answer

    def produce_all(
        self, *partitions: tuple[int, bytes | None], version: int = 11, acks: int = -1
    ) -> list[dict[str, Any]]:
        answer = self.client.call("Produce", version, **self.request(*partitions, acks=acks))
        (topic,) = answer["responses"]
        answers: list[dict[str, Any]] = topic["partitionResponses"]
        return answers

    def values(self, partition: int = 0) -> list[bytes | None]:
        with LogManager.open(str(self.root)) as manager:
            return [record.value for record in manager.reader(self.name, partition).records()]


@pytest.fixture
def topic(client: WireClient, root: Path) -> Topic:
    return Topic(client, root)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_appends(topic: Topic, version: int) -> None:
    first, second = topic.produce_all((0, batch(b"a", b"b")), (1, batch(b"c")), version=version)
    assert (first["index"], first["errorCode"], first["baseOffset"]) == (0, 0, 0)
    assert (second["index"], second["errorCode"], second["baseOffset"]) == (1, 0, 0)
    assert first["logAppendTimeMs"] == -1
    assert first["logStartOffset"] == (0 if version >= 5 else -1)
    assert topic.produce(batch(b"d"), version, acks=1)["baseOffset"] == 2
    assert topic.values(0) == [b"a", b"b", b"d"]
    assert topic.values(1) == [b"c"]


@pytest.mark.parametrize("version", [0, 1, 2, 14])
def test_other_versions_are_answered(client: WireClient, version: int) -> None:
    (served,) = [a for a in client.call("ApiVersions", 3)["apiKeys"] if a["apiKey"] == 0]
    assert (served["minVersion"], served["maxVersion"]) == (0, 13)
    known = apis()["Produce"]
    data = bytearray(b"\0\0" + version.to_bytes(2, "big") + (9).to_bytes(4, "big") + b"\xff\xff")
    if version >= 9:
        data += b"\0"
    client.send_frame(bytes(data) + b"\xff\xff" * (version >= 3) + bytes(20))
    answer = client.receive_frame()
    assert answer[:4] == (9).to_bytes(4, "big")
    assert len(answer) > 4
    assert version not in known.versions


def test_acks_0_is_not_answered(topic: Topic) -> None:
    topic.client.send("Produce", 9, **topic.request((0, batch(b"a")), acks=0))
    assert topic.produce(batch(b"b"))["baseOffset"] == 1
    assert topic.values() == [b"a", b"b"]


def test_a_failure_with_acks_0_closes_the_connection(topic: Topic) -> None:
    topic.client.send("Produce", 9, **topic.request((7, batch(b"a")), acks=0))
    with pytest.raises(ConnectionError):
        topic.client.receive_frame()


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_refused(topic: Topic, acks: int) -> None:
    answer = topic.produce(batch(b"a"), acks=acks)
    assert answer["errorCode"] == ErrorCode.INVALID_REQUIRED_ACKS
    assert answer["baseOffset"] == -1
    assert topic.values() == []


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_kept(topic: Topic, codec: str) -> None:
    sent = batch(b"x" * 1000, b"y" * 1000, compression=codec)
    assert topic.produce(sent)["errorCode"] == 0
    assert topic.values() == [b"x" * 1000, b"y" * 1000]
    with LogManager.open(str(topic.root)) as manager:
        info = manager.reader(topic.name, 0).read(0)
    assert CompressionType(int(info.table.codec[0])) is CompressionType.of(codec)
    assert bytes(info.buffer)[16:] == sent[16:]


def test_zstd_needs_version_7(topic: Topic) -> None:
    sent = batch(b"x", compression="zstd")
    assert topic.produce(sent, 6)["errorCode"] == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert topic.produce(sent, 7)["errorCode"] == 0


def test_the_topics_codec_wins(client: WireClient, root: Path) -> None:
    topic = Topic(client, root, compression_type="lz4")
    assert topic.produce(batch(b"x" * 100))["errorCode"] == 0
    with LogManager.open(str(root)) as manager:
        info = manager.reader(topic.name, 0).read(0)
    assert int(info.table.codec[0]) == CompressionType.LZ4


def test_log_append_time_is_answered(client: WireClient, root: Path) -> None:
    topic = Topic(client, root, message_timestamp_type="LogAppendTime")
    stamped = topic.produce(batch(Record(b"k", b"v", timestamp=5)))["logAppendTimeMs"]
    assert stamped >= NOW
    with LogManager.open(str(root)) as manager:
        (record,) = manager.reader(topic.name, 0).records()
    assert record.timestamp == stamped


def test_a_bad_timestamp_names_its_records(client: WireClient, root: Path) -> None:
    topic = Topic(client, root, message_timestamp_after_max_ms="1000")
    late = Record(b"k", b"v", timestamp=NOW + 3_600_000)
    answer = topic.produce(batch(b"a", late, b"b", late))
    assert answer["errorCode"] == ErrorCode.INVALID_TIMESTAMP
    assert [each["batchIndex"] for each in answer["recordErrors"]] == [1, 3]
    assert "timestamp" in answer["errorMessage"]
    assert topic.values() == []


def test_a_compacted_topic_refuses_records_without_a_key(client: WireClient, root: Path) -> None:
    topic = Topic(client, root, cleanup_policy="compact")
    keyless = Record(None, b"v", timestamp=NOW)
    answer = topic.produce(batch(b"a", keyless))
    assert answer["errorCode"] == ErrorCode.INVALID_RECORD
    assert [each["batchIndex"] for each in answer["recordErrors"]] == [1]
    assert "key" in answer["recordErrors"][0]["batchIndexErrorMessage"]
    assert topic.produce(batch(keyless), 7)["errorCode"] == ErrorCode.INVALID_RECORD
    assert topic.produce(batch(b"a"))["errorCode"] == 0


def test_sizes_are_limited(client: WireClient, root: Path) -> None:
    topic = Topic(client, root, max_message_bytes="1000")
    assert topic.produce(batch(b"x" * 1000))["errorCode"] == ErrorCode.MESSAGE_TOO_LARGE
    packed = batch(b"x" * 1000, compression="gzip")
    assert topic.produce(packed)["errorCode"] == 0


def _flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (batch(b"a")[:16] + b"\x01" + batch(b"a")[17:], ErrorCode.INVALID_RECORD),
        (batch(b"a", base_offset=4), ErrorCode.INVALID_RECORD),
        (batch(b"a", producer_id=4, producer_epoch=0), ErrorCode.INVALID_RECORD),
        (_flipped(batch(b"a")), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
    ],
    ids=["null", "empty", "two", "magic 1", "offset", "no sequence", "crc", "torn"],
)
def test_bad_batches_are_refused(topic: Topic, data: bytes | None, code: ErrorCode) -> None:
    bad, good = topic.produce_all((0, data), (1, batch(b"a")))
    assert (bad["errorCode"], bad["baseOffset"]) == (code, -1)
    assert (good["errorCode"], good["baseOffset"]) == (0, 0)
    assert topic.values(0) == []


def test_unknown_topics_and_partitions(topic: Topic) -> None:
    assert topic.produce_all((2, batch(b"a")))[0]["errorCode"] == 3
    topic.name, topic.topic_id = "nothing", "AAAAAAAAAAAAAAAAAAAAAQ"
    by_name, by_id = topic.produce(batch(b"a"), 12), topic.produce(batch(b"a"), 13)
    assert by_name["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert by_id["errorCode"] == ErrorCode.UNKNOWN_TOPIC_ID
    with LogManager.open(str(topic.root)) as manager:
        assert manager.topics() == ["orders"]


def test_internal_topics_are_refused(client: WireClient, root: Path) -> None:
    topic = Topic(client, root, "__consumer_offsets")
    assert topic.produce(batch(b"a"))["errorCode"] == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_lock_that_another_process_holds_is_a_timeout(client: WireClient, root: Path) -> None:
    topic = Topic(client, root)
    settings = root / ".streamlog/server.properties"
    settings.write_text("streamlog.lock.timeout.ms=200\n")
    with LogManager.open(str(root)) as other, other.log(topic.name, 0).writing():
        assert topic.produce(batch(b"a"))["errorCode"] == ErrorCode.REQUEST_TIMED_OUT
    assert topic.produce(batch(b"a"))["baseOffset"] == 0


def test_an_idempotent_producer_is_recognized(topic: Topic) -> None:
    def send(sequence: int, epoch: int = 1, *values: bytes) -> dict[str, Any]:
        how = {"producer_id": 7, "producer_epoch": epoch, "base_sequence": sequence}
        return topic.produce(batch(*(values or (b"v",)), **how))

    first = send(0)
    assert (first["errorCode"], first["baseOffset"]) == (0, 0)
    assert send(1, 1, b"w", b"x")["baseOffset"] == 1
    again = send(0)
    assert (again["errorCode"], again["baseOffset"]) == (0, 0)
    assert again["logAppendTimeMs"] == NOW
    assert send(1, 1, b"w", b"x")["baseOffset"] == 1
    assert send(9)["errorCode"] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(3, 0)["errorCode"] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(5, 2)["errorCode"] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(0, 2)["baseOffset"] == 3
    assert topic.values() == [b"v", b"w", b"x", b"v"]


def test_a_topic_that_another_process_creates_again_is_written(
    root: Path, client: WireClient
) -> None:
    def produced() -> tuple[int, int]:
        topics = [{"name": "orders", "partitionData": [{"index": 0, "records": batch(b"a")}]}]
        answer = client.call(
            "Produce", 9, transactionalId=None, acks=-1, timeoutMs=1000, topicData=topics
        )
        (partition,) = answer["responses"][0]["partitionResponses"]
        return partition["errorCode"], partition["baseOffset"]

    with LogManager.open(root) as manager:
        manager.create_topic("orders", 1)
        assert [produced(), produced()] == [(0, 0), (0, 1)]
        manager.delete_topic("orders")
        assert produced() == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        manager.create_topic("orders", 1)
        assert produced() == (0, 0)
        manager.delete_topic("orders")
        manager.create_topic("orders", 1)
        assert produced() == (0, 0)
