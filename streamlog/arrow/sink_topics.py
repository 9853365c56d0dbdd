"""The topics a sink writes to, as one task or one trigger finds them."""

import contextlib
from typing import NamedTuple

from streamlog.clock import Clock
from streamlog.errors import TopicExistsError, UnknownTopicError, command_at
from streamlog.fs.api import FileSystem
from streamlog.records.topic_rules import TopicRules
from streamlog.root.manager import LogManager

__all__ = ["SinkTopics", "TopicTarget"]


class TopicTarget(NamedTuple):
    """What the encoder has to know of a topic.

    Attributes:
        topic: Its name.
        partitions: How many partitions it has.
        rules: What it accepts.
    """

    topic: str
    partitions: int
    rules: TopicRules


class SinkTopics:
    """Finds topics once and remembers them for as long as a task or a trigger takes.

    Args:
        fs: Where the root is.
        clock: Measures waits for locks.
        root: The log root.
    """

    __slots__ = ("_clock", "_found", "_fs", "_root")

    def __init__(self, fs: FileSystem, clock: Clock, root: str) -> None:
        self._fs, self._clock, self._root = fs, clock, root
        self._found: dict[str, TopicTarget] = {}

    def find(self, topic: str) -> TopicTarget:
        """Return what the encoder has to know of a topic; make it where the root allows that.

        Args:
            topic: Its name.

        Raises:
            UnknownTopicError: There is no such root or topic, and `auto.create.topics.enable` of
                the root is false; says what to type.
            InvalidTopicError: No topic can be called that.
            InvalidConfigError: The settings of root or topic cannot be understood.
            StorageError: They cannot be read.
        """
        target = self._found.get(topic)
        if target is None:
            target = self._found[topic] = self._look(topic)
        return target

    def _look(self, topic: str) -> TopicTarget:
        with LogManager.open(self._root, fs=self._fs, clock=self._clock) as manager:
            with contextlib.suppress(TopicExistsError):  # another task was faster
                manager.ensure_topic(topic)
            partitions = manager.partitions(topic)
            rules = TopicRules.of(manager.topic_config(topic))
        if not partitions:
            raise UnknownTopicError(
                f"topic {topic} has no partitions",
                path=self._root,
                hint=f"was it deleted meanwhile? {command_at(self._root, 'topics list')}",
            )
        return TopicTarget(topic, max(partitions) + 1, rules)
