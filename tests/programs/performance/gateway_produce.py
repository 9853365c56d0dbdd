"""librdkafka producing to `streamlog serve`, beside a real broker, with acks=all and idempotence.

Once both sync each batch before they answer it, once neither does, which is the default of both.
Each has a topic of one partition; the same process produces to the two in turn.
"""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamlog import LogManager
from tests.programs.compat.broker import Broker, format_log_dir
from tests.programs.performance.comparison import Comparison, interleaved

SIZES = {"100_bytes": (100, 200_000), "1_kb": (1024, 50_000)}
ROUNDS = 3
HEAP = ("-Xmx1g", "-Xms1g")
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
            place.mkdir()
            format_log_dir(place / "broker", place)
            with (
                Broker.start(place / "broker", place / "run", settings, options=HEAP) as broker,
                serving(place / "root", settings) as ours,
            ):
                for size_name, (size, count) in SIZES.items():
                    for address in (ours, broker.bootstrap):
                        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
                        admin.create_topics([NewTopic(size_name, 1, 1)])[size_name].result()
                    rates = interleaved(
                        lambda t=size_name, s=size, n=count: rate(ours, t, s, n),
                        lambda t=size_name, s=size, n=count: rate(broker.bootstrap, t, s, n),
                        rounds=ROUNDS,
                    )
                    bench = f"gateway_produce.{place.name}.{size_name}"
                    yield Comparison(bench, *rates, peer_name, "records/s", goal=goal)


@contextlib.contextmanager
def serving(root: Path, settings: Mapping[str, int]) -> Iterator[str]:
    """Serve a new root with these settings; yields the address."""
    LogManager.open(root, create=True).close()
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    (root / ".streamlog/server.properties").write_text(lines)
    command = [sys.executable, "-m", "streamlog", "--path", str(root), "serve"]
    command += ["--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "listening on" in line:
                yield line.split()[-1]
                break
        else:
            raise RuntimeError("the gateway did not start")
    finally:
        process.terminate()
        process.wait()


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
