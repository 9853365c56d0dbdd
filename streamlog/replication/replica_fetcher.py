"""Copying to the followers of a partition from the leader's files, without the leader's lock.

Writers continue while replicas far behind catch up. The leader's files are read as any reader does,
so a batch may be copied before its append has ended. It stays in the leader's log unless the disk
or the machine fails; then the log begins another leader epoch, and the follower truncates by it.
The high watermark and the ISR are not touched: that takes the lock (`Replicas.catch_up`).

Source: ReplicaFetcherThread.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from streamlog.clock import Clock
from streamlog.errors import StreamLogError
from streamlog.fs.log_root import LogRoot
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.reader import LogReader
from streamlog.replication.completeness import positions_of, proof_of_loss
from streamlog.replication.follower_log import FollowerLog, LogPositions
from streamlog.replication.isr import ReplicationSettings
from streamlog.replication.leader import Leader
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.roots import ReplicaRoots, check_epoch
from streamlog.topic import TopicPartition

__all__ = ["FetcherRoots", "ReplicaFetcher"]

_logger = logging.getLogger(__name__)


class FetcherRoots(ReplicaRoots, Protocol):
    """The log roots of the replicas."""

    def log_root(self, node: int) -> LogRoot:
        """Return the root of a node, online or not."""
        ...


class _Positions(LogPositions):
    """The positions of a leader's log that is only read: its epochs are a copy."""

    def __init__(self, reader: LogReader) -> None:
        super().__init__(reader)
        self._epochs = reader.leader_epochs.copy()

    @property
    def epochs(self) -> LeaderEpochCache:
        """The leader epochs."""
        return self._epochs


class ReplicaFetcher:
    """Copies to the followers of one partition; keeps their logs and the leader's files open.

    Args:
        partition: The partition.
        roots: Where the replicas are.
        clock: Measures how long a follower that failed is left out.
        is_durable: Sync what was copied; otherwise as the topic's flush settings say.
        on_progress: Called with the number of bytes that were copied.
    """

    def __init__(
        self,
        partition: TopicPartition,
        roots: FetcherRoots,
        *,
        clock: Clock,
        is_durable: bool = True,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._partition, self._roots, self._clock = partition, roots, clock
        self._is_durable, self._on_progress = is_durable, on_progress
        self._leader: tuple[int, int] | None = None  # node and epoch of what is open
        self._reader: LogReader | None = None
        self._followers: dict[int, FollowerLog] = {}

    def fetch(self, state: PartitionState) -> None:
        """Copy to the followers what they lack.

        Args:
            state: The partition's state; the leader has begun to lead in its epoch, so its log is
                known to be complete.

        Raises:
            StreamLogError: The leader cannot be read; a follower that fails is logged.
        """
        if self._leader != (state.leader, state.leader_epoch):
            self.close()
            self._leader = state.leader, state.leader_epoch
        reader = self._opened(state.leader)
        leader = Leader(
            state.leader,
            state,
            _Positions(reader),
            ReplicationSettings(),
            high_watermark=reader.high_watermark,
            now_ms=self._clock.now_ms(),
        )
        for node in leader.followers:
            follower = self._followers.get(node)
            if follower is None:
                opened = partial(self._roots.open_follower, node, self._partition)
                follower = self._followers[node] = FollowerLog(node, opened, self._clock)
            if follower.is_due:
                self._fetch_to(follower, leader, reader)

    def _opened(self, node: int) -> LogReader:
        if self._reader is None:
            root = self._roots.log_root(node)
            self._reader = LogReader.open(root.partition(self._partition), fs=root.fs)
        else:
            self._reader.refresh()
        return self._reader

    def _fetch_to(self, follower: FollowerLog, leader: Leader, reader: LogReader) -> None:
        try:
            positions = follower.positions()
            if positions.offsets.end < reader.log_end_offset:
                mine = positions_of(leader.state.leader, reader)
                if proof_of_loss(mine, [positions], leader.state) is not None:
                    _logger.warning(
                        "[%s] the leader lost records: %s, %s", self._partition, mine, positions
                    )
                    return
                file = self._roots.register_files(self._partition)[follower.node]
                follower.catch_up(
                    leader,
                    reader,
                    settings=ReplicationSettings(),
                    check=partial(check_epoch, file, leader.state),
                    is_durable=self._is_durable,
                    on_progress=self._on_progress,
                )
            follower.succeeded()
        except StreamLogError as error:
            follower.failed()
            _logger.warning("[%s] node %d lags: %s", self._partition, follower.node, error)

    def close(self) -> None:
        """Release the logs."""
        followers, self._followers = self._followers, {}
        reader, self._reader = self._reader, None
        self._leader = None
        for follower in followers.values():
            follower.close()
        if reader is not None:
            reader.close()

    def __enter__(self) -> "ReplicaFetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
