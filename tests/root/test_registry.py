"""Topics come and go, whatever crashes in between."""

import contextlib
import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidRequestError,
    InvalidTopicError,
    LockTimeoutError,
    StreamLogError,
    TopicExistsError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem, SimulatedCrash
from streamlog.fs.files import make_directories, read_file, remove_tree, write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition import checkpoints
from streamlog.partition.partition_metadata import read_topic_id, topic_id_hex, write_topic_id
from streamlog.partition.topic_config import read_topic_properties
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from streamlog.root.registry import alter_topic, create_topic, delete_topic, ensure_partition
from streamlog.root.roots import make_root
from streamlog.root.topics import list_topics, partition_directories
from streamlog.topic import TopicPartition
from tests.support.crash import every_crash_point

NOW = 1_700_000_000_000
ROOT = "/logs"
LOG = "00000000000000000000.log"


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    make_root(LogRoot.at(ROOT, fs=made, clock=ManualClock(), random=random.Random(1)))
    return made


def create(fs: FileSystem, topic: str, partitions: int = 2, seed: int = 7, **configs: Any) -> str:
    return create_topic(
        LogRoot.at(ROOT, fs=fs, clock=ManualClock(), random=random.Random(seed)),
        topic,
        partitions=partitions,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )


def delete(fs: FileSystem, topic: str) -> None:
    delete_topic(LogRoot.at(ROOT, fs=fs, clock=ManualClock()), topic)


def ensure(fs: FileSystem, topic: str, partition: int, root: str = ROOT) -> str:
    wanted = TopicPartition(topic, partition)
    return ensure_partition(
        LogRoot.at(root, fs=fs, clock=ManualClock(), random=random.Random(9)), wanted
    )


def write(fs: FileSystem, path: str, text: bytes = b"records") -> None:
    with fs.open(path, OpenMode.CREATE_OR_WRITE) as file:
        file.pwrite(text, 0)
        file.sync()
    fs.sync_directory(path.rpartition("/")[0])


def ids(fs: FileSystem, topic: str) -> set[str | None]:
    return {
        read_topic_id(fs, path)
        for path in partition_directories(LogRoot.at(ROOT, fs=fs), topic).values()
    }


# ---- create ---------------------------------------------------------------------------------
def test_all_partitions_of_a_new_topic_share_its_id(fs: MemoryFileSystem) -> None:
    topic_id = create(fs, "orders", 3, retention_ms=-1, cleanup_policy="compact")
    assert list(partition_directories(LogRoot.at(ROOT, fs=fs), "orders")) == [0, 1, 2]
    assert ids(fs, "orders") == {topic_id}
    assert read_topic_properties(LogRoot.at(ROOT, fs=fs), "orders") == {
        "retention.ms": "-1", "cleanup.policy": "compact",
    }  # fmt: skip
    assert create(fs, "clicks", seed=8) != topic_id


@pytest.mark.parametrize("name", ["orders-delete", "a-future", "a-stray", "a.deleted", "a.swap"])
def test_name_that_ends_like_a_directory_set_aside_is_refused(
    fs: MemoryFileSystem, name: str
) -> None:
    with pytest.raises(InvalidTopicError, match="reserved for directories set aside"):
        create(fs, name)
    with pytest.raises(InvalidTopicError, match="reserved for directories set aside"):
        ensure(fs, name, 0)


def test_existing_topic_is_refused(fs: MemoryFileSystem) -> None:
    create(fs, "orders")
    with pytest.raises(TopicExistsError, match="orders") as caught:
        create(fs, "orders")
    assert "topics describe orders" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["a_b.c", "a.b_c", "a_b_c"])
def test_names_that_differ_only_in_dots_and_underscores_collide(
    fs: MemoryFileSystem, name: str
) -> None:
    create(fs, "a.b.c")
    with pytest.raises(InvalidTopicError, match=r"differ from a\.b\.c only"):
        create(fs, name)
    assert list_topics(LogRoot.at(ROOT, fs=fs)) == ["a.b.c"]
    with pytest.raises(InvalidTopicError):
        ensure(fs, name, 0)


@pytest.mark.parametrize("partitions", [0, -1, 100_001, "2", 2.0])
def test_impossible_number_of_partitions_is_refused(fs: MemoryFileSystem, partitions: int) -> None:
    with pytest.raises(InvalidPartitionsError):
        create(fs, "orders", partitions)


def test_directory_names_must_fit_in_a_file_system(fs: MemoryFileSystem) -> None:
    create(fs, "x" * 249, 1)
    fs.make_directory(f"{ROOT}/{'x' * 249}-99999")
    ensure(fs, "x" * 249, 99_999)
    with pytest.raises(InvalidPartitionsError):
        create(fs, "y" * 249, 100_001)


@pytest.mark.parametrize("length", [9, 249])
def test_creating_a_topic_again_makes_its_name_durable(fs: MemoryFileSystem, length: int) -> None:
    """Its creator may have died right before the sync of the directory of its settings."""
    create(fs, "x" * length)
    watched = FaultyFileSystem(fs)
    with pytest.raises(TopicExistsError):
        create(watched, "x" * length)
    settings = LogRoot.at(ROOT).topic_properties("x" * length)
    synced = [each.path for each in watched.operations if each.name == "sync_directory"]
    assert settings.rpartition("/")[0] in synced


@pytest.mark.parametrize("length", [199, 200, 201, 249])
def test_names_of_any_legal_length_come_and_go(fs: MemoryFileSystem, length: int) -> None:
    name = "x" * length
    other = "x" * 200 + "y"
    create(fs, other)
    create(fs, name, retention_ms=5)
    assert list_topics(LogRoot.at(ROOT, fs=fs)) == sorted([name, other])
    assert read_topic_properties(LogRoot.at(ROOT, fs=fs), name) == {"retention.ms": "5"}
    delete(fs, name)
    assert list_topics(LogRoot.at(ROOT, fs=fs)) == [other]


def test_bad_settings_leave_nothing_behind(fs: MemoryFileSystem) -> None:
    with pytest.raises(InvalidConfigError):
        create(fs, "orders", segment_bytes="5")
    assert list_topics(LogRoot.at(ROOT, fs=fs)) == []
    assert partition_directories(LogRoot.at(ROOT, fs=fs), "orders") == {}


def test_strangers_directory_with_records_is_not_taken(fs: MemoryFileSystem) -> None:
    make_directories(fs, f"{ROOT}/orders-1")
    write(fs, f"{ROOT}/orders-1/{LOG}")
    with pytest.raises(InvalidRequestError, match=LOG) as caught:
        create(fs, "orders")
    assert f"mv {ROOT}/orders-1" in str(caught.value.hint)
    assert read_file(fs, f"{ROOT}/orders-1/{LOG}", max_size=9) == b"records"


def test_crash_at_any_step_of_creation_leaves_no_topic_or_all_of_it(fs: MemoryFileSystem) -> None:
    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        acknowledged.append(create(fs, "orders", 2, retention_ms=5))

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        if "orders" in list_topics(LogRoot.at(ROOT, fs=fs)):
            assert read_topic_properties(LogRoot.at(ROOT, fs=fs), "orders") == {"retention.ms": "5"}
        else:
            assert not acknowledged
            create(fs, "orders", 2, seed=8)
        assert list(partition_directories(LogRoot.at(ROOT, fs=fs), "orders")) == [0, 1]
        assert len(ids(fs, "orders")) == 1
        assert None not in ids(fs, "orders")

    assert every_crash_point(workload, check, prepared=fs).states > 40


# ---- ensure_partition -----------------------------------------------------------------------
def settings(fs: FileSystem, text: bytes) -> None:
    write_file_atomically(fs, LogRoot.at(ROOT).server_properties, text)


def test_missing_root_topic_and_partition_are_made(fs: MemoryFileSystem) -> None:
    topic_id = ensure(fs, "orders", 0, "/new/root")
    assert list_topics(LogRoot.at("/new/root", fs=fs)) == ["orders"]
    assert partition_directories(LogRoot.at("/new/root", fs=fs), "orders") == {
        0: "/new/root/orders-0"
    }
    assert ensure(fs, "orders", 0, "/new/root") == topic_id


def test_a_topic_made_by_opening_a_partition_has_num_partitions(fs: MemoryFileSystem) -> None:
    settings(fs, b"num.partitions=3\n")
    topic_id = ensure(fs, "orders", 1)
    assert list(partition_directories(LogRoot.at(ROOT, fs=fs), "orders")) == [0, 1, 2]
    assert ids(fs, "orders") == {topic_id}


@pytest.mark.parametrize("number", [1, 2, 12])
def test_opening_a_partition_leaves_no_gap_in_the_numbers_of_a_topic(
    fs: MemoryFileSystem, number: int
) -> None:
    create(fs, "orders", number)
    for topic in ("orders", "clicks"):  # one that is there, one that is not
        before = fs.list(ROOT), list_topics(LogRoot.at(ROOT, fs=fs))
        with pytest.raises(UnknownTopicError, match=f"--partitions {number + 1}"):
            ensure(fs, topic, number)
        assert (fs.list(ROOT), list_topics(LogRoot.at(ROOT, fs=fs))) == before
    with pytest.raises(UnknownTopicError):
        ensure(fs, "orders", number, "/new/root")
    assert fs.stat("/new") is None


def test_a_root_that_makes_no_topics_by_itself_makes_none_for_a_partition(
    fs: MemoryFileSystem,
) -> None:
    settings(fs, b"auto.create.topics.enable=false\n")
    with pytest.raises(UnknownTopicError, match="topics create orders"):
        ensure(fs, "orders", 0)
    assert list_topics(LogRoot.at(ROOT, fs=fs)) == []
    create(fs, "orders", 1)
    ensure(fs, "orders", 0)


def test_a_partition_whose_directory_is_lost_is_not_made_again(fs: MemoryFileSystem) -> None:
    create(fs, "orders", 2)
    remove_tree(fs, f"{ROOT}/orders-0")
    with pytest.raises(UnknownTopicError, match="no such partition"):
        ensure(fs, "orders", 0)


def test_copied_directory_keeps_its_records_and_its_id(fs: MemoryFileSystem) -> None:
    path = "/copies/orders-0"
    make_directories(fs, path)
    write(fs, f"{path}/{LOG}")
    write_topic_id(fs, path, "AAAAAAAAAAEAAAAAAAAAAg")
    assert ensure(fs, "orders", 0, "/copies") == "AAAAAAAAAAEAAAAAAAAAAg"
    assert list_topics(LogRoot.at("/copies", fs=fs)) == ["orders"]
    assert read_file(fs, f"{path}/{LOG}", max_size=9) == b"records"


def test_copied_directory_without_an_id_gets_one(fs: MemoryFileSystem) -> None:
    make_directories(fs, f"{ROOT}/orders-0")
    write(fs, f"{ROOT}/orders-0/{LOG}")
    topic_id = ensure(fs, "orders", 0)
    assert ids(fs, "orders") == {topic_id}
    assert ensure(fs, "orders", 0) == topic_id


# ---- delete ---------------------------------------------------------------------------------
def checkpointed(fs: FileSystem) -> None:
    offsets = {TopicPartition("orders", 0): 5, TopicPartition("clicks", 0): 6}
    checkpoints.write_recovery_points(LogRoot.at(ROOT, fs=fs, clock=ManualClock()), offsets)


def test_deleted_topic_leaves_nothing(fs: MemoryFileSystem) -> None:
    create(fs, "orders")
    create(fs, "clicks")
    write(fs, f"{ROOT}/orders-0/{LOG}")
    checkpointed(fs)
    before = fs.list(ROOT)
    delete(fs, "orders")
    assert fs.list(ROOT) == [name for name in before if not name.startswith("orders-")]
    assert fs.list(f"{ROOT}/.streamlog/topics") == ["clicks.properties"]
    assert checkpoints.read_recovery_points(LogRoot.at(ROOT, fs=fs)) == {
        TopicPartition("clicks", 0): 6
    }


def test_recreated_topic_is_another_one(fs: MemoryFileSystem) -> None:
    first = create(fs, "orders", seed=1)
    delete(fs, "orders")
    assert create(fs, "orders", seed=2) != first


def test_unknown_topic_is_refused_with_the_known_ones(fs: MemoryFileSystem) -> None:
    create(fs, "clicks")
    with pytest.raises(UnknownTopicError, match="one of clicks") as caught:
        delete(fs, "orders")
    assert caught.value.hint == f"list the topics: streamlog --path {ROOT} topics list"


def test_topic_of_a_foreign_root_is_not_deleted(fs: MemoryFileSystem) -> None:
    make_directories(fs, "/broker/orders-0")
    with pytest.raises(InvalidRequestError):
        delete_topic(LogRoot.at("/broker", fs=fs, clock=ManualClock()), "orders")
    assert fs.list("/broker") == ["orders-0"]


def test_deletion_waits_for_a_writer_and_is_finished_later(fs: MemoryFileSystem) -> None:
    create(fs, "orders")
    held = fs.try_lock(LogRoot.at(ROOT).partition_lock(TopicPartition("orders", 1)), shared=False)
    assert held is not None
    with pytest.raises(LockTimeoutError):
        delete(fs, "orders")
    assert list_topics(LogRoot.at(ROOT, fs=fs)) == []
    held.release()
    delete(fs, "orders")
    assert partition_directories(LogRoot.at(ROOT, fs=fs), "orders") == {}
    with pytest.raises(UnknownTopicError):
        delete(fs, "orders")


def test_what_writers_left_in_lock_files_does_not_outlive_the_topic(fs: MemoryFileSystem) -> None:
    create(fs, "orders", 1)
    path = LogRoot.at(ROOT).partition_lock(TopicPartition("orders", 0))
    write(fs, path, b"state of the last writer")
    delete(fs, "orders")
    stat = fs.stat(path)
    assert stat is not None
    assert stat.size == 0


def test_longest_name_is_cut_to_fit_and_still_cleaned_up(fs: MemoryFileSystem) -> None:
    name = "x" * 249
    topic_id = create(fs, name, 1)
    stranger = f"{'x' * 30}-0.{topic_id_hex(topic_id)}-delete"
    make_directories(fs, f"{ROOT}/{stranger}")

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        delete(fs, name)

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        assert max(map(len, fs.list(ROOT))) <= 255

    every_crash_point(workload, check, prepared=fs, seeds=())
    delete(fs, name)
    assert [each for each in fs.list(ROOT) if each.startswith("x")] == [stranger]


def test_crash_at_any_step_of_deletion_can_be_finished(fs: MemoryFileSystem) -> None:
    first = create(fs, "orders", 2, seed=1)
    create(fs, "clicks", 1, seed=2)
    write(fs, f"{ROOT}/orders-0/{LOG}")
    checkpointed(fs)

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        delete(fs, "orders")
        acknowledged.append("deleted")

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        if "orders" in list_topics(LogRoot.at(ROOT, fs=fs)):
            assert not acknowledged
            assert ids(fs, "orders") == {first}
            assert read_file(fs, f"{ROOT}/orders-0/{LOG}", max_size=9) == b"records"
            delete(fs, "orders")
        second = create(fs, "orders", 3, seed=3)
        assert second != first
        assert ids(fs, "orders") == {second}
        for path in partition_directories(LogRoot.at(ROOT, fs=fs), "orders").values():
            assert fs.list(path) == ["partition.metadata"]
        assert checkpoints.read_recovery_points(LogRoot.at(ROOT, fs=fs)) == {
            TopicPartition("clicks", 0): 6
        }
        assert not [name for name in fs.list(ROOT) if name.endswith("-delete")]
        assert list_topics(LogRoot.at(ROOT, fs=fs)) == ["clicks", "orders"]

    assert every_crash_point(workload, check, prepared=fs).states > 60


@pytest.mark.parametrize("config", [None, LogConfig()], ids=["the topic's", "fixed settings"])
def test_a_handle_of_a_topic_whose_deletion_was_killed_anywhere_appends_no_more(
    fs: MemoryFileSystem, config: LogConfig | None
) -> None:
    """Once the topic is gone from the list, a record is acknowledged into nothing."""
    create(fs, "orders", 1)
    with PartitionLog.open(f"{ROOT}/orders-0", fs=fs, clock=ManualClock()):
        pass
    for number in itertools.count(1):
        disk = fs.crash_clone(random.Random(0), power=False)
        handle = PartitionLog.open(
            f"{ROOT}/orders-0", config=config, fs=disk, clock=ManualClock(NOW)
        )
        handle.append([Record(b"k", b"v", (), NOW)])
        with contextlib.suppress(SimulatedCrash):
            delete(FaultyFileSystem(disk, Fault(at=number)), "orders")
            break
        is_there = "orders" in list_topics(LogRoot.at(ROOT, fs=disk))
        try:
            handle.append([Record(b"k", b"v", (), NOW)])
        except StreamLogError:
            assert not is_there, number
        else:
            # Fixed settings are looked at by nobody: such a handle notices with the lock's state.
            assert is_there or (config is not None and disk.stat(f"{ROOT}/orders-0") is not None), (
                number
            )
    assert number > 8


def test_settings_file_is_written_last(fs: MemoryFileSystem) -> None:
    create(fs, "orders")
    assert fs.stat(LogRoot.at(ROOT).topic_properties("orders")) is not None


# ---- altering -------------------------------------------------------------------------------
def alter(fs: FileSystem, topic: str, **changes: Any) -> None:
    alter_topic(
        LogRoot.at(ROOT, fs=fs, clock=ManualClock(), random=random.Random(5)),
        topic,
        **{"configs": {}, "delete_configs": (), "partitions": None, **changes},
    )


def test_added_partitions_have_the_topics_id(fs: MemoryFileSystem) -> None:
    topic_id = create(fs, "orders")
    alter(fs, "orders", partitions=4)
    directories = partition_directories(LogRoot.at(ROOT, fs=fs), "orders")
    assert list(directories) == [0, 1, 2, 3]
    assert {read_topic_id(fs, path) for path in directories.values()} == {topic_id}


def test_a_refused_alteration_changes_nothing(fs: MemoryFileSystem) -> None:
    create(fs, "orders", retention_ms=5)
    for wrong in (
        {"partitions": 4, "configs": {"retention.ms": -2}},
        {"partitions": 4, "delete_configs": ["segment.ms"]},
        {"partitions": 4, "configs": {"retention.ms": 1}, "delete_configs": ["retention.ms"]},
        {"partitions": 4, "configs": {"min.compaction.lag.ms": 9, "max.compaction.lag.ms": 8}},
        {"partitions": 2, "configs": {"retention.ms": 7}},
    ):
        with pytest.raises((InvalidConfigError, InvalidPartitionsError)):
            alter(fs, "orders", **wrong)
    assert list(partition_directories(LogRoot.at(ROOT, fs=fs), "orders")) == [0, 1]
    assert read_topic_properties(LogRoot.at(ROOT, fs=fs), "orders") == {"retention.ms": "5"}


def test_a_foreign_root_is_not_altered() -> None:
    fs = MemoryFileSystem()
    make_directories(fs, f"{ROOT}/orders-0")
    with pytest.raises(InvalidRequestError, match="read-only"):
        alter(fs, "orders", partitions=2)


def test_an_alteration_that_crashed_is_finished_by_doing_it_again(fs: MemoryFileSystem) -> None:
    topic_id = create(fs, "orders")
    change: dict[str, Any] = {"partitions": 4, "configs": {"retention.ms": 7}}

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        alter(fs, "orders", **change)
        acknowledged.append("altered")

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        count = len(partition_directories(LogRoot.at(ROOT, fs=fs), "orders"))
        if acknowledged:
            assert count == 4
            assert read_topic_properties(LogRoot.at(ROOT, fs=fs), "orders") == {"retention.ms": "7"}
        elif count < 4:
            alter(fs, "orders", **change)
        for number in range(4):
            assert ensure(fs, "orders", number) == topic_id

    every_crash_point(workload, check, prepared=fs)
