"""What lies below `.streamlog` is looked at: by `verify`, and by `doctor`."""

import pytest

from streamlog.cli.root_checkup import FAIL, OK, WARN, _check_state
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.log_root import LogRoot
from streamlog.health.findings import Finding, FindingKind, Severity
from streamlog.health.verify import verify
from streamlog.root.deeds import Deed, write_deeds
from streamlog.root.group_configs import write_group_configs
from streamlog.root.readers import write_progress
from tests.support.commits import NOW, ROOT, Scene

STATE = f"{ROOT}/.streamlog"
LEDGER = "commits/ledgers/query-1%2Ft"


def full_scene() -> Scene:
    """Return a root with one of everything: a ledger, two decisions, a reader, a deed, locks."""
    scene = Scene()
    scene.commit(0)
    scene.commits.retire()
    scene.commit(1)
    scene.commit(2)
    write_progress(LogRoot.at(ROOT, fs=scene.fs), "billing", {"t": {"0": 1}}, now_ms=NOW)
    deed = Deed(
        ms=NOW, topic="t", partition=0, action="retention", reason="retention.ms",
        segments=1, bytes=1, log_start_offset=1,
    )  # fmt: skip
    write_deeds(LogRoot.at(ROOT, fs=scene.fs), [deed, deed])
    configs = {"billing": {"consumer.session.timeout.ms": "50000"}}
    write_group_configs(LogRoot.at(ROOT, fs=scene.fs), configs)
    return scene


def findings(fs: FileSystem, *, is_deep: bool = False) -> list[Finding]:
    found: list[Finding] = []
    verify(fs, ROOT, found.append, is_deep=is_deep)
    return [each for each in found if each.severity is not Severity.NOTE]


def overwrite(fs: FileSystem, path: str, position: int, text: bytes) -> None:
    with fs.open(path, OpenMode.WRITE) as file:
        file.pwrite(text, position)


def decision_of(scene: Scene, at: int = -1) -> str:
    return f"commits/pending/{scene.pending_names()[at]}"


def staged_of(scene: Scene) -> str:
    return f"staging/query-1%2Ft/{scene.staged_names()[-1]}"


@pytest.mark.parametrize("is_deep", [False, True])
def test_a_sound_root_has_sound_state(is_deep: bool) -> None:
    scene = full_scene()
    assert findings(scene.fs, is_deep=is_deep) == []
    assert [each.status for each in _check_state(LogRoot.at(ROOT, fs=scene.fs))] == [OK]


@pytest.mark.parametrize(
    ("name", "position", "text", "kind", "severity"),
    [
        ("server.properties", 0, b"no.such.key=1\n", FindingKind.SETTINGS, Severity.DAMAGE),
        ("topics/t.properties", 0, b"retention.mz=1\n", FindingKind.SETTINGS, Severity.DAMAGE),
        ("topics/t.properties", 0, b"\xff\xff", FindingKind.SETTINGS, Severity.DAMAGE),
        ("group-configs", 40, b"#", FindingKind.SETTINGS, Severity.REPAIRABLE),
        ("group-configs", 40, b"#" * 20_000, FindingKind.SETTINGS, Severity.DAMAGE),
        (LEDGER, 40, b"#", FindingKind.LEDGER, Severity.REPAIRABLE),
        (LEDGER, 40, b"#" * 20_000, FindingKind.LEDGER, Severity.DAMAGE),
        ("decision", 40, b"#", FindingKind.DECISION, Severity.REPAIRABLE),
        ("decision", 5000, b"#", FindingKind.DECISION, Severity.REPAIRABLE),
        ("decision", 40, b"#" * 20_000, FindingKind.DECISION, Severity.DAMAGE),
        ("staged", 70, b"#", FindingKind.STAGED, Severity.DAMAGE),
        ("readers/billing.json", 0, b"[", FindingKind.READER, Severity.DAMAGE),
        ("maintenance.jsonl", 0, b"[", FindingKind.BOOK, Severity.REPAIRABLE),
    ],
)
def test_a_damaged_file_of_the_state_is_found_by_verify_and_doctor(
    name: str, position: int, text: bytes, kind: FindingKind, severity: Severity
) -> None:
    scene = full_scene()
    names = {"decision": decision_of(scene), "staged": staged_of(scene)}
    path = f"{STATE}/{names.get(name, name)}"
    overwrite(scene.fs, path, position, text)
    found = findings(scene.fs, is_deep=True)
    assert {(each.kind, each.severity) for each in found} == {(kind, severity)}
    assert all(each.path == path or "readers" in each.path for each in found)
    if kind is not FindingKind.STAGED:  # which doctor does not read
        expected = FAIL if severity is Severity.DAMAGE else WARN
        (told,) = _check_state(LogRoot.at(ROOT, fs=scene.fs))
        assert told.status == expected
        assert told.cure == f"streamlog repair {ROOT} --dry-run"


def test_a_missing_staged_file_is_found_without_reading_rows() -> None:
    scene = full_scene()
    scene.fs.remove(f"{STATE}/{staged_of(scene)}")
    found = findings(scene.fs)
    assert {each.kind for each in found} == {FindingKind.STAGED}
    assert {(each.offset, each.last_offset) for each in found} == {(4, 5)} or len(found) == 2


def test_staged_rows_that_are_synced_in_the_log_do_not_matter() -> None:
    scene = full_scene()
    for partition in (0, 1):
        scene.manager.log("t", partition).flush()
    scene.manager.close()
    scene.fs.remove(f"{STATE}/{staged_of(scene)}")
    assert findings(scene.fs) == []


def test_a_missing_decision_is_found() -> None:
    scene = full_scene()
    scene.fs.remove(f"{STATE}/{decision_of(scene, 0)}")
    (found,) = findings(scene.fs)
    assert (found.kind, found.severity) == (FindingKind.DECISION, Severity.DAMAGE)
    assert "missing" in found.what


def test_a_topic_without_a_directory_is_found() -> None:
    scene = full_scene()
    with scene.fs.open(f"{STATE}/topics/gone.properties", OpenMode.CREATE):
        pass
    (found,) = findings(scene.fs)
    assert "topic gone has no partition" in found.what


def test_a_damaged_lock_state_is_worth_a_note() -> None:
    scene = full_scene()
    scene.manager.close()
    overwrite(scene.fs, f"{STATE}/locks/t-0", 300, b"#####")
    assert findings(scene.fs) == []
    notes: list[Finding] = []
    verify(scene.fs, ROOT, notes.append)
    assert FindingKind.LOCK_STATE in [each.kind for each in notes]
