"""Produce: record batches of clients, appended to their partitions.

A small request is appended in the event loop, as long as that waits for nothing: a thread would
take longer to begin than the append. From the first partition on that may have to wait, one thread
appends the rest of a request, in its order, as Kafka's request threads do. The log validates,
recognizes what idempotent producers repeat, and reports every refusal as an error with Kafka's
code.

Source: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords.
"""

import logging
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from streamlog.errors import InvalidRequestError, StreamLogError
from streamlog.gateway.broker import Broker
from streamlog.gateway.catalog import CatalogEntry
from streamlog.gateway.coordinator_log import TxnProducer
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.gateway.partitions import ServedPartition
from streamlog.gateway.request import Request
from streamlog.gateway.transactions.coordinator import TransactionCoordinator
from streamlog.partition.append import AppendInfo
from streamlog.records.acks import Acks
from streamlog.records.layout import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CURRENT_MAGIC,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    PRODUCER_ID_OFFSET,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_MASK,
)
from streamlog.records.record import CompressionType
from streamlog.records.validate import AppendOrigin
from streamlog.topic import INTERNAL_TOPICS, TopicPartition

__all__ = ["AT_ONCE", "HANDLERS"]

_logger: Final = logging.getLogger(__name__)

# The errors after which ReplicaManager.appendToLocalLog does not say where the log starts.
_WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)

_BY_TOPIC_ID: Final = 13  # the first version that names topics by id
_CURRENT_LEADER: Final = 10  # the first version that names the new leader
_ABORTABLE: Final = 11  # the first version that knows TRANSACTION_ABORTABLE
_ADDS_PARTITIONS: Final = 12  # the first version that adds partitions to transactions
_ZSTD: Final = 7  # the first version that allows zstd
_MOST_NAMED_RECORDS: Final = 1000  # clients fail the other records of the batch as well
_PRODUCER: Final = struct.Struct(">qh")  # id and epoch in the header of a batch
_ACKS: Final = {each.value: each for each in Acks}
_NO_OFFSET: Final = -1
_AT_ONCE_SIZE: Final = 64 << 10  # bytes of a request that is appended in the event loop


class _Produced(NamedTuple):
    """The records for one partition.

    Attributes:
        topic: The topic.
        number: The number of the partition.
        records: One record batch; None where the client sent null.
    """

    topic: CatalogEntry
    number: int
    records: bytes | None


_Waiting = tuple[dict[str, Any], _Produced]  # a partition's response, to be completed
_Appended = tuple[ServedPartition, AppendInfo]


async def produce(broker: Broker, request: Request) -> dict[str, Any] | None:
    """Append the batches of a request.

    Returns:
        The response; None with acks=0.

    Raises:
        ConnectionAbortedError: An append failed with acks=0: only a closed connection makes the
            client ask for metadata again.
    """
    acks = _ACKS.get(request.values["acks"])
    answers, waiting = _sorted_out(broker, request, acks)
    if acks is not None and waiting:
        await _append_waiting(broker, request, waiting, acks)
    if acks is Acks.NONE:
        for each in answers:
            if any(partition["errorCode"] for partition in each["partitionResponses"]):
                raise ConnectionAbortedError("produce with acks=0 failed")
        return None
    return _response(broker, answers)


def produce_at_once(broker: Broker, request: Request) -> dict[str, Any] | None:
    """Append the batch of a request for one partition, if that waits for nothing.

    Returns:
        The response; None where something might have to be waited for: nothing was changed.
    """
    acks = _ACKS.get(request.values["acks"])
    if acks is None or acks is Acks.NONE:
        return None
    answers, waiting = _sorted_out(broker, request, acks)
    if len(waiting) != 1 or _is_transactional(waiting[0][1].records):
        return None
    served = broker.partitions.known(waiting[0][1].topic.name, waiting[0][1].number)
    if served is None or served.reader.is_busy:
        return None
    left, behind = _append_at_once(broker, request, waiting)
    if left:
        return None
    if behind:  # its reader was free a moment ago: a roll by another process
        broker.run_beside(_refresh, behind)
    return _response(broker, answers)


def _sorted_out(
    broker: Broker, request: Request, acks: Acks | None
) -> tuple[list[dict[str, Any]], list[_Waiting]]:
    """Return the responses of all topics, and what is to be appended to those that exist."""
    answers: list[dict[str, Any]] = []
    waiting: list[_Waiting] = []
    for topic in request.values["topicData"]:
        entry, code = _topic(broker, request, topic, acks)
        partitions = [_refused(each["index"], code) for each in topic["partitionData"]]
        answers.append(
            {"name": topic["name"], "topicId": topic["topicId"], "partitionResponses": partitions}
        )
        if entry is not None:
            waiting += [
                (answer, _Produced(entry, each["index"], each["records"]))
                for answer, each in zip(partitions, topic["partitionData"], strict=True)
            ]
    return answers, waiting


def _response(broker: Broker, answers: list[dict[str, Any]]) -> dict[str, Any]:
    return {"responses": answers, "throttleTimeMs": 0, **_node_endpoints(broker, answers)}


def _topic(
    broker: Broker, request: Request, topic: dict[str, Any], acks: Acks | None
) -> tuple[CatalogEntry | None, ErrorCode]:
    """Return the topic, or None and why nothing can be appended to it."""
    if request.version >= _BY_TOPIC_ID:
        entry = broker.catalog.recent_topic_of_id(topic["topicId"])
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        entry = broker.catalog.recent_topic(topic["name"])
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if entry is None:
        return None, missing
    if acks is None:
        return None, ErrorCode.INVALID_REQUIRED_ACKS
    if entry.name in INTERNAL_TOPICS:
        return None, ErrorCode.INVALID_TOPIC_EXCEPTION
    if broker.settings.is_read_only:
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return entry, ErrorCode.NONE


async def _append_waiting(
    broker: Broker, request: Request, waiting: list[_Waiting], acks: Acks
) -> None:
    """Append what is for existing topics, the transactional batches in their transaction."""
    ours = [each for each in waiting if _is_transactional(each[1].records)]
    if not ours:
        left, behind = _append_at_once(broker, request, waiting)
        if behind:
            await broker.run(_refresh, behind)
        if left:
            await broker.run(_append_all, broker, request, left, acks)
        return
    producers = {_PRODUCER.unpack_from(p.records or b"", PRODUCER_ID_OFFSET) for _, p in ours}
    transactional_id = request.values["transactionalId"]
    if transactional_id is None:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif len(producers) > 1:
        code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    else:
        places = [
            TopicPartition(each.topic.name, each.number)
            for _, each in ours
            if each.number in each.topic.partitions
        ]
        held = broker.coordinator(TransactionCoordinator).appending(
            transactional_id,
            TxnProducer(*producers.pop()),
            places,
            adds=request.version >= _ADDS_PARTITIONS,
        )
        async with held as code:
            if not code:
                await broker.run(_append_all, broker, request, waiting, acks)
                return
    refused = int(_code_for(request.version, code))
    for answer, _ in ours:
        answer["errorCode"] = refused
    await broker.run(
        _append_all, broker, request, [each for each in waiting if each not in ours], acks
    )


def _append_at_once(
    broker: Broker, request: Request, waiting: list[_Waiting]
) -> tuple[list[_Waiting], list[ServedPartition]]:
    """Append as long as nothing has to be waited for.

    Returns:
        What is left for a thread, and the partitions whose readers do not know of the appends.
    """
    if sum(len(produced.records or b"") for _, produced in waiting) > _AT_ONCE_SIZE:
        return waiting, []
    behind: list[ServedPartition] = []

    def append(produced: _Produced, records: bytes, origin: AppendOrigin) -> _Appended | None:
        partition = broker.partitions.known(produced.topic.name, produced.number)
        if partition is None or not partition.is_of(produced.topic.topic_id):
            return None  # not open, or of a former topic of the name
        if records[ATTRIBUTES_OFFSET + 1] & COMPRESSION_MASK:
            return None  # a small batch may decompress to a large one
        info = partition.append_at_once(records, origin=origin)
        if info is None:
            return None
        if partition.is_behind(info):
            behind.append(partition)
        return partition, info

    done = 0
    for answer, produced in waiting:
        if not _answered(broker, request, answer, produced, append):
            break
        done += 1
    return waiting[done:], behind


def _is_transactional(records: bytes | None) -> bool:
    if records is None or len(records) < RECORD_BATCH_OVERHEAD:
        return False  # refused later
    is_current = records[MAGIC_OFFSET] == CURRENT_MAGIC
    return is_current and bool(records[ATTRIBUTES_OFFSET + 1] & TRANSACTIONAL_MASK)


def _code_for(version: int, code: ErrorCode) -> ErrorCode:
    """Return a coordinator's error as producers of a version know it.

    Source: ReplicaManager.handleProduceAppend, AddPartitionsToTxnManager.
    """
    match code:
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.TRANSACTION_ABORTABLE if version < _ABORTABLE:
            return ErrorCode.INVALID_TXN_STATE
        case ErrorCode.CONCURRENT_TRANSACTIONS if version >= _ADDS_PARTITIONS:
            return code
        case (
            ErrorCode.CONCURRENT_TRANSACTIONS
            | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode.COORDINATOR_NOT_AVAILABLE
            | ErrorCode.NOT_COORDINATOR
        ):
            return ErrorCode.NOT_ENOUGH_REPLICAS  # repeated without asking for metadata
    return code


def _node_endpoints(broker: Broker, answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return where the leaders are that partitions of the response name."""
    if not any("currentLeader" in each for a in answers for each in a["partitionResponses"]):
        return {}
    host, port = broker.address
    return {"nodeEndpoints": [{"nodeId": broker.node_id, "host": host, "port": port}]}


# ---- in a thread ------------------------------------------------------------------------------
def _append_all(
    broker: Broker,
    request: Request,
    waiting: Sequence[_Waiting],
    acks: Acks,
) -> None:
    """Append to partitions one after another and complete their responses."""

    def append(produced: _Produced, records: bytes, origin: AppendOrigin) -> _Appended:
        topic = produced.topic
        partition = broker.partitions.get_of_id(topic.name, produced.number, topic.topic_id)
        return partition, partition.append(records, acks=acks, origin=origin)

    for answer, produced in waiting:
        _answered(broker, request, answer, produced, append)


def _refresh(partitions: Sequence[ServedPartition]) -> None:
    """Let readers find what was appended."""
    for each in partitions:
        try:
            each.refresh()
        except StreamLogError as error:  # the appends stand; fetches meet it again
            _logger.warning("%s: %s", each.name, error)


# ---- in the event loop or in a thread -----------------------------------------------------------
def _answered(
    broker: Broker,
    request: Request,
    answer: dict[str, Any],
    produced: _Produced,
    append: Callable[[_Produced, bytes, AppendOrigin], _Appended | None],
) -> bool:
    """Append to one partition and complete its response; False if `append` leaves it alone."""
    try:
        if produced.number not in produced.topic.partitions:
            answer["errorCode"] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return True
        records = produced.records
        code, message = _check(request.version, records)
        if code or records is None:
            answer |= {"errorCode": int(code), "errorMessage": message}
            return True
        is_v2 = request.version >= _ADDS_PARTITIONS
        origin = AppendOrigin.CLIENT_V2 if is_v2 else AppendOrigin.CLIENT
        appended = append(produced, records, origin)
        if appended is None:
            return False
        partition, info = appended
        answer["baseOffset"] = info.base_offset
        # What Kafka answers for a repeated batch, also where the topic has CreateTime.
        answer["logAppendTimeMs"] = info.max_timestamp if info.duplicate else info.log_append_time
        answer["logStartOffset"] = partition.log.log_start_offset
    except StreamLogError as error:
        _report(broker, request, answer, produced, error)
    except Exception:
        _logger.exception("append to %s-%d failed", produced.topic.name, produced.number)
        answer["errorCode"] = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    return True


def _check(version: int, records: bytes | None) -> tuple[ErrorCode, str | None]:
    """Check what Kafka checks before it looks for the partition's log.

    Source: ProduceRequest.validateRecords.
    """
    if records is None or len(records) < RECORD_BATCH_OVERHEAD or _is_cut_off(records):
        return ErrorCode.INVALID_RECORD, "a partition must have one record batch"
    if records[MAGIC_OFFSET] != CURRENT_MAGIC:
        return ErrorCode.INVALID_RECORD, f"record batches must have magic {CURRENT_MAGIC}"
    codec = records[ATTRIBUTES_OFFSET + 1] & COMPRESSION_MASK
    if codec == CompressionType.ZSTD and version < _ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, None
    return ErrorCode.NONE, None


def _is_cut_off(records: bytes) -> bool:
    """Whether the first batch is longer than the records; Kafka finds no batch then."""
    length = int.from_bytes(records[LENGTH_OFFSET:LOG_OVERHEAD], "big", signed=True)
    return length + LOG_OVERHEAD > len(records)


def _report(
    broker: Broker,
    request: Request,
    answer: dict[str, Any],
    produced: _Produced,
    error: StreamLogError,
) -> None:
    code = code_of(error)
    answer["errorCode"] = int(code)
    served = broker.partitions.known(produced.topic.name, produced.number)
    records = error.records if isinstance(error, InvalidRequestError) else ()
    is_of_batch = code is ErrorCode.INVALID_RECORD and not records
    if served is not None and not is_of_batch and code not in _WITHOUT_LOG_START:
        answer["logStartOffset"] = served.reader.log_start_offset
    if isinstance(error, InvalidRequestError):
        answer["errorMessage"] = error.sentence
        answer["recordErrors"] = [
            {"batchIndex": each, "batchIndexErrorMessage": error.what}
            for each in records[:_MOST_NAMED_RECORDS]
        ]
    else:
        _logger.warning("append to %s-%d: %s", produced.topic.name, produced.number, error)
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and request.version >= _CURRENT_LEADER:
        epoch = broker.leader_epoch(produced.topic.name, produced.number)
        answer["currentLeader"] = {"leaderId": broker.node_id, "leaderEpoch": epoch}


def _refused(index: int, code: ErrorCode) -> dict[str, Any]:
    """Return the response of a partition to which nothing was appended."""
    return {"index": index, "errorCode": int(code), "baseOffset": _NO_OFFSET}


HANDLERS: Final = {"Produce": produce}
AT_ONCE: Final = {"Produce": produce_at_once}
