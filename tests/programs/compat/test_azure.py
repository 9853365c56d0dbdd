"""Roots in Azure Blob Storage, as Azurite emulates it: the promises of a store, and a log on it.

Azurite comes from npm into `.cache`. Without npm's registry the tests skip, but fail in continuous
integration.
"""

import os
import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from streamlog.arrow.table_writer import write_table
from streamlog.arrow.tables import read_table
from streamlog.bucket.keys import JOURNAL
from streamlog.bucket.root import BucketRoot
from streamlog.clock import ManualClock, SystemClock
from streamlog.errors import StorageError
from streamlog.fs.local import LocalFileSystem
from streamlog.maintenance.bucket_runner import BucketMaintenance
from streamlog.store.api import ObjectStore
from streamlog.store.remote import open_store
from streamlog.topic import TopicPartition
from tests.bucket.staged import commit, stage, values_of
from tests.store import test_store
from tests.support.azurite import Azurite, AzuriteUnavailableError, running
from tests.support.lossy_proxy import LossyProxy

pytestmark = pytest.mark.compat

A = TopicPartition("orders", 0)
PROMISES = {
    name: value
    for name, value in vars(test_store).items()
    if name.startswith("test_") and "store" in getattr(value, "__annotations__", {})
}
globals().update(PROMISES)  # the tests of the stores without a server, with the fixture below


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    try:
        with running() as server:
            yield server
    except AzuriteUnavailableError as error:
        message = f"Azurite is not available: {error}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)


@pytest.fixture
def store(azurite: Azurite) -> ObjectStore:
    return open_store(azurite.new_bucket())


def test_the_tests_of_stores_are_found() -> None:
    assert len(PROMISES) >= 11


def test_tables_are_written_once_and_read(azurite: Azurite) -> None:
    url = azurite.new_bucket()
    root = BucketRoot(open_store(url))
    root.create()
    root.create_topic("orders", partitions=2)
    rows = pa.table({"key": ["a", "b", "c"], "value": ["x", "y", "z"]})
    for is_replay in (False, True):
        done = write_table(rows, url, "orders", txn_app_id="load", txn_version=1)
        assert done.is_replay is is_replay
    assert sorted(read_table(url, "orders")["value"].to_pylist()) == [b"x", b"y", b"z"]


def test_maintenance_builds_segments_and_deletes_what_they_replace(
    store: ObjectStore, tmp_path: object
) -> None:
    clock = ManualClock(SystemClock().now_ms())
    root = BucketRoot(store, clock=clock, random=random.Random(1))
    root.create()
    root.create_topic("orders")
    expected = []
    for version in range(5):
        values = [b"%d.%d" % (version, number) for number in range(30)]
        staged = stage(root, "q", version, {A: values}, timestamp=clock.now_ms())
        commit(root, "q", version, staged)
        expected += values
    for wait_ms in (2 * 3600 * 1000, 120_000, 120_000):
        clock.advance(wait_ms)
        with BucketMaintenance(root, fs=LocalFileSystem(), scratch=f"{tmp_path}/s") as work:
            assert work.run().errors == []
    assert values_of(root, A, max_bytes=10_000) == expected
    keys = [each.key for each in store.list("")]
    assert sum(key.endswith(".log") for key in keys) == 1
    assert not [key for key in keys if "/staging/" in key]


def test_a_lost_answer_makes_no_second_entry(
    azurite: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = azurite.new_bucket()
    port = int(azurite.endpoint.split(":")[2].split("/")[0])
    with LossyProxy(port) as proxy:
        lossy = azurite.endpoint.replace(f":{port}/", f":{proxy.port}/")
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", lossy)
        root = BucketRoot(open_store(url))
        root.create()
        root.create_topic("orders")
        proxy.wanted = f"PUT /devstoreaccount1/{url[5:]}/{JOURNAL}".encode()
        for version in range(3):
            proxy.left = 1
            commit(root, "q", version, stage(root, "q", version, {A: [b"%d" % version]}))
            assert proxy.left == 0
        assert len(proxy.lost) == 3
    assert root.state.number == 5
    assert root.reader(A).log_end_offset == 3


def test_wrong_credentials_are_named_and_not_shown(
    azurite: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "c2VjcmV0" * 8
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", secret)
    with pytest.raises(StorageError, match=r"credentials|denies access") as caught:
        BucketRoot(open_store(azurite.new_bucket())).create()
    assert secret not in str(caught.value)
