"""Names on the disk: whatever apps, topics and readers are called, none is another one's file."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from streamlog.clock import ManualClock
from streamlog.fs.api import OpenMode
from streamlog.fs.faults import Fault
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.names import temporary_path
from streamlog.log.commits.replay import Verdict
from streamlog.log.maintenance.readers import check_progress, list_readers, write_progress
from streamlog.log.maintenance.runner import Maintenance
from streamlog.log.manager import LogManager
from tests.support.commits import NOW, ROOT, Scene, killed
from tests.support.segments import read_bytes, write_bytes

APPS = ("q/orders", "q/orders.tmp", "q/orders.tmp.tmp", ".q~1-2.tmp")


# ---- apps -----------------------------------------------------------------------------------
def test_no_ledger_is_destroyed_by_the_temporary_file_of_another_app() -> None:
    scene = Scene()
    for version in range(2):
        for app in APPS:
            scene.commit(version, app=app)
        scene.commits.retire()
    for app in APPS:
        assert scene.commit(1, app=app).verdict is Verdict.REPLAY
        assert scene.commit(0, app=app).verdict is Verdict.REPLAY


def test_a_half_written_ledger_is_no_ledger_of_an_app_with_a_longer_name() -> None:
    scene = Scene()
    scene.commit(0, app=APPS[1])
    scene.commits.retire()
    scene.commit(0, app=APPS[0])
    dying = scene.over(Fault(operation="rename", path_suffix="ledgers/q%2Forders"))
    with killed():
        dying.commits.retire()
    again = scene.after_crash()
    for app in APPS[:2]:
        assert again.commit(0, app=app).verdict is Verdict.REPLAY
    assert again.commit(0, app=APPS[2]).verdict is Verdict.COMMIT


def test_a_temporary_ledger_of_an_earlier_release_is_no_ledger() -> None:
    scene = Scene()
    scene.commit(0, app=APPS[0])
    scene.commits.retire()
    ledgers = f"{ROOT}/.streamlog/commits/ledgers"
    write_bytes(
        scene.memory, f"{ledgers}/q%2Forders.tmp", read_bytes(scene.memory, f"{ledgers}/q%2Forders")
    )
    assert scene.commit(0, app=APPS[1]).verdict is Verdict.COMMIT
    scene.commits.retire()
    assert scene.commit(0, app=APPS[1]).verdict is Verdict.REPLAY


# ---- leftovers ------------------------------------------------------------------------------
def test_maintenance_removes_what_dead_processes_left_everywhere_and_nothing_younger() -> None:
    scene = Scene()
    scene.commit(0)
    scene.commits.retire()
    state = f"{ROOT}/.streamlog"
    directories = [ROOT, state] + [
        f"{state}/{each}" for each in ("topics", "readers", "commits/pending", "commits/ledgers")
    ]
    scene.manager.close()
    clock = ManualClock(NOW)
    fs = scene.memory
    paths = [temporary_path(f"{each}/state") for each in directories]
    for path in paths:
        fs.open(path, OpenMode.CREATE).close()
        fs.set_mtime(path, NOW)
    Maintenance(ROOT, fs=fs, clock=clock).run()
    assert all(fs.stat(path) for path in paths)
    clock.advance(3_600_000)
    Maintenance(ROOT, fs=fs, clock=clock).run()
    assert not any(fs.stat(path) for path in paths)


# ---- readers --------------------------------------------------------------------------------
def test_queries_with_one_group_id_write_their_progress_side_by_side(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", 1)

    def query(number: int) -> None:
        for offset in range(60):
            check_progress(root, "billing")
            write_progress(root, "billing", {"orders": {"0": offset}}, now_ms=NOW + number)

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(query, number) for number in range(4)]:
            each.result()
    (reader,) = list_readers(LocalFileSystem(), root)
    assert reader.name == "billing"
    (left,) = (tmp_path / "root" / ".streamlog" / "readers").iterdir()
    assert json.loads(left.read_bytes())["offsets"] == {"orders": {"0": 59}}
