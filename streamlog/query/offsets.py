"""A reader's position in each partition, and its JSON form that Spark stores.

    {"$leaderEpochs/orders": {"0": 3},             the epoch of the record before the offset
     "$topicId/orders": {"0": 322376503…},         the topic's id, as a 128-bit number
     "orders": {"0": 123, "1": 77}}                the next offsets to read, as in Kafka's source

The reserved keys cannot be topics (`$` and `/` are illegal in names), and all of them are optional,
so a checkpoint of Spark's own Kafka source can be read. They have the shape of a topic because
monitoring scripts subtract `endOffset` from `latestOffset` for all keys; both contain the same
reserved keys, and the difference is 0. Spark compares offsets as text, hence topics are sorted by
name and partitions by number.

Older checkpoints contain `{"$leaderEpochs": {"orders": {"0": 3}}, "$topicIds": {"orders":
"8tVRA1mFQlWPKlWVj1-Oow"}}`, which can be read as well.
"""

import base64
import json
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeGuard

from streamlog.errors import InvalidOptionError, InvalidTopicError
from streamlog.topic import MAX_PARTITION, TopicPartition, check_topic_name

__all__ = [
    "LEADER_EPOCHS",
    "TOPIC_ID",
    "SourceOffset",
    "is_reserved",
    "parse_partition_numbers",
    "parse_source_offset",
]

LEADER_EPOCHS: Final = "$leaderEpochs/"
TOPIC_ID: Final = "$topicId/"
_OLD_LEADER_EPOCHS: Final = "$leaderEpochs"
_OLD_TOPIC_IDS: Final = "$topicIds"
_ID_SIZE: Final = 16  # bytes
_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)

Json: TypeAlias = Mapping[str, object]
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """Next offsets by partition, with the data that shows whether they still mean the same records.

    Attributes:
        offsets: The next offset to read in each partition.
        leader_epochs: The leader epoch of the record before it, where known.
        topic_ids: The id of each topic that has one.
    """

    offsets: Mapping[TopicPartition, int]
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def of_topics(self, topics: Container[str]) -> dict[TopicPartition, int]:
        """Return the offsets of some topics."""
        return {each: offset for each, offset in self.offsets.items() if each.topic in topics}

    def to_json(self) -> dict[str, dict[str, int]]:
        """Return the JSON for Spark, in a fixed order, so that equal offsets are equal text."""
        epochs = _nested(self.leader_epochs)
        return {
            **{f"{LEADER_EPOCHS}{topic}": numbers for topic, numbers in epochs.items()},
            **{
                f"{TOPIC_ID}{topic}": {"0": _number_of_id(topic_id)}
                for topic, topic_id in sorted(self.topic_ids.items())
            },
            **_nested(self.offsets),
        }


def is_reserved(key: str) -> bool:
    """Return whether a key of the JSON is not a topic."""
    return key.startswith("$")


def _number_of_id(topic_id: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(f"{topic_id}=="), "big")


def _id_of_number(number: object) -> str:
    if type(number) is not int or not 0 <= number < 1 << 8 * _ID_SIZE:
        raise _not_offsets(TOPIC_ID, number)
    return base64.urlsafe_b64encode(number.to_bytes(_ID_SIZE, "big")).decode().rstrip("=")


def _nested(values: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(values):
        nested.setdefault(topic, {})[str(partition)] = values[TopicPartition(topic, partition)]
    return nested


def parse_source_offset(document: Json | str) -> SourceOffset:
    """Return the offset in a checkpoint, ours or that of Spark's Kafka source.

    Args:
        document: The JSON, as text or parsed.

    Raises:
        InvalidOptionError: The JSON has another shape; the message names the part.
    """
    parsed = _load(document, "offsets") if isinstance(document, str) else document
    offsets = {key: part for key, part in parsed.items() if not is_reserved(key)}
    epochs: dict[str, object] = {}
    topic_ids: dict[str, str] = {}
    for key, part in parsed.items():
        if key.startswith(LEADER_EPOCHS):
            epochs[key.removeprefix(LEADER_EPOCHS)] = part
        elif key.startswith(TOPIC_ID):
            number = part.get("0") if isinstance(part, Mapping) else None
            topic_ids[key.removeprefix(TOPIC_ID)] = _id_of_number(number)
        elif key == _OLD_LEADER_EPOCHS and isinstance(part, Mapping):
            epochs |= part
        elif key == _OLD_TOPIC_IDS and _are_ids(part):
            topic_ids |= part
        elif is_reserved(key):
            raise _not_offsets("offsets", {key: part})
    return SourceOffset(
        offsets=parse_partition_numbers(offsets, "offsets"),
        leader_epochs=parse_partition_numbers(epochs, LEADER_EPOCHS),
        topic_ids=topic_ids,
    )


def _are_ids(part: object) -> TypeGuard[Mapping[str, str]]:
    return isinstance(part, Mapping) and all(
        isinstance(text, str) and _ID.fullmatch(text) for text in part.values()
    )


def parse_partition_numbers(
    document: object, what: str, *, minimum: int = 0
) -> dict[TopicPartition, int]:
    """Return the numbers in a document `{"topic": {"partition": number}}`.

    Args:
        document: The JSON, as text or parsed.
        what: The name of the document, for errors.
        minimum: The lowest number allowed.

    Raises:
        InvalidOptionError: The shape, a topic, a partition or a number is invalid.

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
        f"{what}: must map each partition to a number",
        got=str(got)[:200],
        expected='JSON such as {"orders": {"0": 23, "1": 42}}',
    )
