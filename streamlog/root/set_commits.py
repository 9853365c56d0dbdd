"""The commits of a replica set, made through the root that leads them, wherever that is.

A commit whose leader's root fails goes on at once through the next one: the new leader judges what
was prepared, so that the commit is found decided there, or is made there.

The leader must hold all partitions of a commit. If it does not, the commits move to a root that
does. An app that writes a topic without replicas concerns only the root of that topic: its commits
and its history are there, as without a replica set.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from streamlog.clock import Clock
from streamlog.commits.commit_files import CommitFiles, SourceFailedError
from streamlog.commits.commit_log import CommitLog, CommitOutcome
from streamlog.commits.decisions import Decision
from streamlog.commits.followers import elected
from streamlog.commits.identity import CommitIdentity, topic_of
from streamlog.commits.mirror import Mirror
from streamlog.commits.retirement import Chores, RetireReport, at_once
from streamlog.commits.staging import StagedFile
from streamlog.errors import (
    CorruptDataError,
    FencedError,
    FileMissingError,
    InvalidRequestError,
    NoQuorumError,
    NoReplicaOnlineError,
    NotLeaderError,
    StorageError,
    StreamLogError,
    UnavailableError,
    UnknownOutcomeError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.log_root import LogRoot
from streamlog.partition.locks import Patience
from streamlog.partition.log import Log
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.replicas import Replicas
from streamlog.replication.root_set import COMMITS, RootSet
from streamlog.root.partition_log import LedPartitionLog, OpenPartitions
from streamlog.root.placement import OpenRoot, Placement
from streamlog.root.topic_places import PlacedPartition, TopicPlaces
from streamlog.topic import TopicPartition

__all__ = ["SetCommits", "staging_roots"]

_MOVES = (NotLeaderError, StorageError, UnknownOutcomeError)
_RETURN_INTERVAL_MS: Final = 60_000.0
_UNCLEAN: Final = "accept to lose decided commits: streamlog elect --unclean --commits"
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
        self._places = TopicPlaces(roots)
        self._leading: _Leading | None = None
        self._alone: dict[int, _Alone] = {}
        self._failed: set[int] = set()

    def commit(
        self, identity: CommitIdentity, staged: Sequence[StagedFile], **how: Any
    ) -> CommitOutcome:
        """Commit staged files; see `CommitLog.commit`."""
        partitions = _partitions_of(staged)

        def work(commits: CommitLog) -> CommitOutcome:
            return commits.commit(identity, staged, **how)

        node = self._node_of(identity, partitions)
        if node is not None:
            self._collect(node, identity.app, staged)
            outcome = self._in_root(node, work)
            self._drop_copies(node, identity.app, staged)
            return outcome
        outcome = self._through_leader(work, partitions)
        if self._leading is not None:
            self._leading.bring_back_if_due()
        return outcome

    def abort(self, identity: CommitIdentity, staged: Sequence[StagedFile]) -> None:
        """Remove staged files, except those that a decision names."""
        node = self._node_of(identity, _partitions_of(staged))
        if node is not None:
            self._in_root(node, lambda commits: commits.abort(identity, staged))
            self._drop_copies(node, identity.app, staged)
        else:
            self._through_leader(lambda commits: commits.abort(identity, staged))

    def retire(self) -> RetireReport:
        """Retire all decisions."""
        self._in_home(lambda commits: commits.retire())
        return self._through_leader(lambda commits: commits.retire())

    def retire_idle(self) -> None:
        """Retire the decisions of apps that have not committed for a minute."""
        self._in_home(lambda commits: commits.retire_idle())
        self._through_leader(lambda commits: commits.retire_idle())

    def clean(self) -> int:
        """Remove staged files that no decision names."""
        return self._through_leader(lambda commits: commits.clean())

    def pending(self, partition: TopicPartition | None = None) -> list[Decision]:
        """Return the unretired decisions."""
        return self._through_leader(lambda commits: commits.pending(partition))

    def last_version(self, app: str) -> int | None:
        """Return the highest version that an app committed."""
        node = self._node_of(CommitIdentity(app, 0), ())
        if node is not None:
            return self._in_root(node, lambda commits: commits.last_version(app))
        return self._through_leader(lambda commits: commits.last_version(app))

    def bring_back(self) -> None:
        """Let roots that are back follow the commits; elect a leader if its root is offline.

        Call it before their partitions are caught up. A root that fails is logged. Commits whose
        driver died are finished or discarded, since they keep other writers out.

        Raises:
            NoReplicaOnlineError: No root that holds every decided commit is online.
            NoQuorumError: Too few roots can be reached.
        """
        state, online = self._register.read(), self._roots.online()
        is_due = state.leader not in online or not {*online} <= {*state.isr}
        leading = self._leader() if is_due or not self._is_tidy(state) else None
        if leading is not None:
            leading.tidy()

    def _is_tidy(self, state: PartitionState) -> bool:
        """Return whether all roots in sync with the commits hold the same decisions."""
        files = {node: self._files(node) for node in state.isr}
        names = files[state.leader].pending.names()
        followers = [each for node, each in files.items() if node != state.leader]
        is_taken_over = files[state.leader].epoch() == state.leader_epoch
        return is_taken_over and all(each.prepared.names() == names for each in followers)

    def close(self) -> None:
        """Close the leader's partitions."""
        leading, self._leading = self._leading, None
        alone, self._alone = self._alone, {}
        with contextlib.ExitStack() as closing:
            for each in alone.values():
                closing.callback(each.close)
            if leading is not None:
                closing.callback(leading.close)

    # ---- topics without replicas ---------------------------------------------------------------
    def _node_of(
        self, identity: CommitIdentity, partitions: Sequence[PlacedPartition]
    ) -> int | None:
        """Return the root that a commit concerns alone, None if it concerns the whole set."""
        topic = topic_of(identity.app)
        if partitions and (identity.is_anonymous or topic is not None):
            return self._places.alone(partitions)
        return None if topic is None or identity.is_anonymous else self._places.owner(topic)

    def _in_root(self, node: int, work: Callable[[CommitLog], _T]) -> _T:
        alone = self._alone.get(node)
        if alone is None:
            alone = self._alone[node] = _Alone(self._roots.root(node), self._patience, self._chores)
        try:
            return work(alone.commits)
        except StorageError:  # its handles may not be usable any more
            del self._alone[node]
            with contextlib.suppress(StreamLogError):
                alone.close()
            raise

    def _files(self, node: int) -> CommitFiles:
        return CommitFiles(self._roots.root(node), self._patience.timeout_ms)

    def _collect(self, node: int, app: str, staged: Sequence[StagedFile]) -> None:
        """Copy to a root what tasks staged in others: rows that name their topics."""
        own, files = self._files(node), [(each.name, each.size) for each in staged if each.name]
        for other in self._roots.online():
            for name, size in own.lacking(app, files) if other != node else ():
                with contextlib.suppress(SourceFailedError):
                    own.copy_staged(self._files(other), app, name, size)

    def _drop_copies(self, node: int, app: str, staged: Sequence[StagedFile]) -> None:
        """Remove the staged files of a commit that concerned one root from the others."""
        for other in self._roots.online():
            if other != node:
                with contextlib.suppress(UnavailableError):
                    self._files(other).area.remove(app, [each.name for each in staged if each.name])

    def _in_home(self, work: Callable[[CommitLog], object]) -> None:
        """Do something to the decisions of the own root's unreplicated topics."""
        node = self._roots.home_node
        if node != self._leader().node and self._roots.problem(node) is None:
            self._in_root(node, work)

    # ---- the leader ----------------------------------------------------------------------------
    def _through_leader(
        self, work: Callable[[CommitLog], _T], partitions: Sequence[PlacedPartition] = ()
    ) -> _T:
        is_caught_up = not partitions
        for _ in self._roots.node_ids:
            leading = self._leader()
            if not leading.holds(partitions):
                leading = self._move(leading, partitions)
            try:
                return work(leading.commits)
            except _MOVES as error:
                with contextlib.suppress(StreamLogError):
                    self.close()
                has_moved = self._has_moved(leading, error)
                if not has_moved and (is_caught_up or not isinstance(error, NotLeaderError)):
                    raise
                if not has_moved:  # its replica of a partition was restored from an older copy
                    is_caught_up = True
                    self._leader().catch_up([each for each, _ in partitions])
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

    def _move(self, leading: "_Leading", partitions: Sequence[PlacedPartition]) -> "_Leading":
        """Move the commits to a root that holds all partitions of one."""
        holders = self._places.common(partitions)
        if leading.node in holders:
            return leading  # what is missing does not exist any more, as the commit will report
        followers = self._register.read().isr
        to = next((node for node in holders if node in followers), None)
        if to is None:
            raise UnavailableError(
                "no log root that holds all partitions of the commit follows the commits",
                got=f"nodes {holders} hold them, nodes {list(followers)} follow the commits",
                hint="bring them in sync: streamlog replicate --once",
            )
        leading.hand_over(to)
        self.close()
        return self._leader()

    def _elected(self) -> PartitionState:
        """Return the state of the commits, after an election if the leader's root is offline."""
        self._register = self._roots.register(COMMITS)  # in all roots listed by now
        while True:
            try:
                state = self._register.read()
            except NoQuorumError as error:
                error.hint = f"bring them back, or {_UNCLEAN}"
                raise
            if state.leader not in self._failed and _is_writable(self._roots, state.leader):
                return state
            online = [node for node in state.isr if _is_writable(self._roots, node)]
            after = elected(state, online, misses=self._misses)
            if after is None:
                raise NoReplicaOnlineError(
                    "no log root that holds every decided commit is online",
                    path=self._roots.home.path,
                    got=f"nodes {online} online",
                    expected=f"one of nodes {list(state.isr)}",
                    hint=f"bring one of them back, or {_UNCLEAN}",
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

    def elect_unclean(self) -> PartitionState:
        """Elect a leader of the commits that may lack decided ones; also without a majority.

        Does nothing but take over if a root in sync can lead: that loses nothing.

        Raises:
            NoReplicaOnlineError: No root is online.
        """
        self.close()
        try:
            self._elected()
        except (NoReplicaOnlineError, NoQuorumError) as error:
            online = [node for node in self._roots.node_ids if _is_writable(self._roots, node)]
            if not online:
                raise
            state = self._register.force(partial(_forced, online))
            _logger.warning(
                "node %d leads the commits in epoch %d, elected unclean: %s",
                state.leader,
                state.leader_epoch,
                error,
            )
        self._leader().tidy()
        return self._register.read()

    def _misses(self, node: int) -> int:
        """Return how many partitions with prepared decisions a root does not hold."""
        prepared, root = self._files(node).prepared, self._roots.root(node)
        decisions = [each for each in map(prepared.load, prepared.names()) if each is not None]
        named = {part.topic_partition for each in decisions for part in each.parts}
        return sum(root.fs.stat(root.partition(each)) is None for each in named)


class _Leading:
    """The root that leads the commits, open to commit; implements `PartitionReplicas`."""

    def __init__(
        self, roots: RootSet, state: PartitionState, patience: Patience, chores: Chores
    ) -> None:
        self.node, self.epoch, self._roots = state.leader, state.leader_epoch, roots
        self._patience = patience
        home = roots.home
        self._placement = Placement(roots, clock=home.clock, random=home.random, patience=patience)
        self._opened = self._placement.root(self.node)
        self._replicas: dict[TopicPartition, Replicas] = {}
        self._tried_at_ms = 0.0
        self._places = TopicPlaces(roots)
        self._held: set[PlacedPartition] = set()
        self._mirror = mirror = Mirror(self.node, _Online(roots), roots.register(COMMITS), self)
        self._partitions = OpenPartitions(
            self._opened.root,
            patience=patience,
            enter=self._opened.enter,
            replicated=self._replicas_of,
            mirror=mirror,
        )
        self.commits = self._partitions.commit_log(open_logs=self._open_logs, chores=chores)

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

    def holds(self, partitions: Sequence[PlacedPartition]) -> bool:
        """Return whether this root holds partitions; looks up each one once."""
        for each in partitions:
            if each not in self._held:
                if not self._places.holds(self.node, each):
                    return False
                self._held.add(each)
        return True

    def hand_over(self, node: int) -> None:
        """Let another root lead the commits."""
        self._mirror.take_over(self._open_logs)
        self._mirror.hand_over(node)

    def tidy(self) -> None:
        """Finish or discard commits whose driver died."""
        self._mirror.tidy(self._open_logs)

    def bring_back_if_due(self) -> None:
        """Let roots that are back follow the commits again, at most once a minute."""
        now_ms = self._opened.root.clock.monotonic_ms()
        if now_ms - self._tried_at_ms >= _RETURN_INTERVAL_MS:
            self.bring_back()

    def bring_back(self) -> None:
        """Take over, let roots that are back, or new, follow the commits; a failure is logged."""
        self._tried_at_ms = self._opened.root.clock.monotonic_ms()
        try:
            isr = self._roots.register(COMMITS).read().isr
            away = [node for node in self._roots.online() if node not in isr]
            self._mirror.take_over(self._open_logs)
            for node in away:
                self._mirror.resync(node)
        except StreamLogError as error:
            _logger.warning("a log root does not follow the commits yet: %s", error)

    # ---- what commits ask ------------------------------------------------------------------------
    def catch_up(self, partitions: Sequence[TopicPartition]) -> Collection[TopicPartition]:
        """Get in sync with the leaders of the partitions; return those where that fails."""
        unknown = []
        for partition in partitions:
            try:
                self._get_in_sync(partition, is_believed=False)
            except UnknownTopicError:
                _logger.info("[%s] deleted meanwhile", partition)
            except StreamLogError as error:
                _logger.warning("[%s] node %d is not in sync: %s", partition, self.node, error)
                unknown.append(partition)
        return unknown

    def lead(self, partitions: Sequence[TopicPartition]) -> None:
        """Move the leadership of the partitions to this root."""
        for partition in partitions:
            state = self._get_in_sync(partition)
            if state.leader == self.node:
                continue
            isr = tuple(each for each in state.isr if _is_writable(self._roots, each))
            self._roots.register(partition).change(
                partial(_led_by, self.node, isr),
                state.partition_epoch,
            )
            _logger.info("[%s] node %d leads, as it leads the commits", partition, self.node)

    def _get_in_sync(
        self, partition: TopicPartition, *, is_believed: bool = True
    ) -> PartitionState:
        """Return the state of a partition, after it was copied to this root if that was behind.

        Args:
            partition: The partition.
            is_believed: Whether the ISR is believed; this root may have been restored from an older
                copy since.
        """
        register = self._roots.register(partition)
        state = register.read()
        if is_believed and self.node in state.isr:
            return state
        cause: StreamLogError | None = None
        if self.node in state.replicas:
            try:
                log = LedPartitionLog(self._placement, partition, config=None, owns_placement=False)
                with log:
                    state = log.catch_up_replicas()
            except StreamLogError as error:
                cause = error
            if cause is None and self.node in state.isr:
                return state
        raise UnavailableError(
            f"the root that leads the commits is not in sync with partition {partition}",
            path=self._opened.root.path,
            got=f"node {self.node}" + (f"; {cause}" if cause is not None else ""),
            expected=f"one of the ISR {list(state.isr)}",
            hint="bring the log roots of the ISR back; see them: streamlog replicas list",
        ) from cause

    def _open_logs(self, partitions: Sequence[TopicPartition]) -> Sequence[Log]:
        """Open partitions of this root.

        Raises:
            UnavailableError: One of them exists, in other roots.
        """
        try:
            return self._partitions.get(partitions)
        except UnknownTopicError:
            root = self._opened.root
            for each in partitions:
                is_there = root.fs.stat(root.partition(each)) is not None
                if is_there or root.fs.stat(root.partition_register(each)) is None:
                    continue
                if not self._roots.register(each).is_deleted():
                    raise UnavailableError(
                        f"the root that leads the commits holds no replica of {each}",
                        path=root.path,
                        got=f"node {self.node}",
                    ) from None
            raise

    def restrict(self, log: Log, members: Sequence[int]) -> None:
        """Reduce a partition's ISR to roots that follow the commits."""
        self._replicas[log.topic_partition].restrict(members)

    def settle(self, root: LogRoot, partitions: Sequence[TopicPartition]) -> None:
        """Apply and sync, in another root, its decisions for partitions that only it has."""
        alone = _Alone(root, self._patience, at_once)
        try:
            for log in alone.open_logs(partitions):
                with log.writing():
                    log.apply_decided()
                    log.sync()
        except (CorruptDataError, FencedError, InvalidRequestError) as error:
            raise UnavailableError(
                "decided records cannot be applied in a root that led the commits",
                path=root.path,
                got=str(error),
                hint=f"find the damage: streamlog verify {root.path}",
            ) from error
        finally:
            alone.close()

    def secure(self, log: Log) -> None:
        """Copy and sync everything on all replicas in sync."""
        self._replicas[log.topic_partition].secure(log)

    def close(self) -> None:
        """Close the partitions."""
        with contextlib.ExitStack() as closing:
            closing.callback(self._placement.close)
            closing.callback(self._partitions.close)


class _Alone:
    """One root of the set, open to commit to its topics without replicas."""

    def __init__(self, root: LogRoot, patience: Patience, chores: Chores) -> None:
        self._opened = opened = OpenRoot(root, patience)
        self._files = CommitFiles(root, patience.timeout_ms)
        self._partitions = OpenPartitions(root, patience=patience, enter=opened.enter)
        self.open_logs = self._partitions.get_local
        self.commits = self._partitions.commit_log(
            open_logs=self.open_logs, chores=chores, is_own=self._is_own
        )

    def _is_own(self, decision: Decision) -> bool:
        """Whether a decision is one of this root, not left from when it led the set's commits."""
        is_named = topic_of(decision.identity.app) is not None
        partitions = (part.topic_partition for part in decision.parts)
        return is_named and not any(map(self._files.is_replicated, partitions))

    def close(self) -> None:
        """Close the partitions."""
        with contextlib.ExitStack() as closing:
            closing.callback(self._opened.leave, in_order=True)
            closing.callback(self._partitions.close)


def _partitions_of(staged: Sequence[StagedFile]) -> list[PlacedPartition]:
    extents = (each for file in staged for each in file.extents)
    return list({(each.topic_partition, each.topic_id): None for each in extents})


def staging_roots(
    paths: Sequence[str],
    *,
    topic: str | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> tuple[str, ...]:
    """Return the roots in which the tasks of a commit stage, in the order to try them.

    Args:
        paths: The log root, or roots of a replica set; one of them names the others.
        topic: The topic of all rows, if it is known.
        fs: Their file system; the machine's own by default.
        clock: The clock; the machine's own by default.

    Returns:
        All roots of the set: reachable ones first, of these the one that leads the commits, then
        those in sync with it. The paths as given if they belong to no set. Only its own root for a
        topic without replicas.

    Raises:
        InvalidRequestError: One of several paths does not belong to the set of the others, or
            several roots have topics of this name.
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

    if state is None:
        return tuple(paths)  # the set has no topic with replicas yet
    owner = None if topic is None else TopicPlaces(roots).owner(topic)
    if owner is not None:
        return (roots.root(owner).path,)

    def order(node: int) -> tuple[bool, bool, bool]:
        leads, follows = state.leader == node, node in state.isr
        return node not in online, not leads, not follows

    return tuple(roots.root(node).path for node in sorted(roots.node_ids, key=order))


def _replaced(after: PartitionState, _: PartitionState) -> PartitionState:
    return after


def _forced(online: Sequence[int], state: PartitionState) -> PartitionState:
    """Return the state of an unclean election: those in sync follow, else the first one leads."""
    isr = tuple(node for node in state.isr if node in online) or tuple(online[:1])
    return replace(state.with_leader(isr[0]), isr=isr)


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
