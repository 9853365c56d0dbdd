"""A sink that loses nothing but writes rows twice: how a test finds the bug, and the fix.

    pytest examples/test_order_sink.py

`append` is the usual first version. It is correct until the driver dies between the sink's last
write and Spark's record that the batch is done. Then Spark runs the batch again, and `append`
appends its rows again.
"""

import pytest

from streamlog.testing import assert_exactly_once

CRASHES = ["offsets", "applied", "commits"]


def append(rows, batch, table):
    """The bug: a batch that runs again is in the table twice."""
    rows.write.mode("append").parquet(table)


def replace(rows, batch, table):
    """The fix: each batch has its own directory, so a second run replaces the first."""
    rows.write.mode("overwrite").parquet(f"{table}/batch={batch}")


def copy(orders, table, checkpoint, write):
    """The pipeline under test: a stream of orders into a Parquet table."""
    query = (
        orders.selectExpr("string(value) AS value")
        .writeStream.foreachBatch(lambda rows, batch: write(rows, batch, table))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@pytest.fixture
def survives(streamlog_spark, streamlog_topic, checkpoint, crash, tmp_path):
    """Crashes the pipeline in its second batch, restarts it, and compares."""
    orders = streamlog_topic("orders", [f"order {number}" for number in range(6)])
    table = str(tmp_path / "table")

    def check(write, at):
        def job():
            stream = orders.stream(streamlog_spark, maxOffsetsPerTrigger=2)
            copy(stream, table, checkpoint, write)

        with crash(batch=1, at=at):
            job()
        job()
        written = streamlog_spark.read.parquet(table)
        assert_exactly_once(orders, written, key="value", checkpoint=checkpoint)

    return check


@pytest.mark.parametrize("at", CRASHES)
def test_replacing_a_batch_survives_every_crash(survives, at):
    survives(replace, at)


@pytest.mark.parametrize("at", ["offsets", "commits"])
def test_appending_survives_where_no_batch_is_written_twice(survives, at):
    survives(append, at)


def test_appending_is_caught_where_a_batch_is_written_twice(survives):
    with pytest.raises(AssertionError, match=r"twice  value='order 2'    2 in the sink"):
        survives(append, "applied")
