"""`format("streamlog")`: the one class that Spark knows.

Spark makes it anew in several short-lived processes beside the driver, and its reader in each
worker, so importing this module loads nothing heavy: neither numba nor Arrow.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from streamlog.errors import InvalidOptionError
from streamlog.spark.options import Use
from streamlog.spark.schema import spark_schema
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

    def schema(self) -> str:
        """Return the columns, after checking what can be checked before a query starts.

        Raises:
            InvalidOptionError: An option is unknown, misspelt or has an impossible value.
            UnknownTopicError: There is no such root, or a topic named in the options is missing.
        """
        from streamlog.spark.subscription import check_topics

        options = SourceOptions.parse(self.options, Use.READ)
        check_topics(options.path, options.choice)
        return spark_schema(options.columns)

    def reader(self, schema: StructType) -> "StreamLogReader":
        """Return the reader of a batch query."""
        from streamlog.spark.batch_reader import StreamLogReader

        self._check_schema(schema)
        return StreamLogReader(self.options)

    def streamReader(self, schema: StructType) -> "StreamLogStreamReader":
        """Return the reader of a streaming query."""
        from streamlog.spark.stream_reader import StreamLogStreamReader

        self._check_schema(schema)
        return StreamLogStreamReader(self.options)

    def writer(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> "DataSourceArrowWriter":
        """Return the writer of a batch."""
        from streamlog.spark.writer import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> "DataSourceStreamArrowWriter":
        """Return the writer of one trigger of a streaming query."""
        from streamlog.spark.writer import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)

    def _check_schema(self, schema: StructType) -> None:
        """Refuse a schema of the user's: the columns of a log are what they are."""
        options = SourceOptions.parse(self.options, Use.READ)
        expected = spark_schema(options.columns)
        got = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
        if got != expected:
            raise InvalidOptionError(
                "the source has a fixed schema and cannot be given another",
                got=got,
                expected=expected,
                hint="leave .schema() out; the option columns chooses among the columns",
            )
