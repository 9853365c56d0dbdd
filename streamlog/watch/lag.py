"""The lag of readers, in offsets and in time.

The lag in time is the timestamp of the last record less that of the last record the reader has
finished. If that one no longer exists (deleted, compacted away), or none was finished, the next one
that exists is taken. So the lag is the time by which the reader's results are behind the log, it
does not grow while no records arrive, and it needs no clock. Timestamps are those of the records:
producers choose them, unless the topic has `message.timestamp.type=LogAppendTime`. If they are out
of order, the lag is at least 0.

Both records are found by the offset index, so one batch is read for each of them, whatever the size
of the log. Timestamps are remembered from one measurement to the next: a reader that does not move
costs no further read.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from streamlog.bucket.places import shared_store
from streamlog.bucket.readers import BucketReaders
from streamlog.clock import SystemClock
from streamlog.errors import OffsetOutOfRangeError, UnknownTopicError
from streamlog.records.decode import Wanted, decode_pieces
from streamlog.root.read_roots import ReadRoots
from streamlog.root.readers import Reader
from streamlog.topic import TopicPartition

if TYPE_CHECKING:
    from streamlog.arrow.views import AnyReadRoots
    from streamlog.bucket.read_roots import LiveBucketReader
    from streamlog.partition.reader import LogReader
    from streamlog.root.replica_reader import ReplicaReader

    AnyReader: TypeAlias = LogReader | ReplicaReader | LiveBucketReader

__all__ = ["LagMeter", "PartitionLag", "PartitionOffsets", "known_readers"]

_NO_TIMESTAMP = -1  # RecordBatch.NO_TIMESTAMP


class PartitionLag(NamedTuple):
    """The lag of one reader in one partition.

    Attributes:
        reader: The reader's name.
        partition: The partition.
        current_offset: The first offset it has not finished; None if it has not started there.
        log_end_offset: The high watermark.
        lag: Number of offsets in between that still exist.
        lag_ms: The lag in time, in milliseconds; 0 without a lag, None if a record has no
            timestamp.
        committed_ms: Time of the position, in milliseconds since 1970.
    """

    reader: str
    partition: TopicPartition
    current_offset: int | None
    log_end_offset: int
    lag: int
    lag_ms: int | None
    committed_ms: int


class PartitionOffsets(NamedTuple):
    """One partition, for any number of readers.

    Attributes:
        partition: The partition.
        log_start_offset: The first offset that may be read.
        log_end_offset: The high watermark.
    """

    partition: TopicPartition
    log_start_offset: int
    log_end_offset: int


def known_readers(roots: "AnyReadRoots") -> list[Reader]:
    """Return the recorded readers of a root, each with its present position.

    Raises:
        CorruptCheckpointError: The file or object of a reader is malformed.
        StorageError: The disk or the store cannot be read.
    """
    if isinstance(roots, ReadRoots):
        return roots.recorded_readers()
    return [
        each.reader for each in BucketReaders(shared_store(roots.name), SystemClock()).recorded()
    ]


class LagMeter:
    """Measures the lag of readers of a root, once or again and again.

    Args:
        roots: The log root, the log roots of a replica set, or a root in an object store.
    """

    def __init__(self, roots: "AnyReadRoots") -> None:
        self._roots = roots
        self._found = roots.find()
        self._logs: dict[TopicPartition, tuple[object, AnyReader]] = {}
        self._timestamps: dict[tuple[TopicPartition, int], int | None] = {}
        self._used: dict[tuple[TopicPartition, int], int | None] = {}

    def __enter__(self) -> "LagMeter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the partitions; idempotent."""
        for _, log in self._logs.values():
            log.close()
        self._logs.clear()

    def refresh(self) -> None:
        """Learn of everything written, created and deleted since the last measurement.

        Raises:
            UnknownTopicError: There is no log any more.
            StorageError: The disk or the store cannot be read.
        """
        self._found = self._roots.find()
        self._timestamps, self._used = self._used, {}
        for partition in list(self._logs):
            identity, log = self._logs[partition]
            directories = self._found.get(partition.topic, {}).get(partition.partition)
            try:
                if directories is None or self._identity(partition, directories) != identity:
                    raise UnknownTopicError("the partition is gone or another one")
                log.refresh()
            except UnknownTopicError:
                log.close()
                del self._logs[partition]

    def partitions(self) -> Iterator[PartitionOffsets]:
        """Yield every partition of the root by topic and number."""
        for topic, numbers in sorted(self._found.items()):
            for number in sorted(numbers):
                partition = TopicPartition(topic, number)
                log = self._log(partition)
                if log is not None:
                    yield PartitionOffsets(partition, log.log_start_offset, log.high_watermark)

    def size_between(self, partition: TopicPartition, start: int, end: int) -> int:
        """Return the approximate bytes between two offsets, 0 if the partition is gone."""
        if partition.partition not in self._found.get(partition.topic, {}):
            return 0
        log = self._log(partition)
        return 0 if log is None or start >= end else log.size_between(start, end)

    def measure(self, readers: Iterable[Reader]) -> list[PartitionLag]:
        """Return the lag of readers, in all partitions of the topics that they read.

        These include partitions that a reader has not started, since they were added later or
        their topic was deleted and created again: its lag is everything they contain.

        Args:
            readers: The readers, at their present positions.

        Raises:
            CorruptRecordError: The batch with a record needed for the lag in time is damaged.
            StorageError: The disk or the store cannot be read.
        """
        return [row for reader in readers for row in self._of(reader)]

    def _of(self, reader: Reader) -> Iterator[PartitionLag]:
        read = {partition.topic for partition in reader.position.offsets}
        for topic in sorted(read.intersection(self._found)):
            for number in sorted(self._found[topic]):
                partition = TopicPartition(topic, number)
                log = self._log(partition)
                first = None if log is None else reader.goes_on_from(partition, log.topic_id)
                if log is None or first is None:
                    continue
                start, end = log.log_start_offset, log.high_watermark
                lag = max(0, end - max(first, start))
                yield PartitionLag(
                    reader=reader.name,
                    partition=partition,
                    current_offset=reader.stands_at(partition, log.topic_id),
                    log_end_offset=end,
                    lag=lag,
                    lag_ms=self._lag_ms(log, partition, max(first - 1, start), end) if lag else 0,
                    committed_ms=reader.committed_ms,
                )

    # ---- partitions --------------------------------------------------------------------------
    def _identity(self, partition: TopicPartition, directories: tuple[str, ...]) -> object:
        identify = getattr(self._roots, "identity", None)
        return None if identify is None else identify(partition.topic, directories)

    def _log(self, partition: TopicPartition) -> "AnyReader | None":
        """Return an open partition, None if it was deleted in the meantime."""
        if partition not in self._logs:
            directories = self._found[partition.topic][partition.partition]
            identity = self._identity(partition, directories)
            try:
                self._logs[partition] = identity, self._roots.open(partition, directories)
            except UnknownTopicError:
                return None
        return self._logs[partition][1]

    # ---- timestamps --------------------------------------------------------------------------
    def _lag_ms(
        self, log: "AnyReader", partition: TopicPartition, finished: int, end: int
    ) -> int | None:
        first = self._timestamp(log, partition, finished, end)
        last = self._timestamp(log, partition, end - 1, end)
        return None if first is None or last is None else max(0, last - first)

    def _timestamp(
        self, log: "AnyReader", partition: TopicPartition, offset: int, end: int
    ) -> int | None:
        key = partition, offset
        if key not in self._used:
            known = key in self._timestamps
            self._used[key] = self._timestamps[key] if known else _timestamp_from(log, offset, end)
        return self._used[key]


def _timestamp_from(log: "AnyReader", offset: int, end: int) -> int | None:
    """Return the timestamp of the first record from `offset` on; None if it has none."""
    while offset < end:
        try:
            info = log.read(offset, 1, end_offset=end)
        except OffsetOutOfRangeError:  # deleted since the log start was looked at
            return None
        wanted = Wanted(
            columns=frozenset(),
            start_offset=offset,
            end_offset=end,
            drop_control=False,
            max_decompressed=info.max_decompressed,
        )
        for _, found in decode_pieces(
            info.buffer, info.table, wanted, path=info.path, position=info.position
        ):
            if found.count:
                timestamp = int(found.timestamp[0])
                return None if timestamp == _NO_TIMESTAMP else timestamp
        offset = max(offset + 1, info.next_offset)
    return None
