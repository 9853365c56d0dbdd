"""librdkafka producing to `streamlog serve`, beside a real broker, with acks=all and idempotence.

Once both sync each batch before they answer it, once neither does, which is the default of both.
Each has a topic of one partition; the same process produces to the two in turn.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.servers import both, create_topic

SIZES = {"100_bytes": (100, 200_000), "1_kb": (1024, 50_000)}
ROUNDS = 3
FLUSHING = {"log.flush.interval.messages": 1}


def compare() -> Iterator[Comparison]:
    """Yield records per second of one producer."""
    with tempfile.TemporaryDirectory(prefix="streamlog-bench-") as directory:
        scratch = Path(directory)
        for peer_name, settings, goal in (
            ("a 4.2 broker that syncs", FLUSHING, 1.0),
            ("a 4.2 broker that never syncs", {}, 0.5),
        ):
            place = scratch / ("synced" if settings else "unsynced")
            with both(place, settings) as (ours, theirs):
                for size_name, (size, count) in SIZES.items():
                    for server in (ours, theirs):
                        create_topic(server.address, size_name)
                    rates = interleaved(
                        lambda t=size_name, s=size, n=count: rate(ours.address, t, s, n),
                        lambda t=size_name, s=size, n=count: rate(theirs.address, t, s, n),
                        rounds=ROUNDS,
                    )
                    bench = f"gateway_produce.{place.name}.{size_name}"
                    yield Comparison(bench, *rates, peer_name, "records/s", goal=goal)


def rate(bootstrap: str, topic: str, size: int, count: int) -> float:
    """Return how many records per second are acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,  # the server of the round before is gone
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.produce(topic, b"first", partition=0)
    producer.flush()
    value = bytes(each % 251 for each in range(size))
    begun = time.perf_counter()
    for _ in range(count):
        producer.produce(topic, value, partition=0)
    if producer.flush(120):
        raise RuntimeError("records were not acknowledged")
    return count / (time.perf_counter() - begun)
