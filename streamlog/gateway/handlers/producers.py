"""Idempotent producers: InitProducerId and DescribeProducers.

Source: KafkaApis.handleInitProducerIdRequest, handleDescribeProducersRequest.
"""

from typing import Any, Final

from streamlog.errors import StreamLogError
from streamlog.gateway.broker import Broker
from streamlog.gateway.catalog import CatalogEntry
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.gateway.request import Request

__all__ = ["HANDLERS"]

_NO_ID: Final = -1
_NO_OFFSET: Final = -1


async def init_producer_id(broker: Broker, request: Request) -> dict[str, Any]:
    """Assign a producer id."""
    values = request.values
    if (values["producerId"] == _NO_ID) != (values["producerEpoch"] == _NO_ID):
        return _failed(ErrorCode.INVALID_REQUEST)
    if broker.settings.is_read_only:
        return _failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        # An idempotent producer that lost its sequence asks with its id; it gets a new one.
        producer_id = await broker.run(broker.producer_ids.assign)
    except StreamLogError as error:
        return _failed(code_of(error))
    return {"errorCode": 0, "producerId": producer_id, "producerEpoch": 0}


def _failed(code: ErrorCode) -> dict[str, Any]:
    return {"errorCode": int(code), "producerId": _NO_ID, "producerEpoch": _NO_ID}


async def describe_producers(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer the state of the producers of partitions."""
    return {"topics": await broker.run(_describe_all, broker, request.values["topics"])}


def _describe_all(broker: Broker, topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    described = []
    for topic in topics:
        entry = broker.catalog.topic(topic["name"])
        partitions = [_describe(broker, entry, number) for number in topic["partitionIndexes"]]
        described.append({"name": topic["name"], "partitions": partitions})
    return described


def _describe(broker: Broker, entry: CatalogEntry | None, number: int) -> dict[str, Any]:
    answer: dict[str, Any] = {"partitionIndex": number, "errorCode": 0, "activeProducers": []}
    if entry is None or number not in entry.partitions:
        answer["errorCode"] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return answer
    try:
        reader = broker.partitions.get(entry.name, number).reader
        reader.refresh()
        producers = reader.producers
    except StreamLogError as error:
        return answer | {"errorCode": int(code_of(error)), "errorMessage": str(error)}
    for state in producers.values():
        start = state.current_txn_first_offset
        answer["activeProducers"].append(
            {
                "producerId": state.producer_id,
                "producerEpoch": state.producer_epoch,
                "lastSequence": state.last_sequence,
                "lastTimestamp": state.last_timestamp,
                "coordinatorEpoch": state.coordinator_epoch,
                "currentTxnStartOffset": _NO_OFFSET if start is None else start,
            }
        )
    return answer


HANDLERS: Final = {"InitProducerId": init_producer_id, "DescribeProducers": describe_producers}
