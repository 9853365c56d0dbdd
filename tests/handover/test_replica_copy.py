"""A copy of a replica's root is handed over; the root itself, where it is listed, is not."""

import shutil
from pathlib import Path

import pytest

from streamlog.partition.reader import LogReader
from streamlog.root.replica_set import ReplicaSet
from tests.support.cli import ok, streamlog
from tests.support.replicas import records


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    made = [tmp_path / name for name in "abc"]
    for each in made[1:]:
        ok("replicas", "add", each, "--path", made[0])
    ok("topics", "create", "orders", "--replication-factor", 3, "--path", made[0])
    with ReplicaSet.open(str(made[0])) as replicas:
        replicas.log("orders", 0).append(records("a", "b"))
    return made


def copied(root: Path) -> Path:
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    return copy


@pytest.mark.parametrize("node", [0, 1], ids=["leader", "follower"])
def test_a_copy_leaves_the_set_and_comes_back_with_one_replica(
    roots: list[Path], node: int
) -> None:
    copy = copied(roots[node])
    ok("--path", copy, "handover", "--to-kafka")
    assert not (copy / ".streamlog").exists()
    moved = copy.with_name("copy.streamlog")
    assert not (moved / "replicas.json").exists() and not (moved / "replication").exists()
    assert (roots[node] / ".streamlog" / "replicas.json").exists()


def test_a_listed_root_is_refused_and_stays_as_it_is(roots: list[Path]) -> None:
    link = roots[1].with_name("link")
    link.symlink_to(roots[1])
    for path in (roots[1], link):
        ran = streamlog("--path", path, "handover", "--to-kafka")
        assert ran.code == 2
        assert "log root belongs to a replica set" in ran.error
    assert (roots[1] / ".streamlog" / "replication" / "orders-0").exists()
    assert ok("cat", "orders", "--count", 2, "--path", roots[1]).out


def test_a_copy_with_records_that_are_not_committed_is_refused(roots: list[Path]) -> None:
    with ReplicaSet.open(str(roots[0])) as replicas:
        replicas.log("orders", 0).append(records("c"))
        copy = copied(roots[1])  # the follower has the record, and does not know that others do
    ran = streamlog("--path", copy, "handover", "--to-kafka")
    assert ran.code != 0
    assert "high watermark 2" in ran.error and "expected 3, the log end" in ran.error
    assert (copy / ".streamlog" / "replicas.json").exists()


def test_a_copy_without_one_of_the_partitions_is_refused(roots: list[Path]) -> None:
    ok("topics", "create", "more", "--replica-assignment", "1,2", "--path", roots[0])
    ran = streamlog("--path", copied(roots[0]), "handover", "--to-kafka")
    assert ran.code == 2
    assert "topic more is incomplete: other log roots hold this partition" in ran.error


@pytest.mark.parametrize("has_list", [True, False])
def test_an_interrupted_handover_is_repeated(roots: list[Path], has_list: bool) -> None:
    copy = copied(roots[2])
    if not has_list:
        (copy / ".streamlog" / "replicas.json").unlink()
    ok("--path", copy, "handover", "--to-kafka")
    with LogReader.open(copy / "orders-0") as reader:
        assert reader.log_end_offset == 2
