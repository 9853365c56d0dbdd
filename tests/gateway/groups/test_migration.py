"""Groups on their way from one protocol to the other (KIP-848), walked by hand.

Each scenario follows the online upgrade and downgrade in GroupMetadataManagerTest of Kafka.
"""

import struct
from typing import Any

import pytest

from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.classic import ClassicGroup
from streamlog.gateway.groups.consumer import ConsumerGroup
from streamlog.gateway.groups.consumer_member import RefusedHeartbeatError
from streamlog.gateway.groups.group import CommittingMember, MemberProtocol, SubscribedTopic
from streamlog.gateway.groups.members import JoinRequest, LeavingMember, SyncRequest
from streamlog.gateway.groups.migration import check_upgrade, consumer_state
from streamlog.protocol.consumer_protocol import encode_consumer_assignment, parse_assignment
from tests.gateway.groups.driver import Answer, Driver
from tests.gateway.groups.test_consumer import TOPIC, Group

SESSION_MS = 10_000
REBALANCE_MS = 30_000


def subscription(*owned: int, topic: str = "orders") -> bytes:
    """Return a subscription of version 1, as cooperative consumers send it."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    numbers = struct.pack(f">i{len(owned)}i", len(owned), *owned)
    partitions = struct.pack(">i", 1) + name + numbers if owned else struct.pack(">i", 0)
    return struct.pack(">hi", 1, 1) + name + struct.pack(">i", -1) + partitions


class Mixed(Group):
    """A consumer group that members of the classic protocol join too."""

    def join_classic(self, member_id: str = "", *owned: int, **values: Any) -> Answer:
        given: dict[str, Any] = {
            "member_id": member_id,
            "instance_id": None,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "protocol_type": "consumer",
            "protocols": (MemberProtocol("range", subscription(*owned)),),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "needs_member_id": False,
        }
        answer = Answer()
        self.group.join(JoinRequest(**{**given, **values}), answer)
        return answer

    def sync(self, member_id: str, generation: int) -> Answer:
        answer = Answer()
        request = SyncRequest(member_id, None, generation, "consumer", "range", {})
        self.group.sync(request, answer)
        return answer

    def assigned(self, member_id: str, generation: int) -> set[int]:
        assigned, _ = parse_assignment(self.sync(member_id, generation)["assignment"])
        return set(assigned.get("orders", ()))

    def classic_beat(self, member_id: str, generation: int) -> ErrorCode:
        return self.group.classic_heartbeat(member_id, None, generation)

    def quit(self, *members: str) -> list[ErrorCode]:
        answer = Answer()
        self.group.leave([LeavingMember(each, None) for each in members], answer)
        return [ErrorCode(each) for each in answer["codes"]]


def upgraded(**settings: Any) -> tuple[Mixed, str]:
    """Return a consumer group that was a classic one, and its classic member with everything."""
    driver = Driver(**settings)
    driver.topics["orders"] = SubscribedTopic(TOPIC, 4)
    joined = driver.join(metadata=subscription())
    driver.timers.advance(1)
    leader = joined["memberId"]
    everything = encode_consumer_assignment({"orders": frozenset(range(4))}, 1)
    driver.sync(leader, joined["generationId"], {leader: everything})
    group = Mixed(**settings)
    group.driver = driver
    state = consumer_state(driver.group, driver.world.topic_of)
    driver.group.give_way()
    group.group = ConsumerGroup("g", driver.world, driver.group, state)
    group.group.expect_members()
    return group, leader


def test_a_classic_group_goes_over_member_by_member() -> None:
    group, old = upgraded()
    assert group.group.state_name == "Stable"
    assert group.join("new")["memberEpoch"] == 2
    assert group.owned["new"] == set()
    assert group.classic_beat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = group.join_classic(old, 0, 1, 2, 3)  # it has to give up two of them first
    assert (joined["generationId"], joined["protocolName"], joined["members"]) == (1, "range", [])
    kept = group.assigned(old, 1)
    assert len(kept) == 2
    assert group.classic_beat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.join_classic(old, *kept)["generationId"] == 2
    assert group.assigned(old, 2) == kept
    assert group.classic_beat(old, 2) is ErrorCode.NONE
    group.beat("new")
    assert group.owned["new"] == {0, 1, 2, 3} - kept
    assert group.group.state_name == "Stable"
    types = {each["memberId"]: each["memberType"] for each in group.group.described()["members"]}
    assert types == {old: 0, "new": 1}
    assert group.restored().state == group.group.state
    assert group.quit(old) == [ErrorCode.NONE]
    group.beat("new")
    assert group.owned["new"] == {0, 1, 2, 3}
    assert not group.driver.successors


def test_the_classic_group_ends_with_the_first_record_of_the_other() -> None:
    group, _ = upgraded()
    classic = group.driver.group
    group.driver.outcome = None
    group.join("new")
    assert classic.state_name == "Stable"
    group.driver.store(ErrorCode.NONE)
    assert classic.state_name == "Dead"
    assert group.group.replaces is None
    latest = dict(group.driver.stored)
    keys = {key[:2] for key, value in latest.items() if value is None}
    assert keys == {b"\0\2"}  # GroupMetadata


def test_an_upgrade_that_is_not_stored_leaves_the_classic_group_alone() -> None:
    group, old = upgraded()
    classic = group.driver.group
    group.driver.outcome = ErrorCode.NOT_COORDINATOR
    assert group.join("new").code is ErrorCode.NOT_COORDINATOR
    assert not group.group.is_stored
    assert group.group.replaces is classic
    group.group.stop()  # as the coordinator does when it takes the group back
    assert classic.heartbeat(old, None, 1) is ErrorCode.NONE
    assert ("g", "heartbeat", old) in group.driver.timers.due
    assert ("g", "session", old) not in group.driver.timers.due


def test_eager_members_get_their_partitions_one_rebalance_later() -> None:
    group, old = upgraded()
    group.join("new")
    joined = group.join_classic(old)  # it gave everything up before it joined again
    assert joined["generationId"] == 2
    kept = group.assigned(old, 2)
    assert len(kept) == 2
    group.beat("new")
    assert group.owned["new"] == {0, 1, 2, 3} - kept


def test_a_member_is_told_when_partitions_become_free() -> None:
    group = Mixed()
    group.join("new")
    old = group.join_classic()["memberId"]
    assert group.assigned(old, 2) == set()
    assert group.classic_beat(old, 2) is ErrorCode.NONE  # the other one has them still
    group.beat("new")
    assert group.classic_beat(old, 2) is ErrorCode.NONE
    group.beat("new")
    assert group.classic_beat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    group.join_classic(old)
    assert group.assigned(old, 2) == {0, 1, 2, 3} - group.owned["new"]


def test_the_last_consumer_that_leaves_makes_a_classic_group() -> None:
    group, old = upgraded()
    group.join("new")
    group.join_classic(old)
    group.beat("new")
    group.send("new", -1)
    (classic,) = group.driver.successors
    assert isinstance(classic, ClassicGroup)
    assert (classic.state_name, classic.generation) == ("PreparingRebalance", 2)
    assert set(classic.members) == {old}
    assert group.group.state_name == "Dead"
    latest = dict(group.driver.stored)
    kept = {key[:2] for key, value in latest.items() if value is not None}
    assert kept == {b"\0\2"}
    code = classic.heartbeat(old, None, 2)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_classic_member_in_place_of_the_last_consumer() -> None:
    group = Mixed()
    group.join("new", instance_id="i")
    group.send("new", -2, instance_id="i")
    joined = group.join_classic(instance_id="i")
    (classic,) = group.driver.successors
    assert isinstance(classic, ClassicGroup)
    assert classic.state_name == "Stable"  # the same subscription: no rebalance
    (member,) = classic.members.values()
    assert member.member_id == joined["memberId"]
    assigned, _ = parse_assignment(member.assignment)
    assert assigned == {"orders": frozenset(range(4))}


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_without_downgrades_the_group_stays_a_consumer_group(policy: str) -> None:
    group = Mixed(group_consumer_migration_policy=policy)
    group.join("new")
    old = group.join_classic()["memberId"]
    group.send("new", -1)
    assert not group.driver.successors
    assert group.classic_beat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.join_classic(old)["generationId"] == 3
    assert group.assigned(old, 3) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("policy", "max_size", "message"),
    [
        ("disabled", 9, "online upgrade is disabled"),
        ("downgrade", 9, "online upgrade is disabled"),
        ("upgrade", 0, "the group size exceeds"),
    ],
)
def test_upgrades_are_refused_by_setting(policy: str, max_size: int, message: str) -> None:
    driver = Driver()
    driver.join(metadata=subscription())
    with pytest.raises(RefusedHeartbeatError, match=message) as refused:
        check_upgrade(driver.group, policy, max_size)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_of_other_protocols_are_not_upgraded() -> None:
    driver = Driver()
    driver.join(protocol_type="connect")
    with pytest.raises(RefusedHeartbeatError, match="consumer embedded protocol"):
        check_upgrade(driver.group, "bidirectional", 9)


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1\0\0\0\5", b"\xff\xff\0\0\0\0"])
def test_what_members_said_has_to_be_readable(metadata: bytes) -> None:
    driver = Driver()
    driver.join(metadata=metadata)
    with pytest.raises(RefusedHeartbeatError, match="malformed"):
        consumer_state(driver.group, driver.world.topic_of)


def test_assignments_of_custom_assignors_are_not_lost() -> None:
    driver = Driver()
    joined = driver.join(metadata=subscription())
    driver.timers.advance(1)
    leader = joined["memberId"]
    assignment = encode_consumer_assignment({}, 1)[:-4] + b"\0\0\0\1x"
    driver.sync(leader, joined["generationId"], {leader: assignment})
    with pytest.raises(RefusedHeartbeatError, match="custom assignor"):
        consumer_state(driver.group, driver.world.topic_of)


def test_requests_of_classic_members_are_checked() -> None:
    group = Mixed()
    group.join("new")
    old = group.join_classic()["memberId"]
    other = (MemberProtocol("sticky", subscription()),)
    assert group.join_classic(protocols=other).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.join_classic(protocols=()).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.join_classic(protocol_type="connect").code is (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    refused = group.join_classic(member_id=old, protocol_type="connect")
    assert (refused.code, refused["memberId"]) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    garbage = (MemberProtocol("range", b"\0"),)
    assert group.join_classic(protocols=garbage).code is ErrorCode.UNKNOWN_SERVER_ERROR
    required = group.join_classic(needs_member_id=True)
    assert required.code is ErrorCode.MEMBER_ID_REQUIRED
    assert required["memberId"]
    assert group.sync("new", 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.sync(old, 1).code is ErrorCode.ILLEGAL_GENERATION
    assert group.sync("nobody", 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.classic_beat("new", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.classic_beat(old, 1) is ErrorCode.ILLEGAL_GENERATION
    assert group.quit(old, "nobody") == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert group.quit("nobody") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_commits_of_classic_members_name_their_generation() -> None:
    group = Mixed()
    group.join("new")
    old = group.join_classic()["memberId"]
    group.assigned(old, 2)

    def check(generation: int, version: int = 5) -> ErrorCode:
        identity = CommittingMember(old, None, generation, is_transactional=False, version=version)
        return group.group.check_commit(identity)

    assert check(2) is ErrorCode.NONE
    assert check(1) is ErrorCode.ILLEGAL_GENERATION
    assert group.group.check_fetch(old, 1) is ErrorCode.ILLEGAL_GENERATION
    outside = CommittingMember("", None, -1, is_transactional=True, version=5)
    assert group.group.check_commit(outside) is ErrorCode.NONE


@pytest.mark.parametrize("forgets", ["session", "join", "sync"])
def test_a_classic_member_that_forgets_a_step_is_removed(forgets: str) -> None:
    group = Mixed()
    group.join("new")
    old = group.join_classic()["memberId"]
    group.beat("new")
    group.beat("new")

    def wait(duration_ms: int, *, is_alive: bool) -> None:
        for _ in range(duration_ms // 5_000):
            group.driver.timers.advance(5_000)
            group.beat("new", owned=None)
            if is_alive and old in group.group.state.members:
                group.classic_beat(old, group.group.state.members[old].epoch)

    if forgets == "sync":
        wait(REBALANCE_MS, is_alive=True)
    elif forgets == "session":
        group.assigned(old, 2)
        wait(SESSION_MS, is_alive=False)
    else:
        group.assigned(old, 2)
        group.join("third")
        assert group.classic_beat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        wait(REBALANCE_MS, is_alive=True)
    assert old not in group.group.state.members
