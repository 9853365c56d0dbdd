"""When a segment must not take an append any more: Kafka's five reasons."""

from enum import Enum

from streamlog.records.layout import MAX_INT32
from streamlog.records.table import BatchOutline
from streamlog.segment.indexed_records import IndexedRecords

__all__ = ["RollReason", "roll_reason"]


class RollReason(Enum):
    """Why a segment must not take an append any more.

    Source: LogSegment.shouldRoll.
    """

    SIZE = "segment.bytes"
    TIME = "segment.ms"
    OFFSET_INDEX_FULL = "offset index full"
    TIME_INDEX_FULL = "time index full"
    OFFSET_RANGE = "relative offset above 2**31 - 1"


def roll_reason(
    log: IndexedRecords,
    append: BatchOutline,
    *,
    first_timestamp: int | None,
    age_ms: int,
    max_wait_ms: int,
) -> RollReason | None:
    """Tell why an append must go to a new segment; None where it may go to this one.

    Args:
        log: The segment's records and indexes.
        append: What is to be appended.
        first_timestamp: Largest timestamp of the segment's first batch, in ms; None: it is empty.
        age_ms: How old the segment is; counts where the first batch has no timestamp.
        max_wait_ms: How long the segment takes appends, jitter taken off.

    Source: LogSegment.shouldRoll.
    """
    if log.size > log.config.effective_segment_bytes - append.size:
        return RollReason.SIZE
    if first_timestamp is not None:
        has_timestamp = first_timestamp >= 0
        waited = append.max_timestamp - first_timestamp
        if (waited if has_timestamp else age_ms) > max_wait_ms:
            return RollReason.TIME
    indexes = log.indexes
    if indexes.offset.is_full:
        return RollReason.OFFSET_INDEX_FULL
    if indexes.time.is_full:
        return RollReason.TIME_INDEX_FULL
    if not 0 <= append.last_offset - log.base_offset <= MAX_INT32:
        return RollReason.OFFSET_RANGE
    return None
