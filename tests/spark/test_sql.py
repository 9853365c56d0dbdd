"""SQL over topics: tables, temporary views, streams of tables, and what Spark refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import streamlog
from tests.support.log_root import Root

pytestmark = pytest.mark.spark

OPTIONS = "OPTIONS (path '{}', subscribe 'orders', startingOffsets 'earliest')"


@pytest.fixture
def table(spark: SparkSession, root: Root) -> Iterator[str]:
    """A table over the topic `orders`, which has three records."""
    root.create("orders").append("orders", 0, ["one", "two", "three"])
    spark.sql(f"CREATE TABLE orders_log USING streamlog {OPTIONS.format(root.path)}")
    yield "orders_log"
    spark.sql("DROP TABLE orders_log")
    assert streamlog.read_table(root.path, "orders").num_rows >= 3  # only the name is gone


def test_a_table_is_the_topic_as_it_is_now(spark: SparkSession, root: Root, table: str) -> None:
    query = f"SELECT string(value) AS value FROM {table} WHERE offset > 0 ORDER BY offset"
    assert [row.value for row in spark.sql(query).collect()] == ["two", "three"]
    root.append("orders", 0, ["four"])
    assert [row.value for row in spark.sql(query).collect()] == ["two", "three", "four"]


def test_a_table_can_be_streamed(
    spark: SparkSession, root: Root, table: str, tmp_path: Path
) -> None:
    root.create("copy")
    assert spark.sql(f"SELECT * FROM STREAM {table}").isStreaming
    sink = spark.readStream.table(table).select("value").writeStream.format("streamlog")
    sink = sink.option("path", root.path).option("topic", "copy").trigger(availableNow=True)
    sink.option("checkpointLocation", str(tmp_path / "cp")).start().awaitTermination()
    assert streamlog.read_table(root.path, "copy").num_rows == 3


def test_a_temporary_view_has_the_topic(spark: SparkSession, root: Root, table: str) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING streamlog {OPTIONS.format(root.path)}")
    assert spark.sql("SELECT count(*) AS n FROM v").head().n == 3
    with pytest.raises(AnalysisException, match="not a temp view of streaming"):
        spark.readStream.table("v")


def test_what_spark_refuses_changes_nothing(spark: SparkSession, root: Root, table: str) -> None:
    refused = {
        f"INSERT INTO {table} SELECT key, value FROM {table}": "INSERT_COLUMN_ARITY_MISMATCH",
        f"INSERT INTO {table} (value) VALUES (X'61')": "PYTHON_DATA_SOURCE_ERROR",
        f"SELECT * FROM streamlog.`{root.path}`": "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY",
    }
    for statement, condition in refused.items():
        with pytest.raises(AnalysisException) as raised:
            spark.sql(statement).collect()
        assert raised.value.getCondition().startswith(condition), statement
    assert streamlog.read_table(root.path, "orders").num_rows == 3
