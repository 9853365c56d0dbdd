"""`format("streamlog")`: the one class that Spark knows.

Spark makes it anew in several short-lived processes beside the driver, and its reader in each
worker, so importing this module loads nothing heavy: neither numba nor Arrow.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from streamlog.arrow.schema import spark_schema
from streamlog.errors import InvalidOptionError
from streamlog.spark.catalog_table import (
    options_of_reader,
    options_of_statement,
    schema_with_options,
)
from streamlog.spark.options import Use
from streamlog.spark.source_options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

    from streamlog.spark.batch_reader import StreamLogReader
    from streamlog.spark.stream_reader import StreamLogStreamReader

__all__ = ["StreamLogSource"]


class StreamLogSource(DataSource):
    """The log as a source and a sink of Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "streamlog"

    def schema(self) -> str | StructType:
        """Return the columns, after checking what can be checked before a query starts.

        Raises:
            InvalidOptionError: An option is unknown, misspelt or has an impossible value.
            UnknownTopicError: There is no such root, or a topic named in the options is missing.
        """
        from streamlog.arrow.subscription import check_topics

        of_table = options_of_statement(self.options)
        options = SourceOptions.parse(self.options if of_table is None else of_table, Use.READ)
        check_topics(options.path, options.choice)
        if of_table is None:
            return spark_schema(options.columns)
        return schema_with_options(options.columns, of_table)

    def reader(self, schema: StructType) -> "StreamLogReader":
        """Return the reader of a batch query."""
        from streamlog.spark.batch_reader import StreamLogReader

        return StreamLogReader(self._options_to_read(schema))

    def streamReader(self, schema: StructType) -> "StreamLogStreamReader":
        """Return the reader of a streaming query."""
        from streamlog.spark.stream_reader import StreamLogStreamReader

        return StreamLogStreamReader(self._options_to_read(schema))

    def writer(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> "DataSourceArrowWriter":
        """Return the writer of a batch."""
        from streamlog.spark.writer import batch_writer

        if not self.options:
            raise InvalidOptionError(
                "Spark passes no options when it inserts into a table of a Python source",
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

    def _options_to_read(self, schema: StructType) -> dict[str, str]:
        """Return the options of a read; refuse a schema of the user's, columns are what they are.

        Raises:
            InvalidOptionError: Another schema, or a table without options.
        """
        given = options_of_reader(self.options, schema)
        options = SourceOptions.parse(given, Use.READ)
        expected = spark_schema(options.columns)
        got = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
        if got != expected:
            raise InvalidOptionError(
                "the source has a fixed schema and cannot be given another",
                got=got,
                expected=expected,
                hint="leave .schema() out; the option columns chooses among the columns",
            )
        return given
