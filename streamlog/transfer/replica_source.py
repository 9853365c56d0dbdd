"""Copying from the roots of a replica set: each partition from the replica that readers would read.

That is the leader's if it is reachable; see `streamlog.root.replica_reader`. If a disk fails during
the copy, the next call goes on with another replica.
"""

import os

from streamlog.errors import UnknownTopicError
from streamlog.root.read_roots import ReadRoots
from streamlog.topic import TopicPartition
from streamlog.transfer.directory_source import DirectoryPartition, DirectorySource
from streamlog.transfer.ends import CopyTopic

__all__ = ["ReplicaSource"]


class ReplicaSource:
    """The roots of a replica set, or of several brokers, to copy from; see `CopySource`.

    Args:
        roots: The roots.

    Raises:
        NoReplicaOnlineError: None of them is reachable.
    """

    is_rebuilt = False

    def __init__(self, roots: ReadRoots) -> None:
        self._roots, self.name = roots, roots.name
        self._found = roots.find()

    def topics(self) -> dict[str, CopyTopic]:
        """See `CopySource.topics`; settings are those of a root that has the topic."""
        online = [
            DirectorySource(root)
            for root in self._roots.roots
            if self._roots.is_reachable(f"{root.path}/-")
        ]
        by_root = {each.name: each.topics() for each in online}
        topics = {}
        for name, numbers in sorted(self._found.items()):
            parents = {os.path.dirname(each) for found in numbers.values() for each in found}
            known = [
                found[name] for path, found in by_root.items() if path in parents and name in found
            ]
            if known:
                best = max(known, key=lambda each: len(each.configs))
                topics[name] = best._replace(partitions=tuple(sorted(numbers)))
        return topics

    def open(self, partition: TopicPartition) -> DirectoryPartition:
        """See `CopySource.open`.

        Raises:
            NoReplicaOnlineError: No replica of the partition can be read.
        """
        directories = self._found.get(partition.topic, {}).get(partition.partition)
        if not directories:
            raise UnknownTopicError(f"there is no partition {partition}", path=self.name)
        with self._roots.open(partition, directories) as chosen:
            path = chosen.path
        root = next(each for each in self._roots.roots if each.path == os.path.dirname(path))
        return DirectoryPartition(root, path)

    def close(self) -> None:
        """See `CopySource.close`."""
