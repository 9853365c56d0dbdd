"""One fetch: reads its partitions within its limits, or waits until there is enough to read.

The event loop only looks offsets up in known segments; opening partitions, and looking for records
of other processes, is done in threads. Records are regions of segment files. A file stays open
until its region is sent, even if the segment is deleted or compacted meanwhile.

Source: kafka.server.ReplicaManager.fetchMessages, DelayedFetch.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from streamlog.errors import OffsetOutOfRangeError, StreamLogError
from streamlog.fs.local import LocalFile
from streamlog.gateway.broker import Broker
from streamlog.gateway.catalog import CatalogEntry
from streamlog.gateway.error_codes import ErrorCode, code_of
from streamlog.gateway.fetch_sessions import FetchTarget
from streamlog.gateway.partitions import ServedPartition
from streamlog.gateway.request import FileRegion, Peer
from streamlog.partition.epochs import UNDEFINED_EPOCH_OFFSET
from streamlog.partition.read import OpenSlice
from streamlog.partition.reader import LogReader
from streamlog.records.record import IsolationLevel
from streamlog.topic import TopicPartition

__all__ = ["Answers", "ConsumerFetch", "check_leader_epoch", "failure"]

_logger: Final = logging.getLogger(__name__)

_NONE: Final = -1  # of an epoch or an offset
_COMMITTED: Final = 1  # READ_COMMITTED in requests
_READ_SIZE: Final = 32 << 10  # up to it, bytes are read: `sendfile` takes five calls more


Answers = list[tuple[FetchTarget, dict[str, Any]]]
_Place = CatalogEntry | ErrorCode  # the topic of a partition, or why there is none


class _Limits(NamedTuple):
    """What a fetch may still return."""

    left: int
    is_first: bool  # no records so far: the next batch is whole however large it is


class ConsumerFetch:
    """A fetch request in progress.

    Args:
        broker: The broker.
        values: The request.
        targets: Its partitions.
        peer: The client.
    """

    def __init__(
        self, broker: Broker, values: dict[str, Any], targets: list[FetchTarget], peer: Peer
    ) -> None:
        self._broker, self._targets, self._peer = broker, targets, peer
        committed = values["isolationLevel"] == _COMMITTED
        self._isolation = (
            IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        )
        self._max_bytes = max(
            0, min(values["maxBytes"], broker.recent_config.serve.fetch_max_bytes)
        )
        self._min_bytes = min(values["minBytes"], self._max_bytes)
        self._max_wait_ms = values["maxWaitMs"]
        self._is_final = False  # an error or a divergence is answered at once
        self._size = self._seen = 0
        self._found: Answers | None = None  # by `run_at_once`
        self._due: list[tuple[int, CatalogEntry]] = []  # for a thread, as `run_at_once` left it

    def run_at_once(self) -> Answers | None:
        """Return the fields of the response if nothing has to be waited for; else `run` does."""
        self._seen = self._broker.parked.changes
        places = self._resolve()
        self._due = self._unprepared(places)
        if self._due or self._are_busy(places):
            return None
        answers = self._read(places, {})
        if self._is_enough() or self._max_wait_ms <= 0:
            return answers
        self._found = answers
        return None

    async def run(self) -> Answers:
        """Return the fields of the response for each partition, in order."""
        loop, parked = asyncio.get_running_loop(), self._broker.parked
        deadline = loop.time() + self._max_wait_ms / 1000
        answers, self._found = self._found, None
        if answers is None:
            self._seen = parked.changes
            answers = await self._read_all()
            if self._is_enough() or self._max_wait_ms <= 0:
                return answers
        event = asyncio.Event()
        names = [TopicPartition(each.name or "", each.key.partition) for each in self._targets]
        timer = loop.call_at(deadline, event.set)
        parked.add(event, names)
        self._peer.add(event)
        try:
            self._broker.watch.start()
            while not self._broker.is_stopping and not self._peer.has_ended:
                if self._seen == parked.changes:
                    if self._size:
                        answers.clear()  # and their files
                    await event.wait()
                    event.clear()
                if self._seen != parked.changes or not answers:
                    self._seen = parked.changes
                    answers = await self._read_all()
                if self._is_enough() or loop.time() >= deadline:
                    break
        finally:
            timer.cancel()
            parked.remove(event, names)
            self._peer.remove(event)
        return answers or await self._read_all()

    def _is_enough(self) -> bool:
        return self._is_final or self._size >= self._min_bytes or not self._targets

    # ---- all partitions ----------------------------------------------------------------------
    async def _read_all(self) -> Answers:
        places, refused = self._resolve(), dict[int, ErrorCode]()
        prepare, self._due = self._due or self._unprepared(places), []
        if prepare:
            refused = await self._broker.run(self._prepare, prepare)
        if self._are_busy(places):
            return await self._broker.run(self._read, places, refused)
        return self._read(places, refused)

    def _unprepared(self, places: Sequence[_Place]) -> list[tuple[int, CatalogEntry]]:
        """Return the partitions that a thread has to open, or to look for records in.

        One that was returned counts as looked at, so it must be.
        """
        return [
            (at, place)
            for at, place in enumerate(places)
            if isinstance(place, CatalogEntry) and self._needs_work(self._targets[at], place)
        ]

    def _are_busy(self, places: Sequence[_Place]) -> bool:
        """Whether the reader of a partition is in use by another thread, so that we might wait."""
        for target, place in zip(self._targets, places, strict=True):
            if isinstance(place, CatalogEntry):
                served = self._broker.partitions.known(place.name, target.key.partition)
                if served is not None and served.reader.is_busy:
                    return True
        return False

    def _read(self, places: Sequence[_Place], refused: Mapping[int, ErrorCode]) -> Answers:
        self._is_final, self._size = False, 0
        answers = []
        is_waiting = any(isinstance(place, CatalogEntry) for place in places)
        for at, (target, place) in enumerate(zip(self._targets, places, strict=True)):
            code = refused.get(at, place)
            if isinstance(code, CatalogEntry):
                answers.append((target, self._read_one(target)))
            else:
                self._is_final |= at in refused or not is_waiting
                answers.append((target, failure(target.key.partition, code)))
        return answers

    def _resolve(self) -> list[_Place]:
        """Return the topic of each partition, or why there is none."""
        catalog = self._broker.catalog
        places: list[_Place] = []
        for target in self._targets:
            key, name = target.key, target.name
            if name is None:
                entry = catalog.recent_topic_of_id(key.topic)
                missing = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                entry = catalog.recent_topic(name)
                missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if entry is None:
                if name is not None and self._broker.partitions.known(name, key.partition):
                    self._broker.partitions.forget(name)
                places.append(missing)
            elif key.topic not in (entry.topic_id, entry.name):
                places.append(ErrorCode.INCONSISTENT_TOPIC_ID)
            elif not entry.has(key.partition):
                places.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                target.name = entry.name
                places.append(entry)
        return places

    def _needs_work(self, target: FetchTarget, entry: CatalogEntry) -> bool:
        """Whether a thread has to open the partition or to look for new records."""
        served = self._broker.partitions.known(entry.name, target.key.partition)
        if served is None or not served.is_of(entry.topic_id):
            return True
        if self._isolation is IsolationLevel.READ_COMMITTED and not served.reader.knows_stable:
            return True
        return served.is_stale(asyncio.get_running_loop().time())

    def _prepare(self, places: list[tuple[int, CatalogEntry]]) -> dict[int, ErrorCode]:
        """Open or refresh partitions; return the errors of those where that fails."""
        refused, partitions = {}, self._broker.partitions
        for at, entry in places:
            number = self._targets[at].key.partition
            try:
                partitions.get_of_id(entry.name, number, entry.topic_id).bring_up_to_date(
                    finds_stable=self._isolation is IsolationLevel.READ_COMMITTED
                )
            except StreamLogError as error:
                refused[at] = _code(error, f"{entry.name}-{number}")
                if refused[at] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    partitions.forget(entry.name)
        return refused

    # ---- one partition -----------------------------------------------------------------------
    def _read_one(self, target: FetchTarget) -> dict[str, Any]:
        served = self._broker.partitions.known(target.name or "", target.key.partition)
        if served is None:  # deleted since it was opened
            answer = failure(target.key.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            limits = _Limits(self._max_bytes - self._size, self._size == 0)
            answer = self._answer(served, target, limits)
        if answer["errorCode"] != ErrorCode.NONE or "divergingEpoch" in answer:
            self._is_final = True
        records = answer["records"]
        self._size += len(records) if isinstance(records, bytes) else records.size
        return answer

    def _answer(
        self, served: ServedPartition, target: FetchTarget, limits: _Limits
    ) -> dict[str, Any]:
        wanted, reader = target.wanted, served.reader
        try:
            code = check_leader_epoch(served, wanted["currentLeaderEpoch"])
            if code is not ErrorCode.NONE:
                return failure(target.key.partition, code)
            answer = self._offsets(target, reader)
            if wanted["lastFetchedEpoch"] >= 0:
                diverging = _diverging(reader, wanted["lastFetchedEpoch"], wanted["fetchOffset"])
                if diverging is not None:
                    return answer | {"divergingEpoch": diverging}
            found = reader.open_slice(
                wanted["fetchOffset"],
                max(0, min(wanted["partitionMaxBytes"], limits.left)),
                isolation=self._isolation,
                is_first=limits.is_first,
                read_up_to=_READ_SIZE,
            )
        except StreamLogError as error:
            return failure(target.key.partition, _code(error, str(served.name)))
        if found is not None:
            answer["records"] = _records(found)
            if self._isolation is IsolationLevel.READ_COMMITTED:
                answer["abortedTransactions"] = [
                    {"producerId": each.producer_id, "firstOffset": each.first_offset}
                    for each in found.aborted
                ]
        return answer

    def _offsets(self, target: FetchTarget, reader: LogReader) -> dict[str, Any]:
        offsets = reader.offsets
        committed = self._isolation is IsolationLevel.READ_COMMITTED
        return {
            "partitionIndex": target.key.partition,
            "errorCode": int(ErrorCode.NONE),
            "highWatermark": offsets.high_watermark,
            # Read-uncommitted consumers ignore it, so nothing is read to find it.
            "lastStableOffset": (
                reader.last_stable_offset if committed else reader.known_stable_offset
            ),
            "logStartOffset": offsets.start,
            "abortedTransactions": [] if committed else None,
            "preferredReadReplica": _NONE,
            "records": b"",
        }


def failure(partition: int, code: ErrorCode) -> dict[str, Any]:
    """Return the fields of a response for a partition that could not be read."""
    return {
        "partitionIndex": partition,
        "errorCode": int(code),
        "highWatermark": _NONE,
        "lastStableOffset": _NONE,
        "logStartOffset": _NONE,
        "abortedTransactions": None,
        "preferredReadReplica": _NONE,
        "records": b"",
    }


def check_leader_epoch(partition: LogReader | ServedPartition, epoch: int) -> ErrorCode:
    """Return the error for a client that knows another leader epoch than ours (KIP-320).

    Args:
        partition: The partition.
        epoch: The epoch that the client knows; -1: none.

    Source: Partition.checkCurrentLeaderEpoch.
    """
    if epoch < 0:
        return ErrorCode.NONE
    ours = partition.leader_epoch
    if epoch < ours:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > max(ours, 0) else ErrorCode.NONE


def _diverging(reader: LogReader, epoch: int, offset: int) -> dict[str, int] | None:
    """Return where the client's log leaves ours, None where it does not (KIP-595).

    Raises:
        OffsetOutOfRangeError: It cannot be determined, or lies below the log start.

    Source: Partition.readRecords.
    """
    end_epoch, end_offset = reader.end_offset_for_epoch(epoch)
    if end_offset == UNDEFINED_EPOCH_OFFSET or offset < reader.log_start_offset:
        raise OffsetOutOfRangeError(
            "the end of the last fetched epoch is unknown, or the offset is below the log start",
            got=f"epoch {epoch}, offset {offset}",
        )
    if end_epoch < epoch or end_offset < offset:
        return {"epoch": end_epoch, "endOffset": end_offset}
    return None


def _records(found: OpenSlice) -> bytes | FileRegion:
    if isinstance(found.file, LocalFile):
        return FileRegion(found.file, found.file.descriptor(), found.position, found.size)
    return found.data


def _code(error: StreamLogError, partition: str) -> ErrorCode:
    code = code_of(error)
    if not isinstance(error, OffsetOutOfRangeError) and (
        code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ):
        _logger.warning("fetch of %s: %s", partition, error)
    return code
