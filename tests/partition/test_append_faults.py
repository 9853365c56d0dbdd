"""An append whose disk fails at any of its operations: what the caller may believe of the answer.

Either the append succeeds and its record stands once, or it fails and nothing of it stands, so that
it may be done again, or the error says that nobody knows (`UnknownOutcomeError`, `PoisonedError`).
"""

import errno
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import PoisonedError, StreamLogError, UnknownOutcomeError
from streamlog.fs.api import FileSystem
from streamlog.fs.faults import READING, Fault, FaultyFileSystem, Moment
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.checkpoints import read_recovery_points, root_locked
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import Record
from streamlog.records.validate import AppendOrigin
from streamlog.root.partition_log import PartitionLog

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
MINUTE_MS = 60_000


class Scene(NamedTuple):
    """A partition that is open, and the append whose disk is to fail."""

    log: PartitionLog
    append: Callable[[], object]


def plain(fs: FileSystem, clock: ManualClock) -> Scene:
    log = opened(fs, clock)
    return Scene(log, lambda: log.append([record(b"wanted")]))


def at_once(fs: FileSystem, clock: ManualClock) -> Scene:
    log = opened(fs, clock)
    builder = BatchBuilder()
    builder.append(record(b"wanted"))
    batch = builder.build()
    assert log.append_at_once(batch, origin=AppendOrigin.COORDINATOR) is not None
    log.drop_segments(log.log_end_offset)  # `wanted` stands nowhere so far
    log.append([record(b"before")])

    def append() -> object:  # as a server does
        done = log.append_at_once(batch, origin=AppendOrigin.COORDINATOR)
        return done or log.append_as_leader(batch, origin=AppendOrigin.COORDINATOR)

    return Scene(log, append)


def first_of_a_handle(fs: FileSystem, clock: ManualClock) -> Scene:
    opened(fs, clock).close()
    log = opened(fs, clock)
    return Scene(log, lambda: log.append([record(b"wanted")]))


def behind_another_writer(fs: FileSystem, clock: ManualClock) -> Scene:
    log = opened(fs, clock)
    other = opened(fs, clock)
    other.append([record(b"other")])
    return Scene(log, lambda: log.append([record(b"wanted")]))


def with_an_index_entry_due(fs: FileSystem, clock: ManualClock) -> Scene:
    log = opened(fs, clock, index_interval_bytes=1)
    log.append([record(b"other")])
    return Scene(log, lambda: log.append([record(b"wanted")]))


def synced_each_time(fs: FileSystem, clock: ManualClock) -> Scene:
    log = opened(fs, clock, flush_messages=1)
    return Scene(log, lambda: log.append([record(b"wanted")]))


def synced_with_a_checkpoint_due(fs: FileSystem, clock: ManualClock) -> Scene:
    scene = synced_each_time(fs, clock)
    clock.advance(MINUTE_MS)
    return scene


def with_a_roll_due(fs: FileSystem, clock: ManualClock) -> Scene:
    log = opened(fs, clock, internal_segment_bytes=200)
    log.append([record(b"other")])
    return Scene(log, lambda: log.append([record(b"wanted")]))


def aborting_a_transaction(fs: FileSystem, clock: ManualClock) -> Scene:
    log = opened(fs, clock)
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(record(b"other"))
    log.append_as_leader(builder.build())
    ending = EndTransactionMarker(ControlRecordType.ABORT, coordinator_epoch=0)
    marker = build_marker(ending, producer_id=7, producer_epoch=0, timestamp=NOW)
    return Scene(log, lambda: log.append_as_leader(marker, origin=AppendOrigin.COORDINATOR))


SCENES = (
    plain,
    at_once,
    first_of_a_handle,
    behind_another_writer,
    with_an_index_entry_due,
    synced_each_time,
    synced_with_a_checkpoint_due,
    with_a_roll_due,
    aborting_a_transaction,
)


def opened(fs: FileSystem, clock: ManualClock, **config: int) -> PartitionLog:
    chosen = LogConfig(**config)
    log = PartitionLog.open(PATH, config=chosen, fs=fs, clock=clock, random=Random(1))
    log.append([record(b"before")])
    return log


def record(key: bytes) -> Record:
    return Record(key, b"v" * 60, (), NOW)


class CountingFileSystem(FaultyFileSystem):
    """Counts operations that read as well, by name."""

    def __init__(self, inner: MemoryFileSystem, *faults: Fault) -> None:
        super().__init__(inner, *faults)
        self.read = Counter[str]()

    def reading(self, name: str, path: str) -> None:
        self.read[name] += 1
        super().reading(name, path)


def faults_in(make: Callable[[FileSystem, ManualClock], Scene]) -> Iterator[Fault]:
    """Yield a fault for each operation of a scene's append, of each kind."""
    fs = CountingFileSystem(directory())
    scene = make(fs, ManualClock(NOW))
    first, read_before = len(fs.operations), fs.read.copy()
    scene.append()
    for number, operation in enumerate(fs.operations[first:], first + 1):
        for moment in Moment:
            if moment is not Moment.TORN or operation.name == "pwrite":
                for is_lasting in (False, True):
                    yield Fault(at=number, errno=errno.EIO, moment=moment, is_lasting=is_lasting)
        yield Fault(at=number, errno=errno.ENOSPC)
    for name in sorted(READING):
        for number in range(read_before[name] + 1, fs.read[name] + 1):
            yield Fault(at=number, operation=name, errno=errno.EIO)


def directory() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("/logs")
    return fs


def standing(fs: MemoryFileSystem) -> list[bytes | None]:
    """Return the keys that another process finds in the log; None for a marker's record."""
    copy = fs.crash_clone(Random(0), power=False)
    with PartitionLog.open(PATH, fs=copy, clock=ManualClock(NOW)) as log:
        found: list[bytes | None] = []
        at = log.log_start_offset
        while at < log.log_end_offset:
            info = log.read(at)
            for batch in info.batches():
                found += [None] if batch.is_control else [each.key for each in batch.records()]
            at = info.next_offset
        return found


@pytest.mark.parametrize("make", SCENES, ids=lambda make: make.__name__)
def test_a_failed_append_stands_nowhere_unless_it_says_that_nobody_knows(
    make: Callable[[FileSystem, ManualClock], Scene],
) -> None:
    wanted = None if make is aborting_a_transaction else b"wanted"
    count = 0
    for fault in faults_in(make):
        inner = directory()
        scene = make(CountingFileSystem(inner, fault), ManualClock(NOW))
        count += 1
        try:
            scene.append()
        except (UnknownOutcomeError, PoisonedError):
            assert standing(inner).count(wanted) <= 1, fault
        except StreamLogError as error:
            assert standing(inner).count(wanted) == 0, (fault, error)
            if not fault.is_lasting:
                scene.append()
                assert standing(inner).count(wanted) == 1, (fault, error)
        else:
            assert standing(inner).count(wanted) == 1, fault
    assert count > 10


def test_a_checkpoint_that_cannot_be_written_fails_no_append_and_is_due_again_a_minute_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fs, clock = directory(), ManualClock(NOW)
    root = LogRoot.at("/logs", fs=fs, clock=clock)
    scene = synced_with_a_checkpoint_due(fs, clock)
    written = read_recovery_points(root)
    with root_locked(root):  # the wait for it moves the clock by half a minute
        scene.append()
    scene.append()
    assert "recovery point is not written for now" in caplog.text
    assert read_recovery_points(root) == written
    clock.advance(MINUTE_MS)
    scene.append()
    assert list(read_recovery_points(root).values()) == [scene.log.log_end_offset]


def test_an_append_succeeds_where_no_thread_is_left_to_flush_it_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fs = directory()
    with opened(fs, ManualClock(NOW), flush_ms=1000) as log:
        log.flush()

        def refuse(_: threading.Timer) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(threading.Timer, "start", refuse)
            assert log.append([record(b"wanted")]).count == 1
        assert "cannot start a thread" in caplog.text
        log.append([record(b"last")])
        assert standing(fs) == [b"before", b"wanted", b"last"]
