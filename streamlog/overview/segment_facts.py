"""The facts of one segment that an overview needs, of a directory or of an object store.

In a directory they come from the segment's name, its size, the header of its first batch and its
two index files. A segment of at most `WALKED_BYTES` is read, and the headers of its batches say
exactly when they were written; of a larger one the time index does, once per
`index.interval.bytes`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from streamlog.bucket.state import BucketPartition, Stretch
from streamlog.errors import StreamLogError
from streamlog.overview.timeline import Timeline
from streamlog.partition.reader import LogReader
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CURRENT_MAGIC,
    MAGIC_OFFSET,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
)
from streamlog.records.legacy_layout import MESSAGE_ATTRIBUTES_OFFSET
from streamlog.records.record import NO_TIMESTAMP, CompressionType
from streamlog.segment.segment import Segment

__all__ = ["WALKED_BYTES", "FoundSegment", "segments_in_bucket", "segments_of"]

WALKED_BYTES: Final = 1 << 20


class FoundSegment(NamedTuple):
    """A segment, as retention and the overview see it.

    Attributes:
        base_offset: Its first offset.
        end_offset: The offset after its last one.
        size: Bytes of its log.
        first_ms: The largest timestamp of its first batch; None if unknown.
        last_ms: Its largest timestamp; None if unknown.
        largest_timestamp: The same, or when its file was last written.
        is_active: Whether records are appended to it.
        codec: The codec of its first batch; None if unknown.
        problem: Why facts are missing; None if none are.
        timeline: Returns when its offsets were written.
    """

    base_offset: int
    end_offset: int
    size: int
    first_ms: int | None
    last_ms: int | None
    largest_timestamp: int
    is_active: bool
    codec: str | None
    problem: str | None
    timeline: Callable[[], Timeline]


def segments_of(reader: LogReader) -> list[FoundSegment]:
    """Return the segments of an open partition; damage makes facts missing, not the segment."""
    segments = tuple(reader.segments)
    if not segments:  # a partition without a record yet
        return []
    ends = [*(each.base_offset for each in segments[1:]), reader.log_end_offset]
    return [
        _found(segment, end, is_active=segment is segments[-1])
        for segment, end in zip(segments, ends, strict=True)
    ]


def _found(segment: Segment, end_offset: int, *, is_active: bool) -> FoundSegment:
    first_ms = last_ms = largest_ms = None
    codec = problem = None
    try:
        codec = _codec(segment)
        first_ms = _dated(segment.first_batch_timestamp)
        largest_ms = segment.largest_timestamp
        last_ms = _dated(segment.max_timestamp)
    except StreamLogError as error:
        problem = error.sentence
    return FoundSegment(
        base_offset=segment.base_offset,
        end_offset=end_offset,
        size=segment.size,
        first_ms=first_ms,
        last_ms=last_ms,
        largest_timestamp=segment.created_ms if largest_ms is None else largest_ms,
        is_active=is_active,
        codec=codec,
        problem=problem,
        timeline=partial(_timeline, segment, end_offset, first_ms, last_ms),
    )


def _codec(segment: Segment) -> str | None:
    head = segment.read(0, RECORD_BATCH_OVERHEAD)
    if len(head) <= MESSAGE_ATTRIBUTES_OFFSET:
        return None
    is_current = head[MAGIC_OFFSET] >= CURRENT_MAGIC
    at = ATTRIBUTES_OFFSET + 1 if is_current else MESSAGE_ATTRIBUTES_OFFSET
    return CompressionType(head[at] & COMPRESSION_MASK).name.lower() if at < len(head) else None


def _dated(timestamp: int | None) -> int | None:
    return None if timestamp is None or timestamp < 0 else timestamp


def _timeline(
    segment: Segment, end_offset: int, first_ms: int | None, last_ms: int | None
) -> Timeline:
    """Return the timeline of a segment; if it is damaged, what its first and last batch show."""
    try:
        if segment.size <= WALKED_BYTES:
            return _timeline_of_batches(segment)
        timestamps, offsets = segment.time_index.entries()
    except StreamLogError:
        timestamps = offsets = np.empty(0, np.int64)
    first = NO_TIMESTAMP if first_ms is None else first_ms
    last = NO_TIMESTAMP if last_ms is None else last_ms
    return Timeline.of(
        np.concatenate(([first], timestamps, [last])),
        np.concatenate(([segment.base_offset], offsets + 1, [end_offset])),
    )


def _timeline_of_batches(segment: Segment) -> Timeline:
    chunk = segment.read_checked(0, segment.size)
    table = chunk.scan.table.slice(0, chunk.sound)
    latest = table.max_timestamp
    is_exact = (table.magic == CURRENT_MAGIC) & (table.attributes & TIMESTAMP_TYPE_MASK == 0)
    earliest = np.where(is_exact & (table.base_timestamp >= 0), table.base_timestamp, latest)
    ms = np.stack([np.minimum(earliest, latest), latest], axis=1).ravel()
    offsets = np.stack([table.base_offset, table.last_offset + 1], axis=1).ravel()
    return Timeline.of(ms, offsets)


# ---- in an object store --------------------------------------------------------------------------
def segments_in_bucket(at: BucketPartition) -> list[FoundSegment]:
    """Return the sealed segments of a partition, and its tail as the active one.

    All facts are in the journal, which says the largest timestamp of each stretch of records.
    """
    sealed = [_in_bucket([each]) for each in at.stretches[: at.tail]]
    tail = at.stretches[at.tail :]
    return [*sealed, _in_bucket(tail, is_active=True)] if tail else sealed


def _in_bucket(stretches: Sequence[Stretch], *, is_active: bool = False) -> FoundSegment:
    newest = max(each.max_timestamp for each in stretches)
    first = stretches[0]
    return FoundSegment(
        base_offset=first.base_offset,
        end_offset=stretches[-1].end_offset,
        size=sum(each.size for each in stretches),
        first_ms=_dated(first.first_timestamp) or _dated(first.max_timestamp),
        last_ms=_dated(newest),
        largest_timestamp=newest,
        is_active=is_active,
        codec=None,
        problem=None,
        timeline=partial(_timeline_of_stretches, stretches),
    )


def _timeline_of_stretches(stretches: Iterable[Stretch]) -> Timeline:
    points = [
        point
        for each in stretches
        for point in (
            # The beginning of what one commit staged is not known: it is dated like its end.
            (
                each.first_timestamp if each.first_timestamp >= 0 else each.max_timestamp,
                each.base_offset,
            ),
            (each.max_timestamp, each.end_offset),
        )
    ]
    ms, offsets = np.array(points, np.int64).reshape(-1, 2).T
    return Timeline.of(ms, offsets)
