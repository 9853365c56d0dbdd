"""One real KRaft broker, controller and all, on loopback, with a log.dir that somebody made.

    with Broker.start(log_dir, scratch) as broker:
        kafka.ask("consume", bootstrap=broker.bootstrap, topic="orders")

It is stopped in order at the end; `kill` stops it as a crash does.
"""

import contextlib
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from tests.compat.kafka import QUICK_TO_START, classpath, java

__all__ = ["Broker"]

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
log.cleaner.dedupe.buffer.size=10485760
log.cleaner.io.buffer.size=131072
"""


class Broker:
    """A running broker; a context manager.

    Attributes:
        bootstrap: Its address, for clients.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self.bootstrap = f"127.0.0.1:{port}"

    @classmethod
    def start(cls, log_dir: Path, scratch: Path) -> "Broker":
        """Start a broker and wait until it takes requests.

        Args:
            log_dir: Its log.dir, formatted.
            scratch: A directory for its settings and what it prints.

        Raises:
            RuntimeError: It did not come up.
        """
        scratch.mkdir()
        port, controller = _free_ports()
        settings = scratch / "server.properties"
        settings.write_text(
            SETTINGS.format(port=port, controller=controller, log_dir=log_dir, node_id=NODE_ID)
        )
        with (scratch / "stdout.log").open("wb") as output:
            process = subprocess.Popen(
                [java(), *QUICK_TO_START, "-cp", classpath(), "kafka.Kafka", str(settings)],
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
        raise RuntimeError(f"the broker did not come up: {said[-3000:]}")

    def stop(self) -> None:
        """Stop it in order."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Stop it as a crash does."""
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


def _free_ports() -> tuple[int, int]:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        return one.getsockname()[1], two.getsockname()[1]
