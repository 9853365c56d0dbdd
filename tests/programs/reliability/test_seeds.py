"""Bugs of Apache Kafka, reproduced as the same situation in streamlog. `SEEDS.md` lists them."""

import os
from pathlib import Path
from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.errors import CorruptRecordError, StreamLogError
from streamlog.fs.api import OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.files import read_file, remove_tree
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import CLEAN_SHUTDOWN
from streamlog.fs.memory import MemoryFileSystem
from streamlog.maintenance.retention import delete_old_segments
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from tests.support.crash import crash_states

ROOT, PARTITION = "/logs", "/logs/t-0"
NOW = 1_700_000_000_000
DAY_MS = 24 * 3_600_000


def made(fs: MemoryFileSystem, **configs: str) -> LogManager:
    manager = LogManager.open(ROOT, create=True, fs=fs, clock=ManualClock(NOW))
    manager.create_topic("t", 1, {key.replace("_", "."): value for key, value in configs.items()})
    return manager


def filled(fs: MemoryFileSystem, *, rolls: int = 2) -> LogManager:
    manager = made(fs)
    log = manager.log("t", 0)
    for number in range(rolls + 1):
        if number:
            log.roll()
        log.append([Record(b"k", b"%d" % number, (), NOW)])
    return manager


def test_kafka_10471_a_crash_while_opening_leaves_no_clean_mark() -> None:
    fs = MemoryFileSystem()
    filled(fs).close()
    assert fs.stat(f"{ROOT}/{CLEAN_SHUTDOWN}") is not None

    def open_and_append(faulty: FaultyFileSystem, told: list[str]) -> None:
        manager = LogManager.open(ROOT, fs=faulty, clock=ManualClock(NOW))
        log = manager.log("t", 0)
        told.append("open")
        log.append([Record(b"k", b"new", (), NOW)])

    states = 0
    for state in crash_states(open_and_append, prepared=fs, seeds=[1]):
        if state.acknowledged:
            states += 1
            assert state.fs.stat(f"{ROOT}/{CLEAN_SHUTDOWN}") is None, state
    assert states > 3


def test_kafka_10101_a_recovery_point_above_the_end_is_never_written() -> None:
    fs = MemoryFileSystem()
    manager = filled(fs)
    log = manager.log("t", 0)
    log.flush()
    log.truncate_to(1)
    written = read_file(fs, f"{ROOT}/recovery-point-offset-checkpoint", max_size=99)
    assert written in (b"0\n1\nt 0 0\n", b"0\n1\nt 0 1\n")
    log.append([Record(b"k", b"again", (), NOW)])
    left = fs.crash_clone(Random(1), power=True, loss="everything")
    with PartitionLog.open(PARTITION, fs=left, clock=ManualClock(NOW)) as again:
        assert again.recovery_point <= again.log_end_offset
        assert again.log_end_offset >= 1


def test_kafka_6324_missing_files_do_not_stop_a_deletion() -> None:
    fs = MemoryFileSystem()
    manager = filled(fs)
    log = manager.log("t", 0)
    fs.remove(f"{PARTITION}/{0:020}.timeindex")
    log.delete_records(2)
    gone = delete_old_segments(log, ManualClock(NOW))
    assert [each.base_offset for each in gone] == [0, 1]


def test_kafka_905_overlapping_segments_are_refused() -> None:
    fs = MemoryFileSystem()
    filled(fs).close()
    first = read_file(fs, f"{PARTITION}/{0:020}.log", max_size=999)
    second = read_file(fs, f"{PARTITION}/{1:020}.log", max_size=999)
    with fs.open(f"{PARTITION}/{0:020}.log", OpenMode.WRITE) as file:
        file.pwrite(first + second, 0)
    fs.remove(f"{ROOT}/recovery-point-offset-checkpoint")
    left = fs.crash_clone(Random(1), power=True, loss="nothing")
    with pytest.raises(CorruptRecordError, match="overlap"):
        PartitionLog.open(PARTITION, fs=left, clock=ManualClock(NOW))


def test_kafka_13603_an_empty_segment_without_indexes_is_sound() -> None:
    fs = MemoryFileSystem()
    manager = filled(fs)
    manager.log("t", 0).roll()
    manager.close()
    for suffix in ("index", "timeindex"):
        path = f"{PARTITION}/{3:020}.{suffix}"
        if fs.stat(path) is not None:
            fs.remove(path)
    left = fs.crash_clone(Random(1), power=True, loss="nothing")
    with PartitionLog.open(PARTITION, fs=left, clock=ManualClock(NOW)) as log:
        assert log.log_end_offset == 3
        log.append([Record(b"k", b"3", (), NOW)])
        assert [each.value for each in log.read(3).records()] == [b"3"]


def test_kafka_17181_short_writes_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, bytes(data)[:7], at))
    with LocalFileSystem().open(str(tmp_path / "file"), OpenMode.CREATE) as file:
        file.pwrite(bytes(range(100)), 3)
        assert file.pread(200, 0) == bytes(3) + bytes(range(100))


def test_kafka_4902_a_link_is_removed_and_its_target_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_bytes(b"x")
    gone = tmp_path / "gone"
    gone.mkdir()
    (gone / "link").symlink_to(kept)
    remove_tree(LocalFileSystem(), str(gone))
    assert not gone.exists() and (kept / "file").read_bytes() == b"x"


def test_kafka_10432_epoch_0_is_an_epoch_after_recovery() -> None:
    fs = MemoryFileSystem()
    filled(fs, rolls=0)
    fs.remove(f"{PARTITION}/leader-epoch-checkpoint")
    left = fs.crash_clone(Random(1), power=True, loss="nothing")
    with PartitionLog.open(PARTITION, fs=left, clock=ManualClock(NOW)) as log:
        assert log.leader_epochs.entries[0] == (0, 0)


def test_kafka_12177_a_second_retention_deletes_nothing_more() -> None:
    fs, clock = MemoryFileSystem(), ManualClock(NOW)
    log = filled(fs).log("t", 0)
    clock.advance(8 * DAY_MS)
    assert delete_old_segments(log, clock)
    assert delete_old_segments(log, clock) == []
    assert log.log_start_offset == log.log_end_offset == 3


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_kafka_3968_a_failed_sync_is_never_acknowledged(operation: str) -> None:
    fs = MemoryFileSystem()
    filled(fs).close()
    faulty = FaultyFileSystem(fs, Fault(operation=operation, errno=5, is_lasting=True))
    with pytest.raises(StreamLogError):
        log = LogManager.open(ROOT, fs=faulty, clock=ManualClock(NOW)).log("t", 0)
        log.append([Record(b"k", b"new", (), NOW)])
        log.roll()
