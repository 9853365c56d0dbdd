"""Tests of a project whose own session has Delta in it; `tests/spark/test_delta_recovery.py` runs
them. The files of Delta are named by the environment: `DELTA_JARS`, separated by commas.
"""

import os

import pytest

from streamlog.testing import assert_exactly_once
from tests.exchange.decoded_topics import NEW, decoding, fill_decoded, write_schemas
from tests.exchange.topics import export

ORDERS = [f"order {number}" for number in range(6)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    from pyspark.sql import SparkSession

    from streamlog.spark import session

    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    settings = {
        "spark.jars": os.environ["DELTA_JARS"],
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": catalog,
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    builder = SparkSession.builder.master("local[2]").config(map=settings)
    spark = session(builder)
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


@pytest.fixture
def survives(spark, streamlog_topic, checkpoint, crash, tmp_path):
    """Crashes a query with a sink in its second batch, starts it again, and compares."""
    orders = streamlog_topic("orders", ORDERS)
    table = str(tmp_path / "table")

    def check(sink, at):
        def job():
            rows = orders.stream(spark, maxOffsetsPerTrigger=2).selectExpr("string(value) value")
            writer = rows.writeStream.option("checkpointLocation", checkpoint)
            sink(writer.trigger(availableNow=True), table).awaitTermination()

        with crash(batch=1, at=at):
            job()
        job()
        assert_exactly_once(orders, spark.read.format("delta").load(table), key="value")

    return check


def delta_sink(writer, table):
    return writer.format("delta").start(table)


def append(writer, table):
    def write(rows, batch):
        rows.write.format("delta").mode("append").save(table)

    return writer.foreachBatch(write).start()


def append_once(writer, table):
    """Delta's own cure: it leaves out a version that it has of the same application."""

    def write(rows, batch):
        named = rows.write.format("delta").option("txnAppId", "orders").option("txnVersion", batch)
        named.mode("append").save(table)

    return writer.foreachBatch(write).start()


@pytest.mark.parametrize("at", ["offsets", "applied", "commits"])
def test_deltas_sink_is_right(survives, at):
    survives(delta_sink, at)


def test_a_function_that_appends_to_delta_is_caught(survives):
    with pytest.raises(AssertionError, match="twice  value='order 2'"):
        survives(append, "applied")


def test_a_function_that_names_its_writes_is_right(survives):
    survives(append_once, "applied")


def test_spark_reads_the_typed_columns_of_an_export(spark, tmp_path):
    root, table = tmp_path / "root", tmp_path / "table"
    schemas = write_schemas(tmp_path / "schemas")
    fill_decoded(root, 0, 10)
    export(root, table, "delta", decoding=decoding(schemas))
    write_schemas(schemas, NEW)  # with two fields more
    fill_decoded(root, 10, 10, schema_id=2)
    export(root, table, "delta", decoding=decoding(schemas))

    frame = spark.read.format("delta").load(str(table)).where("partition = 0").orderBy("offset")

    types = {each.name: each.dataType.simpleString() for each in frame.schema}
    assert types["value"] == "struct<id:bigint,tags:array<string>,note:string,at:timestamp>"
    rows = frame.select("value.*", "_error.field").collect()
    assert [row.id for row in rows[:9]] == [*range(8), None]
    assert {(row.note, row.at is None) for row in rows[:10]} == {(None, True)}
    assert {(row.note, row.at is None) for row in rows[10:18]} == {("é\n", False)}
    assert [row.field for row in rows[8:10]] == [None, "value"]
