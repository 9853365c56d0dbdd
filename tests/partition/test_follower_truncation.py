"""A follower: what it appends, truncates and discards, also where it dies in the middle."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from streamlog.config.log_config import LogConfig
from streamlog.errors import UnexpectedAppendOffsetError
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition import checkpoints
from streamlog.partition.reader import LogReader
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from tests.support.batches import message_set
from tests.support.crash import every_crash_point
from tests.support.replicated_log import (
    NOW,
    PARTITION,
    batch,
    make_replica,
    open_log,
    record,
)

SMALL = LogConfig(internal_segment_bytes=200)  # two batches a segment


@pytest.fixture
def fs() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    make_replica(fs)
    return fs


def large(offset: int, count: int, epoch: int = 0) -> bytes:
    """Return one batch of several records."""
    builder = BatchBuilder(base_offset=offset, partition_leader_epoch=epoch)
    for each in range(offset, offset + count):
        builder.append(record(each))
    return builder.build()


def found_in(log: PartitionLog | LogReader) -> list[tuple[int, bytes | None]]:
    offset, found = log.log_start_offset, list[tuple[int, bytes | None]]()
    while offset < log.high_watermark:
        info = log.read(offset)
        found += [(each.offset, each.value) for each in info.records()]
        offset = info.next_offset
    return found


def values(*offsets: int) -> list[tuple[int, bytes | None]]:
    return [(offset, b"%d" % offset) for offset in offsets]


# ---- append ------------------------------------------------------------------------------------
def test_batches_of_a_later_epoch_than_the_fetch_are_left(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        fetched = batch(0, 1) + batch(1, 2) + batch(2, 3) + batch(3, 2)
        info = log.append_as_follower(fetched, leader_epoch=2)
        assert info is not None and (info.base_offset, info.last_offset) == (0, 1)
        assert (log.log_end_offset, log.leader_epoch) == (2, 2)
        assert log.append_as_follower(batch(2, 3), leader_epoch=2) is None
        assert (log.log_end_offset, log.leader_epoch) == (2, 2)


def test_gaps_stay_and_timestamps_too(fs: MemoryFileSystem) -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime")
    with open_log(fs, config=config) as log:
        log.append_as_follower(batch(3) + batch(9))
        log.raise_high_watermark(10)
        assert (log.log_start_offset, log.log_end_offset) == (0, 10)
        read = log.read(0)
        assert bytes(read.buffer) == batch(3) + batch(9)
        assert [each.timestamp for each in read.records()] == [NOW, NOW]


def test_an_empty_log_starts_within_the_batch_that_its_log_start_lies_in(
    fs: MemoryFileSystem,
) -> None:
    with open_log(fs) as log:
        log.restart_at(12)
        with pytest.raises(UnexpectedAppendOffsetError):
            log.append_as_follower(large(5, 7))  # ends below the log start
        log.append_as_follower(large(10, 5))
        log.raise_high_watermark(15)
        assert (log.log_start_offset, log.log_end_offset) == (12, 15)
        assert log.segments.base_offsets == [10]
        assert found_in(log) == values(12, 13, 14)
        with pytest.raises(UnexpectedAppendOffsetError):
            log.append_as_follower(large(10, 9))  # not empty any more
    with open_log(fs) as again:
        assert (again.log_start_offset, again.log_end_offset) == (12, 15)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_of_an_old_format_clears_the_epochs(fs: MemoryFileSystem, magic: int) -> None:
    old = message_set(magic, [Record(b"k", b"1", (), NOW)], base_offset=1)
    with open_log(fs) as log:
        log.append_as_follower(batch(0, 4))
        assert log.leader_epochs.entries == ((4, 0),)
        log.append_as_follower(old)
        assert log.leader_epochs.latest_epoch is None
    with open_log(fs) as log:
        assert (log.leader_epochs.latest_epoch, log.log_end_offset) == (None, 2)
        newer = batch(2, 6) + message_set(magic, [Record(b"k", b"3", (), NOW)], base_offset=3)
        info = log.append_as_follower(newer + batch(4, 7) + batch(5, 8))
        assert info is not None and (info.base_offset, info.last_offset) == (2, 5)
        assert log.leader_epochs.entries == ((7, 4), (8, 5))
        log.raise_high_watermark(6)
        assert [offset for offset, _ in found_in(log)] == [0, 1, 2, 3, 4, 5]


# ---- truncate ----------------------------------------------------------------------------------
def test_a_truncation_takes_epochs_producers_and_high_watermark_along(
    fs: MemoryFileSystem,
) -> None:
    with open_log(fs, config=SMALL) as log:
        for offset in range(6):
            log.append_as_follower(batch(offset, offset // 2, producer_id=offset))
        log.raise_high_watermark(6)
        log.flush()
        assert set(log.producers) == {0, 1, 2, 3, 4, 5}
        log.truncate_replica(3)
        assert set(log.producers) == {0, 1, 2}
        assert log.leader_epochs.entries == ((0, 0), (1, 2))
        assert (log.high_watermark, log.log_end_offset, log.recovery_point) == (3, 3, 3)
        root = LogRoot.at("/logs", fs=fs)
        assert checkpoints.read_high_watermarks(root)[PARTITION] <= 3
        assert checkpoints.read_recovery_points(root)[PARTITION] <= 3


def test_an_epoch_without_records_goes_even_if_no_record_does(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log, open_log(fs) as other:
        log.append_as_follower(batch(0, 1))
        log.assign_leader_epoch(5)
        other.catch_up()
        log.truncate_replica(1)
        assert log.leader_epochs.entries == ((1, 0),)
        other.catch_up()
        assert other.leader_epochs.entries == ((1, 0),)


@pytest.mark.parametrize("offset", [0, 3, 6, 9])
def test_a_replica_begins_again_anywhere(fs: MemoryFileSystem, offset: int) -> None:
    with open_log(fs, config=SMALL) as log:
        for each in range(6):
            log.append_as_follower(batch(each, 3))
        log.raise_high_watermark(4)
        log.flush()
        log.restart_at(offset)
        assert log.offsets[:3] == (offset, offset, offset)
        assert (log.leader_epochs.entries, dict(log.producers)) == ((), {})
        log.append_as_follower(batch(offset, 4))
        assert (log.high_watermark, log.log_end_offset) == (offset, offset + 1)
    for lost_power in (False, True):
        crashed = fs.crash_clone(Random(1), power=lost_power)
        with open_log(crashed) as again:
            assert again.offsets[:3] == (offset, offset, offset + 1)


def test_a_replica_may_begin_again_below_its_log_start(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        log.restart_at(9)
        log.append_as_follower(batch(9))
        log.flush()
        log.restart_at(5)
        log.append_as_follower(batch(5, 1))
        log.raise_high_watermark(6)
        assert found_in(log) == values(5)
    for lost_power in (False, True):
        crashed = fs.crash_clone(Random(1), power=lost_power)
        with open_log(crashed) as again:
            assert again.offsets[:3] == (5, 6, 6)


# ---- dying in the middle -----------------------------------------------------------------------
def test_no_crash_of_a_truncation_keeps_a_record_that_was_replaced(fs: MemoryFileSystem) -> None:
    """Offsets from 3 on are of epoch 0 before the truncation, and of epoch 1 after it."""
    with open_log(fs, config=SMALL) as log:
        for offset in range(6):
            log.append_as_follower(batch(offset))
        log.raise_high_watermark(5)

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        log = open_log(fs, config=SMALL)
        log.truncate_replica(3)
        acknowledged.append("truncated")
        for offset in range(3, 8):
            log.append_as_follower(batch(offset, 1))
        log.raise_high_watermark(4)
        log.close()
        acknowledged.append("closed")

    def check(crashed: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        with open_log(crashed, config=SMALL) as log:
            epochs = log.leader_epochs.entries
            with log.locked():
                log.raise_high_watermark(log.log_end_offset) if not acknowledged else None
            end, high_watermark = log.log_end_offset, log.high_watermark
            if "truncated" in acknowledged:
                assert high_watermark <= 4 and epochs in (((0, 0),), ((0, 0), (1, 3)))
                for at in range(3, min(end, high_watermark)):
                    assert log.read(at).table.leader_epoch[0] == 1
            if "closed" in acknowledged:
                assert (end, high_watermark, epochs) == (8, 4, ((0, 0), (1, 3)))
            # What stands is a follower's log: it goes on from there.
            log.truncate_replica(3)
            log.append_as_follower(batch(max(3, log.log_end_offset), 2))
            assert found_in(log) == values(*range(min(3, high_watermark)))

    assert every_crash_point(workload, check, prepared=fs, seeds=range(2)).states > 100


def test_no_crash_brings_back_what_was_before_a_new_beginning(fs: MemoryFileSystem) -> None:
    with open_log(fs, config=SMALL) as log:
        for offset in range(6):
            log.append_as_follower(batch(offset))
        log.raise_high_watermark(6)

    for target in (2, 9):

        def workload(fs: FileSystem, acknowledged: list[Any], target: int = target) -> None:
            log = open_log(fs, config=SMALL)
            log.restart_at(target)
            acknowledged.append("restarted")
            log.append_as_follower(large(target, 2, 1))
            log.raise_high_watermark(target + 2)
            log.close()
            acknowledged.append("closed")

        def check(
            crashed: MemoryFileSystem, acknowledged: Sequence[Any], target: int = target
        ) -> None:
            with open_log(crashed, config=SMALL) as log:
                if acknowledged:
                    assert log.log_start_offset == target
                    assert log.log_end_offset in (target, target + 2)
                    assert found_in(log) in ([], values(target, target + 1))
                else:
                    whole = values(*range(6))
                    found = found_in(log)
                    assert found == whole[: len(found)] or log.log_start_offset == target
                if "closed" in acknowledged:
                    assert found_in(log) == values(target, target + 1)
                log.restart_at(20)
                log.append_as_follower(batch(20, 2))

        assert every_crash_point(workload, check, prepared=fs, seeds=range(2)).states > 50


def test_no_crash_shows_what_was_deleted_before_the_log_start(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        log.restart_at(12)

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        log = open_log(fs)
        log.append_as_follower(large(10, 5))
        acknowledged.append("appended")
        log.raise_high_watermark(15)
        log.close()
        acknowledged.append("closed")

    def check(crashed: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        with open_log(crashed) as log:
            assert log.log_start_offset == 12 and log.log_end_offset in (12, 15)
            assert log.log_end_offset == 15 or "closed" not in acknowledged
            if log.log_end_offset == 12:
                log.append_as_follower(large(10, 5))
            log.raise_high_watermark(15)
            assert found_in(log) == values(12, 13, 14)

    assert every_crash_point(workload, check, prepared=fs, seeds=range(2)).states > 50
