"""State that a crash may take from the in-memory file system, and state that it must keep."""

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.clock import ManualClock
from streamlog.errors import DiskFullError, StorageError
from streamlog.fs.api import OpenMode
from streamlog.fs.durability import BLOCK_SIZE
from streamlog.fs.memory import MemoryFileSystem

SEEDS = range(300)


def _prepared(content: bytes | None = None) -> MemoryFileSystem:
    """Return a file system with a durable `/d`, and in it a durable `f` with `content`."""
    fs = MemoryFileSystem()
    fs.make_directory("/d")
    fs.sync_directory("/")
    if content is not None:
        with fs.open("/d/f", OpenMode.CREATE) as file:
            file.pwrite(content, 0)
            file.sync()
        fs.sync_directory("/d")
    assert fs.unsynced() == ()
    return fs


def _read(fs: MemoryFileSystem, path: str) -> bytes | None:
    if fs.stat(path) is None:
        return None
    with fs.open(path, OpenMode.READ) as file:
        return file.pread(1 << 20, 0)


def _write(fs: MemoryFileSystem, path: str, content: bytes, position: int = 0) -> None:
    with fs.open(path, OpenMode.CREATE_OR_WRITE) as file:
        file.pwrite(content, position)


def _sync(fs: MemoryFileSystem, path: str) -> None:
    with fs.open(path, OpenMode.WRITE) as file:
        file.sync()


def _after_power_cuts(fs: MemoryFileSystem, view: Callable[[MemoryFileSystem], object]) -> set:
    return {view(fs.crash_clone(Random(seed), power=True)) for seed in SEEDS}


# ---- bytes ----------------------------------------------------------------------------------
def test_power_cut_keeps_synced_changes() -> None:
    fs = _prepared(b"synced")
    assert _after_power_cuts(fs, lambda clone: _read(clone, "/d/f")) == {b"synced"}


def test_power_cut_removes_an_unsynced_append_in_every_legal_way_and_no_other() -> None:
    fs = _prepared(b"synced")
    _write(fs, "/d/f", b"tail", 6)
    assert _after_power_cuts(fs, lambda clone: _read(clone, "/d/f")) == {
        b"synced",  # lost
        b"syncedt",  # truncated after any byte
        b"syncedta",
        b"syncedtai",
        b"syncedtail",  # kept
        b"synced\0\0\0\0",  # size without bytes
    }


def test_power_cut_loses_blocks_of_512_bytes_of_a_large_write() -> None:
    fs = _prepared(b"s" * 100)
    _write(fs, "/d/f", b"w" * (3 * BLOCK_SIZE), 100)
    shapes = set()
    for content in _after_power_cuts(fs, lambda clone: _read(clone, "/d/f")):
        assert content[:100] == b"s" * 100
        if len(content) == 100 + 3 * BLOCK_SIZE:
            edges = [100, 512, 1024, 1536, len(content)]
            blocks = [content[a:b] for a, b in pairwise(edges)]
            assert all(set(block) in ({0}, {ord("w")}) for block in blocks)
            shapes.add("".join("w" if block[0] else "0" for block in blocks))
    assert len(shapes) == 16, "each subset of the blocks is seen"


def test_power_cut_may_drop_an_earlier_write_and_keep_a_later_one() -> None:
    fs = _prepared(b"")
    _write(fs, "/d/f", b"1" * 512, 0)
    _write(fs, "/d/f", b"two", 512)
    seen = _after_power_cuts(fs, lambda clone: _read(clone, "/d/f"))
    one, none = b"1" * 512, bytes(512)
    assert {b"", one, one + b"two", none + b"two", one + b"tw"} <= seen


def test_power_cut_keeps_the_earlier_content_of_a_block_with_its_later_write() -> None:
    fs = _prepared(b"")
    _write(fs, "/d/f", b"one", 0)
    _write(fs, "/d/f", b"two", 3)
    seen = _after_power_cuts(fs, lambda clone: _read(clone, "/d/f"))
    assert {b"", b"one", b"onetwo", b"onetw"} <= seen
    assert not any(content.endswith(b"two") and content != b"onetwo" for content in seen)


def test_power_cut_gives_an_overwritten_range_back_old_or_new() -> None:
    fs = _prepared(b"aaaa")
    _write(fs, "/d/f", b"BB", 1)
    assert _after_power_cuts(fs, lambda clone: _read(clone, "/d/f")) == {b"aaaa", b"aBaa", b"aBBa"}


def test_power_cut_undoes_a_truncation_wholly_or_not_at_all() -> None:
    fs = _prepared(b"0123456789")
    with fs.open("/d/f", OpenMode.WRITE) as file:
        file.truncate(4)
    assert _after_power_cuts(fs, lambda clone: _read(clone, "/d/f")) == {b"0123", b"0123456789"}


def test_power_cut_after_truncation_and_append_may_mix_them() -> None:
    fs = _prepared(b"0123456789")
    with fs.open("/d/f", OpenMode.WRITE) as file:
        file.truncate(4)
        file.pwrite(b"xy", 4)
    seen = _after_power_cuts(fs, lambda clone: _read(clone, "/d/f"))
    assert {b"0123xy", b"0123456789", b"0123", b"0123xy6789"} <= seen
    fs.open("/d/f", OpenMode.WRITE).sync()
    assert _after_power_cuts(fs, lambda clone: _read(clone, "/d/f")) == {b"0123xy"}


def test_sync_covers_writes_of_other_handles() -> None:
    fs = _prepared(b"")
    _write(fs, "/d/f", b"other", 0)
    _sync(fs, "/d/f")
    assert _after_power_cuts(fs, lambda clone: _read(clone, "/d/f")) == {b"other"}


def test_doomed_changes_stay_readable_and_no_later_sync_makes_them_durable() -> None:
    synced, doomed = b"s" * 512, b"X" * 512
    fs = _prepared(synced)
    file = fs.open("/d/f", OpenMode.WRITE)
    file.pwrite(doomed, 512)
    file.doom()
    _write(fs, "/d/f", b"later", 1024)
    _sync(fs, "/d/f")
    assert _read(fs, "/d/f") == synced + doomed + b"later"
    seen = _after_power_cuts(fs, lambda clone: _read(clone, "/d/f"))
    assert {synced + bytes(512) + b"later", synced + doomed + b"later"} <= seen
    assert all(content[:512] == synced and content[1024:] == b"later" for content in seen)


# ---- names ----------------------------------------------------------------------------------
def test_syncing_a_new_file_does_not_sync_its_name() -> None:
    fs = _prepared()
    _write(fs, "/d/new", b"content")
    _sync(fs, "/d/new")
    assert fs.unsynced() == ("/d/new",)
    assert _after_power_cuts(fs, lambda clone: _read(clone, "/d/new")) == {None, b"content"}
    fs.sync_directory("/d")
    assert _after_power_cuts(fs, lambda clone: _read(clone, "/d/new")) == {b"content"}


def test_syncing_the_directory_does_not_sync_the_bytes() -> None:
    fs = _prepared()
    _write(fs, "/d/new", b"xy")
    fs.sync_directory("/d")
    seen = _after_power_cuts(fs, lambda clone: _read(clone, "/d/new"))
    assert seen == {b"", b"x", b"xy", b"\0\0"}


def test_an_unsynced_removal_may_be_undone_and_a_synced_one_never() -> None:
    fs = _prepared(b"back")
    fs.remove("/d/f")
    assert _after_power_cuts(fs, lambda clone: _read(clone, "/d/f")) == {None, b"back"}
    fs.sync_directory("/d")
    assert _after_power_cuts(fs, lambda clone: _read(clone, "/d/f")) == {None}


def test_an_unsynced_rename_shows_the_old_names_or_the_new_ones() -> None:
    fs = _prepared(b"old")
    _write(fs, "/d/tmp", b"new")
    _sync(fs, "/d/tmp")
    fs.sync_directory("/d")
    fs.rename("/d/tmp", "/d/f")

    def both(clone: MemoryFileSystem) -> object:
        return _read(clone, "/d/f"), _read(clone, "/d/tmp")

    assert _after_power_cuts(fs, both) == {(b"old", b"new"), (b"new", None)}
    fs.sync_directory("/d")
    assert _after_power_cuts(fs, both) == {(b"new", None)}


def test_a_rename_before_the_sync_of_the_bytes_may_leave_an_empty_file() -> None:
    fs = _prepared(b"old")
    _write(fs, "/d/tmp", b"n")
    fs.rename("/d/tmp", "/d/f")
    fs.sync_directory("/d")
    assert _after_power_cuts(fs, lambda clone: _read(clone, "/d/f")) == {b"", b"n", b"\0"}


def test_an_undone_creation_also_undoes_the_rename_built_on_it() -> None:
    fs = _prepared(b"old")
    _write(fs, "/d/tmp", b"new")
    _sync(fs, "/d/tmp")
    fs.rename("/d/tmp", "/d/f")
    seen = _after_power_cuts(fs, lambda clone: (_read(clone, "/d/f"), _read(clone, "/d/tmp")))
    assert seen == {(b"old", None), (b"old", b"new"), (b"new", None)}


def test_a_rename_across_directories_is_durable_when_both_are_synced() -> None:
    fs = _prepared(b"x")
    fs.make_directory("/e")
    fs.sync_directory("/")
    fs.rename("/d/f", "/e/f")

    def places(clone: MemoryFileSystem) -> object:
        return _read(clone, "/d/f"), _read(clone, "/e/f")

    fs.sync_directory("/e")
    assert _after_power_cuts(fs, places) == {(b"x", None), (None, b"x")}
    fs.sync_directory("/d")
    assert _after_power_cuts(fs, places) == {(None, b"x")}


def test_a_durable_change_makes_its_prerequisites_durable() -> None:
    fs = _prepared(b"x")
    fs.make_directory("/e")
    fs.sync_directory("/")
    fs.rename("/d/f", "/e/f")  # durable with /d and /e
    fs.rename("/e/f", "/e/g")  # durable with /e
    fs.sync_directory("/e")
    seen = _after_power_cuts(fs, lambda clone: (_read(clone, "/d/f"), _read(clone, "/e/g")))
    assert seen == {(None, b"x")}


def test_a_directory_whose_name_is_not_synced_may_vanish_with_all_in_it() -> None:
    fs = _prepared()
    fs.make_directory("/d/sub")
    _write(fs, "/d/sub/f", b"x")
    _sync(fs, "/d/sub/f")
    fs.sync_directory("/d/sub")
    assert fs.unsynced() == ("/d/sub",)
    assert _after_power_cuts(fs, lambda clone: _read(clone, "/d/sub/f")) == {None, b"x"}


def test_a_removed_directory_may_come_back_with_its_files() -> None:
    fs = _prepared()
    fs.make_directory("/d/sub")
    _write(fs, "/d/sub/f", b"x")
    _sync(fs, "/d/sub/f")
    fs.sync_directory("/d/sub")
    fs.sync_directory("/d")
    fs.remove("/d/sub/f")
    fs.remove_directory("/d/sub")
    seen = _after_power_cuts(
        fs,
        lambda clone: None if clone.stat("/d/sub") is None else tuple(clone.list("/d/sub")),
    )
    assert seen == {None, (), ("f",)}


def test_a_link_keeps_the_bytes_of_a_removed_name() -> None:
    fs = _prepared(b"x")
    fs.link("/d/f", "/d/g")
    fs.sync_directory("/d")
    fs.remove("/d/f")
    for seed in SEEDS:
        clone = fs.crash_clone(Random(seed), power=True)
        assert _read(clone, "/d/g") == b"x"
        found = clone.stat("/d/g")
        assert found is not None
        assert found.links == len(clone.list("/d"))


# ---- kinds of crashes -----------------------------------------------------------------------
def test_losing_nothing_and_losing_everything_are_the_extremes() -> None:
    fs = _prepared(b"synced")
    _write(fs, "/d/f", b" more", 6)
    _write(fs, "/d/new", b"x")
    kept = fs.crash_clone(Random(0), power=True, loss="nothing")
    assert (kept.list("/d"), _read(kept, "/d/f")) == (["f", "new"], b"synced more")
    lost = fs.crash_clone(Random(0), power=True, loss="everything")
    assert (lost.list("/d"), _read(lost, "/d/f")) == (["f"], b"synced")
    for clone in (kept, lost):
        assert clone.unsynced() == ()
        assert clone.boot_id() != fs.boot_id()


def test_the_death_of_a_process_keeps_all_frees_locks_and_makes_nothing_durable() -> None:
    fs = _prepared(b"synced")
    held = fs.try_lock("/d/lock", shared=False)
    assert held is not None
    _write(fs, "/d/f", b" more", 6)
    clone = fs.crash_clone(Random(0), power=False)
    assert _read(clone, "/d/f") == b"synced more"
    assert clone.boot_id() == fs.boot_id()
    assert clone.unsynced() == fs.unsynced() == ("/d/f", "/d/lock")
    again = clone.try_lock("/d/lock", shared=False)
    assert again is not None
    lost = clone.crash_clone(Random(0), power=True, loss="everything")
    assert (lost.list("/d"), _read(lost, "/d/f")) == (["f"], b"synced")


def test_a_clone_and_its_origin_are_independent() -> None:
    fs = _prepared(b"abc")
    handle = fs.open("/d/f", OpenMode.WRITE)
    clone = fs.crash_clone(Random(0), power=False)
    handle.pwrite(b"X", 0)
    _write(clone, "/d/f", b"Y", 2)
    clone.remove("/d/f")
    fs.make_directory("/d/only-here")
    assert _read(fs, "/d/f") == b"Xbc"
    assert fs.list("/d") == ["f", "only-here"]
    assert clone.list("/d") == []


def _synced(fs: MemoryFileSystem) -> None:
    _write(fs, "/d/f", b"2", 1)
    _sync(fs, "/d/f")


def _renamed_and_back(fs: MemoryFileSystem) -> None:
    fs.rename("/d/f", "/d/g")
    fs.rename("/d/g", "/d/f")


CHANGES: dict[str, Callable[[MemoryFileSystem], object]] = {
    "other bytes": _synced,
    "the same bytes, unsynced": lambda fs: _write(fs, "/d/f", b"1"),
    "a time": lambda fs: fs.set_mtime("/d/f", 5),
    "an owner": lambda fs: fs.set_access("/d/f", owner=7, group=0, mode=0o640),
    "a new file": lambda fs: _write(fs, "/d/g", b""),
    "a new directory": lambda fs: fs.make_directory("/e"),
    "a removed name": lambda fs: fs.remove("/d/f"),
    "another name": lambda fs: fs.rename("/d/f", "/d/g"),
    "one more name": lambda fs: fs.link("/d/f", "/d/g"),
    "the same names, unsynced": _renamed_and_back,
    "a user": lambda fs: setattr(fs, "user", 3),
    "a capacity": lambda fs: setattr(fs, "capacity", 99),
    "a broker": lambda fs: fs.broker_locks.add("/d/.lock"),
}


def test_facts_tell_apart_what_differs_in_anything() -> None:
    found = [_prepared(b"1").facts()]
    found.append(_prepared(b"1").crash_clone(Random(0), power=True).facts())
    for change in CHANGES.values():
        fs = _prepared(b"1")
        change(fs)
        found.append(fs.facts())
    assert len(set(found)) == 2 + len(CHANGES)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_facts_of_copies_are_equal_whatever_happened(
    change: Callable[[MemoryFileSystem], object],
) -> None:
    fs = _prepared(b"1")
    change(fs)
    before = fs.facts()
    clone = fs.crash_clone(Random(0), power=False)
    assert clone.facts() == before
    _read(clone, "/d/f")  # an open file changes nothing
    assert clone.facts() == fs.facts() == before


def test_one_seed_gives_one_state() -> None:
    fs = _prepared(b"synced")
    for number in range(20):
        _write(fs, f"/d/{number}", b"x" * 600)

    def picture(seed: int) -> object:
        clone = fs.crash_clone(Random(seed), power=True)
        return [(name, _read(clone, f"/d/{name}")) for name in clone.list("/d")]

    assert picture(7) == picture(7)
    assert picture(7) != picture(8)


_paths = st.sampled_from(["/a", "/b", "/d/a", "/d/b"])
_actions = st.one_of(
    st.tuples(st.just("append"), _paths, st.binary(min_size=1, max_size=40)),
    st.tuples(st.just("sync"), _paths),
    st.tuples(st.just("sync_directory"), st.sampled_from(["/", "/d"])),
)


@settings(max_examples=200, deadline=None)
@given(actions=st.lists(_actions, max_size=20), seed=st.integers(0, 1000))
def test_law_synced_prefix_of_a_durable_name_always_survives(actions: list, seed: int) -> None:
    fs = _prepared()
    written: dict[str, bytes] = {}
    synced: dict[str, int] = {}
    durable_names: set[str] = set()
    for kind, path, *content in actions:
        if kind == "append":
            _write(fs, path, content[0], len(written.get(path, b"")))
            written[path] = written.get(path, b"") + content[0]
        elif kind == "sync" and path in written:
            _sync(fs, path)
            synced[path] = len(written[path])
        elif kind == "sync_directory":
            fs.sync_directory(path)
            durable_names |= {name for name in written if (path == "/d") == ("/d/" in name)}
    clone = fs.crash_clone(Random(seed), power=True)
    for path, whole in written.items():
        found = _read(clone, path)
        if path in durable_names:
            assert found is not None
        if found is not None:
            sure = synced.get(path, 0)
            assert found[:sure] == whole[:sure]
            assert len(found) <= len(whole)
            for position, byte in enumerate(found):
                assert byte in (0, whole[position])


# ---- the rest -------------------------------------------------------------------------------
def test_a_full_disk_writes_a_part_and_works_again_when_there_is_room() -> None:
    fs = MemoryFileSystem(capacity=10)
    _write(fs, "/old", b"1234")
    file = fs.open("/new", OpenMode.CREATE)
    with pytest.raises(DiskFullError):
        file.pwrite(b"abcdefgh", 0)
    assert _read(fs, "/new") == b"abcdef"
    with pytest.raises(DiskFullError):
        file.pwrite(b"x", 6)
    file.pwrite(b"ABC", 0)  # overwriting needs no space
    fs.remove("/old")
    file.pwrite(b"ghij", 6)
    assert _read(fs, "/new") == b"ABCdefghij"
    fs.capacity = None
    file.pwrite(b"!", 10)
    assert _read(fs, "/new") == b"ABCdefghij!"


def test_modification_times_come_from_the_clock() -> None:
    clock = ManualClock(5_000)
    fs = MemoryFileSystem(clock=clock)
    _write(fs, "/a", b"x")
    clock.advance(1_000)
    _write(fs, "/b", b"x")
    times = [found.mtime_ms for name in ("/a", "/b") if (found := fs.stat(name))]
    assert times == [5_000, 6_000]
    _write(fs, "/a", b"y")
    found = fs.stat("/a")
    assert found is not None
    assert found.mtime_ms == 6_000


def test_a_live_broker_can_be_simulated() -> None:
    fs = MemoryFileSystem()
    _write(fs, "/.lock", b"")
    assert not fs.broker_lock_is_held("/.lock")
    fs.broker_locks.add("/.lock")
    assert fs.broker_lock_is_held("/.lock")
    assert fs.crash_clone(Random(0), power=False).broker_lock_is_held("/.lock")
    assert not fs.crash_clone(Random(0), power=True).broker_lock_is_held("/.lock")


def test_the_root_can_be_neither_moved_nor_removed() -> None:
    fs = _prepared()
    for call in (
        lambda: fs.remove_directory("/"),
        lambda: fs.rename("/", "/x"),
        lambda: fs.rename("/d", "/"),
        lambda: fs.remove("/"),
    ):
        with pytest.raises(StorageError):
            call()
    assert fs.list("/") == ["d"]
