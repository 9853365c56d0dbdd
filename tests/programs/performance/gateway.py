"""Kafka clients reading from `streamlog serve`, beside a real broker with the same files.

A broker is filled by librdkafka, in batches of 16 KB as Java's producers send them. The gateway
serves a copy of its disk. Kafka's Java consumer and librdkafka then read from both in turn, one
process for all rounds, so that neither server meets a colder client.
"""

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.programs.compat.broker import Broker, broker_classpath, format_log_dir
from tests.programs.compat.kafka import java
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.servers import HEAP, THREADS, create_topic, serving_disk

SIZES = {"100_bytes": (100, 2_000_000), "1_kb": (1024, 400_000)}
ROUNDS = 6  # even: the order of the servers alternates
BATCH_SIZE = 16_384
CLIENT = Path(__file__).with_name("Consume.java")


def compare() -> Iterator[Comparison]:
    """Yield records per second of one consumer."""
    with tempfile.TemporaryDirectory(prefix="streamlog-bench-") as directory:
        scratch = Path(directory)
        log_dir, copy = scratch / "broker", scratch / "copy"
        format_log_dir(log_dir, scratch)
        with Broker.start(log_dir, scratch / "filling", options=HEAP) as broker:
            for topic, (size, count) in SIZES.items():
                fill(broker.bootstrap, topic, size, count)
        shutil.copytree(log_dir, copy)
        with (
            Broker.start(log_dir, scratch / "measured", THREADS, options=HEAP) as broker,
            serving_disk(copy) as (ours, _),
        ):
            for topic, (_, count) in SIZES.items():
                rates = java_rates(topic, count, ours, broker.bootstrap)
                yield Comparison(
                    f"gateway.java.{topic}", *rates, "a 4.2 broker", "records/s", goal=1.0
                )
                for each in (ours, broker.bootstrap):
                    librdkafka_rate(each, topic, count)
                rates = interleaved(
                    lambda topic=topic, count=count: librdkafka_rate(ours, topic, count),
                    lambda topic=topic, count=count: librdkafka_rate(
                        broker.bootstrap, topic, count
                    ),
                    rounds=ROUNDS,
                )
                yield Comparison(
                    f"gateway.librdkafka.{topic}", *rates, "a 4.2 broker", "records/s", goal=1.0
                )


def fill(bootstrap: str, topic: str, size: int, count: int) -> None:
    """Produce `count` records of `size` random-looking bytes."""
    create_topic(bootstrap, topic)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": BATCH_SIZE,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = bytes(each % 251 for each in range(size))
    for _ in range(count):
        while True:
            with contextlib.suppress(BufferError):
                producer.produce(topic, value)
                break
            producer.poll(0.1)
    producer.flush()


def java_rates(topic: str, count: int, *servers: str) -> tuple[float, float]:
    """Return the median rates of Kafka's Java consumer, the first round left out."""
    command = [java(), "-Xmx512m", "-cp", broker_classpath(), str(CLIENT), topic, "1"]
    command += [str(count), str(ROUNDS + 1), *servers]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    rates = [[float(rate) for at, rate in lines if int(at) == server] for server in range(2)]
    ours, peer = (iter(each) for each in rates)
    return interleaved(lambda: next(ours), lambda: next(peer), rounds=ROUNDS)


def librdkafka_rate(bootstrap: str, topic: str, count: int) -> float:
    """Return how many records per second librdkafka hands out."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        first = seen = len(consumer.consume(10_000, 30))
        begun = time.perf_counter()
        while seen < count:
            more = len(consumer.consume(10_000, 30))
            if not more:
                raise RuntimeError(f"only {seen} of {count} records came")
            seen += more
        return (seen - first) / (time.perf_counter() - begun)
    finally:
        consumer.close()
