"""The topics a sink writes to, as one task or one trigger finds them."""

import contextlib
import random as random_module

from streamlog.clock import Clock
from streamlog.errors import TopicExistsError, UnknownTopicError
from streamlog.fs.api import FileSystem
from streamlog.log.roots import check_root, read_server_config
from streamlog.log.topics import (
    ConfigFiles,
    list_topics,
    partition_directories,
    topic_exists,
    unknown_topic_error,
)
from streamlog.spark.row_check import TopicTarget

__all__ = ["SinkTopics"]


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
        check_root(self._fs, self._root)
        if not topic_exists(self._fs, self._root, topic):
            self._make(topic)
        directories = partition_directories(self._fs, self._root, topic)
        if not directories:
            raise UnknownTopicError(
                f"topic {topic} has no partitions",
                path=self._root,
                hint=f"was it deleted meanwhile? streamlog --path {self._root} topics list",
            )
        config = ConfigFiles(self._fs, self._root, topic).load()
        return TopicTarget(topic, max(directories) + 1, config)

    def _make(self, topic: str) -> None:
        server = read_server_config(self._fs, self._root)
        if not server.auto_create_topics_enable:
            raise unknown_topic_error(self._root, topic, list_topics(self._fs, self._root))
        from streamlog.log.registry import create_topic

        with contextlib.suppress(TopicExistsError):  # another task was faster
            create_topic(
                self._fs,
                self._clock,
                self._root,
                topic,
                partitions=server.num_partitions,
                configs={},
                random=random_module.SystemRandom(),
            )
