"""`append_batch`: the sink for `foreachBatch`, exactly once like `writeStream`.

A small batch is collected and staged by the driver, without a Python worker: the shortest possible
trigger. Any other batch is staged by its tasks through `mapInArrow`. The size of the previous batch
only decides which way is tried first: `streamlog.spark.small_batch` limits what the driver
collects, and a batch that turns out to be large runs again in tasks. The first batch of a run,
which may be a backlog, always runs in tasks.
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from streamlog.arrow.stage import StagePlan
from streamlog.bucket.places import is_bucket
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.replay import ReplayRule
from streamlog.commits.staging import StagedExtent, StagedFile
from streamlog.errors import InvalidOptionError, InvalidRequestError
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.query.checkpoint import QueryCheckpoint
from streamlog.root.read_roots import RootPaths
from streamlog.spark.options import Use
from streamlog.spark.sink_commit import commit_staged, discard_staged, plan_topics
from streamlog.spark.sink_options import SinkOptions
from streamlog.spark.sink_schema import sink_schema_of
from streamlog.spark.small_batch import MAX_BYTES, MAX_ROWS, collect_small
from streamlog.spark.tasks import stage_plan, stage_task
from streamlog.spark.writer import BATCH_ID_PROPERTY, QUERY_ID_PROPERTY

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["BatchAppender", "append_batch"]

_STAGED_COLUMN: Final = "staged"
_WHOLE_NUMBERS: Final = frozenset({"flush.messages", "flush.ms", "lock.timeout.ms"})


def append_batch(
    root: RootPaths,
    topic: str | None = None,
    checkpoint: str | None = None,
    *,
    txn_app_id: str | None = None,
    compression_type: str | None = None,
    acks: str | int | None = None,
    flush_messages: int | None = None,
    flush_ms: int | None = None,
    lock_timeout_ms: int | None = None,
    on_replay_mismatch: str | None = None,
    maintenance: str | None = None,
) -> "BatchAppender":
    """Return a function for `foreachBatch` that appends each batch exactly once.

    Pass it to Spark, `df.writeStream.foreachBatch(append_batch("/data/log", topic="out"))`, or call
    it from another function with a DataFrame and the id of the batch.

    Args:
        root: The log root; or roots of a replica set, as a list or separated by commas.
        topic: The topic of all rows; None: the column `topic`.
        checkpoint: The query's checkpointLocation; None: that of the running query.
        txn_app_id: Name of the writer; None: the query's id. If a function appends several
            DataFrames of one batch to one topic, each needs a name of its own.
        compression_type: none (default), gzip, snappy, lz4 or zstd.
        acks: Whether to wait until all replicas in sync hold the rows: all (default), 1 or 0.
        flush_messages: Overrides the topic's `flush.messages`.
        flush_ms: Overrides the topic's `flush.ms`.
        lock_timeout_ms: Maximum wait for other writers; 10 minutes by default.
        on_replay_mismatch: Handling of a repeated batch with different rows: fail (default), skip
            or append.
        maintenance: auto maintains the root between triggers; off by default.

    Raises:
        InvalidOptionError: An argument is invalid.
        InvalidTopicError: Not a valid topic name.
    """
    given = {
        "path": str(root) if isinstance(root, str | os.PathLike) else ",".join(map(str, root)),
        "topic": topic,
        "checkpointLocation": None if checkpoint is None else str(checkpoint),
        "txnAppId": txn_app_id,
        "kafka.compression.type": compression_type,
        "kafka.acks": str(acks) if isinstance(acks, int) else acks,
        "flush.messages": flush_messages,
        "flush.ms": flush_ms,
        "lock.timeout.ms": lock_timeout_ms,
        "onReplayMismatch": on_replay_mismatch,
        "maintenance": maintenance,
    }
    _check_types(given)
    options = {name: str(value) for name, value in given.items() if value is not None}
    return BatchAppender(SinkOptions.of(options, Use.STREAM_WRITE))


def _check_types(given: Mapping[str, object]) -> None:
    """Refuse a topic 5 now, before the first batch fails because there is no topic '5'."""
    for name, value in given.items():
        expected = int if name in _WHOLE_NUMBERS else str
        if value is not None and type(value) is not expected:
            raise InvalidOptionError(
                f"append_batch: wrong type for {name}",
                got=repr(value),
                expected=expected.__name__,
            )


class BatchAppender:
    """Appends the micro-batches of one query; see `append_batch`.

    Attributes:
        fs: The file system of the driver; None: the machine's own.
    """

    def __init__(self, options: SinkOptions) -> None:
        self.fs: FileSystem | None = None
        self._options = options
        self._is_small = False

    def __reduce__(self) -> NoReturn:
        """Refuse pickling, by which Spark Connect sends the functions of foreachBatch elsewhere."""
        raise _in_spark_connect()

    def __call__(self, df: "DataFrame", batch_id: int) -> None:
        """Append a batch, or find that it was appended.

        Args:
            df: The rows, with the columns of Spark's Kafka sink.
            batch_id: The batch's id, as Spark passes it.

        Raises:
            InvalidRequestError: An invalid column or row, an unknown topic, or a second append of
                one app in one batch.
            CommitMismatchError: The batch was appended before, from a different source.
            UnavailableError: A lock or the disk is not available; nothing was decided.
        """
        query = _RunningQuery.of(df)
        if self._options.app_id is None:
            query.require_id()
        identity = self._options.identity(query.query_id, batch_id)
        options = self._options.placed()
        _appends.refuse_second(options.roots, identity, query.run_id)
        checkpoint = QueryCheckpoint.find(
            LocalFileSystem(), self._options.checkpoint_location or query.checkpoint_location
        )
        plan = stage_plan(
            options,
            sink_schema_of(df.schema, topic=self._options.topic),
            has_checksum=True,
            topics=plan_topics(options),
        )
        staged = self._stage(df, plan, identity)
        try:
            commit_staged(
                options,
                identity,
                staged,
                rule=ReplayRule.GREATER,
                checkpoint=checkpoint,
                query_id=query.query_id,
                planned=[] if plan.topics is None else [plan.topics],
                fs=self.fs,
            )
        except BaseException:
            discard_staged(options, identity, staged, fs=self.fs)
            raise
        _appends.add(options.roots, identity, query.run_id)
        rows, size = sum(file.rows for file in staged), sum(file.size for file in staged)
        self._is_small = rows <= MAX_ROWS and size <= MAX_BYTES

    def _stage(
        self, df: "DataFrame", plan: StagePlan, identity: CommitIdentity
    ) -> list[StagedFile]:
        if self._is_small:
            table = collect_small(df, plan.schema)
            if table is not None:
                packed = replace(plan, schema=plan.schema.packed())
                return [_stage_here(table.to_batches(), packed, identity, self.fs)]
        return _stage_in_tasks(df, plan, identity)


def _stage_here(
    batches: "list[pa.RecordBatch]",
    plan: StagePlan,
    identity: CommitIdentity,
    fs: FileSystem | None,
) -> StagedFile:
    return stage_task(plan, batches, app=identity.app, version=identity.version, fs=fs)


def _stage_in_tasks(df: "DataFrame", plan: StagePlan, identity: CommitIdentity) -> list[StagedFile]:
    stage = partial(_stage_task, plan, identity.app, identity.version)
    rows = df.mapInArrow(stage, f"{_STAGED_COLUMN} string").collect()
    return [_parse_staged(row[_STAGED_COLUMN]) for row in rows]


def _stage_task(
    plan: StagePlan, app: str, version: int, batches: "Iterator[pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    """Stage the rows of a task of `mapInArrow`, and yield one row that names the staged file."""
    import pyarrow as pa

    staged = stage_task(plan, batches, app=app, version=version)
    yield pa.RecordBatch.from_pylist([{_STAGED_COLUMN: json.dumps(staged)}])


def _parse_staged(text: str) -> StagedFile:
    staged = StagedFile(*json.loads(text))
    return staged._replace(extents=tuple(StagedExtent(*extent) for extent in staged.extents))


# ---- the calling query -----------------------------------------------------------------------
def _in_spark_connect() -> InvalidRequestError:
    """Return the error for a session of Spark Connect.

    Its server runs functions of foreachBatch in a process without access to the query and its run
    id, which distinguishes a repeated batch from a second append.
    """
    return InvalidRequestError(
        "append_batch does not work in Spark Connect",
        expected="a session that runs in this process",
        hint='df.writeStream.format("streamlog"), which does',
    )


class _RunningQuery(NamedTuple):
    """The streaming query that runs the current batch; all None outside of a query.

    Attributes:
        query_id: Its id, which survives restarts.
        run_id: The id of its current run.
        checkpoint_location: Its checkpoint location, as Spark resolved it.
    """

    query_id: str | None
    run_id: str | None
    checkpoint_location: str | None

    @classmethod
    def of(cls, df: "DataFrame") -> "_RunningQuery":
        """Return the calling query.

        Only its id comes from the properties of the thread; everything else comes from the query
        object that Spark keeps under that id. The job group is the run's id too, but a function
        may set another job group. The DataFrame's session is a copy of the session that started
        the query, so the query is only found in the state that all sessions share.

        Raises:
            InvalidRequestError: The query of this thread no longer runs, or the session is one of
                Spark Connect.
        """
        if not hasattr(df.sparkSession, "_jsparkSession"):
            raise _in_spark_connect()
        context = df.sparkSession.sparkContext
        query_id = context.getLocalProperty(QUERY_ID_PROPERTY)
        if query_id is None or context.getLocalProperty(BATCH_ID_PROPERTY) is None:
            return cls(None, None, None)
        session: Any = df.sparkSession
        jvm_id = session._jvm.java.util.UUID.fromString(query_id)
        query = session._jsparkSession.sharedState().activeStreamingQueries().get(jvm_id)
        if query is None:
            raise InvalidRequestError(
                "append_batch was called for a query that is not running",
                got=f"{QUERY_ID_PROPERTY}={query_id}",
                expected="a call within a batch of a running query",
            )
        return cls(query_id, str(query.runId()), str(query.resolvedCheckpointRoot()))

    def require_id(self) -> str:
        """Return the query's id.

        Raises:
            InvalidRequestError: The call is outside of a query.
        """
        if self.query_id is None:
            raise InvalidRequestError(
                "append_batch was called outside of foreachBatch without a name for the writer",
                expected="a query, or txn_app_id",
                hint='append_batch(root, topic="out", txn_app_id="daily-load")',
            )
        return self.query_id


class _Appends:
    """The last append of each app in this process, by root, run and batch.

    Spark never passes a batch twice within one run. A second append with the same identity (two
    DataFrames, one app) would be mistaken for a replay of the first, and lost.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[frozenset[str], str], tuple[str, int]] = {}
        self._lock = threading.Lock()

    def refuse_second(
        self, roots: Sequence[str], identity: CommitIdentity, run_id: str | None
    ) -> None:
        """Raise if the app has already appended to this root in this batch of this run."""
        key = (frozenset(map(_place, roots)), identity.app)
        with self._lock:
            is_second = run_id is not None and self._last.get(key) == (run_id, identity.version)
        if is_second:
            raise InvalidRequestError(
                f"batch {identity.version} was already appended by {identity.app!r} in this run",
                expected="one append per app, topic and batch",
                hint="pass a different txn_app_id to each append_batch of the function",
            )

    def add(self, roots: Sequence[str], identity: CommitIdentity, run_id: str | None) -> None:
        """Record an append."""
        if run_id is not None:
            with self._lock:
                key = (frozenset(map(_place, roots)), identity.app)
                self._last[key] = (run_id, identity.version)


def _place(root: str) -> str:
    return root if is_bucket(root) else os.path.realpath(root)


_appends: Final = _Appends()
