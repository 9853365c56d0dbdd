"""Copying topics from a root to a Kafka cluster, so that the same call again goes on.

    for each topic: create it, or look at what is there
      for each partition: go on at its end, after a look at its last record
                          refuse offsets that cannot be kept
                          send the committed records, and compare the offsets that they get
                          read them back, and compare them with those of the source

How far a copy has come is where the target's partitions end: the record that was copied last has
the offset before it, or, with new offsets, as many records before it as at the source.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from streamlog.errors import CorruptRecordError, DataLossError, InvalidRequestError
from streamlog.records.columns import RecordColumns
from streamlog.records.record import Record
from streamlog.topic import INTERNAL_TOPICS, TopicPartition
from streamlog.transfer.bounds import bound_of
from streamlog.transfer.copying import (
    CopiedPartition,
    CopyRequest,
    chosen_topics,
    is_compacted,
    uncopied,
)
from streamlog.transfer.ends import CopySource, CopyTopic, SourcePartition
from streamlog.transfer.kafka_target import KafkaTarget
from streamlog.transfer.record_digest import RecordDigest, committed_records

__all__ = ["KafkaCopier"]


class KafkaCopier:
    """Copies topics from a root to a Kafka cluster.

    Args:
        source: Where from.
        target: Where to.
        request: What.
        new_offsets: Whether records may get other offsets than those of the source.
        on_progress: Called with numbers of offsets copied.

    Attributes:
        remarks: What the copy does not have, after `run`.
    """

    def __init__(
        self,
        source: CopySource,
        target: KafkaTarget,
        request: CopyRequest,
        *,
        new_offsets: bool = False,
        on_progress: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._source, self._target, self._request = source, target, request
        self._new_offsets, self._on_progress = new_offsets, on_progress
        self.remarks: list[str] = []

    def run(self) -> Iterator[CopiedPartition]:
        """Copy, and yield what was copied of each partition; offsets are those of the source.

        Raises:
            UnknownTopicError: The source has no such topic or partition.
            CorruptRecordError: A batch of the source is damaged, or the copy is not what was read.
            DataLossError: The source has deleted records before they were copied.
            InvalidRequestError: The target has other records, or more, or the cluster refuses
                something; or the offsets cannot be kept.
            UnavailableError: A disk, a store or the cluster failed; the next call goes on.
        """
        for topic in self._chosen():
            partitions = [TopicPartition(topic.name, number) for number in topic.partitions]
            for partition, end in zip(partitions, self._target.ends(partitions), strict=True):
                self._refuse_gaps(partition, end)
            self.remarks += [f"{topic.name}: {each}" for each in self._target.begin(topic)]
            self.remarks += uncopied(topic)
            for partition in partitions:
                yield self._copy(topic, partition)

    def _chosen(self) -> list[CopyTopic]:
        """Return the topics to copy, without those that a cluster keeps for itself."""
        for name in self._request.topics:
            if name in INTERNAL_TOPICS:
                raise InvalidRequestError(
                    f"topic {name} belongs to the cluster itself",
                    path=self._target.name,
                    hint="copy other topics; clients commit their offsets again",
                )
        found = chosen_topics(self._source, self._request)
        return [topic for topic in found if topic.name not in INTERNAL_TOPICS]

    def _end_of(self, source: SourcePartition) -> int:
        return bound_of(source, to_time=self._request.to_time, is_stable_only=True).end_offset

    def _refuse_gaps(self, partition: TopicPartition, start: int) -> None:
        """Refuse offsets that the cluster would not give, before anything is sent.

        Raises:
            InvalidRequestError: The source begins above `start`, or has a gap after it.
        """
        if self._new_offsets:
            return
        source = self._source.open(partition)
        try:
            if not start and source.log_start_offset:
                raise _gap(source, 0, source.log_start_offset)
            start = max(start, source.log_start_offset)
            for records in committed_records(source, start, self._end_of(source), ()):
                _check_offsets(source, records, start)
                start += records.count
        finally:
            source.close()

    # ---- one partition -----------------------------------------------------------------------
    def _copy(self, topic: CopyTopic, partition: TopicPartition) -> CopiedPartition:
        source = self._source.open(partition)
        try:
            end = self._end_of(source)
            log_start, first = self._target.offsets(partition)
            start, last = self._place(source, first, end)
            if start < end:
                self._target.settle(topic.name)
                log_start, first = self._target.offsets(partition)
                start, last = self._place(source, first, end)
            if last is not None:
                self._check_last_record(source, last, partition, log_start, first)
            self._on_progress(start - source.log_start_offset)
            sent = self._send(source, (start, end), partition, first)
            if sent.count:
                self._check_copy(topic, source, (start, end), partition, first, sent)
            return CopiedPartition(
                topic_partition=partition,
                start_offset=start,
                end_offset=end,
                records=sent.count,
                size=sent.size,
            )
        finally:
            source.close()

    def _place(self, source: SourcePartition, target_end: int, end: int) -> tuple[int, int | None]:
        """Return the source's offset to go on from, and that of the last record that is copied."""
        if not target_end:
            return source.log_start_offset, None
        ahead = InvalidRequestError(
            "the target has later records than are to be copied",
            path=self._target.name,
            got=f"log end offset {target_end} for {source.path}",
            expected=f"at most {end}",
            hint="delete the topic there and copy again",
        )
        if not self._new_offsets:
            if target_end > end:
                raise ahead
            if target_end < source.log_start_offset:
                raise DataLossError(
                    "the source has deleted records that were not copied yet",
                    path=source.path,
                    offset=target_end,
                    got=f"log start offset {source.log_start_offset}",
                    expected=f"at most {target_end}, where the target ends",
                    hint="copy to another cluster; to keep this from happening, copy more often",
                )
            return target_end, target_end - 1
        left, last = target_end, source.log_start_offset
        for records in committed_records(source, source.log_start_offset, end, ()):
            if left < records.count:
                return int(records.offset[left]), int(records.offset[left - 1]) if left else last
            left, last = left - records.count, int(records.offset[-1])
        if left:
            raise ahead
        return end, last

    def _check_last_record(
        self,
        source: SourcePartition,
        last: int,
        partition: TopicPartition,
        log_start: int,
        target_end: int,
    ) -> None:
        """Refuse a target whose last record is not that of the source, if both have it."""
        begin = max(log_start, target_end - 1)
        found = list(_records(self._target.records(partition, begin, target_end)))
        first = max(last, source.log_start_offset)
        wanted = list(_records(committed_records(source, first, last + 1)))
        if found and wanted and _content(found[-1]) != _content(wanted[-1]):
            raise InvalidRequestError(
                "the target has other records than the source",
                path=f"{self._target.name}/{partition}",
                offset=target_end - 1,
                got="another record",
                expected=f"that of {source.path} at offset {last}",
                hint="copy to another cluster, or delete the topic there and copy again",
            )

    def _send(
        self,
        source: SourcePartition,
        offsets: tuple[int, int],
        partition: TopicPartition,
        target_end: int,
    ) -> RecordDigest:
        """Send records; return a digest of what the target must now hold from its end on."""
        sent, sender = RecordDigest(), None
        for records in committed_records(source, *offsets):
            at = target_end + sent.count
            if not self._new_offsets:
                _check_offsets(source, records, at)
            sender = sender or self._target.sender(partition, target_end)
            sender.send(records)
            sent.add(_placed(records, at))
            self._on_progress(records.count)
        if sender is not None:
            sender.finish()
        return sent

    def _check_copy(
        self,
        topic: CopyTopic,
        source: SourcePartition,
        offsets: tuple[int, int],
        partition: TopicPartition,
        first: int,
        sent: RecordDigest,
    ) -> None:
        """Read back what was sent.

        The cluster may have deleted or compacted some of it meanwhile: then what is left is
        compared record by record.

        Raises:
            CorruptRecordError: It differs from what was read.
            InvalidRequestError: Another process writes to the partition.
        """
        end = first + sent.count
        log_start, log_end = self._target.offsets(partition)
        if log_end != end:
            raise InvalidRequestError(
                "another process writes to the target",
                path=f"{self._target.name}/{partition}",
                got=f"log end offset {log_end}",
                expected=end,
                hint="stop its writers, then delete the topic there and copy again",
            )
        begin, found = max(first, log_start), RecordDigest()
        for records in self._target.records(partition, begin, end):
            found.add(records)
        if found == sent:
            return
        is_equal = False
        if begin > first or is_compacted(topic):
            wanted = _placed_records(source, offsets, first)
            is_equal = _are_among(self._target.records(partition, begin, end), wanted)
        if not is_equal:
            raise CorruptRecordError(
                "the copy does not hold the records that were read",
                path=f"{self._target.name}/{partition}",
                got=f"{found.count} records from offset {begin} on",
                expected=f"{sent.count} records of {source.path}",
                hint="delete the topic at the target and copy again",
            )


def _placed(records: RecordColumns, first: int) -> RecordColumns:
    """Return records as the cluster holds them: at consecutive offsets, with times as given."""
    return replace(
        records,
        offset=np.arange(first, first + records.count),
        timestamp_type=np.zeros(records.count, np.int32),
    )


def _placed_records(
    source: SourcePartition, offsets: tuple[int, int], first: int
) -> Iterator[RecordColumns]:
    for records in committed_records(source, *offsets):
        yield _placed(records, first)
        first += records.count


def _are_among(found: Iterator[RecordColumns], wanted: Iterator[RecordColumns]) -> bool:
    """Return whether the records are among others, in their order, with their offsets."""
    rest = _records(wanted)
    return all(any(record == each for each in rest) for record in _records(found))


def _records(columns: Iterator[RecordColumns]) -> Iterator[Record]:
    for each in columns:
        yield from each.records()


def _content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.headers, record.timestamp


def _check_offsets(source: SourcePartition, records: RecordColumns, first: int) -> None:
    """Refuse records that do not have consecutive offsets from `first` on."""
    wanted = np.arange(first, first + records.count)
    differs = records.offset != wanted
    if differs.any():
        row = int(differs.argmax())
        raise _gap(source, int(wanted[row]), int(records.offset[row]))


def _gap(source: SourcePartition, wanted: int, found: int) -> InvalidRequestError:
    return InvalidRequestError(
        "the cluster would give records other offsets than the source: it begins at 0, and "
        "leaves no gaps",
        path=source.path,
        offset=wanted,
        got=f"the next record at offset {found}",
        hint="pass --new-offsets to renumber the records from 0",
    )
