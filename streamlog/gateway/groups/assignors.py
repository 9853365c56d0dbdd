"""The assignors of consumer groups: which member gets which partitions.

Both keep to what a member subscribes to. `uniform` gives all members the same number of partitions,
within one, and moves as few as it can; `range` gives each member a range of each topic, so that
topics with equally many partitions are split alike.

Source: UniformAssignor and RangeAssignor of org.apache.kafka.coordinator.group.assignor.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

__all__ = ["ASSIGNORS", "Assignee", "Assignment", "assign_range", "assign_uniform"]

Assignment = Mapping[str, frozenset[int]]  # partitions by the topic's id; no empty sets

_MAX_ROUNDS: Final = 16  # UniformHeterogeneousAssignmentBuilder.MAX_ITERATION_COUNT


class Assignee(NamedTuple):
    """A member as assignors see it.

    Attributes:
        instance_id: Its static name; None without one.
        topics: The ids of the topics it subscribes to; all of them exist.
        assigned: What it had in the former target assignment.
    """

    instance_id: str | None
    topics: frozenset[str]
    assigned: Assignment


_Assignees = Mapping[str, Assignee]
_Counts = Mapping[str, int]


def assign_range(members: _Assignees, partitions: _Counts) -> dict[str, Assignment]:
    """Return the assignment of each member.

    Args:
        members: The members by id.
        partitions: The number of partitions of each topic id.
    """
    # Static members come first, by their names: they keep their ranges under a new member id.
    ordered = sorted(
        members,
        key=lambda each: (
            members[each].instance_id is None,
            members[each].instance_id or each,
        ),
    )
    assigned: dict[str, dict[str, frozenset[int]]] = {each: {} for each in members}
    for topic in frozenset().union(*(each.topics for each in members.values())):
        subscribers = [each for each in ordered if topic in members[each].topics]
        quota, extra = divmod(partitions[topic], len(subscribers))
        first = 0
        for at, member_id in enumerate(subscribers):
            end = first + quota + (at < extra)
            if first < end:
                assigned[member_id][topic] = frozenset(range(first, end))
            first = end
    return dict(assigned)


def assign_uniform(members: _Assignees, partitions: _Counts) -> dict[str, Assignment]:
    """Return the assignment of each member.

    Args:
        members: The members by id.
        partitions: The number of partitions of each topic id.
    """
    draft = _Uniform(members, partitions)
    if len({each.topics for each in members.values()}) == 1:
        draft.keep_quotas()
    draft.assign_rest()
    draft.balance()
    return draft.assignments()


class _Uniform:
    """The loads of members while partitions find their owners."""

    def __init__(self, members: _Assignees, partitions: _Counts) -> None:
        self._members, self._partitions = members, partitions
        self._places = {each: at for at, each in enumerate(members)}
        self._loads = dict.fromkeys(members, 0)
        self._subscribers = {
            topic: [each for each in members if topic in members[each].topics]
            for topic in sorted(frozenset().union(*(each.topics for each in members.values())))
        }
        self._owners: dict[str, dict[int, str]] = {topic: {} for topic in self._subscribers}
        for member_id, member in members.items():
            for topic, numbers in member.assigned.items():
                if topic in member.topics:
                    for number in sorted(numbers):
                        if number < partitions[topic]:
                            self._give(topic, number, member_id)

    def _give(self, topic: str, number: int, member_id: str) -> None:
        former = self._owners[topic].get(number)
        if former is not None:
            self._loads[former] -= 1
        self._owners[topic][number] = member_id
        self._loads[member_id] += 1

    def keep_quotas(self) -> None:
        """Take partitions above its quota from each member; all subscribe to the same topics."""
        total = sum(self._partitions[topic] for topic in self._owners)
        quota, extra = divmod(total, len(self._members))
        left = {}
        # Of members with more than the quota, the first ones may keep one partition more.
        for member_id, load in self._loads.items():
            left[member_id] = quota + (load > quota and extra > 0)
            extra -= left[member_id] > quota
        for owners in self._owners.values():
            for number, owner in sorted(owners.items()):
                if left[owner]:
                    left[owner] -= 1
                else:
                    del owners[number]
                    self._loads[owner] -= 1

    def assign_rest(self) -> None:
        """Give each partition without an owner to the subscriber with the fewest."""
        for topic in self._by_pressure():
            # min takes the first of members with equal loads: the one with the lower load before.
            subscribers = sorted(self._subscribers[topic], key=self._load_of)
            for number in range(self._partitions[topic]):
                if number not in self._owners[topic]:
                    self._give(topic, number, min(subscribers, key=self._loads.__getitem__))

    def balance(self) -> None:
        """Move partitions from members with more to members with fewer, until none is left."""
        for _ in range(_MAX_ROUNDS):
            moves = [self._balance_topic(topic) for topic in self._by_pressure()]
            if not any(moves):
                return

    def _balance_topic(self, topic: str) -> bool:
        has_moved, owners = False, self._owners[topic]
        while owners:
            most = max(set(owners.values()), key=self._load_of)
            least = min(self._subscribers[topic], key=self._load_of)
            if self._loads[most] - self._loads[least] <= 1:
                break
            self._give(topic, max(each for each in owners if owners[each] == most), least)
            has_moved = True
        return has_moved

    def _by_pressure(self) -> list[str]:
        """Return topics, those with the most partitions per subscriber first."""
        return sorted(
            self._subscribers,
            key=lambda topic: (
                -self._partitions[topic] / len(self._subscribers[topic]),
                len(self._subscribers[topic]),
                topic,
            ),
        )

    def _load_of(self, member_id: str) -> tuple[int, int]:
        return self._loads[member_id], self._places[member_id]

    def assignments(self) -> dict[str, Assignment]:
        """Return what has come out."""
        found: dict[str, dict[str, set[int]]] = {each: {} for each in self._members}
        for topic, owners in self._owners.items():
            for number, owner in owners.items():
                found[owner].setdefault(topic, set()).add(number)
        return {
            member_id: {topic: frozenset(numbers) for topic, numbers in topics.items()}
            for member_id, topics in found.items()
        }


ASSIGNORS: Final[Mapping[str, Callable[[_Assignees, _Counts], dict[str, Assignment]]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
