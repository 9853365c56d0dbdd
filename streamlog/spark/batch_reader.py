"""`spark.read.format("streamlog")`: everything between two places, planned once."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from streamlog.spark.options import Use
from streamlog.spark.source_options import SourceOptions
from streamlog.spark.tasks import pack_tasks, read_task

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamLogReader"]


class StreamLogReader(DataSourceReader):
    """Reads a part of the log once.

    Args:
        options: As Spark hands them over.

    Raises:
        InvalidOptionError: An option is unknown, senseless or has an impossible value.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = SourceOptions.parse(options, Use.BATCH_READ)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; planned in the driver."""
        from streamlog.arrow.subscription import Subscription
        from streamlog.spark.batch_plan import plan_batch

        options = self._options
        view = Subscription(
            options.path,
            options.choice,
            options.isolation,
            max_decompressed_bytes=options.max_decompressed_bytes,
        )
        try:
            return pack_tasks(view, plan_batch(view, options), options)
        finally:
            view.close()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the records of one task; runs in a worker."""
        return read_task(partition, self._options)
