"""Fetch sessions: incremental fetches, their errors, the bounds of the cache."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from streamlog import LogManager
from streamlog.clock import ManualClock
from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.fetch_sessions import FetchSessions
from tests.gateway.fetching import append, create, request, values_in
from tests.gateway.wire_client import WireClient


class Consumer:
    """Fetches with a session, as the Java client does."""

    def __init__(self, client: WireClient, version: int, topic: tuple[str, str]) -> None:
        self.client, self.version, self.topic = client, version, topic
        self.id = self.epoch = 0

    def fetch(
        self, offsets: dict[int, int], forgotten: list[int] | None = None, **values: Any
    ) -> dict[int, dict[str, Any]]:
        fields = request(self.version, self.topic, offsets, **values)
        name = {"topicId": self.topic[1]} if self.version >= 13 else {"topic": self.topic[0]}
        if not offsets:
            fields["topics"] = []
        if forgotten:
            fields["forgottenTopicsData"] = [name | {"partitions": forgotten}]
        fields |= {"sessionId": self.id, "sessionEpoch": self.epoch}
        answer = self.client.call("Fetch", self.version, **fields)
        self.code = answer["errorCode"]
        if self.code == 0:
            self.id, self.epoch = answer["sessionId"], self.epoch + 1
        return {
            each["partitionIndex"]: each
            for topic in answer["responses"]
            for each in topic["partitions"]
        }


@pytest.fixture(params=[7, 11, 12, 16, 18])
def consumer(root: Path, client: WireClient, request: Any) -> Consumer:
    topic = ("orders", create(root, "orders", 3))
    for number in range(3):
        append(root, "orders", b"a", partition=number)
    return Consumer(client, request.param, topic)


def test_only_partitions_with_news_are_answered(root: Path, consumer: Consumer) -> None:
    assert len(consumer.fetch({0: 0, 1: 0, 2: 0})) == 3
    assert consumer.id > 0
    assert consumer.fetch({0: 1, 1: 1, 2: 1}) == {}
    assert consumer.fetch({}) == {}
    append(root, "orders", b"b", partition=1)
    found = consumer.fetch({}, maxWaitMs=30_000)
    assert {number: values_in(each["records"]) for number, each in found.items()} == {1: [b"b"]}
    again = consumer.fetch({})
    assert {number: values_in(each["records"]) for number, each in again.items()} == {1: [b"b"]}


def test_forgotten_partitions_are_answered_no_more(consumer: Consumer) -> None:
    consumer.fetch({0: 1, 1: 1, 2: 1})
    assert list(consumer.fetch({2: 0}, forgotten=[0, 1])) == [2]
    assert list(consumer.fetch({1: 0})) == [2, 1]
    id_ = consumer.id
    assert consumer.fetch({}, forgotten=[1, 2]) == {}
    assert consumer.id == 0  # nothing is left of it
    consumer.id = id_
    consumer.fetch({})
    assert consumer.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_partitions_take_turns_where_not_all_fit(root: Path, consumer: Consumer) -> None:
    for number in range(3):
        append(root, "orders", *[b"x" * 400] * 3, partition=number)
    small = {"partition": {"partitionMaxBytes": 500}, "maxBytes": 500}
    first = consumer.fetch({0: 1, 1: 1, 2: 1}, **small)
    assert [number for number, each in first.items() if each["records"]] == [0]
    order = []
    for _ in range(4):
        found = consumer.fetch({}, **small)
        order += [number for number, each in found.items() if each["records"]]
    assert order == [0, 1, 2, 0]


def test_a_wrong_epoch_and_an_unknown_session_are_refused(consumer: Consumer) -> None:
    consumer.fetch({0: 0})
    consumer.epoch += 1
    assert consumer.fetch({}) == {}
    assert consumer.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    consumer.epoch -= 1
    assert consumer.fetch({}) != {}
    consumer.id += 1
    consumer.fetch({})
    assert consumer.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_keeps_to_names_or_to_ids(consumer: Consumer) -> None:
    consumer.fetch({0: 0})
    consumer.version = 13 if consumer.version < 13 else 12
    consumer.fetch({})
    assert consumer.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_final_epoch_closes_the_session(consumer: Consumer) -> None:
    consumer.fetch({0: 0})
    id_, consumer.epoch = consumer.id, -1
    consumer.fetch({0: 0})
    assert consumer.id == 0
    consumer.id, consumer.epoch = id_, 1
    consumer.fetch({})
    assert consumer.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_errors_are_repeated_until_they_are_gone(root: Path, consumer: Consumer) -> None:
    assert consumer.fetch({0: 0, 5: 0})[5]["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert consumer.fetch({0: 1})[5]["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert consumer.fetch({0: 9})[0]["errorCode"] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert consumer.fetch({0: 1}, forgotten=[5])[0]["errorCode"] == 0


def test_a_recreated_topic_is_not_taken_for_the_one_of_the_session(
    root: Path, consumer: Consumer
) -> None:
    consumer.fetch({0: 1})
    with LogManager.open(root) as manager:
        manager.delete_topic("orders")
    gone = consumer.fetch({}, maxWaitMs=30_000)
    assert gone[0]["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create(root, "orders", 3)
    append(root, "orders", b"new", b"new")
    again = consumer.fetch({}, maxWaitMs=30_000)[0]
    if consumer.version >= 13:
        assert again["errorCode"] == ErrorCode.INCONSISTENT_TOPIC_ID
    else:
        assert values_in(again["records"]) == [b"new"]


# ---- the cache ------------------------------------------------------------------------------
def answers(sessions: FetchSessions, size: int) -> tuple[ErrorCode, int]:
    partitions = [{"partition": number, "fetchOffset": 0} for number in range(size)]
    values = {"sessionId": 0, "sessionEpoch": 0, "forgottenTopicsData": []}
    values["topics"] = [{"topic": "t", "partitions": partitions}]
    context = sessions.open(values, 12)
    answer = {"errorCode": 0, "highWatermark": 0, "logStartOffset": 0, "records": b""}
    code, id_, _ = context.settle([(target, dict(answer)) for target in context.targets])
    return code, id_


def test_the_cache_is_bounded_and_prefers_old_and_small_sessions_to_leave() -> None:
    clock = ManualClock()
    sessions = FetchSessions(lambda: 2, clock, Random(1))
    _, small = answers(sessions, 2)
    _, large = answers(sessions, 4)
    assert answers(sessions, 9) == (ErrorCode.NONE, 0)  # the others are too young to leave
    clock.sleep_ms(100_000)
    incremental = {"topics": [], "forgottenTopicsData": [], "sessionEpoch": 1}
    for id_ in (small, large):
        assert sessions.open(incremental | {"sessionId": id_}, 12).code is ErrorCode.NONE
    clock.sleep_ms(100_000)
    assert answers(sessions, 2)[1] == 0  # no larger than the smallest
    _, third = answers(sessions, 3)
    assert third > 0
    again = sessions.open(incremental | {"sessionId": small, "sessionEpoch": 2}, 12)
    assert again.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    clock.sleep_ms(121_000)
    assert answers(sessions, 1)[1] > 0  # stale ones leave for any
    assert len(sessions) == 2


def test_epochs_wrap_around() -> None:
    sessions = FetchSessions(lambda: 1, ManualClock(), Random(1))
    _, id_ = answers(sessions, 1)
    session = sessions._sessions[id_]
    session.epoch = 2**31 - 1
    values = {"sessionId": id_, "sessionEpoch": 2**31 - 1, "topics": []}
    assert sessions.open(values | {"forgottenTopicsData": []}, 12).code is ErrorCode.NONE
    assert session.epoch == 1


def test_without_slots_every_fetch_names_its_partitions() -> None:
    sessions = FetchSessions(lambda: 0, ManualClock(), Random(1))
    assert answers(sessions, 1) == (ErrorCode.NONE, 0)
