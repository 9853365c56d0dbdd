"""Recovery of one segment: each case of the table from real bytes, and the resulting files.

Cases 109 to 111 are Kafka's (LogSegmentTest).
"""

import struct
from collections.abc import Sequence

import pytest

from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.producers import ProducerStateManager, within
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import Record
from streamlog.records.table import BatchTable
from streamlog.segment.recovery import RecoveryReport
from streamlog.segment.txn_index import AbortedTxn
from tests.support.batches import message_set
from tests.support.recovery import (
    BASE,
    LOG,
    NEXT,
    PLANS,
    STARTS,
    WHOLE,
    changed,
    flip,
    kept,
    log_with,
    recover,
    refused,
)
from tests.support.segments import (
    DIRECTORY,
    NOW_MS,
    BatchPlan,
    file_names,
    make_batch,
    make_batches,
    open_segment,
    read_bytes,
    table_of,
    write_bytes,
)


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


def test_b_gap_before_the_next_segment_is_allowed() -> None:
    assert recover(log_with(WHOLE), durable=NEXT + 50, is_last=False).case == "@B"


def test_c_missing_synced_records_at_the_end_are_refused() -> None:
    assert refused(log_with(WHOLE), durable=NEXT + 1) == "@C"
    assert recover(log_with(WHOLE), durable=NEXT).case == "@A"


@pytest.mark.parametrize("is_last", [True, False])
def test_e_leader_epoch_that_goes_back_is_refused(is_last: bool) -> None:
    data = changed(WHOLE, STARTS[5] + 12, b"\0\0\0\3")
    assert refused(log_with(data), is_last=is_last) == "@E"
    at_the_end = changed(WHOLE, STARTS[11] + 12, b"\0\0\0\3")
    assert refused(log_with(at_the_end)) == "@E"
    assert refused(log_with(WHOLE), previous_epoch=5) == "@E"


def test_no_leader_epoch_at_all_is_accepted() -> None:
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


def test_f_a_base_offset_that_was_raised_to_that_of_the_next_batch_makes_no_copy() -> None:
    """Both have the same offsets; the later batch has other records."""
    plans = [*PLANS[:10], PLANS[10]._replace(base_offset=PLANS[11].base_offset), PLANS[11]]
    assert refused(log_with(make_batches(plans))) == "@F"


def test_f_offsets_beyond_the_range_of_a_segment_are_refused() -> None:
    data = WHOLE + make_batch(BatchPlan(BASE + 2**31, 1, leader_epoch=4))
    assert refused(log_with(data)) == "@F"


def test_g_copy_in_place_of_synced_records_is_refused() -> None:
    data = make_batches([*PLANS[:11], PLANS[3]])
    assert refused(log_with(data), durable=NEXT) == "@G"


def test_h_copy_before_sound_batches_is_refused() -> None:
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
def test_i_copies_after_the_end_are_truncated_and_kept(stale: Sequence[BatchPlan]) -> None:
    tail = make_batches(stale)
    fs = log_with(WHOLE + tail)
    report = recover(fs, durable=NEXT)
    assert (report.case, report.cut_size, report.next_offset) == ("@I", len(tail), NEXT)
    assert kept(fs, report) == tail.rstrip(b"\0")
    assert read_bytes(fs, LOG) == WHOLE


@pytest.mark.parametrize("magic", [3, 0x12, 0x7F])
@pytest.mark.parametrize("at", [5, 11])
def test_j_complete_batch_of_another_magic_is_refused(magic: int, at: int) -> None:
    assert refused(log_with(changed(WHOLE, STARTS[at] + 16, bytes([magic])))) == "@J"


@pytest.mark.parametrize("magic", [0, 1])
def test_d_sound_messages_of_format_0_or_1_are_kept(magic: int) -> None:
    message = message_set(magic, [Record(b"k", b"hello", (), NOW_MS)], base_offset=BASE)
    assert recover(log_with(message)).next_offset == BASE + 1
    behind = message_set(magic, [Record(None, b"hello")], base_offset=NEXT)
    report = recover(log_with(WHOLE + behind))
    assert (report.next_offset, report.batch_count, report.case) == (NEXT + 1, 13, "@A")


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
def test_p_zeros_after_the_end_are_truncated_and_not_kept(zeros: int) -> None:
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
def test_o_hole_before_sound_batches_is_refused(hole: int) -> None:
    data = changed(WHOLE, STARTS[9], bytes(hole))
    assert refused(log_with(data)) == "@O"


def test_o_wrong_length_does_not_hide_what_follows() -> None:
    for length in (1 << 20, 10, 95, -1):
        data = changed(WHOLE, STARTS[5] + 8, struct.pack(">i", length))
        assert refused(log_with(data)) in ("@O", "@L")
    at_the_end = changed(WHOLE, STARTS[11] + 8, struct.pack(">i", 1 << 20))
    assert recover(log_with(at_the_end)).case == "@P"


def test_sound_batches_of_older_offsets_do_not_make_a_tail_damage() -> None:
    """Recycled blocks may hold them; only offsets that may follow count."""
    fs = log_with(WHOLE[: STARTS[11] + 40] + make_batches(PLANS[2:5]))
    assert recover(fs).case == "@M"


def test_a_tail_full_of_false_headers_is_refused_in_bounded_time() -> None:
    header = make_batch(BatchPlan(NEXT, 1, 61, leader_epoch=4))[:61]
    false = changed(changed(header, 8, struct.pack(">i", 8 << 20)), 17, b"\0\0\0\0")
    tail = b"torn" + false * ((16 << 20) // 61)
    assert refused(log_with(WHOLE + tail)) in ("@L", "@O")


# ---- Kafka's cases ------------------------------------------------------------------------------
def test_109_corrupted_message_is_truncated_at_the_end_and_refused_in_the_middle() -> None:
    """Kafka truncates in both places; truncating in the middle would lose sound records."""
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
        producers.update(within(earlier), table_of(earlier))
    segment = open_segment(fs, BASE)
    segment.reset_aborted()

    def on_batch(table: BatchTable) -> None:
        for aborted in producers.update(segment.read, table):
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
        on_batch=lambda table: cache.assign_from(table),
    )
    assert [tuple(entry) for entry in cache.entries] == [(0, 104), (1, 106), (2, 110)]
