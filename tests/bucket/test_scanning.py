"""Scans of segments: each byte is requested once, and every batch is checked."""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streamlog import LogManager, Record
from streamlog.bucket import scanning
from streamlog.bucket.reading import BucketReader
from streamlog.bucket.root import BucketRoot
from streamlog.bucket.scanning import scan_segment
from streamlog.clock import ManualClock
from streamlog.errors import CorruptRecordError, OffsetOutOfRangeError
from streamlog.fs.log_root import LogRoot
from streamlog.store.api import ObjectRange
from streamlog.store.remote import open_store
from streamlog.topic import TopicPartition
from streamlog.transfer.bucket_source import pieces_of
from streamlog.transfer.bucket_target import BucketTarget
from streamlog.transfer.copying import CopyRequest, TopicCopier
from streamlog.transfer.directory_source import DirectorySource

A = TopicPartition("orders", 0)
SIZES = (
    10,
    900,
    40,
    3000,
    40,
    40,
    700,
    10,
    1500,
    20,
)  # of values
Rows = list[tuple[int, ...]]


class CountedStore:
    """Notes what is read."""

    def __init__(self, store: Any) -> None:
        self._store, self.url, self.ranges = store, store.url, list[ObjectRange]()

    def read_into(self, ranges: Sequence[ObjectRange], target: NDArray[np.uint8]) -> None:
        self.ranges += ranges
        self._store.read_into(ranges, target)


@pytest.fixture
def root(tmp_path: Path) -> BucketRoot:
    """Return a root with three segments of batches of many sizes."""
    with LogManager.open(tmp_path / "here", create=True) as manager:
        manager.create_topic("orders", configs={"internal.segment.bytes": 9500})
        for number in range(30):
            value = random.Random(number).randbytes(SIZES[number % len(SIZES)])
            records = [Record(value=value, timestamp=number)] * (1 + number % 3)
            manager.log("orders", 0).append(records)
    root = BucketRoot(open_store("memory:///"), clock=ManualClock(), random=random.Random(0))
    root.create()
    target = BucketTarget(root, scratch=str(tmp_path / "scratch"))
    list(TopicCopier(DirectorySource(LogRoot.at(tmp_path / "here")), target, CopyRequest()).run())
    target.close()
    return root


def read(reader: BucketReader, offset: int, end: int) -> Rows:
    rows: Rows = []
    while offset < end:
        info = reader.read(offset, 1 << 20, end_offset=end)
        rows += zip(info.table.base_offset.tolist(), info.table.crc.tolist(), strict=True)
        offset = info.next_offset
    return rows


def scanned(reader: BucketReader, offset: int, end: int) -> Rows:
    rows: Rows = []
    for piece in pieces_of(reader, offset, end):
        for base, crc, at, size in zip(
            piece.table.base_offset.tolist(),
            piece.table.crc.tolist(),
            piece.table.position.tolist(),
            piece.table.size.tolist(),
            strict=True,
        ):
            assert int.from_bytes(piece.buffer[at : at + 8], "big") == base
            assert at + size <= len(piece.buffer)
            rows.append((base, crc))
    return rows


@pytest.mark.parametrize(
    ("block", "room"), [(300, 64), (1000, 5000), (4000, 0), (1 << 20, 1 << 10)]
)
def test_a_scan_finds_what_reads_find(
    root: BucketRoot, block: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "BLOCK_BYTES", block)
    monkeypatch.setattr(scanning, "_ROOM", room)
    state = root.state.partitions[A]
    assert len(state.stretches) > 2
    reader, end = root.reader(A), state.end_offset
    for start in (0, 1, 7, 25, end - 1):
        for stop in (start + 1, start + 9, end):
            assert scanned(reader, start, min(stop, end)) == read(reader, start, min(stop, end))
    with pytest.raises(OffsetOutOfRangeError):
        scanned(reader, end + 1, end + 2)
    bases = [piece.segment_base for piece in pieces_of(reader, 0, end)]
    assert [each for each in bases if each is not None] == [
        each.base_offset for each in state.stretches
    ]


def test_each_byte_is_requested_once(root: BucketRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "BLOCK_BYTES", 700)
    store, state = CountedStore(root.store), root.state.partitions[A]
    reader = BucketReader(store, A, state)
    assert len(scanned(reader, 0, state.end_offset)) == 30
    wanted = []
    for each in state.stretches:
        places = range(0, each.size, 700)
        wanted += [ObjectRange(each.key, at, min(700, each.size - at)) for at in places]
    assert sorted(store.ranges) == sorted(wanted)
    store.ranges.clear()
    last = state.stretches[-1]
    scanned(reader, state.end_offset - 1, state.end_offset)  # from the last point on
    assert sum(each.size for each in store.ranges) <= last.size - last.points[-1][1]


@pytest.mark.parametrize(("at", "change"), [(8, b"\x7f"), (8, b"\xff"), (16, b"\x09"), (70, b"~")])
def test_damage_is_named_after_what_comes_before_it(
    root: BucketRoot, at: int, change: bytes
) -> None:
    state = root.state.partitions[A]
    segment = state.stretches[1]
    offset, place = segment.points[2]
    content = bytearray(root.store.get(segment.key, max_size=segment.size))
    content[place + at : place + at + 1] = change
    root.store.put(segment.key, bytes(content))
    found: list[int] = []
    with ThreadPoolExecutor(1) as pool, pytest.raises(CorruptRecordError) as raised:
        for batches in scan_segment(
            root.store, segment, segment.base_offset, segment.end_offset, pool
        ):
            found += batches.table.base_offset.tolist()
    assert raised.value.position == place
    assert raised.value.path == f"{root.store.url}/{segment.key}"
    assert found == [each[0] for each in segment.points if each[0] < offset]
