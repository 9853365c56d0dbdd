"""Commits of a replica set: copies of their files on the followers, and taking over."""

from streamlog.commits.replay import Verdict
from tests.support.commits import rows_of
from tests.support.replica_commits import NODES, replicated_world


def test_a_commit_is_prepared_and_replicated_on_every_root() -> None:
    world = replicated_world()
    process = world.process()
    process.scene.commit(0)
    for node in NODES:
        for partition in (0, 1):
            assert world.values(node, partition) == rows_of(0, partition)
    for node in (2, 3):
        files = process.mirror.files(node)
        assert files.prepared.names() == process.scene.pending_names()
        assert files.pending.names() == []


def test_retiring_removes_the_copies_and_copies_the_ledger() -> None:
    world = replicated_world()
    process = world.process()
    process.scene.commit(0)
    process.scene.commits.retire()
    for node in (2, 3):
        files = process.mirror.files(node)
        assert files.prepared.names() == []
        assert files.area.names("query-1/t") == []
        assert files.ledger("query-1%2Ft") == process.mirror.own.ledger("query-1%2Ft")


def test_a_follower_continues_without_the_leaders_disk() -> None:
    world = replicated_world()
    world.process().scene.commit(0)
    world.lose(1)
    assert world.elect() == 2
    scene = world.process().scene
    assert scene.commit(0).verdict is Verdict.REPLAY
    scene.commit(1)
    for partition in (0, 1):
        for node in (2, 3):
            assert world.values(node, partition) == rows_of(0, partition) + rows_of(1, partition)
