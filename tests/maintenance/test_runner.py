"""The runner that keeps a root in bounds: what it does, when, and what it leaves alone."""

import json
from random import Random
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.errors import (
    CorruptCheckpointError,
    InvalidRequestError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.files import make_directories
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.maintenance.runner import Maintenance
from streamlog.records.record import Record
from streamlog.root import deeds as maintenance_book
from streamlog.root.deeds import Deed, read_deeds, write_deeds
from streamlog.root.manager import LogManager
from streamlog.root.readers import write_progress
from tests.support.commits import ROOT as SCENE_ROOT
from tests.support.commits import Scene
from tests.support.maintenance import NOW, ROOT, maintenance, manager, put_server

SMALL = {"internal.segment.bytes": 150, "retention.ms": 1000}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def fs(clock: ManualClock) -> MemoryFileSystem:
    """A root with a topic of two partitions, five segments in each, a record in each."""
    made = MemoryFileSystem(clock=clock)
    with manager(made, clock, create=True) as root:
        root.create_topic("orders", 2, SMALL)
        fill(root, 5)
    return made


def fill(root: LogManager, count: int) -> None:
    for partition in (0, 1):
        log = root.log("orders", partition)
        for number in range(count):
            log.append([Record(None, b"value %d" % (number % 10) * 9, (), NOW + 100 * number)])


def starts(fs: FileSystem, clock: ManualClock) -> list[int]:
    with manager(fs, clock) as root:
        return [each.log_start_offset for each in root.describe("orders").partitions]


def summary(deeds: list[Deed]) -> list[tuple[int, str, int, int]]:
    return [(each.partition, each.reason, each.segments, each.log_start_offset) for each in deeds]


# ---- what it does -----------------------------------------------------------------------------
def test_a_run_deletes_what_is_too_old_says_so_and_writes_it_down(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    clock.advance(1250)
    with maintenance(fs, clock) as runner:
        planned = runner.plan()
        assert starts(fs, clock) == [0, 0]
        report = runner.run()
    assert summary(report.deeds) == [(0, "retention.ms", 3, 3), (1, "retention.ms", 3, 3)]
    assert planned.deeds == report.deeds == read_deeds(LogRoot.at(ROOT, fs=fs))
    assert (report.is_finished, report.is_elsewhere, report.errors) == (True, False, [])
    assert starts(fs, clock) == [3, 3]


def test_deleted_files_are_removed_once_their_delay_is_over(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    def deleted() -> int:
        return sum(name.endswith(".deleted") for name in fs.list(f"{ROOT}/orders-0"))

    clock.advance(1250)
    with maintenance(fs, clock) as runner:
        runner.run()
        clock.advance(59_999)
        before = deleted()
        runner.run()
        clock.advance(1)
        runner.run()
    assert before >= 3
    assert sum(str(n).zfill(20) in name and name.endswith(".deleted")
               for name in fs.list(f"{ROOT}/orders-0") for n in range(3)) == 0  # fmt: skip


def test_settings_that_were_altered_are_in_force_at_the_next_run(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    clock.advance(5000)
    with maintenance(fs, clock) as runner, manager(fs, clock) as root:
        root.alter_topic("orders", configs={"retention.ms": -1})
        assert runner.run().deeds == []
        size = root.describe("orders").partitions[0].size_bytes
        root.alter_topic("orders", configs={"retention.bytes": size // 5 * 2})
        assert summary(runner.run().deeds) == [
            (0, "retention.bytes", 3, 3),
            (1, "retention.bytes", 3, 3),
        ]


def test_a_compacted_topic_loses_only_what_nobody_may_read(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    clock.advance(10**9)
    with maintenance(fs, clock) as runner, manager(fs, clock) as root:
        root.log("orders", 0).delete_records(2)
        root.alter_topic("orders", configs={"cleanup.policy": "compact"})
        gone = [each for each in runner.run().deeds if each.action == "retention"]
        assert summary(gone) == [(0, "log start", 2, 2)]


def test_appends_after_a_run_are_seen_by_the_next_one(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with maintenance(fs, clock) as runner, manager(fs, clock) as root:
        root.alter_topic("orders", configs={"retention.ms": -1, "retention.bytes": 10_000})
        assert runner.run().deeds == []
        clock.advance(1)
        fill(root, 200)
        sizes = [each.size_bytes for each in root.describe("orders").partitions]
        assert min(sizes) > 10_000
        assert {each.reason for each in runner.run_due(budget_ms=1e9).deeds} == {"retention.bytes"}


# ---- when -------------------------------------------------------------------------------------
def test_between_triggers_it_looks_only_as_often_as_the_root_says(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    put_server(fs, "log.retention.check.interval.ms=2000\n")
    with maintenance(fs, clock) as runner:
        assert runner.run_due(budget_ms=100).deeds == []
        clock.advance(1999)
        assert runner.run_due(budget_ms=100).deeds == []
        assert starts(fs, clock) == [0, 0]
        clock.advance(1)
        assert len(runner.run_due(budget_ms=100).deeds) == 2


def test_a_spent_budget_ends_a_run_and_the_next_one_goes_on(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    clock.advance(1250)
    slow = FaultyFileSystem(fs, observe=lambda operation, source: clock.advance(1))
    with maintenance(slow, clock) as runner:
        first = runner.run_due(budget_ms=1)
        assert ([each.partition for each in first.deeds], first.is_finished) == ([0], False)
        second = runner.run_due(budget_ms=1)
        assert ([each.partition for each in second.deeds], second.is_finished) == ([1], True)


def test_two_never_maintain_a_root_at_once(fs: MemoryFileSystem, clock: ManualClock) -> None:
    clock.advance(1250)
    lock = fs.try_lock(LogRoot.at(ROOT).maintainer_lock, shared=False)
    assert lock is not None
    with maintenance(fs, clock) as runner:
        report = runner.run()
        assert (report.deeds, report.is_elsewhere, report.is_finished) == ([], True, False)
        lock.release()
        assert len(runner.run().deeds) == 2


# ---- what goes wrong --------------------------------------------------------------------------
def test_a_partition_in_trouble_does_not_stop_the_others(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    clock.advance(1250)
    full = Fault(operation="rename", path_suffix="orders-0/00000000000000000001.log", errno=5)
    with maintenance(FaultyFileSystem(fs, full), clock) as runner:
        report = runner.run()
        assert [each.partition for each in report.deeds] == [1]
        assert len(report.errors) == 1
        runner.run()
    assert starts(fs, clock) == [3, 3]


def test_a_topic_that_was_deleted_and_made_again_is_another_one(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    clock.advance(1250)
    with maintenance(fs, clock) as runner:
        runner.run()
        with manager(fs, clock) as root:
            root.delete_topic("orders")
            root.create_topic("orders", 2, SMALL)
            fill(root, 3)
        for _ in range(2):
            runner.run()
    assert starts(fs, clock) == [3, 3]


def test_only_a_root_of_ours_is_maintained(fs: MemoryFileSystem, clock: ManualClock) -> None:
    with pytest.raises(UnknownTopicError):
        Maintenance("/nowhere", fs=fs, clock=clock)
    make_directories(fs, "/foreign/orders-0")
    with pytest.raises(InvalidRequestError, match="read-only here"):
        Maintenance("/foreign", fs=fs, clock=clock)


def test_the_book_loses_its_older_half_and_what_nobody_understands(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance_book, "MAX_BOOK_SIZE", 2000)
    path = LogRoot.at(ROOT).maintenance_book
    for number in range(50):
        write_deeds(LogRoot.at(ROOT, fs=fs), [deed(number)])
        found = fs.stat(path)
        assert found is not None and found.size <= 2000
    with fs.open(path, OpenMode.WRITE) as file:
        file.pwrite(b'{"ms":1}\nno json\n', file.stat().size)
    kept = [each.ms for each in read_deeds(LogRoot.at(ROOT, fs=fs))]
    assert kept == list(range(kept[0], 50))
    assert len(kept) > 5
    assert json.loads(json.dumps(deed(1).to_json()))["logStartOffset"] == 5


def deed(ms: int, **others: Any) -> Deed:
    return Deed(
        ms=ms, topic="orders", partition=0, action="retention", reason="retention.ms",
        segments=1, bytes=100, log_start_offset=5, **others,
    )  # fmt: skip


# ---- commits ----------------------------------------------------------------------------------
@pytest.mark.parametrize("way", ["all", "due"])
def test_what_an_ended_query_left_is_retired_and_its_files_go(way: str) -> None:
    clock = ManualClock(NOW)
    scene = Scene(clock=clock)
    scene.commit(0)
    orphan = scene.stage(0, app="never committed")
    path = f"{SCENE_ROOT}/.streamlog/staging/never%20committed/{orphan.name}"
    scene.fs.set_mtime(path, NOW - 8 * 86_400_000)
    with Maintenance(SCENE_ROOT, fs=scene.fs, clock=clock, random=Random(2)) as runner:
        clock.advance(59_999)
        assert runner.run().errors == []
        assert len(scene.commits.pending()) == 1  # it may commit again any moment
        assert scene.fs.stat(path) is None
        clock.advance(300_000)
        report = runner.run() if way == "all" else runner.run_due(budget_ms=1e9)
        assert report.errors == []
    assert scene.commits.pending() == []
    assert scene.staged_names() == []


def test_a_damaged_decision_is_told_of_and_retention_goes_on() -> None:
    clock = ManualClock(NOW)
    scene = Scene(clock=clock)
    scene.commit(0)
    pending = f"{SCENE_ROOT}/.streamlog/commits/pending"
    (name,) = scene.fs.list(pending)
    with scene.fs.open(f"{pending}/{name}", OpenMode.WRITE) as file:
        file.truncate(7)
    with Maintenance(SCENE_ROOT, fs=scene.fs, clock=clock, random=Random(2)) as runner:
        report = runner.run()
    assert [type(each) for each in report.errors] == [CorruptCheckpointError]
    assert report.is_finished


# ---- readers ----------------------------------------------------------------------------------
def record_reader(fs: FileSystem, clock: ManualClock, offset: int, name: str = "billing") -> None:
    offsets = {"orders": {"0": offset}}
    write_progress(LogRoot.at(ROOT, fs=fs), name, offsets, now_ms=clock.now_ms())


def test_what_a_reader_has_not_finished_is_kept_and_told_of(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    record_reader(fs, clock, 1)
    record_reader(fs, clock, 4, "audit")
    clock.advance(10_000)
    with maintenance(fs, clock) as runner:
        report = runner.run()
        assert summary(report.deeds) == [(0, "retention.ms", 1, 1)]
        held = {(each.reader, each.partition.partition): each for each in report.held}
        assert held["billing", 0].offset == held["billing", 0].kept_from == 1
        assert held["billing", 0].bytes > held["audit", 0].bytes == 0
        record_reader(fs, clock, 3)
        assert summary(runner.run().deeds) == [(0, "retention.ms", 2, 3)]


def test_a_partition_that_was_added_is_kept_for_a_reader_of_its_topic(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    record_reader(fs, clock, 5)
    clock.advance(10_000)
    with maintenance(fs, clock) as runner:
        assert [each.partition for each in runner.run().deeds] == [0]


def test_a_reader_that_is_silent_for_too_long_keeps_nothing(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    put_server(fs, "offsets.retention.minutes=1\n")
    record_reader(fs, clock, 0)
    clock.advance(60_000)
    with maintenance(fs, clock) as runner:
        assert [each.partition for each in runner.run().deeds if each.partition == 0] == []
        clock.advance(1)
        assert [each.partition for each in runner.run().deeds if each.partition == 0] == [0]


def test_readers_keep_no_more_than_the_cap(fs: MemoryFileSystem, clock: ManualClock) -> None:
    with manager(fs, clock) as root:
        segment = root.describe("orders").partitions[0].size_bytes // 5
    put_server(fs, f"streamlog.readers.max.bytes={2 * segment + 5}\n")
    record_reader(fs, clock, 0)
    clock.advance(10_000)
    with maintenance(fs, clock) as runner:
        report = runner.run()
    assert summary(report.deeds)[0] == (0, "retention.ms", 3, 3)
    assert [(each.offset, each.kept_from) for each in report.held if not each.partition[1]] == [
        (0, 3)
    ]


def test_a_reader_of_the_topic_that_was_there_before_keeps_nothing_of_the_new_one(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    offsets = {"$topicIds": {"orders": "A" * 22}, "orders": {"0": 0, "1": 0}}
    write_progress(LogRoot.at(ROOT, fs=fs), "billing", offsets, now_ms=NOW)
    clock.advance(10_000)
    with maintenance(fs, clock) as runner:
        assert len(runner.run().deeds) == 2
