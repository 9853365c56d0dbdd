"""The partitions of a root as the gateway serves them: opened once, read, appended to.

Each has a `LogReader`, whose knowledge requests use without reading the directory, and a
`PartitionLog` once a client writes to it. The log tells the reader of each append, so that it need
not look for it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from streamlog.fs.api import Buffer
from streamlog.partition.append import AppendInfo
from streamlog.partition.reader import LogReader
from streamlog.protocol.apis import ZERO_UUID
from streamlog.records.acks import Acks
from streamlog.records.batch import BatchTable
from streamlog.records.validate import AppendOrigin
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from streamlog.root.topics import partition_path
from streamlog.segment.segment import Segment
from streamlog.topic import TopicPartition

__all__ = ["ServedPartition", "ServedPartitions"]


_FRESH_S: Final = 0.02  # how long a look at a partition counts
_REFRESH_S: Final = 1.0  # how often segments are listed for requests that need no new records


class ServedPartition:
    """One partition; its methods may be called from any thread.

    Attributes:
        name: Its topic and number.
        reader: What is known of it.
    """

    __slots__ = (
        "_changed",
        "_epoch",
        "_epoch_until",
        "_fresh_until",
        "_guard",
        "_known_until",
        "_log",
        "_manager",
        "name",
        "reader",
    )

    def __init__(
        self, manager: LogManager, name: TopicPartition, changed: Callable[[TopicPartition], None]
    ) -> None:
        self.name, self._manager, self._changed = name, manager, changed
        self._guard = threading.Lock()
        self._log: PartitionLog | None = None
        self._fresh_until = self._known_until = self._epoch_until = 0.0
        self._epoch = -1
        # Not the manager's own: that one outlives a topic that another process creates again.
        self.reader = LogReader.open(partition_path(manager.log_root, name), fs=manager.fs)

    def is_of(self, topic_id: str) -> bool:
        """Whether it belongs to the topic of this id, and not to a former one of the name."""
        return (self.reader.topic_id or ZERO_UUID) == topic_id

    @property
    def log(self) -> PartitionLog:
        """The partition open for writing; opening it may recover it, so not in the event loop."""
        if self._log is None:
            log = self._manager.log(self.name.topic, self.name.partition)
            log.on_append = self._follow
            self._log = log
        return self._log

    def _follow(self, written: Segment, batches: Buffer, table: BatchTable) -> None:
        if self.reader.follow(written, batches, table):
            self.wake()

    def append(
        self, batches: Buffer, *, acks: Acks = Acks.ALL, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        """Append encoded batches and wake what waits for them; see `Log.append_as_leader`."""
        info = self.log.append_as_leader(batches, acks=acks, origin=origin)
        if self.is_behind(info):
            self.refresh()
        return info

    def append_at_once(self, batches: Buffer, *, origin: AppendOrigin) -> AppendInfo | None:
        """Append if that waits for nothing, see `Log.append_at_once`; `refresh` if it `is_behind`.

        Returns:
            Their offsets; None where it might wait: nothing was changed.
        """
        log = self._log
        return None if log is None else log.append_at_once(batches, origin=origin)

    def is_behind(self, info: AppendInfo) -> bool:
        """Whether the reader does not know an append: it was busy, or the segment is new."""
        return self.reader.log_end_offset <= info.last_offset

    def is_stale(self, now_s: float) -> bool:
        """Whether the reader should be refreshed; cheap enough for each request.

        Args:
            now_s: The event loop's time.
        """
        if now_s < self._fresh_until:
            return False
        if self.reader.may_have_changed() or now_s >= self._known_until:
            self._known_until = now_s + _REFRESH_S
            return True
        self._fresh_until = now_s + _FRESH_S
        return False

    @property
    def leader_epoch(self) -> int:
        """The latest leader epoch as of at most 20 ms ago, -1 if none is known."""
        now_s = time.monotonic()
        if now_s >= self._epoch_until:
            self._epoch, self._epoch_until = self.reader.leader_epoch, now_s + _FRESH_S
        return self._epoch

    def read_settings_again(self) -> None:
        """Let the next append look at the topic's settings, which were just changed."""
        if self._log is not None:
            self._log.read_settings_again()

    def refresh(self) -> bool:
        """Learn of appends; wake what waits if there are any. Return whether there are.

        Raises:
            UnknownTopicError: The partition was deleted.
        """
        with self._guard:
            before = self.reader.offsets
            self.reader.refresh()
            has_changed = self.reader.offsets != before
        if has_changed:
            self.wake()
        return has_changed

    def bring_up_to_date(self, *, finds_stable: bool) -> None:
        """Learn of appends and, if wanted, of the transactions in them: not in the event loop.

        Raises:
            UnknownTopicError: The partition was deleted.
        """
        self.refresh()
        if finds_stable:
            _ = self.reader.last_stable_offset

    def wake(self) -> None:
        """Wake the requests that wait for it."""
        self._changed(self.name)


class ServedPartitions:
    """The partitions of a root, opened when they are first asked for.

    Args:
        manager: The open root.
        changed: Called, in any thread, after a partition's offsets changed.
    """

    def __init__(self, manager: LogManager, changed: Callable[[TopicPartition], None]) -> None:
        self._manager, self._changed = manager, changed
        self._guard = threading.Lock()
        self._open: dict[TopicPartition, ServedPartition] = {}

    def known(self, topic: str, partition: int) -> ServedPartition | None:
        """Return a partition that is open already; costs nothing."""
        return self._open.get(TopicPartition(topic, partition))

    def get(self, topic: str, partition: int) -> ServedPartition:
        """Return a partition, opened if necessary: not in the event loop.

        Raises:
            UnknownTopicError: There is no such topic or partition.
            CorruptDataError: A file that opening reads is damaged.
            StorageError: It cannot be read.
        """
        name = TopicPartition(topic, partition)
        with self._guard:
            found = self._open.get(name)
            if found is None:
                found = self._open[name] = ServedPartition(self._manager, name, self._changed)
        return found

    def get_of_id(self, topic: str, partition: int, topic_id: str) -> ServedPartition:
        """Return a partition of a topic of this id, opened again if the topic was recreated.

        Raises:
            UnknownTopicError: There is no such topic or partition.
            CorruptDataError: A file that opening reads is damaged.
            StorageError: It cannot be read.
        """
        found = self.get(topic, partition)
        if not found.is_of(topic_id):
            self.forget(topic)
            self._manager.close_topic(topic)
            found = self.get(topic, partition)
        return found

    def forget(self, topic: str) -> None:
        """Forget the partitions of a topic that was deleted."""
        with self._guard:
            for name in [each for each in self._open if each.topic == topic]:
                self._open.pop(name).reader.close()

    def __iter__(self) -> Iterator[ServedPartition]:
        return iter(list(self._open.values()))
