"""Run the tests of aiokafka against gateways.

    python -m tests.programs.wire.aiokafka [-k EXPRESSION]

The tests come from the commit of the release, the client from the environment. They get three
gateways on roots of their own: without authentication, with TLS, and with users. The exit code is 0
if all tests passed, were skipped, or failed for a known reason.

`AIOKAFKA_REPOSITORY` can name another repository with the commit, such as a local mirror.
"""

import argparse
import contextlib
import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.programs.wire.aiokafka_conftest import USERS
from tests.programs.wire.pytest_suite import run_pytest
from tests.programs.wire.sources import Commit, plugins
from tests.programs.wire.suites import OMITTED, Outcome, Reasons, fresh_gateway, run_suite

VERSION: Final = "0.14.0"
SUITE: Final = f"aiokafka {VERSION} tests"
SOURCE: Final = Commit(
    "https://github.com/aio-libs/aiokafka",
    "672947afe85c91b7d953f0259e69837a711d3246",
    "AIOKAFKA_REPOSITORY",
)
PROPERTIES: Final = """
auto.create.topics.enable=true
num.partitions=2
"""
KAFKA_VERSION: Final = "4.2.0"

_FOLDER: Final = Path(__file__).parent
_REQUIREMENTS: Final = _FOLDER / "aiokafka-requirements.txt"
_OPTIONS: Final = ("-W", "default::pytest.PytestDeprecationWarning")  # theirs is an older pytest
_PASSWORD: Final = "abcdefgh"  # the tests open the client's key with it

_ONE_LISTENER: Final = "writes with TLS and reads without: a gateway has one listener"
_NO_ACLS: Final = "the gateway has no access control lists"
_NO_KERBEROS: Final = "the gateway does not know Kerberos"
REASONS: Final[Reasons] = {
    "test_consumer.TestConsumerIntegration::test_ssl_consume": _ONE_LISTENER,
    "test_producer.TestKafkaProducerIntegration::test_producer_ssl": _ONE_LISTENER,
    "test_sasl.TestKafkaSASL::test_sasl_deny_*": _NO_ACLS,
    "test_sasl.TestKafkaSASL::test_sasl_plaintext_gssapi": _NO_KERBEROS,
    "test_sasl.TestKafkaSASL::test_admin_client_sasl_plaintext_gssapi": _NO_KERBEROS,
}
OMITTED_TESTS: Final = ("test_producer.TestKafkaProducerIntegration::test_producer_ssl",)
"""Tests that would wait for minutes before they fail."""


def run(expression: str) -> tuple[int, list[Outcome]]:
    """Run the tests that an expression selects, as in `pytest -k`."""
    found = importlib.metadata.version("aiokafka")
    if found != VERSION:
        raise ValueError(f"the tests are of aiokafka {VERSION}, installed is {found}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        source = SOURCE.fetch()
        shutil.copytree(source / "tests", folder / "tests")
        shutil.copy(source / "pyproject.toml", folder)  # without the package, which is not built
        shutil.copy(_FOLDER / "aiokafka_conftest.py", folder / "tests" / "conftest.py")
        tls = _certificates(folder / "certificates")
        enter = stack.enter_context
        environment = {
            "PYTHONPATH": str(plugins(_REQUIREMENTS)),
            # One test takes it that the only broker's id is 0.
            "WIRE_PLAINTEXT": enter(fresh_gateway(PROPERTIES, node_id=0)).bootstrap_servers,
            "WIRE_SSL": enter(fresh_gateway(PROPERTIES, tls=tls)).bootstrap_servers,
            "WIRE_SASL": enter(fresh_gateway(PROPERTIES, users=USERS)).bootstrap_servers,
            "WIRE_TLS": str(tls),
            "WIRE_VERSION": KAFKA_VERSION,
        }
        selection = ["-k", expression] if expression else []
        deselected = [f"--deselect={_node(test)}" for test in OMITTED_TESTS]
        code, outcomes = run_pytest(
            folder, [*_OPTIONS, *selection, *deselected, "tests"], environment, package="tests"
        )
    omitted = () if expression else OMITTED_TESTS
    return code, [*outcomes, *(Outcome(test, OMITTED) for test in omitted)]


def _node(test: str) -> str:
    """Return pytest's name of a test."""
    place, name = test.split("::")
    module, *classes = place.split(".")
    return "::".join([f"tests/{module}.py", *classes, name])


def _certificates(folder: Path) -> Path:
    """Return a new directory with a certificate, under the names that the tests want."""
    folder.mkdir()
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", names]
    command += ["-keyout", "server.key", "-out", "ca.crt"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    shutil.copy(folder / "ca.crt", folder / "client.crt")
    command = ["openssl", "rsa", "-aes256", "-passout", f"pass:{_PASSWORD}"]
    command += ["-in", "server.key", "-out", "client.key"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def main() -> int:
    """Run the suite."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", dest="expression", help="only tests that match")
    expression = parser.parse_args().expression
    return run_suite(
        SUITE,
        "tests.programs.wire.aiokafka",
        lambda: run(expression),
        is_whole=not expression,
        reasons=REASONS,
    )


if __name__ == "__main__":
    sys.exit(main())
