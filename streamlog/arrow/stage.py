"""One task of a sink: its rows become a staged file.

The same for all ways into the log: tasks of `writeStream` and `write`, tasks of `foreachBatch`
through `mapInArrow`, and the driver itself for a small batch.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from streamlog.arrow.encoder import RowEncoder
from streamlog.arrow.schema import SinkSchema
from streamlog.arrow.sink_columns import SinkColumns
from streamlog.arrow.sink_topics import SinkTopics
from streamlog.clock import Clock
from streamlog.commits.fingerprint import checksum_sum
from streamlog.commits.staging import StagedFile, Stager
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.records.record import CompressionType

__all__ = ["StagePlan", "stage_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """What every task of a batch is told; small and picklable.

    Attributes:
        root: The log root.
        schema: Where the sink's columns are.
        topic: The topic of all rows; None where the column `topic` says.
        compression: The codec for topics that leave it to the producer.
        has_checksum: Whether rows are summed up; False for a commit that can never be repeated.
    """

    root: str
    schema: SinkSchema
    topic: str | None
    compression: CompressionType
    has_checksum: bool


def stage_rows(
    fs: FileSystem,
    clock: Clock,
    plan: StagePlan,
    batches: Iterable[pa.RecordBatch],
    *,
    app: str,
    version: int,
    task: int,
) -> StagedFile:
    """Encode the rows of one task into a durable staged file.

    Args:
        fs: Where the root is.
        clock: Gives the timestamp of rows without one: the same for all of the task.
        plan: What to do with the rows.
        batches: The rows.
        app: Whose commit they are for.
        version: Which commit of that app.
        task: Index of the task.

    Returns:
        What was staged; no file where there are no rows.

    Raises:
        InvalidRequestError: A row or a column that topic or sink cannot take.
        StorageError: The file cannot be written.
    """
    checksum = _Checksum() if plan.has_checksum else None
    with Stager(LogRoot.at(plan.root, fs=fs), app, version, task) as stager:
        encoder = RowEncoder(
            stager,
            plan.schema,
            topic=plan.topic,
            find_topic=SinkTopics(fs, clock, plan.root).find,
            compression=plan.compression,
            start=version + task,
            now_ms=clock.now_ms(),
            watch=checksum.add if checksum is not None else None,
        )
        for batch in batches:
            encoder.append(batch)
        encoder.flush()
        return stager.finish(rows=encoder.rows, checksum=checksum.total if checksum else None)


class _Checksum:
    """Sums up the rows of a task."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def add(self, columns: SinkColumns) -> None:
        """Add some rows."""
        from streamlog.arrow.checksum import checksum_rows

        self.total = checksum_sum(self.total, checksum_rows(columns))
