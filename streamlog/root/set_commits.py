"""The commits of a replica set, made through the root that leads them, wherever that is.

A commit whose leader's root fails goes on at once through the next one: the new leader judges what
was prepared, so that the commit is found decided there, or is made there.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from streamlog.clock import Clock
from streamlog.commits.commit_log import CommitLog, CommitOutcome
from streamlog.commits.decisions import Decision
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.mirror import Mirror, elected
from streamlog.commits.retirement import Chores, RetireReport
from streamlog.commits.staging import StagedFile
from streamlog.errors import (
    FencedError,
    FileMissingError,
    NoReplicaOnlineError,
    NotLeaderError,
    StorageError,
    StreamLogError,
    UnavailableError,
    UnknownOutcomeError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.log_root import LogRoot
from streamlog.partition.locks import Patience
from streamlog.partition.log import Log
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.replicas import Replicas
from streamlog.replication.root_set import COMMITS, RootSet
from streamlog.root.partition_log import OpenPartitions
from streamlog.root.placement import Placement
from streamlog.topic import TopicPartition

__all__ = ["SetCommits", "staging_roots"]

_MOVES = (NotLeaderError, StorageError, UnknownOutcomeError)
_RETURN_INTERVAL_MS: Final = 60_000.0
_T = TypeVar("_T")

_logger = logging.getLogger(__name__)


class SetCommits:
    """The commits of a replica set; the methods are those of `CommitLog`.

    Args:
        roots: The replica set.
        patience: How long to wait for other writers.
        chores: Runs the work that commits leave behind.
    """

    def __init__(self, roots: RootSet, *, patience: Patience, chores: Chores) -> None:
        self._roots, self._patience, self._chores = roots, patience, chores
        self._register = roots.register(COMMITS)
        self._leading: _Leading | None = None
        self._failed: set[int] = set()

    def commit(
        self, identity: CommitIdentity, staged: Sequence[StagedFile], **how: Any
    ) -> CommitOutcome:
        """Commit staged files; see `CommitLog.commit`."""
        outcome = self._through_leader(lambda commits: commits.commit(identity, staged, **how))
        if self._leading is not None:
            self._leading.bring_back_if_due()
        return outcome

    def abort(self, identity: CommitIdentity, staged: Sequence[StagedFile]) -> None:
        """Remove staged files, except those that a decision names."""
        self._through_leader(lambda commits: commits.abort(identity, staged))

    def retire(self) -> RetireReport:
        """Retire all decisions."""
        return self._through_leader(lambda commits: commits.retire())

    def retire_idle(self) -> None:
        """Retire the decisions of apps that have not committed for a minute."""
        self._through_leader(lambda commits: commits.retire_idle())

    def clean(self) -> int:
        """Remove staged files that no decision names."""
        return self._through_leader(lambda commits: commits.clean())

    def pending(self, partition: TopicPartition | None = None) -> list[Decision]:
        """Return the unretired decisions."""
        return self._through_leader(lambda commits: commits.pending(partition))

    def last_version(self, app: str) -> int | None:
        """Return the highest version that an app committed."""
        return self._through_leader(lambda commits: commits.last_version(app))

    def close(self) -> None:
        """Close the leader's partitions."""
        leading, self._leading = self._leading, None
        if leading is not None:
            leading.close()

    # ---- the leader ----------------------------------------------------------------------------
    def _through_leader(self, work: Callable[[CommitLog], _T]) -> _T:
        for _ in self._roots.node_ids:
            leading = self._leader()
            try:
                return work(leading.commits)
            except _MOVES as error:
                with contextlib.suppress(StreamLogError):
                    self.close()
                if not self._has_moved(leading, error):
                    raise
                failure = error
        raise failure

    def _has_moved(self, leading: "_Leading", error: StreamLogError) -> bool:
        """Whether another root may lead now: the leader's root is gone, or was replaced."""
        if not _is_writable(self._roots, leading.node):
            _logger.warning("node %d does not lead the commits any more: %s", leading.node, error)
            self._failed.add(leading.node)
            return True
        state = self._register.read()
        return (state.leader, state.leader_epoch) != (leading.node, leading.epoch)

    def _leader(self) -> "_Leading":
        if self._leading is None:
            state = self._elected()
            self._leading = _Leading(self._roots, state, self._patience, self._chores)
            self._leading.bring_back()
        return self._leading

    def _elected(self) -> PartitionState:
        """Return the state of the commits, after an election if the leader's root is offline."""
        while True:
            state = self._register.read()
            if state.leader not in self._failed and _is_writable(self._roots, state.leader):
                return state
            online = [node for node in state.isr if _is_writable(self._roots, node)]
            after = elected(state, online)
            if after is None:
                raise NoReplicaOnlineError(
                    "no log root that holds every decided commit is online",
                    path=self._roots.home.path,
                    got=f"nodes {online} online",
                    expected=f"one of nodes {list(state.isr)}",
                )
            with contextlib.suppress(FencedError):  # another process was faster
                decided = self._register.change(partial(_replaced, after), state.partition_epoch)
                _logger.warning(
                    "node %d leads the commits in epoch %d; before: node %d",
                    decided.leader,
                    decided.leader_epoch,
                    state.leader,
                )
                return decided


class _Leading:
    """The root that leads the commits, open to commit; implements `PartitionReplicas`."""

    def __init__(
        self, roots: RootSet, state: PartitionState, patience: Patience, chores: Chores
    ) -> None:
        self.node, self.epoch, self._roots = state.leader, state.leader_epoch, roots
        home = roots.home
        self._placement = Placement(roots, clock=home.clock, random=home.random, patience=patience)
        self._opened = self._placement.root(self.node)
        self._replicas: dict[TopicPartition, Replicas] = {}
        self._tried_at_ms = 0.0
        self._mirror = mirror = Mirror(self.node, _Online(roots), roots.register(COMMITS), self)
        self._partitions = OpenPartitions(
            self._opened.root,
            patience=patience,
            enter=self._opened.enter,
            replicated=self._replicas_of,
            mirror=mirror,
        )
        self.commits = self._partitions.commit_log(open_logs=self._partitions.get, chores=chores)

    def _replicas_of(self, partition: TopicPartition) -> Replicas | None:
        root = self._opened.root
        if root.fs.stat(root.partition_register(partition)) is None:
            return None
        state = self._roots.register(partition).read()
        replicas = Replicas(
            self.node,
            partition,
            topic_id=state.topic_id,
            roots=self._placement,
            clock=root.clock,
            random=root.random,
            copies=self._placement.copies,
            lag_time_max_ms=self._opened.server.load().replica_lag_time_max_ms,
        )
        self._replicas[partition] = replicas
        return replicas

    def bring_back_if_due(self) -> None:
        """Let roots that are back follow the commits again, at most once a minute."""
        now_ms = self._opened.root.clock.monotonic_ms()
        if now_ms - self._tried_at_ms >= _RETURN_INTERVAL_MS:
            self.bring_back()

    def bring_back(self) -> None:
        """Let roots that are back, or new, follow the commits; a failure is logged."""
        self._tried_at_ms = self._opened.root.clock.monotonic_ms()
        try:
            isr = self._roots.register(COMMITS).read().isr
            away = [node for node in self._roots.online() if node not in isr]
            if away:
                self._mirror.take_over(self._partitions.get)
            for node in away:
                self._mirror.resync(node)
        except StreamLogError as error:
            _logger.warning("a log root does not follow the commits yet: %s", error)

    # ---- what commits ask ------------------------------------------------------------------------
    def catch_up(self, partitions: Sequence[TopicPartition]) -> None:
        """Refuse partitions whose ISR does not contain this root."""
        for partition in partitions:
            self._check_in_sync(partition, self._roots.register(partition).read())

    def lead(self, partitions: Sequence[TopicPartition]) -> None:
        """Move the leadership of the partitions to this root."""
        for partition in partitions:
            register = self._roots.register(partition)
            state = register.read()
            if state.leader == self.node:
                continue
            self._check_in_sync(partition, state)
            isr = tuple(each for each in state.isr if _is_writable(self._roots, each))
            register.change(
                partial(_led_by, self.node, isr),
                state.partition_epoch,
            )
            _logger.info("[%s] node %d leads, as it leads the commits", partition, self.node)

    def _check_in_sync(self, partition: TopicPartition, state: PartitionState) -> None:
        if self.node not in state.isr:
            raise UnavailableError(
                f"the root that leads the commits is not in sync with partition {partition}",
                path=self._opened.root.path,
                got=f"node {self.node}",
                expected=f"one of the ISR {list(state.isr)}",
                hint="wait until it has caught up: streamlog replicate --once",
            )

    def restrict(self, log: Log, members: Sequence[int]) -> None:
        """Reduce a partition's ISR to roots that follow the commits."""
        self._replicas[log.topic_partition].restrict(members)

    def secure(self, log: Log) -> None:
        """Copy and sync everything on all replicas in sync."""
        self._replicas[log.topic_partition].secure(log)

    def close(self) -> None:
        """Close the partitions."""
        with contextlib.ExitStack() as closing:
            closing.callback(self._placement.close)
            closing.callback(self._partitions.close)


def staging_roots(
    paths: Sequence[str], *, fs: FileSystem | None = None, clock: Clock | None = None
) -> tuple[str, ...]:
    """Return the roots in which the tasks of a commit stage, in the order to try them.

    Args:
        paths: The log root, or roots of a replica set; one of them names the others.
        fs: Their file system; the machine's own by default.
        clock: The clock; the machine's own by default.

    Returns:
        All roots of the set: reachable ones first, of these the one that leads the commits, then
        those in sync with it. The paths as given if they belong to no set.

    Raises:
        InvalidRequestError: One of several paths does not belong to the set of the others.
        UnavailableError: None of several roots can be read.
    """
    try:
        roots = RootSet.open([LogRoot.at(path, fs=fs, clock=clock) for path in paths])
    except UnavailableError:
        if len(paths) > 1:
            raise
        roots = None
    if roots is None:
        return tuple(paths)
    state, online = roots.register(COMMITS).peek(), roots.online()

    def order(node: int) -> tuple[bool, bool, bool]:
        leads, follows = state and state.leader == node, state and node in state.isr
        return node not in online, not leads, not follows

    return tuple(roots.root(node).path for node in sorted(roots.node_ids, key=order))


def _replaced(after: PartitionState, _: PartitionState) -> PartitionState:
    return after


def _led_by(node: int, isr: tuple[int, ...], state: PartitionState) -> PartitionState:
    return replace(state.with_leader(node), isr=isr)


class _Online(Mapping[int, LogRoot]):
    """The roots that are online, looked up at each use."""

    def __init__(self, roots: RootSet) -> None:
        self._roots = roots

    def __getitem__(self, node: int) -> LogRoot:
        if self._roots.problem(node) is not None:
            raise KeyError(node)
        return self._roots.root(node)

    def __iter__(self) -> Iterator[int]:
        return iter(self._roots.online())

    def __len__(self) -> int:
        return len(self._roots.online())


def _is_writable(roots: RootSet, node: int) -> bool:
    """Whether a root is online and takes writes; creates and removes a file."""
    if roots.problem(node) is not None:
        return False
    root = roots.root(node)
    path = root.probe()
    try:
        with root.fs.open(path, OpenMode.CREATE) as file:
            file.pwrite(b"probe\n", 0)
            file.sync()
        with contextlib.suppress(FileMissingError):
            root.fs.remove(path)
    except StorageError:
        return False
    return True
