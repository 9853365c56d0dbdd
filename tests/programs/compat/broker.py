"""A real KRaft broker with its controller, on loopback, with a given log.dir.

    with Broker.start(log_dir, scratch) as broker:
        kafka.ask("consume", bootstrap=broker.bootstrap, topic="orders")

On exit it is shut down in order; `kill` ends it as a crash does.
"""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType

from tests.programs.compat.kafka import QUICK_TO_START, VERSION, broker_classpath, java

__all__ = ["Broker", "format_log_dir"]

PATIENCE_S = 120
NODE_ID = 1
SETTINGS = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={node_id}@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={log_dir}
num.network.threads=1
num.io.threads=2
background.threads=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
log.cleaner.dedupe.buffer.size=10485760
log.cleaner.io.buffer.size=131072
"""
CLUSTER_ID = "c3RyZWFtbG9nLXRlc3RzIQ"


class Broker:
    """A running broker; a context manager.

    Attributes:
        bootstrap: Its address for clients.
        pid: Its process id.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self.pid = process.pid
        self.bootstrap = f"127.0.0.1:{port}"

    @classmethod
    def start(
        cls,
        log_dir: Path,
        scratch: Path,
        settings: Mapping[str, object] = MappingProxyType({}),
        *,
        version: str = VERSION,
        node_id: int = NODE_ID,
        options: Sequence[str] = QUICK_TO_START,
        plugins: Sequence[Path] = (),
    ) -> "Broker":
        """Start a broker and wait until it accepts requests.

        Args:
            log_dir: Its formatted log.dir.
            scratch: A directory for its settings and its output.
            settings: Additional settings.
            version: The release, 4.0 or later.
            node_id: As in the `meta.properties` of the log.dir.
            options: Those of the JVM.
            plugins: More jars.

        Raises:
            RuntimeError: It did not start.
        """
        scratch.mkdir()
        port, controller = _free_ports()
        properties = scratch / "server.properties"
        more = "".join(f"{key}={value}\n" for key, value in settings.items())
        properties.write_text(_settings(log_dir, port, controller, node_id) + more)
        with (scratch / "stdout.log").open("wb") as output:
            process = subprocess.Popen(
                [
                    java(),
                    *options,
                    "-cp",
                    os.pathsep.join([broker_classpath(version), *map(str, plugins)]),
                    "kafka.Kafka",
                    str(properties),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        broker = cls(process, port)
        broker._wait_until_up(port, scratch)
        return broker

    def _wait_until_up(self, port: int, scratch: Path) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self._process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.2)
        self.kill()
        said = (scratch / "stdout.log").read_text()
        raise RuntimeError(f"the broker did not start: {said[-3000:]}")

    def stop(self) -> None:
        """Shut it down in order."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def __enter__(self) -> "Broker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.kill()


def format_log_dir(log_dir: Path, scratch: Path, *, version: str = VERSION) -> None:
    """Format a new log.dir with Kafka's own tool.

    Args:
        log_dir: Its path; must not exist.
        scratch: An existing directory for the settings.
        version: The release of the tool.
    """
    log_dir.mkdir()
    properties = scratch / "format.properties"
    properties.write_text(_settings(log_dir, *_free_ports()))
    arguments = ("format", "--cluster-id", CLUSTER_ID, "--config", str(properties))
    tool = [java(), *QUICK_TO_START, "-cp", broker_classpath(version), "kafka.tools.StorageTool"]
    command = [*tool, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the log.dir could not be formatted: {done.stdout}{done.stderr}")


def _settings(log_dir: Path, port: int, controller: int, node_id: int = NODE_ID) -> str:
    return SETTINGS.format(port=port, controller=controller, log_dir=log_dir, node_id=node_id)


def _free_ports() -> tuple[int, int]:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        return one.getsockname()[1], two.getsockname()[1]
