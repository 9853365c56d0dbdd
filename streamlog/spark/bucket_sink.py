"""The driver's part of a sink whose root is in an object store.

A process keeps its roots: what they have read of the journal is behind by the entries since the
last trigger only. A commit is one entry, so nothing has to be retired, and no lock is held. What
the tasks of a failed commit staged is collected by maintenance, once no commit can name it.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from streamlog.arrow.bucket_topics import plan_topics
from streamlog.bucket.places import shared_store
from streamlog.bucket.planned_topics import PlannedTopics
from streamlog.bucket.root import BucketRoot
from streamlog.clock import Clock, SystemClock
from streamlog.commits.admission import sync_paths as sync_checkpoint
from streamlog.commits.commit_log import CommitOutcome
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.replay import ReplayRule
from streamlog.commits.retirement import BackgroundChores
from streamlog.commits.staging import StagedFile
from streamlog.errors import StreamLogError
from streamlog.fs.local import LocalFileSystem
from streamlog.query.checkpoint import BatchSource
from streamlog.query.checkpoint_note import CheckpointNote
from streamlog.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    from streamlog.maintenance.bucket_runner import BucketMaintenance

__all__ = ["OpenBucket"]

# A plan may be as old as this. A topic that was changed since is noticed by the commit.
PLAN_AGE_MS: Final = 1000
MAINTENANCE_BUDGET_MS: Final = 500.0


class OpenBucket:
    """A root in an object store that a process keeps between triggers.

    Args:
        url: Its URL.
        clock: Tells how old the known state is; the machine's own by default.

    Attributes:
        lock: Held by the thread that uses the root.
    """

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._url, self._clock = url, clock or SystemClock()
        self._root: BucketRoot | None = None
        self._refreshed_ms = -float("inf")
        self._maintenance_chores = BackgroundChores()
        self._maintenance: BucketMaintenance | None = None
        self.lock = threading.Lock()

    @property
    def root_id(self) -> str:
        """The id of the root."""
        return self._open().state.root_id

    def plan(self, topic: str | None) -> PlannedTopics:
        """Return the topics that the tasks of a trigger may write to; see `plan_topics`."""
        root = self._open()
        if self._clock.monotonic_ms() - self._refreshed_ms > PLAN_AGE_MS:
            root.refresh()
            self._refreshed_ms = self._clock.monotonic_ms()
        return plan_topics(root, topic)

    def commit(
        self,
        identity: CommitIdentity,
        staged: Sequence[StagedFile],
        options: SinkOptions,
        *,
        planned: Iterable[PlannedTopics],
        rule: ReplayRule,
        source: BatchSource,
        note: CheckpointNote | None,
        sync_paths: Sequence[str],
    ) -> CommitOutcome:
        """Commit staged objects; see `BucketCommits.commit`.

        Args:
            identity: App and version of the commit.
            staged: The object of each task.
            options: The sink's options.
            planned: The topics as the tasks knew them.
            rule: The versions that may follow the last one.
            source: The source of the batch.
            note: The checkpoint's note of the last version.
            sync_paths: Local files of the checkpoint, made durable first.
        """
        sync_checkpoint(LocalFileSystem(), sync_paths)
        try:
            outcome = self._open().commits.commit(
                identity,
                staged,
                planned=PlannedTopics.configs(planned),
                source=source,
                note=note,
                replay_rule=rule,
                on_mismatch=options.on_mismatch,
            )
        except StreamLogError:
            self.close()
            raise
        self._refreshed_ms = self._clock.monotonic_ms()
        return outcome

    def abort(
        self, identity: CommitIdentity, staged: Sequence[StagedFile], options: SinkOptions
    ) -> None:
        """Do nothing: a request that decides on these objects may still arrive."""

    def maintain(self) -> None:
        """Start due maintenance in the background, unless it is running."""
        self._maintenance_chores(self._do_due)

    def _do_due(self) -> None:
        from streamlog.maintenance.bucket_runner import BucketMaintenance  # most never need it

        if self._maintenance is None:
            root = BucketRoot(shared_store(self._url), clock=self._clock)  # of its thread alone
            root.refresh()
            self._maintenance = BucketMaintenance(root)
        self._maintenance.run_due(budget_ms=MAINTENANCE_BUDGET_MS)

    def close(self) -> None:
        """Forget the root; the next use reads it again."""
        self._maintenance_chores.wait()
        if self._maintenance is not None:
            self._maintenance.close()
            self._maintenance = None
        self._root = None
        self._refreshed_ms = -float("inf")

    def _open(self) -> BucketRoot:
        if self._root is None:
            self._root = BucketRoot(shared_store(self._url), clock=self._clock)
            self._root.refresh()
            self._refreshed_ms = self._clock.monotonic_ms()
        return self._root
