"""Kafka reads a topic with staged commits, plain appends and a crash between them."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from streamlog.commits.replay import Verdict
from streamlog.fs.faults import Fault, FaultyFileSystem, Moment
from streamlog.fs.local import LocalFileSystem
from tests.programs.compat.answers import told_by_reader
from tests.programs.compat.kafka import Kafka
from tests.support.child import run_in_child
from tests.support.commits import LOG, NOW, PARTITIONS, Scene, killed, rows_of

pytestmark = pytest.mark.compat


def die_while_applying(root: Path, version: int) -> None:
    """Commit a version and die in the middle of its first write to partition 1."""
    fault = Fault(operation="pwrite", path_suffix=f"t-1/{LOG}", moment=Moment.TORN)
    faulty = FaultyFileSystem(LocalFileSystem(), fault)
    dying = Scene(faulty, root=str(root), random=Random("must differ from the parent's names"))
    with killed():
        dying.commit(version)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with commits 0 to 3 of one query, plain records between, and version 2 twice."""
    path = tmp_path / "root"
    scene = Scene(LocalFileSystem(), root=str(path))
    scene.commit(0)
    scene.append(0, b"plain")
    scene.commit(1)
    scene.manager.close()
    assert run_in_child(lambda: die_while_applying(path, 2)) == "None"
    after = Scene(LocalFileSystem(), root=str(path))
    assert after.commit(2).verdict is Verdict.REPLAY
    after.commit(3)
    after.commits.retire()
    after.manager.close()
    return path


@pytest.mark.parametrize("clean", [True, False], ids=["believed", "recovered"])
@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_kafka_reads_each_row_of_each_commit_once(
    kafka: Kafka, root: Path, copy_of: Callable[[Path], Path], partition: int, clean: bool
) -> None:
    path = root / f"t-{partition}"
    theirs = kafka.ask("open", directory=str(copy_of(path)), now=NOW, clean=clean)
    ours = told_by_reader(path, now=NOW, timestamps=[])
    assert theirs["batches"] == ours["batches"]
    for field in ("logEndOffset", "lastStableOffset", "topicId", "producers", "leaderEpochs"):
        assert theirs[field] == ours[field], field
    with Scene(LocalFileSystem(), root=str(root)).manager as manager:
        rows = [record.value for record in manager.log("t", partition).read(0).records()]
    committed = [rows_of(version, partition) for version in range(4)]
    if partition == 0:
        committed.insert(1, [b"plain"])
    assert rows == [value for values in committed for value in values]
