"""File names created by a process that died before syncing them, then lost in a power cut.

A process dies before some operation. The next one finds its files and continues. Its
acknowledgements must survive a power cut that drops everything unsynced, whichever names the dead
process created last. `COMMITS.md` ("Names") lists the names and what makes each of them durable.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.fs.api import FileSystem
from streamlog.fs.faults import Operation
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.topic_config import read_topic_properties
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.readers import check_progress, list_readers, write_progress
from streamlog.topic import TopicPartition
from tests.support.commits import NOW, ROOT, Scene, rows_of, values_in
from tests.support.crash import crash_states

Step = tuple[str, int, bool] | None  # app, version, whether it has rows; None: retire

FIRST, SECOND = "query-1/t", "query-2/t"
OURS, THEIRS = 3_000_000_001, 3_000_000_002
LONG = "n" * 249
CONFIGS = {"segment.bytes": "1048577"}
NAMING = {
    *("create", "link", "rename", "remove", "make_directory", "remove_directory"),
    "sync_directory",
}

# Commits of a process before it dies at any point of them.
ORDERS: dict[str, list[Step]] = {
    "empty first": [(FIRST, 0, False), (FIRST, 1, True)],
    "rows first": [(FIRST, 0, True), (FIRST, 1, True)],
    "two apps": [(FIRST, 0, False), (SECOND, 0, True), (FIRST, 1, True)],
    "retired between": [(FIRST, 0, False), None, (FIRST, 1, True), None],
}


def changes_names(operation: Operation) -> bool:
    """Return whether an operation changes the existing or the durable names."""
    return operation.name in NAMING


def commit(scene: Scene, app: str, version: int, *, has_rows: bool) -> None:
    if has_rows:
        scene.commit(version, app=app)
    else:
        scene.commit(version, [scene.stage(version, {}, app=app)], app=app)


def do(scene: Scene, step: Step, acknowledged: list[Any]) -> None:
    if step is None:
        scene.commits.retire()
        return
    app, version, has_rows = step
    commit(scene, app, version, has_rows=has_rows)
    acknowledged.append(step)


def killed_anywhere(steps: Sequence[Step]) -> Iterator[tuple[str, MemoryFileSystem, list[Any]]]:
    """Yield the state after the first process, which creates the root, died at each point."""

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        scene = Scene(fs, configs=CONFIGS, clock=ManualClock(NOW), random=Random(OURS))
        for step in steps:
            do(scene, step, acknowledged)

    for state in crash_states(workload, seeds=(), select=changes_names):
        if not state.lost_power:
            yield str(state), state.fs, list(state.acknowledged)


def check_rows(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
    """Check that acknowledged rows are there once after losing everything unsynced."""
    lost = fs.crash_clone(Random(0), power=True, loss="everything")
    assert read_topic_properties(LogRoot.at(ROOT, fs=lost), "t") == CONFIGS
    scene = Scene(lost, random=Random(THEIRS + 1))
    for partition in (0, 1):
        scene.append(partition, b"later")  # the partition accepts writes
        found = scene.values(partition)
        for app, version, has_rows in dict.fromkeys(acknowledged):
            rows = rows_of(version, partition, app) if has_rows else []
            assert [found.count(row) for row in rows] == [1] * len(rows)


@pytest.mark.parametrize("order", ORDERS)
def test_commits_after_a_dead_process_outlive_a_power_cut_that_takes_all_it_may(order: str) -> None:
    states = 0
    for description, fs, acknowledged in killed_anywhere(ORDERS[order]):
        states += 1
        try:
            scene = Scene(fs, configs=CONFIGS, clock=ManualClock(NOW), random=Random(THEIRS))
            for step in ORDERS[order]:
                do(scene, step, acknowledged)
                check_rows(fs, acknowledged)
        except Exception as error:
            raise AssertionError(f"{description}: {error!r}") from error
    assert states > 40


@pytest.mark.parametrize("name", ["orders", LONG])
def test_a_topic_completed_after_a_dead_process_outlives_such_a_power_cut(name: str) -> None:
    def workload(fs: FileSystem, _acknowledged: list[Any]) -> None:
        with LogManager.open(ROOT, create=True, fs=fs, random=Random(OURS)) as manager:
            manager.create_topic(name, 1, CONFIGS, if_not_exists=True)
            manager.log(name, 0).append([Record(None, b"first", (), NOW)])

    for state in crash_states(workload, seeds=(), select=changes_names):
        if state.lost_power:
            continue
        with LogManager.open(ROOT, create=True, fs=state.fs, random=Random(THEIRS)) as manager:
            manager.create_topic(name, 1, CONFIGS, if_not_exists=True)
            manager.log(name, 0).append([Record(None, b"second", (), NOW)])
            manager.log(name, 0).flush()
            lost = state.fs.crash_clone(Random(0), power=True, loss="everything")
        assert values_in(lost, f"{ROOT}/{name}-0")[-1:] == [b"second"], str(state)
        assert read_topic_properties(LogRoot.at(ROOT, fs=lost), name) == CONFIGS, str(state)
        with LogManager.open(ROOT, fs=lost, random=Random(THEIRS)) as manager:  # still a root
            manager.log(name, 0).append([Record(None, b"third", (), NOW)])


def test_the_progress_of_a_reader_outlives_such_a_power_cut() -> None:
    def workload(fs: FileSystem, _acknowledged: list[Any]) -> None:
        LogManager.open(ROOT, create=True, fs=fs, random=Random(OURS)).close()
        check_progress(LogRoot.at(ROOT, fs=fs), "billing")
        write_progress(LogRoot.at(ROOT, fs=fs), "billing", {"orders": {"0": 1}}, now_ms=NOW)

    for state in crash_states(workload, seeds=(), select=changes_names):
        if state.lost_power:
            continue
        LogManager.open(ROOT, create=True, fs=state.fs, random=Random(THEIRS)).close()
        check_progress(LogRoot.at(ROOT, fs=state.fs), "billing")
        write_progress(LogRoot.at(ROOT, fs=state.fs), "billing", {"orders": {"0": 2}}, now_ms=NOW)
        lost = state.fs.crash_clone(Random(0), power=True, loss="everything")
        (reader,) = list_readers(LogRoot.at(ROOT, fs=lost))
        assert reader.position.offsets == {TopicPartition("orders", 0): 2}, str(state)


def test_a_staging_directory_that_was_removed_and_made_again_is_synced_again() -> None:
    """No process may cache that the directory is durable: another one may recreate it."""
    clock = ManualClock(NOW)
    scene = Scene(MemoryFileSystem(clock=clock), configs=CONFIGS, clock=clock)
    scene.commit(0)
    scene.commits.retire()
    staging = f"{ROOT}/.streamlog/staging"
    clock.advance(7 * 24 * 3_600_000)
    scene.over().commits.clean()
    assert scene.memory.list(staging) == ["query-1%2Ft"]
    clock.advance(1)
    scene.over().commits.clean()
    assert scene.memory.list(staging) == []
    commit(scene, FIRST, 1, has_rows=True)
    check_rows(scene.memory, [(FIRST, 0, True), (FIRST, 1, True)])
