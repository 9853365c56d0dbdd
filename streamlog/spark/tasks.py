"""What runs in Spark's Python workers: reading planned ranges, staging rows.

Heavy imports (numba, Arrow) stay inside the functions: the planning and committing processes
import this module and need neither.
"""

import gc
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from streamlog.clock import SystemClock
from streamlog.commits.staging import StagedFile
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem

if TYPE_CHECKING:
    import pyarrow as pa

    from streamlog.arrow.decoded_columns import Decoding
    from streamlog.arrow.schema import SinkSchema
    from streamlog.arrow.stage import StagePlan
    from streamlog.bucket.planned_topics import PlannedTopics
    from streamlog.spark.sink_options import SinkOptions
    from streamlog.spark.source_options import SourceOptions

__all__ = ["read_task", "settle", "stage_plan", "stage_task"]

# A worker imports in two steps: ours during its first task, Spark's own Arrow code after it.
_TIMES: Final = 2

_calls: dict[int, int] = {}


def read_task(
    partition: InputPartition, options: "SourceOptions", decoding: "Decoding | None" = None
) -> "Iterator[pa.RecordBatch]":
    """Yield the records of one task.

    Args:
        partition: A task of `pack_tasks`. Spark plans a batch without tasks as one task that
            holds None.
        options: The options of the query.
        decoding: How keys and values are decoded; None: they are bytes.
    """
    from streamlog.arrow.decoder import ArrowDecoder
    from streamlog.arrow.planned import PlannedRange
    from streamlog.arrow.reading import read_ranges
    from streamlog.partition.tiered import with_remote_segments

    fs, _ = with_remote_segments(LocalFileSystem(), options.paths)
    decoded = None
    if decoding is not None:
        from streamlog.arrow.decoded_columns import DecodedColumns
        from streamlog.spark.decoded_types import as_spark_has_it

        decoded = DecodedColumns(decoding, options.columns, convert=as_spark_has_it)
    columns = options.columns if decoded is None else decoded.raw
    batches = read_ranges(
        [PlannedRange.unpack(fields) for fields in partition.value or ()],
        decoder=ArrowDecoder(columns, invalid_timestamps=options.invalid_timestamps),
        isolation=options.isolation,
        fail_on_data_loss=options.fail_on_data_loss,
        fs=fs,
        max_decompressed_bytes=options.max_decompressed_bytes,
    )
    yield from batches if decoded is None else decoded.decode(batches)
    settle(os.getpid())


def stage_plan(
    options: "SinkOptions",
    schema: "SinkSchema",
    *,
    has_checksum: bool,
    topics: "PlannedTopics | None" = None,
) -> "StagePlan":
    """Return the part of a sink's options that its tasks need."""
    from streamlog.arrow.stage import StagePlan

    return StagePlan(
        roots=options.roots,
        schema=schema,
        topic=options.topic,
        compression=options.compression,
        has_checksum=has_checksum,
        topics=topics,
    )


def stage_task(
    plan: "StagePlan",
    batches: "Iterable[pa.RecordBatch]",
    *,
    app: str,
    version: int,
    fs: FileSystem | None = None,
) -> StagedFile:
    """Stage the rows of the Spark task that runs here; see `stage_rows`.

    Outside of a task, on the driver, the rows count as task 0 and nothing is settled: the driver's
    objects are the user's.
    """
    from streamlog.arrow.stage import stage_rows

    context = TaskContext.get()
    staged = stage_rows(
        fs or LocalFileSystem(),
        SystemClock(),
        plan,
        batches,
        app=app,
        version=version,
        task=0 if context is None else context.partitionId(),
    )
    if context is not None:
        settle(os.getpid())
    return staged


def settle(pid: int) -> None:
    """Exclude all live objects from later garbage collections; has an effect twice per process.

    Spark's daemon runs a full collection after every task of a worker, including the planning and
    committing of a trigger. With the tens of thousands of objects that imports create, that takes
    longer (45 ms) than a small task. Call this at the end of a task, when all imports are done.

    Args:
        pid: This process. A forked child has a pid of its own and starts counting again.
    """
    done = _calls.get(pid, 0)
    if done < _TIMES:
        _calls.clear()
        _calls[pid] = done + 1
        gc.collect()
        gc.freeze()
