"""Staging the rows of one task as a durable file.

All sinks use this: tasks of `writeStream` and `write`, tasks of `foreachBatch` through
`mapInArrow`, the driver for a small batch, and `write_table`.
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
    """The arguments of every task of a batch; small and picklable.

    Attributes:
        root: The log root.
        schema: Positions of the sink's columns.
        topic: The topic of all rows; None: the column `topic`.
        compression: The codec for topics whose `compression.type` is `producer`.
        has_checksum: Whether to compute a checksum; False for a commit that is never repeated.
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
        fs: The file system of the root.
        clock: Gives the timestamp of rows without one; read once per task.
        plan: The arguments common to all tasks.
        batches: The rows.
        app: The app of the commit.
        version: The app's version of the commit.
        task: Index of the task.

    Returns:
        The staged file; without a name if there are no rows.

    Raises:
        InvalidRequestError: A row or column that the topic or the sink does not accept.
        StorageError: The file cannot be written.
    """
    checksum = _Checksum() if plan.has_checksum else None
    root = LogRoot.at(plan.root, fs=fs, clock=clock)
    with Stager(root, app, version, task) as stager:
        encoder = RowEncoder(
            stager,
            plan.schema,
            topic=plan.topic,
            find_topic=SinkTopics(root).find,
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
    """Accumulates the checksum of a task."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def add(self, columns: SinkColumns) -> None:
        """Add some rows."""
        from streamlog.arrow.checksum import checksum_rows

        self.total = checksum_sum(self.total, checksum_rows(columns))
