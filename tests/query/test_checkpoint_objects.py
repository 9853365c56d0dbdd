"""Another generation of a checkpoint in an object store: whole after a death at any request."""

from collections.abc import Iterator

import pytest

from streamlog.errors import StorageError
from streamlog.fs.faults import Moment, SimulatedCrash
from streamlog.query.checkpoint_files import CheckpointObjects
from streamlog.query.generation import read_state, write_generation
from streamlog.store.api import ObjectStore
from streamlog.store.faults import FaultyStore, StoreFault
from streamlog.store.remote import open_store
from tests.query.test_generation import FILES, NEW, REPLACED, UNFINISHED

SKIPPED = {**UNFINISHED, "commits/1": UNFINISHED["commits/0"]}


def prepared(files: dict[str, str]) -> ObjectStore:
    store = open_store("memory:///checkpoints")
    for name, text in files.items():
        store.put(f"audit/{name}", text.encode())
    store.put("audited/metadata", b"of another query")
    return store


def content(store: ObjectStore, prefix: str) -> dict[str, str]:
    return {
        each.key[len(prefix) :]: store.get(each.key, max_size=999).decode()
        for each in store.list(prefix)
    }


def reset(store: ObjectStore) -> str:
    files = CheckpointObjects(store, "audit")
    return write_generation(files, read_state(files), {1: [NEW, "-"]}, skip_unfinished=True)


def test_the_newest_offsets_are_replaced_and_the_former_generation_kept() -> None:
    store = prepared(FILES)
    assert reset(store) == f"{store.url}/audit.1"
    assert content(store, "audit.1/") == FILES
    now = {name: text for name, text in FILES.items() if name != "offsets/.1.crc"}
    assert content(store, "audit/") == {**now, "offsets/1": REPLACED}
    assert reset(store) == f"{store.url}/audit.2"
    assert content(store, "audited/") == {"metadata": "of another query"}


def failing_requests(*, is_crash: bool) -> Iterator[tuple[ObjectStore, FaultyStore]]:
    """Yield a store for each request of a reset, which fails there."""
    whole = FaultyStore(prepared(UNFINISHED))
    reset(whole)
    for number in range(1, len(whole.requests) + 1):
        for moment in (Moment.BEFORE, Moment.AFTER):
            store = prepared(UNFINISHED)
            fault = StoreFault(first=number, moment=moment, is_crash=is_crash)
            yield store, FaultyStore(store, [fault])


@pytest.mark.parametrize("is_crash", [True, False])
def test_a_failing_request_leaves_the_former_offsets_or_the_new_ones(is_crash: bool) -> None:
    failures = 0
    for store, faulty in failing_requests(is_crash=is_crash):
        try:
            reset(faulty)
        except (SimulatedCrash, StorageError):
            failures += 1
        found = content(store, "audit/")
        checksum = found.pop("offsets/.1.crc", None)
        assert checksum is None or found["offsets/1"] != REPLACED  # Spark would refuse the file
        rest = {name: text for name, text in SKIPPED.items() if name != "offsets/.1.crc"}
        before = {name: text for name, text in rest.items() if name != "commits/1"}
        assert found in (before, rest, {**rest, "offsets/1": REPLACED})
        if found != before:
            assert content(store, "audit.1/") == UNFINISHED
        reset(store)  # whatever is left over is in nobody's way
        assert content(store, "audit/") == {**rest, "offsets/1": REPLACED}
    assert failures > 20
