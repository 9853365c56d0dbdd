"""A log root with all its topics, as users see it."""

import random
from pathlib import Path

import pytest

from streamlog.clock import ManualClock
from streamlog.config.server_config import ConfigEntry, ConfigSource
from streamlog.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.files import make_directories, write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition import checkpoints
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.topic import TopicPartition

ROOT = "/data/root"


def manage(fs: FileSystem, root: str = ROOT, *, create: bool = True) -> LogManager:
    return LogManager.open(root, create=create, fs=fs, clock=ManualClock(), random=random.Random(1))


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def records(count: int) -> list[Record]:
    return [Record(b"k%d" % number, b"v") for number in range(count)]


# ---- opening --------------------------------------------------------------------------------
def test_missing_root_names_the_command_to_type(fs: MemoryFileSystem) -> None:
    with pytest.raises(UnknownTopicError) as caught:
        manage(fs, create=False)
    assert caught.value.hint == (
        f"create it with its first topic: streamlog --path {ROOT} topics create NAME; "
        "if it is one root of a replica set, pass all roots, separated by commas"
    )


def test_missing_root_is_made_on_demand(fs: MemoryFileSystem) -> None:
    with manage(fs) as manager:
        assert manager.topics() == []
        assert manager.server_config.num_partitions == 1
    with manage(fs, create=False) as manager:
        assert manager.root == ROOT


def test_relative_paths_and_path_objects_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with LogManager.open("a log root", create=True) as manager:
        manager.create_topic("orders")
    with LogManager.open(tmp_path / "a log root") as manager:
        assert manager.topics() == ["orders"]


def test_closed_root_serves_nothing(fs: MemoryFileSystem) -> None:
    manager = manage(fs)
    manager.create_topic("orders")
    manager.close()
    manager.close()
    for call in (
        manager.topics,
        lambda: manager.describe("orders"),
        lambda: manager.create_topic("clicks"),
        lambda: manager.delete_topic("orders"),
        lambda: manager.log("orders", 0),
        lambda: manager.reader("orders", 0),
    ):
        with pytest.raises(InvalidRequestError, match="closed"):
            call()


# ---- topics ---------------------------------------------------------------------------------
def test_new_topic_is_described(fs: MemoryFileSystem) -> None:
    with manage(fs) as manager:
        made = manager.create_topic("orders", 2, {"retention.ms": -1, "cleanup.policy": "compact"})
        assert made == manager.describe("orders")
        assert manager.topics() == ["orders"]
        assert manager.partitions("orders") == [0, 1]
        assert manager.topic_config("orders").retention_ms == -1
    assert made.name == "orders"
    assert made.topic_id is not None
    assert len(made.topic_id) == 22
    assert [each.partition for each in made.partitions] == [0, 1]
    empty = made.partitions[1]
    assert empty.path == f"{ROOT}/orders-1"
    assert empty.leader == 1
    assert (empty.log_start_offset, empty.high_watermark, empty.log_end_offset) == (0, 0, 0)
    assert empty.size_bytes == 0
    configs = {entry.key: entry for entry in made.configs}
    assert configs["retention.ms"] == ConfigEntry("retention.ms", "-1", ConfigSource.TOPIC)
    assert configs["segment.ms"].source is ConfigSource.DEFAULT


def test_description_follows_what_is_written(fs: MemoryFileSystem) -> None:
    with manage(fs) as manager:
        manager.create_topic("orders", configs={"internal.segment.bytes": 300})
        manager.describe("orders")
        log = manager.log("orders", 0)
        for _ in range(5):
            log.append(records(3))
        described = manager.describe("orders").partitions[0]
        assert described.log_end_offset == described.high_watermark == 15
        assert described.leader_epoch == log.leader_epoch
        assert described.segments == len(log.segments) > 1
        assert described.size_bytes == log.size > 0


def test_number_of_partitions_is_the_roots(fs: MemoryFileSystem) -> None:
    with manage(fs) as manager:
        write_file_atomically(fs, LogRoot.at(ROOT).server_properties, b"num.partitions=3\n")
        assert len(manager.create_topic("orders").partitions) == 3


def test_existing_topic_is_left_alone_on_demand(fs: MemoryFileSystem) -> None:
    with manage(fs) as manager:
        first = manager.create_topic("orders", 2)
        with pytest.raises(TopicExistsError):
            manager.create_topic("orders", 3)
        again = manager.create_topic("orders", 3, {"segment.ms": 5}, if_not_exists=True)
        assert again == first


def test_topic_is_made_when_written_only_if_the_root_says_so(fs: MemoryFileSystem) -> None:
    with manage(fs) as manager:
        with pytest.raises(UnknownTopicError, match="no topic orders") as caught:
            manager.ensure_topic("orders")
        assert f"streamlog --path {ROOT} topics create orders" in str(caught.value.hint)
        path = LogRoot.at(ROOT).server_properties
        write_file_atomically(fs, path, b"auto.create.topics.enable=true\n")
        manager.ensure_topic("orders")
        manager.ensure_topic("orders")
        assert manager.topics() == ["orders"]
        with pytest.raises(InvalidTopicError):
            manager.ensure_topic("no/topic")


def test_deleted_topic_is_gone_with_its_open_handles(fs: MemoryFileSystem) -> None:
    with manage(fs) as manager:
        manager.create_topic("orders")
        manager.create_topic("clicks")
        manager.log("orders", 0).append(records(1))
        manager.reader("orders", 0)
        manager.delete_topic("orders")
        assert manager.topics() == ["clicks"]
        for call in (manager.describe, manager.delete_topic, manager.topic_config):
            with pytest.raises(UnknownTopicError, match="one of clicks"):
                call("orders")
        made = manager.create_topic("orders")
        assert made.partitions[0].log_end_offset == 0
        assert manager.log("orders", 0).append(records(1)).base_offset == 0


def test_bad_settings_name_key_and_file(fs: MemoryFileSystem) -> None:
    with manage(fs) as manager:
        with pytest.raises(InvalidConfigError, match=r"retention\.ms"):
            manager.create_topic("orders", configs={"retention.mss": 1})
        manager.create_topic("orders")
        path = f"{ROOT}/.streamlog/topics/orders.properties"
        write_file_atomically(fs, path, b"segment.bytes=7\n")
        with pytest.raises(InvalidConfigError, match=r"segment\.bytes") as caught:
            manager.topic_config("orders")
        assert caught.value.path == path


# ---- partitions -----------------------------------------------------------------------------
def test_partition_is_opened_once(fs: MemoryFileSystem) -> None:
    with manage(fs) as manager:
        manager.create_topic("orders", 2)
        assert manager.log("orders", 1) is manager.log("orders", 1)
        assert manager.reader("orders", 1) is manager.reader("orders", 1)
        assert manager.log("orders", 0) is not manager.log("orders", 1)


def test_unknown_partition_names_the_range(fs: MemoryFileSystem) -> None:
    with manage(fs) as manager:
        manager.create_topic("orders", 2)
        for call in (manager.log, manager.reader):
            for number in (2, -1):
                with pytest.raises(UnknownTopicError, match=f"got {number}, expected 0 to 1"):
                    call("orders", number)
            with pytest.raises(UnknownTopicError, match="no topic clicks"):
                call("clicks", 0)


def test_close_leaves_everything_in_order(fs: MemoryFileSystem) -> None:
    with manage(fs) as manager:
        manager.create_topic("orders", 2)
        manager.log("orders", 1).append(records(4))
        assert fs.stat(f"{ROOT}/.kafka_cleanshutdown") is None
    assert fs.stat(f"{ROOT}/.kafka_cleanshutdown") is not None
    partition = TopicPartition("orders", 1)
    assert checkpoints.read_high_watermarks(LogRoot.at(ROOT, fs=fs)) == {partition: 4}
    assert checkpoints.read_recovery_points(LogRoot.at(ROOT, fs=fs))[partition] == 4
    with manage(fs, create=False) as manager:
        assert manager.describe("orders").partitions[1].log_end_offset == 4


def test_failed_close_closes_the_rest_and_leaves_no_clean_mark() -> None:
    inner = MemoryFileSystem()
    with manage(inner) as manager:
        manager.create_topic("orders", 2)
    suffix = "orders-0/00000000000000000000.log"
    fault = Fault(operation="sync", path_suffix=suffix, errno=5)
    fs = FaultyFileSystem(inner, fault)
    manager = manage(fs)
    logs = [manager.log("orders", number) for number in (0, 1)]
    for log in logs:
        log.append(records(1))
    with pytest.raises(StorageError):
        manager.close()
    for log in logs:
        with pytest.raises(InvalidRequestError):
            log.append(records(1))
    assert inner.stat(f"{ROOT}/.kafka_cleanshutdown") is None


# ---- foreign roots --------------------------------------------------------------------------
def test_foreign_root_is_read_and_never_changed(fs: MemoryFileSystem) -> None:
    make_directories(fs, f"{ROOT}/orders-0")
    builder = BatchBuilder(base_offset=5)
    builder.append(Record(b"k", b"v", timestamp=1, offset=5))
    with fs.open(f"{ROOT}/orders-0/00000000000000000005.log", OpenMode.CREATE) as file:
        file.pwrite(builder.build(), 0)
    with fs.open(f"{ROOT}/meta.properties", OpenMode.CREATE) as file:
        file.pwrite(b"version=1\ncluster.id=x\nnode.id=7\n", 0)
    watched = FaultyFileSystem(fs)
    with manage(watched, create=False) as manager:
        assert manager.topics() == ["orders"]
        described = manager.describe("orders")
        assert described.topic_id is None
        partition = described.partitions[0]
        assert (partition.leader, partition.log_start_offset, partition.log_end_offset) == (7, 5, 6)
        assert [each.value for each in manager.reader("orders", 0).read(5).records()] == [b"v"]
        for call in (
            lambda: manager.create_topic("clicks"),
            lambda: manager.log("orders", 0),
            lambda: manager.delete_topic("orders"),
        ):
            with pytest.raises(InvalidRequestError, match="Kafka broker"):
                call()
    assert watched.operations == []


def test_server_properties_is_parsed_once_for_all_partitions_and_again_when_it_changes(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with manage(fs) as manager:
        manager.create_topic("orders", partitions=3)
    opened: list[str] = []
    real_open = fs.open
    monkeypatch.setattr(fs, "open", lambda path, mode: opened.append(path) or real_open(path, mode))
    path = LogRoot.at(ROOT).server_properties
    with manage(fs, create=False) as manager:
        for partition in range(3):
            manager.log("orders", partition).append(records(1))
        assert opened.count(path) == 1
        write_file_atomically(fs, path, b"producer.id.expiration.ms=7\n")
        assert manager.server_config.producer_id_expiration_ms == 7
        assert opened.count(path) == 2
