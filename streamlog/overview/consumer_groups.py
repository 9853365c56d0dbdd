"""The consumer groups of a broker's disk, from `__consumer_offsets`.

These records are read, unlike those of other topics: the newest 8 MiB of them, shared by the
partitions. A group that committed only before that is not shown, and a remark says so.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from streamlog.errors import StreamLogError
from streamlog.overview.health import remark_of_error
from streamlog.overview.model import (
    GroupOverview,
    GroupPosition,
    HealthRemark,
    PartitionOverview,
    TopicOverview,
)
from streamlog.partition.reader import LogReader
from streamlog.protocol.internal_topics import Decoder, OffsetsKey, parse_internal
from streamlog.topic import TopicPartition
from streamlog.words import human_size

__all__ = ["group_overviews"]

_READ_BYTES: Final = 8 << 20


def group_overviews(
    topics: Mapping[str, TopicOverview],
    open_log: Callable[[TopicPartition], LogReader],
    remarks: list[HealthRemark],
) -> tuple[GroupOverview, ...]:
    """Return the groups that have committed offsets, by name.

    Args:
        topics: The topics, by name.
        open_log: Opens one of their partitions.
        remarks: Gets what could not be read.
    """
    offsets = topics.get(Decoder.OFFSETS.value)
    if offsets is None or not offsets.partitions:
        return ()
    most = _READ_BYTES // len(offsets.partitions)
    ends = {
        (topic.name, each.partition): each.high_watermark
        for topic in topics.values()
        for each in topic.partitions
    }
    groups: dict[str, list[GroupPosition]] = {}
    for partition in offsets.partitions:
        name = TopicPartition(offsets.name, partition.partition)
        try:
            with open_log(name) as log:
                start = _first_offset(partition, most)
                if start > log.log_start_offset:
                    remarks.append(_remark_of_rest(name, most))
                commits = _last_commits(log, max(start, log.log_start_offset))
        except StreamLogError as error:
            remarks.append(remark_of_error(error, f"groups in {name}"))
            continue
        for group, position in _positions(commits, ends):
            groups.setdefault(group, []).append(position)
    return tuple(
        GroupOverview(
            name=name,
            positions=tuple(sorted(groups[name], key=lambda each: (each.topic, each.partition))),
        )
        for name in sorted(groups)
    )


def _first_offset(partition: PartitionOverview, most: int) -> int:
    """Return the offset from which segments of at most so many bytes are left; the last always."""
    size, first = 0, partition.log_start_offset
    for segment in reversed(partition.segments):
        size += segment.size_bytes
        if size > most and not segment.is_active:
            return first
        first = segment.base_offset
    return partition.log_start_offset


def _remark_of_rest(partition: TopicPartition, most: int) -> HealthRemark:
    return HealthRemark(
        severity="note",
        where=str(partition),
        what=f"is larger than {human_size(most)}: groups that committed only in its older segments"
        " are not shown",
        cure="streamlog dump FILE --offsets-decoder",
    )


def _last_commits(log: LogReader, start: int) -> dict[bytes, bytes]:
    """Return the last value of each key; removed keys are left out."""
    values: dict[bytes, bytes] = {}
    for record in log.records(start):
        if record.key is None:
            continue
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values


def _positions(
    commits: Mapping[bytes, bytes], ends: Mapping[tuple[str, int], int]
) -> Iterator[tuple[str, GroupPosition]]:
    for key, value in commits.items():
        record = parse_internal(Decoder.OFFSETS, key, value)
        if record is None or record.kind > OffsetsKey.OFFSET_COMMIT or record.value is None:
            continue
        topic, partition = record.key["topic"], record.key["partition"]
        offset, end = record.value["offset"], ends.get((topic, partition))
        yield (
            record.key["group"],
            GroupPosition(
                topic=topic,
                partition=partition,
                offset=offset,
                end_offset=end,
                lag=None if end is None else max(end - offset, 0),
                committed_ms=record.value["commitTimestamp"],
            ),
        )
