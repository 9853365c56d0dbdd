"""When decisions are retired, and which files are removed with them."""

import errno
import logging
from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.commits.decisions import PartitionStanding, Standing
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.replay import ReplayRule, Verdict
from streamlog.commits.retirement import RETIRE_AFTER_MS, RETIRE_COUNT, RETIRE_SIZE, is_due
from streamlog.errors import DiskFullError, UnavailableError
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.names import stable_path
from streamlog.topic import TopicPartition
from tests.support.commits import APP, LOG, NOW, ROOT, Scene, rows_of

DAY = 24 * 3600 * 1000
T0 = TopicPartition("t", 0)


def standing(unretired: int = 1, since_ms: int = NOW, size: int = 10) -> Standing:
    at = PartitionStanding("id", 0, 0, size)
    return Standing(number=9, unretired=unretired, unretired_since_ms=since_ms, partitions={T0: at})


@pytest.mark.parametrize(
    ("at", "due"),
    [
        (standing(), False),
        (standing(unretired=RETIRE_COUNT - 1), False),
        (standing(unretired=RETIRE_COUNT), True),
        (standing(size=RETIRE_SIZE - 1), False),
        (standing(size=RETIRE_SIZE), True),
        (standing(since_ms=NOW - RETIRE_AFTER_MS + 1), False),
        (standing(since_ms=NOW - RETIRE_AFTER_MS), True),
        (standing(since_ms=NOW + 1), True),  # the clock went back
        (standing(unretired=0, since_ms=0, size=RETIRE_SIZE), False),
    ],
)
def test_due_by_count_by_size_by_time(at: Standing, due: bool) -> None:
    assert is_due(at, NOW) is due


# ---- when ---------------------------------------------------------------------------------------
def test_a_commit_retires_when_60_seconds_are_over() -> None:
    clock = ManualClock(NOW)
    scene = Scene(clock=clock)
    scene.commit(0)
    clock.advance(RETIRE_AFTER_MS - 1)
    scene.commit(1)
    assert len(scene.pending_names()) == 2
    clock.advance(1)
    scene.commit(2)
    assert scene.pending_names() == scene.staged_names() == []
    log = scene.manager.log("t", 0)
    assert log.recovery_point == log.log_end_offset


def test_the_directory_of_decisions_never_gets_large() -> None:
    scene = Scene()
    most = 0
    for version in range(3 * RETIRE_COUNT):
        scene.commit(version, [scene.stage(version, {0: [b"x"]})])
        most = max(most, len(scene.pending_names()), len(scene.staged_names()))
    assert most < RETIRE_COUNT
    assert len(scene.values(0)) == 3 * RETIRE_COUNT


def test_flush_ms_of_the_committer_retires_sooner() -> None:
    clock = ManualClock(NOW)
    scene = Scene(clock=clock)
    scene.commit(0, flush_ms=1000)
    clock.advance(999)
    scene.commit(1, flush_ms=1000)
    assert len(scene.pending_names()) == 2
    clock.advance(1)
    scene.commit(2, flush_ms=1000)
    assert scene.pending_names() == []


def test_flush_messages_of_the_committer_syncs_the_logs() -> None:
    scene = Scene()
    log = scene.manager.log("t", 0)
    scene.commit(0, flush_messages=8)
    assert log.recovery_point == 0
    scene.commit(1, flush_messages=8)
    assert log.recovery_point == 12
    assert len(scene.pending_names()) == 2, "synced is not retired"


def test_a_replay_retires_as_well_when_it_is_time() -> None:
    clock = ManualClock(NOW)
    scene = Scene(clock=clock)
    scene.commit(0)
    clock.advance(RETIRE_AFTER_MS)
    assert scene.commit(0).verdict is Verdict.REPLAY
    assert scene.pending_names() == []


# ---- what ---------------------------------------------------------------------------------------
def test_retiring_keeps_what_the_app_needs_to_go_on() -> None:
    scene = Scene()
    for version in range(3):
        scene.commit(version)
    report = scene.commits.retire()
    assert (report.retired, report.removed_files, report.dropped) == (3, 3, ())
    assert scene.commits.retire().retired == 0
    again = Scene(scene.fs, clock=scene.clock)
    assert again.commits.last_version(APP) == 2
    again.commit(3)
    table = again.manager.log("t", 0).read(0, 1 << 20).table
    assert table.base_sequence.tolist() == table.base_offset.tolist(), "sequences run on"


def test_retiring_syncs_before_it_forgets() -> None:
    scene = Scene()
    scene.commit(0)
    fs = FaultyFileSystem(scene.memory)
    Scene(fs, clock=scene.clock).commits.retire()
    steps = [
        (each.name, (each.target or each.path).rpartition("/")[2])
        for each in fs.operations
        if each.name in ("sync", "rename", "remove")
    ]
    order = [
        ("sync", LOG),
        ("rename", "query-1%2Ft"),
        ("remove", "query-1%2Ft@00000000000000000001"),
    ]
    assert [steps.index(step) for step in order] == sorted(steps.index(step) for step in order)


def test_a_partition_that_cannot_be_synced_holds_back_its_decisions_and_later_ones() -> None:
    scene = Scene()
    scene.commit(0, [scene.stage(0, {0: [b"a"]})])
    scene.commit(1, [scene.stage(1, {1: [b"b"]})])
    scene.commit(2, [scene.stage(2, {0: [b"c"]})])
    bad = scene.over(Fault(operation="sync", path_suffix=f"t-1/{LOG}", errno=errno.EIO))
    with pytest.raises(UnavailableError):
        bad.commits.retire()
    assert [name[-1] for name in scene.pending_names()] == ["2", "3"]
    again = Scene(scene.fs, clock=scene.clock)
    assert again.commits.retire().retired == 2
    assert (again.values(0), again.values(1)) == ([b"a", b"c"], [b"b"])


def test_orphans_of_committed_versions_go_and_those_of_later_ones_stay() -> None:
    scene = Scene()
    orphans = [scene.stage(version) for version in (0, 1, 2)]
    scene.commit(0)
    scene.commit(1)
    scene.commits.retire()
    assert scene.staged_names() == [orphans[2].name]


def test_leftovers_of_an_interrupted_retirement_are_removed_by_the_next_one() -> None:
    scene = Scene()
    scene.commit(0)
    dying = scene.over(
        Fault(operation="remove", path_suffix="@00000000000000000001", errno=errno.EIO)
    )
    with pytest.raises(UnavailableError):
        dying.commits.retire()
    assert len(scene.pending_names()) == 1, "retired, and still there"
    again = Scene(scene.fs, clock=scene.clock)
    assert again.commit(0).verdict is Verdict.REPLAY
    again.commits.retire()
    assert again.pending_names() == again.staged_names() == []


def test_a_decision_goes_only_when_the_ledger_that_remembers_it_is_durable() -> None:
    scene = Scene()
    scene.commit(0)
    bad = scene.over(Fault(operation="sync_directory", path_suffix="/ledgers", errno=errno.EIO))
    with pytest.raises(UnavailableError):
        bad.commits.retire()
    again = Scene(scene.fs, clock=scene.clock)
    again.commits.retire()
    assert again.pending_names() == []
    again.commit(0, app="query-2/t")  # syncs the directory of decisions
    memory = again.memory.crash_clone(Random(0), power=True, loss="everything")
    assert Scene(memory, clock=scene.clock).commit(0).verdict is Verdict.REPLAY


# ---- other apps ---------------------------------------------------------------------------------
def test_a_commit_retires_decisions_of_idle_apps() -> None:
    clock = ManualClock(NOW)
    scene = Scene(clock=clock)
    scene.commit(7, app="nightly", replay_rule=ReplayRule.GREATER)
    scene.commit(0)
    clock.advance(RETIRE_AFTER_MS)
    scene.commit(0, app="busy")
    assert len(scene.pending_names()) == 3
    scene.commit(1)
    assert [name.partition("@")[0] for name in scene.pending_names()] == ["busy"]
    assert scene.commits.last_version("nightly") == 7


def test_an_idle_app_that_cannot_be_retired_does_not_disturb(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(NOW)
    scene = Scene(clock=clock)
    scene.manager.create_topic("u", 1)
    scene.commit(0, [scene.stage(0, {0: [b"x"]}, app="idle", topic="u")], app="idle")
    scene.commit(0)
    clock.advance(RETIRE_AFTER_MS)
    bad = scene.over(Fault(operation="sync", path_suffix=f"u-0/{LOG}", errno=errno.EIO))
    assert bad.commit(1).verdict is Verdict.COMMIT
    assert [name.partition("@")[0] for name in scene.pending_names()] == ["idle"]
    assert "cannot retire the decisions of idle" in caplog.text


# ---- the ground a decision stands on ------------------------------------------------------------
def syncs(scene: Scene, version: int, **how: object) -> list[str]:
    """Return the files that one commit syncs."""
    staged = scene.stage(version)
    fs = FaultyFileSystem(scene.memory)
    other = Scene(fs, clock=scene.clock)
    fs.operations.clear()
    other.commit(version, [staged], **how)
    return [stable_path(each.path) for each in fs.operations if "sync" in each.name]


def test_a_small_commit_costs_three_syncs() -> None:
    scene = Scene()
    scene.commit(0)
    state = f"{ROOT}/.streamlog"
    assert syncs(scene, 1) == [
        f"{state}/staging/query-1%2Ft",
        f"{state}/commits/pending/query-1%2Ft@00000000000000000002.tmp",
        f"{state}/commits/pending",
    ]


def test_the_checkpoint_is_synced_before_the_decision() -> None:
    scene = Scene()
    scene.commit(0)
    scene.fs.make_directory("/cp")
    from streamlog.fs.files import write_file_atomically

    write_file_atomically(scene.fs, "/cp/1", b"offsets")
    found = syncs(scene, 1, sync_paths=["/cp/1", "/cp"])
    assert found.index("/cp/1") < found.index("/cp") < len(found) - 2


def test_a_missing_file_of_the_checkpoint_stops_the_commit() -> None:
    scene = Scene()
    with pytest.raises(UnavailableError):
        scene.commit(0, sync_paths=["/cp/1"])
    assert scene.values(0) == []


def test_plain_records_below_a_decision_are_synced_first() -> None:
    scene = Scene()
    scene.commit(0)
    scene.append(0, b"x")
    found = syncs(scene, 1)
    assert f"{ROOT}/t-0/{LOG}" in found and f"{ROOT}/t-1/{LOG}" not in found
    for seed in range(8):
        after = scene.after_crash(power=True, seed=seed)
        after.append(0, b"y")
        assert after.values(0) == [*rows_of(0, 0), b"x", *rows_of(1, 0), b"y"]


def test_records_that_another_app_decided_need_no_sync() -> None:
    scene = Scene()
    scene.commit(0)
    scene.commit(0, app="other")
    assert f"{ROOT}/t-0/{LOG}" not in syncs(scene, 1)
    for seed in range(8):
        after = scene.after_crash(power=True, seed=seed)
        after.manager.log("t", 0).catch_up()
        assert after.values(0) == rows_of(0, 0) + rows_of(0, 0, "other") + rows_of(1, 0)


# ---- cleaning -----------------------------------------------------------------------------------
def test_clean_removes_unreferenced_files_after_a_week() -> None:
    clock = ManualClock(NOW)
    scene = Scene(clock=clock)
    old = scene.stage(5)
    named = scene.stage(0)
    scene.commit(0, [named])
    gone = scene.stage(0, app="never committed")
    for name, key in ((old, "query-1%2Ft"), (named, "query-1%2Ft"), (gone, "never%20committed")):
        path = f"{ROOT}/.streamlog/staging/{key}/{name.name}"
        scene.fs.set_mtime(path, NOW - 7 * DAY - 1)
    young = scene.stage(6)
    assert scene.commits.clean() == 2
    assert sorted(scene.staged_names()) == sorted([named.name, young.name])
    assert scene.fs.list(f"{ROOT}/.streamlog/staging") == ["query-1%2Ft"]


def test_clean_keeps_the_directory_of_an_app_that_committed() -> None:
    scene = Scene()
    scene.commit(0)
    scene.commits.retire()
    scene.commits.clean()
    assert scene.fs.list(f"{ROOT}/.streamlog/staging") == ["query-1%2Ft"]
    assert Scene(scene.fs, clock=scene.clock).commit(1).verdict is Verdict.COMMIT


def test_a_full_disk_does_not_keep_clean_from_working() -> None:
    scene = Scene()
    scene.stage(0)
    scene.fs.set_mtime(
        f"{ROOT}/.streamlog/staging/query-1%2Ft/{scene.staged_names()[0]}", NOW - 8 * DAY
    )
    full = scene.over(Fault(operation="pwrite", errno=errno.ENOSPC, is_lasting=True))
    with pytest.raises(DiskFullError):
        full.stage(1)
    assert full.commits.clean() == 1


def test_clean_and_retire_of_an_empty_root_do_nothing(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    with caplog.at_level(logging.INFO):
        assert scene.commits.clean() == 0
        assert scene.commits.retire().retired == 0
    assert scene.commits.pending() == []


def test_pending_lists_unretired_commits() -> None:
    scene = Scene()
    scene.commit(0, [scene.stage(0, {0: [b"x"]})])
    scene.commit(1, [scene.stage(1, {1: [b"y"]})])
    assert [decision.identity for decision in scene.commits.pending()] == [
        CommitIdentity(APP, 0),
        CommitIdentity(APP, 1),
    ]
    assert [decision.identity.version for decision in scene.commits.pending(T0)] == [0]
