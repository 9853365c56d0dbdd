"""Mirror: the commit files of a replica set's leader, kept on the roots in sync with it.

One root leads the commits of a set: K, the leader of the register `commits`. The other roots in its
ISR are its followers. They hold everything that it takes to continue without K's disk:

    staged files   copied before the decision, by the task or by the driver
    decisions      *prepared* on each follower before K decides by linking its own
    ledgers        copied before prepared decisions are removed

A follower never applies a prepared decision: its records arrive by replication. Only a root that
starts to lead judges them (`takeover.py`). A follower that fails leaves the ISR of `commits` before
the next decision, and returns by `Mirror.resync`. `COMMITS.md`, "Several roots", has the table of
states.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from streamlog.commits.commit_files import NO_EPOCH, CommitFiles, SourceFailedError
from streamlog.commits.decisions import DecidedFile, Decision, format_decision, parse_decision
from streamlog.commits.history import owner_of
from streamlog.commits.identity import app_key, topic_of
from streamlog.commits.pending import PendingDecisions, decision_number
from streamlog.commits.takeover import Fate, LocalLogs, judge_prepared
from streamlog.errors import (
    CorruptCheckpointError,
    FencedError,
    FileExistsAlreadyError,
    LockTimeoutError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderError,
    StorageError,
    StreamLogError,
    UnavailableError,
)
from streamlog.fs.files import make_directories
from streamlog.fs.log_root import LogRoot
from streamlog.partition.log import Log
from streamlog.records.acks import Acks
from streamlog.replication.partition_state import PartitionState
from streamlog.topic import TopicPartition

__all__ = ["LOCK_TIMEOUT_MS", "CommitState", "Mirror", "PartitionReplicas", "Term", "elected"]

OpenLogs = Callable[[Sequence[TopicPartition]], Sequence[Log]]

LOCK_TIMEOUT_MS: Final = 30_000.0
_ATTEMPTS: Final = 10

_logger = logging.getLogger(__name__)


class CommitState(Protocol):
    """The register `commits`: which root leads the commits of a set, which are in sync with it."""

    def read(self) -> PartitionState:
        """Return the state that a majority of the set's roots holds.

        Raises:
            UnavailableError: There is no majority.
        """
        ...

    def change(
        self, fn: Callable[[PartitionState], PartitionState], expected_partition_epoch: int
    ) -> PartitionState:
        """Replace the state of a given partition epoch on a majority of the set's roots.

        Raises:
            FencedError: It is of another partition epoch.
            UnavailableError: There is no majority.
        """
        ...


class PartitionReplicas(Protocol):
    """The replicas of the partitions that commits write, seen from one root."""

    def catch_up(self, partitions: Sequence[TopicPartition]) -> Collection[TopicPartition]:
        """Copy to this root what the leaders of the partitions have; no lock is held.

        Nothing is copied of a partition whose ISR contains this root.

        Returns:
            The partitions that exist and that this root cannot get in sync with.
        """
        ...

    def lead(self, partitions: Sequence[TopicPartition]) -> None:
        """Make this root the leader of the partitions; no lock is held.

        Raises:
            UnavailableError: It is not in sync with the leader of one of them.
        """
        ...

    def restrict(self, log: Log, members: Sequence[int]) -> None:
        """Reduce a partition's ISR to nodes among `members`; within `writing`.

        A root that may lead the partition must hold the decisions that name it.
        """
        ...

    def settle(self, root: LogRoot, partitions: Sequence[TopicPartition]) -> None:
        """Apply and sync, in another root, its decisions for partitions that only it has.

        Raises:
            UnavailableError: One of them cannot be applied there.
        """
        ...

    def secure(self, log: Log) -> None:
        """Copy and sync everything up to the log end on all replicas in sync; within `writing`.

        Raises:
            UnavailableError: A replica failed and could not be removed from the ISR.
        """
        ...


class Mirror:
    """The commit files of one root of a replica set, and their copies on the other roots.

    Args:
        node: The root's `node.id`.
        roots: The reachable roots of the set by their `node.id`, this one included.
        state: The register `commits`.
        replicas: The replicas of the partitions.
        lock_timeout_ms: How long to wait for another process that copies to the same root.
    """

    def __init__(
        self,
        node: int,
        roots: Mapping[int, LogRoot],
        state: CommitState,
        replicas: PartitionReplicas,
        *,
        lock_timeout_ms: float = LOCK_TIMEOUT_MS,
    ) -> None:
        self.node, self.state, self.replicas = node, state, replicas
        self._roots, self._timeout_ms = roots, lock_timeout_ms
        self.own = self.files(node)
        self._known_epoch = NO_EPOCH
        self._is_taking_over = False

    def files(self, node: int) -> CommitFiles:
        """Return the commit files of a root.

        Raises:
            StorageError: The root is not reachable.
        """
        root = self._roots.get(node)
        if root is None:
            raise StorageError("log root of the replica set is not reachable", got=f"node {node}")
        return CommitFiles(root, self._timeout_ms)

    def replicated(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether one of the partitions has replicas in other roots."""
        return any(map(self.is_replicated, partitions))

    def is_replicated(self, partition: TopicPartition) -> bool:
        """Whether the partition has replicas in other roots."""
        return self.own.is_replicated(partition)

    def concerns(self, app: str, partitions: Iterable[TopicPartition]) -> bool:
        """Whether a commit concerns the whole set, not just the root of an unreplicated topic.

        The history of an app whose rows name their topics does, whatever its last rows named.
        """
        return self.replicated(partitions) or topic_of(app) is None

    # ---- leading -------------------------------------------------------------------------------
    @contextlib.contextmanager
    def leading(self) -> Iterator["Term"]:
        """Hold this root's commit files while it leads the commits.

        Within, no root joins the followers. Take the lock of an app before, those of partitions
        after.

        Raises:
            NotLeaderError: Another root leads the commits.
            UnavailableError: It has not taken over yet, or there is no majority of roots.
        """
        with self.own.locked(shared=True):
            state = self._led()
            self._check_taken_over(state)
            yield Term(self, state)

    def enter(self, open_logs: OpenLogs) -> None:
        """Take over if this root leads and has not yet; call it before partitions are opened."""
        if self.state.read().leader == self.node:
            self.take_over(open_logs)

    def take_over(self, open_logs: OpenLogs) -> None:
        """Finish the election of this root: judge the prepared decisions, bring followers in line.

        Does nothing if that is done. No partition may be written through this root before, and no
        lock of a partition is held.

        Args:
            open_logs: Opens partitions for writing.

        Raises:
            NotLeaderError: Another root leads the commits.
            CorruptDataError: A prepared decision is damaged.
            UnavailableError: There is no majority of roots, or a disk failed.
        """
        if self._is_taking_over or self.own.epoch() >= self._led().leader_epoch:
            return
        with self.own.locked():
            state = self._led()
            if self.own.epoch() >= state.leader_epoch:
                return
            _logger.info(
                "node %d takes over the commits in epoch %d", self.node, state.leader_epoch
            )
            self._is_taking_over = True
            try:
                self._finish_election(state, open_logs)
            finally:
                self._is_taking_over = False

    def _finish_election(self, state: PartitionState, open_logs: OpenLogs) -> None:
        make_directories(self.own.root.fs, self.own.pending.path)
        self._learn(state)
        prepared = self.own.prepared
        decisions = [each for each in map(prepared.load, prepared.names()) if each is not None]
        self._decide_prepared(
            [each for each in decisions if not self.own.ledgers.has_retired(each)], state
        )
        Term(self, state).each(
            lambda files: self._bring_in_line(files, state.leader_epoch), is_joining=True
        )
        self._apply_pending(open_logs)
        self.own.set_epoch(state.leader_epoch)
        self.own.discard(prepared, [decision.name for decision in decisions])

    def _learn(self, state: PartitionState) -> None:
        """Copy to this root the ledgers and prepared decisions that it lacks.

        It may have been restored from an older copy since it was in sync. What a follower in sync
        has prepared may be decided in any case; another root is believed its ledgers only.
        """
        files = self._others()
        known = [self.own.epoch()] + [files[node].epoch() for node in state.isr if node in files]
        for node, each in files.items():
            if each.check_epoch(state.leader_epoch) != max(known):
                continue  # it followed an earlier leader
            for key in each.ledger_keys():
                ledger = each.ledger(key)
                if ledger is not None:
                    self.own.learn_ledger(key, ledger)
            own = self.own.prepared.names()
            for name in each.prepared.names() if node in state.isr else ():
                content = each.prepared.content(name)
                if name not in own and content is not None:
                    self.own.prepared.store(name, content)

    def _others(self) -> dict[int, CommitFiles]:
        """Return the commit files of the other roots that can be read."""
        found = {}
        for node in self._roots:
            if node != self.node:
                with contextlib.suppress(StorageError, CorruptCheckpointError):
                    files = self.files(node)
                    files.epoch()
                    found[node] = files
        return found

    def begin_again(self) -> None:
        """Start another term of this root, which takes over again and learns from the others."""
        state = self._led()
        with contextlib.suppress(FencedError):  # another process did, or elected another root
            self.state.change(lambda old: old.with_leader(self.node), state.partition_epoch)

    def _apply_pending(
        self, open_logs: OpenLogs, *, is_due: Callable[[TopicPartition], bool] = lambda _: True
    ) -> None:
        """Lead the partitions of this root's decisions, and apply what their logs lack.

        A partition that fails does not stop the others: the next writer applies the rest.
        """
        pending = self.own.pending
        decisions = [each for each in map(pending.load, pending.names()) if each is not None]
        for partition in LocalLogs(self.own.root).existing(decisions):
            try:
                if not is_due(partition):
                    continue
                if self.is_replicated(partition):
                    self.replicas.lead([partition])
                (log,) = open_logs([partition])
                with log.writing():
                    log.set_pending(True)
                    log.apply_decided()
                    log.set_pending(False)
            except StreamLogError as error:
                _logger.error("[%s] decided commits are not applied yet: %s", partition, error)

    def _led(self) -> PartitionState:
        state = self.state.read()
        if state.leader != self.node:
            raise NotLeaderError(
                "this root does not lead the commits of its replica set",
                path=self.own.root.path,
                got=f"node {self.node}",
                expected=f"node {state.leader}, in epoch {state.leader_epoch}",
            )
        if state.leader_epoch != self._known_epoch:
            self.own.pending.forget()
            self._known_epoch = state.leader_epoch
        return state

    def _check_taken_over(self, state: PartitionState) -> None:
        if self.own.check_epoch(state.leader_epoch) < state.leader_epoch:
            raise UnavailableError(
                "this root was elected to lead the commits and has not taken over",
                path=self.own.root.path,
                expected=f"leader epoch {state.leader_epoch}",
            )

    def _decide_prepared(self, decisions: Sequence[Decision], state: PartitionState) -> None:
        local = LocalLogs(self.own.root)
        named = {part.topic_partition for each in decisions for part in each.parts}
        unknown = self.replicas.catch_up(sorted(filter(self.is_replicated, named)))
        logs = local.read([each for each in local.existing(decisions) if each not in unknown])
        try:
            fates = judge_prepared(decisions, logs, unknown)
        finally:
            local.close(logs)
        for decision in decisions:
            if fates[decision.name] is Fate.DISCARD:
                _logger.warning("%s was prepared and is discarded", decision.identity)
                continue
            _logger.info("%s was prepared and is decided now", decision.identity)
            self.collect(decision.identity.app, decision.files, state.isr)
            self.own.pending.store(decision.name, format_decision(decision))

    def collect(self, app: str, files: Iterable[DecidedFile], nodes: Iterable[int]) -> None:
        """Copy the staged files that this root lacks from the others, first from `nodes`."""
        for node in dict.fromkeys((*nodes, *self._roots)):  # a task may use any root of the set
            lacking = self.own.lacking(app, files)
            if not lacking:
                break
            root = self._roots.get(node)
            if node == self.node or root is None:
                continue
            source = CommitFiles(root, self._timeout_ms)
            with contextlib.suppress(SourceFailedError):
                for name, size in lacking:
                    self.own.copy_staged(source, app, name, size)
        if files:
            self.own.area.sync(app)

    # ---- one follower ----------------------------------------------------------------------------
    def _bring_in_line(self, files: CommitFiles, epoch: int) -> None:
        """Make a follower's commit files a copy of this root's; its lock is held."""
        if files.epoch() != epoch:
            files.set_epoch(epoch)  # first: from now on an older leader changes nothing here
        prepared = files.prepared
        names = self.own.pending.names()
        content = {name: self.own.pending.content(name) for name in names}
        found = {name: prepared.content(name) for name in prepared.names()}
        files.discard(prepared, [name for name in found if found[name] != content.get(name)])
        self._end_leadership(files)
        for key in self.own.ledger_keys():
            ledger = self.own.ledger(key)
            if ledger is not None and not self.own.owns(owner_of(ledger, key)):
                files.store_ledger(key, ledger)
        for name, sealed in content.items():
            if sealed is not None and found.get(name) != sealed:
                decision = parse_decision(sealed, f"{self.own.pending.path}/{name}")
                if self._concerns(decision):
                    self.copy_staged(files, decision.identity.app, decision.files)
                    prepared.store(name, sealed)

    def _end_leadership(self, files: CommitFiles) -> None:
        """Remove the decisions that a root made as a leader; those known here are prepared again.

        Partitions that only that root has get their records first.
        """
        former = files.pending
        found = self._of_set(former)
        unknown = [each.name for each in found if not self._knows(former, each)]
        files.discard(former, unknown)
        self._hand_in(files, {each.name for each in found}.difference(unknown))
        known = self._of_set(former)
        parts = [part for each in known for part in each.parts if files.holds_alone(part)]
        if parts:
            partitions = sorted({part.topic_partition for part in parts})
            self.replicas.settle(files.root, partitions)
        files.discard(former, [each.name for each in known])

    def _of_set(self, decisions: PendingDecisions) -> list[Decision]:
        """Return the decisions that belong to the set; others belong to their root."""
        loaded = map(decisions.load, decisions.names())
        return [each for each in loaded if each is not None and self._concerns(each)]

    def _concerns(self, decision: Decision) -> bool:
        partitions = (part.topic_partition for part in decision.parts)
        return self.concerns(decision.identity.app, partitions)

    def _knows(self, former: PendingDecisions, decision: Decision) -> bool:
        """Whether this root made a former leader's decision too, or the app has no history."""
        return (
            self.own.pending.content(decision.name) == former.content(decision.name)
            or decision.identity.is_anonymous
            or self.own.ledgers.has_retired(decision)
        )

    def _hand_in(self, files: CommitFiles, known: Collection[str]) -> None:
        """Give a former leader the decisions that it had prepared and this root made.

        Only those with records for partitions that only that root has.
        """
        decisions: dict[str, Decision] = {}
        for decision in self._of_set(self.own.pending):
            alone = tuple(filter(files.holds_alone, decision.parts))
            if alone and decision.name not in known:
                decisions[decision.name] = replace(decision, parts=alone)
        local = LocalLogs(files.root)
        logs = local.read(local.existing(decisions.values()))
        try:
            fates = judge_prepared(decisions.values(), logs)
        finally:
            local.close(logs)
        for name, decision in decisions.items():
            sealed = self.own.pending.content(name)
            if fates[name] is Fate.DISCARD or sealed is None:
                partitions = ", ".join(str(part.topic_partition) for part in decision.parts)
                _logger.error("[%s] lost records of %s", partitions, decision.identity)
            else:
                self.copy_staged(files, decision.identity.app, decision.files)
                files.pending.store(name, sealed)

    def copy_staged(self, files: CommitFiles, app: str, staged: Iterable[DecidedFile]) -> None:
        """Copy staged files that a follower lacks; their names are durable on return."""
        for name, size in files.lacking(app, staged):
            files.copy_staged(self.own, app, name, size)
        if staged:
            files.area.sync(app)

    def resync(self, node: int) -> None:
        """Let a root that was away join the followers again.

        Call it before the root's partitions are caught up: decisions that it made as a leader and
        that this root does not know are removed, and their records are truncated by epoch then.

        Raises:
            NotLeaderError: This root does not lead the commits.
            UnavailableError: It has not taken over yet, a lock was held, a disk failed, or there is
                no majority of roots.
        """
        with self.own.locked():
            state = self._led()
            self._check_taken_over(state)
            if node in state.isr:
                return
            files = self.files(node)
            with files.locked():
                files.check_epoch(state.leader_epoch)
                self._bring_in_line(files, state.leader_epoch)
            isr = (*state.isr, node)
            self.state.change(lambda old: old.with_isr(isr), state.partition_epoch)
            _logger.info("node %d follows the commits again", node)

    def has_lost(self, files: CommitFiles, app: str, number: int) -> bool:
        """Whether a follower knows decided commits of an app after this root's last one.

        The next one alone may be prepared only, unless the logs hold its records.
        """
        prepared = files.prepared
        names = [name for name in prepared.of_app(app) if decision_number(name) > number]
        if files.last_number(app) != number + 1 or len(names) != 1:
            return True
        decision = prepared.load(names[0])
        if decision is None:
            return False
        local = LocalLogs(files.root)
        logs = local.read(local.existing([decision]))
        try:
            return any(
                part.base_offset < log.end and log.holds(decision, part)
                for part in decision.parts
                if (log := logs.get(part.topic_partition)) and log.topic_id == part.topic_id
            )
        finally:
            local.close(logs)

    # ---- partitions ------------------------------------------------------------------------------
    def may_apply(self, log: Log) -> bool:
        """Whether this root applies decided commits to a partition that it leads; within `writing`.

        The leader of the commits does, after discarding on all followers the decisions for this
        partition that it prepared and never made: whatever is written now takes their offsets.

        Raises:
            UnavailableError: A root that was elected has not taken over yet, or there is no
                majority of roots.
        """
        partition = log.topic_partition
        if self._is_taking_over:
            return True
        state = self.state.read()
        if state.leader != self.node:
            self._check_in_sync(log, state)
            self.own.refuse_undecided(log, state.leader)
            return False
        self._check_taken_over(state)
        known = set(self.own.pending.names())
        Term(self, state).each(lambda files: self._discard_undecided(files, partition, known))
        return True

    def _check_in_sync(self, log: Log, state: PartitionState) -> None:
        """Raise if this root may lack decisions that name a partition which it is to lead."""
        if self.node not in state.isr:
            raise UnavailableError(
                "this root lacks decided commits, so it must not lead the partition yet",
                path=log.path,
                got=f"node {self.node}",
                expected=f"one of nodes {list(state.isr)}",
                hint="bring its commit files in sync: streamlog replicate --once",
            )

    def tidy(self, open_logs: OpenLogs) -> None:
        """Discard what was prepared and never decided, and apply what was decided.

        What a driver left that died, and does not come back.

        Raises:
            NotLeaderError: Another root leads the commits.
            UnavailableError: There is no majority of roots, or a disk failed.
        """
        self.take_over(open_logs)
        with self.own.locked():  # no commit is under way
            state = self._led()
            self._check_taken_over(state)
            known = set(self.own.pending.names())
            Term(self, state).each(lambda files: self._discard_undecided(files, None, known))
            self._apply_pending(open_logs, is_due=self._is_unapplied)

    def _is_unapplied(self, partition: TopicPartition) -> bool:
        local = LocalLogs(self.own.root)
        logs = local.read([partition])
        try:
            ends = [part.last_offset for _, part in self.own.pending.naming(partition)]
            return any(log.end <= max(ends, default=-1) for log in logs.values())
        finally:
            local.close(logs)

    def hand_over(self, node: int) -> None:
        """Let a follower lead the commits, while none is under way.

        What was prepared and not decided is discarded first: the next leader might decide it.

        Raises:
            NotLeaderError: Another root leads the commits.
            UnavailableError: It has not taken over yet, `node` does not follow it, or there is no
                majority of roots.
        """
        with self.own.locked():
            state = self._led()
            self._check_taken_over(state)
            known, term = set(self.own.pending.names()), Term(self, state)
            term.each(lambda files: self._discard_undecided(files, None, known))
            if node not in term.members:
                raise UnavailableError(
                    "the log root does not follow the commits",
                    got=f"node {node}",
                    expected=f"one of nodes {list(term.members)}",
                )
            state = self.state.read()
            self.state.change(lambda old: old.with_leader(node), state.partition_epoch)
            _logger.info("node %d leads the commits after node %d", node, self.node)

    def _discard_undecided(
        self, files: CommitFiles, partition: TopicPartition | None, known: set[str]
    ) -> None:
        """Discard what was prepared for a partition, or any, and never decided."""
        prepared = files.prepared
        undecided = []
        for name in prepared.names():
            sealed = prepared.content(name)
            if name in known and sealed == self.own.pending.content(name):
                continue
            decision = None if sealed is None else parse_decision(sealed, f"{prepared.path}/{name}")
            if decision and partition in (None, *(part.topic_partition for part in decision.parts)):
                _logger.info("discarded %s, never decided", decision.identity)
                undecided.append(name)
        files.discard(prepared, undecided)


class Term:
    """The leadership of a set's commits, as of one moment.

    Args:
        mirror: The leader's mirror.
        state: The state that says so.
    """

    def __init__(self, mirror: Mirror, state: PartitionState) -> None:
        self._mirror, self._state = mirror, state

    @property
    def members(self) -> tuple[int, ...]:
        """The leader and the followers in sync."""
        return self._state.isr

    def each(self, work: Callable[[CommitFiles], None], *, is_joining: bool = False) -> None:
        """Do something to the commit files of each follower, under its lock.

        A follower that fails leaves the ISR of `commits`.

        Args:
            work: What to do.
            is_joining: Whether the files may still belong to an earlier leader.

        Raises:
            NotLeaderError: Another root was elected meanwhile.
            UnavailableError: A follower failed, and there is no majority of roots to remove it.
        """
        for node in self._state.isr:
            if node == self._mirror.node:
                continue
            try:
                files = self._mirror.files(node)
                with files.locked() if is_joining else files.followed(self._state.leader_epoch):
                    files.check_epoch(self._state.leader_epoch)
                    work(files)
            except SourceFailedError as failed:  # the leader's own disk
                raise failed.error from failed
            except (StorageError, LockTimeoutError, CorruptCheckpointError) as error:
                self._drop(node, error)

    def _drop(self, node: int, error: Exception) -> None:
        _logger.warning("node %d does not follow the commits any more: %s", node, error)
        state = self._mirror.state
        for _ in range(_ATTEMPTS):
            current = state.read()
            if current.leader_epoch != self._state.leader_epoch:
                raise NotLeaderError(
                    "another root was elected to lead the commits",
                    got=f"leader epoch {self._state.leader_epoch}",
                    expected=current.leader_epoch,
                )
            try:
                self._state = state.change(partial(_without, node), current.partition_epoch)
            except FencedError:
                continue  # another process removed a follower too
            return
        raise UnavailableError("the state of the commits keeps changing", got=f"node {node}")

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

        self.each(check)
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
        self.each(lambda each: self._mirror.copy_staged(each, app, files))

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
        self.each(lambda files: files.prepared.store(decision.name, content))

    def withdraw(self, decision: Decision) -> None:
        """Discard a prepared decision that was not made."""
        self.each(lambda files: files.discard(files.prepared, [decision.name]))

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
            self.each(lambda files: files.store_ledger(key, ledger))

    def clear(self, app: str, decisions: Sequence[str], staged: Sequence[str]) -> None:
        """Remove retired decisions and their staged files from the followers."""

        def remove(files: CommitFiles) -> None:
            prepared = files.prepared
            for name in decisions:
                prepared.remove(name)
            files.area.remove(app, staged)

        self.each(remove)

    def remove_staged(self, app: str, names: Sequence[str]) -> None:
        """Remove staged files that no decision names from the followers."""
        self.each(lambda files: files.remove_unnamed(app, names))


def _without(node: int, state: PartitionState) -> PartitionState:
    if node not in state.isr:
        return state
    return state.with_isr(tuple(each for each in state.isr if each != node))


def elected(
    state: PartitionState, online: Iterable[int], *, misses: Callable[[int], int] = lambda _: 0
) -> PartitionState | None:
    """Return the state of `commits` after a clean election, None if no follower is online.

    The followers in sync know the same, so the first one leads that is online and has the most of
    the partitions with prepared decisions.

    Args:
        state: The current state.
        online: The nodes whose roots can be read and written.
        misses: Returns how many of these partitions have no replica in the root of a node.
    """
    online = set(online)
    isr = tuple(node for node in state.isr if node in online)
    leader = min(isr, key=misses, default=None)
    return None if leader is None else replace(state.with_leader(leader), isr=isr)
