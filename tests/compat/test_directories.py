"""Directories that we wrote, opened by Kafka's own log: it finds what we find, and goes on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streamlog.config import LogConfig
from tests.compat.answers import told_by_reader, told_by_writer
from tests.compat.kafka import Kafka
from tests.compat.scenarios import CONFIG, NOW, SCENARIOS, open_log, rows, written

pytestmark = pytest.mark.compat

EVER = 2**63 - 1
SEARCHED = [0, *range(NOW - 105_000, NOW + 1_000, 3_000), NOW - 501, NOW - 500, NOW, NOW + 1]


class Scenario(NamedTuple):
    """A directory that was written and closed by us."""

    path: Path
    config: LogConfig


@pytest.fixture(scope="module", params=SCENARIOS)
def scenario(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    path = written(tmp_path_factory.mktemp("root"), request.param)
    return Scenario(path, SCENARIOS[request.param][1])


def opened(kafka: Kafka, path: Path, config: LogConfig = CONFIG, **how: Any) -> dict[str, Any]:
    """Let Kafka open a directory in place; return what it tells, less what it printed."""
    answer = kafka.ask("open", directory=str(path), now=NOW, config=config.to_properties(), **how)
    assert "error" not in answer, answer
    return {name: told for name, told in answer.items() if name != "printed"}


def index_files(path: Path) -> dict[str, bytes]:
    suffixes = (".index", ".timeindex", ".txnindex")
    return {each.name: each.read_bytes() for each in path.iterdir() if each.suffix in suffixes}


@pytest.mark.parametrize("clean", [True, False], ids=["believed", "recovered"])
def test_kafka_finds_what_we_find(
    kafka: Kafka, scenario: Scenario, copy_of: Callable[[Path], Path], clean: bool
) -> None:
    theirs = opened(
        kafka, copy_of(scenario.path), scenario.config, clean=clean, timestamps=SEARCHED
    )
    ours = told_by_reader(scenario.path, now=NOW, timestamps=SEARCHED)
    recovery_point = theirs.pop("recoveryPoint")
    assert theirs == ours
    assert recovery_point == (ours["logEndOffset"] if clean else 0)
