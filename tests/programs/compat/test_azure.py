"""Roots in Azure Blob Storage, as Azurite emulates it: the promises of a store, and a log on it.

Azurite comes from npm into `.cache`. Without npm's registry the tests skip, but fail in continuous
integration.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.bucket.keys import JOURNAL
from streamlog.bucket.root import BucketRoot
from streamlog.errors import StorageError
from streamlog.store.api import ObjectStore
from streamlog.store.remote import open_store
from tests.bucket.staged import commit, stage
from tests.support.azurite import Azurite, AzuriteUnavailableError, running
from tests.support.lossy_proxy import LossyProxy
from tests.support.store_checks import ORDERS, PROMISES, check_maintenance, check_tables

pytestmark = pytest.mark.compat

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
    check_tables(azurite.new_bucket())


def test_maintenance_builds_segments_and_deletes_what_they_replace(
    store: ObjectStore, tmp_path: Path
) -> None:
    check_maintenance(store, tmp_path / "scratch")


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
            commit(root, "q", version, stage(root, "q", version, {ORDERS: [b"%d" % version]}))
            assert proxy.left == 0
        assert len(proxy.lost) == 3
    assert root.state.number == 5
    assert root.reader(ORDERS).log_end_offset == 3


def test_wrong_credentials_are_named_and_not_shown(
    azurite: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "c2VjcmV0" * 8
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", secret)
    with pytest.raises(StorageError, match=r"credentials|denies access") as caught:
        BucketRoot(open_store(azurite.new_bucket())).create()
    assert secret not in str(caught.value)
