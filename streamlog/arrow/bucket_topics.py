"""The topics that a task writes to in an object store: those of its plan, and new ones."""

from streamlog.arrow.sink_topics import TopicTarget
from streamlog.bucket.places import shared_store
from streamlog.bucket.planned_topics import PlannedTopics
from streamlog.bucket.root import BucketRoot
from streamlog.bucket.staging import BucketStager
from streamlog.clock import Clock
from streamlog.records.topic_rules import TopicRules
from streamlog.topic import TopicPartition

__all__ = ["BucketSinkTopics", "plan_topics"]


def plan_topics(root: BucketRoot, topic: str | None) -> PlannedTopics:
    """Return the topics that rows may name.

    Args:
        root: The root, refreshed.
        topic: The topic of all rows; None: any, the column `topic` names it.

    Raises:
        UnknownTopicError: There is no such topic, and the root does not create it.
        InvalidTopicError: Not a valid topic name.
    """
    if topic is None:
        return PlannedTopics.of(root.state)
    root.ensure_topic(topic)
    return PlannedTopics.of(root.state, [topic])


class BucketSinkTopics:
    """Looks up topics for one task; only a topic that the plan lacks takes requests.

    Args:
        url: The root.
        planned: The topics that the driver knew.
    """

    __slots__ = ("_found", "_planned", "_url")

    def __init__(self, url: str, planned: PlannedTopics) -> None:
        self._url, self._planned = url, planned
        self._found: dict[str, TopicTarget] = {}

    def find(self, topic: str) -> TopicTarget:
        """Return a topic; create it first if `auto.create.topics.enable` of the root allows that.

        Raises:
            UnknownTopicError: There is no such root or topic; says how to create it.
            InvalidTopicError: Not a valid topic name.
            StorageError: A request failed.
        """
        target = self._found.get(topic)
        if target is None:
            if topic not in self._planned.topics:
                root = BucketRoot(shared_store(self._url))
                root.refresh()
                known = plan_topics(root, topic)
                self._planned = self._planned._replace(
                    topics={**self._planned.topics, **known.topics}
                )
            rules = TopicRules.of(self._planned.config_of(topic))
            target = TopicTarget(topic, self._planned.topics[topic].partitions, rules)
            self._found[topic] = target
        return target

    def topic_id(self, partition: TopicPartition) -> str:
        """Return the id of the topic of a partition that `find` returned."""
        return self._planned.topics[partition.topic].topic_id

    def stager(self, app: str, version: int, task: int, clock: Clock) -> BucketStager:
        """Return a writer of one task's batches."""
        return BucketStager(
            shared_store(self._url),
            app,
            version,
            task,
            find_topic_id=self.topic_id,
            now_ms=clock.now_ms(),
        )
