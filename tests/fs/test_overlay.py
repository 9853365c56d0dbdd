"""A file system that keeps changes to itself: the view it offers, and the base it leaves alone."""

import errno
import random

import pytest

from streamlog.errors import FileExistsAlreadyError, FileMissingError, StorageError
from streamlog.fs.api import FileKind, OpenMode
from streamlog.fs.files import make_directories, read_file, write_file_atomically
from streamlog.fs.memory import MemoryFileSystem
from streamlog.fs.overlay import Change, ChangeKind, OverlayFileSystem


@pytest.fixture
def base() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    make_directories(fs, "/d")
    write_file_atomically(fs, "/d/a", b"0123456789")
    write_file_atomically(fs, "/d/b", b"bbb")
    return fs


def content(fs: MemoryFileSystem | OverlayFileSystem, path: str) -> bytes:
    return read_file(fs, path, max_size=1 << 20)


def everything(fs: MemoryFileSystem) -> dict[str, bytes]:
    return {name: content(fs, f"/d/{name}") for name in fs.list("/d")}


def test_files_below_are_visible_and_never_changed(base: MemoryFileSystem) -> None:
    before = everything(base)
    over = OverlayFileSystem(base)
    assert content(over, "/d/a") == b"0123456789"
    with over.open("/d/a", OpenMode.WRITE) as file:
        file.pwrite(b"XY", 3)
        file.truncate(6)
        file.pwrite(b"Z", 8)
        file.sync()
        assert file.stat().size == 9
    over.rename("/d/b", "/d/c")
    write_file_atomically(over, "/d/new", b"n")
    over.make_directory("/d/e")
    assert content(over, "/d/a") == b"012XY5\0\0Z"
    assert over.list("/d") == ["a", "c", "e", "new"]
    assert (over.stat("/d/b"), content(over, "/d/c")) == (None, b"bbb")
    over.remove("/d/a")
    assert over.stat("/d/a") is None
    assert everything(base) == before


def test_reads_and_writes_are_those_of_a_real_file(base: MemoryFileSystem) -> None:
    over, model = OverlayFileSystem(base), bytearray(b"0123456789")
    seeded = random.Random(1)
    with over.open("/d/a", OpenMode.WRITE) as file:
        for _ in range(300):
            position, size = seeded.randrange(20), seeded.randrange(8)
            if seeded.random() < 0.3:
                del model[position:]
                model.extend(bytes(position - len(model)))
                file.truncate(position)
            else:
                data = seeded.randbytes(size)
                model.extend(bytes(max(0, position + size - len(model))) if size else b"")
                model[position : position + size] = data
                if size:
                    file.pwrite(data, position)
            position, size = seeded.randrange(25), seeded.randrange(25)
            assert file.pread(size, position) == model[position : position + size]
            into = bytearray(size)
            count = file.pread_into(memoryview(into), position)
            assert into[:count] == model[position : position + size]


def test_changes_are_listed(base: MemoryFileSystem) -> None:
    over = OverlayFileSystem(base)
    with over.open("/d/a", OpenMode.WRITE) as file:
        file.truncate(4)
    over.rename("/d/b", "/d/b.old")
    write_file_atomically(over, "/d/b", b"new b")
    write_file_atomically(over, "/d/c", b"c")
    write_file_atomically(over, "/d/gone", b"c")
    over.remove("/d/gone")
    assert list(over.changes()) == [
        Change(ChangeKind.CUT, "/d/a", None, 10, 4),
        Change(ChangeKind.WRITTEN, "/d/b", None, 3, 5),
        Change(ChangeKind.RENAMED, "/d/b", "/d/b.old", 3, 3),
        Change(ChangeKind.CREATED, "/d/c", None, 0, 1),
    ]
    over.remove("/d/a")
    assert next(over.changes()) == Change(ChangeKind.REMOVED, "/d/a", None, 10, 0)


def test_the_same_bytes_written_again_are_no_change(base: MemoryFileSystem) -> None:
    over = OverlayFileSystem(base)
    write_file_atomically(over, "/d/b", b"bbb")
    with over.open("/d/a", OpenMode.WRITE) as file:
        file.pwrite(b"345", 3)
    assert list(over.changes()) == []


def test_locks_below_are_respected_and_none_is_created(base: MemoryFileSystem) -> None:
    held = base.try_lock("/d/b", shared=False)
    assert held is not None
    over = OverlayFileSystem(base)
    assert over.try_lock("/d/b", shared=True) is None
    held.release()
    lock = over.try_lock("/d/b", shared=True)
    assert lock is not None and lock.is_mine()
    assert base.try_lock("/d/b", shared=False) is None
    lock.pause()
    assert not lock.is_mine() and lock.resume() and lock.is_mine()
    lock.release()
    here = over.try_lock("/d/lock", shared=False)
    assert here is not None
    here.file.pwrite(b"me", 0)
    assert over.try_lock("/d/lock", shared=True) is None
    here.pause()
    other = over.try_lock("/d/lock", shared=False)
    assert other is not None and not here.resume()
    other.release()
    assert base.stat("/d/lock") is None


def test_wrong_use_fails_as_on_a_disk(base: MemoryFileSystem) -> None:
    over = OverlayFileSystem(base)
    for attempt in (
        lambda: over.open("/d/x", OpenMode.WRITE),
        lambda: over.remove("/d/x"),
        lambda: over.rename("/d/x", "/d/y"),
        lambda: over.link("/d/x", "/d/y"),
        lambda: over.set_mtime("/d/x", 5),
        lambda: over.list("/x"),
    ):
        with pytest.raises(FileMissingError):
            attempt()
    with pytest.raises(FileExistsAlreadyError):
        over.open("/d/a", OpenMode.CREATE)
    with pytest.raises(FileExistsAlreadyError):
        over.link("/d/a", "/d/b")
    with pytest.raises(FileExistsAlreadyError):
        over.make_directory("/d/a")
    with over.open("/d/a", OpenMode.READ) as file, pytest.raises(StorageError) as raised:
        file.pwrite(b"x", 0)
    assert raised.value.errno == errno.EBADF
    over.make_directory("/d/e")
    write_file_atomically(over, "/d/e/f", b"")
    with pytest.raises(StorageError):
        over.remove_directory("/d/e")
    over.remove("/d/e/f")
    over.remove_directory("/d/e")
    assert over.stat("/d/e") is None


def test_names_times_and_the_rest_come_from_below(base: MemoryFileSystem) -> None:
    over = OverlayFileSystem(base)
    write_file_atomically(base, "/d/.lock", b"")
    base.broker_locks.add("/d/.lock")
    assert over.broker_lock_is_held("/d/.lock")
    assert (over.boot_id(), over.resolve("/d")) == (base.boot_id(), base.resolve("/d"))
    over.set_mtime("/d/a", 5)
    found = over.stat("/d/a")
    assert found is not None and (found.kind, found.mtime_ms) == (FileKind.FILE, 5)
    over.link("/d/a", "/d/second")
    assert content(over, "/d/second") == content(over, "/d/a")
