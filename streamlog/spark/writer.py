"""The sink of `format("streamlog")`: tasks stage files, the driver decides.

Spark makes a writer on the driver, pickles it for the tasks (`write`), makes another one on the
driver and hands it the tasks' messages (`commit`): nothing goes from one to the other but those
messages. Tasks run more than once and drivers die between the two; what holds then is said in
`streamlog/commits/COMMITS.md`.

`commit` is on the way of every trigger. Its process usually stays for the next trigger, but need
not, so this module imports nothing that only tasks need.
"""

import os
import random as random_module
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from streamlog.arrow.schema import SinkSchema
from streamlog.arrow.sink_topics import SinkTopics
from streamlog.clock import SystemClock
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.replay import ReplayRule
from streamlog.commits.staging import StagedFile
from streamlog.errors import InvalidRequestError, UnavailableError
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.query.checkpoint import QueryCheckpoint
from streamlog.spark.options import Use
from streamlog.spark.sink_commit import commit_staged, discard_staged
from streamlog.spark.sink_options import SinkOptions
from streamlog.spark.sink_schema import sink_schema_of
from streamlog.spark.tasks import settle, stage_plan, stage_task

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH_ID_PROPERTY", "QUERY_ID_PROPERTY", "batch_writer", "stream_writer"]

BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"  # MicroBatchExecution.BATCH_ID_KEY
QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"  # StreamExecution.QUERY_ID_KEY
SESSION_LOCATION_PROPERTY: Final = "spark.sql.streaming.checkpointLocation"


@dataclass(frozen=True, slots=True)
class StagedRows(WriterCommitMessage):
    """A task's message to the driver.

    Attributes:
        staged: The file it staged.
        query_id: The query it ran for, None for a batch `write`.
        session_location: The session's location for checkpoints, None for none. Spark sends a
            session's settings to tasks, and not to the process that commits.
    """

    staged: StagedFile
    query_id: str | None = None
    session_location: str | None = None


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> "StreamWriter":
    """Return the sink of one trigger of `writeStream`.

    Args:
        options: What the user set, as Spark hands it over.
        schema: The schema of the DataFrame.
        overwrite: True in output mode complete: as Spark's Kafka sink, each result is appended.

    Raises:
        InvalidRequestError: An option, a column, or the topic cannot be.
        CorruptCheckpointError: The query's metadata cannot be read.
        StorageError: The root cannot be read.
    """
    del overwrite
    writer = StreamWriter(SinkOptions.of(options, Use.STREAM_WRITE), schema)
    settle(os.getpid())
    return writer


def batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> "BatchWriter":
    """Return the sink of one batch `write`.

    Args:
        options: What the user set, as Spark hands it over.
        schema: The schema of the DataFrame.
        overwrite: True in save mode overwrite.

    Raises:
        InvalidRequestError: An option, a column, or the topic cannot be, or the mode is overwrite.
        StorageError: The root cannot be read.
    """
    if overwrite:
        raise InvalidRequestError(
            "Save mode Overwrite not allowed for a log",
            expected="append",
            hint='df.write.format("streamlog").mode("append")',
        )
    return BatchWriter(SinkOptions.of(options, Use.BATCH_WRITE), schema)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query, each exactly once.

    Attributes:
        fs: Where the root is; None for the machine's own. Pickled with the writer.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.fs: FileSystem | None = None
        self._options = options
        self._schema = sink_schema_of(schema, topic=options.topic)
        _check_topic(options)
        checkpoint = _find_checkpoint(options)
        self._query_id = checkpoint and checkpoint.query_id()

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> StagedRows:
        """Stage the rows of one task; runs on an executor."""
        query_id = self._query_id or _task_property(QUERY_ID_PROPERTY)
        identity = self._options.identity(query_id, int(_task_property(BATCH_ID_PROPERTY)))
        staged = _stage_task(
            self._options,
            self._schema,
            iterator,
            identity=identity,
            has_checksum=True,
            fs=self.fs,
        )
        return StagedRows(staged, query_id, _find_task_property(SESSION_LOCATION_PROPERTY))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make the staged rows of all tasks part of the log, or find that they are."""
        told = _first(messages)
        commit_staged(
            self._options,
            self._options.identity(told.query_id, batchId),
            _staged_files(messages),
            rule=ReplayRule.NEXT,
            checkpoint=_find_checkpoint(self._options, told),
            query_id=told.query_id,
            fs=self.fs,
        )
        settle(os.getpid())

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what was staged, unless a commit that raised had decided all the same."""
        staged = _staged_files(messages)
        if staged:
            identity = self._options.identity(_first(messages).query_id, batchId)
            discard_staged(self._options, identity, staged, fs=self.fs)


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame: atomically, and with txnAppId and txnVersion exactly once."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = sink_schema_of(schema, topic=options.topic)
        _check_topic(options)
        if options.app_id is None or options.version is None:
            self._identity = CommitIdentity.anonymous(random_module.SystemRandom())
        else:
            self._identity = options.identity(None, options.version)

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> StagedRows:
        """Stage the rows of one task; runs on an executor."""
        staged = _stage_task(
            self._options,
            self._schema,
            iterator,
            identity=self._identity,
            has_checksum=not self._identity.is_anonymous,
        )
        return StagedRows(staged)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the staged rows of all tasks part of the log, or find that they are."""
        commit_staged(
            self._options,
            self._identity,
            _staged_files(messages),
            rule=ReplayRule.GREATER,
            checkpoint=None,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what was staged, unless a commit that raised had decided all the same."""
        discard_staged(self._options, self._identity, _staged_files(messages))


def _check_topic(options: SinkOptions) -> None:
    """Find the topic now, rather than when a task meets the first row."""
    if options.topic is not None:
        SinkTopics(LocalFileSystem(), SystemClock(), options.root).find(options.topic)


def _find_checkpoint(
    options: SinkOptions, told: StagedRows | None = None
) -> QueryCheckpoint | None:
    """Return the query's checkpoint: where its option says, else below the session's location."""
    fs = LocalFileSystem()
    if options.checkpoint_location is not None or told is None or told.query_id is None:
        return QueryCheckpoint.find(fs, options.checkpoint_location)
    if told.session_location is None:
        return None
    return QueryCheckpoint.below(
        fs, told.session_location, query_name=options.query_name, query_id=told.query_id
    )


def _staged_files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    """Return the files of the tasks that have reported; a failed task leaves None."""
    return [message.staged for message in messages if isinstance(message, StagedRows)]


def _first(messages: Sequence[WriterCommitMessage | None]) -> StagedRows:
    """Return one message; what they say of the query is the same in all. Spark runs a task."""
    return next(message for message in messages if isinstance(message, StagedRows))


def _find_task_property(name: str) -> str | None:
    context = TaskContext.get()
    value: str | None = None if context is None else context.getLocalProperty(name)
    return value


def _task_property(name: str) -> str:
    value = _find_task_property(name)
    if value is None:
        raise UnavailableError(
            "Spark does not say which query and batch this task belongs to",
            got=f"no local property {name}",
            hint="set a checkpointLocation on a path that the driver can read",
        )
    return value


def _stage_task(
    options: SinkOptions,
    schema: SinkSchema,
    batches: Iterator["pa.RecordBatch"],
    *,
    identity: CommitIdentity,
    has_checksum: bool,
    fs: FileSystem | None = None,
) -> StagedFile:
    plan = stage_plan(options, schema, has_checksum=has_checksum)
    return stage_task(plan, batches, app=identity.app, version=identity.version, fs=fs)
