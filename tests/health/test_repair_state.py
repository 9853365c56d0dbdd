"""`repair` of what lies below `.streamlog`: nothing lost in silence, and writers go on."""

import random

import pytest

from streamlog.commits.replay import Verdict
from streamlog.errors import LockTimeoutError
from streamlog.fs.api import FileSystem
from streamlog.fs.files import write_file_atomically
from streamlog.fs.log_root import LogRoot
from streamlog.health.findings import FindingKind, as_error
from streamlog.health.repair import Repair, repair
from streamlog.root.group_configs import read_group_configs
from tests.health.test_state_files import (
    LEDGER,
    STATE,
    decision_of,
    findings,
    full_scene,
    overwrite,
    staged_of,
)
from tests.support.commits import ROOT, Scene, rows_of

RUINED = b"#" * 20_000


def state_repair(scene: Scene, *, skips: bool = False, is_dry_run: bool = False) -> Repair:
    found = repair(
        scene.fs, scene.clock, random.Random(1), ROOT, is_dry_run=is_dry_run, skips_damage=skips
    )
    return next((each for each in found if each.partition is None), Repair(partition=None))


def contents(fs: FileSystem, path: str = ROOT) -> dict[str, tuple[int, int] | None]:
    files: dict[str, tuple[int, int] | None] = {}
    for name in fs.list(path):
        each = f"{path}/{name}"
        found = fs.stat(each)
        assert found is not None
        if found.kind.value == "directory":
            files |= contents(fs, each)
        else:
            files[each] = (found.size, found.inode)
    return files


def ended(scene: Scene) -> Scene:
    """Return the same root after its process died: nobody has it open."""
    return_to = scene.after_crash()
    return_to.manager.close()
    return return_to


def after_power_cut(scene: Scene) -> Scene:
    """Return the same root after all that was not synced is gone: both decisions wait.

    `Scene` opens no partition until it is asked to.
    """
    lost = scene.memory.crash_clone(random.Random(0), power=True, loss="everything")
    found = Scene(lost, clock=scene.clock)
    found.manager.close()
    return found


def again(scene: Scene) -> Scene:
    return Scene(scene.fs, clock=scene.clock)


def test_a_sound_state_needs_no_repair() -> None:
    scene = ended(full_scene())
    assert state_repair(scene) == Repair(partition=None)


@pytest.mark.parametrize("name", [LEDGER, "decision", "group-configs"])
def test_a_file_with_one_whole_copy_is_written_again(name: str) -> None:
    scene = ended(full_scene())
    path = f"{STATE}/{decision_of(scene) if name == 'decision' else name}"
    overwrite(scene.fs, path, 40, b"#")
    before = contents(scene.fs)
    planned = state_repair(scene, is_dry_run=True)
    assert contents(scene.fs) == before
    done = state_repair(scene)
    assert [each.change.path for each in done.steps] == [path]
    assert len(planned.steps) == len(done.steps)
    assert findings(scene.fs, is_deep=True) == []
    scene = again(scene)
    assert [scene.commit(version).verdict for version in (2, 3)] == [
        Verdict.REPLAY,
        Verdict.COMMIT,
    ]


def test_the_book_loses_its_bad_lines_only() -> None:
    scene = ended(full_scene())
    overwrite(scene.fs, f"{STATE}/maintenance.jsonl", 0, b"[")
    state_repair(scene)
    assert findings(scene.fs) == []


@pytest.mark.parametrize(
    "name",
    [LEDGER, "decision", "staged", "topics/t.properties", "readers/billing.json", "group-configs"],
)
def test_what_would_lose_something_is_refused_and_says_what(name: str) -> None:
    scene = ended(full_scene())
    names = {"decision": decision_of(scene), "staged": staged_of(scene)}
    overwrite(scene.fs, f"{STATE}/{names.get(name, name)}", 0, b"\xff" * 9000)
    before = contents(scene.fs)
    result = state_repair(scene)
    assert contents(scene.fs) == before
    assert result.left
    for each in result.left:
        hint = str(as_error(each).hint)
        assert ("--skip-damage" in hint and "lost" in hint) or "forgotten" in hint or "kept" in hint


def test_a_root_that_is_open_for_writing_is_left_alone() -> None:
    scene = full_scene()
    overwrite(scene.fs, f"{STATE}/{LEDGER}", 40, b"#")
    with pytest.raises(LockTimeoutError, match="open for writing"):
        state_repair(scene)


def test_going_on_without_a_damaged_decision_gives_no_offset_away() -> None:
    """The first of two decisions is lost, and with it what a power cut took from the log."""
    scene = after_power_cut(full_scene())
    path = f"{STATE}/{decision_of(scene, 0)}"
    overwrite(scene.fs, path, 0, RUINED)
    result = state_repair(scene, skips=True)
    assert result.error is None and not result.left
    assert any("lost" in (step.why or "") for step in result.steps)
    assert findings(scene.fs, is_deep=True) == []
    kept = scene.fs.list(f"{STATE}/damaged")
    assert len(kept) == 1 and kept[0].endswith(path.rpartition("/")[2])
    scene = again(scene)
    for partition in (0, 1):
        log = scene.manager.log("t", partition)
        assert scene.values(partition) == [*rows_of(0, partition), *rows_of(2, partition)]
        found = next(iter(log.read(12).records()))
        assert (found.offset, log.log_end_offset) == (12, 18), "the later commit is where it was"
    assert scene.commit(2).verdict is Verdict.REPLAY
    assert scene.commit(3).verdict is Verdict.COMMIT
    scene.commits.retire()
    scene.manager.close()
    assert findings(scene.fs, is_deep=True) == []


def test_going_on_without_the_newest_decision_lets_its_batch_be_written_again() -> None:
    scene = ended(full_scene())
    overwrite(scene.fs, f"{STATE}/{decision_of(scene)}", 0, RUINED)
    assert state_repair(scene, skips=True).error is None
    scene = again(scene)
    assert scene.commit(2).verdict is Verdict.COMMIT
    assert findings(scene.fs, is_deep=True) == []


def test_going_on_without_staged_rows_keeps_the_commit_and_its_other_partition() -> None:
    scene = after_power_cut(full_scene())
    overwrite(scene.fs, f"{STATE}/{staged_of(scene)}", 70, b"#")
    found = findings(scene.fs, is_deep=True)
    assert FindingKind.STAGED in {each.kind for each in found}
    assert state_repair(scene, skips=True).error is None
    assert scene.fs.list(f"{STATE}/damaged")
    scene = again(scene)
    assert [scene.manager.log("t", p).log_end_offset for p in (0, 1)] == [18, 18]
    assert scene.values(0) == [*rows_of(0, 0), *rows_of(1, 0)]
    assert scene.values(1) == [*rows_of(0, 1), *rows_of(1, 1), *rows_of(2, 1)]
    scene.append(0, b"x")
    assert scene.values(0)[-1] == b"x"
    assert scene.commit(2).verdict is Verdict.REPLAY
    scene.commits.retire()
    scene.manager.close()
    assert findings(scene.fs, is_deep=True) == []


def test_going_on_without_a_ledger_forgets_no_decision() -> None:
    scene = ended(full_scene())
    overwrite(scene.fs, f"{STATE}/{LEDGER}", 0, RUINED)
    assert state_repair(scene, skips=True).error is None
    assert findings(scene.fs, is_deep=True) == []
    scene = again(scene)
    assert [scene.commit(version).verdict for version in (1, 2, 3)] == [
        Verdict.REPLAY,
        Verdict.REPLAY,
        Verdict.COMMIT,
    ]


def test_settings_of_groups_that_cannot_be_read_are_set_aside() -> None:
    scene = ended(full_scene())
    overwrite(scene.fs, f"{STATE}/group-configs", 0, b"\xff" * 9000)
    assert state_repair(scene, skips=True).error is None
    assert findings(scene.fs) == []
    assert read_group_configs(LogRoot.at(ROOT, fs=scene.fs)) == {}


def test_settings_that_can_be_read_stay_and_retention_is_off() -> None:
    scene = ended(full_scene())
    path = f"{STATE}/topics/t.properties"
    text = b"segment.bytes=1048576\nretention.mz=5\n\xff\xfe=1\ncleanup.policy=delete\n"
    scene.fs.remove(path)
    write_file_atomically(scene.fs, path, text)
    assert state_repair(scene, skips=True).error is None
    config = again(scene).manager.topic_config("t")
    assert (config.segment_bytes, config.retention_ms, config.retention_bytes) == (1 << 20, -1, -1)
    assert findings(scene.fs) == []
