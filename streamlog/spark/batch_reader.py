"""`spark.read.format("streamlog")`: everything between two places, planned once."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from streamlog.arrow.log_view import OffsetRange
from streamlog.spark.options import Use
from streamlog.spark.planning import plan_tasks
from streamlog.spark.source_options import SourceOptions
from streamlog.spark.tasks import read_task

if TYPE_CHECKING:
    import pyarrow as pa

    from streamlog.arrow.subscription import Subscription

__all__ = ["StreamLogReader", "pack_tasks"]


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


def pack_tasks(
    view: "Subscription", ranges: Sequence[OffsetRange], options: SourceOptions
) -> list[InputPartition]:
    """Return the tasks that read `ranges`; each holds the tuple of a `PlannedRange` for each."""
    tasks = plan_tasks(
        view,
        ranges,
        parallelism=options.parallelism,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    aborts = {
        part.topic_partition: tuple(map(tuple, view.unindexed_aborts(part.topic_partition)))
        for part in ranges
    }
    return [
        InputPartition(
            tuple(
                (
                    view.directories[part.topic_partition],
                    view.topic_ids.get(part.topic, ""),
                    *part,
                    aborts[part.topic_partition],
                )
                for part in task
            )
        )
        for task in tasks
    ]
