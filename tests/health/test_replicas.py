"""`verify --replicas`: equal replicas are sound, and each way to be degraded has its finding."""

import pytest

from streamlog.fs.api import OpenMode
from streamlog.health.findings import Finding, FindingKind, Severity
from streamlog.health.replicas import verify_replicas
from streamlog.replication.register_file import RegisterFile
from tests.support.replica_roots import PARTITION, ReplicaRoots


@pytest.fixture
def roots() -> ReplicaRoots:
    return ReplicaRoots({1: 7, 2: 7, 3: 7})


def findings(roots: ReplicaRoots) -> list[Finding]:
    found: list[Finding] = []
    assert verify_replicas(roots.nodes, found.append) == 1
    assert all(each.severity is not Severity.NOTE for each in found)
    return found


def kinds(roots: ReplicaRoots) -> set[FindingKind]:
    return {each.kind for each in findings(roots)}


def test_equal_replicas_are_sound(roots: ReplicaRoots) -> None:
    assert findings(roots) == []


def test_a_replica_that_left_the_isr_is_a_finding(roots: ReplicaRoots) -> None:
    roots.shrink(1, 2)
    assert kinds(roots) == {FindingKind.UNDER_REPLICATED}
    roots.shrink(1)
    assert kinds(roots) == {FindingKind.UNDER_REPLICATED, FindingKind.AT_MIN_ISR}


def test_a_partition_without_its_leader_is_a_finding(roots: ReplicaRoots) -> None:
    roots.offline = {1}
    assert kinds(roots) == {
        FindingKind.OFFLINE_PARTITION,
        FindingKind.OFFLINE_REPLICA,
        FindingKind.UNDER_REPLICATED,
    }


def test_a_partition_without_any_replica_is_a_finding(roots: ReplicaRoots) -> None:
    for node in (1, 2, 3):
        path = roots.roots[node].partition(PARTITION)
        with roots.fs.open(f"{path}/00000000000000000000.log", OpenMode.WRITE) as file:
            file.pwrite(b"\xff" * 20, 0)
    assert FindingKind.UNDER_REPLICATED not in kinds(roots)  # damage is for `verify` itself
    roots.offline = {2, 3}
    assert {FindingKind.NO_QUORUM, FindingKind.UNDER_REPLICATED} <= kinds(roots)


def test_a_register_that_missed_a_change_is_a_finding(roots: ReplicaRoots) -> None:
    old = RegisterFile(roots.roots[3], str(PARTITION)).acceptor()
    roots.shrink(1, 2)
    roots.shrink(1, 2, 3)
    roots.fs.remove(roots.roots[3].partition_register(PARTITION))
    assert old is not None
    RegisterFile(roots.roots[3], str(PARTITION)).install(old)
    (finding,) = findings(roots)
    assert finding.kind is FindingKind.REGISTER_BEHIND
    assert finding.path == "/root-3/.streamlog/replication/orders-0"


def test_a_member_of_the_isr_that_lost_committed_records_is_a_finding() -> None:
    roots = ReplicaRoots({1: 7, 2: 7, 3: 4})
    (finding,) = findings(roots)
    assert finding.kind is FindingKind.ISR_BEHIND
    assert (finding.got, finding.path) == ("log end 4", "/root-3/orders-0")


def test_replicas_that_differ_are_damage(roots: ReplicaRoots) -> None:
    roots.append_batch(2, 0, 7, epoch=0)
    (finding,) = findings(roots)
    assert finding.kind is FindingKind.REPLICA_DIVERGED
    assert finding.severity is Severity.DAMAGE
    assert (finding.path, finding.offset) == ("/root-2/orders-0", 0)


def test_a_longer_replica_than_the_leaders_is_counted() -> None:
    roots = ReplicaRoots({1: 7, 2: 7, 3: 7})
    roots.shrink(1, 2)
    roots.append_batch(1, 7, 2, epoch=2)
    roots.append_batch(3, 7, 5, epoch=0)
    abandoned = [each for each in findings(roots) if each.kind is FindingKind.ABANDONED_RECORDS]
    assert [(each.path, each.offset, each.last_offset) for each in abandoned] == [
        ("/root-3/orders-0", 7, 11)
    ]
