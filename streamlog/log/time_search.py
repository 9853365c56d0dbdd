"""Finding records by time: by the segments' largest timestamps, their time indexes, a short scan.

"First" means by offset: timestamps need not rise with offsets. Where Kafka stops at the first
segment whose largest timestamp qualifies, the search here goes on to the next one: a 0-byte
segment that compaction left cannot hide later records. Source: UnifiedLog.fetchOffsetByTimestamp.
"""

from streamlog.log.append import OffsetAndTimestamp
from streamlog.log.segments import Segments
from streamlog.segment.segment import Segment

__all__ = ["max_timestamp", "offset_for_timestamp"]


def offset_for_timestamp(
    segments: Segments, timestamp: int, log_start_offset: int
) -> OffsetAndTimestamp | None:
    """Return the first record at or above `log_start_offset` whose timestamp is large enough.

    Args:
        segments: The log's segments.
        timestamp: Milliseconds since 1970.
        log_start_offset: Records below it do not count.

    Returns:
        Offset and timestamp of the record, None where there is none.

    Raises:
        CorruptRecordError: A batch that had to be looked at is damaged.
    """
    for segment in segments.starting_at(log_start_offset):
        if segment.is_empty or segment.max_timestamp < timestamp:
            continue
        found = segment.offset_for_timestamp(timestamp, log_start_offset)
        if found is not None:
            return OffsetAndTimestamp(found.offset, found.timestamp)
    return None


def max_timestamp(segments: Segments, log_start_offset: int) -> OffsetAndTimestamp | None:
    """Return the first record of the largest timestamp, None in an empty log.

    Source: ListOffsetsRequest.MAX_TIMESTAMP.
    """
    best: Segment | None = None
    for segment in segments.starting_at(log_start_offset):
        if not segment.is_empty and (best is None or segment.max_timestamp > best.max_timestamp):
            best = segment
    if best is None or best.max_timestamp < 0:
        return None
    found = best.offset_for_timestamp(best.max_timestamp, log_start_offset)
    return None if found is None else OffsetAndTimestamp(found.offset, found.timestamp)
