"""The partitions of a root as the gateway serves them: opened once, read, appended to.

Each has a `LogReader`, whose knowledge requests use without reading the directory, and a
`PartitionLog` once a client writes to it. After an append of this process the reader is refreshed
at once.
"""

import threading
from collections.abc import Callable, Iterator

from streamlog.fs.api import Buffer
from streamlog.partition.append import AppendInfo
from streamlog.partition.reader import LogReader
from streamlog.records.acks import Acks
from streamlog.records.validate import AppendOrigin
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from streamlog.topic import TopicPartition

__all__ = ["ServedPartition", "ServedPartitions"]


class ServedPartition:
    """One partition; its methods may be called from any thread.

    Attributes:
        name: Its topic and number.
        reader: What is known of it.
    """

    __slots__ = ("_changed", "_guard", "_log", "_manager", "name", "reader")

    def __init__(
        self, manager: LogManager, name: TopicPartition, changed: Callable[[TopicPartition], None]
    ) -> None:
        self.name, self._manager, self._changed = name, manager, changed
        self._guard = threading.Lock()
        self.reader: LogReader = manager.reader(name.topic, name.partition)
        self._log: PartitionLog | None = None

    @property
    def log(self) -> PartitionLog:
        """The partition open for writing; opening it may recover it, so not in the event loop."""
        if self._log is None:
            self._log = self._manager.log(self.name.topic, self.name.partition)
        return self._log

    def append(
        self, batches: Buffer, *, acks: Acks = Acks.ALL, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        """Append encoded batches and wake what waits for them; see `Log.append_as_leader`."""
        info = self.log.append_as_leader(batches, acks=acks, origin=origin)
        self.refresh()
        return info

    def refresh(self) -> bool:
        """Learn of appends; wake what waits if there are any. Return whether there are."""
        with self._guard:
            before = self.reader.offsets
            self.reader.refresh()
            has_changed = self.reader.offsets != before
        if has_changed:
            self._changed(self.name)
        return has_changed


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

    def forget(self, topic: str) -> None:
        """Forget the partitions of a topic that was deleted."""
        with self._guard:
            for name in [each for each in self._open if each.topic == topic]:
                del self._open[name]

    def __iter__(self) -> Iterator[ServedPartition]:
        return iter(list(self._open.values()))
