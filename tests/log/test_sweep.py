"""Files of retired commits go in the background, and nothing depends on when."""

import errno
import threading

import pytest

from streamlog.errors import DiskFullError
from streamlog.log.commits import CommitLog
from streamlog.log.identity import CommitIdentity
from streamlog.log.replay import ReplayRule, Verdict
from streamlog.log.retirement import RETIRE_COUNT
from streamlog.log.sweep import BackgroundSweep, Sweep
from tests.support.commits import APP, Scene


def sweeping(scene: Scene, sweep: Sweep) -> Scene:
    """Return the scene with commits that leave removing to `sweep`."""
    scene.commits = CommitLog(
        scene.root,
        fs=scene.fs,
        clock=scene.clock,
        open_log=lambda partition: scene.manager.log(*partition),
        sweep=sweep,
    )
    return scene


def test_sweeps_run_in_a_thread_one_after_the_other() -> None:
    sweep = BackgroundSweep()
    may_end = threading.Event()
    done: list[str] = []

    def first() -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert may_end.wait(10)
        done.append("first")

    sweep(first)
    assert done == [], "the caller goes on"
    threading.Timer(0, may_end.set).start()
    sweep(lambda: done.append("second"))
    sweep.wait()
    assert done == ["first", "second"]


def test_a_sweep_that_fails_is_logged_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    sweep = BackgroundSweep()

    def fail() -> None:
        raise DiskFullError("cannot remove", path="/x", errno=errno.ENOSPC)

    sweep(fail)
    sweep.wait()
    assert "stay for the next sweep" in caplog.text


def test_commits_go_on_while_the_files_of_retired_ones_are_still_there() -> None:
    later: list = []
    scene = sweeping(Scene(), later.append)
    for version in range(RETIRE_COUNT + 2):
        scene.commit(version, [scene.stage(version, {0: [b"%d" % version]})])
    assert len(later) == 1
    assert len(scene.pending_names()) == len(scene.staged_names()) == RETIRE_COUNT + 2
    again = scene.stage(RETIRE_COUNT - 1, {0: [b"63"]})
    outcome = scene.commit(RETIRE_COUNT - 1, [again])
    assert outcome.verdict is Verdict.REPLAY, "retired, says the ledger"
    later.pop()()
    assert len(scene.pending_names()) == len(scene.staged_names()) == 2
    assert scene.values(0) == [b"%d" % version for version in range(RETIRE_COUNT + 2)]


def test_the_next_retirement_removes_what_a_sweep_that_never_ran_left() -> None:
    scene = sweeping(Scene(), lambda remove: None)
    scene.commit(0)
    scene.commits.retire()
    assert len(scene.pending_names()) == len(scene.staged_names()) == 1
    again = Scene(scene.fs, clock=scene.clock)
    assert again.commits.last_version(APP) == 0
    again.commits.retire()
    assert again.pending_names() == again.staged_names() == []


def test_files_that_no_decision_names_do_not_wait_for_the_sweep() -> None:
    scene = sweeping(Scene(), lambda remove: None)
    scene.stage(0)
    staged = scene.stage(0)
    scene.commit(0, [staged])
    scene.commits.retire()
    assert scene.staged_names() == [staged.name]


def test_an_app_that_commits_once_leaves_nothing_to_sweep() -> None:
    later: list = []
    scene = sweeping(Scene(), later.append)
    identity = CommitIdentity.anonymous(scene.random)
    staged = scene.stage(identity.version, app=identity.app)
    scene.commits.commit(identity, [staged], replay_rule=ReplayRule.GREATER)
    assert scene.pending_names() == later == []
