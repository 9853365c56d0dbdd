"""A streaming query that reads a replica set: roots vanish, fail, lag and return under it."""

import logging
import os
import shutil
from pathlib import Path

import pytest

from streamlog.arrow.log_view import TopicChoice
from streamlog.arrow.subscription import LOOK_EVERY_MS, Subscription
from streamlog.clock import ManualClock
from streamlog.errors import DataLossError, NoReplicaOnlineError
from streamlog.fs.faults import Fault, FaultyFileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.records.record import IsolationLevel
from tests.support.replica_copies import Copies
from tests.support.stream_query import Query, as_json

TEN = [f"v{n}" for n in range(10)]


@pytest.fixture
def copies(root, tmp_path):
    """Three roots with ten records, five a batch."""
    root.create("orders", 1)
    root.append("orders", 0, TEN[:5])
    root.append("orders", 0, TEN[5:])
    made = Copies(root, tmp_path)
    yield made
    made.restore()


@pytest.fixture
def query(root, copies):
    """A query over the three roots, from the beginning."""
    return Query(root, path=copies.text, startingoffsets="earliest")


# ---- roots that vanish --------------------------------------------------------------------------
@pytest.mark.parametrize("gone", [0, 1, 2])
def test_query_starts_without_one_of_the_roots(query, copies, gone):
    copies.lose(gone)
    assert query.trigger() == TEN
    assert query.trigger() is None


@pytest.mark.parametrize("vanish", [Copies.lose, Copies.unmount])
def test_running_query_continues_when_the_roots_vanish_one_by_one(root, query, copies, vanish):
    assert query.trigger() == TEN
    root.append("orders", 0, ["next"])
    copies.copy()
    vanish(copies, 0)
    assert query.trigger() == ["next"]
    vanish(copies, 2)
    query.clock.advance(LOOK_EVERY_MS)
    assert query.trigger() is None
    vanish(copies, 1)
    query.clock.advance(LOOK_EVERY_MS)
    with pytest.raises(NoReplicaOnlineError, match=f"{copies.home}/c"):
        query.trigger()


def test_root_that_vanishes_between_plan_and_tasks_is_replaced_by_the_task(query, copies):
    query.plan()
    start, end = as_json(query.reader.initialOffset()), query.offsets[-1][1]
    tasks = query.reader.partitions(start, end)
    copies.lose(0)
    assert values(query, tasks) == TEN
    copies.lose(1)
    assert values(query, tasks) == TEN


def test_root_that_vanishes_while_a_task_reads_is_replaced_where_it_ended(query, copies):
    query.restart(maxrecordsperpartition="10")
    query.plan()
    (task,) = query.reader.partitions(as_json(query.reader.initialOffset()), query.offsets[-1][1])
    copies.damage(0)  # in the second batch: its first one is read from this root
    assert values(query, [task]) == TEN


def test_without_any_root_a_task_fails_with_a_typed_error_and_not_with_loss(query, copies):
    query.plan()
    tasks = query.reader.partitions(as_json(query.reader.initialOffset()), query.offsets[-1][1])
    for number in range(3):
        copies.lose(number)
    with pytest.raises(NoReplicaOnlineError):
        values(query, tasks)


def values(query, tasks):
    rows = [row for task in tasks for batch in query.reader.read(task) for row in batch.to_pylist()]
    return [row["value"].decode() for row in rows]


# ---- replicas that lag --------------------------------------------------------------------------
def test_position_above_a_lagging_replica_waits_and_is_not_lost(root, query, copies):
    assert query.trigger() == TEN
    root.append("orders", 0, ["a", "b"])  # not copied
    assert query.trigger() == ["a", "b"]
    copies.lose(0)
    assert query.trigger() is None
    query.restart()
    assert query.trigger() is None
    assert query.start["orders"] == {"0": 12}
    copies.bring_back(0)
    query.clock.advance(1000)
    root.append("orders", 0, ["c"])
    assert query.trigger() == ["c"]


def test_planned_batch_waits_for_the_replica_that_has_it(root, query, copies):
    assert query.trigger() == TEN
    root.append("orders", 0, ["a", "b"])  # not copied
    query.plan()
    query.restart()
    copies.lose(0)
    with pytest.raises(NoReplicaOnlineError):
        query.run()
    copies.bring_back(0)
    query.run()
    assert query.batches[-1] == ["a", "b"]


def test_truncation_in_every_root_is_data_loss(root, query, copies):
    assert query.trigger() == TEN
    root.log().truncate_to(5)
    for path in copies.paths[1:]:
        shutil.rmtree(path)
    copies.copy()
    query.restart()
    with pytest.raises(DataLossError, match="PARTITION_OFFSET_CHANGED"):
        query.trigger()


# ---- roots that return --------------------------------------------------------------------------
def test_root_that_returns_with_an_older_copy_is_read_only_as_far_as_it_holds(root, query, copies):
    shutil.copytree(copies.paths[2], copies.home + "/older")
    root.append("orders", 0, ["next"])
    copies.copy()
    assert query.trigger() == [*TEN, "next"]
    shutil.rmtree(copies.paths[2])
    os.rename(copies.home + "/older", copies.paths[2])
    root.append("orders", 0, ["last"])
    copies.copy("b")
    copies.lose(0)
    assert query.trigger() == ["last"]


def test_root_with_a_former_topic_of_the_name_is_never_read(root, query, copies):
    query.trigger()
    root.manager.delete_topic("orders")
    root.create("orders", 1).append("orders", 0, ["new"])
    for path in copies.paths[1:2]:
        shutil.rmtree(path)
    copies.copy("b")  # c keeps the former topic
    fresh = Query(root, path=copies.text, startingoffsets="earliest")
    assert fresh.trigger() == ["new"]
    copies.lose(0)
    copies.lose(1)
    fresh.clock.advance(LOOK_EVERY_MS)
    with pytest.raises(NoReplicaOnlineError):
        fresh.trigger()


def test_root_that_is_added_under_a_running_query_takes_over(root, query, copies):
    copies.lose(1)
    copies.lose(2)
    assert query.trigger() == TEN
    copies.bring_back(1)
    query.clock.advance(LOOK_EVERY_MS)
    query.trigger()
    root.append("orders", 0, ["next"])
    copies.copy("b")
    copies.lose(0)
    assert query.trigger() == ["next"]


# ---- topics -------------------------------------------------------------------------------------
def test_pattern_leaves_out_a_topic_that_most_roots_do_not_have(root, query, copies):
    root.create("older", 1).append("older", 0, ["x"])
    shutil.rmtree(copies.paths[2])
    copies.copy("c")
    root.manager.delete_topic("older")
    fresh = Query(root, path=copies.text, startingoffsets="earliest", subscribepattern="o.*")
    assert fresh.trigger() == TEN


# ---- recorded positions -------------------------------------------------------------------------
def test_position_of_a_group_is_recorded_in_every_reachable_root(root, query, copies, caplog):
    copies.lose(1)
    query.restart(**{"kafka.group.id": "billing"})
    with caplog.at_level(logging.WARNING):
        query.drain()
    name = ".streamlog/readers/billing.json"
    texts = [(Path(copies.paths[number]) / name).read_text() for number in (0, 2)]
    assert texts[0] == texts[1]
    assert '"0": 10' in texts[0]
    assert caplog.text.count("position of billing not recorded") == 1
    copies.bring_back(1)
    root.append("orders", 0, ["next"])
    query.drain()
    texts = [(Path(path) / name).read_text() for path in copies.paths]
    assert texts[0] == texts[1] == texts[2]


# ---- cost ---------------------------------------------------------------------------------------
def test_idle_query_over_a_set_only_asks_for_facts(root, copies):
    fs = FaultyFileSystem(LocalFileSystem(), Fault(operation="open", at=10**9))
    clock = ManualClock()
    clock.set(2**42)
    paths = copies.paths
    choice = TopicChoice(topics=("orders",))
    view = Subscription(paths, choice, IsolationLevel.READ_COMMITTED, fs=fs, clock=clock)
    view.refresh()
    before = len(fs.operations)
    for _ in range(10):
        clock.advance(1)
        view.refresh()
    assert {each.name for each in fs.operations[before:]} <= {"stat"}
