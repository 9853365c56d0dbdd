"""Appending records to a topic in an object store without Arrow: `streamlog produce`.

Records are staged, and each call of `commit` makes what was staged so far one commit.
"""

import random as random_module

from streamlog.bucket.manager import BucketManager
from streamlog.bucket.staging import BucketStager
from streamlog.clock import Clock, SystemClock
from streamlog.commits.identity import CommitIdentity
from streamlog.records.acks import Acks
from streamlog.records.builder import EncodedBatches
from streamlog.records.record import CompressionType
from streamlog.records.topic_rules import TopicRules
from streamlog.root.topic_appender import InputLines, PartitionedAppender
from streamlog.topic import TopicPartition

__all__ = ["BucketAppender"]


class BucketAppender(PartitionedAppender):
    """Appends records to the partitions of a topic in an object store.

    Args:
        manager: The root.
        topic: The topic.
        partition: The partition of all records; None: chosen for each record.
        compression: The codec, if the topic's `compression.type` is `producer`.
        acks: Makes no difference: a commit is durable.
        clock: The clock; the machine's own by default.

    Raises:
        UnknownTopicError: There is no such topic or partition.
    """

    def __init__(
        self,
        manager: BucketManager,
        topic: str,
        *,
        partition: int | None = None,
        compression: CompressionType = CompressionType.NONE,
        acks: Acks = Acks.ALL,
        clock: Clock | None = None,
    ) -> None:
        manager.ensure_topic(topic)
        self._rules = TopicRules.of(manager.topic_config(topic))
        codec = self._rules.codec_for(compression)
        super().__init__(manager, topic, partition=partition, compression=codec, acks=acks)
        self._root, self._clock = manager.bucket, clock or SystemClock()
        self._stager: BucketStager | None = None
        self._identity = CommitIdentity.anonymous(random_module.SystemRandom())
        self._counts: dict[int, int] = {}

    def _log_append_time(self) -> int | None:
        return self._clock.now_ms() if self._rules.is_stamped else None

    def _append_batches(self, number: int, encoded: EncodedBatches, lines: InputLines) -> None:
        del lines
        if self._stager is None:
            self._identity = CommitIdentity.anonymous(random_module.SystemRandom())
            self._stager = self._root.stager(self._identity.app, 0, 0)
        self._counts[number] = self._counts.get(number, 0) + encoded.records
        self._stager.append(TopicPartition(self.topic, number), encoded)

    def flush(self) -> None:
        """Commit what was appended since the last commit; durable on return.

        Raises:
            InvalidRequestError: The topic does not accept a record; nothing of it was committed.
            StorageError: A request failed.
        """
        if self._stager is None:
            return
        with self._stager as stager:
            staged = stager.finish(rows=sum(self._counts.values()), checksum=0)
        self._stager, counts, self._counts = None, self._counts, {}
        # The commit reads and checks the records by the topic's rules, except for their time.
        config = self._root.topic_config(self.topic)
        planned = {self.topic: config} if self._rules.is_stamped else {}
        outcome = self._root.commits.commit(self._identity, [staged], planned=planned)
        for partition, base_offset, last_offset in outcome.parts:
            number = partition.partition
            self._note(number, base_offset, last_offset, counts[number])

    def discard(self) -> None:
        """Forget what was appended since the last commit."""
        if self._stager is not None:
            self._stager.__exit__(None, None, None)
        self._stager, self._counts = None, {}
