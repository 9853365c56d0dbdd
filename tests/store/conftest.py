from pathlib import Path

import pytest

from streamlog.store.api import ObjectStore
from streamlog.store.remote import open_store


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """Return an empty store of each kind that runs without a server."""
    return open_store("memory:///" if request.param == "memory" else f"file://{tmp_path}/root")
