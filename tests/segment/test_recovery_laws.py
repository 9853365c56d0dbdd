"""Results of recovery: indexes, kept tails; after any damage, and after a crash at any moment."""

import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import CorruptIndexError, CorruptRecordError, StorageError
from streamlog.fs.api import OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem, SimulatedCrash
from streamlog.records.table import BatchTable
from streamlog.segment.recovery import MAX_TORN_FILES
from streamlog.segment.segment import Segment
from streamlog.segment.txn_index import AbortedTxn
from tests.support.recovery import (
    BASE,
    LOG,
    NEXT,
    PLANS,
    SETTINGS,
    STARTS,
    WHOLE,
    flip,
    kept,
    log_with,
    recover,
)
from tests.support.segments import (
    DIRECTORY,
    NOW_MS,
    BatchPlan,
    append,
    config,
    file_names,
    make_batches,
    memory_fs,
    new_segment,
    open_segment,
    read_bytes,
    write_bytes,
)


# ---- what recovery leaves -----------------------------------------------------------------------
def test_indexes_are_rebuilt_as_an_uninterrupted_writer_makes_them() -> None:
    written = memory_fs()
    segment = new_segment(written, BASE, **SETTINGS)
    for plan in PLANS:
        append(segment, plan)
    segment.seal()
    for garbage in (b"", b"\0" * 800, b"garbage!"):
        fs = log_with(WHOLE)
        for kind in ("index", "timeindex"):
            write_bytes(fs, f"{DIRECTORY}/{BASE:020d}.{kind}", garbage)
        recover(fs)
        for kind in ("index", "timeindex"):
            path = f"{DIRECTORY}/{BASE:020d}.{kind}"
            assert read_bytes(fs, path) == read_bytes(written, path)


def test_recovering_twice_changes_nothing() -> None:
    fs = log_with(WHOLE[:-10])
    first = recover(fs)
    files = {name: read_bytes(fs, f"{DIRECTORY}/{name}") for name in file_names(fs)}
    second = recover(fs)
    assert (second.size, second.next_offset, second.case) == (first.size, first.next_offset, "@A")
    assert {name: read_bytes(fs, f"{DIRECTORY}/{name}") for name in file_names(fs)} == files


def test_appends_continue_after_a_truncation() -> None:
    fs = log_with(WHOLE[:-10])
    segment = open_segment(fs, BASE, **SETTINGS)
    segment.recover(durable_offset=None, is_last=True)
    append(segment, BatchPlan(NEXT - 3, 3, 200, NOW_MS + 50, leader_epoch=5))
    segment.seal()
    again = open_segment(fs, BASE, writable=False, **SETTINGS)
    assert again.next_offset() == NEXT and again.max_timestamp == NOW_MS + 50


def test_batches_before_a_known_size_are_not_walked_again() -> None:
    fs = log_with(WHOLE)
    recover(fs)
    more = make_batches(
        BatchPlan(NEXT + at, 1, 120, NOW_MS + 100 + at, leader_epoch=4) for at in range(9)
    )
    write_bytes(fs, LOG, WHOLE + more + b"torn")
    segment = open_segment(fs, BASE, **SETTINGS)
    seen: list[int] = []
    report = segment.recover(
        durable_offset=BASE,
        is_last=True,
        on_batch=lambda table: seen.extend(table.base_offset.tolist()),
        known_size=len(WHOLE),
    )
    assert seen == [NEXT + at for at in range(9)]
    assert (report.batch_count, report.next_offset, report.cut_size) == (9, NEXT + 9, 4)
    whole = log_with(WHOLE + more)
    recover(whole)
    assert [segment.offset_index[at] for at in range(len(segment.offset_index))] == [
        *map(open_segment(whole, BASE).offset_index.__getitem__, range(len(segment.offset_index)))
    ]


@pytest.mark.parametrize("known_size", [1, STARTS[5] + 1, len(WHOLE) + 1])
def test_a_known_size_that_is_no_batch_boundary_is_not_trusted(known_size: int) -> None:
    fs = log_with(WHOLE)
    segment = open_segment(fs, BASE, **SETTINGS)
    report = segment.recover(durable_offset=None, is_last=True, known_size=known_size)
    assert (report.batch_count, report.next_offset) == (12, NEXT)


def test_the_bytes_of_batches_that_are_handed_on_can_be_read() -> None:
    large = [BatchPlan(BASE + at, 1, 3 << 20, leader_epoch=1) for at in range(5)]
    fs = log_with(make_batches(large))
    collected = b""

    def on_batch(table: BatchTable) -> None:
        nonlocal collected
        for position, size in zip(table.position.tolist(), table.size.tolist(), strict=True):
            collected += segment.read(position, size)

    segment = open_segment(fs, BASE)
    report = segment.recover(durable_offset=None, is_last=True, on_batch=on_batch)
    assert report.batch_count == 5 and collected == make_batches(large)


def test_the_oldest_of_many_torn_tails_is_dropped_and_equal_ones_are_kept_once() -> None:
    fs = memory_fs()
    for number in range(MAX_TORN_FILES + 2):
        for _ in range(2):
            write_bytes(fs, LOG, WHOLE + b"tail %d" % number)
            recover(fs)
    names = [name for name in file_names(fs) if "torn" in name]
    assert len(names) == MAX_TORN_FILES
    tails = {read_bytes(fs, f"{DIRECTORY}/{name}") for name in names}
    assert b"tail %d" % (MAX_TORN_FILES + 1) in tails and len(tails) == MAX_TORN_FILES


def test_truncated_transactions_leave_the_index_and_a_damaged_index_stays_damaged() -> None:
    fs = log_with(WHOLE[:-10])
    index = f"{DIRECTORY}/{BASE:020d}.txnindex"
    entries = [(0, 1, BASE, BASE + 5, BASE + 6), (0, 2, BASE, NEXT - 1, NEXT)]
    write_bytes(fs, index, b"".join(struct.pack(">hqqqq", *entry) for entry in entries))
    recover(fs)
    assert open_segment(fs, BASE).txn_index.entries == [AbortedTxn(1, BASE, BASE + 5, BASE + 6)]
    write_bytes(fs, index, b"garbage")
    recover(fs)
    with pytest.raises(CorruptIndexError):
        open_segment(fs, BASE).aborted_transactions(0, NEXT)


# ---- any damage, any crash ----------------------------------------------------------------------
@settings(deadline=None, max_examples=150)
@given(st.data())
def test_recovery_of_any_damage_keeps_a_prefix_or_refuses(data: st.DataObject) -> None:
    """Law: a prefix of the written batches remains, including everything below the mark."""
    damaged = bytearray(WHOLE[: data.draw(st.integers(0, len(WHOLE)))])
    damaged += data.draw(st.one_of(st.just(b""), st.binary(max_size=200)))
    for _ in range(data.draw(st.integers(0, 2))):
        if damaged:
            at = data.draw(st.integers(0, len(damaged) - 1))
            damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    durable = data.draw(st.one_of(st.none(), st.integers(BASE, NEXT)))
    fs = log_with(bytes(damaged))
    try:
        report = recover(fs, durable=durable)
    except CorruptRecordError:
        return
    assert report.next_offset >= (durable or 0)
    remains = read_bytes(fs, LOG)
    differs = [at for at in range(len(remains)) if remains[at] != WHOLE[at : at + 1][0]]
    # Base offset (upwards) and leader epoch are outside the checksum.
    assert all(min(at - start for start in STARTS if start <= at) < 16 for at in differs)
    tail = bytes(damaged[len(remains) :]).rstrip(b"\0")
    assert (kept(fs, report) if tail else b"") == tail


@pytest.mark.parametrize("torn", [b"", b"torn tail of some bytes"])
def test_a_crash_at_any_operation_of_recovery_is_recovered_from(torn: bytes) -> None:
    plain = log_with(WHOLE + torn)
    counting = FaultyFileSystem(plain.crash_clone(Random(0), power=False))
    segment = Segment.open(counting, DIRECTORY, BASE, config=config(**SETTINGS), writable=True)
    segment.recover(durable_offset=NEXT, is_last=True)
    assert len(counting.operations) >= 4
    for number in range(1, len(counting.operations) + 1):
        inner = plain.crash_clone(Random(0), power=False)
        dying = FaultyFileSystem(inner, Fault(at=number))
        segment = Segment.open(dying, DIRECTORY, BASE, config=config(**SETTINGS), writable=True)
        with pytest.raises(SimulatedCrash):
            segment.recover(durable_offset=NEXT, is_last=True)
        report = recover(inner, durable=NEXT)
        assert report.next_offset == NEXT and read_bytes(inner, LOG) == WHOLE
        assert not torn or torn in {
            read_bytes(inner, f"{DIRECTORY}/{name}") for name in file_names(inner)
        }


@pytest.mark.parametrize("operation", ["truncate", "sync", "create"])
def test_a_disk_error_during_a_truncation_is_raised(operation: str) -> None:
    fs = log_with(WHOLE + b"torn")
    faulty = FaultyFileSystem(fs, Fault(operation=operation, errno=5))
    segment = Segment.open(faulty, DIRECTORY, BASE, config=config(**SETTINGS), writable=True)
    with pytest.raises(StorageError):
        segment.recover(durable_offset=None, is_last=True)
    assert recover(fs).next_offset == NEXT
    assert b"torn" in {read_bytes(fs, f"{DIRECTORY}/{name}") for name in file_names(fs)}


def test_recovery_reads_the_size_to_truncate_to_from_the_disk() -> None:
    """The file may have grown since the segment was opened."""
    fs = log_with(make_batches(PLANS[:3]))
    segment = open_segment(fs, BASE, **SETTINGS)
    with fs.open(LOG, OpenMode.WRITE) as file:
        file.pwrite(WHOLE, 0)
    assert segment.recover(durable_offset=None, is_last=True).next_offset == NEXT


def test_the_last_batch_is_named_in_the_refusal() -> None:
    fs = log_with(flip(5, 70)(WHOLE))
    with pytest.raises(CorruptRecordError) as caught:
        recover(fs)
    assert (caught.value.position, caught.value.offset) == (STARTS[5], BASE + 15)
