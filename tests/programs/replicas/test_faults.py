"""Some real faults of each sort; all of them: `python -m tests.programs.replicas`."""

import shutil
from pathlib import Path
from random import Random

import pytest

from tests.programs.compat.answers import told_by_reader
from tests.programs.compat.conftest import kafka  # noqa: F401 - a fixture
from tests.programs.compat.kafka import Kafka
from tests.programs.reliability.kinds.disks import missing, missing_below
from tests.programs.replicas.faults import (
    POLICIES,
    Case,
    Fault,
    Return,
    Subject,
    Victim,
    power_failure,
    run,
)

pytestmark = pytest.mark.skipif(missing("ext4") is not None, reason=str(missing("ext4")))

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    "case",
    [
        Case(Fault.KILLED),
        Case(Fault.DETACHED, Victim.LEADER, Return.BACK),
        Case(Fault.POWER, Victim.LEADER, Return.RESTORED),
        Case(Fault.POWER, Victim.FOLLOWER, Return.REPLACED),
        Case(Fault.FULL, Victim.LEADER, Return.BACK),
    ],
    ids=str,
)
def test_no_acknowledged_record_is_lost(case: Case) -> None:
    report = run(case, Random(1))
    assert report.acked > 0
    assert report.lost == 0


@pytest.mark.skipif(missing_below("ext4") is not None, reason=str(missing_below("ext4")))
def test_a_leader_whose_disk_refuses_writes_loses_nothing() -> None:
    assert run(Case(Fault.REFUSED), Random(1)).lost == 0


def test_a_power_failure_of_the_host_takes_nothing_that_was_synced() -> None:
    assert power_failure(Random(1), POLICIES["power-failure-flush-messages-1"]).lost == 0


@pytest.mark.compat
def test_kafka_reads_every_replica(kafka: Kafka, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    copies: list[Path] = []

    def copy(set_: Subject) -> None:
        for number, disk in enumerate(set_.disks):
            copies.append(tmp_path / str(number) / "orders-0")
            shutil.copytree(Path(disk.root) / "orders-0", copies[-1])

    run(Case(Fault.POWER, Victim.LEADER, Return.REPLACED), Random(1), inspect=copy)
    answers = []
    for path in copies:
        ours = told_by_reader(path, now=NOW, timestamps=[])
        theirs = kafka.ask("open", directory=str(path), now=NOW, clean=False)
        assert "error" not in theirs, theirs
        del theirs["printed"], theirs["recoveryPoint"]
        assert theirs == ours
        answers.append((theirs["logEndOffset"], theirs.get("batches")))
    assert answers[0] == answers[1] == answers[2]
