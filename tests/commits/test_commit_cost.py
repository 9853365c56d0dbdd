"""Number of syncs of commits, retirements and closing, by the number of partitions."""

import threading
from collections.abc import Callable
from pathlib import PurePath
from random import Random

import pytest

from streamlog.commits import pending
from streamlog.commits.commit_log import CommitLog
from streamlog.commits.decisions import parse_decision
from streamlog.commits.identity import app_key
from streamlog.commits.pending import PendingDecisions
from streamlog.commits.retirement import BackgroundChores
from streamlog.fs.faults import FaultyFileSystem, Operation
from streamlog.fs.files import read_file
from streamlog.fs.log_root import RECOVERY_POINT_CHECKPOINT, LogRoot
from streamlog.fs.memory import MemoryFile, MemoryFileSystem
from streamlog.partition import checkpoints
from streamlog.partition.producers import ProducerStateManager
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from streamlog.topic import TopicPartition
from tests.support.commits import APP, Scene

FEW, MANY = 3, 13
SYNCS = ("sync", "sync_directory")


class Wide:
    """A root with one topic of many partitions that records its file operations."""

    def __init__(self, partitions: int) -> None:
        self.fs = FaultyFileSystem(MemoryFileSystem())
        self.scene = Scene(self.fs)
        self.scene.manager.create_topic("wide", partitions)
        self.partitions = range(partitions)
        self.version = 0

    def commit(self) -> list[Operation]:
        """Commit a row to each partition."""
        rows = {number: [b"row"] for number in self.partitions}
        staged = [self.scene.stage(self.version, rows, topic="wide")]
        done = self.recorded(lambda: self.scene.commit(self.version, staged))
        self.version += 1
        return done

    def recorded(self, what: Callable[[], object]) -> list[Operation]:
        """Return the file operations of a call."""
        before = len(self.fs.operations)
        what()
        return list(self.fs.operations[before:])


def syncs(operations: list[Operation]) -> int:
    return sum(each.name in SYNCS for each in operations)


def checkpoint_writes(operations: list[Operation]) -> int:
    name = RECOVERY_POINT_CHECKPOINT
    return sum(each.name == "rename" and str(each.target).endswith(name) for each in operations)


def test_a_partition_used_for_the_first_time_costs_at_most_three_syncs() -> None:
    few, many = (Wide(count).commit() for count in (FEW, MANY))
    assert syncs(many) - syncs(few) <= 3 * (MANY - FEW)
    assert checkpoint_writes(many) == 1, "all first uses are one write"


def test_the_syncs_of_a_commit_do_not_depend_on_the_partitions() -> None:
    counts = []
    for wide in (Wide(FEW), Wide(MANY)):
        wide.commit()
        counts.append(syncs(wide.commit()))
    assert counts == [3, 3], "the staging directory, the decision, its directory"


def test_a_retirement_syncs_each_log_once_and_writes_the_recovery_points_once() -> None:
    counts = []
    for wide in (Wide(FEW), Wide(MANY)):
        wide.commit()
        wide.commit()
        done = wide.recorded(wide.scene.commits.retire)
        assert checkpoint_writes(done) == 1
        counts.append(syncs(done))
    assert counts[1] - counts[0] == MANY - FEW
    root = checkpoints.read_recovery_points(LogRoot.at(wide.scene.root, fs=wide.fs))
    assert [root[TopicPartition("wide", number)] for number in wide.partitions] == [2] * MANY


def test_closing_writes_the_recovery_points_once() -> None:
    wide = Wide(MANY)
    wide.commit()
    done = wide.recorded(wide.scene.manager.close)
    assert checkpoint_writes(done) == 1
    marks = checkpoints.read_recovery_points(LogRoot.at(wide.scene.root, fs=wide.fs))
    assert [marks[TopicPartition("wide", number)] for number in wide.partitions] == [1] * MANY


def test_closing_syncs_the_directory_of_a_partition_once() -> None:
    counts = []
    for wide in (Wide(FEW), Wide(MANY)):
        wide.commit()
        counts.append(wide.recorded(wide.scene.manager.close))
    assert syncs(counts[1]) - syncs(counts[0]) <= 5 * (MANY - FEW), "log, indexes, snapshot, names"
    directories = [each.path for each in counts[1] if each.name == "sync_directory"]
    assert [directories.count(f"/log/wide-{number}") for number in range(MANY)] == [1] * MANY


def test_what_closing_left_is_durable_with_the_names_of_all_its_files() -> None:
    wide = Wide(FEW)
    wide.commit()
    wide.scene.manager.close()
    before = {each: wide.fs.list(f"/log/wide-{each}") for each in wide.partitions}
    for seed in range(20):
        after = wide.scene.memory.crash_clone(Random(seed), power=True)
        assert {each: after.list(f"/log/wide-{each}") for each in wide.partitions} == before


def test_closing_without_news_of_producers_syncs_the_names_of_new_indexes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = Wide(FEW)
    wide.commit()
    monkeypatch.setattr(ProducerStateManager, "take_snapshot", lambda *_: False)
    wide.scene.manager.close()
    after = wide.scene.memory.crash_clone(Random(0), power=True)
    assert "00000000000000000000.timeindex" in after.list("/log/wide-0")


def test_closing_what_nothing_was_appended_to_syncs_no_log() -> None:
    wide = Wide(MANY)
    wide.commit()
    wide.scene.manager.close()
    with LogManager.open(wide.scene.root, fs=wide.fs, clock=wide.scene.clock) as again:
        for number in wide.partitions:
            again.log("wide", number)
        before = len(wide.fs.operations)
    logs = [
        each
        for each in wide.fs.operations[before:]
        if each.name == "sync" and "/wide-" in each.path
    ]
    assert len(logs) <= 3 * MANY


def test_partitions_opened_together_survive_a_power_cut_as_those_opened_alone() -> None:
    wide = Wide(MANY)
    logs = wide.scene.manager.logs([TopicPartition("wide", number) for number in wide.partitions])
    marks = checkpoints.read_recovery_points(LogRoot.at(wide.scene.root, fs=wide.fs))
    assert all(marks[log.topic_partition] == 0 for log in logs)
    assert isinstance(wide.fs.inner, MemoryFileSystem)
    after = wide.fs.inner.crash_clone(Random(0), power=True)
    with LogManager.open(wide.scene.root, fs=after, clock=wide.scene.clock) as manager:
        assert len(manager.partitions("wide")) == MANY
        assert checkpoints.read_recovery_points(LogRoot.at(wide.scene.root, fs=after)) == marks


def test_one_that_cannot_be_opened_leaves_none_open() -> None:
    wide = Wide(FEW)
    wanted = [TopicPartition("wide", 0), TopicPartition("wide", FEW)]
    with pytest.raises(Exception, match="no such partition"):
        wide.scene.manager.logs(wanted)
    lock = wide.fs.try_lock(LogRoot.at(wide.scene.root).partition_lock(wanted[0]), shared=False)
    assert lock is not None
    lock.release()
    wide.commit()


# ---- decisions that wait --------------------------------------------------------------------
@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the decision files in the order in which they are parsed."""
    paths: list[str] = []

    def noted(content: bytes, path: str) -> object:
        paths.append(path)
        return parse_decision(content, path)

    monkeypatch.setattr(pending, "parse_decision", noted)
    return paths


def decided(commits: int) -> Wide:
    """Return a root with that many unretired decisions, whose process has ended."""
    wide = Wide(MANY)
    for _ in range(commits):
        wide.commit()
    wide.fs = FaultyFileSystem(wide.scene.memory.crash_clone(Random(0), power=True))
    return wide


def sizes_of(wide: Wide, directory: PendingDecisions) -> list[int]:
    """Return the sizes of the decisions' files, in bytes."""
    paths = [f"{directory.path}/{name}" for name in directory.names()]
    return [len(read_file(wide.fs, path, max_size=1 << 20)) for path in paths]


def test_each_decision_is_parsed_once_however_many_partitions_are_opened(
    parsed: list[str],
) -> None:
    wide = decided(3)
    root, clock = wide.scene.root, wide.scene.clock
    with LogManager.open(root, fs=wide.fs, clock=clock) as manager:
        for number in wide.partitions:
            assert manager.log("wide", number).log_end_offset == 3
        manager.commits.retire()
        manager.log("wide", 0).truncate_to(1)
    assert len(parsed) == len(set(parsed)) == 3


def test_a_partition_opened_alone_parses_each_decision_once(parsed: list[str]) -> None:
    wide = decided(3)
    path = f"{wide.scene.root}/wide-0"
    with PartitionLog.open(path, fs=wide.fs, clock=wide.scene.clock) as log:
        assert log.log_end_offset == 3
        log.truncate_to(3)
    assert len(parsed) == len(set(parsed)) == 3


def test_decisions_kept_in_memory_are_bounded_and_all_of_them_are_applied(
    monkeypatch: pytest.MonkeyPatch, parsed: list[str]
) -> None:
    wide = decided(3)
    directory = PendingDecisions(LogRoot.at(wide.scene.root, fs=wide.fs))
    names = directory.names()
    sizes = sizes_of(wide, directory)
    monkeypatch.setattr(pending, "KEPT_SIZE", sizes[0] + sizes[1])
    with LogManager.open(wide.scene.root, fs=wide.fs, clock=wide.scene.clock) as manager:
        for number in wide.partitions:
            assert manager.log("wide", number).log_end_offset == 3
    times = [parsed.count(f"{directory.path}/{each}") for each in names]
    assert times == [1, 1, MANY], "two fit, and the third one is parsed for each partition"


def test_what_is_retired_leaves_room_for_other_decisions(
    monkeypatch: pytest.MonkeyPatch, parsed: list[str]
) -> None:
    wide = decided(1)
    directory = PendingDecisions(LogRoot.at(wide.scene.root, fs=wide.fs))
    (size,) = sizes_of(wide, directory)
    monkeypatch.setattr(pending, "KEPT_SIZE", size + size // 2)
    scene = Scene(wide.fs)
    for version in range(1, 4):
        assert directory.load(directory.names()[0]) is not None
        parsed.clear()
        assert directory.load(directory.names()[0]) is not None
        assert not parsed, "it is kept"
        scene.commits.retire()
        assert directory.names() == []
        rows = {number: [b"row"] for number in wide.partitions}
        scene.commit(version, [scene.stage(version, rows, topic="wide")])


# ---- locks ----------------------------------------------------------------------------------
def test_no_log_is_synced_while_the_lock_of_its_app_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide = Wide(FEW)
    wide.commit()
    synced = []
    sync = MemoryFile.sync

    def checked(file: MemoryFile) -> None:
        if PurePath(file.path).suffix == ".log":
            lock = wide.fs.try_lock(wide.scene.log_root.app_lock(app_key(APP)), shared=False)
            assert lock is not None, "a query would wait for its own logs to be synced"
            lock.release()
            synced.append(file.path)
        sync(file)

    monkeypatch.setattr(MemoryFile, "sync", checked)
    wide.scene.commits.retire()
    assert len(synced) == FEW


def test_a_query_goes_on_while_its_own_chores_wait_for_a_slow_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    chores = BackgroundChores()
    scene.commits = CommitLog(
        scene.log_root,
        open_logs=scene.manager.logs,
        lock_timeout_ms=0,
        chores=chores,
    )
    scene.commit(0, [scene.stage(0, {0: [b"a"]})])
    is_syncing, may_end = threading.Event(), threading.Event()
    sync = MemoryFile.sync

    def slow(file: MemoryFile) -> None:
        if file.path.endswith("t-0/00000000000000000000.log"):
            is_syncing.set()
            assert may_end.wait(10)
        sync(file)

    monkeypatch.setattr(MemoryFile, "sync", slow)

    def retire() -> None:
        scene.commits.retire()

    chores(retire)
    assert is_syncing.wait(10)
    scene.commit(1, [scene.stage(1, {1: [b"b"]})])
    assert scene.values(1) == [b"b"]
    may_end.set()
    chores.wait()
    assert [name[-1] for name in scene.pending_names()] == ["2"], "only what was settled went"
