"""Walks over sound batches: with their bytes, or over many headers at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.fs.api import OpenMode
from streamlog.records.table import BatchTable
from streamlog.segment import walk
from streamlog.segment.file_records import FileRecords
from streamlog.segment.walk import Place, walk_headers, walk_sound
from tests.support.segments import BatchPlan, make_batches, memory_fs, write_bytes

BASE = 100
PATH = f"/{BASE:020d}.log"

# A batch ends where the next starts, leaves a gap, or starts too early; epochs may decrease.
STEPS = st.tuples(st.sampled_from([0, 0, 0, 0, 3, -1]), st.sampled_from([0, 0, 0, 1, -1]))


def log_of(steps: list[tuple[int, int]], damage: int | None) -> tuple[FileRecords, int]:
    """Return a log of batches that follow these steps, with one byte changed, and its size."""
    offset, epoch, plans = BASE, 1, []
    for gap, rise in steps:
        offset, epoch = max(offset + gap, 0), max(epoch + rise, 0)
        plans.append(BatchPlan(offset, 2, 80 + 40 * (len(plans) % 5), leader_epoch=epoch))
        offset += 2
    data = bytearray(make_batches(plans))
    if damage is not None:
        data[damage % len(data)] ^= 0xFF
    fs = memory_fs()
    write_bytes(fs, PATH, bytes(data))
    assert fs.open(PATH, OpenMode.READ).stat().size == len(data)
    return FileRecords(fs, PATH, writable=False), len(data)


@given(
    st.lists(STEPS, min_size=1, max_size=40),
    st.none() | st.integers(0, 1 << 20),
    st.integers(1, 12),
    st.integers(60, 3000),
)
def test_a_walk_over_headers_sees_the_same_batches_and_stops_at_the_same_place(
    steps: list[tuple[int, int]], damage: int | None, together: int, read_size: int
) -> None:
    records, size = log_of(steps, damage)
    start = Place(0, BASE)
    whole: list[BatchTable] = []
    place = walk_sound(
        records, BASE, start, size, lambda at, _, table: whole.append(table.moved(at))
    )
    headers: list[BatchTable] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "_TOGETHER", together)
        patch.setattr(walk, "_READ_SIZE", read_size)
        assert walk_headers(records, BASE, start, size, headers.append) == place

    expected, found = BatchTable.concatenate(whole), BatchTable.concatenate(headers)
    assert np.array_equal(found.fields, expected.fields)
    assert all(len(each) for each in headers)


def test_headers_are_returned_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "_TOGETHER", 10)
    monkeypatch.setattr(walk, "_READ_SIZE", 700)
    records, size = log_of([(0, 0)] * 50, None)
    counts: list[int] = []
    walk_headers(records, BASE, Place(0, BASE), size, lambda table: counts.append(len(table)))
    assert sum(counts) == 50
    assert all(10 <= count < 20 for count in counts[:-1])
