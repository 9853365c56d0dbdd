"""What recorded readers keep of the partitions of a root: whole segments, up to a cap.

A reader needs a partition from the offset on that it has not finished; the segment that offset
lies in stays whole, and so do all behind it. Where that is more than `streamlog.readers.max.bytes`
only the newest segments of so many bytes are kept. Who has been silent for
`offsets.retention.minutes` keeps nothing.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from streamlog.clock import Clock
from streamlog.fs.api import FileSystem
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.records.layout import MAX_INT64
from streamlog.root.readers import Reader, list_readers
from streamlog.root.roots import read_server_config
from streamlog.topic import TopicPartition

__all__ = ["Held", "Holds", "held_from"]


class Held(NamedTuple):
    """What one reader keeps of a partition.

    Attributes:
        reader: Its name.
        partition: The partition.
        offset: The first offset it has not finished.
        kept_from: The first offset that is kept for it; above `offset` where the cap says so.
        bytes: Of the sealed segments that are kept for it.
    """

    reader: str
    partition: TopicPartition
    offset: int
    kept_from: int
    bytes: int


def held_from(held: Sequence[Held]) -> int:
    """Return the first offset that some reader keeps."""
    return min((each.kept_from for each in held), default=MAX_INT64)


class Holds:
    """The readers of a root that count, and the cap, as of one moment.

    Args:
        fs: Where the root is.
        readers: Those that count.
        max_bytes: How much of a partition they may keep; negative: no limit.
    """

    def __init__(self, fs: FileSystem, readers: Sequence[Reader], max_bytes: int) -> None:
        self._fs, self._readers, self._max_bytes = fs, readers, max_bytes

    @classmethod
    def read(cls, fs: FileSystem, clock: Clock, root: str) -> "Holds":
        """Read the books of a root.

        Raises:
            CorruptCheckpointError: What a reader has recorded cannot be understood.
            StorageError: A file cannot be read.
        """
        config, now_ms = read_server_config(fs, root), clock.now_ms()
        readers = [
            each
            for each in list_readers(fs, root)
            if not each.is_silent(now_ms, config.offsets_retention_minutes)
        ]
        return cls(fs, readers, config.streamlog_readers_max_bytes)

    def of(
        self, partition: TopicPartition, path: str, bases: Sequence[int], sizes: Sequence[int]
    ) -> list[Held]:
        """Return what each reader keeps of a partition.

        Args:
            partition: The partition.
            path: Its directory.
            bases: Base offsets of its segments, ascending.
            sizes: The bytes of each.
        """
        if not self._readers:
            return []
        topic_id = read_topic_id(self._fs, path)
        lowest = self._lowest_base(bases, sizes)
        found = []
        for reader in self._readers:
            offset = reader.needed_from(partition, topic_id)
            if offset is not None:
                kept_from = max(offset, lowest)
                first = max(0, bisect_right(bases, kept_from) - 1)
                found.append(Held(reader.name, partition, offset, kept_from, sum(sizes[first:-1])))
        return found

    def _lowest_base(self, bases: Sequence[int], sizes: Sequence[int]) -> int:
        """Return the base of the oldest segment that the cap lets readers keep."""
        if self._max_bytes < 0:
            return 0
        left, lowest = self._max_bytes, MAX_INT64
        for base, size in zip(reversed(bases), reversed(sizes), strict=True):
            left -= size
            if left < 0:
                break
            lowest = base
        return lowest
