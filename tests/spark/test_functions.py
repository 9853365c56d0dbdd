"""Functions of columns: expressions and decoders, in DataFrames and in SQL text."""

import json

import pytest
from pyspark.errors import PythonException

from streamlog.errors import InvalidOptionError
from streamlog.spark import functions as SF  # noqa: N812

pytestmark = pytest.mark.spark

FRAMED = b"\0\0\0\1\2" + b"payload"
VALUES = [FRAMED, b"\0\0\0\1", b"plain", b"\0\xff\xff\xff\xff", b"\0\x7f\xff\xff\xffx", b"", None]
IDS = [258, None, None, None, 2**31 - 1, None, None]
PAYLOADS = [b"payload", None, None, b"", b"x", None, None]


def rows(spark, values, kind="value binary"):
    return spark.createDataFrame([(value,) for value in values], kind)


def by_sql(spark, frame, expression):
    frame.createOrReplaceTempView("rows")
    return [row.found for row in spark.sql(f"SELECT {expression} AS found FROM rows").collect()]


def by_column(frame, column):
    return [row.found for row in frame.select(column.alias("found")).collect()]


def test_the_framing_is_read_by_columns_and_by_sql_alike(spark):
    SF.register_functions(spark)
    frame = rows(spark, VALUES)

    assert by_column(frame, SF.confluent_schema_id("value")) == IDS
    assert by_column(frame, SF.confluent_payload(frame.value)) == PAYLOADS
    assert by_sql(spark, frame, "confluent_schema_id(value)") == IDS
    assert by_sql(spark, frame, "confluent_payload(value)") == PAYLOADS


def test_text_is_null_where_it_is_not_utf_8(spark):
    SF.register_functions(spark)
    frame = rows(spark, ["grüße".encode(), b"\xff", b"", None])

    assert by_column(frame, SF.as_text("value")) == ["grüße", None, "", None]
    assert by_sql(spark, frame, "as_text(value)") == ["grüße", None, "", None]


def test_the_last_header_of_a_name_is_found(spark):
    SF.register_functions(spark)
    lists = [[("a", b"1"), ("b", b"2"), ("a", b"3")], [("b", None)], [], None]
    frame = rows(spark, lists, "headers array<struct<key:string,value:binary>>")

    assert by_column(frame, SF.header("headers", "a")) == [b"3", None, None, None]
    assert by_sql(spark, frame, "header(headers, 'a')") == [b"3", None, None, None]
    assert by_sql(spark, frame, "header(headers, 'b')") == [b"2", None, None, None]


JSON_VALUES = [b'{"id":1,"at":"2026-01-02T03:04:05Z"}', b'{"id":"x"}', b"no", b"\xff", b"[]", None]


def test_from_json_says_what_it_cannot_read(spark):
    frame = rows(spark, [*JSON_VALUES, b"\0\0\0\0\7" + JSON_VALUES[0]])

    found = by_column(frame, SF.from_json("value", "id BIGINT, at TIMESTAMP"))

    assert [None if row.value is None else row.value.id for row in found] == [
        1,
        None,
        None,
        None,
        None,
        None,
        1,
    ]
    assert [row.error for row in found] == [
        None,
        'not JSON of this schema: got {"id":"x"}',
        "not JSON of this schema: got no",
        "not UTF-8: expected JSON of this schema",
        "not JSON of this schema: got []",
        None,
        None,
    ]


def test_parse_json_makes_variants_and_says_what_is_no_json(spark):
    frame = rows(spark, JSON_VALUES)

    found = frame.select(SF.parse_json("value").alias("d")).selectExpr(
        "try_variant_get(d.value, '$.id', 'string') AS id", "d.value IS NULL AS isNull", "d.error"
    )

    assert [tuple(row) for row in found.collect()] == [
        ("1", False, None),
        ("x", False, None),
        (None, True, "not JSON: got no"),
        (None, True, "not UTF-8: expected JSON"),
        (None, False, None),
        (None, True, None),
    ]


# ---- decoders -----------------------------------------------------------------------------------
DOCUMENTS = [b'{"id": 1, "lines": [{"sku": "a", "count": 2}]}', b'{"id": 2}', b"no", None]
DDL = "id BIGINT, lines ARRAY<STRUCT<sku: STRING, count: INT>>"


def test_a_decoder_has_a_name_in_sql(spark):
    SF.register_functions(spark, decode_order=SF.json_decoder(DDL))
    rows(spark, DOCUMENTS).createOrReplaceTempView("orders")

    found = spark.sql(
        """SELECT d.value.*, d.error FROM (SELECT decode_order(value) AS d FROM orders)
           WHERE d.error IS NULL AND d.value IS NOT NULL ORDER BY id"""
    )

    assert [(row.id, row.lines, row.error) for row in found.collect()] == [
        (1, [("a", 2)], None),
        (2, None, None),
    ]
    errors = spark.sql("SELECT decode_order(value).error AS error FROM orders").collect()
    assert sum(row.error is not None for row in errors) == 1


def test_a_filter_on_the_error_does_not_decode_twice(spark):
    decoded = rows(spark, DOCUMENTS).select(SF.json_decoder(DDL)("value").alias("d"))

    plan = decoded.where("d.error IS NULL").select("d.value.*")

    text = plan._jdf.queryExecution().executedPlan().toString()
    assert text.count("ArrowEvalPython") == 1, text


def test_fail_fast_ends_the_query_with_the_reason(spark):
    decode = SF.json_decoder(DDL, mode="FAILFAST")

    assert rows(spark, DOCUMENTS[:2]).select(decode("value")["value"]["id"]).count() == 2
    with pytest.raises(PythonException, match="InvalidRecordError: value cannot be decoded"):
        rows(spark, DOCUMENTS).select(decode("value")).collect()


def test_a_json_decoder_has_the_type_of_a_json_schema(tmp_path):
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    (tmp_path / "orders-value.json").write_text(json.dumps(schema))
    expected = "struct<value:struct<id:bigint>,error:string>"

    for decoder in (
        SF.json_decoder(schema_registry=str(tmp_path), subject="orders-value"),
        SF.json_decoder(json.dumps(schema)),
    ):
        assert decoder.data_type.simpleString() == expected


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: SF.json_decoder("id NUMBER"), "NUMBER"),
        (lambda: SF.json_decoder(DDL, mode="DROPMALFORMED"), "PERMISSIVE or FAILFAST"),
        (lambda: SF.avro_decoder('"int"', schema_framing="glue"), "confluent or none"),
        (
            lambda: SF.avro_decoder(schema_registry="https://me:secret@host", subject="s"),
            "no credentials",
        ),
        (lambda: SF.avro_decoder(schema_registry="ftp://host", subject="s"), "neither"),
    ],
)
def test_a_bad_argument_is_an_error_before_any_query(make, text):
    with pytest.raises(InvalidOptionError, match=text) as raised:
        make()
    assert "secret" not in str(raised.value)


def test_a_function_needs_a_decoder_and_a_name_of_its_own(spark):
    decoder = SF.json_decoder(DDL)
    # SQL would call Spark's own function `decode`.
    for functions in ({"header": decoder}, {"decode": decoder}, {"mine": lambda value: value}):
        with pytest.raises(InvalidOptionError, match="cannot register the function"):
            SF.register_functions(spark, **functions)
