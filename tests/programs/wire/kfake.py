"""Run kfake's scenarios, which retell Kafka's own integration tests, against gateways.

    python -m tests.programs.wire.kfake [--run PATTERN]

The scenarios are those of franz-go's `pkg/kfake/kafka_tests`, unchanged. Only the cluster in memory
that they start is another one: `kfake-scenarios/kfake` asks this command for a gateway with the
settings that the scenario wants. The exit code is 0 if all passed, or failed for a known reason.
"""

import argparse
import contextlib
import json
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from streamlog.gateway import Address
from tests.programs.wire.franz_go import outcomes
from tests.programs.wire.go_command import go, go_environment
from tests.programs.wire.suites import Outcome, Reasons, fresh_gateway, run_suite

FOLDER: Final = Path(__file__).with_name("kfake-scenarios")
VERSION: Final = "v0.0.0-20260515175617-8268a5d078c0"
MODULE: Final = f"github.com/twmb/franz-go/pkg/kfake@{VERSION}"
SUM: Final = "h1:YWmvjmcidrKLLgObwU1k7K9KuesdYTV33OTIS0Ltj8o="
SUITE: Final = f"franz-go {VERSION} pkg/kfake/kafka_tests"
TIMEOUT_S: Final = 600
AT_ONCE: Final = 4
REASONS: Final[Reasons] = {
    "TestCreateTopicsReplicaAssignment": "three brokers",
    "TestGroupMaxSize848": (
        "joins without a member id, which a 4.2 coordinator refuses; not confirmed with a broker"
    ),
    "TestDescribeProducersAfterCommit": (
        "a broker, too, describes producers without a transaction, until their ids expire"
    ),
    "TestFenceBeforeProducerCommit": (
        "a broker, too, answers CONCURRENT_TRANSACTIONS until the fenced transaction is aborted"
    ),
}


class _Lease(socketserver.StreamRequestHandler):
    """A gateway for as long as a connection lasts.

    Asked for by a line of JSON: its settings, and the address that clients use instead of its own.
    """

    def handle(self) -> None:
        wanted = json.loads(self.rfile.readline())
        properties = "\n".join(f"{name}={value}" for name, value in wanted["properties"].items())
        advertise = Address.parse(wanted["advertise"])
        with fresh_gateway(properties, advertise=advertise) as gateway:
            address = f"{gateway.address}\n"
            self.wfile.write(address.encode())
            self.rfile.read()


class _Leases(socketserver.ThreadingTCPServer):
    daemon_threads = False


@contextlib.contextmanager
def leases() -> Iterator[str]:
    """Yield the address that lends gateways."""
    with _Leases(("127.0.0.1", 0), _Lease) as server:
        thread = threading.Thread(target=server.serve_forever, name="leases")
        thread.start()
        host, port, *_ = server.server_address
        try:
            yield f"{host!s}:{port}"
        finally:
            server.shutdown()
            thread.join()


def scenarios() -> Path:
    """Return the directory of the scenarios in Go's cache.

    Raises:
        OSError: It cannot be fetched.
        ValueError: It is not what was pinned.
    """
    with tempfile.TemporaryDirectory() as outside:
        done = subprocess.run(
            [go(), "mod", "download", "-json", MODULE],
            cwd=outside,
            env=go_environment(),
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
    found = json.loads(done.stdout or "{}")
    if done.returncode:
        raise OSError(f"{MODULE} cannot be fetched: {found.get('Error')}")
    if found["Sum"] != SUM:
        raise ValueError(f"{MODULE}: {found['Sum']}, expected {SUM}")
    return Path(found["Dir"], "kafka_tests")


def run(pattern: str) -> tuple[int, list[Outcome]]:
    """Run the scenarios that a pattern selects; return go's exit code, and the outcomes."""
    with tempfile.TemporaryDirectory() as scratch, leases() as address:
        module = Path(scratch, "module")
        shutil.copytree(FOLDER, module)
        shutil.copytree(scenarios(), module / "kafka_tests")
        limits = (f"-timeout={TIMEOUT_S}s", f"-parallel={AT_ONCE}", f"-run={pattern}")
        done = subprocess.run(
            [go(), "test", "-vet=off", "-json", "-count=1", *limits, "./kafka_tests"],
            cwd=module,
            env=go_environment() | {"STREAMLOG_GATEWAYS": address},
            stdout=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
    return done.returncode, list(outcomes(done.stdout.splitlines()))


def main() -> int:
    """Run the suite."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", default="", help="only tests that match, as in go test -run")
    pattern = parser.parse_args().run
    return run_suite(
        SUITE,
        "tests.programs.wire.kfake",
        lambda: run(pattern),
        is_whole=not pattern,
        reasons=REASONS,
    )


if __name__ == "__main__":
    sys.exit(main())
