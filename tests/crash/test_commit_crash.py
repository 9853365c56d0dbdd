"""Commits whose driver dies, or whose machine loses power, at any file operation.

After each crash, the queries continue as Spark would: from the first unacknowledged version, after
repeating the last acknowledged one. At the end, every row of every version is in the log once, and
each version is contiguous and in order. Rows of a plain producer are there at most once, and
exactly once if there was no power cut. No manual repair is needed: a root opens after any crash.

`STREAMLOG_CRASH_SEEDS=20` tests twenty random power cuts per crash point.
"""

import os
from collections.abc import Sequence
from itertools import groupby
from random import Random
from typing import Any, NamedTuple

import pytest

from streamlog.clock import ManualClock
from streamlog.commits.history import CommittedRange
from streamlog.commits.replay import Verdict
from streamlog.fs.api import FileSystem
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.batch import read_batches
from tests.support.commits import NOW, Scene, reach, rows_of
from tests.support.crash import every_crash_point

FIRST, SECOND = "query-1/t", "query-2/t"
BOOT = MemoryFileSystem().boot_id()
# Far above the seeds that scenes count up from, because the names of staged files are drawn from
# seeds and must not collide.
OURS, THEIRS = 1_000_000_001, 1_000_000_002
SEEDS = int(os.environ.get("STREAMLOG_CRASH_SEEDS", "1"))  # random power cuts per crash point


class Committed(NamedTuple):
    """An acknowledged commit."""

    app: str
    version: int
    parts: tuple[CommittedRange, ...]


class Appended(NamedTuple):
    """An acknowledged plain append."""

    partition: int
    value: bytes


def prepared_root() -> MemoryFileSystem:
    scene = Scene()
    scene.manager.close()
    return scene.memory


def go_on(scene: Scene, app: str, last: int, acknowledged: Sequence[Any]) -> None:
    """Commit the remaining versions of an app, repeating the last acknowledged one."""
    done = {each.version: each for each in acknowledged if getattr(each, "app", None) == app}
    for version in range(max(done, default=0), last + 1):
        outcome = scene.commit(version, app=app)
        if version in done:
            assert outcome.verdict is Verdict.REPLAY
            assert outcome.parts == done[version].parts


def check_log(scene: Scene, versions: dict[str, int], acknowledged: Sequence[Any]) -> None:
    lost_power = scene.fs.boot_id() != BOOT
    for partition in (0, 1):
        found = scene.values(partition)
        assert len(found) == len(set(found)), "duplicate rows"
        runs = _runs(found)
        for app, last in versions.items():
            expected = [(f"{app} v{version}", rows_of(version, partition, app))
                        for version in range(last + 1)]  # fmt: skip
            assert [run for run in runs if run[0].startswith(app)] == expected
        plain = [value for key, run in runs if key == "plain" for value in run]
        promised = [each.value for each in acknowledged
                    if isinstance(each, Appended) and each.partition == partition]  # fmt: skip
        if not lost_power:
            assert plain[: len(promised)] == promised
        assert plain == sorted(plain)
        check_batches(scene, partition)


def _app_and_version(value: bytes | None) -> str:
    words = (value or b"").decode().split(" ")
    return " ".join(words[:2]) if len(words) > 2 else "plain"


def _runs(values: Sequence[bytes | None]) -> list[tuple[str, list[bytes | None]]]:
    return [(key, list(run)) for key, run in groupby(values, _app_and_version)]


def check_batches(scene: Scene, partition: int) -> None:
    """Check offsets without gaps, checksums, epochs in order and consecutive sequences."""
    log = scene.manager.log("t", partition)
    offset, epoch, sequences = 0, 0, dict[int, int]()
    while offset < log.log_end_offset:
        for batch in read_batches(log.read(offset, 1 << 20).buffer):
            batch.check()
            assert batch.base_offset == offset
            assert batch.partition_leader_epoch >= epoch
            if batch.producer_id >= 0:
                assert batch.base_sequence == sequences.get(batch.producer_id, 0)
                sequences[batch.producer_id] = batch.last_sequence + 1
            offset, epoch = batch.next_offset, batch.partition_leader_epoch


def test_no_crash_of_a_driver_loses_or_duplicates_a_row() -> None:
    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        scene = Scene(fs, clock=ManualClock(NOW), random=Random(OURS))
        for version in range(2):
            outcome = scene.commit(version)
            acknowledged.append(Committed(FIRST, version, outcome.parts))
        scene.commits.retire()

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        scene = Scene(fs, random=Random(THEIRS))
        go_on(scene, FIRST, 2, acknowledged)
        check_log(scene, {FIRST: 2}, acknowledged)

    report = every_crash_point(workload, check, prepared=prepared_root(), seeds=range(SEEDS))
    assert report.states > 300


def test_no_crash_loses_a_row_with_a_second_query_and_a_plain_producer() -> None:
    before = Scene()
    for app in (FIRST, SECOND):
        before.commit(0, app=app)

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        scene = Scene(fs, clock=ManualClock(NOW), random=Random(OURS))
        for app in (FIRST, SECOND):
            parts = scene.commit(1, app=app).parts
            acknowledged.append(Committed(app, 1, parts))
            value = f"plain-{app}".encode()
            scene.append(0, value)
            acknowledged.append(Appended(0, value))
        scene.manager.log("t", 0).flush()

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        scene = Scene(fs, random=Random(THEIRS))
        scene.append(1, b"x")
        for app in (SECOND, FIRST):
            go_on(scene, app, 2, acknowledged)
        check_log(scene, {FIRST: 2, SECOND: 2}, acknowledged)

    report = every_crash_point(workload, check, prepared=before.memory, seeds=range(SEEDS))
    assert report.states > 150


def test_no_crash_loses_a_row_with_small_segments() -> None:
    before = Scene(configs={"internal.segment.bytes": "300"})
    before.commit(0)

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        scene = Scene(fs, clock=ManualClock(NOW), random=Random(OURS))
        outcome = scene.commit(1)
        acknowledged.append(Committed(FIRST, 1, outcome.parts))

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        scene = Scene(fs, random=Random(THEIRS))
        go_on(scene, FIRST, 2, acknowledged)
        check_log(scene, {FIRST: 2}, acknowledged)

    report = every_crash_point(workload, check, prepared=before.memory, seeds=range(SEEDS))
    assert report.states > 150


@pytest.mark.parametrize("state", ["decided", "partly applied"])
def test_a_crash_while_applying_for_another_app_loses_nothing(state: str) -> None:
    before, _ = reach(state)

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        scene = Scene(fs, clock=ManualClock(NOW), random=Random(OURS))
        for partition in (0, 1):
            scene.append(partition, b"x%d" % partition)
            acknowledged.append(Appended(partition, b"x%d" % partition))

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        scene = Scene(fs, random=Random(THEIRS))
        assert scene.commit(1).verdict is Verdict.REPLAY
        go_on(scene, FIRST, 2, ())
        check_log(scene, {FIRST: 2}, acknowledged)

    report = every_crash_point(workload, check, prepared=before.memory, seeds=range(2 * SEEDS))
    assert report.states > 50


def test_a_crash_of_retirement_loses_nothing() -> None:
    scene = Scene()
    for version in range(2):
        scene.commit(version)
    scene.commit(0, app=SECOND)

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        retiring = Scene(fs, clock=ManualClock(NOW), random=Random(OURS))
        retiring.commits.retire()
        acknowledged.append("retired")

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        again = Scene(fs, random=Random(THEIRS))
        for version in range(2):
            assert again.commit(version).verdict is Verdict.REPLAY
        again.commit(2)
        check_log(again, {FIRST: 2, SECOND: 0}, ())
        again.commits.retire()
        assert again.pending_names() == again.staged_names() == []

    report = every_crash_point(workload, check, prepared=scene.memory, seeds=range(2 * SEEDS))
    assert report.states > 50


@pytest.mark.parametrize("choice", ["skip", "append"])
def test_a_crash_while_settling_a_mismatch_settles_it_once(choice: str) -> None:
    scene = Scene()
    scene.commit(0, fingerprint="old")

    def other(each: Scene) -> list[Any]:
        return [each.stage(0, {0: rows_of(9, 0), 1: rows_of(9, 1)})]

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        each = Scene(fs, clock=ManualClock(NOW), random=Random(OURS))
        each.commit(0, other(each), fingerprint="new", on_mismatch=choice)

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        each = Scene(fs, random=Random(THEIRS))
        each.commit(0, other(each), fingerprint="new", on_mismatch=choice)
        each.manager.log("t", 1).catch_up()
        extra = (rows_of(9, 0), rows_of(9, 1)) if choice == "append" else ([], [])
        assert [each.values(p) for p in (0, 1)] == [rows_of(0, p) + extra[p] for p in (0, 1)]

    report = every_crash_point(workload, check, prepared=scene.memory, seeds=range(2 * SEEDS))
    assert report.states > 10
