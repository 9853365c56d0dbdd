"""Producer ids that are never assigned twice, and idempotent producers of stock clients."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from streamlog import LogManager
from streamlog.gateway import Gateway, serve
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.settings import Address, GatewaySettings
from tests.gateway.test_writing import NOW, Topic, batch
from tests.gateway.wire_client import WireClient

INIT = {"transactionalId": None, "transactionTimeoutMs": 60_000}


def test_ids_are_unique_over_restarts(root: Path) -> None:
    seen = []
    for _ in range(3):
        with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
            for version in range(6):
                answer = client.call("InitProducerId", version, **INIT)
                assert (answer["errorCode"], answer["producerEpoch"]) == (0, 0)
                seen.append(answer["producerId"])
    assert len(set(seen)) == len(seen)
    assert min(seen) >= 0
    assert (root / ".streamlog/producer-ids").read_text() == "3000\n"


def test_ids_that_a_log_holds_are_not_assigned(client: WireClient, root: Path) -> None:
    how = {"producer_id": 41, "producer_epoch": 0, "base_sequence": 0}
    assert Topic(client, root).produce(batch(b"a", **how))["errorCode"] == 0
    assert client.call("InitProducerId", 4, **INIT)["producerId"] == 42


def test_an_epoch_without_an_id_is_refused(client: WireClient) -> None:
    answer = client.call("InitProducerId", 4, **INIT, producerId=-1, producerEpoch=3)
    assert answer["errorCode"] == ErrorCode.INVALID_REQUEST
    assert answer["producerId"] == -1


def test_a_damaged_file_of_ids_is_reported(client: WireClient, root: Path) -> None:
    (root / ".streamlog/producer-ids").write_text("nonsense")
    assert client.call("InitProducerId", 4, **INIT)["errorCode"] == ErrorCode.CORRUPT_MESSAGE


def test_describe_producers_shows_states(client: WireClient, root: Path) -> None:
    topic = Topic(client, root)
    how = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 0}
    assert topic.produce(batch(b"a", b"b", **how))["errorCode"] == 0
    answer = client.call("InitProducerId", 4, transactionalId="t", transactionTimeoutMs=60_000)
    producer_id = answer["producerId"]
    how |= {"producer_id": producer_id, "producer_epoch": 0, "is_transactional": True}
    request = topic.request((0, batch(b"c", **how))) | {"transactionalId": "t"}
    client.call("Produce", 12, **request)
    wanted = [
        {"name": "orders", "partitionIndexes": [0, 1, 5]},
        {"name": "nothing", "partitionIndexes": [0]},
    ]
    known, unknown = client.call("DescribeProducers", 0, topics=wanted)["topics"]
    states, empty, missing = known["partitions"]
    plain, transactional = states["activeProducers"]
    assert plain == {
        "producerId": 7,
        "producerEpoch": 2,
        "lastSequence": 1,
        "lastTimestamp": NOW,
        "coordinatorEpoch": -1,
        "currentTxnStartOffset": -1,
    }
    assert transactional["producerId"] == producer_id
    assert transactional["currentTxnStartOffset"] == 2
    assert (empty["errorCode"], empty["activeProducers"]) == (0, [])
    assert missing["errorCode"] == unknown["partitions"][0]["errorCode"] == 3


# ---- stock clients ------------------------------------------------------------------------------
@pytest.fixture
def port(root: Path) -> int:
    with serve(root) as gateway:
        _create(root)
        return gateway.address.port


def _create(root: Path) -> None:
    with LogManager.open(str(root)) as manager:
        manager.create_topic("events", 1)


def _values(root: Path, topic: str) -> list[int]:
    with LogManager.open(str(root)) as manager:
        reader = manager.reader(topic, 0)
        return [int(record.value or b"-1") for record in reader.records()]


def test_librdkafka_keeps_its_sequence_over_a_restart(root: Path, port: int) -> None:
    """Records sent while the server is away arrive once, in order."""
    settings = GatewaySettings(listen=Address("127.0.0.1", port))
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "enable.idempotence": True,
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.max.ms": 100,
        }
    )
    failed: list[str] = []

    def send(numbers: range) -> None:
        for number in numbers:
            producer.produce(
                "events",
                b"%d" % number,
                partition=0,
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
            if number % 500 == 0:
                producer.poll(0)

    with serve(root, settings):
        send(range(5000))
        time.sleep(0.1)
    send(range(5000, 8000))
    with serve(root, settings):
        send(range(8000, 10_000))
        assert producer.flush(30) == 0
    assert not failed
    assert _values(root, "events") == list(range(10_000))


@pytest.fixture
def aiokafka_settings(gateway: Gateway, root: Path) -> Iterator[dict[str, object]]:
    _create(root)
    yield {"bootstrap_servers": gateway.bootstrap_servers, "enable_idempotence": True}


def test_aiokafka_produces_with_idempotence(
    root: Path, aiokafka_settings: dict[str, object]
) -> None:
    import asyncio

    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        async with AIOKafkaProducer(**aiokafka_settings) as producer:
            for number in range(1000):
                await producer.send("events", b"%d" % number, partition=0)
            await producer.flush()

    asyncio.run(run())
    assert _values(root, "events") == list(range(1000))


def test_threads_produce_to_one_partition(gateway: Gateway, root: Path) -> None:
    """Several idempotent producers at once: each one's records once and in order."""

    def work(base: int) -> None:
        producer = Producer(
            {"bootstrap.servers": gateway.bootstrap_servers, "enable.idempotence": True}
        )
        for number in range(base, base + 1000):
            producer.produce("events", b"%d" % number, partition=0)
        assert producer.flush(30) == 0

    _create(root)
    threads = [threading.Thread(target=work, args=(base,)) for base in (0, 10_000, 20_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = _values(root, "events")
    assert len(values) == 3000
    for base in (0, 10_000, 20_000):
        own = [each for each in values if base <= each < base + 1000]
        assert own == list(range(base, base + 1000))
