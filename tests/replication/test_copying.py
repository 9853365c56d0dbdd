"""Catch-up: the follower ends with the leader's bytes, whatever the leader does meanwhile."""

from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import CorruptRecordError, FencedError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem, SimulatedCrash
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.replication import copying
from streamlog.replication.copying import copy_to_follower
from streamlog.root.partition_log import PartitionLog

SMALL = LogConfig(internal_segment_bytes=4000)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "COPY_BYTES", 1000)


def open_log(fs: FileSystem, root: str, config: LogConfig = SMALL) -> PartitionLog:
    return PartitionLog.open(
        f"/{root}/orders-0", config=config, fs=fs, clock=ManualClock(0), random=Random(1)
    )


def fill(log: PartitionLog, count: int, *, size: int = 300) -> None:
    for number in range(count):
        log.append([Record(b"%d" % (number % 7), b"v" * size, (), number)] * 2)


def copy(fs: FileSystem, follower: PartitionLog, **how: int) -> copying.Copied:
    with LogReader.open("/leader/orders-0", fs=fs) as reader:
        return copy_to_follower(reader, follower, refresh=reader.refresh, check=lambda: None, **how)


def log_bytes(fs: FileSystem, root: str) -> dict[str, bytes]:
    directory = f"/{root}/orders-0"
    names = [name for name in fs.list(directory) if name.endswith((".log", ".txnindex"))]
    found = {}
    for name in names:
        with fs.open(f"{directory}/{name}", OpenMode.READ) as file:
            found[name] = file.pread(file.stat().size, 0)
    return found


def test_an_empty_follower_gets_the_same_segments_byte_for_byte() -> None:
    fs = MemoryFileSystem()
    with open_log(fs, "leader") as leader, open_log(fs, "follower") as follower:
        fill(leader, 60)
        assert copy(fs, follower).is_caught_up
        assert len(follower.segments) > 5
        assert log_bytes(fs, "follower") == log_bytes(fs, "leader")
        assert follower.recovery_point == follower.log_end_offset == 120
        assert follower.leader_epochs == leader.leader_epochs
        assert copy(fs, follower) == (0, True)


def test_a_limit_ends_the_copy_and_the_next_call_continues() -> None:
    fs = MemoryFileSystem()
    with open_log(fs, "leader") as leader, open_log(fs, "follower") as follower:
        fill(leader, 60)
        calls = 1
        while not copy(fs, follower, max_bytes=3000).is_caught_up:
            calls += 1
        assert 8 <= calls <= 16
        assert follower.log_end_offset == leader.log_end_offset


def test_a_follower_below_the_leaders_log_start_restarts_there() -> None:
    fs = MemoryFileSystem()
    with open_log(fs, "leader") as leader, open_log(fs, "follower") as follower:
        fill(leader, 5)
        copy(fs, follower)
        fill(leader, 60)
        leader.raise_log_start(61)  # within a batch
        leader.drop_segments(leader.segments.base_offsets[3])
        start = leader.log_start_offset
        assert copy(fs, follower).is_caught_up
        assert (follower.log_start_offset, follower.log_end_offset) == (start, 130)
    with open_log(fs, "follower") as again:
        assert (again.log_start_offset, again.log_end_offset) == (start, 130)
        assert next(again.read(start, 10**6).records()).offset == start


def test_a_follower_restarts_at_an_empty_leader_that_begins_later() -> None:
    fs = MemoryFileSystem()
    with open_log(fs, "leader") as leader, open_log(fs, "follower") as follower:
        fill(leader, 5)
        copy(fs, follower)
        fill(leader, 5)
        leader.drop_segments(leader.log_end_offset)
        assert copy(fs, follower).is_caught_up
        assert (follower.log_start_offset, follower.log_end_offset) == (20, 20)
        fill(leader, 1)
        assert copy(fs, follower).is_caught_up
        assert follower.log_end_offset == 22


def test_the_log_start_is_taken_over() -> None:
    fs = MemoryFileSystem()
    with open_log(fs, "leader") as leader, open_log(fs, "follower") as follower:
        fill(leader, 20)
        copy(fs, follower)
        leader.raise_log_start(7)
        copy(fs, follower)
        assert follower.log_start_offset == 7


def test_segments_removed_under_the_reader_are_listed_again() -> None:
    fs = MemoryFileSystem()
    with open_log(fs, "leader") as leader, open_log(fs, "follower") as follower:
        fill(leader, 60)
        reader = LogReader.open("/leader/orders-0", fs=fs)
        leader.drop_segments(leader.segments.base_offsets[4])
        for name in fs.list("/leader/orders-0"):
            if name.endswith(".deleted"):
                fs.remove(f"/leader/orders-0/{name}")
        assert copy_to_follower(
            reader, follower, refresh=reader.refresh, check=lambda: None
        ).is_caught_up
        assert follower.log_start_offset == leader.log_start_offset
        assert follower.log_end_offset == 120


def test_damage_at_the_leader_stops_the_copy_before_the_bad_batch() -> None:
    fs = MemoryFileSystem()
    with open_log(fs, "leader") as leader, open_log(fs, "follower") as follower:
        fill(leader, 60)
        bad = leader.segments[2]
        with fs.open(bad.path, OpenMode.WRITE) as file:
            file.pwrite(b"\xff", bad.size - 5)
        with pytest.raises(CorruptRecordError, match="checksum"):
            copy(fs, follower)
        assert bad.base_offset <= follower.log_end_offset < leader.segments[3].base_offset


def test_the_check_is_made_under_the_followers_lock_before_anything_is_written() -> None:
    fs = MemoryFileSystem()

    def fenced() -> None:
        raise FencedError("another leader")

    with open_log(fs, "leader") as leader, open_log(fs, "follower") as follower:
        fill(leader, 6)
        with (
            LogReader.open("/leader/orders-0", fs=fs) as reader,
            pytest.raises(FencedError),
        ):
            copy_to_follower(reader, follower, refresh=reader.refresh, check=fenced)
        assert follower.log_end_offset == 0


def test_a_copy_killed_at_any_operation_continues_to_the_same_bytes() -> None:
    made = MemoryFileSystem()
    with open_log(made, "leader") as leader:
        fill(leader, 16)
    expected = log_bytes(made, "leader")
    at, dies = 0, True
    while dies:
        at += 1
        fs = made.crash_clone(Random(at), power=False)
        faulty = FaultyFileSystem(fs, Fault(at=at))
        try:
            with open_log(faulty, "follower") as follower:
                copy(faulty, follower)
            dies = False
        except SimulatedCrash:
            pass
        after = fs.crash_clone(Random(at), power=False)
        with open_log(after, "follower") as follower:
            copy(after, follower)
            assert follower.log_end_offset == 32
        assert log_bytes(after, "follower") == expected, at
    assert at > 60
