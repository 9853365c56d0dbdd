"""Staging the rows of one task as a durable file, or as an object in a store.

All sinks use this: tasks of `writeStream` and `write`, tasks of `foreachBatch` through
`mapInArrow`, the driver for a small batch, and `write_table`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from streamlog.arrow.bucket_topics import BucketSinkTopics
from streamlog.arrow.encoder import BatchSink, RowEncoder
from streamlog.arrow.schema import SinkSchema
from streamlog.arrow.sink_columns import SinkColumns
from streamlog.arrow.sink_topics import SinkTopics, TopicTarget
from streamlog.bucket.planned_topics import PlannedTopics
from streamlog.clock import Clock
from streamlog.commits.commit_files import CommitFiles, SourceFailedError
from streamlog.commits.fingerprint import checksum_sum
from streamlog.commits.mirror import LOCK_TIMEOUT_MS
from streamlog.commits.staging import StagedFile, Stager
from streamlog.errors import (
    InvalidRequestError,
    StorageError,
    StreamLogError,
    UnavailableError,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.records.record import CompressionType
from streamlog.replication.root_set import COMMITS, RootSet

__all__ = ["StagePlan", "stage_rows"]

# Of a task's rows, held to be staged again if its root fails; Spark runs a larger task again.
_KEPT_BYTES: Final = 32 << 20

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """The arguments of every task of a batch; small and picklable.

    Attributes:
        roots: The log root, or those of a replica set in the order to try them.
        topics: The topics of a root in an object store; None for directories.
        schema: Positions of the sink's columns.
        topic: The topic of all rows; None: the column `topic`.
        compression: The codec for topics whose `compression.type` is `producer`.
        has_checksum: Whether to compute a checksum; False for a commit that is never repeated.
    """

    roots: tuple[str, ...]
    schema: SinkSchema
    topic: str | None
    compression: CompressionType
    has_checksum: bool
    topics: PlannedTopics | None = None


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

    In a replica set the first reachable root takes it, and the roots in sync with the commits get
    copies. If that root fails, the rows are staged again in the next one.

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
        UnavailableError: The root failed after more rows than are kept to be staged again: run the
            task again.
    """
    if plan.topics is not None:
        return _stage_in_store(clock, plan, plan.topics, batches, app, version, task)
    where = [LogRoot.at(path, fs=fs, clock=clock) for path in plan.roots]
    if len(where) == 1:
        return _stage(where, plan, batches, app, version, task)
    roots = RootSet.open(where)
    if roots is None:
        raise InvalidRequestError("log roots belong to no replica set", path=where[0].path)
    nodes = {roots.root(node).path: node for node in roots.node_ids}
    rows = _Rows(batches)
    failure: StreamLogError | None = None
    for root in where:
        node = nodes[root.path]
        try:
            roots.check_online(node)
            others = [each for each in where if each is not root]
            staged = _stage([root, *others], plan, rows, app, version, task)
        except StreamLogError as error:
            if not isinstance(error, StorageError) and roots.problem(node) is None:
                raise
            _logger.warning("task %d cannot stage in node %d: %s", task, node, error)
            failure = failure or error
            rows.check_repeatable(root, error)
        else:
            _copy(roots, node, staged)
            return staged
    assert failure is not None
    raise failure


def _stage(
    roots: Sequence[LogRoot],
    plan: StagePlan,
    batches: Iterable[pa.RecordBatch],
    app: str,
    version: int,
    task: int,
) -> StagedFile:
    """Stage in the first of the roots; a topic may be in another one only."""
    root, topics = roots[0], SinkTopics(*roots)
    find_topic_id = topics.topic_id if len(roots) > 1 else None
    with Stager(root, app, version, task, find_topic_id=find_topic_id) as stager:
        return _encode(stager, topics.find, root.clock, plan, batches, start=version + task)


def _stage_in_store(
    clock: Clock,
    plan: StagePlan,
    planned: PlannedTopics,
    batches: Iterable[pa.RecordBatch],
    app: str,
    version: int,
    task: int,
) -> StagedFile:
    """Stage as one object; the topics are known, so that is the only request."""
    topics = BucketSinkTopics(plan.roots[0], planned)
    with topics.stager(app, version, task, clock) as stager:
        return _encode(stager, topics.find, clock, plan, batches, start=version + task)


class _TaskStager(BatchSink, Protocol):
    """A `Stager` or a `BucketStager`."""

    def finish(self, *, rows: int, checksum: int | None) -> StagedFile:
        """Complete the file."""
        ...


def _encode(
    stager: _TaskStager,
    find_topic: Callable[[str], TopicTarget],
    clock: Clock,
    plan: StagePlan,
    batches: Iterable[pa.RecordBatch],
    *,
    start: int,
) -> StagedFile:
    checksum = _Checksum() if plan.has_checksum else None
    encoder = RowEncoder(
        stager,
        plan.schema,
        topic=plan.topic,
        find_topic=find_topic,
        compression=plan.compression,
        start=start,
        now_ms=clock.now_ms(),
        watch=checksum.add if checksum is not None else None,
        stamps=plan.topics is not None,
    )
    for batch in batches:
        encoder.append(batch)
    encoder.flush()
    return stager.finish(rows=encoder.rows, checksum=checksum.total if checksum else None)


def _copy(roots: RootSet, node: int, staged: StagedFile) -> None:
    """Copy a staged file to the roots in sync with the commits; the driver copies what fails."""
    state = roots.register(COMMITS).peek()
    if state is None or not staged.name:
        return
    source = CommitFiles(roots.root(node), LOCK_TIMEOUT_MS)
    for other in state.isr:
        if other == node or other not in roots.node_ids:
            continue
        try:
            roots.check_online(other)
            copy = CommitFiles(roots.root(other), LOCK_TIMEOUT_MS)
            copy.copy_staged(source, staged.app, staged.name, staged.size)
        except (UnavailableError, SourceFailedError) as error:
            _logger.warning("node %d lacks staged file %s: %s", other, staged.name, error)


class _Rows:
    """The rows of a task; they can be iterated again until more than `_KEPT_BYTES` were taken."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._rest = iter(batches)
        self._taken: list[pa.RecordBatch] = []
        self._size = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from tuple(self._taken)
        for batch in self._rest:
            self._size += batch.nbytes
            if self._size <= _KEPT_BYTES:
                self._taken.append(batch)
            else:
                self._taken.clear()
            yield batch

    def check_repeatable(self, root: LogRoot, error: StreamLogError) -> None:
        """Raise if the rows cannot be staged again after a root failed."""
        if self._size > _KEPT_BYTES:
            raise UnavailableError(
                "log root failed during a task with too many rows to stage them again",
                path=root.path,
                got=f"{self._size} bytes taken; {error.sentence}",
                expected=f"at most {_KEPT_BYTES} bytes",
                hint="run the task again: another root will take its rows",
            ) from error


class _Checksum:
    """Accumulates the checksum of a task."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def add(self, columns: SinkColumns) -> None:
        """Add some rows."""
        from streamlog.arrow.checksum import checksum_rows

        self.total = checksum_sum(self.total, checksum_rows(columns))
