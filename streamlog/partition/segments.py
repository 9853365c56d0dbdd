"""The segments of a log in order, as an immutable list, and the search for records by time.

A reader takes the list once and keeps it; a writer that rolls or deletes replaces the list. So
readers never lock, never block a writer, and a segment they hold stays readable while its files
are being deleted.

"First" in a search by time means by offset: timestamps need not rise with offsets. Where Kafka
stops at the first segment whose largest timestamp qualifies, the search here continues with the
next one: an empty segment that compaction left cannot hide later records.
Source: UnifiedLog.fetchOffsetByTimestamp.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from streamlog.partition.log_offsets import LogOffsets
from streamlog.segment.segment import Segment

__all__ = ["OffsetAndTimestamp", "Segments", "max_timestamp", "offset_for_timestamp"]


class OffsetAndTimestamp(NamedTuple):
    """A record found by time.

    Source: org.apache.kafka.clients.consumer.OffsetAndTimestamp.
    """

    offset: int
    timestamp: int


class Segments:
    """Segments sorted by base offset; every change returns a new list."""

    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        self._bases = [segment.base_offset for segment in self._segments]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def active(self) -> Segment:
        """The last segment, the only one that is appended to."""
        return self._segments[-1]

    @property
    def base_offsets(self) -> list[int]:
        """The base offsets, ascending."""
        return list(self._bases)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    def find(self, base_offset: int) -> Segment | None:
        """Return the segment with exactly this base offset."""
        at = bisect_left(self._bases, base_offset)
        if at < len(self._bases) and self._bases[at] == base_offset:
            return self._segments[at]
        return None

    def find_current(self, base_offset: int) -> Segment | None:
        """Return the segment of this base offset unless compaction replaced it, or it grew."""
        found = self.find(base_offset)
        return None if found is None or found.is_replaced() else found

    def floor_index(self, offset: int) -> int:
        """Return the index of the last segment whose base is at most `offset`, -1 for none."""
        return bisect_right(self._bases, offset) - 1

    def starting_at(self, offset: int) -> tuple[Segment, ...]:
        """Return the segment that `offset` falls into and all after it."""
        return self._segments[max(0, self.floor_index(offset)) :]

    def with_segment(self, segment: Segment) -> "Segments":
        """Return the list with `segment` added, or replacing the one of the same base offset."""
        kept = [other for other in self._segments if other.base_offset != segment.base_offset]
        return Segments([*kept, segment])

    def without(self, segments: Iterable[Segment]) -> "Segments":
        """Return the list without `segments`."""
        gone = {segment.base_offset for segment in segments}
        return Segments(s for s in self._segments if s.base_offset not in gone)


def offset_for_timestamp(
    segments: Segments, timestamp: int, offsets: LogOffsets
) -> OffsetAndTimestamp | None:
    """Return the first committed record whose timestamp is large enough.

    Args:
        segments: The log's segments.
        timestamp: Milliseconds since 1970.
        offsets: Records below the log start do not count, nor at or above the high watermark.

    Returns:
        Offset and timestamp of the record, None where there is none.

    Raises:
        CorruptRecordError: A batch that had to be looked at is damaged.
    """
    for segment in segments.starting_at(offsets.start):
        if segment.is_empty or segment.max_timestamp < timestamp:
            continue
        found = segment.offset_for_timestamp(timestamp, offsets.start)
        if found is not None:
            is_committed = found.offset < offsets.high_watermark
            return OffsetAndTimestamp(found.offset, found.timestamp) if is_committed else None
    return None


def max_timestamp(segments: Segments, offsets: LogOffsets) -> OffsetAndTimestamp | None:
    """Return the first of the youngest records from the log start up to the high watermark.

    Returns:
        Offset and timestamp of the record, None where no record has a timestamp.

    Raises:
        CorruptRecordError: A batch that had to be looked at is damaged.

    Source: ListOffsetsRequest.MAX_TIMESTAMP.
    """
    start, end = offsets.start, offsets.high_watermark
    dated = [each for each in segments.starting_at(start) if each.max_timestamp >= 0]
    best: OffsetAndTimestamp | None = None
    for segment in sorted(dated, key=lambda each: -each.max_timestamp):
        if best is not None and segment.max_timestamp <= best.timestamp:
            break
        found = segment.latest(start, end)
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = OffsetAndTimestamp(found.offset, found.timestamp)
    return best
