"""`streamlog serve` as a process: what a newcomer makes it load."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from streamlog.records.plain_records import FEW_RECORDS
from tests.programs.performance import gateway_memory
from tests.programs.performance.servers import Server, create_topic

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

HEAVY = ("llvmlite", "pyarrow", "pandas", "cryptography")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def loaded_by(server: Server) -> set[str]:
    """Return which of the heavy libraries are in the server's memory."""
    mapped = Path(f"/proc/{server.pid}/maps").read_text()
    return {name for name in HEAVY if f"/{name}" in mapped}


@contextmanager
def served(root: Path) -> Iterator[Server]:
    """Serve a root in a process of its own."""
    command = [sys.executable, "-m", "streamlog", "--path", str(root), "serve"]
    running = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    try:
        yield Server(running.stderr.readline().split()[-1], running.pid)
    finally:
        running.terminate()
        running.wait()


def produce(server: Server, values: list[bytes], **settings: object) -> None:
    producer = Producer({"bootstrap.servers": server.address, **settings})
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(60) == 0


def consume(server: Server, count: int) -> list[bytes]:
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
        create_topic(server.address, "orders")
        for codec in CODECS:
            produce(server, [codec.encode()] * 3, **{"compression.type": codec})
        assert consume(server, 15) == [codec.encode() for codec in CODECS for _ in range(3)]
        assert loaded_by(server) == set()
    with served(root) as server:  # reads the offsets of the group
        produce(server, [b"later"])
        assert consume(server, 1) == [b"later"]
        assert loaded_by(server) == set()


def test_a_server_loads_numba_for_many_records_at_once(root: Path) -> None:
    count = FEW_RECORDS + 1
    settings = {"linger.ms": 5000, "batch.num.messages": count}
    with served(root) as server:
        create_topic(server.address, "orders")
        produce(server, [b"x"] * count, **settings)
        assert consume(server, count) == [b"x"] * count
        assert loaded_by(server) == {"llvmlite"}


def test_a_hundred_clients_take_little_memory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They write and read 10 MB at a time; numba alone would take 110 MB."""
    monkeypatch.setattr(gateway_memory, "TURNS", 3)
    code = "import os, streamlog.cli.serve\nprint(os.getpid(), flush=True)\ninput()"
    bare = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert bare.stdout is not None
    least = gateway_memory.memory_of(int(bare.stdout.readline()))
    bare.communicate("\n")
    with served(root) as server:
        assert gateway_memory.resident_mb(server) < least + 60
        assert loaded_by(server) == set()
