"""Topics: CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords, DescribeTopicPartitions.

Source: ReplicationControlManager, KafkaApis.handleDeleteRecordsRequest,
DescribeTopicPartitionsRequestHandler.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from streamlog.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    StreamLogError,
    TopicExistsError,
)
from streamlog.gateway.broker import Broker
from streamlog.gateway.catalog import CatalogEntry
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.gateway.groups.coordinator import GroupCoordinator
from streamlog.gateway.handlers.administration import check_replicas
from streamlog.gateway.handlers.cluster import described
from streamlog.gateway.handlers.configs import topic_entries
from streamlog.gateway.operations import TOPIC_OPERATIONS, operations
from streamlog.gateway.request import Request
from streamlog.protocol.apis import ZERO_UUID
from streamlog.replication.root_set import RootSet
from streamlog.root import registry

__all__ = ["HANDLERS"]

_DEFAULT: Final = -1  # of a number of partitions or replicas
_PARTITIONS_MAX: Final = 2000  # max.request.partition.size.limit
_UNKNOWN: Final = -1
_REPEATED: Final = "Duplicate topic name."


# ---- creation -----------------------------------------------------------------------------------
async def create_topics(broker: Broker, request: Request) -> dict[str, Any]:
    """Create topics, each for itself."""
    wanted = request.values["topics"]
    repeated = _repeated(each["name"] for each in wanted)
    answers = [
        _refused_topic(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name in repeated
    ]
    for each in wanted:
        if each["name"] not in repeated:
            only_check = request.values["validateOnly"]
            answers.append(await broker.run(_create, broker, each, only_check=only_check))
    return {"throttleTimeMs": 0, "topics": answers}


def _create(broker: Broker, wanted: dict[str, Any], *, only_check: bool) -> dict[str, Any]:
    name, manager = wanted["name"], broker.manager
    topic_id: str | None = None
    try:
        broker.check_writable()
        if broker.catalog.topic(name) is not None:
            raise TopicExistsError("topic exists", got=repr(name))
        configs = _configs(wanted)
        partitions = _partition_count(broker, wanted)
        factor = wanted["replicationFactor"]
        if only_check:
            if factor > 1 and RootSet.load(manager.log_root, patience=manager.patience) is None:
                raise InvalidReplicationFactorError("there is one log root", got=factor, expected=1)
            registry.check_creation(manager.log_root, name, partitions=partitions, configs=configs)
        else:
            topic_id = manager.create_topic(
                name,
                partitions,
                configs,
                replication_factor=None if factor == _DEFAULT or wanted["assignments"] else factor,
            ).topic_id
    except StreamLogError as error:
        return _refused_topic(name, code_of(error), str(error))
    return {
        "name": name,
        "topicId": topic_id or ZERO_UUID,
        "errorCode": 0,
        "errorMessage": None,
        "numPartitions": partitions,
        "replicationFactor": max(factor, 1),
        "configs": [
            {key: each[key] for key in ("name", "value", "readOnly", "configSource", "isSensitive")}
            for each in topic_entries(broker, configs)
        ],
    }


def _configs(wanted: dict[str, Any]) -> dict[str, str]:
    names = [each["name"] for each in wanted["configs"]]
    for each in wanted["configs"]:
        if each["value"] is None:
            raise InvalidConfigError(f"{each['name']}: null is no value for a topic setting")
    if _repeated(names):
        raise InvalidConfigError("a setting is given twice", got=", ".join(_repeated(names)))
    return {each["name"]: each["value"] for each in wanted["configs"]}


def _partition_count(broker: Broker, wanted: dict[str, Any]) -> int:
    """Return the number of partitions that a request asks for."""
    count: int = wanted["numPartitions"]
    assignments = wanted["assignments"]
    if assignments:
        if count != _DEFAULT or wanted["replicationFactor"] != _DEFAULT:
            raise InvalidRequestError(
                "replica assignment excludes numPartitions and replicationFactor"
            )
        numbers = sorted(each["partitionIndex"] for each in assignments)
        if numbers != list(range(len(numbers))):
            raise InvalidReplicaAssignmentError(
                "partitions must be numbered from 0 without gaps", got=numbers
            )
        for each in assignments:
            check_replicas(broker, each["brokerIds"])
        return len(numbers)
    return broker.config.num_partitions if count == _DEFAULT else count


def _refused_topic(name: str, code: ErrorCode, message: str) -> dict[str, Any]:
    return {
        "name": name,
        "topicId": ZERO_UUID,
        "errorCode": int(code),
        "errorMessage": message,
        "numPartitions": _UNKNOWN,
        "replicationFactor": _UNKNOWN,
        "configs": [],
    }


async def create_partitions(broker: Broker, request: Request) -> dict[str, Any]:
    """Add partitions to topics."""
    wanted = request.values["topics"]
    repeated = _repeated(each["name"] for each in wanted)
    results = [
        {
            "name": name,
            "errorCode": int(ErrorCode.INVALID_REQUEST),
            "errorMessage": "Duplicate topic name.",
        }
        for name in repeated
    ]
    for each in wanted:
        if each["name"] not in repeated:
            only_check = request.values["validateOnly"]
            work = _add_partitions
            results.append(
                {"name": each["name"]}
                | await _tried(broker, work, broker, each, only_check=only_check)
            )
    return {"throttleTimeMs": 0, "results": results}


def _add_partitions(broker: Broker, wanted: dict[str, Any], *, only_check: bool) -> None:
    name, count = wanted["name"], wanted["count"]
    broker.check_writable()
    present = len(broker.manager.partitions(name))
    if count <= present:
        raise InvalidPartitionsError(
            f"topic {name} has {present} partitions, and their number can only grow", got=count
        )
    if wanted["assignments"] is not None:
        if len(wanted["assignments"]) != count - present:
            raise InvalidReplicaAssignmentError(
                "one assignment for each new partition",
                got=len(wanted["assignments"]),
                expected=count - present,
            )
        for each in wanted["assignments"]:
            check_replicas(broker, each["brokerIds"])
    registry.check_partition_count(name, count)
    if not only_check:
        broker.manager.alter_topic(name, partitions=count)
        broker.catalog.refresh()


# ---- deletion -----------------------------------------------------------------------------------
async def delete_topics(broker: Broker, request: Request) -> dict[str, Any]:
    """Delete topics, by name or by id."""
    wanted = request.values["topics"] or [
        {"name": name, "topicId": ZERO_UUID} for name in request.values["topicNames"]
    ]
    responses = []
    for each in wanted:
        name, topic_id = each["name"], each["topicId"]
        entry = broker.catalog.topic(name) if name else broker.catalog.topic_of_id(topic_id)
        if entry is None:
            by_id = ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
            by_name = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic."
            code, message = by_name if name else by_id
            answer: dict[str, Any] = {"errorCode": int(code), "errorMessage": message}
        elif not broker.config.serve.delete_topic_enable:
            answer = {"errorCode": int(ErrorCode.TOPIC_DELETION_DISABLED), "errorMessage": None}
        else:
            answer = await _tried(broker, _delete, broker, entry)
        found_id = topic_id if entry is None else entry.topic_id
        responses.append({"name": entry.name if entry else name, "topicId": found_id} | answer)
    deleted = [each["name"] for each in responses if each["errorCode"] == ErrorCode.NONE]
    if deleted:
        await broker.coordinator(GroupCoordinator).on_topics_deleted(deleted)
    return {"throttleTimeMs": 0, "responses": responses}


def _delete(broker: Broker, entry: CatalogEntry) -> None:
    broker.check_writable()
    broker.manager.delete_topic(entry.name)
    broker.catalog.refresh()
    broker.partitions.forget(entry.name)


async def delete_records(broker: Broker, request: Request) -> dict[str, Any]:
    """Raise the log start of partitions."""
    topics = []
    for topic in request.values["topics"]:
        partitions = []
        for each in topic["partitions"]:
            number, low, code = each["partitionIndex"], _UNKNOWN, ErrorCode.NONE
            try:
                low = await broker.run(
                    _delete_records, broker, topic["name"], number, each["offset"]
                )
            except StreamLogError as error:
                code = code_of(error)
            partitions.append(
                {"partitionIndex": number, "lowWatermark": low, "errorCode": int(code)}
            )
        topics.append({"name": topic["name"], "partitions": partitions})
    return {"throttleTimeMs": 0, "topics": topics}


def _delete_records(broker: Broker, topic: str, partition: int, offset: int) -> int:
    broker.check_writable()
    served = broker.partitions.get(topic, partition)
    low = served.log.delete_records(offset)
    served.refresh()
    return low


# ---- description --------------------------------------------------------------------------------
async def describe_topic_partitions(broker: Broker, request: Request) -> dict[str, Any]:
    """Describe partitions, so many at a time (KIP-966)."""
    values, known = request.values, broker.catalog.topics()
    cursor = values["cursor"]
    start = ("", 0) if cursor is None else (cursor["topicName"], cursor["partitionIndex"])
    names = sorted({each["name"] for each in values["topics"]} or known)
    left = min(values["responsePartitionLimit"], _PARTITIONS_MAX)
    topics: list[dict[str, Any]] = []
    following = None
    for name in (each for each in names if each >= start[0]):
        entry = known.get(name)
        if entry is None:
            topics.append(_undescribed(name))
            continue
        first = start[1] if name == start[0] else 0
        wanted = [number for number in entry.partitions if number >= first]
        if left <= 0 or len(wanted) > left:
            following = {"topicName": name, "partitionIndex": wanted[max(left, 0)]}
        if left > 0:
            topics.append(described(broker, entry, wanted[:left], shows_operations=True))
            left -= len(wanted)
        if following is not None:
            break
    return {"throttleTimeMs": 0, "topics": topics, "nextCursor": following}


def _undescribed(name: str) -> dict[str, Any]:
    return {
        "errorCode": int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        "name": name,
        "topicId": ZERO_UUID,
        "isInternal": False,
        "partitions": [],
        "topicAuthorizedOperations": operations(TOPIC_OPERATIONS, is_asked=True),
    }


# ---- shared -------------------------------------------------------------------------------------
async def _tried(
    broker: Broker, work: Callable[..., object], *args: Any, **kwargs: Any
) -> dict[str, Any]:
    """Run work in a thread; return the fields that say how it ended."""
    try:
        await broker.run(work, *args, **kwargs)
    except StreamLogError as error:
        return {"errorCode": int(code_of(error)), "errorMessage": str(error)}
    return {"errorCode": 0, "errorMessage": None}


def _repeated(names: Any) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


HANDLERS: Final = {
    "CreateTopics": create_topics,
    "CreatePartitions": create_partitions,
    "DeleteTopics": delete_topics,
    "DeleteRecords": delete_records,
    "DescribeTopicPartitions": describe_topic_partitions,
}
