"""`ReplicaSet`: the log roots of a replica set, opened together to write and to administer."""

import contextlib
import logging
import random as random_module
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from streamlog.clock import Clock
from streamlog.commits.retirement import at_once
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    InvalidReplicaAssignmentError,
    NoQuorumError,
    NotLeaderError,
    StreamLogError,
    UnavailableError,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.files import stat_directory
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.partition import checkpoints
from streamlog.partition.locks import Patience, look_at_state
from streamlog.partition.topic_config import ServerSettings
from streamlog.replication.abandoned import Abandoned, read_abandoned
from streamlog.replication.election import ElectionType
from streamlog.replication.fetcher_lock import FetcherLocks
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.reassignment import begin_reassignment, complete_reassignment
from streamlog.replication.replica_fetcher import ReplicaFetcher
from streamlog.replication.root_set import COMMITS, RootSet
from streamlog.replication.status import PartitionStatus, status_of
from streamlog.root import registry, replicated_topics
from streamlog.root.partition_log import LedPartitionLog
from streamlog.root.placement import Placement
from streamlog.root.read_roots import RootPaths, parse_roots
from streamlog.root.roots import no_replica_set_error
from streamlog.root.set_commits import SetCommits
from streamlog.topic import TopicPartition, parse_partition_directory

__all__ = ["ReplicaSet"]

FOLLOW_EVERY_MS: Final = 1_000
FETCH_EVERY_MS: Final = 10
_REFILL_ATTEMPTS: Final = 5

_logger = logging.getLogger(__name__)


class ReplicaSet:
    """The log roots of a replica set; see `ReplicaSet.open`.

    Attributes:
        roots: The list of the roots, and which of them are online.
    """

    def __init__(self, roots: RootSet, patience: Patience) -> None:
        self.roots, self._patience = roots, patience
        self._placement = Placement(
            roots, clock=roots.home.clock, random=roots.home.random, patience=patience
        )
        self._logs: dict[TopicPartition, LedPartitionLog] = {}
        self._guard = threading.RLock()
        self._fetchers: dict[TopicPartition, ReplicaFetcher] = {}
        self._seen_ends: dict[TopicPartition, int] = {}  # by `_fetch`
        self._resting: set[TopicPartition] = set()  # until the next `replicate_once`

    @classmethod
    def open(
        cls,
        roots: RootPaths,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        random: random_module.Random | None = None,
        lock_timeout_ms: float | None = None,
    ) -> "ReplicaSet":
        """Open a replica set by one or several of its roots.

        Args:
            roots: Their directories, as a list or separated by commas; one that can be reached is
                enough, since each root lists the others.
            fs: The file system; the machine's own by default.
            clock: The clock; the machine's own by default.
            random: For the rounds of registers.
            lock_timeout_ms: Time limit for locks of other writers; the root's setting by default.

        Returns:
            The open set; close it, or use it as a context manager.

        Raises:
            InvalidRequestError: A root does not belong to the set, or to none.
            UnknownTopicError: The only root given does not exist.
            UnavailableError: None of the roots can be read.
        """
        fs = fs or LocalFileSystem()
        found = [
            LogRoot.at(path, fs=fs, clock=clock, random=random) for path in parse_roots(roots, fs)
        ]
        listed = RootSet.open(found)
        if listed is None:
            raise no_replica_set_error(found[0])
        default_ms = ServerSettings(listed.home).load().streamlog_lock_timeout_ms
        patience = Patience.of(lock_timeout_ms, default_ms=default_ms)
        return cls(RootSet(listed.home, listed.list, patience=patience), patience)

    # ---- partitions ----------------------------------------------------------------------------
    def partitions(self, topic: str | None = None) -> list[TopicPartition]:
        """Return the replicated partitions, sorted; those of one topic if it is given."""
        named = (parse_partition_directory(name) for name in self.roots.register_names())
        found = {each for each in named if each is not None and topic in (None, each.topic)}
        return sorted(each for each in found if self._state_of(each) is not None)

    def _state_of(self, partition: TopicPartition) -> PartitionState | None:
        return self.roots.register(partition).peek()

    def log(self, topic: str, partition: int) -> LedPartitionLog:
        """Return a partition open through its leader; the same object on each call until `close`.

        Raises:
            UnknownTopicError: There is no such replicated partition.
            NoReplicaOnlineError: No replica that holds every committed record is online.
            NoQuorumError: Too few roots can be reached.
        """
        wanted = TopicPartition(topic, partition)
        with self._guard:
            log = self._logs.get(wanted)
            if log is None:
                log = self._logs[wanted] = LedPartitionLog(
                    self._placement, wanted, config=None, owns_placement=False
                )
            return log

    def describe(self, topic: str | None = None) -> list[PartitionStatus]:
        """Return the status of the replicated partitions, without locks and changes."""
        nodes = self.roots.nodes()
        found = []
        for each in self.partitions(topic):
            status = status_of(each, nodes, self._placement.topic_config(each.topic))
            if status is not None:
                found.append(status)
        return found

    def abandoned(self, topic: str, partition: int) -> dict[int, list[Abandoned]]:
        """Return the records that each replica gave up after elections, oldest first, by node.

        Those with `lost` above 0 were committed: an unclean election lost them.
        """
        found = {}
        for node, root in self.roots.online().items():
            noted = read_abandoned(root, TopicPartition(topic, partition))
            if noted:
                found[node] = noted
        return found

    # ---- leaders -------------------------------------------------------------------------------
    def elect(self, topic: str, partition: int, kind: ElectionType) -> PartitionState:
        """Hold an election.

        The preferred replica is caught up first, under the leader's lock: no record is lost. An
        unclean election may lose committed records; with less than a majority of the roots it
        also decides that the others do not count until they return.

        Raises:
            NoReplicaOnlineError: No replica may lead.
            NoQuorumError: Too few roots can be reached, and the election is not unclean.
        """
        wanted = TopicPartition(topic, partition)
        if kind is ElectionType.PREFERRED:
            return self.log(topic, partition).elect(kind)
        leadership = self._placement.leadership(wanted)
        config = partial(self._placement.topic_config, topic)
        try:
            return leadership.elect(kind, config)
        except NoQuorumError:
            if kind is not ElectionType.UNCLEAN:
                raise
            return leadership.force(config)

    def elect_commits(self) -> PartitionState:
        """Elect a root to lead the commits, also one that may lack decided commits.

        It is elected unclean only if no root in sync with the commits is online, or less than a
        majority of the roots; these do not count until they return. Decided commits that no root
        that is online knows are lost then: what a root that returns had decided is discarded.

        Raises:
            NoReplicaOnlineError: No root is online.
        """
        commits = SetCommits(self.roots, patience=self._patience, chores=at_once)
        with contextlib.closing(commits):
            return commits.elect_unclean()

    # ---- replicas ------------------------------------------------------------------------------
    def bytes_to_copy(self, topic: str, partition: int, replicas: Sequence[int]) -> int:
        """Return about how many bytes `reassign` would copy now; read-only.

        Raises:
            InvalidReplicaAssignmentError: A node is unknown or repeated.
        """
        self._check_assignment(replicas)
        for status in self.describe(topic):
            if status.partition.partition == partition and status.reference is not None:
                there = {each.node: each.size_bytes for each in status.replicas}
                size = status.reference.size_bytes
                return sum(max(0, size - there.get(node, 0)) for node in replicas)
        return 0

    def reassign(
        self,
        topic: str,
        partition: int,
        replicas: Sequence[int],
        *,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> PartitionState:
        """Move a partition to other nodes: catch up the new replicas, then drop the old ones.

        The directory of a replica that is dropped is set aside as NAME.ID-stray. If a new replica
        cannot be caught up, the reassignment stays unfinished and the next call continues it.

        Args:
            topic: The topic.
            partition: The number of the partition.
            replicas: Its nodes afterwards; the first is the preferred leader.
            on_progress: Called with the number of bytes that were copied.

        Returns:
            The state of the partition afterwards.

        Raises:
            InvalidReplicaAssignmentError: A node is unknown or repeated.
            UnavailableError: A new replica cannot be caught up, or too few roots can be reached.
        """
        wanted, target = TopicPartition(topic, partition), tuple(replicas)
        self._check_assignment(target)
        register = self.roots.register(wanted)
        state = register.read()
        for node in target:
            self._make_replica(node, wanted, state)
        log = self.log(topic, partition)
        # The first call continues an interrupted reassignment, mostly without the leader's lock.
        self._catch_up(log, on_progress)
        log.change_state(partial(_begun, target, self._placement.topic_config(topic)))
        self._catch_up(log, on_progress)
        state = register.read()
        if state.replicas != target:
            raise UnavailableError(
                f"new replicas of {wanted} are not in sync yet",
                got=f"ISR {list(state.isr)}",
                expected=f"nodes {list(target)}",
                hint="bring their log roots back, then repeat the command",
            )
        for node in self.roots.node_ids:
            if node not in target:
                self._drop_replica(node, wanted)
        return state

    def _catch_up(self, log: LedPartitionLog, on_progress: Callable[[int], None]) -> None:
        with contextlib.suppress(NotLeaderError):  # the leader was one of those that left
            log.catch_up_replicas(on_progress)

    def _check_assignment(self, target: Collection[int]) -> None:
        unknown = [node for node in target if node not in self.roots.node_ids]
        if unknown or not target or len({*target}) < len(target):
            raise InvalidReplicaAssignmentError(
                "invalid nodes for a partition",
                got=list(target),
                expected=f"different ones of {list(self.roots.node_ids)}",
            )

    def _make_replica(self, node: int, partition: TopicPartition, state: PartitionState) -> None:
        self.roots.check_online(node)
        root = self.roots.root(node)
        is_missing = stat_directory(root.fs, root.partition(partition)) is None
        if is_missing and node not in state.replicas:
            # A former replica was dropped: without its records, its recovery point means a loss.
            checkpoints.remove_partition(root, partition)
        registry.make_partition(root, partition, state.topic_id)
        root.fs.sync_directory(root.path)

    def _drop_replica(self, node: int, partition: TopicPartition) -> None:
        root = self.roots.root(node)
        path = root.partition(partition)
        try:
            self.roots.check_online(node)
            if stat_directory(root.fs, path) is not None:
                aside = registry.set_aside(
                    root,
                    partition,
                    path,
                    ending=registry.STRAY_SUFFIX,
                    check=partial(self._check_dropped, node, partition),
                )
                root.fs.sync_directory(root.path)
                _logger.info("[%s] set aside the former replica as %s", partition, aside)
        except UnavailableError as error:
            _logger.warning("[%s] the former replica of node %d stays: %s", partition, node, error)

    def _check_dropped(self, node: int, partition: TopicPartition) -> None:
        """Raise if a node is a replica again; under its lock no writer copies to it meanwhile.

        Raises:
            UnavailableError: It is, or the state is uncertain.
        """
        state = self.roots.register(partition).settled()
        if state is None or node in state.replicas:
            raise UnavailableError(
                "another process changes the replicas",
                got="no decided state" if state is None else f"nodes {list(state.replicas)}",
                expected=f"replicas without node {node}",
            )

    def refill(
        self,
        topic: str,
        partition: int,
        *,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> PartitionState:
        """Make missing directories of replicas again, and copy to them; return the state.

        Args:
            topic: The topic.
            partition: The number of the partition.
            on_progress: Called with the number of bytes that were copied.

        Raises:
            UnavailableError: Too few roots can be reached, or the state changes all the time.
        """
        for attempt in range(1, _REFILL_ATTEMPTS + 1):
            try:
                replicated_topics.restore(self.roots)
                break
            except UnavailableError:  # a writer changes the ISR at the same time
                if attempt == _REFILL_ATTEMPTS:
                    raise
        return self.log(topic, partition).catch_up_replicas(on_progress)

    # ---- replication as a process of its own ---------------------------------------------------
    def replicate_once(self) -> dict[TopicPartition, StreamLogError]:
        """Bring all replicas up to date: roots that return, elections that are due, catch-up.

        Returns:
            The partitions that could not be, with the reason.
        """
        failed: dict[TopicPartition, StreamLogError] = {}
        try:
            replicated_topics.restore(self.roots)
        except UnavailableError as error:
            _logger.warning("log roots that returned are not restored: %s", error)
        self._bring_commits_back()
        for partition in self.partitions():
            try:
                self.log(*partition).catch_up_replicas()
            except StreamLogError as error:
                _logger.warning("[%s] not replicated: %s", partition, error)
                failed[partition] = error
                self._drop_handle(partition)
        return failed

    def _bring_commits_back(self) -> None:
        """Copy the commit files of the set to roots that returned.

        Before that, the decisions that such a root made as a leader keep its partitions from being
        truncated.
        """
        if self.roots.register(COMMITS).peek() is None:
            return
        commits = SetCommits(self.roots, patience=self._patience, chores=at_once)
        try:
            with contextlib.closing(commits):
                commits.bring_back()
        except StreamLogError as error:
            _logger.warning("the commits of the replica set are not brought back: %s", error)

    def follow(self, stop: threading.Event, *, every_ms: int = FOLLOW_EVERY_MS) -> None:
        """Keep the replicas up to date until `stop` is set.

        Meanwhile writers leave the copies of appends with acks=0 and acks=1 to this process, the
        replica fetcher of the set (`replication.fetcher_lock`). Of two, the second one waits for
        the end of the first.

        Args:
            stop: Ends it after the current copy.
            every_ms: How often roots that return, elections and the ISR are looked after.
        """
        clock = self.roots.home.clock
        locks = FetcherLocks()
        try:
            while not stop.is_set():
                self.replicate_once()
                self._resting.clear()
                locks.hold(self.roots.online().values())
                until_ms = clock.monotonic_ms() + every_ms
                while not stop.is_set() and clock.monotonic_ms() < until_ms:
                    self._fetch()
                    stop.wait(FETCH_EVERY_MS / 1000)
        finally:
            locks.release()
        for _ in range(2):
            self._fetch()  # appended before the locks were released

    def _fetch(self) -> None:
        """Copy what was appended to partitions before the last call and is not committed yet.

        An append with acks=all commits by itself before the next call.
        """
        for partition, log in list(self._logs.items()):
            state = look_at_state(log.log_root, partition)
            if state is None:
                continue
            before = self._seen_ends.get(partition, -1)
            self._seen_ends[partition] = state.offsets.end
            if state.offsets.high_watermark >= before or partition in self._resting:
                continue
            try:
                fetcher = self._fetchers.get(partition)
                if fetcher is None:
                    fetcher = self._fetchers[partition] = log.fetcher()
                log.copy_appended(fetcher)
                if log.high_watermark < before:  # too few replicas are in sync
                    self._resting.add(partition)
            except StreamLogError as error:
                _logger.warning("[%s] not copied: %s", partition, error)
                self._drop_handle(partition)  # until the next `replicate_once`

    def _drop_handle(self, partition: TopicPartition) -> None:
        with self._guard:
            log = self._logs.pop(partition, None)
            fetcher = self._fetchers.pop(partition, None)
        if fetcher is not None:
            fetcher.close()
        if log is not None:
            with contextlib.suppress(StreamLogError):
                log.close()

    # ---- closing -------------------------------------------------------------------------------
    def close(self) -> None:
        """Close all partitions and leave the roots; idempotent.

        Raises:
            StorageError: Something could not be made durable; everything is closed all the same.
        """
        with self._guard, contextlib.ExitStack() as closing:
            closing.callback(self._placement.close)
            for log in self._logs.values():
                closing.callback(log.close)
            for fetcher in self._fetchers.values():
                closing.callback(fetcher.close)
            self._logs, self._fetchers = {}, {}

    def __enter__(self) -> "ReplicaSet":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        paths = ",".join(each.path for each in self.roots.list.roots)
        return f"<ReplicaSet {paths}>"


def _begun(target: tuple[int, ...], config: LogConfig, state: PartitionState) -> PartitionState:
    """Return the state of a reassignment that begins, and ends if it adds no replica."""
    begun = begin_reassignment(state, target)
    return complete_reassignment(begun, min_insync_replicas=config.min_insync_replicas)
