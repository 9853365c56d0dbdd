"""Which topics a root has, where partitions lie, which settings are in force."""

import random

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import FaultyFileSystem
from streamlog.fs.files import make_directories, write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.topic_config import ConfigFiles
from streamlog.root.registry import create_topic
from streamlog.root.roots import make_root
from streamlog.root.topics import (
    find_partitions,
    list_topics,
    partition_directories,
    topic_exists,
    unknown_topic_error,
)

ROOT = "/logs"
FOREIGN = "/broker"


@pytest.fixture
def fs() -> MemoryFileSystem:
    """A root of ours with `orders` and `a-b`, and a broker's log.dir."""
    made, clock, source = MemoryFileSystem(), ManualClock(), random.Random(1)
    make_root(LogRoot.at(ROOT, fs=made, clock=clock, random=source))
    for topic, partitions in {"orders": 12, "a-b": 1}.items():
        create_topic(
            LogRoot.at(ROOT, fs=made, clock=clock, random=source),
            topic,
            partitions=partitions,
            configs={},
        )
    for name in ("orders-0", "orders-1", "__consumer_offsets-7", "orders-2.x-delete", "orders-00",
                 "x", "remote-log-index-cache", "orders-3-future"):  # fmt: skip
        make_directories(made, f"{FOREIGN}/{name}")
    make_directories(made, f"{FOREIGN}/backup-2")
    for name in ("clicks-0", "meta.properties", "orders-0/00000000000000000000.log",
                 "orders-1/partition.metadata", "__consumer_offsets-7/leader-epoch-checkpoint",
                 "backup-2/data.txt"):  # fmt: skip
        write(made, f"{FOREIGN}/{name}")
    return made


def write(fs: FileSystem, path: str, text: bytes = b"") -> None:
    with fs.open(path, OpenMode.CREATE_OR_WRITE) as file:
        file.truncate(0)
        file.pwrite(text, 0)


def test_topics_of_our_root_are_those_with_settings(fs: MemoryFileSystem) -> None:
    make_directories(fs, f"{ROOT}/copied-0")
    write(fs, f"{ROOT}/.streamlog/topics/gone.deleted")
    write(fs, f"{ROOT}/.streamlog/topics/half.properties.tmp")
    write(fs, f"{ROOT}/.streamlog/topics/..properties")
    assert list_topics(LogRoot.at(ROOT, fs=fs)) == ["a-b", "orders"]
    assert topic_exists(LogRoot.at(ROOT, fs=fs), "orders")
    assert not topic_exists(LogRoot.at(ROOT, fs=fs), "copied")


def test_topics_of_a_foreign_root_are_its_directories(fs: MemoryFileSystem) -> None:
    assert list_topics(LogRoot.at(FOREIGN, fs=fs)) == ["__consumer_offsets", "orders"]
    assert topic_exists(LogRoot.at(FOREIGN, fs=fs), "orders")
    assert not topic_exists(LogRoot.at(FOREIGN, fs=fs), "clicks"), "a file is no partition"
    assert not topic_exists(LogRoot.at(FOREIGN, fs=fs), "backup"), (
        "a directory without a log is none"
    )
    assert not topic_exists(LogRoot.at(FOREIGN, fs=fs), "x")


def test_partitions_are_in_numeric_order(fs: MemoryFileSystem) -> None:
    assert list(partition_directories(LogRoot.at(ROOT, fs=fs), "orders")) == list(range(12))
    assert partition_directories(LogRoot.at(ROOT, fs=fs), "a") == {}
    assert partition_directories(LogRoot.at(ROOT, fs=fs), "a-b") == {0: f"{ROOT}/a-b-0"}


@pytest.mark.parametrize("name", ["", "..", "a/b", "ünder", "x" * 250, "a\n", "a٣"])
def test_impossible_name_is_refused_not_looked_for(fs: MemoryFileSystem, name: str) -> None:
    with pytest.raises(InvalidTopicError):
        topic_exists(LogRoot.at(ROOT, fs=fs), name)


# ---- find_partitions ------------------------------------------------------------------------
def test_root_gives_all_its_topics(fs: MemoryFileSystem) -> None:
    found = find_partitions(fs, ROOT)
    assert list(found) == ["a-b", "orders"]
    assert found["orders"][11] == f"{ROOT}/orders-11"
    assert find_partitions(fs, f"{FOREIGN}/") == {
        "__consumer_offsets": {7: f"{FOREIGN}/__consumer_offsets-7"},
        "orders": {0: f"{FOREIGN}/orders-0", 1: f"{FOREIGN}/orders-1"},
    }


def test_partition_directory_gives_itself(fs: MemoryFileSystem) -> None:
    path = f"{FOREIGN}/orders-0"
    assert find_partitions(fs, path + "/") == {"orders": {0: path}}
    empty = f"{FOREIGN}/orders-1"
    assert find_partitions(fs, empty) == {"orders": {1: empty}}


def test_segment_file_gives_itself(fs: MemoryFileSystem) -> None:
    path = f"{FOREIGN}/orders-0/00000000000000000000.log"
    assert find_partitions(fs, path) == {"orders": {0: path}}


def test_root_named_like_a_partition_is_a_root(fs: MemoryFileSystem) -> None:
    make_directories(fs, "/disk-0/orders-5")
    write(fs, f"/disk-0/orders-5/{0:020}.log")
    assert find_partitions(fs, "/disk-0") == {"orders": {5: "/disk-0/orders-5"}}
    make_root(LogRoot.at("/disk-1", fs=fs, clock=ManualClock(), random=random.Random(2)))
    assert find_partitions(fs, "/disk-1") == {}


def test_directory_without_partitions_gives_nothing(fs: MemoryFileSystem) -> None:
    assert find_partitions(fs, f"{FOREIGN}/x") == {}


def test_missing_or_foreign_path_is_refused_with_a_hint(fs: MemoryFileSystem) -> None:
    with pytest.raises(UnknownTopicError) as unknown:
        find_partitions(fs, "/nowhere")
    assert "topics create" in str(unknown.value.hint)
    with pytest.raises(InvalidRequestError, match="not a segment"):
        find_partitions(fs, f"{FOREIGN}/meta.properties")


def test_segments_in_a_directory_of_another_name_are_refused(fs: MemoryFileSystem) -> None:
    write(fs, f"{FOREIGN}/x/00000000000000000000.log")
    with pytest.raises(InvalidTopicError, match="TOPIC-PARTITION"):
        find_partitions(fs, f"{FOREIGN}/x")


def test_looking_changes_nothing(fs: MemoryFileSystem) -> None:
    watched = FaultyFileSystem(fs)
    for path in (ROOT, FOREIGN, f"{FOREIGN}/orders-0"):
        find_partitions(watched, path)
    list_topics(LogRoot.at(FOREIGN, fs=watched))
    ConfigFiles(LogRoot.at(FOREIGN, fs=watched), "orders").load()
    assert watched.operations == []


# ---- settings -------------------------------------------------------------------------------
def test_settings_are_read_again_when_a_file_changes(fs: MemoryFileSystem) -> None:
    files = ConfigFiles(LogRoot.at(ROOT, fs=fs), "orders")
    assert files.has_changed()
    assert files.load() == LogConfig()
    assert not files.has_changed()
    write_file_atomically(fs, LogRoot.at(ROOT).topic_properties("orders"), b"segment.ms=7\n")
    assert files.has_changed()
    assert files.load().segment_ms == 7
    write_file_atomically(
        fs, LogRoot.at(ROOT).server_properties, b"log.roll.ms=9\nlog.retention.ms=5\n"
    )
    assert files.has_changed()
    config = files.load()
    assert (config.segment_ms, config.retention_ms) == (7, 5)
    assert not files.has_changed()


def test_bad_settings_are_reported_until_they_are_mended(fs: MemoryFileSystem) -> None:
    files = ConfigFiles(LogRoot.at(ROOT, fs=fs), "orders")
    path = LogRoot.at(ROOT).topic_properties("orders")
    write_file_atomically(fs, path, b"segment.mz=7\n")
    for _ in range(2):
        assert files.has_changed()
        with pytest.raises(InvalidConfigError, match=r"segment\.ms") as caught:
            files.load()
        assert caught.value.path == path


def test_a_misspelt_topic_gets_the_nearest_name_in_a_runnable_command() -> None:
    error = unknown_topic_error("/my logs", "order", ["clicks", "orders"])
    assert error.hint == "use orders, or create it: streamlog --path '/my logs' topics create order"
    assert unknown_topic_error("/logs", "x", ["orders"]).hint.startswith("create it: ")
    unwanted = unknown_topic_error("/logs", "order", ["orders"], is_wanted=False)
    assert unwanted.hint == "use orders, or list the topics: streamlog --path /logs topics list"
