"""Fixtures: a catalog of Iceberg tables."""

from pathlib import Path

import pyiceberg.catalog
import pytest
from pyiceberg.utils.config import Config


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure pyiceberg's default catalog."""
    front = "PYICEBERG_CATALOG__DEFAULT__"
    monkeypatch.setenv(f"{front}TYPE", "sql")
    monkeypatch.setenv(f"{front}URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv(f"{front}WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # read once by each process
