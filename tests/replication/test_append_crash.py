"""A writer that dies at any file operation of an append on three replicas: nothing acknowledged is
lost, nothing is there twice, and the replicas agree again with the next writer's first append."""

from random import Random

import pytest

from streamlog.fs.api import Buffer
from streamlog.fs.faults import FaultyFileSystem, Operation, SimulatedCrash
from tests.support.replicas import Disks, Process, records, values_of

BEFORE = ("a", "b")
DURING = ("c", "d")


class Doom:
    """Kills a process before its n-th change of any disk."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.views: list[FaultyFileSystem] = []

    def __call__(self, operation: Operation, data: Buffer) -> None:
        self.left -= 1
        if self.left == 0:
            for view in self.views:
                view.kill()
            raise SimulatedCrash(f"killed before {operation}")


def doomed(disks: Disks, at: int) -> Process:
    doom = Doom(at)
    views = {node: FaultyFileSystem(disk, observe=doom) for node, disk in disks.disks.items()}
    doom.views = list(views.values())
    return Process(disks, views)


def prepared(**configs: str) -> Disks:
    disks = Disks(**configs)
    with disks.writer().open() as log:
        for value in BEFORE:
            log.append(records(value))
    return disks


def run(disks: Disks, at: int) -> list[str]:
    """Append until the process dies; return what was acknowledged."""
    acknowledged: list[str] = []
    process = doomed(disks, at)
    try:
        with process.open() as log:
            for value in DURING:
                log.append(records(value))
                acknowledged.append(value)
    except SimulatedCrash:
        return acknowledged
    raise StopIteration


def restart(disks: Disks, *, power: bool, seed: int) -> None:
    """Let the process, or the machine, be gone; keeps the time."""
    disks.disks = {
        node: disk.crash_clone(Random(seed * 10 + node), power=power)
        for node, disk in disks.disks.items()
    }


def check(disks: Disks, acknowledged: list[str], offline: set[int], context: object) -> None:
    """Append with another writer, at first without the disks that are gone."""
    process = disks.writer()
    process.offline |= offline
    with process.open() as log:
        log.append(records("z"))
        values = values_of(log)
        expected = [*BEFORE, *DURING]
        there = values[: values.index("z")]
        assert there == expected[: len(there)], context
        assert len(there) >= len(BEFORE) + len(acknowledged), context
        process.offline.clear()
        disks.clock.advance(2000)
        log.append(records("y"))
        log.append(records("x"))
        assert values_of(log) == [*there, "z", "y", "x"], context
        assert process.state().isr == (1, 2, 3), context
    assert disks.log_bytes(1) == disks.log_bytes(2) == disks.log_bytes(3), context


@pytest.mark.parametrize(
    ("power", "offline"),
    [(False, set()), (True, set()), (False, {1})],
    ids=["writer", "machine", "leader's disk"],
)
def test_a_writer_that_dies_at_any_operation_loses_nothing_acknowledged(
    power: bool, offline: set[int]
) -> None:
    made = prepared(**{"flush.messages": "1"})
    start = made.disks
    at = 0
    while True:
        at += 1
        made.disks = {
            node: disk.crash_clone(Random(at), power=False) for node, disk in start.items()
        }
        try:
            acknowledged = run(made, at)
        except StopIteration:
            break
        restart(made, power=power, seed=at)
        check(made, acknowledged, offline, at)
    assert at > 100
