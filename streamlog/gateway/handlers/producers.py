"""Idempotent producers: InitProducerId and DescribeProducers.

Source: KafkaApis.handleInitProducerIdRequest, handleDescribeProducersRequest.
"""

from typing import Any, Final

from streamlog.errors import StreamLogError
from streamlog.gateway.broker import Broker
from streamlog.gateway.catalog import CatalogEntry
from streamlog.gateway.coordinator_log import TxnProducer
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.gateway.request import Request
from streamlog.gateway.transactions.coordinator import Outcome, TransactionCoordinator

__all__ = ["HANDLERS"]

_NO_ID: Final = -1
_FENCED_IS_KNOWN: Final = 4  # before this version clients know only INVALID_PRODUCER_EPOCH
_NO_OFFSET: Final = -1


async def init_producer_id(broker: Broker, request: Request) -> dict[str, Any]:
    """Assign a producer id, or the next epoch of a transactional id's."""
    values = request.values
    if (values["producerId"] == _NO_ID) != (values["producerEpoch"] == _NO_ID):
        return _answer(Outcome(ErrorCode.INVALID_REQUEST))
    if broker.settings.is_read_only:
        return _answer(Outcome(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    try:
        outcome = await _init(broker, values)
    except StreamLogError as error:
        return _answer(Outcome(code_of(error)))
    if outcome.code is ErrorCode.PRODUCER_FENCED and request.version < _FENCED_IS_KNOWN:
        outcome = Outcome(ErrorCode.INVALID_PRODUCER_EPOCH)
    return _answer(outcome)


async def _init(broker: Broker, values: dict[str, Any]) -> Outcome:
    transactional_id = values["transactionalId"]
    if transactional_id is None:
        # An idempotent producer that lost its sequence asks with its id; it gets a new one.
        producer_id = await broker.run(broker.producer_ids.assign)
        return Outcome(ErrorCode.NONE, TxnProducer(producer_id, 0))
    expected = TxnProducer(values["producerId"], values["producerEpoch"])
    return await broker.coordinator(TransactionCoordinator).init_producer(
        transactional_id,
        values["transactionTimeoutMs"],
        None if expected.producer_id == _NO_ID else expected,
    )


def _answer(outcome: Outcome) -> dict[str, Any]:
    producer_id, producer_epoch = outcome.producer
    code = int(outcome.code)
    return {"errorCode": code, "producerId": producer_id, "producerEpoch": producer_epoch}


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
