"""Faults occur at the chosen operations, once or from then on, and a dead process does nothing."""

import errno
from random import Random

import pytest

from streamlog.errors import DiskFullError, FileMissingError, PoisonedError, StorageError
from streamlog.fs.api import OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem, Moment, SimulatedCrash
from streamlog.fs.files import read_file, write_file_atomically
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.memory import MemoryFileSystem


def _two_steps(fs: FaultyFileSystem) -> None:
    with fs.open("/a", OpenMode.CREATE) as file:
        file.pwrite(b"0123456789", 0)
        file.sync()
    fs.rename("/a", "/b")
    fs.sync_directory("/")


def test_modifying_operations_are_recorded_and_reads_are_not() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    _two_steps(fs)
    assert fs.list("/") == ["b"]
    assert fs.stat("/b") is not None
    assert read_file(fs, "/b", max_size=10) == b"0123456789"
    assert [str(operation) for operation in fs.operations] == [
        "#1 create /a",
        "#2 pwrite /a [0, +10]",
        "#3 sync /a",
        "#4 rename /a -> /b",
        "#5 sync_directory /",
    ]


def test_opening_or_locking_an_existing_file_changes_nothing() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    for _ in range(2):
        fs.open("/a", OpenMode.CREATE_OR_WRITE).close()
        lock = fs.try_lock("/lock", shared=False)
        assert lock is not None
        lock.release()
    assert [str(operation) for operation in fs.operations] == ["#1 create /a", "#2 create /lock"]


def test_every_kind_of_change_is_counted_under_its_name() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    fs.make_directory("/d")
    with fs.open("/d/a", OpenMode.CREATE) as file:
        file.pwrite(b"x", 0)
        file.truncate(0)
        file.sync()
    fs.link("/d/a", "/d/b")
    fs.set_mtime("/d/b", 1)
    fs.rename("/d/b", "/d/c")
    fs.remove("/d/a")
    fs.remove("/d/c")
    fs.sync_directory("/d")
    fs.remove_directory("/d")
    assert [operation.name for operation in fs.operations] == [
        "make_directory",
        "create",
        "pwrite",
        "truncate",
        "sync",
        "link",
        "set_mtime",
        "rename",
        "remove",
        "remove",
        "sync_directory",
        "remove_directory",
    ]


@pytest.mark.parametrize("number", range(1, 6))
def test_an_error_before_the_nth_change_leaves_it_undone_and_the_next_try_works(
    number: int,
) -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), Fault(at=number, errno=errno.EIO))
    with pytest.raises(StorageError) as caught:
        _two_steps(fs)
    assert caught.value.errno == errno.EIO
    assert len(fs.operations) == number
    assert fs.inner.list("/") == ([], ["a"], ["a"], ["a"], ["b"])[number - 1]
    fs.make_directory("/still-alive")


def test_a_lasting_error_stays_and_a_predicate_counts_only_its_matches() -> None:
    fault = Fault(at=2, operation="pwrite", path_suffix=".log", errno=errno.ENOSPC, is_lasting=True)
    fs = FaultyFileSystem(MemoryFileSystem(), fault)
    log, index = fs.open("/0.log", OpenMode.CREATE), fs.open("/0.index", OpenMode.CREATE)
    log.pwrite(b"1", 0)
    for position in range(3):
        index.pwrite(b"x", position)
        with pytest.raises(DiskFullError):
            log.pwrite(b"2", 1)
    log.sync()


def test_a_predicate_matches_the_target_of_a_rename() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), Fault(path_suffix="/b", errno=errno.EIO))
    with pytest.raises(StorageError, match="cannot rename to /b"):
        _two_steps(fs)


def test_a_torn_write_leaves_its_portion() -> None:
    fault = Fault(operation="pwrite", errno=errno.ENOSPC, moment=Moment.TORN, portion=0.35)
    fs = FaultyFileSystem(MemoryFileSystem(), fault)
    with pytest.raises(DiskFullError):
        _two_steps(fs)
    assert read_file(fs, "/a", max_size=10) == b"012"


def test_an_error_after_the_change_hides_that_it_happened() -> None:
    fault = Fault(operation="rename", errno=errno.EIO, moment=Moment.AFTER)
    fs = FaultyFileSystem(MemoryFileSystem(), fault)
    with pytest.raises(StorageError):
        _two_steps(fs)
    assert fs.list("/") == ["b"]


@pytest.mark.parametrize("operation", ["open", "stat", "list", "pread", "lock"])
def test_reading_fails_only_if_a_fault_names_it(operation: str) -> None:
    inner = MemoryFileSystem()
    write_file_atomically(inner, "/a", b"x")
    fs = FaultyFileSystem(inner, Fault(at=2, operation=operation, errno=errno.EACCES))

    def once() -> None:
        with fs.open("/a", OpenMode.READ) as file:
            file.pread(1, 0)
        fs.stat("/a")
        fs.list("/")
        lock = fs.try_lock("/lock", shared=True)
        assert lock is not None
        lock.release()

    once()
    with pytest.raises(StorageError) as caught:
        once()
    assert (caught.value.errno, caught.value.operation) == (errno.EACCES, operation)
    once()


def test_a_misspelt_operation_is_refused() -> None:
    with pytest.raises(ValueError, match="fsync"):
        Fault(operation="fsync")


def test_an_error_of_the_inner_file_system_passes_unchanged() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    with pytest.raises(FileMissingError):
        fs.remove("/missing")
    assert [operation.name for operation in fs.operations] == ["remove"]


# ---- a failing sync -------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["memory", "local"])
def test_a_failed_sync_poisons_the_handle(kind: str, tmp_path) -> None:
    inner = MemoryFileSystem() if kind == "memory" else LocalFileSystem()
    path = "/a" if kind == "memory" else str(tmp_path / "a")
    fs = FaultyFileSystem(inner, Fault(operation="sync", errno=errno.EIO))
    file = fs.open(path, OpenMode.CREATE)
    file.pwrite(b"x", 0)
    with pytest.raises(StorageError) as caught:
        file.sync()
    assert not isinstance(caught.value, PoisonedError)
    for call in (file.sync, lambda: file.pwrite(b"y", 0), lambda: file.truncate(0)):
        with pytest.raises(PoisonedError):
            call()
    assert file.pread(1, 0) == b"x"
    assert [operation.name for operation in fs.operations] == ["create", "pwrite", "sync"]


def test_a_retried_sync_through_a_new_handle_succeeds_and_proves_nothing() -> None:
    inner = MemoryFileSystem()
    fs = FaultyFileSystem(inner, Fault(operation="sync", errno=errno.EIO))
    file = fs.open("/a", OpenMode.CREATE)
    fs.sync_directory("/")
    file.pwrite(b"x", 0)
    with pytest.raises(StorageError):
        file.sync()
    with fs.open("/a", OpenMode.WRITE) as again:
        again.sync()
    seen = {
        read_file(inner.crash_clone(Random(seed), power=True), "/a", max_size=1)
        for seed in range(50)
    }
    assert seen == {b"", b"\0", b"x"}


# ---- the death of the process ---------------------------------------------------------------
@pytest.mark.parametrize("moment", list(Moment))
def test_a_killed_process_does_nothing_more_not_even_in_finally(moment: Moment) -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), Fault(at=2, moment=moment))
    file = fs.open("/a", OpenMode.CREATE)
    with pytest.raises(SimulatedCrash):
        try:
            file.pwrite(b"0123456789", 0)
        finally:
            with pytest.raises(SimulatedCrash):
                file.truncate(0)
            with pytest.raises(SimulatedCrash):
                fs.remove("/a")
            with pytest.raises(SimulatedCrash):
                fs.stat("/a")
            with pytest.raises(SimulatedCrash):
                fs.boot_id()
            file.close()
    assert fs.is_dead
    expected = {Moment.BEFORE: b"", Moment.TORN: b"01234", Moment.AFTER: b"0123456789"}[moment]
    clone = fs.inner.crash_clone(Random(0), power=False)
    assert read_file(clone, "/a", max_size=10) == expected


def test_no_handler_of_exceptions_survives_a_kill() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), Fault(at=1))
    with pytest.raises(SimulatedCrash):
        try:
            fs.make_directory("/d")
        except Exception:  # noqa: BLE001  # the point of the test
            pytest.fail("a kill must not look like an error")


def test_a_lock_is_taken_and_released_through_the_wrapper() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    lock = fs.try_lock("/lock", shared=False)
    assert lock is not None
    assert fs.try_lock("/lock", shared=False) is None
    lock.file.pwrite(b"me", 0)
    assert [operation.name for operation in fs.operations] == ["create", "pwrite"]
    lock.release()
    assert fs.try_lock("/lock", shared=False) is not None
