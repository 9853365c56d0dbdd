"""What the log of a leader asks of the partition's other replicas."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from streamlog.fs.api import Buffer
from streamlog.records.acks import Acks
from streamlog.records.batch import BatchTable

__all__ = ["Replicated"]

LogT = TypeVar("LogT", contravariant=True)  # partition.log.Log, which imports this module


class Replicated(Protocol[LogT]):
    """The other replicas of one partition, seen from the one that leads, or wants to.

    All methods but `close` are called within `writing`, by the thread that holds the lock.
    """

    def begin(self, log: LogT) -> None:
        """Check that this replica may lead now; at most once while the lock is held.

        The log is caught up with other writers, but decided commits that wait are not applied yet,
        nor is a leader epoch that is due started. Both follow, unless this raises.

        Raises:
            NotLeaderError: It may not; nothing is changed.
        """
        ...

    def before_append(self, acks: Acks) -> None:
        """Check that enough replicas are in sync.

        Raises:
            NotEnoughReplicasError: Fewer than `min.insync.replicas`, and `acks` is all.
        """
        ...

    def appended(
        self,
        log: LogT,
        buffer: Buffer,
        table: BatchTable,
        acks: Acks,
        sync: Callable[[], None],
    ) -> None:
        """Copy batches, which are in the log by now, and raise the high watermark.

        Args:
            log: The leader's log.
            buffer: The batches.
            table: Their headers, offsets and epochs assigned.
            acks: How many replicas must hold them before this returns.
            sync: Syncs the leader's log if that is due; to be called once, in this thread, at
                best while the followers write.

        Raises:
            NotEnoughReplicasAfterAppendError: Too few replicas hold them, and `acks` is all.
        """
        ...

    def repeated(self, log: LogT, end_offset: int, acks: Acks) -> None:
        """Acknowledge batches that an idempotent producer repeats, as `appended` does.

        The first attempt may have failed because too few replicas held them.

        Args:
            log: The leader's log.
            end_offset: The offset after the batches.
            acks: How many replicas must hold them before this returns.
        """
        ...

    def share_high_watermark(self, log: LogT) -> None:
        """Let followers in sync learn high watermark and log start, as their next fetch would.

        Never raises: a follower that fails learns them later.

        Called where no append may follow soon: a follower learns it with the next append otherwise.
        """
        ...

    def epoch_due(self, log: LogT) -> int | None:
        """Return a new leader epoch, because offsets of this log may be lost; None: none is needed.

        Raises:
            NotLeaderError: Another replica has them and must lead; this one stays as it is.
        """
        ...

    def close(self) -> None:
        """Release what it holds; called once, not within `writing`."""
        ...
