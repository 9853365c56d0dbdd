"""Compactions that died half way: what a writer makes of them, what readers see meanwhile."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import CorruptRecordError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.fs.names import temporary_base, temporary_path
from streamlog.partition import leftovers
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from streamlog.segment.filenames import FileSuffix, SegmentSuffix, segment_file_name
from tests.support.commits import values_in
from tests.support.crash import every_crash_point
from tests.support.segments import read_bytes, write_bytes

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
CONFIG = LogConfig(internal_segment_bytes=150, index_interval_bytes=0)
VALUES = [b"value %d" % number * 4 for number in range(6)]
LOG, INDEX = FileSuffix.LOG, FileSuffix.OFFSET_INDEX
PLAIN, CLEANED, SWAP = SegmentSuffix.NONE, SegmentSuffix.CLEANED, SegmentSuffix.SWAP
DELETED = SegmentSuffix.DELETED


def open_log(fs: FileSystem, config: LogConfig = CONFIG) -> PartitionLog:
    return PartitionLog.open(
        PATH, config=config, fs=fs, clock=ManualClock(NOW), random=Random(1), lock_timeout_ms=5
    )


def six_segments(clock: ManualClock | None = None) -> MemoryFileSystem:
    fs = MemoryFileSystem(clock=clock or ManualClock(NOW))
    fs.make_directory("/logs")
    with open_log(fs) as log:
        for value in VALUES:
            log.append([Record(None, value, (), NOW)])
        assert log.segments.base_offsets == [0, 1, 2, 3, 4, 5]
    return fs


def path_of(base: int, kind: FileSuffix, suffix: SegmentSuffix = PLAIN) -> str:
    return f"{PATH}/{segment_file_name(base, kind, suffix)}"


def joined(fs: MemoryFileSystem, bases: Sequence[int]) -> bytes:
    return b"".join(read_bytes(fs, path_of(base, LOG)) for base in bases)


def compact(fs: FileSystem, outputs: dict[int, bytes], replaced: Sequence[int]) -> None:
    """Do as a cleaner does that replaces some segments by others."""
    for base, data in outputs.items():
        with fs.open(path_of(base, LOG, CLEANED), OpenMode.CREATE) as file:
            file.pwrite(data, 0)
            file.sync()
    for base in sorted(outputs, reverse=True):
        fs.rename(path_of(base, LOG, CLEANED), path_of(base, LOG, SWAP))
        fs.sync_directory(PATH)
    for base in replaced:
        for kind in (LOG, INDEX):
            fs.rename(path_of(base, kind), path_of(base, kind, DELETED))
    fs.sync_directory(PATH)
    for base in outputs:
        fs.rename(path_of(base, LOG, SWAP), path_of(base, LOG))
    fs.sync_directory(PATH)


@pytest.mark.parametrize(
    "outputs",
    [{1: [1, 2, 3]}, {1: [1], 2: [2, 3]}, {0: [0, 1], 2: [2], 3: [3, 4]}],
    ids=["into one", "into two", "into three"],
)
def test_wherever_a_compaction_dies_every_record_is_there_once(
    outputs: dict[int, list[int]],
) -> None:
    prepared = six_segments()
    written = {base: joined(prepared, sources) for base, sources in outputs.items()}
    replaced = [source for sources in outputs.values() for source in sources]

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        compact(fs, written, replaced)
        with open_log(fs):
            acknowledged.append("opened")

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        assert values_in(fs, PATH) == VALUES, "a reader, before anybody repaired anything"
        with open_log(fs) as log:
            bases = log.segments.base_offsets
            log.append([Record(None, b"more", (), NOW)])
        assert values_in(fs, PATH) == [*VALUES, b"more"]
        names = fs.list(PATH)
        assert not leftovers.has_swaps(names)
        if acknowledged:
            kept = set(range(6)) - set(replaced)
            assert bases == sorted(kept | set(outputs))

    report = every_crash_point(workload, check, prepared=prepared, seeds=range(2))
    assert report.states > 40


def test_taking_a_compaction_back_may_be_interrupted_as_well() -> None:
    prepared = six_segments()
    for base, suffix in ((1, CLEANED), (2, SWAP), (3, SWAP)):
        with prepared.open(path_of(base, LOG, suffix), OpenMode.CREATE) as file:
            file.pwrite(read_bytes(prepared, path_of(base, LOG)), 0)
            file.sync()
    with prepared.open(path_of(3, LOG, SWAP), OpenMode.WRITE) as file:
        file.pwrite(read_bytes(prepared, path_of(2, LOG)), 0)  # not what `3.log` holds
        file.sync()
    prepared.sync_directory(PATH)

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        open_log(fs).close()

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        assert values_in(fs, PATH) == VALUES
        open_log(fs).close()
        assert values_in(fs, PATH) == VALUES
        assert not leftovers.has_swaps(fs.list(PATH))

    every_crash_point(workload, check, prepared=prepared, seeds=range(3))


def test_a_reader_that_was_there_before_finds_what_was_merged() -> None:
    clock = ManualClock(NOW)
    fs = six_segments(clock)
    merged = joined(fs, [1, 2, 3])
    with LogReader.open(PATH, fs=fs) as reader:
        assert reader.log_end_offset == 6
        clock.advance(1)
        compact(fs, {1: merged}, [1, 2, 3])
        reader.refresh()
        assert reader.segments.base_offsets == [0, 1, 4, 5]
        found = [each.value for at in range(6) for each in reader.read(at, 1).records()]
        assert found[:4] == VALUES[:4] and set(found) == set(VALUES)


def test_so_does_a_writer_that_was_there_before() -> None:
    fs = six_segments()
    with open_log(fs) as log:
        log.read(0, 1 << 20)
        compact(fs, {1: joined(fs, [1, 2, 3])}, [1, 2, 3])
        with open_log(fs) as other:
            other.append([Record(None, b"more", (), NOW)])
        log.catch_up()
        assert [each.value for each in log.read(2, 1).records()] == VALUES[2:3]


@pytest.mark.parametrize("tick", [0, 1], ids=["in the same millisecond", "later"])
def test_a_reader_follows_a_log_whose_name_changes(tick: int) -> None:
    clock = ManualClock(NOW)
    fs = six_segments(clock)
    for kind in (LOG, INDEX):
        fs.rename(path_of(2, kind), path_of(2, kind, SWAP))
    with LogReader.open(PATH, fs=fs) as reader:
        clock.advance(tick)
        open_log(fs).close()
        assert [each.value for each in reader.read(2, 1).records()] == VALUES[2:3]
        assert reader.segments[2].path == path_of(2, LOG)


def test_what_is_swapped_in_must_be_sound_to_its_end() -> None:
    fs = six_segments()
    write_bytes(fs, path_of(1, LOG, SWAP), joined(fs, [1, 2])[:-1])
    before = fs.list(PATH)
    for open_it in (open_log, lambda fs: LogReader.open(PATH, fs=fs)):
        with pytest.raises(CorruptRecordError, match="swap in is damaged"):
            open_it(fs)
    assert fs.list(PATH) == before


def test_wherever_a_closing_dies_no_half_written_snapshot_stays() -> None:
    """The next one is taken elsewhere, so nobody would write over it."""
    unfinished = set[str]()

    def append(fs: FileSystem, _acknowledged: Sequence[Any] = ()) -> None:
        with open_log(fs, LogConfig()) as log:
            log.append([Record(None, b"more", (), NOW)])

    def check(fs: MemoryFileSystem, _acknowledged: Sequence[Any]) -> None:
        unfinished.update(name for name in fs.list(PATH) if name.endswith(".tmp"))
        append(fs)
        assert [name for name in fs.list(PATH) if name.endswith(".tmp")] == []

    every_crash_point(append, check, prepared=six_segments())
    assert f"{7:020d}.snapshot" in map(temporary_base, unfinished)


def test_what_others_left_beside_the_log_stays() -> None:
    fs = six_segments()
    foreign = temporary_path(f"{PATH}/notes").rpartition("/")[2]
    for name in ("notes.tmp", f"{3:020d}.index.tmp", ".tmp", foreign):
        write_bytes(fs, f"{PATH}/{name}", b"")
    before = fs.list(PATH)
    leftovers.finish(fs, PATH, CONFIG, NOW)
    assert fs.list(PATH) == before


@pytest.mark.parametrize("name", [f"{7:020d}.snapshot", f"{7:020d}.log", "leader-epoch-checkpoint"])
def test_temporary_files_of_every_release_go_with_the_partitions_lock(name: str) -> None:
    fs = six_segments()
    before = fs.list(PATH)
    write_bytes(fs, f"{PATH}/{name}.tmp", b"half")  # as they were called once
    write_bytes(fs, temporary_path(f"{PATH}/{name}"), b"half")
    leftovers.finish(fs, PATH, CONFIG, NOW)
    assert fs.list(PATH) == before


def test_a_temporary_file_that_is_written_without_the_partitions_lock_goes_by_its_age() -> None:
    fs = six_segments()
    before = fs.list(PATH)
    write_bytes(fs, temporary_path(f"{PATH}/partition.metadata"), b"version: 0")
    leftovers.finish(fs, PATH, CONFIG, NOW)
    assert len(fs.list(PATH)) == len(before) + 1
    leftovers.finish(fs, PATH, CONFIG, NOW + 3_600_000)
    assert fs.list(PATH) == before


def test_deleted_files_go_when_no_reader_can_be_at_them_any_more() -> None:
    fs = six_segments()
    write_bytes(fs, path_of(0, INDEX, DELETED), b"")
    delay = CONFIG.file_delete_delay_ms
    leftovers.finish(fs, PATH, CONFIG, NOW + delay - 1)
    assert fs.stat(path_of(0, INDEX, DELETED)) is not None
    leftovers.finish(fs, PATH, CONFIG, NOW + delay)
    assert fs.stat(path_of(0, INDEX, DELETED)) is None


def test_where_nothing_is_left_over_nothing_is_done() -> None:
    fs = six_segments()
    before = fs.list(PATH)
    leftovers.finish(fs, PATH, CONFIG, NOW)
    assert fs.list(PATH) == before and not leftovers.has_swaps(before)
