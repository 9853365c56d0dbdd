"""The status of all replicated partitions of a replica set; read-only, without a lock.

A root that was offline while topics were created or deleted does not know of it. So the topics are
those of all roots, and the registers decide which of them exist.
"""

from collections.abc import Iterator, Mapping

from streamlog.config.log_config import LogConfig
from streamlog.errors import InvalidConfigError, StorageError
from streamlog.partition.topic_config import ConfigFiles
from streamlog.replication.status import Node, PartitionStatus, status_of
from streamlog.root.topics import list_topics, partition_directories
from streamlog.topic import TopicPartition

__all__ = ["partition_statuses"]


def partition_statuses(
    nodes: Mapping[int, Node], topic: str | None = None
) -> Iterator[PartitionStatus]:
    """Yield the status of each replicated partition, by topic and number.

    Args:
        nodes: The log roots of the replica set by node.
        topic: Only this topic; None: all.

    Raises:
        StorageError: A root cannot be listed.
    """
    online = [each.root for each in nodes.values() if each.problem is None]
    topics = {name for root in online for name in list_topics(root)} if topic is None else {topic}
    for name in sorted(topics):
        numbers = {number for root in online for number in partition_directories(root, name)}
        config = _config(nodes, name)
        for number in sorted(numbers):
            status = status_of(TopicPartition(name, number), nodes, config)
            if status is not None:
                yield status


def _config(nodes: Mapping[int, Node], topic: str) -> LogConfig:
    """Return the settings of a topic, from the first root that has them."""
    for each in nodes.values():
        try:
            path = each.root.topic_properties(topic)
            if each.problem is None and each.root.fs.stat(path) is not None:
                return ConfigFiles(each.root, topic).load()
        except (InvalidConfigError, StorageError):
            continue  # `verify` reports it; another root may have a sound copy
    return LogConfig()
