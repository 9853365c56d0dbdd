"""`ReadRoots`, `ReplicaReader`, `Consumer`: one partition out of several roots."""

import errno
import os
import shutil

import pytest

from streamlog.clock import ManualClock
from streamlog.errors import (
    CorruptRecordError,
    InvalidOptionError,
    NoReplicaOnlineError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.root.consumer import Consumer
from streamlog.root.read_roots import ReadRoots, parse_roots
from streamlog.root.replica_reader import ReplicaReader
from streamlog.topic import TopicPartition
from tests.support.log_root import root
from tests.support.replica_copies import Copies

__all__ = ["root"]

P0 = TopicPartition("orders", 0)


@pytest.fixture
def copies(root, tmp_path):
    """Three roots with ten records in two batches."""
    root.create("orders", 1)
    root.append("orders", 0, "abcde")
    root.append("orders", 0, "fghij")
    made = Copies(root, tmp_path)
    yield made
    made.restore()


def opened(copies, fs=None, clock=None):
    roots = ReadRoots(copies.paths, fs=fs, clock=clock or ManualClock())
    return roots.open(P0, roots.find()["orders"][0])


def values(reader):
    found, offset = [], 0
    while offset < reader.high_watermark:
        info = reader.read(offset, 1)
        assert info.next_offset > offset
        found += [record.value.decode() for record in info.records()]
        offset = info.next_offset
    return "".join(found)


# ---- paths --------------------------------------------------------------------------------------
def test_path_with_a_comma_that_exists_is_one_root(tmp_path):
    fs = LocalFileSystem()
    one = f"{tmp_path}/a,{tmp_path}/b"
    assert parse_roots(one, fs) == (f"{tmp_path}/a", f"{tmp_path}/b")
    os.makedirs(one)
    assert parse_roots(one, fs) == (one,)
    assert parse_roots([f"{tmp_path}/a,b", tmp_path], fs) == (f"{tmp_path}/a,b", str(tmp_path))


@pytest.mark.parametrize("path", ["", ",", []])
def test_path_without_a_root_is_refused(path):
    with pytest.raises(InvalidOptionError, match="path is empty"):
        ReadRoots(path)


def test_path_named_twice_is_one_root(root, copies):
    assert not ReadRoots(f"{root.path},{root.path}/").is_set


# ---- failures of one replica ---------------------------------------------------------------------
def test_first_root_is_read_while_all_are_equal(root, copies):
    with opened(copies) as reader:
        assert reader.directories == tuple(f"{path}/orders-0" for path in copies.paths)
        assert (reader.high_watermark, reader.log_end_offset) == (10, 10)
        assert values(reader) == "abcdefghij"


def test_replica_with_the_highest_watermark_is_read(root, copies):
    root.append("orders", 0, "k")
    with opened(copies) as reader:
        assert reader.path == f"{root.path}/orders-0"
    copies.lose(0)
    copies.damage(1)  # its log ends before the damage
    with opened(copies) as reader:
        assert reader.path == f"{copies.paths[2]}/orders-0"


def test_damaged_replica_is_left_in_the_middle_of_a_read(root, copies):
    root.manager.close()
    with opened(copies) as reader:
        copies.damage(0, at=-1)
        assert values(reader) == "abcdefghij"
        assert reader.path != f"{root.path}/orders-0"


def test_damage_in_every_replica_is_reported_as_damage(root, copies):
    root.manager.close()  # the records are synced now, so damage is not the end of the log
    copies.copy()
    with opened(copies) as reader:
        for number in range(3):
            copies.damage(number)
        with pytest.raises(CorruptRecordError):
            values(reader)


@pytest.mark.parametrize("operation", ["pread", "open", "stat", "list"])
def test_root_whose_device_reports_errors_is_left(root, copies, operation):
    fs = Failing(root.path, operation)
    with opened(copies, fs=fs) as reader:
        fs.is_failing = True
        reader.refresh()
        assert values(reader) == "abcdefghij"
    with opened(copies, fs=fs) as reader:
        assert values(reader) == "abcdefghij"


class Failing:
    """The machine's file system, with EIO from one operation below one directory."""

    def __init__(self, path, operation):
        self._path, self._operation = path, operation
        self.is_failing = False
        self._sound = LocalFileSystem()
        fault = Fault(operation=operation, errno=errno.EIO, is_lasting=True)
        self._bad = FaultyFileSystem(LocalFileSystem(), fault)

    def __getattr__(self, name):
        def call(*arguments, **options):
            at = str(arguments[0]) if arguments else ""
            is_bad = self.is_failing and (at + "/").startswith(self._path + "/")
            return getattr(self._bad if is_bad else self._sound, name)(*arguments, **options)

        return call


def test_without_any_root_the_error_names_all(root, copies):
    with opened(copies) as reader:
        for number in range(3):
            copies.lose(number)
        with pytest.raises(NoReplicaOnlineError) as caught:
            reader.refresh()
        assert all(path in str(caught.value) for path in copies.paths)
        copies.bring_back(1)
        reader.refresh()
        assert reader.path == f"{copies.paths[1]}/orders-0"


def test_deleted_partition_is_not_an_unreachable_one(root, copies):
    with opened(copies) as reader:
        for path in copies.paths:
            shutil.rmtree(f"{path}/orders-0")
        with pytest.raises(UnknownTopicError):
            reader.refresh()


def test_link_to_an_unmounted_disk_is_an_unreachable_root(root, copies, tmp_path):
    moved = f"{tmp_path}/disk"
    os.rename(copies.paths[1], moved)
    os.symlink(moved, copies.paths[1])
    copies.lose(0)
    copies.lose(2)
    with opened(copies) as reader:
        os.rename(moved, moved + "-away")
        with pytest.raises(NoReplicaOnlineError):
            reader.refresh()
        os.rename(moved + "-away", moved)
        reader.refresh()
        assert values(reader) == "abcdefghij"


def test_end_of_the_log_is_unknown_without_all_replicas(root, copies):
    """Without registers nothing says which replicas are in sync."""
    copies.lose(0)
    with opened(copies) as reader:
        assert reader.high_watermark == 10
        assert reader.log_end_offset == 2**63 - 1
        epoch = reader.leader_epoch
        assert reader.end_offset_for_epoch(epoch) == (epoch, 2**63 - 1)
        assert reader.end_offset_for_epoch(epoch + 1) == (epoch + 1, 2**63 - 1)


# ---- the consumer -------------------------------------------------------------------------------
def test_consumer_continues_without_the_root_it_read(root, copies):
    with Consumer(copies.text, "orders", clock=ManualClock()) as consumer:
        assert polled(consumer, 3) == "abc"
        copies.lose(0)
        assert polled(consumer) == "defghij"
        assert polled(consumer) == ""


def test_consumer_waits_above_a_lagging_replica(root, copies):
    clock = ManualClock()
    with Consumer(copies.paths, clock=clock) as consumer:
        consumer.assign([P0])
        root.append("orders", 0, "kl")
        assert polled(consumer) == "abcdefghijkl"
        copies.lose(0)
        assert polled(consumer) == ""
        assert consumer.position(P0) == 12
        copies.bring_back(0)
        clock.advance(1000)
        root.append("orders", 0, "m")
        assert polled(consumer) == "m"


def test_consumer_position_outside_all_replicas_is_an_error(root, copies):
    with Consumer(copies.paths, "orders") as consumer:
        consumer.seek(P0, 11)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll()


def polled(consumer, most=500):
    return "".join(
        record.value.decode()
        for records in consumer.poll(max_records=most).values()
        for record in records
    )


def test_one_root_is_read_by_a_plain_reader(root, copies):
    roots = ReadRoots(root.path)
    reader = roots.open(P0, roots.find()["orders"][0])
    assert not isinstance(reader, ReplicaReader)
