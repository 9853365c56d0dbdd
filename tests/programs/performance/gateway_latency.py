"""End-to-end latency through `streamlog serve`, beside a real broker.

librdkafka produces 1,000 records per second with acks=all and without lingering; another client in
the same process consumes them. The latency of a record is the time from the call that produces it
until the consumer has it.
"""

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.servers import both, create_topic

RATE = 1000  # records per second
SECONDS = 10
ROUNDS = 3
TOPIC = "latency"
PADDING = b"." * 92  # after 8 bytes of time


def compare() -> Iterator[Comparison]:
    """Yield the 99th percentile, and the median, in milliseconds."""
    with (
        tempfile.TemporaryDirectory(prefix="streamlog-bench-") as directory,
        both(Path(directory, "servers")) as (ours, theirs),
    ):
        for server in (ours, theirs):
            create_topic(server.address, TOPIC)
        measured: dict[str, list[np.ndarray]] = {ours.address: [], theirs.address: []}

        def p99(address: str) -> float:
            measured[address].append(latencies(address))
            return float(np.percentile(measured[address][-1], 99))

        pair = interleaved(lambda: p99(ours.address), lambda: p99(theirs.address), rounds=ROUNDS)
        medians = [float(np.median(np.concatenate(each[1:]))) for each in measured.values()]
        for name, values, goal in (("p99", pair, 2.0), ("median", medians, None)):
            yield Comparison(
                f"gateway_latency.{name}",
                *values,
                "a 4.2 broker",
                "ms",
                higher_is_better=False,
                goal=goal,
            )


def latencies(address: str) -> np.ndarray:
    """Return the latencies of one run in milliseconds.

    Raises:
        RuntimeError: Not all records came.
    """
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "log_level": 0})
    start = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)[1]
    consumer.assign([TopicPartition(TOPIC, 0, start)])
    consumer.poll(1)  # connects; nothing is there yet
    found: list[int] = []

    def consume() -> None:
        until = time.monotonic() + 3 * SECONDS
        while len(found) < RATE * SECONDS and time.monotonic() < until:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                sent = int.from_bytes(message.value()[:8], "big")
                found.append(time.perf_counter_ns() - sent)

    reading = threading.Thread(target=consume)
    reading.start()
    produce(address)
    reading.join()
    consumer.close()
    if len(found) < RATE * SECONDS:
        raise RuntimeError(f"only {len(found)} of {RATE * SECONDS} records came")
    return np.array(found[RATE:]) / 1e6  # less the first second


def produce(address: str) -> None:
    """Produce at a steady rate."""
    settings = {"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "log_level": 0}
    producer = Producer(settings)
    begun = time.perf_counter_ns()
    for number in range(RATE * SECONDS):
        wait = begun + number * 1_000_000_000 // RATE - time.perf_counter_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        producer.produce(TOPIC, time.perf_counter_ns().to_bytes(8, "big") + PADDING, partition=0)
    producer.flush()
