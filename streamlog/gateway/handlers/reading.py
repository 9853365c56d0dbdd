"""Reading: Fetch, ListOffsets, OffsetForLeaderEpoch.

Source: KafkaApis.handleFetchRequest, handleListOffsetRequest, handleOffsetForLeaderEpochRequest.
"""

import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from streamlog.errors import StreamLogError
from streamlog.gateway.broker import Broker
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.gateway.fetch_sessions import FetchContext, FetchTarget
from streamlog.gateway.fetching import Answers, ConsumerFetch, check_leader_epoch, failure
from streamlog.gateway.partitions import ServedPartition
from streamlog.gateway.request import FileRegion, Request
from streamlog.partition.reader import LogReader
from streamlog.partition.segments import OffsetAndTimestamp
from streamlog.records.record import IsolationLevel

__all__ = ["AT_ONCE", "HANDLERS"]

_logger: Final = logging.getLogger(__name__)

_NONE: Final = -1  # of an offset, an epoch or a timestamp
_LEVELS: Final = tuple(IsolationLevel)

# The special timestamps of ListOffsets, and the version that each came with.
_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING_UPLOAD: Final = -6
_SINCE: Final = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}


# ---- Fetch --------------------------------------------------------------------------------------
async def fetch(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer records, as soon as there are enough of them or the client's time is up."""
    found = fetch_at_once(broker, request)
    return found if isinstance(found, dict) else await found


def fetch_at_once(
    broker: Broker, request: Request
) -> dict[str, Any] | Coroutine[Any, Any, dict[str, Any]]:
    """Answer a fetch; where it has to wait for records or a thread, return how it goes on."""
    values = request.values
    context = broker.fetch_sessions.open(values, request.version)
    if context.code is not ErrorCode.NONE:
        return {"errorCode": int(context.code), "responses": []}
    if values["replicaId"] >= 0 or values["replicaState"]["replicaId"] >= 0:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # another broker is no replica of this log
        answers = [(each, failure(each.key.partition, code)) for each in context.targets]
        return _fetched(broker, request, context, answers)
    fetching = ConsumerFetch(broker, values, context.targets, request.peer)
    found = fetching.run_at_once()
    if found is not None:
        return _fetched(broker, request, context, found)

    async def go_on() -> dict[str, Any]:
        return _fetched(broker, request, context, await fetching.run())

    return go_on()


def _fetched(
    broker: Broker, request: Request, context: FetchContext, found: Answers
) -> dict[str, Any]:
    code, session_id, answers = context.settle(found)
    response: dict[str, Any] = {"errorCode": int(code), "sessionId": session_id}
    response["responses"] = _by_topic(answers, request.regions)
    _name_leaders(broker, answers, response)
    return response


def _by_topic(
    answers: list[tuple[FetchTarget, dict[str, Any]]], regions: list[FileRegion]
) -> list[dict[str, Any]]:
    """Group adjacent partitions of a topic: their order is the client's, or the session's."""
    topics: list[dict[str, Any]] = []
    last = None
    for target, answer in answers:
        topic = target.key.topic
        if topic != last:
            topics.append({"topic": topic, "topicId": topic, "partitions": []})
            last = topic
        topics[-1]["partitions"].append(answer)
        if isinstance(answer["records"], FileRegion):
            regions.append(answer["records"])
    return topics


def _name_leaders(
    broker: Broker, answers: list[tuple[FetchTarget, dict[str, Any]]], response: dict[str, Any]
) -> None:
    """Add the leader where the client knows another one, so that it need not ask (KIP-951)."""
    for target, answer in answers:
        if answer["errorCode"] == ErrorCode.FENCED_LEADER_EPOCH and target.name is not None:
            epoch = broker.leader_epoch(target.name, target.key.partition)
            answer["currentLeader"] = {"leaderId": broker.node_id, "leaderEpoch": epoch}
            host, port = broker.address
            node = {"nodeId": broker.node_id, "host": host, "port": port, "rack": None}
            response["nodeEndpoints"] = [node]


# ---- ListOffsets --------------------------------------------------------------------------------
async def list_offsets(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer offsets by time, or the first or last ones."""
    values = request.values
    isolation = _LEVELS[values["isolationLevel"] == 1]
    counts = Counter(
        (topic["name"], each["partitionIndex"])
        for topic in values["topics"]
        for each in topic["partitions"]
    )

    def find(name: str, wanted: dict[str, Any]) -> dict[str, Any]:
        timestamp = wanted["timestamp"]
        if counts[name, wanted["partitionIndex"]] > 1:
            return _no_offset(wanted, ErrorCode.INVALID_REQUEST)
        if timestamp < 0 and request.version < _SINCE.get(timestamp, request.version + 1):
            return _no_offset(wanted, ErrorCode.UNSUPPORTED_VERSION)
        if values["replicaId"] >= 0:
            return _no_offset(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        served, code = _refreshed(broker, name, wanted["partitionIndex"])
        if served is None:
            return _no_offset(wanted, code)
        reader = served.reader
        try:
            code = check_leader_epoch(reader, wanted["currentLeaderEpoch"])
            if code is not ErrorCode.NONE:
                return _no_offset(wanted, code)
            found = _offset(reader, timestamp, isolation)
            epoch = _epoch_of(reader, timestamp, found.offset)
        except StreamLogError as error:
            _logger.warning("offsets of %s: %s", served.name, error)
            return _no_offset(wanted, code_of(error))
        return _no_offset(wanted, ErrorCode.NONE) | {
            "timestamp": found.timestamp, "offset": found.offset, "leaderEpoch": epoch,
        }  # fmt: skip

    return {"topics": await _each(broker, values["topics"], "name", find)}


_NOT_FOUND: Final = OffsetAndTimestamp(_NONE, _NONE)


def _offset(reader: LogReader, timestamp: int, isolation: IsolationLevel) -> OffsetAndTimestamp:
    """Return the offset for a time.

    Source: Partition.fetchOffsetForTimestamp, UnifiedLog.fetchOffsetByTimestamp.
    """
    end = reader.readable(isolation).end
    if timestamp == _LATEST:
        return OffsetAndTimestamp(end, _NONE)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return OffsetAndTimestamp(reader.log_start_offset, _NONE)
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NOT_FOUND  # nothing lies on remote storage
    if timestamp == _MAX_TIMESTAMP:
        found = reader.max_timestamp()
    else:
        found = reader.offset_for_timestamp(timestamp)
    return found if found is not None and found.offset < end else _NOT_FOUND


def _epoch_of(reader: LogReader, timestamp: int, offset: int) -> int:
    """Return the leader epoch that goes with an offset found."""
    if offset == _NONE:
        return _NONE
    if timestamp == _LATEST:
        return max(0, reader.leader_epoch)
    return reader.epoch_for_offset(offset)


def _no_offset(wanted: dict[str, Any], code: ErrorCode) -> dict[str, Any]:
    return {
        "partitionIndex": wanted["partitionIndex"],
        "errorCode": int(code),
        "timestamp": _NONE,
        "offset": _NONE,
        "leaderEpoch": _NONE,
    }


# ---- OffsetForLeaderEpoch -----------------------------------------------------------------------
async def offset_for_leader_epoch(broker: Broker, request: Request) -> dict[str, Any]:
    """Answer where epochs end: a consumer finds out whether its position is still valid."""

    def find(name: str, wanted: dict[str, Any]) -> dict[str, Any]:
        answer = {"partition": wanted["partition"], "leaderEpoch": _NONE, "endOffset": _NONE}
        served, code = _refreshed(broker, name, wanted["partition"])
        if served is not None:
            try:
                code = check_leader_epoch(served.reader, wanted["currentLeaderEpoch"])
                if code is ErrorCode.NONE:
                    epoch, end = served.reader.end_offset_for_epoch(wanted["leaderEpoch"])
                    answer |= {"leaderEpoch": epoch, "endOffset": end}
            except StreamLogError as error:
                code = code_of(error)
        return answer | {"errorCode": int(code)}

    return {"topics": await _each(broker, request.values["topics"], "topic", find)}


# ---- both ---------------------------------------------------------------------------------------
async def _each(
    broker: Broker,
    topics: list[dict[str, Any]],
    key: str,
    find: Callable[[str, dict[str, Any]], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return what `find` answers for each partition, topic by topic; runs in a thread."""

    def work() -> list[dict[str, Any]]:
        return [
            {
                key: topic[key],
                "partitions": [find(topic[key], each) for each in topic["partitions"]],
            }
            for topic in topics
        ]

    return await broker.run(work)


def _refreshed(
    broker: Broker, name: str, partition: int
) -> tuple[ServedPartition | None, ErrorCode]:
    """Return a partition that knows the appends of other processes, or why there is none."""
    entry = broker.catalog.topic(name)
    if entry is None or not entry.has(partition):
        return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        served = broker.partitions.get_of_id(name, partition, entry.topic_id)
        served.refresh()
    except StreamLogError as error:
        _logger.warning("%s-%d: %s", name, partition, error)
        return None, code_of(error)
    return served, ErrorCode.NONE


AT_ONCE: Final = {"Fetch": fetch_at_once}
HANDLERS: Final = {
    "Fetch": fetch,
    "ListOffsets": list_offsets,
    "OffsetForLeaderEpoch": offset_for_leader_epoch,
}
