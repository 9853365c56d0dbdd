"""Maintenance of a root in an object store: as in a directory, and safe at every request."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streamlog.bucket import segments
from streamlog.bucket.building import LEASE_MS, MAX_AGE_MS, MAX_EXTENTS
from streamlog.bucket.collecting import BUILD_AGE_MS
from streamlog.bucket.keys import JOURNAL, SNAPSHOTS, STAGING
from streamlog.bucket.readers import BucketReaders
from streamlog.bucket.root import BucketRoot
from streamlog.bucket.state import JOURNAL_KEPT_MS
from streamlog.clock import ManualClock
from streamlog.commits.retirement import STAGED_FILE_AGE_MS
from streamlog.errors import FencedError
from streamlog.fs.faults import Moment, SimulatedCrash
from streamlog.maintenance.bucket_runner import BucketMaintenance
from streamlog.maintenance.runner import Maintenance
from streamlog.records.batch import scan_batches
from streamlog.records.builder import BatchBuilder, EncodedBatches
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.store.api import ObjectStore
from streamlog.store.faults import FaultyStore, StoreFault
from streamlog.store.remote import open_store
from streamlog.topic import TopicPartition
from tests.bucket.staged import commit, stage, values_of

A = TopicPartition("orders", 0)
START_MS = 1_700_000_000_000


def opened(store: ObjectStore, clock: ManualClock, seed: int = 0) -> BucketRoot:
    root = BucketRoot(store, clock=clock, random=random.Random(seed))
    if any(True for _ in store.list(JOURNAL)):
        root.refresh()
    return root


def made(store: ObjectStore, clock: ManualClock, **configs: str | int) -> BucketRoot:
    root = opened(store, clock)
    root.create({"log.cleaner.dedupe.buffer.size": "1048576"})
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    root.create_topic("orders", configs={"internal.segment.bytes": 4000, **settings})
    return root


def maintained(root: BucketRoot, tmp_path: Path, seed: int = 0) -> BucketMaintenance:
    scratch = str(tmp_path / f"scratch-{seed}")
    return BucketMaintenance(root, scratch=scratch, random=random.Random(seed))


def keyed(pairs: Sequence[tuple[bytes, bytes | None]], timestamp: int) -> EncodedBatches:
    """Encode keyed records, five to a batch."""
    parts = []
    for first in range(0, len(pairs), 5):
        builder = BatchBuilder(base_offset=first)
        for key, value in pairs[first : first + 5]:
            builder.append(Record(key=key, value=value, timestamp=timestamp))
        parts.append(builder.build())
    buffer = np.frombuffer(bytearray(b"".join(parts)), np.uint8)
    return EncodedBatches(buffer, scan_batches(buffer).table)


def put(root: BucketRoot, version: int, batches: EncodedBatches) -> None:
    with root.stager("q", version, 0) as stager:
        stager.append(A, batches)
        rows = int(batches.table.count.sum())
        commit(root, "q", version, stager.finish(rows=rows, checksum=version))


def rows(version: int, count: int = 60) -> list[bytes]:
    return [b"%d.%d" % (version, number) * 4 for number in range(count)]


def fill(root: BucketRoot, versions: range, *, every_ms: int = 0) -> list[bytes]:
    values = []
    for version in versions:
        staged = stage(root, "q", version, {A: rows(version)}, timestamp=root.clock.now_ms())
        commit(root, "q", version, staged)
        values += rows(version)
        assert isinstance(root.clock, ManualClock)
        root.clock.advance(every_ms)
    return values


def objects(store: ObjectStore, prefix: str = "orders-0/") -> dict[str, bytes]:
    return {
        each.key.rpartition("/")[2]: store.get(each.key, max_size=1 << 24)
        for each in store.list(prefix)
    }


# ---- building ---------------------------------------------------------------------------------
def test_a_tail_of_a_segment_is_built_and_its_objects_go_after_the_delay(tmp_path: Path) -> None:
    store, clock = open_store("memory:///"), ManualClock()
    root = made(store, clock)
    values = fill(root, range(8))
    with maintained(root, tmp_path) as maintenance:
        report = maintenance.run()
        assert [each.reason for each in report.deeds] == ["segment.bytes"]
        assert values_of(root, A) == values
        assert len(list(store.list(STAGING))) == 8
        clock.advance(60_000)
        assert maintenance.run().deeds == []
    assert list(store.list(STAGING)) == []
    assert root.state.garbage == () and root.state.builds == {}
    assert values_of(opened(store, clock, 1), A) == values


def test_many_small_commits_are_built_by_their_number_and_copied_seldom(tmp_path: Path) -> None:
    store, clock = FaultyStore(open_store("memory:///")), ManualClock()
    root = made(store, clock, internal_segment_bytes=1 << 20)
    values, copied = [], 0
    with maintained(root, tmp_path) as maintenance:
        for version in range(6 * MAX_EXTENTS):
            staged = stage(root, "q", version, {A: rows(version, 3)}, timestamp=clock.now_ms())
            commit(root, "q", version, staged)
            values += rows(version, 3)
            copied += sum(each.bytes for each in maintenance.run_due(budget_ms=1e9).deeds)
            assert len(root.state.partitions[A].stretches) <= MAX_EXTENTS + 3
    total = sum(each.size for each in root.state.partitions[A].stretches)
    assert copied < 3 * total
    assert values_of(root, A) == values


def test_what_is_not_due_costs_no_request(tmp_path: Path) -> None:
    store, clock = FaultyStore(open_store("memory:///")), ManualClock()
    root = made(store, clock)
    with maintained(root, tmp_path) as maintenance:
        maintenance.run()
        maintenance.run_due(budget_ms=100)
        fill(root, range(1))
        store.requests.clear()
        for _ in range(10):
            assert maintenance.run_due(budget_ms=100).deeds == []
        assert store.requests == []


def test_a_build_takes_few_requests(tmp_path: Path) -> None:
    store, clock = FaultyStore(open_store("memory:///")), ManualClock()
    root = made(store, clock, internal_segment_bytes=100_000)
    fill(root, range(MAX_EXTENTS - 1))
    with maintained(root, tmp_path) as maintenance:
        maintenance.run_due(budget_ms=1e9)
        fill(root, range(MAX_EXTENTS - 1, MAX_EXTENTS))
        store.requests.clear()
        maintenance.run_due(budget_ms=1e9)
    segments = len(root.state.partitions[A].stretches)
    assert store.count("upload") <= 4 * segments + 1  # with the indexes; and the epochs
    assert store.count("create", "put", "get", "list", "delete", "stat") <= 3 * 3


def test_two_maintainers_build_once(tmp_path: Path) -> None:
    store, clock = open_store("memory:///"), ManualClock()
    one = made(store, clock)
    values = fill(one, range(8))
    other = opened(store, clock, 1)
    first, second = maintained(one, tmp_path, 1), maintained(other, tmp_path, 2)
    assert first.run().deeds and not second.run().deeds
    assert values_of(other, A) == values
    logs = [name for name in objects(store) if name.endswith(".log")]
    assert len(logs) == len(other.state.partitions[A].stretches)


@pytest.mark.parametrize("change", ["delete_records", "delete_topic", "commit"])
def test_a_build_that_is_overtaken_leaves_nothing_behind(change: str, tmp_path: Path) -> None:
    memory, clock = open_store("memory:///"), ManualClock()
    values = fill(made(memory, clock), range(8))

    class Overtaken(FaultyStore):
        """Lets another process change the root in the middle of the uploads."""

        is_done = False

        def upload(self, key: str):  # type: ignore[no-untyped-def]
            if key.startswith("orders") and not self.is_done:
                self.is_done = True
                other = opened(memory, clock, 9)
                if change == "delete_records":
                    other.delete_records(A, 100)
                elif change == "delete_topic":
                    other.delete_topic("orders")
                else:
                    fill(other, range(8, 9))
            return super().upload(key)

    root = opened(Overtaken(memory), clock, 1)
    with maintained(root, tmp_path) as maintenance:
        maintenance.run()
        assert root.state.builds == {}
    if change == "delete_topic":
        assert objects(memory) == {}
        return
    expected = values[100:] if change == "delete_records" else values + rows(8)
    assert values_of(root, A) == expected
    with maintained(root, tmp_path) as maintenance:
        maintenance.run()
    assert values_of(root, A) == expected
    logs = [each.key for each in memory.list("orders-0/") if each.key.endswith(".log")]
    assert set(logs) == {each.key for each in root.state.partitions[A].stretches} & set(logs)


# ---- retention --------------------------------------------------------------------------------
def in_directory(root: BucketRoot, tmp_path: Path, source: BucketRoot) -> LogManager:
    """Return a directory root with the same topic, and the records of `source` batch by batch."""
    with LogManager.open(tmp_path / "root", create=True, clock=root.clock) as manager:
        manager.create_topic("orders", 1, dict(root.state.topics["orders"].config))
    manager = LogManager.open(tmp_path / "root", clock=root.clock)
    log, reader = manager.local_log("orders", 0), source.reader(A)
    offset = reader.log_start_offset
    while offset < reader.log_end_offset:
        info = reader.read(offset, 1)
        for at in range(len(info.table)):
            part = info.table.slice(at, at + 1)
            start = int(part.position[0])
            log.append_as_follower(info.buffer[start : start + int(part.size[0])])
        offset = info.next_offset
    return manager


@pytest.mark.parametrize(
    "settings",
    [
        {"retention.bytes": 9000, "retention.ms": -1},
        {"retention.ms": 2500},
        {"retention.ms": 0},
        {"retention.bytes": 0},
        {"cleanup.policy": "compact", "retention.ms": 0},
    ],
)
def test_retention_is_that_of_a_directory(settings: dict[str, object], tmp_path: Path) -> None:
    store, clock = open_store("memory:///"), ManualClock()
    root = made(store, clock)
    fill(root, range(8), every_ms=1000)
    with in_directory(root, tmp_path, root) as manager:
        manager.alter_topic("orders", configs=settings)  # type: ignore[arg-type]
    root.alter_topic("orders", configs=settings)  # type: ignore[arg-type]
    with maintained(root, tmp_path) as maintenance:
        mine = maintenance.run()
    with Maintenance(tmp_path / "root", clock=clock) as directory:
        theirs = directory.run()
    kept = [each for each in mine.deeds if each.action == "retention"]
    assert [each.to_json() for each in kept] == [
        each.to_json() for each in theirs.deeds if each.action == "retention"
    ]
    with LogManager.open(tmp_path / "root", clock=clock) as manager:
        assert manager.local_log("orders", 0).log_start_offset == root.reader(A).log_start_offset


def test_recorded_readers_keep_records_and_objects(tmp_path: Path) -> None:
    store, clock = open_store("memory:///"), ManualClock()
    root = made(store, clock, retention_ms=1)
    fill(root, range(8), every_ms=1000)
    readers = BucketReaders(store, clock)
    readers.write_progress("billing", {"orders": {"0": 200}}, entry=root.state.number)
    stale = root.reader(A)
    with maintained(root, tmp_path) as maintenance:
        report = maintenance.run()
        assert [each.reader for each in report.held] == ["billing"]
        assert 0 < root.reader(A).log_start_offset <= 200
        clock.advance(600_000)
        maintenance.run()
        assert stale.read(0).next_offset > 0  # what it planned on is all there
        readers.write_progress("billing", {"orders": {"0": 480}}, entry=root.state.number)
        maintenance.run()
        assert root.reader(A).log_start_offset == 480
        clock.advance(8 * 24 * 3600 * 1000)
        maintenance.run()
        assert readers.recorded()[0].reader.name == "billing"
        readers.forget("billing")
    assert objects(store) == {}


# ---- compaction -------------------------------------------------------------------------------
def test_compaction_is_that_of_a_directory(tmp_path: Path) -> None:
    store, clock = open_store("memory:///"), ManualClock()
    root = made(
        store, clock, cleanup_policy="compact", delete_retention_ms=10_000,
        min_cleanable_dirty_ratio="0.01",
    )  # fmt: skip
    random_keys = random.Random(5)
    for version in range(12):
        pairs = [
            (b"k%d" % random_keys.randrange(40), random_keys.choice([None, b"v" * 20]))
            for _ in range(50)
        ]
        put(root, version, keyed(pairs, clock.now_ms()))
        clock.advance(100)
    in_directory(root, tmp_path, root).close()
    for wait_ms in (0, 20_000):  # tombstones get their horizon, and go
        clock.advance(wait_ms)
        with maintained(root, tmp_path) as maintenance:
            report = maintenance.run()
        with Maintenance(tmp_path / "root", clock=clock) as directory:
            theirs = directory.run()
        assert report.errors == theirs.errors == []
        mine = [each for each in report.deeds if each.action == "compaction"]
        # A directory keeps segments without a record.
        assert [replace(each, segments=0) for each in mine] == theirs.deeds
        assert bool(mine) == (wait_ms == 0)
        live = [each for each in root.state.partitions[A].stretches if each.is_sealed]
        assert live
        for each in live:
            name = each.key.rpartition("/")[2]
            there = (tmp_path / "root" / "orders-0" / name).read_bytes()
            assert there == store.get(each.key, max_size=1 << 24), name
    assert root.state.builds == {}


class TickingClock(ManualClock):
    """A clock on which every look takes a millisecond."""

    def monotonic_ms(self) -> float:
        """Return the time, and let some pass."""
        self.advance(1)
        return super().monotonic_ms()


def test_a_compaction_pauses_and_goes_on(tmp_path: Path) -> None:
    store, clock = open_store("memory:///"), TickingClock()
    root = made(store, clock, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    for version in range(12):
        put(root, version, keyed([(b"k", b"%d" % n) for n in range(60)], clock.now_ms()))
    steps = 0
    with maintained(root, tmp_path) as maintenance:
        assert not maintenance.run_due(budget_ms=50).is_finished
        while not maintenance.run_due(budget_ms=3).is_finished:
            steps += 1
            assert steps < 1000
        assert steps > 3
        assert root.state.builds == {}
    assert latest(root) == {b"k": b"59"}
    assert len(values_of_compacted(root)) < 200


def values_of_compacted(root: BucketRoot) -> list[bytes]:
    reader = root.reader(A)
    offset, found = reader.log_start_offset, []
    while offset < reader.log_end_offset:
        info = reader.read(offset, 5000)
        found += [each.value or b"" for each in info.records()]
        offset = info.next_offset
    return found


# ---- builds that pause ------------------------------------------------------------------------
@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of a build reads one extent."""
    monkeypatch.setattr(segments, "_READ_BYTES", 1)


@pytest.mark.usefixtures("small_steps")
def test_a_build_pauses_and_goes_on_beside_commits(tmp_path: Path) -> None:
    store, clock = open_store("memory:///"), TickingClock()
    root = made(store, clock)
    values, calls = fill(root, range(8)), 0
    with maintained(root, tmp_path) as maintenance:
        while not maintenance.run_due(budget_ms=5).is_finished:
            if calls < 3:
                values += fill(root, range(8 + calls, 9 + calls))
            calls += 1
            assert calls < 1000
        assert calls > 3
        assert root.refresh().builds == {}
    assert any(not each.is_staged for each in root.state.partitions[A].stretches)
    assert values_of(root, A) == values
    assert not list((tmp_path).rglob("*.log"))


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("end", ["overtaken", "closed"])
def test_a_paused_build_that_does_not_go_on_leaves_nothing_behind(end: str, tmp_path: Path) -> None:
    store, clock = open_store("memory:///"), TickingClock()
    root = made(store, clock)
    fill(root, range(8))
    with maintained(root, tmp_path) as maintenance:
        while not any(name.endswith(".log") for name in objects(store)):
            assert not maintenance.run_due(budget_ms=5).is_finished
        assert root.state.builds
        if end == "overtaken":
            opened(store, clock, 1).delete_topic("orders")
            assert maintenance.run_due(budget_ms=5).errors == []
    root.refresh()
    assert root.state.builds == {}
    assert not any(name.endswith(".log") for name in objects(store))


# ---- garbage ----------------------------------------------------------------------------------
def test_orphans_are_collected_and_their_late_commit_is_refused(tmp_path: Path) -> None:
    store, clock = open_store("memory:///"), ManualClock()
    root = made(store, clock, retention_ms=-1)
    late = stage(root, "slow", 0, {A: rows(0)})
    clock.advance(3600 * 1000)  # a driver that was stopped for an hour
    hour_later = stage(root, "other", 0, {A: rows(1)})
    with maintained(opened(store, clock, 1), tmp_path) as maintenance:
        maintenance.run()
        commit(root, "other", 0, hour_later)
        clock.advance(STAGED_FILE_AGE_MS - 1000)
        maintenance.run()
        clock.advance(60_000)
        maintenance.run()
    assert len(list(store.list(STAGING))) == 0
    with pytest.raises(FencedError, match="can no longer be committed"):
        commit(root, "slow", 0, late)
    assert values_of(root, A) == rows(1)
    commit(root, "slow", 0, stage(root, "slow", 0, {A: rows(2)}))
    assert values_of(root, A) == rows(1) + rows(2)


def test_a_driver_that_was_stopped_for_an_hour_commits_once(tmp_path: Path) -> None:
    """Its rows are staged; meanwhile others commit, and maintenance builds and deletes."""
    store, clock = open_store("memory:///"), ManualClock()
    root = made(store, clock, retention_ms=-1)
    stopped, twin = opened(store, clock, 1), opened(store, clock, 2)
    staged = stage(stopped, "slow", 0, {A: rows(500)})
    values = fill(root, range(70), every_ms=60_000)
    with maintained(opened(store, clock, 3), tmp_path) as maintenance:
        assert maintenance.run().deeds
        clock.advance(3600 * 1000)
        maintenance.run()
    assert not commit(stopped, "slow", 0, staged).is_replay
    twin.refresh()  # another driver with this checkpoint
    assert commit(twin, "slow", 0, stage(twin, "slow", 0, {A: rows(500)})).is_replay
    assert values_of(twin, A) == values + rows(500)


def test_an_abandoned_build_is_collected_and_its_swap_refused(tmp_path: Path) -> None:
    memory, clock = open_store("memory:///"), ManualClock()
    values = fill(made(memory, clock), range(8))
    fault = StoreFault(operation="create", first=2, is_crash=True)
    with pytest.raises(SimulatedCrash):
        maintained(opened(FaultyStore(memory, [fault]), clock, 1), tmp_path, 1).run()
    assert objects(memory)
    root = opened(memory, clock, 2)
    with maintained(root, tmp_path, 2) as maintenance:
        assert not maintenance.run().deeds  # the announcement is young
        clock.advance(LEASE_MS)
        assert maintenance.run().deeds
        clock.advance(BUILD_AGE_MS)
        maintenance.run()
    assert root.state.builds == {}
    named = {each.key for each in root.state.partitions[A].stretches}
    assert {each.key for each in memory.list("orders-0/") if each.key.endswith(".log")} == named
    assert values_of(root, A) == values


def test_old_entries_go_and_nobody_takes_their_numbers(tmp_path: Path) -> None:
    store, clock = FaultyStore(open_store("memory:///")), ManualClock()
    root = made(store, clock)
    slow_reader, slow_writer = opened(store, clock, 7), opened(store, clock, 8)
    with maintained(root, tmp_path) as maintenance:
        values = []
        for version in range(0, 120, 10):
            values += fill(root, range(version, version + 10), every_ms=1000)
            clock.advance(JOURNAL_KEPT_MS // 4)
            maintenance.run()
    assert len(list(store.list(JOURNAL))) < 80 < root.state.number // 2
    assert len(list(store.list(SNAPSHOTS))) < 6
    store.requests.clear()
    assert values_of(opened(store, clock, 9), A) == values
    assert store.count("get", "list", "stat") <= 5 + 1  # and whether there is a root, in `opened`
    assert slow_reader.refresh().number >= root.state.number - 1
    commit(slow_writer, "w", 0, stage(slow_writer, "w", 0, {A: rows(500)}))
    root.refresh()
    assert values_of(root, A) == values + rows(500)


def test_a_writer_that_slept_between_its_look_and_its_entry_notices(tmp_path: Path) -> None:
    memory, clock = open_store("memory:///"), ManualClock()
    fill(made(memory, clock), range(3))

    class Sleepy(FaultyStore):
        """Stops for days before its first entry."""

        is_awake = False

        def create(self, key: str, content: object) -> None:
            if not self.is_awake:
                self.is_awake = True
                other = opened(memory, clock, 3)
                with maintained(other, tmp_path, 3) as maintenance:
                    for version in range(3, 100):
                        fill(other, range(version, version + 1), every_ms=JOURNAL_KEPT_MS // 24)
                    clock.advance(JOURNAL_KEPT_MS)
                    maintenance.run()
            super().create(key, content)  # type: ignore[arg-type]

    sleeper = opened(Sleepy(memory), clock, 4)
    staged = stage(sleeper, "z", 0, {A: rows(777)})
    number = sleeper.state.number
    commit(sleeper, "z", 0, staged)
    assert sleeper.state.journal_start > number + 1
    present = opened(memory, clock, 5)
    assert values_of(present, A)[-60:] == rows(777)
    assert values_of(present, A).count(rows(777)[0]) == 1


# ---- crashes ----------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_crash_at_any_request_loses_nothing_and_leaves_nothing(
    policy: str, tmp_path: Path
) -> None:
    for number in itertools.count(1):
        memory, clock = open_store("memory:///"), ManualClock()
        root = made(memory, clock, cleanup_policy=policy, min_cleanable_dirty_ratio="0.01")
        for version in range(5):
            pairs = [(b"k%d" % (n % 7), b"%d.%d" % (version, n)) for n in range(60)]
            put(root, version, keyed(pairs, clock.now_ms()))
        before = latest(root)
        fault = StoreFault(first=number, moment=Moment.AFTER, is_crash=True)
        crashed = True
        try:
            mine = opened(FaultyStore(memory, [fault]), clock, number)
            maintenance = maintained(mine, tmp_path, number)
            maintenance.run()
            clock.advance(60_000)
            maintenance.run()
            crashed = False
        except SimulatedCrash:
            pass
        assert latest(opened(memory, clock, -1)) == before
        clock.advance(BUILD_AGE_MS + MAX_AGE_MS)
        successor = opened(memory, clock, number + 10_000)
        with maintained(successor, tmp_path, number + 10_000) as after:
            assert after.run().errors == []
            clock.advance(60_000)
            after.run()
        assert latest(successor) == before
        assert successor.state.builds == {} and successor.state.garbage == ()
        named = {each.key for each in successor.state.partitions[A].stretches}
        logs = {each.key for each in memory.list("orders-0/") if each.key.endswith(".log")}
        assert logs | {each.key for each in memory.list(STAGING)} == named
        if not crashed:
            return


def latest(root: BucketRoot) -> dict[bytes | None, bytes | None]:
    """Return the last value of each key."""
    reader = root.reader(A)
    offset, found = reader.log_start_offset, {}
    while offset < reader.log_end_offset:
        info = reader.read(offset, 5000)
        found.update({each.key: each.value for each in info.records()})
        offset = info.next_offset
    return found
