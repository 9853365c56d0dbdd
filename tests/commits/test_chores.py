"""Retirement runs in the background, and nothing depends on its timing."""

import errno
import threading

import pytest

from streamlog.commits.commit_log import CommitLog
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.replay import ReplayRule, Verdict
from streamlog.commits.retirement import RETIRE_COUNT, BackgroundChores, Chores
from streamlog.errors import DiskFullError
from tests.support.commits import APP, Scene


def leaving(scene: Scene, chores: Chores) -> Scene:
    """Return the scene with commits that leave retirement to `chores`."""
    scene.commits = CommitLog(
        scene.log_root,
        open_logs=scene.manager.logs,
        chores=chores,
    )
    return scene


def commit_many(scene: Scene, count: int) -> None:
    """Commit one row per version, starting at version 0."""
    for version in range(count):
        scene.commit(version, [scene.stage(version, {0: [b"%d" % version]})])


# ---- the thread ---------------------------------------------------------------------------------
def test_one_chore_is_done_at_a_time_and_the_caller_goes_on() -> None:
    chores = BackgroundChores()
    may_end = threading.Event()
    done: list[str] = []

    def first() -> None:
        assert threading.current_thread() is not threading.main_thread()
        assert may_end.wait(10)
        done.append("first")

    chores(first)
    chores(lambda: done.append("dropped: it is due again later"))
    assert done == []
    may_end.set()
    chores.wait()
    chores(lambda: done.append("second"))
    chores.wait()
    assert done == ["first", "second"]


def test_a_chore_that_fails_is_logged_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    chores = BackgroundChores()

    def fail() -> None:
        raise DiskFullError("cannot remove", path="/x", errno=errno.ENOSPC)

    chores(fail)
    chores.wait()
    assert "chore failed and will be retried when due again: cannot remove" in caplog.text


# ---- commits ------------------------------------------------------------------------------------
def test_commits_that_retire_in_a_thread_lose_nothing() -> None:
    chores = BackgroundChores()
    scene = leaving(Scene(), chores)
    commit_many(scene, 3 * RETIRE_COUNT)
    chores.wait()
    assert scene.values(0) == [b"%d" % version for version in range(3 * RETIRE_COUNT)]
    assert len(scene.pending_names()) < 3 * RETIRE_COUNT
    scene.commits.retire()
    assert scene.pending_names() == scene.staged_names() == []
    again = Scene(scene.fs, clock=scene.clock)
    assert again.commits.last_version(APP) == 3 * RETIRE_COUNT - 1


def test_commits_go_on_while_a_retirement_waits_to_be_done() -> None:
    later: list = []
    scene = leaving(Scene(), later.append)
    commit_many(scene, RETIRE_COUNT + 2)
    assert len(later) == 3, "due at each commit, until it is done"
    assert len(scene.pending_names()) == len(scene.staged_names()) == RETIRE_COUNT + 2
    later.pop()()
    assert scene.pending_names() == scene.staged_names() == []
    assert scene.commit(RETIRE_COUNT + 2).verdict is Verdict.COMMIT
    assert len(later) == 2, "not due any more"


def test_an_app_that_commits_once_does_not_wait() -> None:
    later: list = []
    scene = leaving(Scene(), later.append)
    identity = CommitIdentity.anonymous(scene.random)
    staged = scene.stage(identity.version, app=identity.app)
    scene.commits.commit(identity, [staged], replay_rule=ReplayRule.GREATER)
    assert scene.pending_names() == later == []
