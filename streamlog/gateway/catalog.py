"""The topics of a root by name and by id, known again after each change of the root's directory."""

import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

from streamlog.errors import StreamLogError
from streamlog.fs.log_root import LogRoot
from streamlog.partition.epochs import LeaderEpochCache
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.protocol.apis import ZERO_UUID
from streamlog.root import topics
from streamlog.topic import INTERNAL_TOPICS, TopicPartition

__all__ = ["Catalog", "CatalogEntry"]

_SETTLED_MS: Final = 50  # the coarsest step of a kernel's file times is 10 ms
_RECENT_MS: Final = 5.0


class CatalogEntry(NamedTuple):
    """A topic.

    Attributes:
        name: Its name.
        topic_id: Its id; all zero on the disk of a broker before 2.8, which kept none.
        partitions: The numbers of its partitions, ascending.
    """

    name: str
    topic_id: str
    partitions: tuple[int, ...]

    @property
    def is_internal(self) -> bool:
        """Whether coordinators keep their state in it."""
        return self.name in INTERNAL_TOPICS

    def has(self, partition: int) -> bool:
        """Whether a partition of this number exists."""
        numbers = self.partitions
        is_at = 0 <= partition < len(numbers) and numbers[partition] == partition
        return is_at or partition in numbers


class Catalog:
    """The topics of a root; cheap to ask for each request, from any thread.

    Other processes create and delete topics too. They change the names in the root's directory
    (partitions) or in that of the settings of topics, so two `stat` calls show whether the topics
    are still those that were listed. Requests for records, many in a millisecond, ask for what was
    found up to 5 ms ago; changes of this process are announced by `refresh`.
    """

    def __init__(self, root: LogRoot) -> None:
        self._root = root
        self._guard = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self._by_name: dict[str, CatalogEntry] = {}
        self._by_id: dict[str, CatalogEntry] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._recent_until_ms = 0.0

    def topics(self) -> Mapping[str, CatalogEntry]:
        """Return the topics by name, in order."""
        self.refresh()
        return self._by_name

    def topic(self, name: str) -> CatalogEntry | None:
        """Return the topic of a name."""
        self.refresh()
        return self._by_name.get(name)

    def topic_of_id(self, topic_id: str) -> CatalogEntry | None:
        """Return the topic of an id."""
        self.refresh()
        return self._by_id.get(topic_id)

    def recent_topic(self, name: str) -> CatalogEntry | None:
        """Return the topic of a name; one that was just deleted or extended may be as it was."""
        return (self._is_recent() and self._by_name.get(name)) or self.topic(name)

    def recent_topic_of_id(self, topic_id: str) -> CatalogEntry | None:
        """Return the topic of an id; one that was just deleted or extended may be as it was."""
        return (self._is_recent() and self._by_id.get(topic_id)) or self.topic_of_id(topic_id)

    def _is_recent(self) -> bool:
        return self._root.clock.monotonic_ms() < self._recent_until_ms

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the epoch of a partition that was not opened, as its directory has it once."""
        key = TopicPartition(topic, partition)
        epoch = self._epochs.get(key)
        if epoch is None:
            epochs = LeaderEpochCache.load(self._root.fs, self._root.partition(key))
            epoch = self._epochs[key] = max(0, epochs.latest_epoch or 0)
        return epoch

    def refresh(self) -> None:
        """Learn of all changes up to now."""
        looked_ms = self._root.clock.monotonic_ms()
        self._look()
        self._recent_until_ms = looked_ms + _RECENT_MS

    def _look(self) -> None:
        found = [self._root.fs.stat(each) for each in (self._root.path, self._root.topics)]
        stamp = tuple(0 if each is None else each.mtime_ns for each in found)
        if stamp == self._stamp:
            return
        # File times advance in steps: another change may still get the same time as the last.
        is_settled = max(stamp) < (self._root.clock.now_ms() - _SETTLED_MS) * 1_000_000
        with self._guard:
            directories = topics.directories_by_topic(self._root)
            entries = {
                name: self._entry(name, directories.get(name, {}))
                for name in topics.list_topics(self._root)
            }
            self._by_name = entries
            self._by_id = {
                each.topic_id: each for each in entries.values() if each.topic_id != ZERO_UUID
            }
            self._stamp = stamp if is_settled else None

    def _entry(self, name: str, directories: Mapping[int, str]) -> CatalogEntry:
        topic_id = None
        for path in directories.values():
            try:
                topic_id = read_topic_id(self._root.fs, path)
            except StreamLogError:  # reported by the requests that need the partition
                continue
            break
        return CatalogEntry(name, topic_id or ZERO_UUID, tuple(directories))
