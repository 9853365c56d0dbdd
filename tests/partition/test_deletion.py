"""Segments that are set aside, and removed after a while."""

from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.fs.api import OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.leftovers import remove_due, set_aside, set_aside_below
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog

NOW = 1_700_000_000_000
LATER = NOW + 5_000
PATH = "/logs/orders-0"
CONFIG = LogConfig(internal_segment_bytes=150, index_interval_bytes=0)


def open_log(fs: MemoryFileSystem) -> PartitionLog:
    return PartitionLog.open(PATH, config=CONFIG, fs=fs, clock=ManualClock(NOW), random=Random(1))


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem(clock=ManualClock(NOW))
    made.make_directory("/logs")
    with open_log(made) as log:
        for number in range(4):
            log.append([Record(None, b"value %d" % number * 9, (), NOW)])
    return made


def names(fs: MemoryFileSystem, ending: str) -> list[str]:
    return [name for name in fs.list(PATH) if name.endswith(ending)]


def test_what_is_set_aside_can_still_be_read_by_who_holds_it(fs: MemoryFileSystem) -> None:
    with open_log(fs) as log:
        gone = list(log.segments)[:2]
        before = [each.read(0, each.size) for each in gone]
        set_aside(fs, gone, now_ms=LATER)
        assert [each.read(0, each.size) for each in gone] == before
    assert names(fs, ".log.deleted") == [f"{n:020d}.log.deleted" for n in range(2)]


def test_files_go_when_their_time_is_up_counted_from_the_day_they_were_set_aside(
    fs: MemoryFileSystem,
) -> None:
    with open_log(fs) as log:
        set_aside(fs, list(log.segments)[:1], now_ms=LATER)
    assert remove_due(fs, PATH, fs.list(PATH), now_ms=LATER + 99, delay_ms=100) == 3
    assert len(names(fs, ".deleted")) == 3
    assert remove_due(fs, PATH, fs.list(PATH), now_ms=LATER + 100, delay_ms=100) == 0
    assert names(fs, ".deleted") == []


@pytest.mark.parametrize(("back_ms", "left"), [(99, 3), (100, 0)])
def test_a_clock_that_went_back_does_not_keep_files_until_it_has_caught_up(
    fs: MemoryFileSystem, back_ms: int, left: int
) -> None:
    with open_log(fs) as log:
        set_aside(fs, list(log.segments)[:1], now_ms=LATER)
    found = remove_due(fs, PATH, fs.list(PATH), now_ms=LATER - back_ms, delay_ms=100)
    assert found == len(names(fs, ".deleted")) == left


def test_indexes_and_torn_tails_without_a_log_of_theirs_go_with_it(fs: MemoryFileSystem) -> None:
    for name in ("00000000000000000000.log.torn-1", "00000000000000000003.log.torn-1"):
        fs.open(f"{PATH}/{name}", OpenMode.CREATE).close()
    fs.rename(f"{PATH}/{0:020d}.log", f"{PATH}/{0:020d}.log.deleted")
    assert set_aside_below(fs, PATH, 1, now_ms=LATER) == 3
    assert names(fs, "torn-1") == ["00000000000000000003.log.torn-1"]
    assert set(names(fs, ".deleted")) == {
        f"{0:020d}{kind}.deleted" for kind in (".log", ".index", ".timeindex")
    }
    assert set_aside_below(fs, PATH, 1, now_ms=LATER) == 0


def test_opening_finishes_what_died_between_a_log_and_its_indexes(fs: MemoryFileSystem) -> None:
    fs.rename(f"{PATH}/{0:020d}.log", f"{PATH}/{0:020d}.log.deleted")
    after = fs.crash_clone(Random(1), power=True)
    with open_log(after) as log:
        assert log.log_start_offset == 1
        assert [name for name in after.list(PATH) if name.startswith("0" * 20)] == [
            f"{0:020d}{kind}.deleted" for kind in (".index", ".log", ".timeindex")
        ]
