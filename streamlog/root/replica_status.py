"""The status of all replicated partitions of a replica set; read-only, without a lock.

A root that was offline while topics were created or deleted does not know of it. So the topics are
those of all roots, and the registers decide which of them exist.
"""

from collections.abc import Iterator, Mapping

from streamlog.config.log_config import LogConfig
from streamlog.errors import InvalidConfigError, StorageError
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.partition.topic_config import ConfigFiles
from streamlog.replication.root_set import RootSet
from streamlog.replication.status import Node, PartitionStatus, status_of
from streamlog.root.read_roots import RootPaths, parse_roots
from streamlog.root.roots import no_replica_set_error
from streamlog.root.topics import list_topics, partition_directories
from streamlog.topic import TopicPartition

__all__ = ["partition_statuses", "replica_set_at", "root_set_at"]


def root_set_at(path: RootPaths) -> RootSet | None:
    """Return the replica set that a log root belongs to, or several; None if it belongs to none.

    Raises:
        InvalidRequestError: One of several roots does not belong to the set of the others.
        UnavailableError: No root can be read.
        CorruptCheckpointError: The list of log roots is damaged.
    """
    paths = parse_roots(path, LocalFileSystem())
    return RootSet.open([LogRoot.at(each) for each in paths])


def replica_set_at(path: RootPaths) -> RootSet:
    """Return the replica set that a log root belongs to, or several.

    Raises:
        InvalidRequestError: It belongs to none.
        UnknownTopicError: It does not exist.
        UnavailableError: No root can be read.
        CorruptCheckpointError: The list of log roots is damaged.
    """
    roots = root_set_at(path)
    if roots is None:
        raise no_replica_set_error(LogRoot.at(parse_roots(path, LocalFileSystem())[0]))
    return roots


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
