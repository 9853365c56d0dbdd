"""Which locks a commit holds while it does what, and how others wait for them."""

import logging
from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.commits import admission, extents
from streamlog.commits.admission import HeldPartitions
from streamlog.commits.commit_log import locked_app
from streamlog.commits.identity import CommitIdentity, app_key
from streamlog.commits.replay import ReplayRule
from streamlog.errors import CorruptRecordError, LockTimeoutError
from streamlog.fs.api import OpenMode
from streamlog.fs.files import acquire_lock, write_lock_holder
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.locks import (
    PROGRESS_MS,
    wait_for_lock,
)
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from streamlog.topic import TopicPartition
from tests.support.commits import APP, NOW, ROOT, Scene, batches_of, rows_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NAMES = ("commit", "apps", "root", "topics", "open", "maintenance", "commit-00", "apps-0")
APPS = ("commit-11", "root", "topics", "../root", "t-0", "t-0.maintenance", "apps", "q/t")


def is_free(scene: Scene, partition: TopicPartition) -> bool:
    lock = scene.fs.try_lock(LogRoot.at(scene.root).partition_lock(partition), shared=False)
    if lock is not None:
        lock.release()
    return lock is not None


# ---- what is done without locks -----------------------------------------------------------------
def test_what_is_staged_is_checked_before_any_partition_is_locked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.commit(0)
    checked = []
    check = admission.check_part

    def look(config: object, part: admission.StagedPart, *rest: object) -> None:
        assert is_free(scene, T0)
        assert is_free(scene, T1)
        checked.append(part.topic_partition)
        check(config, part, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(admission, "check_part", look)
    scene.commit(1)
    assert checked == [T0, T1]


@pytest.fixture
def inflated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done with staged bytes beside copying them, in order."""
    done: list[str] = []

    def noting(name: str) -> None:
        original = getattr(admission, name)

        def noted(*arguments: object, **named: object) -> object:
            done.append(name)
            return original(*arguments, **named)

        monkeypatch.setattr(admission, name, noted)

    for name in ("check_decompressed", "decode_pieces"):
        noting(name)
    return done


def test_what_is_not_kept_in_memory_is_neither_inflated_nor_decoded_under_the_locks(
    monkeypatch: pytest.MonkeyPatch, inflated: list[str]
) -> None:
    monkeypatch.setattr(extents, "KEPT_SIZE", 0)
    scene = Scene(configs={"cleanup.policy": "compact"})
    scene.commit(0)
    inflated.clear()
    enter = HeldPartitions.__enter__

    def entered(held: HeldPartitions) -> HeldPartitions:
        inflated.append("locked")
        return enter(held)

    monkeypatch.setattr(HeldPartitions, "__enter__", entered)
    scene.commit(1)
    assert inflated == ["check_decompressed", "decode_pieces"] * 2 + ["locked"]
    assert scene.values(0) == rows_of(0, 0) + rows_of(1, 0)


def test_a_staged_file_that_is_damaged_after_its_check_is_not_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extents, "KEPT_SIZE", 0)
    scene = Scene()
    scene.commit(0)
    staged = scene.stage(1)
    enter = HeldPartitions.__enter__

    def damaged(held: HeldPartitions) -> HeldPartitions:
        path = f"{ROOT}/.streamlog/staging/{app_key(APP)}/{staged.name}"
        with scene.fs.open(path, OpenMode.WRITE) as file:
            file.pwrite(b"?", staged.size - 1)
        return enter(held)

    monkeypatch.setattr(HeldPartitions, "__enter__", damaged)
    with pytest.raises(CorruptRecordError, match="fails its checksum"):
        scene.commit(1, [staged])
    assert scene.values(0) == rows_of(0, 0) + rows_of(1, 0), "its batches were sound"
    assert scene.values(1) == rows_of(0, 1), "and here a new checksum would have covered it up"


@pytest.mark.parametrize("changes", [1, 2, 3, 4])
def test_settings_that_changed_before_the_lock_was_had_are_checked_by_without_it(
    monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    scene = Scene()
    scene.commit(0)
    locked, sizes = [], iter(range(changes))
    enter, check = HeldPartitions.__enter__, admission.check_part

    def change(held: HeldPartitions) -> HeldPartitions:
        left = next(sizes, None)
        if left is not None:
            size = 1_000_000 - left if left < changes - 1 else 1
            scene.manager.alter_topic("t", configs={"max.message.bytes": size})
        return enter(held)

    def look(*arguments: object) -> None:
        locked.append(not is_free(scene, T0))
        check(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(HeldPartitions, "__enter__", change)
    monkeypatch.setattr(admission, "check_part", look)
    with pytest.raises(Exception, match="larger than the topic"):
        scene.commit(1)
    # Both parts each time, and the last time the first one is refused. Somebody who changes the
    # settings for ever cannot keep a commit from being made: that is decided under the locks.
    assert locked == [False, False] * min(changes, 3) + [changes > 2]
    assert len(scene.pending_names()) == 1


def test_a_partition_is_free_as_soon_as_its_part_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.commit(0)
    seen = []
    append = PartitionLog.append_decided

    def look(log: PartitionLog, *batches: object, **how: object) -> None:
        seen.append((log.topic_partition, is_free(scene, T0), is_free(scene, T1)))
        append(log, *batches, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(PartitionLog, "append_decided", look)
    scene.commit(1)
    assert seen == [(T0, False, False), (T1, True, False)]


# ---- names --------------------------------------------------------------------------------------
def test_no_lock_of_an_app_or_a_root_is_that_of_a_partition_whatever_they_are_called() -> None:
    partitions = [TopicPartition(name, number) for name in NAMES for number in (0, 1, 11, 63)]
    paths = [LogRoot.at(ROOT).partition_lock(each) for each in partitions]
    paths += [LogRoot.at(ROOT).maintenance_lock(each) for each in partitions]
    paths += [LogRoot.at(ROOT).app_lock(app_key(app)) for app in {*APPS, *NAMES}]
    paths += [f"{LogRoot.at(ROOT).locks}/{name}" for name in ("root", "topics", "open")]
    paths += [f"{LogRoot.at(ROOT).locks}/{name}" for name in ("maintenance", "apps")]
    assert len(set(paths)) == len(paths)


def test_a_topic_called_commit_with_many_partitions_is_committed_to() -> None:
    scene = Scene()
    scene.manager.create_topic("commit", 64)
    rows = {number: [b"row"] for number in range(64)}
    for version in range(3):
        scene.commit(version, [scene.stage(version, rows, topic="commit")])
    assert scene.manager.log("commit", 63).log_end_offset == 3


def test_an_app_waits_for_no_other_one() -> None:
    scene = Scene()
    with_locks = [
        locked_app(scene.log_root, f"app {number}", timeout_ms=0) for number in range(200)
    ]
    for lock in with_locks:
        lock.__enter__()
    scene.commit(0)
    for lock in with_locks:
        lock.__exit__(None, None, None)


def test_apps_leave_no_lock_files_behind() -> None:
    scene = Scene()
    for version in range(3):
        scene.commit(version)
    identity = CommitIdentity.anonymous(Random(1))
    staged = scene.stage(identity.version, app=identity.app)
    scene.commits.commit(identity, [staged], replay_rule=ReplayRule.GREATER)
    assert scene.fs.list(f"{ROOT}/.streamlog/locks/apps") == []


def test_what_a_crash_leaves_of_a_lock_is_taken_over_and_cleaned_up() -> None:
    scene = Scene()
    scene.commit(0)
    for app in (APP, "gone"):
        lock = scene.fs.try_lock(scene.log_root.app_lock(app_key(app)), shared=False)
        assert lock is not None
        lock.release()
    scene.commit(1)
    assert scene.fs.list(f"{ROOT}/.streamlog/locks/apps") == [app_key("gone")]
    with locked_app(scene.log_root, "busy", timeout_ms=0):
        scene.commits.clean()
        assert scene.fs.list(f"{ROOT}/.streamlog/locks/apps") == ["busy"]


# ---- waiting ------------------------------------------------------------------------------------
def test_a_writer_that_waits_names_the_holder_every_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fs, clock = MemoryFileSystem(), ManualClock(NOW)
    fs.make_directory("/locks")
    held = acquire_lock(fs, clock, "/locks/t-0", shared=False, timeout_ms=0, what="t-0")
    write_lock_holder(held, now_ms=NOW, what="append")
    with caplog.at_level(logging.WARNING), pytest.raises(LockTimeoutError) as raised:
        wait_for_lock(fs, clock, "/locks/t-0", timeout_ms=35_000, what="partition t-0")
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 3
    assert all("waiting for partition t-0 (held by" in line and "append" in line for line in lines)
    assert clock.monotonic_ms() >= 35_000
    assert "35000 ms (lock.timeout.ms)" in str(raised.value)
    held.release()
    wait_for_lock(fs, clock, "/locks/t-0", timeout_ms=0, what="partition t-0").release()


def test_the_setting_of_the_root_says_how_long_writers_wait() -> None:
    scene = Scene()
    path = f"{ROOT}/.streamlog/server.properties"
    with scene.fs.open(path, OpenMode.WRITE) as file:
        file.truncate(0)
        file.pwrite(b"streamlog.lock.timeout.ms=12345\n", 0)
    held = scene.fs.try_lock(LogRoot.at(ROOT).partition_lock(T0), shared=False)
    assert held is not None
    for open_one in (
        lambda: LogManager.open(ROOT, fs=scene.fs, clock=scene.clock).log("t", 0),
        lambda: PartitionLog.open(f"{ROOT}/t-0", fs=scene.fs, clock=scene.clock),
    ):
        with pytest.raises(LockTimeoutError, match="12345 ms"):
            open_one()
    with pytest.raises(LockTimeoutError, match="free in 7 ms"):
        LogManager.open(ROOT, fs=scene.fs, clock=scene.clock, lock_timeout_ms=7).log("t", 0)


def test_patience_may_change_while_a_root_is_open() -> None:
    scene = Scene()
    manager = LogManager.open(ROOT, fs=scene.fs, clock=scene.clock, lock_timeout_ms=7)
    log = manager.log("t", 0)
    manager.patience.timeout_ms = 3 * PROGRESS_MS
    held = scene.fs.try_lock(LogRoot.at(ROOT).partition_lock(T0), shared=False)
    assert held is not None
    with pytest.raises(LockTimeoutError, match="30000 ms"):
        log.append_as_leader(batches_of([b"row"]).buffer)
