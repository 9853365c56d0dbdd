"""Commits to a replica set on real directories, over the loss of the root that leads them."""

from pathlib import Path

import pyarrow as pa
import pytest

from streamlog.arrow.table_writer import write_table
from streamlog.arrow.tables import read_table
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.staging import Stager
from streamlog.fs.log_root import LogRoot
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.root_set import COMMITS, RootSet
from streamlog.root.manager import LogManager
from streamlog.root.replica_roots import add_root
from streamlog.root.roots import make_root
from streamlog.topic import TopicPartition
from tests.support.commits import batches_of

NAMES = ("a", "b", "c")


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in NAMES]
    make_root(LogRoot.at(paths[0]))
    for path in paths[1:]:
        add_root(LogRoot.at(paths[0]), path)
    with LogManager.open(paths[0]) as manager:
        manager.create_topic("t", 2, replication_factor=3)
    return paths


def write(root: Path, version: int) -> bool:
    rows = pa.table(
        {
            "value": [f"{version}-{row}".encode() for row in range(4)],
            "partition": pa.array([row % 2 for row in range(4)], pa.int32()),
        }
    )
    return write_table(rows, root, "t", txn_app_id="app", txn_version=version).is_replay


def values(root: Path) -> list[str]:
    found = []
    for partition in (0, 1):
        found += read_table(root / f"t-{partition}").column("value").to_pylist()
    return sorted(value.decode() for value in found)


def state(root: Path) -> PartitionState:
    found = RootSet.load(LogRoot.at(root))
    assert found is not None
    return found.register(COMMITS).read()


def expected(*versions: int) -> list[str]:
    return sorted(f"{version}-{row}" for version in versions for row in range(4))


def test_a_commit_is_prepared_in_all_roots(roots: list[Path]) -> None:
    assert not write(roots[0], 0)
    assert write(roots[1], 0), "the same version through another root is a replay"
    for root in roots:
        assert values(root) == expected(0)
    prepared = [sorted(p.name for p in (root / ".streamlog/replication/prepared").iterdir())
                for root in roots[1:]]  # fmt: skip
    assert prepared[0] == prepared[1] and len(prepared[0]) == 2, "the decision, and the epoch"


def test_commits_go_on_without_the_leaders_root(roots: list[Path], tmp_path: Path) -> None:
    write(roots[0], 0)
    roots[0].rename(tmp_path / "gone")
    assert write(roots[1], 0), "decided before the loss"
    assert not write(roots[1], 1)
    assert state(roots[1]).leader != 1
    for root in roots[1:]:
        assert values(root) == expected(0, 1)


def test_a_running_writer_goes_on_when_the_leaders_root_disappears(
    roots: list[Path], tmp_path: Path
) -> None:
    with LogManager.open(roots[1]) as manager:
        commits = manager.commits
        for version in range(4):
            if version == 2:
                roots[0].rename(tmp_path / "gone")
            with Stager(manager.log_root, "app/t", version, 0) as stager:
                for partition in (0, 1):
                    rows = [f"{version}-{2 * row + partition}".encode() for row in range(2)]
                    stager.append(TopicPartition("t", partition), batches_of(rows))
                staged = stager.finish(rows=4, checksum=0)
            outcome = commits.commit(CommitIdentity("app/t", version), [staged])
            assert not outcome.is_replay
    for root in roots[1:]:
        assert values(root) == expected(0, 1, 2, 3)


def test_a_root_that_returns_follows_the_commits_again(roots: list[Path], tmp_path: Path) -> None:
    write(roots[0], 0)
    roots[2].rename(tmp_path / "away")
    write(roots[0], 1)
    assert state(roots[0]).isr == (1, 2)
    (tmp_path / "away").rename(roots[2])
    write(roots[0], 2)
    assert state(roots[0]).isr == (1, 2, 3)
    write(roots[0], 3)
    for root in roots:
        assert values(root) == expected(0, 1, 2, 3)
