"""The followers of a replica set's commits: the roots in sync with the root that leads them.

The register `commits` says which root leads and which roots follow. Work is done on one follower
after another, each under its lock; one that fails leaves the ISR.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from streamlog.commits.commit_files import CommitFiles, SourceFailedError
from streamlog.errors import (
    CorruptCheckpointError,
    FencedError,
    LockTimeoutError,
    NotLeaderError,
    StorageError,
    UnavailableError,
)
from streamlog.replication.partition_state import PartitionState

__all__ = ["CommitState", "Followers", "elected"]

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


class Followers:
    """The followers in sync with the root that leads the commits, as of one moment.

    Args:
        node: The leader's `node.id`.
        files_of: Returns the commit files of a root, or raises `StorageError`.
        register: The register `commits`.
        state: Its state in which the root leads.
    """

    def __init__(
        self,
        node: int,
        files_of: Callable[[int], CommitFiles],
        register: CommitState,
        state: PartitionState,
    ) -> None:
        self._node, self._files_of, self._register = node, files_of, register
        self._state = state

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
            if node == self._node:
                continue
            try:
                files = self._files_of(node)
                with files.locked() if is_joining else files.followed(self._state.leader_epoch):
                    files.check_epoch(self._state.leader_epoch)
                    work(files)
            except SourceFailedError as failed:  # the leader's own disk
                raise failed.error from failed
            except (StorageError, LockTimeoutError, CorruptCheckpointError) as error:
                self._drop(node, error)

    def _drop(self, node: int, error: Exception) -> None:
        _logger.warning("node %d does not follow the commits any more: %s", node, error)
        for _ in range(_ATTEMPTS):
            current = self._register.read()
            if current.leader_epoch != self._state.leader_epoch:
                raise NotLeaderError(
                    "another root was elected to lead the commits",
                    got=f"leader epoch {self._state.leader_epoch}",
                    expected=current.leader_epoch,
                )
            try:
                without = partial(_without, node)
                self._state = self._register.change(without, current.partition_epoch)
            except FencedError:
                continue  # another process removed a follower too
            return
        raise UnavailableError("the state of the commits keeps changing", got=f"node {node}")


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
