"""`foreachBatch(append_batch(...))`: exactly once by the same steps, by both ways to stage."""

import pytest
from pyspark import cloudpickle

import streamlog
from streamlog.errors import InvalidOptionError, InvalidRequestError
from streamlog.root.manager import LogManager
from streamlog.spark import foreach_batch
from streamlog.spark.foreach_batch import append_batch
from streamlog.spark.sink_schema import sink_schema_of
from streamlog.spark.small_batch import MAX_BYTES, MAX_ROWS, collect_small
from tests.support.sink import (
    Checkpoint,
    run_available,
    sorted_values,
    stream_of,
    values_of,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "cp")


@pytest.fixture
def feed(spark, root):
    """The stream of topic `in`, two records a batch; topic `out` has two partitions."""
    root.create("in").create("out", partitions=2)
    return stream_of(spark, root.path, "in", maxOffsetsPerTrigger="2").select("key", "value")


@pytest.fixture
def ways(monkeypatch):
    """Which way each batch took to its staged file."""
    taken = []
    here, there = foreach_batch._stage_here, foreach_batch._stage_in_tasks

    def stage_here(*arguments):
        taken.append("driver")
        return here(*arguments)

    def stage_in_tasks(*arguments):
        taken.append("tasks")
        return there(*arguments)

    monkeypatch.setattr(foreach_batch, "_stage_here", stage_here)
    monkeypatch.setattr(foreach_batch, "_stage_in_tasks", stage_in_tasks)
    return taken


def numbered(first, last):
    return [f"row {number:03d}" for number in range(first, last)]


def run(feed, checkpoint, function):
    return run_available(
        feed.writeStream.foreachBatch(function).option("checkpointLocation", str(checkpoint))
    )


def test_small_batches_after_the_first_are_staged_by_the_driver(root, feed, checkpoint, ways):
    root.append("in", 0, numbered(0, 6))

    assert run(feed, checkpoint, streamlog.spark.append_batch(root.path, topic="out")) is None

    assert sorted_values(root.path, "out") == numbered(0, 6)
    assert ways == ["tasks", "driver", "driver"]


def test_a_large_batch_sends_the_next_one_back_to_the_tasks(
    root, feed, checkpoint, ways, monkeypatch
):
    monkeypatch.setattr(foreach_batch, "MAX_ROWS", 1)
    root.append("in", 0, numbered(0, 5))

    assert run(feed, checkpoint, append_batch(root.path, topic="out")) is None

    assert sorted_values(root.path, "out") == numbered(0, 5)
    assert ways == ["tasks", "tasks", "tasks"]  # 2, 2, 1 rows


@pytest.mark.parametrize(
    ("rows", "value"),
    [
        (60_000, "string(id)"),
        (80, "repeat('x', 1 << 19)"),
        (100_000, "string(id % 10)"),
    ],
    ids=["many rows", "large rows", "many rows in one partition"],
)
def test_a_large_batch_after_a_small_one_is_not_collected(spark, root, ways, rows, value):
    root.create("in").create("out")
    partitions = 1 if "%" in value else 3
    large = spark.range(0, rows, 1, partitions).selectExpr(f"{value} AS value")
    appender = append_batch(root.path, topic="out", txn_app_id="app")

    appender(spark.range(1).selectExpr("string(id) AS value"), 0)
    appender(large, 1)

    assert ways == ["tasks", "tasks"]
    wanted = sorted(row.value.encode() for row in large.collect())
    assert sorted([*values_of(root.path, "out")]) == sorted([b"0", *wanted])


def test_what_is_collected_of_a_large_batch_is_bounded(spark):
    skewed = spark.range(0, 400, 1, 2).selectExpr(
        "repeat('x', IF(id % 7 = 0, 1 << 20, 1 << 10)) AS value", "string(id) AS key"
    )
    schema = sink_schema_of(skewed.schema, topic="out")
    seen = []

    class Frame:
        """The real DataFrame; what the driver gets of it is looked at."""

        def __init__(self, frame):
            self.frame = frame

        def toArrow(self):
            seen.append(self.frame.toArrow())
            return seen[-1]

        def __getattr__(self, name):
            found = getattr(self.frame, name)
            return (lambda *given: Frame(found(*given))) if callable(found) else found

    assert collect_small(Frame(skewed), schema) is None
    assert seen[0].nbytes < 2 * MAX_BYTES < 58 << 20  # what the batch has


def test_a_batch_as_large_as_a_small_one_may_be_is_collected(spark):
    schema = sink_schema_of(spark.range(1).selectExpr("string(id) AS value").schema, topic="out")
    frame = spark.range(0, MAX_ROWS, 1, 1).selectExpr("string(id) AS value")
    more = spark.range(0, MAX_ROWS + 1, 1, 1).selectExpr("string(id) AS value")

    table = collect_small(frame, schema)

    assert table.column_names == ["value"]
    assert table.column("value").to_pylist() == [str(number) for number in range(MAX_ROWS)]
    assert collect_small(more, schema) is None


def test_every_column_of_the_sink_is_collected_as_it_is(spark):
    frame = spark.sql(
        """SELECT id AS other, string(id) AS `key`,
           IF(id % 3 = 0, NULL, CAST(string(id) AS BINARY)) AS value,
           IF(id % 2 = 0, NULL, array(named_struct('key', 'h', 'value', X'00ff'))) AS headers,
           'out' AS topic, CAST(id % 2 AS INT) AS `partition`,
           timestamp_millis(id) AS `timestamp` FROM range(0, 50, 1, 4)"""
    )
    schema = sink_schema_of(frame.schema, topic=None)

    table = collect_small(frame, schema)

    assert table.to_pylist() == frame.drop("other").toArrow().to_pylist()


def test_what_spark_refuses_to_collect_is_staged_by_its_tasks(spark, root, ways, monkeypatch):
    root.create("in").create("out")
    text = "Total size of serialized results is bigger than spark.driver.maxResultSize"
    small = spark.range(2).selectExpr("string(id) value")

    def refuse(frame):
        raise RuntimeError(text)

    appender = append_batch(root.path, topic="out", txn_app_id="app")
    appender(small, 0)
    monkeypatch.setattr(type(small), "toArrow", refuse)
    appender(small, 1)

    assert ways == ["tasks", "tasks"]
    assert sorted_values(root.path, "out") == ["0", "0", "1", "1"]


def test_each_row_arrives_once_over_restarts_and_replays(root, feed, checkpoint):
    root.append("in", 0, numbered(0, 5))
    assert run(feed, checkpoint, append_batch(root.path, topic="out")) is None
    checkpoint.forget_commit(2)
    assert run(feed, checkpoint, append_batch(root.path, topic="out")) is None
    root.append("in", 0, numbered(5, 8))
    assert run(feed, checkpoint, append_batch(root.path, topic="out")) is None

    assert sorted_values(root.path, "out") == numbered(0, 8)


def test_a_function_that_fails_after_the_append_is_a_replay(root, feed, checkpoint):
    root.append("in", 0, numbered(0, 2))
    append = append_batch(root.path, topic="out")

    def append_and_fail(frame, batch_id):
        append(frame, batch_id)
        raise ValueError("after the append")

    assert "after the append" in run(feed, checkpoint, append_and_fail)
    assert run(feed, checkpoint, append) is None

    assert sorted_values(root.path, "out") == numbered(0, 2)


def test_another_batch_of_the_same_number_stops_loudly(root, feed, checkpoint):
    root.append("in", 0, numbered(0, 5))
    run(feed, checkpoint, append_batch(root.path, topic="out"))
    checkpoint.forget_batch(2)
    root.append("in", 0, numbered(5, 6))

    text = run(feed, checkpoint, append_batch(root.path, topic="out"))

    assert "CommitMismatchError" in text
    assert '{"0": 5}' in text
    assert '{"0": 6}' in text
    assert sorted_values(root.path, "out") == numbered(0, 5)


def test_the_checkpoint_may_be_named_instead_of_asked_for(root, feed, checkpoint):
    root.append("in", 0, numbered(0, 5))
    named = append_batch(root.path, topic="out", checkpoint=str(checkpoint))
    assert run(feed, checkpoint, named) is None
    checkpoint.forget_commit(2)

    assert run(feed, checkpoint, append_batch(root.path, topic="out")) is None

    assert sorted_values(root.path, "out") == numbered(0, 5)


def test_two_frames_of_one_batch_need_two_names(root, feed, checkpoint):
    root.append("in", 0, numbered(0, 2))
    append = append_batch(root.path, topic="out")

    def append_twice(frame, batch_id):
        append(frame.where("value = 'row 000'"), batch_id)
        append(frame.where("value = 'row 001'"), batch_id)

    assert "was already appended" in run(feed, checkpoint, append_twice)

    first = append_batch(root.path, topic="out", txn_app_id="first")
    second = append_batch(root.path, topic="out", txn_app_id="second")

    def append_both(frame, batch_id):
        first(frame.where("value = 'row 000'"), batch_id)
        second(frame.where("value = 'row 001'"), batch_id)

    other = Checkpoint(checkpoint.path.parent / "other")
    assert run(feed, other, append_both) is None
    assert sorted_values(root.path, "out") == ["row 000", "row 000", "row 001"]


def test_one_txn_app_id_writes_one_batch_to_two_topics(root, feed, checkpoint):
    """Delta's idempotent pattern: one DataFrame, two targets, one app."""
    root.create("copy").append("in", 0, numbered(0, 3))
    appends = [append_batch(root.path, topic=name, txn_app_id="etl") for name in ("out", "copy")]

    def append_both(frame, batch_id):
        for append in appends:
            append(frame, batch_id)

    assert run(feed, checkpoint, append_both) is None
    checkpoint.forget_commit(1)
    assert run(feed, checkpoint, append_both) is None

    assert sorted_values(root.path, "out") == numbered(0, 3)
    assert sorted_values(root.path, "copy") == numbered(0, 3)


def test_a_job_group_of_the_users_does_not_hide_a_second_append(spark, root, feed, checkpoint):
    root.append("in", 0, numbered(0, 2))
    append = append_batch(root.path, topic="out")

    def append_twice(frame, batch_id):
        append(frame.where("value = 'row 000'"), batch_id)
        frame.sparkSession.sparkContext.setJobGroup("mine", "another group")
        append(frame.where("value = 'row 001'"), batch_id)

    assert "was already appended" in run(feed, checkpoint, append_twice)


def test_one_batch_goes_to_one_topic_name_in_two_roots(root, feed, checkpoint, tmp_path):
    other = str(tmp_path / "other")
    with LogManager.open(other, create=True) as manager:
        manager.create_topic("out", 1)
    root.append("in", 0, numbered(0, 3))
    appends = [append_batch(path, topic="out") for path in (root.path, other)]

    def append_both(frame, batch_id):
        for append in appends:
            append(frame, batch_id)

    assert run(feed, checkpoint, append_both) is None
    assert sorted_values(root.path, "out") == numbered(0, 3)
    assert sorted_values(other, "out") == numbered(0, 3)

    again = append_batch(f"{other}/../other", topic="out")

    def append_by_another_path(frame, batch_id):
        appends[1](frame, batch_id)
        again(frame, batch_id)

    root.append("in", 0, numbered(3, 4))
    assert "was already appended" in run(feed, checkpoint, append_by_another_path)


def test_stateful_queries_work_by_both_ways(spark, root, feed, checkpoint):
    root.append("in", 0, ["a", "b", "a", "b", "b"])
    counted = feed.groupBy("value").count().selectExpr("value key", "string(count) value")
    writer = counted.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
    append = append_batch(root.path, topic="out")

    assert run_available(writer.foreachBatch(append)) is None
    checkpoint.forget_commit(2)
    assert run_available(writer.foreachBatch(append_batch(root.path, topic="out"))) is None

    assert sorted_values(root.path, "out") == ["1", "1", "2", "2", "3"]


def test_a_batch_of_many_tasks_keeps_their_order(spark, root):
    root.create("out")
    frame = spark.range(0, 1000, 1, 4).selectExpr("string(id) value")
    append = append_batch(root.path, topic="out", txn_app_id="app", compression_type="zstd")

    append(frame, 7)
    append(frame, 8)

    once = [b"%d" % number for number in range(1000)]
    assert values_of(root.path, "out") == once * 2


def test_outside_of_a_query_somebody_has_to_say_who_writes(spark, root):
    root.create("out")
    frame = spark.sql("select 'v' value")

    with pytest.raises(InvalidRequestError, match="outside of foreachBatch"):
        append_batch(root.path, topic="out")(frame, 0)

    named = append_batch(root.path, topic="out", txn_app_id="app")
    named(frame, 0)
    named(frame, 0)
    assert values_of(root.path, "out") == [b"v"]


def test_a_bad_row_leaves_nothing_by_either_way(spark, root):
    root.create("out")
    good = spark.sql("select 'v' value")
    bad = spark.sql("select 'v' value, 7 partition")
    append = append_batch(root.path, topic="out", txn_app_id="app")

    with pytest.raises(Exception, match="names a partition"):
        append(bad, 0)
    append(good, 0)
    with pytest.raises(InvalidRequestError, match="names a partition"):
        append(bad, 1)

    assert values_of(root.path, "out") == [b"v"]


def test_spark_connect_is_refused_before_a_query_starts(root):
    append = append_batch(root.path, topic="out")
    with pytest.raises(InvalidRequestError, match="does not work in Spark Connect"):
        cloudpickle.dumps(lambda frame, batch_id: append(frame, batch_id))  # as Connect's start()


def test_arguments_are_checked_at_once(root):
    with pytest.raises(InvalidOptionError, match=r"kafka\.compression\.type"):
        append_batch(root.path, compression_type="brotli")
    with pytest.raises(InvalidOptionError, match=r"flush\.messages"):
        append_batch(root.path, flush_messages=0)
    with pytest.raises(InvalidOptionError, match="wrong type for topic: got 5, expected str"):
        append_batch(root.path, topic=5)
    with pytest.raises(InvalidOptionError, match=r"wrong type for flush\.ms: got '1'"):
        append_batch(root.path, flush_ms="1")
    numbers = {"flush_messages": 1, "flush_ms": 0, "lock_timeout_ms": 1000}
    append_batch(root.path, "out", "checkpoint", txn_app_id="app", **numbers)
