"""Fixtures of the tests against real Kafka: one shared JVM, and directories it may change."""

import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.programs.compat.kafka import Kafka, KafkaUnavailableError, dump


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Kafka's own classes. Without them, tests skip, but fail in continuous integration."""
    try:
        opened = Kafka.start()
    except KafkaUnavailableError as error:
        _give_up(error)
    with opened:
        yield opened


@pytest.fixture(scope="session")
def dumped() -> Callable[[str, Iterable[Path]], str]:
    """Return `compat.kafka.dump`. Without that release, the test skips or fails as above."""

    def dump_or_give_up(version: str, files: Iterable[Path]) -> str:
        try:
            return dump(version, files)
        except KafkaUnavailableError as error:
            _give_up(error)

    return dump_or_give_up


def _give_up(error: KafkaUnavailableError) -> NoReturn:
    message = f"real Kafka is not available: {error}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    """Return a function that copies a partition's directory to where Kafka may change it."""
    numbers = itertools.count(1)

    def copy(directory: Path) -> Path:
        target = tmp_path / f"copy-{next(numbers)}" / directory.name
        shutil.copytree(directory, target)
        return target

    return copy
