"""Every store keeps the promises of `ObjectStore`."""

import os
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from streamlog.errors import (
    DiskFullError,
    FileExistsAlreadyError,
    FileMissingError,
    InvalidRequestError,
    LimitExceededError,
    StorageError,
)
from streamlog.store.api import ObjectRange, ObjectStore
from streamlog.store.remote import PART_SIZE, open_store
from tests.support.child import run_in_child


def test_an_object_is_created_once(store: ObjectStore) -> None:
    store.create("a/b", b"first")
    with pytest.raises(FileExistsAlreadyError, match="cannot create: the object exists already"):
        store.create("a/b", b"second")
    assert store.get("a/b", max_size=100) == b"first"


def test_one_of_many_threads_creates_an_object(store: ObjectStore) -> None:
    ready, won = threading.Barrier(8), []

    def create(number: int) -> None:
        ready.wait()
        try:
            store.create("journal/1", b"%d" % number)
        except FileExistsAlreadyError:
            return
        won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"%d" % number for number in won] == [store.get("journal/1", max_size=10)]


def test_put_replaces(store: ObjectStore) -> None:
    store.put("hint", b"1")
    store.put("hint", np.array([1, 2], np.uint8))
    assert store.get("hint", max_size=2) == b"\1\2"


def test_what_is_not_there_is_missing(store: ObjectStore) -> None:
    with pytest.raises(FileMissingError, match="there is no such object"):
        store.get("a", max_size=1)
    with pytest.raises(FileMissingError):
        store.read_into([ObjectRange("a", 0, 1)], np.empty(1, np.uint8))
    assert store.stat("a") is None
    assert list(store.list("a/")) == []
    store.delete(["a"])


def test_an_object_above_the_limit_is_not_loaded(store: ObjectStore) -> None:
    store.put("big", bytes(11))
    with pytest.raises(LimitExceededError, match="got 11 bytes, expected at most 10"):
        store.get("big", max_size=10)


def test_ranges_fill_the_target_in_the_order_given(store: ObjectStore) -> None:
    store.put("o", bytes(range(100)))
    target = np.zeros(7, np.uint8)
    store.read_into([ObjectRange("o", 50, 3), ObjectRange("o", 0, 4)], target)
    assert target.tolist() == [50, 51, 52, 0, 1, 2, 3]


@pytest.mark.parametrize("position", [8, 10, 100])
def test_a_range_beyond_the_end_is_an_error(store: ObjectStore, position: int) -> None:
    store.put("o", bytes(10))
    with pytest.raises(StorageError):
        store.read_into([ObjectRange("o", position, 3)], np.zeros(3, np.uint8))


def test_an_upload_appears_when_it_is_closed(store: ObjectStore) -> None:
    content = np.random.default_rng(1).integers(0, 256, 2 * PART_SIZE + 5, np.uint8)
    with store.upload("staging/x") as upload:
        for start in range(0, len(content), 1 << 20):
            upload.write(content[start : start + (1 << 20)])
        assert store.stat("staging/x") is None
    found = store.stat("staging/x")
    assert found is not None and found.size == len(content)
    target = np.empty(len(content), np.uint8)
    store.read_into([ObjectRange("staging/x", 0, len(content))], target)
    assert np.array_equal(target, content)


def test_an_upload_that_fails_leaves_no_object(store: ObjectStore) -> None:
    with pytest.raises(RuntimeError), store.upload("staging/y") as upload:
        upload.write(bytes(PART_SIZE + 1))
        raise RuntimeError
    assert list(store.list("")) == []


def test_a_listing_is_sorted_and_can_start_after_a_key(store: ObjectStore) -> None:
    for key in ("j/10", "j/2", "j/1", "k/1", "j.x/1"):
        store.put(key, b"12")
    assert [each.key for each in store.list("j/")] == ["j/1", "j/10", "j/2"]
    assert [each[:2] for each in store.list("j/", after="j/10")] == [("j/2", 2)]
    assert len(list(store.list(""))) == 5


def test_keys_may_have_every_character_of_an_app(store: ObjectStore) -> None:
    key = "staging/a%2Fb~c=d_e-f.g/00000000000000000001-0000000000-0123456789abcdef"
    store.create(key, b"x")
    assert [each.key for each in store.list("staging/")] == [key]
    assert store.get(key, max_size=1) == b"x"


def test_delete_takes_many_keys(store: ObjectStore) -> None:
    for number in range(5):
        store.put(f"d/{number}", b"")
    store.delete(["d/0", "d/missing", "d/3"])
    assert [each.key for each in store.list("d/")] == ["d/1", "d/2", "d/4"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/x", "unknown kind of object store"),
        ("s3://", "invalid URL"),
        ("s3://user:secret@bucket/x", "names a bucket and a path only"),
        ("s3://bucket/x?token=secret", "names a bucket and a path only"),
        ("s3://bucket/a//b", "without empty parts"),
        ("s3://bucket/../b", "without empty parts"),
        ("file://host/a", "invalid URL"),
    ],
)
def test_an_invalid_url_is_refused_without_its_secrets(url: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


def test_an_endpoint_that_cannot_be_reached_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT": "http://127.0.0.1:1",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StorageError, match="check the network") as caught:
        open_store("s3://bucket/root").get("x", max_size=1)
    assert "secret" not in str(caught.value)


def test_a_forked_child_is_refused_rather_than_left_waiting(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    store.put("a", b"x")

    answer = run_in_child(lambda: open_store(f"file://{tmp_path}/store").get("a", max_size=1))

    assert "InvalidRequestError: a forked process cannot use an object store" in answer
    assert "spawn" in answer
    assert store.get("a", max_size=1) == b"x"


@pytest.mark.parametrize(
    ("options", "expected", "said"),
    [("size=64k", DiskFullError, "is full"), ("ro", StorageError, "denies access")],
)
def test_a_disk_that_is_full_or_read_only_is_named(
    tmp_path: Path, options: str, expected: type[StorageError], said: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", tmp_path], check=True)
    try:
        store = open_store(f"file://{tmp_path}")
        for write in (
            lambda: store.create("a", bytes(1 << 20)),
            lambda: store.put("b", bytes(1 << 20)),
            lambda: upload(store, "c", bytes(1 << 20)),
        ):
            with pytest.raises(expected, match=said):
                write()
        assert list(store.list("")) == []
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=False, capture_output=True)


def upload(store: ObjectStore, key: str, content: bytes) -> None:
    with store.upload(key) as writer:
        writer.write(content)
