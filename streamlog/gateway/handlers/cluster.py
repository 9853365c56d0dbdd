"""The broker, its topics and its disk: Metadata, DescribeCluster, DescribeLogDirs and the like.

Source: KafkaApis.handleTopicMetadataRequest, handleDescribeCluster, ReplicaManager.describeLogDirs.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from streamlog.errors import InvalidTopicError, StreamLogError, UnknownTopicError
from streamlog.gateway.broker import Broker, Coordinator
from streamlog.gateway.catalog import CatalogEntry
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.gateway.groups.coordinator import GroupCoordinator
from streamlog.gateway.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, operations
from streamlog.gateway.request import Request
from streamlog.gateway.transactions.coordinator import TransactionCoordinator
from streamlog.protocol.apis import ZERO_UUID
from streamlog.protocol.internal_topics import Decoder
from streamlog.topic import INTERNAL_TOPICS, check_topic_name

__all__ = ["HANDLERS", "described"]

_COORDINATORS: Final[dict[str, Callable[[Broker], Coordinator]]] = {
    Decoder.OFFSETS.value: GroupCoordinator,
    Decoder.TRANSACTIONS.value: TransactionCoordinator,
}
_BROKERS, _CONTROLLERS = 1, 2  # DescribeClusterRequest.EndpointType


async def metadata(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer the broker and the topics that are asked for; create those that may be."""
    wanted = request.values["topics"]
    # In version 0 an empty list asks for all topics, since version 1 null does.
    asks_all = wanted is None or (request.version == 0 and not wanted)
    if asks_all:
        topics = [_topic(broker, request, each) for each in broker.catalog.topics().values()]
    else:
        topics = [await _asked(broker, request, each) for each in wanted]
    return {
        "throttleTimeMs": 0,
        "brokers": [_node(broker)],
        "clusterId": broker.cluster_id,
        "controllerId": broker.node_id,
        "topics": topics,
        "clusterAuthorizedOperations": _cluster_operations(request),
        "errorCode": 0,
    }


async def _asked(broker: Broker, request: Request, wanted: dict[str, Any]) -> dict[str, Any]:
    name, topic_id = wanted["name"], wanted["topicId"]
    if topic_id != ZERO_UUID:
        entry = broker.catalog.topic_of_id(topic_id)
        if entry is None:
            return _missing(name, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        return _topic(broker, request, entry)
    entry = broker.catalog.topic(name)
    if entry is None and request.values["allowAutoTopicCreation"]:
        try:
            check_topic_name(name)
            await _created(broker, name)
        except UnknownTopicError:
            return _missing(name, topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except StreamLogError as error:
            return _missing(name, topic_id, code_of(error))
        entry = broker.catalog.topic(name)
    if entry is None:
        try:
            check_topic_name(name)
        except InvalidTopicError:
            return _missing(name, topic_id, ErrorCode.INVALID_TOPIC_EXCEPTION)
        return _missing(name, topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _topic(broker, request, entry)


async def _created(broker: Broker, name: str) -> None:
    """Create a topic because a client asked for it; that of a coordinator as the coordinator does.

    Source: AutoTopicCreationManager.creatableTopic.
    """
    kind = _COORDINATORS.get(name)
    if kind is not None and broker.config.auto_create_topics_enable:
        await broker.coordinator(kind).prepare()
    await broker.run(broker.manager.ensure_topic, name)


def described(
    broker: Broker, entry: CatalogEntry, numbers: Sequence[int], *, shows_operations: bool
) -> dict[str, Any]:
    """Return the fields of a topic with some of its partitions, all led by this broker."""
    node = [broker.node_id]
    return {
        "errorCode": 0,
        "name": entry.name,
        "topicId": entry.topic_id,
        "isInternal": entry.is_internal,
        "partitions": [
            {
                "errorCode": 0,
                "partitionIndex": number,
                "leaderId": broker.node_id,
                "leaderEpoch": broker.leader_epoch(entry.name, number),
                "replicaNodes": node,
                "isrNodes": node,
                "eligibleLeaderReplicas": [],
                "lastKnownElr": [],
                "offlineReplicas": [],
            }
            for number in numbers
        ],
        "topicAuthorizedOperations": operations(TOPIC_OPERATIONS, is_asked=shows_operations),
    }


def _topic(broker: Broker, request: Request, entry: CatalogEntry) -> dict[str, Any]:
    shown = request.values["includeTopicAuthorizedOperations"]
    return described(broker, entry, entry.partitions, shows_operations=shown)


def _missing(name: str | None, topic_id: str, code: ErrorCode) -> dict[str, Any]:
    return {
        "errorCode": int(code),
        "name": name,
        "topicId": topic_id,
        "isInternal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topicAuthorizedOperations": operations(0, is_asked=False),
    }


def _node(broker: Broker) -> dict[str, Any]:
    address = broker.address
    return {"nodeId": broker.node_id, "host": address.host, "port": address.port, "rack": None}


def _cluster_operations(request: Request) -> int:
    is_asked = request.values["includeClusterAuthorizedOperations"]
    return operations(CLUSTER_OPERATIONS, is_asked=is_asked)


async def describe_cluster(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer the cluster's id and its one broker; it is its controller, too."""
    kind = request.values["endpointType"]
    if kind != _BROKERS:
        return _no_such_endpoints(broker, request, kind)
    node = _node(broker)
    return {
        "throttleTimeMs": 0,
        "errorCode": 0,
        "errorMessage": None,
        "endpointType": _BROKERS,
        "clusterId": broker.cluster_id or "",
        "controllerId": broker.node_id,
        "brokers": [{"brokerId": node.pop("nodeId"), **node, "isFenced": False}],
        "clusterAuthorizedOperations": _cluster_operations(request),
    }


def _no_such_endpoints(broker: Broker, request: Request, kind: int) -> dict[str, Any]:
    """Answer a client that takes this for a controller."""
    code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {kind}"
    if kind == _CONTROLLERS:
        code, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This is the endpoint of a broker."
    return {
        "throttleTimeMs": 0,
        "errorCode": int(code),
        "errorMessage": message,
        "endpointType": _BROKERS,
        "clusterId": "",
        "controllerId": -1,
        "brokers": [],
        "clusterAuthorizedOperations": operations(0, is_asked=False),
    }


async def describe_log_dirs(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer the size of partitions; null asks for all of them."""
    wanted = request.values["topics"]
    if wanted is None:
        named = [(each.name, each.partitions) for each in broker.catalog.topics().values()]
    else:
        named = [(each["topic"], tuple(each["partitions"])) for each in wanted]
    topics = [
        {"name": name, "partitions": await broker.run(_sizes, broker, name, numbers)}
        for name, numbers in named
    ]
    directory = {
        "errorCode": 0,
        "logDir": broker.manager.root,
        "topics": [each for each in topics if each["partitions"]],
        "totalBytes": -1,
        "usableBytes": -1,
    }
    return {"throttleTimeMs": 0, "errorCode": 0, "results": [directory]}


def _sizes(broker: Broker, topic: str, numbers: tuple[int, ...]) -> list[dict[str, Any]]:
    sizes = []
    for number in numbers:
        try:
            size = broker.partitions.get(topic, number).reader.size
        except StreamLogError:  # unknown, or reported by the requests that read it
            continue
        sizes.append(
            {
                "partitionIndex": number,
                "partitionSize": size,
                "offsetLag": 0,
                "isFutureKey": False,
            }
        )
    return sizes


async def list_partition_reassignments(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer that no replica moves: there is one broker."""
    return {"throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "topics": []}


async def elect_leaders(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer that every partition has its preferred leader."""
    wanted = request.values["topicPartitions"]
    if wanted is None:
        named = [(each.name, each.partitions) for each in broker.catalog.topics().values()]
    else:
        named = [(each["topic"], tuple(each["partitions"])) for each in wanted]
    results = []
    for name, numbers in named:
        entry = broker.catalog.topic(name)
        known = () if entry is None else entry.partitions
        partitions = []
        for number in numbers:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if number in known:
                code = ErrorCode.ELECTION_NOT_NEEDED
            partitions.append({"partitionId": number, "errorCode": int(code), "errorMessage": None})
        results.append({"topic": name, "partitionResult": partitions})
    return {"throttleTimeMs": 0, "errorCode": 0, "replicaElectionResults": results}


async def describe_quorum(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer the metadata quorum of a broker that is its own controller; it has no log here."""
    now_ms = broker.clock.now_ms()
    voter = {
        "replicaId": broker.node_id,
        "logEndOffset": 0,
        "lastFetchTimestamp": now_ms,
        "lastCaughtUpTimestamp": now_ms,
    }
    topics = []
    for topic in request.values["topics"]:
        partitions = [
            {
                "partitionIndex": each["partitionIndex"],
                "errorCode": 0,
                "leaderId": broker.node_id,
                "leaderEpoch": 0,
                "highWatermark": 0,
                "currentVoters": [voter],
                "observers": [],
            }
            for each in topic["partitions"]
        ]
        topics.append({"topicName": topic["topicName"], "partitions": partitions})
    address = {"name": "CONTROLLER", "host": broker.address.host, "port": broker.address.port}
    node = {"nodeId": broker.node_id, "listeners": [address]}
    return {"errorCode": 0, "errorMessage": None, "topics": topics, "nodes": [node]}


# ---- what needs an authorizer or quotas -------------------------------------------------------
_NO_AUTHORIZER: Final = {
    "errorCode": int(ErrorCode.SECURITY_DISABLED),
    "errorMessage": "No Authorizer is configured.",
}


async def describe_acls(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer that there are no access control lists."""
    return {"throttleTimeMs": 0, **_NO_AUTHORIZER, "resources": []}


async def create_acls(broker: Broker, request: Request) -> dict[str, Any]:
    """Refuse each access control list."""
    return {"throttleTimeMs": 0, "results": [_NO_AUTHORIZER] * len(request.values["creations"])}


async def delete_acls(broker: Broker, request: Request) -> dict[str, Any]:
    """Refuse each filter."""
    refused = _NO_AUTHORIZER | {"matchingAcls": []}
    return {"throttleTimeMs": 0, "filterResults": [refused] * len(request.values["filters"])}


async def describe_client_quotas(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer that there are no quotas."""
    return {"throttleTimeMs": 0, "errorCode": 0, "errorMessage": None, "entries": []}


HANDLERS: Final = {
    "CreateAcls": create_acls,
    "DeleteAcls": delete_acls,
    "DescribeAcls": describe_acls,
    "DescribeClientQuotas": describe_client_quotas,
    "DescribeCluster": describe_cluster,
    "DescribeLogDirs": describe_log_dirs,
    "DescribeQuorum": describe_quorum,
    "ElectLeaders": elect_leaders,
    "ListPartitionReassignments": list_partition_reassignments,
    "Metadata": metadata,
}
