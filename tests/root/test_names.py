"""Names on the disk: whatever apps, topics and readers are called, none is another one's file."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamlog.clock import ManualClock, SystemClock
from streamlog.commits.replay import Verdict
from streamlog.fs.api import OpenMode
from streamlog.fs.faults import Fault
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.fs.names import temporary_path
from streamlog.maintenance.runner import Maintenance
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.readers import check_progress, list_readers, write_progress
from tests.support.commits import NOW, ROOT, Scene, killed, values_in
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


# ---- topics ---------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [242, 243, 244, 248, 249])
@pytest.mark.parametrize("is_on_disk", [False, True])
def test_a_topic_of_every_legal_length_lives_a_whole_life(
    size: int, is_on_disk: bool, tmp_path: Path
) -> None:
    fs = LocalFileSystem() if is_on_disk else MemoryFileSystem()
    clock = SystemClock() if is_on_disk else ManualClock(NOW)
    root, name = str(tmp_path), "t" * size
    scene = Scene(fs, root=root, clock=clock)
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    for _ in range(2):
        scene.manager.create_topic(name, 11, configs)
        scene.commit(0, [scene.stage(0, {10: [b"row"]}, topic=name, app=name)], app=name)
        log = scene.manager.log(name, 10)
        log.append([Record(b"key", b"row", (), NOW)])
        log.roll()
        assert name in scene.manager.topics()
        assert Maintenance(root, fs=fs, clock=clock).run().errors == []
        scene.commits.retire()
        assert values_in(fs, f"{root}/{name}-10")[-1:] == [b"row"]
        scene.manager.delete_topic(name)
        name = name[:-1] + "u"
    assert scene.manager.topics() == ["t"]


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
            check_progress(LogRoot.at(root), "billing")
            write_progress(
                LogRoot.at(root), "billing", {"orders": {"0": offset}}, now_ms=NOW + number
            )

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(query, number) for number in range(4)]:
            each.result()
    (reader,) = list_readers(LogRoot.at(root))
    assert reader.name == "billing"
    (left,) = (tmp_path / "root" / ".streamlog" / "readers").iterdir()
    assert json.loads(left.read_bytes())["offsets"] == {"orders": {"0": 59}}
