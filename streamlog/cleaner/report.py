"""What a round of cleaning did."""

from dataclasses import dataclass

from streamlog.topic import TopicPartition

__all__ = ["CleanReport"]


@dataclass(kw_only=True, slots=True)
class CleanReport:
    """What a round of cleaning did, or has done so far.

    Attributes:
        topic_partition: The partition.
        first_dirty_offset: Where the dirty section started.
        end_offset: Where the next one starts: all before it is cleaned. Before the keys are all
            known, where this one ends at the latest.
        is_finished: Whether the round came to its end.
        keys: How many keys the dirty section has.
        is_map_full: Whether they did not all fit, so that another round is due.
        bytes_indexed: Bytes read to learn the keys.
        bytes_read: Bytes of the segments that were cleaned.
        bytes_written: Bytes they have now.
        records_read: Records in them, control records too.
        records_written: Records in them now.
        segments_before: How many segments those were.
        segments_after: How many they are now.
        duration_ms: How long it took, pauses left out.

    Source: org.apache.kafka.storage.internals.log.CleanerStats.
    """

    topic_partition: TopicPartition
    first_dirty_offset: int
    end_offset: int
    is_finished: bool = False
    keys: int = 0
    is_map_full: bool = False
    bytes_indexed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    segments_before: int = 0
    segments_after: int = 0
    duration_ms: float = 0.0
