"""The partitions that a query reads, open for reading; of a replica set, from any of its roots.

A streaming query polls up to eighty times a second. A `refresh` therefore costs a few `stat` calls
per partition and lists no directory. While nothing is new, the interval between refreshes grows
with their duration, so an idle query costs the same with 10,000 partitions as with one.

Creation and deletion of topics and partitions change the modification time of the root, or of the
directory of topic settings; these are checked five times a second.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from streamlog.arrow.log_view import OffsetRange, PartitionBounds, TopicChoice
from streamlog.arrow.planned import PlannedRange
from streamlog.clock import Clock, SystemClock
from streamlog.errors import UnknownTopicError
from streamlog.fs.api import FileSystem
from streamlog.partition.reader import LogReader
from streamlog.records.record import IsolationLevel
from streamlog.root.read_roots import Directories, ReadRoots, RootPaths
from streamlog.root.replica_reader import ReplicaReader
from streamlog.root.topics import unknown_topic_error
from streamlog.segment.filenames import parse_log_file_name
from streamlog.topic import TopicPartition

__all__ = ["IdleRest", "KnownTopics", "Subscription", "check_topics"]

LOOK_EVERY_MS: Final = 200
# An idle query spends at most one part in so many of its time on refreshes: with 30 partitions a
# refresh takes a millisecond, so records wait up to 20 ms; with 500, a third of a second.
IDLE_PART: Final = 20
# A change within the same clock tick as the last look leaves the modification time unchanged.
_SETTLED_AFTER_MS: Final = 2000

_Reader: TypeAlias = LogReader | ReplicaReader


class KnownTopics(Protocol):
    """The topics of a root, or of a replica set."""

    @property
    def name(self) -> str:
        """The path."""
        ...

    @property
    def offline(self) -> Sequence[str]:
        """Roots of the set that are not reachable."""
        ...

    def find(self) -> Directories:
        """Return the partitions of each topic."""
        ...


class IdleRest:
    """The rest of an idle query between refreshes, in proportion to the duration of the last one.

    Args:
        clock: Measures refreshes.
        part: An idle query spends at most one part in so many of its time on refreshes.
        least_ms: The shortest rest.
    """

    def __init__(self, clock: Clock, part: int, *, least_ms: float = 0) -> None:
        self._clock, self._part, self._least_ms = clock, part, least_ms
        self._until_ms = -float("inf")

    def lasts(self) -> bool:
        """Return whether it is too early for the next refresh of an idle query."""
        return self._clock.monotonic_ms() < self._until_ms

    @contextlib.contextmanager
    def after_this(self) -> Iterator[None]:
        """Begin to rest at the end of the block, which is one refresh."""
        begin = self._clock.monotonic_ms()
        yield
        end = self._clock.monotonic_ms()
        self._until_ms = end + max(self._least_ms, self._part * (end - begin))


class Subscription:
    """The chosen partitions of a root or a replica set, as the planner's `LogView`.

    Args:
        path: A log root, a partition's directory or a segment file; or several log roots.
        choice: The topics and partitions.
        isolation: Determines the end of each partition.
        fs: The file system; the machine's own by default.
        clock: Limits how often the directories are checked.
        max_decompressed_bytes: Limit of one decompressed batch, for lookups by time.

    Attributes:
        bounds: The offsets of each partition; a new dictionary after every change.
        topic_ids: The ids of topics that have one.

    Raises:
        UnknownTopicError: There is no log at the path, or a topic given by name does not exist.
        NoReplicaOnlineError: No root of a replica set is reachable.
    """

    def __init__(
        self,
        path: RootPaths | ReadRoots,
        choice: TopicChoice,
        isolation: IsolationLevel,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        max_decompressed_bytes: int | None = None,
    ) -> None:
        self._max_decompressed_bytes = max_decompressed_bytes
        self._choice = choice
        self._isolation = isolation
        self._clock = clock or SystemClock()
        self._roots = (
            path if isinstance(path, ReadRoots) else ReadRoots(path, fs=fs, clock=self._clock)
        )
        self._readers: dict[TopicPartition, _Reader] = {}
        self._identities: dict[TopicPartition, object] = {}
        self._stamp: tuple[int, ...] = ()
        self._looked_ms = -float("inf")
        self._rest = IdleRest(self._clock, IDLE_PART)
        self._segment = parse_log_file_name(os.path.basename(self._roots.paths[0]))
        self.bounds: Mapping[TopicPartition, PartitionBounds] = {}
        self.topic_ids: Mapping[str, str] = {}
        check_topics(self._roots, choice)
        self._look()
        self._read_bounds()

    def refresh(self, *, is_idle: bool = False) -> None:
        """Update the bounds, and from time to time the list of partitions.

        Args:
            is_idle: Whether the last refresh found nothing new. In that case this call returns at
                once until `IDLE_PART` times the duration of the last refresh has passed.

        Raises:
            UnknownTopicError: The root no longer exists.
            NoReplicaOnlineError: A partition has no replica that can be read.
            CorruptDataError: A file that had to be read is damaged.
        """
        if is_idle and self._rest.lasts():
            return
        with self._rest.after_this():
            self._refresh()

    def _refresh(self) -> None:
        if self._clock.monotonic_ms() - self._looked_ms >= LOOK_EVERY_MS:
            self._look_if_changed()
        try:
            for partition, reader in self._readers.items():
                self._check_identity(partition, reader)
                reader.refresh()
        except UnknownTopicError:
            self._look()  # a directory was deleted, perhaps recreated, since the last look
        self._read_bounds()

    def close(self) -> None:
        """Close the files; idempotent."""
        for reader in self._readers.values():
            reader.close()

    # ---- the list of partitions --------------------------------------------------------------
    def _look_if_changed(self) -> None:
        self._looked_ms = self._clock.monotonic_ms()
        stamp = self._roots.changed_at()
        settled = max(stamp) + _SETTLED_AFTER_MS * 1_000_000 < self._clock.now_ms() * 1_000_000
        if stamp != self._stamp or not settled:
            self._look()

    def _look(self) -> None:
        """Open new partitions, close deleted ones, reopen replaced ones."""
        self._looked_ms = self._clock.monotonic_ms()
        self._stamp = self._roots.changed_at()
        found = {
            TopicPartition(topic, partition): tuple(map(self._directory_of, directories))
            for topic, partitions in self._roots.find().items()
            for partition, directories in partitions.items()
            if self._choice.wants(topic, partition)
        }
        readers: dict[TopicPartition, _Reader] = {}
        for partition, directories in sorted(found.items()):
            identity = self._roots.identity(partition.topic, directories)
            reader = self._readers.pop(partition, None)
            if reader is None or identity is None or self._identities.get(partition) != identity:
                if reader is not None:
                    reader.close()
                reader = self._open(partition, directories)
            if reader is not None and identity is not None:
                readers[partition] = reader
                self._identities[partition] = identity
        self.close()  # the readers left over: their partitions were deleted
        self._readers = readers
        self.topic_ids = {
            partition.topic: reader.topic_id
            for partition, reader in reversed(readers.items())  # the lowest partition decides
            if reader.topic_id is not None
        }

    def _directory_of(self, path: str) -> str:
        return os.path.dirname(path) if self._segment is not None else path

    def _open(self, partition: TopicPartition, directories: tuple[str, ...]) -> _Reader | None:
        try:
            limit = self._max_decompressed_bytes
            return self._roots.open(partition, directories, max_decompressed_bytes=limit)
        except UnknownTopicError:
            return None  # deleted between listing and opening

    def _check_identity(self, partition: TopicPartition, reader: _Reader) -> None:
        if isinstance(reader, ReplicaReader):
            return  # it checks this itself, and reads another replica
        if self._roots.identity(partition.topic, (reader.path,)) != self._identities[partition]:
            raise UnknownTopicError("the partition directory was replaced", path=reader.path)

    def _read_bounds(self) -> None:
        bounds = {partition: self._bounds_of(reader) for partition, reader in self._readers.items()}
        if bounds != self.bounds:
            self.bounds = bounds

    def _bounds_of(self, reader: _Reader) -> PartitionBounds:
        return PartitionBounds(*reader.readable(self._isolation, self._segment))

    # ---- lookups for the planner --------------------------------------------------------------
    def epoch_before(self, partition: TopicPartition, offset: int) -> int:
        """Return the leader epoch of the record before `offset`, -1 if unknown."""
        reader = self._readers[partition]
        return reader.epoch_for_offset(max(offset - 1, reader.log_start_offset))

    def end_of_epoch(self, partition: TopicPartition, epoch: int) -> int | None:
        """Return the end of a leader epoch: 0 if the log never had it, None if unknown."""
        reader = self._readers[partition]
        if reader.leader_epoch < 0:
            return None
        known, end = reader.end_offset_for_epoch(epoch)
        return end if known >= 0 else 0

    def offset_for_timestamp(self, partition: TopicPartition, timestamp: int) -> int | None:
        """Return the first offset whose timestamp (ms) is at least `timestamp`, or None."""
        found = self._readers[partition].offset_for_timestamp(timestamp)
        return None if found is None else found.offset

    def size_of(self, part: OffsetRange) -> int:
        """Return the approximate size of a range in bytes."""
        reader = self._readers[part.topic_partition]
        return reader.size_between(part.start_offset, part.end_offset)

    def split(self, part: OffsetRange, parts: int) -> list[OffsetRange]:
        """Split a range at batch ends into at most `parts` ranges of about equal bytes."""
        reader = self._readers[part.topic_partition]
        return [
            OffsetRange(part.topic, part.partition, start, end)
            for start, end in reader.split(part.start_offset, part.end_offset, parts)
        ] or [part]

    def planned(self, part: OffsetRange) -> PlannedRange:
        """Return a range with all that a task needs to read it.

        The directories are in the order in which to try them. The epoch matters in a replica set
        only.
        """
        partition = part.topic_partition
        reader = self._readers[partition]
        is_set = isinstance(reader, ReplicaReader)
        is_committed = self._isolation is IsolationLevel.READ_COMMITTED
        return PlannedRange(
            reader.directories if isinstance(reader, ReplicaReader) else (reader.path,),
            self.topic_ids.get(part.topic, ""),
            *part,
            end_epoch=self.epoch_before(partition, part.end_offset) if is_set else -1,
            unindexed_aborts=reader.unindexed_aborts if is_committed else (),
        )

    def describe_held_back(self) -> str | None:
        """Return one line about records held back by open transactions; None if there are none."""
        held = {
            partition: committed - bounds.end_offset
            for partition, bounds in self.bounds.items()
            if bounds.end_offset < (committed := self._committed_end(partition, bounds))
        }
        if not held:
            return None
        each = ", ".join(f"{count} of {partition}" for partition, count in held.items())
        return f"open transactions hold back {sum(held.values())} offsets: {each}"

    def _committed_end(self, partition: TopicPartition, bounds: PartitionBounds) -> int:
        return min(self._readers[partition].high_watermark, bounds.log_end_offset)


def check_topics(roots: KnownTopics, choice: TopicChoice) -> None:
    """Check that all topics and partitions given by name exist.

    Raises:
        UnknownTopicError: No such path, topic or partition; says how to create a topic.
        InvalidRequestError: The path is a file that is not a segment.
        NoReplicaOnlineError: No root of a replica set is reachable.
    """
    found = roots.find()
    for topic in choice.required():
        if topic not in found:
            raise unknown_topic_error(roots.name, topic, sorted(found), offline=roots.offline)
    for topic, partition in choice.partitions:
        if partition not in found[topic]:
            raise UnknownTopicError(
                f"topic {topic} has no partition {partition}",
                path=roots.name,
                expected=f"one of {', '.join(map(str, found[topic]))}",
            )
