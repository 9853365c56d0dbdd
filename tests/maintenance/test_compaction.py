"""Compaction as the runner does it: what is due, when, and what is not looked at again."""

from collections.abc import Iterator
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.errors import (
    CorruptRecordError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.maintenance import compaction
from streamlog.maintenance.runner import Maintenance
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.deeds import read_deeds
from streamlog.root.manager import LogManager
from streamlog.root.readers import write_progress
from streamlog.topic import TopicPartition
from tests.support.maintenance import NOW, ROOT, maintenance, manager, put_server

COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": 1000}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def compacted(clock: ManualClock) -> MemoryFileSystem:
    """A root with a compacted topic of two partitions, the first all dirty, the second empty."""
    made = MemoryFileSystem(clock=clock)
    with manager(made, clock, create=True) as root:
        root.create_topic("states", 2, COMPACTED)
        write_states(root, 0)
    return made


def write_states(root: LogManager, partition: int, count: int = 60) -> None:
    """Append records of three keys, one a batch, the number as the value, and roll."""
    log = root.log("states", partition)
    for number in range(count):
        log.append([Record(b"abc"[number % 3 :][:1], b"%040d" % number, (), NOW)])
    log.roll()


def states(fs: FileSystem, partition: int = 0) -> list[int]:
    """Return the offsets that are left."""
    with LogReader.open(f"{ROOT}/states-{partition}", fs=fs) as log:
        offsets, at = [], log.log_start_offset
        while at < log.log_end_offset:
            info = log.read(at)
            offsets += [each.offset for each in info.records()]
            at = info.next_offset
    return offsets


def deleted_segments(fs: FileSystem) -> int:
    return sum(name.endswith(".log.deleted") for name in fs.list(f"{ROOT}/states-0"))


def test_a_run_compacts_what_is_due_says_so_and_writes_it_down(
    compacted: MemoryFileSystem, clock: ManualClock
) -> None:
    with maintenance(compacted, clock) as runner:
        (planned,) = runner.plan().deeds
        assert states(compacted) == list(range(60))
        report = runner.run()
        assert states(compacted) == [57, 58, 59]
        assert runner.run().deeds == runner.plan().deeds == []
    (deed,) = report.deeds
    assert (deed.action, deed.reason, deed.partition) == (
        "compaction",
        "min.cleanable.dirty.ratio",
        0,
    )
    assert planned.segments == deleted_segments(compacted) > 4
    assert planned.bytes // 2 < deed.bytes < planned.bytes
    assert [deed] == read_deeds(LogRoot.at(ROOT, fs=compacted))
    assert (report.errors, report.is_finished) == ([], True)


def test_the_largest_lag_makes_even_a_little_dirt_due(
    compacted: MemoryFileSystem, clock: ManualClock
) -> None:
    with maintenance(compacted, clock) as runner, manager(compacted, clock) as root:
        lag = {"min.cleanable.dirty.ratio": 1.0, "max.compaction.lag.ms": 5000}
        root.alter_topic("states", configs=lag)
        clock.advance(5000)
        assert runner.run().deeds == []
        clock.advance(1)
        assert [each.reason for each in runner.run().deeds] == ["max.compaction.lag.ms"]
    assert states(compacted) == [57, 58, 59]


def test_compaction_between_triggers_is_due_by_the_backoff_of_the_cleaner(
    compacted: MemoryFileSystem, clock: ManualClock
) -> None:
    put_server(compacted, "log.cleaner.backoff.ms=3000\n")
    with maintenance(compacted, clock) as runner, manager(compacted, clock) as root:
        assert len(runner.run_due(budget_ms=1e9).deeds) == 1
        write_states(root, 0)
        clock.advance(2999)
        assert runner.run_due(budget_ms=1e9).deeds == []
        clock.advance(1)
        assert len(runner.run_due(budget_ms=1e9).deeds) == 1


@pytest.fixture
def looks(
    compacted: MemoryFileSystem, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Maintenance, list[TopicPartition]]]:
    """A runner that has looked and found nothing due, and where it looks from now on."""
    put_server(compacted, "log.cleaner.backoff.ms=0\n")
    with manager(compacted, clock) as root:
        lags = {"min.cleanable.dirty.ratio": 1.0, "min.compaction.lag.ms": 5000}
        root.alter_topic("states", configs=lags | {"cleanup.policy": "compact,delete"})
    look, looked = compaction._look, list[TopicPartition]()

    def noted(
        candidate: compaction.CompactedPartition, *others: Any
    ) -> compaction.Due | compaction.NotDue:
        looked.append(candidate.partition)
        return look(candidate, *others)

    monkeypatch.setattr(compaction, "_look", noted)
    with maintenance(compacted, clock) as runner:
        assert runner.run_due(budget_ms=1e9).deeds == []
        assert looked == [TopicPartition("states", 0)]  # the other has one segment
        looked.clear()
        yield runner, looked


def test_what_is_not_due_is_looked_at_once(
    looks: tuple[Maintenance, list[TopicPartition]], clock: ManualClock
) -> None:
    runner, looked = looks
    clock.advance(4999)
    assert runner.run_due(budget_ms=1e9).deeds == []
    assert looked == []


@pytest.mark.parametrize(
    "change", ["time", "clock back", "append", "setting", "reader", "log start", "nothing spared"]
)
def test_it_is_looked_at_again_once_that_may_be_otherwise(
    looks: tuple[Maintenance, list[TopicPartition]],
    compacted: MemoryFileSystem,
    clock: ManualClock,
    change: str,
) -> None:
    runner, looked = looks
    with manager(compacted, clock) as root:
        if change == "time":
            clock.advance(5000)
        elif change == "clock back":
            clock.set(NOW - 1)
        elif change == "append":
            write_states(root, 0, 1)
        elif change == "setting":
            root.alter_topic("states", configs={"max.compaction.lag.ms": 1 << 60})
        elif change == "reader":
            offsets = {"states": {"0": 3}}
            write_progress(
                LogRoot.at(ROOT, fs=compacted), "billing", offsets, now_ms=clock.now_ms()
            )
        elif change == "log start":
            root.log("states", 0).delete_records(3)
    report = runner.run() if change == "nothing spared" else runner.run_due(budget_ms=1e9)
    assert report.deeds == []
    assert looked == [TopicPartition("states", 0)]


def test_time_alone_makes_due_what_was_too_young(
    compacted: MemoryFileSystem, clock: ManualClock
) -> None:
    put_server(compacted, "log.cleaner.backoff.ms=0\n")
    with maintenance(compacted, clock) as runner:
        with manager(compacted, clock) as root:
            root.alter_topic("states", configs={"min.compaction.lag.ms": 5000})
        assert runner.run_due(budget_ms=1e9).deeds == []
        clock.advance(4999)
        assert runner.run_due(budget_ms=1e9).deeds == []
        clock.advance(1)
        assert [each.action for each in runner.run_due(budget_ms=1e9).deeds] == ["compaction"]


def test_a_spent_budget_pauses_compaction_and_the_next_run_goes_on(
    compacted: MemoryFileSystem, clock: ManualClock
) -> None:
    with manager(compacted, clock) as root:
        write_states(root, 1)
    slow = FaultyFileSystem(compacted, observe=lambda operation, source: clock.advance(1))
    reports = []
    with maintenance(slow, clock) as runner:
        while not reports or not reports[-1].is_finished:
            reports.append(runner.run_due(budget_ms=20))
            assert len(reports) < 100
    assert len(reports) > 3
    assert sorted(each.partition for report in reports for each in report.deeds) == [0, 1]
    assert states(compacted, 0) == states(compacted, 1) == [57, 58, 59]


def test_compaction_stops_before_what_a_recorded_reader_has_not_finished(
    compacted: MemoryFileSystem, clock: ManualClock
) -> None:
    write_progress(
        LogRoot.at(ROOT, fs=compacted), "audit", {"states": {"0": 30, "1": 0}}, now_ms=NOW
    )
    with maintenance(compacted, clock) as runner:
        assert len(runner.run().deeds) == 1
        kept = states(compacted)
        assert kept[-30:] == list(range(30, 60))
        assert len(kept) < 45
        write_progress(
            LogRoot.at(ROOT, fs=compacted), "audit", {"states": {"0": 60, "1": 0}}, now_ms=NOW
        )
        assert len(runner.run().deeds) == 1
    assert states(compacted) == [57, 58, 59]


def test_compaction_can_be_switched_off(compacted: MemoryFileSystem, clock: ManualClock) -> None:
    put_server(compacted, "log.cleaner.enable=false\n")
    with maintenance(compacted, clock) as runner:
        assert runner.plan().deeds == runner.run().deeds == []
    assert states(compacted) == list(range(60))


def test_a_damaged_partition_is_told_of_once_and_the_others_are_cleaned(
    compacted: MemoryFileSystem, clock: ManualClock
) -> None:
    with manager(compacted, clock) as root:
        write_states(root, 1)
        with compacted.open(root.log("states", 0).segments[0].path, OpenMode.WRITE) as file:
            file.pwrite(b"\xff", 100)
    with maintenance(compacted, clock) as runner:
        report = runner.run()
        assert [each.partition for each in report.deeds] == [1]
        assert [type(each) for each in report.errors] == [CorruptRecordError]
        again = runner.run()
    assert (again.deeds, again.errors) == ([], [])
    assert states(compacted, 1) == [57, 58, 59]


def test_a_disk_that_refuses_is_tried_again(
    compacted: MemoryFileSystem, clock: ManualClock
) -> None:
    full = Fault(operation="sync", path_suffix=".cleaned", errno=28)
    with maintenance(FaultyFileSystem(compacted, full), clock) as runner:
        report = runner.run()
        assert (report.deeds, len(report.errors)) == ([], 1)
        assert states(compacted) == list(range(60))
        assert len(runner.run().deeds) == 1
    assert states(compacted) == [57, 58, 59]
