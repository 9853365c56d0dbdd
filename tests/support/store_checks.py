"""What every store that is a server is tried with: its promises, and a log on it."""

import random
from pathlib import Path

import pyarrow as pa

from streamlog.arrow.table_writer import write_table
from streamlog.arrow.tables import read_table
from streamlog.bucket.root import BucketRoot
from streamlog.clock import ManualClock, SystemClock
from streamlog.maintenance.bucket_runner import BucketMaintenance
from streamlog.store.api import ObjectStore
from streamlog.store.remote import open_store
from streamlog.topic import TopicPartition
from tests.bucket.staged import commit, stage, values_of
from tests.store import test_store

ORDERS = TopicPartition("orders", 0)
PROMISES = {  # the tests of stores without a server, for a fixture `store` of another one
    name: value
    for name, value in vars(test_store).items()
    if name.startswith("test_") and "store" in getattr(value, "__annotations__", {})
}


def check_tables(url: str) -> None:
    """Check that a table is written once, and read."""
    root = BucketRoot(open_store(url))
    root.create()
    root.create_topic("orders", partitions=2)
    rows = pa.table({"key": ["a", "b", "c"], "value": ["x", "y", "z"]})
    for is_replay in (False, True):
        done = write_table(rows, url, "orders", txn_app_id="load", txn_version=1)
        assert done.is_replay is is_replay
    assert sorted(read_table(url, "orders")["value"].to_pylist()) == [b"x", b"y", b"z"]


def check_maintenance(store: ObjectStore, scratch: Path) -> None:
    """Check that segments are built, and that what they replace is deleted."""
    clock = ManualClock(SystemClock().now_ms())
    root = BucketRoot(store, clock=clock, random=random.Random(1))
    root.create()
    root.create_topic("orders")
    expected = []
    for version in range(5):
        values = [b"%d.%d" % (version, number) for number in range(30)]
        staged = stage(root, "q", version, {ORDERS: values}, timestamp=clock.now_ms())
        commit(root, "q", version, staged)
        expected += values
    for wait_ms in (2 * 3600 * 1000, 120_000, 120_000):
        clock.advance(wait_ms)
        with BucketMaintenance(root, scratch=str(scratch)) as work:
            assert work.run().errors == []
    assert values_of(root, ORDERS, max_bytes=10_000) == expected
    keys = [each.key for each in store.list("")]
    assert sum(key.endswith(".log") for key in keys) == 1
    assert not [key for key in keys if "/staging/" in key]
