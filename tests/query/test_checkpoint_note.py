"""A checkpoint's note of the last version, and commits to a log restored from an older copy."""

import errno
from pathlib import PurePosixPath
from random import Random

import pytest

from streamlog.commits.identity import app_key
from streamlog.commits.replay import OnMismatch, ReplayRule, Verdict
from streamlog.errors import CommitMismatchError, CorruptCheckpointError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.files import make_directories
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.meta_properties import read_meta_properties
from streamlog.query.checkpoint_note import CheckpointNote
from streamlog.root.manager import LogManager
from tests.support.commits import APP, ROOT, Scene

CHECKPOINT = "/cp"
NOTES = f"{CHECKPOINT}/streamlog"


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    make_directories(scene.fs, CHECKPOINT)
    return scene


def note_of(fs: FileSystem, *, root: str = ROOT, app: str = APP) -> CheckpointNote:
    meta = read_meta_properties(fs, root)
    return CheckpointNote.find(
        fs,
        CHECKPOINT,
        key=app_key(app),
        directory_id=meta.directory_id if meta else None,
        place=fs.resolve(root),
    )


def other_root(fs: FileSystem, path: str) -> str:
    LogManager.open(path, create=True, fs=fs, random=Random(path)).close()
    return path


def rewrite(fs: FileSystem, path: str, content: bytes) -> None:
    with fs.open(path, OpenMode.WRITE) as file:
        file.truncate(0)
        file.pwrite(content, 0)


# ---- the note ---------------------------------------------------------------------------------
def test_the_highest_version_is_remembered(scene: Scene) -> None:
    assert note_of(scene.fs).version is None
    for version in (0, 1, 2, 7, 7, 3, 8):
        note_of(scene.fs).remember(version)
    assert note_of(scene.fs).version == 8
    note = note_of(scene.fs)
    for version in (9, 10, 2**63 - 1):
        note.remember(version)
    assert (note.version, note_of(scene.fs).version) == (2**63 - 1, 2**63 - 1)
    assert len(scene.fs.list(NOTES)) == 1


def test_apps_and_roots_are_told_apart(scene: Scene) -> None:
    other = other_root(scene.fs, "/other")
    note_of(scene.fs).remember(5)
    assert note_of(scene.fs, app=f"{APP}2").version is None
    assert note_of(scene.fs, app="query-1").version is None
    assert note_of(scene.fs, root=other).version is None


def test_a_root_that_moved_and_a_new_one_in_its_place_are_both_known(scene: Scene) -> None:
    note_of(scene.fs).remember(5)
    scene.fs.rename(ROOT, "/moved")
    assert note_of(scene.fs, root="/moved").version == 5
    other_root(scene.fs, ROOT)
    assert note_of(scene.fs).version == 5


@pytest.mark.parametrize("line", [0, 1])
@pytest.mark.parametrize("versions", [(4,), (4, 5), (4, 5, 6)])
def test_one_torn_line_leaves_the_other(scene: Scene, line: int, versions: tuple[int, ...]) -> None:
    for version in versions:
        note_of(scene.fs).remember(version)
    path = note_of(scene.fs).path
    with scene.fs.open(path, OpenMode.WRITE) as file:
        file.pwrite(b"\0" * 10, line * 30 + 5)
    assert note_of(scene.fs).version in versions[-2:]


@pytest.mark.parametrize("content", [b"", b"\0" * 60, b"4 0\n", b"x" * 60, b"9" * 4000])
def test_a_note_without_a_sound_line_stops_and_names_its_file(scene: Scene, content: bytes) -> None:
    note_of(scene.fs).remember(4)
    path = note_of(scene.fs).path
    rewrite(scene.fs, path, content)
    with pytest.raises(CorruptCheckpointError) as caught:
        note_of(scene.fs)
    assert path in str(caught.value)


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_leaves_a_note_that_knows_no_more_than_the_log(seed: int) -> None:
    scene = Scene()
    make_directories(scene.fs, CHECKPOINT)
    for version in range(seed % 4 + 1):
        scene.commit(version, note=note_of(scene.fs))
        note_of(scene.fs).remember(version)
    after = scene.after_crash(power=True, seed=seed)
    noted = note_of(after.fs).version
    assert noted is not None and noted <= (after.commits.last_version(APP) or 0)
    assert after.commit(seed % 4 + 1, note=note_of(after.fs)).verdict is Verdict.COMMIT


@pytest.mark.parametrize("before", [None, 4])
def test_a_note_that_cannot_be_written_raises_nothing(
    scene: Scene, before: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    if before is not None:
        note_of(scene.fs).remember(before)
    failing = FaultyFileSystem(scene.memory, Fault(operation="pwrite", errno=errno.ENOSPC))
    note_of(failing).remember(5)
    assert "cannot note version 5" in caplog.text
    assert note_of(scene.fs).version == before


# ---- the rule ---------------------------------------------------------------------------------
@pytest.mark.parametrize("rule", ReplayRule)
@pytest.mark.parametrize("backed_up", [None, 0, 2], ids=["empty", "version 0", "version 2"])
def test_a_log_put_back_from_an_older_copy_is_refused(
    scene: Scene, rule: ReplayRule, backed_up: int | None
) -> None:
    copy: MemoryFileSystem = scene.memory.crash_clone(Random(0), power=False)
    for version in range(5):
        scene.commit(version, note=note_of(scene.fs), replay_rule=rule)
        note_of(scene.fs).remember(version)
        if version == backed_up:
            copy = scene.memory.crash_clone(Random(0), power=False)
    old = Scene(copy, clock=scene.clock)
    note = note_of(scene.fs)
    last = -1 if backed_up is None else backed_up

    for on_mismatch in OnMismatch:
        for version in (4, 5, 9):
            with pytest.raises(CommitMismatchError, match="missing from this log") as caught:
                old.commit(version, note=note, replay_rule=rule, on_mismatch=on_mismatch)
    text = f"{caught.value} {caught.value.hint}"
    assert PurePosixPath(note.path).name in text and "delete the file" in text
    assert "version 4" in text
    # A checkpoint taken back as far leaves nothing out.
    assert old.commit(last + 1, note=note, replay_rule=rule).verdict is Verdict.COMMIT


def test_versions_with_gaps_are_no_loss(scene: Scene) -> None:
    """A function that appends in some batches only."""
    for version in (3, 7, 20):
        outcome = scene.commit(version, note=note_of(scene.fs), replay_rule=ReplayRule.GREATER)
        note_of(scene.fs).remember(version)
        assert outcome.verdict is Verdict.COMMIT


def test_an_app_that_the_checkpoint_does_not_remember_may_start_anywhere(scene: Scene) -> None:
    """A topic or a sink added to a query that has run for some time."""
    for version in range(3):
        scene.commit(version)
        note_of(scene.fs).remember(version)
    other = f"{APP}-new"
    assert scene.commit(3, app=other, note=note_of(scene.fs, app=other)).verdict is Verdict.COMMIT


def test_deleting_the_note_leaves_the_missing_batches_out(scene: Scene) -> None:
    note_of(scene.fs).remember(4)
    with pytest.raises(CommitMismatchError) as caught:
        scene.commit(5, note=note_of(scene.fs))
    scene.fs.remove(note_of(scene.fs).path)
    assert str(caught.value.path) == note_of(scene.fs).path
    assert scene.commit(5, note=note_of(scene.fs)).verdict is Verdict.COMMIT
