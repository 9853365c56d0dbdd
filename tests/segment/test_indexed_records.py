"""Indexes are hints: whatever they contain, the answers are those of the log file."""

import struct
from random import Random

import pytest

from streamlog.errors import CorruptRecordError
from streamlog.fs.api import OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import Record
from streamlog.segment.segment import Segment
from tests.support.segments import (
    DIRECTORY,
    BatchPlan,
    append,
    make_batch,
    memory_fs,
    new_segment,
    open_segment,
    read_bytes,
    table_of,
    write_bytes,
)

BASE = 1000
COUNT = 40
LOG = f"{DIRECTORY}/{BASE:020d}.log"
INDEX = f"{DIRECTORY}/{BASE:020d}.index"
TIME_INDEX = f"{DIRECTORY}/{BASE:020d}.timeindex"
SETTINGS = {"index_interval_bytes": 300}


def timestamp_of(offset: int) -> int:
    """Timestamps increase, with steps back and repetitions."""
    return 10_000 + 10 * ((offset - BASE) // 3) - (500 if offset % 7 == 0 else 0)


def written() -> MemoryFileSystem:
    """Return a sealed segment of batches with one or two real records, with gaps."""
    fs = memory_fs()
    segment = new_segment(fs, BASE, **SETTINGS)
    offset = BASE
    for at in range(COUNT):
        builder = BatchBuilder(base_offset=offset)
        for _ in range(1 + at % 2):
            builder.append(
                Record(b"k" * (at % 5), b"v" * 30, timestamp=timestamp_of(offset), offset=offset)
            )
            offset += 1
        batch = builder.build()
        segment.append(batch, table_of(batch))
        offset += at % 4 == 0
    segment.seal()
    segment.sync()
    segment.close()
    return fs


def answers(segment: Segment) -> list[object]:
    """Return all answers of a segment."""
    end = segment.next_offset()
    return [
        end,
        segment.max_timestamp,
        *(segment.translate_offset(offset) for offset in range(BASE - 2, end + 2)),
        *(
            segment.offset_for_timestamp(timestamp, start)
            for timestamp in range(9_400, 10_250, 23)
            for start in (0, BASE + 20)
        ),
    ]


@pytest.fixture(scope="module")
def sound() -> MemoryFileSystem:
    return written()


@pytest.fixture(scope="module")
def expected(sound: MemoryFileSystem) -> list[object]:
    fs = sound.crash_clone(Random(0), power=False)
    fs.remove(INDEX)
    fs.remove(TIME_INDEX)
    return answers(open_segment(fs, BASE, writable=False, index_interval_bytes=1 << 30))


def with_index(sound: MemoryFileSystem, path: str, data: bytes | None) -> MemoryFileSystem:
    fs = sound.crash_clone(Random(0), power=False)
    if data is None:
        fs.remove(path)
    else:
        write_bytes(fs, path, data)
    return fs


def test_answers_with_and_without_indexes_are_equal(
    sound: MemoryFileSystem, expected: list[object]
) -> None:
    segment = open_segment(sound, BASE, writable=False, **SETTINGS)
    assert len(segment.offset_index) > 8 and len(segment.time_index) > 6
    assert answers(segment) == expected


@pytest.mark.parametrize("path", [INDEX, TIME_INDEX], ids=["index", "timeindex"])
@pytest.mark.parametrize(
    "damage",
    [
        None,
        b"",
        b"\0" * 8,
        b"\0" * 4800,
        b"x" * 5,
        b"\xff" * 240,
        struct.pack(">ii", 0, 1) * 3,
        struct.pack(">qi", 1, 0) + struct.pack(">qi", 2**62, 2**31 - 1),
    ],
    ids=["missing", "empty", "zeros", "padding", "odd", "ones", "repeated", "far"],
)
@pytest.mark.parametrize("writable", [False, True])
def test_a_missing_or_malformed_index_changes_no_answer(
    sound: MemoryFileSystem,
    expected: list[object],
    path: str,
    damage: bytes | None,
    writable: bool,
) -> None:
    fs = with_index(sound, path, damage)
    assert answers(open_segment(fs, BASE, writable=writable, **SETTINGS)) == expected


@pytest.mark.parametrize("path", [INDEX, TIME_INDEX], ids=["index", "timeindex"])
def test_no_flipped_bit_in_an_index_changes_an_answer(
    sound: MemoryFileSystem, expected: list[object], path: str
) -> None:
    data = read_bytes(sound, path)
    for bit in range(0, 8 * len(data), 7):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        fs = with_index(sound, path, bytes(changed))
        assert answers(open_segment(fs, BASE, writable=False, **SETTINGS)) == expected, bit


@pytest.mark.parametrize("path", [INDEX, TIME_INDEX], ids=["index", "timeindex"])
def test_an_index_of_any_length_changes_no_answer(
    sound: MemoryFileSystem, expected: list[object], path: str
) -> None:
    data = read_bytes(sound, path)
    for size in range(0, len(data), 3):
        fs = with_index(sound, path, data[:size])
        assert answers(open_segment(fs, BASE, writable=False, **SETTINGS)) == expected, size


def test_the_index_of_another_segment_is_detected(
    sound: MemoryFileSystem, expected: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    other = memory_fs()
    segment = new_segment(other, BASE, **SETTINGS)
    for at in range(30):
        append(segment, BatchPlan(BASE + 3 * at, 3, 77 + at, 10_000 + at))
    segment.seal()
    fs = with_index(sound, INDEX, read_bytes(other, INDEX))
    write_bytes(fs, TIME_INDEX, read_bytes(other, TIME_INDEX))
    caplog.set_level("INFO")
    again = open_segment(fs, BASE, writable=True, **SETTINGS)
    assert answers(again) == expected
    assert again.needs_recovery
    assert "scanning" in caplog.text


def test_a_distrusted_index_is_rewritten_by_the_next_append(sound: MemoryFileSystem) -> None:
    fs = with_index(sound, INDEX, b"\0\0\0\1\0\0\0\1")
    segment = open_segment(fs, BASE, **SETTINGS)
    append(segment, BatchPlan(segment.next_offset(), 1, 100, 0))
    assert len(read_bytes(fs, INDEX)) == 8 * len(segment.offset_index) > 8
    again = open_segment(fs, BASE, writable=False, **SETTINGS)
    assert answers(again) == answers(segment)
    assert not again.needs_recovery


def test_an_index_by_the_rule_before_kafka_4_serves_as_well() -> None:
    """An append of several batches: entries have the append's last offset and its first byte."""
    fs = memory_fs()
    plans = [
        [BatchPlan(BASE + 10 * at + i, 1, 120, 10_000 + at) for i in range(5)] for at in range(9)
    ]
    entries = time_entries = data = b""
    for append_plans in plans:
        last = append_plans[-1].base_offset - BASE
        if data:
            entries += struct.pack(">ii", last, len(data))
            time_entries += struct.pack(">qi", append_plans[0].max_timestamp, last)
        data += b"".join(map(make_batch, append_plans))
    write_bytes(fs, LOG, data)
    write_bytes(fs, INDEX, entries)
    write_bytes(fs, TIME_INDEX, time_entries)
    segment = open_segment(fs, BASE, writable=False, **SETTINGS)
    for at, append_plans in enumerate(plans):
        for plan in append_plans:
            found = segment.translate_offset(plan.base_offset)
            assert found is not None and found.offset == plan.base_offset
        assert segment.translate_offset(BASE + 10 * at + 7) == segment.translate_offset(
            BASE + 10 * at + 10
        )
    assert len(segment.offset_index) == 8  # it was trusted
    assert segment.next_offset() == BASE + 85
    assert segment.max_timestamp == 10_008


def test_entries_of_missing_batches_are_ignored(sound: MemoryFileSystem) -> None:
    """A power cut may keep an index and lose the log; a writer may be ahead of a reader."""
    fs = sound.crash_clone(Random(0), power=False)
    with fs.open(LOG, OpenMode.WRITE) as file:
        file.truncate(1500)
    reader = open_segment(fs, BASE, writable=False, **SETTINGS)
    assert reader.extend()
    assert reader.size <= 1500
    found = reader.translate_offset(reader.next_offset() - 1)
    assert found is not None and found.position + found.size == reader.size
    assert reader.translate_offset(reader.next_offset()) is None


def test_an_entry_of_a_torn_batch_is_skipped_for_the_one_before(
    sound: MemoryFileSystem,
) -> None:
    segment = open_segment(sound, BASE, writable=False, **SETTINGS)
    for entry in map(segment.offset_index.__getitem__, range(len(segment.offset_index))):
        for more in (0, 20, 61, 70):
            fs = sound.crash_clone(Random(0), power=False)
            with fs.open(LOG, OpenMode.WRITE) as file:
                file.truncate(entry.position + more)
            reader = open_segment(fs, BASE, writable=False, **SETTINGS)
            assert reader.extend()
            before = segment.translate_offset(entry.offset)
            assert before is not None and reader.size == before.position
            assert reader.next_offset() <= before.offset


def test_damage_found_by_a_walk_is_reported(sound: MemoryFileSystem) -> None:
    fs = with_index(sound, INDEX, b"")
    with fs.open(LOG, OpenMode.WRITE) as file:
        file.pwrite(b"\0\0\0\3", 8)
    segment = open_segment(fs, BASE, writable=False, index_interval_bytes=1 << 30)
    with pytest.raises(CorruptRecordError, match="not a record batch") as caught:
        segment.translate_offset(BASE + 5)
    assert (caught.value.path, caught.value.position, caught.value.offset) == (LOG, 0, BASE + 5)


def test_an_index_is_built_up_to_a_base_offset_that_was_raised(sound: MemoryFileSystem) -> None:
    """The raised offset is beyond the range of an index entry; batches before it are found."""
    fs = with_index(sound, INDEX, None)
    place = open_segment(sound, BASE, **SETTINGS).translate_offset(BASE + 20)
    assert place is not None
    with fs.open(LOG, OpenMode.WRITE) as file:
        file.pwrite((1 << 40).to_bytes(8, "big"), place.position)
    segment = open_segment(fs, BASE, writable=False, index_interval_bytes=10)
    found = segment.translate_offset(BASE + 18)
    assert found is not None and found.last_offset == BASE + 18
    reached = segment.translate_offset(BASE + 20)
    assert reached is not None and (reached.position, reached.offset) == (place.position, 1 << 40)


def test_damage_found_by_a_time_search_is_reported(sound: MemoryFileSystem) -> None:
    segment = open_segment(sound, BASE, writable=False, **SETTINGS)
    wanted = segment.offset_for_timestamp(10_100, 0)
    assert wanted is not None
    place = segment.translate_offset(wanted.offset)
    assert place is not None
    fs = sound.crash_clone(Random(0), power=False)
    with fs.open(LOG, OpenMode.WRITE) as file:
        file.pwrite(b"!", place.position + 70)
    with pytest.raises(CorruptRecordError) as caught:
        open_segment(fs, BASE, writable=False, **SETTINGS).offset_for_timestamp(10_100, 0)
    assert caught.value.position == place.position


def test_control_records_count_in_a_search_by_time() -> None:
    segment = new_segment(memory_fs(), 0)
    marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
    batch = build_marker(marker, producer_id=1, producer_epoch=0, timestamp=77, base_offset=0)
    segment.append(batch, table_of(batch))
    found = segment.offset_for_timestamp(70, 0)
    assert found is not None and (found.offset, found.timestamp) == (0, 77)


def test_a_batch_larger_than_any_chunk_is_found_and_searched() -> None:
    segment = new_segment(memory_fs(), 0)
    for offset in range(3):
        builder = BatchBuilder(base_offset=offset)
        builder.append(Record(b"k", bytes(5 << 20), timestamp=100 + offset, offset=offset))
        batch = builder.build()
        segment.append(batch, table_of(batch))
    found = segment.translate_offset(1)
    assert found is not None and found.position == found.size
    by_time = segment.offset_for_timestamp(102, 0)
    assert by_time is not None and by_time.offset == 2
    assert segment.max_timestamp == 102
