import pytest
from pyspark.sql import types as spark

from streamlog.arrow.schema import SinkSchema
from streamlog.errors import InvalidRequestError
from streamlog.spark.sink_schema import sink_schema_of

HEADERS_TEXT = "array<struct<key:string,value:binary>>"


def list_of(**fields: spark.DataType) -> spark.ArrayType:
    return spark.ArrayType(
        spark.StructType([spark.StructField(name, kind) for name, kind in fields.items()])
    )


STRING, BINARY, INT = spark.StringType(), spark.BinaryType(), spark.IntegerType()
LONG, TIMESTAMP = spark.LongType(), spark.TimestampType()
LIST_OF_HEADERS = list_of(key=STRING, value=BINARY)


def spark_schema(*fields: tuple[str, spark.DataType]) -> spark.StructType:
    return spark.StructType([spark.StructField(name, kind) for name, kind in fields])


def test_the_sinks_columns_are_found_wherever_they_stand() -> None:
    schema = spark_schema(
        ("offset", LONG),
        ("timestamp", TIMESTAMP),
        ("value", BINARY),
        ("headers", LIST_OF_HEADERS),
        ("partition", INT),
        ("key", STRING),
        ("topic", STRING),
    )

    assert sink_schema_of(schema, topic=None) == SinkSchema(
        value=2, key=5, headers=3, topic=6, partition=4, timestamp=1
    )


def test_the_topic_column_is_not_read_where_the_option_names_one() -> None:
    schema = spark_schema(("topic", INT), ("value", STRING))

    assert sink_schema_of(schema, topic="orders").topic is None


def test_a_dataframe_without_value_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="Required attribute 'value' not found"):
        sink_schema_of(spark_schema(("key", STRING), ("Value", STRING)), topic="orders")


def test_without_option_and_column_the_topic_is_asked_for() -> None:
    with pytest.raises(InvalidRequestError, match="topic option required") as caught:
        sink_schema_of(spark_schema(("value", STRING)), topic=None)
    assert caught.value.hint == '.option("topic", "NAME")'


@pytest.mark.parametrize(
    ("name", "kind", "got", "expected"),
    [
        ("key", INT, "int", "string or binary"),
        ("key", spark.ArrayType(BINARY), "array<binary>", "string or binary"),
        ("topic", BINARY, "binary", "string"),
        ("partition", LONG, "bigint", "int"),
        ("partition", STRING, "string", "int"),
        ("timestamp", LONG, "bigint", "timestamp"),
        ("timestamp", spark.TimestampNTZType(), "timestamp_ntz", "timestamp"),
        ("timestamp", spark.DateType(), "date", "timestamp"),
        ("headers", spark.MapType(STRING, BINARY), "map<string,binary>", HEADERS_TEXT),
        (
            "headers",
            list_of(key=STRING, value=STRING),
            "array<struct<key:string,value:string>>",
            HEADERS_TEXT,
        ),
        (
            "headers",
            list_of(value=BINARY, key=STRING),
            "array<struct<value:binary,key:string>>",
            HEADERS_TEXT,
        ),
        ("headers", list_of(key=STRING), "array<struct<key:string>>", HEADERS_TEXT),
        ("headers", spark.ArrayType(STRING), "array<string>", HEADERS_TEXT),
    ],
)
def test_a_column_of_a_wrong_type_is_named_with_what_it_is_and_should_be(
    name: str, kind: spark.DataType, got: str, expected: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        sink_schema_of(
            spark_schema(("value", STRING), (name, kind)),
            topic=None if name == "topic" else "orders",
        )

    assert (
        caught.value.sentence
        == f"{name} attribute unsupported type: got {got}, expected {expected}"
    )


def test_a_value_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="value attribute unsupported type: got double"):
        sink_schema_of(spark_schema(("value", spark.DoubleType())), topic="orders")


def test_an_ambiguous_column_is_refused() -> None:
    schema = spark_schema(("key", STRING), ("value", STRING), ("key", STRING))

    with pytest.raises(InvalidRequestError, match="'key' appears 2 times"):
        sink_schema_of(schema, topic="orders")
