"""A follower's appends bring offsets and epochs of their own: what goes on is kept as it is."""

from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import InvalidRecordError, UnexpectedAppendOffsetError
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.batch import scan_batches
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def open_log(fs: MemoryFileSystem) -> PartitionLog:
    return PartitionLog.open(
        "/logs/orders-0", config=LogConfig(), fs=fs, clock=ManualClock(0), random=Random(1)
    )


def batches(start: int, *epochs: int) -> bytes:
    """Return a batch of one record for each epoch, with the offsets from `start` on."""
    made = b""
    for offset, epoch in enumerate(epochs, start):
        builder = BatchBuilder(base_offset=offset, partition_leader_epoch=epoch)
        builder.append(Record(b"key", b"value", (), 0, offset))
        made += builder.build()
    return made


def test_offsets_are_kept_and_may_not_go_back(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        log.append_as_follower(batches(7, 3))
        assert (log.log_end_offset, log.leader_epoch) == (8, 3)
        with pytest.raises(UnexpectedAppendOffsetError, match="7 to 7"):
            log.append_as_follower(batches(7, 3))


def test_decided_batches_come_back_in_front_of_an_epoch_that_was_raised_behind_them(
    fs: MemoryFileSystem,
) -> None:
    with open_log(fs) as log, log.writing():
        log.append_as_follower(batches(0, 0))
        log._log.epochs.assign(1, 2)  # a power cut took offset 1, and not the epoch behind it
        decided = batches(1, 0)
        log.append_decided(decided, scan_batches(decided).table)
        assert log.log_end_offset == 2


def test_epochs_are_kept_and_may_not_go_back(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        log.append_as_follower(batches(0, 3, -1, 5))
        for epochs in ((4,), (5, 6, 5)):
            with pytest.raises(InvalidRecordError, match="epochs of an append go back"):
                log.append_as_follower(batches(3, *epochs))
        assert (log.log_end_offset, log.leader_epoch) == (3, 5)
        log.append_as_follower(batches(3, 5, 7))
    with open_log(fs) as again:
        assert (again.log_end_offset, again.leader_epoch) == (5, 7)
