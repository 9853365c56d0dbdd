"""The driver's part of a sink: committing staged files, exactly once.

A process that commits once usually commits again at the next trigger. It keeps the root open, so
that the next commit finds its partitions open; they still catch up with other writers. After any
error the root is closed, and the next commit starts from the disk.
"""

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from streamlog.bucket.places import is_bucket
from streamlog.commits.commit_log import CommitOutcome
from streamlog.commits.identity import CommitIdentity, app_key
from streamlog.commits.replay import ReplayRule
from streamlog.commits.retirement import BackgroundChores
from streamlog.commits.staging import StagedFile
from streamlog.errors import (
    CorruptCheckpointError,
    FileMissingError,
    InconsistentTopicIdError,
    StreamLogError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.partition.meta_properties import read_meta_properties
from streamlog.query.checkpoint import BatchSource, QueryCheckpoint
from streamlog.query.checkpoint_note import CheckpointNote
from streamlog.replication.root_set import RootSet
from streamlog.root.manager import LogManager
from streamlog.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    from streamlog.bucket.planned_topics import PlannedTopics
    from streamlog.maintenance.runner import Maintenance
    from streamlog.spark.bucket_sink import OpenBucket

__all__ = ["commit_staged", "discard_staged", "plan_topics"]

# Errors of an open partition whose topic was deleted, and perhaps created again.
_OTHER_TOPIC: Final = (UnknownTopicError, InconsistentTopicIdError, FileMissingError)

_MAINTENANCE_BUDGET_MS: Final = 500.0

_logger = logging.getLogger(__name__)


def commit_staged(
    options: SinkOptions,
    identity: CommitIdentity,
    staged: Sequence[StagedFile],
    *,
    rule: ReplayRule,
    checkpoint: QueryCheckpoint | None,
    query_id: str | None = None,
    planned: "Sequence[PlannedTopics]" = (),
    fs: FileSystem | None = None,
) -> CommitOutcome:
    """Commit the staged files of a batch, or find that it is committed.

    Args:
        options: The sink's options.
        identity: App and version of the commit.
        staged: The file of each task.
        rule: The versions that may follow the last one.
        checkpoint: The query's checkpoint, if it can be read. It is synced first, and names the
            source of the batch.
        query_id: The query, if its checkpoint cannot be read.
        planned: The topics of a root in an object store, as the tasks knew them.
        fs: The file system of the root; the machine's own by default. In another one the root is
            opened for this commit only.

    Returns:
        The offsets of the rows.

    Raises:
        CorruptCheckpointError: The checkpoint does not contain the batch.
        CommitMismatchError: The batch was committed from a different source, does not follow the
            last one, or the log lacks batches that the checkpoint remembers.
        StreamLogError: See `CommitLog.commit`.
    """
    source = BatchSource(None, query_id)
    paths: tuple[str, ...] = ()
    note: CheckpointNote | None = None
    if checkpoint is not None:
        source = _source_of(checkpoint, identity.version)
        paths = checkpoint.paths_to_sync(identity.version)
    with _opened(options.roots, fs) as root:
        if checkpoint is not None:
            local = fs or LocalFileSystem()
            note = _note_of(checkpoint, local, root, options.roots, identity.app)
        outcome = root.commit(
            identity,
            staged,
            options,
            planned=planned,
            rule=rule,
            source=source,
            note=note,
            sync_paths=paths,
        )
        if note is not None:
            note.remember(identity.version)
        if options.maintains:
            root.maintain()
        return outcome


def plan_topics(options: SinkOptions) -> "PlannedTopics | None":
    """Return the topics that tasks may write to in an object store; None for directories.

    Tasks look topics up in directories themselves.

    Raises:
        UnknownTopicError: There is no such root or topic.
        StorageError: The root cannot be read.
    """
    if not is_bucket(options.roots[0]):
        return None
    with _opened(options.roots, None) as root:
        assert not isinstance(root, _OpenRoot)
        return root.plan(options.topic)


def discard_staged(
    options: SinkOptions,
    identity: CommitIdentity,
    staged: Sequence[StagedFile],
    *,
    fs: FileSystem | None = None,
) -> None:
    """Remove staged files that no decision names; log a warning if that fails.

    Args:
        options: The sink's options.
        identity: App and version of the failed commit.
        staged: Its known files.
        fs: As for `commit_staged`.
    """
    if not any(file.name for file in staged):
        return
    try:
        with _opened(options.roots, fs) as root:
            root.abort(identity, staged, options)
    except StreamLogError as error:  # staged files expire
        _logger.warning("staged files of %s remain until they expire: %s", identity, error)


def _source_of(checkpoint: QueryCheckpoint, batch_id: int) -> BatchSource:
    source = checkpoint.batch_source(batch_id)
    if source is None:
        raise CorruptCheckpointError(
            f"the query's checkpoint does not contain batch {batch_id}",
            path=checkpoint.path,
            expected=f"offsets/{batch_id}",
            hint="check that the query really uses this checkpointLocation",
        )
    return source


def _note_of(
    checkpoint: QueryCheckpoint,
    fs: FileSystem,
    opened: "_OpenRoot | OpenBucket",
    roots: Sequence[str],
    app: str,
) -> CheckpointNote:
    """Return the note for a root, or for a replica set whichever of its roots are reachable."""
    root = roots[0]
    if not isinstance(opened, _OpenRoot):
        return checkpoint.note(app_key(app), directory_id=opened.root_id, place=root)
    found = RootSet.open([LogRoot.at(path, fs=fs) for path in roots]) if len(roots) > 1 else None
    if found is not None:
        directory_id: str | None = found.list.cluster_id
        root = found.list.roots[0].path  # its note from before it had replicas is found too
    else:
        meta = read_meta_properties(fs, root)
        directory_id = None if meta is None else meta.directory_id
    return checkpoint.note(app_key(app), directory_id=directory_id, place=fs.resolve(root))


class _OpenRoot:
    """A root, or a replica set, that stays open between commits."""

    def __init__(self, fs: FileSystem | None) -> None:
        self._fs = fs
        self._manager: LogManager | None = None
        self._chores = BackgroundChores()
        self._maintenance_chores = BackgroundChores()
        self._maintenance: Maintenance | None = None
        self.lock = threading.Lock()

    def commit(
        self,
        identity: CommitIdentity,
        staged: Sequence[StagedFile],
        options: SinkOptions,
        *,
        planned: "Sequence[PlannedTopics]",
        rule: ReplayRule,
        source: BatchSource,
        note: CheckpointNote | None,
        sync_paths: Sequence[str],
    ) -> CommitOutcome:
        """Commit; retry once after reopening the root if an open topic was replaced."""
        was_open = self._manager is not None
        try:
            return self._open(options).commits.commit(
                identity,
                staged,
                source=source,
                note=note,
                replay_rule=rule,
                on_mismatch=options.on_mismatch,
                sync_paths=sync_paths,
                flush_messages=options.flush_messages,
                flush_ms=options.flush_ms,
                acks=options.acks,
            )
        except BaseException as error:
            self.close()
            if not was_open or not isinstance(error, _OTHER_TOPIC):
                raise
        return self.commit(
            identity,
            staged,
            options,
            planned=planned,
            rule=rule,
            source=source,
            note=note,
            sync_paths=sync_paths,
        )

    def abort(
        self, identity: CommitIdentity, staged: Sequence[StagedFile], options: SinkOptions
    ) -> None:
        """Remove staged files that no decision names."""
        self._open(options).commits.abort(identity, staged)

    def maintain(self) -> None:
        """Start due maintenance in the background, unless it is running."""
        if self._manager is not None:
            self._maintenance_chores(partial(self._do_due, self._manager.root))

    def _do_due(self, path: str) -> None:
        from streamlog.maintenance.runner import Maintenance  # most sinks never need it

        if self._maintenance is None:
            self._maintenance = Maintenance(path, fs=self._fs)
        self._maintenance.run_due(budget_ms=_MAINTENANCE_BUDGET_MS)

    def close(self) -> None:
        """Close the root; the next commit opens it again."""
        manager, self._manager = self._manager, None
        self._chores.wait()  # they use the manager that is about to be closed
        self._maintenance_chores.wait()
        if self._maintenance is not None:
            self._maintenance.close()
            self._maintenance = None  # of a replica set, the next one may maintain another root
        if manager is not None:
            with contextlib.suppress(StreamLogError):  # of a sync: decisions are durable
                manager.close()

    def _open(self, options: SinkOptions) -> LogManager:
        if self._manager is None:
            self._manager = LogManager.open(
                options.roots,
                fs=self._fs,
                chores=self._chores,
                lock_timeout_ms=options.lock_timeout_ms,
            )
        self._manager.patience.timeout_ms = options.lock_timeout_ms
        return self._manager


class _OpenRoots:
    """The open roots of this process; a forked child starts without any."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._roots: dict[frozenset[str], _OpenRoot | OpenBucket] = {}

    @contextlib.contextmanager
    def root(self, paths: Sequence[str]) -> "Iterator[_OpenRoot | OpenBucket]":
        """Yield a root to one thread at a time."""
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._roots = os.getpid(), {}
            key = frozenset(paths)
            if key not in self._roots:
                self._roots[key] = _new(paths)
            found = self._roots[key]
        with found.lock:
            yield found

    def close(self) -> None:
        """Close all roots, at the exit of the process."""
        if self._pid == os.getpid():
            for root in self._roots.values():
                root.close()


def _new(paths: Sequence[str]) -> "_OpenRoot | OpenBucket":
    if is_bucket(paths[0]):
        from streamlog.spark.bucket_sink import OpenBucket  # most sinks have directories

        return OpenBucket(paths[0])
    return _OpenRoot(None)


_open_roots: Final = _OpenRoots()


@contextlib.contextmanager
def _opened(paths: Sequence[str], fs: FileSystem | None) -> "Iterator[_OpenRoot | OpenBucket]":
    if fs is None or is_bucket(paths[0]):
        with _open_roots.root(paths) as root:
            yield root
    else:
        with contextlib.closing(_OpenRoot(fs)) as root:
            yield root


atexit.register(_open_roots.close)
