"""A replicated partition is written through its leader, wherever that is."""

from collections.abc import Iterator

import pytest

from streamlog.errors import NotEnoughReplicasError, UnknownOutcomeError
from streamlog.root.partition_log import PartitionLog
from streamlog.root.placement import Placement
from tests.support.replicas import Disks, Process, records, values_of


@pytest.fixture
def disks() -> Disks:
    return Disks(**{"min.insync.replicas": "2", "flush.messages": "1"})


@pytest.fixture
def process(disks: Disks) -> Process:
    return disks.writer()


@pytest.fixture
def placement(process: Process) -> Iterator[Placement]:
    placement = process.placement()
    yield placement
    placement.close(in_order=False)


def open_log(placement: Placement, process: Process) -> PartitionLog:
    return PartitionLog.open("/r3/orders-0", placement=placement)


def test_a_partition_opens_through_its_leader(placement: Placement, process: Process) -> None:
    with open_log(placement, process) as log:
        assert log.root == "/r1"
        log.append(records("a"))
        assert values_of(log) == ["a"]


@pytest.mark.parametrize("operation", ["pwrite", "stat", "lock", "sync", None])
def test_a_handle_goes_on_when_the_disk_of_its_leader_fails(
    placement: Placement, process: Process, operation: str | None
) -> None:
    with open_log(placement, process) as log:
        log.append(records("a"))
        process.fail(1, operation)
        if operation != "pwrite":
            process.offline.add(1)
        for attempt in range(3):
            try:
                log.append(records("b"))
                break
            except UnknownOutcomeError:
                assert attempt == 0
        assert log.root == "/r2"
        assert values_of(log)[:1] == ["a"]
        assert values_of(log)[-1] == "b"
        assert process.state().leader == 2


def test_a_handle_follows_a_leader_that_another_process_elected(
    disks: Disks, placement: Placement, process: Process
) -> None:
    other = disks.writer()
    with open_log(placement, process) as log:
        log.append(records("a"))
        other.offline.add(1)
        theirs = other.placement()
        with open_log(theirs, other) as their_log:
            their_log.append(records("b"))
            other.offline.clear()
            with pytest.raises(UnknownOutcomeError):
                log.append(records("zombie"))
            log.append(records("c"))
            assert log.root == "/r2"
            assert values_of(log) == ["a", "b", "c"]
        theirs.close()


def test_too_few_replicas_do_not_move_the_leader(placement: Placement, process: Process) -> None:
    with open_log(placement, process) as log:
        log.append(records("a"))
        process.fail(2, "pwrite", ".log")
        process.fail(3, "pwrite", ".log")
        with pytest.raises(UnknownOutcomeError):
            log.append(records("b"))
        with pytest.raises(NotEnoughReplicasError):
            log.append(records("c"))
        assert log.root == "/r1"


def test_roots_that_are_offline_by_now_are_not_left_in_order(process: Process) -> None:
    placement = process.placement()
    with open_log(placement, process) as log:
        log.append(records("a"))
    process.fail(2)
    process.offline.add(2)
    placement.close()
