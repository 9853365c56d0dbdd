"""Kafka reads the directory of every replica, and brokers serve copies of their roots.

The leader's root is lost and comes back on the way, so that the epochs of both leaders are there.
"""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from streamlog.partition.reader import LogReader
from streamlog.root.replica_set import ReplicaSet
from tests.programs.compat import scenarios
from tests.programs.compat.answers import told_by_reader
from tests.programs.compat.broker import Broker
from tests.programs.compat.kafka import Kafka
from tests.programs.compat.test_handover import PRODUCER_ID, SMALL, now_rows, read, rows_of
from tests.support.cli import ok

pytestmark = pytest.mark.compat

WRITTEN = (scenarios.every_codec, scenarios.idempotent_producers, scenarios.transactions)
NODES = (1, 2, 3)
NOW = int(time.time() * 1000)
SEARCHED = [0, NOW - 100_000, NOW - 50_000, NOW - 1000, NOW + 1_000_000]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Return the roots of a set, by node, after an election and a catch-up."""
    scratch = tmp_path_factory.mktemp("replicas")
    roots = {node: scratch / f"disk{node}" for node in NODES}
    for node in NODES[1:]:
        ok("replicas", "add", roots[node], "--path", roots[1])
    configs = [f"--config={key}={value}" for key, value in SMALL.items()]
    ok(
        "topics", "create", "orders", "--partitions", len(WRITTEN), "--replication-factor", 3,
        *configs, "--path", roots[1],
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patched, ReplicaSet.open(str(roots[1])) as replicas:
        patched.setattr(scenarios, "NOW", NOW - 1000)
        for number, scenario in enumerate(WRITTEN):
            scenario(replicas.log("orders", number))
    away = roots[1].rename(scratch / "away")
    with ReplicaSet.open(str(roots[2])) as replicas:
        for number in range(len(WRITTEN)):
            replicas.log("orders", number).append(now_rows(5), compression="zstd")
    away.rename(roots[1])
    with ReplicaSet.open(str(roots[2])) as replicas:
        assert replicas.replicate_once() == {}
        for status in replicas.describe():
            assert set(status.state.isr) == set(NODES)
    return roots


@pytest.mark.parametrize("partition", range(len(WRITTEN)))
def test_all_replicas_are_equal_and_carry_both_epochs(
    roots: dict[int, Path], partition: int
) -> None:
    told = [
        told_by_reader(root / f"orders-{partition}", now=NOW, timestamps=SEARCHED)
        for root in roots.values()
    ]
    assert told[0] == told[1] == told[2]
    assert [epoch for epoch, *_ in told[0]["leaderEpochs"]] == [0, 1]
    assert told[0]["batches"]


@pytest.mark.parametrize("clean", [True, False], ids=["believed", "recovered"])
@pytest.mark.parametrize("partition", range(len(WRITTEN)))
@pytest.mark.parametrize("node", NODES)
def test_kafka_finds_in_each_replica_what_we_find(
    kafka: Kafka, roots: dict[int, Path], tmp_path: Path, node: int, partition: int, clean: bool
) -> None:
    path = roots[node] / f"orders-{partition}"
    ours = told_by_reader(path, now=NOW, timestamps=SEARCHED)
    copy = tmp_path / path.name
    shutil.copytree(path, copy)
    theirs = kafka.ask(
        "open", directory=str(copy), now=NOW, config=SMALL, clean=clean, timestamps=SEARCHED
    )
    assert "error" not in theirs, theirs
    for key in ("printed", "recoveryPoint"):
        del theirs[key]
    assert theirs == ours


@pytest.mark.parametrize("node", NODES)
def test_kafka_reads_the_high_watermarks_of_each_root(
    kafka: Kafka, roots: dict[int, Path], node: int
) -> None:
    file = str(roots[node] / "replication-offset-checkpoint")
    ends = {}
    for number in range(len(WRITTEN)):
        with LogReader.open(roots[node] / f"orders-{number}") as reader:
            ends[f"orders-{number}"] = reader.log_end_offset
    assert kafka.ask("checkpoint", file=file)["offsets"] == ends


@pytest.mark.parametrize("node", [1, 2], ids=["follower", "leader"])
def test_a_broker_serves_a_copy_of_each_root(
    kafka: Kafka, roots: dict[int, Path], tmp_path: Path, node: int
) -> None:
    expected = committed_rows(roots[3])
    copy = tmp_path / "copy"
    shutil.copytree(roots[node], copy)
    ok("--path", copy, "handover", "--to-kafka")
    with Broker.start(copy, tmp_path / "broker", node_id=node) as broker:
        asked: dict[str, Any] = {"bootstrap": broker.bootstrap, "topic": "orders"}
        assert kafka.ask("consume", **asked)["records"] == expected
        described = kafka.ask("describe", partition=1, **asked)
        sent = kafka.ask("produce", partition=0, count=3, **asked)["offsets"]
    assert described["producers"][str(PRODUCER_ID)] == [1, 9]
    assert sent[0] == expected["0"][-1]["offset"] + 1
    ok("--path", copy, "handover", "--from-kafka")
    assert len(committed_rows(copy)["0"]) == len(expected["0"]) + 3


def committed_rows(root: Path) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for number in range(len(WRITTEN)):
        with LogReader.open(root / f"orders-{number}") as reader:
            found[str(number)] = [rows_of(each) for each in read(reader)]
    return found
