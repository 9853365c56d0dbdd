"""What a topic and its partitions look like from outside: facts for those who ask."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamlog.config.server_config import ConfigEntry
from streamlog.root.deeds import Deed
from streamlog.root.readers import Held

if TYPE_CHECKING:
    from streamlog.partition.reader import LogReader

__all__ = ["PartitionDescription", "TopicDescription", "describe_partition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """Facts about one partition, all as of one moment.

    Attributes:
        partition: Its number.
        path: Its directory.
        leader: The node that leads it: this root's `node.id`, 0 where it has none.
        leader_epoch: The latest epoch, -1 where none is known.
        log_start_offset: The first offset that may be read.
        high_watermark: Up to where records are committed.
        log_end_offset: The offset the next record gets.
        segments: How many segments it has.
        size_bytes: Bytes of all segments.
    """

    partition: int
    path: str
    leader: int
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic: its id, its partitions by number, every setting in force with its source.

    `held` is what recorded readers keep of it, `deeds` what maintenance did to it last.
    """

    name: str
    topic_id: str | None
    partitions: tuple[PartitionDescription, ...]
    configs: tuple[ConfigEntry, ...]
    held: tuple[Held, ...]
    deeds: tuple[Deed, ...]


def describe_partition(
    reader: "LogReader", number: int, path: str, leader: int
) -> PartitionDescription:
    """Return the facts about a partition as its reader knows them."""
    return PartitionDescription(
        partition=number,
        path=path,
        leader=leader,
        leader_epoch=reader.leader_epoch,
        log_start_offset=reader.log_start_offset,
        high_watermark=reader.high_watermark,
        log_end_offset=reader.log_end_offset,
        segments=len(reader.segments),
        size_bytes=reader.size,
    )
