"""Comparing replicas: what differs below both high watermarks is found, all else is not."""

from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.fs.api import OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.health import replica_logs
from streamlog.health.findings import Finding, FindingKind
from streamlog.health.replica_logs import compare_logs
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.replication.copying import copy_to_follower
from streamlog.root.partition_log import PartitionLog


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_logs, "_READ_BYTES", 1000)


@pytest.fixture
def fs() -> MemoryFileSystem:
    """A disk with two equal replicas of 120 records, their segments of different sizes."""
    fs = MemoryFileSystem()
    with open_log(fs, "a") as leader, open_log(fs, "b", 9000) as follower:
        for number in range(60):
            leader.append([Record(b"%d" % (number % 7), b"v" * 300, (), number)] * 2)
        with LogReader.open("/a/orders-0", fs=fs) as reader:
            copy_to_follower(reader, follower, refresh=reader.refresh, check=lambda: None)
    return fs


def open_log(fs: MemoryFileSystem, root: str, segment_bytes: int = 4000) -> PartitionLog:
    config = LogConfig(internal_segment_bytes=segment_bytes)
    return PartitionLog.open(
        f"/{root}/orders-0", config=config, fs=fs, clock=ManualClock(0), random=Random(1)
    )


def compared(fs: MemoryFileSystem, *, is_compacted: bool = False) -> list[Finding]:
    found: list[Finding] = []
    with LogReader.open("/a/orders-0", fs=fs) as a, LogReader.open("/b/orders-0", fs=fs) as b:
        compare_logs(a, b, found.append, is_compacted=is_compacted)
    return found


def rewrite(fs: MemoryFileSystem, numbers: range, records: list[Record]) -> None:
    """Truncate replica b to the start of a range and append records there."""
    with open_log(fs, "b", 9000) as log:
        log.truncate_to(numbers.start)
        for record in records:
            log.append([record])


def test_equal_replicas_have_no_findings(fs: MemoryFileSystem) -> None:
    assert compared(fs) == []


def test_a_replica_that_lags_is_compared_up_to_its_end(fs: MemoryFileSystem) -> None:
    with open_log(fs, "b", 9000) as log:
        log.truncate_to(50)
    assert compared(fs) == []


def test_a_replica_that_starts_later_is_compared_from_its_start(fs: MemoryFileSystem) -> None:
    with open_log(fs, "b", 9000) as log:
        log.delete_records(35)
    assert compared(fs) == []


def test_the_first_batch_that_differs_is_found(fs: MemoryFileSystem) -> None:
    rewrite(fs, range(70, 80), [Record(b"x", b"other", (), 1)] * 10)
    (finding,) = compared(fs)
    assert finding.kind is FindingKind.REPLICA_DIVERGED
    assert (finding.offset, finding.last_offset) == (70, 79)
    assert finding.got == "offsets 70 to 70, epoch 0"
    assert str(finding.expected).startswith("offsets 70 to 71, epoch 0")
    assert finding.path == "/b/orders-0"


def test_one_byte_that_no_checksum_covers_is_found(fs: MemoryFileSystem) -> None:
    path = "/b/orders-0/00000000000000000000.log"
    with fs.open(path, OpenMode.WRITE) as file:
        file.pwrite(b"\0\0\0\1", 12)  # the leader epoch of the first batch
    (finding,) = compared(fs)
    assert finding.got == "offsets 0 to 1, epoch 1"


def test_epochs_that_differ_are_found(fs: MemoryFileSystem) -> None:
    path = "/b/orders-0/leader-epoch-checkpoint"
    with fs.open(path, OpenMode.WRITE) as file:
        file.pwrite(b"0\n2\n0 0\n2 9\n", 0)
    (finding,) = compared(fs)
    assert finding.what == "leader epochs differ from the leader's"
    assert (finding.offset, finding.got) == (9, "0 from 0, 2 from 9")


def test_damage_ends_the_comparison_as_a_finding(fs: MemoryFileSystem) -> None:
    with fs.open("/b/orders-0/00000000000000000000.log", OpenMode.WRITE) as file:
        file.pwrite(b"\xff" * 40, 1000)
    (finding,) = compared(fs)
    assert finding.kind is FindingKind.UNREADABLE


def test_of_compacted_logs_a_record_that_both_have_must_be_equal(fs: MemoryFileSystem) -> None:
    rewrite(fs, range(118, 120), [Record(b"0", b"other", (), 1)] * 2)
    (finding,) = compared(fs, is_compacted=True)
    assert finding.what == "record differs from the leader's"
    assert (finding.offset, finding.last_offset) == (118, 119)


def test_of_compacted_logs_the_last_record_of_a_key_must_be_there(fs: MemoryFileSystem) -> None:
    with open_log(fs, "a") as leader, open_log(fs, "b", 9000) as follower:
        leader.append([Record(b"gone", b"1", (), 1)])
        leader.append([Record(b"key", b"1", (), 1)])
        follower.skip_to(121)
        follower.append([Record(b"key", b"1", (), 1)])
    assert compared(fs) != []
    (finding,) = compared(fs, is_compacted=True)
    assert finding.what == "record is missing, and no later one has its key"
    assert finding.offset == 120
    with open_log(fs, "a") as leader:
        leader.append([Record(b"gone", b"2", (), 1)])  # above the common range
    assert compared(fs, is_compacted=True) == []


def test_records_that_the_leader_does_not_have_are_counted(fs: MemoryFileSystem) -> None:
    with open_log(fs, "a") as leader, open_log(fs, "b", 9000) as follower:
        leader.truncate_to(100)
        leader.assign_leader_epoch(3)
        leader.append([Record(b"k", b"new leader", (), 1)] * 30)
        assert follower.log_end_offset == 120
    (finding,) = compared(fs)
    assert finding.kind is FindingKind.ABANDONED_RECORDS
    assert (finding.offset, finding.last_offset) == (100, 119)
    assert finding.got == "20 offsets, 20 of them were committed"
