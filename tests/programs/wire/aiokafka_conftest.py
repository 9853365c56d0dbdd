"""Takes the place of the `conftest.py` of aiokafka's tests, whose broker runs in Docker.

Here the fixtures name gateways that are running already, at the addresses in the environment.
"""

import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

USERS: Final = "test:test\ntest2:test2\n"


class _NoAccessControlLists:
    """All users may do everything, which is also what a test without lists starts from."""

    def list_acl(self) -> bytes:
        return b""

    def cleanup(self) -> None:
        pass

    def add_acl(self, **_: object) -> None:
        pytest.fail("the gateway has no access control lists")


class _KnownUsers:
    """The users are in a file that the gateway was started with."""

    def add_scram_user(self, user: str, password: str) -> None:
        assert f"{user}:{password}" in USERS.splitlines()


class _NoKerberos:
    def kinit(self, principal: str) -> None:
        pytest.fail(f"the gateway does not know Kerberos: {principal}")

    def kdestroy(self) -> None:
        pass


@pytest.fixture(scope="session")
def ssl_folder() -> Path:
    """The directory of the certificates."""
    return Path(os.environ["WIRE_TLS"])


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The event loop of a class of tests, closed with all that its tests left behind."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    if not loop.is_closed():
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def collect_garbage() -> Iterator[None]:
    """Blames what a test left open on that test."""
    yield
    gc.collect()


@pytest.fixture(scope="class")
def setup_test_class_serverless(request: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Prepares a class of tests that needs no server."""
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request: Any, loop: asyncio.AbstractEventLoop, ssl_folder: Path) -> None:
    """Prepares a class of tests with the addresses of the gateways."""
    host, port = os.environ["WIRE_PLAINTEXT"].rsplit(":", 1)
    tests = request.cls
    tests.loop, tests.ssl_folder = loop, ssl_folder
    tests.kafka_host, tests.kafka_port = host, int(port)
    tests.hosts = [os.environ["WIRE_PLAINTEXT"]]
    tests.kafka_ssl_port = int(os.environ["WIRE_SSL"].rsplit(":", 1)[1])
    tests.kafka_sasl_plain_port = int(os.environ["WIRE_SASL"].rsplit(":", 1)[1])
    tests.acl_manager, tests.kerberos_utils = _NoAccessControlLists(), _NoKerberos()
    tests.kafka_config = _KnownUsers()
    tests.kafka_version = os.environ["WIRE_VERSION"]
