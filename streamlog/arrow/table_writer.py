"""`write_table`: Arrow data into a topic as one commit, without Spark.

Accepts tables and record batches of pyarrow and everything that exports an Arrow stream (pandas,
Polars, DuckDB). The rows are encoded, staged and committed like those of a batch `write` of Spark.
"""

import os
import random as random_module
from typing import Any, Protocol, overload

from streamlog.arrow.bucket_topics import plan_topics
from streamlog.arrow.sink_batches import open_rows
from streamlog.arrow.sink_topics import SinkTopics
from streamlog.arrow.stage import StagePlan, stage_rows
from streamlog.bucket.places import is_bucket, root_paths, shared_store
from streamlog.bucket.planned_topics import PlannedTopics
from streamlog.bucket.root import BucketRoot
from streamlog.clock import Clock, SystemClock
from streamlog.commits.commit_log import CommitOutcome
from streamlog.commits.identity import CommitIdentity, check_identity
from streamlog.commits.replay import ReplayRule
from streamlog.commits.staging import StagedFile
from streamlog.errors import InvalidOptionError, StreamLogError
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.records.acks import Acks
from streamlog.records.record import CompressionType
from streamlog.root.manager import LogManager
from streamlog.root.read_roots import RootPaths
from streamlog.root.set_commits import staging_roots
from streamlog.topic import check_topic_name

__all__ = ["write_table"]


@overload
def write_table(
    data: Any,
    root: RootPaths,
    topic: str | None = None,
    *,
    compression_type: str | CompressionType = ...,
    txn_app_id: str | None = ...,
    txn_version: int | None = ...,
    on_replay_mismatch: str = ...,
    acks: str | int | Acks = ...,
    fs: FileSystem | None = ...,
    clock: Clock | None = ...,
) -> CommitOutcome: ...


@overload
def write_table(
    data: RootPaths,
    root: str | None,
    topic: Any,
    *,
    compression_type: str | CompressionType = ...,
    txn_app_id: str | None = ...,
    txn_version: int | None = ...,
    on_replay_mismatch: str = ...,
    acks: str | int | Acks = ...,
    fs: FileSystem | None = ...,
    clock: Clock | None = ...,
) -> CommitOutcome: ...


def write_table(
    data: Any,
    root: Any,
    topic: Any = None,
    *,
    compression_type: str | CompressionType = CompressionType.NONE,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    on_replay_mismatch: str = "fail",
    acks: str | int | Acks = Acks.ALL,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> CommitOutcome:
    """Append all rows to a topic as one commit: atomically, and durable on return.

    The columns are those of the Spark sink: `value` (text or bytes; required), `key` (text or
    bytes), `headers`, `partition`, `timestamp` (with a time zone; null or absent: the time of
    this call), and `topic` unless the argument is given. `offset` and `timestampType` of
    `read_table` are ignored; any other column is an error. The partition of a row is that of the
    column, else murmur2 of its key as in Kafka's Java client, else the same for about a batch of
    rows. The order `write_table(root, topic, data)` is accepted as well: a path is no data.

    Args:
        data: A pyarrow Table, RecordBatch or RecordBatchReader, an iterable of record batches, or
            any object with `__arrow_c_stream__`. It may be larger than memory.
        root: The log root, also in an object store (`s3://BUCKET/PATH` …); or roots of a replica
            set, as a list or separated by commas.
        topic: The topic of all rows; None: the column `topic`.
        compression_type: `none`, `gzip`, `snappy`, `lz4` or `zstd`, if the topic's
            `compression.type` is `producer`.
        txn_app_id: Name of the writer. With `txn_version` the write is idempotent: repeating it
            with the same app, version and topic has no effect.
        txn_version: Number of the write, higher than that of the writer's last one.
        on_replay_mismatch: Handling of a known version with different rows: `fail`, `skip` or
            `append`.
        acks: Whether to wait until all replicas in sync hold the rows (`all`) or not (0, 1). The
            commit is durable on the roots in sync in either case.
        fs: The file system; the machine's own by default.
        clock: Gives the timestamp; the machine's own by default.

    Returns:
        The offsets of the rows by partition (`parts`), and whether an earlier call had written
        them (`is_replay`).

    Raises:
        InvalidRequestError: A column or a row that the sink or the topic does not accept; nothing
            was written.
        UnknownTopicError: There is no such root, topic or partition; nothing was written.
        CommitMismatchError: The version is known with different rows, or not above the last one.
        UnknownOutcomeError: The commit may have succeeded; with `txn_app_id`, repeat the call.
        UnavailableError: A lock or the disk is not available.

    Source: `KafkaWriter` of Spark for the columns; the protocol is COMMITS.md.
    """
    if _is_path(data):
        data, root, topic = topic, data, root
    fs, clock, level = fs or LocalFileSystem(), clock or SystemClock(), Acks.of(acks)
    if topic is not None:
        check_topic_name(topic)
    place = _place(root_paths(root, fs), topic, fs, clock)  # fails before the first row is read
    identity = _identity(txn_app_id, txn_version, topic)
    rows = open_rows(data, topic)
    plan = StagePlan(
        roots=place.roots,
        schema=rows.schema,
        topic=topic,
        compression=CompressionType.of(compression_type),
        has_checksum=not identity.is_anonymous,
        topics=place.topics,
    )
    staged = stage_rows(
        fs, clock, plan, rows.pieces, app=identity.app, version=identity.version, task=0
    )
    return place.commit(identity, staged, on_replay_mismatch, level)


def _is_path(data: object) -> bool:
    """Return whether an argument names log roots."""
    if isinstance(data, list | tuple) and data:
        return all(map(_is_path, data))
    return isinstance(data, str | os.PathLike)


class _Place(Protocol):
    """Where rows are written to; `topics` are those of a root in an object store."""

    roots: tuple[str, ...]
    topics: PlannedTopics | None

    def commit(
        self, identity: CommitIdentity, staged: StagedFile, on_mismatch: str, acks: Acks
    ) -> CommitOutcome:
        """Commit a staged file."""
        ...


def _place(paths: tuple[str, ...], topic: str | None, fs: FileSystem, clock: Clock) -> _Place:
    """Return the place of rows, after checking that the topic exists."""
    if is_bucket(paths[0]):
        return _Bucket(paths[0], topic, clock)
    return _Directories(paths, topic, fs, clock)


class _Directories:
    """A root in a directory, or a replica set."""

    def __init__(
        self, paths: tuple[str, ...], topic: str | None, fs: FileSystem, clock: Clock
    ) -> None:
        self.roots = staging_roots(paths, topic=topic, fs=fs, clock=clock)
        self.topics: PlannedTopics | None = None
        self._fs, self._clock = fs, clock
        if topic is not None:
            SinkTopics(*(LogRoot.at(path, fs=fs, clock=clock) for path in self.roots)).find(topic)

    def commit(
        self, identity: CommitIdentity, staged: StagedFile, on_mismatch: str, acks: Acks
    ) -> CommitOutcome:
        """Commit a staged file."""
        with LogManager.open(self.roots, fs=self._fs, clock=self._clock) as manager:
            try:
                return manager.commits.commit(
                    identity,
                    [staged],
                    replay_rule=ReplayRule.GREATER,
                    on_mismatch=on_mismatch,
                    acks=acks,
                )
            except StreamLogError:
                _discard(manager, identity, staged)
                raise


class _Bucket:
    """A root in an object store, where every commit is durable with any `acks`."""

    def __init__(self, url: str, topic: str | None, clock: Clock) -> None:
        self.roots: tuple[str, ...] = (url,)
        self._root = BucketRoot(shared_store(url), clock=clock)
        self._root.refresh()
        self.topics: PlannedTopics | None = plan_topics(self._root, topic)

    def commit(
        self, identity: CommitIdentity, staged: StagedFile, on_mismatch: str, acks: Acks
    ) -> CommitOutcome:
        """Commit a staged object; without a commit it is collected later."""
        del acks
        return self._root.commits.commit(
            identity,
            [staged],
            planned=PlannedTopics.configs([self.topics] if self.topics else []),
            replay_rule=ReplayRule.GREATER,
            on_mismatch=on_mismatch,
        )


def _identity(app: str | None, version: int | None, topic: str | None) -> CommitIdentity:
    if (app is None) != (version is None):
        raise InvalidOptionError(
            "txn_app_id and txn_version belong together",
            got=f"txn_app_id={app!r}, txn_version={version!r}",
            expected="both or neither",
        )
    if app is None or version is None:
        return CommitIdentity.anonymous(random_module.SystemRandom())
    identity = CommitIdentity.of(txn_app_id=app, query_id=None, topic=topic, version=version)
    check_identity(identity)
    return identity


def _discard(manager: LogManager, identity: CommitIdentity, staged: StagedFile) -> None:
    """Remove a staged file unless a decision names it; if that fails, it expires."""
    if staged.name:
        try:
            manager.commits.abort(identity, [staged])
        except StreamLogError:
            return
