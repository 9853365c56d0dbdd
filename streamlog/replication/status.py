"""The replicas of a partition as they are now: read from the registers and logs, without a lock.

Kafka's controller notices a dead broker and shrinks the ISR. Here the next append does. So a status
counts a replica as in sync only if the state says so and its log root is online.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from streamlog.config.log_config import LogConfig
from streamlog.errors import StreamLogError, UnknownTopicError
from streamlog.fs.log_root import LogRoot
from streamlog.partition.log_offsets import LogOffsets
from streamlog.partition.reader import LogReader
from streamlog.replication.partition_state import PartitionState, ReplicationEvents
from streamlog.replication.quorum import Accepted, Acceptor, Voter, latest
from streamlog.replication.register_file import RegisterFile
from streamlog.topic import TopicPartition

__all__ = ["Node", "PartitionStatus", "ReplicaStatus", "ReplicationMetrics", "metrics", "status_of"]


class Node(NamedTuple):
    """A log root of a replica set.

    Attributes:
        node: Its `node.id`.
        root: The log root.
        problem: Why it is offline, None if it is online.
    """

    node: int
    root: LogRoot
    problem: StreamLogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One replica of a partition.

    Attributes:
        node: The node of its log root.
        path: Its directory.
        problem: Why it is offline; None if it can be read.
        offsets: Those of its log; None while it is offline.
        leader_epoch: The latest epoch in its log, -1 if unknown.
        size_bytes: Bytes of all segments.
        segments: Number of segments.
    """

    node: int
    path: str
    problem: StreamLogError | None = None
    offsets: LogOffsets | None = None
    leader_epoch: int = -1
    size_bytes: int = 0
    segments: int = 0

    @property
    def is_online(self) -> bool:
        """Whether its log can be read."""
        return self.offsets is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """A replicated partition.

    Attributes:
        partition: The partition.
        state: The highest accepted state of the registers that can be reached.
        config: The settings of its topic.
        replicas: Its replicas, in assignment order.
        has_quorum: Whether a majority of the registers can be reached; without one, the state may
            be stale and cannot change.
        stale_registers: The online nodes whose copy of the state is older or missing.

    Source: org.apache.kafka.tools.TopicCommand.PartitionDescription.
    """

    partition: TopicPartition
    state: PartitionState
    config: LogConfig
    replicas: tuple[ReplicaStatus, ...]
    has_quorum: bool
    stale_registers: tuple[int, ...]

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas`, at most the number of replicas."""
        return min(self.config.min_insync_replicas, len(self.state.replicas))

    @property
    def offline(self) -> tuple[int, ...]:
        """The replicas whose log cannot be read, in assignment order."""
        return tuple(each.node for each in self.replicas if not each.is_online)

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The members of the ISR that are online."""
        return tuple(node for node in self.state.isr if node not in self.offline)

    @property
    def leader(self) -> ReplicaStatus | None:
        """The leader; None if there is none, or it is offline."""
        found = (each for each in self.replicas if each.node == self.state.leader)
        return next((each for each in found if each.is_online), None)

    @property
    def reference(self) -> ReplicaStatus | None:
        """The leader; while it is offline, the replica with the last records."""
        if self.leader is not None:
            return self.leader
        online = [each for each in self.replicas if each.offsets is not None]
        return max(online, key=lambda each: (each.leader_epoch, each.offsets), default=None)

    @property
    def is_under_replicated(self) -> bool:
        """Whether fewer replicas are in sync than are assigned; those being added do not count."""
        return len(self.in_sync) < len(self.state.replicas) - len(self.state.adding)

    @property
    def is_unavailable(self) -> bool:
        """Whether no leader is online."""
        return self.leader is None

    @property
    def is_at_min_isr(self) -> bool:
        """Whether the loss of one more replica stops writes with `acks=all`."""
        return len(self.in_sync) == self.min_isr

    @property
    def is_under_min_isr(self) -> bool:
        """Whether writes with `acks=all` are refused."""
        return len(self.in_sync) < self.min_isr

    @property
    def end_offset(self) -> int | None:
        """The log end offset of `reference`."""
        known = self.reference
        return None if known is None or known.offsets is None else known.offsets.end

    @property
    def high_watermark(self) -> int | None:
        """The largest high watermark that is known."""
        known = (each.offsets.high_watermark for each in self.replicas if each.offsets is not None)
        return max(known, default=None)

    def lag(self, replica: ReplicaStatus) -> int | None:
        """Return how many offsets a replica is behind the log end; None while it is offline."""
        if replica.offsets is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - replica.offsets.end)


def status_of(
    partition: TopicPartition, nodes: Mapping[int, Node], config: LogConfig
) -> PartitionStatus | None:
    """Return the status of a partition; None if it is not replicated.

    Args:
        partition: The partition.
        nodes: The log roots of the replica set by node.
        config: The settings of its topic.
    """
    acceptors = {node: _acceptor(each, partition) for node, each in nodes.items()}
    accepted = {
        node: None if found is None else found.accepted for node, found in acceptors.items()
    }
    value = latest(accepted.values())
    if value is None or value.state is None:
        return None
    state = value.state
    return PartitionStatus(
        partition=partition,
        state=state,
        config=config,
        replicas=tuple(_replica(nodes.get(node), node, partition) for node in state.replicas),
        has_quorum=value.is_held_by(_voters(acceptors)),
        stale_registers=tuple(
            node
            for node, each in nodes.items()
            if each.problem is None and _is_stale(accepted[node], value)
        ),
    )


def _acceptor(node: Node, partition: TopicPartition) -> Acceptor | None:
    if node.problem is not None:
        return None
    try:
        return RegisterFile(node.root, str(partition)).acceptor()
    except StreamLogError:
        return None  # damaged, or the root has just disappeared: as good as missing


def _voters(acceptors: Mapping[int, Acceptor | None]) -> list[Voter]:
    return [
        Voter(node, found.incarnation) for node, found in acceptors.items() if found is not None
    ]


def _is_stale(found: Accepted | None, value: Accepted) -> bool:
    return found is None or found.state != value.state


def _replica(node: Node | None, number: int, partition: TopicPartition) -> ReplicaStatus:
    if node is None:
        unlisted = UnknownTopicError("node is not in the list of log roots", got=number)
        return ReplicaStatus(node=number, path=str(partition), problem=unlisted)
    path = node.root.partition(partition)
    if node.problem is not None:
        return ReplicaStatus(node=number, path=path, problem=node.problem)
    try:
        with LogReader.open(path, fs=node.root.fs) as reader:
            return ReplicaStatus(
                node=number,
                path=path,
                offsets=reader.offsets,
                leader_epoch=reader.leader_epoch,
                size_bytes=reader.size,
                segments=len(reader.segments),
            )
    except StreamLogError as error:
        return ReplicaStatus(node=number, path=path, problem=error)


# ---- metrics ------------------------------------------------------------------------------------
class ReplicationMetrics(NamedTuple):
    """Gauges and counts over all partitions, named as Kafka names them.

    Attributes:
        partition_count: `PartitionCount`, of replicated partitions.
        under_replicated_partitions: `UnderReplicatedPartitions`.
        offline_partitions_count: `OfflinePartitionsCount`, partitions without a leader online.
        at_min_isr_partition_count: `AtMinIsrPartitionCount`.
        under_min_isr_partition_count: `UnderMinIsrPartitionCount`.
        offline_replica_count: `OfflineReplicaCount`.
        max_lag: `MaxLag`, the largest lag of a replica that is online.
        isr_shrinks: `IsrShrinks`, since the partitions were created; with those below, the
            counts of Kafka's `IsrShrinksPerSec` and so on.
        isr_expands: `IsrExpands`.
        unclean_leader_elections: `UncleanLeaderElections`.

    Source: `kafka.server:type=ReplicaManager`, `kafka.controller:type=ControllerStats`.
    """

    partition_count: int
    under_replicated_partitions: int
    offline_partitions_count: int
    at_min_isr_partition_count: int
    under_min_isr_partition_count: int
    offline_replica_count: int
    max_lag: int
    isr_shrinks: int
    isr_expands: int
    unclean_leader_elections: int


def metrics(statuses: Iterable[PartitionStatus]) -> ReplicationMetrics:
    """Return the metrics of partitions."""
    all_ = list(statuses)
    counts = (each.state.events for each in all_)
    lags = (each.lag(replica) or 0 for each in all_ for replica in each.replicas)
    return ReplicationMetrics(
        partition_count=len(all_),
        under_replicated_partitions=sum(each.is_under_replicated for each in all_),
        offline_partitions_count=sum(each.is_unavailable for each in all_),
        at_min_isr_partition_count=sum(each.is_at_min_isr for each in all_),
        under_min_isr_partition_count=sum(each.is_under_min_isr for each in all_),
        offline_replica_count=sum(len(each.offline) for each in all_),
        max_lag=max(lags, default=0),
        **reduce(ReplicationEvents.plus, counts, ReplicationEvents())._asdict(),
    )
