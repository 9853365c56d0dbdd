"""Replica sets: their roots, and topics in all of them; crashes at every step, lost roots."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.errors import (
    CorruptCheckpointError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    InvalidUpdateVersionError,
    NoQuorumError,
    TopicExistsError,
    UnknownTopicError,
)
from streamlog.fs.api import FileStat, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem, Moment, SimulatedCrash
from streamlog.fs.files import remove_tree
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.meta_properties import read_meta_properties, write_meta_properties
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.partition.reader import LogReader
from streamlog.partition.topic_config import read_topic_properties
from streamlog.records.record import Record
from streamlog.replication.register_file import RegisterFile
from streamlog.replication.root_set import RootSet, read_root_list
from streamlog.root import replicated_topics
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from streamlog.root.replica_roots import add_root, remove_root
from streamlog.root.replicated_topics import restore, restore_if_due
from streamlog.root.roots import make_root
from streamlog.root.topics import list_topics, topic_exists

SEEDS = itertools.count()
HOME = "/a"
PATHS = ("/a", "/b", "/c")


class Disks(MemoryFileSystem):
    """One file system with the directories of several roots, each on a device of its own."""

    def __init__(self) -> None:
        super().__init__(clock=ManualClock())
        self.unmounted: set[str] = set()
        self.is_mounted = False

    def stat(self, path: str) -> FileStat | None:
        found = super().stat(path)
        top = "/" + path.split("/")[1]
        if found is None or not self.is_mounted or top in self.unmounted or path == "/":
            return found
        return found._replace(device=1 + ord(top[1]))


def at(fs: Any, path: str = HOME) -> LogRoot:
    return LogRoot(path, fs, ManualClock(), Random(next(SEEDS)))


def set_of(fs: Any, path: str = HOME) -> RootSet:
    found = RootSet.load(at(fs, path))
    assert found is not None
    return found


def manager(fs: Any, path: str = HOME) -> LogManager:
    return LogManager.open(path, fs=fs, clock=ManualClock(), random=Random(next(SEEDS)))


@pytest.fixture
def fs() -> Disks:
    made = Disks()
    make_root(at(made))
    for path in PATHS[1:]:
        add_root(at(made), path)
    return made


def lose(fs: MemoryFileSystem, path: str) -> None:
    fs.rename(path, f"{path}.lost")


def bring_back(fs: MemoryFileSystem, path: str) -> None:
    fs.rename(f"{path}.lost", path)


def state(fs: Any, name: str = "orders-0", path: str = HOME) -> Any:
    return set_of(fs, path).register(name).read()


# ---- the list ---------------------------------------------------------------------------------
def test_added_roots_share_the_cluster_and_have_ids_of_their_own(fs: Disks) -> None:
    metas = [read_meta_properties(fs, path) for path in PATHS]
    assert len({meta.cluster_id for meta in metas if meta}) == 1
    assert [meta.node_id for meta in metas if meta] == [1, 2, 3]
    assert len({meta.directory_id for meta in metas if meta}) == 3
    for path in PATHS:
        listed = set_of(fs, path).list
        assert [(each.node, each.path) for each in listed.roots] == [
            (1, "/a"),
            (2, "/b"),
            (3, "/c"),
        ]
        assert listed == read_root_list(at(fs))


def test_a_single_root_has_no_list() -> None:
    fs = MemoryFileSystem()
    make_root(at(fs))
    assert RootSet.load(at(fs)) is None


def test_several_paths_open_one_set(fs: Disks) -> None:
    lose(fs, "/a")
    found = RootSet.open([at(fs, "/a"), at(fs, "/b")])
    assert found is not None and found.home.path == "/b"
    with pytest.raises(InvalidRequestError, match="does not belong"):
        RootSet.open([at(fs, "/b"), at(fs, "/other")])
    with fs.open("/b/.streamlog/replicas.json", OpenMode.WRITE) as file:
        file.truncate(100)
    with pytest.raises(CorruptCheckpointError):
        RootSet.open([at(fs, "/a"), at(fs, "/b")])


@pytest.mark.parametrize(
    ("path", "message"),
    [("/b/inner", "contain"), ("/", "contain")],
)
def test_overlapping_directories_are_refused(fs: Disks, path: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        add_root(at(fs), path)


def test_adding_a_listed_root_changes_nothing(fs: Disks) -> None:
    before = set_of(fs).list
    assert add_root(at(fs), "/b").root.node == 2
    assert set_of(fs).list == before


def test_a_link_to_a_listed_root_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    home = LogRoot.at(tmp_path / "a")
    make_root(home)
    added = add_root(home, tmp_path / "b")
    assert added.shares_disk_with == (str(tmp_path / "a"),)
    with pytest.raises(InvalidRequestError, match="already"):
        add_root(home, tmp_path / "link")


def test_a_root_of_another_cluster_is_refused(fs: Disks) -> None:
    make_root(at(fs, "/d"))
    with pytest.raises(InvalidRequestError, match="another cluster"):
        add_root(at(fs), "/d")


def test_a_directory_with_other_files_is_refused(fs: Disks) -> None:
    fs.make_directory("/d")
    fs.make_directory("/d/photos")
    with pytest.raises(InvalidRequestError, match="not empty"):
        add_root(at(fs), "/d")
    assert fs.list("/d") == ["photos"]


def test_a_root_that_has_moved_is_listed_at_its_new_path(fs: Disks) -> None:
    fs.rename("/c", "/d")
    assert add_root(at(fs), "/d").root.node == 3
    assert [each.path for each in set_of(fs).list.roots] == ["/a", "/b", "/d"]


def test_a_copy_of_a_root_that_is_online_is_refused(fs: Disks) -> None:
    make_root(at(fs, "/d"))
    meta = read_meta_properties(fs, "/c")
    assert meta is not None
    write_meta_properties(fs, "/d", meta)
    with pytest.raises(InvalidRequestError, match="copy of a log root"):
        add_root(at(fs), "/d")


def test_a_returning_root_with_other_topics_of_the_same_name_is_refused(fs: Disks) -> None:
    remove_root(at(fs), "3")
    with manager(fs, "/c") as other:
        other.create_topic("orders", 1)
    with manager(fs) as ours:
        ours.create_topic("orders", 1, replication_factor=2)
    with pytest.raises(InvalidRequestError, match=r"same names.*orders-0"):
        add_root(at(fs), "/c")


def test_a_removed_root_keeps_its_own_topics_and_votes_no_more(fs: Disks) -> None:
    with manager(fs, "/c") as other:
        other.create_topic("own")
    with manager(fs) as ours:
        ours.create_topic("orders", 1, replication_factor=2)
    assert remove_root(at(fs), "/c").node == 3
    assert RootSet.load(at(fs, "/c")) is None
    assert list_topics(at(fs, "/c")) == ["own"]
    assert not replicated_topics.is_replicated(at(fs, "/c"), "orders")
    assert set_of(fs).node_ids == (1, 2)
    assert set(set_of(fs).register("orders-0").voters()) == {1, 2}
    added = add_root(at(fs), "/d")
    assert added.root.node == 4  # no node is given twice
    assert set(set_of(fs).register("orders-0").voters()) == {1, 2, 4}


def test_a_root_with_replicas_is_not_removed(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("orders", 1, replication_factor=2)
    with pytest.raises(InvalidRequestError, match=r"holds replicas.*orders-0"):
        remove_root(at(fs), "2")
    with pytest.raises(InvalidRequestError, match="remove itself"):
        remove_root(at(fs), "1")
    with pytest.raises(InvalidRequestError, match="no such log root"):
        remove_root(at(fs), "7")


def test_a_majority_is_needed_to_change_the_list(fs: Disks) -> None:
    lose(fs, "/b")
    add_root(at(fs), "/d")  # 3 of 4
    lose(fs, "/c")
    with pytest.raises(NoQuorumError, match=r"node 2 \(/b\); node 3 \(/c\)"):
        add_root(at(fs), "/e")
    bring_back(fs, "/b")
    restore(set_of(fs, "/b"))
    assert read_root_list(at(fs, "/b")) == set_of(fs).list


def test_a_list_that_has_changed_is_loaded_again(fs: Disks) -> None:
    before = set_of(fs)
    add_root(at(fs), "/d")
    with pytest.raises(InvalidUpdateVersionError), replicated_topics.lists_locked(before, what="x"):
        raise AssertionError


# ---- online, offline, emptied -----------------------------------------------------------------
def test_a_root_is_online_if_it_is_the_listed_one(fs: Disks) -> None:
    assert set(set_of(fs).online()) == {1, 2, 3}
    lose(fs, "/b")
    assert "missing" in str(set_of(fs).problem(2))
    bring_back(fs, "/b")
    fs.rename("/b", "/x")
    fs.rename("/c", "/b")
    fs.rename("/x", "/c")
    for node in (2, 3):
        assert "another log root is in this place" in str(set_of(fs).problem(node))
    assert set(set_of(fs).online()) == {1}


def test_a_mount_point_that_is_not_mounted_is_offline_though_empty() -> None:
    fs = Disks()
    fs.is_mounted = True
    make_root(at(fs))
    added = add_root(at(fs), "/b")
    assert added.root.is_mount
    assert added.shares_disk_with == ()
    add_root(at(fs), "/c")
    remove_tree(fs, "/b")
    fs.make_directory("/b")
    fs.unmounted.add("/b")
    roots = set_of(fs)
    assert "not mounted" in str(roots.problem(2))
    restore(roots)
    assert fs.list("/b") == []  # the disk below is not filled
    fs.unmounted.clear()
    assert roots.is_emptied(2)
    restore(roots)
    assert roots.problem(2) is None


def test_an_emptied_root_is_made_again_under_its_node(fs: Disks) -> None:
    with manager(fs) as ours:
        topic_id = ours.create_topic(
            "orders", 2, {"retention.ms": 5}, replication_factor=3
        ).topic_id
    remove_tree(fs, "/b")
    fs.make_directory("/b")
    roots = set_of(fs)
    assert "empty" in str(roots.problem(2))
    restore(roots)
    assert roots.problem(2) is None
    assert set(roots.register("orders-0").voters()) == {1, 2, 3}
    assert read_topic_id(fs, "/b/orders-1") == topic_id
    assert read_topic_properties(at(fs, "/b"), "orders") == {"retention.ms": "5"}
    lose(fs, "/c")
    assert state(fs).topic_id == topic_id


# ---- topics -----------------------------------------------------------------------------------
def test_a_topic_is_created_in_all_roots_with_one_id(fs: Disks) -> None:
    with manager(fs) as ours:
        made = ours.create_topic("orders", 2, {"retention.ms": 5}, replication_factor=2)
    for path in PATHS:
        assert list_topics(at(fs, path)) == ["orders"]
        assert read_topic_properties(at(fs, path), "orders") == {"retention.ms": "5"}
        for number in range(2):
            assert RegisterFile(at(fs, path), f"orders-{number}").read() is not None
    assert [fs.stat(f"{path}/orders-1") is not None for path in PATHS] == [True, True, False]
    assert read_topic_id(fs, "/a/orders-0") == read_topic_id(fs, "/b/orders-1") == made.topic_id
    assert state(fs, "orders-1").replicas == (1, 2)
    assert state(fs, "orders-1").topic_id == made.topic_id


def test_replicas_are_assigned_by_the_caller(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("orders", replica_assignment=[(2, 3), (3, 1)])
    assert state(fs, "orders-0").replicas == (2, 3)
    assert state(fs, "orders-1").leader == 3


@pytest.mark.parametrize("assignment", [[(1, 1)], [(1, 9)], [(1, 2), (1,)], [()]])
def test_an_invalid_assignment_is_refused(fs: Disks, assignment: Any) -> None:
    with manager(fs) as ours, pytest.raises(InvalidReplicaAssignmentError):
        ours.create_topic("orders", replica_assignment=assignment)
    assert list_topics(at(fs)) == []


def test_the_replication_factor_is_at_most_the_number_of_online_roots(fs: Disks) -> None:
    with manager(fs) as ours:
        with pytest.raises(InvalidReplicationFactorError, match="got 4, expected 1 to 3"):
            ours.create_topic("orders", replication_factor=4)
        with pytest.raises(InvalidReplicationFactorError):
            ours.create_topic("orders", replication_factor=0)
        lose(fs, "/b")
        with pytest.raises(InvalidReplicationFactorError, match="offline: node 2"):
            ours.create_topic("orders", replication_factor=3)
        ours.create_topic("orders", replication_factor=2)
    assert state(fs).replicas == (1, 3)


def test_replicas_need_several_roots() -> None:
    fs = MemoryFileSystem()
    make_root(at(fs))
    with manager(fs) as ours, pytest.raises(InvalidReplicationFactorError, match="replicas add"):
        ours.create_topic("orders", replication_factor=2)


def test_the_default_replication_factor_is_the_roots(fs: Disks) -> None:
    with fs.open("/a/.streamlog/server.properties", OpenMode.WRITE) as file:
        file.truncate(0)
        file.pwrite(b"default.replication.factor=3\n", 0)
    with manager(fs) as ours:
        ours.create_topic("orders")
    assert state(fs).replicas == (1, 2, 3)


def default_factor(fs: Disks, factor: int, path: str = HOME) -> None:
    with fs.open(f"{path}/.streamlog/server.properties", OpenMode.CREATE_OR_WRITE) as file:
        file.truncate(0)
        file.pwrite(b"default.replication.factor=%d\nnum.partitions=2\n" % factor, 0)


def open_by_path(fs: Disks, name: str, path: str = HOME) -> PartitionLog:
    return PartitionLog.open(f"{path}/{name}", fs=fs, random=Random(1), lock_timeout_ms=10)


def test_a_partition_opened_by_its_path_gets_as_many_replicas_as_the_root_says(fs: Disks) -> None:
    default_factor(fs, 3)
    with open_by_path(fs, "fresh-1") as log:
        log.append([Record(b"k", b"v", (), 0)])
        assert log.is_replicated
    assert state(fs, "fresh-0").isr == state(fs, "fresh-1").isr == (1, 2, 3)
    for path in PATHS:
        with LogReader.open(f"{path}/fresh-1", fs=fs) as reader:
            assert reader.log_end_offset == 1
    with pytest.raises(UnknownTopicError):
        open_by_path(fs, "fresh-2")
    with pytest.raises(UnknownTopicError):
        open_by_path(fs, "other-2")
    assert list_topics(at(fs)) == ["fresh"]


def test_a_partition_opened_by_its_path_is_refused_with_too_few_roots(fs: Disks) -> None:
    default_factor(fs, 4)
    with pytest.raises(InvalidReplicationFactorError, match="exceeds the number of log roots"):
        open_by_path(fs, "fresh-0")
    alone = Disks()
    make_root(at(alone))
    default_factor(alone, 2)
    with pytest.raises(InvalidReplicationFactorError, match="there is one log root"):
        open_by_path(alone, "fresh-0")
    for each in (fs, alone):
        assert list_topics(at(each)) == []
        assert each.stat(f"{HOME}/fresh-0") is None


def test_a_topic_without_replicas_stays_in_one_root(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("plain")
    assert not topic_exists(at(fs, "/b"), "plain")
    assert fs.stat("/a/.streamlog/replication") is None


def test_names_collide_over_all_roots(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("my_topic", replication_factor=2)
        with pytest.raises(TopicExistsError):
            ours.create_topic("my_topic", replication_factor=2)
        with pytest.raises(InvalidTopicError):
            ours.create_topic("my.topic", replication_factor=3)
        ours.create_topic("my_topic", replication_factor=2, if_not_exists=True)


def test_settings_and_partitions_change_in_all_roots(fs: Disks) -> None:
    with manager(fs) as ours:
        topic_id = ours.create_topic(
            "orders", 1, {"retention.ms": 5}, replication_factor=2
        ).topic_id
        ours.alter_topic(
            "orders", configs={"segment.ms": 9}, delete_configs=["retention.ms"], partitions=3
        )
        with pytest.raises(InvalidPartitionsError, match="has 3 partitions"):
            ours.alter_topic("orders", partitions=3)
    for path in PATHS:
        assert read_topic_properties(at(fs, path), "orders") == {"segment.ms": "9"}
    assert state(fs, "orders-2").replicas == (1, 2)
    assert read_topic_id(fs, "/b/orders-2") == topic_id == state(fs, "orders-2").topic_id
    assert fs.stat("/c/orders-2") is None


def test_new_partitions_are_led_by_a_replica_that_is_online(fs: Disks) -> None:
    with manager(fs, "/b") as ours:
        ours.create_topic("orders", 1, replication_factor=3)
        lose(fs, "/a")
        ours.alter_topic("orders", partitions=2)
        assert state(fs, "orders-1", "/b").leader == 2
        assert state(fs, "orders-1", "/b").isr == (2, 3)


def test_a_deleted_topic_is_gone_from_all_roots(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("orders", 2, replication_factor=2)
        ours.delete_topic("orders")
        with pytest.raises(UnknownTopicError):
            ours.delete_topic("orders")
    for path in PATHS:
        assert list_topics(at(fs, path)) == []
        assert not [name for name in fs.list(path) if name.startswith("orders")]
        assert fs.list(f"{path}/.streamlog/replication") == ["commits"]


def test_nothing_is_created_without_a_majority(fs: Disks) -> None:
    lose(fs, "/b")
    lose(fs, "/c")
    with manager(fs) as ours, pytest.raises(NoQuorumError):
        ours.create_topic("orders", replica_assignment=[(1,)])
    assert list_topics(at(fs)) == []


def test_partitions_are_listed_by_a_root_without_replicas(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("orders", 2, replication_factor=2)
    with manager(fs, "/c") as ours:
        assert ours.partitions("orders") == [0, 1]


def test_a_topic_is_not_deleted_because_two_disks_were_replaced(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("orders", replication_factor=3)
    for path in ("/b", "/c"):
        remove_tree(fs, path)
        fs.make_directory(path)
    restore_if_due(set_of(fs))
    restore_if_due(set_of(fs))
    assert topic_exists(at(fs), "orders")
    assert fs.stat("/a/orders-0/partition.metadata") is not None


def test_a_topic_is_not_deleted_while_its_replicas_are_away(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("orders", replica_assignment=[(2, 3)])
    for lost in (".streamlog/replication", "orders-0"):
        remove_tree(fs, f"/b/{lost}")
    lose(fs, "/c")
    restore(set_of(fs))
    assert topic_exists(at(fs), "orders")
    bring_back(fs, "/c")
    restore(set_of(fs))
    assert state(fs).replicas == (2, 3)
    assert topic_exists(at(fs, "/b"), "orders")


# ---- roots that return ------------------------------------------------------------------------
def test_a_returning_root_takes_missing_topics_and_settings(fs: Disks) -> None:
    lose(fs, "/b")
    with manager(fs) as ours:
        ours.create_topic("orders", replica_assignment=[(1, 3)])
        ours.create_topic("other", replica_assignment=[(3, 1)])
        ours.alter_topic("other", configs={"retention.ms": 5})
    bring_back(fs, "/b")
    restore(set_of(fs))
    assert list_topics(at(fs, "/b")) == ["orders", "other"]
    assert read_topic_properties(at(fs, "/b"), "other") == {"retention.ms": "5"}
    lose(fs, "/c")
    assert state(fs, "other-0").replicas == (3, 1)


@pytest.mark.parametrize("path", PATHS)
def test_a_root_that_lost_its_logs_is_no_longer_in_sync(fs: Disks, path: str) -> None:
    """Its directory is made again, empty: counted as in sync, it could be elected."""
    with manager(fs) as ours:
        ours.create_topic("orders", replication_factor=3)
    node = 1 + PATHS.index(path)
    remove_tree(fs, path)
    fs.make_directory(path)
    restore(set_of(fs, next(each for each in PATHS if each != path)))
    after = state(fs, path=path)
    assert fs.stat(f"{path}/orders-0") is not None
    assert set(after.isr) == {1, 2, 3} - {node}
    assert after.leader == (-1 if node == 1 else 1)


def test_the_settings_of_a_majority_win(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("orders", replication_factor=3)
        lose(fs, "/b")
        ours.alter_topic("orders", configs={"retention.ms": 5})
    bring_back(fs, "/b")
    restore(set_of(fs, "/b"))
    assert read_topic_properties(at(fs, "/b"), "orders") == {"retention.ms": "5"}


def test_a_topic_deleted_meanwhile_is_set_aside(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("orders", 2, replication_factor=3)
        lose(fs, "/b")
        ours.delete_topic("orders")
    bring_back(fs, "/b")
    assert topic_exists(at(fs, "/b"), "orders")
    restore(set_of(fs))
    assert not topic_exists(at(fs, "/b"), "orders")
    strays = [name for name in fs.list("/b") if name.startswith("orders")]
    assert len(strays) == 2 and all(name.endswith("-stray") for name in strays)
    assert all(fs.list(f"{path}/.streamlog/replication") == ["commits"] for path in PATHS)


def test_a_topic_created_again_meanwhile_replaces_the_old_one(fs: Disks) -> None:
    """H9: the directories with the old topic id are set aside, never served."""
    with manager(fs) as ours:
        old = ours.create_topic("orders", 1, replication_factor=3).topic_id
        lose(fs, "/b")
        ours.delete_topic("orders")
        new = ours.create_topic("orders", replica_assignment=[(1, 3)]).topic_id
    bring_back(fs, "/b")
    assert state(fs, path="/b").topic_id == new != old
    restore(set_of(fs))
    lose(fs, "/c")
    assert fs.stat("/b/orders-0") is None
    assert [name for name in fs.list("/b") if name.endswith("-stray")]
    assert state(fs, path="/b").topic_id == new


def test_a_plain_topic_may_take_the_name_of_a_deleted_replicated_one(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("orders", 1, replication_factor=2)
        lose(fs, "/b")
        ours.delete_topic("orders")
        ours.create_topic("orders", 1, replication_factor=1)
    bring_back(fs, "/b")
    restore(set_of(fs))
    assert topic_exists(at(fs), "orders")
    assert fs.stat("/a/orders-0") is not None
    assert not replicated_topics.is_replicated(at(fs), "orders")


def test_the_next_writer_restores_a_root_that_has_returned(fs: Disks) -> None:
    lose(fs, "/b")
    with manager(fs) as ours:
        ours.create_topic("orders", replication_factor=2)
    bring_back(fs, "/b")
    with manager(fs) as ours:
        ours.create_topic("plain")
    assert topic_exists(at(fs, "/b"), "orders")
    assert state(fs, path="/b").replicas == (1, 3)


def test_the_next_writer_fills_an_emptied_root(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("orders", replication_factor=3)
    remove_tree(fs, "/c")
    fs.make_directory("/c")
    with manager(fs) as ours:
        ours.alter_topic("orders", configs={"retention.ms": 5})
    assert set_of(fs).problem(3) is None
    assert topic_exists(at(fs, "/c"), "orders")


def test_roots_that_missed_nothing_are_not_written(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("orders", 3, replication_factor=2)
        ours.create_topic("plain")
        ours.create_topic("gone", replication_factor=2)
        ours.delete_topic("gone")
    watched = FaultyFileSystem(fs)
    restore_if_due(set_of(watched))
    assert watched.operations == []


# ---- crashes ----------------------------------------------------------------------------------
def crashes(
    fs: Disks, act: Callable[[Any], object], check: Callable[[MemoryFileSystem], None]
) -> int:
    """Run `act` with a power cut before each operation; check every result."""
    random = Random(5)
    for number in range(1, 1000):
        before = fs.crash_clone(random, power=False)
        faulty = FaultyFileSystem(before, Fault(at=number, moment=Moment.BEFORE))
        try:
            act(faulty)
        except SimulatedCrash:
            check(before.crash_clone(random, power=True))
            continue
        return number
    raise AssertionError("too many operations")


def agreed(fs: MemoryFileSystem) -> bool:
    """Return whether the topic exists; all roots must agree after they have been restored."""
    for path in PATHS:
        restore(set_of(fs, path))
    there = [topic_exists(at(fs, path), "orders") for path in PATHS]
    assert len(set(there)) == 1, there
    if there[0]:
        ids = {read_topic_id(fs, f"{path}/orders-{n}") for path in PATHS for n in range(2)}
        assert ids == {state(fs, f"orders-{n}").topic_id for n in range(2)}
        assert len({tuple(read_topic_properties(at(fs, p), "orders").items()) for p in PATHS}) == 1
    return there[0]


def create(fs: Any) -> str:
    return replicated_topics.create_replicated(
        set_of(fs), "orders", partitions=2, replication_factor=3, configs={"retention.ms": 5}
    )


def test_a_crash_in_a_creation_leaves_no_topic_or_one_that_all_roots_agree_on(fs: Disks) -> None:
    found = set()

    def check(after: MemoryFileSystem) -> None:
        there = agreed(after)
        found.add(there)
        if not there:
            create(after)
            assert agreed(after)

    assert crashes(fs, create, check) > 50
    assert found == {False, True}


def test_a_crash_in_a_deletion_is_finished(fs: Disks) -> None:
    create(fs)
    found = set()

    def check(after: MemoryFileSystem) -> None:
        there = agreed(after)
        found.add(there)
        if there:
            replicated_topics.delete_replicated(set_of(after), "orders")
        assert not agreed(after)
        create(after)
        assert agreed(after)

    crashes(fs, lambda fs: replicated_topics.delete_replicated(set_of(fs), "orders"), check)
    assert found == {False, True}


def fs_partitions(fs: MemoryFileSystem) -> int:
    return sum(1 for name in fs.list(HOME) if name.startswith("orders-"))


def test_a_crash_in_an_alteration_leaves_the_old_settings_or_the_new_ones(fs: Disks) -> None:
    create(fs)
    found = set()

    def alter(fs: Any) -> None:
        replicated_topics.alter_replicated(
            set_of(fs), "orders", configs={"retention.ms": 6}, delete_configs=(), partitions=3
        )

    def check(after: MemoryFileSystem) -> None:
        assert agreed(after)
        found.add(read_topic_properties(at(after), "orders")["retention.ms"])
        if fs_partitions(after) < 3:
            alter(after)
        for path in PATHS:
            assert read_topic_id(after, f"{path}/orders-2") == state(after, "orders-2").topic_id

    crashes(fs, alter, check)
    assert found == {"5", "6"}


def test_a_crash_while_a_root_is_added_is_finished_by_the_next_addition(fs: Disks) -> None:
    create(fs)

    def check(after: MemoryFileSystem) -> None:
        assert state(after).replicas == (1, 2, 3)
        added = add_root(at(after), "/d")
        assert added.root.node == 4
        assert set_of(after).node_ids == (1, 2, 3, 4)
        assert set(set_of(after).register("orders-0").voters()) == {1, 2, 3, 4}

    crashes(fs, lambda fs: add_root(at(fs), "/d"), check)


def test_a_crash_while_the_first_root_is_added_is_finished_by_the_next_addition() -> None:
    fs = Disks()
    make_root(at(fs))

    def check(after: MemoryFileSystem) -> None:
        assert add_root(at(after), "/b").root.node == 2
        assert set_of(after, "/b").node_ids == (1, 2)

    crashes(fs, lambda fs: add_root(at(fs), "/b"), check)


def test_a_crash_while_a_root_is_removed_is_finished_by_the_next_writer(fs: Disks) -> None:
    with manager(fs) as ours:
        ours.create_topic("orders", 2, replication_factor=2)
    found = set()

    def check(after: MemoryFileSystem) -> None:
        with manager(after) as ours:
            ours.create_topic("plain")
        nodes = set_of(after).node_ids
        found.add(nodes)
        for number in range(2):
            assert set(set_of(after).register(f"orders-{number}").voters()) == {*nodes}
        if len(nodes) == 3:
            remove_root(at(after), "3")
        assert state(after).replicas == (1, 2)

    crashes(fs, lambda fs: remove_root(at(fs), "3"), check)
    assert found == {(1, 2), (1, 2, 3)}


# ---- several writers --------------------------------------------------------------------------
def test_writers_on_a_real_disk_change_a_state_one_after_the_other(tmp_path: Path) -> None:
    home = LogRoot.at(tmp_path / "a")
    make_root(home)
    for name in "bc":
        add_root(home, tmp_path / name)
    with LogManager.open(home.path) as ours:
        ours.create_topic("orders", replication_factor=3)
    changed: list[int] = []

    def write() -> None:
        roots = RootSet.load(LogRoot.at(home.path))
        assert roots is not None
        register = roots.register("orders-0")
        for _ in range(10):
            before = register.read()
            try:
                after = register.change(
                    lambda now: now.with_leader(now.leader % 3 + 1), before.partition_epoch
                )
            except (InvalidUpdateVersionError, NoQuorumError):
                continue
            assert after == before.with_leader(before.leader % 3 + 1)
            changed.append(after.partition_epoch)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    final = RootSet.load(home).register("orders-0").read()  # type: ignore[union-attr]
    assert len(changed) > 5
    assert final.leader == final.leader_epoch % 3 + 1
    assert final.partition_epoch == final.leader_epoch >= max(changed)
