"""Changes streamlog's own sinks for the duration of a block.

A sink of `format("streamlog")` runs in Spark's Python workers. To change it there, the format is
registered again with a class that carries the change; Spark pickles that class into each worker.
`append_batch` runs in the driver, which is this process.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from streamlog.errors import InvalidRequestError
from streamlog.fs.api import FileSystem
from streamlog.fs.faults import SimulatedCrash
from streamlog.spark.foreach_batch import BatchAppender
from streamlog.spark.options import Use
from streamlog.spark.sink_options import SinkOptions
from streamlog.spark.source import StreamLogSource
from streamlog.spark.spark_session import register
from streamlog.spark.writer import BATCH_ID_PROPERTY, StreamWriter, stream_writer
from streamlog.testing.queries import DiskFactory, KilledError, Start, replaced, started_through

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

__all__ = ["DiskSink", "SinkChange", "changed_sinks", "running_batch"]


class SinkChange(Protocol):
    """A change of sinks. Small and picklable."""

    def change_writer(self, writer: StreamWriter, root: str) -> DataSourceStreamArrowWriter:
        """Return the replacement of a trigger's writer to the log root `root`."""
        ...

    def append(self, appender: BatchAppender, batch_id: int, append: Callable[[], None]) -> None:
        """Run `append`, which appends one batch of `appender`."""
        ...


class _Current:
    """The change of the enclosing block."""

    change: SinkChange | None = None


@contextmanager
def changed_sinks(change: SinkChange) -> Iterator[None]:
    """Change the streamlog sinks of queries started in the block.

    Raises:
        InvalidRequestError: Nested in another block that changes sinks.
    """
    if _Current.change is not None:
        raise InvalidRequestError("blocks that change streamlog's sinks cannot be nested")
    _Current.change = change

    def changed(append: Callable[[BatchAppender, DataFrame, int], None]) -> Callable[..., None]:
        def call(appender: BatchAppender, df: DataFrame, batch_id: int) -> None:
            change.append(appender, batch_id, lambda: append(appender, df, batch_id))

        return call

    try:
        with ExitStack() as stack:
            stack.enter_context(started_through(partial(_start_changed, change)))
            stack.enter_context(replaced(BatchAppender, "__call__", changed))
            yield
    finally:
        _Current.change = None


def running_batch() -> int:
    """Return the batch number of the current task, or -1 outside of a task."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(BATCH_ID_PROPERTY)
    return -1 if text is None else int(text)


def _start_changed(
    change: SinkChange, writer: "DataStreamWriter", start: Start
) -> "StreamingQuery":
    spark = writer._spark

    class ChangedSource(StreamLogSource):
        """The format with the change; a local class, so that Spark pickles the change with it."""

        def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: FBT001 - Spark's
            root = SinkOptions.of(self.options, Use.STREAM_WRITE).roots[0]
            real = stream_writer(self.options, schema, overwrite=overwrite)
            return change.change_writer(real, root)

    spark.dataSource.register(ChangedSource)
    try:
        return start()
    finally:
        register(spark)


class DiskSink(NamedTuple):
    """Sinks on a disk with faults.

    Attributes:
        disk: Makes the file system with the faults.
        batch: The affected batch; None: all.
        is_deadly: Whether a fault ends the process.
    """

    disk: DiskFactory
    batch: int | None = None
    is_deadly: bool = False

    def change_writer(self, writer: StreamWriter, root: str) -> DataSourceStreamArrowWriter:
        """Return a writer on the disk."""
        del root
        return _WriterOverDisk(writer, self)

    def append(self, appender: BatchAppender, batch_id: int, append: Callable[[], None]) -> None:
        """Append on the disk."""
        before, appender.fs = appender.fs, self.file_system(batch_id)
        try:
            append()
        except SimulatedCrash as death:  # Spark handles only Exceptions
            raise KilledError(str(death)) from None
        finally:
            appender.fs = before

    def file_system(self, batch_id: int) -> FileSystem | None:
        """Return the file system of a batch; None: the local one."""
        return self.disk() if self.batch in (None, batch_id) else None


class _WriterOverDisk(DataSourceStreamArrowWriter):
    """The real writer on a disk with faults."""

    def __init__(self, writer: StreamWriter, sink: DiskSink) -> None:
        self._writer, self._sink = writer, sink

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Stage the rows of one task."""
        self._writer.fs = self._sink.file_system(running_batch())
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit."""
        self._writer.fs = self._sink.file_system(batchId)
        self._writer.commit(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Abort, unless the fault has ended the process."""
        if not (self._sink.is_deadly and self._sink.batch == batchId):
            self._writer.abort(messages, batchId)
