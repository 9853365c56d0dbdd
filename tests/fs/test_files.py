"""Whole-file operations: old content or new after any crash, bounded waiting, no link followed."""

import errno
import itertools
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from streamlog.clock import ManualClock, SystemClock
from streamlog.errors import (
    DiskFullError,
    FileExistsAlreadyError,
    FileMissingError,
    LimitExceededError,
    LockTimeoutError,
    StorageError,
)
from streamlog.fs.api import Buffer, FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem, Operation
from streamlog.fs.files import (
    LockHolder,
    acquire_lock,
    create_file_atomically,
    make_directories,
    read_file,
    read_lock_holder,
    remove_tree,
    write_file_atomically,
    write_lock_holder,
)
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.memory import MemoryFileSystem
from streamlog.fs.names import is_temporary, remove_stale_temporaries, temporary_path
from tests.support.child import child_that_stays
from tests.support.crash import CrashCheckError, every_crash_point

HOUR_LATER_MS = (
    ManualClock().now_ms() + 3_600_000
)  # the clock of a file system in memory stands still
OLD, NEW = b"the old content, longer than the other", b"the new content"


def _prepared() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    make_directories(fs, "/logs")
    write_file_atomically(fs, "/logs/state", OLD)
    return fs


# ---- reading --------------------------------------------------------------------------------
def test_read_file_refuses_more_than_max_size() -> None:
    fs = _prepared()
    assert read_file(fs, "/logs/state", max_size=len(OLD)) == OLD
    with pytest.raises(LimitExceededError) as caught:
        read_file(fs, "/logs/state", max_size=len(OLD) - 1)
    assert caught.value.path == "/logs/state"
    with pytest.raises(FileMissingError):
        read_file(fs, "/logs/missing", max_size=1)


# ---- replacing ------------------------------------------------------------------------------
def _replace(fs: FileSystem, acknowledged: list) -> None:
    write_file_atomically(fs, "/logs/state", NEW)
    acknowledged.append(NEW)


def _check_replaced(fs: MemoryFileSystem, acknowledged: list) -> None:
    found = read_file(fs, "/logs/state", max_size=100)
    assert found in (acknowledged or [OLD, NEW])
    write_file_atomically(fs, "/logs/state", b"next")  # leftovers of a crash are no obstacle
    assert read_file(fs, "/logs/state", max_size=100) == b"next"
    left = [name for name in fs.list("/logs") if name != "state"]
    assert all(map(is_temporary, left))
    assert remove_stale_temporaries(fs, "/logs", now_ms=HOUR_LATER_MS - 1) == 0
    assert remove_stale_temporaries(fs, "/logs", now_ms=HOUR_LATER_MS) == len(left)
    fs.sync_directory("/logs")
    assert fs.list("/logs") == ["state"]
    assert fs.unsynced() == ()


def test_replacing_a_file_survives_every_crash_with_old_or_new_content() -> None:
    report = every_crash_point(_replace, _check_replaced, prepared=_prepared(), seeds=range(20))
    assert [operation.name for operation in report.operations] == [
        "create",
        "pwrite",
        "sync",
        "rename",
        "sync_directory",
    ]
    assert report.states > 12


@pytest.mark.parametrize("forgotten", ["sync", "sync_directory"])
def test_a_missing_sync_is_detected(forgotten: str) -> None:
    def forgetful(fs: FileSystem, acknowledged: list) -> None:
        temporary = temporary_path("/logs/state")
        with fs.open(temporary, OpenMode.CREATE) as file:
            file.pwrite(NEW, 0)
            if forgotten != "sync":
                file.sync()
        fs.rename(temporary, "/logs/state")
        if forgotten != "sync_directory":
            fs.sync_directory("/logs")
        acknowledged.append(NEW)

    with pytest.raises(CrashCheckError, match="power cut"):
        every_crash_point(forgetful, _check_replaced, prepared=_prepared(), seeds=range(20))


def test_a_leftover_hard_link_of_the_file_is_not_written_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = _prepared()
    monkeypatch.setattr("streamlog.fs.names._numbers", itertools.count(7))
    leftover = temporary_path("/logs/state")
    monkeypatch.setattr("streamlog.fs.names._numbers", itertools.count(7))
    fs.link("/logs/state", leftover)
    faulty = FaultyFileSystem(fs, Fault(operation="pwrite", errno=errno.ENOSPC))
    with pytest.raises(DiskFullError):
        write_file_atomically(faulty, "/logs/state", NEW)
    assert read_file(fs, "/logs/state", max_size=100) == OLD
    assert read_file(fs, leftover, max_size=100) == OLD
    assert fs.list("/logs") == [leftover.removeprefix("/logs/"), "state"]


@pytest.mark.parametrize("operation", ["create", "pwrite", "sync", "rename"])
def test_an_error_while_replacing_keeps_the_old_content_and_leaves_nothing(operation: str) -> None:
    fs = FaultyFileSystem(_prepared(), Fault(operation=operation, errno=errno.EIO))
    with pytest.raises(StorageError):
        write_file_atomically(fs, "/logs/state", NEW)
    assert read_file(fs, "/logs/state", max_size=100) == OLD
    assert fs.list("/logs") == ["state"]


def test_files_are_written_into_the_working_directory_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fs = LocalFileSystem()
    write_file_atomically(fs, "state", NEW)
    create_file_atomically(fs, "once", NEW)
    make_directories(fs, "a/b/c")
    make_directories(fs, "d/")
    assert fs.list(".") == ["a", "d", "once", "state"]


def test_concurrent_writers_of_one_file_do_not_interfere(tmp_path: Path) -> None:
    fs, path = LocalFileSystem(), str(tmp_path / "state")
    write_file_atomically(fs, path, b"0" * 1000)

    def replace_often(digit: int) -> None:
        for _ in range(100):
            write_file_atomically(fs, path, b"%d" % digit * 1000)

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(replace_often, digit) for digit in range(1, 5)]
        while not all(each.done() for each in done):
            assert len(set(read_file(fs, path, max_size=1000))) == 1
        for each in done:
            each.result()
    assert fs.list(str(tmp_path)) == ["state"]


def test_a_writer_whose_temporary_file_was_collected_writes_it_again() -> None:
    memory = _prepared()

    def sleep_an_hour(operation: Operation, _source: Buffer) -> None:
        if operation.name == "rename" and not slept:
            slept.append(operation)
            memory.remove(operation.path)

    slept: list[Operation] = []
    fs = FaultyFileSystem(memory, observe=sleep_an_hour)
    write_file_atomically(fs, "/logs/state", NEW)
    assert slept and read_file(memory, "/logs/state", max_size=100) == NEW
    assert memory.list("/logs") == ["state"]


# ---- creating once --------------------------------------------------------------------------
def test_creating_once_survives_every_crash_whole_or_not_at_all() -> None:
    def create(fs: FileSystem, acknowledged: list) -> None:
        create_file_atomically(fs, "/logs/decision", NEW)
        acknowledged.append(NEW)

    def check(fs: MemoryFileSystem, acknowledged: list) -> None:
        if acknowledged or fs.stat("/logs/decision") is not None:
            assert read_file(fs, "/logs/decision", max_size=100) == NEW
            with pytest.raises(FileExistsAlreadyError):
                create_file_atomically(fs, "/logs/decision", b"another")
            assert read_file(fs, "/logs/decision", max_size=100) == NEW
        else:
            create_file_atomically(fs, "/logs/decision", b"another")
        left = [name for name in fs.list("/logs") if not is_temporary(name)]
        assert left == ["decision", "state"]

    report = every_crash_point(create, check, prepared=_prepared(), seeds=range(20))
    assert [operation.name for operation in report.operations] == [
        "create",
        "pwrite",
        "sync",
        "link",
        "remove",
        "sync_directory",
    ]


# ---- directories ----------------------------------------------------------------------------
def test_making_directories_survives_every_crash_even_if_another_process_continues() -> None:
    def make(fs: FileSystem, acknowledged: list) -> None:
        make_directories(fs, "/logs/a/b/c")
        acknowledged.append("/logs/a/b/c")

    def check(fs: MemoryFileSystem, acknowledged: list) -> None:
        for path in acknowledged:
            assert fs.stat(path) is not None
        # After the end of a process the names it created may be volatile: the next one syncs them.
        make_directories(fs, "/logs/a/b/c")
        assert fs.crash_clone(Random(0), power=True, loss="everything").stat("/logs/a/b/c")

    every_crash_point(make, check, prepared=_prepared())


def test_make_directories_says_where_a_file_is_in_the_way() -> None:
    fs = _prepared()
    with pytest.raises(FileExistsAlreadyError):
        make_directories(fs, "/logs/state")
    with pytest.raises(StorageError) as caught:
        make_directories(fs, "/logs/state/below")
    assert caught.value.errno == errno.ENOTDIR


def test_a_foreign_directory_that_cannot_be_opened_is_no_obstacle() -> None:
    fault = Fault(operation="sync_directory", path_suffix="/", errno=errno.EACCES)
    fs = FaultyFileSystem(_prepared(), fault)
    make_directories(fs, "/logs/a")
    assert fs.stat("/logs/a") is not None


def test_remove_tree_removes_everything_below_and_follows_no_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_bytes(b"x")
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "file").write_bytes(b"x")
    (tree / "a" / "link").symlink_to(precious)
    os.mkfifo(tree / "fifo")
    fs = LocalFileSystem()
    remove_tree(fs, str(tree))
    assert fs.list(str(tmp_path)) == ["precious"]
    assert (precious / "file").read_bytes() == b"x"
    remove_tree(fs, str(tree))  # already gone
    remove_tree(fs, str(precious / "file"))
    assert fs.list(str(precious)) == []


def test_remove_tree_handles_a_tree_deeper_than_the_stack(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    path = str(tmp_path)
    for _ in range(sys.getrecursionlimit() + 100):
        path += "/d"
        fs.make_directory(path)
    remove_tree(fs, str(tmp_path / "d"))
    assert fs.list(str(tmp_path)) == []


# ---- locks ----------------------------------------------------------------------------------
def test_acquire_lock_waits_until_the_holder_releases_it() -> None:
    fs = MemoryFileSystem()
    held = fs.try_lock("/lock", shared=False)
    assert held is not None

    class ReleasingClock(ManualClock):
        def sleep_ms(self, duration_ms: float) -> None:
            super().advance(1)
            if self.monotonic_ms() >= 40:
                held.release()

    clock = ReleasingClock()
    lock = acquire_lock(fs, clock, "/lock", shared=False, timeout_ms=1_000, what="partition a-0")
    assert lock.is_mine()
    assert 40 <= clock.monotonic_ms() < 60


class _CountingClock(ManualClock):
    def __init__(self) -> None:
        super().__init__(now_ms=100_000)
        self.sleeps: list[float] = []
        self.elapsed = 0.0

    def monotonic_ms(self) -> float:
        return self.elapsed

    def sleep_ms(self, duration_ms: float) -> None:
        self.sleeps.append(duration_ms)
        self.elapsed += duration_ms


def test_acquire_lock_times_out_and_names_the_holder() -> None:
    fs, clock = MemoryFileSystem(), _CountingClock()
    held = fs.try_lock("/lock", shared=False)
    assert held is not None
    held.file.pwrite(b"4711 97500 append\nrest of an older line", 0)
    with pytest.raises(LockTimeoutError) as caught:
        acquire_lock(fs, clock, "/lock", shared=False, timeout_ms=500, what="partition a-0")
    assert caught.value.sentence == (
        "partition a-0 is locked in /lock: "
        "got held by process 4711 (append) for 2.5 s, expected free in 500 ms"
    )
    assert caught.value.hint == "wait for it, or check what it is doing: ps -fp 4711"
    assert clock.elapsed == pytest.approx(500)
    assert max(clock.sleeps) <= 10
    assert len(clock.sleeps) < 70, "waiting costs no more than a look every 10 ms"


def test_a_timeout_of_zero_tries_once() -> None:
    fs, clock = MemoryFileSystem(), _CountingClock()
    acquire_lock(fs, clock, "/lock", shared=True, timeout_ms=0, what="x").release()
    held = fs.try_lock("/lock", shared=True)
    assert held is not None
    acquire_lock(fs, clock, "/lock", shared=True, timeout_ms=0, what="x").release()
    with pytest.raises(LockTimeoutError, match="another process"):
        acquire_lock(fs, clock, "/lock", shared=False, timeout_ms=0, what="x")
    assert clock.sleeps == []


def test_a_lock_held_by_this_process_is_reported_as_such() -> None:
    fs, clock = MemoryFileSystem(), _CountingClock()
    held = fs.try_lock("/lock", shared=False)
    assert held is not None
    write_lock_holder(held, now_ms=1, what="append")
    with pytest.raises(LockTimeoutError, match="held by this process"):
        acquire_lock(fs, clock, "/lock", shared=False, timeout_ms=0, what="x")


def test_the_holders_line_is_read_back_and_a_shorter_one_replaces_a_longer_one() -> None:
    fs = MemoryFileSystem()
    lock = fs.try_lock("/lock", shared=False)
    assert lock is not None
    write_lock_holder(lock, now_ms=123456789, what="a long reason to hold it")
    assert read_lock_holder(fs, "/lock") == LockHolder(
        os.getpid(), 123456789, "a long reason to hold it"
    )
    write_lock_holder(lock, now_ms=5, what="now")
    assert read_lock_holder(fs, "/lock") == LockHolder(os.getpid(), 5, "now")
    write_lock_holder(lock, now_ms=5, what="x" * 500)
    assert read_lock_holder(fs, "/lock") == LockHolder(os.getpid(), 5, "x" * 200)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"4711",
        b"4711 5\n",
        b"-1 5 x\n",
        b"99999999999 5 x\n",
        b"1 5 \x1b[2J\n",
        "1 \u0665 x\n".encode(),
        b"\xff" * 10_000,
    ],
)
def test_a_malformed_lock_file_has_no_holder(text: bytes) -> None:
    fs = MemoryFileSystem()
    write_file_atomically(fs, "/lock", text)
    assert read_lock_holder(fs, "/lock") is None
    assert read_lock_holder(fs, "/missing") is None


def test_another_real_process_is_named(tmp_path: Path) -> None:
    fs, clock, path = LocalFileSystem(), SystemClock(), str(tmp_path / "lock")

    def hold() -> object:
        lock = acquire_lock(fs, clock, path, shared=False, timeout_ms=0, what="x")
        write_lock_holder(lock, now_ms=clock.now_ms(), what="append")
        return lock

    with child_that_stays(hold) as child, pytest.raises(LockTimeoutError) as caught:
        acquire_lock(fs, clock, path, shared=False, timeout_ms=5, what="partition a-0")
    assert f"held by process {child} (append) for 0." in str(caught.value)


def test_the_driver_yields_a_crash_in_the_middle_of_a_write() -> None:
    seen = set()

    def write(fs: FileSystem, acknowledged: list) -> None:
        with fs.open("/logs/state", OpenMode.WRITE) as file:
            file.pwrite(b"X" * len(OLD), 0)

    def look(fs: MemoryFileSystem, acknowledged: list) -> None:
        seen.add(read_file(fs, "/logs/state", max_size=100))

    every_crash_point(write, look, prepared=_prepared())
    assert OLD in seen
    assert b"X" * len(OLD) in seen
    assert any(content[:1] == b"X" and content[-1:] != b"X" for content in seen)
