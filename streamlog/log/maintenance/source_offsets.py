"""Where a reader stands in each partition, and the JSON that Spark keeps of it.

    {"$leaderEpochs": {"orders": {"0": 3}},        the epoch of the record before the offset
     "$topicIds": {"orders": "8tVRA1mFQlWPKlWVj1-Oow"},
     "orders": {"0": 123, "1": 77}}                the next offsets to read, as Kafka's source

The two reserved keys cannot be topics (`$` is illegal in names), and both may be missing: so a
checkpoint of Spark's own Kafka source is read as it stands. Spark compares offsets as text, hence
topics are sorted by name and partitions by number.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from streamlog.errors import InvalidOptionError, InvalidTopicError
from streamlog.topic import MAX_PARTITION, TopicPartition, check_topic_name

__all__ = [
    "LEADER_EPOCHS",
    "TOPIC_IDS",
    "SourceOffset",
    "parse_partition_numbers",
    "parse_source_offset",
]

LEADER_EPOCHS: Final = "$leaderEpochs"
TOPIC_IDS: Final = "$topicIds"

Json: TypeAlias = Mapping[str, object]
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """Next offsets by partition, with what tells whether they still mean the same records.

    Attributes:
        offsets: The next offset to read in each partition.
        leader_epochs: The leader epoch of the record before that, where it is known.
        topic_ids: The id of each topic, where it has one.
    """

    offsets: Mapping[TopicPartition, int]
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, dict[str, int] | dict[str, str] | dict[str, dict[str, int]]]:
        """Return what Spark is to store, in the one order that makes equal offsets equal text."""
        document: dict[str, dict[str, int] | dict[str, str] | dict[str, dict[str, int]]] = {}
        if self.leader_epochs:
            document[LEADER_EPOCHS] = _nested(self.leader_epochs)
        if self.topic_ids:
            document[TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        document.update(_nested(self.offsets))
        return document


def _nested(values: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(values):
        nested.setdefault(topic, {})[str(partition)] = values[TopicPartition(topic, partition)]
    return nested


def parse_source_offset(document: Json | str) -> SourceOffset:
    """Return the offset that a checkpoint holds, ours or that of Spark's Kafka source.

    Args:
        document: The JSON, as text or parsed.

    Raises:
        InvalidOptionError: It is something else; names the part.
    """
    parsed = _load(document, "offsets") if isinstance(document, str) else document
    epochs = parsed.get(LEADER_EPOCHS, {})
    topic_ids = parsed.get(TOPIC_IDS, {})
    offsets = {key: part for key, part in parsed.items() if key not in (LEADER_EPOCHS, TOPIC_IDS)}
    if not isinstance(topic_ids, Mapping) or not all(
        isinstance(text, str) for text in topic_ids.values()
    ):
        raise InvalidOptionError(
            "offsets are not what this source writes",
            got=f"{TOPIC_IDS}: {topic_ids!r}",
            expected="an id for each topic",
        )
    return SourceOffset(
        offsets=parse_partition_numbers(offsets, "offsets"),
        leader_epochs=parse_partition_numbers(epochs, LEADER_EPOCHS),
        topic_ids=dict(topic_ids),
    )


def parse_partition_numbers(
    document: object, what: str, *, minimum: int = 0
) -> dict[TopicPartition, int]:
    """Return the numbers of a document `{"topic": {"partition": number}}`.

    Args:
        document: The JSON, as text or parsed.
        what: What it is, for errors.
        minimum: The least number allowed.

    Raises:
        InvalidOptionError: Another shape, an impossible topic, partition or number.

    Source: org.apache.spark.sql.kafka010.JsonUtils.partitionOffsets.
    """
    parsed = _load(document, what) if isinstance(document, str) else document
    if not isinstance(parsed, Mapping):
        raise _not_offsets(what, parsed)
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in parsed.items():
        try:
            check_topic_name(topic)
        except InvalidTopicError as error:
            raise InvalidOptionError(f"{what}: {error}") from None
        if not isinstance(partitions, Mapping):
            raise _not_offsets(what, {topic: partitions})
        for text, number in partitions.items():
            if not _is_partition(text) or type(number) is not int or not minimum <= number < 2**63:
                raise _not_offsets(what, {topic: {text: number}})
            numbers[TopicPartition(topic, int(text))] = number
    return numbers


def _is_partition(text: object) -> bool:
    return (
        isinstance(text, str)
        and _PARTITION.fullmatch(text) is not None
        and int(text) <= MAX_PARTITION
    )


def _load(text: str, what: str) -> Json:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOptionError(
            f"{what}: not JSON ({error})", got=text[:200], expected='{"topic": {"0": 23}}'
        ) from None
    if not isinstance(parsed, dict):
        raise _not_offsets(what, parsed)
    return parsed


def _not_offsets(what: str, got: object) -> InvalidOptionError:
    return InvalidOptionError(
        f"{what}: not a number for each partition",
        got=str(got)[:200],
        expected='JSON such as {"orders": {"0": 23, "1": 42}}',
    )
