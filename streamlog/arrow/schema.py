"""The columns of a log, read and written: those of Spark's Kafka source and sink.

    key binary, value binary, topic string, partition int, offset long,
    timestamp timestamp, timestampType int [, headers array<struct<key:string,value:binary>>]

Spark takes the schema of a reader as text, executors and `read_table` take it as an Arrow schema.
Both are derived from one table. Where keys or values are decoded (`decoded_columns`), their types
are those of a schema, and a last column `_error` is added.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from streamlog.errors import InvalidOptionError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "COLUMN_NAMES",
    "ERROR",
    "HEADERS",
    "HEADERS_TYPE",
    "SinkSchema",
    "arrow_schema",
    "choose_columns",
    "spark_schema",
]

ERROR: Final = "_error"
HEADERS: Final = "headers"
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


class _Column(NamedTuple):
    name: str
    spark_type: str


# KafkaRecordToRowConverter.schemaWithHeaders
_COLUMNS: Final = (
    _Column("key", "binary"),
    _Column("value", "binary"),
    _Column("topic", "string"),
    _Column("partition", "int"),
    _Column("offset", "bigint"),
    _Column("timestamp", "timestamp"),
    _Column("timestampType", "int"),
    _Column(HEADERS, HEADERS_TYPE),
)
COLUMN_NAMES: Final = tuple(column.name for column in _COLUMNS)


def choose_columns(
    wanted: str | None, *, include_headers: bool, has_errors: bool = False
) -> tuple[str, ...]:
    """Return the columns to read, in the order of Spark's Kafka source.

    Args:
        wanted: Names separated by commas, in any case and order; None: all.
        include_headers: Whether to include headers in addition.
        has_errors: Whether there is a last column `_error`.

    Raises:
        InvalidOptionError: An unknown column, or no column.
    """
    known = (*COLUMN_NAMES, ERROR) if has_errors else COLUMN_NAMES
    if wanted is None:
        return tuple(name for name in known if include_headers or name != HEADERS)
    names = {name.strip().lower() for name in wanted.split(",") if name.strip()}
    if include_headers:
        names.add(HEADERS)
    unknown = names - {name.lower() for name in known}
    if unknown or not names:
        raise InvalidOptionError(
            "option columns: unknown column" if names else "option columns is empty",
            got=", ".join(sorted(unknown)) or repr(wanted),
            expected=", ".join(known),
        )
    return tuple(name for name in known if name.lower() in names)


def spark_schema(columns: tuple[str, ...]) -> str:
    """Return the columns as the text that Spark parses into a StructType."""
    return ", ".join(
        f"{column.name} {column.spark_type}" for column in _COLUMNS if column.name in columns
    )


def arrow_schema(columns: tuple[str, ...]) -> "pa.Schema":
    """Return the columns as an Arrow schema, equal to the one that Spark derives from its own.

    Source: pyspark.sql.pandas.types.to_arrow_schema; every field may be null.
    """
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        HEADERS: pa.list_(pa.field("element", header)),
    }
    return pa.schema([(name, types[name]) for name in COLUMN_NAMES if name in columns])


class SinkSchema(NamedTuple):
    """Positions of the sink's columns in a DataFrame or batch; None for an absent column."""

    value: int
    key: int | None
    headers: int | None
    topic: int | None
    partition: int | None
    timestamp: int | None

    def indices(self) -> list[int]:
        """Return the positions of the present columns, ascending."""
        return sorted(index for index in self if index is not None)

    def packed(self) -> "SinkSchema":
        """Return the positions after only the columns at `indices` are selected."""
        places = {index: place for place, index in enumerate(self.indices())}
        return SinkSchema(
            value=places[self.value],
            key=None if self.key is None else places[self.key],
            headers=None if self.headers is None else places[self.headers],
            topic=None if self.topic is None else places[self.topic],
            partition=None if self.partition is None else places[self.partition],
            timestamp=None if self.timestamp is None else places[self.timestamp],
        )
