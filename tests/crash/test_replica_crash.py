"""Commits of a replica set whose driver dies, or whose disks are lost, at any file operation.

After each loss the query continues as Spark would: from the first unacknowledged version, after
repeating the last acknowledged one. At the end every row of every version is in the log once, on
the new leader and on its followers, and a root that returns holds the same bytes as the leader.
"""

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from streamlog.commits.replay import Verdict
from streamlog.errors import StreamLogError, UnknownOutcomeError
from streamlog.fs.api import FileSystem
from streamlog.fs.faults import Fault, FaultyFileSystem, Moment
from streamlog.fs.files import read_file
from streamlog.fs.memory import MemoryFileSystem
from tests.support.commits import LOG, PARTITIONS, ROOT, TOPIC, rows_of
from tests.support.replica_commits import (
    ALL_PARTITIONS,
    NODES,
    Point,
    World,
    every_point,
    lost_disk,
    replicated_world,
)

LAST = 3
STEP = int(os.environ.get("STREAMLOG_CRASH_STEP", "3"))  # 1: all points for all losses


def prepared() -> World:
    world = replicated_world()
    scene = world.process().scene
    scene.commit(0)
    scene.append(0, b"plain 0")
    scene.manager.close()
    return world


def workload(world: World, acknowledged: list[Any]) -> None:
    scene = world.process(1, seed=1_000_000_001).scene
    scene.commit(1)
    acknowledged.append(1)
    scene.append(1, b"plain 1")
    acknowledged.append("plain 1")
    scene.commits.retire()
    scene.commit(2)
    acknowledged.append(2)


POINTS: list[Point] = []


def points() -> list[Point]:
    if not POINTS:
        POINTS.extend(every_point(prepared(), workload))
    return POINTS


def check(world: World, acknowledged: Sequence[Any], *, lost_power: bool = False) -> None:
    """Go on with the query, and check all replicas."""
    process = world.process(seed=1_000_000_002)
    scene = process.scene
    process.lead(ALL_PARTITIONS)
    scene.append(0, b"plain 2")
    done = max((each for each in acknowledged if isinstance(each, int)), default=0)
    for version in range(done, LAST + 1):
        outcome = scene.commit(version)
        if version == done:
            assert outcome.verdict is Verdict.REPLAY
    for partition in range(PARTITIONS):
        expected = [row for version in range(LAST + 1) for row in rows_of(version, partition)]
        for node in world.state.isr:
            values = world.values(node, partition)
            assert [row for row in values if b"plain" not in (row or b"")] == expected, node
            plain = [row for row in values if b"plain" in (row or b"")]
            assert len(plain) == len(set(plain)) and plain == sorted(each or b"" for each in plain)
            wanted = [b"plain 0", b"plain 2"] if partition == 0 else []
            if partition == 1 and "plain 1" in acknowledged and not lost_power:
                wanted = [b"plain 1"]
            assert set(wanted) <= set(plain)


def check_same(world: World, node: int) -> None:
    """Check that a root that returned holds the bytes of the leader."""
    leader = world.leader
    for partition in range(PARTITIONS):
        path = f"{ROOT}/{TOPIC}-{partition}/{LOG}"
        ours, theirs = (
            read_file(world.disks[each], path, max_size=1 << 20) for each in (leader, node)
        )
        assert ours == theirs, f"{path} differs"
    mirror = world.process().mirror
    own, files = mirror.own, mirror.files(node)
    assert files.pending.names() == []
    assert files.prepared.names() == own.pending.names()
    for name in own.pending.names():
        assert files.prepared.content(name) == own.pending.content(name)
    for key in own.ledger_keys():
        assert files.ledger(key) == own.ledger(key)


def every(judge: Callable[[Point], None], *, step: int = STEP) -> None:
    for point in points()[::step]:
        try:
            judge(point)
        except Exception as error:
            raise AssertionError(
                f"{point}, acknowledged {point.acknowledged}: {error!r}"
            ) from error


def test_there_are_many_points() -> None:
    assert len(points()) > 200
    assert {point.node for point in points()} == {0, *NODES}


def test_a_driver_that_dies_loses_nothing() -> None:
    every(lambda point: check(point.without(), point.acknowledged), step=1)


@pytest.mark.parametrize("loss", ["nothing", "everything"])
def test_a_power_cut_of_all_loses_nothing(loss: str) -> None:
    def judge(point: Point) -> None:
        world = point.without(power=True, loss=loss)
        world.elect_longest()
        check(world, point.acknowledged, lost_power=True)  # a plain append is not synced

    every(judge)


def test_losing_the_leaders_disk_loses_nothing_and_it_returns_equal() -> None:
    def judge(point: Point) -> None:
        world = point.without(1)
        assert world.elect() == 2
        check(world, point.acknowledged)
        world.disks[1] = point.disk(1)  # with decisions that may never have been copied
        world.process().rejoin(1)
        assert set(world.state.isr) == set(NODES)
        check_same(world, 1)
        check_same(world, 3)

    every(judge, step=1)


def test_losing_the_leaders_disk_and_power_loses_nothing() -> None:
    def judge(point: Point) -> None:
        world = point.without(1, power=True, loss="everything")
        assert world.elect() == 2
        check(world, point.acknowledged, lost_power=True)

    every(judge)


@pytest.mark.parametrize("lost", [2, 3])
def test_losing_a_followers_disk_loses_nothing_and_it_returns_equal(lost: int) -> None:
    def judge(point: Point) -> None:
        world = point.without(lost)
        check(world, point.acknowledged)
        assert world.leader == 1
        world.disks[lost] = point.disk(lost)
        world.process().rejoin(lost)
        check_same(world, lost)

    every(judge)


def test_losing_the_new_leaders_disk_too_loses_nothing() -> None:
    def judge(point: Point) -> None:
        world = point.without(1)
        assert world.elect() == 2
        world.process()  # takes over
        world.disks[1] = point.disk(1)
        world.process().rejoin(1)
        world.lose(2)
        assert world.elect() == 3
        check(world, point.acknowledged)

    every(judge)


# ---- disks that fail or fill up, and a driver that goes on ---------------------------------------
def one_commit(world: World) -> StreamLogError | None:
    """Commit a version and retire; return the error of the commit."""
    try:
        scene = world.process(1, seed=1_000_000_003).scene
        scene.commit(1)
    except StreamLogError as error:
        return error
    with contextlib.suppress(StreamLogError):
        scene.commits.retire()
    return None


def with_fault(node: int, *faults: Fault) -> tuple[World, FaultyFileSystem]:
    """Return the prepared roots, the disk of one of them with a fault."""
    world = prepared_once()
    disks: dict[int, FileSystem] = dict(clones(world))
    disks[node] = faulty = FaultyFileSystem(disks[node], *faults)
    return World(disks), faulty


def clones(world: World) -> dict[int, MemoryFileSystem]:
    found = {}
    for node, disk in world.disks.items():
        memory = disk.inner if isinstance(disk, FaultyFileSystem) else disk
        assert isinstance(memory, MemoryFileSystem)
        found[node] = memory.crash_clone(Random(0), power=False)
    return found


@functools.cache
def prepared_once() -> World:
    return prepared()


def check_after_fault(node: int, fault: Fault) -> None:
    world, _ = with_fault(node, fault)
    error = one_commit(world)
    where = f"{fault}, {error!r}"
    assert error is None or fault.errno is not None, where
    after = World(dict(clones(world)))
    decided = "query-1%2Ft@00000000000000000002" in after.process(1).mirror.own.pending.names()
    is_known = error is None or isinstance(error, UnknownOutcomeError) or decided
    for partition in range(PARTITIONS):
        for each in NODES:
            rows = [row for row in after.values(each, partition) if row in rows_of(1, partition)]
            assert is_known or rows == [], (where, each, partition)
    acknowledged = [1] if error is None else []
    check(World(dict(clones(after))), acknowledged)
    if node == 1:
        lost = World({**clones(after), 1: lost_disk()})
        assert lost.elect() == 2, where
        check(lost, acknowledged)
    elif after.state.isr != NODES:
        check(after, acknowledged)
        after.process().rejoin(node)
        check_same(after, node)


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize(
    "fault",
    [
        Fault(errno=errno.EIO),
        Fault(errno=errno.EIO, moment=Moment.AFTER),
        Fault(errno=errno.EIO, is_lasting=True),
        Fault(errno=errno.ENOSPC, operation="pwrite", is_lasting=True, moment=Moment.TORN),
        Fault(errno=errno.ENOSPC, operation="create", is_lasting=True),
        Fault(errno=errno.ENOSPC, operation="link", is_lasting=True),
    ],
    ids=["EIO", "EIO after", "EIO lasting", "full", "no inode", "no link"],
)
def test_a_failing_disk_leaves_a_commit_whole_or_absent(node: int, fault: Fault) -> None:
    world, faulty = with_fault(node)
    assert one_commit(world) is None
    count = sum(each.name == (fault.operation or each.name) for each in faulty.operations)
    step = STEP if count > STEP else 1
    for at in range(1, count + 1, step):
        try:
            check_after_fault(node, replace(fault, at=at))
        except Exception as failure:
            raise AssertionError(f"at {at} of {count} on node {node}: {failure!r}") from failure
