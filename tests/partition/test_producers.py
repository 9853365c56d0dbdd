"""Producer state; numbers are the conformance cases of Kafka's ProducerStateManagerTest."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from streamlog.fs.api import OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.producer_snapshot import list_snapshots
from streamlog.partition.producer_state import BatchMetadata
from streamlog.partition.producers import ProducerStateManager, within
from streamlog.records.batch import BatchTable, scan_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import Record
from streamlog.records.validate import AppendOrigin
from streamlog.segment.segment import Segment
from streamlog.segment.txn_index import AbortedTxn

DIRECTORY = "/orders-0"
NOW = 1_700_000_000_000
DAY = 86_400_000
MAX = 2**31 - 1


def data(
    offset: int,
    *,
    pid: int = 1,
    epoch: int = 0,
    seq: int = 0,
    count: int = 1,
    txn: bool = False,
    at: int = NOW,
) -> bytes:
    builder = BatchBuilder(
        base_offset=offset, producer_id=pid, producer_epoch=epoch, base_sequence=seq,
        is_transactional=txn,
    )  # fmt: skip
    for number in range(count):
        builder.append(Record(b"k", b"v", timestamp=at, offset=offset + number))
    return builder.build()


def plain(offset: int) -> bytes:
    return data(offset, pid=-1, epoch=-1, seq=-1)


def marker(
    offset: int, *, pid: int = 1, epoch: int = 0, commit: bool = False, coordinator: int = 0
) -> bytes:
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    return build_marker(
        EndTransactionMarker(kind, coordinator), producer_id=pid, producer_epoch=epoch,
        timestamp=NOW + 1, base_offset=offset,
    )  # fmt: skip


def table_of(batches: bytes) -> BatchTable:
    return scan_batches(batches).table


@dataclass
class Log:
    """A manager as a leader uses it: check, then update."""

    manager: ProducerStateManager

    def append(
        self, *batches: bytes, origin: AppendOrigin = AppendOrigin.CLIENT, version: int = 1
    ) -> list[AbortedTxn] | BatchMetadata:
        buffer = b"".join(batches)
        table = table_of(buffer)
        known = self.manager.check(
            buffer, table, origin=origin, now_ms=NOW, transaction_version=version
        )
        return self.manager.update(within(buffer), table) if known is None else known

    def end(self, offset: int, **facts: object) -> list[AbortedTxn] | BatchMetadata:
        version = facts.pop("version", 1)
        batch = marker(offset, **facts)
        return self.append(batch, origin=AppendOrigin.COORDINATOR, version=version)


@pytest.fixture
def log() -> Log:
    return Log(ProducerStateManager())


# ---- sequences ------------------------------------------------------------------------------
def test_following_sequence_is_taken(log: Log) -> None:
    log.append(data(0, seq=0, count=3))
    log.append(data(3, seq=3))
    state = log.manager.producers[1]
    assert (state.last_sequence, state.last_offset) == (3, 3)
    assert log.manager.map_end_offset == 4


@pytest.mark.parametrize("seq", [5, 7, 0, 1])
def test_gap_or_overlap_is_out_of_order(log: Log, seq: int) -> None:
    log.append(data(0, seq=0, count=3))
    log.append(data(3, seq=3, count=3))
    with pytest.raises(OutOfOrderSequenceError, match=f"got sequence {seq}, expected 6"):
        log.append(data(6, seq=seq, count=2))
    assert log.manager.map_end_offset == 6


def test_167_unknown_producer_may_start_anywhere(log: Log) -> None:
    log.append(data(0, seq=15))
    assert log.manager.producers[1].last_sequence == 15


def test_new_epoch_starts_at_zero(log: Log) -> None:
    log.append(data(0, seq=15))
    with pytest.raises(OutOfOrderSequenceError):
        log.append(data(1, epoch=1, seq=16))
    log.append(data(1, epoch=1, seq=0))
    assert len(log.manager.producers[1].batches) == 1


def test_older_epoch_is_fenced(log: Log) -> None:
    log.append(data(0, epoch=5))
    with pytest.raises(InvalidProducerEpochError, match="got 4, expected at least 5"):
        log.append(data(1, epoch=4, seq=1))


def test_sequence_wraps_to_zero_behind_the_largest(log: Log) -> None:
    log.append(data(0, seq=MAX))
    log.append(data(1, seq=0))
    assert log.manager.producers[1].last_sequence == 0


def test_batch_may_wrap_inside(log: Log) -> None:
    log.append(data(0, seq=MAX - 2, count=2))
    log.append(data(2, seq=MAX, count=4))
    assert log.manager.producers[1].batches[-1] == BatchMetadata(2, 5, 3, NOW)
    assert log.append(data(6, seq=MAX, count=4)) == BatchMetadata(2, 5, 3, NOW)
    log.append(data(6, seq=3))


def test_any_of_the_last_five_batches_is_known_again(log: Log) -> None:
    for number in range(7):
        log.append(data(number * 2, seq=number * 2, count=2))
    for number in range(2, 7):
        known = log.append(data(14, seq=number * 2, count=2))
        assert isinstance(known, BatchMetadata)
        assert (known.first_offset, known.last_offset) == (number * 2, number * 2 + 1)
    with pytest.raises(OutOfOrderSequenceError):
        log.append(data(14, seq=2, count=2))
    assert log.manager.map_end_offset == 14


def test_several_batches_of_one_append_follow_each_other(log: Log) -> None:
    log.append(data(0, seq=0), plain(1), data(2, seq=1), data(3, pid=2, seq=9))
    assert log.manager.producers[1].last_sequence == 1
    with pytest.raises(OutOfOrderSequenceError):
        log.append(data(4, seq=2), data(5, seq=4))
    assert log.manager.producers[1].last_sequence == 1, "a refused append leaves no trace"


def test_coordinators_sequences_are_not_checked_but_their_epochs_are(log: Log) -> None:
    log.append(data(0, epoch=2))
    log.append(data(1, epoch=2, seq=77), origin=AppendOrigin.COORDINATOR)
    with pytest.raises(InvalidProducerEpochError):
        log.append(data(2, epoch=1, seq=78), origin=AppendOrigin.COORDINATOR)


@pytest.mark.parametrize("origin", [AppendOrigin.REPLICATION, AppendOrigin.COMMIT])
def test_replicated_and_decided_batches_are_believed(log: Log, origin: AppendOrigin) -> None:
    log.append(data(0, epoch=2, seq=4))
    log.append(data(1, epoch=2, seq=99), data(2, epoch=1, seq=3), origin=origin)
    state = log.manager.producers[1]
    assert (state.producer_epoch, state.last_sequence, len(state.batches)) == (1, 3, 1)


def test_batches_without_producer_leave_no_state(log: Log) -> None:
    log.append(plain(0), plain(1))
    assert log.manager.producers == {}
    assert log.manager.map_end_offset == 2
    log.append()
    assert log.manager.map_end_offset == 2


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=33, max_size=60))
def test_many_batches_at_once_leave_what_one_by_one_leaves(
    produced: list[tuple[int, int]],
) -> None:
    sequences: dict[int, itertools.count[int]] = {}
    batches = [
        data(offset, pid=pid, epoch=epoch, seq=next(sequences.setdefault(pid, itertools.count())))
        for offset, (pid, epoch) in enumerate(produced)
    ]
    at_once, one_by_one = ProducerStateManager(), ProducerStateManager()
    buffer = b"".join(batches)
    at_once.update(within(buffer), table_of(buffer))
    for batch in batches:
        one_by_one.update(within(batch), table_of(batch))
    assert at_once.map_end_offset == one_by_one.map_end_offset
    assert at_once.producers.keys() == one_by_one.producers.keys()
    for pid, state in one_by_one.producers.items():
        other = at_once.producers[pid]
        assert (other.producer_epoch, other.batches) == (state.producer_epoch, state.batches)


# ---- transactions ---------------------------------------------------------------------------
def test_open_transaction_holds_the_stable_offset_at_its_first_record(log: Log) -> None:
    log.append(plain(0), data(1, txn=True, seq=0), data(2, txn=True, seq=1))
    assert log.manager.first_unstable_offset == 1
    assert log.end(3) == [AbortedTxn(1, 1, 3, 4)]
    log.manager.on_high_watermark(4)
    assert log.manager.first_unstable_offset is None


def test_committed_transaction_gives_no_entry(log: Log) -> None:
    log.append(data(0, txn=True))
    assert log.end(1, commit=True) == []


def test_aborted_entry_tells_the_next_open_transaction(log: Log) -> None:
    log.append(data(0, pid=1, txn=True), data(1, pid=2, txn=True), data(2, pid=3, txn=True))
    assert log.end(3, pid=1) == [AbortedTxn(1, 0, 3, 1)]
    assert log.end(4, pid=3) == [AbortedTxn(3, 2, 4, 1)]
    assert log.end(5, pid=2) == [AbortedTxn(2, 1, 5, 6)]


def test_171_ended_transaction_is_unstable_until_it_is_replicated(log: Log) -> None:
    log.append(data(0, txn=True))
    log.end(1, commit=True)
    for high_watermark in (0, 1):
        log.manager.on_high_watermark(high_watermark)
        assert log.manager.first_unstable_offset == 0
    log.manager.on_high_watermark(2)
    assert log.manager.first_unstable_offset is None


def test_plain_batch_in_an_open_transaction_is_refused(log: Log) -> None:
    log.append(data(0, seq=0, txn=True))
    with pytest.raises(InvalidTxnStateError):
        log.append(data(1, seq=1))


def test_165_after_a_marker_alone_sequences_start_at_zero(log: Log) -> None:
    log.end(0, epoch=3)
    with pytest.raises(OutOfOrderSequenceError):
        log.append(data(1, epoch=3, seq=17))
    log.append(data(1, epoch=3, seq=0))


def test_166_marker_of_a_new_epoch_forgets_the_batches(log: Log) -> None:
    log.append(data(0, seq=0, txn=True))
    log.append(data(1, seq=1, txn=True))
    log.end(2, epoch=1, commit=True)
    assert log.manager.producers[1].batches == ()
    with pytest.raises(OutOfOrderSequenceError):
        log.append(data(3, epoch=1, seq=2))
    log.append(data(3, epoch=1, seq=0))


def test_marker_of_the_same_epoch_keeps_the_batches(log: Log) -> None:
    log.append(data(0, seq=0, txn=True))
    log.end(1, commit=True)
    log.append(data(2, seq=1, txn=True))
    assert len(log.manager.producers[1].batches) == 2


def test_174_marker_without_transaction_only_moves_epochs(log: Log) -> None:
    assert log.end(0, epoch=4, coordinator=7) == []
    state = log.manager.producers[1]
    assert (state.producer_epoch, state.coordinator_epoch) == (4, 7)
    assert state.last_timestamp == NOW + 1
    assert log.manager.first_unstable_offset is None


def test_marker_of_an_older_coordinator_is_fenced(log: Log) -> None:
    log.end(0, coordinator=7)
    with pytest.raises(TransactionCoordinatorFencedError, match="got coordinator epoch 6"):
        log.end(1, coordinator=6)
    log.end(1, coordinator=7)


def test_marker_of_an_older_epoch_is_fenced(log: Log) -> None:
    log.append(data(0, epoch=2, txn=True))
    with pytest.raises(InvalidProducerEpochError):
        log.end(1, epoch=1)


@pytest.mark.parametrize(("epoch", "is_taken"), [(1, False), (2, False), (3, True)])
def test_marker_of_version_2_needs_a_greater_epoch(log: Log, epoch: int, is_taken: bool) -> None:
    log.append(data(0, epoch=2, txn=True))
    if is_taken:
        log.end(1, epoch=epoch, version=2)
        log.end(2, epoch=epoch, version=2)  # sent again, no transaction open: the same will do
    else:
        with pytest.raises(InvalidProducerEpochError):
            log.end(1, epoch=epoch, version=2)


def test_marker_of_version_2_may_repeat_the_largest_epoch(log: Log) -> None:
    log.append(data(0, epoch=32767, txn=True))
    assert log.end(1, epoch=32767, version=2) == [AbortedTxn(1, 0, 1, 2)]


def test_marker_in_the_same_append_as_its_data(log: Log) -> None:
    done = log.append(
        data(0, txn=True), marker(1), data(2, seq=1, txn=True), origin=AppendOrigin.COORDINATOR
    )
    assert done == [AbortedTxn(1, 0, 1, 2)]
    assert log.manager.first_unstable_offset == 0  # not replicated yet
    log.manager.on_high_watermark(3)
    assert log.manager.first_unstable_offset == 2


def test_other_control_records_are_passed_over(log: Log) -> None:
    # golden G28: LEADER_CHANGE of a KRaft quorum, which has no producer
    batch = bytes.fromhex(
        "00000000000000000000004a0000000102c6d072930020000000000000018bcfe568000000018bcfe56800"
        "ffffffffffffffffffffffffffff000000013000000008000000021c000000000001020000000100010000"
    )
    assert log.append(batch, origin=AppendOrigin.COORDINATOR) == []
    assert log.manager.producers == {}


def test_log_start_above_a_marker_lets_the_transaction_go(log: Log) -> None:
    log.append(data(0, pid=1, txn=True), data(1, pid=2, txn=True))
    log.end(2, pid=1)
    log.manager.on_log_start_offset(3)
    assert log.manager.first_unstable_offset == 1, "the open one stays"


# ---- compacted logs -------------------------------------------------------------------------
def test_emptied_batch_still_tells_its_sequence(log: Log) -> None:
    # golden G08: offsets 5 and 6 of producer 42, epoch 3, sequence 10, both records compacted away
    empty = bytes.fromhex(
        "00000000000000050000003100000001027722a986000000000001ffffffffffffffff"
        "0000018bcfe56805000000000000002a00030000000a00000000"
    )
    log.manager.update(within(empty), table_of(empty))
    assert log.manager.producers[42].batches == (BatchMetadata(11, 6, 1, NOW + 5),)


# ---- expiry ---------------------------------------------------------------------------------
def test_idle_producer_is_forgotten_but_not_in_a_transaction(log: Log) -> None:
    log.append(data(0, pid=1), data(1, pid=2, txn=True), data(2, pid=3, at=NOW + 1))
    log.manager.remove_expired(NOW + DAY - 1)
    assert sorted(log.manager.producers) == [1, 2, 3]
    log.manager.remove_expired(NOW + DAY)
    assert sorted(log.manager.producers) == [2, 3]


def test_check_forgets_idle_producers_now_and_then(log: Log) -> None:
    log.append(data(0, seq=5))
    batch = data(1, seq=99)
    later = NOW + DAY + 600_000
    check = log.manager.check
    assert check(batch, table_of(batch), origin=AppendOrigin.CLIENT, now_ms=later) is None


# ---- loading --------------------------------------------------------------------------------
class Partition:
    """Real segments on a file system in memory."""

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        self.fs.make_directory(DIRECTORY)
        self.config = LogConfig(internal_segment_bytes=1 << 20, index_interval_bytes=0)
        self.segments: list[Segment] = []
        self.end = 0
        self.roll()

    def roll(self) -> None:
        made = Segment.create(self.fs, DIRECTORY, self.end, config=self.config, now_ms=NOW)
        self.segments.append(made)

    def append(self, *batches: bytes) -> None:
        for batch in batches:
            table = table_of(batch)
            self.segments[-1].append(batch, table)
            self.end = int(table.last_offset[-1]) + 1

    def load(self, *, start: int = 0, now_ms: int = NOW) -> ProducerStateManager:
        return ProducerStateManager.load(
            self.fs, DIRECTORY, segments=self.segments, log_start_offset=start,
            log_end_offset=self.end, now_ms=now_ms,
        )  # fmt: skip


@pytest.fixture
def partition() -> Partition:
    return Partition()


def test_load_without_snapshot_replays_every_segment(partition: Partition) -> None:
    partition.append(data(0, seq=0), plain(1))
    partition.roll()
    partition.append(data(2, seq=1), data(3, pid=2, seq=8, txn=True))
    loaded = partition.load()
    assert loaded.map_end_offset == 4
    assert loaded.producers[1].last_sequence == 1
    assert loaded.producers[2].current_txn_first_offset == 3
    assert loaded.first_unstable_offset == 3


def test_159_no_snapshots_and_an_old_transaction_still_open(partition: Partition) -> None:
    partition.append(data(0, txn=True))
    partition.roll()
    partition.append(plain(1))
    assert partition.load().first_unstable_offset == 0


def test_170_after_a_snapshot_only_the_last_batch_is_known_again(partition: Partition) -> None:
    partition.append(data(0, seq=0), data(1, seq=1))
    partition.load().take_snapshot(partition.fs, DIRECTORY)
    assert list_snapshots(partition.fs, DIRECTORY) == [2]
    log = Log(partition.load())
    assert log.append(data(2, seq=1)) == BatchMetadata(1, 1, 0, NOW)
    with pytest.raises(OutOfOrderSequenceError):
        log.append(data(2, seq=0))


def test_newest_snapshot_is_taken_and_the_rest_replayed(partition: Partition) -> None:
    partition.append(data(0, seq=0, txn=True))
    partition.load().take_snapshot(partition.fs, DIRECTORY)
    partition.append(data(1, pid=2, seq=4))
    loaded = partition.load()
    assert sorted(loaded.producers) == [1, 2]
    assert loaded.first_unstable_offset == 0
    loaded.take_snapshot(partition.fs, DIRECTORY)
    assert list_snapshots(partition.fs, DIRECTORY) == [1, 2]
    damaged = f"{DIRECTORY}/00000000000000000000.log"
    with partition.fs.open(damaged, OpenMode.WRITE) as file:
        file.pwrite(b"\xff" * 8, 40)
    assert sorted(partition.load().producers) == [1, 2], "nothing needed to be replayed"


def test_169_damaged_snapshot_falls_back_to_the_one_before(partition: Partition) -> None:
    partition.append(data(0, seq=0))
    partition.load().take_snapshot(partition.fs, DIRECTORY)
    partition.append(data(1, seq=1))
    partition.load().take_snapshot(partition.fs, DIRECTORY)
    with partition.fs.open(f"{DIRECTORY}/00000000000000000002.snapshot", OpenMode.WRITE) as file:
        file.truncate(20)
    assert partition.load().producers[1].last_sequence == 1


def test_snapshots_outside_of_the_log_are_not_believed(partition: Partition) -> None:
    partition.append(data(0, seq=0))
    future = ProducerStateManager(9)
    future.update(within(data(9, pid=77)), table_of(data(9, pid=77)))
    future.take_snapshot(partition.fs, DIRECTORY)
    assert sorted(partition.load().producers) == [1]
    partition.load().take_snapshot(partition.fs, DIRECTORY)
    partition.append(plain(1))
    assert sorted(partition.load(start=1).producers) == []


def test_173_snapshot_without_news_is_not_written_again(partition: Partition) -> None:
    partition.append(data(0))
    loaded = partition.load()
    loaded.take_snapshot(partition.fs, DIRECTORY)
    before = partition.fs.stat(f"{DIRECTORY}/00000000000000000001.snapshot")
    loaded.take_snapshot(partition.fs, DIRECTORY)
    partition.load().take_snapshot(partition.fs, DIRECTORY)
    assert partition.fs.stat(f"{DIRECTORY}/00000000000000000001.snapshot") == before
    assert list_snapshots(partition.fs, DIRECTORY) == [1]


def test_empty_log_needs_no_snapshot(partition: Partition) -> None:
    partition.load().take_snapshot(partition.fs, DIRECTORY)
    assert list_snapshots(partition.fs, DIRECTORY) == []


def test_expired_producers_of_a_snapshot_are_dropped(partition: Partition) -> None:
    partition.append(data(0, pid=1), data(1, pid=2, txn=True))
    partition.load().take_snapshot(partition.fs, DIRECTORY)
    assert sorted(partition.load(now_ms=NOW + DAY).producers) == [2]


def test_replay_goes_on_where_it_stopped(partition: Partition) -> None:
    partition.append(data(0, seq=0), data(1, seq=1, txn=True))
    followed = partition.load()
    partition.append(marker(2))
    partition.roll()
    partition.append(data(3, seq=2, txn=True))
    followed.replay(partition.segments, partition.end)
    followed.on_high_watermark(partition.end)
    assert followed.first_unstable_offset == 3
    assert followed.producers[1].last_sequence == 2


def test_replay_stops_at_the_log_end_asked_for(partition: Partition) -> None:
    partition.append(data(0, seq=0), data(1, seq=1), data(2, seq=2))
    partition.end = 2
    assert partition.load().producers[1].last_sequence == 1


def test_replay_of_a_damaged_batch_names_file_and_position(partition: Partition) -> None:
    partition.append(data(0, seq=0), data(1, seq=1))
    path = f"{DIRECTORY}/00000000000000000000.log"
    with partition.fs.open(path, OpenMode.WRITE) as file:
        file.pwrite(b"\x00\x09", len(data(0, seq=0)) + 51)
    with pytest.raises(CorruptRecordError, match=rf"{path} at byte {len(data(0))}"):
        partition.load()


def test_replay_reads_batches_larger_than_its_chunk(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamlog.partition.producers._REPLAY_CHUNK", 100)
    partition.append(data(0, seq=0, count=40), data(40, seq=40), data(41, seq=41, count=30))
    assert partition.load().producers[1].last_sequence == 70


def test_golden_directory_gives_kafkas_snapshots() -> None:
    """The batches that a real log held when it wrote golden snapshots 10 and 11."""
    from tests.partition.test_producer_snapshot import GOLDEN_10, GOLDEN_11

    first, second = bytes.fromhex(GOLDEN_LOG_0), bytes.fromhex(GOLDEN_LOG_10)
    partition = Partition()
    partition.append(first)
    loaded = partition.load()
    loaded.take_snapshot(partition.fs, DIRECTORY)
    partition.roll()
    partition.append(second)
    last = partition.load()
    last.take_snapshot(partition.fs, DIRECTORY)
    for offset, golden in ((10, GOLDEN_10), (11, GOLDEN_11)):
        with partition.fs.open(f"{DIRECTORY}/{offset:020d}.snapshot", OpenMode.READ) as file:
            assert file.pread(200, 0) == golden
    assert last.first_unstable_offset == 10
    entries = ProducerStateManager().update(within(first), table_of(first))
    assert entries == [AbortedTxn(42, 6, 9, 10)]


GOLDEN_LOG_0 = (
    "00000000000000000000006c000000000249d5f6010000000000010000018bcfe568000000018bcfe5680affffff"
    "ffffffffffffffffffffff0000000260000000046b30507676767676767676767676767676767676767676767676"
    "7676767676767676767676767676767676001200140204713002770000000000000000020000006c00000000026f"
    "9d5eba0000000000010000018bcfe568010000018bcfe5680bffffffffffffffffffffffffffff00000002600000"
    "00046b31507676767676767676767676767676767676767676767676767676767676767676767676767676767600"
    "1200140204713102770000000000000000040000006c000000000207adf9120000000000010000018bcfe5680200"
    "00018bcfe5680cffffffffffffffffffffffffffff0000000260000000046b325076767676767676767676767676"
    "76767676767676767676767676767676767676767676767676767600120014020471320277000000000000000006"
    "000000440000000002a15571cc0010000000010000018bcfe568640000018bcfe56865000000000000002a000300"
    "000000000000021000000002740261001200020204743202620000000000000000080000003a000000010200dc43"
    "1c0000000000000000018bcfe568660000018bcfe56866000000000000002b000000000000000000011000000002"
    "6902610000000000000000090000004200000001028f25b8900030000000000000018bcfe568670000018bcfe568"
    "67000000000000002a0003ffffffff000000012000000008000000000c00000000000900"
)
GOLDEN_LOG_10 = (
    "000000000000000a0000003a0000000202d0b93a1d0010000000000000018bcfe568c80000018bcfe568c8000000"
    "000000002a00030000000200000001100000000274026100"
)


def test_million_batches_cost_no_object_each() -> None:
    count = 1_000_000
    table = BatchTable(np.zeros((count, 14), np.int64))
    table.producer_id[:] = 7
    table.base_offset[:] = table.last_offset[:] = table.base_sequence[:] = np.arange(count)
    manager = ProducerStateManager()
    manager.update(within(b""), table)
    assert manager.producers[7].batches[0].last_sequence == count - 5
