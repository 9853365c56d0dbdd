"""The overview of one partition: what leaves when, and who holds it."""

from collections.abc import Sequence
from dataclasses import dataclass

from streamlog.cleaner.choosing import Cleanable
from streamlog.config.log_config import LogConfig
from streamlog.maintenance.retention import Deletion, expected_departures, plan_deletions
from streamlog.overview.model import (
    CompactionOverview,
    SegmentOverview,
)
from streamlog.overview.segment_facts import FoundSegment
from streamlog.partition.log_offsets import LogOffsets
from streamlog.records.layout import MAX_INT64
from streamlog.root.readers import Held, held_from
from streamlog.topic import TopicPartition

__all__ = ["PartitionFacts", "compaction_overview"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """An examined partition.

    Attributes:
        partition: Its topic and number.
        topic_id: The id of its topic, None if it has none.
        offsets: Log start, high watermark and log end.
        segments: Its segments, oldest first.
        held: What is kept for recorded readers.
    """

    partition: TopicPartition
    topic_id: str | None
    offsets: LogOffsets
    segments: Sequence[FoundSegment]
    held: Sequence[Held]

    @property
    def held_from(self) -> int:
        """The first offset that is kept for any reader."""
        return held_from(self.held)

    def deletions(self, config: LogConfig, now_ms: int) -> list[Deletion]:
        """Return the segments that the next maintenance deletes."""
        return plan_deletions(
            self.segments,
            config=config,
            now_ms=now_ms,
            log_start_offset=self.offsets.start,
            log_end_offset=self.offsets.end,
            high_watermark=self.offsets.high_watermark,
            held_from=self.held_from,
        )

    def segment_overviews(self, config: LogConfig, now_ms: int) -> tuple[SegmentOverview, ...]:
        """Return the overviews of its segments, with when retention deletes them."""
        due = {each.base_offset for each in self.deletions(config, now_ms)}
        departures = expected_departures(self.segments, config=config)
        return tuple(
            SegmentOverview(
                base_offset=each.base_offset,
                end_offset=each.end_offset,
                size_bytes=each.size,
                first_ms=each.first_ms,
                last_ms=each.last_ms,
                is_active=each.is_active,
                codec=each.codec,
                is_due=each.base_offset in due,
                leaves_ms=departure.at_ms,
                leaves_after_bytes=departure.after_bytes,
                held_by=self._holders(each),
                problem=each.problem,
            )
            for each, departure in zip(self.segments, departures, strict=True)
        )

    def _holders(self, segment: FoundSegment) -> tuple[str, ...]:
        """Return the readers that keep a sealed segment from deletion."""
        if segment.is_active:
            return ()
        return tuple(
            sorted({each.reader for each in self.held if each.kept_from < segment.end_offset})
        )


def compaction_overview(cleanable: Cleanable) -> CompactionOverview:
    """Return how far a partition is compacted."""
    end = cleanable.end_offset
    return CompactionOverview(
        first_dirty_offset=cleanable.first_dirty_offset,
        end_offset=end if end != MAX_INT64 else cleanable.first_dirty_offset,
        clean_bytes=cleanable.clean_bytes,
        dirty_bytes=cleanable.cleanable_bytes,
        dirty_ratio=round(cleanable.ratio, 4),
        is_due=cleanable.is_due,
        reason=cleanable.reason.value,
    )
