"""Tasks on their way from the planner to a worker: plain tuples of text and numbers."""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from streamlog.arrow.log_view import OffsetRange
from streamlog.spark.planning import plan_tasks
from streamlog.spark.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from streamlog.arrow.subscription import Subscription

__all__ = ["pack_tasks", "read_task"]


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


def read_task(partition: InputPartition, options: SourceOptions) -> "Iterator[pa.RecordBatch]":
    """Yield the records of one task.

    Args:
        partition: What `pack_tasks` made. Spark plans a batch without tasks as one that holds
            None.
        options: Those of the query.
    """
    from streamlog.arrow.decoder import ArrowDecoder
    from streamlog.arrow.reading import PlannedRange, read_ranges
    from streamlog.spark.worker import settle

    yield from read_ranges(
        [PlannedRange.unpack(fields) for fields in partition.value or ()],
        decoder=ArrowDecoder(options.columns, invalid_timestamps=options.invalid_timestamps),
        isolation=options.isolation,
        fail_on_data_loss=options.fail_on_data_loss,
        max_decompressed_bytes=options.max_decompressed_bytes,
    )
    settle(os.getpid())
