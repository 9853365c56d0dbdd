"""Kafka's own log opens directories that we wrote, finds the same content, and continues them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streamlog.config.log_config import LogConfig
from streamlog.partition.reader import LogReader
from tests.programs.compat.answers import batches_of, encoded, told_by_reader
from tests.programs.compat.kafka import Kafka
from tests.programs.compat.scenarios import (
    CONFIG,
    NOW,
    SCENARIOS,
    every_codec,
    open_log,
    rows,
    written,
)

pytestmark = pytest.mark.compat

EVER = 2**63 - 1
SEARCHED = [0, *range(NOW - 105_000, NOW + 1_000, 3_000), NOW - 501, NOW - 500, NOW, NOW + 1]


class Scenario(NamedTuple):
    """A directory that we wrote and closed."""

    path: Path
    config: LogConfig


@pytest.fixture(scope="module", params=SCENARIOS)
def scenario(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    path = written(tmp_path_factory.mktemp("root"), request.param)
    return Scenario(path, SCENARIOS[request.param][1])


def opened(kafka: Kafka, path: Path, config: LogConfig = CONFIG, **how: Any) -> dict[str, Any]:
    """Let Kafka open a directory in place; return its answer without its output."""
    answer = kafka.ask("open", directory=str(path), now=NOW, config=config.to_properties(), **how)
    assert "error" not in answer, answer
    del answer["printed"]
    return answer


def index_files(path: Path) -> dict[str, bytes]:
    suffixes = (".index", ".timeindex", ".txnindex")
    return {each.name: each.read_bytes() for each in path.iterdir() if each.suffix in suffixes}


def checkpoint(kafka: Kafka, root: Path, name: str) -> dict[str, int]:
    offsets: dict[str, int] = kafka.ask("checkpoint", file=str(root / name))["offsets"]
    return offsets


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


def test_kafkas_recovery_writes_the_same_indexes_as_we_do(
    kafka: Kafka, scenario: Scenario, copy_of: Callable[[Path], Path]
) -> None:
    copy = copy_of(scenario.path)
    opened(kafka, copy, scenario.config, clean=False)
    assert index_files(copy) == index_files(scenario.path)


def test_kafka_reads_our_recovery_point_and_it_is_the_log_end(
    kafka: Kafka, scenario: Scenario
) -> None:
    points = checkpoint(kafka, scenario.path.parent, "recovery-point-offset-checkpoint")
    with LogReader.open(scenario.path) as reader:
        assert points == {"orders-0": reader.log_end_offset}


def test_kafka_appends_then_we_append_then_kafka_appends(
    kafka: Kafka, scenario: Scenario, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    shutil.copytree(scenario.path.parent, root)  # with the state that our last writer left
    path, config = root / "orders-0", scenario.config
    for turn in range(3):
        records = rows(200 + turn, 3)
        batch = {"records": [encoded(record) for record in records], "compression": "zstd"}
        appended = opened(kafka, path, config, clean=True, recoveryPoint=EVER, append=[batch])
        [offset] = appended["appended"]
        with open_log(path, config) as log:
            assert log.log_end_offset == offset + 3 == appended["logEndOffset"]
            assert log.append(rows(300, 2)).base_offset == offset + 3
        with LogReader.open(path) as reader:
            found = [record for batch in batches_of(reader) for record in batch.records()][-5:]
        assert [each.value for each in found] == [each.value for each in records + rows(300, 2)]
        assert [each.offset for each in found] == [*range(offset, offset + 5)]


def test_kafka_recovers_the_log_of_a_process_that_did_not_close_it(
    kafka: Kafka, tmp_path: Path, copy_of: Callable[[Path], Path]
) -> None:
    path = tmp_path / "root" / "orders-0"
    log = open_log(path)
    every_codec(log)
    copy = copy_of(path)
    ours = told_by_reader(copy, now=NOW, timestamps=SEARCHED)
    theirs = opened(kafka, copy, clean=False, timestamps=SEARCHED)
    del theirs["recoveryPoint"]
    assert theirs == ours
    assert len(theirs["segments"]) >= 3
    log.close()


def test_kafka_truncates_the_same_torn_tail(
    kafka: Kafka, tmp_path: Path, copy_of: Callable[[Path], Path]
) -> None:
    path = written(tmp_path / "root", "every codec")
    last = max(path.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-5])
    theirs = opened(kafka, copy_of(path), clean=False)
    torn = copy_of(path)  # below a root without a recovery point
    with open_log(torn) as log:
        assert log.log_end_offset == theirs["logEndOffset"]
        ours = told_by_reader(torn, now=NOW, timestamps=[])
    assert theirs["batches"] == ours["batches"]
