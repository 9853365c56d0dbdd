"""Segments and their files: failing disks, power cuts, creating, removing, following a writer."""

import struct
import threading
from errno import EIO, ENOSPC
from random import Random

import pytest

from streamlog.errors import (
    DiskFullError,
    FileExistsAlreadyError,
    FileMissingError,
    LimitExceededError,
    StorageError,
)
from streamlog.fs.api import OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem, Moment
from streamlog.fs.local import LocalFileSystem
from streamlog.segment.segment import Segment
from streamlog.segment.txn_index import AbortedTxn
from tests.support.segments import (
    DIRECTORY,
    NOW_MS,
    BatchPlan,
    append,
    config,
    dense_segment,
    file_names,
    last_offsets,
    make_batches,
    memory_fs,
    new_segment,
    open_segment,
    read_bytes,
    write_bytes,
)

LOG = f"{DIRECTORY}/{40:020d}.log"
INDEX = f"{DIRECTORY}/{40:020d}.index"
TIME_INDEX = f"{DIRECTORY}/{40:020d}.timeindex"


# ---- what a full or failing disk does -----------------------------------------------------------
def test_append_interrupted_by_a_full_disk_leaves_its_complete_batches() -> None:
    inner = memory_fs()
    fault = Fault(
        operation="pwrite", path_suffix=".log", at=3, errno=ENOSPC, moment=Moment.TORN, portion=0.7
    )
    fs = FaultyFileSystem(inner, fault)
    segment = Segment.create(fs, DIRECTORY, 40, config=config(), now_ms=NOW_MS)
    append(segment, BatchPlan(40, 1))
    append(segment, BatchPlan(41, 1))
    before = (segment.size, segment.next_offset(), segment.max_timestamp)
    with pytest.raises(DiskFullError):
        append(segment, *(BatchPlan(42 + at, 1, 100, NOW_MS + 9) for at in range(4)))
    assert (segment.size, segment.next_offset(), segment.max_timestamp) == before
    assert segment.cut_torn_tail() == 2  # 280 of 400 bytes were written
    assert (segment.size, segment.next_offset(), segment.max_timestamp) == (400, 44, NOW_MS + 9)
    assert inner.stat(LOG).size == 400
    append(segment, BatchPlan(44, 1))
    assert last_offsets(segment.read(0, 1000)) == [40, 41, 42, 43, 44]


def test_torn_first_append_leaves_an_empty_segment() -> None:
    fault = Fault(operation="pwrite", errno=ENOSPC, moment=Moment.TORN, portion=0.5)
    segment = Segment.create(
        FaultyFileSystem(memory_fs(), fault), DIRECTORY, 40, config=config(), now_ms=NOW_MS
    )
    with pytest.raises(DiskFullError):
        append(segment, BatchPlan(40, 1, 100, NOW_MS + 7))
    assert segment.cut_torn_tail() == 0
    assert segment.is_empty and segment.first_batch_timestamp is None
    append(segment, BatchPlan(40, 1, 100, NOW_MS))
    assert segment.first_batch_timestamp == NOW_MS


def test_index_entries_that_the_disk_refused_are_written_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner = memory_fs()
    fs = FaultyFileSystem(
        inner, Fault(operation="pwrite", path_suffix=".index", errno=ENOSPC, moment=Moment.TORN)
    )
    segment = Segment.create(
        fs, DIRECTORY, 40, config=config(index_interval_bytes=100), now_ms=NOW_MS
    )
    for at in range(3):
        append(segment, BatchPlan(40 + at, 1, 101))
    assert "lags behind" in caplog.text and segment.next_offset() == 43
    append(segment, BatchPlan(43, 1, 101))
    segment.seal()
    again = open_segment(inner, 40, writable=False)
    assert [tuple(again.offset_index[at]) for at in range(3)] == [
        (41, 101),
        (42, 202),
        (43, 303),
    ]


@pytest.mark.parametrize("lives", [1, 2, 7])
def test_index_files_lag_a_little_and_the_next_writer_completes_them(lives: int) -> None:
    """However many writers a segment has, its index files become the same."""
    fs, size, count = memory_fs(), 5000, 140
    for life in range(lives):
        segment = open_segment(fs, 40) if life else new_segment(fs, 40)
        stored = []
        for at in range(life * count // lives, (life + 1) * count // lives):
            append(segment, BatchPlan(40 + at, 1, size, NOW_MS + at))
            stored.append(len(read_bytes(fs, INDEX)) // 8 if fs.stat(INDEX) else 0)
            assert len(segment.offset_index) == max(segment.size // size - 1, 0)
        assert len(segment.offset_index) - 14 < stored[-1] < len(segment.offset_index)
        assert len(set(stored)) <= 3 + len(stored) // 13
    reader = open_segment(fs, 40, writable=False)
    assert reader.next_offset() == 40 + count and len(reader.offset_index) == count - 1
    segment.seal()
    entries = [(1 + at, size * (1 + at)) for at in range(count - 1)]
    assert read_bytes(fs, INDEX) == b"".join(struct.pack(">ii", *each) for each in entries)
    times = [(NOW_MS + relative, relative) for relative, _ in entries]
    assert read_bytes(fs, TIME_INDEX) == b"".join(struct.pack(">qi", *each) for each in times)


def test_failed_sync_is_raised_and_the_data_not_trusted_afterwards() -> None:
    fs = FaultyFileSystem(memory_fs(), Fault(operation="sync", path_suffix=".log", errno=EIO))
    segment = Segment.create(fs, DIRECTORY, 40, config=config(), now_ms=NOW_MS)
    append(segment, BatchPlan(40, 1))
    for _ in range(2):
        with pytest.raises(StorageError):
            segment.sync()


def test_a_fresh_copy_is_synced_and_replaces_the_log() -> None:
    fs = memory_fs()
    segment = dense_segment(fs, 3)
    before = read_bytes(fs, LOG)
    faulty = FaultyFileSystem(fs)
    again = Segment.open(faulty, DIRECTORY, 40, config=config(), writable=True)
    again.copy_afresh()
    names = [operation.name for operation in faulty.operations]
    assert names[-5:] == ["create", "pwrite", "sync", "rename", "sync_directory"]
    assert segment.is_replaced() and not again.is_replaced()
    append(again, BatchPlan(160, 1))
    assert read_bytes(fs, LOG)[:300] == before and again.size > 300
    assert again.read(0, 300) == before


# ---- what sync makes durable --------------------------------------------------------------------
def test_synced_data_and_its_name_survive_a_power_cut() -> None:
    fs = memory_fs()
    fs.sync_directory("/logs")
    fs.sync_directory("/")
    segment = dense_segment(fs)
    segment.append_aborted(AbortedTxn(1, 40, 50, 51))
    segment.seal()
    segment.sync()
    indexes = read_bytes(fs, INDEX), read_bytes(fs, TIME_INDEX)
    append(segment, BatchPlan(160, 1))
    cut = fs.crash_clone(Random(1), power=True, loss="everything")
    again = open_segment(cut, 40, writable=False, index_interval_bytes=300)
    assert again.next_offset() == 160
    assert again.aborted_transactions(40, 50).aborted == [AbortedTxn(1, 40, 50, 51)]
    assert (read_bytes(cut, INDEX), read_bytes(cut, TIME_INDEX)) == indexes


def test_syncing_a_growing_segment_costs_one_sync_and_one_for_a_new_name() -> None:
    faulty = FaultyFileSystem(memory_fs())
    segment = Segment.create(
        faulty, DIRECTORY, 40, config=config(index_interval_bytes=0), now_ms=NOW_MS
    )

    def synced() -> list[str]:
        before = len(faulty.operations)
        segment.sync()
        return [operation.name for operation in faulty.operations[before:]]

    assert synced() == ["sync", "sync_directory"]
    for at in range(3):
        append(segment, BatchPlan(40 + at, 1))
    assert synced() == ["sync"]
    assert synced() == []


# ---- creating and opening -----------------------------------------------------------------------
def test_create_replaces_an_empty_file_and_leftover_indexes() -> None:
    fs = memory_fs()
    for path in (LOG, INDEX, TIME_INDEX):
        write_bytes(fs, path, b"" if path == LOG else b"leftover")
    segment = new_segment(fs, 40)
    assert file_names(fs) == [f"{40:020d}.log"]
    append(segment, BatchPlan(40, 1))
    assert segment.next_offset() == 41


def test_create_never_overwrites_records() -> None:
    fs = memory_fs()
    dense_segment(fs, 1)
    with pytest.raises(FileExistsAlreadyError, match="roll"):
        new_segment(fs, 40)
    assert fs.stat(LOG).size == 100


def test_opening_a_missing_or_impossible_segment_is_refused(tmp_path: object) -> None:
    with pytest.raises(FileMissingError):
        open_segment(memory_fs(), 40)
    local = LocalFileSystem()
    path = f"{tmp_path}/{0:020d}.log"
    with local.open(path, OpenMode.CREATE) as file:
        file.truncate(1 << 40)
    with pytest.raises(LimitExceededError, match="size limit of a segment") as caught:
        Segment.open(local, str(tmp_path), 0, config=config(), writable=False)
    assert caught.value.path == path


def test_reading_continues_after_the_files_are_removed() -> None:
    fs = memory_fs()
    dense_segment(fs).close()
    reader = open_segment(fs, 40, writable=False, index_interval_bytes=300)
    assert reader.next_offset() == 160
    for name in file_names(fs):
        fs.remove(f"{DIRECTORY}/{name}")
    found = reader.translate_offset(100)
    assert found is not None and last_offsets(reader.read(found.position, 100)) == [101]


def test_a_reader_never_writes() -> None:
    inner = memory_fs()
    dense_segment(inner).close()
    for name in file_names(inner):
        if not name.endswith(".log"):
            inner.remove(f"{DIRECTORY}/{name}")
    fs = FaultyFileSystem(inner)
    reader = Segment.open(fs, DIRECTORY, 40, config=config(), writable=False)
    assert reader.extend() and reader.next_offset() == 160
    assert reader.translate_offset(100) is not None
    assert reader.max_timestamp == NOW_MS + 59
    assert reader.aborted_transactions(0, 1000).aborted == []
    reader.close()
    assert fs.operations == []


# ---- following a writer -------------------------------------------------------------------------
def test_a_reader_follows_appends_and_stops_at_half_a_batch() -> None:
    fs = memory_fs()
    writer = dense_segment(fs, 1)
    reader = open_segment(fs, 40, writable=False, index_interval_bytes=300)
    assert reader.extend() and reader.next_offset() == 42
    assert not reader.extend()
    for at in range(1, 30):
        append(writer, BatchPlan(40 + 2 * at, 2, 100, NOW_MS + at))
        assert reader.extend()
        assert (reader.size, reader.next_offset()) == (writer.size, writer.next_offset())
    assert [tuple(entry) for entry in map(reader.offset_index.__getitem__, range(7))] == [
        tuple(entry) for entry in map(writer.offset_index.__getitem__, range(7))
    ]
    half = make_batches([BatchPlan(100, 2), BatchPlan(102, 2)])[:150]
    with fs.open(LOG, OpenMode.WRITE) as file:
        file.pwrite(half, writer.size)
    assert reader.extend() and reader.next_offset() == 102
    assert not reader.extend()
    found = reader.translate_offset(101)
    assert found is not None and found.offset == 100


def test_a_reader_continues_after_damage() -> None:
    fs = memory_fs()
    dense_segment(fs, 5).close()
    with fs.open(LOG, OpenMode.WRITE) as file:
        file.pwrite(b"\xff" * 8, 270)  # in the body of the third batch
    reader = open_segment(fs, 40, writable=False)
    assert reader.extend()
    assert (reader.size, reader.next_offset()) == (500, 50)
    found = reader.translate_offset(44)
    assert found is not None and found.offset == 44  # the error is raised when the batch is read


def test_a_reader_notices_a_truncated_tail() -> None:
    fs = memory_fs()
    writer = dense_segment(fs, 20)
    reader = open_segment(fs, 40, writable=False, index_interval_bytes=300)
    assert reader.extend() and reader.next_offset() == 80
    writer.truncate_to(60)
    assert reader.extend()
    assert (reader.size, reader.next_offset()) == (1000, 60)


def test_lookups_are_right_while_another_thread_appends() -> None:
    segment = new_segment(memory_fs(), 0, index_interval_bytes=200)
    append(segment, BatchPlan(0, 1))
    wrong: list[object] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            offset = segment.next_offset() - 1
            found = segment.translate_offset(offset)
            if found is None or not found.offset <= offset <= found.last_offset:
                wrong.append((offset, found))

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for at in range(1, 1500):
        append(segment, BatchPlan(at, 1))
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []


# ---- places --------------------------------------------------------------------------------------
def test_positions_and_offsets_translate_both_ways() -> None:
    segment = dense_segment(memory_fs())
    assert segment.approximate_position(100) == 3000
    assert segment.approximate_position(101) == 3000
    assert segment.approximate_position(40) == 0
    assert segment.approximate_position(10_000) == segment.size
    assert segment.offset_at(399) is None
    for position in (400, 3999, 5999):
        cut = segment.offset_at(position)
        assert cut is not None
        found = segment.translate_offset(cut)
        assert found is not None and found.offset == cut
        assert abs(found.position - position) <= 500
