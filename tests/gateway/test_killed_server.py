"""kill -9 of the server while clients produce: nothing acknowledged is lost or comes twice."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Message, Producer

from streamlog import LogManager
from streamlog.records.record import IsolationLevel
from tests.gateway.killed_server import KilledServer, kill_now_and_then

# What the clients print about a server that is away is not worth reading.
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 100, "retry.backoff.max.ms": 200}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KilledServer]:
    made = KilledServer(tmp_path / "root")
    with LogManager.open(str(made.root), create=True) as manager:
        manager.create_topic("events", 1)
    made.start()
    yield made
    made.kill()


def _values(root: Path, isolation: IsolationLevel) -> list[int]:
    with LogManager.open(str(root)) as manager:
        reader = manager.reader("events", 0)
        return [int(record.value or b"-1") for record in reader.records(isolation=isolation)]


def test_an_idempotent_producer_loses_and_repeats_nothing(server: KilledServer) -> None:
    producer = Producer(
        {"bootstrap.servers": server.address, "enable.idempotence": True, "linger.ms": 2, **QUIET}
    )
    failed: list[str] = []
    delivered: list[int] = []

    def on_delivery(error: object, message: Message) -> None:
        if error is not None:
            failed.append(str(error))
        else:
            delivered.append(message.offset() or 0)

    is_over = threading.Event()
    killer = threading.Thread(
        target=kill_now_and_then, args=(server, 7, is_over, lambda: len(delivered) // 100)
    )
    killer.start()
    count = 0
    while not is_over.is_set() or count % 100:
        producer.produce(
            "events",
            b"%d" % count,
            partition=0,
            on_delivery=on_delivery,
        )
        count += 1
        if count % 20 == 0:
            producer.poll(0.002)
    assert producer.flush(60) == 0
    killer.join()
    assert not failed
    assert _values(server.root, IsolationLevel.READ_UNCOMMITTED) == list(range(count))


def test_transactions_happen_once_or_not_at_all(server: KilledServer) -> None:
    def transactional() -> Producer:
        made = Producer(
            {"bootstrap.servers": server.address, "transactional.id": "writer", **QUIET}
        )
        made.init_transactions(60)
        return made

    is_over = threading.Event()
    committed, aborted, unknown, number = set[int](), set[int](), set[int](), 0
    killer = threading.Thread(
        target=kill_now_and_then, args=(server, 11, is_over, lambda: len(committed))
    )
    killer.start()
    producer = transactional()
    while not is_over.is_set():
        number += 1
        producer.begin_transaction()
        try:
            for place in range(5):
                producer.produce("events", b"%d" % (10 * number + place), partition=0)
            if number % 3:
                unknown.add(number)
                producer.commit_transaction(60)
                unknown.remove(number)
                committed.add(number)
            else:
                aborted.add(number)
                producer.abort_transaction(60)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                unknown.discard(number)
                aborted.add(number)
                producer.abort_transaction(60)
            else:
                producer = transactional()
    killer.join()
    transactional()  # ends what is open
    seen = _values(server.root, IsolationLevel.READ_COMMITTED)
    assert len(seen) == len(set(seen))
    wholes = {each // 10 for each in seen}
    assert len(seen) == 5 * len(wholes)
    assert committed <= wholes <= committed | unknown
    assert not wholes & aborted
    assert len(committed) > 5
    assert len(aborted) > 2
