"""Reading without a lock: what is looked at, and one segment as if it were a log."""

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptRecordError,
    InvalidRequestError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from streamlog.fs.api import OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition import checkpoints
from streamlog.partition.read import READ_BEYOND
from streamlog.partition.reader import LogReader
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from tests.support.segments import read_bytes, write_bytes

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
TWO_A_SEGMENT = LogConfig(internal_segment_bytes=150)


@pytest.fixture
def fs() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("/logs")
    return fs


def open_log(fs: MemoryFileSystem) -> PartitionLog:
    return PartitionLog.open(
        PATH, config=TWO_A_SEGMENT, fs=fs, clock=ManualClock(NOW), random=Random(1)
    )


def write(fs: MemoryFileSystem, count: int) -> list[int]:
    """Append single records; return the base offsets of the segments."""
    with open_log(fs) as log:
        for number in range(count):
            log.append([Record(None, b"%d" % number, (), NOW)])
        return log.segments.base_offsets


def values(reader: LogReader) -> list[bytes | None]:
    found, at = [], reader.log_start_offset
    while at < reader.log_end_offset:
        info = reader.read(at)
        found += [each.value for each in info.records()]
        at = info.next_offset
    return found


def test_one_segment_is_read_as_if_it_were_all(fs: MemoryFileSystem) -> None:
    assert write(fs, 7) == [0, 2, 4, 6]
    with LogReader.open(f"{PATH}/00000000000000000002.log", fs=fs) as reader:
        assert (reader.log_start_offset, reader.log_end_offset) == (2, 4)
        assert values(reader) == [b"2", b"3"]
        assert str(reader.topic_partition) == "orders-0" and reader.path == PATH
        with pytest.raises(OffsetOutOfRangeError):
            reader.read(1)
        reader.refresh()
        assert len(reader.segments) == 1


@pytest.mark.parametrize(("size", "is_used"), [(1 << 20, True), (READ_BEYOND, False)])
def test_memory_that_is_given_is_used_where_it_is_large_enough(
    fs: MemoryFileSystem, size: int, is_used: bool
) -> None:
    write(fs, 2)
    memory = np.zeros(size, np.uint8)
    with LogReader.open(PATH, fs=fs) as reader:
        info = reader.read(0, 1 << 10, into=memory)
    assert [each.value for each in info.records()] == [b"0", b"1"]
    assert np.shares_memory(np.asarray(info.buffer), memory) == is_used


@pytest.mark.parametrize("base", [0, 3])
def test_a_length_that_is_damaged_hides_nothing_behind_it(fs: MemoryFileSystem, base: int) -> None:
    """In a sealed segment, and in the active one, where a sound batch behind tells damage."""
    with PartitionLog.open(PATH, config=LogConfig(), fs=fs, clock=ManualClock(NOW)) as log:
        for number in range(6):
            if number == 3:
                log.roll()
            log.append([Record(None, b"%d" % number, (), NOW)])
    path = f"{PATH}/{base:020}.log"
    position = len(read_bytes(fs, path)) // 3
    with fs.open(path, OpenMode.WRITE) as file:
        file.pwrite(b"XXXX", position + 8)
    with LogReader.open(PATH, fs=fs) as reader:
        first = reader.read(base)
        assert (first.next_offset, reader.log_end_offset) == (base + 1, 6)
        with pytest.raises(CorruptRecordError, match="not a record batch") as caught:
            reader.read(first.next_offset)
    assert (caught.value.path, caught.value.position) == (path, position)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("sound", [0, 1])
def test_damage_at_the_end_of_what_was_synced_is_no_end(
    fs: MemoryFileSystem, sound: int, isolation: str
) -> None:
    *_, last = write(fs, sound + 1)
    path = f"{PATH}/{last:020}.log"
    bytes_there = read_bytes(fs, path)
    write_bytes(fs, path, bytes_there[:-1] + b"!")
    with LogReader.open(PATH, fs=fs) as reader:
        assert reader.log_end_offset == sound + 1
        if sound:
            before = reader.read(0, isolation=isolation)
            assert [each.value for each in before.records()] == [b"0"]
            assert before.next_offset == sound
        assert not reader.read(sound, end_offset=sound, isolation=isolation).buffer
        with pytest.raises(CorruptRecordError) as caught:
            reader.read(sound, isolation=isolation)
        position = sound * len(bytes_there) // (sound + 1)
        assert (caught.value.path, caught.value.position) == (path, position)
        write_bytes(fs, path, bytes_there)
        reader.refresh()
        assert values(reader) == [b"%d" % number for number in range(sound + 1)]


def test_a_torn_tail_that_nobody_was_promised_is_the_end(fs: MemoryFileSystem) -> None:
    write(fs, 1)
    path = f"{PATH}/{0:020}.log"
    whole = read_bytes(fs, path)
    write_bytes(fs, path, whole + whole[:-1])
    with LogReader.open(PATH, fs=fs) as reader:
        assert values(reader) == [b"0"]


def test_what_is_synced_while_a_reader_looks_is_not_lost(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(fs, 2)
    path = f"{PATH}/{0:020}.log"
    whole = read_bytes(fs, path)
    write_bytes(fs, path, whole[:-1])  # as a reader saw it in the midst of the append
    ask = checkpoints.read_recovery_points

    def read_once_synced(*place: object) -> object:
        write_bytes(fs, path, whole)
        return ask(*place)

    monkeypatch.setattr(checkpoints, "read_recovery_points", read_once_synced)
    with LogReader.open(PATH, fs=fs) as reader:
        assert values(reader) == [b"0", b"1"]


def test_the_active_segment_alone_is_followed_as_it_grows(fs: MemoryFileSystem) -> None:
    write(fs, 1)
    with LogReader.open(f"{PATH}/00000000000000000000.log", fs=fs) as reader:
        with open_log(fs) as log:
            log.append([Record(None, b"more", (), NOW)])
            log.append([Record(None, b"in the next segment", (), NOW)])
        reader.refresh()
        assert values(reader) == [b"0", b"more"]


def test_a_single_segment_that_was_copied_needs_nothing_beside_it(fs: MemoryFileSystem) -> None:
    write(fs, 5)
    fs.make_directory("/copy-7")
    name = "00000000000000000002.log"
    write_bytes(fs, f"/copy-7/{name}", read_bytes(fs, f"{PATH}/{name}"))
    with LogReader.open(f"/copy-7/{name}", fs=fs) as reader:
        assert values(reader) == [b"2", b"3"]
        assert reader.leader_epoch == -1 and reader.topic_id is None
    assert fs.list("/copy-7") == [name]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (f"{PATH}/00000000000000000009.log", UnknownTopicError),
        (f"{PATH}/partition.metadata", UnknownTopicError),
        (f"{PATH}/00000000000000000000.index", UnknownTopicError),
        ("/logs/other-0", UnknownTopicError),
        ("/logs", InvalidTopicError),
    ],
)
def test_what_is_no_log_is_refused(fs: MemoryFileSystem, path: str, error: type) -> None:
    write(fs, 1)
    with pytest.raises(error):
        LogReader.open(path, fs=fs)


def test_an_empty_partition_is_not_listed_at_each_poll(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.make_directory(PATH)
    reader = LogReader.open(PATH, fs=fs)
    listed = []
    plain_list = fs.list
    monkeypatch.setattr(fs, "list", lambda path: listed.append(path) or plain_list(path))
    for _ in range(3):
        reader.refresh()
    assert listed == []
    write(fs, 3)  # by a clock that stands still: the directory's time does not change
    listed.clear()
    reader.refresh()
    assert listed and values(reader) == [b"0", b"1", b"2"]


def test_a_range_that_compaction_emptied_is_passed_over(fs: MemoryFileSystem) -> None:
    """A batch may begin far behind its segment's base offset, and a range end in between."""
    with open_log(fs) as log:
        for base_offset in (0, 100):
            builder = BatchBuilder(base_offset=base_offset, partition_leader_epoch=0)
            builder.append(Record(None, b"kept", (), NOW, base_offset))
            log.append_as_follower(builder.build())
    with LogReader.open(PATH, fs=fs) as reader:
        info = reader.read(1, end_offset=50)
        assert (len(info.buffer), info.next_offset) == (0, 50)
        assert [each.offset for each in reader.read(50, end_offset=101).records()] == [100]


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: reader.size_between(0, 7) > 0,
        lambda reader: reader.split(0, 7, 2)[-1][-1] == 7,
        lambda reader: reader.offset_for_timestamp(NOW) == (2, NOW),
        lambda reader: reader.max_timestamp() == (2, NOW),
    ],
    ids=["size", "split", "time", "largest time"],
)
def test_a_segment_that_goes_before_it_was_opened_stops_nobody(
    fs: MemoryFileSystem, ask: Callable[[LogReader], bool]
) -> None:
    write(fs, 7)
    with LogReader.open(PATH, fs=fs) as reader:
        for name in fs.list(PATH):
            if name.startswith(f"{0:020d}."):
                fs.remove(f"{PATH}/{name}")
        assert ask(reader)
        assert reader.log_start_offset == 2


def test_a_writer_that_was_closed_reads_nothing(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        log.append([Record()])
    for ask in (lambda: log.read(0), lambda: log.read(1), lambda: log.offset_for_timestamp(0)):
        with pytest.raises(InvalidRequestError, match="handle is closed"):
            ask()
