"""What decisions that are not retired hold for one partition."""

import contextlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from streamlog.clock import Clock
from streamlog.commits.apply import batches_from
from streamlog.commits.decisions import DecidedPart, Decision
from streamlog.commits.extents import ExtentReader
from streamlog.commits.ledger import Ledgers
from streamlog.commits.pending import PendingDecisions
from streamlog.commits.staging import StagingArea
from streamlog.errors import FileMissingError
from streamlog.fs.api import FileSystem
from streamlog.topic import TopicPartition

__all__ = ["DecidedRecords", "retire_commits"]


class DecidedRecords:
    """The records of one partition that decisions hold: what a crash takes of them comes back.

    Args:
        fs: Where the root is.
        root: The log root.
        partition: The partition.
        topic_id: The id of its topic.
        pending: The decisions of the root.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        partition: TopicPartition,
        topic_id: str,
        pending: PendingDecisions,
    ) -> None:
        self._fs = fs
        self._partition, self._topic_id = partition, topic_id
        self._pending = pending
        self._ledgers = Ledgers(fs, root)
        self._area = StagingArea(fs, root)

    def end_offset(self) -> int:
        """Return the offset behind the last of them, 0 where there is none.

        Raises:
            CorruptCheckpointError: A decision or a ledger cannot be read.
            StorageError: The disk refuses.
        """
        return max((part.last_offset + 1 for _, part in self._parts()), default=0)

    def sync(self) -> None:
        """Make durable which decisions there are; nothing where there never was one.

        Raises:
            StorageError: It failed.
        """
        with contextlib.suppress(FileMissingError):
            self._pending.sync()

    def batches(self, offset: int, size: int) -> Iterator[NDArray[np.uint8]]:
        """Yield their batches as they stand in the log, from the one at `offset` on.

        Args:
            offset: Where a batch belongs; nothing is yielded where no decision has one.
            size: How many bytes of whole batches at most.

        Raises:
            CorruptDataError: A decision, a ledger or a staged file cannot be read.
            StorageError: The disk refuses.
        """
        for decision, part in self._parts():
            if part.base_offset <= offset <= part.last_offset:
                self._pending.sync()  # who made it may have died before
                reader = ExtentReader(self._fs, self._area, decision.identity.app, decision.files)
                yield from batches_from(decision, part, reader, offset=offset, size=size)

    def _parts(self) -> Iterator[tuple[Decision, DecidedPart]]:
        for decision, part in self._pending.naming(self._partition):
            if part.topic_id == self._topic_id and not self._ledgers.has_retired(decision):
                yield decision, part


def retire_commits(fs: FileSystem, clock: Clock, root: str) -> None:
    """Retire every decision of a root: all of them are applied and synced afterwards.

    Args:
        fs: Where the root is.
        clock: Tells the time.
        root: The log root; the lock of no partition of it is held.

    Raises:
        StreamLogError: A partition cannot be applied or synced.
    """
    from streamlog.root.manager import LogManager  # it uses partitions itself

    with LogManager.open(root, fs=fs, clock=clock) as manager:
        manager.commits.retire()
