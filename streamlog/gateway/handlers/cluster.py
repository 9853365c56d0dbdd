"""Which broker and topics there are: Metadata, DescribeCluster.

Source: KafkaApis.handleTopicMetadataRequest, handleDescribeCluster.
"""

from typing import Any, Final

from streamlog.errors import InvalidTopicError, StreamLogError, UnknownTopicError
from streamlog.gateway.broker import Broker
from streamlog.gateway.catalog import INTERNAL_TOPICS, CatalogEntry
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.gateway.request import Request
from streamlog.protocol.apis import ZERO_UUID
from streamlog.topic import check_topic_name

__all__ = ["HANDLERS"]

_NO_OPERATIONS: Final = -(2**31)  # AuthorizedOperations that nobody asked for


async def metadata(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer the broker and the topics that are asked for; create those that may be."""
    wanted = request.values["topics"]
    # In version 0 an empty list asks for all topics, since version 1 null does.
    asks_all = wanted is None or (request.version == 0 and not wanted)
    if asks_all:
        topics = [_topic(broker, entry) for entry in broker.catalog.topics().values()]
    else:
        topics = [await _asked(broker, request, each) for each in wanted]
    node: dict[str, Any] = {"nodeId": broker.node_id, "rack": None}
    node |= {"host": broker.address.host, "port": broker.address.port}
    return {
        "throttleTimeMs": 0,
        "brokers": [node],
        "clusterId": broker.cluster_id,
        "controllerId": broker.node_id,
        "topics": topics,
        "clusterAuthorizedOperations": _NO_OPERATIONS,
        "errorCode": 0,
    }


async def _asked(broker: Broker, request: Request, wanted: dict[str, Any]) -> dict[str, Any]:
    name, topic_id = wanted["name"], wanted["topicId"]
    if topic_id != ZERO_UUID:
        entry = broker.catalog.topic_of_id(topic_id)
        if entry is None:
            return _missing(name, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        return _topic(broker, entry)
    entry = broker.catalog.topic(name)
    if entry is None and request.values["allowAutoTopicCreation"]:
        try:
            check_topic_name(name)
            await broker.run(broker.manager.ensure_topic, name)
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
    return _topic(broker, entry)


def _topic(broker: Broker, entry: CatalogEntry) -> dict[str, Any]:
    return {
        "errorCode": 0,
        "name": entry.name,
        "topicId": entry.topic_id,
        "isInternal": entry.name in INTERNAL_TOPICS,
        "partitions": [
            {
                "errorCode": 0,
                "partitionIndex": number,
                "leaderId": broker.node_id,
                "leaderEpoch": broker.leader_epoch(entry.name, number),
                "replicaNodes": [broker.node_id],
                "isrNodes": [broker.node_id],
                "offlineReplicas": [],
            }
            for number in entry.partitions
        ],
        "topicAuthorizedOperations": _NO_OPERATIONS,
    }


def _missing(name: str | None, topic_id: str, code: ErrorCode) -> dict[str, Any]:
    return {
        "errorCode": int(code),
        "name": name,
        "topicId": topic_id,
        "isInternal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topicAuthorizedOperations": _NO_OPERATIONS,
    }


HANDLERS: Final = {"Metadata": metadata}
