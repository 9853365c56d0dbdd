"""`streamlog serve` as a process: what a newcomer makes it load."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamlog.records.plain_records import FEW_RECORDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

HEAVY = ("llvmlite", "pyarrow", "pandas", "cryptography")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Served(NamedTuple):
    """A server: its address, and its process id."""

    address: str
    pid: int

    def loaded(self) -> set[str]:
        """Return which of the heavy libraries are in its memory."""
        mapped = Path(f"/proc/{self.pid}/maps").read_text()
        return {name for name in HEAVY if f"/{name}" in mapped}


@contextmanager
def served(root: Path) -> Iterator[Served]:
    """Serve a root in a process of its own."""
    command = [sys.executable, "-m", "streamlog", "--path", str(root), "serve"]
    running = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    try:
        yield Served(running.stderr.readline().split()[-1], running.pid)
    finally:
        running.terminate()
        running.wait()


def create_topic(server: Served) -> None:
    admin = AdminClient({"bootstrap.servers": server.address})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result()


def produce(server: Served, values: list[bytes], **settings: object) -> None:
    producer = Producer({"bootstrap.servers": server.address, **settings})
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(60) == 0


def consume(server: Served, count: int) -> list[bytes]:
    """Read records as a group, and commit."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    values = [message.value() or b"" for message in consumer.consume(count, 60)]
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def test_a_newcomer_makes_the_server_load_nothing_heavy(root: Path) -> None:
    with served(root) as server:
        create_topic(server)
        for codec in CODECS:
            produce(server, [codec.encode()] * 3, **{"compression.type": codec})
        assert consume(server, 15) == [codec.encode() for codec in CODECS for _ in range(3)]
        assert server.loaded() == set()
    with served(root) as server:  # reads the offsets of the group
        produce(server, [b"later"])
        assert consume(server, 1) == [b"later"]
        assert server.loaded() == set()


def test_a_server_loads_numba_for_many_records_at_once(root: Path) -> None:
    count = FEW_RECORDS + 1
    settings = {"linger.ms": 5000, "batch.num.messages": count}
    with served(root) as server:
        create_topic(server)
        produce(server, [b"x"] * count, **settings)
        assert consume(server, count) == [b"x"] * count
        assert server.loaded() == {"llvmlite"}
