"""A half-finished operation is made durable before another writer's records follow it.

In each test an operation is refused, another process of the same boot sees the completed part,
appends and flushes, and a power cut takes everything that was never synced.
"""

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.fs.faults import Fault, FaultyFileSystem, SimulatedCrash
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from streamlog.root.registry import alter_topic, create_topic, delete_topic
from streamlog.root.roots import make_root
from streamlog.root.topics import list_topics, partition_directories

NOW = 1_700_000_000_000
ROOT = "/logs"


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    make_root(LogRoot.at(ROOT, fs=made, clock=ManualClock(NOW), random=Random(1)))
    create(made, "orders")
    with open_log(made, "orders-0") as log:
        append(log, b"0")
        append(log, b"1")
    return made


def create(fs: FileSystem, topic: str) -> None:
    create_topic(
        LogRoot.at(ROOT, fs=fs, clock=ManualClock(NOW), random=Random(2)),
        topic,
        partitions=1,
        configs={},
    )


def open_log(fs: FileSystem, directory: str, **config: Any) -> PartitionLog:
    return PartitionLog.open(
        f"{ROOT}/{directory}",
        config=LogConfig(**config),
        fs=fs,
        clock=ManualClock(NOW),
        random=Random(3),
    )


def append(log: PartitionLog, key: bytes) -> None:
    log.append([Record(key, bytes(1000), (), NOW)])  # no two in one block of the disk


def keys(fs: FileSystem, directory: str) -> list[bytes | None]:
    with open_log(fs, directory) as log:
        return [next(log.read(offset, 1).records()).key for offset in range(log.log_end_offset)]


def flush(fs: FileSystem) -> None:
    log = open_log(fs, "orders-0")
    append(log, b"2")
    log.flush()


def roll(fs: FileSystem) -> None:
    log = open_log(fs, "orders-0")
    append(log, b"2")
    log.roll()


def truncate(fs: FileSystem) -> None:
    log = open_log(fs, "orders-0")
    append(log, b"2")
    append(log, b"3")
    log.truncate_to(3)


def refuse(
    fs: MemoryFileSystem,
    work: Callable[[FileSystem], None],
    operation: str,
    path_suffix: str,
    *,
    is_lasting: bool = False,
) -> MemoryFileSystem:
    """Return the state after the last such operation of some work is refused."""
    counting = FaultyFileSystem(fs.crash_clone(Random(0), power=False))
    work(counting)
    number = max(
        each.number
        for each in counting.operations
        if each.name == operation and each.path.endswith(path_suffix)
    )
    left = fs.crash_clone(Random(0), power=False)
    fault = Fault(at=number, errno=errno.EIO, is_lasting=is_lasting)
    with pytest.raises(StreamLogError):
        work(FaultyFileSystem(left, fault))
    return left.crash_clone(Random(0), power=False)


def flush_and_cut_power(fs: MemoryFileSystem, directory: str) -> MemoryFileSystem:
    log = open_log(fs, directory, flush_messages=1)  # `flush` would sync the root as well
    append(log, b"last")
    return fs.crash_clone(Random(0), power=True, loss="everything")


@pytest.mark.parametrize("is_lasting", [False, True], ids=["once", "and all after it"])
@pytest.mark.parametrize(
    ("work", "operation", "path_suffix"),
    [(flush, "sync", ".log"), (truncate, "sync", ".log"), (roll, "remove", ".index")],
    ids=["flush", "truncation", "roll"],
)
def test_what_is_flushed_after_a_refused_operation_survives_a_power_cut(
    fs: MemoryFileSystem,
    work: Callable[[FileSystem], None],
    operation: str,
    path_suffix: str,
    is_lasting: bool,
) -> None:
    left = refuse(fs, work, operation, path_suffix, is_lasting=is_lasting)
    left = flush_and_cut_power(left, "orders-0")
    assert keys(left, "orders-0") == [b"0", b"1", b"2", b"last"]


def test_what_is_seen_to_be_cut_does_not_come_back(fs: MemoryFileSystem) -> None:
    dying = FaultyFileSystem(fs, Fault(operation="truncate", path_suffix=".index"))
    log = open_log(dying, "orders-0", index_interval_bytes=0)
    for key in (b"2", b"3", b"4"):
        append(log, key)
    log.flush()
    with pytest.raises(SimulatedCrash):
        log.truncate_to(3)
    left = fs.crash_clone(Random(0), power=False)
    assert open_log(left, "orders-0").log_end_offset == 3
    left = left.crash_clone(Random(0), power=True, loss="everything")
    assert keys(left, "orders-0") == [b"0", b"1", b"2"]


def test_a_reader_follows_a_log_that_a_copy_replaced(fs: MemoryFileSystem) -> None:
    left, path = refuse(fs, flush, "sync", ".log"), f"{ROOT}/orders-0/{0:020d}.log"
    before = left.stat(path)
    with LogReader.open(f"{ROOT}/orders-0", fs=left) as reader:
        assert reader.log_end_offset == 3
        with open_log(left, "orders-0") as log:
            append(log, b"last")
        after = left.stat(path)
        assert before is not None and after is not None and before.inode != after.inode
        reader.refresh()
        assert reader.log_end_offset == 4
        assert next(reader.read(3, 1).records()).key == b"last"


def test_a_power_cut_after_a_cut_in_a_gap_leaves_a_log_that_opens(fs: MemoryFileSystem) -> None:
    log = open_log(fs, "orders-0")
    builder = BatchBuilder(base_offset=3)
    builder.append(Record(b"at 3", None, (), NOW))
    log.append_as_follower(builder.build())
    log.flush()
    log.truncate_to(3)
    left = fs.crash_clone(Random(0), power=True, loss="everything")
    assert keys(left, "orders-0") == [b"0", b"1"]


def test_a_log_that_is_emptied_halfway_keeps_what_is_flushed(fs: MemoryFileSystem) -> None:
    def empty(disk: FileSystem) -> None:
        open_log(disk, "orders-0").truncate_to(0)

    left = refuse(fs, empty, "sync", ".log")
    assert keys(flush_and_cut_power(left, "orders-0"), "orders-0") == [b"last"]


def test_a_log_start_that_could_not_be_synced_is_durable_before_epochs_go(
    fs: MemoryFileSystem,
) -> None:
    def delete(disk: FileSystem) -> None:
        open_log(disk, "orders-0").delete_records(1)

    left = flush_and_cut_power(refuse(fs, delete, "sync_directory", ROOT), "orders-0")
    with open_log(left, "orders-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (1, 3)
        assert log.leader_epochs.epoch_for_offset(1) == 0


def test_a_log_that_was_cut_before_its_start_keeps_what_is_flushed(fs: MemoryFileSystem) -> None:
    def start_over(disk: FileSystem) -> None:
        log = open_log(disk, "orders-0")
        log.delete_records(2)
        log.truncate_to(0)

    left = refuse(fs, start_over, "sync_directory", ROOT)
    assert keys(flush_and_cut_power(left, "orders-0"), "orders-0") == [b"last"]


def test_a_topic_whose_making_could_not_be_synced_keeps_what_is_flushed(
    fs: MemoryFileSystem,
) -> None:
    left = refuse(fs, lambda disk: create(disk, "events"), "sync_directory", "/topics")
    left = flush_and_cut_power(left, "events-0")
    assert list_topics(LogRoot.at(ROOT, fs=left)) == ["events", "orders"]
    assert keys(left, "events-0") == [b"last"]


def test_a_partition_whose_making_could_not_be_synced_keeps_what_is_flushed(
    fs: MemoryFileSystem,
) -> None:
    def add(disk: FileSystem) -> None:
        alter_topic(
            LogRoot.at(ROOT, fs=disk, clock=ManualClock(NOW), random=Random(4)),
            "orders",
            configs={},
            delete_configs=(),
            partitions=2,
        )

    left = flush_and_cut_power(refuse(fs, add, "sync_directory", ROOT), "orders-1")
    assert keys(left, "orders-1") == [b"last"]


def test_a_deletion_that_could_not_be_synced_is_never_half_undone(fs: MemoryFileSystem) -> None:
    def delete(disk: FileSystem) -> None:
        delete_topic(LogRoot.at(ROOT, fs=disk, clock=ManualClock(NOW)), "orders")

    left = fs.crash_clone(Random(0), power=False)
    fault = Fault(operation="sync_directory", path_suffix="/topics", errno=errno.EIO)
    with pytest.raises(StreamLogError):
        delete(FaultyFileSystem(left, fault))
    again = FaultyFileSystem(left, Fault(operation="sync_directory", path_suffix=ROOT, at=2))
    with pytest.raises(BaseException, match="killed"):  # once the directories are set aside
        delete(again)
    for loss in ("everything", "nothing"):
        after = left.crash_clone(Random(0), power=True, loss=loss)
        is_there = "orders" in list_topics(LogRoot.at(ROOT, fs=after))
        assert bool(partition_directories(LogRoot.at(ROOT, fs=after), "orders")) or not is_there
