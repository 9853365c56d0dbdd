"""Repeated versions, versions out of order, and two committers at once."""

import contextlib
import threading
from collections.abc import Sequence

import pytest

from streamlog.commits.commit_log import CommitLog, locked_app
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.replay import OnMismatch, ReplayRule, Verdict
from streamlog.errors import (
    CommitMismatchError,
    InvalidOptionError,
    InvalidRequestError,
    LockTimeoutError,
    StreamLogError,
)
from tests.support.commits import APP, ROOT, Scene, rows_of


def committed(scene: Scene, *versions: int) -> list[bytes]:
    return [row for version in versions for row in rows_of(version, 0)]


# ---- order ----------------------------------------------------------------------------------
def test_an_unknown_app_may_start_at_any_version() -> None:
    scene = Scene()
    assert scene.commit(41).verdict is Verdict.COMMIT
    assert scene.commit(42).verdict is Verdict.COMMIT
    assert scene.commits.last_version(APP) == 42
    assert scene.commits.last_version("nobody") is None


@pytest.mark.parametrize("is_retired", [False, True])
def test_a_gap_stops_a_stream_and_not_a_foreach_batch(is_retired: bool) -> None:
    scene = Scene()
    scene.commit(0)
    if is_retired:
        scene.commits.retire()
    with pytest.raises(CommitMismatchError, match="does not follow"):
        scene.commit(2)
    assert scene.values(0) == committed(scene, 0)
    assert scene.commit(2, replay_rule=ReplayRule.GREATER).verdict is Verdict.COMMIT


@pytest.mark.parametrize("is_retired", [False, True])
def test_a_version_that_was_passed_over_stops_loudly(is_retired: bool) -> None:
    scene = Scene()
    scene.commit(5)
    scene.commit(9, replay_rule=ReplayRule.GREATER)
    if is_retired:
        scene.commits.retire()
    for on_mismatch in OnMismatch:
        with pytest.raises(CommitMismatchError, match="older than the versions kept"):
            scene.commit(7, replay_rule=ReplayRule.GREATER, on_mismatch=on_mismatch)
    assert scene.values(0) == committed(scene, 5, 9)


def test_the_last_100_fingerprints_are_remembered_and_no_more() -> None:
    scene = Scene()
    for version in range(130):
        scene.commit(version, [scene.stage(version, {0: [b"%d" % version]})])
    scene.commits.retire()
    for version in (129, 60, 30):
        outcome = scene.commit(version, [scene.stage(version, {0: [b"again"]})])
        assert outcome.verdict is Verdict.REPLAY
    for version in (29, 0):
        with pytest.raises(CommitMismatchError, match="older than the versions kept"):
            scene.commit(version, [scene.stage(version, {0: [b"again"]})])
    assert scene.values(0) == [b"%d" % version for version in range(130)]


# ---- fingerprints ---------------------------------------------------------------------------
@pytest.mark.parametrize("is_retired", [False, True])
def test_another_fingerprint_stops_loudly_and_names_both(is_retired: bool) -> None:
    scene = Scene()
    scene.commit(0, fingerprint='{"in":{"0":60}}')
    if is_retired:
        scene.commits.retire()
    again = scene.stage(0, {0: [b"other"]})
    with pytest.raises(CommitMismatchError) as caught:
        scene.commit(0, [again], fingerprint='{"in":{"0":107}}')
    assert '{"in":{"0":60}}' in str(caught.value)
    assert '{"in":{"0":107}}' in str(caught.value)
    assert "onReplayMismatch" in (caught.value.hint or "")
    assert scene.values(0) == committed(scene, 0)


def test_without_a_source_rows_and_checksum_tell() -> None:
    scene = Scene()
    scene.commit(0, [scene.stage(0, checksum=11)])
    assert scene.commit(0, [scene.stage(0, checksum=11)]).verdict is Verdict.REPLAY
    with pytest.raises(CommitMismatchError):
        scene.commit(0, [scene.stage(0, checksum=12)])
    with pytest.raises(CommitMismatchError):
        scene.commit(0, [scene.stage(0, {0: [b"one"]}, checksum=11)])


def test_checksums_add_up_over_tasks_however_rows_are_divided() -> None:
    scene = Scene()
    halves = [scene.stage(0, {0: [b"a"]}, checksum=2**64 - 1), scene.stage(0, {0: [b"b"]}, task=1)]
    halves[1] = halves[1]._replace(checksum=8)
    scene.commit(0, halves)
    whole = scene.stage(0, {0: [b"b", b"a"]}, checksum=7)
    assert scene.commit(0, [whole]).verdict is Verdict.REPLAY


@pytest.mark.parametrize("is_retired", [False, True])
def test_skip_keeps_the_old_commit(is_retired: bool, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    first = scene.commit(0, fingerprint="old")
    if is_retired:
        scene.commits.retire()
    other = scene.stage(0, {0: [b"other"]})
    outcome = scene.commit(0, [other], fingerprint="new", on_mismatch="skip")
    assert (outcome.verdict, outcome.is_replay) == (Verdict.SKIP, True)
    assert (outcome.parts, outcome.rows) == (first.parts, 12)
    assert scene.values(0) == committed(scene, 0)
    assert other.name not in scene.staged_names()
    assert "with another fingerprint" in caplog.text
    assert scene.commit(1).verdict is Verdict.COMMIT


@pytest.mark.parametrize("is_retired", [False, True])
def test_append_writes_both_and_recognises_both_afterwards(is_retired: bool) -> None:
    scene = Scene()
    scene.commit(0, fingerprint="old")
    scene.commit(1)
    if is_retired:
        scene.commits.retire()
    other = scene.stage(0, {0: [b"other"]})
    outcome = scene.commit(0, [other], fingerprint="new", on_mismatch=OnMismatch.APPEND)
    assert (outcome.verdict, outcome.revision, outcome.is_replay) == (Verdict.APPEND, 1, False)
    assert scene.values(0) == [*committed(scene, 0, 1), b"other"]
    if is_retired:
        scene.commits.retire()
    for fingerprint, revision in (("old", 0), ("new", 1)):
        again = scene.commit(0, fingerprint=fingerprint)
        assert (again.verdict, again.revision) == (Verdict.REPLAY, revision)
    assert scene.commits.last_version(APP) == 1
    assert scene.commit(2).verdict is Verdict.COMMIT
    assert scene.values(0) == [*committed(scene, 0, 1), b"other", *committed(scene, 2)]


def test_an_unknown_choice_is_refused_before_anything_happens() -> None:
    scene = Scene()
    with pytest.raises(InvalidOptionError, match="onReplayMismatch"):
        scene.commit(0, on_mismatch="ignore")
    assert scene.values(0) == []


# ---- commits without rows, without a name -----------------------------------------------------
def test_a_commit_without_rows_counts() -> None:
    scene = Scene()
    scene.commit(0, [scene.stage(0, {})])
    scene.commit(1, [])
    assert scene.commit(1, []).verdict is Verdict.REPLAY
    assert scene.commit(2).verdict is Verdict.COMMIT
    assert scene.values(0) == committed(scene, 2)
    assert scene.staged_names() == [scene.staged_names()[0]]


@pytest.mark.parametrize("seed", range(5))
def test_a_commit_without_rows_survives_a_power_cut(seed: int) -> None:
    scene = Scene()
    scene.commit(0)
    scene.commit(1, [])
    scene = scene.after_crash(power=True, seed=seed)
    assert scene.commit(2).verdict is Verdict.COMMIT


def test_an_anonymous_commit_leaves_nothing_behind() -> None:
    scene = Scene()
    identity = CommitIdentity.anonymous(scene.random)
    staged = scene.stage(identity.version, app=identity.app)
    outcome = scene.commits.commit(identity, [staged], replay_rule=ReplayRule.GREATER)
    assert outcome.verdict is Verdict.COMMIT
    assert scene.values(0) == rows_of(0, 0, identity.app)
    state = f"{ROOT}/.streamlog"
    assert scene.pending_names() == []
    assert scene.fs.list(f"{state}/staging") == []
    assert scene.fs.stat(f"{state}/commits/ledgers") is None
    log = scene.manager.log("t", 0)
    assert log.recovery_point == log.log_end_offset, "it is durable without its decision"


# ---- two at once ------------------------------------------------------------------------------
def test_two_committers_of_one_version_one_wins() -> None:
    scene = Scene()
    scenes = [scene, Scene(scene.fs, clock=scene.clock)]
    staged = [each.stage(0) for each in scenes]
    outcomes = [each.commit(0, [file]) for each, file in zip(scenes, staged, strict=True)]
    assert [outcome.verdict for outcome in outcomes] == [Verdict.COMMIT, Verdict.REPLAY]
    assert outcomes[0].parts == outcomes[1].parts
    assert scene.values(0) == committed(scene, 0)


def test_a_committer_that_looked_before_the_other_decided_loses_by_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a file system without a working `flock`: only `link` decides."""
    scene = Scene()
    scene.commit(0)
    late = scene.stage(1, checksum=1)
    original = CommitLog._decide_and_apply

    def decide_late(self: CommitLog, *args: object, **kwargs: object) -> object:
        monkeypatch.undo()
        with pytest.MonkeyPatch.context() as patch:
            unlocked = contextlib.nullcontext()
            patch.setattr("streamlog.commits.commit_log.locked_app", lambda *_, **__: unlocked)
            Scene(scene.fs, clock=scene.clock).commit(1, fingerprint="the faster one")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(CommitLog, "_decide_and_apply", decide_late)
    with pytest.raises(CommitMismatchError):
        scene.commit(1, [late], fingerprint="the slower one")
    assert scene.values(0) == committed(scene, 0, 1)


def test_threads_that_commit_the_same_versions_write_each_once() -> None:
    scene = Scene()
    errors: list[StreamLogError] = []

    def work(each: Scene, files: Sequence[object]) -> None:
        try:
            for version, file in enumerate(files):
                each.commit(version, [file])
        except StreamLogError as error:
            errors.append(error)

    threads = []
    for _ in range(3):
        each = Scene(scene.fs, clock=scene.clock)
        each.commits = CommitLog(
            scene.log_root,
            open_logs=each.manager.logs,
            lock_timeout_ms=60_000,
        )
        files = [each.stage(version) for version in range(8)]
        threads.append(threading.Thread(target=work, args=(each, files)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(error, LockTimeoutError) for error in errors)
    for version in range(8):
        scene.commit(version)
    assert scene.values(0) == committed(scene, *range(8))


def test_a_lock_that_is_kept_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    staged = scene.stage(0)
    with (
        locked_app(scene.log_root, APP, timeout_ms=0),
        pytest.raises(LockTimeoutError, match="the commits of query-1/t"),
    ):
        scene.commit(0, [staged])
    assert scene.commit(0, [staged]).verdict is Verdict.COMMIT


# ---- abort --------------------------------------------------------------------------------------
def test_abort_removes_undecided_data() -> None:
    scene = Scene()
    staged = scene.stage(0)
    scene.commits.abort(CommitIdentity(APP, 0), [staged])
    assert scene.staged_names() == []
    scene.commits.abort(CommitIdentity(APP, 0), [staged])


def test_abort_after_a_commit_leaves_what_the_decision_names() -> None:
    scene = Scene()
    staged, loser = scene.stage(0), scene.stage(0)
    scene.commit(0, [staged])
    scene.commits.abort(CommitIdentity(APP, 0), [staged, loser])
    assert scene.staged_names() == [staged.name]
    for seed in range(4):
        after = scene.after_crash(power=True, seed=seed)
        after.manager.log("t", 0).catch_up()
        assert after.values(0) == committed(scene, 0)


def test_abort_without_files_and_without_a_past_does_nothing() -> None:
    scene = Scene()
    scene.commits.abort(CommitIdentity(APP, 3), [scene.stage(3, {})])
    with pytest.raises(InvalidRequestError):
        scene.commit(0, [scene.stage(1)])
