"""One partition, open for writing: append, read, roll, flush, several handles, bad input."""

import errno
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptRecordError,
    DiskFullError,
    InvalidConfigError,
    InvalidRequestError,
    InvalidTimestampError,
    InvalidTopicError,
    LockTimeoutError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PoisonedError,
    UnavailableError,
    UnknownOutcomeError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.files import read_file, write_file_atomically
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.producer_snapshot import list_snapshots, snapshot_file_name
from streamlog.partition.reader import LogReader
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import Header, Record
from streamlog.records.validate import AppendOrigin
from streamlog.root.partition_log import PartitionLog

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
SMALL = LogConfig(internal_segment_bytes=1000, index_interval_bytes=100)


def open_log(fs: FileSystem, config: LogConfig | None = SMALL, path: str = PATH) -> PartitionLog:
    return PartitionLog.open(
        path, config=config, fs=fs, clock=ManualClock(NOW), random=Random(1), lock_timeout_ms=5
    )


def record(number: int, size: int = 20) -> Record:
    return Record(b"k%d" % number, b"v" * size, (), NOW + number)


def offsets(log: PartitionLog | LogReader) -> list[int]:
    found, at = [], log.log_start_offset
    while at < log.log_end_offset:
        info = log.read(at, 400)
        found += [each.offset for each in info.records()]
        at = info.next_offset
    return found


def batch(number: int, *, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    builder = BatchBuilder(
        producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2]
    )
    builder.append(record(number))
    return builder.build()


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def test_appended_records_are_read_back_in_every_detail(fs: MemoryFileSystem) -> None:
    records = [
        Record(b"a", b"1", (Header("h", b"x"), Header("h", None), Header("", b"")), NOW),
        Record(None, b"", (), NOW + 5),
        Record(b"", None, (), NOW + 3),
    ]
    with open_log(fs) as log:
        info = log.append(records)
        found = list(log.read(0).records())
    assert (info.base_offset, info.last_offset, info.count) == (0, 2, 3)
    assert (info.max_timestamp, info.offset_of_max_timestamp) == (NOW + 5, 2)
    assert [each._replace(offset=-1) for each in found] == records
    assert [each.offset for each in found] == [0, 1, 2]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "none"])
def test_every_codec_comes_back(fs: MemoryFileSystem, codec: str) -> None:
    with open_log(fs) as log:
        log.append([record(n) for n in range(9)], compression=codec)
        assert [each.value for each in log.read(3).records()] == [b"v" * 20] * 6


def test_rolls_keep_offsets_and_reads_cross_segments(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        for number in range(40):
            log.append([record(number)])
        assert len(log.segments) > 3
        assert offsets(log) == list(range(40))
        with LogReader.open(PATH, fs=fs) as reader:
            assert offsets(reader) == list(range(40))


def test_reopening_continues_at_the_log_end(fs: MemoryFileSystem) -> None:
    for start in (0, 10, 20):
        with open_log(fs) as log:
            assert log.log_end_offset == start
            for number in range(start, start + 10):
                log.append([record(number)])
    assert offsets(LogReader.open(PATH, fs=fs)) == list(range(30))


def test_two_handles_take_turns_without_losing_or_repeating_an_offset(
    fs: MemoryFileSystem,
) -> None:
    first, second = open_log(fs), open_log(fs)
    given = [handle.append([record(0)]).base_offset for handle in (first, second) * 20]
    assert given == list(range(40))
    first.catch_up()
    assert offsets(first) == offsets(second) == list(range(40))


def test_a_handle_forked_with_its_process_refuses_to_write(tmp_path: os.PathLike[str]) -> None:
    log = PartitionLog.open(f"{tmp_path}/root/orders-0")
    child = os.fork()
    if child == 0:
        try:
            log.append([record(0)])
        except InvalidRequestError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert log.append([record(0)]).base_offset == 0


def test_a_held_lock_is_named_with_its_holder(fs: MemoryFileSystem) -> None:
    first, second = open_log(fs), open_log(fs)
    with first.writing(), pytest.raises(LockTimeoutError) as caught:
        second.append([record(0)])
    assert "orders-0" in str(caught.value)
    assert second.append([record(0)]).base_offset == 0


def test_offsets_outside_the_log_are_refused_with_the_range_that_exists(
    fs: MemoryFileSystem,
) -> None:
    with open_log(fs) as log:
        log.append([record(0), record(1)])
        assert list(log.read(2).records()) == []
        for offset in (-1, 3):
            with pytest.raises(OffsetOutOfRangeError, match="0 to 2"):
                log.read(offset)


def test_one_batch_is_read_however_small_the_limit(fs: MemoryFileSystem) -> None:
    with open_log(fs, LogConfig()) as log:
        log.append([record(0, 5000)])
        log.append([record(1, 5000)])
        assert [each.offset for each in log.read(0, 1).records()] == [0]
        assert log.read(0, 1).next_offset == 1


def test_search_by_time_finds_the_first_record_by_offset(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        for number in (0, 5, 3, 9, 7):
            log.append([record(number)])
        wanted = {0: 0, 1: 1, 4: 1, 5: 1, 6: 3, 9: 3}
        for after, offset in wanted.items():
            found = log.offset_for_timestamp(NOW + after)
            assert found is not None and found.offset == offset
        assert log.offset_for_timestamp(NOW + 10) is None


def test_an_idempotent_repetition_gets_its_old_offsets(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        first = log.append_as_leader(batch(0, producer=(42, 0, 0)))
        log.append([record(5)])
        again = log.append_as_leader(batch(0, producer=(42, 0, 0)))
        assert again.duplicate and again.base_offset == first.base_offset
        assert log.log_end_offset == 2
        with pytest.raises(OutOfOrderSequenceError):
            log.append_as_leader(batch(1, producer=(42, 0, 5)))
    with open_log(fs) as log:
        assert log.append_as_leader(batch(0, producer=(42, 0, 0))).duplicate


def test_an_idle_producer_is_forgotten_when_the_root_says_so(fs: MemoryFileSystem) -> None:
    def open_later(ms: int) -> PartitionLog:
        return PartitionLog.open(PATH, config=SMALL, fs=fs, clock=ManualClock(NOW + ms))

    with open_log(fs) as log:
        log.append_as_leader(batch(0, producer=(42, 0, 0)))
    write_file_atomically(
        fs, LogRoot.at("/logs").server_properties, b"producer.id.expiration.ms=1000\n"
    )
    with open_later(999) as log, pytest.raises(OutOfOrderSequenceError):
        log.append_as_leader(batch(1, producer=(42, 0, 5)))
    with open_later(1000) as log:
        assert not log.append_as_leader(batch(1, producer=(42, 0, 5))).duplicate


def test_of_many_closings_only_the_snapshots_that_a_load_wants_stay(fs: MemoryFileSystem) -> None:
    for number in range(60):
        with open_log(fs) as log:
            log.append([record(number)])
    bases = log.segments.base_offsets
    assert len(bases) > 2
    assert list_snapshots(fs, PATH) == [*bases[1:], 60]


def test_a_roll_over_a_gap_leaves_the_snapshot_at_the_new_segments_base(
    fs: MemoryFileSystem,
) -> None:
    with open_log(fs, LogConfig(internal_segment_bytes=100)) as log:
        log.append_as_leader(batch(0, producer=(42, 0, 0)))
        builder = BatchBuilder(base_offset=20)
        builder.append(record(20)._replace(offset=20))
        log.append_as_follower(builder.build())
        assert log.segments.base_offsets == [0, 20]
    assert list_snapshots(fs, PATH) == [20, 21]


def test_recovery_of_all_segments_believes_no_snapshot(fs: MemoryFileSystem) -> None:
    """One of an earlier state lies where a later one was; its checksum is right."""
    marker = build_marker(
        EndTransactionMarker(ControlRecordType.ABORT, 0),
        producer_id=42,
        producer_epoch=0,
        timestamp=NOW,
    )
    with open_log(fs) as log:
        for turn in range(3):
            builder = BatchBuilder(
                producer_id=42, producer_epoch=0, base_sequence=turn, is_transactional=True
            )
            builder.append(record(turn))
            log.append_as_leader(builder.build())
            if turn < 2:
                log.roll()
            log.append_as_leader(marker, origin=AppendOrigin.COORDINATOR)
            log.roll()
    expected = [entry for segment in log.segments for entry in segment.txn_index.entries]
    assert [(entry.first_offset, entry.last_offset) for entry in expected] == [
        (0, 1),
        (2, 3),
        (4, 5),
    ]
    write_file_atomically(
        fs,
        f"{PATH}/{snapshot_file_name(4)}",
        read_file(fs, f"{PATH}/{snapshot_file_name(3)}", max_size=1000),
    )
    fs.remove("/logs/.streamlog/locks/orders-0")
    fs.remove("/logs/recovery-point-offset-checkpoint")
    with open_log(fs) as log:
        found = [entry for segment in log.segments for entry in segment.txn_index.entries]
    assert found == expected


def test_bad_appends_leave_no_trace(fs: MemoryFileSystem) -> None:
    config = LogConfig(max_message_bytes=500)
    flipped = bytearray(batch(0))
    flipped[-1] ^= 1
    with open_log(fs, config) as log:
        with pytest.raises(MessageTooLargeError, match="500"):
            log.append([record(0, 1000)])
        with pytest.raises(InvalidTimestampError):
            log.append([Record(value=b"x", timestamp=NOW + 10**10)])
        with pytest.raises(CorruptRecordError):
            log.append_as_leader(bytes(flipped))
        assert (log.log_end_offset, log.size) == (0, 0)


def test_log_append_time_is_stamped_on_every_record(fs: MemoryFileSystem) -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime")
    with open_log(fs, config) as log:
        info = log.append([record(5), record(9)])
        found = list(log.read(0).records())
    assert info.log_append_time == NOW
    assert [(each.timestamp, each.timestamp_type.label) for each in found] == [
        (NOW, "LogAppendTime")
    ] * 2


def test_flush_messages_bounds_unsynced_records(fs: MemoryFileSystem) -> None:
    with open_log(fs, LogConfig(flush_messages=3)) as log:
        points = []
        for number in range(7):
            log.append([record(number)])
            points.append(log.recovery_point)
    assert points == [0, 0, 3, 3, 3, 6, 6]


def test_flush_ms_syncs_an_idle_handle(tmp_path: os.PathLike[str]) -> None:
    log = PartitionLog.open(f"{tmp_path}/root/orders-0", config=LogConfig(flush_ms=20))
    log.append([record(0)])
    timer = log._session._timer._timer
    if timer is not None:
        timer.join(5)
    assert log.recovery_point == 1
    log.close()


def test_a_failed_fsync_poisons_the_handle_and_a_new_one_recovers(fs: MemoryFileSystem) -> None:
    faulty = FaultyFileSystem(fs, Fault(operation="sync", path_suffix=".log", errno=errno.EIO))
    log = open_log(faulty)
    log.append([record(0)])
    with pytest.raises(PoisonedError):
        log.flush()
    with pytest.raises(PoisonedError):
        log.append([record(1)])
    log.close()
    with open_log(fs) as again:
        assert offsets(again) == [0]
        again.append([record(1)])
        again.flush()
        assert again.recovery_point == 2


def test_without_room_for_a_copy_a_distrusted_log_is_left_as_it_is_and_tried_again(
    fs: MemoryFileSystem,
) -> None:
    failing = FaultyFileSystem(fs, Fault(operation="sync", path_suffix=".log", errno=errno.EIO))
    with open_log(failing) as log:
        log.append([record(0)])
        with pytest.raises(PoisonedError):
            log.flush()
    before = sorted(fs.list(PATH))
    full = FaultyFileSystem(
        fs, Fault(operation="pwrite", path_suffix=".log.tmp", errno=errno.ENOSPC, is_lasting=True)
    )
    for _ in range(2):
        with pytest.raises(DiskFullError):
            open_log(full)
        assert [each for each in fs.list(PATH) if each.endswith(".tmp")] == []
        assert offsets(LogReader.open(PATH, fs=fs)) == [0]
    assert {*before} <= {*fs.list(PATH)}
    with open_log(fs) as again:
        assert offsets(again) == [0]
        again.append([record(1)])
        again.flush()


def test_a_full_disk_cuts_the_torn_batch_and_appends_go_on_when_there_is_room(
    fs: MemoryFileSystem,
) -> None:
    faulty = FaultyFileSystem(
        fs, Fault(operation="pwrite", path_suffix=".log", at=3, errno=errno.ENOSPC)
    )
    log = open_log(faulty)
    log.append([record(0)])
    log.append([record(1)])
    with pytest.raises(UnknownOutcomeError, match="refused"):
        log.append([record(2)])
    assert offsets(LogReader.open(PATH, fs=fs)) == [0, 1]
    assert log.append([record(2)]).base_offset == 2
    assert offsets(log) == [0, 1, 2]


def test_truncation_removes_a_straddling_batch_whole(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        for start in range(0, 30, 3):
            log.append([record(start + n) for n in range(3)])
        log.truncate_to(14)
        assert log.log_end_offset == 12, "where whoever opens the log finds its end"
        assert offsets(LogReader.open(PATH, fs=fs)) == list(range(12))
        assert log.append([record(14)]).base_offset == 12


def test_a_log_cut_in_front_of_its_start_begins_there_for_good(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        log.append([record(number) for number in range(10)])
        log.delete_records(6)
        log.truncate_to(3)
    with open_log(fs.crash_clone(Random(0), power=True)) as log:
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_after_the_truncation_of_a_straddling_batch_the_log_opens_again(
    fs: MemoryFileSystem,
) -> None:
    with open_log(fs) as log:
        for start in range(0, 30, 3):
            log.append([record(start + n) for n in range(3)])
        log.flush()
        log.truncate_to(14)
        assert log.recovery_point == 12
    with open_log(fs.crash_clone(Random(0), power=True)) as log:
        assert offsets(log) == list(range(12))


def test_a_torn_batch_in_front_of_an_empty_segment_is_damage(fs: MemoryFileSystem) -> None:
    """A roll syncs what lies before it, so this was whole when the segment was made."""
    log = open_log(fs)
    log.append([record(0)])
    log.append([record(1)])
    log.roll()
    with fs.open(f"{PATH}/00000000000000000000.log", OpenMode.WRITE) as file:
        file.truncate(file.stat().size - 1)
    after = fs.crash_clone(Random(0), power=True, loss="nothing")
    with pytest.raises(CorruptRecordError, match=r"case @[NO]"):
        open_log(after)


def test_a_reader_follows_a_writer_through_rolls(fs: MemoryFileSystem) -> None:
    log, reader = open_log(fs), None
    log.append([record(0)])
    reader = LogReader.open(PATH, fs=fs)
    seen = []
    at = 0
    for number in range(1, 60):
        log.append([record(number)])
        reader.refresh()
        while at < reader.log_end_offset:
            info = reader.read(at)
            seen += [each.offset for each in info.records()]
            at = info.next_offset
    assert seen == list(range(60))


def test_a_reader_touches_nothing(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        for number in range(20):
            log.append([record(number)])
    watched = FaultyFileSystem(fs)
    with LogReader.open(PATH, fs=watched) as reader:
        offsets(reader)
        reader.offset_for_timestamp(NOW + 3)
        assert reader.last_stable_offset == 20
    assert watched.operations == []


def test_a_missing_or_foreign_path_is_refused_with_a_reason(tmp_path: os.PathLike[str]) -> None:
    with pytest.raises(InvalidTopicError, match="orders-0"):
        PartitionLog.open(f"{tmp_path}/root/not_a_partition")
    with pytest.raises(InvalidRequestError, match="no such partition"):
        LogReader.open(f"{tmp_path}/root/orders-0")


def test_a_broker_that_runs_is_never_written_beside(tmp_path: os.PathLike[str]) -> None:
    class Brokers(LocalFileSystem):
        def broker_lock_is_held(self, path: str) -> bool:
            return path.endswith("/.lock")

    with pytest.raises(UnavailableError, match="broker"):
        PartitionLog.open(f"{tmp_path}/root/orders-0", fs=Brokers())
    assert not os.path.exists(f"{tmp_path}/root")


def test_a_flipped_bit_is_met_by_the_reader_with_file_and_offset(fs: MemoryFileSystem) -> None:
    with open_log(fs, LogConfig()) as log:
        log.append([record(0)])
        size = log.size
        log.append([record(1)])
        log.append([record(2)])
    path = f"{PATH}/{0:020d}.log"
    with fs.open(path, OpenMode.WRITE) as file:
        byte = file.pread(1, size + 70)[0]
        file.pwrite(bytes([byte ^ 1]), size + 70)
    reader = LogReader.open(PATH, fs=fs)
    with pytest.raises(CorruptRecordError) as caught:
        reader.read(1)
    assert caught.value.path == path and caught.value.position == size


@pytest.mark.parametrize("path", ["orders-0", "./orders-0", "a/../orders-0", "orders-0/"])
def test_a_relative_path_is_one_of_the_directory_at_that_time(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "root")
    with PartitionLog.open(path) as log, LogReader.open(path) as reader:
        monkeypatch.chdir(tmp_path / "elsewhere")
        log.append([record(0)])
        log.roll()
        log.append([record(1)])
        assert [each.offset for each in reader.read(0).records()] == [0]
        assert (log.path, log.root) == (str(tmp_path / "root/orders-0"), str(tmp_path / "root"))
        assert reader.path == log.path
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("config", ["x", {}, {"segment.bytes": 1}, 7])
def test_settings_of_another_type_are_refused_before_anything_is_made(
    fs: MemoryFileSystem, config: Any
) -> None:
    with pytest.raises(InvalidConfigError, match="LogConfig"):
        open_log(fs, config)
    assert fs.stat("/logs") is None
