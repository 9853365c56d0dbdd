"""Options that decode: typed columns from a topic, in batches, streams and tables."""

import datetime
import io
import json

import fastavro
import pytest
from pyspark.errors import AnalysisException, PythonException

from streamlog.records.record import Header, Record
from streamlog.spark import functions as SF  # noqa: N812
from tests.support.log_root import BOTH_KINDS
from tests.support.schema_registry import Registry, serve_registry
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
    root.create("in").append("in", 0, [GOOD, '"text"'])
    collected = Collected()

    def run():
        stream = stream_of(spark, root.path, "in", valueFormat="json", valueSchema=DDL)
        variant = SF.parse_json("_error.value").alias("bad")  # the other way, on what is left
        rows = stream.select("value.id", "_error.value", variant)
        rows = rows.selectExpr("id", "value", "try_variant_get(bad.value, '$', 'string') AS text")
        writer = rows.writeStream.foreachBatch(collected.add)
        return run_available(writer.option("checkpointLocation", str(tmp_path / "cp")))

    assert run() is None
    root.append("in", 0, ["nor this", '{"id":4}'])
    assert run() is None

    assert [tuple(row) for row in collected.rows] == [
        (1, None, None),
        (None, b'"text"', "text"),
        (None, b"nor this", None),
        (4, None, None),
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


# ---- schemas of a registry ----------------------------------------------------------------------
V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": ["null", "double"], "default": None},
        {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}, "default": 0},
    ],
}


def framed(schema_id, schema, value):
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, value)
    return schema_id.to_bytes(5, "big") + buffer.getvalue()


@pytest.fixture
def registry():
    """A registry whose latest version of `orders-value` is V1, as `url` serves it."""
    registry = Registry()
    registry.register("orders-value", {"schema": json.dumps(V1)})
    with serve_registry(registry) as registry.url:
        yield registry


def test_a_query_keeps_its_schema_while_the_registry_moves_on_or_is_away(
    spark, root, registry, tmp_path
):
    root.create()
    root.append("orders", 0, [framed(1, V1, {"id": 1}), framed(9, V1, {"id": 9})])
    options = {"valueFormat": "avro", "schemaRegistry": registry.url}
    collected = Collected()

    def run(stream):
        writer = stream.selectExpr("value.*", "_error.schemaId AS bad").writeStream
        writer = writer.foreachBatch(collected.add)
        return run_available(writer.option("checkpointLocation", str(tmp_path / "cp")))

    first = stream_of(spark, root.path, "orders", **options)
    assert run(first) is None
    registry.register("orders-value", {"schema": json.dumps(V2)})
    newer = framed(2, V2, {"id": 2, "total": 0.5, "at": datetime.time(1)})
    root.append("orders", 0, [newer])
    registry.failures = 1_000
    assert "RegistryError" in run(first)  # the id is new
    with pytest.raises(AnalysisException, match="RegistryError"):
        read(spark, root, **options)
    registry.failures = 0
    assert run(first) is None  # the schema of its load()
    assert [row.asDict() for row in collected.rows] == [
        {"id": 1, "bad": None},
        {"id": None, "bad": 9},
        {"id": 2, "bad": None},
    ]

    collected.batches.clear()
    root.append("orders", 0, [newer, framed(1, V1, {"id": 3})])
    assert run(stream_of(spark, root.path, "orders", **options)) is None  # a restarted job
    assert [row.asDict() for row in collected.rows] == [
        {"id": 2, "total": 0.5, "at": 3_600_000, "bad": None},
        {"id": 3, "total": None, "at": 0, "bad": None},
    ]


def test_protobuf_of_a_directory_of_schemas(spark, root, tmp_path):
    (tmp_path / "schemas").mkdir()
    proto = 'syntax = "proto3"; message Order { int64 id = 1; repeated string tags = 2; }'
    (tmp_path / "schemas" / "orders-value.proto").write_text(proto)
    (tmp_path / "schemas" / "7.proto").write_text(proto)
    payload = b"\x08\x05\x12\x01a\x12\x01b"
    values = [b"\0\0\0\0\7\0" + payload, b"\0\0\0\0\7\0\xff", b"\0\0\0\0\x08\0" + payload]
    root.create().append("orders", 0, values)

    options = {"valueFormat": "protobuf", "schemaRegistry": str(tmp_path / "schemas")}
    rows = read(spark, root, **options).orderBy("offset").collect()

    assert [row.value and (row.value.id, row.value.tags) for row in rows] == [
        (5, ["a", "b"]),
        None,
        None,
    ]
    assert [row._error and row._error.schemaId for row in rows] == [None, 7, 8]
    assert "unknown schema id 8" in rows[2]._error.message
    decode = SF.protobuf_decoder(schema_registry=str(tmp_path / "schemas"), subject="orders-value")
    frame = spark.createDataFrame([(value,) for value in values], "value binary")
    found = frame.select(decode("value").alias("d")).select("d.value.id", "d.error").collect()
    assert [row.id for row in found] == [5, None, None]
    assert [row.error for row in found] == [row._error and row._error.message for row in rows]


def test_a_header_names_the_schema(spark, root, tmp_path):
    """In a topic of both framings, by options, by functions of columns and in SQL."""
    guid = "00000000-0000-0000-0000-0000000000ff"
    for name in ("7", guid, "orders-value", "orders-key"):
        (tmp_path / f"{name}.avsc").write_text('"int"')
    names = ("__key_schema_id", "__value_schema_id")
    headers = tuple(Header(name, b"\1" + bytes(15) + b"\xff") for name in names)
    root.create().append("orders", 0, [b"\0\0\0\0\7\2"], key=b"\0\0\0\0\7\2")
    root.log().append([Record(b"\4", b"\4", headers)])
    options = {"keyFormat": "avro", "valueFormat": "avro", "schemaRegistry": str(tmp_path)}

    frame = read(spark, root, **options).orderBy("offset")
    raw = read(spark, root, includeHeaders="true").orderBy("offset")

    assert [(row.key, row.value, row._error) for row in frame.collect()] == [
        (1, 1, None),
        (2, 2, None),
    ]
    arguments = {"schema_registry": str(tmp_path), "schema": '"int"'}
    key = SF.from_avro("key", headers="headers", field="key", **arguments)
    value = SF.from_avro("value", headers=raw.headers, **arguments)
    found = raw.select(
        key.alias("k"), value.alias("v"), SF.from_avro("value", **arguments).alias("n")
    )
    rows = found.collect()
    assert [(row.k.value, row.v.value, row.n.value) for row in rows] == [(1, 1, 1), (2, 2, None)]
    SF.register_functions(spark, decode_number=SF.avro_decoder(**arguments))
    raw.createOrReplaceTempView("raw")
    rows = spark.sql("SELECT decode_number(value, headers) AS d FROM raw").collect()
    assert [row.d.value for row in rows] == [1, 2]
