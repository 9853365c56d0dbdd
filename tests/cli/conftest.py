from pathlib import Path

import pytest

from tests.support.cli import ok


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log root with a topic `orders` of three partitions, nothing in it."""
    path = tmp_path / "log root"
    ok("topics", "create", "orders", "--partitions", 3, "--path", path)
    return path
