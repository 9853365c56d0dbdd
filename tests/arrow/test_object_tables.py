"""Tables in object stores: written and read without Spark, with few requests."""

from datetime import datetime, timezone

import pyarrow as pa
import pytest

from streamlog.arrow.bucket_view import BucketLogView
from streamlog.arrow.decoder import ArrowDecoder
from streamlog.arrow.log_view import OffsetRange, TopicChoice
from streamlog.arrow.losses import LossReporter
from streamlog.arrow.object_reading import read_objects
from streamlog.arrow.planned import PlannedRange
from streamlog.arrow.reading import read_ranges
from streamlog.arrow.schema import COLUMN_NAMES, arrow_schema
from streamlog.arrow.table_writer import write_table
from streamlog.arrow.tables import read_arrow, read_table
from streamlog.bucket.manager import BucketManager
from streamlog.bucket.places import root_paths, shared_store
from streamlog.bucket.read_roots import BucketReadRoots
from streamlog.bucket.root import BucketRoot
from streamlog.clock import ManualClock
from streamlog.errors import (
    CommitMismatchError,
    CorruptRecordError,
    DataLossError,
    FileMissingError,
    InvalidOptionError,
    InvalidRequestError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from streamlog.fs.local import LocalFileSystem
from streamlog.records.record import IsolationLevel
from streamlog.store.faults import FaultyStore
from streamlog.topic import TopicPartition
from tests.support.object_root import root_at, url

__all__ = ["url"]

TEN = [f"v{n}".encode() for n in range(10)]
NOW = 1_700_000_000_000


@pytest.fixture
def orders(url):
    """Two partitions; six records in the first, in three commits, and four in the other."""
    root_at(url).create_topic("orders", partitions=2)
    for first in (0, 2, 4):
        write(url, TEN[first : first + 2], 0, timestamp=NOW + first)
    write(url, TEN[6:], 1, timestamp=NOW + 6)
    return url


def write(place, values, partition, *, timestamp=NOW, topic="orders"):
    times = pa.array([timestamp + n for n in range(len(values))], pa.timestamp("ms", tz="UTC"))
    numbers = pa.array([partition] * len(values), pa.int32())
    return write_table(
        pa.table({"value": values, "partition": numbers, "timestamp": times}), place, topic
    )


def test_a_table_has_the_schema_of_the_source_and_all_records_in_order(orders):
    table = read_table(orders, "orders")
    assert table.schema.equals(arrow_schema(COLUMN_NAMES[:-1]))
    assert table["value"].to_pylist() == TEN
    assert table["offset"].to_pylist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert table["partition"].to_pylist() == [0] * 6 + [1] * 4
    assert [value for each in read_arrow(orders, columns=["value"]) for value in each[0]] == [
        pa.scalar(value) for value in TEN
    ]


def test_every_column_of_the_sink_comes_back(url):
    root_at(url).create_topic("orders", partitions=2)
    headers = pa.array(
        [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    given = pa.table({"key": ["k", None], "value": [None, "ü"], "headers": headers})
    write_table(given, url, "orders", compression_type="zstd", clock=ManualClock(NOW))
    table = read_table(url, include_headers=True).sort_by("key")
    assert table["key"].to_pylist() == [b"k", None]
    assert table["value"].to_pylist() == [None, "ü".encode()]
    assert table["headers"].to_pylist()[0][0] == {"key": "h", "value": b"1"}
    assert set(table["timestamp"].to_pylist()) == {datetime.fromtimestamp(NOW / 1000, timezone.utc)}


def test_a_write_with_a_version_is_made_once(url):
    root_at(url).create_topic("orders")
    for _ in range(2):
        done = write_table(
            pa.table({"value": TEN}), url, "orders", txn_app_id="load", txn_version=1
        )
    assert done.is_replay
    assert read_table(url).num_rows == 10
    with pytest.raises(CommitMismatchError):
        write_table(pa.table({"value": [b"x"]}), url, "orders", txn_app_id="load", txn_version=1)


def test_the_column_topic_creates_topics_if_the_root_does(url):
    rows = pa.table({"value": [b"a", b"b"], "topic": ["x", "y"]})
    with pytest.raises(UnknownTopicError, match="there is no topic x"):
        write_table(rows, url)
    other = f"{url}-that-creates"
    BucketRoot(shared_store(other)).create({"auto.create.topics.enable": "true"})
    write_table(rows, other)
    assert set(read_table(other)["topic"].to_pylist()) == {"x", "y"}
    assert sorted(root_at(other).state.topics) == ["x", "y"]


def test_the_topics_rules_are_kept(url):
    root_at(url).create_topic("small", configs={"max.message.bytes": 100})
    with pytest.raises(MessageTooLargeError):
        write_table(pa.table({"value": [b"x" * 500]}), url, "small")
    root_at(url).create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    write(url, [b"x"], 0, topic="stamped", timestamp=5)
    table = read_table(url, "stamped")
    assert table["timestampType"].to_pylist() == [1]
    assert table["timestamp"].to_pylist()[0].year > 2000


def test_ranges_by_offset_and_time(orders):
    def values(**span):
        return read_table(orders, "orders", partitions=[0], **span)["value"].to_pylist()

    assert values(starting_offsets=3, ending_offsets=5) == TEN[3:5]
    assert values(starting_timestamp=NOW + 3) == TEN[3:6]
    assert values(ending_timestamp=NOW + 3) == TEN[:3]
    with pytest.raises(OffsetOutOfRangeError):
        values(starting_offsets=7)
    root_at(orders).delete_records(TopicPartition("orders", 0), 3)
    assert values() == TEN[3:6]


def test_what_is_not_there_is_an_error_with_a_command(orders, tmp_path):
    with pytest.raises(UnknownTopicError, match="there is no topic nothing") as caught:
        read_table(orders, "nothing")
    assert "orders" in caught.value.expected
    with pytest.raises(UnknownTopicError, match="no topic nothing"):
        BucketManager(orders).partitions("nothing")
    with pytest.raises(UnknownTopicError, match="no log root"):
        read_table("memory:///nothing-at-all")
    with pytest.raises(UnknownTopicError):
        read_table(f"file://{tmp_path}/nothing")
    with pytest.raises(InvalidOptionError, match="no replicas in other roots"):
        read_table([orders, "s3://bucket/b"])
    with pytest.raises(InvalidRequestError, match="unknown kind of object store"):
        read_table("hdfs://name/log")


def test_a_file_url_is_a_directory_unless_a_bucket_is_there(root, tmp_path):
    root.create("orders").append("orders", 0, ["a"])
    assert read_table(f"file://{root.path}")["value"].to_pylist() == [b"a"]
    fs = LocalFileSystem()
    new = f"file://{tmp_path}/new"
    assert root_paths(new, fs) == (f"{tmp_path}/new",)
    assert root_paths(new, fs, is_new=True) == (new,)
    assert root_paths(f"file://{root.path}", fs, is_new=True) == (root.path,)
    BucketRoot(shared_store(new)).create()
    assert root_paths(new, fs) == (new,)
    assert root_paths("s3a://bucket/a/", fs) == ("s3://bucket/a",)


# ---- planned ranges -----------------------------------------------------------------------------
def planned(place, *, partitions=(0, 1)):
    view = BucketLogView(BucketReadRoots(place), TopicChoice(topics=("orders",)))
    return [
        view.planned(
            OffsetRange("orders", number, *view.bounds[TopicPartition("orders", number)][:2])
        )
        for number in partitions
    ]


def values_of(parts, *, fail=True, store=None):
    found = read_objects(
        parts, reporter=LossReporter(fail=fail), max_decompressed_bytes=None, store=store
    )
    return [record.value for _, info in found for record in info.records()]


def test_a_task_makes_one_request_per_extent_and_no_other(orders):
    store = FaultyStore(shared_store(orders))
    parts = [PlannedRange.unpack(part.pack()) for part in planned(orders)]
    assert values_of(parts, store=store) == TEN
    assert [each.operation for each in store.requests] == ["read"] * 4


def test_a_range_may_begin_and_end_inside_of_batches(orders):
    part = planned(orders, partitions=[0])[0]._replace(start_offset=1, end_offset=5)
    decoder = ArrowDecoder(("value",), invalid_timestamps="error")
    found = read_ranges(
        [part], decoder=decoder, isolation=IsolationLevel.READ_COMMITTED, fail_on_data_loss=True
    )
    assert [each for batch in found for each in batch["value"].to_pylist()] == TEN[1:5]


def test_a_missing_object_is_looked_for_in_the_journal(orders):
    parts = planned(orders)
    shared_store(orders).delete([parts[0].stretches[0].key])
    with pytest.raises(FileMissingError):  # the journal still names it
        values_of(parts)
    root_at(orders).delete_records(TopicPartition("orders", 0), 2)
    with pytest.raises(DataLossError, match="START_OFFSET_RESET"):
        values_of(parts)
    assert values_of(parts, fail=False) == TEN[2:]


def test_a_deleted_topic_is_a_loss(orders):
    parts = planned(orders)
    root_at(orders).delete_topic("orders")
    shared_store(orders).delete([each.key for part in parts for each in part.stretches])
    with pytest.raises(DataLossError, match="PARTITIONS_DELETED"):
        values_of(parts)
    assert values_of(parts, fail=False) == []
    root_at(orders).create_topic("orders", partitions=2)
    with pytest.raises(DataLossError, match="deleted and created again"):
        values_of(parts)


def test_records_before_damage_are_read(orders):
    parts = planned(orders, partitions=[0])
    store, last = shared_store(orders), parts[0].stretches[-1]
    content = bytearray(store.get(last.key, max_size=1 << 20))
    content[last.position + last.size - 1] ^= 1
    store.put(last.key, bytes(content))
    seen = []
    with pytest.raises(CorruptRecordError, match="does not hold the batches"):
        for _, info in read_objects(
            parts, reporter=LossReporter(fail=True), max_decompressed_bytes=None
        ):
            seen += [record.value for record in info.records()]
    assert seen == TEN[:4]


# ---- the planner's view -------------------------------------------------------------------------
def test_an_idle_view_makes_one_request_and_then_rests(orders):
    clock, store = ManualClock(NOW), FaultyStore(shared_store(orders))
    roots = BucketReadRoots(orders, clock=clock, store=store)
    view = BucketLogView(roots, TopicChoice(pattern="ord.*"), clock=clock)
    assert len(store.requests) <= 5
    before = view.bounds
    store.requests.clear()
    view.refresh()
    view.refresh(is_idle=True)
    assert len(store.requests) == 1
    assert view.bounds is before
    clock.advance(1000)
    view.refresh(is_idle=True)
    assert len(store.requests) == 2
    write(orders, [b"new"], 1)
    root_at(orders).create_topic("order-lines")
    store.requests.clear()
    clock.advance(1000)
    view.refresh(is_idle=True)
    assert len(store.requests) <= 6
    assert view.bounds[TopicPartition("orders", 1)].end_offset == 5
    assert TopicPartition("order-lines", 0) in view.bounds


def test_ranges_are_cut_where_extents_end(orders):
    view = BucketLogView(BucketReadRoots(orders), TopicChoice(topics=("orders",)))
    whole = OffsetRange("orders", 0, 0, 6)
    assert view.split(whole, 3) == [OffsetRange("orders", 0, at, at + 2) for at in (0, 2, 4)]
    assert view.split(whole, 1) == [whole]
    assert sum(map(view.size_of, view.split(whole, 3))) == view.size_of(whole)
    assert view.epoch_before(TopicPartition("orders", 0), 6) == 0
    assert view.end_of_epoch(TopicPartition("orders", 0), 0) == 6
    assert view.end_of_epoch(TopicPartition("orders", 0), 1) == 0


def test_large_partitions_come_whole_out_of_memory_that_is_used_again(url):
    """Several reads of each of two partitions, by two threads."""
    root_at(url).create_topic("orders", partitions=2)
    sizes = [(seed, 9 << 20) for seed in range(5)]
    for partition in (0, 1):
        for seed, size in sizes:
            write(url, [bytes([seed, partition]) * (size // 80)] * 40, partition)
    table = read_table(url, "orders", columns=["value", "partition"])
    expected = [
        bytes([seed, partition]) * (size // 80)
        for partition in (0, 1)
        for seed, size in sizes
        for _ in range(40)
    ]
    assert table["value"].to_pylist() == expected
