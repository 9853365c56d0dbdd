"""The clean mark is there exactly when everybody who wrote has left in order."""

import errno
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from streamlog.clock import ManualClock, SystemClock
from streamlog.errors import StorageError
from streamlog.fs.api import FileSystem
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.files import make_directories, read_file, write_file_atomically
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.root.open_writers import OpenWriter
from streamlog.root.roots import make_root
from tests.support.child import child_that_stays, run_in_child
from tests.support.crash import every_crash_point

ROOT = "/logs"
MARK = f"{ROOT}/.kafka_cleanshutdown"


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    make_root(LogRoot.at(ROOT, fs=made, clock=ManualClock(), random=random.Random(1)))
    return made


def enter(fs: FileSystem) -> OpenWriter:
    return OpenWriter.enter(LogRoot.at(ROOT, fs=fs, clock=ManualClock()))


def is_clean(fs: FileSystem) -> bool:
    return fs.stat(MARK) is not None


def killed(fs: MemoryFileSystem) -> MemoryFileSystem:
    """The file system after all processes died, locks gone, nothing else lost."""
    return fs.crash_clone(random.Random(0), power=False)


def test_mark_goes_with_the_first_writer_and_comes_back_with_the_last(
    fs: MemoryFileSystem,
) -> None:
    assert is_clean(fs)
    first, second = enter(fs), enter(fs)
    assert not is_clean(fs)
    first.leave(in_order=True)
    assert not is_clean(fs)
    second.leave(in_order=True)
    assert read_file(fs, MARK, max_size=100) == b'{"version":0,"brokerEpoch":-1}'
    enter(fs)
    assert not is_clean(fs)


def test_writer_that_leaves_in_disorder_leaves_no_mark(fs: MemoryFileSystem) -> None:
    first, second = enter(fs), enter(fs)
    first.leave(in_order=False)
    second.leave(in_order=True)
    assert not is_clean(fs)


def test_leaving_twice_counts_once(fs: MemoryFileSystem) -> None:
    first, second = enter(fs), enter(fs)
    first.leave(in_order=True)
    first.leave(in_order=True)
    second.leave(in_order=False)
    assert not is_clean(fs)


def test_after_a_killed_writer_no_writer_restores_the_mark(fs: MemoryFileSystem) -> None:
    enter(fs)
    fs = killed(fs)
    for _ in range(3):
        enter(fs).leave(in_order=True)
        assert not is_clean(fs)


def test_after_a_reboot_without_the_mark_no_writer_restores_it(fs: MemoryFileSystem) -> None:
    enter(fs)
    fs = fs.crash_clone(random.Random(0), power=True)
    assert not is_clean(fs), "its removal was durable"
    enter(fs).leave(in_order=True)
    assert not is_clean(fs)


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_mark_whose_removal_could_not_be_synced_does_not_come_back(
    fs: MemoryFileSystem, rounds: int
) -> None:
    for _ in range(rounds):
        enter(fs).leave(in_order=True)
    bad = FaultyFileSystem(fs, Fault(operation="sync_directory", path_suffix=ROOT, errno=errno.EIO))
    with pytest.raises(StorageError):
        enter(bad)
    enter(fs)
    assert not is_clean(fs.crash_clone(random.Random(0), power=True, loss="everything"))


def test_root_that_was_adopted_without_the_mark_stays_without(fs: MemoryFileSystem) -> None:
    make_directories(fs, "/copies/orders-0")
    write_file_atomically(fs, f"/copies/orders-0/{0:020}.log", b"")
    make_root(
        LogRoot.at("/copies", fs=fs, clock=ManualClock(), random=random.Random(1)), adopt=True
    )
    OpenWriter.enter(LogRoot.at("/copies", fs=fs, clock=ManualClock())).leave(in_order=True)
    assert fs.stat("/copies/.kafka_cleanshutdown") is None


def test_a_mark_set_by_a_broker_starts_a_new_count(fs: MemoryFileSystem) -> None:
    enter(fs)
    fs = killed(fs)
    write_file_atomically(fs, MARK, b"")  # a broker's recovery and clean stop
    enter(fs).leave(in_order=True)
    assert is_clean(fs)


def test_mark_never_follows_a_crash_in_the_middle_of_work(fs: MemoryFileSystem) -> None:
    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        writer = enter(fs)
        acknowledged.append("entered")
        write_file_atomically(fs, f"{ROOT}/work", b"done")
        acknowledged.append("closed everything")
        writer.leave(in_order=True)
        acknowledged.append("left")

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        state = acknowledged[-1] if acknowledged else "entering"
        assert is_clean(fs) or state != "left"
        assert not is_clean(fs) or state != "entered"
        enter(fs).leave(in_order=True)
        assert not is_clean(fs) or state != "entered"

    report = every_crash_point(workload, check, prepared=fs)
    assert report.states > 30


def test_mark_is_gone_while_another_process_writes(tmp_path: Path) -> None:
    fs, clock, root = LocalFileSystem(), SystemClock(), str(tmp_path)
    make_root(LogRoot.at(root, fs=fs, clock=clock, random=random.Random(1)))
    mark = tmp_path / ".kafka_cleanshutdown"
    with child_that_stays(lambda: OpenWriter.enter(LogRoot.at(root, fs=fs, clock=clock))):
        mine = OpenWriter.enter(LogRoot.at(root, fs=fs, clock=clock))
        mine.leave(in_order=True)
        assert not mark.exists()
    OpenWriter.enter(LogRoot.at(root, fs=fs, clock=clock)).leave(in_order=True)
    assert not mark.exists(), "the child was killed"


def test_forked_child_neither_counts_nor_lets_the_lock_go(tmp_path: Path) -> None:
    fs, clock, root = LocalFileSystem(), SystemClock(), str(tmp_path)
    make_root(LogRoot.at(root, fs=fs, clock=clock, random=random.Random(1)))
    writer = OpenWriter.enter(LogRoot.at(root, fs=fs, clock=clock))
    assert run_in_child(lambda: writer.leave(in_order=True)) == "None"
    assert fs.try_lock(f"{root}/.streamlog/locks/open", shared=False) is None
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    writer.leave(in_order=True)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
