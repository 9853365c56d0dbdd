"""Kafka's own log opens repaired directories as cleanly closed, and finds the same as before."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamlog.clock import SystemClock
from streamlog.fs.local import LocalFileSystem
from streamlog.health.repair import repair
from tests.programs.compat.kafka import Kafka
from tests.support.golden import unpack

pytestmark = pytest.mark.compat

NOW = 1_795_227_600_000  # a minute after the last record; producers expire after a day
EVER = 2**63 - 1
TOLD = ("logStartOffset", "logEndOffset", "lastStableOffset", "batches", "aborted", "leaderEpochs")


def told(kafka: Kafka, directory: Path) -> dict[str, Any]:
    """Return what Kafka finds in a copy of a directory that it treats as cleanly closed."""
    copy = directory.parent / "copy" / directory.name
    shutil.rmtree(copy.parent, ignore_errors=True)
    shutil.copytree(directory, copy)
    answer = kafka.ask(
        "open", directory=str(copy), now=NOW, config={}, clean=True, recoveryPoint=EVER
    )
    assert "error" not in answer, answer
    return {name: answer[name] for name in TOLD}


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: max(d.glob("*.log")).open("ab").write(b"half a batch, and more than that"),
        lambda d: sorted(d.glob("*.index"))[1].unlink(),
        lambda d: sorted(d.glob("*.timeindex"))[1].write_bytes(b"\1"),
        lambda d: sorted(d.glob("*.txnindex"))[1].unlink(),
        lambda d: [each.unlink() for each in d.glob("*.snapshot")],
        lambda d: (d / "leader-epoch-checkpoint").write_text("nonsense"),
    ],
    ids=["torn tail", "no index", "time index", "no txn index", "no snapshots", "epochs"],
)
def test_kafka_finds_the_same_as_before_the_damage(
    kafka: Kafka, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    unpack("C-broker/clean-log.dir.tar.gz", tmp_path, "clean-log.dir/txn-0/")
    directory = tmp_path / "clean-log.dir" / "txn-0"
    before = told(kafka, directory)
    damage(directory)
    [done] = repair(
        LocalFileSystem(), SystemClock(), random.Random(0), str(directory), is_dry_run=False
    )
    assert done.error is None and done.steps and not done.left
    shutil.rmtree(directory.parent / "copy")
    assert told(kafka, directory) == before
    assert before["logEndOffset"] == 354
