"""What the benchmarks of the gateway compare: `streamlog serve` and a broker, each a process."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from streamlog import LogManager
from tests.programs.compat.broker import Broker, format_log_dir

HEAP = ("-Xmx1g", "-Xms1g")
THREADS = {"num.network.threads": 3, "num.io.threads": 8}  # the defaults of a broker
NO_SETTINGS: Mapping[str, int] = MappingProxyType({})


class Server(NamedTuple):
    """A running server: its address for clients, and its process id."""

    address: str
    pid: int


@contextmanager
def serving(root: Path, settings: Mapping[str, int] = NO_SETTINGS) -> Iterator[Server]:
    """Serve a new root with these settings of `server.properties`."""
    LogManager.open(root, create=True).close()
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    (root / ".streamlog/server.properties").write_text(lines)
    with _started("--path", str(root), "serve") as server:
        yield server


@contextmanager
def serving_disk(log_dir: Path) -> Iterator[Server]:
    """Serve a broker's disk, which is not changed."""
    with _started("serve", "--read-only", str(log_dir)) as server:
        yield server


@contextmanager
def _started(*arguments: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "streamlog", *arguments, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=_installed())
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "listening on" in line:
                yield Server(line.split()[-1], process.pid)
                break
        else:
            raise RuntimeError("the gateway did not start")
    finally:
        process.terminate()
        process.wait()


def _installed() -> dict[str, str]:
    """Return the environment of a server whose modules are compiled, as installing them does."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir(), "streamlog-bytecode"))}


@contextmanager
def brokering(place: Path, settings: Mapping[str, int] = NO_SETTINGS) -> Iterator[Server]:
    """Run a broker with a new log.dir below `place`, an empty directory."""
    format_log_dir(place / "broker", place)
    with Broker.start(place / "broker", place / "run", settings, options=HEAP) as broker:
        yield Server(broker.bootstrap, broker.pid)


@contextmanager
def both(place: Path, settings: Mapping[str, int] = NO_SETTINGS) -> Iterator[tuple[Server, Server]]:
    """Run a gateway and a broker beside each other, both empty."""
    place.mkdir(exist_ok=True)
    with brokering(place, settings) as theirs, serving(place / "root", settings) as ours:
        yield ours, theirs


def create_topic(address: str, topic: str) -> None:
    """Create a topic of one partition."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
