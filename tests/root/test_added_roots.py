"""Handles that were open before a log root was added to their replica set."""

from pathlib import Path

import pytest

from streamlog.commits.identity import CommitIdentity
from streamlog.commits.staging import Stager
from streamlog.fs.log_root import LogRoot
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.replication.root_set import COMMITS, RootSet
from streamlog.root.manager import LogManager
from streamlog.root.replica_roots import add_root
from streamlog.root.replica_set import ReplicaSet
from streamlog.root.roots import make_root
from streamlog.topic import TopicPartition
from tests.support.commits import batches_of


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in "abcd"]
    make_root(LogRoot.at(paths[0]))
    for path in paths[1:3]:
        add_root(LogRoot.at(paths[0]), path)
    with LogManager.open(paths[0]) as manager:
        manager.create_topic("t", 1, replication_factor=3)
    return paths


def append(manager: LogManager, value: bytes) -> None:
    manager.log("t", 0).append([Record(None, value, (), 0)])


def commit(manager: LogManager, version: int) -> None:
    with Stager(manager.log_root, "app/t", version, 0) as stager:
        stager.append(TopicPartition("t", 0), batches_of([b"v%d" % version]))
        staged = stager.finish(rows=1, checksum=0)
    manager.commits.commit(CommitIdentity("app/t", version), [staged])


def values(root: Path) -> list[bytes | None]:
    with LogReader.open(root / "t-0") as reader:
        return [record.value for record in reader.records()]


def test_an_open_handle_writes_to_a_replica_in_an_added_root(roots: list[Path]) -> None:
    with LogManager.open(roots[0]) as manager:
        append(manager, b"before")
        add_root(LogRoot.at(roots[0]), roots[3])
        with ReplicaSet.open(str(roots[1])) as replicas:
            assert replicas.reassign("t", 0, (1, 2, 4)).isr == (1, 2, 4)
        append(manager, b"after")
        append(manager, b"last")
        with ReplicaSet.open(str(roots[1])) as replicas:
            (status,) = replicas.describe("t")
            assert status.state.isr == (1, 2, 4)
    assert values(roots[3]) == [b"before", b"after", b"last"]


def test_an_open_handle_moves_to_a_leader_in_an_added_root(roots: list[Path]) -> None:
    with LogManager.open(roots[1]) as manager:
        append(manager, b"before")
        add_root(LogRoot.at(roots[0]), roots[3])
        with ReplicaSet.open(str(roots[1])) as replicas:
            replicas.reassign("t", 0, (4, 2))
        append(manager, b"after")
    assert values(roots[3]) == [b"before", b"after"]


def test_a_running_committer_keeps_an_added_root_in_sync(roots: list[Path]) -> None:
    with LogManager.open(roots[0]) as manager:
        commit(manager, 0)
        add_root(LogRoot.at(roots[0]), roots[3])
        with ReplicaSet.open(str(roots[1])) as replicas:
            replicas.replicate_once()
        found = RootSet.load(LogRoot.at(roots[0]))
        assert found is not None
        assert set(found.register(COMMITS).read().isr) == {1, 2, 3, 4}
        commit(manager, 1)
        assert set(found.register(COMMITS).read().isr) == {1, 2, 3, 4}
        names = sorted(
            each.name for each in (roots[3] / ".streamlog/replication/prepared").iterdir()
        )
        assert len(names) == 3, "two decisions, and the epoch"


def test_an_open_handle_counts_the_vote_of_an_added_root(roots: list[Path], tmp_path: Path) -> None:
    with LogManager.open(roots[0]) as manager:
        append(manager, b"before")
        add_root(LogRoot.at(roots[0]), roots[3])
        roots[2].rename(tmp_path / "gone")
        append(manager, b"after")
        found = RootSet.load(LogRoot.at(roots[0]))
        assert found is not None
        register = found.register("t-0")
        assert register.voters() == (1, 2, 3, 4)
        assert register.read().isr == (1, 2)
