"""What a commit needs of a partition."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from streamlog.config.log_config import LogConfig
from streamlog.fs.api import Buffer
from streamlog.partition.read import FetchInfo
from streamlog.records.table import BatchTable
from streamlog.topic import TopicPartition

__all__ = ["CommitTarget", "HeldPartitions"]


class CommitTarget(Protocol):
    """What a commit needs of a partition: `streamlog.root.partition_log.PartitionLog`."""

    topic_partition: TopicPartition
    topic_id: str
    path: str

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        ...

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset the next record gets."""
        ...

    @property
    def recovery_point(self) -> int:
        """Everything below it is synced."""
        ...

    @property
    def leader_epoch(self) -> int:
        """The epoch the next batch carries."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """Hold the partition's lock, caught up, decisions applied; may be nested."""
        ...

    def append_decided(self, buffer: Buffer, table: BatchTable) -> None:
        """Append batches byte for byte; only within `writing`."""
        ...

    def set_pending(self, pending: bool) -> None:  # noqa: FBT001 - says what it sets
        """Tell later holders of the lock whether to look for decisions."""
        ...

    def sync(self) -> None:
        """Make everything appended so far durable; the recovery point is the caller's to write."""
        ...

    def flush(self) -> None:
        """Make everything appended so far durable."""
        ...

    def read(self, offset: int, max_bytes: int = ...) -> FetchInfo:
        """Read whole batches from the one that holds `offset` on."""
        ...


class HeldPartitions:
    """The locks of the partitions of a commit, taken in order and each one let go when it is done.

    Args:
        logs: The partitions, in the order that all committers take them in.
    """

    def __init__(self, logs: Iterable[CommitTarget]) -> None:
        self._logs = tuple(logs)
        self._held: dict[TopicPartition, ExitStack] = {}

    def let_go(self, log: CommitTarget) -> None:
        """Give up the lock of one partition: nothing is left to be done there."""
        self._held.pop(log.topic_partition).close()

    def __enter__(self) -> "HeldPartitions":
        with ExitStack() as undo:
            for log in self._logs:
                held = ExitStack()
                held.enter_context(log.writing())
                undo.push(held)
                self._held[log.topic_partition] = held
            undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        with ExitStack() as rest:
            for held in self._held.values():
                rest.push(held)
