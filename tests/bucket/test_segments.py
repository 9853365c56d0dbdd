"""Segments in an object store are those that a directory would have, and read the same."""

import random
from pathlib import Path

import pytest

from streamlog.bucket.actions import BeginBuild, Swap
from streamlog.bucket.root import BucketRoot
from streamlog.bucket.segments import SegmentBuilder
from streamlog.clock import ManualClock
from streamlog.fs.local import LocalFileSystem
from streamlog.root.partition_log import PartitionLog
from streamlog.store.faults import FaultyStore
from streamlog.store.remote import open_store
from streamlog.topic import TopicPartition
from tests.bucket.staged import commit, stage, values_of

A = TopicPartition("orders", 0)


@pytest.fixture
def root() -> BucketRoot:
    root = BucketRoot(open_store("memory:///"), clock=ManualClock(), random=random.Random(0))
    root.create()
    root.create_topic("orders", configs={"internal.segment.bytes": 4000})
    for version in range(8):
        values = [b"%d.%d" % (version, number) * 5 for number in range(60)]
        commit(root, "q", version, stage(root, "q", version, {A: values}))
    return root


def swap_in(root: BucketRoot, scratch: Path, first: int, end: int) -> list[str]:
    """Build and swap in segments; return the keys of their logs."""
    root.journal.change(lambda state: ([BeginBuild(build="b", partitions=(A,))], None))
    builder = SegmentBuilder(
        root.store,
        root.reader(A),
        "b",
        config=root.topic_config("orders"),
        epochs=root.state.partitions[A].epochs,
        clock=ManualClock(),
        fs=LocalFileSystem(),
        scratch=str(scratch / "scratch"),
    )
    built = tuple(each for each in builder.build(first, end) if each is not None)
    swap = Swap(
        topic_partition=A,
        topic_id=root.state.topics["orders"].topic_id,
        build="b",
        first_offset=first,
        end_offset=end,
        cleaned_offset=None,
        segments=built,
    )
    root.journal.change(lambda state: ([swap], None))
    return [segment.key for segment in built]


def test_a_swap_changes_no_record(root: BucketRoot, tmp_path: Path) -> None:
    before = values_of(root, A)
    keys = swap_in(root, tmp_path, 0, 420)
    assert len(keys) > 3
    assert values_of(root, A) == before
    assert values_of(root, A, max_bytes=100_000) == before
    for offset in (0, 1, 59, 60, 101, 419, 420, 479):
        info = root.reader(A).read(offset, 1)
        assert next(info.records()).offset == offset
    assert len(root.state.garbage) == 7
    assert not (tmp_path / "scratch").exists()


def test_the_segments_are_those_of_a_directory(root: BucketRoot, tmp_path: Path) -> None:
    swap_in(root, tmp_path, 0, 480)
    found = {
        each.key.rpartition("/")[2]: root.store.get(each.key, max_size=1 << 20)
        for each in root.store.list("orders-0/")
    }
    config = root.topic_config("orders")
    with PartitionLog.open(tmp_path / "root" / "orders-0", config=config) as log:
        offset = 0
        while offset < 480:
            info = root.reader(A).read(offset, 1)
            log.append_as_follower(info.buffer)
            offset = info.next_offset
        log.roll()
    names = {name for name in found if name.endswith(".log")}
    assert len(names) > 3
    assert "leader-epoch-checkpoint" in found
    assert {name for name in found if not name.endswith("checkpoint")} >= {
        name.replace(".log", suffix) for name in names for suffix in (".index", ".timeindex")
    }
    names = set(found)
    for name in names:
        assert (tmp_path / "root" / "orders-0" / name).read_bytes() == found[name], name


def test_reading_inside_a_segment_takes_one_request(root: BucketRoot, tmp_path: Path) -> None:
    swap_in(root, tmp_path, 0, 480)
    store = FaultyStore(root.store)
    reader = BucketRoot(store, clock=ManualClock(), random=random.Random(3))
    reader.refresh()
    store.requests.clear()
    assert next(reader.reader(A).read(333, 2000).records()).offset == 333
    assert len(store.requests) == 1
