"""The driver of crash tests compared with the slow and obvious way: run again, kill for real."""

from random import Random

import pytest

from streamlog.fs.api import FileKind, FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem, Moment, Operation, SimulatedCrash
from streamlog.fs.memory import MemoryFileSystem
from tests.support.crash import CrashCheckError, every_crash_point


def _workload(fs: FileSystem, acknowledged: list) -> None:
    fs.make_directory("/d")
    with fs.open("/d/a", OpenMode.CREATE) as file:
        for number in range(3):
            file.pwrite(b"%d" % number * 8, 8 * number)
            file.sync()
            acknowledged.append(number)
    fs.rename("/d/a", "/d/b")
    fs.sync_directory("/d")
    fs.remove("/d/b")
    fs.remove_directory("/d")


def _picture(fs: MemoryFileSystem, path: str = "") -> tuple:
    picture = []
    for name in fs.list(path or "/"):
        below = f"{path}/{name}"
        found = fs.stat(below)
        assert found is not None
        if found.kind is FileKind.DIRECTORY:
            picture.append((below, _picture(fs, below)))
        else:
            with fs.open(below, OpenMode.READ) as file:
                picture.append((below, file.pread(1000, 0)))
    return tuple(picture)


def test_the_driver_yields_the_states_of_killing_before_and_after_every_operation() -> None:
    seen = set()
    report = every_crash_point(
        _workload, lambda fs, acknowledged: seen.add((_picture(fs), tuple(acknowledged))), seeds=()
    )
    for number in range(1, len(report.operations) + 1):
        for moment in (Moment.BEFORE, Moment.AFTER):
            inner = MemoryFileSystem()
            fs = FaultyFileSystem(inner, Fault(at=number, moment=moment))
            acknowledged: list = []
            with pytest.raises(SimulatedCrash):
                _workload(fs, acknowledged)
            left = _picture(inner.crash_clone(Random(0), power=False))
            asked = {said for picture, said in seen if picture == left}
            assert asked
            # The same state is checked with at least as much acknowledged.
            assert any(said[: len(acknowledged)] == tuple(acknowledged) for said in asked)
            assert max(len(said) for said in asked) >= len(acknowledged)


def test_the_driver_tears_each_write_somewhere() -> None:
    torn = set()

    def look(fs: MemoryFileSystem, acknowledged: list) -> None:
        if fs.stat("/d/a") is not None:
            with fs.open("/d/a", OpenMode.READ) as file:
                torn.add(len(file.pread(100, 0)))

    every_crash_point(_workload, look, seeds=())
    assert {0, 8, 16, 24} < torn
    for write in range(3):
        assert any(8 * write < size < 8 * write + 8 for size in torn)


def test_the_driver_shows_power_cuts_with_a_new_boot_id_and_kills_with_the_old_one() -> None:
    boots = []
    report = every_crash_point(_workload, lambda fs, _: boots.append(fs.boot_id()), seeds=range(2))
    assert len(boots) == report.states
    assert boots.count("boot-1") == len(report.operations) + 1 + 3  # each point, each torn write
    assert boots.count("boot-2") == report.states - boots.count("boot-1")


def test_the_driver_checks_each_state_once() -> None:
    seen: list[tuple] = []
    report = every_crash_point(
        _workload, lambda fs, acknowledged: seen.append((fs.facts(), tuple(acknowledged)))
    )
    assert len(set(seen)) == len(seen) == report.states
    # Nothing changes between the sync and the acknowledgement of a write and the next operation.
    assert len({facts for facts, _ in seen}) < len(seen)


def test_a_failed_check_names_the_operation_the_crash_and_what_was_acknowledged() -> None:
    def check(fs: MemoryFileSystem, acknowledged: list) -> None:
        assert len(acknowledged) < 2, "two are too many"

    with pytest.raises(CrashCheckError) as caught:
        every_crash_point(_workload, check)
    text = str(caught.value)
    assert "process killed before, #7 pwrite /d/a [16, +8], acknowledged [0, 1]" in text
    assert "two are too many" in text
    assert isinstance(caught.value.__cause__, AssertionError)


def test_a_selection_crashes_only_there_and_at_the_end() -> None:
    def is_rename(operation: Operation) -> bool:
        return operation.name == "rename"

    pictures = []
    every_crash_point(
        _workload, lambda fs, _: pictures.append(fs.boot_id()), seeds=(), select=is_rename
    )
    assert pictures.count("boot-1") == 2


def test_the_prepared_state_is_unchanged_and_each_check_has_its_own() -> None:
    prepared = MemoryFileSystem()
    prepared.make_directory("/kept")

    def check(fs: MemoryFileSystem, acknowledged: list) -> None:
        if fs.stat("/kept") is not None:
            fs.remove_directory("/kept")
        assert fs.stat("/mark") is None
        fs.make_directory("/mark")

    every_crash_point(_workload, check, prepared=prepared)
    assert prepared.list("/") == ["kept"]


def test_recovery_itself_can_be_crashed_at_every_point() -> None:
    nested = 0

    def recover(fs: FileSystem, acknowledged: list) -> None:
        if fs.stat("/d/a") is not None:
            fs.remove("/d/a")

    def check(fs: MemoryFileSystem, acknowledged: list) -> None:
        def check_recovered(again: MemoryFileSystem, _: list) -> None:
            recover(again, [])
            assert again.stat("/d/a") is None

        nonlocal nested
        nested += every_crash_point(recover, check_recovered, prepared=fs, seeds=()).states

    every_crash_point(_workload, check, seeds=())
    assert nested > 100
