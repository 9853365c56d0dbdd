"""Torn appends, flipped bits and broken disks, and their effect on a topic."""

import time

import pytest

from streamlog.errors import (
    CorruptRecordError,
    DiskFullError,
    InvalidRequestError,
    StorageError,
    UnavailableError,
)
from streamlog.testing import Topic, failed_fsync, flip_bit, full_disk, slow_disk, tear_append


@pytest.fixture
def topic(tmp_path):
    return Topic(tmp_path / "root", "orders", ["a", "b"])


@pytest.mark.parametrize("portion", [0.0, 0.1, 0.5, 0.99])
def test_a_torn_append_is_truncated_and_the_next_one_replaces_it(topic, portion):
    tear_append(topic, "never acknowledged", portion=portion)

    assert topic.values() == ["a", "b"]
    assert topic.append(["c"])[0].base_offset == 2
    assert topic.values() == ["a", "b", "c"]


def test_a_torn_append_leaves_its_bytes(topic, tmp_path):
    log = tmp_path / "root" / "orders-0" / f"{0:020d}.log"
    before = log.stat().st_size

    tear_append(topic, "never acknowledged")

    assert log.stat().st_size > before
    topic.append(["c"])
    assert len(list(log.parent.glob("*.torn-1"))) == 1


@pytest.mark.parametrize("bit", [0, 7, 8, 30])
@pytest.mark.parametrize("behind", [[], ["d"]], ids=["last batch", "batch behind"])
def test_a_flipped_bit_is_found(topic, bit, behind):
    topic.append(["c"])
    topic.append(behind)

    flip_bit(topic, offset=2, bit=bit)

    with pytest.raises(CorruptRecordError) as caught:
        topic.values()
    assert caught.value.offset == 2


def test_a_missing_bit_is_refused(topic):
    with pytest.raises(InvalidRequestError, match="no batch"):
        flip_bit(topic, offset=9)
    with pytest.raises(InvalidRequestError, match="no batch"):
        flip_bit(topic, offset=0, bit=100_000)
    assert topic.values() == ["a", "b"]


def test_a_full_disk_refuses_and_works_again_once_there_is_room(topic):
    with full_disk(), pytest.raises(DiskFullError):
        topic.append(["one too many"])

    assert topic.values() == ["a", "b"]
    topic.append(["c"])
    assert topic.values() == ["a", "b", "c"]


def test_a_full_disk_may_accept_some_writes(topic):
    with full_disk(after=1_000):
        topic.append(["c"])

    assert topic.values() == ["a", "b", "c"]


def test_a_log_that_found_no_room_does_not_say_that_it_failed_to_append(topic):
    with full_disk(files=".log"), pytest.raises(UnavailableError):
        topic.append(["one too many"])

    topic.append(["c"])
    assert topic.values() == ["a", "b", "c"]


def test_a_failed_fsync_is_not_treated_as_success(topic):
    with failed_fsync(files=".log"), pytest.raises(StorageError, match="fsync failed"):
        topic.append(["perhaps"])

    topic.append(["c"])
    assert topic.values() in (["a", "b", "c"], ["a", "b", "perhaps", "c"])


def test_a_slow_disk_is_slow(topic):
    start = time.monotonic()
    with slow_disk(delay_ms=300):
        topic.append(["slowly"])

    assert time.monotonic() - start >= 0.3
    assert topic.values() == ["a", "b", "slowly"]
