"""What the assignors uniform and range come to."""

from collections.abc import Callable
from random import Random

import pytest

from streamlog.gateway.groups.assignors import (
    Assignee,
    Assignment,
    assign_range,
    assign_uniform,
)

_BOTH = pytest.mark.parametrize("assign", [assign_range, assign_uniform])
_Assign = Callable[[dict[str, Assignee], dict[str, int]], dict[str, Assignment]]


def member(
    topics: str, assigned: Assignment | None = None, instance_id: str | None = None
) -> Assignee:
    return Assignee(instance_id, frozenset(topics), assigned or {})


def numbers(assigned: dict[str, Assignment]) -> dict[str, dict[str, list[int]]]:
    return {
        each: {topic: sorted(assigned[each][topic]) for topic in sorted(assigned[each])}
        for each in assigned
    }


@_BOTH
def test_members_without_topics_get_nothing(assign: _Assign) -> None:
    assert assign({"a": member(""), "b": member("")}, {}) == {"a": {}, "b": {}}


def test_range_splits_each_topic_alike() -> None:
    # RangeAssignorTest.testFirstAssignmentTwoMembersTwoTopicsSameSubscriptions
    found = assign_range({"a": member("13"), "b": member("13")}, {"1": 3, "3": 2})
    assert numbers(found) == {"a": {"1": [0, 1], "3": [0]}, "b": {"1": [2], "3": [1]}}


def test_range_of_different_subscriptions() -> None:
    # RangeAssignorTest.testFirstAssignmentThreeMembersThreeTopicsDifferentSubscriptions
    found = assign_range(
        {"a": member("12"), "b": member("3"), "c": member("23")}, {"1": 3, "2": 3, "3": 2}
    )
    assert numbers(found) == {
        "a": {"1": [0, 1, 2], "2": [0, 1]},
        "b": {"3": [0]},
        "c": {"2": [2], "3": [1]},
    }


def test_range_with_more_members_than_partitions() -> None:
    # RangeAssignorTest.testFirstAssignmentNumMembersGreaterThanNumPartitions
    members = {"a": member("13"), "b": member("13"), "c": member("13")}
    found = assign_range(members, {"1": 3, "3": 2})
    assert numbers(found) == {"a": {"1": [0], "3": [0]}, "b": {"1": [1], "3": [1]}, "c": {"1": [2]}}


def test_range_puts_static_members_first_by_their_names() -> None:
    members = {"a": member("1"), "b": member("1", None, "i2"), "c": member("1", None, "i1")}
    found = assign_range(members, {"1": 3})
    assert numbers(found) == {"a": {"1": [2]}, "b": {"1": [1]}, "c": {"1": [0]}}


def test_uniform_moves_only_what_has_to_move() -> None:
    first = assign_uniform({"a": member("1")}, {"1": 4})
    second = assign_uniform({"a": member("1", first["a"]), "b": member("1")}, {"1": 4})
    assert numbers(second) == {"a": {"1": [0, 1]}, "b": {"1": [2, 3]}}
    third = assign_uniform({"b": member("1", second["b"])}, {"1": 4})
    assert numbers(third) == {"b": {"1": [0, 1, 2, 3]}}


def test_uniform_drops_topics_that_are_no_longer_subscribed() -> None:
    had = {"1": frozenset({0}), "2": frozenset({0, 1})}
    found = assign_uniform({"a": member("1", had), "b": member("1")}, {"1": 2})
    assert numbers(found) == {"a": {"1": [0]}, "b": {"1": [1]}}


def test_uniform_balances_different_subscriptions() -> None:
    # UniformHeterogeneousAssignmentBuilderTest: the partitions of a topic that only one member
    # reads count against its share of the others.
    found = assign_uniform({"a": member("12"), "b": member("2")}, {"1": 2, "2": 4})
    assert numbers(found) == {"a": {"1": [0, 1], "2": [3]}, "b": {"2": [0, 1, 2]}}


@_BOTH
@pytest.mark.parametrize("seed", range(40))
def test_each_partition_has_one_subscriber(assign: _Assign, seed: int) -> None:
    random = Random(seed)
    partitions = {topic: random.randrange(1, 9) for topic in "1234"}
    is_alike = random.random() < 0.5
    members: dict[str, Assignee] = {}
    for _ in range(8):
        if members and random.random() < 0.4:
            del members[random.choice(sorted(members))]
        name = f"m{random.randrange(100)}"
        topics = "1234" if is_alike else "".join(random.sample("1234", random.randrange(1, 5)))
        members[name] = member(topics)
        found = assign(members, partitions)
        owners = [
            (topic, number)
            for each in found
            for topic in found[each]
            for number in found[each][topic]
        ]
        subscribed = {topic for each in members.values() for topic in each.topics}
        expected = [(topic, at) for topic in subscribed for at in range(partitions[topic])]
        assert sorted(owners) == sorted(expected)
        assert all(found[each].keys() <= members[each].topics for each in members)
        loads = [sum(map(len, found[each].values())) for each in members]
        if assign is assign_uniform and is_alike:
            assert max(loads) - min(loads) <= 1
            _check_moves(members, found, loads)
        members = {each: members[each]._replace(assigned=found[each]) for each in members}


def _check_moves(
    members: dict[str, Assignee], found: dict[str, Assignment], loads: list[int]
) -> None:
    """No member below the largest share gives anything up."""
    for each, assignee in members.items():
        before = sum(map(len, assignee.assigned.values()))
        if before <= min(loads):
            for topic, former in assignee.assigned.items():
                assert former <= found[each].get(topic, frozenset())
