"""The table of elections, eligible leader replicas, and the checks of an ISR change."""

from dataclasses import replace

import pytest

from streamlog.replication.election import (
    PREFERENCE,
    ElectionType,
    Eligibility,
    alter_partition,
    elect,
    unclean_shutdown,
)
from streamlog.replication.messages import AlterPartition, Errors
from streamlog.replication.partition_state import NO_LEADER, LeaderRecovery
from tests.replication.logs import state_of

ONLINE, PREFERRED, UNCLEAN = ElectionType.ONLINE, ElectionType.PREFERRED, ElectionType.UNCLEAN

ELECTIONS = [
    # type, leader, isr, elr, last known, online, incomplete → elected, reason, isr, elr
    (ONLINE, 0, (0, 1, 2), (), -1, (0, 1, 2), (), 0, Eligibility.CURRENT_LEADER, (0, 1, 2), ()),
    (ONLINE, 1, (0, 1, 2), (), -1, (0, 1, 2), (), 1, Eligibility.CURRENT_LEADER, (0, 1, 2), ()),
    (ONLINE, 0, (0, 1, 2), (), -1, (1, 2), (), 1, Eligibility.IN_SYNC, (1, 2), ()),
    (ONLINE, 0, (0, 2), (), -1, (1, 2), (), 2, Eligibility.IN_SYNC, (2,), (0,)),
    (ONLINE, 0, (0, 1, 2), (), -1, (0, 1, 2), (0,), 1, Eligibility.IN_SYNC, (1, 2), ()),
    (ONLINE, 0, (0, 1), (), -1, (0, 1, 2), (0,), 1, Eligibility.IN_SYNC, (1,), ()),
    (ONLINE, 0, (0,), (2,), -1, (1, 2), (), 2, Eligibility.ELIGIBLE, (2,), (0,)),
    (ONLINE, -1, (), (1, 2), -1, (1, 2), (1,), 2, Eligibility.ELIGIBLE, (2,), ()),
    (ONLINE, -1, (), (), 2, (1, 2), (), 2, Eligibility.LAST_KNOWN_LEADER, (2,), ()),
    (ONLINE, -1, (), (), 2, (1, 2), (2,), NO_LEADER, None, (), ()),
    (ONLINE, -1, (), (1,), 2, (0, 2), (), NO_LEADER, None, (), (1,)),
    (ONLINE, 0, (0,), (), -1, (1, 2), (), NO_LEADER, None, (0,), ()),
    (ONLINE, 0, (0, 1), (), -1, (), (), NO_LEADER, None, (0, 1), ()),
    (PREFERRED, 1, (0, 1, 2), (), -1, (0, 1, 2), (), 0, Eligibility.PREFERRED, (0, 1, 2), ()),
    (PREFERRED, 1, (1, 2), (), -1, (0, 1, 2), (), 1, Eligibility.CURRENT_LEADER, (1, 2), ()),
    (PREFERRED, 1, (0, 1), (), -1, (0, 1), (0,), 1, Eligibility.CURRENT_LEADER, (0, 1), ()),
    (UNCLEAN, 0, (0, 1, 2), (), -1, (1, 2), (), 1, Eligibility.IN_SYNC, (1, 2), ()),
    (UNCLEAN, 0, (0,), (), -1, (2, 1), (), 1, Eligibility.ONLINE, (1,), ()),
    (UNCLEAN, 0, (0,), (), -1, (0, 1), (0,), 0, Eligibility.ONLINE, (0,), ()),
    (UNCLEAN, 0, (0,), (), -1, (), (), NO_LEADER, None, (0,), ()),
]


@pytest.mark.parametrize("row", ELECTIONS, ids=str)
def test_elections(row):
    kind, leader, isr, elr, last, online, incomplete, elected, reason, isr_after, elr_after = row
    state = replace(state_of(isr, leader=leader, epoch=4), elr=elr, last_known_leader=last)
    found = elect(
        state,
        kind,
        online=online,
        min_insync_replicas=2,
        complete=lambda node: node not in incomplete,
    )
    assert (found.leader, found.reason) == (elected, reason)
    assert (found.state.isr, found.state.elr) == (isr_after, elr_after)
    if elected in (NO_LEADER, leader) and (reason is None or reason.is_clean):
        assert found.state is state
        return
    assert found.state.leader == elected
    assert (found.state.leader_epoch, found.state.partition_epoch) == (5, 1)
    is_clean = found.state.recovery is LeaderRecovery.RECOVERED
    assert reason is not None and is_clean == reason.is_clean


def test_the_table_has_each_reason_and_each_type():
    assert {row[8] for row in ELECTIONS} == {None, *Eligibility}
    assert {row[0] for row in ELECTIONS} == set(PREFERENCE) == set(ElectionType)


def altered(state, isr, *, leader=0, leader_epoch=3, partition_epoch=7, eligible=None, min_isr=2):
    request = AlterPartition(
        leader=leader, leader_epoch=leader_epoch, partition_epoch=partition_epoch, isr=isr
    )
    return alter_partition(state, request, min_insync_replicas=min_isr, eligible=eligible)


STATE = state_of((0, 1, 2), epoch=3, version=7)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"leader_epoch": 2}, Errors.FENCED_LEADER_EPOCH),
        ({"leader": 1, "leader_epoch": 2}, Errors.FENCED_LEADER_EPOCH),
        ({"leader": 1}, Errors.INVALID_REQUEST),
        ({"leader_epoch": 4}, Errors.INVALID_REQUEST),
        ({"partition_epoch": 6}, Errors.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 8}, Errors.INVALID_UPDATE_VERSION),
        ({"isr": (1, 2)}, Errors.INVALID_REQUEST),
        ({"isr": (0, 9)}, Errors.INVALID_REQUEST),
    ],
)
def test_an_isr_change_of_a_stale_leader_is_refused(changes, error):
    assert altered(STATE, **{"isr": (0, 1), **changes}) is error


def test_a_replica_that_is_not_eligible_may_stay_in_the_isr_but_not_join_it():
    state = state_of((0, 1), epoch=3, version=7)
    assert altered(state, (0, 1, 2), eligible=(0, 1)) is Errors.INELIGIBLE_REPLICA
    assert altered(state, (0, 1), eligible=(0,)).isr == (0, 1)


def test_replicas_that_leave_an_isr_below_its_minimum_are_eligible_until_it_is_back():
    one = altered(STATE, (0, 1))
    assert (one.isr, one.elr, one.partition_epoch) == ((0, 1), (), 8)
    alone = altered(one, (0,), partition_epoch=8)
    assert (alone.isr, alone.elr) == ((0,), (1,))  # 2 left while the high watermark still moved
    back = altered(alone, (0, 2), partition_epoch=9)
    assert (back.isr, back.elr) == ((0, 2), ())


def test_an_accepted_proposal_ends_the_recovery_of_an_uncleanly_elected_leader():
    state = replace(STATE, recovery=LeaderRecovery.RECOVERING)
    assert altered(state, (0, 1)).recovery is LeaderRecovery.RECOVERED


def test_an_unclean_shutdown_ends_proposals_in_flight():
    state = state_of((0, 1))
    after = unclean_shutdown(state, (2,), min_insync_replicas=2)
    assert after == replace(state, partition_epoch=state.partition_epoch + 1)
    stale = AlterPartition(
        leader=0,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        isr=(0, 1, 2),
    )
    found = alter_partition(after, stale, min_insync_replicas=2)
    assert found is Errors.INVALID_UPDATE_VERSION


@pytest.mark.parametrize(
    ("isr", "elr", "nodes", "expected"),
    [  # expected: leader, isr, elr, last known leader, leader epoch
        ((0, 1), (2,), (1,), (0, (0,), (2,), -1, 3)),
        ((0, 1), (2,), (2,), (0, (0, 1), (), -1, 3)),
        ((0, 1), (), (0,), (-1, (1,), (), -1, 4)),
        ((0,), (2,), (0,), (-1, (), (2,), -1, 4)),
        ((0,), (), (0,), (-1, (), (), 0, 4)),
        ((0,), (), (1,), (0, (0,), (), -1, 3)),
    ],
)
def test_uncleanly_restarted_replicas_are_eligible_no_longer(isr, elr, nodes, expected):
    state = replace(state_of(isr, epoch=3), elr=elr)
    after = unclean_shutdown(state, nodes, min_insync_replicas=3)
    found = (after.leader, after.isr, after.elr, after.last_known_leader, after.leader_epoch)
    assert found == expected
    assert after.partition_epoch == (0 if after is state else 1)
