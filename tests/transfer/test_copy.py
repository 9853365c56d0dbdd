"""Copies hold the batches of their source, byte for byte, in directories and in object stores."""

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streamlog import Header, LogManager, Record, read_table
from streamlog.bucket.root import BucketRoot
from streamlog.bucket.spans import narrowed
from streamlog.bucket.state import BucketPartition, Stretch
from streamlog.clock import ManualClock
from streamlog.errors import (
    CorruptRecordError,
    DataLossError,
    InconsistentTopicIdError,
    InvalidRequestError,
    StreamLogError,
    TopicExistsError,
    UnknownTopicError,
)
from streamlog.fs.log_root import LogRoot
from streamlog.health.findings import Finding, FindingKind
from streamlog.health.verify import verify
from streamlog.maintenance.bucket_runner import BucketMaintenance
from streamlog.partition.epochs import EpochEntry, LeaderEpochCache
from streamlog.partition.reader import LogReader
from streamlog.store.remote import open_store
from streamlog.topic import TopicPartition
from streamlog.transfer import bucket_source
from streamlog.transfer.bucket_source import BucketSource
from streamlog.transfer.bucket_target import BucketTarget
from streamlog.transfer.copying import CopiedPartition, CopyRequest, TopicCopier
from streamlog.transfer.directory_source import DirectorySource
from streamlog.transfer.directory_target import DirectoryTarget
from streamlog.transfer.places import open_source, open_target
from tests.bucket.staged import commit, stage
from tests.support.golden import unpack

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def records(first: int, count: int) -> list[Record]:
    return [
        Record(
            key=b"k%d" % number,
            value=b"%d" % number * 20,
            timestamp=1000 + number,
            headers=(Header("h", b"%d" % number),),
        )
        for number in range(first, first + count)
    ]


def fill(root: Path, first: int, count: int, *, partition: int = 0) -> None:
    with LogManager.open(root) as manager:
        log = manager.log("orders", partition)
        for at in range(first, first + count, 10):
            log.append(records(at, 10))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a root with two partitions of several segments; the second was cut at its start."""
    root = tmp_path / "source"
    with LogManager.open(root, create=True) as manager:
        configs = {"internal.segment.bytes": 4000, "retention.ms": -1, "flush.ms": 100_000}
        manager.create_topic("orders", 2, configs)
        manager.create_topic("empty", 1)
    fill(root, 0, 300)
    fill(root, 0, 200, partition=1)
    with LogManager.open(root) as manager:
        log = manager.log("orders", 1)
        with log.locked():
            log.assign_leader_epoch(7)
        log.append(records(200, 10))
        manager.delete_records("orders", 1, 105)
    return root


def copy(source: str | Path, target: str | Path, **request: object) -> list[CopiedPartition]:
    here, there = open_source(str(source)), open_target(str(target))
    try:
        return list(TopicCopier(here, there, CopyRequest(**request)).run())  # type: ignore[arg-type]
    finally:
        there.close()


def logs(root: Path, partition: TopicPartition) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / str(partition)).glob("*.log")}


def batches(path: Path | str, partition: TopicPartition) -> list[tuple[int, ...]]:
    """Return base offset, last offset, epoch, size and checksum of each batch."""
    piece_source = open_source(str(path)).open(partition)
    rows: list[tuple[int, ...]] = []
    for piece in piece_source.pieces(piece_source.log_start_offset, piece_source.end_offset):
        table = piece.table
        columns = (table.base_offset, table.last_offset, table.leader_epoch, table.size, table.crc)
        rows += zip(*(column.tolist() for column in columns), strict=True)
    piece_source.close()
    return rows


def findings(root: Path) -> list[Finding]:
    found: list[Finding] = []
    log_root = LogRoot.at(root)
    verify(log_root.fs, log_root.path, found.append)
    return [each for each in found if each.kind is not FindingKind.LEFTOVER]


def test_there_and_back_again_every_byte_is_the_same(source: Path, tmp_path: Path) -> None:
    bucket, back = f"file://{tmp_path}/bucket", tmp_path / "back"
    copied = copy(source, bucket)
    assert [(each.start_offset, each.end_offset) for each in copied] == [
        (0, 0),
        (0, 300),
        (105, 210),
    ]
    assert batches(bucket, A) == batches(source, A)
    copy(bucket, back)
    assert logs(back, A) == logs(source, A) and len(logs(back, A)) > 5
    assert batches(back, B) == batches(source, B)
    whole = list(logs(source, B))[1:]
    assert {name: logs(back, B).get(name) for name in whole if int(name[:20]) > 110} == {
        name: content for name, content in logs(source, B).items() if int(name[:20]) > 110
    }
    assert read_table(str(back), topic="orders") == read_table(str(source), topic="orders")
    for partition in (A, B):
        path = f"{partition}/leader-epoch-checkpoint"
        assert (back / path).read_bytes() == (source / path).read_bytes()
        name = f"{partition}/partition.metadata"
        assert (back / name).read_bytes() == (source / name).read_bytes()
    with LogReader.open(back / "orders-1") as reader:
        assert (reader.log_start_offset, reader.log_end_offset) == (105, 210)
    assert findings(back) == []
    with LogManager.open(back) as manager:
        assert manager.topics() == ["empty", "orders"]
        assert manager.topic_config("orders").retention_ms == -1


def test_the_second_copy_copies_what_is_new(source: Path, tmp_path: Path) -> None:
    targets = [f"file://{tmp_path}/bucket", str(tmp_path / "there")]
    for target in targets:
        copy(source, target, topics=("orders",))
    fill(source, 300, 50)
    for target in targets:
        first, second = copy(source, target, topics=("orders",))
        assert (first.start_offset, first.end_offset, first.batches) == (300, 350, 5)
        assert second.batches == 0
        assert batches(target, A) == batches(source, A)
        assert sum(each.batches for each in copy(source, target)) == 0
    assert findings(Path(targets[1])) == []


def test_a_bucket_with_staged_rows_becomes_segments(tmp_path: Path) -> None:
    store = open_store("memory:///")
    root = BucketRoot(store, clock=ManualClock(), random=random.Random(0))
    root.create()
    root.create_topic("orders", configs={"internal.segment.bytes": 2000})
    for version in range(8):
        rows = [b"%d.%d" % (version, number) for number in range(60)]
        commit(root, "q", version, stage(root, "q", version, {A: rows}))
    target = DirectoryTarget(LogRoot.at(tmp_path / "there"))
    (copied,) = TopicCopier(BucketSource(root), target, CopyRequest()).run()
    target.close()
    assert (copied.end_offset, copied.batches) == (480, 48)
    assert len(logs(tmp_path / "there", A)) > 3
    assert findings(tmp_path / "there") == []
    there = BucketRoot(open_store("memory:///"), clock=ManualClock(), random=random.Random(0))
    there.create()
    with closing(BucketTarget(there, scratch=str(tmp_path / "scratch"))) as into:
        list(TopicCopier(BucketSource(root), into, CopyRequest()).run())
    state = there.state.partitions[A]
    assert len(state.stretches) > 3 and not any(each.is_staged for each in state.stretches)
    values = [record.value for record in _records(there)]
    assert values == [b"%d.%d" % (v, n) for v in range(8) for n in range(60)]
    commit(there, "q", 0, stage(there, "q", 0, {A: [b"more"]}))  # the copy is a topic like any
    assert there.state.partitions[A].end_offset == 481


def _records(root: BucketRoot) -> Iterator[Record]:
    reader = root.reader(A)
    offset = reader.log_start_offset
    while offset < reader.log_end_offset:
        info = reader.read(offset)
        yield from info.records()
        offset = info.next_offset


# ---- a broker's disk --------------------------------------------------------------------------
def test_a_brokers_log_dir_with_transactions_is_archived_and_restored(tmp_path: Path) -> None:
    disk = unpack("C-broker/clean-log.dir.tar.gz", tmp_path / "unpacked")
    (log_dir,) = {path.parent.parent for path in disk.rglob("txn-0/*.log")}
    before = {path: path.read_bytes() for path in log_dir.rglob("*") if path.is_file()}
    bucket, back = f"file://{tmp_path}/bucket", tmp_path / "back"
    copy(log_dir, bucket)
    copy(bucket, back)
    assert {path: path.read_bytes() for path in log_dir.rglob("*") if path.is_file()} == before
    for isolation in ("read_committed", "read_uncommitted"):
        wanted = read_table(str(log_dir), topic="txn", isolation=isolation)
        for place in (bucket, str(back)):
            found = read_table(place, topic="txn", isolation=isolation)
            if isolation == "read_uncommitted":  # a copy in a store ends before open transactions
                end = found.num_rows
                assert found == wanted.slice(0, end)
            else:
                assert found == wanted
    committed = read_table(str(log_dir), topic="txn").num_rows
    assert committed < read_table(bucket, topic="txn", isolation="read_uncommitted").num_rows
    assert findings(back) == []


# ---- up to a time -----------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["file://{}/bucket", "{}/there"])
def test_a_copy_up_to_a_time_ends_inside_a_batch(source: Path, tmp_path: Path, kind: str) -> None:
    target = kind.format(tmp_path)
    for _ in range(2):
        copy(source, target, topics=("orders",), partitions=(0,), to_time=1123)
        table = read_table(target, topic="orders")
        assert table["offset"].to_pylist() == list(range(124))
    assert read_table(source, topic="orders", partitions=[0]).slice(0, 124) == table
    with pytest.raises(InvalidRequestError, match="other records"):
        copy(source, target, topics=("orders",), partitions=(0,))
    with pytest.raises(InvalidRequestError, match="later records"):
        copy(source, target, topics=("orders",), partitions=(0,), to_time=1050)


def test_no_transaction_is_open_at_the_end_of_a_copy_up_to_a_time(tmp_path: Path) -> None:
    disk = unpack("C-broker/clean-log.dir.tar.gz", tmp_path / "unpacked")
    (log_dir,) = {path.parent.parent for path in disk.rglob("txn-0/*.log")}
    whole = open_source(str(log_dir)).open(TopicPartition("txn", 0))
    pieces = whole.pieces(0, whole.end_offset)
    times = sorted({time for each in pieces for time in each.table.max_timestamp.tolist()})
    committed = read_table(str(log_dir), topic="txn", partitions=[0])
    ends = set()
    for number, time in enumerate(times[-1 :: -len(times) // 8]):
        there = tmp_path / str(number)
        copy(log_dir, there, topics=("txn",), to_time=time)
        with LogReader.open(there / "txn-0") as reader:
            assert reader.open_transactions == []
            end = reader.log_end_offset
            assert reader.last_stable_offset == end
        found = read_table(str(there), topic="txn", partitions=[0])
        assert found == committed.slice(0, found.num_rows)
        assert all(offset >= end for offset in committed["offset"].to_pylist()[found.num_rows :])
        assert all(int(each.timestamp() * 1000) <= time for each in found["timestamp"].to_pylist())
        ends.add(end)
    assert len(ends) > 2


def test_a_time_before_and_after_all_records(source: Path, tmp_path: Path) -> None:
    copy(source, tmp_path / "none", topics=("orders",), to_time=1)
    assert read_table(str(tmp_path / "none"), topic="orders").num_rows == 0
    copy(source, tmp_path / "all", topics=("orders",), to_time=10_000)
    assert batches(tmp_path / "all", A) == batches(source, A)


# ---- refusals ---------------------------------------------------------------------------------
def test_a_damaged_source_is_named_with_its_file_and_position(source: Path, tmp_path: Path) -> None:
    path = sorted((source / "orders-0").glob("*.log"))[2]
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    for target in (f"file://{tmp_path}/bucket", str(tmp_path / "there")):
        with pytest.raises(CorruptRecordError) as raised:
            copy(source, target, topics=("orders",))
        assert raised.value.path == str(path) and raised.value.position is not None
        with pytest.raises(StreamLogError):  # nobody sees a part of it
            read_table(target, topic="orders")
    content[500] ^= 1
    path.write_bytes(content)
    for target in (f"file://{tmp_path}/bucket", str(tmp_path / "there")):
        copy(source, target, topics=("orders",))
        assert batches(target, A) == batches(source, A)


@pytest.mark.parametrize("kind", ["file://{}/bucket", "{}/there"])
def test_a_target_that_is_no_copy_is_refused(source: Path, tmp_path: Path, kind: str) -> None:
    target = kind.format(tmp_path)
    copy(source, target, topics=("orders",))
    other = tmp_path / "other"
    with LogManager.open(other, create=True) as manager:
        manager.create_topic("orders", 2)
    with pytest.raises(InconsistentTopicIdError, match="another topic"):
        copy(other, target)
    late = tmp_path / "late"
    copy(source, late, topics=("orders",), to_time=1099)
    with pytest.raises(InvalidRequestError, match="ahead of the source"):
        copy(late, target)
    fill(late, 100, 300)  # a writer to the copy: other batches at the same offsets
    with LogManager.open(late) as manager:
        manager.log("orders", 0).append([Record(b"mine", b"mine")])
    with pytest.raises(InvalidRequestError, match="other records"):
        copy(source, copied_up_to(late, tmp_path), topics=("orders",), partitions=(0,))


def copied_up_to(root: Path, tmp_path: Path) -> Path:
    """Return a copy of a root that ends below the end of the source, with its last records."""
    with LogManager.open(root) as manager:
        log = manager.local_log("orders", 0)
        log.truncate_undecided(250)
        log.append([Record(b"mine", b"mine")])
    return root


def test_records_that_the_source_deleted_before_they_were_copied(
    source: Path, tmp_path: Path
) -> None:
    copy(source, tmp_path / "there", topics=("orders",))
    fill(source, 300, 50)
    with LogManager.open(source) as manager:
        manager.delete_records("orders", 0, 320)
    with pytest.raises(DataLossError, match="deleted records"):
        copy(source, tmp_path / "there", topics=("orders",))


def test_unknown_topics_and_partitions(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopicError, match="no topic nope"):
        copy(source, tmp_path / "there", topics=("nope",))
    with pytest.raises(UnknownTopicError, match="partition 9"):
        copy(source, tmp_path / "there", partitions=(9,))
    with pytest.raises(UnknownTopicError):
        copy(tmp_path / "nothing", tmp_path / "there")


def test_a_topic_that_is_being_copied_is_taken_but_can_be_deleted(
    source: Path, tmp_path: Path
) -> None:
    root = BucketRoot(open_store("memory:///"), clock=ManualClock(), random=random.Random(0))
    root.create()
    target = BucketTarget(root, scratch=str(tmp_path / "scratch"))
    source_root = DirectorySource(LogRoot.at(source))
    target.begin(source_root.topics()["orders"])
    assert root.state.topics == {}
    with pytest.raises(TopicExistsError, match="being copied"):
        root.create_topic("orders")
    root.delete_topic("orders")
    root.create_topic("orders")


def test_a_topic_created_during_its_copy_is_refused_and_a_copy_can_be_given_up(
    source: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    target = DirectoryTarget(LogRoot.at(there))
    target.begin(DirectorySource(LogRoot.at(source)).topics()["orders"])
    target.close()
    with LogManager.open(there) as manager:
        manager.create_topic("orders")
    with pytest.raises(TopicExistsError, match="created while it was copied"):
        copy(source, there, topics=("orders",))
    with LogManager.open(there) as manager:
        manager.delete_topic("orders")
        manager.delete_topic("orders")  # the unfinished copy
        with pytest.raises(UnknownTopicError):
            manager.delete_topic("orders")
    assert not DirectoryTarget(LogRoot.at(there)).is_hidden("orders")
    copy(source, there, topics=("orders",))
    assert batches(there, A) == batches(source, A)


def test_leader_epochs_without_records_are_kept(source: Path, tmp_path: Path) -> None:
    """Compaction may take the first batches of an epoch; the checkpoint still knows its start."""
    entries = (EpochEntry(0, 0), EpochEntry(3, 95), EpochEntry(9, 250))
    directory = str(source / "orders-0")
    LeaderEpochCache(entries).store(LogRoot.at(source).fs, directory)
    copy(source, f"file://{tmp_path}/bucket", topics=("orders",))
    copy(f"file://{tmp_path}/bucket", tmp_path / "back", topics=("orders",))
    with LogReader.open(tmp_path / "back" / "orders-0") as reader:
        assert reader.leader_epochs.entries == entries


# ---- while others work ------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["file://{}/bucket", "{}/there"])
def test_writers_at_the_source_go_on_meanwhile(source: Path, tmp_path: Path, kind: str) -> None:
    target = kind.format(tmp_path)
    before = batches(source, A)
    written = iter(range(300, 1000, 10))

    def write(size: int) -> None:
        if size:
            fill(source, next(written), 10)

    there = open_target(target)
    request = CopyRequest(topics=("orders",), partitions=(0,))
    copier = TopicCopier(open_source(str(source)), there, request, on_progress=write)
    (copied,) = copier.run()
    there.close()
    assert copied.end_offset == 300
    assert batches(target, A) == before
    copy(source, target, topics=("orders",))
    assert batches(target, A) == batches(source, A)
    assert len(batches(source, A)) > len(before) + 3


def test_maintenance_of_the_source_moves_records_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_source, "FETCH_BYTES", 1)
    store, clock = open_store("memory:///"), ManualClock()
    root = BucketRoot(store, clock=clock, random=random.Random(0))
    root.create()
    root.create_topic("orders", configs={"internal.segment.bytes": 2000, "retention.ms": -1})
    for version in range(8):
        rows = [b"%d.%d" % (version, number) for number in range(60)]
        commit(root, "q", version, stage(root, "q", version, {A: rows}))
    other = BucketRoot(store, clock=clock, random=random.Random(1))
    other.refresh()

    def maintain(size: int) -> None:
        if not size or other.state.partitions[A].stretches[0].is_sealed:
            return
        with BucketMaintenance(other, scratch=str(tmp_path / "scratch")) as maintenance:
            maintenance.run()
            clock.advance(60_000)  # file.delete.delay.ms: the staged objects go
            maintenance.run()

    target = DirectoryTarget(LogRoot.at(tmp_path / "there"))
    copier = TopicCopier(BucketSource(root), target, CopyRequest(), on_progress=maintain)
    (copied,) = copier.run()
    target.close()
    assert other.state.partitions[A].stretches[0].is_sealed
    assert (copied.end_offset, copied.batches) == (480, 48)
    offsets = read_table(str(tmp_path / "there"), topic="orders")["offset"].to_pylist()
    assert offsets == list(range(480))


def test_a_range_names_later_segments_that_know_of_aborts() -> None:
    def segment(base: int, transactions: int) -> Stretch:
        return Stretch(f"{base}.log", 0, 9, base, base + 10, 0, transactions=transactions)

    kinds = (-1, 0, 2, -1, 1, 0)
    all_of = tuple(segment(10 * at, kind) for at, kind in enumerate(kinds))
    state = BucketPartition(end_offset=60, stretches=all_of)
    bases = [
        [each.base_offset for each in narrowed(state, start, end).stretches]
        for start, end in ((0, 10), (10, 20), (15, 25), (30, 40), (50, 60))
    ]
    assert bases == [[0], [10, 20, 40], [10, 20, 40], [30], [50]]
