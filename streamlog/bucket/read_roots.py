"""A root in an object store, for reading: what `ReadRoots` is for directories.

One reader of the journal serves all partitions. It asks the store for news at most every
`LOOK_EVERY_MS`, however many partitions ask it.
"""

from collections.abc import Sequence
from typing import Final

from streamlog.bucket.places import shared_store
from streamlog.bucket.reading import FETCH_BYTES, BucketReader
from streamlog.bucket.root import BucketRoot
from streamlog.bucket.spans import epochs_of, split
from streamlog.bucket.state import BucketPartition, RootState
from streamlog.clock import Clock, SystemClock
from streamlog.errors import UnknownTopicError
from streamlog.partition.read import ReadableOffsets
from streamlog.partition.segments import OffsetAndTimestamp
from streamlog.records.decode import Wanted, decode_pieces
from streamlog.records.record import IsolationLevel
from streamlog.root.read_roots import Directories
from streamlog.store.api import ObjectStore
from streamlog.topic import TopicPartition

__all__ = ["BucketReadRoots", "LiveBucketReader"]

LOOK_EVERY_MS: Final = 100


class BucketReadRoots:
    """A root in an object store, for reading.

    Args:
        url: Its URL.
        clock: Limits how often the store is asked.
        store: Its objects; by default those of the URL.

    Attributes:
        paths: The URL.
        name: The URL, for errors and commands.
        root: The root.
    """

    is_set: Final = False
    offline: Final[tuple[str, ...]] = ()

    def __init__(
        self, url: str, *, clock: Clock | None = None, store: ObjectStore | None = None
    ) -> None:
        self.clock = clock or SystemClock()
        self.root = BucketRoot(shared_store(url) if store is None else store, clock=self.clock)
        self.paths = (url,)
        self.name = url
        self._looked_ms = -float("inf")

    def state(self) -> RootState:
        """Return the root as it was up to `LOOK_EVERY_MS` ago.

        Raises:
            UnknownTopicError: There is no root at the URL.
            StorageError: A request failed.
        """
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._looked_ms >= LOOK_EVERY_MS:
            self.root.refresh()
            self._looked_ms = self.clock.monotonic_ms()
        return self.root.state

    def find(self) -> Directories:
        """Return the partitions of each topic, each with its URL."""
        state = self.state()
        return {
            topic: {number: (f"{self.name}/{topic}-{number}",) for number in range(at.partitions)}
            for topic, at in sorted(state.topics.items())
        }

    def open(
        self,
        partition: TopicPartition,
        directories: Sequence[str] = (),
        *,
        max_decompressed_bytes: int | None = None,
    ) -> "LiveBucketReader":
        """Return a reader of a partition that `find` returned.

        Raises:
            UnknownTopicError: It was deleted in the meantime.
        """
        del directories
        return LiveBucketReader(self, partition, max_decompressed_bytes=max_decompressed_bytes)


class LiveBucketReader(BucketReader):
    """A reader of a partition that follows its root. Its methods are those of `LogReader`.

    Args:
        roots: The root.
        topic_partition: The partition.
        max_decompressed_bytes: Limit of one decompressed batch; None: the topic's setting.

    Raises:
        UnknownTopicError: There is no such partition.
    """

    def __init__(
        self,
        roots: BucketReadRoots,
        topic_partition: TopicPartition,
        *,
        max_decompressed_bytes: int | None = None,
    ) -> None:
        state, partition = roots.root.state, _partition_of(roots, topic_partition)
        limit = max_decompressed_bytes
        if limit is None:
            limit = state.config_of(topic_partition.topic).readable_decompressed_bytes
        super().__init__(roots.root.store, topic_partition, partition, max_decompressed_bytes=limit)
        self._roots = roots
        self.topic_id: str | None = state.topics[topic_partition.topic].topic_id

    def refresh(self) -> None:
        """Learn of what was committed since the last look.

        Raises:
            UnknownTopicError: The topic was deleted, or deleted and created again.
            StorageError: A request failed.
        """
        state = self._roots.state()
        partition = _partition_of(self._roots, self.topic_partition)
        topic_id = state.topics[self.topic_partition.topic].topic_id
        if topic_id != self.topic_id:
            raise UnknownTopicError(
                "the topic was deleted and created again", path=self.path, got=topic_id
            )
        self.advance(partition)

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def __enter__(self) -> "LiveBucketReader":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @property
    def state(self) -> BucketPartition:
        """The partition as of the last refresh."""
        return self._state

    @property
    def leader_epoch(self) -> int:
        """The last leader epoch, -1 if there is none."""
        return self._state.leader_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch that is at most `epoch`, and the offset where it ends."""
        return epochs_of(self._state).end_offset_for(epoch, self._state.end_offset)

    def readable(
        self, isolation: IsolationLevel, base_offset: int | None = None
    ) -> ReadableOffsets:
        """Return the offsets to read: all of them, at each level of isolation."""
        del isolation, base_offset
        start, end = self._state.log_start_offset, self._state.end_offset
        return ReadableOffsets(start, end, end)

    def split(self, start_offset: int, end_offset: int, parts: int) -> list[tuple[int, int]]:
        """Split a range of offsets into at most `parts` ranges of about equal bytes."""
        return split(self._state, start_offset, end_offset, parts)

    def max_timestamp(self) -> OffsetAndTimestamp | None:
        """Return the first record of the largest timestamp, or None."""
        state = self._state
        largest = max((each.max_timestamp for each in state.stretches), default=-1)
        for stretch in state.stretches:
            if largest < 0 or stretch.max_timestamp != largest:
                continue
            offset = max(stretch.base_offset, state.log_start_offset)
            while offset < stretch.end_offset:
                info = self.read(offset, FETCH_BYTES, end_offset=stretch.end_offset)
                wanted = Wanted(columns=frozenset(), start_offset=offset)
                for _, found in decode_pieces(info.buffer, info.table, wanted, path=info.path):
                    if found.count and int(found.timestamp.max()) == largest:
                        row = int(found.timestamp.argmax())
                        return OffsetAndTimestamp(int(found.offset[row]), largest)
                offset = info.next_offset
        return None


def _partition_of(roots: BucketReadRoots, partition: TopicPartition) -> BucketPartition:
    found = roots.root.state.partitions.get(partition)
    if found is None:
        raise UnknownTopicError("no such partition", path=roots.name, got=str(partition))
    return found
