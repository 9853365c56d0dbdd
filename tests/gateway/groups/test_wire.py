"""Groups and offsets over the wire, in the versions that clients send."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlog import LogManager
from streamlog.gateway import Gateway, serve
from streamlog.gateway.error_codes import ErrorCode
from streamlog.topic import TopicPartition
from tests.gateway.wire_client import WireClient

_PROTOCOLS = [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"}]


@pytest.fixture
def topic_id(root: Path) -> str:
    with LogManager.open(str(root), create=True) as manager:
        return str(manager.create_topic("orders", 3).topic_id)


@pytest.fixture
def gateway(root: Path, topic_id: str) -> Iterator[Gateway]:
    with serve(root) as running:
        yield running


def _join(client: WireClient, version: int, member_id: str = "", **values: Any) -> dict[str, Any]:
    given = {
        "groupId": "g",
        "sessionTimeoutMs": 10_000,
        "rebalanceTimeoutMs": 30_000,
        "memberId": member_id,
        "protocolType": "consumer",
        "protocols": _PROTOCOLS,
    }
    return client.call("JoinGroup", version, **{**given, **values})


def _joined(client: WireClient, version: int = 9, **values: Any) -> dict[str, Any]:
    answer = _join(client, version, **values)
    if answer["errorCode"] == ErrorCode.MEMBER_ID_REQUIRED:
        answer = _join(client, version, answer["memberId"], **values)
    assert answer["errorCode"] == ErrorCode.NONE
    return answer


def _synced(client: WireClient, joined: dict[str, Any], version: int = 5) -> bytes:
    member_id = joined["memberId"]
    answer = client.call(
        "SyncGroup",
        version,
        groupId="g",
        generationId=joined["generationId"],
        memberId=member_id,
        protocolType="consumer",
        protocolName="range",
        assignments=[{"memberId": member_id, "assignment": b"all"}],
    )
    assert answer["errorCode"] == ErrorCode.NONE
    return bytes(answer["assignment"])


def _commit(
    client: WireClient, version: int, offsets: dict[int, int], topic_id: str = "", **values: Any
) -> list[int]:
    partitions = [
        {"partitionIndex": number, "committedOffset": offset, "committedMetadata": f"m{offset}"}
        for number, offset in offsets.items()
    ]
    topic: dict[str, Any] = {"name": "orders", "partitions": partitions}
    if version >= 10:
        topic["topicId"] = topic_id
    answer = client.call("OffsetCommit", version, **{"groupId": "g", "topics": [topic], **values})
    return [each["errorCode"] for each in answer["topics"][0]["partitions"]]


def _fetch(
    client: WireClient, version: int, topic_id: str = "", group: str = "g", **values: Any
) -> dict[int, tuple[int, str, int]]:
    topic: dict[str, Any] = {"name": "orders", "partitionIndexes": [0, 1, 2]}
    if version >= 10:
        topic["topicId"] = topic_id
    if version < 8:
        answer = client.call("OffsetFetch", version, groupId=group, topics=[topic], **values)
    else:
        groups = [{"groupId": group, "topics": [topic]}]
        (answer,) = client.call("OffsetFetch", version, groups=groups, **values)["groups"]
        assert answer["groupId"] == group
    assert answer["errorCode"] == ErrorCode.NONE
    return {
        each["partitionIndex"]: (each["committedOffset"], each["metadata"], each["errorCode"])
        for each in answer["topics"][0]["partitions"]
    }


# ---- members ------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", range(10))
def test_join_sync_heartbeat_leave(client: WireClient, version: int) -> None:
    asked = _join(client, version)
    assert (asked["errorCode"] == ErrorCode.MEMBER_ID_REQUIRED) == (version >= 4)
    joined = asked if version < 4 else _join(client, version, asked["memberId"])
    assert joined["errorCode"] == ErrorCode.NONE
    assert joined["generationId"] == 1
    assert joined["leader"] == joined["memberId"]
    assert joined["protocolName"] == "range"
    assert [each["metadata"] for each in joined["members"]] == [_PROTOCOLS[0]["metadata"]]
    assert _synced(client, joined, min(version, 5)) == b"all"
    alive = {"groupId": "g", "generationId": 1, "memberId": joined["memberId"]}
    for each in range(5):
        assert client.call("Heartbeat", each, **alive)["errorCode"] == ErrorCode.NONE
    stale = {**alive, "generationId": 7}
    assert client.call("Heartbeat", 4, **stale)["errorCode"] == ErrorCode.ILLEGAL_GENERATION
    leaving = [{"memberId": joined["memberId"]}, {"memberId": "nobody"}]
    left = client.call(
        "LeaveGroup",
        min(version, 5),
        groupId="g",
        memberId=joined["memberId"],
        members=leaving,
    )
    assert left["errorCode"] == ErrorCode.NONE
    if version >= 3:
        assert [each["errorCode"] for each in left["members"]] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]
    assert client.call("Heartbeat", 4, **alive)["errorCode"] == ErrorCode.UNKNOWN_MEMBER_ID


def test_requests_that_name_no_group_or_an_odd_session_are_refused(client: WireClient) -> None:
    assert _join(client, 9, groupId="")["errorCode"] == ErrorCode.INVALID_GROUP_ID
    for session_ms in (5999, 1_800_001):
        answer = _join(client, 9, sessionTimeoutMs=session_ms)
        assert answer["errorCode"] == ErrorCode.INVALID_SESSION_TIMEOUT
    assert _join(client, 9, "nobody")["errorCode"] == ErrorCode.UNKNOWN_MEMBER_ID
    for api, version in (("SyncGroup", 5), ("Heartbeat", 4), ("LeaveGroup", 5)):
        answer = client.call(api, version, groupId="", members=[])
        assert answer["errorCode"] == ErrorCode.INVALID_GROUP_ID
        answer = client.call(api, version, groupId="none", memberId="x", members=[])
        if api != "LeaveGroup":
            assert answer["errorCode"] == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_of_two_connections(gateway: Gateway, client: WireClient) -> None:
    first = _joined(client)
    _synced(client, first)
    with WireClient(gateway.bootstrap_servers) as other:
        given = _join(other, 9)["memberId"]
        waiting = other.send("JoinGroup", 9, **_joining(given))
        alive = {"groupId": "g", "generationId": 1, "memberId": first["memberId"]}
        while client.call("Heartbeat", 4, **alive)["errorCode"] == ErrorCode.NONE:
            pass
        again = _join(client, 9, first["memberId"])
        joined = other.receive("JoinGroup", 9, waiting)
        assert again["generationId"] == joined["generationId"] == 2
        assert {each["memberId"] for each in again["members"]} == {
            first["memberId"],
            joined["memberId"],
        }
        assert joined["members"] == []


def _joining(member_id: str) -> dict[str, Any]:
    return {
        "groupId": "g",
        "sessionTimeoutMs": 10_000,
        "rebalanceTimeoutMs": 30_000,
        "memberId": member_id,
        "protocolType": "consumer",
        "protocols": _PROTOCOLS,
    }


# ---- offsets ------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_and_fetched(client: WireClient, topic_id: str, version: int) -> None:
    assert _commit(client, version, {0: 5, 2: 7}, topic_id) == [ErrorCode.NONE] * 2
    for each in range(1, 11):
        assert _fetch(client, each, topic_id) == {
            0: (5, "m5", ErrorCode.NONE),
            1: (-1, "", ErrorCode.NONE),
            2: (7, "m7", ErrorCode.NONE),
        }


def test_commits_are_refused_one_by_one(client: WireClient, topic_id: str) -> None:
    assert _commit(client, 9, {0: 1, 9: 1}) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    other_id = "AAAAAAAAAAAAAAAAAAAABQ"
    assert _commit(client, 10, {0: 1}, other_id) == [ErrorCode.UNKNOWN_TOPIC_ID]
    long = [{"partitionIndex": 0, "committedOffset": 1, "committedMetadata": "x" * 4097}]
    topics = [{"name": "orders", "partitions": long}]
    answer = client.call("OffsetCommit", 8, groupId="g", topics=topics)
    code = answer["topics"][0]["partitions"][0]["errorCode"]
    assert code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert _fetch(client, 10, topic_id)[0] == (1, "m1", ErrorCode.NONE)
    assert _fetch(client, 10, other_id)[0] == (-1, "", ErrorCode.UNKNOWN_TOPIC_ID)


def test_offsets_of_unknown_topics_come_last(client: WireClient, topic_id: str) -> None:
    unknown = "AAAAAAAAAAAAAAAAAAAABQ"
    topics = [{"topicId": each, "partitionIndexes": [0]} for each in (unknown, topic_id)]
    (group,) = client.call("OffsetFetch", 10, groups=[{"groupId": "g", "topics": topics}])["groups"]
    assert [(each["topicId"], each["partitions"][0]["errorCode"]) for each in group["topics"]] == [
        (topic_id, ErrorCode.NONE),
        (unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_who_may_commit(client: WireClient) -> None:
    generation: dict[str, Any] = {"generationIdOrMemberEpoch": 3, "memberId": "x"}
    assert _commit(client, 8, {0: 1}, **generation) == [ErrorCode.ILLEGAL_GENERATION]
    assert _commit(client, 9, {0: 1}, **generation) == [ErrorCode.GROUP_ID_NOT_FOUND]
    joined = _joined(client)
    _synced(client, joined)
    member = {"memberId": joined["memberId"], "generationIdOrMemberEpoch": 1}
    assert _commit(client, 9, {0: 1}, **member) == [ErrorCode.NONE]
    assert _commit(client, 9, {0: 1}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    member["generationIdOrMemberEpoch"] = 2
    assert _commit(client, 9, {0: 1}, **member) == [ErrorCode.ILLEGAL_GENERATION]


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group(client: WireClient, topic_id: str, version: int) -> None:
    _commit(client, 9, {1: 4})
    if version < 8:
        answer = client.call("OffsetFetch", version, groupId="g", topics=None)
    else:
        groups = [{"groupId": "g", "topics": None}, {"groupId": "other", "topics": None}]
        answer, other = client.call("OffsetFetch", version, groups=groups)["groups"]
        assert other["topics"] == []
    (topic,) = answer["topics"]
    assert (topic["topicId"] if version >= 10 else topic["name"]) in (topic_id, "orders")
    assert [each["committedOffset"] for each in topic["partitions"]] == [4]


def test_offsets_are_deleted_but_not_of_topics_that_are_read(client: WireClient) -> None:
    _commit(client, 9, {0: 4, 1: 5})
    topics = [{"name": "orders", "partitions": [{"partitionIndex": n} for n in (0, 7)]}]
    answer = client.call("OffsetDelete", 0, groupId="g", topics=topics)
    assert [each["errorCode"] for each in answer["topics"][0]["partitions"]] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [each[0] for each in _fetch(client, 8).values()] == [-1, 5, -1]
    _synced(client, _joined(client))
    answer = client.call("OffsetDelete", 0, groupId="g", topics=topics)
    code = answer["topics"][0]["partitions"][0]["errorCode"]
    assert code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    answer = client.call("OffsetDelete", 0, groupId="none", topics=topics)
    assert answer["errorCode"] == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_go_with_their_topic(client: WireClient) -> None:
    _commit(client, 9, {0: 4})
    answer = client.call("DeleteTopics", 6, topics=[{"name": "orders"}])
    assert answer["responses"][0]["errorCode"] == ErrorCode.NONE
    groups = [{"groupId": "g", "topics": None}]
    assert client.call("OffsetFetch", 9, groups=groups)["groups"][0]["topics"] == []


# ---- administration -----------------------------------------------------------------------------
@pytest.mark.parametrize("version", range(6))
def test_list_groups(client: WireClient, version: int) -> None:
    _synced(client, _joined(client))
    _commit(client, 9, {0: 1}, groupId="simple")
    answer = client.call("ListGroups", version)
    assert {each["groupId"]: each["protocolType"] for each in answer["groups"]} == {
        "g": "consumer",
        "simple": "",
    }
    if version >= 4:
        states = {each["groupId"]: each["groupState"] for each in answer["groups"]}
        assert states == {"g": "Stable", "simple": "Empty"}
        (stable,) = client.call("ListGroups", version, statesFilter=["stable"])["groups"]
        assert stable["groupId"] == "g"
    if version >= 5:
        assert len(client.call("ListGroups", 5, typesFilter=["Classic"])["groups"]) == 2
        assert client.call("ListGroups", 5, typesFilter=["consumer"])["groups"] == []


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(client: WireClient, version: int) -> None:
    joined = _joined(client)
    _synced(client, joined)
    asked = {"groups": ["g", "none"], "includeAuthorizedOperations": version >= 3}
    found, missing = client.call("DescribeGroups", version, **asked)["groups"]
    assert (found["groupState"], found["protocolData"]) == ("Stable", "range")
    (member,) = found["members"]
    assert member["memberId"] == joined["memberId"]
    assert (member["clientId"], member["clientHost"]) == ("test", "/127.0.0.1")
    assert member["memberAssignment"] == b"all"
    assert member["memberMetadata"] == _PROTOCOLS[0]["metadata"]
    not_asked = -(2**31)
    assert found["authorizedOperations"] == (3400 if version >= 3 else not_asked)
    assert missing["authorizedOperations"] == (3400 if 3 <= version < 6 else not_asked)
    assert missing["groupState"] == "Dead"
    assert missing["errorCode"] == (
        ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    )


@pytest.mark.parametrize("version", range(3))
def test_delete_groups(client: WireClient, topic_id: str, version: int) -> None:
    _commit(client, 9, {0: 1}, groupId="simple")
    _synced(client, _joined(client))
    names = ["simple", "g", "none", ""]
    results = client.call("DeleteGroups", version, groupsNames=names)["results"]
    assert {each["groupId"]: each["errorCode"] for each in results} == {
        "simple": ErrorCode.NONE,
        "g": ErrorCode.NON_EMPTY_GROUP,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
        "": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert [each["groupId"] for each in client.call("ListGroups", 5)["groups"]] == ["g"]
    assert _fetch(client, 10, topic_id, group="simple")[0][0] == -1


# ---- restarts -----------------------------------------------------------------------------------
def test_members_and_offsets_survive_a_restart(root: Path, topic_id: str) -> None:
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        joined = _joined(client, groupInstanceId="i0")
        _synced_static(client, joined)
        member = {"memberId": joined["memberId"], "generationIdOrMemberEpoch": 1}
        assert _commit(client, 9, {0: 8}, groupInstanceId="i0", **member) == [ErrorCode.NONE]
        _commit(client, 9, {0: 1}, groupId="gone")
        client.call("DeleteGroups", 2, groupsNames=["gone"])
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        alive = {"groupId": "g", "generationId": 1, "memberId": joined["memberId"]}
        answer = client.call("Heartbeat", 4, groupInstanceId="i0", **alive)
        assert answer["errorCode"] == ErrorCode.NONE
        assert _fetch(client, 10, topic_id)[0] == (8, "m8", ErrorCode.NONE)
        (group,) = client.call("ListGroups", 5)["groups"]
        assert (group["groupId"], group["groupState"]) == ("g", "Stable")
        again = _join(client, 9, groupInstanceId="i0")
        assert again["generationId"] == 1
        assert again["skipAssignment"] is True


def _synced_static(client: WireClient, joined: dict[str, Any]) -> None:
    answer = client.call(
        "SyncGroup",
        5,
        groupId="g",
        generationId=1,
        memberId=joined["memberId"],
        groupInstanceId="i0",
        assignments=[{"memberId": joined["memberId"], "assignment": b"all"}],
    )
    assert answer["errorCode"] == ErrorCode.NONE


def test_a_stop_answers_members_that_wait(root: Path, topic_id: str) -> None:
    assert topic_id
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        _synced(client, _joined(client))
        with WireClient(gateway.bootstrap_servers) as other:
            waiting = other.send("JoinGroup", 9, **_joining(_join(other, 9)["memberId"]))
            while (
                client.call("DescribeGroups", 5, groups=["g"])["groups"][0]["groupState"]
                != "PreparingRebalance"
            ):
                pass
            gateway.stop()
            answer = other.receive("JoinGroup", 9, waiting)
            assert answer["errorCode"] == ErrorCode.NOT_COORDINATOR


def test_the_offsets_topic_is_created_as_kafka_creates_it(root: Path, client: WireClient) -> None:
    assert _commit(client, 9, {0: 1}) == [ErrorCode.NONE]
    with LogManager.open(str(root)) as manager:
        found = manager.describe("__consumer_offsets")
        assert len(found.partitions) == 50
        config = manager.topic_config("__consumer_offsets")
        assert (config.segment_bytes, config.compression_type) == (100 << 20, "producer")
        # abs("g".hashCode()) % 50
        reader = manager.reader("__consumer_offsets", ord("g") % 50)
        assert reader.topic_partition == TopicPartition("__consumer_offsets", 3)
        assert reader.log_end_offset == 1
