"""Cases 79 to 86 of Kafka's TimeIndexTest by their numbers, then checks that Kafka lacks."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import CorruptIndexError, InvalidRequestError
from streamlog.fs.memory import MemoryFileSystem
from streamlog.segment.time_index import TimeIndex, TimestampOffset
from tests.support.segments import DIRECTORY, memory_fs, read_bytes, write_bytes

BASE = 45
PATH = f"{DIRECTORY}/00000000000000000045.timeindex"


def make(fs: MemoryFileSystem, max_size: int = 30 * 12) -> TimeIndex:
    return TimeIndex(fs, PATH, BASE, max_size=max_size)


def filled(count: int) -> TimeIndex:
    index = make(memory_fs())
    for at in range(count):
        index.maybe_append(10 * at, 10 * at + BASE)
    return index


def loaded(fs: MemoryFileSystem, data: bytes) -> TimeIndex:
    write_bytes(fs, PATH, data)
    index = make(fs)
    index.load(log_size=1 << 20)
    return index


def entries_of(index: TimeIndex) -> list[TimestampOffset]:
    return [index[at] for at in range(len(index))]


def packed(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


# ---- Kafka's cases ------------------------------------------------------------------------------
def test_079_lookup_in_an_empty_index() -> None:
    assert make(memory_fs()).lookup(100) == (-1, BASE)
    assert make(memory_fs()).last_entry == (-1, BASE)


def test_080_lookup_finds_the_last_entry_at_or_below() -> None:
    index = filled(29)
    assert index.lookup(9) == (0, 45)
    assert index.lookup(10) == (10, 55)
    assert index.lookup(189) == (180, 225)
    assert index.lookup(10_000) == (280, 325)
    assert index.lookup(-5) == (-1, BASE)


def test_081_full_index_accepts_one_forced_entry() -> None:
    index = filled(29)
    assert index.is_full
    with pytest.raises(InvalidRequestError, match="full"):
        index.maybe_append(10_000, 1000)
    with pytest.raises(InvalidRequestError, match="offset is below"):
        index.maybe_append(10_000, 270, skip_full_check=True)
    index.maybe_append(10_000, 1000, skip_full_check=True)
    assert len(index) == 30 and index.last_entry == (10_000, 1000)


def test_082_equal_timestamp_changes_nothing() -> None:
    index = filled(28)
    index.maybe_append(270, 1000)
    assert len(index) == 28 and index.last_entry == (270, 315)


def test_083_offset_below_the_last_one_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="offset is below") as caught:
        filled(10).maybe_append(10_000, 134)
    assert (caught.value.got, caught.value.expected) == (134, "at least 135")


def test_084_timestamp_below_the_last_one_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="timestamp is below"):
        filled(10).maybe_append(89, 1000)


def test_085_truncate_removes_entries_from_the_offset_on() -> None:
    index = filled(29)
    index.truncate_to(10 * 5 + BASE)
    assert index.last_entry == (40, 85)
    index.truncate_to(BASE + 10)
    assert entries_of(index) == [(0, 45)]
    index.truncate_to(BASE)
    assert len(index) == 0


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (packed((100, 1), (10, 2)), "strictly increase"),
        (packed((100, 1), (100, 2)), "strictly increase"),
        (packed((100, -1)), "below the base"),
        (packed((100, 5), (200, 4)), "offsets that decrease"),
        (packed((-2, 5)), "negative"),
        (packed((100, 1)) + b"\0" * 11, "multiple"),
    ],
)
def test_086_impossible_entries_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(CorruptIndexError, match=what) as caught:
        loaded(memory_fs(), data)
    assert caught.value.path == PATH


# ---- more ---------------------------------------------------------------------------------------
def test_stored_entries_are_loaded_again() -> None:
    fs = memory_fs()
    index = make(fs)
    index.maybe_append(100, 48)
    index.store()
    index.maybe_append(200, 48)
    index.store()
    assert read_bytes(fs, PATH) == packed((100, 3), (200, 3))
    again = make(fs)
    again.load(log_size=1000)
    assert entries_of(again) == [(100, 48), (200, 48)]


def test_trailing_zeros_are_no_entries() -> None:
    fs = memory_fs()
    index = loaded(fs, packed((100, 3)) + b"\0" * 120)
    assert entries_of(index) == [(100, 48)]
    index.maybe_append(200, 50)
    index.store()
    assert read_bytes(fs, PATH) == packed((100, 3), (200, 5))


def test_lookup_by_offset_finds_the_last_entry_at_or_below() -> None:
    index = filled(5)
    assert index.lookup_offset(64) == (10, 55)
    assert index.lookup_offset(65) == (20, 65)
    assert index.lookup_offset(44) == (-1, BASE)


@given(st.lists(st.tuples(st.integers(-1, 50), st.integers(0, 3)), max_size=40))
def test_extend_keeps_what_appending_one_by_one_keeps(steps: list[tuple[int, int]]) -> None:
    """Law: extend(running maxima) is maybe_append of each, until the index is full."""
    largest, offset = -1, BASE
    maxima: list[tuple[int, int]] = []
    for timestamp, distance in steps:
        offset += distance
        if timestamp > largest:
            largest, holder = timestamp, offset
        if largest >= 0:
            maxima.append((largest, holder))
    one_by_one, at_once = make(memory_fs(), 12 * 12), make(memory_fs(), 12 * 12)
    for entry in maxima:
        if not one_by_one.is_full:
            one_by_one.maybe_append(*entry)
    columns = np.array(maxima, np.int64).reshape(-1, 2)
    at_once.extend(columns[:20, 0], columns[:20, 1])
    at_once.extend(columns[20:, 0], columns[20:, 1])
    assert entries_of(at_once) == entries_of(one_by_one)


@given(st.binary(max_size=200))
def test_any_bytes_are_loaded_or_refused(data: bytes) -> None:
    try:
        index = loaded(memory_fs(), data)
    except CorruptIndexError:
        return
    timestamps = [entry.timestamp for entry in entries_of(index)]
    offsets = [entry.offset for entry in entries_of(index)]
    assert timestamps == sorted(set(timestamps)) and offsets == sorted(offsets)
    assert all(offset >= BASE for offset in offsets)
