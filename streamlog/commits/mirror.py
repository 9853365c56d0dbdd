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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from streamlog.commits.commit_files import NO_EPOCH, CommitFiles, SourceFailedError
from streamlog.commits.decisions import DecidedFile, Decision, format_decision, parse_decision
from streamlog.commits.followers import CommitState, Followers
from streamlog.commits.history import owner_of
from streamlog.commits.identity import topic_of
from streamlog.commits.pending import PendingDecisions, decision_number
from streamlog.commits.takeover import Fate, LocalLogs, judge_prepared
from streamlog.errors import (
    CorruptCheckpointError,
    FencedError,
    NotLeaderError,
    StorageError,
    StreamLogError,
    UnavailableError,
)
from streamlog.fs.files import make_directories
from streamlog.fs.log_root import LogRoot
from streamlog.partition.log import Log
from streamlog.replication.partition_state import PartitionState
from streamlog.topic import TopicPartition

__all__ = ["LOCK_TIMEOUT_MS", "Mirror", "PartitionReplicas"]

OpenLogs = Callable[[Sequence[TopicPartition]], Sequence[Log]]

LOCK_TIMEOUT_MS: Final = 30_000.0

_logger = logging.getLogger(__name__)


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
    def check_leading(self) -> PartitionState:
        """Return the state in which this root leads the commits; its commit files are locked.

        Raises:
            NotLeaderError: Another root leads the commits.
            UnavailableError: It has not taken over yet, or there is no majority of roots.
        """
        state = self._led()
        self._check_taken_over(state)
        return state

    def followers(self, state: PartitionState) -> Followers:
        """Return the followers that a state in which this root leads names."""
        return Followers(self.node, self.files, self.state, state)

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
        self.followers(state).each(
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
        self.followers(state).each(lambda files: self._discard_undecided(files, partition, known))
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
            state = self.check_leading()
            known = set(self.own.pending.names())
            self.followers(state).each(lambda files: self._discard_undecided(files, None, known))
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
            followers = self.followers(self.check_leading())
            known = set(self.own.pending.names())
            followers.each(lambda files: self._discard_undecided(files, None, known))
            if node not in followers.members:
                raise UnavailableError(
                    "the log root does not follow the commits",
                    got=f"node {node}",
                    expected=f"one of nodes {list(followers.members)}",
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
