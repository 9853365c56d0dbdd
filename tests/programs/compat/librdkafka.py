"""Clients other than Java's: librdkafka as a producer and consumer of a real broker."""

import time
from collections.abc import Iterable
from random import Random

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from tests.support.fingerprints import NOTHING, Fingerprint, digest

__all__ = ["consumed", "send"]

PATIENCE_S = 60
WORDS = b"the log keeps what a broker wrote and a reader finds it again ".split()


def send(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    codec: str,
    count: int,
    size: int = 100,
    seed: int = 0,
    transaction: str | None = None,
    is_aborted: bool = False,
) -> None:
    """Send records as an idempotent producer, or in one transaction.

    Args:
        bootstrap: The broker.
        topic: The target.
        partitions: The number of the topic's partitions, which are filled in turn.
        codec: The producer's compression.
        count: The number of records.
        size: The approximate bytes of a value; every other one is incompressible.
        seed: The seed of the contents.
        transaction: The transactional id; None: no transaction.
        is_aborted: Whether to abort the transaction.
    """
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap,
        "compression.type": codec,
        "enable.idempotence": True,
        "linger.ms": 20,
    }
    if transaction is not None:
        settings["transactional.id"] = transaction
    producer, random = Producer(settings), Random(seed)
    if transaction is not None:
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    failed: list[KafkaError] = []
    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic,
                    value=_value(number, size, random),
                    key=None if number % 5 == 0 else b"key-%d" % number,
                    partition=number % partitions,
                    headers=[("h", b"v%d" % number), ("h", None)][: number % 3],
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
                break
            except BufferError:  # its queue is full
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(PATIENCE_S)
    if transaction is not None:
        end = producer.abort_transaction if is_aborted else producer.commit_transaction
        end(PATIENCE_S)
    assert not failed, failed[0]


def _value(number: int, size: int, random: Random) -> bytes | None:
    if number % 9 == 0:
        return None if number % 2 else b""
    if number % 2:
        return random.randbytes(size)
    return b" ".join(random.choices(WORDS, k=size // 5))


def consumed(
    bootstrap: str, topics: Iterable[str], isolation: str = "read_committed"
) -> dict[str, Fingerprint]:
    """Return what a consumer gets from each partition of some topics."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "not-used",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    known = consumer.list_topics(timeout=PATIENCE_S).topics
    places = [
        TopicPartition(topic, number, OFFSET_BEGINNING)
        for topic in topics
        for number in known[topic].partitions
    ]
    consumer.assign(places)
    found = {f"{place.topic}-{place.partition}": NOTHING for place in places}
    open_ends, moved = set(found), time.monotonic()
    try:
        while open_ends:
            assert time.monotonic() < moved + PATIENCE_S, f"no more records of {open_ends}"
            for message in consumer.consume(1000, timeout=0.5):
                moved = time.monotonic()
                name = f"{message.topic()}-{message.partition()}"
                error = message.error()
                if error is None:
                    found[name] = found[name].plus(Fingerprint(1, _digest(message)))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard(name)
                else:
                    raise RuntimeError(str(error))
    finally:
        consumer.close()
    return found


def _digest(message: Message) -> int:
    kind, timestamp = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        timestamp = -1
    return digest(
        message.offset(),
        timestamp,
        kind - 1,  # librdkafka numbers the types from "none" = 0, which is -1 in Kafka
        key=message.key(),
        value=message.value(),
        headers=message.headers() or (),
    )
