"""Roots in Google Cloud Storage, as fake-gcs-server emulates it; run by this package's program."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.store.api import ObjectStore
from streamlog.store.remote import open_store
from tests.support.fake_gcs import FakeGcs, running
from tests.support.store_checks import PROMISES, check_maintenance, check_tables

globals().update(PROMISES)  # the tests of the stores without a server, with the fixture below


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGcs]:
    with running(tmp_path_factory.mktemp("gcs") / "account.json") as server:
        yield server


@pytest.fixture
def store(gcs: FakeGcs) -> ObjectStore:
    return open_store(gcs.new_bucket())


def test_the_tests_of_stores_are_found() -> None:
    assert len(PROMISES) >= 11


def test_tables_are_written_once_and_read(gcs: FakeGcs) -> None:
    check_tables(gcs.new_bucket())


def test_maintenance_builds_segments_and_deletes_what_they_replace(
    store: ObjectStore, tmp_path: Path
) -> None:
    check_maintenance(store, tmp_path / "scratch")
