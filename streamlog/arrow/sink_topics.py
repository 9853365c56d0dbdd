"""The topics that a sink writes to."""

import contextlib
from typing import NamedTuple

from streamlog.errors import StorageError, TopicExistsError, UnknownTopicError, command_at
from streamlog.fs.log_root import LogRoot
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.records.topic_rules import TopicRules
from streamlog.root.manager import LogManager
from streamlog.root.topic_places import find_root
from streamlog.topic import TopicPartition

__all__ = ["SinkTopics", "TopicTarget"]


class TopicTarget(NamedTuple):
    """The facts about a topic that the encoder needs.

    Attributes:
        topic: Its name.
        partitions: Number of its partitions.
        rules: What it accepts.
    """

    topic: str
    partitions: int
    rules: TopicRules


class SinkTopics:
    """Looks up each topic once, for the duration of a task or a trigger.

    Args:
        roots: The log root; of a replica set all roots, the one to create topics in first.
    """

    __slots__ = ("_found", "_roots")

    def __init__(self, *roots: LogRoot) -> None:
        self._roots = roots
        self._found: dict[str, TopicTarget] = {}

    def find(self, topic: str) -> TopicTarget:
        """Return a topic; create it first if `auto.create.topics.enable` of the root allows that.

        Raises:
            InvalidRequestError: Several roots have a topic of this name.
            UnknownTopicError: There is no such root or topic; says how to create it.
            InvalidTopicError: Not a valid topic name.
            InvalidConfigError: The settings of the root or the topic are invalid.
            StorageError: The root cannot be read.
        """
        target = self._found.get(topic)
        if target is None:
            target = self._found[topic] = self._look(topic)
        return target

    def _look(self, topic: str) -> TopicTarget:
        root = self._roots[0]
        if len(self._roots) > 1:
            root = find_root(self._roots, topic) or root
        with LogManager.open(
            root.path, fs=root.fs, clock=root.clock, random=root.random
        ) as manager:
            with contextlib.suppress(TopicExistsError):  # another task created it
                manager.ensure_topic(topic)
            partitions = manager.partitions(topic)
            rules = TopicRules.of(manager.topic_config(topic))
        if not partitions:
            raise UnknownTopicError(
                f"topic {topic} has no partitions",
                path=root.path,
                hint=f"was it deleted meanwhile? {command_at(root.path, 'topics list')}",
            )
        return TopicTarget(topic, max(partitions) + 1, rules)

    def topic_id(self, partition: TopicPartition) -> str | None:
        """Return the topic id of a partition, from the first root that has it."""
        for root in self._roots:
            with contextlib.suppress(StorageError):
                topic_id = read_topic_id(root.fs, root.partition(partition))
                if topic_id is not None:
                    return topic_id
        return None
