"""A consumer for programs without Spark.

It only reads files, without locks or registration. There are no groups and no committed offsets:
each consumer reads all partitions assigned to it, and the program keeps its positions.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from streamlog.clock import Clock, epoch_ms
from streamlog.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicError
from streamlog.fs.api import FileSystem
from streamlog.partition.iteration import POLL_MS, DirectoryWatch, read_columns, readable_end
from streamlog.partition.reader import LogReader
from streamlog.partition.segments import OffsetAndTimestamp
from streamlog.records.record import IsolationLevel, Record
from streamlog.root.read_roots import Directories, ReadRoots, RootPaths
from streamlog.root.replica_reader import ReplicaReader
from streamlog.root.topics import unknown_topic_error
from streamlog.topic import TopicPartition

__all__ = ["Consumer"]

_LOOK_MS: Final = 1000  # interval at which a subscription discovers new partitions


class Consumer:
    """Reads partitions of a log root or of a broker's log.dir; close it, or use `with`.

    Pass topics to read all their partitions, also ones added later, or none and call `assign`. A
    partition is read from its beginning unless `seek` sets another position.

    Args:
        root: The log root; or several log roots of a replica set, as a list or separated by
            commas: each partition is read from a root that is reachable.
        *topics: Topics to subscribe to.
        isolation: `read_committed` skips aborted and open transactions, `read_uncommitted` does
            not.
        fs: The file system; the machine's own by default.
        clock: Measures timeouts and waits; the machine's own by default.

    Raises:
        UnknownTopicError: There is no such root or topic.
        NoReplicaOnlineError: No root of a replica set is reachable.

    Source: org.apache.kafka.clients.consumer.KafkaConsumer, without groups.
    """

    def __init__(
        self,
        root: RootPaths,
        *topics: str,
        isolation: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._roots = ReadRoots(root, fs=fs, clock=clock)
        self._isolation = IsolationLevel.of(isolation)
        self._open: dict[TopicPartition, _Assigned] = {}
        self._order: deque[TopicPartition] = deque()
        self._topics: tuple[str, ...] = ()
        self._looked_ms = self._roots.clock.monotonic_ms()
        self._is_closed = False
        if topics:
            self.subscribe(topics)
        else:
            self._roots.find()

    # ---- assignment --------------------------------------------------------------------------
    def partitions_for_topic(self, topic: str) -> list[TopicPartition]:
        """Return a topic's partitions.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        return self._partitions_of(topic, self._roots.find())

    def _partitions_of(self, topic: str, found: Directories) -> list[TopicPartition]:
        if topic not in found:
            raise unknown_topic_error(
                self._roots.name,
                topic,
                sorted(found),
                is_wanted=False,
                offline=self._roots.offline,
            )
        return [TopicPartition(topic, number) for number in found[topic]]

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read all partitions of these topics; replaces the previous assignment.

        Partitions added later are read from their beginning. There is no group: every subscribed
        consumer gets every record.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        names = tuple(topics)
        self._assign([each for name in names for each in self.partitions_for_topic(name)])
        self._topics = names

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read these partitions; positions in partitions that stay assigned are kept.

        Raises:
            UnknownTopicError: There is no such topic or partition.
        """
        self._assign([TopicPartition(*each) for each in partitions])
        self._topics = ()

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions, sorted."""
        return sorted(self._open)

    # ---- positions -----------------------------------------------------------------------------
    def position(self, partition: TopicPartition | tuple[str, int]) -> int:
        """Return the offset of the next record of a partition.

        Raises:
            InvalidRequestError: The partition is not assigned.
        """
        return self._assigned(partition).position

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int) -> None:
        """Read a partition from an offset on; the next `poll` raises if it is outside the log.

        Raises:
            InvalidRequestError: The partition is not assigned.
        """
        self._assigned(partition).seek(offset)

    def seek_to_beginning(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Read partitions, all assigned ones by default, from their beginning."""
        for each in partitions or tuple(self._open):
            self._assigned(each).seek(self._assigned(each).refreshed().log_start_offset)

    def seek_to_end(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Read partitions, all assigned ones by default, from their present end on."""
        for each in partitions or tuple(self._open):
            reader = self._assigned(each).refreshed()
            self._assigned(each).seek(readable_end(reader, self._isolation))

    def beginning_offsets(self) -> dict[TopicPartition, int]:
        """Return the first offset of each assigned partition."""
        return {key: each.refreshed().log_start_offset for key, each in self._open.items()}

    def end_offsets(self) -> dict[TopicPartition, int]:
        """Return the present end of each assigned partition."""
        return {
            key: readable_end(each.refreshed(), self._isolation) for key, each in self._open.items()
        }

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, for each partition, the first record at or after a time.

        Args:
            times: Milliseconds since 1970 or datetimes with a time zone, by partition.

        Raises:
            InvalidRequestError: A partition is not assigned, or a time is invalid.
        """
        return {
            each: self._assigned(each).refreshed().offset_for_timestamp(epoch_ms(time))
            for each, time in times.items()
        }

    # ---- records -----------------------------------------------------------------------------
    def poll(
        self, timeout_ms: float = 0, *, max_records: int = 500
    ) -> dict[TopicPartition, list[Record]]:
        """Return the next records, in order within each partition.

        Args:
            timeout_ms: How long to wait for a first record.
            max_records: Maximum number of records in all; partitions take turns.

        Returns:
            Records by partition; empty if none came in time.

        Raises:
            OffsetOutOfRangeError: A position is outside its log, by `seek` or because retention
                deleted its records. Nothing is skipped silently; `seek` decides.
            CorruptDataError: A batch is damaged; the records before it were returned.
            UnknownTopicError: A partition was deleted.
            InvalidRequestError: Nothing is assigned, or the consumer is closed.

        Source: KafkaConsumer.poll.
        """
        self._check_open()
        if not self._open:
            raise InvalidRequestError(
                "nothing is assigned to this consumer",
                path=self._roots.name,
                expected="topics, or a call to assign",
            )
        deadline_ms = self._roots.clock.monotonic_ms() + timeout_ms
        while True:
            found = self._take(max_records)
            left_ms = deadline_ms - self._roots.clock.monotonic_ms()
            if found or left_ms <= 0:
                return found
            self._roots.clock.sleep_ms(min(POLL_MS, left_ms))

    def _take(self, max_records: int) -> dict[TopicPartition, list[Record]]:
        if self._topics and self._roots.clock.monotonic_ms() - self._looked_ms >= _LOOK_MS:
            self._look()
        found: dict[TopicPartition, list[Record]] = {}
        left = max_records
        for _ in range(len(self._order)):
            if left <= 0:
                break
            partition = self._order[0]
            records = self._open[partition].take(left)
            self._order.rotate(-1)
            if records:
                found[partition] = records
                left -= len(records)
        return found

    def _look(self) -> None:
        """Discover partitions that were added to the topics."""
        self._looked_ms = self._roots.clock.monotonic_ms()
        there = [each for name in self._topics for each in self.partitions_for_topic(name)]
        self._assign([*self._open, *(each for each in there if each not in self._open)])

    def _assign(self, wanted: list[TopicPartition]) -> None:
        self._check_open()
        directories = self._roots.find()
        for topic, number in wanted:
            self._partitions_of(topic, directories)  # raises if there is no such topic
            if number not in directories[topic]:
                raise UnknownTopicError(
                    f"topic {topic} has no partition {number}",
                    path=self._roots.name,
                    expected=f"one of {', '.join(map(str, directories[topic]))}",
                )
        for gone in self._open.keys() - set(wanted):
            self._open.pop(gone).close()
        for each in wanted:
            if each not in self._open:
                there = directories[each.topic][each.partition]
                self._open[each] = _Assigned(self._roots, each, there, self._isolation)
        self._order = deque(dict.fromkeys(wanted))

    def _assigned(self, partition: TopicPartition | tuple[str, int]) -> "_Assigned":
        self._check_open()
        found = self._open.get(TopicPartition(*partition))
        if found is None:
            raise InvalidRequestError(
                "this partition is not assigned to the consumer",
                path=self._roots.name,
                got=str(TopicPartition(*partition)),
                expected=f"one of {', '.join(map(str, self.assignment()))}",
            )
        return found

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidRequestError("the consumer has been closed", path=self._roots.name)

    # ---- closing -----------------------------------------------------------------------------
    def close(self) -> None:
        """Close the files; idempotent."""
        self._is_closed = True
        for each in self._open.values():
            each.close()

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Assigned:
    """One partition and the position in it."""

    __slots__ = ("_at", "_isolation", "_read_up_to", "_reader", "_ready", "_standing", "position")

    def __init__(
        self,
        roots: ReadRoots,
        partition: TopicPartition,
        directories: tuple[str, ...],
        isolation: IsolationLevel,
    ) -> None:
        self._isolation = isolation
        self._reader = roots.open(partition, directories)
        self._standing = (  # a replica reader checks this itself
            None if roots.is_set else DirectoryWatch(roots.fs, directories[0])
        )
        self.seek(self._reader.log_start_offset)

    def seek(self, offset: int) -> None:
        """Set the position, and discard decoded records."""
        self.position = self._read_up_to = offset
        self._ready: list[Record] = []  # decoded, up to `_read_up_to`
        self._at = 0  # index of the next one

    def take(self, most: int) -> list[Record]:
        """Return the next records, at most `most`."""
        if self._at == len(self._ready):
            self._fill()
        records = self._ready[self._at : self._at + most]
        if records:
            self._at += len(records)
            is_last = self._at == len(self._ready)
            self.position = self._read_up_to if is_last else records[-1].offset + 1
        return records

    def _fill(self) -> None:
        reader = self.refreshed()
        if not reader.log_start_offset <= self.position <= reader.log_end_offset:
            raise OffsetOutOfRangeError(
                f"the position in {reader.topic_partition} is outside the log",
                path=reader.path,
                got=self.position,
                expected=f"{reader.log_start_offset} to {reader.log_end_offset}",
                hint="set a new position: seek_to_beginning, seek_to_end, seek",
            )
        end = readable_end(reader, self._isolation)
        for info, columns in read_columns(reader, self.position, end, isolation=self._isolation):
            self._read_up_to = info.next_offset
            if columns.count:
                self._ready, self._at = list(columns.records()), 0
                return
            self.position = info.next_offset  # only control records, or aborted ones

    def refreshed(self) -> LogReader | ReplicaReader:
        """Return the partition's reader, caught up with writers."""
        if self._standing is not None:
            self._standing.check()
        self._reader.refresh()
        return self._reader

    def close(self) -> None:
        """Close the files."""
        self._reader.close()
