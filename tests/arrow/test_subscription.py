"""Which partitions there are, seen cheaply; transactions that hold records back."""

import shutil

import pytest

from streamlog.arrow.log_view import OffsetRange, PartitionBounds, TopicChoice
from streamlog.arrow.subscription import IDLE_PART, LOOK_EVERY_MS, Subscription
from streamlog.arrow.tables import read_table
from streamlog.clock import ManualClock
from streamlog.errors import UnknownTopicError
from streamlog.fs.local import LocalFileSystem
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import IsolationLevel, Record
from streamlog.topic import TopicPartition

P0 = TopicPartition("orders", 0)
ORDERS = TopicChoice(topics=("orders",))
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


class CountingFileSystem:
    """The machine's file system; counts calls by name."""

    def __init__(self):
        self._inner = LocalFileSystem()
        self.calls = {}

    def __getattr__(self, name):
        method = getattr(self._inner, name)

        def counted(*arguments, **options):
            self.calls[name] = self.calls.get(name, 0) + 1
            return method(*arguments, **options)

        return counted


def long_after():
    """Return a clock by which every directory was made long ago."""
    clock = ManualClock()
    clock.set(2**42)
    return clock


def test_idle_refresh_only_asks_for_facts(root):
    root.create("orders", 4)
    for partition in range(4):
        root.append("orders", partition, ["x"])
    fs, clock = CountingFileSystem(), long_after()
    view = Subscription(root.path, ORDERS, COMMITTED, fs=fs, clock=clock)
    view.refresh()
    bounds = view.bounds
    fs.calls.clear()
    for _ in range(10):
        clock.advance(LOOK_EVERY_MS)
        view.refresh()
    assert set(fs.calls) == {"stat"}
    assert fs.calls["stat"] <= 10 * (2 + 6 * 4)
    assert view.bounds is bounds


class SlowFileSystem(CountingFileSystem):
    """One where asking takes a millisecond."""

    def __init__(self, clock):
        super().__init__()
        self._clock = clock

    def stat(self, path):
        self._clock.advance(1)
        self.calls["stat"] = self.calls.get("stat", 0) + 1
        return self._inner.stat(path)


@pytest.mark.parametrize("partitions", [1, 8, 40])
def test_an_idle_query_costs_nothing_that_grows_with_partitions(root, partitions):
    root.create("orders", partitions)
    clock = long_after()
    fs = SlowFileSystem(clock)
    view = Subscription(root.path, ORDERS, COMMITTED, fs=fs, clock=clock)
    view.refresh()
    fs.calls.clear()
    begin = clock.monotonic_ms()
    while clock.monotonic_ms() < begin + 60_000:
        clock.advance(10)
        view.refresh(is_idle=True)
    assert 0 < fs.calls["stat"] <= 60_000 / IDLE_PART + 6 * partitions
    root.append("orders", 0, ["x"])
    view.refresh()  # after a batch it looks at once
    assert view.bounds[P0].end_offset == 1


def test_bounds_follow_what_is_written(root):
    root.create("orders", 1)
    view = Subscription(root.path, ORDERS, COMMITTED)
    assert view.bounds == {P0: PartitionBounds(0, 0, 0)}
    root.append("orders", 0, ["a", "b"])
    view.refresh()
    assert view.bounds == {P0: PartitionBounds(0, 2, 2)}


def test_directory_that_is_made_again_is_opened_anew_at_once(root):
    root.create("orders", 1).append("orders", 0, ["a", "b"])
    view = Subscription(root.path, ORDERS, COMMITTED, clock=long_after())
    before = view.topic_ids
    root.manager.delete_topic("orders")
    root.create("orders", 1).append("orders", 0, ["c"])
    view.refresh()
    assert view.bounds == {P0: PartitionBounds(0, 1, 1)}
    assert view.topic_ids != before


def test_partition_that_is_gone_leaves_the_view(root):
    root.create("orders", 2)
    view = Subscription(root.path, ORDERS, COMMITTED, clock=long_after())
    root.manager.delete_topic("orders")
    view.refresh()
    assert view.bounds == {}


def test_root_that_is_gone_is_an_error(root, tmp_path):
    root.create("orders", 1).append("orders", 0, ["x"])
    copy = shutil.copytree(root.path, tmp_path / "copy")
    clock = long_after()
    view = Subscription(str(copy), ORDERS, COMMITTED, clock=clock)
    shutil.rmtree(copy)
    clock.advance(LOOK_EVERY_MS)
    with pytest.raises(UnknownTopicError):
        view.refresh()


def test_ranges_are_measured_and_cut_at_ends_of_batches(root):
    root.create("orders", 1, **{"index.interval.bytes": "0"})
    for number in range(20):
        root.append("orders", 0, [f"{number}".encode() * 50] * 3)
    view = Subscription(root.path, ORDERS, COMMITTED)
    whole = OffsetRange("orders", 0, 0, 60)
    parts = view.split(whole, 4)
    assert len(parts) == 4
    assert all(part.start_offset % 3 == 0 for part in parts)
    assert (parts[0].start_offset, parts[-1].end_offset) == (0, 60)
    sizes = [view.size_of(part) for part in parts]
    assert sum(sizes) == view.size_of(whole)
    assert max(sizes) < 2 * min(sizes)


# ---- transactions -------------------------------------------------------------------------------
def transactional(root, values, sequence):
    builder = BatchBuilder(
        base_offset=root.log().log_end_offset,
        producer_id=5,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
        partition_leader_epoch=0,
    )
    for value in values:
        builder.append(Record(None, value, (), 1))
    root.log().append_as_follower(builder.build())


def end_transaction(root, kind):
    marker = build_marker(
        EndTransactionMarker(kind, 0),
        producer_id=5,
        producer_epoch=0,
        timestamp=1,
        base_offset=root.log().log_end_offset,
        partition_leader_epoch=0,
    )
    root.log().append_as_follower(marker)


def test_open_transaction_holds_records_back_and_says_how_many(root):
    root.create("orders", 1).append("orders", 0, ["a"])
    transactional(root, [b"t1", b"t2"], 0)
    view = Subscription(root.path, ORDERS, COMMITTED)
    assert view.bounds == {P0: PartitionBounds(0, 1, 3)}
    assert view.describe_held_back() == "open transactions hold back 2 offsets: 2 of orders-0"
    assert Subscription(root.path, ORDERS, UNCOMMITTED).bounds == {P0: PartitionBounds(0, 3, 3)}
    end_transaction(root, ControlRecordType.COMMIT)
    view.refresh()
    assert view.bounds == {P0: PartitionBounds(0, 4, 4)}
    assert view.describe_held_back() is None


def test_aborted_records_are_read_only_without_isolation(root):
    root.create("orders", 1).append("orders", 0, ["a"])
    transactional(root, [b"t1", b"t2"], 0)
    end_transaction(root, ControlRecordType.ABORT)
    root.append("orders", 0, ["z"])
    committed = read_table(root.path, "orders")["value"].to_pylist()
    everything = read_table(root.path, "orders", isolation="read_uncommitted")["value"].to_pylist()
    assert committed == [b"a", b"z"]
    assert everything == [b"a", b"t1", b"t2", b"z"]
