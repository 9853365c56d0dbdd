"""Commits to topics of a replica set that not every root holds."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamlog.arrow.table_writer import write_table
from streamlog.arrow.tables import read_table
from streamlog.commits.commit_files import CommitFiles
from streamlog.errors import InvalidRequestError, UnavailableError
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.replication.election import ElectionType
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.register_file import RegisterFile
from streamlog.replication.root_set import COMMITS, RootSet
from streamlog.root.manager import LogManager
from streamlog.root.replica_roots import add_root
from streamlog.root.replica_set import ReplicaSet
from streamlog.root.roots import make_root
from tests.support.crash import CrashState, crash_states

NAMES = ("a", "b", "c")
STEP = int(os.environ.get("STREAMLOG_CRASH_STEP", "13"))  # 1: every operation


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Return three roots: `t` has replicas in all, `alone` is in the first one only."""
    paths = [tmp_path / name for name in NAMES]
    make_root(LogRoot.at(paths[0]))
    for path in paths[1:]:
        add_root(LogRoot.at(paths[0]), path)
    with LogManager.open(paths[0]) as manager:
        manager.create_topic("t", 1, replication_factor=3)
        manager.create_topic("alone", 1)
    return paths


def state_of(root: Path, name: str = COMMITS) -> PartitionState:
    found = RootSet.load(LogRoot.at(root))
    assert found is not None
    return found.register(name).read()


def lead_commits(root: Path, node: int) -> None:
    """Make another root the leader of the commits, as an election does."""
    found = RootSet.load(LogRoot.at(root))
    assert found is not None
    register = found.register(COMMITS)
    state = register.read()
    register.change(lambda now: now.with_leader(node), state.partition_epoch)


def write(root: object, topic: str, *values: str, version: int | None = None) -> bool:
    rows = pa.table({"value": [value.encode() for value in values]})
    app = None if version is None else "app"
    return write_table(rows, root, topic, txn_app_id=app, txn_version=version).is_replay


def write_rows(root: object, version: int | None, **rows: str) -> bool:
    """Write a row to each of several topics."""
    table = pa.table({"topic": [*rows], "value": [value.encode() for value in rows.values()]})
    app = None if version is None else "rows"
    return write_table(table, root, txn_app_id=app, txn_version=version).is_replay


def values(root: Path, topic: str) -> list[str]:
    return [each.decode() for each in read_table(root / f"{topic}-0").column("value").to_pylist()]


@pytest.mark.parametrize("leader", [1, 2])
def test_a_topic_without_replicas_is_written_whichever_root_leads(
    roots: list[Path], leader: int
) -> None:
    write(roots[0], "t", "first")
    lead_commits(roots[0], leader)
    assert not write(roots[0], "alone", "1", version=0)
    assert not write(roots[1], "alone", "2", version=1)
    assert write(roots[2], "alone", "2", version=1)
    assert values(roots[0], "alone") == ["1", "2"]
    assert state_of(roots[0]).leader == leader, "its commits stay in its own root"


def test_its_history_outlives_every_election(roots: list[Path]) -> None:
    write(roots[0], "alone", "0", version=0)
    write(roots[0], "t", "first")
    for version, leader in enumerate((2, 1, 3, 1), start=1):
        lead_commits(roots[0], leader)
        write(roots[0], "t", f"under {leader}")
        assert write(roots[0], "alone", f"{version - 1}", version=version - 1)
        assert not write(roots[0], "alone", f"{version}", version=version)
        with LogManager.open(roots[0]) as manager:
            manager.commits.retire()
    assert values(roots[0], "alone") == ["0", "1", "2", "3", "4"]


def test_a_mixed_commit_moves_the_commits_to_the_root_of_its_topic(roots: list[Path]) -> None:
    write(roots[0], "t", "first")
    lead_commits(roots[0], 2)
    assert not write_rows(roots[1], 0, t="t0", alone="a0")
    assert state_of(roots[0]).leader == 1
    assert not write_rows(roots[1], 1, alone="a1")
    lead_commits(roots[0], 3)
    assert write_rows(roots[2], 1, alone="a1"), "the history follows the leader"
    assert not write_rows(roots[2], 2, t="t2", alone="a2")
    assert values(roots[0], "alone") == ["a0", "a1", "a2"]
    for root in roots:
        assert values(root, "t") == ["first", "t0", "t2"]


def test_a_commit_to_topics_without_a_common_root_is_refused(roots: list[Path]) -> None:
    with LogManager.open(roots[1]) as manager:
        manager.create_topic("other", 1)
    with pytest.raises(InvalidRequestError, match="no log root"):
        write_rows(roots[0], None, alone="1", other="2")
    assert values(roots[0], "alone") == [] == values(roots[1], "other")
    write_rows(roots[0], None, other="2")
    write_rows(roots[0], None, t="3", other="4")
    assert values(roots[1], "other") == ["2", "4"]


def test_a_topic_with_fewer_replicas_than_roots_is_written_whichever_root_leads(
    roots: list[Path],
) -> None:
    with LogManager.open(roots[0]) as manager:
        manager.create_topic("two", 1, replication_factor=2)
    lead_commits(roots[0], 3)
    assert not write(roots[2], "two", "1", version=0)
    assert state_of(roots[0]).leader in (1, 2)
    for root in roots[:2]:
        assert values(root, "two") == ["1"]


def test_two_topics_of_one_name_are_refused(roots: list[Path]) -> None:
    with LogManager.open(roots[1]) as manager:
        manager.create_topic("alone", 1)
    with pytest.raises(InvalidRequestError, match="several log roots"):
        write(roots[2], "alone", "1")


# ---- the topic's root is lost, and returns ------------------------------------------------------
def prepared_set() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    roots = [LogRoot.at(f"/{name}", fs=fs) for name in NAMES]
    make_root(roots[0])
    for root in roots[1:]:
        add_root(roots[0], root.path)
    with LogManager.open("/a", fs=fs) as manager:
        manager.create_topic("t", 1, replication_factor=3)
        manager.create_topic("alone", 1)
    return fs


def write_both(fs: FileSystem, acknowledged: list[Any]) -> None:
    rows = pa.table({"topic": ["t", "alone"], "value": [b"t0", b"a0"]})
    write_table(rows, "/a", txn_app_id="rows", txn_version=0, fs=fs)
    acknowledged.append(0)


def rows_in(fs: FileSystem, path: str) -> list[str]:
    with LogReader.open(path, fs=fs) as reader:
        return [(record.value or b"").decode() for record in reader.records()]


def killed_before_each_operation(
    workload: Callable[[FileSystem, list[Any]], None], prepared: MemoryFileSystem
) -> list[CrashState]:
    states = crash_states(workload, prepared=prepared, seeds=())
    killed = [each for each in states if each.description.startswith("process killed before")]
    return killed[::STEP]


def test_both_parts_of_a_mixed_commit_survive_the_loss_and_return_of_its_root() -> None:
    outcomes = set()
    for state in killed_before_each_operation(write_both, prepared_set()):
        fs = state.fs
        fs.rename("/a", "/away")
        with LogManager.open("/b", fs=fs) as manager:
            decided = manager.commits.last_version("rows/*")
        assert decided == 0 or not state.acknowledged, state
        fs.rename("/away", "/a")
        with LogManager.open("/b", fs=fs) as manager:
            manager.commits.retire()
        if decided is None:
            write_both(fs, [])
        with ReplicaSet.open("/b", fs=fs) as replicas:
            replicas.replicate_once()
        outcomes.add((decided, *rows_in(fs, "/a/alone-0")))
        assert rows_in(fs, "/a/alone-0") == ["a0"], state
        for name in NAMES:
            assert rows_in(fs, f"/{name}/t-0") == ["t0"], state
    assert outcomes == {(None, "a0"), (0, "a0")}


# ---- a new leader of the commits that lacks records ----------------------------------------------
def append_plain(fs: FileSystem, root: str, topic: str, value: bytes) -> None:
    with LogManager.open(root, fs=fs) as manager:
        manager.log(topic, 0).append([Record(None, value, (), 0)])


def lagging_set(*lagging: str) -> MemoryFileSystem:
    """Return a set where `t` has a record that some roots lack, which follow the commits."""
    fs = prepared_set()
    with LogManager.open("/a", fs=fs) as manager:
        manager.create_topic("s", 1, replication_factor=3)
    write_t(fs, [], "s", 0)
    for name in lagging:
        fs.rename(f"/{name}", f"/{name}-away")
        append_plain(fs, "/a", "t", f"without {name}".encode())
        fs.rename(f"/{name}-away", f"/{name}")
    return fs


def write_t(fs: FileSystem, acknowledged: list[Any], topic: str = "t", version: int = 0) -> bool:
    rows = pa.table({"value": [f"{topic}{version}".encode()]})
    outcome = write_table(
        rows, "/a,/b,/c", topic, txn_app_id="app", txn_version=version, acks=1, fs=fs
    )
    acknowledged.append(version)
    return outcome.is_replay


def test_a_leader_of_the_commits_behind_in_a_partition_catches_up_first() -> None:
    outcomes = set()
    for state in killed_before_each_operation(write_t, lagging_set("b")):
        fs = state.fs
        fs.rename("/a", "/away")
        is_replay = write_t(fs, [])
        assert is_replay or not state.acknowledged, state
        outcomes.add(is_replay)
        write_t(fs, [], version=1)
        fs.rename("/away", "/a")
        with ReplicaSet.open("/b", fs=fs) as replicas:
            replicas.replicate_once()
        for name in NAMES:
            assert rows_in(fs, f"/{name}/t-0") == ["without b", "t0", "t1"], (state, name)
    assert outcomes == {False, True}


def test_commits_go_on_while_a_partition_has_no_replica_in_sync() -> None:
    outcomes = set()
    for state in killed_before_each_operation(write_t, lagging_set("c", "b")):
        fs = state.fs
        found = RegisterFile(LogRoot.at("/c", fs=fs), "t-0").read()
        if found is None or found.state is None or found.state.isr != (1,):
            continue  # the others have caught up
        fs.rename("/a", "/away")
        write_t(fs, [], "s", 1)
        with LogManager.open("/b", fs=fs) as manager:
            decided = manager.commits.last_version("app/t") == 0
            manager.commits.retire_idle()
        assert decided or not state.acknowledged, state
        outcomes.add(decided)
        fs.rename("/away", "/a")
        assert write_t(fs, []) is decided
        with ReplicaSet.open("/b", fs=fs) as replicas:
            replicas.replicate_once()
        for name in NAMES:
            assert rows_in(fs, f"/{name}/t-0") == ["without c", "without b", "t0"], (state, name)
            assert rows_in(fs, f"/{name}/s-0") == ["s0", "s1"], (state, name)
    assert outcomes == {False, True}


# ---- other writers, while a commit may be decided ------------------------------------------------
def write_two(fs: FileSystem, acknowledged: list[Any]) -> bool:
    rows = pa.table({"topic": ["s", "t"], "value": [b"s1", b"t1"]})
    outcome = write_table(rows, "/a,/b,/c", txn_app_id="rows", txn_version=1, fs=fs)
    acknowledged.append(1)
    return outcome.is_replay


def test_no_writer_takes_the_offsets_of_a_commit_that_may_be_decided() -> None:
    outcomes = set()
    for state in killed_before_each_operation(write_two, lagging_set()):
        fs = state.fs
        fs.rename("/a", "/away")
        try:
            append_plain(fs, "/b", "t", b"plain")
            plain = ["plain"]
        except UnavailableError as error:
            assert "may be decided" in str(error), state
            plain = []
        is_replay = write_two(fs, [])
        assert is_replay or not state.acknowledged, state
        append_plain(fs, "/b", "t", b"last")
        outcomes.add((is_replay, *plain))
        with ReplicaSet.open("/b", fs=fs) as replicas:
            replicas.replicate_once()
        for name in ("b", "c"):
            assert sorted(rows_in(fs, f"/{name}/t-0")) == ["last", *plain, "t1"], (state, name)
            assert rows_in(fs, f"/{name}/s-0") == ["s0", "s1"], (state, name)
    assert outcomes == {(False, "plain"), (True,), (True, "plain")}


def test_replicate_ends_commits_whose_driver_died() -> None:
    for state in killed_before_each_operation(write_two, lagging_set()):
        fs = state.fs
        with ReplicaSet.open("/b", fs=fs) as replicas:
            replicas.elect("t", 0, ElectionType.PREFERRED)
            replicas.replicate_once()
        own = CommitFiles(LogRoot.at("/a", fs=fs), 5)
        for name in ("b", "c"):
            files = CommitFiles(LogRoot.at(f"/{name}", fs=fs), 5)
            assert files.prepared.names() == own.pending.names(), state
        assert len(rows_in(fs, "/b/t-0")) + 1 == len(rows_in(fs, "/b/s-0")), state
        append_plain(fs, "/b", "t", b"last")
