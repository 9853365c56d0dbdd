"""Repairs a damaged replica from the other replicas: `streamlog repair --from-replica`.

    examine      the replica is damaged, or differs from the leader's below the high watermark
    source       another replica in sync whose files are sound; the leader, if it is one
    lead         the source leads, so that everything is copied from it
    set aside    the directory moves to `.streamlog/damaged`
    refill       as after the loss of a directory: the replica leaves the ISR, is made again, empty,
                 and catches up

Writers continue meanwhile. A command that is killed loses nothing: before the directory is set
aside it may be repeated, and from then on `streamlog replicate` continues it as well.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from streamlog.errors import (
    InvalidRequestError,
    NoReplicaOnlineError,
    StreamLogError,
    UnavailableError,
)
from streamlog.fs.files import make_directories
from streamlog.fs.log_root import LogRoot
from streamlog.fs.overlay import Change, ChangeKind
from streamlog.health.findings import Finding, Severity
from streamlog.health.repair import Repair, RepairStep
from streamlog.health.replica_logs import compare_logs
from streamlog.health.verify import size_of_logs, verify
from streamlog.partition.locks import take_partition_lock
from streamlog.partition.reader import LogReader
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.status import PartitionStatus, ReplicaStatus
from streamlog.root.replica_set import ReplicaSet
from streamlog.root.topics import find_partitions

__all__ = ["repair_from_replicas"]

_LOCK_TIMEOUT_MS = 10_000
OnProgress = Callable[[int], None]


def repair_from_replicas(
    root: LogRoot, path: str, *, is_dry_run: bool, on_progress: OnProgress = lambda size: None
) -> Iterator[Repair]:
    """Refill the damaged replicas of a path, one after another.

    Args:
        root: The log root of the path.
        path: The root, or a partition's directory in it.
        is_dry_run: Whether to change nothing.
        on_progress: Called with numbers of bytes copied.

    Yields:
        The repair of each replicated partition, without steps if nothing was wrong. A refused
        repair does not stop the others.

    Raises:
        InvalidRequestError: The root belongs to no replica set, or the partition is not replicated.
        StorageError: The path cannot be read.
    """
    with ReplicaSet.open(root.path, fs=root.fs, clock=root.clock, random=root.random) as replicas:
        node = replicas.roots.home_node
        for topic, numbers in find_partitions(root.fs, path).items():
            statuses = {each.partition.partition: each for each in replicas.describe(topic)}
            for number in numbers:
                status = statuses.get(number)
                if status is None and numbers[number] == path:
                    raise InvalidRequestError(
                        "partition is not replicated", path=path, hint="see: streamlog repair -h"
                    )
                if status is not None:
                    yield _Refill(replicas, status, node, on_progress).run(is_dry_run=is_dry_run)


@dataclass(frozen=True)
class _Refill:
    """The repair of one replica.

    Attributes:
        replicas: The replica set.
        status: The partition.
        node: The node of the replica.
        on_progress: Called with numbers of bytes copied.
    """

    replicas: ReplicaSet
    status: PartitionStatus
    node: int
    on_progress: OnProgress

    def run(self, *, is_dry_run: bool) -> Repair:
        """Refill the replica if it is damaged and another one is sound."""
        partition = self.status.partition
        try:
            damage = self._damage()
            if damage is None:
                return Repair(partition=partition)
            source = self._source()
            steps = self._steps(damage, source)
            if not is_dry_run:
                self._lead_from(source.node)
                self._set_aside(steps[0])
                self._catch_up()
        except StreamLogError as error:
            return Repair(partition=partition, error=error)
        return Repair(partition=partition, steps=steps)

    # ---- what is wrong ---------------------------------------------------------------------------
    @property
    def _directory(self) -> str:
        return self.replicas.roots.root(self.node).partition(self.status.partition)

    def _damage(self) -> Finding | None:
        """Return the first damage of the replica; None if it is sound and equal to the leader's."""
        found = _damage_in(self.replicas.roots.root(self.node), self._directory)
        leader = self.status.leader
        if found is not None or leader is None or leader.node == self.node:
            return found
        fs = self.replicas.roots.home.fs
        differences: list[Finding] = []
        with (
            LogReader.open(leader.path, fs=fs) as one,
            LogReader.open(self._directory, fs=fs) as two,
        ):
            is_compacted = "compact" in self.status.config.cleanup_policy
            compare_logs(one, two, differences.append, is_compacted=is_compacted)
        return next((each for each in differences if each.severity is Severity.DAMAGE), None)

    def _source(self) -> ReplicaStatus:
        """Return a sound replica in sync, the leader if it is one.

        Raises:
            NoReplicaOnlineError: There is none: the damaged replica may hold the only copy.
        """
        leader, why = self.status.state.leader, []
        others = [each for each in self.status.replicas if each.node != self.node]
        for each in sorted(others, key=lambda one: one.node != leader):
            reason = self._reason_against(each)
            if reason is None:
                return each
            why.append(f"node {each.node}: {reason}")
        raise NoReplicaOnlineError(
            "no other replica in sync is sound, so nothing was changed",
            path=self._directory,
            got="; ".join(why) or "no other replica",
            expected="a replica in sync without damage",
            hint="bring back a log root with a sound replica; if there is none: streamlog repair "
            f"{self._directory} --skip-damage --dry-run",
        )

    def _reason_against(self, replica: ReplicaStatus) -> str | None:
        """Return why a replica cannot be copied from, None if it can."""
        if replica.offsets is None:
            return f"offline ({replica.problem})"
        if replica.node not in self.status.state.isr:
            return "not in sync"
        if replica.offsets.end < (self.status.high_watermark or 0):
            return f"lacks committed records: log end {replica.offsets.end}"
        damage = _damage_in(self.replicas.roots.root(replica.node), replica.path)
        return None if damage is None else f"damaged: {damage.what} in {damage.path}"

    def _steps(self, damage: Finding, source: ReplicaStatus) -> list[RepairStep]:
        root, directory = self.replicas.roots.root(self.node), self._directory
        size = size_of_logs(root.fs, directory)
        aside = _free_name(root, directory)
        renamed = Change(ChangeKind.RENAMED, directory, aside, size, size)
        copied = Change(ChangeKind.CREATED, directory, None, 0, source.size_bytes)
        return [
            RepairStep(change=renamed, why=f"{damage.what} ({damage.path})"),
            RepairStep(change=copied, why=f"copied from {source.path}"),
        ]

    # ---- the steps -------------------------------------------------------------------------------
    def _lead_from(self, source: int) -> None:
        """Let the source lead, once all replicas have what the leader has."""
        partition = self.status.partition
        log = self.replicas.log(*partition)  # moves to another leader if this one is unreadable
        state = log.change_state(partial(_led_by, source))
        if state.leader != source:
            raise UnavailableError(
                f"the sound replica of {partition} does not lead",
                path=self._directory,
                got=f"leader {state.leader}, ISR {list(state.isr)}",
                expected=f"node {source}",
                hint="repeat the command",
            )

    def _set_aside(self, step: RepairStep) -> None:
        """Move the directory of the replica to `.streamlog/damaged`, durably."""
        root, partition = self.replicas.roots.root(self.node), self.status.partition
        target = step.change.target
        assert target is not None
        make_directories(root.fs, root.damaged)
        lock = take_partition_lock(root, partition, timeout_ms=_LOCK_TIMEOUT_MS)
        try:
            state = self.replicas.roots.register(partition).peek()
            if state is None or state.leader == self.node:  # elected again meanwhile
                raise UnavailableError(
                    "the damaged replica leads", path=self._directory, hint="repeat the command"
                )
            # First the state: open handles look at the files again, and find the directory gone.
            lock.file.truncate(0)
            root.fs.rename(self._directory, target)
        finally:
            lock.release()
        root.fs.sync_directory(root.damaged)
        root.fs.sync_directory(root.path)

    def _catch_up(self) -> None:
        """Make the replica again, empty, and copy everything to it."""
        state = self.replicas.refill(*self.status.partition, on_progress=self.on_progress)
        if self.node not in state.isr:
            raise UnavailableError(
                "the replica is not in sync yet",
                path=self._directory,
                got=f"ISR {list(state.isr)}",
                hint="continue: streamlog replicate --once",
            )


def _damage_in(root: LogRoot, directory: str) -> Finding | None:
    found: list[Finding] = []
    verify(root.fs, directory, found.append)
    return next((each for each in found if each.severity is Severity.DAMAGE), None)


def _led_by(source: int, state: PartitionState) -> PartitionState:
    if state.leader == source or source not in state.isr:
        return state
    return state.with_leader(source)


def _free_name(root: LogRoot, path: str) -> str:
    """Return a name in `.streamlog/damaged` that is not taken."""
    name = os.path.basename(path)
    number = 0
    while root.fs.stat(f"{root.damaged}/{number}-{name}") is not None:
        number += 1
    return f"{root.damaged}/{number}-{name}"
