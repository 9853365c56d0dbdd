"""Writing with `format("streamlog")`: tasks stage files, the driver commits them.

Spark creates a writer on the driver, pickles it for the tasks (`write`), creates another one on the
driver and passes it the tasks' messages (`commit`). The two share nothing but those messages. Tasks
may run more than once, and a driver may die in between; `streamlog/commits/COMMITS.md` describes
the guarantees.

Every trigger waits for `commit`. Its process usually lives on until the next trigger, but may not,
so this module imports nothing that only tasks need.
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
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.replay import ReplayRule
from streamlog.commits.staging import StagedFile
from streamlog.errors import InvalidRequestError, UnavailableError
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.query.checkpoint import QueryCheckpoint
from streamlog.spark.options import Use
from streamlog.spark.sink_commit import commit_staged, discard_staged, plan_topics
from streamlog.spark.sink_options import SinkOptions
from streamlog.spark.sink_schema import sink_schema_of
from streamlog.spark.tasks import settle, stage_plan, stage_task

if TYPE_CHECKING:
    import pyarrow as pa

    from streamlog.bucket.planned_topics import PlannedTopics

__all__ = ["BATCH_ID_PROPERTY", "QUERY_ID_PROPERTY", "batch_writer", "stream_writer"]

BATCH_ID_PROPERTY: Final = "streaming.sql.batchId"  # MicroBatchExecution.BATCH_ID_KEY
QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"  # StreamExecution.QUERY_ID_KEY
SESSION_LOCATION_PROPERTY: Final = "spark.sql.streaming.checkpointLocation"


@dataclass(frozen=True, slots=True)
class StagedRows(WriterCommitMessage):
    """A task's message to the driver.

    Attributes:
        staged: Its staged file.
        query_id: Its query; None for a batch `write`.
        session_location: The session's location for checkpoints, if set. Spark sends the settings
            of a session to tasks but not to the committing process.
        planned: The topics of its rows as it knew them, of a root in an object store.
    """

    staged: StagedFile
    query_id: str | None = None
    session_location: str | None = None
    planned: "PlannedTopics | None" = None


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> "StreamWriter":
    """Return the sink of one trigger of `writeStream`.

    Args:
        options: The options as Spark passes them.
        schema: The schema of the DataFrame.
        overwrite: True in output mode complete; each result is appended, as in Spark's Kafka sink.

    Raises:
        InvalidRequestError: An option, a column or the topic is invalid.
        CorruptCheckpointError: The query's metadata cannot be read.
        StorageError: The root cannot be read.
    """
    del overwrite
    writer = StreamWriter(SinkOptions.of(options, Use.STREAM_WRITE).placed(), schema)
    settle(os.getpid())
    return writer


def batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> "BatchWriter":
    """Return the sink of one batch `write`.

    Args:
        options: The options as Spark passes them.
        schema: The schema of the DataFrame.
        overwrite: True in save mode overwrite, which is refused.

    Raises:
        InvalidRequestError: An option, a column, the topic or the save mode is invalid.
        StorageError: The root cannot be read.
    """
    if overwrite:
        raise InvalidRequestError(
            "Save mode Overwrite not allowed for a log",
            expected="append",
            hint='df.write.format("streamlog").mode("append")',
        )
    return BatchWriter(SinkOptions.of(options, Use.BATCH_WRITE).placed(), schema)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query, each exactly once.

    Attributes:
        fs: The file system of the root; None: the machine's own. Pickled with the writer.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.fs: FileSystem | None = None
        self._options = options
        self._schema = sink_schema_of(schema, topic=options.topic)
        self._topics = _find_topics(options)
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
            topics=self._topics,
            fs=self.fs,
        )
        return StagedRows(
            staged,
            query_id,
            _find_task_property(SESSION_LOCATION_PROPERTY),
            _planned_of(staged, self._topics),
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the staged rows of all tasks, or find that they are committed."""
        reported = _first(messages)
        commit_staged(
            self._options,
            self._options.identity(reported.query_id, batchId),
            _staged_files(messages),
            rule=ReplayRule.NEXT,
            checkpoint=_find_checkpoint(self._options, reported),
            query_id=reported.query_id,
            planned=_planned(messages),
            fs=self.fs,
        )
        settle(os.getpid())

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Remove staged files, unless a commit that raised had already decided."""
        staged = _staged_files(messages)
        if staged:
            identity = self._options.identity(_first(messages).query_id, batchId)
            discard_staged(self._options, identity, staged, fs=self.fs)


class BatchWriter(DataSourceArrowWriter):
    """Writes one DataFrame atomically; with txnAppId and txnVersion, exactly once."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = sink_schema_of(schema, topic=options.topic)
        self._topics = _find_topics(options)
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
            topics=self._topics,
        )
        return StagedRows(staged, planned=_planned_of(staged, self._topics))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the staged rows of all tasks, or find that they are committed."""
        commit_staged(
            self._options,
            self._identity,
            _staged_files(messages),
            rule=ReplayRule.GREATER,
            checkpoint=None,
            planned=_planned(messages),
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove staged files, unless a commit that raised had already decided."""
        discard_staged(self._options, self._identity, _staged_files(messages))


def _find_topics(options: SinkOptions) -> "PlannedTopics | None":
    """Raise now if the topic does not exist, not when a task encodes its first row."""
    topics = plan_topics(options)
    if topics is None and options.topic is not None:
        SinkTopics(*map(LogRoot.at, options.roots)).find(options.topic)
    return topics


def _find_checkpoint(
    options: SinkOptions, reported: StagedRows | None = None
) -> QueryCheckpoint | None:
    """Return the query's checkpoint: at its option, else below the session's location."""
    fs = LocalFileSystem()
    if options.checkpoint_location is not None or reported is None or reported.query_id is None:
        return QueryCheckpoint.find(fs, options.checkpoint_location)
    if reported.session_location is None:
        return None
    return QueryCheckpoint.below(
        fs, reported.session_location, query_name=options.query_name, query_id=reported.query_id
    )


def _staged_files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    """Return the files of the finished tasks; the message of a failed task is None."""
    return [message.staged for message in messages if isinstance(message, StagedRows)]


def _planned(messages: Sequence[WriterCommitMessage | None]) -> "list[PlannedTopics]":
    """Return the topics as the tasks knew them."""
    return [
        message.planned
        for message in messages
        if isinstance(message, StagedRows) and message.planned is not None
    ]


def _planned_of(staged: StagedFile, topics: "PlannedTopics | None") -> "PlannedTopics | None":
    """Return the planned topics that a task wrote to; a new topic's rows are checked later."""
    return None if topics is None else topics.only({extent.topic for extent in staged.extents})


def _first(messages: Sequence[WriterCommitMessage | None]) -> StagedRows:
    """Return one message: all say the same of the query, and Spark runs at least one task."""
    return next(message for message in messages if isinstance(message, StagedRows))


def _find_task_property(name: str) -> str | None:
    context = TaskContext.get()
    value: str | None = None if context is None else context.getLocalProperty(name)
    return value


def _task_property(name: str) -> str:
    value = _find_task_property(name)
    if value is None:
        raise UnavailableError(
            "the query and batch of this task are unknown",
            got=f"no local property {name}",
            hint="set a checkpointLocation that the driver can read",
        )
    return value


def _stage_task(
    options: SinkOptions,
    schema: SinkSchema,
    batches: Iterator["pa.RecordBatch"],
    *,
    identity: CommitIdentity,
    has_checksum: bool,
    topics: "PlannedTopics | None",
    fs: FileSystem | None = None,
) -> StagedFile:
    plan = stage_plan(options, schema, has_checksum=has_checksum, topics=topics)
    return stage_task(plan, batches, app=identity.app, version=identity.version, fs=fs)
