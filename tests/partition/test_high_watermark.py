"""The high watermark of one of several replicas: what readers see, and what it bounds."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streamlog.cleaner.choosing import find_cleanable
from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import OffsetOutOfRangeError
from streamlog.fs.api import FileStat, FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import HIGH_WATERMARK_CHECKPOINT, LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.maintenance.retention import delete_old_segments
from streamlog.partition.reader import LogReader
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.root.consumer import Consumer
from tests.support.replicated_log import (
    NOW,
    PARTITION,
    PATH,
    Copies,
    batch,
    make_replica,
    open_log,
    record,
)
from tests.support.segments import read_bytes, write_bytes

CHECKPOINT = f"/logs/{HIGH_WATERMARK_CHECKPOINT}"
SMALL = LogConfig(internal_segment_bytes=200)  # two batches a segment


@pytest.fixture
def fs() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    make_replica(fs)
    return fs


def written(
    fs: FileSystem, end: int, high_watermark: int, *, config: LogConfig | None = None
) -> None:
    with open_log(fs, config=config) as log:
        for offset in range(end):
            log.append_as_follower(batch(offset))
        log.raise_high_watermark(high_watermark)


def offsets(reader: LogReader) -> list[int]:
    return [each.offset for each in reader.records(isolation="read_uncommitted")]


# ---- reading ----------------------------------------------------------------------------------
def test_a_reader_stops_at_the_high_watermark(fs: MemoryFileSystem) -> None:
    written(fs, 4, 2)
    with LogReader.open(PATH, fs=fs) as reader:
        assert (reader.high_watermark, reader.log_end_offset) == (2, 4)
        assert reader.last_stable_offset == 2
        assert offsets(reader) == [0, 1]
        located = reader.locate(0)
        assert located is not None and located.size == reader.read(0).table.end
        for offset in (2, 3, 4):  # no data yet
            assert len(reader.read(offset).table) == 0 and reader.locate(offset) is None
            assert reader.read(offset).next_offset == offset
            assert list(reader.records(offset)) == []
        with pytest.raises(OffsetOutOfRangeError):
            reader.read(5)
        with pytest.raises(OffsetOutOfRangeError):
            reader.records(5)


def test_a_reader_learns_of_a_raise_without_an_append(fs: MemoryFileSystem) -> None:
    written(fs, 4, 2)
    with LogReader.open(PATH, fs=fs) as reader, open_log(fs) as log:
        for high_watermark in (3, 4):
            log.raise_high_watermark(high_watermark)
            assert len(reader.read(high_watermark - 1).table) == 1
            assert reader.high_watermark == high_watermark


def test_a_reader_that_follows_waits_at_the_high_watermark(fs: MemoryFileSystem) -> None:
    written(fs, 4, 2)

    class Raising(ManualClock):
        def sleep_ms(self, ms: float) -> None:
            super().sleep_ms(ms)
            if self.monotonic_ms() == 300:
                log.raise_high_watermark(3)

    with LogReader.open(PATH, fs=fs) as reader, open_log(fs) as log:
        clock = Raising(0)
        found = reader.records(1, follow=True, timeout_ms=1_000, clock=clock)
        assert [each.offset for each in found] == [1, 2]
        late = reader.records(4, follow=True, timeout_ms=1_000, clock=ManualClock(0))
        assert list(late) == []


def test_a_consumer_between_high_watermark_and_log_end_has_no_data_yet(
    fs: MemoryFileSystem,
) -> None:
    written(fs, 4, 2)
    with Consumer("/logs", fs=fs, clock=ManualClock(NOW)) as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, 3)
        assert not consumer.poll(0)
        with open_log(fs) as log:
            log.raise_high_watermark(4)
        assert [each.offset for each in consumer.poll(0)[PARTITION]] == [3]


def test_a_range_that_was_planned_by_another_replica_is_read_to_its_end(
    fs: MemoryFileSystem,
) -> None:
    written(fs, 4, 2)
    with LogReader.open(PATH, fs=fs) as reader:
        info = reader.read(1, end_offset=3, end_is_stable=True)
        assert [each.offset for each in info.records()] == [1, 2]


class Counting(MemoryFileSystem):
    """Counts calls of `stat` and `open`."""

    stats: list[str]
    opened: list[str]

    def stat(self, path: str) -> FileStat | None:
        self.stats.append(path)
        return super().stat(path)

    def open(self, path: str, mode: Any) -> Any:
        self.opened.append(path)
        return super().open(path, mode)


@pytest.mark.parametrize(("is_replicated", "stats", "opened"), [(False, 4, 0), (True, 5, 1)])
def test_a_poll_costs_one_replica_what_it_did(is_replicated: bool, stats: int, opened: int) -> None:
    fs = Counting()
    fs.stats, fs.opened = [], []
    if is_replicated:
        make_replica(fs)
    else:
        fs.make_directory("/logs")
    with open_log(fs, Copies() if is_replicated else None) as log:
        log.append([record(0)])
    fs.stats = []
    with LogReader.open(PATH, fs=fs) as reader:
        register = LogRoot.at("/logs", fs=fs).partition_register(PARTITION)
        assert fs.stats.count(register) == 1
        reader.refresh()
        fs.stats, fs.opened = [], []
        reader.refresh()
        assert (len(fs.stats), len(fs.opened)) == (stats, opened), fs.stats


# ---- where the high watermark comes from --------------------------------------------------------
def rebooted(fs: MemoryFileSystem) -> MemoryFileSystem:
    return fs.crash_clone(Random(1), power=True, loss="nothing")


@pytest.mark.parametrize("has_state", [True, False])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"0\n1\norders 0 6\n", 6),
        (b"0\n1\norders 0 2\n", 2),  # stale
        (b"0\n1\norders 0 90\n", 8),  # ahead
        (b"0\n1\norders 1 6\n", 0),
        (b"0\n2\norders 0 6\n", 0),
        (None, 0),
    ],
)
def test_after_a_reboot_a_reader_goes_by_the_checkpoint(
    fs: MemoryFileSystem, content: bytes | None, expected: int, has_state: bool
) -> None:
    written(fs, 8, 6)
    fs = rebooted(fs)
    if content is None:
        fs.remove(CHECKPOINT)
    else:
        write_bytes(fs, CHECKPOINT, content)
    if has_state:
        expected = min(expected, 6)
    else:
        fs.remove(LogRoot.at("/logs", fs=fs).partition_lock(PARTITION))
    for _ in range(2):
        with LogReader.open(PATH, fs=fs) as reader:
            assert (reader.high_watermark, reader.log_end_offset) == (expected, 8)
        with open_log(fs) as log:  # a writer agrees
            assert log.high_watermark == expected


def test_no_flipped_digit_of_the_checkpoint_commits_a_record(fs: MemoryFileSystem) -> None:
    written(fs, 80, 45)
    fs = rebooted(fs)
    sound = read_bytes(fs, CHECKPOINT)
    assert sound == b"0\n1\norders 0 45\n"
    tried = 0
    for at, digit in itertools.product(range(len(sound)), b"0123456789"):
        if not sound[at : at + 1].isdigit():
            continue
        damaged = rebooted(fs)
        write_bytes(damaged, CHECKPOINT, sound[:at] + bytes([digit]) + sound[at + 1 :])
        with LogReader.open(PATH, fs=damaged) as reader:
            assert 0 <= reader.high_watermark <= 45
        with open_log(damaged) as log:
            assert 0 <= log.high_watermark <= 45
        tried += 1
    assert tried == 50


def test_a_state_that_is_being_written_does_not_move_a_reader_back(fs: MemoryFileSystem) -> None:
    written(fs, 8, 2)
    with LogReader.open(PATH, fs=fs) as reader, open_log(fs) as log:
        log.raise_high_watermark(6)
        reader.refresh()
        path = LogRoot.at("/logs", fs=fs).partition_lock(PARTITION)
        whole = read_bytes(fs, path)
        write_bytes(fs, path, whole[:-1])
        reader.refresh()
        assert reader.high_watermark == 6
        with LogReader.open(PATH, fs=fs) as other:
            assert other.high_watermark == 2


def test_a_reader_never_goes_back_while_its_records_stay(fs: MemoryFileSystem) -> None:
    written(fs, 8, 6)
    write_bytes(fs, CHECKPOINT, b"0\n1\norders 0 3\n")
    with LogReader.open(PATH, fs=fs) as reader:
        assert reader.high_watermark == 6
        fs.remove(LogRoot.at("/logs", fs=fs).partition_lock(PARTITION))
        with open_log(fs) as log:
            assert log.high_watermark == 3
            reader.refresh()
            assert reader.high_watermark == 6
            log.raise_high_watermark(7)
            reader.refresh()
            assert reader.high_watermark == 7


def test_a_reader_goes_back_where_its_records_were_replaced(fs: MemoryFileSystem) -> None:
    written(fs, 8, 6)
    with LogReader.open(PATH, fs=fs) as reader, open_log(fs) as log:
        log.truncate_to(4)
        for offset in range(4, 9):
            log.append_as_follower(batch(offset, 1))
        reader.refresh()
        assert (reader.high_watermark, reader.log_end_offset) == (4, 9)


def test_a_damaged_epoch_file_leaves_records_readable(fs: MemoryFileSystem) -> None:
    written(fs, 4, 2)
    write_bytes(fs, f"{PATH}/leader-epoch-checkpoint", b"x")
    with LogReader.open(PATH, fs=fs) as reader:
        assert offsets(reader) == [0, 1]


# ---- what it bounds -----------------------------------------------------------------------------
def test_times_are_looked_up_below_the_high_watermark(fs: MemoryFileSystem) -> None:
    with open_log(fs, config=SMALL) as log:
        for offset, timestamp in enumerate((10, 30, 20, 30, 40)):
            builder = BatchBuilder(base_offset=offset, partition_leader_epoch=0)
            builder.append(record(offset)._replace(timestamp=timestamp))
            log.append_as_follower(builder.build())
        for high_watermark, largest, at_35 in (
            (0, None, None),
            (1, (0, 10), None),
            (3, (1, 30), None),
            (4, (1, 30), None),
            (5, (4, 40), (4, 40)),
        ):
            log.raise_high_watermark(high_watermark)
            with LogReader.open(PATH, fs=fs) as reader:
                assert reader.max_timestamp() == largest
                for each in (reader, log):
                    assert each.offset_for_timestamp(35) == at_35
                    assert each.offset_for_timestamp(10) == ((0, 10) if high_watermark else None)


def test_a_transaction_is_stable_once_its_marker_is_committed(fs: MemoryFileSystem) -> None:
    builder = BatchBuilder(
        base_offset=0,
        partition_leader_epoch=0,
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    builder.append(record(0))
    marker = build_marker(
        EndTransactionMarker(ControlRecordType.ABORT, 0),
        producer_id=9,
        producer_epoch=0,
        timestamp=NOW,
        base_offset=1,
        partition_leader_epoch=0,
    )
    with open_log(fs) as log:
        log.append_as_follower(builder.build())
        log.append_as_follower(marker)
        log.append_as_follower(batch(2))
        for high_watermark, stable in ((0, 0), (1, 0), (2, 2), (3, 3)):
            log.raise_high_watermark(high_watermark)
            with LogReader.open(PATH, fs=fs) as reader, open_log(fs) as other:
                for each in (log, reader, other):
                    assert each.last_stable_offset == stable
            with LogReader.open(PATH, fs=fs) as reader:
                found = [each.offset for each in reader.records()]
                assert found == [2][: max(0, stable - 2)]


def test_retention_and_compaction_stop_at_the_high_watermark(fs: MemoryFileSystem) -> None:
    config = LogConfig(
        internal_segment_bytes=200, retention_bytes=0, cleanup_policy=frozenset({"delete"})
    )
    written(fs, 8, 5, config=SMALL)
    with open_log(fs, config=config) as log, LogReader.open(PATH, fs=fs) as reader:
        assert log.segments.base_offsets == [0, 2, 4, 6]
        assert find_cleanable(reader, 0, config=SMALL, now_ms=NOW).end_offset == 4
        delete_old_segments(log, ManualClock(NOW))
        assert log.segments.base_offsets == [4, 6]
        assert (log.log_start_offset, log.high_watermark) == (4, 5)


def test_records_are_deleted_up_to_the_high_watermark(fs: MemoryFileSystem) -> None:
    written(fs, 8, 5)
    with open_log(fs, Copies()) as log:
        with pytest.raises(OffsetOutOfRangeError, match="high watermark"):
            log.delete_records(6)
        assert log.delete_records(-1) == 5
        assert (log.log_start_offset, log.high_watermark) == (5, 5)


# ---- with writers at the same time --------------------------------------------------------------
def test_a_reader_beside_a_writer_sees_committed_records_only(tmp_path: Path) -> None:
    """The value of each record says how far the high watermark may be when it is seen."""
    path = str(tmp_path / "orders-0")
    fs = LocalFileSystem()
    make_replica(fs, path)
    committed, errors, done = [0], list[BaseException](), threading.Event()

    def run(work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - raised by the test
                errors.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    def read() -> None:
        with LogReader.open(path) as reader:
            seen = 0
            while not done.is_set():
                reader.refresh()
                found = reader.high_watermark
                assert seen <= found <= committed[0], (seen, found, committed[0])
                assert found <= reader.log_end_offset
                if found > seen:
                    last = reader.read(found - 1)
                    assert last.next_offset == found
                seen = found

    with open_log(fs, path=path, config=LogConfig(internal_segment_bytes=5_000)) as log:
        readers = [run(read) for _ in range(2)]
        for offset in range(600):
            log.append_as_follower(batch(offset))
            committed[0] = offset
            log.raise_high_watermark(offset)
        done.set()
        for each in readers:
            each.join()
    assert not errors, errors
