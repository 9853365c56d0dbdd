"""Replicas on memory file systems: a root, a file system and faults for each node."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from errno import EIO
from random import Random

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import NotLeaderError, StorageError, StreamLogError
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import Fault, FaultyFileSystem, _Countdown
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.locks import Patience, take_partition_lock
from streamlog.partition.log import Log
from streamlog.records.builder import BatchBuilder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.record import Record
from streamlog.records.validate import AppendOrigin
from streamlog.replication.copies import OneByOne
from streamlog.replication.election import ElectionType
from streamlog.replication.fetcher_lock import has_replica_fetcher
from streamlog.replication.leadership import Leadership
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.register import QuorumRegister
from streamlog.replication.register_file import RegisterFile
from streamlog.replication.replicas import Replicas
from streamlog.root import registry
from streamlog.root.partition_log import PartitionLog
from streamlog.root.placement import Placement
from streamlog.root.roots import make_root
from streamlog.topic import TopicPartition

PARTITION = TopicPartition("orders", 0)
LAG_MS = 1000


class Disks:
    """The disks of three nodes, with one partition replicated on all of them.

    Args:
        nodes: How many.
        configs: Settings of the topic.
    """

    def __init__(self, nodes: int = 3, **configs: str) -> None:
        self.clock = ManualClock()
        self.disks = {node: MemoryFileSystem(clock=self.clock) for node in range(1, nodes + 1)}
        for node, disk in self.disks.items():
            root = self._root(node, disk)
            make_root(root)
            self.topic_id = registry.create_topic(
                root, "orders", partitions=1, configs=dict(configs)
            )
        writer = self.writer()
        writer.register().create(PartitionState.created(self.topic_id, tuple(self.disks)))

    def _root(self, node: int, fs: FileSystem) -> LogRoot:
        return LogRoot.at(f"/r{node}", fs=fs, clock=self.clock, random=Random(9))

    def writer(self, **faults: Fault) -> "Process":
        """Return a process; `n2=Fault(…)` injects a fault into its view of the disk of node 2."""
        views: dict[int, FileSystem] = {}
        for node, disk in self.disks.items():
            fault = faults.get(f"n{node}")
            views[node] = FaultyFileSystem(disk, *([fault] if fault is not None else []))
        return Process(self, views)

    def after_power_cut(self, *nodes: int) -> None:
        """Replace the disks of some nodes by what a power cut leaves of them."""
        for node in nodes:
            self.disks[node] = self.disks[node].crash_clone(
                Random(node), power=True, loss="everything"
            )

    def copy(self, node: int) -> MemoryFileSystem:
        """Return a copy of a node's disk."""
        return self.disks[node].crash_clone(Random(node), power=False)

    def log_bytes(self, node: int, suffix: str = ".log") -> bytes:
        """Return all log files of a replica, or others of its segments, one after another."""
        fs, directory = self.disks[node], f"/r{node}/orders-0"
        data = b""
        for name in fs.list(directory):
            if name.endswith(suffix):
                with fs.open(f"{directory}/{name}", OpenMode.READ) as file:
                    data += file.pread(file.stat().size, 0)
        return data


class Process:
    """A process that writes; implements `ReplicaRoots`."""

    def __init__(self, disks: Disks, views: Mapping[int, FileSystem]) -> None:
        self.views = dict(views)
        self.roots = {node: disks._root(node, fs) for node, fs in views.items()}
        self.clock, self.topic_id = disks.clock, disks.topic_id
        self.offline: set[int] = set()
        self.opened: list[Log] = []
        self.copies = OneByOne()

    def register(self) -> QuorumRegister:
        return QuorumRegister(
            self.register_files(PARTITION),
            locker=lambda node: self.locked(node, PARTITION),
            random=Random(3),
            topic_id=self.topic_id,
        )

    def leadership(self) -> Leadership:
        return Leadership(PARTITION, topic_id=self.topic_id, roots=self, random=Random(5))

    def open(self) -> PartitionLog:
        """Open the partition through its leader, elected if necessary."""
        leadership = self.leadership()
        state = leadership.leader(LogConfig)
        try:
            return self.lead(state.leader)
        except NotLeaderError:
            return self.lead(leadership.elect(ElectionType.ONLINE, LogConfig).leader)

    def state(self) -> PartitionState:
        return self.register().read()

    def _check(self, node: int) -> None:
        if node in self.offline:
            raise StorageError("log root is offline", path=self.roots[node].path)

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(self.roots)

    def root(self, node: int) -> LogRoot:
        return self.roots[node]

    def check_online(self, node: int) -> None:
        self._check(node)

    def placement(self) -> Placement:
        """Return the roots as the package opens them."""
        return Placement(
            self,
            clock=self.clock,
            random=Random(6),
            patience=Patience(100),
            copies=OneByOne(),
        )

    def is_online(self, node: int) -> bool:
        return node not in self.offline

    def has_replica_fetcher(self, node: int) -> bool:
        return has_replica_fetcher(self.roots[node])

    def register_files(self, partition: TopicPartition) -> Mapping[int, RegisterFile]:
        def checked(node: int) -> Callable[[], None]:
            return lambda: self._check(node)

        return {
            node: RegisterFile(root, str(partition), check=checked(node))
            for node, root in self.roots.items()
        }

    @contextmanager
    def _locked(self, node: int, partition: TopicPartition) -> Iterator[None]:
        self._check(node)
        lock = take_partition_lock(self.roots[node], partition, timeout_ms=100)
        try:
            yield
        finally:
            lock.release()

    def locked(self, node: int, partition: TopicPartition) -> AbstractContextManager[object]:
        return self._locked(node, partition)

    def open_follower(self, node: int, partition: TopicPartition) -> Log:
        self._check(node)
        return self._open(node, None)

    def lead(self, node: int) -> PartitionLog:
        """Open the partition in the root of a node, to lead."""
        replicas = Replicas(
            node,
            PARTITION,
            topic_id=self.topic_id,
            roots=self,
            clock=self.clock,
            random=Random(4),
            copies=self.copies,
            lag_time_max_ms=LAG_MS,
        )
        return self._open(node, replicas)

    def _open(self, node: int, replicas: Replicas | None) -> PartitionLog:
        root = self.roots[node]
        log = PartitionLog.open(
            root.partition(PARTITION),
            fs=root.fs,
            clock=root.clock,
            random=root.random,
            lock_timeout_ms=100,
            replicated=replicas,
        )
        self.opened.append(log)
        return log

    def fail(self, node: int, operation: str | None = None, path_suffix: str = "") -> None:
        """Let each change of a node's disk fail from now on."""
        view = self.views[node]
        assert isinstance(view, FaultyFileSystem)
        fault = Fault(errno=EIO, is_lasting=True, operation=operation, path_suffix=path_suffix)
        view._faults.append(_Countdown(fault))
        view._reads_may_fail = True

    def writes(self, node: int) -> int:
        """Return how many operations changed a node's disk so far."""
        view = self.views[node]
        assert isinstance(view, FaultyFileSystem)
        return len(view.operations)

    def mend(self, node: int) -> None:
        """Let a node's disk work again."""
        view = self.views[node]
        assert isinstance(view, FaultyFileSystem)
        view._faults.clear()


def records(*values: str) -> list[Record]:
    return [Record(None, value.encode(), (), 1) for value in values]


def values_of(log: Log) -> list[str]:
    """Return the values of all committed records."""
    return [(record.value or b"").decode() for record in log.records()]


def abort_transaction(log: Log, *, producer_id: int = 7) -> None:
    """Append a transaction of two records and its abort marker."""
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    for record in records("x", "y"):
        builder.append(record)
    log.append_as_leader(builder.build())
    marker = build_marker(
        EndTransactionMarker(ControlRecordType.ABORT, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=1,
    )
    log.append_as_leader(marker, origin=AppendOrigin.COORDINATOR)


def try_close(log: Log) -> None:
    with suppress(StreamLogError):
        log.close()
