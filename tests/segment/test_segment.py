"""Cases 97 to 118 of Kafka's LogSegmentTest by their numbers, then our own.

Cases 109 to 111 are in test_recovery.py. Case 105 uses v2 batches here.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from streamlog.errors import (
    InvalidRequestError,
)
from streamlog.fs.api import OpenMode
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.segment.filenames import SegmentSuffix
from streamlog.segment.indexed_records import IndexedRecords
from streamlog.segment.segment import RollReason, Segment
from streamlog.segment.txn_index import AbortedTxn
from tests.support.segments import (
    DIRECTORY,
    NOW_MS,
    BatchPlan,
    append,
    dense_segment,
    file_names,
    last_offsets,
    make_batch,
    memory_fs,
    new_segment,
    open_segment,
    read_bytes,
    table_of,
)

LOG = f"{DIRECTORY}/{40:020d}.log"
INDEX = f"{DIRECTORY}/{40:020d}.index"
TIME_INDEX = f"{DIRECTORY}/{40:020d}.timeindex"


def roll(segment: Segment, **facts: int) -> RollReason | None:
    usual = {
        "append_size": 100,
        "append_max_timestamp": NOW_MS,
        "append_last_offset": segment.base_offset + 10,
        "segment_ms": 1000,
        "jitter_ms": 0,
        "now_ms": NOW_MS,
    }
    given = {**usual, **facts}
    append = table_of(make_batch(BatchPlan(segment.base_offset))).outline()
    append = append._replace(
        size=given["append_size"],
        max_timestamp=given["append_max_timestamp"],
        last_offset=given["append_last_offset"],
    )
    max_wait_ms = given["segment_ms"] - given["jitter_ms"]
    return segment.roll_reason(append, now_ms=given["now_ms"], max_wait_ms=max_wait_ms)


# ---- Kafka's cases ------------------------------------------------------------------------------
def test_097_empty_segment_has_nothing_to_read() -> None:
    segment = new_segment(memory_fs(), 40)
    assert segment.translate_offset(40) is None
    assert segment.is_empty and segment.next_offset() == 40
    assert segment.read(0, 1000) == b""
    assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (-1, -1)
    assert segment.first_batch_timestamp is None
    assert segment.offset_for_timestamp(0, 0) is None


def test_098_reading_before_the_first_message_starts_at_it() -> None:
    segment = new_segment(memory_fs(), 40)
    append(segment, BatchPlan(50, 3))
    found = segment.translate_offset(41)
    assert found is not None and (found.offset, found.position, found.size) == (50, 0, 100)


def test_099_reading_after_the_last_message_returns_nothing() -> None:
    segment = new_segment(memory_fs(), 40)
    append(segment, BatchPlan(50, 2))
    assert segment.translate_offset(52) is None
    assert segment.next_offset() == 52


def test_100_reading_in_a_gap_starts_at_the_next_batch() -> None:
    segment = new_segment(memory_fs(), 40)
    append(segment, BatchPlan(50, 2), BatchPlan(60, 2))
    found = segment.translate_offset(55)
    assert found is not None and (found.offset, found.position) == (60, 100)


def test_101_reading_in_the_middle_of_a_batch_returns_the_whole_batch() -> None:
    segment = new_segment(memory_fs(), 40)
    append(segment, BatchPlan(50, 10, 300), BatchPlan(60, 2))
    found = segment.translate_offset(55)
    assert found == (50, 0, 300, 59)
    assert found is not None
    assert last_offsets(segment.read(found.position, found.size)) == [59]


def test_102_the_first_batch_is_complete_however_small_the_limit() -> None:
    """A fetch asks for max(max bytes, size of the first batch)."""
    segment = dense_segment(memory_fs())
    found = segment.translate_offset(71)
    assert found is not None
    for limit in (0, 1):
        assert last_offsets(segment.read(found.position, max(limit, found.size))) == [71]


@pytest.mark.parametrize(
    ("offset", "end", "removed"),
    [(41, 40, 300), (51, 50, 200), (52, 52, 100), (60, 52, 100), (62, 62, 0), (99, 62, 0)],
)
def test_103_truncate_removes_whole_batches_and_appends_continue(
    offset: int, end: int, removed: int
) -> None:
    segment = new_segment(memory_fs(), 40)
    append(segment, BatchPlan(40, 10), BatchPlan(50, 2), BatchPlan(60, 2))
    assert segment.truncate_to(offset) == removed
    assert segment.next_offset() == end
    append(segment, BatchPlan(70, 1))
    assert segment.next_offset() == 71
    assert last_offsets(segment.read(0, 10_000))[-1] == 70


def test_104_truncate_drops_index_entries_and_reopens_so() -> None:
    fs = memory_fs()
    segment = dense_segment(fs)
    entries = len(segment.offset_index)
    segment.truncate_to(100)
    assert segment.next_offset() == 100 and segment.max_timestamp == NOW_MS + 29
    assert 0 < len(segment.offset_index) < entries
    segment.seal()
    again = open_segment(fs, 40, index_interval_bytes=300)
    assert again.next_offset() == 100 and again.max_timestamp == NOW_MS + 29
    assert len(again.offset_index) == len(segment.offset_index)
    assert segment.truncate_to(0) == 3000
    assert segment.is_empty and segment.first_batch_timestamp is None
    assert len(segment.offset_index) == len(segment.time_index) == 0


def test_105_find_offset_by_timestamp() -> None:
    segment = new_segment(memory_fs(), 40, index_interval_bytes=100)
    for offset in range(40, 50):
        builder = BatchBuilder(base_offset=offset, partition_leader_epoch=7)
        builder.append(Record(b"k", b"hello", timestamp=offset * 10, offset=offset))
        batch = builder.build()
        segment.append(batch, table_of(batch))
    assert segment.max_timestamp == 490

    def find(timestamp: int, start: int = 40) -> tuple[int, int] | None:
        found = segment.offset_for_timestamp(timestamp, start)
        assert found is None or found.leader_epoch == 7
        return None if found is None else (found.offset, found.timestamp)

    assert find(420) == (42, 420)
    assert find(421) == (43, 430)
    assert find(430) == (43, 430)
    assert find(431) == (44, 440)
    assert find(491) is None
    assert find(401) == (41, 410)
    assert find(399) == (40, 400)
    assert find(399, start=45) == (45, 450)


def test_106_next_offset_is_found_again_after_opening() -> None:
    fs = memory_fs()
    dense_segment(fs).close()
    for writable in (True, False):
        segment = open_segment(fs, 40, writable=writable, index_interval_bytes=300)
        assert segment.next_offset() == 160
        assert segment.max_timestamp == NOW_MS + 59
        assert segment.offset_of_max_timestamp == 159


def test_threads_that_look_for_the_end_at_once_add_each_index_entry_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copies to several replicas read one segment of the leader."""
    fs = memory_fs()
    dense_segment(fs).close()
    for index, size in (("index", 8), ("timeindex", 12)):  # entries that were not stored yet
        with fs.open(f"{DIRECTORY}/{40:020}.{index}", OpenMode.WRITE) as file:
            file.truncate(size)
    both = Barrier(2)
    find_end = IndexedRecords._find_end

    def slowly(records: IndexedRecords, size: int) -> Any:
        with suppress(BrokenBarrierError):
            both.wait(0.2)  # breaks where the other thread waits for this one
        return find_end(records, size)

    monkeypatch.setattr(IndexedRecords, "_find_end", slowly)
    segment = open_segment(fs, 40, writable=True, index_interval_bytes=300)
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(lambda _: segment.next_offset(), range(2))] == [160, 160]
    offsets = [segment.offset_index[at].offset for at in range(len(segment.offset_index))]
    assert len(offsets) > 1
    assert offsets == sorted(set(offsets))


def test_107_changing_the_suffix_renames_all_files_and_reading_continues() -> None:
    fs = memory_fs()
    segment = dense_segment(fs)
    segment.append_aborted(AbortedTxn(1, 40, 50, 51))
    segment.rename_suffix(SegmentSuffix.NONE, SegmentSuffix.DELETED)
    assert file_names(fs) == [
        f"{40:020d}.{kind}.deleted" for kind in ("index", "log", "timeindex", "txnindex")
    ]
    assert segment.path == LOG + ".deleted"
    found = segment.translate_offset(100)
    assert found is not None and found.offset == 100
    segment.delete_files()
    assert file_names(fs) == []
    assert last_offsets(segment.read(found.position, 100)) == [101]


def test_113_preallocated_zeros_are_no_data() -> None:
    fs = memory_fs()
    dense_segment(fs, 5).close()
    with fs.open(LOG, OpenMode.WRITE) as file:
        file.truncate(1 << 20)
    reader = open_segment(fs, 40, writable=False)
    assert reader.extend()
    assert (reader.size, reader.next_offset()) == (500, 50)
    writer = open_segment(fs, 40)
    report = writer.recover(durable_offset=None, is_last=True)
    assert (report.cut_size, report.kept_path) == ((1 << 20) - 500, None)
    assert fs.stat(LOG).size == 500


def test_114_append_beyond_the_offset_range_is_refused_and_changes_nothing() -> None:
    fs = memory_fs()
    segment = new_segment(fs, 40)
    append(segment, BatchPlan(40, 1))
    far = make_batch(BatchPlan(40 + 2**31, 1))
    with pytest.raises(InvalidRequestError, match="exceeds the limits"):
        segment.append(far, table_of(far))
    assert (segment.size, segment.next_offset(), fs.stat(LOG).size) == (100, 41, 100)
    append(segment, BatchPlan(39 + 2**31, 1))
    assert segment.next_offset() == 40 + 2**31


def test_115_each_batch_of_an_append_gets_an_entry_when_one_is_due() -> None:
    segment = new_segment(memory_fs(), 40, index_interval_bytes=150)
    append(segment, *(BatchPlan(40 + at, 1, 100, NOW_MS + at) for at in range(6)))
    assert [tuple(segment.offset_index[at]) for at in range(2)] == [(42, 200), (44, 400)]
    assert len(segment.offset_index) == 2
    assert [tuple(segment.time_index[at]) for at in range(2)] == [
        (NOW_MS + 2, 42),
        (NOW_MS + 4, 44),
    ]


def test_116_no_entry_is_due_before_the_interval_is_passed() -> None:
    segment = new_segment(memory_fs(), 40, index_interval_bytes=1000)
    append(segment, *(BatchPlan(40 + at, 1, 100) for at in range(11)))
    # The 11th starts at 1000, which is not above the interval.
    assert len(segment.offset_index) == 0
    append(segment, BatchPlan(51, 1, 100))
    assert [tuple(entry) for entry in (segment.offset_index[0],)] == [(51, 1100)]


def test_117_largest_timestamp_of_a_sealed_segment_is_in_its_time_index() -> None:
    fs = memory_fs()
    segment = new_segment(fs, 40)
    append(segment, BatchPlan(40, 1, 100, NOW_MS + 5), BatchPlan(41, 1, 100, NOW_MS))
    assert len(segment.time_index) == 0
    segment.seal()
    assert read_bytes(fs, TIME_INDEX) == (NOW_MS + 5).to_bytes(8, "big") + bytes(4)
    assert read_bytes(fs, INDEX) == b""
    again = open_segment(fs, 40, writable=False)
    assert (again.max_timestamp, again.offset_of_max_timestamp) == (NOW_MS + 5, 40)


def test_118_roll_by_time_counts_from_the_first_batch() -> None:
    fs = memory_fs()
    segment = new_segment(fs, 40)
    assert roll(segment, append_max_timestamp=NOW_MS + 10**9, now_ms=NOW_MS + 10**9) is None
    append(segment, BatchPlan(40, 1, 100, NOW_MS), BatchPlan(41, 1, 100, NOW_MS - 10**6))
    assert segment.first_batch_timestamp == NOW_MS
    assert roll(segment, append_max_timestamp=NOW_MS + 1000) is None
    assert roll(segment, append_max_timestamp=NOW_MS + 1001) is RollReason.TIME
    assert roll(segment, append_max_timestamp=NOW_MS + 901, jitter_ms=100) is RollReason.TIME
    assert roll(segment, now_ms=NOW_MS + 10**9) is None  # timestamps decide if there are any
    again = open_segment(fs, 40)
    assert again.first_batch_timestamp == NOW_MS


def test_roll_by_time_counts_from_creation_without_timestamps() -> None:
    segment = new_segment(memory_fs(), 40)
    append(segment, BatchPlan(40, 1, 100, -1))
    assert roll(segment, append_max_timestamp=-1, now_ms=NOW_MS + 1000) is None
    assert roll(segment, append_max_timestamp=-1, now_ms=NOW_MS + 1001) is RollReason.TIME


def test_roll_by_size_by_full_indexes_and_by_offset_range() -> None:
    segment = dense_segment(memory_fs(), 8, internal_segment_bytes=1000)
    assert roll(segment, append_size=200) is None
    assert roll(segment, append_size=201) is RollReason.SIZE
    assert roll(segment, append_last_offset=40 + 2**31 - 1) is None
    assert roll(segment, append_last_offset=40 + 2**31) is RollReason.OFFSET_RANGE
    assert roll(segment, append_last_offset=39) is RollReason.OFFSET_RANGE
    full = dense_segment(memory_fs(), 30, segment_index_bytes=40)
    assert len(full.offset_index) == 5
    assert roll(full) is RollReason.OFFSET_INDEX_FULL
    young = dense_segment(memory_fs(), 10, segment_index_bytes=25)
    assert (len(young.offset_index), len(young.time_index)) == (2, 1)
    assert roll(young) is RollReason.TIME_INDEX_FULL
    young.seal()
    assert len(young.time_index) == 2  # the reserved slot
