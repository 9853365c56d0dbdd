"""Where the roots of a replica set hold a topic: all of them, some, or one without replicas."""

import contextlib
from collections.abc import Iterable, Sequence

from streamlog.errors import InvalidRequestError, StreamLogError, UnavailableError
from streamlog.fs.log_root import LogRoot
from streamlog.partition.partition_metadata import read_topic_id
from streamlog.replication.root_set import RootSet
from streamlog.root.replicated_topics import is_replicated
from streamlog.root.topics import topic_exists
from streamlog.topic import TopicPartition

__all__ = ["PlacedPartition", "TopicPlaces", "find_root"]

PlacedPartition = tuple[TopicPartition, str]  # with the id of its topic


def find_root(roots: Sequence[LogRoot], topic: str) -> LogRoot | None:
    """Return the first root that has a topic, None if none of those that can be read has it.

    Raises:
        InvalidRequestError: Several roots have different topics of this name, without replicas.
    """
    found: list[LogRoot] = []
    for root in roots:
        with contextlib.suppress(StreamLogError):
            if topic_exists(root, topic):
                if is_replicated(root, topic):
                    return root
                found.append(root)
    if len(found) > 1:
        raise InvalidRequestError(
            f"several log roots of the replica set have a topic {topic} without replicas",
            got=", ".join(root.path for root in found),
            expected="one topic of this name in a replica set",
            hint="delete all but one of them",
        )
    return found[0] if found else None


class TopicPlaces:
    """The places of the partitions of a commit in the roots of a replica set.

    Args:
        roots: The replica set.
    """

    def __init__(self, roots: RootSet) -> None:
        self._roots = roots

    def alone(self, partitions: Iterable[PlacedPartition]) -> int | None:
        """Return the node whose root has all partitions, none of them with a replica elsewhere."""
        partitions = list(partitions)
        for node, root in self._roots.online().items():
            if partitions and all(
                root.fs.stat(root.partition_register(each)) is None
                and read_topic_id(root.fs, root.partition(each)) == topic_id
                for each, topic_id in partitions
            ):
                return node
        return None

    def owner(self, topic: str) -> int | None:
        """Return the node whose root has a topic without replicas, None for any other topic."""
        online = self._roots.online()
        root = find_root(list(online.values()), topic)
        if root is None or is_replicated(root, topic):
            return None
        return next(node for node, each in online.items() if each is root)

    def holds(self, node: int, partition: PlacedPartition) -> bool:
        """Return whether a root can be written as the leader of a partition, or as its only one."""
        root, (at, topic_id) = self._roots.root(node), partition
        return read_topic_id(root.fs, root.partition(at)) == topic_id

    def common(self, partitions: Sequence[PlacedPartition]) -> list[int]:
        """Return the nodes that are online and hold all partitions, as far as these exist.

        Raises:
            InvalidRequestError: There is no such root, although all are online.
            UnavailableError: There is none, and the log roots offline may hold what is missing.
        """
        online = self._roots.online()
        held = {each: {node for node in online if self.holds(node, each)} for each in partitions}
        offline = [node for node in self._roots.node_ids if node not in online]
        there = [nodes for nodes in held.values() if nodes]
        common = set(online).intersection(*there)
        if offline and (len(there) < len(held) or not common):
            missing = [str(each) for (each, _), nodes in held.items() if not nodes]
            raise UnavailableError(
                "no log root that is online holds all partitions of the commit",
                got=f"nodes {offline} offline"
                + (f", without {', '.join(missing)}" if missing else ""),
                hint="bring these log roots back; see them: streamlog replicas list",
            )
        if not common:
            raise InvalidRequestError(
                "no log root holds all partitions of the commit",
                got="; ".join(
                    f"{each} on nodes {sorted(nodes)}" for (each, _), nodes in held.items()
                ),
                expected="a node that holds each of them: one root decides a commit",
                hint="write the topics one by one, or give them replicas in the same log roots",
            )
        return [node for node in self._roots.node_ids if node in common]
