"""The status of replicas, from registers and logs of which some are missing, stale or short."""

from dataclasses import replace

import pytest

from streamlog.config.log_config import LogConfig
from streamlog.replication.register_file import RegisterFile
from streamlog.replication.status import metrics, status_of
from streamlog.topic import TopicPartition
from tests.support.replica_roots import NODES, PARTITION, ReplicaRoots


@pytest.fixture
def roots() -> ReplicaRoots:
    return ReplicaRoots({1: 7, 2: 7, 3: 4})


def test_all_replicas_are_described_in_assignment_order(roots: ReplicaRoots) -> None:
    status = roots.status()
    assert [each.node for each in status.replicas] == [1, 2, 3]
    assert [status.lag(each) for each in status.replicas] == [0, 0, 3]
    assert status.leader is status.replicas[0]
    assert (status.end_offset, status.high_watermark) == (7, 7)
    assert (status.offline, status.stale_registers, status.has_quorum) == ((), (), True)
    assert not (status.is_under_replicated or status.is_unavailable)
    assert not (status.is_at_min_isr or status.is_under_min_isr)


def test_a_replica_outside_the_isr_leaves_the_partition_under_replicated(
    roots: ReplicaRoots,
) -> None:
    roots.shrink(1, 2)
    status = roots.status()
    assert (status.is_under_replicated, status.is_at_min_isr) == (True, True)
    assert not (status.is_under_min_isr or status.is_unavailable)


def test_a_replica_that_is_being_added_does_not_count_yet(roots: ReplicaRoots) -> None:
    roots.shrink(1, 2)
    state = roots.register.read()
    roots.register.change(
        lambda now: replace(now, adding=(3,), partition_epoch=now.partition_epoch + 1),
        state.partition_epoch,
    )
    assert not roots.status().is_under_replicated


@pytest.mark.parametrize(
    ("offline", "unavailable", "under_min", "quorum"),
    [({3}, False, False, True), ({2, 3}, False, True, False), ({1}, True, False, True)],
)
def test_an_offline_root_counts_at_once(
    roots: ReplicaRoots, offline: set[int], unavailable: bool, under_min: bool, quorum: bool
) -> None:
    roots.offline = offline
    status = roots.status()
    assert status.is_under_replicated
    assert {*status.offline} == offline
    assert (status.is_unavailable, status.is_under_min_isr) == (unavailable, under_min)
    assert status.has_quorum is quorum
    assert [status.lag(each) is None for each in status.replicas] == [
        node in offline for node in NODES
    ]


def test_a_root_without_the_partition_is_offline_and_its_register_stale(
    roots: ReplicaRoots,
) -> None:
    roots.fs.remove(roots.roots[2].partition_register(PARTITION))
    for name in roots.fs.list(roots.roots[2].partition(PARTITION)):
        roots.fs.remove(f"{roots.roots[2].partition(PARTITION)}/{name}")
    roots.fs.remove_directory(roots.roots[2].partition(PARTITION))
    status = roots.status()
    assert (status.offline, status.stale_registers) == ((2,), (2,))
    assert status.replicas[1].problem is not None


def test_a_register_that_missed_a_change_is_stale(roots: ReplicaRoots) -> None:
    path = roots.roots[3].partition_register(PARTITION)
    old = RegisterFile(roots.roots[3], str(PARTITION)).acceptor()
    roots.shrink(1, 2)
    file = RegisterFile(roots.roots[3], str(PARTITION))
    assert old is not None
    roots.fs.remove(path)
    file.install(old)
    status = roots.status()
    assert (status.stale_registers, status.state.isr, status.has_quorum) == ((3,), (1, 2), True)


def test_the_minimum_is_at_most_the_number_of_replicas(roots: ReplicaRoots) -> None:
    assert roots.status(min_isr=5).min_isr == 3


def test_metrics_count_partitions(roots: ReplicaRoots) -> None:
    sound = roots.status(min_isr=1)
    roots.offline = {1, 3}
    found = metrics([sound, roots.status()])
    assert found._asdict() == {
        "partition_count": 2,
        "under_replicated_partitions": 1,
        "offline_partitions_count": 1,
        "at_min_isr_partition_count": 0,
        "under_min_isr_partition_count": 1,
        "offline_replica_count": 2,
        "max_lag": 3,
        "isr_shrinks": 0,
        "isr_expands": 0,
        "unclean_leader_elections": 0,
    }


def test_metrics_add_the_events_of_partitions(roots: ReplicaRoots) -> None:
    roots.shrink(1, 2)
    roots.shrink(1)
    found = metrics([roots.status(), roots.status()])
    assert (found.isr_shrinks, found.isr_expands, found.unclean_leader_elections) == (4, 0, 0)


def test_a_partition_without_a_register_has_no_status(roots: ReplicaRoots) -> None:
    assert status_of(TopicPartition("orders", 1), roots.nodes, LogConfig()) is None
