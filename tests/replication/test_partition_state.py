from dataclasses import replace

import pytest

from streamlog.replication.election import ElectionType, elect
from streamlog.replication.partition_state import PartitionState, ReplicationEvents
from streamlog.replication.reassignment import begin_reassignment, complete_reassignment


def test_a_new_partition_is_led_by_its_first_replica_with_all_in_sync():
    state = PartitionState.created("A" * 22, (3, 1, 2))
    assert (state.leader, state.isr, state.leader_epoch, state.partition_epoch) == (
        3,
        (3, 1, 2),
        0,
        0,
    )


def test_each_change_raises_the_partition_epoch_and_a_leader_the_leader_epoch():
    state = PartitionState.created("A" * 22, (1, 2, 3))
    shrunk = state.with_isr((1, 2))
    assert (shrunk.leader_epoch, shrunk.partition_epoch) == (0, 1)
    moved = shrunk.with_leader(2)
    assert (moved.leader, moved.leader_epoch, moved.partition_epoch) == (2, 1, 2)
    again = moved.with_leader(2)
    assert (again.leader, again.leader_epoch, again.partition_epoch) == (2, 2, 3)


CREATED = PartitionState.created("A" * 22, (1, 2, 3))
ALONE = CREATED.with_isr((1,))


def uncleanly(state):
    return elect(state, ElectionType.UNCLEAN, online={2}, min_insync_replicas=1).state


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        (CREATED, CREATED.with_isr((1, 2)), (1, 0, 0)),
        (CREATED, ALONE, (1, 0, 0)),
        (ALONE, ALONE.with_isr((1, 3)), (0, 1, 0)),
        (CREATED.with_isr((1, 2)), CREATED.with_isr((1, 3)), (1, 1, 0)),
        (CREATED, CREATED.with_leader(2), (0, 0, 0)),
        (ALONE, uncleanly(ALONE), (1, 1, 1)),
        (uncleanly(ALONE), uncleanly(ALONE).with_leader(2), (0, 0, 0)),  # an epoch that was due
        (uncleanly(ALONE), uncleanly(ALONE).with_isr((2, 3)), (0, 1, 0)),
        (
            CREATED,
            complete_reassignment(begin_reassignment(CREATED, (1, 2)), min_insync_replicas=1),
            (0, 0, 0),
        ),
    ],
)
def test_events_are_counted_by_what_changed(before, after, events):
    assert after.counted(before).events == events
    known = replace(before, events=ReplicationEvents(5, 6, 7))
    expected = tuple(map(sum, zip((5, 6, 7), events, strict=True)))
    assert after.counted(known).events == expected


def test_events_do_not_make_states_differ():
    counted = replace(CREATED, events=ReplicationEvents(1, 2, 3))
    assert counted == CREATED
    assert hash(counted) == hash(CREATED)
