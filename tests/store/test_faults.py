"""A request that is late changes the store after its caller has seen it fail."""

import pytest

from streamlog.errors import FileMissingError, StorageError
from streamlog.fs.faults import SimulatedCrash
from streamlog.store.api import ObjectStore
from streamlog.store.faults import FaultyStore, StoreFault


def keys(store: ObjectStore) -> list[str]:
    return [each.key for each in store.list("")]


def test_a_late_request_takes_place_before_a_later_one(store: ObjectStore) -> None:
    faulty = FaultyStore(store, [StoreFault(operation="create", late_by=2)])
    content = bytearray(b"first")
    with pytest.raises(StorageError):
        faulty.create("a", content)
    content[:] = b"other"  # the caller's buffer
    faulty.put("b", b"second")
    assert keys(store) == ["b"]
    faulty.put("c", b"third")
    assert keys(store) == ["a", "b", "c"]
    assert store.get("a", max_size=9) == b"first"


def test_a_late_answer_goes_nowhere(store: ObjectStore) -> None:
    faulty = FaultyStore(store, [StoreFault(operation="create", late_by=1)])
    with pytest.raises(StorageError):
        faulty.create("a", b"first")
    store.create("a", b"second")
    assert faulty.get("a", max_size=9) == b"second"


def test_the_requests_of_a_dead_process_may_arrive(store: ObjectStore) -> None:
    store.put("old", b"")
    fault = StoreFault(operation="delete", is_crash=True, late_by=100)
    faulty = FaultyStore(store, [fault])
    with pytest.raises(SimulatedCrash):
        faulty.delete(["old", "new"])
    assert keys(store) == ["old"]
    faulty.deliver()
    assert keys(store) == []


def test_a_late_upload_is_whole(store: ObjectStore) -> None:
    faulty = FaultyStore(store, [StoreFault(operation="upload", late_by=1)])
    with pytest.raises(StorageError), faulty.upload("a") as upload:
        upload.write(b"content")
    with pytest.raises(FileMissingError):
        store.get("a", max_size=9)
    faulty.deliver()
    assert store.get("a", max_size=9) == b"content"


def test_a_late_read_only_fails(store: ObjectStore) -> None:
    store.put("a", b"content")
    faulty = FaultyStore(store, [StoreFault(operation="get", late_by=1)])
    with pytest.raises(StorageError):
        faulty.get("a", max_size=9)
    assert faulty.get("a", max_size=9) == b"content"
