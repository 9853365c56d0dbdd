"""How long a newcomer waits for the first record: from the start of the server until it is read.

The server starts in an empty directory, which for the broker is formatted before; then a topic is
created, a record is produced, and consumed.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.programs.compat.broker import Broker, format_log_dir
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.servers import HEAP, Server, create_topic, serving

ROUNDS = 3
TOPIC = "first"


def compare() -> Iterator[Comparison]:
    """Yield seconds."""
    with tempfile.TemporaryDirectory(prefix="streamlog-bench-") as directory:
        number = iter(range(1000))

        def ours() -> float:
            root = Path(directory, f"root-{next(number)}")
            return first_record(lambda: serving(root))

        def theirs() -> float:
            place = Path(directory, f"broker-{next(number)}")
            place.mkdir()
            format_log_dir(place / "log", place)
            begun = time.perf_counter()
            with Broker.start(place / "log", place / "run", options=HEAP) as broker:
                return read_first(broker.bootstrap, begun)

        yield Comparison(
            "gateway_start",
            *interleaved(ours, theirs, rounds=ROUNDS),
            "a 4.2 broker",
            "s",
            higher_is_better=False,
            goal=0.2,
        )


def first_record(start: Callable[[], AbstractContextManager[Server]]) -> float:
    """Return the seconds until a record was read from a server that starts."""
    begun = time.perf_counter()
    with start() as server:
        return read_first(server.address, begun)


def read_first(address: str, begun: float) -> float:
    """Create a topic, write and read a record; return the seconds since `begun`."""
    create_topic(address, TOPIC)
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    producer.produce(TOPIC, b"first")
    producer.flush()
    consumer = Consumer({"bootstrap.servers": address, "group.id": "newcomer", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    message = consumer.poll(60)
    took = time.perf_counter() - begun
    consumer.close()
    if message is None or message.value() != b"first":
        raise RuntimeError("the first record did not come")
    return took
