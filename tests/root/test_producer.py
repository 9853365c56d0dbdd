"""`Producer`: where records go, when they are in the log, and what an error leaves."""

import base64
import errno
import json
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.errors import (
    InvalidOptionError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnknownOutcomeError,
    UnknownTopicError,
)
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.record import Header, Record
from streamlog.root.consumer import Consumer
from streamlog.root.manager import LogManager
from streamlog.root.producer import Producer
from tests.support.golden import GOLDEN

ROOT = "/logs"
FACTS = json.loads((GOLDEN / "G-partitioner" / "murmur2.json").read_text())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fs(clock: ManualClock) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    with LogManager.open(ROOT, create=True, fs=fs, clock=clock) as manager:
        manager.create_topic("orders", 3)
        manager.create_topic("state", 1, {"cleanup.policy": "compact"})
        manager.create_topic("small", 1, {"max.message.bytes": "1000"})
    return fs


@pytest.fixture
def producer(fs: MemoryFileSystem, clock: ManualClock) -> Iterator[Producer]:
    with Producer(ROOT, fs=fs, clock=clock, random=Random(1)) as producer:
        yield producer


def records(fs: MemoryFileSystem, topic: str) -> list[tuple[int, Record]]:
    with Consumer(ROOT, topic, fs=fs) as consumer:
        polls = list(iter(consumer.poll, {}))
    return [(each.partition, r) for poll in polls for each, part in poll.items() for r in part]


def values(fs: MemoryFileSystem, topic: str = "orders") -> list[Any]:
    return [record.value for _, record in records(fs, topic)]


def test_sent_records_are_read_back_in_every_detail(
    fs: MemoryFileSystem, producer: Producer, clock: ManualClock
) -> None:
    producer.send("orders", b"v", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=5)
    producer.send("orders", bytearray(b"w"), partition=2)
    producer.send("orders", None, key=b"")
    producer.flush()
    found = sorted(records(fs, "orders"), key=lambda each: str(each[1].value))
    headers = (Header("h", b"1"), Header("h", None))
    assert found[1][1]._replace(offset=0) == Record(b"k", b"v", headers, 5, 0)
    assert found[2][0] == 2 and found[2][1].value == b"w"
    assert (found[0][1].key, found[0][1].value) == (b"", None)
    assert found[0][1].timestamp == clock.now_ms()


@pytest.mark.parametrize("place", range(len(FACTS["n"])))
def test_keys_go_to_the_partitions_that_kafkas_java_client_chooses(place: int) -> None:
    fs, count = MemoryFileSystem(), FACTS["n"][place]
    with LogManager.open(ROOT, create=True, fs=fs) as manager:
        manager.create_topic("orders", count)
    keys = [base64.b64decode(line["key"]) for line in FACTS["keys"]]
    with Producer(ROOT, fs=fs) as producer:
        for number, key in enumerate(keys):
            producer.send("orders", b"%d" % number, key=key)
    found = {int(record.value or b""): partition for partition, record in records(fs, "orders")}
    assert [found[number] for number in range(len(keys))] == [
        line["partitions"][place] for line in FACTS["keys"]
    ]


def test_without_a_key_one_partition_gets_a_batch_and_then_another_one(
    fs: MemoryFileSystem, producer: Producer
) -> None:
    for _ in range(2000):
        producer.send("orders", b"x" * 100)
    producer.flush()
    runs = [partition for partition, _ in records(fs, "orders")]
    assert len(runs) == 2000
    assert {runs.count(number) > 160 for number in range(3)} == {True}


def test_records_linger_and_the_next_call_appends_them(
    fs: MemoryFileSystem, producer: Producer, clock: ManualClock
) -> None:
    producer.send("orders", b"a")
    assert (values(fs), producer.pending) == ([], 1)
    clock.advance(5)
    producer.send("orders", b"b", partition=0)
    assert sorted(values(fs)) == [b"a", b"b"] and producer.pending == 0


def test_no_linger_appends_each_record_at_once(fs: MemoryFileSystem, clock: ManualClock) -> None:
    with Producer(ROOT, linger_ms=0, fs=fs, clock=clock) as producer:
        producer.send("orders", b"a")
        assert values(fs) == [b"a"]


def test_a_full_batch_for_each_partition_is_appended(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with Producer(ROOT, batch_size=1000, fs=fs, clock=clock) as producer:
        sent = 0
        while not values(fs):
            producer.send("orders", b"x" * 68)
            sent += 1
        assert sent == 30  # of 100 bytes each, for three partitions
        with LogManager.open(ROOT, fs=fs) as manager:
            sizes = [
                int(size)
                for number in range(3)
                if (reader := manager.reader("orders", number)).log_end_offset
                for size in reader.read(0).table.size
            ]
        assert max(sizes) <= 1000


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed(fs: MemoryFileSystem, codec: str) -> None:
    with Producer(ROOT, compression_type=codec, fs=fs) as producer:
        for _ in range(100):
            producer.send("state", b"x" * 100, key=b"k")
    with LogManager.open(ROOT, fs=fs) as manager:
        assert manager.reader("state", 0).size < 5000
    assert values(fs, "state") == [b"x" * 100] * 100


def test_close_and_flush_leave_nothing_that_a_power_cut_could_take(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    producer = Producer(ROOT, fs=fs, clock=clock)
    producer.send("orders", b"flushed")
    producer.flush()
    after = fs.crash_clone(Random(1), power=True, loss="everything")
    assert values(after) == [b"flushed"]
    producer.send("orders", b"closed")
    producer.close()
    assert sorted(values(fs.crash_clone(Random(1), power=True, loss="everything"))) == [
        b"closed",
        b"flushed",
    ]
    producer.close()
    with pytest.raises(InvalidRequestError, match="closed"):
        producer.send("orders", b"late")


@pytest.mark.parametrize(
    ("topic", "arguments", "error"),
    [
        ("orders", {"value": "text"}, InvalidRecordError),
        ("orders", {"headers": [("h",)]}, InvalidRecordError),
        ("orders", {"timestamp": "now"}, InvalidRecordError),
        ("orders", {"timestamp": -2}, InvalidTimestampError),
        ("orders", {"timestamp": 1 << 70}, InvalidTimestampError),
        ("orders", {"partition": 3}, UnknownTopicError),
        ("orders", {"partition": -1}, UnknownTopicError),
        ("nothing", {}, UnknownTopicError),
        ("state", {"value": b"without a key"}, InvalidRecordError),
        ("small", {"value": b"x" * 1000}, MessageTooLargeError),
    ],
)
def test_a_record_that_cannot_be_sent_is_refused_at_once_and_the_others_are_not_lost(
    fs: MemoryFileSystem, producer: Producer, topic: str, arguments: dict, error: type
) -> None:
    producer.send("small", b"before", partition=0)
    with pytest.raises(error):
        producer.send(topic, **arguments)
    producer.send("small", b"after", partition=0)
    producer.flush()
    assert values(fs, "small") == [b"before", b"after"]


def test_a_large_record_keeps_its_place(fs: MemoryFileSystem, producer: Producer) -> None:
    sent = [b"1", b"2" * ((1 << 20) - 70), b"3"]
    for value in sent:
        producer.send("orders", value, partition=1)
    producer.flush()
    assert values(fs) == sent


def test_a_producer_that_could_not_append_has_failed_and_says_what_it_holds(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    full = Fault(operation="pwrite", path_suffix=".log", at=2, errno=errno.ENOSPC)
    producer = Producer(ROOT, fs=FaultyFileSystem(fs, full), clock=clock)
    producer.send("orders", b"a", partition=0)
    producer.flush()
    producer.send("orders", b"b", partition=0)
    with pytest.raises(UnknownOutcomeError):
        producer.flush()
    with pytest.raises(InvalidRequestError, match="producer has failed") as again:
        producer.send("orders", b"c", partition=0)
    assert "1 records were not appended" in str(again.value)
    producer.close()
    assert values(fs) == [b"a"]


@pytest.mark.parametrize("settings", [{"batch_size": 0}, {"linger_ms": -1}])
def test_impossible_settings_are_refused(fs: MemoryFileSystem, settings: dict) -> None:
    with pytest.raises(InvalidOptionError):
        Producer(ROOT, fs=fs, **settings)


def test_two_producers_and_threads_lose_nothing(fs: MemoryFileSystem, clock: ManualClock) -> None:
    with Producer(ROOT, fs=fs) as first, Producer(ROOT, fs=fs) as second:

        def send(producer: Producer, name: int) -> None:
            for number in range(500):
                producer.send("orders", b"%d %d" % (name, number), key=b"%d" % name)

        pairs = [(first, 0), (first, 1), (second, 2), (second, 3)]
        threads = [threading.Thread(target=send, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = values(fs)
    for name in range(4):
        own = [value for value in found if value.startswith(b"%d " % name)]
        assert own == [b"%d %d" % (name, number) for number in range(500)]
