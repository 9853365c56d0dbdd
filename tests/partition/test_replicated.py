"""A log that is one replica of several: hooks of its leader, high watermark, leader epochs."""

import struct
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from streamlog.binary.crc import crc32c
from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    InvalidOptionError,
    InvalidRequestError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import HIGH_WATERMARK_CHECKPOINT, LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition import checkpoints
from streamlog.partition.locks import decode_state, encode_state
from streamlog.partition.log import Log
from streamlog.records.acks import Acks
from streamlog.root.partition_log import PartitionLog
from tests.support.crash import every_crash_point
from tests.support.replicated_log import (
    NOW,
    PARTITION,
    PATH,
    Copies,
    batch,
    make_replica,
    open_log,
    record,
    state_of,
)
from tests.support.segments import read_bytes, write_bytes

FOLLOWER = "/other/orders-0"
CHECKPOINT = f"/logs/{HIGH_WATERMARK_CHECKPOINT}"


@pytest.fixture
def fs() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    make_replica(fs)
    return fs


@pytest.fixture
def replicas(fs: MemoryFileSystem) -> Iterator[Copies]:
    make_replica(fs, FOLLOWER)
    with open_log(fs, path=FOLLOWER) as follower:
        yield Copies(follower)


# ---- acks, and the hooks of a leader ----------------------------------------------------------
@pytest.mark.parametrize("acks", [0, 1, "all", "-1", Acks.LEADER])
def test_with_one_replica_all_acks_mean_the_same(acks: Any) -> None:
    fs = MemoryFileSystem()
    fs.make_directory("/logs")
    with open_log(fs) as log:
        assert not log.is_replicated
        log.append([record(0)], acks=acks)
        assert (log.high_watermark, log.log_end_offset) == (1, 1)
        log.raise_high_watermark(7)
        assert log.high_watermark == 1
        with pytest.raises(InvalidOptionError, match="acks"):
            log.append([record(1)], acks="some")


def test_an_append_is_copied_and_moves_the_high_watermark(
    fs: MemoryFileSystem, replicas: Copies
) -> None:
    with open_log(fs, replicas) as log:
        assert replicas.calls == ["begin"]
        log.append([record(0)])
        assert replicas.calls[1:] == ["begin", "before ALL", "appended ALL"]
        assert (log.log_end_offset, log.high_watermark) == (1, 1)
        assert replicas.follower is not None
        assert replicas.follower.read(0).buffer == log.read(0).buffer
        replicas.calls.clear()
        with log.writing():
            log.append([record(1)], acks=1)
            log.append([record(2)], acks=0)
        expected = ["begin", "before LEADER", "appended LEADER", "before NONE", "appended NONE"]
        assert replicas.calls == expected
    assert replicas.calls == [*expected, "share", "close"]


def test_the_leader_syncs_as_its_topic_says(fs: MemoryFileSystem, replicas: Copies) -> None:
    with open_log(fs, replicas, config=LogConfig(flush_messages=2)) as log:
        log.append([record(0)])
        assert log.recovery_point == 0
        log.append([record(1)])
        assert log.recovery_point == 2


def test_too_few_replicas_before_an_append_leave_the_log_as_it_is(
    fs: MemoryFileSystem, replicas: Copies
) -> None:
    replicas.has_enough = False
    with open_log(fs, replicas) as log:
        with pytest.raises(NotEnoughReplicasError):
            log.append([record(0)])
        assert log.log_end_offset == 0
        log.append([record(0)], acks=1)
        assert log.log_end_offset == 1


def test_after_an_append_that_too_few_hold_its_repetition_is_not_acknowledged_either(
    fs: MemoryFileSystem,
) -> None:
    replicas = Copies()
    replicas.holds = False
    with open_log(fs, replicas) as log:
        for _ in range(2):
            with pytest.raises(NotEnoughReplicasAfterAppendError):
                log.append_as_leader(batch(0, producer_id=9))
        assert (log.log_end_offset, log.high_watermark) == (1, 0)
        replicas.holds = True
        assert log.append_as_leader(batch(0, producer_id=9)).duplicate
        assert (log.log_end_offset, log.high_watermark) == (1, 1)
        assert replicas.calls.count("appended ALL") == 1


def test_a_replica_that_may_not_lead_is_not_written(fs: MemoryFileSystem) -> None:
    replicas = Copies()
    with open_log(fs, replicas) as log:
        replicas.leads = False
        for attempt in (
            lambda: log.append([record(0)]),
            log.catch_up,
            lambda: log.writing().__enter__(),
            lambda: log.delete_records(0),
        ):
            with pytest.raises(NotLeaderError):
                attempt()
        assert len(log.read(0).table) == 0  # reading needs no leader, nor does maintenance
        log.flush()
        log.roll()
        with open_log(fs) as other:
            other.append_as_follower(batch(0))
    with pytest.raises(NotLeaderError):
        open_log(fs, replicas)
    assert replicas.calls[-1] == "close"


def test_a_handle_that_knows_no_other_replicas_does_not_lead(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        for attempt in (
            lambda: log.append([record(0)]),
            lambda: log.check_replicas(Acks.ALL),
            lambda: log.writing().__enter__(),
        ):
            with pytest.raises(NotLeaderError, match="does not lead"):
                attempt()
        log.append_as_follower(batch(0))
        assert (log.log_end_offset, log.high_watermark) == (1, 0)


# ---- high watermark ---------------------------------------------------------------------------
def test_the_high_watermark_rises_up_to_the_log_end_and_never_falls(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log, open_log(fs) as other:
        for offset in range(3):
            log.append_as_follower(batch(offset))
        for wanted, got in ((2, 2), (1, 2), (9, 3), (0, 3)):
            log.raise_high_watermark(wanted)
            assert log.high_watermark == got
            other.catch_up()
            assert (other.high_watermark, other.log_end_offset) == (got, 3)


def test_within_writing_the_high_watermark_may_rise_with_each_append(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log, open_log(fs) as other:
        with log.locked():
            for offset in range(3):
                log.append_as_follower(batch(offset))
                log.raise_high_watermark(offset)
        other.catch_up()
        assert (other.high_watermark, other.log_end_offset) == (2, 3)


def test_reading_ends_at_the_high_watermark(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        for offset in range(3):
            log.append_as_follower(batch(offset))
        log.raise_high_watermark(1)
        assert [each.offset for each in log.read(0).records()] == [0]
        for offset in (1, 2, 3):
            assert len(log.read(offset).table) == 0 and log.locate(offset) is None
            assert log.read(offset).next_offset == offset
        assert [each.offset for each in log] == [0]


def test_truncation_takes_the_high_watermark_along(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        for offset in range(4):
            log.append_as_follower(batch(offset))
        log.raise_high_watermark(4)
        log.flush()
        log.truncate_to(2)
        assert (log.high_watermark, log.log_end_offset) == (2, 2)
        log.append_as_follower(batch(2, 1))
        assert log.high_watermark == 2
    rebooted = fs.crash_clone(Random(1), power=True, loss="nothing")
    with open_log(rebooted) as log:
        assert (log.high_watermark, log.log_end_offset) == (2, 3)


def written(fs: MemoryFileSystem, high_watermark: int = 150, end: int = 200) -> None:
    with open_log(fs) as log:
        log.append_as_follower(b"".join(batch(offset) for offset in range(end)))
        log.raise_high_watermark(high_watermark)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("0\n1\norders 0 150\n", 150),
        ("0\n1\norders 0 20\n", 20),  # stale
        ("0\n1\norders 0 900\n", 150),  # ahead: the lock file's state does not confirm it
        ("0\n1\norders 1 150\n", 0),
        ("0\n2\norders 0 150\n", 0),
        ("", 0),
        (None, 0),
    ],
)
def test_after_a_reboot_the_checkpoint_bounds_the_high_watermark(
    fs: MemoryFileSystem, content: str | None, expected: int
) -> None:
    written(fs)
    assert read_bytes(fs, CHECKPOINT) == b"0\n1\norders 0 150\n"
    rebooted = fs.crash_clone(Random(1), power=True, loss="nothing")
    if content is None:
        rebooted.remove(CHECKPOINT)
    else:
        write_bytes(rebooted, CHECKPOINT, content.encode())
    with open_log(rebooted) as log:
        assert (log.high_watermark, log.log_end_offset) == (expected, 200)


def test_the_state_of_this_boot_is_above_the_checkpoint(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        log.append_as_follower(batch(0) + batch(1))
        log.raise_high_watermark(1)
        killed = fs.crash_clone(Random(1), power=False)
        assert checkpoints.read_high_watermarks(LogRoot.at("/logs", fs=killed)) == {}
        with open_log(killed) as again:
            assert (again.high_watermark, again.log_end_offset) == (1, 2)


def test_no_crash_commits_what_was_not_committed(fs: MemoryFileSystem) -> None:
    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        log = open_log(fs, config=LogConfig(internal_segment_bytes=200))
        for offset in range(5):
            log.append_as_follower(batch(offset))
            acknowledged.append(("may be", offset))
            log.raise_high_watermark(offset)
            acknowledged.append(("committed", offset))
            if offset == 2:
                log.flush()
                acknowledged.append(("checkpoint", offset))
        log.truncate_to(3)
        acknowledged.append(("truncated", 3))
        log.append_as_follower(batch(3, 1))
        log.close()
        acknowledged.append(("checkpoint", 3))

    def check(crashed: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        known: dict[str, int] = dict(acknowledged)  # the last of each kind
        is_killed = crashed.boot_id() == fs.boot_id()
        if is_killed and decode_state(state_of(crashed)) is None:  # it was written in part
            is_killed = False
        sure = known.get("committed" if is_killed else "checkpoint", 0)
        with open_log(crashed) as log:
            highest = known.get("truncated", known.get("may be", 0))
            assert min(sure, 3) <= log.high_watermark <= min(highest, log.log_end_offset)

    assert every_crash_point(workload, check, prepared=fs, seeds=range(2)).states > 100


def test_the_state_of_an_earlier_version_is_read(fs: MemoryFileSystem) -> None:
    written(fs)
    new = state_of(fs)
    state = decode_state(new)
    assert state is not None and encode_state(state) == new and new[4:8] == b"SLS3"
    assert (state.offsets.high_watermark, state.offsets.end) == (150, 200)
    body = new[12:-8]
    old = new[:4] + b"SLS2" + struct.pack(">I", crc32c(body)) + body
    for stands in (old, old + new[-8:]):  # written over nothing, or over a later state
        read = decode_state(stands)
        assert read is not None
        assert read == state._replace(offsets=state.offsets.with_high_watermark(200))
    for at in range(4, len(new)):
        assert decode_state(new[:at] + bytes([new[at] ^ 1]) + new[at + 1 :]) is None
        if at < len(old):
            assert decode_state(old[:at] + bytes([old[at] ^ 1]) + old[at + 1 :]) is None
            assert decode_state(old[:at]) is None


def test_an_earlier_version_reads_the_state_of_one_replica() -> None:
    fs = MemoryFileSystem()
    with open_log(fs) as log:
        log.append([record(0)])
        stands = state_of(fs)
    old = stands[:104]  # as much as it reads and writes
    body = old[12:]
    assert old[4:12] == b"SLS2" + struct.pack(">I", crc32c(body))
    fields = struct.unpack(">36sqqqqqqq", body)
    assert fields[2:4] == (0, 1)  # log start and log end
    assert decode_state(old) == decode_state(stands)


# ---- leader epochs ----------------------------------------------------------------------------
def test_a_leader_epoch_begins_without_records_and_stays(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log, open_log(fs) as other:
        log.append_as_follower(batch(0, 2))
        log.assign_leader_epoch(5)
        assert log.leader_epochs.entries == ((2, 0), (5, 1))
        other.catch_up()
        assert other.leader_epoch == 5
        log.assign_leader_epoch(5)
        with pytest.raises(InvalidRequestError, match="epoch goes back"):
            log.assign_leader_epoch(4)
        killed = fs.crash_clone(Random(1), power=False)
        with open_log(killed) as again:
            assert again.leader_epochs.entries == ((2, 0), (5, 1))
        log.flush()
    for power in (False, True):
        with open_log(fs.crash_clone(Random(1), power=power)) as again:
            assert again.leader_epochs.entries == ((2, 0), (5, 1))


def test_after_a_loss_the_leader_starts_the_epoch_that_it_is_given(fs: MemoryFileSystem) -> None:
    written(fs)
    rebooted = fs.crash_clone(Random(1), power=True, loss="nothing")
    with open_log(rebooted) as follower:
        assert follower.leader_epochs.entries == ((0, 0),)
        follower.append_as_follower(batch(200))
    replicas = Copies()
    replicas.epoch = 7
    with open_log(rebooted, replicas) as log:
        assert replicas.calls == ["begin", "epoch"]
        assert log.leader_epochs.entries == ((0, 0), (7, 201))
        log.append([record(201)])
    with open_log(rebooted, replicas):
        assert replicas.calls.count("epoch") == 1


def test_an_epoch_that_is_assigned_after_a_loss_does_not_stand_for_the_one_that_is_due(
    fs: MemoryFileSystem,
) -> None:
    written(fs)
    rebooted = fs.crash_clone(Random(1), power=True, loss="nothing")
    with open_log(rebooted) as log:
        log.assign_leader_epoch(3)
    replicas = Copies()
    with open_log(rebooted, replicas) as log:
        assert replicas.calls == ["begin", "epoch"] and log.leader_epoch == 3
    with open_log(rebooted, replicas):
        assert replicas.calls.count("epoch") == 1


def test_the_lost_epoch_is_not_used_again_for_other_records(fs: MemoryFileSystem) -> None:
    class Elected(Copies):
        def begin(self, log: Log) -> None:
            super().begin(log)
            log.assign_leader_epoch(3)  # as the register still says

    replicas = Elected()
    with open_log(fs, replicas) as log:
        log.append([record(0)])
        log.flush()
        log.append([record(1)])
    with open_log(fs) as log:
        log.append_as_follower(batch(2, 3))
        lost = fs.crash_clone(Random(1), power=True, loss="everything")
    replicas.epoch = 4
    with open_log(lost, replicas) as log:
        assert log.log_end_offset == 2
        assert log.leader_epochs.entries == ((3, 0), (4, 2))


def test_the_high_watermark_is_checkpointed_once_a_minute(fs: MemoryFileSystem) -> None:
    root = LogRoot.at("/logs", fs=fs)
    clock = ManualClock(NOW)
    with PartitionLog.open(PATH, fs=fs, clock=clock, random=Random(1)) as log:
        for offset, written in enumerate((None, None, 3, 3, 5)):
            log.append_as_follower(batch(offset))
            log.raise_high_watermark(offset + 1)
            assert checkpoints.read_high_watermarks(root).get(PARTITION) == written
            clock.sleep_ms(30_000)
