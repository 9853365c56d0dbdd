"""`append_at_once`: the same append, but only where nothing has to be waited for."""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    MessageTooLargeError,
    OutOfOrderSequenceError,
)
from streamlog.fs.api import OpenMode
from streamlog.fs.faults import FaultyFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.append import AppendInfo
from streamlog.partition.locks import take_partition_lock
from streamlog.partition.producer_snapshot import encode_snapshot
from streamlog.partition.reader import LogReader
from streamlog.records import plain_records
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import IsolationLevel, Record
from streamlog.records.validate import AppendOrigin
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"


class Scene:
    """A partition that a handle has appended to, on a disk that counts what is done."""

    def __init__(self) -> None:
        memory = MemoryFileSystem()
        memory.make_directory("/logs")
        self.fs, self.clock = FaultyFileSystem(memory), ManualClock(NOW)

    def open(self, **config: int | str) -> PartitionLog:
        chosen = LogConfig(**config) if config else None  # type: ignore[arg-type]
        log = PartitionLog.open(
            PATH, config=chosen, fs=self.fs, clock=self.clock, random=Random(1), lock_timeout_ms=0
        )
        log.append_as_leader(batch(b"first"))
        return log

    def reader(self) -> LogReader:
        return LogReader.open(PATH, fs=self.fs)


@pytest.fixture
def scene() -> Iterator[Scene]:
    yield Scene()


def batch(*values: bytes, **how: int | bool) -> bytes:
    builder = BatchBuilder(**how)  # type: ignore[arg-type]
    for value in values:
        builder.append(Record(b"k", value, (), NOW))
    return bytes(builder.build())


def produced(sequence: int, **how: int | bool) -> bytes:
    return batch(b"p", producer_id=7, producer_epoch=0, base_sequence=sequence, **how)


def test_it_appends_as_a_leader_does_and_other_writers_go_on_from_there(scene: Scene) -> None:
    with scene.open() as log, scene.open() as other:
        assert other.log_end_offset == 2
        log.append_as_leader(batch(b"a"))
        plain = log.append_as_leader(batch(b"b", b"c"))
        quick = log.append_at_once(batch(b"d", b"e"))
        assert isinstance(quick, AppendInfo)
        assert (quick.base_offset, quick.last_offset) == (plain.last_offset + 1, 6)
        assert (quick.max_timestamp, quick.leader_epoch) == (
            plain.max_timestamp,
            plain.leader_epoch,
        )
        assert other.append_as_leader(batch(b"f")).base_offset == 7
        values = [record.value for record in other.records()]
        assert values == [b"first", b"first", b"a", b"b", b"c", b"d", b"e", b"f"]


def test_it_refuses_what_a_leader_refuses(scene: Scene) -> None:
    with scene.open() as log:
        with pytest.raises(InvalidRecordError):
            log.append_at_once(batch(b"a") + batch(b"b"))
        log.append_as_leader(produced(0))
        repeated = log.append_at_once(produced(0))
        assert repeated is not None
        assert repeated.duplicate
        assert log.log_end_offset == 2
        with pytest.raises(OutOfOrderSequenceError):
            log.append_at_once(produced(5))


def test_the_time_of_the_append_is_stamped(scene: Scene) -> None:
    with scene.open(message_timestamp_type="LogAppendTime") as log:
        scene.clock.advance(5)
        info = log.append_at_once(batch(b"a"))
        assert info is not None
        assert info.log_append_time == info.max_timestamp == NOW + 5


# ---- what it leaves to a thread that may wait ----------------------------------------------------
def _sync(scene: Scene) -> PartitionLog:
    return scene.open(flush_messages=1)


def _sync_by_time(scene: Scene) -> PartitionLog:
    log = scene.open(flush_ms=1000)
    scene.clock.advance(1000)
    return log


def _roll(scene: Scene) -> PartitionLog:
    return scene.open(internal_segment_bytes=100)


def _other_codec(scene: Scene) -> PartitionLog:
    return scene.open(compression_type="gzip")


def _another_writer(scene: Scene) -> PartitionLog:
    log = scene.open()
    scene.open().close()
    return log


def _first_of_a_handle(scene: Scene) -> PartitionLog:
    scene.open().close()
    return PartitionLog.open(PATH, fs=scene.fs, clock=scene.clock, random=Random(1))


def _closed(scene: Scene) -> PartitionLog:
    log = scene.open()
    log.close()
    return log


WAITS = (_sync, _sync_by_time, _roll, _other_codec, _another_writer, _first_of_a_handle, _closed)


@pytest.mark.parametrize("make", WAITS, ids=lambda make: make.__name__)
def test_it_changes_nothing_where_it_might_wait(
    scene: Scene, make: Callable[[Scene], PartitionLog]
) -> None:
    log = make(scene)
    before, done = log.offsets, len(scene.fs.operations)
    assert log.append_at_once(batch(b"a")) is None
    assert log.offsets == before
    assert scene.fs.operations[done:] == []


def test_it_does_not_wait_for_another_process(scene: Scene) -> None:
    with scene.open() as log:
        root = LogRoot.at("/logs", fs=scene.fs, clock=scene.clock)
        held = take_partition_lock(root, log.topic_partition, timeout_ms=0)
        assert log.append_at_once(batch(b"a")) is None
        held.release()
        assert log.append_at_once(batch(b"a")) is None  # the file was given up: a new one is due
        log.append_as_leader(batch(b"b"))
        assert log.append_at_once(batch(b"c")) is not None
        assert [record.value for record in log.records()] == [b"first", b"b", b"c"]


def test_it_does_not_load_the_state_of_producers(scene: Scene) -> None:
    with scene.open() as log:
        assert log.append_at_once(produced(0)) is None
        log.append_as_leader(produced(0))
        assert log.append_at_once(produced(1)) is not None


def test_it_loads_no_kernels(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes half a second; without them, a batch of many records takes milliseconds."""
    monkeypatch.setattr(plain_records, "numba_is_loaded", lambda: False)
    many = batch(*[b"a"] * (plain_records.QUICK_RECORDS + 1))
    with scene.open() as log:
        assert log.append_at_once(batch(b"b")) is not None
        assert log.append_at_once(many) is None
        monkeypatch.setattr(plain_records, "_allowance", plain_records.Allowance(0, 0))
        assert log.append_at_once(batch(b"c")) is None
        monkeypatch.undo()
        log.append_as_leader(batch(*[b"a"] * (plain_records.FEW_RECORDS + 1)))
        assert log.append_at_once(many) is not None  # the kernels are loaded now


def test_new_settings_are_read_first(scene: Scene) -> None:
    scene.open().close()
    with LogManager.open("/logs", fs=scene.fs, clock=scene.clock) as manager:
        log = manager.log("orders", 0)
        log.append_as_leader(batch(b"a"))
        assert log.append_at_once(batch(b"b")) is not None
        manager.alter_topic("orders", configs={"max.message.bytes": 10})
        assert log.append_at_once(batch(b"c")) is not None  # up to 5 ms later, but for
        log.read_settings_again()
        assert log.append_at_once(batch(b"d")) is None
        with pytest.raises(MessageTooLargeError):
            log.append_as_leader(batch(b"d"))
        manager.alter_topic("orders", configs={"max.message.bytes": 10_000})
        assert log.append_as_leader(batch(b"e")).base_offset == 4
        manager.alter_topic("orders", configs={"max.message.bytes": 10})
        scene.clock.advance(5)
        assert log.append_at_once(batch(b"f")) is None


# ---- a reader that is told ----------------------------------------------------------------------
def _facts(reader: LogReader) -> tuple[object, ...]:
    stable = reader.last_stable_offset
    found = reader.open_slice(0, 1 << 20, isolation=IsolationLevel.READ_COMMITTED, is_first=True)
    assert found is not None
    active = reader.segments.active
    place = reader.offset_for_timestamp(NOW + 1)
    return (
        reader.offsets,
        stable,
        (found.position, found.size, found.aborted),
        (active.size, active.next_offset(), active.max_timestamp),
        place,
        encode_snapshot(reader.producers.values()),
        reader.unindexed_aborts,
    )


def test_a_reader_that_is_told_of_appends_knows_what_one_that_looks_knows(scene: Scene) -> None:
    abort = build_marker(
        EndTransactionMarker(ControlRecordType.ABORT, 0),
        producer_id=7,
        producer_epoch=0,
        timestamp=NOW,
    )
    with scene.open(index_interval_bytes=1) as log, scene.reader() as told:
        known: list[bool] = []
        log.on_append = lambda *append: known.append(told.follow(*append))
        assert told.last_stable_offset == 1
        for each in (batch(b"a"), batch(b"b", b"c"), produced(0, is_transactional=True)):
            log.append_as_leader(each)
            with scene.reader() as fresh:
                assert _facts(told) == _facts(fresh)
        assert told.last_stable_offset == 4
        log.append_as_leader(abort, origin=AppendOrigin.COORDINATOR)
        with scene.reader() as fresh:
            assert _facts(told) == _facts(fresh)
        assert told.last_stable_offset == 6
        assert known == [True] * 4


def test_a_reader_that_missed_something_does_not_follow(scene: Scene) -> None:
    with scene.open() as log, scene.open() as other, scene.reader() as reader:
        known: list[bool] = []
        log.on_append = lambda *append: known.append(reader.follow(*append))
        other.append_as_leader(batch(b"a"))
        log.append_as_leader(batch(b"b"))
        assert (known, reader.log_end_offset) == ([False], 2)
        reader.refresh()
        log.append_as_leader(batch(b"c"))
        log.roll()
        log.append_as_leader(batch(b"d"))  # in a segment that the reader has not seen
        assert (known, reader.log_end_offset) == ([False, True, False], 5)
        reader.refresh()
        assert [record.value for record in reader.records()] == [
            b"first", b"first", b"a", b"b", b"c", b"d"
        ]  # fmt: skip


def test_a_reader_does_not_follow_into_another_file(scene: Scene) -> None:
    """A repair may have replaced the log by a copy of the same size."""
    with scene.open() as log, scene.reader() as reader:
        known: list[bool] = []
        log.on_append = lambda *append: known.append(reader.follow(*append))
        log.segments.active.copy_afresh()
        log.append_as_leader(batch(b"a"))
        assert (known, reader.log_end_offset) == ([False], 1)
        reader.refresh()
        assert [record.value for record in reader.records()] == [b"first", b"a"]


def test_aborts_that_were_read_before_damage_are_not_forgotten(scene: Scene) -> None:
    abort = build_marker(
        EndTransactionMarker(ControlRecordType.ABORT, 0),
        producer_id=7,
        producer_epoch=0,
        timestamp=NOW,
    )
    with scene.open() as log, scene.reader() as reader:
        log.append_as_leader(produced(0, is_transactional=True))
        log.append_as_leader(abort, origin=AppendOrigin.COORDINATOR)
        log.roll()
        log.append_as_leader(produced(1, is_transactional=True))
        log.append_as_leader(batch(b"last"))
        reader.refresh()
        (damaged,) = (each for each in log.segments if each.base_offset == 3)
        with scene.fs.open(damaged.path, OpenMode.WRITE) as file:
            sound = file.pread(1, 70)
            file.pwrite(b"\xff", 70)
            with pytest.raises(CorruptRecordError):
                _ = reader.last_stable_offset
            file.pwrite(sound, 70)
        assert reader.last_stable_offset == 3
        found = reader.open_slice(
            1, 1 << 20, isolation=IsolationLevel.READ_COMMITTED, is_first=True
        )
        assert found is not None
        assert [(each.first_offset, each.last_offset) for each in found.aborted] == [(1, 2)]
