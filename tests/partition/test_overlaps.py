"""Base offsets have no checksum: batches that claim the same offsets are met by whoever reads."""

from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import CorruptRecordError
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.batch import scan_batches
from streamlog.records.record import CompressionType, Record
from streamlog.root.partition_log import PartitionLog
from tests.support.batches import message_set
from tests.support.segments import read_bytes, write_bytes

NOW = 1_700_000_000_000
PATH = "/logs/orders-0"
FIRST = f"{PATH}/00000000000000000000.log"
TWO = [Record(None, b"a", (), NOW), Record(None, b"b", (), NOW)]
BATCH = 77  # bytes of each
LAST_OFFSET_DELTA = 23


@pytest.fixture
def fs() -> MemoryFileSystem:
    """Two segments: offsets 0 to 9 in five batches, 10 and 11."""
    fs = MemoryFileSystem()
    fs.make_directory("/logs")
    config = LogConfig(internal_segment_bytes=5 * BATCH)
    with PartitionLog.open(
        PATH, config=config, fs=fs, clock=ManualClock(NOW), random=Random(1)
    ) as log:
        for _ in range(6):
            log.append(TWO)
        assert log.segments.base_offsets == [0, 10]
    return fs


def move(fs: MemoryFileSystem, batch: int, base_offset: int) -> None:
    """Give a batch of the first segment another base offset; its checksum stays right."""
    data = bytearray(read_bytes(fs, FIRST))
    data[batch * BATCH : batch * BATCH + 8] = base_offset.to_bytes(8, "big")
    write_bytes(fs, FIRST, bytes(data))


def read_all(fs: MemoryFileSystem, max_bytes: int) -> list[int]:
    found, at = [], 0
    with LogReader.open(PATH, fs=fs) as reader:
        while at < reader.log_end_offset:
            info = reader.read(at, max_bytes)
            found += [each.offset for each in info.records()]
            at = info.next_offset
    return found


@pytest.mark.parametrize("max_bytes", [1, BATCH, 2 * BATCH, 3 * BATCH + 20, 1 << 20])
@pytest.mark.parametrize(
    ("batch", "base_offset", "position"),
    [
        pytest.param(1, 3, 2 * BATCH, id="raised by one"),
        pytest.param(1, 7, 2 * BATCH, id="raised beyond the next"),
        pytest.param(1, 1000, 2 * BATCH, id="raised beyond the end"),
        pytest.param(0, 2**40, BATCH, id="raised, the first"),
        pytest.param(4, 9, 5 * BATCH, id="raised into the next segment"),
        pytest.param(3, 4, 3 * BATCH, id="lowered"),
        pytest.param(4, 0, 4 * BATCH, id="lowered to the first"),
    ],
)
def test_batches_that_overlap_are_damage_wherever_reading_is_cut(
    fs: MemoryFileSystem, batch: int, base_offset: int, position: int, max_bytes: int
) -> None:
    assert read_all(fs, max_bytes) == list(range(12))
    move(fs, batch, base_offset)
    with pytest.raises(CorruptRecordError, match="overlap") as caught:
        read_all(fs, max_bytes)
    assert (caught.value.path, caught.value.position) == (FIRST, position)


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_a_gap_is_none(fs: MemoryFileSystem, max_bytes: int) -> None:
    """What compaction leaves of a segment."""
    data = read_bytes(fs, FIRST)
    write_bytes(fs, FIRST, data[BATCH : 2 * BATCH] + data[3 * BATCH : 4 * BATCH])
    assert read_all(fs, max_bytes) == [2, 3, 6, 7, 10, 11]


@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_overlap_as_well(
    fs: MemoryFileSystem, magic: int, codec: CompressionType, max_bytes: int
) -> None:
    sets = [
        message_set(magic, TWO, base_offset=base_offset, compression=codec)
        for base_offset in (0, 4, 2)
    ]
    write_bytes(fs, FIRST, b"".join(sets))
    with pytest.raises(CorruptRecordError, match="overlap") as caught:
        read_all(fs, max_bytes)
    rising = scan_batches(b"".join(sets[:2]))
    assert (caught.value.path, caught.value.position) == (FIRST, rising.consumed)


@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_in_a_compressed_message_may_not_reach_into_the_one_before(
    fs: MemoryFileSystem, magic: int
) -> None:
    """Only its last offset is in front of what is compressed."""
    sets = [
        message_set(magic, TWO, base_offset=base_offset, compression=CompressionType.GZIP)
        for base_offset in (0, 1)
    ]
    write_bytes(fs, FIRST, b"".join(sets))
    with pytest.raises(CorruptRecordError, match="do not ascend") as caught:
        read_all(fs, 1 << 20)
    assert (caught.value.path, caught.value.position) == (FIRST, len(sets[0]))


def test_a_batch_that_fails_its_checksum_is_told_as_such(fs: MemoryFileSystem) -> None:
    """Its last offset would reach into the next batch, but that is not what is wrong with it."""
    data = bytearray(read_bytes(fs, FIRST))
    data[BATCH + LAST_OFFSET_DELTA + 3] ^= 4
    write_bytes(fs, FIRST, bytes(data))
    with pytest.raises(CorruptRecordError, match="checksum") as caught:
        read_all(fs, 1 << 20)
    assert caught.value.position == BATCH


def test_segments_that_overlap_are_not_opened_for_writing(fs: MemoryFileSystem) -> None:
    move(fs, 4, 9)
    fs.remove("/logs/recovery-point-offset-checkpoint")
    fs.remove("/logs/.streamlog/locks/orders-0")
    with pytest.raises(CorruptRecordError, match="segments overlap") as caught:
        PartitionLog.open(PATH, fs=fs, clock=ManualClock(NOW), random=Random(1))
    assert (caught.value.path, caught.value.position) == (FIRST, 4 * BATCH)
