"""A real broker of a release that keeps its cluster state in ZooKeeper, on loopback."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.programs.compat.kafka import QUICK_TO_START, broker_classpath, java

__all__ = ["broker_with_zookeeper"]

PATIENCE_S = 120
ZOOKEEPER = """\
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
"""
BROKER = """\
broker.id=1
zookeeper.connect=127.0.0.1:{zookeeper}
zookeeper.connection.timeout.ms=60000
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={log_dir}
log.retention.ms=-1
num.network.threads=1
num.io.threads=2
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=10485760
"""


LOG4J = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %c %m%n
"""


@contextlib.contextmanager
def broker_with_zookeeper(version: str, log_dir: Path, scratch: Path) -> Iterator[str]:
    """Run a broker and its ZooKeeper; both are shut down in order on exit.

    Args:
        version: The release.
        log_dir: The broker's log.dir, which it creates.
        scratch: An existing directory for settings and output.

    Yields:
        The broker's address for clients.

    Raises:
        RuntimeError: One of them did not start.
    """
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        zookeeper, port = one.getsockname()[1], two.getsockname()[1]
    ensemble = ZOOKEEPER.format(data=scratch / "zookeeper", port=zookeeper)
    settings = BROKER.format(zookeeper=zookeeper, port=port, log_dir=log_dir)
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    with (
        _running(version, main, ensemble, scratch / "zookeeper.properties", zookeeper),
        _running(version, "kafka.Kafka", settings, scratch / "broker.properties", port),
    ):
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def _running(version: str, main: str, settings: str, properties: Path, port: int) -> Iterator[None]:
    properties.write_text(settings)
    output = properties.with_suffix(".out")
    logging = properties.with_name("log4j.properties")
    logging.write_text(LOG4J)
    options = [*QUICK_TO_START, f"-Dlog4j.configuration=file:{logging}"]
    options += ["-Dzookeeper.jmx.log4j.disable=true"]  # some releases lack log4j
    command = [java(), *options, "-cp", broker_classpath(version), main, str(properties)]
    with output.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{main} of {version}: {output.read_text()[-3000:]}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE_S)
