"""Commits of a replica set: copies of their files on the followers, and taking over."""

import pytest

from streamlog.commits.replay import Verdict
from streamlog.commits.term import leading
from streamlog.errors import NotEnoughReplicasError, NotLeaderError
from streamlog.records.acks import Acks
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


def test_too_few_replicas_refuse_a_commit_before_it_is_decided() -> None:
    world = replicated_world({"min.insync.replicas": "3"})
    world.process().scene.commit(0)
    world.lose(3)
    scene = world.process().scene
    pending = scene.pending_names()
    with pytest.raises(NotEnoughReplicasError):
        scene.commit(1)
    assert scene.pending_names() == pending
    assert world.process(2).mirror.own.prepared.names() == pending
    assert scene.commit(1, acks=Acks.LEADER).verdict is Verdict.COMMIT


def test_a_follower_that_fails_leaves_before_the_next_decision() -> None:
    world = replicated_world()
    world.process().scene.commit(0)
    world.lose(3)
    world.process().scene.commit(1)
    assert world.state.isr == (1, 2)
    for partition in (0, 1):
        assert world.register(f"t-{partition}").read().isr == (1, 2)


def test_a_replaced_disk_is_noticed_by_its_missing_epoch() -> None:
    world = replicated_world()
    process = world.process()
    process.scene.commit(0)
    root = world.root(3)
    root.fs.remove(root.commits_epoch)
    process.scene.commit(1)
    assert world.state.isr == (1, 2)
    process.mirror.resync(3)
    assert world.state.isr == (1, 2, 3)
    assert process.mirror.files(3).prepared.names() == process.scene.pending_names()


def test_a_leader_that_was_replaced_decides_nothing() -> None:
    world = replicated_world()
    zombie = world.process()
    zombie.scene.commit(0)
    register = world.register("commits")
    state = register.read()
    register.change(lambda old: old.with_leader(2), state.partition_epoch)
    world.process(2).scene.commit(1)
    before = world.values(2, 0)
    with pytest.raises(NotLeaderError):
        zombie.scene.commit(1)
    assert world.values(2, 0) == before


def test_an_undecided_commit_is_discarded_before_its_offsets_are_used() -> None:
    world = replicated_world()
    process = world.process()
    process.scene.commit(0)
    with leading(process.mirror) as term:  # a commit that dies before it is decided
        (name,) = process.scene.pending_names()
        decision = process.mirror.own.pending.load(name)
        assert decision is not None
        from dataclasses import replace

        lost = replace(decision, standing=replace(decision.standing, number=2))
        log = process.scene.manager.log("t", 0)
        with log.writing():
            log.set_pending(True)
            term.prepare(lost)
    assert len(process.mirror.files(2).prepared.names()) == 2
    world.process().scene.append(0, b"plain")
    for node in (2, 3):
        assert process.mirror.files(node).prepared.names() == [name]
