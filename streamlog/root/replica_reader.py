"""Read one partition from whichever of its replicas can be read; nothing is locked or changed.

The leader's replica is read if it is reachable, and no follower in sync shows that it lost records;
else the reachable one with the highest high watermark. A replica that fails is left and another one
asked the same question, so a caller sees an error only when none is left.

The high watermark of a follower is one append late, so it may lie below a position that was reached
on the leader. Such a position waits; it is not lost. The log end of a follower in sync is not below
any committed offset, so it can be believed; that of another replica says nothing, and then no
position is above `log_end_offset`.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from streamlog.clock import Clock
from streamlog.errors import (
    CorruptDataError,
    NoReplicaOnlineError,
    StorageError,
    StreamLogError,
    UnknownTopicError,
)
from streamlog.fs.api import FileSystem
from streamlog.fs.files import stat_directory
from streamlog.fs.log_root import LogRoot
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.high_watermark import SeenHighWatermark
from streamlog.partition.read import FetchInfo, ReadableOffsets
from streamlog.partition.reader import LogReader
from streamlog.partition.segments import OffsetAndTimestamp
from streamlog.records.layout import MAX_INT64
from streamlog.records.record import IsolationLevel
from streamlog.segment.txn_index import AbortedTxn
from streamlog.topic import TopicPartition

__all__ = ["REPLICA_FAILURES", "ReplicaReader", "LeaderAndIsr", "no_replica_error"]

T = TypeVar("T")

# Failures of one replica that another one need not have.
REPLICA_FAILURES: Final = (StorageError, CorruptDataError, UnknownTopicError)
_RETRY_MS: Final = 1000  # how long a replica that failed, or an absent leader, is left alone

_log = logging.getLogger(__name__)


class LeaderAndIsr(NamedTuple):
    """The replicas of a partition at one moment.

    Attributes:
        leader: The leader's directory, None if it is unknown or its root is unreachable.
        in_sync: Directories known to hold every committed record.
    """

    leader: str | None
    in_sync: frozenset[str]


class ReadableRoots(Protocol):
    """Where the replicas of a partition are; `ReadRoots`."""

    def leader_and_isr(self, partition: TopicPartition, directories: Sequence[str]) -> LeaderAndIsr:
        """Return which of the directories leads and which are in sync."""
        ...

    def changes(self) -> int:
        """Return a number that grows when another replica may lead, or another one be in sync."""
        ...

    def is_reachable(self, directory: str) -> bool:
        """Return whether the log root of a partition's directory is there."""
        ...


class ReplicaReader:
    """A partition on several roots, open for reading; used like a `LogReader`.

    Args:
        partition: The partition.
        directories: Its directories in all roots; a later failure of one is no error.
        roots: Know the leader.
        fs: The file system.
        clock: Limits how often an absent leader is looked for.
        topic_id: The id of its topic; a directory with another one is not read.
        max_decompressed_bytes: Limit of one decompressed batch; None: that of its topic.

    Raises:
        NoReplicaOnlineError: No replica can be read.
    """

    def __init__(
        self,
        partition: TopicPartition,
        directories: Sequence[str],
        roots: ReadableRoots,
        *,
        fs: FileSystem,
        clock: Clock,
        topic_id: str | None,
        max_decompressed_bytes: int | None = None,
    ) -> None:
        self.topic_partition = partition
        self.topic_id = topic_id
        self._directories = tuple(directories)
        self._roots = roots
        self._fs, self._clock = fs, clock
        self._limit = max_decompressed_bytes
        self._failures: dict[str, StreamLogError] = {}  # since the last time all were tried
        self._reported: set[str] = set()  # directories whose failure was logged
        self._reader: LogReader | None = None
        self._inode = -1
        self._leader_and_isr = LeaderAndIsr(None, frozenset())
        self._chosen_ms = -float("inf")
        self._changes = -1
        self.choose()
        self._chosen()

    # ---- the choice --------------------------------------------------------------------------
    @property
    def path(self) -> str:
        """The directory that is read now."""
        return self._chosen().path

    @property
    def directories(self) -> tuple[str, ...]:
        """All directories of the partition, in the order in which a task tries them."""
        now = self.path
        in_sync = self._leader_and_isr.in_sync
        return tuple(sorted(self._directories, key=lambda each: (each != now, each not in in_sync)))

    def choose(self) -> None:
        """Look at all replicas again, also at those that failed, and choose one."""
        self._failures.clear()
        self._choose()

    def _choose(self) -> None:
        self._chosen_ms = self._clock.monotonic_ms()
        self._changes = self._roots.changes()
        self._leader_and_isr = self._roots.leader_and_isr(self.topic_partition, self._directories)
        committed = self._committed_elsewhere()  # before the leader is opened: it only grows
        opened: dict[str, LogReader] = {}
        for directory in self._by_preference():
            try:
                opened[directory] = self._open(directory)
            except REPLICA_FAILURES as error:
                self._note(directory, error)
                continue
            self._reported.discard(directory)
            if directory == self._leader_and_isr.leader:
                if opened[directory].log_end_offset >= committed:
                    break
                in_sync = self._leader_and_isr.in_sync - {directory}
                self._leader_and_isr = LeaderAndIsr(None, in_sync)
        before, self._reader = self._reader, None
        if opened:
            best = (
                self._leader_and_isr.leader
                if self._leader_and_isr.leader in opened
                else max(
                    opened,
                    key=lambda each: (opened[each].high_watermark, opened[each].log_end_offset),
                )
            )
            self._reader = opened[best]
            if before is None or before.path != best:
                _log.info("reading %s from %s", self.topic_partition, best)
            inode = stat_directory(self._fs, best)
            self._inode = -1 if inode is None else inode.inode
        for reader in (before, *opened.values()):
            if reader is not None and reader is not self._reader:
                reader.close()

    def _committed_elsewhere(self) -> int:
        """Return the highest high watermark that the leader gave a follower in sync.

        A leader whose log ends below it lost records, as a root restored from an older copy, and
        no writer has elected another one yet.
        """
        leader, in_sync = self._leader_and_isr
        highest = 0
        for directory in in_sync - {leader} if leader is not None else ():
            root = LogRoot.at(os.path.dirname(directory), fs=self._fs, clock=self._clock)
            seen = SeenHighWatermark(root, self.topic_partition)
            with contextlib.suppress(*REPLICA_FAILURES):
                seen.refresh(0, MAX_INT64, LeaderEpochCache)
            highest = max(highest, seen.offset)
        return highest

    def _by_preference(self) -> list[str]:
        leader = self._leader_and_isr.leader
        usable = [each for each in self._directories if each not in self._failures]
        return sorted(usable, key=lambda each: each != leader)

    def _open(self, directory: str) -> LogReader:
        now = self._reader
        if now is not None and now.path == directory and self._is_same(now):
            now.refresh()
            return now
        reader = LogReader.open(directory, fs=self._fs, max_decompressed_bytes=self._limit)
        if reader.topic_id != self.topic_id:
            reader.close()
            raise UnknownTopicError(
                "this root has a topic of the same name with another id",
                path=directory,
                got=reader.topic_id,
                expected=self.topic_id,
            )
        return reader

    def _is_same(self, reader: LogReader) -> bool:
        found = stat_directory(self._fs, reader.path)
        return found is not None and found.inode == self._inode

    def _note(self, directory: str, error: StreamLogError) -> None:
        if directory not in self._reported:
            _log.warning("a replica of %s cannot be read: %s", self.topic_partition, error)
            self._reported.add(directory)
        self._failures[directory] = error

    def _chosen(self) -> LogReader:
        if self._reader is None:
            raise no_replica_error(self.topic_partition, self._failures, self._roots.is_reachable)
        return self._reader

    def _asked(self, ask: Callable[[LogReader], T]) -> T:
        """Return the answer of the chosen replica, or of another one if it fails."""
        has_retried = False
        while True:
            if self._reader is None and not has_retried:
                has_retried = True
                self.choose()  # those that failed earlier may be back
            reader = self._chosen()
            try:
                return ask(reader)
            except REPLICA_FAILURES as error:
                self._note(reader.path, error)
                self._choose()

    # ---- the poll ----------------------------------------------------------------------------
    def refresh(self) -> None:
        """Learn of records written, and of a new leader, or of one that is there again.

        Raises:
            UnknownTopicError: The partition was deleted.
            NoReplicaOnlineError: No replica can be read.
        """
        leads = self._reader is not None and self.path == self._leader_and_isr.leader
        is_due = not leads and self._clock.monotonic_ms() - self._chosen_ms >= _RETRY_MS
        if is_due or self._roots.changes() != self._changes:
            self.choose()
        self._asked(self._refreshed)

    def _refreshed(self, reader: LogReader) -> None:
        if not self._is_same(reader):
            raise UnknownTopicError(
                "the partition's directory is gone or was replaced", path=reader.path
            )
        reader.refresh()

    # ---- what it knows -----------------------------------------------------------------------
    @property
    def _knows_the_end(self) -> bool:
        """Whether no committed record is missing in the replica that is read."""
        path = self.path
        return path == self._leader_and_isr.leader or path in self._leader_and_isr.in_sync

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._chosen().log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset after the last record, 2^63 - 1 while only replicas out of sync are there."""
        return self._chosen().log_end_offset if self._knows_the_end else MAX_INT64

    @property
    def high_watermark(self) -> int:
        """Records below it are committed."""
        return self._chosen().high_watermark

    @property
    def last_stable_offset(self) -> int:
        """No transaction is open below it."""
        return self._asked(lambda reader: reader.last_stable_offset)

    @property
    def leader_epoch(self) -> int:
        """The latest epoch, -1 if none is known."""
        return self._asked(lambda reader: reader.leader_epoch)

    @property
    def unindexed_aborts(self) -> tuple[AbortedTxn, ...]:
        """See `LogReader.unindexed_aborts`."""
        return self._asked(lambda reader: reader.unindexed_aborts)

    def readable(
        self, isolation: IsolationLevel, base_offset: int | None = None
    ) -> ReadableOffsets:
        """Return the offsets to read at an isolation level; see `LogReader.readable`."""
        found = self._asked(lambda reader: reader.readable(isolation, base_offset))
        return found if self._knows_the_end else found._replace(log_end=MAX_INT64)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch that `offset` was or will be written in, -1 if none is known."""
        return self._asked(lambda reader: reader.epoch_for_offset(offset))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch that is at most `epoch`, and the offset where it ends.

        The end of the latest epoch is that of the log, and an epoch later than it may have begun
        on another replica: both are unknown while only replicas out of sync are there.
        """
        known = self._asked(
            lambda reader: (reader.leader_epoch, reader.end_offset_for_epoch(epoch))
        )
        latest, found = known
        return found if self._knows_the_end or epoch < latest else (epoch, MAX_INT64)

    # ---- read --------------------------------------------------------------------------------
    def read(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        *,
        isolation: str | IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        **options: Any,
    ) -> FetchInfo:
        """Read whole batches, beginning with the one that holds `offset`; see `LogReader.read`."""
        return self._asked(
            lambda reader: reader.read(offset, max_bytes, isolation=isolation, **options)
        )

    def offset_for_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """Return the first record whose timestamp is at least `timestamp` (ms), or None."""
        return self._asked(lambda reader: reader.offset_for_timestamp(timestamp))

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """Return the first record of the largest timestamp, or None."""
        return self._asked(lambda reader: reader.max_timestamp())

    def split(self, start_offset: int, end_offset: int, parts: int) -> list[tuple[int, int]]:
        """Split a range of offsets into at most `parts` ranges of about equal bytes."""
        return self._asked(lambda reader: reader.split(start_offset, end_offset, parts))

    def size_between(self, start_offset: int, end_offset: int) -> int:
        """Return the approximate number of bytes between two offsets."""
        return self._asked(lambda reader: reader.size_between(start_offset, end_offset))

    def close(self) -> None:
        """Release the files; closing twice is harmless."""
        if self._reader is not None:
            self._reader.close()

    def __enter__(self) -> "ReplicaReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def no_replica_error(
    partition: TopicPartition,
    failures: Mapping[str, StreamLogError],
    is_reachable: Callable[[str], bool],
) -> StreamLogError:
    """Return the error for a partition of which no replica can be read.

    If all failures are of one kind that a retry does not cure (deleted, damaged), it is the first.

    Args:
        partition: The partition.
        failures: The error of each directory.
        is_reachable: Tells whether the log root of a directory is there.
    """
    found = list(failures.values())
    is_gone = all(isinstance(each, UnknownTopicError) for each in found)
    is_damaged = all(isinstance(each, CorruptDataError) for each in found)
    if found and (is_damaged or (is_gone and all(map(is_reachable, failures)))):
        return found[0]
    return NoReplicaOnlineError(
        f"no replica of {partition} can be read",
        got="; ".join(each.sentence for each in found) or "no directory of it",
        expected="one reachable log root that holds it",
        hint="mount the disk of one of its log roots",
    )
