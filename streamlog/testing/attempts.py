"""Attempts that Spark makes twice: the same work again, at once or when nobody waits for it.

    attempt 1 of batch N ──┐                      ┌── duplicate: once more, at once
    what is reported ──────┴── batch N is done ───┴── zombie: once more, when it is done

Of a streamlog sink a task is repeated: its attempt writes all its rows, and nobody names what it
wrote. Of `foreachBatch` the whole function is called again with the same rows and the same number,
as by a driver that was thought to be dead; a zombie's call comes when the next batch begins.
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
    """Have all that the sink does for a batch done twice in a row.

        with duplicate_attempt("checkpoint", batch=1):
            job()

    For sinks of `format("streamlog")` and functions of your own given to `foreachBatch` in the
    block.

    Args:
        checkpoint: The query's checkpointLocation.
        batch: The batch.

    Raises:
        AssertionError: The block had no such batch, or no such sink.
    """
    with _repeated(Checkpoint(checkpoint), batch, is_late=False):
        yield


@contextmanager
def zombie_attempt(checkpoint: CheckpointLocation, *, batch: int) -> Iterator[None]:
    """Have an attempt of a batch go on when the batch is done: a zombie.

        with zombie_attempt("checkpoint", batch=1):
            job()

    For sinks of `format("streamlog")` and functions of your own given to `foreachBatch` in the
    block; the latter is called once more as the next batch begins, so there must be one.

    Args:
        checkpoint: The query's checkpointLocation.
        batch: The batch.

    Raises:
        AssertionError: The block had no such batch, or no such sink.
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
        raise AssertionError(f"no sink that could be repeated came to batch {batch}")
    fs.remove(again.note)


class _Again(NamedTuple):
    """Which batch is attempted again, and when; the file `note` says that it was."""

    batch: int
    is_late: bool
    note: str

    def change_foreach_batch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a `foreachBatch` that takes functions and attempts them again."""

        def foreach_batch(writer: DataStreamWriter, function: _Function) -> Any:
            if not isinstance(function, BatchAppender):
                function = _RepeatingFunction(function, self)
            return original(writer, function)

        return foreach_batch

    def change_writer(self, writer: StreamWriter, root: str) -> DataSourceStreamArrowWriter:
        """Return a writer whose tasks are attempted again."""
        return _RepeatingWriter(writer, root, self)

    def append(self, appender: BatchAppender, batch_id: int, append: Callable[[], None]) -> None:
        """Append; that is one call, which a second one in the same run is refused."""
        append()

    def take_note(self) -> None:
        """Say that it happened, from whatever process."""
        LocalFileSystem().open(self.note, OpenMode.CREATE_OR_WRITE).close()


class _RepeatingWriter(DataSourceStreamArrowWriter):
    """The real writer, whose tasks have one attempt more than they report."""

    def __init__(self, writer: StreamWriter, root: str, again: _Again) -> None:
        self._writer, self._root, self._again = writer, root, again

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Stage the rows of one task, twice where the second attempt is not late."""
        if self._again.is_late or running_batch() != self._again.batch:
            return self._writer.write(iterator)
        batches = list(iterator)
        self._writer.write(iter(batches))
        self._again.take_note()
        return self._writer.write(iter(batches))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit; a zombie's file is there afterwards."""
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
    """Leave what another attempt of the task leaves: the same bytes under a name of its own."""
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
    """A function of foreachBatch that is called once more for one batch."""

    def __init__(self, function: _Function, again: _Again) -> None:
        self._function, self._again = function, again
        self._late: DataFrame | None = None

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        """Do a batch, and what is to be done again."""
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
