"""Transactions: partitions and offsets added, the end, and what is known of them.

Source: KafkaApis.handleAddPartitionsToTxnRequest and those after it.
"""

from typing import Any, Final

from streamlog.errors import StreamLogError
from streamlog.gateway.broker import Broker
from streamlog.gateway.coordinator_log import TxnProducer
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.gateway.groups.coordinator import GroupCoordinator
from streamlog.gateway.groups.group import CommittingMember
from streamlog.gateway.handlers.offsets import acceptable_offsets, commit_results
from streamlog.gateway.patterns import InvalidPatternError, matching
from streamlog.gateway.request import Request
from streamlog.gateway.transactions.coordinator import TransactionCoordinator
from streamlog.gateway.transactions.state import EPOCH_BUMPS, TransactionMetadata, TransactionState
from streamlog.protocol.internal_topics import Decoder
from streamlog.records.control import ControlRecordType, EndTransactionMarker, build_marker
from streamlog.records.validate import AppendOrigin
from streamlog.topic import TopicPartition

__all__ = ["HANDLERS"]

_BATCHED: Final = 4  # AddPartitionsToTxn of brokers: several transactions
_FENCED_IS_KNOWN: Final = 2  # before this version clients know only INVALID_PRODUCER_EPOCH
_COMMIT_ABORTABLE: Final = 4  # the first TxnOffsetCommit that knows TRANSACTION_ABORTABLE
_COMMIT_ADDS_PARTITIONS: Final = 5  # the first that adds the group's partition
_END_BUMPS: Final = 5  # EndTxn of clients with transaction version 2
_STATES: Final = {each.label: each for each in TransactionState}


def fenced_for(version: int, code: ErrorCode) -> ErrorCode:
    """Return the error as clients of a version know it."""
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_IS_KNOWN:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# ---- partitions ---------------------------------------------------------------------------------
async def add_partitions_to_txn(broker: Broker, request: Request) -> dict[str, Any]:
    """Add partitions to transactions, or verify that they are part of them."""
    values = request.values
    if request.version >= _BATCHED:
        results = [
            {
                "transactionalId": each["transactionalId"],
                "topicResults": await _add(broker, each, request.version),
            }
            for each in values["transactions"]
        ]
        return {"errorCode": 0, "resultsByTransaction": results}
    transaction = {
        "transactionalId": values["v3AndBelowTransactionalId"],
        "producerId": values["v3AndBelowProducerId"],
        "producerEpoch": values["v3AndBelowProducerEpoch"],
        "topics": values["v3AndBelowTopics"],
        "verifyOnly": False,
    }
    return {"resultsByTopicV3AndBelow": await _add(broker, transaction, request.version)}


async def _add(broker: Broker, transaction: dict[str, Any], version: int) -> list[dict[str, Any]]:
    wanted = [
        TopicPartition(topic["name"], number)
        for topic in transaction["topics"]
        for number in topic["partitions"]
    ]
    missing = {each for each in wanted if not _exists(broker, each)}
    if missing:  # then none is added
        codes = {
            each: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if each in missing
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for each in wanted
        }
    else:
        coordinator = broker.coordinator(TransactionCoordinator)
        id_ = transaction["transactionalId"]
        producer = TxnProducer(transaction["producerId"], transaction["producerEpoch"])
        if transaction["verifyOnly"]:  # each for itself; added are all or none
            codes = {each: await coordinator.verify(id_, producer, [each]) for each in wanted}
        else:
            codes = dict.fromkeys(wanted, await coordinator.add_partitions(id_, producer, wanted))
        codes = {each: fenced_for(version, code) for each, code in codes.items()}
    return [
        {
            "name": topic["name"],
            "resultsByPartition": [
                {
                    "partitionIndex": number,
                    "partitionErrorCode": int(codes[TopicPartition(topic["name"], number)]),
                }
                for number in topic["partitions"]
            ],
        }
        for topic in transaction["topics"]
    ]


def _exists(broker: Broker, partition: TopicPartition) -> bool:
    entry = broker.catalog.topic(partition.topic)
    return entry is not None and partition.partition in entry.partitions


# ---- offsets ------------------------------------------------------------------------------------
async def add_offsets_to_txn(broker: Broker, request: Request) -> dict[str, Any]:
    """Add the partition that keeps a group's offsets to a transaction."""
    values = request.values
    partition = broker.coordinator(GroupCoordinator).offsets_partition(values["groupId"])
    code = await broker.coordinator(TransactionCoordinator).add_partitions(
        values["transactionalId"],
        TxnProducer(values["producerId"], values["producerEpoch"]),
        [partition],
    )
    return {"errorCode": int(fenced_for(request.version, code))}


async def txn_offset_commit(broker: Broker, request: Request) -> dict[str, Any]:
    """Commit offsets of a group as part of a transaction."""
    values, groups = request.values, broker.coordinator(GroupCoordinator)
    codes, offsets = acceptable_offsets(broker, values["topics"], uses_ids=False)
    producer = TxnProducer(values["producerId"], values["producerEpoch"])
    identity = CommittingMember(
        values["memberId"],
        values["groupInstanceId"],
        values["generationId"],
        is_transactional=True,
        version=request.version,
    )
    held = broker.coordinator(TransactionCoordinator).appending(
        values["transactionalId"],
        producer,
        [groups.offsets_partition(values["groupId"])],
        adds=request.version >= _COMMIT_ADDS_PARTITIONS,
    )
    async with held as code:
        if code:
            code = _commit_code(request.version, code)
        elif offsets:
            code = await groups.txn_commit_offsets(values["groupId"], identity, offsets, producer)
    return {"topics": commit_results(values["topics"], codes, code, uses_ids=False)}


def _commit_code(version: int, code: ErrorCode) -> ErrorCode:
    """Return a coordinator's error as TxnOffsetCommit of a version knows it.

    Source: CoordinatorOperationExceptionHelper.handleOperationException, CoordinatorRuntime.
    """
    match code:
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.TRANSACTION_ABORTABLE if version < _COMMIT_ABORTABLE:
            return ErrorCode.INVALID_TXN_STATE
        case ErrorCode.CONCURRENT_TRANSACTIONS if version < _COMMIT_ADDS_PARTITIONS:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE  # repeated by the client
    return code


# ---- the end ------------------------------------------------------------------------------------
async def end_txn(broker: Broker, request: Request) -> dict[str, Any]:
    """Commit or abort a transaction."""
    values = request.values
    ended = await broker.coordinator(TransactionCoordinator).end(
        values["transactionalId"],
        TxnProducer(values["producerId"], values["producerEpoch"]),
        is_commit=values["committed"],
        version=EPOCH_BUMPS if request.version >= _END_BUMPS else 0,
    )
    code = int(fenced_for(request.version, ended.code))
    return {
        "errorCode": code,
        "producerId": ended.producer.producer_id,
        "producerEpoch": ended.producer.producer_epoch,
    }


# ---- what is known ------------------------------------------------------------------------------
async def list_transactions(broker: Broker, request: Request) -> dict[str, Any]:
    """List transactional ids by state, producer, duration and pattern."""
    values = request.values
    known = await broker.coordinator(TransactionCoordinator).transactions()
    filters = values["stateFilters"]
    wanted = {_STATES[each] for each in filters if each in _STATES}
    producers, duration_ms = set(values["producerIdFilters"]), values["durationFilter"]
    now_ms = broker.clock.now_ms()
    found = [
        each
        for each in known
        if (not filters or each.state in wanted)
        and (not producers or each.producer_id in producers)
        and (duration_ms < 0 or now_ms - each.started_ms > duration_ms)
    ]
    pattern = values["transactionalIdPattern"]
    if pattern:
        try:
            ids = matching(pattern, [each.transactional_id for each in found])
        except InvalidPatternError:
            return {
                "errorCode": int(ErrorCode.INVALID_REGULAR_EXPRESSION),
                "unknownStateFilters": [],
                "transactionStates": [],
            }
        found = [each for each in found if each.transactional_id in ids]
    return {
        "errorCode": 0,
        "unknownStateFilters": [each for each in filters if each not in _STATES],
        "transactionStates": [
            {
                "transactionalId": each.transactional_id,
                "producerId": each.producer_id,
                "transactionState": each.state.label,
            }
            for each in found
        ],
    }


async def describe_transactions(broker: Broker, request: Request) -> dict[str, Any]:
    """Describe transactional ids."""
    coordinator = broker.coordinator(TransactionCoordinator)
    described = []
    for transactional_id in request.values["transactionalIds"]:
        found = await coordinator.transaction(transactional_id)
        if found is None:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            if not transactional_id:
                code = ErrorCode.INVALID_REQUEST
            described.append({**_NOTHING, "errorCode": int(code)})
        else:
            described.append(_described(found))
        described[-1]["transactionalId"] = transactional_id
    return {"transactionStates": described}


_NOTHING: Final[dict[str, Any]] = {
    "transactionState": "",
    "transactionTimeoutMs": 0,
    "transactionStartTimeMs": 0,
    "producerId": 0,
    "producerEpoch": 0,
    "topics": [],
}


def _described(known: TransactionMetadata) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for each in sorted(known.partitions):
        topics.setdefault(each.topic, []).append(each.partition)
    return {
        "errorCode": 0,
        "transactionState": known.state.label,
        "transactionTimeoutMs": known.timeout_ms,
        "transactionStartTimeMs": known.started_ms,
        "producerId": known.producer_id,
        "producerEpoch": known.producer_epoch,
        "topics": [{"topic": topic, "partitions": ids} for topic, ids in topics.items()],
    }


# ---- markers ------------------------------------------------------------------------------------
async def write_txn_markers(broker: Broker, request: Request) -> dict[str, Any]:
    """End transactions in partitions: for tools, where their coordinator does not know of them."""
    groups = broker.coordinator(GroupCoordinator)
    markers = []
    for each in request.values["markers"]:
        topics = await broker.run(_write_marker, broker, each)
        ended = [topic for topic in topics if topic["name"] == Decoder.OFFSETS.value]
        if any(not part["errorCode"] for topic in ended for part in topic["partitions"]):
            is_commit = each["transactionResult"]
            await groups.on_transaction_end(each["producerId"], is_commit=is_commit)
        markers.append({"producerId": each["producerId"], "topics": topics})
    return {"markers": markers}


def _write_marker(broker: Broker, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Append a marker to partitions, in a thread; return the results by topic."""
    kind = ControlRecordType.COMMIT if wanted["transactionResult"] else ControlRecordType.ABORT
    marker = build_marker(
        EndTransactionMarker(kind, wanted["coordinatorEpoch"]),
        producer_id=wanted["producerId"],
        producer_epoch=wanted["producerEpoch"],
        timestamp=broker.clock.now_ms(),
    )
    topics = []
    for topic in wanted["topics"]:
        partitions = []
        for number in topic["partitionIndexes"]:
            code = ErrorCode.NONE
            try:
                broker.check_writable()
                served = broker.partitions.get(topic["name"], number)
                served.append(marker, origin=AppendOrigin.COORDINATOR)
            except StreamLogError as error:
                code = code_of(error)
            partitions.append({"partitionIndex": number, "errorCode": int(code)})
        topics.append({"name": topic["name"], "partitions": partitions})
    return topics


HANDLERS: Final = {
    "AddPartitionsToTxn": add_partitions_to_txn,
    "AddOffsetsToTxn": add_offsets_to_txn,
    "TxnOffsetCommit": txn_offset_commit,
    "EndTxn": end_txn,
    "ListTransactions": list_transactions,
    "DescribeTransactions": describe_transactions,
    "WriteTxnMarkers": write_txn_markers,
}
