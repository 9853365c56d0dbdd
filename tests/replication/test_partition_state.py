from streamlog.replication.partition_state import PartitionState


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
