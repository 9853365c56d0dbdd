"""A replica set on real directories: written, administered, with roots that go and come back."""

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.errors import StreamLogError, UnavailableError
from streamlog.fs.log_root import LogRoot
from streamlog.partition.reader import LogReader
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import Record
from streamlog.records.validate import AppendOrigin
from streamlog.replication import copying
from streamlog.replication.election import ElectionType
from streamlog.replication.fetcher_lock import has_replica_fetcher
from streamlog.replication.replica_fetcher import ReplicaFetcher
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import LedPartitionLog, PartitionLog
from streamlog.root.replica_roots import add_root
from streamlog.root.replica_set import ReplicaSet
from tests.support.cli import ok


def records(*values: str) -> list[Record]:
    return [Record(None, value.encode(), (), 1) for value in values]


def values_of(log: PartitionLog) -> list[str]:
    return [(record.value or b"").decode() for record in log.records()]


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Four log roots of one set; the topic `orders` has replicas in the first three."""
    paths = [tmp_path / f"r{number}" for number in range(1, 5)]
    with LogManager.open(paths[0], create=True) as manager:
        manager.create_topic("first")
    for path in paths[1:]:
        add_root(LogRoot.at(paths[0]), path)
    with LogManager.open(paths[0]) as manager:
        manager.create_topic("orders", 2, replication_factor=3)
    return paths


@pytest.fixture
def replicas(roots: list[Path]) -> Iterator[ReplicaSet]:
    with ReplicaSet.open(roots[0]) as opened:
        yield opened


def flip(path: Path) -> None:
    """Damage a batch."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def produced(
    producer_id: int, epoch: int, sequence: int, values: list[str], *, transaction: bool = False
) -> bytes:
    """Encode a batch of an idempotent producer; with the time, since old producers expire."""
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transaction,
    )
    for value in values:
        builder.append(Record(None, value.encode(), (), now_ms()))
    return builder.build()


def write_segments(log: PartitionLog) -> None:
    """Append 6 batches of 50 records, each in a segment of its own."""
    ok("topics", "alter", "orders", "--config", "internal.segment.bytes=700", "--path", log.root)
    for turn in range(6):
        log.append(records(*[f"{turn} {number}" for number in range(50)]))


def log_files(root: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (root / "orders-0").glob("*.log")}


def test_any_root_of_the_set_writes_through_the_leader(roots: list[Path]) -> None:
    for number, root in enumerate(roots[:3]):
        with LogManager.open(root) as manager:
            assert manager.log("orders", 0).root == str(roots[0])
            manager.log("orders", 0).append(records(f"m{number}"))
        with PartitionLog.open(root / "orders-0") as log:
            log.append(records(f"p{number}"))
            assert values_of(log)[-2:] == [f"m{number}", f"p{number}"]
    assert log_files(roots[0]) == log_files(roots[1]) == log_files(roots[2])


def test_an_interrupted_reassignment_continues_where_it_was(
    replicas: ReplicaSet, roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = replicas.log("orders", 0)
    for number in range(20):
        log.append(records(f"{number}".zfill(1000)))
    monkeypatch.setattr(copying, "COPY_BYTES", 3000)
    size = replicas.bytes_to_copy("orders", 0, (1, 2, 4))
    assert size == log.size
    copied: list[int] = []

    def interrupt(piece: int) -> None:
        copied.append(piece)
        if len(copied) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replicas.reassign("orders", 0, (1, 2, 4), on_progress=interrupt)
    assert 0 < sum(copied) < size
    assert replicas.bytes_to_copy("orders", 0, (1, 2, 4)) == size - sum(copied)
    with ReplicaSet.open(roots[0]) as again:
        before, copied = copied, []
        again.reassign("orders", 0, (1, 2, 4), on_progress=copied.append)
        assert sum(before) + sum(copied) == size
        assert again.describe("orders")[0].state.isr == (1, 2, 4)
    assert log_files(roots[0]) == log_files(roots[3])


def followed(replicas: ReplicaSet, root: Path, log: PartitionLog, *, seconds: float) -> None:
    """Let `replicas` follow for a while; meanwhile append with acks=1."""
    stop = threading.Event()
    thread = threading.Thread(target=replicas.follow, args=(stop,))
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not has_replica_fetcher(LogRoot.at(root)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            log.append(records("x"), acks=1)
            time.sleep(0.002)
    finally:
        stop.set()
        thread.join()


def test_a_process_that_follows_tries_an_offline_replica_now_and_then(
    replicas: ReplicaSet, roots: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    with ReplicaSet.open(roots[0]) as writer:
        log = writer.log("orders", 0)
        roots[2].rename(roots[2].with_name("away"))
        followed(replicas, roots[0], log, seconds=2)
        with log.locked():
            assert log.high_watermark == log.log_end_offset > 5
    offline = [each for each in caplog.messages if "orders-0] node 3 " in each]
    assert 0 < len(offline) < 20


def test_a_process_that_follows_rests_while_nothing_can_be_committed(
    replicas: ReplicaSet, roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = []
    copy = LedPartitionLog.copy_appended

    def counted(log: LedPartitionLog, fetcher: ReplicaFetcher) -> None:
        copies.append(log)
        copy(log, fetcher)

    monkeypatch.setattr(LedPartitionLog, "copy_appended", counted)
    ok("topics", "alter", "orders", "--config", "min.insync.replicas=3", "--path", roots[0])
    with ReplicaSet.open(roots[0]) as writer:
        log = writer.log("orders", 0)
        roots[2].rename(roots[2].with_name("away"))
        followed(replicas, roots[0], log, seconds=2)
        assert log.high_watermark == 0
        assert 0 < len(copies) < 20
        roots[2].with_name("away").rename(roots[2])


def test_describe_shows_each_replica(replicas: ReplicaSet, roots: list[Path]) -> None:
    replicas.log("orders", 0).append(records("a"))
    described = replicas.describe("orders")
    assert [each.partition.partition for each in described] == [0, 1]
    state = described[0].state
    assert (state.leader, state.replicas, state.isr) == (1, (1, 2, 3), (1, 2, 3))
    assert described[0].end_offset == 1
    assert [described[0].lag(each) for each in described[0].replicas] == [0, 0, 0]


def test_a_root_removed_under_load_and_returned(replicas: ReplicaSet, roots: list[Path]) -> None:
    log = replicas.log("orders", 0)
    log.append(records("a"))
    away = roots[0].with_name("away")
    roots[0].rename(away)
    for value in "bcd":
        for _ in range(3):
            try:
                log.append(records(value))
                break
            except UnavailableError:
                continue
    assert log.root == str(roots[1])
    assert values_of(log)[0] == "a" and values_of(log)[-1] == "d"
    away.rename(roots[0])
    assert replicas.replicate_once() == {}
    assert log.partition_state.isr == (1, 2, 3)
    assert replicas.elect("orders", 0, ElectionType.PREFERRED).leader == 1
    log.append(records("e"))
    assert log.root == str(roots[0])
    values = values_of(log)
    log.append(records("f"))
    assert values_of(log) == [*values, "f"]
    assert log_files(roots[0]) == log_files(roots[1]) == log_files(roots[2])


def test_a_manager_closes_after_its_own_root_is_gone(roots: list[Path]) -> None:
    with LogManager.open(roots[0]) as manager:
        manager.log("orders", 0).append(records("a"))
        roots[0].rename(roots[0].with_suffix(".away"))
    with LogManager.open(roots[1]) as manager:
        assert values_of(manager.log("orders", 0)) == ["a"]


def test_an_emptied_root_refills(replicas: ReplicaSet, roots: list[Path]) -> None:
    log = replicas.log("orders", 0)
    for number in range(20):
        log.append(records(f"{number}" * 1000))
    shutil.rmtree(roots[1])
    roots[1].mkdir()
    log.append(records("after"))
    assert replicas.replicate_once() == {}
    with log.writing():
        assert log.partition_state.isr == (1, 2, 3)
    assert log_files(roots[1]) == log_files(roots[0])


@pytest.mark.parametrize("node", [1, 2])
def test_a_replica_whose_directory_alone_was_lost_is_filled(roots: list[Path], node: int) -> None:
    with ReplicaSet.open(roots[0]) as replicas:
        replicas.log("orders", 0).append(records(*"abc"))
    shutil.rmtree(roots[node - 1] / "orders-0")  # the checkpoints of the root still name it
    with ReplicaSet.open(roots[0]) as replicas:
        assert replicas.replicate_once() == {}
        log = replicas.log("orders", 0)
        log.append(records("d"))
        with log.writing():
            assert log.partition_state.isr == (1, 2, 3)
        assert values_of(log) == list("abcd")
    assert log_files(roots[0]) == log_files(roots[1]) == log_files(roots[2])
    assert ok("verify", *roots, "--replicas").rows == []


def test_a_partition_moves_to_another_root(replicas: ReplicaSet, roots: list[Path]) -> None:
    log = replicas.log("orders", 0)
    log.append(records("a", "b"))
    state = replicas.reassign("orders", 0, [4, 2])
    assert (state.replicas, state.isr, state.leader) == ((4, 2), (4, 2), 4)
    assert (state.adding, state.removing) == ((), ())
    assert not (roots[0] / "orders-0").exists()
    assert list(roots[0].glob("orders-0.*-stray"))
    log.append(records("c"))
    assert log.root == str(roots[3])
    assert values_of(log) == ["a", "b", "c"]
    assert log_files(roots[3]) == log_files(roots[1])
    with LogManager.open(roots[0]) as manager:
        manager.log("orders", 0).append(records("d"))
        assert values_of(manager.log("orders", 0)) == ["a", "b", "c", "d"]


def test_a_replica_that_was_added_again_is_not_set_aside(
    replicas: ReplicaSet, roots: list[Path]
) -> None:
    """As if another reassignment had added it after the one that removed it had ended."""
    log = replicas.log("orders", 0)
    log.append(records("a"))
    replicas._drop_replica(2, log.topic_partition)
    assert (roots[1] / "orders-0").exists()
    log.append(records("b"))
    assert log_files(roots[1]) == log_files(roots[0])


def test_a_damaged_replica_is_refilled_by_a_reassignment_and_back(
    replicas: ReplicaSet, roots: list[Path]
) -> None:
    """The leader and a follower are damaged at different places; the third replica is sound."""
    log = replicas.log("orders", 0)
    write_segments(log)
    expected = values_of(log)
    sound = log_files(roots[2])
    flip(roots[0] / "orders-0" / f"{100:020}.log")
    flip(roots[1] / "orders-0" / f"{200:020}.log")
    for node, rest in ((1, [3, 2]), (2, [3, 1])):
        replicas.reassign("orders", 0, rest)
        state = replicas.reassign("orders", 0, [3, 1, 2])
        assert (state.leader, state.isr) == (3, (3, 1, 2))
        assert list(roots[node - 1].glob("orders-0.*-stray"))  # what was damaged is kept
    assert log_files(roots[0]) == log_files(roots[1]) == log_files(roots[2]) == sound
    assert values_of(replicas.log("orders", 0)) == expected


def test_producers_and_open_transactions_survive_a_change_of_leader(
    replicas: ReplicaSet, roots: list[Path]
) -> None:
    log = replicas.log("orders", 0)
    first = log.append_as_leader(produced(7, 0, 0, ["a", "b"]))
    opened = log.append_as_leader(produced(8, 0, 0, ["x"], transaction=True))
    log.append(records("c"))
    away = roots[0].rename(roots[0].with_name("away"))
    again = log.append_as_leader(produced(7, 0, 0, ["a", "b"]))
    assert log.root == str(roots[1])
    assert again.duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert log.last_stable_offset == opened.base_offset
    marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
    log.append_as_leader(
        build_marker(marker, producer_id=8, producer_epoch=0, timestamp=now_ms()),
        origin=AppendOrigin.COORDINATOR,
    )
    assert log.append_as_leader(produced(7, 0, 2, ["d"])).base_offset == log.log_end_offset - 1
    assert log.last_stable_offset == log.log_end_offset
    away.rename(roots[0])
    assert replicas.replicate_once() == {}
    replicas.close()
    for root in roots[:3]:
        with LogReader.open(root / "orders-0") as reader:
            assert reader.last_stable_offset == reader.log_end_offset == log.log_end_offset
            [aborted] = [each for seg in reader.segments for each in seg.txn_index.entries]
            assert (aborted.producer_id, aborted.first_offset) == (8, opened.base_offset)


def test_retention_runs_on_each_replica_and_does_not_disturb_copying(
    replicas: ReplicaSet, roots: list[Path]
) -> None:
    log = replicas.log("orders", 0)
    write_segments(log)
    replicas.close()
    settings = ("--config", "retention.bytes=1500", "--config", "retention.ms=-1")
    ok("topics", "alter", "orders", *settings, "--path", roots[0])
    ok("maintain", "--path", roots[2])  # a follower begins above the leader
    with LogReader.open(roots[2] / "orders-0") as reader:
        start = reader.log_start_offset
    assert 0 < start < 300
    with ReplicaSet.open(roots[0]) as opened:
        log = opened.log("orders", 0)
        assert log.log_start_offset == 0
        log.append(records("a"))
        assert set(opened.describe("orders")[0].state.isr) == {1, 2, 3}
    for root in roots[:2]:
        ok("maintain", "--path", root)
    ok("delete-records", "orders:0:300", "--path", roots[2])
    for root in roots[:3]:
        with LogReader.open(root / "orders-0") as reader:
            assert (reader.log_start_offset, reader.high_watermark) == (300, 301)


def test_each_replica_is_compacted_by_itself_and_copied_to_in_any_state(
    roots: list[Path],
) -> None:
    settings = ("cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01")
    configs = [f"--config={each}" for each in (*settings, "internal.segment.bytes=700")]
    ok("topics", "create", "keys", "--replication-factor", 3, *configs, "--path", roots[0])

    def write(first: int) -> None:
        with ReplicaSet.open(roots[0]) as opened:
            for turn in range(first, first + 4):
                values = [Record(b"%d" % (n % 7), b"%d" % turn, (), now_ms()) for n in range(50)]
                opened.log("keys", 0).append(values)

    def replicate() -> None:
        with ReplicaSet.open(roots[0]) as opened:
            assert opened.replicate_once() == {}
            assert set(opened.describe("keys")[0].state.isr) == {1, 2, 3}

    def latest(root: Path) -> dict[bytes | None, bytes | None]:
        with LogReader.open(root / "keys-0") as reader:
            assert reader.high_watermark == reader.log_end_offset
            return {each.key: each.value for each in reader.records()}

    write(0)
    ok("maintain", "--path", roots[2])  # a follower, before the leader
    write(4)
    away = roots[1].rename(roots[1].with_name("away"))
    write(8)
    ok("maintain", "--path", roots[0])  # the leader, before a follower that lags has its records
    away.rename(roots[1])
    replicate()
    expected = {b"%d" % key: b"11" for key in range(7)}
    assert [latest(root) for root in roots[:3]] == [expected] * 3
    assert ok("verify", "--replicas", roots[0]).code == 0
    for root in roots[1:3]:
        ok("maintain", "--path", root)
    assert [latest(root) for root in roots[:3]] == [expected] * 3
    assert ok("verify", "--replicas", roots[0]).code == 0


def test_a_reassignment_that_cannot_catch_up_continues_later(
    replicas: ReplicaSet, roots: list[Path]
) -> None:
    log = replicas.log("orders", 0)
    log.append(records("a"))
    (roots[3] / "orders-0").mkdir()
    broken = roots[3] / "orders-0" / "partition.metadata"
    broken.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    with pytest.raises(UnavailableError, match="not in sync yet"):
        replicas.reassign("orders", 0, [1, 2, 4])
    log.append(records("b"))
    broken.unlink()
    state = replicas.reassign("orders", 0, [1, 2, 4])
    assert (state.replicas, state.isr) == ((1, 2, 4), (1, 2, 4))
    assert log_files(roots[3]) == log_files(roots[0])


def test_an_unclean_election_with_one_root_left(roots: list[Path], tmp_path: Path) -> None:
    with ReplicaSet.open(roots) as replicas:
        log = replicas.log("orders", 0)
        log.append(records("a"))
    for root in (roots[0], roots[1], roots[3]):
        root.rename(root.with_name(f"{root.name}-gone"))
    with ReplicaSet.open(roots[2]) as replicas:
        with pytest.raises(UnavailableError, match="no majority"):
            replicas.log("orders", 0)
        assert replicas.elect("orders", 0, ElectionType.UNCLEAN).leader == 3
        log = replicas.log("orders", 0)
        log.append(records("b"))
        assert values_of(log) == ["a", "b"]


def test_no_replica_in_sync_is_online(roots: list[Path]) -> None:
    with ReplicaSet.open(roots) as replicas:
        log = replicas.log("orders", 0)
        log.append(records("a"))
        roots[2].rename(roots[2].with_name("gone"))
        log.append(records("b"))
        roots[1].rename(roots[1].with_name("gone2"))
        with pytest.raises(StreamLogError):
            log.append(records("c"))


def test_follow_brings_back_a_replica_while_another_process_writes(roots: list[Path]) -> None:
    stop = threading.Event()
    with ReplicaSet.open(roots) as writer, ReplicaSet.open(roots) as follower:
        thread = threading.Thread(target=follower.follow, args=(stop,), kwargs={"every_ms": 20})
        thread.start()
        try:
            log = writer.log("orders", 0)
            for number in range(50):
                log.append(records(f"{number}"))
            assert values_of(log) == [f"{number}" for number in range(50)]
        finally:
            stop.set()
            thread.join()
    assert log_files(roots[0]) == log_files(roots[1]) == log_files(roots[2])
