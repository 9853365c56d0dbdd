"""The state machine of consumer groups (KIP-848), walked by hand.

Each scenario follows GroupMetadataManagerTest or CurrentAssignmentBuilderTest of Kafka.
"""

from random import Random
from typing import Any

import pytest

from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.consumer import ConsumerGroup
from streamlog.gateway.groups.consumer_member import ConsumerHeartbeat
from streamlog.gateway.groups.group import CommittingMember, SubscribedTopic
from streamlog.protocol.internal_topics import Decoder, parse_internal
from tests.gateway.groups.driver import Answer, Driver

TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"
OTHER = "AAAAAAAAAAAAAAAAAAAAAg"
SESSION_MS = 45_000
REBALANCE_MS = 20_000


class Group:
    """A consumer group of one topic with 4 partitions, and what its members own."""

    def __init__(self, **settings: int) -> None:
        self.driver = Driver(**settings)
        self.driver.topics["orders"] = SubscribedTopic(TOPIC, 4)
        self.group = ConsumerGroup("g", self.driver.world)
        self.owned: dict[str, set[int]] = {}
        self.epochs: dict[str, int] = {}

    def send(self, member_id: str, epoch: int, **values: Any) -> Answer:
        given: dict[str, Any] = {
            "member_id": member_id,
            "member_epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "topics": None,
            "regex": None,
            "assignor": None,
            "owned": None,
            "client_id": "c",
            "client_host": "/127.0.0.1",
        }
        answer = Answer()
        self.group.heartbeat(ConsumerHeartbeat(**{**given, **values}), answer)
        return answer

    def join(self, member_id: str, **values: Any) -> Answer:
        given = {"rebalance_timeout_ms": REBALANCE_MS, "topics": ("orders",), "owned": {}}
        return self._noted(member_id, self.send(member_id, 0, **{**given, **values}))

    def beat(self, member_id: str, **values: Any) -> Answer:
        """Send a heartbeat with what the member owns; it gives up what it is told to."""
        owned = {TOPIC: frozenset(self.owned[member_id])} if self.owned[member_id] else {}
        answer = self.send(member_id, self.epochs[member_id], **{"owned": owned, **values})
        return self._noted(member_id, answer)

    def _noted(self, member_id: str, answer: Answer) -> Answer:
        if not answer.waits and answer.code is ErrorCode.NONE:
            self.epochs[member_id] = answer["memberEpoch"]
            assert answer.values is not None
            if "assignment" in answer.values:
                topics = answer["assignment"]["topicPartitions"]
                self.owned[member_id] = {each for one in topics for each in one["partitions"]}
            owners = [each for numbers in self.owned.values() for each in numbers]
            assert len(owners) == len(set(owners)), "a partition has two owners"
        return answer

    def leave(self, member_id: str, epoch: int = -1, **values: Any) -> Answer:
        answer = self.send(member_id, epoch, **values)
        if answer.code is ErrorCode.NONE:
            del self.owned[member_id]
        return answer

    def settle(self, *members: str) -> None:
        """Let members beat until none has anything to do."""
        for _ in range(4):
            for each in members:
                assert self.beat(each).code is ErrorCode.NONE
        assert self.group.state_name == "Stable"

    def restored(self, driver: Driver | None = None) -> ConsumerGroup:
        """Return the group that its records add up to; with its own timers by default."""
        latest = dict(self.driver.stored)
        parsed = [parse_internal(Decoder.OFFSETS, *each) for each in latest.items()]
        records = [each for each in parsed if each is not None and each.value is not None]
        return ConsumerGroup.of_records("g", records, (driver or Driver()).world)


def test_a_group_begins_empty_and_ends_empty() -> None:
    group = Group()
    assert group.group.state_name == "Empty"
    assert group.join("a")["memberEpoch"] == 1
    assert group.owned["a"] == {0, 1, 2, 3}
    assert group.group.state_name == "Stable"
    assert group.leave("a")["memberEpoch"] == -1
    assert group.group.state_name == "Empty"
    assert not group.driver.timers.due


def test_partitions_are_revoked_before_they_are_assigned() -> None:
    group = Group()
    group.join("a")
    assert group.join("b")["memberEpoch"] == 2
    assert group.owned["b"] == set()
    assert group.group.state_name == "Reconciling"
    assert group.beat("a")["memberEpoch"] == 1  # it has to give up two, and has not yet
    kept = set(group.owned["a"])
    assert len(kept) == 2
    still_owned = {TOPIC: frozenset({0, 1, 2, 3})}
    assert "assignment" not in (group.beat("a", owned=still_owned).values or {})
    assert "assignment" not in (group.beat("b").values or {})
    assert group.beat("a")["memberEpoch"] == 2
    group.beat("b")
    assert group.owned["b"] == {0, 1, 2, 3} - kept
    assert group.group.state_name == "Stable"


def test_a_member_that_leaves_makes_room() -> None:
    group = Group()
    group.join("a")
    group.join("b")
    group.settle("a", "b")
    group.leave("a")
    assert group.group.state_name == "Assigning"
    assert group.beat("b")["memberEpoch"] == 3
    assert group.owned["b"] == {0, 1, 2, 3}


def test_a_heartbeat_without_news_writes_nothing() -> None:
    group = Group()
    group.join("a")
    before = len(group.driver.stored)
    answer = group.beat("a", owned=None)
    assert "assignment" not in (answer.values or {})
    assert len(group.driver.stored) == before


def test_a_full_heartbeat_is_answered_with_the_assignment() -> None:
    group = Group()
    group.join("a")
    answer = group.beat("a", rebalance_timeout_ms=REBALANCE_MS, topics=("orders",))
    partitions = [{"topicId": TOPIC, "partitions": [0, 1, 2, 3]}]
    assert answer["assignment"] == {"topicPartitions": partitions}


@pytest.mark.parametrize(
    ("epoch", "owned", "code"),
    [
        (1, {TOPIC: frozenset({0})}, ErrorCode.NONE),  # its last answer was lost
        (1, {}, ErrorCode.NONE),
        (1, {TOPIC: frozenset({0, 3})}, ErrorCode.FENCED_MEMBER_EPOCH),  # more than it may have
        (1, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (3, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        (0, {}, ErrorCode.NONE),  # it begins again
        (2, None, ErrorCode.NONE),
    ],
)
def test_epochs_are_checked(epoch: int, owned: Any, code: ErrorCode) -> None:
    group = Group()
    group.join("a")
    group.join("b")
    group.settle("a", "b")
    assert (group.epochs["a"], group.owned["a"]) == (2, {0, 1})
    assert group.send("a", epoch, owned=owned).code is code


def test_a_lost_answer_to_a_join_may_be_asked_for_again() -> None:
    group = Group()
    assert group.join("a")["memberEpoch"] == 1
    assert group.join("a")["memberEpoch"] == 1


def test_unknown_members_are_refused() -> None:
    group = Group()
    group.join("a")
    assert group.send("b", 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.send("b", -1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.send("b", 1, instance_id="i").code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_no_more_members() -> None:
    group = Group(group_consumer_max_size=1)
    group.join("a")
    assert group.join("b").code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.beat("a").code is ErrorCode.NONE


# ---- timeouts -----------------------------------------------------------------------------------
def test_a_silent_member_is_removed() -> None:
    group = Group()
    group.join("a")
    group.driver.timers.advance(SESSION_MS - 1)
    assert group.beat("a").code is ErrorCode.NONE
    group.driver.timers.advance(SESSION_MS - 1)
    assert group.group.state_name == "Stable"
    group.driver.timers.advance(1)
    assert group.group.state_name == "Empty"
    assert group.beat("a").code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_revokes_nothing_is_removed() -> None:
    group = Group()
    group.join("a")
    group.join("b")
    group.beat("a")
    still_owned = {TOPIC: frozenset({0, 1, 2, 3})}
    for _ in range(4):
        group.driver.timers.advance(REBALANCE_MS // 4 - 1)
        assert group.beat("a", owned=still_owned).code is ErrorCode.NONE
        group.beat("b")
    group.driver.timers.advance(10)
    assert group.beat("a", owned=still_owned).code is ErrorCode.UNKNOWN_MEMBER_ID
    del group.owned["a"]
    group.settle("b")
    assert group.owned["b"] == {0, 1, 2, 3}


def test_a_member_that_revokes_in_time_stays() -> None:
    group = Group()
    group.join("a")
    group.join("b")
    group.beat("a")
    group.beat("a")
    group.driver.timers.advance(REBALANCE_MS + 1)
    group.settle("a", "b")


# ---- static members -----------------------------------------------------------------------------
def test_a_static_member_comes_back_to_its_partitions() -> None:
    group = Group()
    group.join("a", instance_id="i")
    group.join("b")
    for _ in range(3):
        group.beat("a", instance_id="i")
        group.beat("b")
    former, epoch = set(group.owned["a"]), group.group.state.epoch
    assert group.leave("a", -2, instance_id="i")["memberEpoch"] == -2
    group.beat("b")
    assert len(group.owned["b"]) == 2
    assert group.join("a2", instance_id="i")["memberEpoch"] == epoch
    assert group.owned["a2"] == former
    assert group.group.state.epoch == epoch
    fenced = group.send("a", epoch, instance_id="i")
    assert fenced.code is ErrorCode.FENCED_INSTANCE_ID


def test_the_name_of_a_static_member_is_taken_until_it_leaves() -> None:
    group = Group()
    group.join("a", instance_id="i")
    assert group.join("a2", instance_id="i").code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert group.leave("a", -1, instance_id="i").code is ErrorCode.NONE
    assert group.join("a2", instance_id="i").code is ErrorCode.NONE


def test_a_static_member_that_stays_away_is_removed() -> None:
    group = Group()
    group.join("a", instance_id="i")
    group.leave("a", -2, instance_id="i")
    group.driver.timers.advance(SESSION_MS)
    assert group.group.state_name == "Empty"


# ---- subscriptions ------------------------------------------------------------------------------
def test_a_topic_that_grows_makes_a_new_epoch() -> None:
    group = Group()
    group.join("a")
    group.driver.topics["orders"] = SubscribedTopic(TOPIC, 6)
    assert group.beat("a")["memberEpoch"] == 2
    assert group.owned["a"] == {0, 1, 2, 3, 4, 5}


def test_a_topic_that_is_deleted_goes_away() -> None:
    group = Group()
    group.join("a")
    del group.driver.topics["orders"]
    group.beat("a")
    assert group.owned["a"] == set()
    group.settle("a")


def test_a_changed_subscription_makes_a_new_epoch() -> None:
    group = Group()
    group.join("a")
    group.driver.topics["more"] = SubscribedTopic(OTHER, 1)
    answer = group.beat("a", topics=("more", "orders"))
    assert answer["memberEpoch"] == 2
    assert {each["topicId"] for each in answer["assignment"]["topicPartitions"]} == {TOPIC, OTHER}
    assert group.group.is_subscribed("more")


def test_the_assignor_that_most_ask_for_is_taken() -> None:
    group = Group()
    group.join("a")
    assert group.group.described()["assignorName"] == "uniform"
    group.join("b", assignor="range")
    assert group.group.described()["assignorName"] == "range"


# ---- offsets ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "code"),
    [
        ("a", 1, 9, ErrorCode.NONE),
        ("a", 0, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 1, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("b", 1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_are_checked(member_id: str, epoch: int, version: int, code: ErrorCode) -> None:
    group = Group()
    outside = CommittingMember("", None, -1, is_transactional=False, version=9)
    assert group.group.check_commit(outside) is ErrorCode.NONE
    group.join("a")
    identity = CommittingMember(member_id, None, epoch, is_transactional=False, version=version)
    assert group.group.check_commit(identity) is code


def test_stale_epochs_of_transactions_are_illegal_generations() -> None:
    group = Group()
    group.join("a")
    identity = CommittingMember("a", None, 0, is_transactional=True, version=3)
    assert group.group.check_commit(identity) is ErrorCode.ILLEGAL_GENERATION
    assert group.group.check_commit(identity._replace(generation=1)) is ErrorCode.NONE


# ---- the log ------------------------------------------------------------------------------------
def test_records_add_up_to_the_group() -> None:
    group = Group()
    group.join("a", instance_id="i", rack_id="r")
    group.join("b", assignor="range")
    group.beat("a", instance_id="i")
    assert group.restored().state == group.group.state
    group.beat("a", instance_id="i")
    group.beat("b")
    group.leave("a", -2, instance_id="i")
    assert group.restored().state == group.group.state
    group.leave("b")
    assert group.restored().state == group.group.state


def test_a_restored_group_expects_its_members() -> None:
    group = Group()
    group.join("a")
    group.join("b")
    group.beat("a")  # has to revoke
    group.driver.timers.due.clear()
    group.group = group.restored(group.driver)
    group.driver.timers.advance(REBALANCE_MS)
    assert list(group.group.state.members) == ["b"]
    group.driver.timers.advance(SESSION_MS)
    assert group.group.state_name == "Empty"


def test_tombstones_remove_the_group_from_the_log() -> None:
    group = Group()
    group.join("a")
    group.driver.stored.extend(group.group.tombstones())
    assert not [each for each in dict(group.driver.stored).values() if each is not None]


def test_a_heartbeat_waits_for_the_append_before_it() -> None:
    group = Group()
    group.driver.outcome = None
    first, second = group.join("a"), group.join("b")
    assert first.waits
    assert second.waits
    assert group.group.state_name == "Empty"
    assert not group.group.is_empty  # it is about to have members
    group.driver.store(ErrorCode.NONE)
    assert first["memberEpoch"] == 1
    assert second.waits
    group.driver.store(ErrorCode.NONE)
    assert second["memberEpoch"] == 2


def test_a_change_that_is_not_stored_is_dropped() -> None:
    group = Group()
    group.driver.outcome = ErrorCode.NOT_COORDINATOR
    assert group.join("a").code is ErrorCode.NOT_COORDINATOR
    assert group.group.state_name == "Empty"
    assert not group.group.is_stored
    group.driver.outcome = ErrorCode.NONE
    assert group.join("a")["memberEpoch"] == 1


def test_a_stopped_group_answers_those_that_wait() -> None:
    group = Group()
    group.driver.outcome = None
    first, second = group.join("a"), group.join("b")
    group.group.stop()
    assert second.code is ErrorCode.NOT_COORDINATOR
    group.driver.store(ErrorCode.NONE)
    assert first.code is ErrorCode.NONE
    assert group.send("a", 1).code is ErrorCode.COORDINATOR_NOT_AVAILABLE


# ---- anything in any order ----------------------------------------------------------------------
def _walk(group: Group, random: Random) -> None:
    """Let something happen: a heartbeat, a member that comes, goes or is lost, a restart."""
    members = sorted(group.owned)
    step = random.random()
    if not members or step < 0.1:
        name = f"m{random.randrange(1000)}"
        group.join(name, assignor=random.choice(["uniform", "range", None]))
    elif step < 0.16:
        group.leave(random.choice(members))
    elif step < 0.2:
        lost = random.choice(members)
        while lost in group.owned:
            group.driver.timers.advance(5_000)
            for each in members:
                if each not in group.group.state.members:
                    group.owned.pop(each, None)
            for each in sorted(group.owned.keys() - {lost}):
                group.beat(each)
    elif step < 0.23:
        topic = group.driver.topics["orders"]
        group.driver.topics["orders"] = topic._replace(partitions=topic.partitions + 1)
    elif step < 0.28:
        group.group.stop()
        group.group = group.restored(group.driver)
    elif step < 0.35:
        group.driver.outcome = ErrorCode.NOT_COORDINATOR
        before = len(group.driver.stored)
        group.beat(random.choice(members))
        del group.driver.stored[before:]
        group.driver.outcome = ErrorCode.NONE
    else:
        assert group.beat(random.choice(members)).code is ErrorCode.NONE


@pytest.mark.parametrize("seed", range(60))
def test_partitions_never_have_two_owners_and_end_with_one(seed: int) -> None:
    group, random = Group(), Random(seed)
    for _ in range(120):
        _walk(group, random)  # each answer is checked for partitions with two owners
        assert group.restored().state == group.group.state
    members = sorted(group.owned) or ["last"]
    if not group.owned:
        group.join("last")
    assert sorted(group.group.state.members) == members
    group.settle(*members)
    owned = [each for numbers in group.owned.values() for each in numbers]
    assert sorted(owned) == list(range(group.driver.topics["orders"].partitions))
