"""The columns of a DataFrame that a sink uses: those of Spark's Kafka sink.

| column | type | if absent or null |
|---|---|---|
| value | string or binary, required | a null value (a tombstone if the topic is compacted) |
| key | string or binary | no key |
| headers | array<struct<key:string,value:binary>> | no headers |
| topic | string, unless the option `topic` names one | an error that names the row |
| partition | int | the partitioner decides |
| timestamp | timestamp | the time of the batch |

Other columns are ignored, as in the Kafka sink. Types are checked in Spark's schema, before any row
is read.
"""

from collections.abc import Callable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from streamlog.arrow.schema import HEADERS_TYPE, SinkSchema
from streamlog.errors import InvalidRequestError

__all__ = ["sink_schema_of"]


def sink_schema_of(schema: StructType, *, topic: str | None) -> SinkSchema:
    """Find and check the sink's columns in a DataFrame's schema.

    Args:
        schema: The DataFrame's schema.
        topic: The option `topic`; if it is set, a column of that name is not read.

    Raises:
        InvalidRequestError: A column is missing, ambiguous or of an unsupported type.

    Source: org.apache.spark.sql.kafka010.KafkaWriter.validateQuery; messages begin like its own.
    """
    value = _find(schema, "value", "string or binary", _is_text_or_bytes)
    if value is None:
        raise InvalidRequestError(
            "Required attribute 'value' not found",
            got=f"columns {', '.join(schema.names) or '(none)'}",
            hint="df.selectExpr('to_json(struct(*)) AS value')",
        )
    topic_index = None
    if topic is None:
        topic_index = _find(schema, "topic", "string", _is_text)
        if topic_index is None:
            raise InvalidRequestError(
                "topic option required when no 'topic' attribute is present",
                hint='.option("topic", "NAME")',
            )
    return SinkSchema(
        value=value,
        key=_find(schema, "key", "string or binary", _is_text_or_bytes),
        headers=_find(schema, "headers", HEADERS_TYPE, _is_headers),
        topic=topic_index,
        partition=_find(schema, "partition", "int", _is_int),
        timestamp=_find(schema, "timestamp", "timestamp", _is_timestamp),
    )


def _find(
    schema: StructType, name: str, expected: str, is_supported: Callable[[DataType], bool]
) -> int | None:
    found = [index for index, field in enumerate(schema.fields) if field.name == name]
    if not found:
        return None
    if len(found) > 1:
        raise InvalidRequestError(f"column {name!r} appears {len(found)} times", expected="once")
    kind = schema.fields[found[0]].dataType
    if not is_supported(kind):
        raise InvalidRequestError(
            f"{name} attribute unsupported type",
            got=kind.simpleString(),
            expected=expected,
            hint=f"df.withColumn({name!r}, df[{name!r}].cast({expected.split()[0]!r}))",
        )
    return found[0]


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_text_or_bytes(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_int(kind: DataType) -> bool:
    return isinstance(kind, IntegerType)


def _is_timestamp(kind: DataType) -> bool:
    return isinstance(kind, TimestampType)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )
