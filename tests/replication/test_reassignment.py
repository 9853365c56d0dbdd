"""A reassignment: new replicas first, and old ones go once the new ones are in sync."""

from dataclasses import replace

import pytest

from streamlog.errors import InvalidRequestError
from streamlog.replication.election import alter_partition
from streamlog.replication.messages import AlterPartition
from streamlog.replication.reassignment import begin_reassignment, complete_reassignment
from tests.replication.logs import Log, leading, state_of

STATE = state_of((0, 1, 2), epoch=3, version=7)

BEGIN = [
    # target → replicas, adding, removing
    ((0, 1, 3), (0, 1, 3, 2), (3,), (2,)),
    ((3, 4, 5), (3, 4, 5, 0, 1, 2), (3, 4, 5), (0, 1, 2)),
    ((2, 1, 0), (2, 1, 0), (), ()),
    ((0, 1), (0, 1, 2), (), (2,)),
    ((0, 1, 2, 3), (0, 1, 2, 3), (3,), ()),
]


@pytest.mark.parametrize(("target", "replicas", "adding", "removing"), BEGIN)
def test_a_reassignment_keeps_all_replicas_at_first(target, replicas, adding, removing):
    state = begin_reassignment(STATE, target)
    assert (state.replicas, state.adding, state.removing) == (replicas, adding, removing)
    assert (state.isr, state.leader, state.leader_epoch) == ((0, 1, 2), 0, 3)
    assert state.partition_epoch == 8


def test_a_second_reassignment_replaces_the_first():
    first = begin_reassignment(STATE, (0, 1, 3))
    second = begin_reassignment(first, (0, 1, 4))
    assert (second.replicas, second.adding, second.removing) == ((0, 1, 4, 3, 2), (4,), (3, 2))
    back = begin_reassignment(first, (0, 1, 2))
    assert (back.replicas, back.adding, back.removing) == ((0, 1, 2, 3), (), (3,))
    done = complete_reassignment(back, min_insync_replicas=2)
    assert (done.replicas, done.isr, done.adding, done.removing) == ((0, 1, 2), (0, 1, 2), (), ())


@pytest.mark.parametrize("target", [(), (1, 1)])
def test_a_target_must_be_distinct_nodes(target):
    with pytest.raises(InvalidRequestError, match="distinct target nodes"):
        begin_reassignment(STATE, target)


COMPLETE = [
    # target, isr, min ISR → replicas, isr, leader, leader epoch; None: too early
    ((0, 1, 3), (0, 1, 2), 1, None),
    ((0, 1, 3), (0, 1, 2, 3), 2, ((0, 1, 3), (0, 1, 3), 0, 3)),
    ((0, 1, 3), (0, 3), 3, None),
    ((0, 1, 3), (0, 3), 2, ((0, 1, 3), (0, 3), 0, 3)),
    ((3, 4), (0, 3), 1, None),
    ((3, 4), (0, 3, 4), 2, ((3, 4), (3, 4), 3, 4)),
    ((1, 2), (0,), 1, None),
    ((2, 1), (0, 1), 1, ((2, 1), (1,), 1, 4)),
    ((1,), (0, 1), 2, ((1,), (1,), 1, 4)),
]


@pytest.mark.parametrize(("target", "isr", "min_isr", "expected"), COMPLETE)
def test_it_completes_once_the_added_replicas_are_in_sync(target, isr, min_isr, expected):
    state = replace(begin_reassignment(STATE, target), isr=isr)
    done = complete_reassignment(state, min_insync_replicas=min_isr)
    if expected is None:
        assert done is state
        return
    assert (done.replicas, done.isr, done.leader, done.leader_epoch) == expected
    assert (done.adding, done.removing, done.partition_epoch) == ((), (), 8)


def test_the_isr_change_that_adds_the_last_replica_completes_it():
    state = begin_reassignment(STATE, (0, 1, 3))
    request = AlterPartition(leader=0, leader_epoch=3, partition_epoch=8, isr=(0, 1, 3, 2))
    done = alter_partition(state, request, min_insync_replicas=2)
    assert (done.replicas, done.isr, done.partition_epoch) == ((0, 1, 3), (0, 1, 3), 9)


def test_a_leader_serves_replicas_that_are_added():
    log = Log.of("a@0")
    leader = leading(log, (0, 1), epoch=0)
    leader.follower_at(1, 1, 0)
    state = begin_reassignment(leader.state, (0, 1, 3))
    leader.installed(state, 0)
    assert set(leader.followers) == {1, 2, 3}
    leader.follower_at(3, 1, 1)
    assert leader.proposal is not None and leader.proposal.isr == (0, 1, 3)
    done = alter_partition(state, leader.proposal, min_insync_replicas=1)
    leader.installed(done, 2)
    assert (set(leader.followers), leader.isr.committed) == ({1, 3}, (0, 1, 3))
