"""A gateway on an empty log root."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.gateway import Gateway, serve
from tests.gateway.wire_client import WireClient


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def gateway(root: Path) -> Iterator[Gateway]:
    with serve(root) as running:
        yield running


@pytest.fixture
def client(gateway: Gateway) -> Iterator[WireClient]:
    with WireClient(gateway.bootstrap_servers) as connected:
        yield connected
