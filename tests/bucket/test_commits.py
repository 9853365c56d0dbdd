"""Rows go through an object store once, in order, whatever happens to its requests."""

import itertools
import random

import pytest

from streamlog.bucket.root import BucketRoot
from streamlog.clock import ManualClock
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.replay import Verdict
from streamlog.errors import (
    CommitMismatchError,
    CorruptRecordError,
    InconsistentTopicIdError,
    InvalidConfigError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    StreamLogError,
    TopicExistsError,
    UnknownTopicError,
)
from streamlog.fs.faults import Moment, SimulatedCrash
from streamlog.records.record import Record
from streamlog.store.api import ObjectStore
from streamlog.store.faults import FaultyStore, StoreFault
from streamlog.store.remote import open_store
from streamlog.topic import TopicPartition
from tests.bucket.staged import commit, stage, values_of

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def opened(store: ObjectStore, seed: int = 0) -> BucketRoot:
    return BucketRoot(store, clock=ManualClock(), random=random.Random(seed))


def made(store: ObjectStore) -> BucketRoot:
    root = opened(store)
    root.create()
    root.create_topic("orders", partitions=2)
    return root


def rows(version: int, count: int = 25) -> list[bytes]:
    return [b"%d.%d" % (version, number) for number in range(count)]


def test_rows_of_several_tasks_are_read_in_the_order_of_the_tasks() -> None:
    store = open_store("memory:///")
    root = made(store)
    first = stage(root, "q", 0, {A: rows(1), B: rows(2)}, task=1)
    second = stage(root, "q", 0, {A: rows(3)}, task=0)
    outcome = commit(root, "q", 0, first, second)
    assert outcome.verdict is Verdict.COMMIT
    assert [tuple(part) for part in outcome.parts] == [(A, 0, 49), (B, 0, 24)]
    reader = opened(store, 1)
    reader.refresh()
    assert values_of(reader, A) == rows(3) + rows(1)
    assert values_of(reader, B) == rows(2)
    assert values_of(reader, A, max_bytes=1 << 20) == rows(3) + rows(1)


def test_batches_carry_offsets_and_epoch_and_valid_checksums() -> None:
    root = made(open_store("memory:///"))
    for version in range(3):
        commit(root, "q", version, stage(root, "q", version, {A: rows(version)}))
    info = root.reader(A).read(30, 1 << 20)
    assert info.table.base_offset.tolist() == [25, 35, 45, 50, 60, 70]
    assert set(info.table.leader_epoch.tolist()) == {0}
    assert info.next_offset == 75
    first = next(info.records())
    assert isinstance(first, Record)
    assert (first.offset, first.value) == (30, b"1.5")


def test_the_same_commit_again_is_a_replay() -> None:
    store = open_store("memory:///")
    root = made(store)
    commit(root, "q", 0, stage(root, "q", 0, {A: rows(0)}))
    number = root.state.number
    successor = opened(store, 1)
    successor.refresh()
    outcome = commit(successor, "q", 0, stage(successor, "q", 0, {A: rows(0)}))
    assert outcome.is_replay
    assert [tuple(part) for part in outcome.parts] == [(A, 0, 24)]
    assert successor.state.number == number
    with pytest.raises(CommitMismatchError, match="does not follow"):
        commit(successor, "q", 2, stage(successor, "q", 2, {A: rows(2)}))


def test_two_drivers_of_one_query_commit_once() -> None:
    store = open_store("memory:///")
    one = made(store)
    other = opened(store, 1)
    other.refresh()
    for version in range(5):
        mine = stage(one, "q", version, {A: rows(version)})
        theirs = stage(other, "q", version, {A: rows(version)})
        outcomes = [commit(one, "q", version, mine), commit(other, "q", version, theirs)]
        assert [outcome.is_replay for outcome in outcomes] == [False, True]
    assert values_of(other, A) == [value for version in range(5) for value in rows(version)]


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_a_crash_at_any_request_loses_and_repeats_nothing(moment: Moment) -> None:
    for number in itertools.count(1):
        memory = open_store("memory:///")
        made(memory)
        fault = StoreFault(first=number, moment=moment, is_crash=True)
        writer = opened(FaultyStore(memory, [fault]), number)
        acknowledged = -1
        try:
            writer.refresh()
            for version in range(3):
                staged = stage(writer, "q", version, {A: rows(version), B: rows(version, 5)})
                commit(writer, "q", version, staged)
                acknowledged = version
        except SimulatedCrash:
            pass
        successor = opened(memory, -number)
        successor.refresh()
        found = len(values_of(successor, A)) // 25
        assert acknowledged + 1 <= found <= acknowledged + 2
        assert len(values_of(successor, B)) == 5 * found
        for version in range(max(acknowledged, 0), 3):  # Spark repeats the last batch
            staged = stage(successor, "q", version, {A: rows(version), B: rows(version, 5)})
            commit(successor, "q", version, staged)
        assert values_of(successor, A) == rows(0) + rows(1) + rows(2)
        assert values_of(successor, B) == rows(0, 5) + rows(1, 5) + rows(2, 5)
        if acknowledged == 2:
            return


def test_a_topic_made_again_takes_no_rows_staged_for_the_old_one() -> None:
    root = made(open_store("memory:///"))
    staged = stage(root, "q", 0, {A: rows(0)})
    root.delete_topic("orders")
    root.create_topic("orders", partitions=2)
    with pytest.raises(InconsistentTopicIdError):
        commit(root, "q", 0, staged)
    assert root.reader(A).log_end_offset == 0


def test_settings_changed_after_the_tasks_ran_are_checked() -> None:
    root = made(open_store("memory:///"))
    staged = stage(root, "q", 0, {A: [bytes(2000)]})
    planned = {"orders": root.topic_config("orders")}
    root.alter_topic("orders", configs={"max.message.bytes": 1000})
    with pytest.raises(MessageTooLargeError):
        root.commits.commit(CommitIdentity("q", 0), [staged], planned=planned)
    root.alter_topic("orders", delete_configs=["max.message.bytes"])
    root.commits.commit(CommitIdentity("q", 0), [staged], planned={})
    assert values_of(root, A) == [bytes(2000)]


def test_a_missing_or_damaged_object_is_reported_with_its_place() -> None:
    store = open_store("memory:///")
    root = made(store)
    commit(root, "q", 0, stage(root, "q", 0, {A: rows(0)}))
    [stretch] = root.state.partitions[A].stretches
    content = bytearray(store.get(stretch.key, max_size=1 << 20))
    content[-1] ^= 1
    store.put(stretch.key, content)
    with pytest.raises(CorruptRecordError, match="fails its checksum"):
        root.reader(A).read(0)
    store.put(stretch.key, content[:-40])
    with pytest.raises(StreamLogError):
        root.reader(A).read(0)
    store.delete([stretch.key])
    with pytest.raises(StreamLogError, match="no such object"):
        root.reader(A).read(0)


def test_offsets_by_time() -> None:
    root = made(open_store("memory:///"))
    for version, time in enumerate((1000, 5000, 3000)):
        staged = stage(root, "q", version, {A: rows(version)}, timestamp=time)
        commit(root, "q", version, staged)
    reader = root.reader(A)
    found = [reader.offset_for_timestamp(time) for time in (0, 1005, 1025, 5003, 5025)]
    assert [None if each is None else each.offset for each in found] == [0, 5, 25, 28, None]


def test_topics_are_created_altered_and_deleted() -> None:
    store = open_store("memory:///")
    root = made(store)
    with pytest.raises(TopicExistsError):
        root.create_topic("orders")
    with pytest.raises(InvalidConfigError, match="no meaning in an object store"):
        root.create_topic("x", configs={"flush.ms": 1})
    root.alter_topic("orders", partitions=3, configs={"retention.ms": 5})
    other = opened(store, 1)
    other.refresh()
    assert other.topic_config("orders").retention_ms == 5
    assert TopicPartition("orders", 2) in other.state.partitions
    other.delete_topic("orders")
    root.refresh()
    with pytest.raises(UnknownTopicError):
        root.reader(A)


def test_delete_records_moves_the_start_and_frees_whole_objects() -> None:
    root = made(open_store("memory:///"))
    for version in range(3):
        commit(root, "q", version, stage(root, "q", version, {A: rows(version)}))
    assert root.delete_records(A, 30) == 30
    assert len(root.state.garbage) == 1
    assert values_of(root, A) == (rows(1) + rows(2))[5:]
    with pytest.raises(OffsetOutOfRangeError):
        root.reader(A).read(29)
    with pytest.raises(OffsetOutOfRangeError):
        root.delete_records(A, 76)
    assert root.delete_records(A, -1) == 75
    assert values_of(root, A) == []
