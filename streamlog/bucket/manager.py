"""`BucketManager`: what `LogManager` does with topics, for a root in an object store."""

from collections.abc import Mapping, Sequence

from streamlog.bucket.places import shared_store
from streamlog.bucket.root import BucketRoot
from streamlog.clock import Clock
from streamlog.config.log_config import ConfigValue, LogConfig
from streamlog.config.server_config import ServerConfig
from streamlog.errors import InvalidRequestError, TopicExistsError
from streamlog.root.manager import PartitionDescription, TopicDescription
from streamlog.topic import TopicPartition

__all__ = ["BucketManager"]


class BucketManager:
    """The topics of a root in an object store; a context manager.

    Args:
        url: The root.
        create: Create the root if there is none.
        clock: The clock; the machine's own by default.

    Raises:
        UnknownTopicError: There is no root.
        StorageError: A request failed.

    Attributes:
        root: The URL.
        bucket: The root.
    """

    def __init__(self, url: str, *, create: bool = False, clock: Clock | None = None) -> None:
        self.root = url
        self.bucket = BucketRoot(shared_store(url), clock=clock)
        if create:
            self.bucket.create()
        self.bucket.refresh()

    def __enter__(self) -> "BucketManager":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @property
    def server_config(self) -> ServerConfig:
        """The settings of the root."""
        return ServerConfig.from_properties(self.bucket.state.config)

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return sorted(self.bucket.state.topics)

    def partitions(self, name: str) -> list[int]:
        """Return the numbers of a topic's partitions, ascending.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        self.bucket.topic_config(name)
        return list(range(self.bucket.state.topics[name].partitions))

    def topic_config(self, name: str) -> LogConfig:
        """Return the settings of a topic; see `BucketRoot.topic_config`."""
        return self.bucket.topic_config(name)

    def describe(self, name: str) -> TopicDescription:
        """Return the facts about a topic, its partitions and settings.

        Raises:
            UnknownTopicError: There is no such topic.
        """
        self.bucket.topic_config(name)
        state, partitions = self.bucket.state, []
        topic = state.topics[name]
        for number in range(topic.partitions):
            partition = TopicPartition(name, number)
            at = state.partitions[partition]
            partitions.append(
                PartitionDescription(
                    partition=number,
                    path=f"{self.root}/{partition}",
                    leader=0,
                    leader_epoch=at.leader_epoch,
                    log_start_offset=at.log_start_offset,
                    high_watermark=at.end_offset,
                    log_end_offset=at.end_offset,
                    segments=len(at.stretches),
                    size_bytes=sum(stretch.size for stretch in at.stretches),
                )
            )
        return TopicDescription(
            name=name,
            topic_id=topic.topic_id,
            partitions=tuple(partitions),
            configs=tuple(self.server_config.describe(topic.config)),
            held=(),
            deeds=(),
        )

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        configs: Mapping[str, ConfigValue] | None = None,
        *,
        if_not_exists: bool = False,
        replication_factor: int | None = None,
        replica_assignment: Sequence[Sequence[int]] | None = None,
    ) -> TopicDescription:
        """Create a topic; see `LogManager.create_topic`.

        Raises:
            InvalidRequestError: Replicas are asked for, which the store itself keeps; or as
                `BucketRoot.create_topic` raises.
            TopicExistsError: The topic exists.
        """
        if replication_factor not in (None, 1) or replica_assignment is not None:
            raise InvalidRequestError(
                "a topic in an object store has no replicas of ours",
                got=f"replication factor {replication_factor}",
                expected="1, or none",
                hint="the store keeps copies of its own",
            )
        try:
            self.bucket.create_topic(name, partitions=partitions, configs=configs)
        except TopicExistsError:
            if not if_not_exists:
                raise
        return self.describe(name)

    def ensure_topic(self, name: str) -> None:
        """Create a topic if it is missing and the root's settings allow that."""
        self.bucket.ensure_topic(name)

    def alter_topic(
        self,
        name: str,
        *,
        configs: Mapping[str, ConfigValue] | None = None,
        delete_configs: Sequence[str] = (),
        partitions: int | None = None,
    ) -> TopicDescription:
        """Change settings or add partitions; see `BucketRoot.alter_topic`."""
        self.bucket.alter_topic(
            name, configs=configs, delete_configs=delete_configs, partitions=partitions
        )
        return self.describe(name)

    def delete_topic(self, name: str) -> list[str]:
        """Delete a topic with all its records; no foreign files are left behind."""
        self.bucket.delete_topic(name)
        return []

    def delete_records(
        self, topic: str, partition: int, offset: int, *, force: bool = False
    ) -> int:
        """Raise a log start offset; see `BucketRoot.delete_records`."""
        return self.bucket.delete_records(TopicPartition(topic, partition), offset, force=force)
