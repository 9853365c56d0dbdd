"""Finding records by time: by the segments' largest timestamps, their time indexes, a short scan.

"First" means by offset: timestamps need not rise with offsets. Where Kafka stops at the first
segment whose largest timestamp qualifies, the search here goes on to the next one: a 0-byte
segment that compaction left cannot hide later records. Source: UnifiedLog.fetchOffsetByTimestamp.
"""

from streamlog.partition.append import OffsetAndTimestamp
from streamlog.partition.segments import Segments

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
    """Return the first record at or above `log_start_offset` that none there is younger than.

    Returns:
        Offset and timestamp of the record, None where no record has a timestamp.

    Raises:
        CorruptRecordError: A batch that had to be looked at is damaged.

    Source: ListOffsetsRequest.MAX_TIMESTAMP.
    """
    dated = [each for each in segments.starting_at(log_start_offset) if each.max_timestamp >= 0]
    best: OffsetAndTimestamp | None = None
    for segment in sorted(dated, key=lambda each: -each.max_timestamp):
        if best is not None and segment.max_timestamp <= best.timestamp:
            break
        found = segment.latest(log_start_offset)
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = OffsetAndTimestamp(found.offset, found.timestamp)
    return best
