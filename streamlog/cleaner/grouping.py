"""Which neighbouring segments are written into one."""

from collections.abc import Sequence

from streamlog.config.log_config import LogConfig
from streamlog.records.layout import MAX_INT32
from streamlog.segment.offset_index import OFFSET_ENTRY_SIZE
from streamlog.segment.segment import Segment
from streamlog.segment.time_index import TIME_ENTRY_SIZE

__all__ = ["group_segments"]


def group_segments(
    segments: Sequence[Segment], config: LogConfig, end_offset: int
) -> list[list[Segment]]:
    """Put neighbours together while all that they hold now fits into one segment.

    Args:
        segments: What is going to be cleaned, ascending.
        config: The topic's settings: `segment.bytes`, `segment.index.bytes`.
        end_offset: The first offset that cannot be cleaned.

    Source: Cleaner.groupSegmentsBySize.
    """
    groups: list[list[Segment]] = []
    sizes = [0, 0, 0]
    limits = (config.effective_segment_bytes, config.segment_index_bytes)
    for at, segment in enumerate(segments):
        own = _sizes(segment)
        behind = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
        total = [before + more for before, more in zip(sizes, own, strict=True)]
        if (
            groups
            and total[0] <= limits[0]
            and max(total[1:]) <= limits[1]
            and (own[0] == 0 or behind - 1 - groups[-1][0].base_offset <= MAX_INT32)
        ):
            groups[-1].append(segment)
            sizes = total
        else:
            groups.append([segment])
            sizes = own
    return groups


def _sizes(segment: Segment) -> list[int]:
    """Return the bytes of the log, its offset index and its time index."""
    return [
        segment.size,
        len(segment.offset_index) * OFFSET_ENTRY_SIZE,
        len(segment.time_index) * TIME_ENTRY_SIZE,
    ]
