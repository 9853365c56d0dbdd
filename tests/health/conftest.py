"""Directories that Kafka wrote, unpacked once, and copies of them that a test may damage."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.golden import unpack


@pytest.fixture(scope="session")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all golden directories in it; not to be changed."""
    target = tmp_path_factory.mktemp("golden")
    for archive in (
        "C-broker/clean-log.dir",
        "C-broker/killed-log.dir",
        "B-legacy/042-2.8.2-log-dir",
    ):
        unpack(f"{archive}.tar.gz", target)
    unpack("C-local/directories.tar.gz", target / "local")
    unpack("F-compaction/directories.tar.gz", target / "compaction")
    return target


@pytest.fixture
def copied(kafkas: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copies a directory, named by its path below `kafkas`, to where it may be changed."""

    def copy(name: str) -> Path:
        target = tmp_path / Path(name).name
        shutil.copytree(kafkas / name, target)
        return target

    return copy
