"""The file systems that make the same promises."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.fs.faults import FaultyFileSystem
from streamlog.fs.local import LocalFileSystem
from tests.support.place import Place, memory_place


@pytest.fixture(params=["local", "memory", "faulty-local", "faulty-memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A directory on each of them."""
    found = Place(LocalFileSystem(), str(tmp_path)) if "local" in request.param else memory_place()
    if "faulty" in request.param:
        found = Place(FaultyFileSystem(found.fs), found.root)
    yield found
