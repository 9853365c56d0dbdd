"""Which directories are partitions, which links are followed, and what a deletion leaves alone."""

import random
from pathlib import Path

import pytest

from streamlog import read_table
from streamlog.arrow.log_view import TopicChoice
from streamlog.arrow.subscription import Subscription
from streamlog.clock import ManualClock, SystemClock
from streamlog.errors import InvalidRequestError, StorageError, StreamLogError
from streamlog.fs.api import OpenMode
from streamlog.fs.files import make_directories, read_file
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.health.findings import Finding, Severity
from streamlog.health.repair import repair
from streamlog.health.verify import verify
from streamlog.maintenance.runner import Maintenance
from streamlog.partition.reader import LogReader
from streamlog.records.record import IsolationLevel, Record
from streamlog.root.directories import Holding, holding_of, is_file_of_a_log
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from streamlog.root.registry import alter_topic, create_topic, delete_topic, ensure_partition
from streamlog.root.roots import make_root
from streamlog.root.topics import find_partitions, partition_directories
from streamlog.topic import TopicPartition
from tests.support.crash import every_crash_point

ROOT = "/logs"
LOCAL = LocalFileSystem()


# ---- strangers' files -----------------------------------------------------------------------
def write(fs: MemoryFileSystem, path: str, text: bytes = b"a") -> None:
    with fs.open(path, OpenMode.CREATE_OR_WRITE) as file:
        file.pwrite(text, 0)
        file.sync()
    fs.sync_directory(path.rpartition("/")[0])


def memory_root() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    make_root(LogRoot.at(ROOT, fs=fs, clock=ManualClock(), random=random.Random(1)))
    return fs


def create(fs: MemoryFileSystem, topic: str, partitions: int) -> None:
    create_topic(
        LogRoot.at(ROOT, fs=fs, clock=ManualClock(), random=random.Random(1)),
        topic,
        partitions=partitions,
        configs={},
    )


def alter(fs: MemoryFileSystem, topic: str, partitions: int) -> None:
    alter_topic(
        LogRoot.at(ROOT, fs=fs, clock=ManualClock(), random=random.Random(1)),
        topic,
        configs={},
        delete_configs=(),
        partitions=partitions,
    )


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        (f"{0:020}.log", True),
        (f"{7:020}.timeindex.deleted", True),
        (f"{7:020}.log.torn-3", True),
        (f"{7:020}.snapshot.tmp", True),
        (f".{7:020}.snapshot~12-3.tmp", True),
        (".partition.metadata~12-3.tmp", True),
        (".data.txt~12-3.tmp", False),
        (f"{7:020}.index.deleted.deleted", True),
        ("partition.metadata", True),
        ("leader-epoch-checkpoint.corrupt", True),
        ("data.txt", False),
        ("notes.log", False),
        ("partition.metadata.bak", False),
        (".tmp", False),
    ],
)
def test_files_of_a_log_are_known_by_their_names(name: str, is_one: bool) -> None:
    assert is_file_of_a_log(name) == is_one


def test_a_directory_without_a_log_is_no_partition_of_a_topic() -> None:
    fs = memory_root()
    create(fs, "backup", 2)
    make_directories(fs, f"{ROOT}/backup-2")
    write(fs, f"{ROOT}/backup-2/data.txt")
    assert list(partition_directories(LogRoot.at(ROOT, fs=fs), "backup")) == [0, 1]
    with pytest.raises(InvalidRequestError, match="path is in use") as caught:
        alter(fs, "backup", 3)
    assert "data.txt" in str(caught.value.got)
    wanted = TopicPartition("backup", 2)
    with pytest.raises(InvalidRequestError, match="path is in use"):
        ensure_partition(
            LogRoot.at(ROOT, fs=fs, clock=ManualClock(), random=random.Random(1)), wanted
        )
    assert fs.list(f"{ROOT}/backup-2") == ["data.txt"]
    assert list(partition_directories(LogRoot.at(ROOT, fs=fs), "backup")) == [0, 1]


def test_an_empty_directory_of_a_known_topic_is_its_partition() -> None:
    fs = memory_root()
    create(fs, "orders", 1)
    make_directories(fs, f"{ROOT}/orders-1")
    make_directories(fs, f"{ROOT}/other-0")
    assert list(partition_directories(LogRoot.at(ROOT, fs=fs), "orders")) == [0, 1]
    assert partition_directories(LogRoot.at(ROOT, fs=fs), "other") == {}


def test_deletion_removes_files_of_logs_only_and_names_the_rest() -> None:
    fs = memory_root()
    create(fs, "backup", 2)
    make_directories(fs, f"{ROOT}/backup-2")
    make_directories(fs, f"{ROOT}/backup-0/album")
    for name in ("backup-2/data.txt", "backup-1/mine.txt", "backup-0/album/a.jpg"):
        write(fs, f"{ROOT}/{name}")
    write(fs, f"{ROOT}/backup-1/{0:020}.log")
    left = delete_topic(LogRoot.at(ROOT, fs=fs, clock=ManualClock()), "backup")
    assert left == [f"{ROOT}/backup-0/album", f"{ROOT}/backup-1/mine.txt"]
    assert fs.list(f"{ROOT}/backup-1") == ["mine.txt"]
    for name in ("backup-2/data.txt", "backup-1/mine.txt", "backup-0/album/a.jpg"):
        assert read_file(fs, f"{ROOT}/{name}", max_size=9) == b"a", name
    with pytest.raises(InvalidRequestError, match="path is in use"):
        create(fs, "backup", 2)
    assert fs.list(f"{ROOT}/.streamlog/topics") == []


def test_a_crash_in_a_deletion_keeps_strangers_files_and_their_place() -> None:
    fs = memory_root()
    create(fs, "backup", 2)
    write(fs, f"{ROOT}/backup-1/mine.txt")
    write(fs, f"{ROOT}/backup-1/{0:020}.log")

    def workload(fs: MemoryFileSystem, acknowledged: list[object]) -> None:
        acknowledged.append(delete_topic(LogRoot.at(ROOT, fs=fs, clock=ManualClock()), "backup"))

    def check(fs: MemoryFileSystem, acknowledged: object) -> None:
        if not acknowledged:
            try:
                delete_topic(LogRoot.at(ROOT, fs=fs, clock=ManualClock()), "backup")
            except StreamLogError:
                create(fs, "other", 1)  # it was done but for the answer
        assert fs.list(f"{ROOT}/backup-1") == ["mine.txt"]
        assert fs.stat(f"{ROOT}/backup-0") is None

    assert every_crash_point(workload, check, prepared=fs).states > 20


# ---- links ----------------------------------------------------------------------------------
@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with three partitions of a record each; the second one lies on another disk."""
    path = tmp_path / "root"
    with LogManager.open(path, create=True) as manager:
        manager.create_topic("orders", 3, {"segment.bytes": 1 << 20, "retention.bytes": -1})
    move_away(path, "orders-1", tmp_path / "disk")
    fill(path)
    return path


def move_away(root: Path, name: str, disk: Path) -> None:
    disk.mkdir(exist_ok=True)
    (root / name).rename(disk / name)
    (root / name).symlink_to(disk / name)


def fill(root: Path) -> None:
    with LogManager.open(root) as manager:
        for number in range(3):
            manager.log("orders", number).append([Record(None, b"%d" % number, (), 1)])


def all_read(root: Path) -> list[bytes]:
    return sorted(read_table(root, "orders")["value"].to_pylist())


def seen_by_spark(root: Path) -> dict[int, int]:
    choice = TopicChoice(topics=("orders",))
    view = Subscription(str(root), choice, IsolationLevel.READ_COMMITTED)
    view.refresh()
    view.close()
    return {each.partition: bounds.end_offset for each, bounds in view.bounds.items()}


def findings(path: Path) -> list[Finding]:
    found: list[Finding] = []
    verify(LOCAL, str(path), found.append, is_deep=True)
    return [each for each in found if each.severity is not Severity.NOTE]


def test_a_linked_partition_is_the_same_in_every_interface(root: Path) -> None:
    assert all_read(root) == [b"0", b"1", b"2"]
    assert seen_by_spark(root) == {0: 1, 1: 1, 2: 1}
    assert list(find_partitions(LOCAL, str(root))["orders"]) == [0, 1, 2]
    assert findings(root) == []
    with LogManager.open(root) as manager:
        described = manager.describe("orders")
        assert [each.log_end_offset for each in described.partitions] == [1, 1, 1]
        altered = manager.alter_topic("orders", partitions=4)
        assert [each.partition for each in altered.partitions] == [0, 1, 2, 3]
    repairs = [*repair(LOCAL, SystemClock(), random.Random(1), str(root), is_dry_run=True)]
    assert [each.error for each in repairs] == [None] * 4
    assert [each.steps for each in repairs] == [()] * 4


def test_a_reader_of_a_linked_partition_sees_what_is_appended_and_rolled(root: Path) -> None:
    reader = LogReader.open(root / "orders-1")
    choice = TopicChoice(topics=("orders",))
    view = Subscription(str(root), choice, IsolationLevel.READ_COMMITTED)
    with PartitionLog.open(root / "orders-1") as log:
        for _ in range(3):
            log.append([Record(None, bytes(600_000), (), 1)])
    reader.refresh()
    view.refresh()
    assert reader.log_end_offset == view.bounds[TopicPartition("orders", 1)].end_offset == 4
    assert len(reader.segments) > 1
    view.close()
    reader.close()


def test_maintenance_deletes_in_a_linked_partition(root: Path, tmp_path: Path) -> None:
    with LogManager.open(root) as manager:
        for _ in range(3):
            manager.log("orders", 1).append([Record(None, bytes(600_000), (), 1)])
        manager.alter_topic("orders", configs={"retention.bytes": 1, "file.delete.delay.ms": 0})
    with Maintenance(str(root)) as maintenance:
        report = maintenance.run()
    assert 1 in [deed.partition for deed in report.deeds]
    assert not report.errors
    assert f"{0:020}.log" not in [path.name for path in (tmp_path / "disk/orders-1").iterdir()]


def test_deleting_a_topic_removes_the_log_behind_a_link_and_the_link(
    root: Path, tmp_path: Path
) -> None:
    away = tmp_path / "disk" / "orders-1"
    (away / "mine.txt").write_text("a")
    with LogManager.open(root) as manager:
        left = manager.delete_topic("orders")
    assert left == [str(away / "mine.txt")]
    assert [path.name for path in away.iterdir()] == ["mine.txt"]
    assert not [path.name for path in root.iterdir() if path.name.startswith("orders")]


def test_a_link_that_leads_nowhere_is_an_error_and_no_partition_less(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "disk").rename(tmp_path / "unmounted")
    with pytest.raises(StreamLogError, match="leads nowhere"):
        all_read(root)
    with pytest.raises(StorageError, match="leads nowhere") as caught:
        seen_by_spark(root)
    assert "mount" in str(caught.value.hint)
    with pytest.raises(StorageError, match="leads nowhere"):
        PartitionLog.open(root / "orders-1")
    with LogManager.open(root) as manager, pytest.raises(StorageError, match="leads nowhere"):
        manager.describe("orders")
    assert holding_of(LOCAL, str(root / "orders-0")) is Holding.LOG


def test_a_stream_notices_that_a_linked_disk_went_away(root: Path, tmp_path: Path) -> None:
    choice = TopicChoice(topics=("orders",))
    view = Subscription(str(root), choice, IsolationLevel.READ_COMMITTED)
    (tmp_path / "disk").rename(tmp_path / "unmounted")
    with pytest.raises(StorageError, match="leads nowhere"):
        view.refresh()
    view.close()


def test_a_partition_of_another_root_is_read_by_a_link_and_never_written(
    root: Path, tmp_path: Path
) -> None:
    mirror = tmp_path / "mirror"
    with LogManager.open(mirror, create=True) as manager:
        manager.create_topic("orders", 1)
    (mirror / "orders-1").symlink_to(root / "orders-0")
    assert read_table(mirror / "orders-1").num_rows == 1
    with pytest.raises(InvalidRequestError, match="another log root"):
        PartitionLog.open(mirror / "orders-1")


def test_two_links_to_one_directory_are_never_written(root: Path, tmp_path: Path) -> None:
    (root / "orders-3").symlink_to(tmp_path / "disk" / "orders-1")
    with pytest.raises(InvalidRequestError, match="two partitions"):
        PartitionLog.open(root / "orders-3")


def test_a_linked_root_is_the_same_root(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "current"
    link.symlink_to(root)
    assert all_read(link) == [b"0", b"1", b"2"]
    assert seen_by_spark(link) == {0: 1, 1: 1, 2: 1}
    assert findings(link) == []
    with PartitionLog.open(root / "orders-0") as one, PartitionLog.open(link / "orders-0") as two:
        with one.writing(), pytest.raises(StreamLogError):
            PartitionLog.open(link / "orders-0", lock_timeout_ms=10)
        assert one.append([Record(None, b"a")]).base_offset == 1
        assert two.append([Record(None, b"b")]).base_offset == 2
    with Maintenance(str(link)) as maintenance:
        assert not maintenance.run().errors
