"""One set of promises for every file system: the disk, the memory, and both wrapped in faults."""

import errno
import os
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlog.errors import FileExistsAlreadyError, FileMissingError, StorageError
from streamlog.fs.api import FileKind, OpenMode
from streamlog.fs.local import LocalFileSystem
from tests.support.place import Place, memory_place


# ---- bytes ----------------------------------------------------------------------------------
def test_pread_returns_what_was_written_and_stops_at_the_end(place: Place) -> None:
    with place.fs.open(place.path("a"), OpenMode.CREATE) as file:
        file.pwrite(b"0123456789", 0)
        assert file.pread(4, 3) == b"3456"
        assert file.pread(100, 7) == b"789"
        assert file.pread(5, 10) == b""
        assert file.pread(5, 10_000) == b""
        assert file.pread(0, 0) == b""


def test_pread_into_fills_arrays_and_views_and_counts_short_reads(place: Place) -> None:
    place.write("a", b"0123456789")
    with place.fs.open(place.path("a"), OpenMode.READ) as file:
        array = np.zeros(6, dtype=np.uint8)
        assert file.pread_into(array, 2) == 6
        assert array.tobytes() == b"234567"
        buffer = bytearray(b"......")
        assert file.pread_into(memoryview(buffer), 7) == 3
        assert buffer == b"789..."
        assert file.pread_into(memoryview(buffer), 10) == 0


@pytest.mark.parametrize(
    "source",
    [
        b"abcdefgh",
        bytearray(b"abcdefgh"),
        memoryview(b"abcdefgh"),
        np.frombuffer(b"abcdefgh", dtype=np.uint8),
    ],
    ids=["bytes", "bytearray", "memoryview", "array"],
)
def test_pwrite_takes_every_kind_of_buffer(place: Place, source: bytes) -> None:
    with place.fs.open(place.path("a"), OpenMode.CREATE) as file:
        file.pwrite(source, 0)
        file.pwrite(source, 4)
    assert place.read("a") == b"abcdabcdefgh"


def test_pwrite_past_the_end_fills_the_gap_with_zeros(place: Place) -> None:
    with place.fs.open(place.path("a"), OpenMode.CREATE) as file:
        file.pwrite(b"x", 3)
        assert file.stat().size == 4
    assert place.read("a") == b"\0\0\0x"


def test_pwrite_of_nothing_changes_nothing(place: Place) -> None:
    with place.fs.open(place.path("a"), OpenMode.CREATE) as file:
        file.pwrite(b"", 10)
        assert file.stat().size == 0


def test_truncate_shortens_and_extends_with_zeros(place: Place) -> None:
    with place.fs.open(place.path("a"), OpenMode.CREATE) as file:
        file.pwrite(b"0123456789", 0)
        file.truncate(3)
        assert file.pread(10, 0) == b"012"
        file.truncate(5)
        assert file.pread(10, 0) == b"012\0\0"
        file.sync()


def test_one_file_seen_through_two_handles_is_one_file(place: Place) -> None:
    with (
        place.fs.open(place.path("a"), OpenMode.CREATE) as writer,
        place.fs.open(place.path("a"), OpenMode.READ) as reader,
    ):
        assert reader.pread(10, 0) == b""
        writer.pwrite(b"later", 0)
        assert reader.pread(10, 0) == b"later"
        assert reader.stat().inode == writer.stat().inode


def test_an_open_file_outlives_its_name(place: Place) -> None:
    place.write("a", b"content")
    with place.fs.open(place.path("a"), OpenMode.READ) as file:
        place.fs.remove(place.path("a"))
        assert file.pread(10, 0) == b"content"
        assert file.stat().links == 0
    assert place.fs.stat(place.path("a")) is None


# ---- opening --------------------------------------------------------------------------------
def test_open_modes_create_or_refuse(place: Place) -> None:
    missing, there = place.path("missing"), place.write("there", b"x")
    for mode in (OpenMode.READ, OpenMode.WRITE):
        with pytest.raises(FileMissingError):
            place.fs.open(missing, mode)
        place.fs.open(there, mode).close()
    with pytest.raises(FileExistsAlreadyError):
        place.fs.open(there, OpenMode.CREATE)
    place.fs.open(there, OpenMode.CREATE_OR_WRITE).close()
    assert place.read("there") == b"x"
    place.fs.open(missing, OpenMode.CREATE_OR_WRITE).close()
    assert place.read("missing") == b""


def test_a_file_opened_for_reading_refuses_changes(place: Place) -> None:
    place.write("a", b"content")
    with place.fs.open(place.path("a"), OpenMode.READ) as file:
        with pytest.raises(StorageError, match="cannot write") as caught:
            file.pwrite(b"x", 0)
        assert caught.value.errno == errno.EBADF
        with pytest.raises(StorageError, match="cannot truncate") as caught:
            file.truncate(0)
        assert caught.value.errno == errno.EINVAL
    assert place.read("a") == b"content"


def test_a_closed_file_refuses_everything_but_closing(place: Place) -> None:
    file = place.fs.open(place.path("a"), OpenMode.CREATE)
    file.close()
    file.close()
    for call in (
        lambda: file.pread(1, 0),
        lambda: file.pread_into(memoryview(bytearray(1)), 0),
        lambda: file.pwrite(b"x", 0),
        lambda: file.truncate(0),
        file.sync,
        file.stat,
    ):
        with pytest.raises(StorageError) as caught:
            call()
        assert caught.value.errno == errno.EBADF
        assert caught.value.path == place.path("a")


def test_a_forgotten_lock_is_released(place: Place) -> None:
    lock = place.fs.try_lock(place.path("lock"), shared=False)
    assert lock is not None
    del lock
    again = place.fs.try_lock(place.path("lock"), shared=False)
    assert again is not None
    again.release()


# ---- names ----------------------------------------------------------------------------------
def test_stat_returns_kinds_sizes_and_times(place: Place) -> None:
    path = place.write("a", b"12345")
    place.fs.set_mtime(path, 1_600_000_000_123)
    found = place.fs.stat(path)
    assert found is not None
    assert found.kind is FileKind.FILE
    assert (found.size, found.links, found.mtime_ms) == (5, 1, 1_600_000_000_123)
    assert found.mode == 0o640 & ~_umask()
    directory = place.fs.stat(place.root)
    assert directory is not None
    assert directory.kind is FileKind.DIRECTORY
    assert place.fs.stat(place.path("missing")) is None
    assert place.fs.stat(path + "/below-a-file") is None
    assert place.fs.stat(place.path("missing/below")) is None


def test_list_is_sorted_and_knows_directories(place: Place) -> None:
    for name in ("b", "a", "c"):
        place.write(name, b"")
    place.fs.make_directory(place.path("aa"))
    assert place.fs.list(place.root) == ["a", "aa", "b", "c"]
    assert place.fs.list(place.path("aa")) == []


def test_make_directory_accepts_an_existing_one(place: Place) -> None:
    place.fs.make_directory(place.path("d"))
    place.fs.make_directory(place.path("d"))
    place.fs.make_directory(place.root)
    place.fs.sync_directory(place.path("d"))
    assert place.fs.list(place.root) == ["d"]


def test_rename_replaces_a_file_and_keeps_the_inode(place: Place) -> None:
    source, target = place.write("new", b"new"), place.write("old", b"old")
    inode = place.fs.stat(source)
    with place.fs.open(target, OpenMode.READ) as reader:
        place.fs.rename(source, target)
        assert reader.pread(3, 0) == b"old"
    assert place.fs.list(place.root) == ["old"]
    assert place.read("old") == b"new"
    moved = place.fs.stat(target)
    assert moved is not None
    assert inode is not None
    assert moved.inode == inode.inode


def test_rename_moves_a_directory_with_its_files(place: Place) -> None:
    place.fs.make_directory(place.path("a"))
    place.fs.make_directory(place.path("empty"))
    place.write("a/file", b"x")
    place.fs.rename(place.path("a"), place.path("b"))
    assert place.read("b/file") == b"x"
    place.fs.rename(place.path("b"), place.path("empty"))
    assert place.fs.list(place.root) == ["empty"]
    assert place.read("empty/file") == b"x"


def test_rename_to_itself_or_to_its_other_name_changes_nothing(place: Place) -> None:
    path = place.write("a", b"x")
    place.fs.link(path, place.path("b"))
    place.fs.rename(path, path)
    place.fs.rename(path, place.path("b"))
    assert place.fs.list(place.root) == ["a", "b"]


def test_link_gives_a_second_name_to_one_file(place: Place) -> None:
    path = place.write("a", b"x")
    place.fs.link(path, place.path("b"))
    found = place.fs.stat(path)
    assert found is not None
    assert found.links == 2
    place.fs.remove(path)
    assert place.read("b") == b"x"
    found = place.fs.stat(place.path("b"))
    assert found is not None
    assert found.links == 1


def test_link_refuses_an_existing_name_and_leaves_it_alone(place: Place) -> None:
    source, target = place.write("a", b"a"), place.write("b", b"b")
    with pytest.raises(FileExistsAlreadyError):
        place.fs.link(source, target)
    assert place.read("b") == b"b"


def test_remove_directory_requires_an_empty_one(place: Place) -> None:
    place.fs.make_directory(place.path("d"))
    place.write("d/file", b"")
    with pytest.raises(StorageError) as caught:
        place.fs.remove_directory(place.path("d"))
    assert caught.value.errno == errno.ENOTEMPTY
    place.fs.remove(place.path("d/file"))
    place.fs.remove_directory(place.path("d"))
    assert place.fs.list(place.root) == []


def test_resolve_returns_an_absolute_path_without_dots(place: Place) -> None:
    assert place.fs.resolve(f"{place.root}/./a/../b") == f"{place.fs.resolve(place.root)}/b"


# ---- errors ---------------------------------------------------------------------------------
LONG = "x" * 256
CASES: dict[str, tuple[Callable[[Place], object], int]] = {
    "open a directory to read": (lambda p: p.fs.open(p.path("d"), OpenMode.READ), errno.EISDIR),
    "open a directory to write": (lambda p: p.fs.open(p.path("d"), OpenMode.WRITE), errno.EISDIR),
    "create over a directory": (lambda p: p.fs.open(p.path("d"), OpenMode.CREATE), errno.EEXIST),
    "open below a file": (lambda p: p.fs.open(p.path("f/x"), OpenMode.READ), errno.ENOTDIR),
    "create below nothing": (lambda p: p.fs.open(p.path("m/x"), OpenMode.CREATE), errno.ENOENT),
    "open a long name": (lambda p: p.fs.open(p.path(LONG), OpenMode.CREATE), errno.ENAMETOOLONG),
    "open a NUL": (lambda p: p.fs.open(p.path("a\0b"), OpenMode.READ), errno.EINVAL),
    "stat a long name": (lambda p: p.fs.stat(p.path(LONG)), errno.ENAMETOOLONG),
    "stat a NUL": (lambda p: p.fs.stat(p.path("a\0b")), errno.EINVAL),
    "list a file": (lambda p: p.fs.list(p.path("f")), errno.ENOTDIR),
    "list nothing": (lambda p: p.fs.list(p.path("m")), errno.ENOENT),
    "make over a file": (lambda p: p.fs.make_directory(p.path("f")), errno.EEXIST),
    "make below a file": (lambda p: p.fs.make_directory(p.path("f/x")), errno.ENOTDIR),
    "make below nothing": (lambda p: p.fs.make_directory(p.path("m/x")), errno.ENOENT),
    "rename nothing": (lambda p: p.fs.rename(p.path("m"), p.path("n")), errno.ENOENT),
    "rename onto a directory": (lambda p: p.fs.rename(p.path("f"), p.path("d")), errno.EISDIR),
    "rename a directory onto a file": (
        lambda p: p.fs.rename(p.path("d"), p.path("f")),
        errno.ENOTDIR,
    ),
    "rename into itself": (lambda p: p.fs.rename(p.path("d"), p.path("d/x")), errno.EINVAL),
    "rename onto a full directory": (
        lambda p: p.fs.rename(p.path("d"), p.path("full")),
        errno.ENOTEMPTY,
    ),
    "link nothing": (lambda p: p.fs.link(p.path("m"), p.path("n")), errno.ENOENT),
    "link a directory": (lambda p: p.fs.link(p.path("d"), p.path("n")), errno.EPERM),
    "link onto a directory": (lambda p: p.fs.link(p.path("f"), p.path("d")), errno.EEXIST),
    "link below nothing": (lambda p: p.fs.link(p.path("f"), p.path("m/n")), errno.ENOENT),
    "remove nothing": (lambda p: p.fs.remove(p.path("m")), errno.ENOENT),
    "remove a directory": (lambda p: p.fs.remove(p.path("d")), errno.EISDIR),
    "remove_directory a file": (lambda p: p.fs.remove_directory(p.path("f")), errno.ENOTDIR),
    "remove_directory nothing": (lambda p: p.fs.remove_directory(p.path("m")), errno.ENOENT),
    "sync_directory a file": (lambda p: p.fs.sync_directory(p.path("f")), errno.ENOTDIR),
    "sync_directory nothing": (lambda p: p.fs.sync_directory(p.path("m")), errno.ENOENT),
    "set_mtime nothing": (lambda p: p.fs.set_mtime(p.path("m"), 1), errno.ENOENT),
    "lock a directory": (lambda p: p.fs.try_lock(p.path("d"), shared=False), errno.EISDIR),
    "lock below nothing": (lambda p: p.fs.try_lock(p.path("m/x"), shared=True), errno.ENOENT),
    "ask a directory's lock": (lambda p: p.fs.broker_lock_is_held(p.path("d")), errno.EISDIR),
    "read before the start": (lambda p: _open(p).pread(1, -1), errno.EINVAL),
    "write before the start": (lambda p: _open(p).pwrite(b"x", -1), errno.EINVAL),
    "truncate below nothing": (lambda p: _open(p).truncate(-1), errno.EINVAL),
}


def _open(place: Place):
    return place.fs.open(place.path("f"), OpenMode.WRITE)


@pytest.mark.parametrize("case", CASES)
def test_errors_are_typed_with_errno_operation_and_path(place: Place, case: str) -> None:
    place.write("f", b"file")
    place.fs.make_directory(place.path("d"))
    place.fs.make_directory(place.path("full"))
    place.write("full/x", b"")
    call, number = CASES[case]
    with pytest.raises(StorageError) as caught:
        call(place)
    error = caught.value
    assert errno.errorcode[error.errno] == errno.errorcode[number]
    assert error.operation
    assert error.path is not None
    assert error.path.startswith(place.root)
    assert f"cannot {error.operation}" in str(error)
    expected = {errno.ENOENT: FileMissingError, errno.EEXIST: FileExistsAlreadyError}
    assert type(error) is expected.get(number, StorageError)


# ---- the law: memory behaves as the disk does -----------------------------------------------
NAMES = ("a", "b", "d", "d/a", "d/b", "d/e", "d/e/a")
Step = tuple[object, ...]
_names = st.sampled_from(NAMES)
STEPS = st.one_of(
    st.tuples(st.just("open"), _names, st.sampled_from(list(OpenMode))),
    st.tuples(st.just("pwrite"), _names, st.binary(max_size=5), st.integers(0, 8)),
    st.tuples(st.just("truncate"), _names, st.integers(0, 8)),
    st.tuples(st.just("make_directory"), _names),
    st.tuples(st.just("rename"), _names, _names),
    st.tuples(st.just("link"), _names, _names),
    st.tuples(st.just("remove"), _names),
    st.tuples(st.just("remove_directory"), _names),
    st.tuples(st.just("sync_directory"), _names),
    st.tuples(st.just("list"), _names),
)


def _take_step(place: Place, step: Step) -> object:
    kind, *arguments = step
    try:
        if kind == "open":
            place.fs.open(place.path(arguments[0]), arguments[1]).close()
        elif kind in ("pwrite", "truncate"):
            with place.fs.open(place.path(arguments[0]), OpenMode.WRITE) as file:
                getattr(file, kind)(*arguments[1:])
        else:
            return getattr(place.fs, kind)(*(place.path(name) for name in arguments))
    except StorageError as error:
        return type(error), errno.errorcode[error.errno]
    return None


def _picture(place: Place) -> list[object]:
    picture: list[object] = []
    for name in NAMES:
        found = place.fs.stat(place.path(name))
        if found is None:
            picture.append(None)
        elif found.kind is FileKind.DIRECTORY:
            picture.append(place.fs.list(place.path(name)))
        else:
            picture.append((found.size, found.links, place.read(name)))
    return picture


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEPS, max_size=25))
def test_memory_and_disk_agree_on_every_outcome(tmp_path_factory, steps: list[Step]) -> None:
    local = Place(LocalFileSystem(), str(tmp_path_factory.mktemp("law")))
    memory = memory_place()
    for step in steps:
        assert _take_step(memory, step) == _take_step(local, step), step
    assert _picture(memory) == _picture(local)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
