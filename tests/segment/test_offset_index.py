"""Cases 69 to 78 of Kafka's OffsetIndexTest by their numbers, then checks that Kafka lacks."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import CorruptIndexError, FileMissingError, InvalidRequestError
from streamlog.fs.api import OpenMode
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.memory import MemoryFileSystem
from streamlog.segment.offset_index import IndexEntry, OffsetIndex
from tests.support.segments import DIRECTORY, memory_fs, read_bytes, write_bytes

BASE = 45
PATH = f"{DIRECTORY}/00000000000000000045.index"
LARGE = 1 << 30


def make(fs: MemoryFileSystem, max_size: int = 30 * 8) -> OffsetIndex:
    return OffsetIndex(fs, PATH, BASE, max_size=max_size)


def loaded(fs: MemoryFileSystem, data: bytes, log_size: int = LARGE) -> OffsetIndex:
    write_bytes(fs, PATH, data)
    index = make(fs)
    index.load(log_size=log_size)
    return index


def entries_of(index: OffsetIndex) -> list[IndexEntry]:
    return [index[at] for at in range(len(index))]


def packed(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


# ---- Kafka's cases ------------------------------------------------------------------------------
def test_069_offset_below_the_last_one_is_refused() -> None:
    index = make(memory_fs())
    index.append(51, 0)
    with pytest.raises(InvalidRequestError, match="must be above") as caught:
        index.append(50, 1)
    assert (caught.value.got, caught.value.expected) == (50, "above 51")
    assert entries_of(index) == [IndexEntry(51, 0)]


def test_070_full_index_refuses() -> None:
    index = make(memory_fs(), max_size=30 * 8 + 7)  # rounded down to 30 entries
    for at in range(index.max_entries):
        assert not index.is_full
        index.append(BASE + at + 1, at + 1)
    assert index.is_full and len(index) == 30
    with pytest.raises(InvalidRequestError, match="full"):
        index.append(BASE + 31, 31)


def test_071_lookup_below_the_first_entry_starts_at_the_front() -> None:
    index = make(memory_fs())
    assert index.lookup(BASE) is None
    index.append(BASE + 10, 100)
    assert index.lookup(BASE + 9) is None


def test_075_truncate_beyond_the_last_at_between_and_below() -> None:
    def filled() -> OffsetIndex:
        index = make(memory_fs())
        for offset in range(46, 56):
            index.append(offset, offset - BASE)
        return index

    index = filled()
    index.truncate_to(56)
    assert len(index) == 10
    index.truncate_to(55)
    assert entries_of(index)[-1] == IndexEntry(54, 9)
    index.truncate_to(BASE)
    assert len(index) == 0
    index = filled()
    index.truncate_to(BASE - 1)
    assert len(index) == 0
    index.append(BASE, 1)
    assert entries_of(index) == [IndexEntry(BASE, 1)]


def test_077_length_of_no_whole_entries_is_refused() -> None:
    with pytest.raises(CorruptIndexError, match="multiple"):
        loaded(memory_fs(), packed((1, 10)) + b"\0" * 4)


def test_078_offset_below_the_base_is_refused() -> None:
    with pytest.raises(CorruptIndexError, match="below the base"):
        loaded(memory_fs(), packed((-1, 10)))


# ---- loading ------------------------------------------------------------------------------------
def test_stored_entries_are_loaded_again() -> None:
    fs = memory_fs()
    index = make(fs)
    index.append(BASE + 3, 120)
    index.store()
    index.append(BASE + 5, 240)
    index.store()
    assert read_bytes(fs, PATH) == packed((3, 120), (5, 240))
    again = make(fs)
    again.load(log_size=1000)
    assert entries_of(again) == [IndexEntry(48, 120), IndexEntry(50, 240)]


def test_a_missing_file_is_distinct_from_an_empty_one() -> None:
    with pytest.raises(FileMissingError):
        make(memory_fs()).load(log_size=100)


def test_trailing_zeros_are_no_entries() -> None:
    index = loaded(memory_fs(), packed((3, 120)) + b"\0" * 800)
    assert entries_of(index) == [IndexEntry(48, 120)]
    assert len(loaded(memory_fs(), b"\0" * 800)) == 0


def test_padding_is_removed_when_the_index_is_written() -> None:
    fs = memory_fs()
    index = loaded(fs, packed((3, 120)) + b"\0" * 800)
    index.append(BASE + 5, 240)
    index.store()
    assert read_bytes(fs, PATH) == packed((3, 120), (5, 240))


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        (((3, 120), (3, 240)), "increase"),
        (((3, 120), (4, 120)), "increase"),
        (((3, 240), (4, 120)), "increase"),
        (((3, 120), (2, 240)), "increase"),
        (((3, 120), (4, 5000)), "outside"),
        (((3, -120),), "outside"),
        (((3, 0), (4, 120)), "outside"),
        (((0, 0), (0, 0), (4, 120)), "outside"),
    ],
)
def test_impossible_entries_are_refused(entries: tuple[tuple[int, int], ...], what: str) -> None:
    with pytest.raises(CorruptIndexError, match=what) as caught:
        loaded(memory_fs(), packed(*entries), log_size=5000)
    assert caught.value.path == PATH


def test_a_huge_file_is_not_read_into_memory(tmp_path: Path) -> None:
    path = f"{tmp_path}/00000000000000000045.index"
    with LocalFileSystem().open(path, OpenMode.CREATE) as file:
        file.truncate(1 << 40)
    index = OffsetIndex(LocalFileSystem(), path, BASE, max_size=1 << 20)
    index.load(log_size=10_000)  # sparse, zeros: no entries
    assert len(index) == 0


@given(st.binary(max_size=200), st.integers(0, 5000))
def test_any_bytes_are_loaded_or_refused(data: bytes, log_size: int) -> None:
    try:
        index = loaded(memory_fs(), data, log_size)
    except CorruptIndexError:
        return
    offsets = [entry.offset for entry in entries_of(index)]
    positions = [entry.position for entry in entries_of(index)]
    assert offsets == sorted(set(offsets)) and positions == sorted(set(positions))
    assert all(offset >= BASE for offset in offsets)
    assert all(0 < position < log_size for position in positions)


# ---- looking up and storing ---------------------------------------------------------------------
@given(st.lists(st.integers(0, 2**31 - 1), unique=True, min_size=1, max_size=29), st.data())
def test_lookup_finds_the_floor(relative: list[int], data: st.DataObject) -> None:
    relative.sort()
    index = make(memory_fs())
    offsets = np.array(relative, np.int64) + BASE
    positions = np.arange(1, len(relative) + 1) * 100
    index.extend(offsets, positions)
    wanted = data.draw(st.integers(BASE - 10, BASE + 2**31))
    below = [at for at, offset in enumerate(offsets.tolist()) if offset <= wanted]
    found = index.lookup(wanted)
    assert found == (index[below[-1]] if below else None)
    position = data.draw(st.integers(0, 4000))
    reached = [at for at, each in enumerate(positions.tolist()) if each <= position]
    assert index.lookup_position(position) == (index[reached[-1]] if reached else None)
    later = [at for at, each in enumerate(positions.tolist()) if each >= position]
    assert index.lookup_from(position) == (index[later[0]] if later else None)


def test_extend_stops_when_full() -> None:
    index = make(memory_fs(), max_size=16)
    index.extend(np.array([46, 47, 48]), np.array([1, 2, 3]))
    assert entries_of(index) == [IndexEntry(46, 1), IndexEntry(47, 2)]


def test_truncation_shortens_the_file_at_the_next_store() -> None:
    fs = memory_fs()
    index = make(fs)
    index.extend(np.array([46, 47, 48]), np.array([10, 20, 30]))
    index.store()
    index.truncate_to_position(20)
    index.append(60, 25)
    index.store()
    assert read_bytes(fs, PATH) == packed((1, 10), (15, 25))
