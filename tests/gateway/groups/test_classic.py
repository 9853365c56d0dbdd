"""The state machine of classic groups, after Kafka's GroupMetadataManagerTest."""

from typing import Any

import pytest

from streamlog.gateway.error_codes import ErrorCode
from streamlog.gateway.groups.classic import ClassicGroup
from streamlog.gateway.groups.group import CommittingMember
from streamlog.gateway.groups.members import LeavingMember
from streamlog.protocol.internal_topics import Decoder, parse_internal
from tests.gateway.groups.driver import REBALANCE_MS, SESSION_MS, Driver


# ---- JoinGroup ----------------------------------------------------------------------------------
def test_a_new_member_is_given_an_id_and_joins_with_it() -> None:
    driver = Driver()
    first = driver.join(needs_member_id=True)
    assert first.code is ErrorCode.MEMBER_ID_REQUIRED
    assert first["memberId"].startswith("c-")
    assert driver.group.state_name == "Empty"
    second = driver.join(first["memberId"], needs_member_id=True)
    driver.timers.advance(1)
    assert second.code is ErrorCode.NONE
    assert second["leader"] == second["memberId"] == first["memberId"]
    assert second["generationId"] == 1
    assert [each["metadata"] for each in second["members"]] == [b"m"]
    assert driver.group.state_name == "CompletingRebalance"


def test_an_id_that_is_not_used_expires() -> None:
    driver = Driver()
    given = driver.join(needs_member_id=True)["memberId"]
    driver.timers.advance(SESSION_MS)
    assert driver.join(given).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.group.is_empty and not driver.timers.due


def test_an_unknown_id_is_refused() -> None:
    driver = Driver()
    driver.stable()
    assert driver.join("nobody").code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("", "range"), ("consumer", ""), ("connect", "x")]
)
def test_protocols_must_fit_the_group(protocol_type: str, protocols: str) -> None:
    driver = Driver()
    if protocol_type == "connect":
        driver.stable()
    answer = driver.join(protocol_type=protocol_type, protocols=protocols)
    assert answer.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_is_one_that_all_support_and_most_prefer() -> None:
    driver = Driver()
    answers = [
        driver.join(protocols="sticky,range,other"),
        driver.join(protocols="range,sticky"),
        driver.join(protocols="range,sticky,rare"),
    ]
    driver.timers.advance(1)
    assert {answer["protocolName"] for answer in answers} == {"range"}
    assert driver.join(protocols="other").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_new_group_waits_for_more_members_up_to_the_rebalance_timeout() -> None:
    driver = Driver(group_initial_rebalance_delay_ms=3000)
    first = driver.join(rebalance_ms=8000)
    driver.timers.advance(2000)
    second = driver.join(rebalance_ms=8000)
    driver.timers.advance(2000)
    assert first.waits  # the second one prolonged the delay
    third = driver.join(rebalance_ms=8000)
    driver.timers.advance(3999)
    assert first.waits
    driver.timers.advance(1)  # 8000 in all
    assert [each["generationId"] for each in (first, second, third)] == [1, 1, 1]
    assert len(first["members"]) == 3
    assert second["members"] == []


def test_a_join_makes_a_stable_group_rebalance_and_keeps_its_leader() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    newcomer = driver.join()
    assert driver.group.state_name == "PreparingRebalance"
    assert driver.beat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = [driver.join(leader), driver.join(follower)]
    for answer in (newcomer, *again):
        assert answer["generationId"] == 2
        assert answer["leader"] == leader
    assert len(again[0]["members"]) == 3


def test_members_that_do_not_rejoin_in_time_are_removed() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    newcomer = driver.join()
    again = driver.join(follower)
    for _ in range(REBALANCE_MS // 5000):  # the leader is alive but does not join
        driver.beat(leader, 1)
        driver.timers.advance(5000)
    assert again["generationId"] == newcomer["generationId"] == 2
    assert again["leader"] == follower
    assert driver.beat(leader, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_follower_that_joins_unchanged_gets_the_current_generation() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    same = driver.join(follower)
    assert (same["generationId"], same["members"]) == (1, [])
    assert driver.group.state_name == "Stable"
    assert driver.join(follower, metadata=b"other").waits
    assert driver.group.state_name == "PreparingRebalance"
    assert driver.beat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_joins_makes_the_group_rebalance() -> None:
    driver = Driver()
    leader, _ = driver.stable(2)
    assert driver.join(leader).waits
    assert driver.group.state_name == "PreparingRebalance"


def test_a_join_answer_that_was_lost_is_repeated() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    driver.timers.advance(1)
    leader, follower = first["memberId"], second["memberId"]
    repeated = driver.join(leader)
    assert repeated["generationId"] == 1
    assert len(repeated["members"]) == 2
    assert driver.join(follower)["members"] == []
    assert driver.group.state_name == "CompletingRebalance"


def test_the_size_of_a_group_is_limited() -> None:
    driver = Driver(group_max_size=2)
    leader, follower = driver.stable(2)
    assert driver.join().code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.group.state_name == "Stable"
    again = [driver.join(leader), driver.join(follower, metadata=b"x")]
    assert [each["generationId"] for each in again] == [2, 2]


def test_a_limit_that_was_lowered_sends_away_the_last_to_rejoin() -> None:
    driver = Driver()
    members = driver.stable(3)
    driver.settings = type(driver.settings)(group_max_size=2)
    answers = [driver.join(each, metadata=b"new") for each in members]
    assert answers[2].code is ErrorCode.GROUP_MAX_SIZE_REACHED
    # The other two are all members that are left.
    driver.timers.advance(REBALANCE_MS)
    assert {answers[0]["generationId"], answers[1]["generationId"]} == {2}


# ---- SyncGroup ----------------------------------------------------------------------------------
def test_assignments_are_handed_out_once_they_are_in_the_log() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    driver.timers.advance(1)
    driver.outcome = None
    leader, follower = first["memberId"], second["memberId"]
    of_leader = driver.sync(leader, 1, {follower: b"all"})
    of_follower = driver.sync(follower, 1)
    assert of_leader.waits
    assert driver.group.state_name == "CompletingRebalance"
    driver.store(ErrorCode.NONE)
    assert (of_leader["assignment"], of_follower["assignment"]) == (b"", b"all")
    assert driver.sync(follower, 1)["assignment"] == b"all"  # asked for again


def test_an_assignment_that_cannot_be_stored_makes_the_group_rebalance() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    driver.timers.advance(1)
    leader, follower = first["memberId"], second["memberId"]
    driver.outcome = ErrorCode.COORDINATOR_NOT_AVAILABLE
    waiting = driver.sync(follower, 1)
    failed = driver.sync(leader, 1, {leader: b"all"})
    assert waiting.code is failed.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.group.state_name == "PreparingRebalance"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
    ],
)
def test_a_sync_must_fit_the_generation(change: dict[str, str], expected: ErrorCode) -> None:
    driver = Driver()
    (member,) = driver.stable()
    wanted: dict[str, Any] = {"member_id": member, "generation": 1, **change}
    assert driver.sync(**wanted).code is expected


def test_a_sync_during_a_rebalance_is_sent_back_to_join() -> None:
    driver = Driver()
    leader, _follower = driver.stable(2)
    driver.join()
    assert driver.sync(leader, 1).code is ErrorCode.REBALANCE_IN_PROGRESS
    driver = Driver()
    first, second = driver.join(), driver.join()
    driver.timers.advance(1)
    waiting = driver.sync(second["memberId"], 1)
    driver.join()
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert first["generationId"] == 1


def test_members_that_never_sync_are_removed() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    driver.timers.advance(1)
    leader, idle = first["memberId"], second["memberId"]
    driver.sync(leader, 1, {leader: b"all"})
    for _ in range(REBALANCE_MS // 5000):
        assert driver.beat(leader, 1) is ErrorCode.NONE
        driver.beat(idle, 1)
        driver.timers.advance(5000)
    assert driver.beat(idle, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.beat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS


# ---- Heartbeat, sessions, LeaveGroup ------------------------------------------------------------
def test_a_silent_member_is_removed_and_the_others_rebalance() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.timers.advance(SESSION_MS - 1)
    assert driver.beat(leader, 1) is ErrorCode.NONE
    driver.timers.advance(1)
    assert driver.beat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.beat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join(leader)["generationId"] == 2


def test_a_commit_keeps_a_session_alive() -> None:
    driver = Driver()
    (member,) = driver.stable()
    driver.timers.advance(SESSION_MS - 1)
    driver.group.committed(member)
    driver.timers.advance(SESSION_MS - 1)
    assert driver.beat(member, 1) is ErrorCode.NONE


def test_a_member_that_waits_in_a_join_does_not_expire() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    waiting = driver.join(follower, metadata=b"x")
    for _ in range(4):
        driver.beat(leader, 1)
        driver.timers.advance(SESSION_MS // 2)
    assert waiting.waits
    assert driver.join(leader)["generationId"] == waiting["generationId"] == 2


def test_a_new_member_whose_join_waits_forever_is_removed() -> None:
    driver = Driver()
    (leader,) = driver.stable()
    newcomer = driver.join(rebalance_ms=10 * 60_000)
    for _ in range(60):
        driver.beat(leader, 1)
        driver.timers.advance(5000)
    assert newcomer.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_leaves_an_empty_group() -> None:
    driver = Driver()
    (member,) = driver.stable()
    assert driver.group.leave([LeavingMember(member, None)]) == [ErrorCode.NONE]
    assert driver.group.state_name == "Empty"
    assert driver.group.generation == 2
    assert not [key for key in driver.timers.due if "heartbeat" in str(key)]
    record = parse_internal(Decoder.OFFSETS, *driver.stored[-1])
    assert record is not None
    assert record.value is not None
    assert (record.value["members"], record.value["protocol"]) == ([], None)
    assert driver.beat(member, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_answers_each_member() -> None:
    driver = Driver()
    leader, follower = driver.stable(2, static=True)
    assert driver.group.leave(
        [
            LeavingMember("nobody", None),
            LeavingMember("", "i9"),
            LeavingMember(leader, "i1"),
            LeavingMember("", "i1"),
        ]
    ) == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.NONE,
    ]
    assert driver.beat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.beat(leader, 1, "i0") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_leaves_while_it_joins_is_answered() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    waiting = driver.join(follower, metadata=b"x")
    driver.group.leave([LeavingMember(follower, None)])
    assert waiting.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.join(leader)["generationId"] == 2


def test_a_pending_id_holds_up_a_rebalance_until_it_leaves() -> None:
    driver = Driver()
    (leader,) = driver.stable()
    pending = driver.join(needs_member_id=True)["memberId"]
    again = driver.join(leader)
    assert again.waits
    driver.group.leave([LeavingMember(pending, None)])
    assert again["generationId"] == 2


# ---- static members -----------------------------------------------------------------------------
def test_a_static_member_that_restarts_keeps_its_place_without_a_rebalance() -> None:
    driver = Driver()
    leader, follower = driver.stable(2, static=True)
    again = driver.join(instance_id="i1")
    renamed = again["memberId"]
    assert renamed.startswith("i1-")
    assert renamed != follower
    assert (again["generationId"], again["leader"]) == (1, leader)
    assert again["skipAssignment"] is False
    assert driver.group.state_name == "Stable"
    assert driver.sync(renamed, 1, instance_id="i1")["assignment"] == f"to {follower}".encode()
    assert driver.beat(follower, 1, "i1") is ErrorCode.FENCED_INSTANCE_ID
    assert driver.sync(follower, 1, instance_id="i1").code is ErrorCode.FENCED_INSTANCE_ID
    assert driver.join(follower, instance_id="i1").code is ErrorCode.FENCED_INSTANCE_ID
    assert driver.beat(renamed, 1, "i9") is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("can_skip", [True, False])
def test_a_static_leader_that_restarts(can_skip: bool) -> None:
    driver = Driver()
    leader, _ = driver.stable(2, static=True)
    again = driver.join(instance_id="i0", can_skip_assignment=can_skip)
    if can_skip:
        assert again["leader"] == again["memberId"]
        assert again["skipAssignment"] is True
        assert len(again["members"]) == 2
    else:  # it must not assign
        assert again["leader"] == leader != again["memberId"]
        assert again["members"] == []


def test_a_new_static_id_that_cannot_be_stored_is_taken_back() -> None:
    driver = Driver()
    _, follower = driver.stable(2, static=True)
    driver.outcome = ErrorCode.NOT_COORDINATOR
    assert driver.join(instance_id="i1").code is ErrorCode.NOT_COORDINATOR
    assert driver.beat(follower, 1, "i1") is ErrorCode.NONE


def test_a_static_member_that_restarts_with_another_protocol_rebalances() -> None:
    driver = Driver()
    first = driver.join(instance_id="i0", protocols="range,sticky")
    driver.timers.advance(1)
    driver.sync(first["memberId"], 1, {})
    again = driver.join(instance_id="i0", protocols="sticky,range")
    assert (again["generationId"], again["protocolName"]) == (2, "sticky")


def test_a_static_member_that_does_not_rejoin_stays_until_its_session_ends() -> None:
    driver = Driver()
    leader, follower = driver.stable(2, static=True)
    again = driver.join(leader, instance_id="i0")
    for _ in range(REBALANCE_MS // 5000):  # it is alive, but does not join
        assert driver.beat(follower, 1, "i1") is ErrorCode.REBALANCE_IN_PROGRESS
        driver.timers.advance(5000)
    assert again["generationId"] == 2
    assert len(again["members"]) == 2
    assert follower in driver.group.members
    driver.timers.advance(SESSION_MS)
    assert follower not in driver.group.members


# ---- offsets ------------------------------------------------------------------------------------
def _commit(
    driver: Driver,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    *,
    is_transactional: bool = False,
) -> ErrorCode:
    return driver.group.check_commit(
        CommittingMember(member_id, instance_id, generation, is_transactional, 8)
    )


def test_who_may_commit() -> None:
    driver = Driver()
    assert _commit(driver) is ErrorCode.NONE  # from outside, to an empty group
    assert _commit(driver, "nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    (member,) = driver.stable(static=True)
    assert _commit(driver) is ErrorCode.UNKNOWN_MEMBER_ID
    assert _commit(driver, is_transactional=True) is ErrorCode.NONE
    assert _commit(driver, member, 1) is ErrorCode.NONE
    assert _commit(driver, member, 2) is ErrorCode.ILLEGAL_GENERATION
    assert _commit(driver, "nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert _commit(driver, "nobody", 1, "i0") is ErrorCode.FENCED_INSTANCE_ID
    driver.join(member, instance_id="i0")
    assert driver.group.state_name == "CompletingRebalance"
    assert _commit(driver, member, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert _commit(driver, member, 2, is_transactional=True) is ErrorCode.NONE


def test_what_the_retention_of_offsets_counts_from() -> None:
    driver = Driver()
    assert driver.group.offsets_age_from(7) == 7  # of a simple group
    subscription = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"
    member = driver.join(metadata=subscription)
    driver.timers.advance(1)
    assert driver.group.offsets_age_from(7) is None  # while it rebalances
    driver.sync(member["memberId"], 1, {})
    assert driver.group.offsets_age_from(7) == 7
    assert driver.group.is_subscribed("t")
    assert not driver.group.is_subscribed("u")
    driver.clock.advance(1000)
    driver.group.leave([LeavingMember(member["memberId"], None)])
    assert driver.group.offsets_age_from(7) == driver.clock.now_ms()
    assert not driver.group.is_subscribed("t")


# ---- records ------------------------------------------------------------------------------------
def test_a_group_comes_back_from_its_record_with_its_members() -> None:
    driver = Driver()
    leader, follower = driver.stable(2, static=True)
    record = parse_internal(Decoder.OFFSETS, *driver.stored[-1])
    assert record is not None
    assert record.value is not None
    other = Driver()
    other.group = ClassicGroup.of_record("g", record.value, other.world)
    assert other.group.described() == driver.group.described()
    assert other.group.generation == 1
    assert other.beat(leader, 1, "i0") is ErrorCode.NONE
    assert other.sync(follower, 1, instance_id="i1")["assignment"] == f"to {follower}".encode()
    other.timers.advance(SESSION_MS)  # the follower has been silent since
    assert other.beat(leader, 1, "i0") is ErrorCode.UNKNOWN_MEMBER_ID
    assert other.group.state_name == "Empty"


def test_a_stopped_group_answers_everybody_and_schedules_nothing() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    driver.timers.advance(1)
    waiting = driver.sync(second["memberId"], 1)
    late = driver.join(needs_member_id=True)
    driver.group.stop()
    assert waiting.code is ErrorCode.NOT_COORDINATOR
    assert not driver.timers.due
    assert driver.join(first["memberId"]).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.beat(late["memberId"], 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
