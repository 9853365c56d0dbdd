"""Offsets that are committed in transactions, with frames and with librdkafka."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from streamlog import LogManager
from streamlog.gateway import Gateway, serve
from streamlog.gateway.error_codes import ErrorCode
from tests.gateway.test_transactions import NONE, Txn, seen
from tests.gateway.test_writing import Topic
from tests.gateway.wire_client import WireClient


def commit_offset(txn: Txn, offset: int, version: int = 5, group: str = "g") -> int:
    partition = {"partitionIndex": 0, "committedOffset": offset, "committedMetadata": "m"}
    answer = txn.client.call(
        "TxnOffsetCommit",
        version,
        transactionalId=txn.name,
        groupId=group,
        **txn.ids,
        topics=[{"name": "orders", "partitions": [partition]}],
    )
    return int(answer["topics"][0]["partitions"][0]["errorCode"])


def add_offsets(txn: Txn, version: int = 3, group: str = "g") -> int:
    how: dict[str, Any] = {"transactionalId": txn.name, "groupId": group, **txn.ids}
    return int(txn.client.call("AddOffsetsToTxn", version, **how)["errorCode"])


def committed(txn: Txn, group: str = "g") -> int:
    wanted = [{"name": "orders", "partitionIndexes": [0]}]
    answer = txn.client.call("OffsetFetch", 7, groupId=group, topics=wanted, requireStable=False)
    return int(answer["topics"][0]["partitions"][0]["committedOffset"])


@pytest.mark.parametrize("version", range(6))
def test_offsets_count_from_the_commit_on(client: WireClient, root: Path, version: int) -> None:
    txn = Txn(client, Topic(client, root), version=2 if version >= 5 else 0)
    assert txn.begin() == NONE
    for offset, commit, after in ((5, True, 5), (9, False, 5), (7, True, 7)):
        if version < 5:
            assert add_offsets(txn, min(version, 4)) == NONE
        assert commit_offset(txn, offset, version) == NONE
        assert committed(txn) != offset
        assert txn.end(commit=commit) == NONE
        assert committed(txn) == after


def test_offsets_of_another_producer_are_refused(client: WireClient, root: Path) -> None:
    txn = Txn(client, Topic(client, root))
    assert txn.begin() == NONE
    assert commit_offset(txn, 1, version=4) == ErrorCode.TRANSACTION_ABORTABLE
    assert commit_offset(txn, 1, version=3) == ErrorCode.INVALID_TXN_STATE
    stale = dict(txn.ids)
    assert txn.begin() == NONE
    txn.epoch = stale["producerEpoch"]
    assert commit_offset(txn, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert add_offsets(txn) == ErrorCode.PRODUCER_FENCED
    assert add_offsets(txn, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_open_offsets_survive_a_restart(root: Path) -> None:
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        txn = Txn(client, Topic(client, root))
        assert txn.begin() == NONE
        assert commit_offset(txn, 4) == NONE
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        txn.client = client
        assert committed(txn) == -1
        assert txn.end(commit=True) == NONE
        assert committed(txn) == 4
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        txn.client = client
        assert committed(txn) == 4


def test_librdkafka_consumes_transforms_and_produces(gateway: Gateway, root: Path) -> None:
    """Every input is in the output once, although each third transaction is aborted."""
    with LogManager.open(str(root)) as manager:
        manager.create_topic("input", 1)
        manager.create_topic("output", 1)
    source = Producer({"bootstrap.servers": gateway.bootstrap_servers})
    for number in range(30):
        source.produce("input", b"%d" % number)
    assert source.flush(10) == 0

    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap_servers,
            "group.id": "copy",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["input"])
    producer = Producer(
        {"bootstrap.servers": gateway.bootstrap_servers, "transactional.id": "copy"}
    )
    producer.init_transactions(10)
    done, turn = 0, 0
    while done < 30:
        records = [each for each in consumer.consume(5, 10) if each.error() is None]
        if not records:
            continue
        turn += 1
        producer.begin_transaction()
        for record in records:
            producer.produce("output", record.value())
        after = TopicPartition("input", 0, records[-1].offset() + 1)
        producer.send_offsets_to_transaction([after], consumer.consumer_group_metadata(), 10)
        if turn % 3 == 0:
            producer.abort_transaction(10)
            consumer.seek(TopicPartition("input", 0, records[0].offset()))
        else:
            producer.commit_transaction(10)
            done += len(records)
    (position,) = consumer.committed([TopicPartition("input", 0)], 10)
    consumer.close()
    assert position.offset == 30
    assert seen(root, name="output") == [b"%d" % number for number in range(30)]


def test_librdkafka_fences_and_reads_committed(gateway: Gateway, root: Path) -> None:
    with LogManager.open(str(root)) as manager:
        manager.create_topic("output", 1)

    def transactional() -> Producer:
        made = Producer({"bootstrap.servers": gateway.bootstrap_servers, "transactional.id": "one"})
        made.init_transactions(10)
        return made

    first = transactional()
    first.begin_transaction()
    first.produce("output", b"lost")
    assert first.flush(10) == 0
    second = transactional()
    second.begin_transaction()
    second.produce("output", b"kept")
    with pytest.raises(KafkaException):
        first.commit_transaction(10)
    second.commit_transaction(10)
    consumer = Consumer(
        {
            "bootstrap.servers": gateway.bootstrap_servers,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["output"])
    records = [each.value() for each in consumer.consume(2, 3) if each.error() is None]
    consumer.close()
    assert records == [b"kept"]
