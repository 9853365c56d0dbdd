"""What happens to each record on its way from and to a Kafka cluster: nothing in Python."""

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message
from confluent_kafka import TopicPartition as Place

from streamlog import LogManager, Record
from streamlog.errors import InvalidRecordError
from streamlog.gateway import Gateway, serve
from streamlog.partition.reader import LogReader
from streamlog.topic import TopicPartition
from streamlog.transfer.kafka_client import KafkaClient
from streamlog.transfer.kafka_source import KafkaReader, ReadRecords
from streamlog.transfer.kafka_target import KafkaTarget

COUNT = 2000


def numbered(count: int) -> list[Record]:
    return [
        Record(key=b"k%d" % (number % 7), value=b"%d" % number * 9, timestamp=1000 + number)
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Gateway]]:
    """Serve a root with one topic of records, and one without."""
    root = tmp_path_factory.mktemp("served") / "root"
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", 1)
        manager.create_topic("arrived", 2)
        manager.log("orders", 0).append(numbered(COUNT))
    with serve(root) as gateway:
        yield root, gateway


@pytest.fixture(scope="module")
def messages(served: tuple[Path, Gateway]) -> list[Message]:
    """Return the records as librdkafka gives them."""
    settings = {"bootstrap.servers": served[1].bootstrap_servers, "group.id": "none"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([Place("orders", 0, OFFSET_BEGINNING)])
    found: list[Message] = []
    while len(found) < COUNT:
        found += consumer.consume(COUNT, 1)
    consumer.close()
    return found


def calls_of(work: Callable[[], object]) -> int:
    """Return how often a function of Python, or a generator, is entered."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_no_function_is_called_for_a_record_that_is_read(messages: list[Message]) -> None:
    ReadRecords.from_messages(messages, "")
    few = calls_of(lambda: ReadRecords.from_messages(messages[:20], ""))
    many = calls_of(lambda: ReadRecords.from_messages(messages, ""))
    assert 0 < few == many < 50
    read = ReadRecords.from_messages(messages, "").columns
    assert [(each.key, each.value, each.timestamp) for each in read.records()] == [
        (each.key, each.value, each.timestamp) for each in numbered(COUNT)
    ]


def test_cycles_are_looked_for_again_between_and_after_reads(
    served: tuple[Path, Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = KafkaReader(KafkaClient(f"kafka://{served[1].bootstrap_servers}"))
    seen = []
    made = ReadRecords.from_messages

    def noted(messages: list[Message], path: str) -> ReadRecords:
        seen.append(gc.isenabled())
        if len(seen) > 1:
            raise InvalidRecordError("a header's key is not UTF-8")
        return made(messages, path)

    monkeypatch.setattr(ReadRecords, "from_messages", noted)
    with pytest.raises(InvalidRecordError):
        for _ in reader.read(TopicPartition("orders", 0), 0, COUNT):
            assert gc.isenabled()
    assert gc.isenabled() and seen == [False, False]
    reader.close()


def test_no_function_is_called_for_a_record_that_is_sent(
    served: tuple[Path, Gateway], messages: list[Message]
) -> None:
    root, gateway = served
    target = KafkaTarget(KafkaClient(f"kafka://{gateway.bootstrap_servers}"))
    sender = target.sender(TopicPartition("arrived", 0), 0)
    parts = [
        ReadRecords.from_messages(messages[first:end], "").columns
        for first, end in ((0, 1), (1, 21), (21, COUNT))
    ]
    sender.send(parts[0])
    few, many = (calls_of(lambda part=part: sender.send(part)) for part in parts[1:])
    sender.finish()
    target.close()
    assert many < few + 20  # answers of the broker come when they come
    assert content(root, 0) == content(root, 0, "orders")


def test_records_wait_in_their_order_while_the_queue_of_librdkafka_is_full(
    served: tuple[Path, Gateway], messages: list[Message]
) -> None:
    root, gateway = served
    settings = {"queue.buffering.max.messages": "7", "batch.num.messages": "5"}
    target = KafkaTarget(KafkaClient(f"kafka://{gateway.bootstrap_servers}", settings))
    sender = target.sender(TopicPartition("arrived", 1), 0)
    sender.send(ReadRecords.from_messages(messages[:300], "").columns)
    sender.finish()
    target.close()
    assert sender.end_offset == 300
    assert content(root, 1) == content(root, 0, "orders")[:300]


def content(root: Path, partition: int, topic: str = "arrived") -> list[tuple[Any, ...]]:
    with LogReader.open(root / f"{topic}-{partition}") as log:
        return [(each.key, each.value, each.offset, each.timestamp) for each in log.records()]
