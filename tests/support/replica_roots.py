"""Three log roots in memory with a replica of one partition in each, and its registers."""

import contextlib
from collections.abc import Mapping
from random import Random

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import StorageError
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.register import QuorumRegister
from streamlog.replication.register_file import RegisterFile
from streamlog.replication.status import Node, PartitionStatus, status_of
from streamlog.root.partition_log import PartitionLog
from streamlog.topic import TopicPartition

__all__ = ["NODES", "PARTITION", "ReplicaRoots"]

PARTITION = TopicPartition("orders", 0)
NODES = (1, 2, 3)


class ReplicaRoots:
    """Three log roots with a replica of one partition in each.

    Args:
        lengths: The number of records of each replica.
    """

    def __init__(self, lengths: Mapping[int, int]) -> None:
        self.fs = MemoryFileSystem()
        self.offline: set[int] = set()
        self.roots = {node: LogRoot.at(f"/root-{node}", fs=self.fs) for node in NODES}
        self.register = QuorumRegister(
            {node: RegisterFile(root, str(PARTITION)) for node, root in self.roots.items()},
            locker=lambda node: contextlib.nullcontext(),
            random=Random(1),
        )
        for node, length in lengths.items():
            with self.log(node) as log:
                for _ in range(length):
                    log.append([Record(b"k", b"v", (), 0)])
        self.register.create(PartitionState.created("AAAAAAAAAAEAAAAAAAAAAg", NODES))

    def log(self, node: int) -> PartitionLog:
        """Open the log of a node for writing, as if it had no other replica."""
        path = self.roots[node].partition(PARTITION)
        return PartitionLog.open(path, fs=self.fs, clock=ManualClock(0), random=Random(1))

    def shrink(self, *isr: int) -> None:
        """Replace the ISR."""
        state = self.register.read()
        self.register.change(lambda now: now.with_isr(isr, min_isr=2), state.partition_epoch)

    @property
    def nodes(self) -> dict[int, Node]:
        """The log roots, those in `offline` with a problem."""
        gone = StorageError("log root is missing")
        return {
            node: Node(node, root, gone if node in self.offline else None)
            for node, root in self.roots.items()
        }

    def status(self, min_isr: int = 2) -> PartitionStatus:
        """Return the status of the partition."""
        found = status_of(PARTITION, self.nodes, LogConfig(min_insync_replicas=min_isr))
        assert found is not None
        return found

    def append_batch(self, node: int, offset: int, count: int, *, epoch: int) -> None:
        """Truncate the log of a node to `offset`; append and commit a batch of another leader."""
        builder = BatchBuilder(base_offset=offset, partition_leader_epoch=epoch)
        for _ in range(count):
            builder.append(Record(b"k", b"other", (), 0))
        with self.log(node) as log:
            log.truncate_to(offset)
            log.append_as_follower(builder.build())
            log.raise_high_watermark(offset + count)
