"""Consumer groups (KIP-848) whose members subscribe to patterns, walked by hand.

Each scenario follows the tests of regular expressions in GroupMetadataManagerTest of Kafka.
"""

from typing import Any

from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.group import SubscribedTopic
from tests.gateway.groups.driver import Answer
from tests.gateway.groups.test_consumer import OTHER, TOPIC, Group

REFRESH_MS = 600_000


def join(group: Group, member_id: str, pattern: str | None, **values: Any) -> Answer:
    return group.join(member_id, **{"topics": None, "regex": pattern, **values})


def beat_for(group: Group, member_id: str, duration_ms: int) -> None:
    """Let time pass; the member stays."""
    for _ in range(duration_ms // 40_000 + 1):
        group.driver.timers.advance(duration_ms // (duration_ms // 40_000 + 1))
        group.beat(member_id)


def test_a_pattern_is_resolved_after_the_answer() -> None:
    group = Group()
    group.driver.topics["bills"] = SubscribedTopic(OTHER, 1)
    assert join(group, "a", "ord.*")["memberEpoch"] == 1
    assert group.owned["a"] == set()
    group.driver.resolve()
    assert group.group.state_name == "Assigning"
    assert group.beat("a")["memberEpoch"] == 2
    assert group.owned["a"] == {0, 1, 2, 3}
    assert group.group.described()["members"][0]["subscribedTopicRegex"] == "ord.*"
    assert not group.driver.resolutions
    assert group.group.is_subscribed("orders")
    assert not group.group.is_subscribed("bills")


def test_a_second_member_of_a_resolved_pattern_rebalances_at_once() -> None:
    group = Group()
    join(group, "a", "ord.*")
    group.driver.resolve()
    group.beat("a")
    assert join(group, "b", "ord.*")["memberEpoch"] == 3
    group.settle("a", "b")
    assert group.owned["a"] | group.owned["b"] == {0, 1, 2, 3}
    assert not group.driver.resolutions


def test_a_member_of_names_and_a_pattern_has_the_topics_of_both() -> None:
    group = Group()
    group.driver.topics["bills"] = SubscribedTopic(OTHER, 1)
    join(group, "a", "ord.*", topics=("bills",))
    group.driver.resolve()
    answer = group.beat("a")
    topics = {each["topicId"] for each in answer["assignment"]["topicPartitions"]}
    assert topics == {TOPIC, OTHER}


def test_an_invalid_pattern_is_refused() -> None:
    group = Group()
    answer = join(group, "a", "(")
    assert answer.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "is not a valid regular expression" in answer["errorMessage"]
    assert not group.group.is_stored


def test_new_topics_are_found_but_not_more_than_every_ten_seconds() -> None:
    group = Group()
    join(group, "a", ".*")
    group.driver.resolve()
    group.beat("a")
    group.driver.topics = {**group.driver.topics, "bills": SubscribedTopic(OTHER, 1)}
    group.driver.timers.advance(10_000)
    group.beat("a")
    assert not group.driver.resolutions
    group.driver.timers.advance(1)
    group.beat("a")
    group.driver.resolve()
    answer = group.beat("a")
    topics = {each["topicId"] for each in answer["assignment"]["topicPartitions"]}
    assert topics == {TOPIC, OTHER}


def test_patterns_are_matched_again_after_the_interval() -> None:
    group = Group()
    join(group, "a", ".*")
    group.driver.resolve()
    group.beat("a")
    beat_for(group, "a", REFRESH_MS)
    assert not group.driver.resolutions
    group.driver.timers.advance(1)
    group.beat("a")
    assert group.driver.resolutions
    before = len(group.driver.stored)
    group.driver.resolve()
    assert len(group.driver.stored) == before + 1  # the time; no new epoch
    assert group.group.state_name == "Stable"


def test_patterns_that_are_being_matched_are_not_matched_twice() -> None:
    group = Group()
    join(group, "a", ".*")
    group.beat("a")
    join(group, "b", "ord.*")
    assert len(group.driver.resolutions) == 1


def test_a_pattern_without_members_is_forgotten() -> None:
    group = Group()
    join(group, "a", "ord.*")
    group.driver.resolve()
    group.beat("a")
    assert set(group.group.state.patterns) == {"ord.*"}
    answer = group.beat("a", regex="", topics=())  # from a pattern to nothing
    assert answer["memberEpoch"] == 2
    assert group.group.state.patterns == {}
    assert group.owned["a"] == set()
    assert group.beat("a")["memberEpoch"] == 3
    assert group.restored().state == group.group.state


def test_a_resolution_that_comes_too_late_changes_nothing() -> None:
    group = Group()
    join(group, "a", "ord.*")
    group.leave("a")
    before = len(group.driver.stored)
    group.driver.resolve()
    assert len(group.driver.stored) == before


def test_a_failed_resolution_is_tried_again() -> None:
    group = Group()
    join(group, "a", "ord.*")
    _, done = group.driver.resolutions.pop()
    done(None)
    group.beat("a")
    group.driver.resolve()
    group.beat("a")
    assert group.owned["a"] == {0, 1, 2, 3}


def test_records_keep_what_patterns_matched() -> None:
    group = Group()
    join(group, "a", "ord.*")
    group.driver.resolve()
    group.beat("a")
    assert group.restored().state == group.group.state
    latest = dict([*group.driver.stored, *group.group.tombstones()])
    assert set(latest.values()) == {None}


def test_a_changed_subscription_gives_up_partitions_at_once() -> None:
    group = Group()
    join(group, "a", "ord.*")
    group.driver.resolve()
    group.beat("a")
    answer = group.beat("a", regex="bil.*")  # not resolved: it matches nothing yet
    assert answer["assignment"] == {"topicPartitions": []}
    group.driver.topics = {**group.driver.topics, "bills": SubscribedTopic(OTHER, 1)}
    group.driver.timers.advance(10_001)
    group.beat("a")
    group.driver.resolve()
    group.beat("a")
    assert group.owned["a"] == {0}
