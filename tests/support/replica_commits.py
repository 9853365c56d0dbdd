"""Three log roots on disks in memory: node 1 leads the commits and the partitions of topic `t`.

A `World` is the disks; everything else is in files. `World.process` starts a process that writes
through one root.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from streamlog.clock import ManualClock
from streamlog.commits.followers import elected
from streamlog.commits.mirror import Mirror
from streamlog.errors import UnavailableError
from streamlog.fs.api import FileLock, FileSystem
from streamlog.fs.failure import storage_failure
from streamlog.fs.faults import FaultyFileSystem, Operation
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.locks import wait_for_lock
from streamlog.partition.log import Log
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.read import fetch
from streamlog.partition.reader import LogReader
from streamlog.replication.copies import OneByOne
from streamlog.replication.fetcher_lock import has_replica_fetcher
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.register import QuorumRegister
from streamlog.replication.register_file import RegisterFile
from streamlog.replication.replicas import Replicas
from streamlog.root.partition_log import PartitionLog
from streamlog.topic import TopicPartition
from tests.support.commits import NOW, PARTITIONS, ROOT, TOPIC, Scene

__all__ = [
    "NODES",
    "Disk",
    "Point",
    "Process",
    "World",
    "every_point",
    "lost_disk",
    "replicated_world",
]

NODES = (1, 2, 3)
COMMITS = "commits"
ALL_PARTITIONS = tuple(TopicPartition(TOPIC, number) for number in range(PARTITIONS))
RETRY_MS = 60_000  # offline followers are tried again after at most this time


class Disk(FaultyFileSystem):
    """A disk that may fail as a whole: then every operation, reading included, is an I/O error."""

    is_lost = False
    fails_at: int | None = None

    def check_alive(self) -> None:
        super().check_alive()
        if self.fails_at is not None and len(self.operations) >= self.fails_at:
            self.is_lost = True
        if self.is_lost:
            raise storage_failure(errno.EIO, "use", "the disk")


def lost_disk() -> Disk:
    disk = Disk(MemoryFileSystem())
    disk.is_lost = True
    return disk


@dataclass
class World:
    """The disks by node."""

    disks: dict[int, FileSystem]
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW))

    def root(self, node: int) -> LogRoot:
        return LogRoot(ROOT, self.disks[node], self.clock, Random(node))

    def is_online(self, node: int) -> bool:
        disk = self.disks[node]
        return not (isinstance(disk, Disk) and disk.is_lost)

    def lose(self, node: int) -> None:
        self.disks[node] = lost_disk()

    # ---- the registers -------------------------------------------------------------------------
    def files(self, name: str) -> dict[int, RegisterFile]:
        return {node: RegisterFile(self.root(node), name) for node in self.disks}

    def register(self, name: str) -> QuorumRegister:
        return QuorumRegister(
            self.files(name), locker=lambda node: self.locked(node, name), random=Random(3)
        )

    @contextmanager
    def locked(self, node: int, name: str) -> Iterator[None]:
        lock = self._take(node, name)
        try:
            yield
        finally:
            lock.release()

    def _take(self, node: int, name: str) -> FileLock:
        root = self.root(node)
        path = f"{root.locks}/{name}"
        return wait_for_lock(root.fs, root.clock, path, timeout_ms=5, what=name)

    @property
    def state(self) -> PartitionState:
        """The state of the commits."""
        return self.register(COMMITS).read()

    @property
    def leader(self) -> int:
        return self.state.leader

    def elect(self) -> int:
        """Elect a leader of the commits among the roots in sync whose disk works."""
        register = self.register(COMMITS)
        before = register.read()
        online = [node for node in self.disks if self.is_online(node)]
        state = elected(before, online)
        assert state is not None
        register.change(lambda _: state, before.partition_epoch)
        return state.leader

    def elect_longest(self) -> None:
        """Elect the longest replica of each partition, as after a power cut that took a tail."""
        for partition in ALL_PARTITIONS:
            register = self.register(str(partition))
            state = register.read()
            ends = {node: self._end(node, partition) for node in state.isr}
            longest = max(ends.values())
            if ends[state.leader] < longest:
                leader = next(node for node in state.isr if ends[node] == longest)
                register.change(lambda old, to=leader: old.with_leader(to), state.partition_epoch)

    def _end(self, node: int, partition: TopicPartition) -> int:
        with LogReader.open(self.root(node).partition(partition), fs=self.disks[node]) as reader:
            return reader.log_end_offset

    # ---- processes -------------------------------------------------------------------------------
    def process(self, node: int | None = None, *, seed: int | None = None) -> "Process":
        """Start a process that writes through a root, by default the leader of the commits."""
        return Process(self, self.leader if node is None else node, seed)

    def values(self, node: int, partition: int) -> list[bytes | None]:
        """Return the values of a root's replica, up to its log end."""
        found: list[bytes | None] = []
        path = self.root(node).partition(TopicPartition(TOPIC, partition))
        with LogReader.open(path, fs=self.disks[node]) as reader:
            at, end = reader.log_start_offset, reader.log_end_offset
            offsets = LogOffsets.of_one_replica(at, end)
            while at < end:
                info = fetch(
                    reader.segments,
                    at,
                    offsets=offsets,
                    last_stable_offset=end,
                    upper=end,
                    max_bytes=1 << 20,
                )
                found += [record.value for record in info.records()]
                at = info.next_offset
        return found


class Process:
    """A process that writes through one root, and copies to the others; see `ReplicaRoots`."""

    def __init__(self, world: World, node: int, seed: int | None) -> None:
        self.world, self.node = world, node
        self._replicas: dict[TopicPartition, Replicas] = {}
        self.mirror = Mirror(
            node,
            {each: world.root(each) for each in world.disks},
            world.register(COMMITS),
            self,
            lock_timeout_ms=5,
        )
        more: dict[str, Any] = {} if seed is None else {"random": Random(seed)}
        self.scene = Scene(
            world.disks[node],
            clock=world.clock,
            replicated=self._replicas_of,
            mirror=self.mirror,
            **more,
        )

    def _replicas_of(self, partition: TopicPartition) -> Replicas:
        state = self.world.register(str(partition)).read()
        self._replicas[partition] = Replicas(
            self.node,
            partition,
            topic_id=state.topic_id,
            roots=self,
            clock=self.world.clock,
            random=Random(4),
            copies=OneByOne(),
            lag_time_max_ms=30_000,
        )
        return self._replicas[partition]

    # ---- what replicas ask -----------------------------------------------------------------------
    def register_files(self, partition: TopicPartition) -> Mapping[int, RegisterFile]:
        return self.world.files(str(partition))

    def has_replica_fetcher(self, node: int) -> bool:
        return has_replica_fetcher(self.world.root(node))

    def locked(self, node: int, partition: TopicPartition) -> AbstractContextManager[object]:
        return self.world.locked(node, str(partition))

    def open_follower(self, node: int, partition: TopicPartition) -> Log:
        root = self.world.root(node)
        return PartitionLog.open(
            root.partition(partition),
            fs=root.fs,
            clock=root.clock,
            random=root.random,
            lock_timeout_ms=5,
        )

    # ---- what commits ask ------------------------------------------------------------------------
    def catch_up(self, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        for partition in partitions:
            assert self.node in self.world.register(str(partition)).read().isr
        return ()

    def lead(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            register = self.world.register(str(partition))
            state = register.read()
            if state.leader == self.node:
                continue
            assert self.node in state.isr
            if self.world.is_online(state.leader):
                with contextlib.suppress(UnavailableError):  # its commit files are not in sync
                    Process(self.world, state.leader, None).copy(partition)
                state = register.read()
                isr = state.isr
            else:
                isr = tuple(each for each in state.isr if self.world.is_online(each))
            register.change(
                lambda old, to=isr: replace(old.with_leader(self.node), isr=to),
                state.partition_epoch,
            )

    def copy(self, partition: TopicPartition) -> None:
        """Copy everything that this process's root has to the others."""
        (log,) = self.scene.manager.logs([partition])
        with log.writing():
            self.secure(log)

    def restrict(self, log: Log, members: Sequence[int]) -> None:
        self._replicas[log.topic_partition].restrict(members)

    def settle(self, root: LogRoot, partitions: Sequence[TopicPartition]) -> None:
        raise AssertionError(f"every partition has a replica in every root: {partitions}")

    def secure(self, log: Log) -> None:
        self._replicas[log.topic_partition].secure(log)

    def rejoin(self, node: int) -> None:
        """Bring a root back: its commit files first, then its logs with the next append."""
        self.mirror.take_over(self.scene.manager.logs)
        self.mirror.resync(node)
        self.lead(ALL_PARTITIONS)
        self.world.clock.advance(RETRY_MS)
        for partition in range(PARTITIONS):
            self.scene.append(partition, b"plain 1 at the return")


def replicated_world(configs: Mapping[str, str] | None = None) -> World:
    """Return three roots with topic `t` of two partitions; node 1 leads everything."""
    first = Scene(configs=configs or {})
    topic_id = first.manager.log(TOPIC, 0).topic_id
    first.manager.close()
    world = World({node: first.memory.crash_clone(Random(0), power=False) for node in NODES})
    for name in (*map(str, ALL_PARTITIONS), COMMITS):
        world.register(name).create(PartitionState.created(topic_id, NODES))
    return world


# ---- every point at which something may be lost ------------------------------------------------
@dataclass
class Point:
    """The disks before one operation (None: after the last) and what was acknowledged by then."""

    node: int
    operation: Operation | None
    disks: dict[int, MemoryFileSystem]
    acknowledged: list[Any]

    def __str__(self) -> str:
        return f"before {self.operation or 'the end'} on node {self.node}"

    def disk(self, node: int, *, power: bool = False, **how: Any) -> MemoryFileSystem:
        """Return a disk as it is found after the death of the process."""
        return self.disks[node].crash_clone(Random(0), power=power, **how)

    def without(self, *lost: int, power: bool = False, **how: Any) -> World:
        """Return the world after the death of all processes and the loss of some disks."""
        return World(
            {
                node: lost_disk() if node in lost else self.disk(node, power=power, **how)
                for node in self.disks
            }
        )


def every_point(prepared: World, workload: Callable[[World, list[Any]], None]) -> Iterator[Point]:
    """Run a workload once; yield the disks before each operation on any of them."""
    points: list[Point] = []
    acknowledged: list[Any] = []
    memories = {}
    for node, disk in prepared.disks.items():
        assert isinstance(disk, MemoryFileSystem)
        memories[node] = disk.crash_clone(Random(0), power=False)

    def observe(node: int, operation: Operation | None) -> None:
        clones = {
            each: memory.crash_clone(Random(0), power=False) for each, memory in memories.items()
        }
        points.append(Point(node, operation, clones, list(acknowledged)))

    disks: dict[int, FileSystem] = {
        node: FaultyFileSystem(
            memory, observe=lambda operation, _, node=node: observe(node, operation)
        )
        for node, memory in memories.items()
    }
    workload(World(disks), acknowledged)
    observe(0, None)
    yield from points
