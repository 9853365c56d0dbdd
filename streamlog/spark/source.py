"""`format("streamlog")`: the class that Spark knows.

Spark creates it again in several short-lived processes next to the driver, and its reader in each
worker. Importing this module therefore loads nothing heavy: neither numba nor Arrow.

A table (`CREATE TABLE … USING streamlog`) keeps its options in its schema. For a new table Spark
asks a Python source for the schema and passes the options of the statement, mixed with additions
of its catalog (`location`, `owner`, `provider`, and each option again as `option.NAME`). When the
table is read later, Spark passes none of them, only the stored schema. So the schema of a table
carries the options, as metadata of its first column.

With options that decode, `schema()` asks for the reader's schemas, and this object keeps them:
Spark pickles it after that call and makes every reader of the DataFrame from it. So all queries
started from one DataFrame decode with the same schemas, also after a restart; a new `load()` asks
again. A table asks at each read, and refuses a schema that is no longer the table's.

This cannot serve a table whose statement lists the columns (Spark does not ask for a schema), nor
`INSERT INTO` (Spark passes the schema of the rows); both are refused.

Source: org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2.getTable, which
ignores its argument `properties`.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamlog.arrow.schema import spark_schema
from streamlog.errors import InvalidOptionError
from streamlog.spark.options import Use
from streamlog.spark.source_options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

    from streamlog.arrow.decoded_columns import Decoding
    from streamlog.spark.reader import StreamLogReader, StreamLogStreamReader

__all__ = ["StreamLogSource"]

_METADATA_KEY: Final = "streamlog.options"
# Only a catalog sets it: TableCatalog.PROP_PROVIDER
_PROVIDER: Final = "provider"
_PREFIX: Final = "option."  # TableCatalog.OPTION_PREFIX
_PATHS: Final = ("path", "location")

# The types of `schema.spark_schema`, whose text only a process with a SparkContext can parse.
_TYPES: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


class StreamLogSource(DataSource):
    """The log as a source and a sink of Spark."""

    # How a read decodes, as found by `schema`; Spark pickles this object after that call.
    _decoding: "Decoding | None" = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "streamlog"

    def schema(self) -> str | StructType:
        """Return the columns, after all checks that are possible before a query starts.

        Raises:
            InvalidOptionError: An option is unknown, misspelt or invalid; or a schema is.
            UnknownTopicError: The root or a topic named in the options does not exist.
            UnavailableError: A schema registry cannot be reached.
        """
        from streamlog.arrow.subscription import check_topics
        from streamlog.arrow.views import open_read_roots

        of_table = _options_of_statement(self.options)
        options = SourceOptions.parse(self.options if of_table is None else of_table, Use.READ)
        check_topics(open_read_roots(options.paths), options.choice)
        self._decoding = _resolve(options)
        if of_table is None and self._decoding is None:
            return spark_schema(options.columns)
        schema = _schema_of(options.columns, self._decoding)
        if of_table is not None:
            schema.fields[0].metadata = {_METADATA_KEY: json.dumps(of_table)}
        return schema

    def reader(self, schema: StructType) -> "StreamLogReader":
        """Return the reader of a batch query."""
        from streamlog.spark.reader import StreamLogReader

        return StreamLogReader(*self._ways_to_read(schema))

    def streamReader(self, schema: StructType) -> "StreamLogStreamReader":
        """Return the reader of a streaming query."""
        from streamlog.spark.reader import StreamLogStreamReader

        return StreamLogStreamReader(*self._ways_to_read(schema))

    def writer(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> "DataSourceArrowWriter":
        """Return the writer of a batch query."""
        from streamlog.spark.writer import batch_writer

        if not self.options:
            raise InvalidOptionError(
                "Spark passes no options for INSERT INTO to a Python source",
                expected="the options path and topic",
                hint='df.write.format("streamlog").mode("append").option("path", …).save()',
            )
        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> "DataSourceStreamArrowWriter":
        """Return the writer of one trigger of a streaming query."""
        from streamlog.spark.writer import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)

    def _ways_to_read(self, schema: StructType) -> "tuple[dict[str, str], Decoding | None]":
        """Return the options of a read, and how it decodes; refuse a user-defined schema.

        Raises:
            InvalidOptionError: The schema is another one, or a table has no options.
            UnavailableError: A schema registry cannot be reached.
        """
        given = _options_of_reader(self.options, schema)
        options = SourceOptions.parse(given, Use.READ)
        decoding = self._decoding or _resolve(options)
        expected = _described(_schema_of(options.columns, decoding))
        got = _described(schema)
        if got != expected:
            raise InvalidOptionError(
                "the schema of this source is fixed",
                got=got,
                expected=expected,
                hint="remove .schema(); the option columns selects columns"
                if decoding is None
                else "remove .schema(), or create the table again: it has the schema of its "
                "creation; the option valueSchema fixes one",
            )
        return given, decoding


def _resolve(options: SourceOptions) -> "Decoding | None":
    return None if options.decoding is None else options.decoding.resolve()


def _schema_of(columns: tuple[str, ...], decoding: "Decoding | None") -> StructType:
    """Return the columns as Spark's types."""
    types = dict(_TYPES)
    if decoding is not None:
        from streamlog.arrow.decoded_columns import DecodedColumns
        from streamlog.spark.decoded_types import as_spark_has_it, spark_type_of

        decoded = DecodedColumns(decoding, columns, convert=as_spark_has_it).schema
        types |= {name: spark_type_of(decoded.field(name).type) for name in columns}
    return StructType([StructField(name, types[name]) for name in columns])


def _described(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


# ---- tables of a catalog ----------------------------------------------------------------------
def _options_of_statement(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a CREATE TABLE statement; None outside of one.

    Args:
        options: The options as Spark passes them; names in lower case.
    """
    if _PROVIDER not in options:
        return None
    given = {
        name.removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.startswith(_PREFIX)
    }
    path = next((options[name] for name in _PATHS if name in options), None)
    return given if path is None else {**given, "path": path}


def _options_of_reader(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a read: those of its table, overridden by those of the read itself.

    Args:
        options: The options of the read, as Spark passes them.
        schema: The schema of the read, which may be that of a table.

    Raises:
        InvalidOptionError: There are none, because Spark lost those of a table.
    """
    stored = schema.fields[0].metadata.get(_METADATA_KEY) if schema.fields else None
    merged = {**(json.loads(stored) if stored else {}), **options}
    if not merged:
        raise InvalidOptionError(
            "this table has no options: Spark passes them to a Python source only when it asks "
            "for the schema",
            expected="CREATE TABLE name USING streamlog OPTIONS (…) without a list of columns",
        )
    return merged
