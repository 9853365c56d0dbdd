"""A replica set on real directories: written, administered, with roots that go and come back."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.errors import StreamLogError, UnavailableError
from streamlog.fs.log_root import LogRoot
from streamlog.records.record import Record
from streamlog.replication.election import ElectionType
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from streamlog.root.replica_roots import add_root
from streamlog.root.replica_set import ReplicaSet


def records(*values: str) -> list[Record]:
    return [Record(None, value.encode(), (), 1) for value in values]


def values_of(log: PartitionLog) -> list[str]:
    return [(record.value or b"").decode() for record in log.records()]


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Four log roots of one set; the topic `orders` has replicas in the first three."""
    paths = [tmp_path / f"r{number}" for number in range(1, 5)]
    with LogManager.open(paths[0], create=True) as manager:
        manager.create_topic("first")
    for path in paths[1:]:
        add_root(LogRoot.at(paths[0]), path)
    with LogManager.open(paths[0]) as manager:
        manager.create_topic("orders", 2, replication_factor=3)
    return paths


@pytest.fixture
def replicas(roots: list[Path]) -> Iterator[ReplicaSet]:
    with ReplicaSet.open(roots[0]) as opened:
        yield opened


def log_files(root: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (root / "orders-0").glob("*.log")}


def test_any_root_of_the_set_writes_through_the_leader(roots: list[Path]) -> None:
    for number, root in enumerate(roots[:3]):
        with LogManager.open(root) as manager:
            assert manager.log("orders", 0).root == str(roots[0])
            manager.log("orders", 0).append(records(f"m{number}"))
        with PartitionLog.open(root / "orders-0") as log:
            log.append(records(f"p{number}"))
            assert values_of(log)[-2:] == [f"m{number}", f"p{number}"]
    assert log_files(roots[0]) == log_files(roots[1]) == log_files(roots[2])


def test_describe_shows_each_replica(replicas: ReplicaSet, roots: list[Path]) -> None:
    replicas.log("orders", 0).append(records("a"))
    described = replicas.describe("orders")
    assert [each.partition.partition for each in described] == [0, 1]
    state = described[0].state
    assert (state.leader, state.replicas, state.isr) == (1, (1, 2, 3), (1, 2, 3))
    assert described[0].end_offset == 1
    assert [described[0].lag(each) for each in described[0].replicas] == [0, 0, 0]


def test_a_root_removed_under_load_and_returned(replicas: ReplicaSet, roots: list[Path]) -> None:
    log = replicas.log("orders", 0)
    log.append(records("a"))
    away = roots[0].with_name("away")
    roots[0].rename(away)
    for value in "bcd":
        for _ in range(3):
            try:
                log.append(records(value))
                break
            except UnavailableError:
                continue
    assert log.root == str(roots[1])
    assert values_of(log)[0] == "a" and values_of(log)[-1] == "d"
    away.rename(roots[0])
    assert replicas.replicate_once() == {}
    assert log.partition_state.isr == (1, 2, 3)
    assert replicas.elect("orders", 0, ElectionType.PREFERRED).leader == 1
    log.append(records("e"))
    assert log.root == str(roots[0])
    values = values_of(log)
    log.append(records("f"))
    assert values_of(log) == [*values, "f"]
    assert log_files(roots[0]) == log_files(roots[1]) == log_files(roots[2])


def test_an_emptied_root_refills(replicas: ReplicaSet, roots: list[Path]) -> None:
    log = replicas.log("orders", 0)
    for number in range(20):
        log.append(records(f"{number}" * 1000))
    shutil.rmtree(roots[1])
    roots[1].mkdir()
    log.append(records("after"))
    assert replicas.replicate_once() == {}
    with log.writing():
        assert log.partition_state.isr == (1, 2, 3)
    assert log_files(roots[1]) == log_files(roots[0])


def test_a_partition_moves_to_another_root(replicas: ReplicaSet, roots: list[Path]) -> None:
    log = replicas.log("orders", 0)
    log.append(records("a", "b"))
    state = replicas.reassign("orders", 0, [4, 2])
    assert (state.replicas, state.isr, state.leader) == ((4, 2), (4, 2), 4)
    assert (state.adding, state.removing) == ((), ())
    assert not (roots[0] / "orders-0").exists()
    assert list(roots[0].glob("orders-0.*-stray"))
    log.append(records("c"))
    assert log.root == str(roots[3])
    assert values_of(log) == ["a", "b", "c"]
    assert log_files(roots[3]) == log_files(roots[1])
    with LogManager.open(roots[0]) as manager:
        manager.log("orders", 0).append(records("d"))
        assert values_of(manager.log("orders", 0)) == ["a", "b", "c", "d"]


def test_a_reassignment_that_cannot_catch_up_continues_later(
    replicas: ReplicaSet, roots: list[Path]
) -> None:
    log = replicas.log("orders", 0)
    log.append(records("a"))
    (roots[3] / "orders-0").mkdir()
    broken = roots[3] / "orders-0" / "partition.metadata"
    broken.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    with pytest.raises(UnavailableError, match="not in sync yet"):
        replicas.reassign("orders", 0, [1, 2, 4])
    log.append(records("b"))
    broken.unlink()
    state = replicas.reassign("orders", 0, [1, 2, 4])
    assert (state.replicas, state.isr) == ((1, 2, 4), (1, 2, 4))
    assert log_files(roots[3]) == log_files(roots[0])


def test_an_unclean_election_with_one_root_left(roots: list[Path], tmp_path: Path) -> None:
    with ReplicaSet.open(roots) as replicas:
        log = replicas.log("orders", 0)
        log.append(records("a"))
    for root in (roots[0], roots[1], roots[3]):
        root.rename(root.with_name(f"{root.name}-gone"))
    with ReplicaSet.open(roots[2]) as replicas:
        with pytest.raises(UnavailableError, match="no majority"):
            replicas.log("orders", 0)
        assert replicas.elect("orders", 0, ElectionType.UNCLEAN).leader == 3
        log = replicas.log("orders", 0)
        log.append(records("b"))
        assert values_of(log) == ["a", "b"]


def test_no_replica_in_sync_is_online(roots: list[Path]) -> None:
    with ReplicaSet.open(roots) as replicas:
        log = replicas.log("orders", 0)
        log.append(records("a"))
        roots[2].rename(roots[2].with_name("gone"))
        log.append(records("b"))
        roots[1].rename(roots[1].with_name("gone2"))
        with pytest.raises(StreamLogError):
            log.append(records("c"))


def test_follow_brings_back_a_replica_while_another_process_writes(roots: list[Path]) -> None:
    stop = threading.Event()
    with ReplicaSet.open(roots) as writer, ReplicaSet.open(roots) as follower:
        thread = threading.Thread(target=follower.follow, args=(stop,), kwargs={"every_ms": 20})
        thread.start()
        try:
            log = writer.log("orders", 0)
            for number in range(50):
                log.append(records(f"{number}"))
            assert values_of(log) == [f"{number}" for number in range(50)]
        finally:
            stop.set()
            thread.join()
    assert log_files(roots[0]) == log_files(roots[1]) == log_files(roots[2])
