"""A streaming query without Spark: its reader asked in the order in which Spark asks.

Offsets go through JSON as Spark sends them, and a restart is a new reader, as it is with Spark.
"""

import json
import logging
import os
import shutil

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from streamlog.arrow.losses import LossReporter
from streamlog.arrow.subscription import LOOK_EVERY_MS
from streamlog.clock import ManualClock
from streamlog.errors import (
    DataLossError,
    InvalidOptionError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from streamlog.query.offsets import LEADER_EPOCHS, TOPIC_ID, parse_source_offset
from tests.support.log_root import BOTH_KINDS
from tests.support.stream_query import Query, as_json

TEN = [f"v{n}" for n in range(10)]


@pytest.fixture
def orders(root):
    return root.create("orders", 2)


# ---- reading on ---------------------------------------------------------------------------------
@BOTH_KINDS
def test_earliest_reads_everything_once_and_then_what_comes(orders):
    orders.append("orders", 0, TEN[:4])
    orders.append("orders", 1, TEN[4:6])
    query = Query(orders, startingoffsets="earliest")
    assert query.trigger() == TEN[:6]
    assert query.trigger() is None
    orders.append("orders", 1, TEN[6:])
    query.clock.advance(LOOK_EVERY_MS)
    assert query.trigger() == TEN[6:]
    assert query.drain() == []


@BOTH_KINDS
def test_offsets_have_the_shape_of_kafkas_with_epochs_and_ids(orders):
    orders.append("orders", 0, TEN)
    query = Query(orders, startingoffsets="earliest")
    query.trigger()
    assert query.start["orders"] == {"0": 10, "1": 0}
    there = orders.manager.describe("orders")
    assert parse_source_offset(query.start).topic_ids == {"orders": there.topic_id}
    assert query.start[f"{LEADER_EPOCHS}orders"]["0"] == there.partitions[0].leader_epoch
    assert list(query.start) == [f"{LEADER_EPOCHS}orders", f"{TOPIC_ID}orders", "orders"]


@BOTH_KINDS
def test_scripts_may_subtract_the_end_of_a_batch_from_the_latest_offset(orders):
    orders.append("orders", 0, TEN)
    query = Query(orders, startingoffsets="earliest", maxoffsetspertrigger="4")
    query.trigger()
    latest, end = as_json(query.reader.reportLatestOffset()), query.start
    assert latest.keys() == end.keys()
    for one, other in ((latest, end), (end, latest)):
        behind = sum(
            abs(one[topic][partition] - other[topic][partition])
            for topic in one
            for partition in one[topic]
        )
        assert behind == 6


@BOTH_KINDS
def test_restart_goes_on_where_the_checkpoint_ends(orders):
    orders.append("orders", 0, TEN[:5])
    query = Query(orders, startingoffsets="earliest")
    query.drain()
    orders.append("orders", 0, TEN[5:])
    query.restart()
    assert query.drain() == [TEN[5:]]


@BOTH_KINDS
def test_unfinished_batch_is_repeated_with_the_same_records(orders):
    orders.append("orders", 0, TEN[:5])
    query = Query(orders, startingoffsets="earliest")
    query.trigger()
    orders.append("orders", 0, TEN[5:8])
    query.plan()
    orders.append("orders", 0, TEN[8:])
    query.restart()
    query.run()
    assert query.batches[-1] == TEN[5:8]
    assert query.trigger() == TEN[8:]


@BOTH_KINDS
def test_checkpoint_of_kafkas_source_is_resumed(orders):
    orders.append("orders", 0, TEN)
    query = Query(orders)
    query.start = json.loads('{"orders":{"1":0,"0":7}}')
    assert query.trigger() == TEN[7:]
    assert query.trigger() is None


@BOTH_KINDS
def test_idle_query_of_kafkas_checkpoint_runs_no_empty_batch(orders):
    orders.append("orders", 0, TEN)
    query = Query(orders)
    query.start = json.loads('{"orders":{"1":0,"0":10}}')
    assert query.trigger() is None


@BOTH_KINDS
def test_small_triggers_of_many_partitions_are_one_task(root):
    root.create("wide", 12)
    for partition in range(12):
        root.append("wide", partition, ["x", "y"])
    query = Query(root, subscribe="wide", startingoffsets="earliest")
    query.plan()
    assert (
        len(query.reader.partitions(as_json(query.reader.initialOffset()), query.offsets[-1][1]))
        == 1
    )
    query.run()
    assert len(query.batches[-1]) == 24


def test_report_shows_the_end_of_the_log(orders):
    orders.append("orders", 0, TEN)
    query = Query(orders, startingoffsets="earliest", maxoffsetspertrigger="3")
    assert query.reader.reportLatestOffset() is None
    query.trigger()
    assert query.reader.reportLatestOffset()["orders"] == {"0": 10, "1": 0}
    assert query.start["orders"]["0"] == 3


# ---- latest -------------------------------------------------------------------------------------
@BOTH_KINDS
@pytest.mark.parametrize("available_now", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_latest_loses_and_repeats_nothing_while_producers_write(orders, available_now, fails):
    orders.append("orders", 0, ["before"])
    query = Query(orders)
    if available_now:
        query.available_now()
    assert query.plan()
    orders.append("orders", 0, ["during"])
    if fails:  # in batch 0: Spark asks a new process where the query starts
        query.restart()
        if available_now:
            query.available_now()
    query.run()
    assert query.batches == [[]]
    query.drain()
    orders.append("orders", 0, ["after"])
    query.restart()
    query.drain()
    assert [value for batch in query.batches for value in batch] == ["during", "after"]


def test_repeated_initial_offset_is_the_first_one(orders):
    query = Query(orders)
    first = query.reader.initialOffset()
    orders.append("orders", 0, TEN)
    assert query.reader.initialOffset() == first


@BOTH_KINDS
def test_timestamp_without_records_that_late_starts_at_the_end_and_loses_nothing(orders):
    orders.append("orders", 0, ["old"], timestamp=1000)
    query = Query(orders, startingtimestamp="5000", startingoffsetsbytimestampstrategy="latest")
    assert query.plan()
    orders.append("orders", 0, ["new"], timestamp=6000)
    query.restart()
    query.run()
    assert query.batches == [[]]
    assert query.drain() == [["new"]]


@BOTH_KINDS
def test_starting_timestamp_skips_what_is_older(orders):
    for number, value in enumerate(TEN):
        for partition in (0, 1):
            orders.append("orders", partition, [value], timestamp=1000 * number)
    query = Query(orders, startingtimestamp="6500")
    assert sorted(query.trigger()) == sorted(TEN[7:] * 2)


@BOTH_KINDS
def test_explicit_offsets_outside_of_the_log_name_what_there_is(orders):
    orders.append("orders", 0, TEN)
    text = '{"orders": {"0": 11, "1": 0}}'
    with pytest.raises(OffsetOutOfRangeError, match="orders-0") as caught:
        Query(orders, startingoffsets=text).trigger()
    assert caught.value.expected == "0 to 10"
    query = Query(orders, startingoffsets=text, failondataloss="false")
    query.trigger()
    assert query.start["orders"]["0"] == 10


# ---- how much at a time -------------------------------------------------------------------------
@BOTH_KINDS
def test_limit_of_offsets_is_shared_out_by_backlog(orders):
    orders.append("orders", 0, [f"a{n}" for n in range(30)])
    orders.append("orders", 1, [f"b{n}" for n in range(10)])
    query = Query(orders, startingoffsets="earliest", maxoffsetspertrigger="8")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(8)
    first = query.trigger()
    assert (sum(v[0] == "a" for v in first), sum(v[0] == "b" for v in first)) == (6, 2)
    assert [len(batch) for batch in query.drain()] == [8, 8, 8, 8]


@BOTH_KINDS
def test_limit_of_bytes_takes_whole_batches_and_at_least_one(root):
    root.create("orders", 1, **{"index.interval.bytes": "0"})
    for value in TEN:
        root.append("orders", 0, [value * 300])
    query = Query(root, startingoffsets="earliest", maxbytespertrigger="2000")
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(2000)
    sizes = [len(batch) for batch in query.drain()]
    assert sum(sizes) == 10
    assert max(sizes) <= 4
    assert min(sizes) >= 1
    query = Query(root, startingoffsets="earliest", maxbytespertrigger="1")
    assert sum(len(batch) for batch in query.drain()) == 10


@BOTH_KINDS
def test_all_available_overrules_the_limits(orders):
    orders.append("orders", 0, TEN)
    query = Query(orders, startingoffsets="earliest", maxoffsetspertrigger="3")
    query.limit = ReadAllAvailable()  # Trigger.Once
    assert query.trigger() == TEN


@BOTH_KINDS
def test_minimum_is_waited_for_but_not_longer_than_the_delay(orders):
    clock = ManualClock()
    query = Query(
        orders,
        clock,
        startingoffsets="earliest",
        minoffsetspertrigger="5",
        maxtriggerdelay="1m",
    )
    assert query.reader.getDefaultReadLimit() == ReadMinRows(5)
    orders.append("orders", 0, TEN[:1])
    assert query.trigger() == TEN[:1]  # the first trigger never waits
    orders.append("orders", 0, TEN[1:5])
    assert query.trigger() is None
    orders.append("orders", 1, ["x"])
    assert len(query.trigger()) == 5
    orders.append("orders", 0, TEN[5:6])
    assert query.trigger() is None
    clock.advance(59_999)
    assert query.trigger() is None
    clock.advance(1)
    assert query.trigger() == TEN[5:6]


@BOTH_KINDS
def test_available_now_reads_up_to_its_target_in_limited_batches(orders):
    orders.append("orders", 0, TEN)
    query = Query(
        orders, startingoffsets="earliest", maxoffsetspertrigger="4", minoffsetspertrigger="3"
    )
    query.available_now()
    assert query.trigger() == TEN[:4]
    orders.append("orders", 0, ["late"])
    orders.append("orders", 1, ["late"])
    assert query.drain() == [TEN[4:8], TEN[8:]]
    query.restart()
    query.available_now()
    assert query.drain() == [["late", "late"]]


@BOTH_KINDS
def test_available_now_leaves_out_partitions_that_appear_later(orders):
    orders.append("orders", 0, TEN)
    clock = ManualClock()
    query = Query(orders, clock, subscribepattern="o.*", startingoffsets="earliest")
    query.available_now()
    orders.create("other", 1).append("other", 0, ["late"])
    clock.advance(1000)
    assert query.drain() == [TEN]
    query.restart()
    query.available_now()
    assert query.drain() == [["late"]]


# ---- new partitions -----------------------------------------------------------------------------
@BOTH_KINDS
def test_topic_that_appears_while_running_is_read_from_its_beginning(orders):
    clock = ManualClock()
    query = Query(orders, clock, subscribepattern="o.*", startingoffsets="latest")
    query.drain()
    orders.create("other", 1).append("other", 0, TEN)
    assert query.trigger() is None  # looked a moment ago
    clock.advance(1000)
    assert query.trigger() == TEN


def test_looking_for_partitions_is_left_out_while_the_root_is_unchanged(orders, monkeypatch):
    from streamlog.root import read_roots

    clock = ManualClock()
    clock.set(2**42)  # long after the directories were made
    query = Query(orders, clock, startingoffsets="earliest")
    query.drain()
    looks = []
    monkeypatch.setattr(read_roots, "find_partitions", lambda fs, path: looks.append(path))
    for _ in range(5):
        clock.advance(1000)
        assert query.trigger() is None
    assert looks == []


# ---- losses -------------------------------------------------------------------------------------
def lose(query, orders, reason):
    """Check that the loss is an error, and only a warning where the user said so."""
    for attempt in range(2):  # nothing is written down that would let a restart pass
        query.restart()
        with pytest.raises(DataLossError, match=reason) as caught:
            query.trigger()
        assert "failOnDataLoss to false" in str(caught.value), attempt
        assert "Some data may have been lost" in str(caught.value)
    query.restart(failondataloss="false")


@BOTH_KINDS
def test_records_aged_out_before_they_were_read(orders, caplog):
    orders.append("orders", 0, TEN[:5])
    query = Query(orders, startingoffsets="earliest")
    query.drain()
    for value in TEN[5:]:
        orders.append("orders", 0, [value])
    orders.manager.delete_records("orders", 0, 8)
    lose(query, orders, "START_OFFSET_RESET.*orders-0 was 5, but the log starts at 8")
    with caplog.at_level(logging.WARNING):
        assert query.drain() == [TEN[8:]]
    assert caplog.text.count("START_OFFSET_RESET") == 1


def test_records_aged_out_between_planning_and_reading(orders):
    orders.append("orders", 0, TEN[:5])
    orders.append("orders", 0, TEN[5:])
    query = Query(orders, startingoffsets="earliest")
    query.plan()
    start, end = as_json(query.reader.initialOffset()), query.offsets[-1][1]
    (task,) = query.reader.partitions(start, end)
    orders.manager.delete_records("orders", 0, 5)
    with pytest.raises(DataLossError, match="START_OFFSET_RESET"):
        list(query.reader.read(task))
    query.restart(failondataloss="false")
    rows = [row for batch in query.reader.read(task) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == [5, 6, 7, 8, 9]


def test_end_that_went_back(orders):
    orders.append("orders", 0, TEN[:5])
    orders.append("orders", 0, TEN[5:])
    query = Query(orders, startingoffsets="earliest")
    query.drain()
    orders.log().truncate_to(5)
    lose(query, orders, "PARTITION_OFFSET_CHANGED.*orders-0 offset was changed from 10 to 5")
    assert query.trigger() == []
    orders.append("orders", 0, ["new"])
    assert query.drain() == [["new"]]


def test_planned_batch_whose_records_a_power_cut_took(orders):
    orders.append("orders", 0, TEN[:5])
    query = Query(orders, startingoffsets="earliest")
    query.drain()
    orders.append("orders", 0, TEN[5:8])
    orders.append("orders", 0, TEN[8:])
    query.plan()
    orders.log().truncate_to(8)
    query.restart()
    with pytest.raises(DataLossError, match=r"COULD_NOT_READ_OFFSET_RANGE.*8 to 10 of orders-0"):
        query.run()
    query.restart(failondataloss="false")
    query.run()
    assert query.batches[-1] == TEN[5:8]


def test_lost_tail_that_was_written_over_is_seen_by_its_leader_epoch(orders):
    orders.append("orders", 0, TEN[:5])
    orders.append("orders", 0, TEN[5:])
    query = Query(orders, startingoffsets="earliest")
    query.drain()
    log = orders.log()
    epoch = log.leader_epoch
    log.truncate_to(5)
    write_in_next_epoch(orders, epoch + 1, [f"other{n}" for n in range(9)])
    query.restart()
    lose(query, orders, f"LOG_TRUNCATED.*offset 10 in leader epoch {epoch}, which now ends at 5")
    assert query.drain() == [[f"other{n}" for n in range(5, 9)]]


def write_in_next_epoch(orders, epoch, values):
    """Do what the first writer after a power cut does: append in the next leader epoch."""
    from streamlog.records.builder import BatchBuilder
    from streamlog.records.record import Record

    builder = BatchBuilder(base_offset=orders.log().log_end_offset, partition_leader_epoch=epoch)
    for value in values:
        builder.append(Record(None, value.encode(), (), 1))
    orders.log().append_as_follower(builder.build())


@BOTH_KINDS
def test_topic_made_again_is_seen_by_its_id(orders):
    orders.append("orders", 0, TEN)
    query = Query(orders, startingoffsets="earliest")
    query.drain()
    make_again(orders, [f"other{n}" for n in range(12)])
    lose(query, orders, "TOPIC_RECREATED.*orders was deleted and created again")
    assert query.drain() == [[f"other{n}" for n in range(12)]]


@BOTH_KINDS
def test_topic_made_again_is_seen_by_a_running_query(orders):
    orders.append("orders", 0, TEN)
    query = Query(orders, startingoffsets="earliest")
    query.drain()
    make_again(orders, [f"other{n}" for n in range(12)])
    query.clock.advance(LOOK_EVERY_MS)
    with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
        query.trigger()


def test_topic_made_again_between_planning_and_reading_is_not_read(orders):
    orders.append("orders", 0, TEN)
    query = Query(orders, startingoffsets="earliest")
    query.plan()
    start, end = as_json(query.reader.initialOffset()), query.offsets[-1][1]
    (task,) = query.reader.partitions(start, end)
    make_again(orders, [f"other{n}" for n in range(12)])
    with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
        list(query.reader.read(task))
    query.restart(failondataloss="false")
    assert list(query.reader.read(task)) == []


def make_again(orders, values):
    orders.manager.delete_topic("orders")
    orders.create("orders", 2)
    orders.append("orders", 0, values)


@BOTH_KINDS
def test_partition_that_is_gone(orders):
    orders.append("orders", 0, TEN)
    orders.create("other", 1).append("other", 0, ["x"])
    query = Query(orders, subscribepattern="o.*", startingoffsets="earliest")
    query.drain()
    orders.manager.delete_topic("other")
    orders.append("orders", 0, ["more"])
    lose(query, orders, "PARTITIONS_DELETED.*other-0 have been deleted")
    assert query.drain() == [["more"]]


def test_task_of_a_partition_that_is_gone(orders):
    orders.append("orders", 0, TEN)
    query = Query(orders, startingoffsets="earliest")
    query.plan()
    start, end = as_json(query.reader.initialOffset()), query.offsets[-1][1]
    (task,) = query.reader.partitions(start, end)
    shutil.rmtree(f"{orders.path}/orders-0")
    with pytest.raises(DataLossError, match="PARTITIONS_DELETED"):
        list(query.reader.read(task))


def test_reporter_warns_of_each_loss_once(caplog):
    from streamlog.arrow.losses import DataLoss

    reporter = LossReporter(fail=False)
    reporter.report([DataLoss("A", "one")])
    reporter.report([DataLoss("A", "one"), DataLoss("B", "two")])
    assert [record.getMessage()[-7:] for record in caplog.records] == ["[A] one", "[B] two"]


# ---- group --------------------------------------------------------------------------------------
def grouped(root, **options):
    options = {"startingoffsets": "earliest", "kafka.group.id": "billing", **options}
    return Query(root, **options)


@BOTH_KINDS
def test_group_writes_down_what_is_finished(orders):
    orders.append("orders", 0, TEN)
    query = grouped(orders)
    query.drain()
    assert orders.recorded("billing") == {
        "group": "billing",
        "committedMs": query.clock.now_ms(),
        "offsets": query.start,
    }


@BOTH_KINDS
def test_group_is_recorded_when_a_query_starts_and_before_it_reads(orders):
    orders.append("orders", 0, TEN)
    query = grouped(orders, startingoffsets='{"orders": {"0": 3, "1": 0}}')
    query.reader.initialOffset()
    assert orders.recorded("billing")["offsets"]["orders"] == {"0": 3, "1": 0}


@BOTH_KINDS
def test_group_stands_at_what_is_committed_and_never_ahead_of_it(orders):
    orders.append("orders", 0, TEN)
    query = grouped(orders, maxoffsetspertrigger="4")
    finished = 0
    while query.plan():
        assert orders.recorded("billing")["offsets"]["orders"]["0"] == finished
        query.run()
        assert orders.recorded("billing")["offsets"]["orders"]["0"] == finished
        finished = query.start["orders"]["0"]
    assert orders.recorded("billing")["offsets"]["orders"]["0"] == finished == 10


def test_group_of_a_restart_stands_before_the_batch_that_is_repeated(orders):
    orders.append("orders", 0, TEN)
    query = grouped(orders, maxoffsetspertrigger="4")
    query.trigger()
    query.plan()
    os.remove(f"{orders.path}/.streamlog/readers/billing.json")
    query.restart()
    query.run()  # the batch that was planned and not committed
    assert orders.recorded("billing")["offsets"]["orders"]["0"] == 4
    query.plan()
    assert orders.recorded("billing")["offsets"]["orders"]["0"] == 8


def test_group_holds_a_new_topic_from_when_the_query_sees_it(orders):
    orders.append("orders", 0, TEN)
    query = grouped(orders, subscribepattern="o.*")
    query.drain()
    orders.create("other", 2)
    query.clock.advance(LOOK_EVERY_MS)
    query.plan()
    assert orders.recorded("billing")["offsets"]["other"] == {"0": 0, "1": 0}
    assert orders.recorded("billing")["offsets"]["orders"] == query.start["orders"]
    query.run()
    query.plan()
    assert orders.recorded("billing")["offsets"] == query.start


@BOTH_KINDS
def test_group_of_an_idle_query_is_not_silent(orders):
    orders.append("orders", 0, TEN)
    query = grouped(orders)
    query.drain()
    before = orders.recorded("billing")
    query.clock.advance(29_000)
    query.drain()
    assert orders.recorded("billing") == before
    query.clock.advance(1_000)
    query.drain()
    assert orders.recorded("billing") == {**before, "committedMs": before["committedMs"] + 30_000}


def test_without_a_group_nothing_is_written(orders):
    query = Query(orders, startingoffsets="earliest")
    orders.append("orders", 0, TEN)
    before = sorted(os.walk(orders.path))
    query.drain()
    query.reader.commit(query.start)
    assert sorted(os.walk(orders.path)) == before


def test_group_in_a_foreign_root_is_refused(root, tmp_path):
    root.create("orders", 1).append("orders", 0, TEN)
    foreign = tmp_path / "foreign"
    shutil.copytree(f"{root.path}/orders-0", foreign / "orders-0")
    query = Query(root, path=str(foreign), startingoffsets="earliest", **{"kafka.group.id": "b"})
    with pytest.raises(InvalidOptionError, match="needs a log root of streamlog"):
        query.trigger()
    query.options.pop("kafka.group.id")
    query.restart()
    assert query.drain() == [TEN]
    assert os.listdir(foreign) == ["orders-0"]


# ---- what is not there --------------------------------------------------------------------------
@BOTH_KINDS
def test_missing_topic_says_how_to_make_it(orders):
    with pytest.raises(UnknownTopicError, match="there is no topic absent") as caught:
        Query(orders, subscribe="absent").trigger()
    assert "topics create absent" in caught.value.hint


@BOTH_KINDS
def test_missing_partition_names_those_there_are(orders):
    with pytest.raises(UnknownTopicError, match="has no partition 7") as caught:
        Query(orders, assign='{"orders": [0, 7]}').trigger()
    assert "0, 1" in caught.value.expected


def test_wrong_options_are_not_an_error_of_the_constructor(orders):
    query = Query(orders, endingoffsets="latest")
    with pytest.raises(InvalidOptionError, match="not valid in streaming queries"):
        query.trigger()
