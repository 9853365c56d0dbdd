"""Where a replicated partition is written: through the root of its leader.

A process opens each root of the replica set once, whatever number of partitions it writes: what
they share (recovery points, decisions, settings, the registration as a writer) is `OpenRoot`.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from random import Random
from typing import NamedTuple, Protocol

from streamlog.clock import Clock
from streamlog.commits.apply import DecidedRecords
from streamlog.commits.commit_files import CommitFiles
from streamlog.commits.pending import PendingDecisions
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    InconsistentTopicIdError,
    NotLeaderError,
    StreamLogError,
    UnavailableError,
    UnknownTopicError,
)
from streamlog.fs.log_root import LogRoot
from streamlog.partition.locks import Patience
from streamlog.partition.log import Log
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.partition.root_marks import RootMarks
from streamlog.partition.topic_config import ConfigFiles, ServerSettings
from streamlog.replication.copies import Copies, InThreads
from streamlog.replication.election import ElectionType
from streamlog.replication.fetcher_lock import has_replica_fetcher
from streamlog.replication.leadership import Leadership
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.register import QuorumRegister
from streamlog.replication.register_file import RegisterFile
from streamlog.replication.replica_fetcher import ReplicaFetcher
from streamlog.replication.replicas import Replicas
from streamlog.replication.root_set import COMMITS, RootSet
from streamlog.root.open_writers import OpenWriter
from streamlog.root.roots import refuse_live_broker, refuse_planted
from streamlog.topic import TopicPartition

__all__ = ["Led", "Nodes", "OpenRoot", "Placement"]

_logger = logging.getLogger(__name__)


class Nodes(Protocol):
    """The log roots of a replica set: `replication.root_set.RootSet`."""

    @property
    def node_ids(self) -> Sequence[int]:
        """The listed nodes, in order."""
        ...

    def root(self, node: int) -> LogRoot:
        """Return the root of a node."""
        ...

    def check_online(self, node: int) -> None:
        """Raise `UnavailableError` if the root of a node is offline, or is another one."""
        ...

    def register_files(self, partition: TopicPartition | str) -> Mapping[int, RegisterFile]:
        """Return the register of a partition, or of the commits, in each listed root, by node."""
        ...

    def locked(self, node: int, partition: TopicPartition | str) -> AbstractContextManager[object]:
        """Return the lock of a partition, or of that register, in the root of a node."""
        ...


class OpenRoot:
    """One root of a replica set, as this process has it open for writing.

    Attributes:
        root: The log root.
        patience: How long to wait for other writers.
        marks: Its recovery points and log starts.
        decisions: Its decisions that are not retired.
        server: Its settings.
    """

    def __init__(self, root: LogRoot, patience: Patience) -> None:
        self.root, self.patience = root, patience
        self.marks = RootMarks(root)
        self.decisions = PendingDecisions(root)
        self.server = ServerSettings(root)
        self._writer: OpenWriter | None = None

    def enter(self) -> None:
        """Register this process as a writer of the root, once."""
        if self._writer is None:
            refuse_live_broker(self.root)
            refuse_planted(self.root)
            self._writer = OpenWriter.enter(self.root)

    def open_follower(
        self, partition: TopicPartition, topic_id: str, *, leads_commits: Callable[[], bool]
    ) -> Log:
        """Open a replica, not to lead.

        Args:
            partition: The partition.
            topic_id: The expected id of its topic.
            leads_commits: Whether this root leads the commits of its replica set.

        Raises:
            UnknownTopicError: The root has no such partition.
            InconsistentTopicIdError: It belongs to another topic.
            StreamLogError: It cannot be opened.
        """
        path = self.root.partition(partition)
        if self.root.fs.stat(path) is None:
            raise UnknownTopicError("the root has no directory of this replica", path=path)
        found = read_topic_id(self.root.fs, path)
        if found != topic_id:
            raise InconsistentTopicIdError(
                "the replica belongs to another topic of the same name",
                path=path,
                got=found,
                expected=topic_id,
            )
        self.enter()
        return Log(
            self.root,
            path,
            topic_id=topic_id,
            config=None,
            server=self.server,
            patience=self.patience,
            marks=self.marks,
            decided=DecidedRecords(
                self.root, partition, topic_id, self.decisions, leads_commits=leads_commits
            ),
        )

    def leave(self, *, in_order: bool) -> None:
        """Unregister the writer."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.leave(in_order=in_order)


class Led(NamedTuple):
    """The root that leads a partition, and the other replicas as its log needs them."""

    opened: OpenRoot
    replicas: Replicas
    topic_id: str


class Placement:
    """The roots of a replica set, open to write replicated partitions.

    Args:
        nodes: The listed roots.
        clock: The clock.
        random: For the registers' rounds.
        patience: How long to wait for other writers.
        copies: How copies to followers run; in threads by default.
    """

    def __init__(
        self,
        nodes: Nodes,
        *,
        clock: Clock,
        random: Random,
        patience: Patience,
        copies: Copies | None = None,
    ) -> None:
        self._nodes, self._clock, self._random = nodes, clock, random
        self._patience = patience
        self._threads = InThreads()
        self.copies: Copies = copies or self._threads
        self._opened: dict[int, OpenRoot] = {}
        self._topic_ids: dict[TopicPartition, str] = {}
        self._guard = threading.RLock()

    @classmethod
    def of(
        cls,
        root: LogRoot,
        partition: TopicPartition,
        *,
        lock_timeout_ms: float | Patience | None,
    ) -> "Placement | None":
        """Return the replica set of a root, None for a partition with one replica.

        Raises:
            StreamLogError: The list of log roots cannot be read.
        """
        if root.fs.stat(root.partition_register(partition)) is None:
            return None
        default_ms = ServerSettings(root).load().streamlog_lock_timeout_ms
        patience = Patience.of(lock_timeout_ms, default_ms=default_ms)
        nodes = RootSet.load(root, patience=patience)
        if nodes is None:
            return None
        return cls(nodes, clock=root.clock, random=root.random, patience=patience)

    # ---- the roots -----------------------------------------------------------------------------
    def root(self, node: int) -> OpenRoot:
        """Return the open root of a node."""
        with self._guard:
            opened = self._opened.get(node)
            if opened is None:
                opened = OpenRoot(self._nodes.root(node), self._patience)
                self._opened[node] = opened
            return opened

    def register_files(self, partition: TopicPartition) -> Mapping[int, RegisterFile]:
        """Return the register of a partition in each listed root, by node."""
        return self._nodes.register_files(partition)

    def locked(self, node: int, partition: TopicPartition) -> AbstractContextManager[object]:
        """Return the lock of a partition in the root of a node."""
        return self._nodes.locked(node, partition)

    def is_online(self, node: int) -> bool:
        """Return whether the root of a node can be reached, and is the one that was listed."""
        try:
            self._nodes.check_online(node)
        except StreamLogError as error:
            _logger.info("node %d is offline: %s", node, error)
            return False
        return True

    def has_replica_fetcher(self, node: int) -> bool:
        """Return whether a process of its own copies what the root of a node appends."""
        return has_replica_fetcher(self._nodes.root(node))

    def open_follower(self, node: int, partition: TopicPartition) -> Log:
        """Open the log of a node, not to lead."""
        self._nodes.check_online(node)
        topic_id = self._topic_id(partition)
        leads_commits = partial(self._leads_commits, node)
        return self.root(node).open_follower(partition, topic_id, leads_commits=leads_commits)

    def _commits(self) -> PartitionState | None:
        """Return the state of the commits, which may be stale."""
        register = QuorumRegister(
            self._nodes.register_files(COMMITS),
            locker=lambda each: self._nodes.locked(each, COMMITS),
            random=self._random,
        )
        return register.peek()

    def _leads_commits(self, node: int) -> bool:
        state = self._commits()
        return state is not None and state.leader == node

    def _refuse_undecided(self, node: int, log: Log) -> None:
        """Raise if a new leader would append where another root may have decided a commit.

        A root in sync with the commits knows every such decision; otherwise all others are asked.
        """
        state = self._commits()
        if state is None:
            return
        asked = [node] if node in state.isr else filter(self.is_online, state.isr)
        for each in asked:
            files = CommitFiles(self._nodes.root(each), self._patience.timeout_ms)
            files.refuse_undecided(log, state.leader)

    def _topic_id(self, partition: TopicPartition) -> str:
        topic_id = self._topic_ids.get(partition)
        if topic_id is None:
            # No majority is asked: an unclean election must find the replicas without one.
            state = self.leadership(partition).register.peek()
            if state is None:
                raise UnknownTopicError(f"partition {partition} has no state in any log root")
            topic_id = self._topic_ids[partition] = state.topic_id
        return topic_id

    # ---- leaders -------------------------------------------------------------------------------
    def leadership(self, partition: TopicPartition) -> Leadership:
        """Return the leadership of a partition: its register and its elections."""
        return Leadership(
            partition,
            topic_id=self._topic_ids.get(partition),
            roots=self,
            random=self._random,
        )

    def leader(self, partition: TopicPartition) -> Led:
        """Return the leader of a partition, elected if the root of the last one is offline.

        Raises:
            NoReplicaOnlineError: No replica that holds every committed record is online.
            NoQuorumError: Too few roots can be reached.
            UnknownTopicError: The topic was deleted.
        """
        self._topic_ids.pop(partition, None)  # the topic may have been created again
        state = self.leadership(partition).leader(partial(self.topic_config, partition.topic))
        return self._led(partition, state)

    def next_leader(self, partition: TopicPartition, node: int, error: StreamLogError) -> Led:
        """Return the leader after a node refused to lead or failed, elected if necessary.

        Args:
            partition: The partition.
            node: The node that was written through.
            error: Why it could not be.
        """
        leadership = self.leadership(partition)
        state = leadership.register.read()
        if state.leader == node:
            _logger.warning("[%s] node %d cannot lead: %s", partition, node, error)
            failed = () if isinstance(error, NotLeaderError) else (node,)
            config = partial(self.topic_config, partition.topic)
            state = leadership.elect(ElectionType.ONLINE, config, failed=failed)
        return self._led(partition, state)

    def _led(self, partition: TopicPartition, state: PartitionState) -> Led:
        self._topic_ids[partition] = state.topic_id
        opened = self.root(state.leader)
        replicas = Replicas(
            state.leader,
            partition,
            topic_id=state.topic_id,
            roots=self,
            clock=self._clock,
            random=self._random,
            copies=self.copies,
            lag_time_max_ms=opened.server.load().replica_lag_time_max_ms,
            may_append=partial(self._refuse_undecided, state.leader),
        )
        return Led(opened, replicas, state.topic_id)

    def fetcher(
        self,
        partition: TopicPartition,
        *,
        is_durable: bool = True,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> ReplicaFetcher:
        """Return what copies from the leader's files to the followers of a partition."""
        return ReplicaFetcher(
            partition, self, clock=self._clock, is_durable=is_durable, on_progress=on_progress
        )

    def log_root(self, node: int) -> LogRoot:
        """Return the root of a node, online or not."""
        return self._nodes.root(node)

    def topic_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic, from the first root that has them.

        Raises:
            UnknownTopicError: No root that can be reached has the topic.
        """
        for node in self._nodes.node_ids:
            root = self._nodes.root(node)
            with contextlib.suppress(StreamLogError):
                self._nodes.check_online(node)
                if root.fs.stat(root.topic_properties(topic)) is not None:
                    return ConfigFiles(root, topic, self.root(node).server).load()
        raise UnknownTopicError(f"no log root that can be reached has topic {topic}")

    def close(self, *, in_order: bool = True) -> None:
        """Leave all roots; the logs are closed by now. A root that is gone is left as it is."""
        self._threads.close()
        opened, self._opened = self._opened, {}
        for node, each in opened.items():
            try:
                each.leave(in_order=in_order)
            except UnavailableError as error:
                _logger.warning("node %d is not left in order: %s", node, error)
