"""Run the integration tests of kafka-python against a gateway.

    python -m tests.programs.wire.kafka_python [-k EXPRESSION]

The tests and the client come from the source distribution. The exit code is 0 if all tests passed,
were skipped, or failed for a known reason.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.programs.wire.pytest_suite import run_pytest
from tests.programs.wire.sources import Sdist
from tests.programs.wire.suites import Outcome, Reasons, fresh_gateway, run_suite

SUITE: Final = "kafka-python 3.0.12 test/integration"
SOURCE: Final = Sdist(
    "kafka-python", "3.0.12", "4ccda3616b9aa5c353d74a97f2770d6cd1b950890d77ab0e8890e09a48eeed65"
)
KAFKA_VERSION: Final = "4.2.0"
PROPERTIES: Final = """
auto.create.topics.enable=true
group.min.session.timeout.ms=1000
num.partitions=4
"""

_STARTS_A_BROKER: Final = "starts a broker itself, with TLS or users, from files of Kafka"
REASONS: Final[Reasons] = {
    "test_admin_integration::test_create_describe_delete_acls": "no access control lists",
    "test_sasl_integration::*": _STARTS_A_BROKER,
    "test_ssl_integration.TestSSLConnection::*": _STARTS_A_BROKER,
}

# The distribution lacks this module of the tests, which starts brokers; ours is already running.
_SERVICE: Final = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass


class SpawnedService:
    pass
"""


def run(expression: str) -> tuple[int, list[Outcome]]:
    """Run the tests that an expression selects, as in `pytest -k`."""
    selection = ["-k", expression] if expression else []
    # The tests take it that the only broker's id is 0.
    gateways = fresh_gateway(PROPERTIES, node_id=0)
    with tempfile.TemporaryDirectory() as scratch, gateways as gateway:
        source = Path(scratch, "source")
        shutil.copytree(SOURCE.fetch(), source)
        (source / "test" / "__init__.py").touch()
        (source / "test" / "service.py").write_text(_SERVICE, "utf-8")
        environment = {
            "PYTHONPATH": str(source),
            "KAFKA_ROOT": str(source),
            "KAFKA_URI": f"kafka://{gateway.bootstrap_servers}",
            "KAFKA_VERSION": KAFKA_VERSION,
        }
        arguments = [*selection, "test/integration"]
        return run_pytest(source, arguments, environment, package="test.integration")


def main() -> int:
    """Run the suite."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", dest="expression", help="only tests that match")
    expression = parser.parse_args().expression
    return run_suite(
        SUITE,
        "tests.programs.wire.kafka_python",
        lambda: run(expression),
        is_whole=not expression,
        reasons=REASONS,
    )


if __name__ == "__main__":
    sys.exit(main())
