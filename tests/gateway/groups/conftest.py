"""A gateway on a root with a topic for consumers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.gateway import Gateway, serve
from tests.gateway.groups.consumers import make_orders


@pytest.fixture
def orders(root: Path) -> str:
    """The topic, with records in all partitions."""
    return make_orders(root)


@pytest.fixture
def serving(root: Path, orders: str) -> Iterator[Gateway]:
    """A gateway that serves the topic."""
    assert orders
    with serve(root) as running:
        yield running
