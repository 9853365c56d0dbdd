"""The offsets that groups committed, and those of transactions that are still open.

Source: org.apache.kafka.coordinator.group.OffsetMetadataManager.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from streamlog.gateway.coordinator_log import KeyValue
from streamlog.protocol.apis import ZERO_UUID
from streamlog.protocol.internal_topics import Decoder, OffsetsKey, encode_internal
from streamlog.topic import TopicPartition

__all__ = ["CommittedOffset", "GroupOffsets", "offset_tombstone"]

_VERSION: Final = 4  # as brokers since 4.0 write it
_VERSION_WITH_EXPIRY: Final = 1  # the last one that holds the client's own retention


class CommittedOffset(NamedTuple):
    """An offset that a group committed for a partition.

    Attributes:
        offset: The next record to read.
        leader_epoch: The epoch of the record before it; -1 if unknown.
        metadata: A text of the client's own.
        commit_timestamp_ms: When it was committed.
        expire_timestamp_ms: When it expires by the client's own wish; -1 without one.
        topic_id: The topic's id; all zero where the client named the topic only.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: str = ZERO_UUID

    @classmethod
    def of_record(cls, value: Mapping[str, Any]) -> "CommittedOffset":
        """Return the offset that the value of a record holds."""
        return cls(
            value["offset"],
            value.get("leaderEpoch", -1),
            value["metadata"],
            value["commitTimestamp"],
            value.get("expireTimestamp", -1),
            value.get("topicId", ZERO_UUID),
        )

    def record(self, group_id: str, partition: TopicPartition) -> KeyValue:
        """Return the record that keeps it.

        Source: GroupCoordinatorRecordHelpers.newOffsetCommitRecord.
        """
        value: dict[str, Any] = {
            "offset": self.offset,
            "leaderEpoch": self.leader_epoch,
            "metadata": self.metadata,
            "commitTimestamp": self.commit_timestamp_ms,
            "expireTimestamp": self.expire_timestamp_ms,
        }
        if self.topic_id != ZERO_UUID:
            value["topicId"] = self.topic_id
        version = _VERSION if self.expire_timestamp_ms == -1 else _VERSION_WITH_EXPIRY
        key = _key(group_id, partition)
        return encode_internal(
            Decoder.OFFSETS, OffsetsKey.OFFSET_COMMIT, key, value, version=version
        )


def offset_tombstone(group_id: str, partition: TopicPartition) -> KeyValue:
    """Return the record that removes a committed offset."""
    return encode_internal(Decoder.OFFSETS, OffsetsKey.OFFSET_COMMIT, _key(group_id, partition))


def _key(group_id: str, partition: TopicPartition) -> dict[str, Any]:
    return {"group": group_id, "topic": partition.topic, "partition": partition.partition}


class _Entry(NamedTuple):
    """A committed offset and its place in the order of all commits."""

    committed: CommittedOffset
    place: int


_Offsets = dict[str, dict[TopicPartition, _Entry]]  # by group


class GroupOffsets:
    """The committed offsets of all groups, as the records of the log add up to them."""

    def __init__(self) -> None:
        self._committed: _Offsets = {}
        self._pending: dict[int, _Offsets] = {}  # by producer id
        self._place = 0

    def groups(self) -> Iterator[str]:
        """Yield the groups with committed offsets."""
        return iter(list(self._committed))

    def of(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group."""
        known = self._committed.get(group_id, {})
        return {partition: entry.committed for partition, entry in known.items()}

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """Return the committed offset of a partition."""
        entry = self._committed.get(group_id, {}).get(partition)
        return None if entry is None else entry.committed

    def put(self, group_id: str, partition: TopicPartition, committed: CommittedOffset) -> None:
        """Note an offset that is in the log."""
        self._place += 1
        offsets = self._committed.setdefault(group_id, {})
        offsets[partition] = _Entry(committed, self._place)

    def put_pending(
        self,
        producer_id: int,
        group_id: str,
        partition: TopicPartition,
        committed: CommittedOffset,
    ) -> None:
        """Note an offset in the log that counts once the producer's transaction is committed."""
        self._place += 1
        offsets = self._pending.setdefault(producer_id, {}).setdefault(group_id, {})
        offsets[partition] = _Entry(committed, self._place)

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """Note that an offset was removed, also one of an open transaction."""
        for offsets in (self._committed, *self._pending.values()):
            known = offsets.get(group_id, {})
            known.pop(partition, None)
            if not known:
                offsets.pop(group_id, None)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Note that a producer's transaction ended: its offsets count now, or never."""
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            if not is_commit:
                continue
            known = self._committed.setdefault(group_id, {})
            for partition, entry in offsets.items():
                # Of a commit in a transaction and a plain one, the later record counts.
                if partition not in known or known[partition].place < entry.place:
                    known[partition] = entry

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction commits an offset of this partition."""
        return any(partition in each.get(group_id, {}) for each in self._pending.values())

    def pending_partitions(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions whose offsets open transactions of a group commit."""
        return set().union(*(each.get(group_id, {}) for each in self._pending.values()))

    def pending_groups(self, producer_id: int) -> list[str]:
        """Return the groups whose offsets a producer's open transaction commits."""
        return list(self._pending.get(producer_id, ()))
