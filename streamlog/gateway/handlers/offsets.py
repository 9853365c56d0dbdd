"""The offsets that groups commit: OffsetCommit, OffsetFetch, OffsetDelete.

Source: KafkaApis.handleOffsetCommitRequest, handleOffsetFetchRequest, handleOffsetDeleteRequest.
"""

from collections.abc import Mapping
from typing import Any, Final

from streamlog.errors import StreamLogError
from streamlog.gateway.broker import Broker
from streamlog.gateway.catalog import CatalogEntry
from streamlog.gateway.coordinator_log import coordinator_code
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.coordinator import GroupCoordinator
from streamlog.gateway.groups.group import CommittingMember
from streamlog.gateway.groups.offsets import CommittedOffset
from streamlog.gateway.request import Request
from streamlog.protocol.apis import ZERO_UUID
from streamlog.topic import TopicPartition

__all__ = ["HANDLERS", "acceptable_offsets", "commit_results"]

_TOPIC_IDS: Final = 10  # OffsetCommit, OffsetFetch: KIP-848
_SEVERAL_GROUPS: Final = 8  # OffsetFetch

_Codes = dict[tuple[str, int], ErrorCode]  # by the topic's name or id, as the client spells it


async def offset_commit(broker: Broker, request: Request) -> dict[str, Any]:
    """Commit offsets of a group."""
    values, uses_ids = request.values, request.version >= _TOPIC_IDS
    identity = CommittingMember(
        values["memberId"],
        values["groupInstanceId"],
        values["generationIdOrMemberEpoch"],
        is_transactional=False,
        version=request.version,
    )
    retention_ms = values["retentionTimeMs"]
    expires_ms = -1 if retention_ms == -1 else broker.clock.now_ms() + retention_ms
    codes, offsets = acceptable_offsets(
        broker, values["topics"], uses_ids=uses_ids, expires_ms=expires_ms
    )
    coordinator = broker.coordinator(GroupCoordinator)
    try:
        code = await coordinator.commit_offsets(values["groupId"], identity, offsets)
    except StreamLogError as error:
        code = coordinator_code(error)
    return {"topics": commit_results(values["topics"], codes, code, uses_ids=uses_ids)}


def acceptable_offsets(
    broker: Broker, topics: list[dict[str, Any]], *, uses_ids: bool, expires_ms: int = -1
) -> tuple[_Codes, dict[TopicPartition, CommittedOffset]]:
    """Return which offsets of a request cannot be committed, and all others.

    Args:
        broker: The broker.
        topics: The topics of an OffsetCommit or TxnOffsetCommit request.
        uses_ids: Whether they have ids in place of names.
        expires_ms: When the offsets expire by the client's wish; -1 without one.
    """
    codes: _Codes = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    now_ms, longest = broker.clock.now_ms(), broker.config.serve.offset_metadata_max_bytes
    for topic in topics:
        spelled = topic["topicId"] if uses_ids else topic["name"]
        entry = _entry(broker, topic, uses_ids=uses_ids)
        for partition in topic["partitions"]:
            number, metadata = partition["partitionIndex"], partition["committedMetadata"] or ""
            if entry is None or number not in entry.partitions:
                unknown = uses_ids and entry is None
                codes[spelled, number] = (
                    ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
            elif len(metadata) > longest:
                codes[spelled, number] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offsets[TopicPartition(entry.name, number)] = CommittedOffset(
                    partition["committedOffset"],
                    partition["committedLeaderEpoch"],
                    metadata,
                    now_ms,
                    expires_ms,
                    entry.topic_id if uses_ids else ZERO_UUID,
                )
    return codes, offsets


def commit_results(
    topics: list[dict[str, Any]], codes: _Codes, code: ErrorCode, *, uses_ids: bool
) -> list[dict[str, Any]]:
    """Return the topics of the response: an error of their own, or else that of the group."""
    results = []
    for topic in topics:
        spelled = topic["topicId"] if uses_ids else topic["name"]
        partitions = [
            {
                "partitionIndex": each["partitionIndex"],
                "errorCode": int(codes.get((spelled, each["partitionIndex"]), code)),
            }
            for each in topic["partitions"]
        ]
        results.append({**_spelling(topic, uses_ids=uses_ids), "partitions": partitions})
    return results


def _entry(broker: Broker, topic: dict[str, Any], *, uses_ids: bool) -> CatalogEntry | None:
    if uses_ids:
        return broker.catalog.topic_of_id(topic["topicId"])
    return broker.catalog.topic(topic["name"])


def _spelling(topic: dict[str, Any], *, uses_ids: bool) -> dict[str, Any]:
    return {"topicId": topic["topicId"]} if uses_ids else {"name": topic["name"]}


# ---- OffsetFetch --------------------------------------------------------------------------------
async def offset_fetch(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer the committed offsets of groups, of some partitions or of all."""
    values = request.values
    is_single = request.version < _SEVERAL_GROUPS
    asked = [_single_group(values)] if is_single else values["groups"]
    coordinator = broker.coordinator(GroupCoordinator)
    try:
        await coordinator.ready()
    except StreamLogError as error:
        code = int(coordinator_code(error))
        groups = [{"groupId": each["groupId"], "topics": [], "errorCode": code} for each in asked]
    else:
        groups = [_fetched(broker, coordinator, request, each) for each in asked]
    return groups[0] if is_single else {"groups": groups}


def _single_group(values: dict[str, Any]) -> dict[str, Any]:
    topics = values["topics"]
    if topics is not None:
        topics = [{"topicId": ZERO_UUID, **each} for each in topics]
    return {"groupId": values["groupId"], "memberId": None, "memberEpoch": -1, "topics": topics}


def _fetched(
    broker: Broker, coordinator: GroupCoordinator, request: Request, asked: dict[str, Any]
) -> dict[str, Any]:
    """Return the offsets of one group.

    Source: OffsetMetadataManager.fetchOffsets, fetchAllOffsets.
    """
    group_id, uses_ids = asked["groupId"], request.version >= _TOPIC_IDS
    group = coordinator.groups.get(group_id)
    if group is not None:
        code = group.check_fetch(asked["memberId"], asked["memberEpoch"])
        if code is not ErrorCode.NONE:
            return {"groupId": group_id, "topics": [], "errorCode": int(code)}
    known = coordinator.offsets.of(group_id)
    unstable = coordinator.offsets.pending_partitions(group_id)
    if not request.values["requireStable"]:
        unstable = set()
    topics, unknown = [], []
    if asked["topics"] is None:
        topics = _all_topics(broker, known, unstable, uses_ids=uses_ids)
    else:
        for topic in asked["topics"]:
            entry = _entry(broker, topic, uses_ids=uses_ids)
            if uses_ids and entry is None:  # a broker answers them last
                partitions = [
                    _no_offset(each, ErrorCode.UNKNOWN_TOPIC_ID)
                    for each in topic["partitionIndexes"]
                ]
                unknown.append({**_spelling(topic, uses_ids=uses_ids), "partitions": partitions})
            else:
                name = topic["name"] if entry is None else entry.name
                partitions = [
                    _offset(TopicPartition(name, each), known, unstable, topic["topicId"])
                    for each in topic["partitionIndexes"]
                ]
                topics.append({**_spelling(topic, uses_ids=uses_ids), "partitions": partitions})
    return {"groupId": group_id, "topics": topics + unknown, "errorCode": int(ErrorCode.NONE)}


def _all_topics(
    broker: Broker,
    known: Mapping[TopicPartition, CommittedOffset],
    unstable: set[TopicPartition],
    *,
    uses_ids: bool,
) -> list[dict[str, Any]]:
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in sorted(known):
        by_topic.setdefault(partition.topic, []).append(partition)
    topics = []
    for name, partitions in by_topic.items():
        entry = broker.catalog.topic(name)
        if uses_ids and entry is None:
            continue  # the topic is gone, and without an id the answer cannot name it
        topic_id = ZERO_UUID if entry is None else entry.topic_id
        offsets = [_offset(each, known, unstable, topic_id) for each in partitions]
        topics.append({"name": name, "topicId": topic_id, "partitions": offsets})
    return topics


def _offset(
    partition: TopicPartition,
    known: Mapping[TopicPartition, CommittedOffset],
    unstable: set[TopicPartition],
    topic_id: str,
) -> dict[str, Any]:
    if partition in unstable:
        return _no_offset(partition.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = known.get(partition)
    # An offset that was committed by id does not belong to a topic that was created again.
    if committed is None or (
        ZERO_UUID not in (topic_id, committed.topic_id) and topic_id != committed.topic_id
    ):
        return _no_offset(partition.partition, ErrorCode.NONE)
    return {
        "partitionIndex": partition.partition,
        "committedOffset": committed.offset,
        "committedLeaderEpoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "errorCode": int(ErrorCode.NONE),
    }


def _no_offset(partition: int, code: ErrorCode) -> dict[str, Any]:
    return {
        "partitionIndex": partition,
        "committedOffset": -1,
        "committedLeaderEpoch": -1,
        "metadata": "",
        "errorCode": int(code),
    }


# ---- OffsetDelete -------------------------------------------------------------------------------
async def offset_delete(broker: Broker, request: Request) -> dict[str, Any]:
    """Remove committed offsets of a group, but not of topics that its members read."""
    values, codes = request.values, {}
    wanted = []
    for topic in values["topics"]:
        entry = broker.catalog.topic(topic["name"])
        for each in topic["partitions"]:
            partition = TopicPartition(topic["name"], each["partitionIndex"])
            if entry is None or partition.partition not in entry.partitions:
                codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted.append(partition)
    if not values["groupId"]:
        return {"errorCode": int(ErrorCode.INVALID_GROUP_ID), "topics": []}
    coordinator = broker.coordinator(GroupCoordinator)
    code, removed = await coordinator.delete_offsets(values["groupId"], wanted)
    if code is not ErrorCode.NONE:
        return {"errorCode": int(code), "topics": []}
    codes |= removed
    topics = [
        {
            "name": topic["name"],
            "partitions": [
                {
                    "partitionIndex": each["partitionIndex"],
                    "errorCode": int(codes[TopicPartition(topic["name"], each["partitionIndex"])]),
                }
                for each in topic["partitions"]
            ],
        }
        for topic in values["topics"]
    ]
    return {"errorCode": int(ErrorCode.NONE), "topics": topics}


HANDLERS: Final = {
    "OffsetCommit": offset_commit,
    "OffsetFetch": offset_fetch,
    "OffsetDelete": offset_delete,
}
