"""Real consumers read what other processes write: librdkafka and aiokafka."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, TopicPartition

from streamlog import Record
from streamlog.gateway import Gateway
from tests.gateway.fetching import NOW, append_transaction, create, end_transaction, writing

COUNT = 5000


@pytest.fixture
def topic(root: Path) -> str:
    """Two partitions of several segments, in batches of every codec."""
    create(root, "orders", 2)
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for partition in range(2):
        with writing(root, "orders", partition) as log:
            for start in range(0, COUNT, 100):
                records = [Record(key=b"k", value=b"%05d" % each) for each in _range(start)]
                log.append(records, compression=codecs[start // 100 % 5])
                if start % 1000 == 500:
                    log.roll()
    return "orders"


def _range(start: int) -> range:
    return range(start, start + 100)


EXPECTED = [b"%05d" % each for each in range(COUNT)]


def confluent(gateway: Gateway, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": gateway.bootstrap_servers,
            "group.id": "g",
            "enable.auto.commit": False,
            **settings,
        }
    )


def consume(consumer: Consumer, count: int) -> list[Any]:
    """Return `count` messages without errors, or fewer after a while without any."""
    found: list[Any] = []
    while len(found) < count:
        more = consumer.consume(count - len(found), 10)
        if not more:
            break
        found += more
    assert [each.error() for each in found if each.error()] == []
    return found


def test_librdkafka_reads_all_segments_and_codecs(topic: str, gateway: Gateway) -> None:
    consumer = confluent(gateway)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    found = consume(consumer, 2 * COUNT)
    for number in range(2):
        assert [each.value() for each in found if each.partition() == number] == EXPECTED
    consumer.close()


def test_librdkafka_finds_offsets_by_time_and_resets_those_out_of_range(
    root: Path, topic: str, gateway: Gateway
) -> None:
    late = NOW + 3_000_000
    with writing(root, topic) as log:
        log.append([Record(value=b"late", timestamp=late)])
        log.delete_records(10)
    consumer = confluent(gateway, **{"auto.offset.reset": "earliest"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0)) == (10, COUNT + 1)
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, late - 1)])
    assert found.offset == COUNT
    consumer.assign([TopicPartition(topic, 0, 3)])
    (first,) = consume(consumer, 1)
    assert first.offset() == 10
    consumer.close()


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_librdkafka_sees_what_its_isolation_level_allows(
    root: Path, gateway: Gateway, level: str
) -> None:
    create(root, "paid")
    with writing(root, "paid") as log:
        append_transaction(log, 7, 0, b"aborted")
        append_transaction(log, 8, 0, b"committed")
        end_transaction(log, 7, commits=False)
        end_transaction(log, 8, commits=True)
        append_transaction(log, 7, 1, b"open")
    consumer = confluent(gateway, **{"isolation.level": level})
    consumer.assign([TopicPartition("paid", 0, 0)])
    expected = {
        "read_committed": [b"committed"],
        "read_uncommitted": [b"aborted", b"committed", b"open"],
    }[level]
    assert [each.value() for each in consume(consumer, len(expected))] == expected
    assert consumer.consume(1, 1) == []
    consumer.close()


async def read_with_aiokafka(gateway: Gateway, topic: str, count: int) -> list[list[Any]]:
    partitions = [AioPartition(topic, number) for number in range(2)]
    consumer = AIOKafkaConsumer(bootstrap_servers=gateway.bootstrap_servers)
    await consumer.start()
    try:
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        assert await consumer.end_offsets(partitions) == dict.fromkeys(partitions, COUNT)
        values: dict[int, list[Any]] = {0: [], 1: []}
        while sum(map(len, values.values())) < count:
            for partition, records in (await consumer.getmany(timeout_ms=10_000)).items():
                values[partition.partition] += [each.value for each in records]
        return list(values.values())
    finally:
        await consumer.stop()


def test_aiokafka_reads_all_segments_and_codecs(topic: str, gateway: Gateway) -> None:
    found = asyncio.run(read_with_aiokafka(gateway, topic, 2 * COUNT))
    assert found == [EXPECTED, EXPECTED]


def test_a_consumer_follows_a_log_that_is_written_rolled_and_deleted(
    root: Path, topic: str, gateway: Gateway
) -> None:
    consumer = confluent(gateway)
    consumer.assign([TopicPartition(topic, 0, COUNT)])

    def write() -> None:
        with writing(root, topic) as log:
            for number in range(200):
                log.append([Record(value=b"%d" % number)])
                if number % 20 == 10:
                    log.roll()
                if number == 100:
                    log.delete_records(COUNT)

    writer = threading.Thread(target=write)
    writer.start()
    found = consume(consumer, 200)
    writer.join()
    assert [each.value() for each in found] == [b"%d" % each for each in range(200)]
    consumer.close()
