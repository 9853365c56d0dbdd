"""The log roots that hold the replicas of a partition, as the process of its leader uses them."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from streamlog.errors import InconsistentTopicIdError, NotLeaderError, UnavailableError
from streamlog.partition.log import Log
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.register_file import RegisterFile
from streamlog.topic import TopicPartition

__all__ = ["ReplicaRoots", "check_epoch"]


class ReplicaRoots(Protocol):
    """The log roots that hold a partition's register, and replicas of it."""

    def register_files(self, partition: TopicPartition) -> Mapping[int, RegisterFile]:
        """Return the register of a partition in each listed root, by node."""
        ...

    def locked(self, node: int, partition: TopicPartition) -> AbstractContextManager[object]:
        """Return the lock of a partition in the root of a node.

        Raises:
            UnavailableError: The root is offline, or the lock stayed held.
        """
        ...

    def is_online(self, node: int) -> bool:
        """Return whether the root of a node can be reached, and is the one that was listed."""
        ...

    def has_replica_fetcher(self, node: int) -> bool:
        """Return whether a process of its own copies what the root of a node appends."""
        ...

    def open_follower(self, node: int, partition: TopicPartition) -> Log:
        """Open the log of a node, not to lead.

        Raises:
            StreamLogError: It cannot be opened.
        """
        ...


def check_epoch(file: RegisterFile, state: PartitionState) -> None:
    """Check the register in the root of a follower, whose lock is held.

    Args:
        file: The register.
        state: The state in which the writer leads.

    Raises:
        NotLeaderError: A later leader epoch was accepted there.
        InconsistentTopicIdError: The root has another topic of the same name.
        UnavailableError: The root has lost its register.
    """
    accepted = file.read()
    if accepted is None:
        raise UnavailableError(
            "the log root has lost the state of the partition",
            path=file.path,
            hint="refill it: streamlog replicate --once",
        )
    found = accepted.state
    if found is None or (
        found.topic_id == state.topic_id and found.leader_epoch > state.leader_epoch
    ):
        raise NotLeaderError(
            "another leader was elected",
            path=file.path,
            got=f"leader epoch {state.leader_epoch}",
            expected="the topic was deleted"
            if found is None
            else f"leader epoch {found.leader_epoch}",
        )
    if found.topic_id != state.topic_id:
        raise InconsistentTopicIdError(
            "the log root has another topic of the same name",
            path=file.path,
            got=state.topic_id,
            expected=found.topic_id,
        )
