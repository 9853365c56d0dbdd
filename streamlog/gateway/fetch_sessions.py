"""Fetch sessions: a consumer names only the partitions that changed since its last fetch (KIP-227).

A session keeps the partitions of one consumer. Its requests add, change and forget some; responses
leave out the partitions without news. The number of sessions is bounded; a consumer without one
names all its partitions in each request.

Source: kafka.server.FetchManager, FetchSession, FetchSessionCacheShard.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final, NamedTuple

from streamlog.clock import Clock
from streamlog.gateway.error_codes import ErrorCode
from streamlog.records.layout import MAX_INT32

__all__ = ["FetchContext", "FetchKey", "FetchSessions", "FetchTarget"]

NO_SESSION: Final = 0
_INITIAL_EPOCH: Final = 0
_FINAL_EPOCH: Final = -1
_TOPIC_IDS: Final = 13  # the first version of Fetch that names topics by their ids
_EVICTION_MS: Final = 120_000  # MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS
_UNKNOWN: Final = -1


class FetchKey(NamedTuple):
    """How a request names a partition: by its topic's name, or id since version 13."""

    topic: str
    partition: int


class FetchTarget:
    """A partition that is to be fetched.

    Attributes:
        key: How the client names it.
        wanted: The fields of the request.
        name: The name of its topic, once that is known; a session keeps it.
        high_watermark: As sent last in this session.
        log_start_offset: As sent last in this session.
    """

    __slots__ = ("high_watermark", "key", "log_start_offset", "name", "wanted")

    def __init__(self, key: FetchKey, wanted: dict[str, Any], name: str | None) -> None:
        self.key, self.wanted, self.name = key, wanted, name
        self.high_watermark = self.log_start_offset = _UNKNOWN

    def take_news(self, answer: dict[str, Any]) -> bool:
        """Remember what is sent; return whether a session has to send it at all."""
        mark, start = answer["highWatermark"], answer["logStartOffset"]
        has_news = (mark, start) != (self.high_watermark, self.log_start_offset)
        self.high_watermark, self.log_start_offset = mark, start
        if answer["errorCode"] != ErrorCode.NONE:
            self.high_watermark = _UNKNOWN  # sent again once the error is gone
            return True
        return has_news or has_records(answer) or "divergingEpoch" in answer


def has_records(answer: dict[str, Any]) -> bool:
    """Whether the answer for a partition contains records."""
    records = answer["records"]
    return (len(records) if isinstance(records, bytes) else records.size) > 0


class _Session:
    """The partitions of one consumer, in the order in which they are read."""

    __slots__ = ("created_ms", "epoch", "id", "targets", "used_ms", "uses_ids")

    def __init__(
        self, id_: int, targets: dict[FetchKey, FetchTarget], *, uses_ids: bool, now_ms: float
    ) -> None:
        self.id, self.targets, self.uses_ids = id_, targets, uses_ids
        self.epoch = _next(_INITIAL_EPOCH)
        self.created_ms = self.used_ms = now_ms

    def update(self, wanted: Iterable[FetchTarget], forgotten: Iterable[FetchKey]) -> None:
        for target in wanted:
            known = self.targets.get(target.key)
            if known is None:
                self.targets[target.key] = target
            else:
                known.wanted = target.wanted
        for key in forgotten:
            self.targets.pop(key, None)


class FetchContext:
    """The partitions of one fetch, and what becomes of its answers.

    Attributes:
        code: The error of the whole request.
        targets: The partitions to read, in order.
    """

    def __init__(
        self,
        sessions: "FetchSessions",
        targets: Iterable[FetchTarget] = (),
        *,
        code: ErrorCode = ErrorCode.NONE,
        session: _Session | None = None,
        creates: bool = False,
        uses_ids: bool = False,
    ) -> None:
        self.code, self.targets = code, list(targets)
        self._sessions, self._session = sessions, session
        self._epoch = 0 if session is None else session.epoch
        self._creates, self._uses_ids = creates, uses_ids

    def settle(
        self, answers: list[tuple[FetchTarget, dict[str, Any]]]
    ) -> tuple[ErrorCode, int, list[tuple[FetchTarget, dict[str, Any]]]]:
        """Return the error, the session's id and the answers to send.

        Args:
            answers: The fields for each partition.
        """
        session = self._session
        if session is None:
            id_ = NO_SESSION
            if self._creates:
                id_ = self._sessions.create(answers, uses_ids=self._uses_ids)
            return ErrorCode.NONE, id_, answers
        if session.epoch != self._epoch:  # the client repeated its request
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, []
        selected = []
        for target, answer in answers:
            if target.take_news(answer):
                selected.append((target, answer))
                if has_records(answer) and session.targets.pop(target.key, None) is not None:
                    session.targets[target.key] = target  # the others come first next time
        return ErrorCode.NONE, session.id, selected


class FetchSessions:
    """The fetch sessions of a gateway; used in its event loop only.

    Args:
        slots: Returns how many there may be.
        clock: For their age.
        random: For their ids.
    """

    def __init__(self, slots: Callable[[], int], clock: Clock, random: Random) -> None:
        self._slots, self._clock, self._random = slots, clock, random
        self._sessions: OrderedDict[int, _Session] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, values: dict[str, Any], version: int) -> FetchContext:
        """Return the partitions of a fetch.

        Args:
            values: The request.
            version: Its version.
        """
        id_, epoch, uses_ids = values["sessionId"], values["sessionEpoch"], version >= _TOPIC_IDS
        name = "topicId" if uses_ids else "topic"
        wanted = {}
        for topic in values["topics"]:
            for each in topic["partitions"]:
                key = FetchKey(topic[name], each["partition"])
                wanted[key] = FetchTarget(key, each, None if uses_ids else key.topic)
        if epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            self._sessions.pop(id_, None)
            creates = epoch == _INITIAL_EPOCH
            return FetchContext(self, wanted.values(), creates=creates, uses_ids=uses_ids)
        session = self._sessions.get(id_)
        if session is None:
            return FetchContext(self, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext(self, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            return FetchContext(self, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        forgotten = values["forgottenTopicsData"]
        session.update(
            wanted.values(),
            [FetchKey(topic[name], each) for topic in forgotten for each in topic["partitions"]],
        )
        if not session.targets:
            del self._sessions[id_]
            return FetchContext(self)
        session.used_ms = self._clock.monotonic_ms()
        self._sessions.move_to_end(id_)
        session.epoch = _next(session.epoch)
        return FetchContext(self, session.targets.values(), session=session)

    def create(self, answers: list[tuple[FetchTarget, dict[str, Any]]], *, uses_ids: bool) -> int:
        """Keep a session for the partitions just answered; return its id, 0 without room."""
        now_ms = self._clock.monotonic_ms()
        if len(self._sessions) >= self._slots() and not self._evict(len(answers), now_ms):
            return NO_SESSION
        for target, answer in answers:
            target.take_news(answer)
        id_ = NO_SESSION
        while id_ == NO_SESSION or id_ in self._sessions:
            id_ = self._random.randrange(1, MAX_INT32)
        targets = {target.key: target for target, _ in answers}
        self._sessions[id_] = _Session(id_, targets, uses_ids=uses_ids, now_ms=now_ms)
        return id_

    def _evict(self, size: int, now_ms: float) -> bool:
        """Remove a stale session, or an older one with fewer partitions than the new one."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > _EVICTION_MS:
            del self._sessions[oldest.id]
            return True
        old = [each for each in self._sessions.values() if now_ms - each.created_ms > _EVICTION_MS]
        smallest = min(old, key=lambda each: (len(each.targets), each.id), default=None)
        if smallest is None or len(smallest.targets) >= size:
            return False
        del self._sessions[smallest.id]
        return True


def _next(epoch: int) -> int:
    """Return the epoch of the next request of a session."""
    return 1 if epoch == MAX_INT32 else epoch + 1
