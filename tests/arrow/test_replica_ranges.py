"""Planned ranges of a replica set: which replica a task reads, and when it gives up."""

import errno
import os
import shutil

import pytest

from streamlog.arrow.decoder import ArrowDecoder
from streamlog.arrow.planned import PlannedRange
from streamlog.arrow.reading import read_ranges
from streamlog.arrow.tables import read_arrow, read_table
from streamlog.errors import CorruptRecordError, DataLossError, NoReplicaOnlineError
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.record import IsolationLevel
from tests.support.replica_copies import Copies
from tests.support.replica_set import ReplicaSet


@pytest.fixture
def copies(root, tmp_path):
    """Three copies of ten records in two batches, all synced."""
    root.create("orders", 1)
    root.append("orders", 0, "abcde")
    root.append("orders", 0, "fghij")
    root.manager.close()
    return Copies(root, tmp_path)


def planned(copies, start=0, end=10, **fields):
    directories = tuple(f"{path}/orders-0" for path in copies.paths)
    with LogReader.open(directories[0]) as reader:
        epoch, topic_id = reader.leader_epoch, reader.topic_id
    return PlannedRange(directories, topic_id, "orders", 0, start, end, epoch)._replace(**fields)


def read(part, *, fail=True, fs=None, **options):
    """Return the values of a range, as text."""
    batches = read_ranges(
        [part],
        decoder=ArrowDecoder(("value",)),
        isolation=IsolationLevel.READ_COMMITTED,
        fail_on_data_loss=fail,
        fs=fs,
        **options,
    )
    return "".join(row["value"].decode() for batch in batches for row in batch.to_pylist())


def test_damage_in_one_replica_is_read_from_another_where_it_begins(copies):
    part = planned(copies)
    copies.damage(0)  # in the second batch
    assert read(part, fetch_bytes=1) == "abcdefghij"
    copies.damage(1, at=100)  # in the first batch
    copies.damage(2)
    assert read(part) == "abcdefghij"  # each batch is sound somewhere
    copies.damage(1)
    with pytest.raises(CorruptRecordError):
        read(part)


@pytest.mark.parametrize("operation", ["open", "pread", "stat", "list"])
@pytest.mark.parametrize("at", [1, 3, 5])
def test_failure_of_any_operation_is_survived_once(copies, operation, at):
    fault = Fault(at=at, operation=operation, errno=errno.EIO)
    assert read(planned(copies), fs=FaultyFileSystem(LocalFileSystem(), fault)) == "abcdefghij"


def test_replica_with_another_epoch_at_the_end_is_not_read(copies):
    """An abandoned tail has the same offsets and other records."""
    part = planned(copies, end_epoch=7)
    with pytest.raises(DataLossError):
        read(part)
    assert read(part, fail=False) == "abcdefghij"
    copies.lose(1)
    with pytest.raises(NoReplicaOnlineError):
        read(part)


def test_replica_of_another_topic_of_the_name_is_not_read(copies):
    part = planned(copies, topic_id="A" * 22)
    with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
        read(part)
    copies.lose(2)
    with pytest.raises(NoReplicaOnlineError):
        read(part)


def test_deletion_in_all_roots_is_a_loss_and_in_one_is_none(copies):
    part = planned(copies)
    shutil.rmtree(f"{copies.paths[0]}/orders-0")
    assert read(part) == "abcdefghij"
    for path in copies.paths[1:]:
        shutil.rmtree(f"{path}/orders-0")
    with pytest.raises(DataLossError, match="PARTITIONS_DELETED"):
        read(part)
    assert read(part, fail=False) == ""


# ---- tables -------------------------------------------------------------------------------------
@pytest.fixture
def replicas(tmp_path):
    """Two partitions on three roots; the followers do not know yet that the last is committed."""
    made = ReplicaSet(tmp_path, partitions=2)
    for values in ("abcdef", "g"):
        made.append(values, closes=values != "g")
        made.append(values.upper(), partition=1, closes=values != "g")
    return made


def values_of(table):
    return sorted(value.decode() for value in table["value"].to_pylist())


def test_table_of_a_set_is_the_same_from_any_root_and_without_one(replicas):
    everything = sorted("abcdefgABCDEFG")
    for path in (replicas.paths, replicas.text, *replicas.paths):
        assert values_of(read_table(path, "orders")) == everything
    assert values_of(read_arrow(replicas.paths).read_all()) == everything
    replicas.lose(1)
    assert values_of(read_table(replicas.paths, "orders")) == everything
    replicas.lose(0)
    # The last follower learns the last high watermark later, and on a slow machine it has.
    assert values_of(read_table(replicas.paths, "orders")) in (sorted("abcdefABCDEF"), everything)
    replicas.lose(2)
    with pytest.raises(NoReplicaOnlineError):
        read_table(replicas.paths, "orders")


def test_offsets_between_the_watermarks_can_be_named(replicas):
    replicas.lose(0)
    assert values_of(read_table(replicas.text, "orders", starting_offsets=7)) == []


def test_root_lost_while_a_stream_of_batches_is_read_is_replaced(replicas):
    reader = read_arrow(replicas.text, "orders")
    replicas.lose(0)
    assert values_of(reader.read_all()) == sorted("abcdefgABCDEFG")
    assert not os.path.exists(replicas.paths[0])
