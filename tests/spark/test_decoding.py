"""Options that decode: typed columns from a topic, in batches, streams and tables."""

import pytest
from pyspark.errors import AnalysisException, PythonException

from tests.support.log_root import BOTH_KINDS
from tests.support.sink import run_available, stream_of
from tests.support.spark_session import Collected

pytestmark = pytest.mark.spark

DDL = "id BIGINT, tags ARRAY<STRING>, at TIMESTAMP, inner STRUCT<a: DOUBLE, b: DECIMAL(10,2)>"
GOOD = '{"id":1,"tags":["x"],"at":"2026-01-02T03:04:05Z","inner":{"a":0.5,"b":12.34}}'
ERROR = "struct<field:string,message:string,schemaId:int,key:binary,value:binary>"
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def read(spark, root, **options):
    reader = spark.read.format("streamlog").option("path", root.path).option("subscribe", "orders")
    return reader.options(**options).load()


@BOTH_KINDS
def test_values_have_their_types_and_a_bad_one_its_bytes(spark, root):
    root.create().append("orders", 0, [GOOD, "no", '{"id":3}'], key=b"k")

    frame = read(spark, root, valueFormat="json", valueSchema=DDL)

    assert frame.columns == [*COLUMNS, "_error"]
    assert frame.schema["_error"].dataType.simpleString() == ERROR
    found = frame.orderBy("offset").selectExpr("value.*", "_error", "key").collect()
    assert [row.id for row in found] == [1, None, 3]
    assert found[0].tags == ["x"] and str(found[0].inner.b) == "12.34"
    assert [row.key for row in found] == [b"k"] * 3
    assert found[0]._error is None and found[2]._error is None
    assert found[1]._error.asDict() | {"message": ""} == {
        "field": "value",
        "message": "",
        "schemaId": None,
        "key": b"k",
        "value": b"no",
    }
    assert found[1]._error.message.startswith("invalid JSON: ")


def test_only_the_named_columns_are_read(spark, root):
    root.create().append("orders", 0, [GOOD, "no"], key=b"k")

    frame = read(spark, root, valueFormat="json", valueSchema=DDL, columns="_ERROR,key,headers")

    assert frame.columns == ["key", "headers", "_error"]
    assert [row._error and row._error.value for row in frame.collect()] == [None, b"no"]


def test_fail_fast_names_the_record(spark, root):
    root.create().append("orders", 0, [GOOD, "no"])

    frame = read(spark, root, valueFormat="json", valueSchema=DDL, mode="failfast", columns="value")

    with pytest.raises(PythonException) as raised:
        frame.collect()
    text = str(raised.value)
    assert "InvalidRecordError: the value of a record of orders-0 cannot be decoded" in text
    assert "at offset 1" in text


def test_a_stream_goes_on_over_bad_records_and_a_restart(spark, root, tmp_path):
    root.create("in").append("in", 0, [GOOD, "no"])
    collected = Collected()

    def run():
        stream = stream_of(spark, root.path, "in", valueFormat="json", valueSchema=DDL)
        writer = stream.selectExpr("value.id", "_error.value AS bad").writeStream
        writer = writer.foreachBatch(collected.add)
        return run_available(writer.option("checkpointLocation", str(tmp_path / "cp")))

    assert run() is None
    root.append("in", 0, ["nor this", '{"id":4}'])
    assert run() is None

    assert [tuple(row) for row in collected.rows] == [
        (1, None),
        (None, b"no"),
        (None, b"nor this"),
        (4, None),
    ]


def test_a_table_keeps_how_it_decodes_and_refuses_another_schema(spark, root, tmp_path):
    root.create().append("orders", 0, [GOOD])
    schema = tmp_path / "order.ddl"
    schema.write_text("id BIGINT")
    spark.sql(
        f"""CREATE TABLE typed USING streamlog OPTIONS (path '{root.path}', subscribe 'orders',
            valueFormat 'json', valueSchema '@{schema}')"""
    )
    try:
        assert spark.sql("SELECT value.id FROM typed WHERE _error IS NULL").head().id == 1
        schema.write_text("id STRING")
        with pytest.raises(AnalysisException, match="create the table again"):
            spark.sql("SELECT value.id FROM typed").collect()
    finally:
        spark.sql("DROP TABLE typed")


def test_a_dataframe_keeps_the_schema_of_its_load(spark, root, tmp_path):
    root.create().append("orders", 0, ['{"id":1}'])
    schema = tmp_path / "order.ddl"
    schema.write_text("id BIGINT")
    before = read(spark, root, valueFormat="json", valueSchema=f"@{schema}")
    schema.write_text("id STRING")

    assert before.select("value.id").head().id == 1
    after = read(spark, root, valueFormat="json", valueSchema=f"@{schema}")
    assert after.schema["value"].dataType.simpleString() == "struct<id:string>"
