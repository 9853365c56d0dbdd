"""Repeated attempts: the same work again, immediately or after the batch is done.

    attempt 1 of batch N ──┐                      ┌── duplicate: again, immediately
    reported attempt ──────┴── batch N is done ───┴── zombie: again, after batch N is done

For a streamlog sink, a task is repeated: the extra attempt writes all its rows, and no commit names
them. For `foreachBatch`, the whole function is called again with the same rows and batch number, as
by a driver that was presumed dead; a zombie's call comes at the start of the next batch.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import SystemRandom
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.streaming import DataStreamWriter

from streamlog.commits.staging import StagedFile, StagingArea
from streamlog.fs.api import OpenMode
from streamlog.fs.files import make_directories, read_file
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.spark.foreach_batch import BatchAppender
from streamlog.spark.writer import StagedRows, StreamWriter
from streamlog.testing.checkpoint import Checkpoint
from streamlog.testing.frames import hides_helper
from streamlog.testing.queries import replaced
from streamlog.testing.sinks import changed_sinks, running_batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["duplicate_attempt", "zombie_attempt"]
__tracebackhide__ = hides_helper

CheckpointLocation = str | os.PathLike[str]
_Function = Callable[["DataFrame", int], None]


@contextmanager
def duplicate_attempt(checkpoint: CheckpointLocation, *, batch: int) -> Iterator[None]:
    """Repeat everything the sink does for a batch, immediately.

        with duplicate_attempt("checkpoint", batch=1):
            job()

    Applies to sinks of `format("streamlog")` and to your own functions passed to `foreachBatch` in
    the block.

    Args:
        checkpoint: The query's checkpointLocation.
        batch: The batch number.

    Raises:
        AssertionError: The batch did not run in the block, or had no such sink.
    """
    with _repeated(Checkpoint(checkpoint), batch, is_late=False):
        yield


@contextmanager
def zombie_attempt(checkpoint: CheckpointLocation, *, batch: int) -> Iterator[None]:
    """Repeat an attempt after its batch is done: a zombie.

        with zombie_attempt("checkpoint", batch=1):
            job()

    Applies to sinks of `format("streamlog")` and to your own functions passed to `foreachBatch` in
    the block. The latter are called again at the start of the next batch, so there must be one.

    Args:
        checkpoint: The query's checkpointLocation.
        batch: The batch number.

    Raises:
        AssertionError: The batch did not run in the block, or had no such sink.
    """
    with _repeated(Checkpoint(checkpoint), batch, is_late=True):
        yield


@contextmanager
def _repeated(checkpoint: Checkpoint, batch: int, *, is_late: bool) -> Iterator[None]:
    fs = LocalFileSystem()
    make_directories(fs, checkpoint.path)
    again = _Again(batch, is_late, os.path.join(checkpoint.path, f".attempted-again-{batch}"))
    with ExitStack() as stack:
        stack.enter_context(changed_sinks(again))
        stack.enter_context(replaced(DataStreamWriter, "foreachBatch", again.change_foreach_batch))
        yield
    if fs.stat(again.note) is None:
        raise AssertionError(f"no sink that can be repeated reached batch {batch}")
    fs.remove(again.note)


class _Again(NamedTuple):
    """The batch to repeat, and when; the file `note` records the repetition for all processes."""

    batch: int
    is_late: bool
    note: str

    def change_foreach_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a `foreachBatch` that repeats the functions passed to it."""

        def foreach_batch(writer: DataStreamWriter, function: _Function) -> Any:
            if not isinstance(function, BatchAppender):
                function = _RepeatingFunction(function, self)
            return original(writer, function)

        return foreach_batch

    def change_writer(self, writer: StreamWriter, root: str) -> DataSourceStreamArrowWriter:
        """Return a writer that repeats its tasks."""
        return _RepeatingWriter(writer, root, self)

    def append(self, appender: BatchAppender, batch_id: int, append: Callable[[], None]) -> None:
        """Append once: `append_batch` rejects a second call in the same run."""
        append()

    def take_note(self) -> None:
        """Record the repetition, from any process."""
        LocalFileSystem().open(self.note, OpenMode.CREATE_OR_WRITE).close()


class _RepeatingWriter(DataSourceStreamArrowWriter):
    """The real writer, with one unreported attempt per task."""

    def __init__(self, writer: StreamWriter, root: str, again: _Again) -> None:
        self._writer, self._root, self._again = writer, root, again

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Stage the rows of a task, twice for a duplicate."""
        if self._again.is_late or running_batch() != self._again.batch:
            return self._writer.write(iterator)
        batches = list(iterator)
        self._writer.write(iter(batches))
        self._again.take_note()
        return self._writer.write(iter(batches))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit; for a zombie, stage the files again afterwards."""
        self._writer.commit(messages, batchId)
        if self._again.is_late and batchId == self._again.batch:
            for message in messages:
                if isinstance(message, StagedRows) and message.staged.name:
                    _stage_again(self._root, message.staged)
            self._again.take_note()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Abort."""
        self._writer.abort(messages, batchId)


def _stage_again(root: str, staged: StagedFile) -> None:
    """Write the file of another attempt: the same bytes under another name."""
    fs = LocalFileSystem()
    area = StagingArea(LogRoot.at(root, fs=fs))
    content = read_file(fs, area.file_path(staged.app, staged.name), max_size=staged.size)
    attempt = staged.name.rpartition("-")[0]
    with area.create(
        staged.app, lambda: f"{attempt}-{SystemRandom().getrandbits(64):016x}"
    ) as file:
        file.pwrite(content, 0)
        file.sync()


class _RepeatingFunction:
    """A `foreachBatch` function that is called again for one batch."""

    def __init__(self, function: _Function, again: _Again) -> None:
        self._function, self._again = function, again
        self._late: DataFrame | None = None

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        """Run a batch, and the repetition if it is due."""
        late, self._late = self._late, None
        if late is not None:
            self._repeat(late)
        self._function(frame, batch_id)
        if batch_id == self._again.batch:
            if self._again.is_late:
                self._late = frame
            else:
                self._repeat(frame)

    def _repeat(self, frame: "DataFrame") -> None:
        self._function(frame, self._again.batch)
        self._again.take_note()
