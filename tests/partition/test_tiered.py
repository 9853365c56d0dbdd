"""Segments in Kafka's tiered storage, read in place with the rest of their log."""

from collections.abc import Sequence
from random import Random

import pytest

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import CorruptDataError, InvalidRequestError, StorageError
from streamlog.fs.api import OpenMode
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.tiered import parse_remote_directory, with_remote_segments
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from streamlog.root.read_roots import ReadRoots
from streamlog.segment.filenames import base_offsets, log_file_name
from streamlog.topic import TopicPartition
from tests.support.segments import read_bytes, write_bytes

NOW = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)
TOPIC_ID = "LZIZDK01QdayzmsIHcRSrQ"
STORAGE = "/tier/kafka-tiered-storage"
REMOTE = f"{STORAGE}/orders-0-{TOPIC_ID}"
KINDS = (".log", ".index", ".timeindex")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def fs(clock: ManualClock) -> MemoryFileSystem:
    fs = MemoryFileSystem(clock=clock)
    for path in ("/disk", "/other", "/tier", STORAGE, REMOTE):
        fs.make_directory(path)
    return fs


def write_log(
    fs: MemoryFileSystem,
    root: str,
    records: int,
    *,
    a_segment: int,
    epochs: Sequence[int] = (0,),
    mark: str = "v",
) -> list[int]:
    """Write a log whose records are spread evenly over leader epochs; return the segments."""
    config = LogConfig(internal_segment_bytes=75 * a_segment)
    path, each = f"{root}/orders-0", records // len(epochs)
    for at, epoch in enumerate(epochs):
        cache = LeaderEpochCache.load(fs, path) if at else LeaderEpochCache()
        cache.assign(epoch, at * each)
        if at:
            cache.store(fs, path)
        with PartitionLog.open(
            path, config=config, fs=fs, clock=ManualClock(NOW), random=Random(1)
        ) as log:
            assert log.leader_epoch == epoch
            for number in range(at * each, (at + 1) * each):
                log.append([Record(None, f"{mark}{number:03}".encode(), (), NOW + number)])
    write_bytes(
        fs, f"{path}/partition.metadata", f"version: 0\ntopic_id: {TOPIC_ID}".encode("ascii")
    )
    return base_offsets(fs.list(path))


def upload(fs: MemoryFileSystem, root: str, base: int, *, copy: int = 1, without: str = "") -> None:
    """Copy a segment as LocalTieredStorage does, with a random id."""
    name = log_file_name(base).removesuffix(".log")
    target = f"{REMOTE}/{name}-{Random(f'{base} {copy}').randbytes(16).hex()[:21]}A"
    for kind in KINDS:
        if kind != without:
            write_bytes(fs, target + kind, read_bytes(fs, f"{root}/orders-0/{name}{kind}"))
    epochs = read_bytes(fs, f"{root}/orders-0/leader-epoch-checkpoint")
    if without != "epochs":
        write_bytes(fs, f"{target}.leader_epoch_checkpoint", epochs)


def state_after(fs: MemoryFileSystem, base: int, *, copy: int = 1) -> str:
    """Add a producer snapshot to a copy; return its content."""
    name = log_file_name(base).removesuffix(".log")
    target = f"{REMOTE}/{name}-{Random(f'{base} {copy}').randbytes(16).hex()[:21]}A.snapshot"
    write_bytes(fs, target, f"after {base}".encode())
    return f"after {base}"


def forget(fs: MemoryFileSystem, root: str, below: int) -> None:
    """Remove the segments of a log below an offset, as local retention does."""
    for base in base_offsets(fs.list(f"{root}/orders-0")):
        if base < below:
            for kind in KINDS:
                fs.remove(f"{root}/orders-0/{log_file_name(base).removesuffix('.log')}{kind}")


def values(fs: MemoryFileSystem, *paths: str) -> list[str]:
    roots = ReadRoots(list(paths), fs=fs)
    found = roots.find()
    with roots.open(ORDERS, found["orders"][0]) as reader:
        at, out = reader.log_start_offset, []
        while at < reader.high_watermark:
            info = reader.read(at, 100)
            out += [(each.value or b"").decode() for each in info.records()]
            at = info.next_offset
    return out


def expected(records: int, start: int = 0) -> list[str]:
    return [f"v{number:03}" for number in range(start, records)]


def test_copies_and_the_rest_on_disk_are_one_log(fs: MemoryFileSystem) -> None:
    bases = write_log(fs, "/disk", 20, a_segment=4)
    for base in bases[:-1]:
        upload(fs, "/disk", base)
    forget(fs, "/disk", bases[2])
    assert values(fs, "/disk") == expected(20, bases[2])
    assert values(fs, "/disk", STORAGE) == expected(20)
    assert values(fs, STORAGE, "/disk") == expected(20)
    assert values(fs, STORAGE) == expected(bases[-1])
    assert values(fs, "/disk/orders-0", STORAGE) == expected(20)


def test_segments_that_leave_the_disk_stay_readable(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    bases = write_log(fs, "/disk", 20, a_segment=4)
    upload(fs, "/disk", bases[0])
    roots = ReadRoots(["/disk", STORAGE], fs=fs)
    with roots.open(ORDERS, roots.find()["orders"][0]) as reader:
        clock.advance(10)
        for base in bases[1:-1]:
            upload(fs, "/disk", base)
        forget(fs, "/disk", bases[-1])
        reader.refresh()
        assert reader.log_start_offset == 0
        assert [each.value for each in reader.read(bases[2], 1).records()][:1] == [
            expected(20)[bases[2]].encode()
        ]


def test_copies_by_two_leaders_overlap(fs: MemoryFileSystem) -> None:
    first = write_log(fs, "/disk", 24, a_segment=4)
    second = write_log(fs, "/other", 24, a_segment=7)
    assert first[1:3] != second[1:3]
    for base in first[:2]:
        upload(fs, "/disk", base)
    for base in second[1:-1]:
        upload(fs, "/other", base)
    upload(fs, "/other", second[0])
    assert values(fs, STORAGE) == expected(second[-1])
    for base in first[2:-1]:
        upload(fs, "/disk", base)  # each held by longer ones, or overlapping with them
    assert values(fs, STORAGE) == expected(max(first[-1], second[-1]))
    assert values(fs, "/disk", STORAGE) == expected(24)


def test_a_copy_that_is_not_whole_does_not_count(fs: MemoryFileSystem) -> None:
    bases = write_log(fs, "/disk", 12, a_segment=4)
    upload(fs, "/disk", bases[0])
    upload(fs, "/disk", bases[1], without="epochs")
    upload(fs, "/disk", bases[0], copy=2, without=".index")
    assert values(fs, STORAGE) == expected(bases[1])
    upload(fs, "/disk", bases[1], copy=3)
    assert values(fs, STORAGE) == expected(bases[2])


def test_the_snapshot_of_a_copy_is_that_of_its_end(fs: MemoryFileSystem) -> None:
    bases = write_log(fs, "/disk", 12, a_segment=4)
    upload(fs, "/disk", bases[0])
    content = state_after(fs, bases[0])
    view, _ = with_remote_segments(fs, [STORAGE])
    path = f"{STORAGE}/orders-0/{bases[1]:020}.snapshot"
    assert read_bytes(view, path) == content.encode()
    assert f"{0:020}.snapshot" not in view.list(f"{STORAGE}/orders-0")


def test_a_hole_is_an_error(fs: MemoryFileSystem) -> None:
    bases = write_log(fs, "/disk", 20, a_segment=4)
    for base in (bases[0], bases[2]):
        upload(fs, "/disk", base)
    with pytest.raises(CorruptDataError, match=f"got offset {bases[2]} after {bases[1] - 1}"):
        values(fs, STORAGE)
    forget(fs, "/disk", bases[-1])
    with pytest.raises(CorruptDataError, match="records are missing"):
        values(fs, "/disk", STORAGE)


def test_copies_of_records_that_an_unclean_election_took_are_left_out(
    fs: MemoryFileSystem,
) -> None:
    """The former leader copied records 6 to 11 of epoch 0; the next one began epoch 1 at 6."""
    gone = write_log(fs, "/other", 12, a_segment=3, mark="x")
    bases = write_log(fs, "/disk", 12, a_segment=3, epochs=(0, 1))
    for base in gone:
        upload(fs, "/other", base)
    for base in bases[:-1]:
        upload(fs, "/disk", base, copy=2)
    found = values(fs, "/disk", STORAGE)
    assert found[6:] == expected(12, 6)
    assert len(found) == 12  # records of epoch 0 below 6 are equal by Kafka's rules
    with pytest.raises(CorruptDataError, match="diverge"):
        values(fs, "/other", STORAGE)


def test_a_disk_that_missed_the_end_is_completed(fs: MemoryFileSystem) -> None:
    write_log(fs, "/disk", 10, a_segment=4)
    bases = write_log(fs, "/other", 20, a_segment=4, epochs=(0, 2))
    for base in bases:
        upload(fs, "/other", base)
    roots = ReadRoots(["/disk", STORAGE], fs=fs)
    with roots.open(ORDERS, roots.find()["orders"][0]) as reader:
        assert reader.leader_epoch == 2
    assert values(fs, "/disk", STORAGE) == expected(20)


def test_the_id_decides_between_topics_of_one_name(fs: MemoryFileSystem) -> None:
    bases = write_log(fs, "/disk", 12, a_segment=4)
    upload(fs, "/disk", bases[0])
    former = f"{STORAGE}/orders-0-AAAAAAAAAAAAAAAAAAAAAQ"
    fs.make_directory(former)
    for name in fs.list(REMOTE):
        write_bytes(fs, f"{former}/{name}", read_bytes(fs, f"{REMOTE}/{name}"))
    assert values(fs, "/disk", STORAGE) == expected(12)
    with pytest.raises(InvalidRequestError, match="several topics of one name"):
        values(fs, STORAGE)


def test_a_partition_that_is_only_remote_has_its_id(fs: MemoryFileSystem) -> None:
    bases = write_log(fs, "/other", 12, a_segment=4)
    upload(fs, "/other", bases[0])
    roots = ReadRoots(["/disk", STORAGE], fs=fs)
    with roots.open(ORDERS, roots.find()["orders"][0]) as reader:
        assert reader.topic_id == TOPIC_ID
        assert reader.high_watermark == bases[1]


def test_nothing_can_be_written(fs: MemoryFileSystem) -> None:
    view, _ = with_remote_segments(fs, ["/disk", STORAGE])
    for change in (
        lambda: view.open("/disk/x", OpenMode.CREATE),
        lambda: view.make_directory("/disk/x"),
        lambda: view.rename("/disk", "/disk2"),
        lambda: view.link("/disk/a", "/disk/b"),
        lambda: view.remove("/disk/x"),
        lambda: view.remove_directory(REMOTE),
        lambda: view.sync_directory("/disk"),
        lambda: view.set_mtime("/disk", 0),
        lambda: view.try_lock("/disk/x", shared=True),
    ):
        with pytest.raises(StorageError, match="read-only"):
            change()


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        (f"orders-0-{TOPIC_ID}", ORDERS),
        (f"a-b.c-12-{TOPIC_ID}", TopicPartition("a-b.c", 12)),
        ("orders-0", None),
        ("orders-0-LZIZDK01QdayzmsIHcRSr1", None),  # the last character has two bits
        (f"orders-{TOPIC_ID}", None),
        (f"-0-{TOPIC_ID}", None),
    ],
)
def test_directories_are_named_after_partition_and_topic_id(
    name: str, partition: TopicPartition | None
) -> None:
    found = parse_remote_directory(name)
    assert found == (None if partition is None else (partition, TOPIC_ID))
