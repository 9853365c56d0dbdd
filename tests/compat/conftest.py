"""Fixtures of the tests that ask real Kafka: one JVM for all, and directories it may change."""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.kafka import Kafka, KafkaUnavailableError


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Kafka's own classes; without them the tests skip, in continuous integration they fail."""
    try:
        opened = Kafka.start()
    except KafkaUnavailableError as error:
        if os.environ.get("CI"):
            pytest.fail(f"real Kafka cannot be asked: {error}")
        pytest.skip(f"real Kafka cannot be asked: {error}")
    with opened:
        yield opened


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    """Return a function that copies a partition's directory to where Kafka may change it."""
    numbers = itertools.count(1)

    def copy(directory: Path) -> Path:
        target = tmp_path / f"copy-{next(numbers)}" / directory.name
        shutil.copytree(directory, target)
        return target

    return copy
