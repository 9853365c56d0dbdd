"""A term: what a commit and its retirement do to the roots that follow the commits.

Held while a root leads the commits of its replica set; see `streamlog.commits.mirror`.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence

from streamlog.commits.commit_files import CommitFiles
from streamlog.commits.decisions import DecidedFile, Decision, format_decision
from streamlog.commits.identity import app_key
from streamlog.commits.mirror import Mirror
from streamlog.errors import (
    FileExistsAlreadyError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderError,
    StorageError,
)
from streamlog.partition.log import Log
from streamlog.records.acks import Acks
from streamlog.replication.partition_state import PartitionState
from streamlog.topic import TopicPartition

__all__ = ["Term", "leading"]

_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def leading(mirror: Mirror) -> Iterator["Term"]:
    """Hold the commit files of a root while it leads the commits.

    Within, no root joins the followers. Take the lock of an app before, those of partitions after.

    Raises:
        NotLeaderError: Another root leads the commits.
        UnavailableError: It has not taken over yet, or there is no majority of roots.
    """
    with mirror.own.locked(shared=True):
        yield Term(mirror, mirror.check_leading())


class Term:
    """The leadership of a set's commits, as of one moment.

    Args:
        mirror: The leader's mirror.
        state: The state that says so.
    """

    def __init__(self, mirror: Mirror, state: PartitionState) -> None:
        self._mirror, self._followers = mirror, mirror.followers(state)

    @property
    def members(self) -> tuple[int, ...]:
        """The leader and the followers in sync."""
        return self._followers.members

    # ---- a commit ------------------------------------------------------------------------------
    def check_history(self, app: str, number: int) -> None:
        """Check that this root and its followers know the same commits of an app.

        A follower that lost some was restored from an older copy, and leaves the ISR.

        Args:
            app: The app; its lock is held.
            number: The number of its last decision known here.

        Raises:
            NotLeaderError: This root lost some itself, and has begun another term.
        """
        ahead: list[str] = []

        def check(files: CommitFiles) -> None:
            found = files.last_number(app)
            if found < number:
                raise StorageError(
                    "commit files were restored from an older copy",
                    path=files.root.path,
                    got=f"decision {found} of {app}",
                    expected=f"decision {number}",
                )
            if found > number and self._mirror.has_lost(files, app, number):
                ahead.append(f"{found} in {files.root.path}")

        self._followers.each(check)
        if ahead:
            own = self._mirror.own.root
            _logger.warning("%s was restored from an older copy, and takes over again", own.path)
            self._mirror.begin_again()
            raise NotLeaderError(
                "this root lost commits that other roots have: restored from an older copy",
                path=own.path,
                got=f"decision {number} of {app}",
                expected=f"decision {', '.join(ahead)}",
            )

    def collect(self, app: str, files: Sequence[DecidedFile]) -> None:
        """Copy to this root what tasks staged on other roots only."""
        if self._mirror.own.lacking(app, files):
            self._mirror.collect(app, files, self.members)

    def copy_staged(self, app: str, files: Sequence[DecidedFile]) -> None:
        """Make the staged files of a commit durable on all followers."""
        self._followers.each(lambda each: self._mirror.copy_staged(each, app, files))

    def lead(self, partitions: Sequence[TopicPartition]) -> None:
        """Make this root the leader of the replicated partitions of a commit."""
        mirror = self._mirror  # a topic that was deleted has no register any more
        mirror.replicas.lead([each for each in partitions if mirror.is_replicated(each)])

    def admit(self, log: Log, acks: Acks) -> None:
        """Check that enough replicas are in sync, with the partition and with the commits.

        Raises:
            NotEnoughReplicasError: Fewer than `min.insync.replicas`, and `acks` is all.
        """
        if log.is_replicated:
            self._mirror.replicas.restrict(log, self.members)
            log.check_replicas(acks)

    def secure(self, log: Log) -> None:
        """Copy and sync everything up to a log's end on all replicas in sync."""
        if log.is_replicated:
            self._mirror.replicas.secure(log)

    def prepare(self, decision: Decision) -> None:
        """Prepare a decision on all followers, durably; the locks of its partitions are held."""
        if self._mirror.own.pending.stands(decision):
            raise FileExistsAlreadyError("decision exists", path=decision.name)
        content = format_decision(decision)
        self._followers.each(lambda files: files.prepared.store(decision.name, content))

    def withdraw(self, decision: Decision) -> None:
        """Discard a prepared decision that was not made."""
        self._followers.each(lambda files: files.discard(files.prepared, [decision.name]))

    def check_committed(self, log: Log, last_offset: int, acks: Acks) -> None:
        """Check that all replicas in sync hold the records of a commit.

        Raises:
            NotEnoughReplicasAfterAppendError: They do not yet; the commit is decided.
        """
        if acks is Acks.ALL and log.is_replicated and log.high_watermark <= last_offset:
            raise NotEnoughReplicasAfterAppendError(
                "commit is decided, but too few replicas hold its records",
                path=log.path,
                offset=last_offset,
                got=f"high watermark {log.high_watermark}",
                hint="commit the same version again to wait for them",
            )

    # ---- a retirement --------------------------------------------------------------------------
    def copy_ledger(self, app: str) -> None:
        """Copy an app's ledger to all followers, durably."""
        key = app_key(app)
        ledger = self._mirror.own.ledger(key)
        if ledger is not None:
            self._followers.each(lambda files: files.store_ledger(key, ledger))

    def clear(self, app: str, decisions: Sequence[str], staged: Sequence[str]) -> None:
        """Remove retired decisions and their staged files from the followers."""

        def remove(files: CommitFiles) -> None:
            prepared = files.prepared
            for name in decisions:
                prepared.remove(name)
            files.area.remove(app, staged)

        self._followers.each(remove)

    def remove_staged(self, app: str, names: Sequence[str]) -> None:
        """Remove staged files that no decision names from the followers."""
        self._followers.each(lambda files: files.remove_unnamed(app, names))
