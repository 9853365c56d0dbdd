"""Where an app stands: what its next commit has to know of all before it.

It is written into every decision and into the ledger, so that a commit reads one file however
long the app's past is:

    number, last_version, unretired, unretired_since_ms
    partitions    [{topic, partition, topic_id, next_sequence, end_offset, unretired_size}]
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streamlog.commits.sealed import SealedValues
from streamlog.partition.partition_metadata import parse_topic_id
from streamlog.records.layout import MAX_INT32
from streamlog.topic import TopicPartition, parse_partition_directory

__all__ = [
    "PartitionStanding",
    "Standing",
    "format_standing",
    "parse_standing",
    "parse_topic_partition",
]

NO_VERSION: Final = -1


class PartitionStanding(NamedTuple):
    """Where an app stands in one partition.

    Attributes:
        topic_id: The id of the topic at that time.
        next_sequence: What the app's next record there gets.
        end_offset: Behind the last record that the app has decided there.
        unretired_size: Bytes decided there that are not retired.
    """

    topic_id: str
    next_sequence: int
    end_offset: int
    unretired_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where an app stands: what its next commit has to know of all before it.

    Attributes:
        number: How many decisions there were.
        last_version: The highest version committed, -1 for none.
        unretired: How many decisions are not retired.
        unretired_since_ms: When the oldest of them was made; without any, of no meaning.
        partitions: Every partition the app has written.
    """

    number: int = 0
    last_version: int = NO_VERSION
    unretired: int = 0
    unretired_since_ms: int = 0
    partitions: Mapping[TopicPartition, PartitionStanding] = field(default_factory=dict)

    def after(
        self,
        version: int,
        steps: Iterable[tuple[TopicPartition, PartitionStanding]],
        now_ms: int,
    ) -> "Standing":
        """Return where the app stands after one more decision.

        Args:
            version: The version it commits.
            steps: Where it leads in each of its partitions, with its own size as unretired.
            now_ms: When it was made.
        """
        partitions = dict(self.partitions)
        for partition, step in steps:
            before = self.find(partition, step.topic_id)
            older_size = 0 if before is None else before.unretired_size
            partitions[partition] = step._replace(unretired_size=older_size + step.unretired_size)
        return Standing(
            number=self.number + 1,
            last_version=max(self.last_version, version),
            unretired=self.unretired + 1,
            unretired_since_ms=self.unretired_since_ms if self.unretired else now_ms,
            partitions=partitions,
        )

    def find(self, partition: TopicPartition, topic_id: str) -> PartitionStanding | None:
        """Return where the app stands in a partition, None where it never wrote this one."""
        at = self.partitions.get(partition)
        return at if at is not None and at.topic_id == topic_id else None

    def has_decided_up_to(self, partition: TopicPartition, topic_id: str, offset: int) -> bool:
        """Tell whether decisions that are not retired end exactly at `offset`."""
        at = self.find(partition, topic_id)
        return at is not None and at.unretired_size > 0 and at.end_offset == offset


def format_standing(standing: Standing) -> dict[str, object]:
    """Return a standing as a JSON object."""
    return {
        "number": standing.number,
        "last_version": standing.last_version,
        "unretired": standing.unretired,
        "unretired_since_ms": standing.unretired_since_ms,
        "partitions": [
            {"topic": partition.topic, "partition": partition.partition, **at._asdict()}
            for partition, at in standing.partitions.items()
        ],
    }


def parse_standing(values: SealedValues) -> Standing:
    """Return the standing of a JSON object.

    Raises:
        CorruptCheckpointError: It cannot be one.
    """
    return Standing(
        number=values.integer("number", 1),
        last_version=values.integer("last_version"),
        unretired=values.integer("unretired"),
        unretired_since_ms=values.integer("unretired_since_ms"),
        partitions={
            parse_topic_partition(value): PartitionStanding(
                topic_id=parse_topic_id(value.text("topic_id"), path=value.path),
                next_sequence=value.integer("next_sequence", 0, MAX_INT32),
                end_offset=value.integer("end_offset"),
                unretired_size=value.integer("unretired_size"),
            )
            for value in values.objects("partitions")
        },
    )


def parse_topic_partition(values: SealedValues) -> TopicPartition:
    """Return the partition that an object with `topic` and `partition` names.

    Raises:
        CorruptCheckpointError: There can be no such partition.
    """
    name = f"{values.text('topic')}-{values.integer('partition')}"
    found = parse_partition_directory(name)
    if found is None or str(found) != name:
        raise values.malformed("topic and partition", name, "a partition")
    return found
