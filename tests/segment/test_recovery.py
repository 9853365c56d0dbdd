"""Recovery of one segment: each case of the table from real bytes, and what it leaves behind.

Cases 109 to 111 are Kafka's (LogSegmentTest).
"""

import struct
from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.binary.crc import crc32
from streamlog.errors import CorruptIndexError, CorruptRecordError, StorageError
from streamlog.fs.api import OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem, SimulatedCrash
from streamlog.fs.memory import MemoryFileSystem
from streamlog.log.epochs import LeaderEpochCache
from streamlog.log.producers import ProducerStateManager
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import Record
from streamlog.segment.recovery import RecoveryReport
from streamlog.segment.segment import Segment
from streamlog.segment.torn_tail import MAX_TORN_FILES
from streamlog.segment.txn_index import AbortedTxn
from tests.support.segments import (
    DIRECTORY,
    NOW_MS,
    BatchPlan,
    append,
    config,
    file_names,
    make_batch,
    make_batches,
    memory_fs,
    new_segment,
    open_segment,
    read_bytes,
    table_of,
    write_bytes,
)

BASE = 100
LOG = f"{DIRECTORY}/{BASE:020d}.log"
SETTINGS = {"index_interval_bytes": 300}
PLANS = [BatchPlan(BASE + 3 * at, 3, 90 + at, NOW_MS + at, leader_epoch=4) for at in range(12)]
NEXT = BASE + 36


def log_with(data: bytes) -> MemoryFileSystem:
    fs = memory_fs()
    write_bytes(fs, LOG, data)
    return fs


def recover(
    fs: MemoryFileSystem,
    *,
    durable: int | None = None,
    is_last: bool = True,
    previous_epoch: int = -1,
) -> RecoveryReport:
    segment = open_segment(fs, BASE, **SETTINGS)
    report = segment.recover(durable_offset=durable, is_last=is_last, previous_epoch=previous_epoch)
    assert (segment.size, segment.next_offset()) == (report.size, report.next_offset)
    assert fs.stat(LOG).size == report.size  # type: ignore[union-attr]
    return report


def refused(fs: MemoryFileSystem, **facts: object) -> str:
    """Return the case by which recovery refuses, having changed nothing."""
    before = {name: read_bytes(fs, f"{DIRECTORY}/{name}") for name in file_names(fs)}
    with pytest.raises(CorruptRecordError) as caught:
        recover(fs, **facts)  # type: ignore[arg-type]
    assert caught.value.path == LOG
    assert caught.value.position is not None and caught.value.offset is not None
    assert caught.value.hint is not None and "truncate -s" in caught.value.hint
    after = {name: read_bytes(fs, f"{DIRECTORY}/{name}") for name in file_names(fs)}
    assert after == before
    return caught.value.what.rpartition("(case ")[2][:2]


def kept(fs: MemoryFileSystem, report: RecoveryReport) -> bytes:
    return b"" if report.kept_path is None else read_bytes(fs, report.kept_path)


WHOLE = make_batches(PLANS)

STARTS = [sum(plan.size for plan in PLANS[:at]) for at in range(len(PLANS) + 1)]


def changed(data: bytes, position: int, value: bytes) -> bytes:
    return data[:position] + value + data[position + len(value) :]


# ---- the cases, one by one ----------------------------------------------------------------------
def test_a_sound_segment_is_left_alone() -> None:
    fs = log_with(WHOLE)
    report = recover(fs)
    assert report == RecoveryReport(
        base_offset=BASE,
        next_offset=NEXT,
        leader_epoch=4,
        size=len(WHOLE),
        batch_count=12,
        case="@A",
    )
    assert read_bytes(fs, LOG) == WHOLE


def test_b_gap_in_front_of_the_next_segment_is_allowed() -> None:
    assert recover(log_with(WHOLE), durable=NEXT + 50, is_last=False).case == "@B"


def test_c_synced_records_that_are_missing_at_the_end_are_refused() -> None:
    assert refused(log_with(WHOLE), durable=NEXT + 1) == "@C"
    assert recover(log_with(WHOLE), durable=NEXT).case == "@A"


@pytest.mark.parametrize("is_last", [True, False])
def test_e_leader_epoch_that_goes_back_is_refused(is_last: bool) -> None:
    data = changed(WHOLE, STARTS[5] + 12, b"\0\0\0\3")
    assert refused(log_with(data), is_last=is_last) == "@E"
    at_the_end = changed(WHOLE, STARTS[11] + 12, b"\0\0\0\3")
    assert refused(log_with(at_the_end)) == "@E"
    assert refused(log_with(WHOLE), previous_epoch=5) == "@E"


def test_no_leader_epoch_at_all_is_in_order() -> None:
    data = changed(WHOLE, STARTS[5] + 12, b"\xff" * 4)
    assert recover(log_with(data)).leader_epoch == 4


@pytest.mark.parametrize("durable", [None, BASE, NEXT])
def test_f_batch_out_of_order_that_is_no_copy_is_refused(durable: int | None) -> None:
    exchanged = make_batches([*PLANS[:10], PLANS[11], PLANS[10]])
    assert refused(log_with(exchanged), durable=durable) == "@F"
    middle = make_batches([*PLANS[:4], PLANS[5], PLANS[4], *PLANS[6:]])
    assert refused(log_with(middle), durable=durable) == "@F"
    flipped = changed(WHOLE, STARTS[11] + 6, b"\0")  # base offset of the last batch, downwards
    other = struct.pack(">q", BASE + 2)
    assert refused(log_with(changed(flipped, STARTS[11], other)), durable=durable) == "@F"


def test_f_offsets_beyond_what_a_segment_holds_are_refused() -> None:
    data = WHOLE + make_batch(BatchPlan(BASE + 2**31, 1, leader_epoch=4))
    assert refused(log_with(data)) == "@F"


def test_g_copy_where_synced_records_should_stand_is_refused() -> None:
    data = make_batches([*PLANS[:11], PLANS[3]])
    assert refused(log_with(data), durable=NEXT) == "@G"


def test_h_copy_in_front_of_sound_batches_is_refused() -> None:
    assert refused(log_with(make_batches([*PLANS[:11], PLANS[3], PLANS[11]]))) == "@H"
    assert refused(log_with(make_batches([*PLANS, PLANS[3]])), is_last=False) == "@H"


@pytest.mark.parametrize(
    "stale",
    [
        [PLANS[11]],
        [PLANS[3], PLANS[4]],
        [BatchPlan(5, 3, 90), BatchPlan(8, 3, 90)],  # of an older segment
    ],
    ids=["last batch twice", "old batches", "older segment"],
)
def test_i_copies_behind_the_end_are_cut_and_kept(stale: Sequence[BatchPlan]) -> None:
    tail = make_batches(stale)
    fs = log_with(WHOLE + tail)
    report = recover(fs, durable=NEXT)
    assert (report.case, report.cut_size, report.next_offset) == ("@I", len(tail), NEXT)
    assert kept(fs, report) == tail.rstrip(b"\0")
    assert read_bytes(fs, LOG) == WHOLE


@pytest.mark.parametrize("magic", [3, 0x12, 0x7F])
@pytest.mark.parametrize("at", [5, 11])
def test_j_whole_batch_of_another_magic_is_refused(magic: int, at: int) -> None:
    assert refused(log_with(changed(WHOLE, STARTS[at] + 16, bytes([magic])))) == "@J"


@pytest.mark.parametrize("magic", [0, 1])
def test_j_sound_message_of_format_0_or_1_is_refused(magic: int) -> None:
    """A log of old messages must never be taken for a torn tail."""
    body = struct.pack(">bb", magic, 0) + bytes(8 * magic) + struct.pack(">ii", -1, 5) + b"hello"
    message = struct.pack(">qiI", BASE, len(body) + 4, crc32(body)) + body
    assert refused(log_with(message)) == "@J"
    assert refused(log_with(WHOLE + message)) == "@J"


def flip(batch: int, byte: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        at = STARTS[batch] + byte
        return changed(data, at, bytes([data[at] ^ 0x40]))

    return change


@pytest.mark.parametrize("byte", [17, 21, 26, 28, 44, 60, 80])
def test_k_l_m_wrong_checksum_by_place_and_mark(byte: int) -> None:
    in_the_middle, at_the_end = flip(5, byte)(WHOLE), flip(11, byte)(WHOLE)
    assert refused(log_with(in_the_middle), durable=NEXT) == "@K"
    assert refused(log_with(at_the_end), durable=NEXT) == "@K"
    assert refused(log_with(in_the_middle)) == "@L"
    assert refused(log_with(at_the_end), is_last=False) == "@L"
    fs = log_with(at_the_end)
    report = recover(fs, durable=NEXT - 3)
    assert (report.case, report.size, report.next_offset) == ("@M", STARTS[11], NEXT - 3)
    assert kept(fs, report) == at_the_end[STARTS[11] :]


@pytest.mark.parametrize("left", [1, 11, 12, 16, 17, 18, 60, 61, 100])
def test_n_o_p_torn_batch_by_place_and_mark(left: int) -> None:
    torn = WHOLE[: STARTS[11] + left]
    assert refused(log_with(torn), durable=NEXT) == "@N"
    assert refused(log_with(torn), is_last=False) == "@O"
    fs = log_with(torn)
    report = recover(fs)
    assert (report.case, report.cut_size, report.next_offset) == ("@P", left, NEXT - 3)
    assert kept(fs, report) == torn[STARTS[11] :].rstrip(b"\0")


@pytest.mark.parametrize("zeros", [1, 17, 18, 61, 4096, 9 << 20])
def test_p_zeros_behind_the_end_are_cut_and_not_kept(zeros: int) -> None:
    fs = log_with(WHOLE + bytes(zeros))
    report = recover(fs, durable=NEXT)
    assert (report.cut_size, report.kept_path, report.next_offset) == (zeros, None, NEXT)
    assert [name for name in file_names(fs) if "torn" in name] == []


def test_m_last_batches_lost_to_zeros_are_a_torn_tail() -> None:
    fs = log_with(WHOLE[: STARTS[9] + 30] + bytes(len(WHOLE) - STARTS[9] - 30))
    report = recover(fs, durable=BASE + 27)
    assert (report.case, report.next_offset) == ("@M", BASE + 27)
    assert kept(fs, report) == WHOLE[STARTS[9] : STARTS[9] + 30]


@pytest.mark.parametrize("hole", [12, 61, 90])
def test_o_hole_in_front_of_sound_batches_is_refused(hole: int) -> None:
    data = changed(WHOLE, STARTS[9], bytes(hole))
    assert refused(log_with(data)) == "@O"


def test_o_wrong_length_does_not_hide_what_follows() -> None:
    for length in (1 << 20, 10, 95, -1):
        data = changed(WHOLE, STARTS[5] + 8, struct.pack(">i", length))
        assert refused(log_with(data)) in ("@O", "@L")
    at_the_end = changed(WHOLE, STARTS[11] + 8, struct.pack(">i", 1 << 20))
    assert recover(log_with(at_the_end)).case == "@P"


def test_sound_batches_of_older_offsets_do_not_make_a_tail_damage() -> None:
    """Recycled blocks may hold them; only offsets that could go on count as followers."""
    fs = log_with(WHOLE[: STARTS[11] + 40] + make_batches(PLANS[2:5]))
    assert recover(fs).case == "@M"


def test_a_tail_full_of_false_headers_is_refused_in_bounded_time() -> None:
    header = make_batch(BatchPlan(NEXT, 1, 61, leader_epoch=4))[:61]
    false = changed(changed(header, 8, struct.pack(">i", 8 << 20)), 17, b"\0\0\0\0")
    tail = b"torn" + false * ((16 << 20) // 61)
    assert refused(log_with(WHOLE + tail)) in ("@L", "@O")


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


def test_appends_go_on_after_a_cut() -> None:
    fs = log_with(WHOLE[:-10])
    segment = open_segment(fs, BASE, **SETTINGS)
    segment.recover(durable_offset=None, is_last=True)
    append(segment, BatchPlan(NEXT - 3, 3, 200, NOW_MS + 50, leader_epoch=5))
    segment.seal()
    again = open_segment(fs, BASE, writable=False, **SETTINGS)
    assert again.next_offset() == NEXT and again.max_timestamp == NOW_MS + 50


def test_what_lies_before_a_known_size_is_not_walked_again() -> None:
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
        on_batch=lambda buffer, table: seen.extend(table.base_offset.tolist()),
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
def test_a_known_size_that_is_no_border_is_not_believed(known_size: int) -> None:
    fs = log_with(WHOLE)
    segment = open_segment(fs, BASE, **SETTINGS)
    report = segment.recover(durable_offset=None, is_last=True, known_size=known_size)
    assert (report.batch_count, report.next_offset) == (12, NEXT)


def test_batches_are_handed_on_with_their_bytes() -> None:
    large = [BatchPlan(BASE + at, 1, 3 << 20, leader_epoch=1) for at in range(5)]
    fs = log_with(make_batches(large))
    collected = b""

    def on_batch(buffer: object, table: object) -> None:
        nonlocal collected
        for position, size in zip(table.position, table.size, strict=True):  # type: ignore[attr-defined]
            collected += buffer[position : position + size].tobytes()  # type: ignore[index]

    segment = open_segment(fs, BASE)
    report = segment.recover(durable_offset=None, is_last=True, on_batch=on_batch)
    assert report.batch_count == 5 and collected == make_batches(large)


def test_of_many_torn_tails_the_oldest_gives_way_and_equal_ones_are_kept_once() -> None:
    fs = memory_fs()
    for number in range(MAX_TORN_FILES + 2):
        for _ in range(2):
            write_bytes(fs, LOG, WHOLE + b"tail %d" % number)
            recover(fs)
    names = [name for name in file_names(fs) if "torn" in name]
    assert len(names) == MAX_TORN_FILES
    tails = {read_bytes(fs, f"{DIRECTORY}/{name}") for name in names}
    assert b"tail %d" % (MAX_TORN_FILES + 1) in tails and len(tails) == MAX_TORN_FILES


def test_transactions_that_were_cut_leave_the_index_and_a_damaged_index_stays_damaged() -> None:
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


# ---- Kafka's cases ------------------------------------------------------------------------------
def test_109_corrupted_message_at_the_end_is_cut_in_the_middle_refused() -> None:
    """Kafka cuts in both places; cutting in the middle would lose sound records."""
    for batch in range(12):
        fs = log_with(flip(batch, 75)(WHOLE))
        if batch == 11:
            assert recover(fs).size == STARTS[11]
        else:
            assert refused(fs) == "@L"


def transactional(offset: int, producer_id: int, *, count: int = 2) -> bytes:
    builder = BatchBuilder(
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
        partition_leader_epoch=0,
    )
    for number in range(count):
        builder.append(Record(b"k", b"v", timestamp=NOW_MS, offset=offset + number))
    return builder.build()


def marker(kind: ControlRecordType, offset: int, producer_id: int) -> bytes:
    return build_marker(
        EndTransactionMarker(kind, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=NOW_MS,
        base_offset=offset,
        partition_leader_epoch=0,
    )


@pytest.mark.parametrize("began_at", [102, 75])
def test_110_recovery_rebuilds_the_aborted_transactions(began_at: int) -> None:
    fs = log_with(
        transactional(100, 5)
        + transactional(102, 10)
        + make_batch(BatchPlan(104, 2))
        + marker(ControlRecordType.ABORT, 106, 10)
        + marker(ControlRecordType.COMMIT, 107, 5)
    )
    write_bytes(fs, f"{DIRECTORY}/{BASE:020d}.txnindex", b"garbage")
    producers = ProducerStateManager()
    if began_at == 75:
        earlier = transactional(75, 10)
        producers.update(earlier, table_of(earlier))
    segment = open_segment(fs, BASE)
    segment.reset_aborted()

    def on_batch(buffer: object, table: object) -> None:
        for aborted in producers.update(buffer, table):  # type: ignore[arg-type]
            segment.append_aborted(aborted)

    segment.recover(durable_offset=None, is_last=True, on_batch=on_batch)
    assert segment.txn_index.entries == [AbortedTxn(10, began_at, 106, 100)]
    assert producers.map_end_offset == 108
    assert open_segment(fs, BASE).txn_index.entries == segment.txn_index.entries


def test_111_recovery_rebuilds_the_leader_epochs() -> None:
    epochs = [(104, 0), (105, 0), (106, 1), (108, 1), (110, 2)]
    fs = log_with(make_batches(BatchPlan(offset, 1, leader_epoch=e) for offset, e in epochs))
    cache = LeaderEpochCache()
    segment = open_segment(fs, BASE)
    segment.recover(
        durable_offset=None,
        is_last=True,
        on_batch=lambda buffer, table: cache.assign_from(table),
    )
    assert [tuple(entry) for entry in cache.entries] == [(0, 104), (1, 106), (2, 110)]


# ---- any damage, any crash ----------------------------------------------------------------------
@settings(deadline=None, max_examples=150)
@given(st.data())
def test_recovery_of_any_damage_keeps_a_prefix_or_refuses(data: st.DataObject) -> None:
    """Law: what remains is a prefix of what was written, and all of it below the mark."""
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
    # Base offset (upwards) and leader epoch lie outside of the checksum.
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
def test_an_error_of_the_disk_during_a_cut_is_told(operation: str) -> None:
    fs = log_with(WHOLE + b"torn")
    faulty = FaultyFileSystem(fs, Fault(operation=operation, errno=5))
    segment = Segment.open(faulty, DIRECTORY, BASE, config=config(**SETTINGS), writable=True)
    with pytest.raises(StorageError):
        segment.recover(durable_offset=None, is_last=True)
    assert recover(fs).next_offset == NEXT
    assert b"torn" in {read_bytes(fs, f"{DIRECTORY}/{name}") for name in file_names(fs)}


def test_recovery_reads_from_the_disk_what_it_cuts_by() -> None:
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
