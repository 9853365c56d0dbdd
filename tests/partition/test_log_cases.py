"""Situations from Kafka's own log tests; `tests/programs/compat/CASES.md` numbers them."""

import struct
from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    OutOfOrderSequenceError,
    UnexpectedAppendOffsetError,
)
from streamlog.fs.files import read_file, write_file_atomically
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.producer_snapshot import list_snapshots
from streamlog.partition.reader import LogReader
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import NO_TIMESTAMP, Record
from streamlog.records.validate import AppendOrigin
from streamlog.root.partition_log import PartitionLog

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
ROOT, PATH = "/logs", "/logs/orders-0"


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def open_log(fs: MemoryFileSystem, config: LogConfig | None = None, now: int = NOW) -> PartitionLog:
    return PartitionLog.open(
        PATH, config=config or LogConfig(), fs=fs, clock=ManualClock(now), random=Random(1)
    )


def batch(
    producer_id: int = -1,
    sequence: int = -1,
    *,
    base_offset: int = 0,
    epoch: int = -1,
    transaction: bool = False,
    timestamp: int = NOW,
) -> bytes:
    builder = BatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=sequence,
        is_transactional=transaction,
        partition_leader_epoch=epoch,
    )
    builder.append(Record(b"k", b"v", (), timestamp, offset=base_offset))
    return builder.build()


def test_an_empty_segment_is_not_rolled_however_long_it_waits(fs: MemoryFileSystem) -> None:
    config = LogConfig(segment_ms=HOUR_MS)
    with open_log(fs, config) as log:
        log.append([Record(value=b"v", timestamp=NOW)])
        log.roll()
    late = NOW + 100 * HOUR_MS
    with open_log(fs, config, now=late) as log:
        log.append([Record(value=b"v", timestamp=late)])
        assert log.segments.base_offsets == [0, 1]


def test_rolling_an_empty_segment_at_its_own_base_is_no_error(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        assert [log.roll(), log.roll()] == [0, 0]
        log.append([Record(value=b"v")])
        assert [log.roll(), log.roll()] == [1, 1]
        assert log.segments.base_offsets == [0, 1]


def test_the_age_of_an_empty_segment_counts_from_when_it_was_rolled_last(
    fs: MemoryFileSystem,
) -> None:
    clock = ManualClock(NOW)
    config = LogConfig(segment_ms=HOUR_MS)
    with PartitionLog.open(PATH, config=config, fs=fs, clock=clock, random=Random(1)) as log:
        clock.set(NOW + HOUR_MS)
        log.roll()
        log.append_as_leader(batch(timestamp=NO_TIMESTAMP))
        clock.set(NOW + 2 * HOUR_MS)
        log.append_as_leader(batch())
        assert log.segments.base_offsets == [0]
        clock.set(NOW + 2 * HOUR_MS + 1)
        log.append_as_leader(batch())
        assert log.segments.base_offsets == [0, 2]


def test_producers_in_turn_within_one_append_of_a_follower_are_both_known(
    fs: MemoryFileSystem,
) -> None:
    turns = [(1, 0), (2, 0), (1, 1), (2, 1)]
    with open_log(fs) as log:
        log.append_as_follower(
            b"".join(
                batch(producer_id, sequence, base_offset=at, epoch=0)
                for at, (producer_id, sequence) in enumerate(turns)
            )
        )
        assert log.append_as_leader(batch(1, 1)).duplicate
        assert log.append_as_leader(batch(2, 1)).duplicate
        assert log.append_as_leader(batch(1, 2)).base_offset == 4
        assert log.append_as_leader(batch(2, 2)).base_offset == 5


@pytest.mark.parametrize("second", [4, 3, 0])
def test_batches_that_do_not_rise_within_one_append_of_a_follower_are_refused(
    fs: MemoryFileSystem, second: int
) -> None:
    with open_log(fs) as log:
        with pytest.raises(UnexpectedAppendOffsetError, match="expected offset 5"):
            log.append_as_follower(
                batch(base_offset=4, epoch=0) + batch(base_offset=second, epoch=0)
            )
        assert log.log_end_offset == 0


def test_the_stable_offset_is_never_below_the_start_of_the_log(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        log.append_as_leader(batch(1, 0, transaction=True))
        log.append([Record(value=b"v")] * 9)
        assert log.last_stable_offset == 0
        log.delete_records(5)
        assert (log.log_start_offset, log.last_stable_offset) == (5, 5)


def test_a_cut_takes_the_snapshots_above_it_and_producers_go_on_from_there(
    fs: MemoryFileSystem,
) -> None:
    with open_log(fs) as log:
        for sequence in range(6):
            log.append_as_leader(batch(1, sequence))
            log.roll()
        assert list_snapshots(fs, PATH) == [1, 2, 3, 4, 5, 6]
        log.truncate_to(3)
        assert list_snapshots(fs, PATH) == [1, 2, 3]
        assert log.append_as_leader(batch(1, 2)).duplicate
        with pytest.raises(OutOfOrderSequenceError):
            log.append_as_leader(batch(1, 4))
        assert log.append_as_leader(batch(1, 3)).base_offset == 3


def test_a_cut_below_the_start_of_the_log_lowers_it_and_begins_anew(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        log.append([Record(value=b"v")] * 3)
        log.roll()
        log.append([Record(value=b"w")] * 3)
        log.delete_records(5)
        log.truncate_to(2)
        assert log.log_start_offset == 2 == log.log_end_offset
        assert log.append([Record(value=b"x")]).base_offset == 2
        assert [each.value for each in log.read(2).records()] == [b"x"]
        with LogReader.open(PATH, fs=fs) as reader:
            assert [each.value for each in reader.read(2).records()] == [b"x"]
    fs.remove("/logs/.streamlog/locks/orders-0")
    with open_log(fs) as log:
        assert (log.log_start_offset, log.log_end_offset) == (2, 3)


@pytest.mark.parametrize("is_opened_anew", [False, True])
def test_a_cut_below_the_start_of_the_log_goes_on_with_the_epoch_of_what_is_left(
    fs: MemoryFileSystem, *, is_opened_anew: bool
) -> None:
    """A lower one behind it would be damage, to readers and to recovery."""
    with open_log(fs) as log:
        log.append_as_follower(batch(base_offset=0, epoch=3) + batch(base_offset=1, epoch=3))
        log.append_as_follower(batch(base_offset=2, epoch=3))
        log.delete_records(2)
        log.truncate_to(1)
        assert (log.log_start_offset, log.leader_epoch) == (1, 3)
    if is_opened_anew:
        fs.remove(f"{ROOT}/.streamlog/locks/orders-0")
        fs.remove(f"{ROOT}/recovery-point-offset-checkpoint")
    with open_log(fs) as log:
        assert log.leader_epoch == 3
        log.append([Record(value=b"new")])
    with LogReader.open(PATH, fs=fs) as reader:
        assert [each.value for each in reader.read(1).records()] == [b"new"]


def test_deleting_records_forgets_no_producer_that_was_not_looked_at_yet(
    fs: MemoryFileSystem,
) -> None:
    with open_log(fs) as log:
        log.append_as_leader(batch(1, 0))
    with open_log(fs) as log:
        log.delete_records(-1)
        assert log.append_as_leader(batch(1, 0)).duplicate
        assert log.log_end_offset == 1


@pytest.mark.parametrize(
    ("start", "expected"), [(0, (0, NOW + 9)), (1, (2, NOW + 5)), (3, (4, NOW + 4)), (5, None)]
)
def test_the_largest_timestamp_is_that_of_records_that_are_not_deleted(
    fs: MemoryFileSystem, start: int, expected: tuple[int, int] | None
) -> None:
    with open_log(fs) as log:
        log.append([Record(value=b"v", timestamp=NOW + ms) for ms in (9, 1, 5)])
        log.append([Record(value=b"v", timestamp=NOW + 2)])
        log.roll()
        log.append([Record(value=b"v", timestamp=NOW + 4)])
        log.append_as_leader(batch(timestamp=NO_TIMESTAMP))
        log.delete_records(start)
    with LogReader.open(PATH, fs=fs) as reader:
        assert reader.max_timestamp() == expected


def test_indexes_without_a_log_are_not_believed_by_the_segment_that_comes(
    fs: MemoryFileSystem,
) -> None:
    config = LogConfig(index_interval_bytes=0)
    with open_log(fs, config) as log:
        log.append([Record(value=b"v", timestamp=NOW)])
        log.append([Record(value=b"v", timestamp=NOW)])
    for kind in ("index", "timeindex", "txnindex"):
        write_file_atomically(fs, f"{PATH}/{2:020d}.{kind}", bytes(range(1, 25)))
    with open_log(fs, config) as log:
        assert log.segments.base_offsets == [0]
        log.roll()
        for _ in range(3):
            log.append([Record(value=b"w", timestamp=NOW)])
        assert log.segments.base_offsets == [0, 2]
        assert [each.offset for each in log.read(2).records()] == [2, 3, 4]
    index = read_file(fs, f"{PATH}/{2:020d}.index", max_size=1000)
    assert [offset for offset, _ in struct.iter_unpack(">ii", index)] == [1, 2]
    assert not read_file(fs, f"{PATH}/{2:020d}.timeindex", max_size=1000).startswith(bytes([1, 2]))


def test_an_epoch_that_starts_behind_the_log_end_is_forgotten(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        log.append([Record(value=b"v")] * 3)
    epochs = LeaderEpochCache.load(fs, PATH)
    epochs.assign(7, 12)
    epochs.store(fs, PATH)
    fs.remove(f"{ROOT}/.streamlog/locks/orders-0")
    with open_log(fs) as log:
        assert all(start <= 3 for _, start in log.leader_epochs.entries)


def test_an_aborted_transaction_ends_at_its_marker_in_another_segment(
    fs: MemoryFileSystem,
) -> None:
    marker = build_marker(
        EndTransactionMarker(ControlRecordType.ABORT, 0),
        producer_id=1,
        producer_epoch=0,
        timestamp=NOW,
    )
    with open_log(fs) as log:
        log.append_as_leader(batch(1, 0, transaction=True))
        log.roll()
        log.append_as_leader(marker, origin=AppendOrigin.COORDINATOR)
        assert log.last_stable_offset == 2
        entries = [list(each.txn_index.entries) for each in log.segments]
    assert [len(each) for each in entries] == [0, 1]
    assert entries[1][0][1:3] == (0, 1)
