"""Consumer groups (KIP-848) over the wire: heartbeats, descriptions, offsets, restarts."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlog import LogManager
from streamlog.gateway import Gateway, serve
from streamlog.gateway.error_codes import ErrorCode
from streamlog.protocol.internal_topics import Decoder, decode_internal
from tests.gateway.wire_client import WireClient

_CONSUMER = {"memberId": "", "protocolType": "consumer"}


@pytest.fixture
def topic_id(root: Path) -> str:
    with LogManager.open(str(root), create=True) as manager:
        return str(manager.create_topic("orders", 4).topic_id)


@pytest.fixture
def gateway(root: Path, topic_id: str) -> Iterator[Gateway]:
    with serve(root) as running:
        yield running


def beat(client: WireClient, member_id: str, epoch: int, **values: Any) -> dict[str, Any]:
    version = values.pop("version", 1)
    given = {"groupId": "g", "memberId": member_id, "memberEpoch": epoch}
    return client.call("ConsumerGroupHeartbeat", version, **{**given, **values})


def join(client: WireClient, member_id: str, **values: Any) -> dict[str, Any]:
    given = {
        "rebalanceTimeoutMs": 60_000,
        "subscribedTopicNames": ["orders"],
        "topicPartitions": [],
    }
    return beat(client, member_id, 0, **{**given, **values})


def partitions(answer: dict[str, Any]) -> list[int]:
    return [
        each for topic in answer["assignment"]["topicPartitions"] for each in topic["partitions"]
    ]


def describe(client: WireClient, group_id: str = "g", version: int = 1) -> dict[str, Any]:
    answer = client.call("ConsumerGroupDescribe", version, groupIds=[group_id])
    group: dict[str, Any] = answer["groups"][0]
    return group


def owned(topic_id: str, *numbers: int) -> list[dict[str, Any]]:
    return [{"topicId": topic_id, "partitions": list(numbers)}]


def test_a_first_member_gets_everything(client: WireClient, topic_id: str) -> None:
    answer = join(client, "a")
    assert answer["errorCode"] == ErrorCode.NONE
    assert (answer["memberId"], answer["memberEpoch"]) == ("a", 1)
    assert answer["heartbeatIntervalMs"] == 5000
    assert answer["assignment"]["topicPartitions"] == owned(topic_id, 0, 1, 2, 3)
    assert beat(client, "a", 1)["assignment"] is None


def test_version_0_lets_the_server_choose_the_member_id(client: WireClient, topic_id: str) -> None:
    answer = join(client, "", version=0)
    assert answer["errorCode"] == ErrorCode.NONE
    assert len(answer["memberId"]) == 36
    assert join(client, "", version=1)["errorCode"] == ErrorCode.INVALID_REQUEST


def test_partitions_move_once_they_are_given_up(client: WireClient, topic_id: str) -> None:
    join(client, "a")
    second = join(client, "b")
    assert (second["memberEpoch"], partitions(second)) == (2, [])
    told = beat(client, "a", 1, topicPartitions=owned(topic_id, 0, 1, 2, 3))
    assert told["memberEpoch"] == 1
    kept = partitions(told)
    assert len(kept) == 2
    assert beat(client, "b", 2)["assignment"] is None
    done = beat(client, "a", 1, topicPartitions=owned(topic_id, *kept))
    assert done["memberEpoch"] == 2
    assert sorted(kept + partitions(beat(client, "b", 2))) == [0, 1, 2, 3]
    group = describe(client)
    assert (group["groupState"], group["groupEpoch"], group["assignmentEpoch"]) == ("Stable", 2, 2)


def test_a_description_shows_members_and_their_partitions(
    client: WireClient, topic_id: str
) -> None:
    join(client, "a", instanceId="i", rackId="r", serverAssignor="range")
    group = describe(client)
    assert (group["groupId"], group["assignorName"]) == ("g", "range")
    (member,) = group["members"]
    expected = [{"topicId": topic_id, "topicName": "orders", "partitions": [0, 1, 2, 3]}]
    assert member["assignment"]["topicPartitions"] == expected
    assert member["targetAssignment"]["topicPartitions"] == expected
    assert (member["memberId"], member["instanceId"], member["rackId"]) == ("a", "i", "r")
    assert (member["clientId"], member["clientHost"]) == ("test", "/127.0.0.1")
    assert (member["subscribedTopicNames"], member["memberType"]) == (["orders"], 1)
    assert member["subscribedTopicRegex"] == ""
    assert describe(client, version=0)["members"][0]["memberEpoch"] == 1


def test_missing_and_classic_groups_are_no_consumer_groups(root: Path, client: WireClient) -> None:
    properties = root / ".streamlog" / "server.properties"
    properties.write_text("group.consumer.migration.policy=downgrade\n")
    assert describe(client)["errorCode"] == ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(client, "")["errorCode"] == ErrorCode.INVALID_GROUP_ID
    assert beat(client, "a", 3)["errorCode"] == ErrorCode.GROUP_ID_NOT_FOUND
    assert beat(client, "a", -1)["errorCode"] == ErrorCode.GROUP_ID_NOT_FOUND
    protocols = [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"}]
    given = {"groupId": "g", "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 30_000}
    joined = client.call("JoinGroup", 3, **given, **_CONSUMER, protocols=protocols)
    assert joined["errorCode"] == ErrorCode.NONE
    refused = join(client, "a")
    assert refused["errorCode"] == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused["errorMessage"] == (
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    )
    assert describe(client)["errorMessage"] == "Group g is not a consumer group."


def test_groups_are_listed_and_described_by_type(client: WireClient, topic_id: str) -> None:
    join(client, "a")
    listed = client.call("ListGroups", 5, typesFilter=["consumer"], statesFilter=["stable"])
    assert listed["groups"] == [
        {
            "groupId": "g",
            "protocolType": "consumer",
            "groupState": "Stable",
            "groupType": "consumer",
        }
    ]
    assert client.call("ListGroups", 5, typesFilter=["classic"])["groups"] == []
    classic = client.call("DescribeGroups", 6, groups=["g"])["groups"][0]
    assert classic["errorCode"] == ErrorCode.GROUP_ID_NOT_FOUND
    assert client.call("DeleteGroups", 2, groupsNames=["g"])["results"][0]["errorCode"] == (
        ErrorCode.NON_EMPTY_GROUP
    )


@pytest.mark.parametrize(
    ("values", "code", "message"),
    [
        ({"groupId": ""}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        ({"instanceId": ""}, ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
        ({"rackId": " "}, ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        ({"memberEpoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
        ({"memberEpoch": -2}, ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
        (
            {"rebalanceTimeoutMs": -1},
            ErrorCode.INVALID_REQUEST,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            {"topicPartitions": None},
            ErrorCode.INVALID_REQUEST,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"subscribedTopicNames": None},
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining.",
        ),
        (
            {"serverAssignor": "mine"},
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            "ServerAssignor mine is not supported. Supported assignors: uniform, range.",
        ),
        (
            {"subscribedTopicRegex": "ord("},
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            "SubscribedTopicRegex `ord(` is not a valid regular expression: missing ): ord(.",
        ),
    ],
)
def test_requests_that_break_a_rule_are_refused(
    client: WireClient, values: dict[str, Any], code: ErrorCode, message: str
) -> None:
    answer = join(client, "a", **values)
    assert (answer["errorCode"], answer["errorMessage"]) == (code, message)
    assert client.call("ListGroups", 5)["groups"] == []


def _commit(client: WireClient, topic_id: str, epoch: int, member_id: str = "a") -> int:
    partition = {"partitionIndex": 0, "committedOffset": 7, "committedMetadata": ""}
    answer = client.call(
        "OffsetCommit",
        10,
        groupId="g",
        generationIdOrMemberEpoch=epoch,
        memberId=member_id,
        topics=[{"topicId": topic_id, "partitions": [partition]}],
    )
    return int(answer["topics"][0]["partitions"][0]["errorCode"])


def _fetch(client: WireClient, topic_id: str, member_id: str | None, epoch: int) -> dict[str, Any]:
    topics = [{"topicId": topic_id, "partitionIndexes": [0]}]
    asked = {"groupId": "g", "memberId": member_id, "memberEpoch": epoch, "topics": topics}
    answer: dict[str, Any] = client.call("OffsetFetch", 10, groups=[asked])["groups"][0]
    return answer


def test_commits_and_fetches_need_the_epoch_of_the_member(
    client: WireClient, topic_id: str
) -> None:
    join(client, "a")
    assert _commit(client, topic_id, 1) == ErrorCode.NONE
    assert _commit(client, topic_id, 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert _commit(client, topic_id, 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert _commit(client, topic_id, 1, "b") == ErrorCode.UNKNOWN_MEMBER_ID
    assert _commit(client, topic_id, -1, "") == ErrorCode.UNKNOWN_MEMBER_ID
    fetched = _fetch(client, topic_id, "a", 1)
    assert fetched["topics"][0]["partitions"][0]["committedOffset"] == 7
    assert _fetch(client, topic_id, "a", 0)["errorCode"] == ErrorCode.STALE_MEMBER_EPOCH
    assert _fetch(client, topic_id, "b", 1)["errorCode"] == ErrorCode.UNKNOWN_MEMBER_ID
    assert _fetch(client, topic_id, None, -1)["errorCode"] == ErrorCode.NONE
    beat(client, "a", -1)
    assert _commit(client, topic_id, -1, "") == ErrorCode.NONE


def test_a_group_survives_a_restart_of_the_server(root: Path, topic_id: str) -> None:
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        join(client, "a")
        join(client, "b", instanceId="i")
        kept = partitions(beat(client, "a", 1, topicPartitions=owned(topic_id, 0, 1, 2, 3)))
        before = describe(client)
        assert before["groupState"] == "Reconciling"
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        after = describe(client)
        by_id = {each["memberId"]: each for each in before["members"]}
        assert {each["memberId"]: each for each in after["members"]} == by_id
        assert after | {"members": []} == before | {"members": []}
        done = beat(client, "a", 1, topicPartitions=owned(topic_id, *kept))
        assert done["memberEpoch"] == 2
        assert len(partitions(beat(client, "b", 2, instanceId="i"))) == 2


def test_an_empty_group_changes_its_type(client: WireClient, topic_id: str, root: Path) -> None:
    assert _commit(client, topic_id, -1, "") == ErrorCode.NONE  # makes a classic group
    assert join(client, "a")["memberEpoch"] == 1
    assert _fetch(client, topic_id, "a", 1)["topics"][0]["partitions"][0]["committedOffset"] == 7
    protocols = [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"}]
    given = {"groupId": "g", "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 30_000}
    joined = client.call("JoinGroup", 3, **given, **_CONSUMER, protocols=protocols)
    assert joined["errorCode"] == ErrorCode.NONE  # in the consumer group
    assert {each["memberType"] for each in describe(client)["members"]} == {0, 1}
    leaving = [{"memberId": joined["memberId"], "groupInstanceId": None, "reason": None}]
    left = client.call("LeaveGroup", 5, groupId="g", members=leaving)
    assert [each["errorCode"] for each in left["members"]] == [0]
    beat(client, "a", -1)
    assert describe(client)["groupState"] == "Empty"
    joined = client.call("JoinGroup", 3, **given, **_CONSUMER, protocols=protocols)
    assert joined["errorCode"] == ErrorCode.NONE
    assert client.call("ListGroups", 5)["groups"][0]["groupType"] == "classic"


def test_deleting_an_empty_group_leaves_nothing_in_the_log(root: Path, topic_id: str) -> None:
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        join(client, "a")
        beat(client, "a", -1)
        answer = client.call("DeleteGroups", 2, groupsNames=["g"])
        assert answer["results"][0]["errorCode"] == ErrorCode.NONE
        assert client.call("ListGroups", 5)["groups"] == []
    latest: dict[bytes | None, bytes | None] = {}
    kinds = set()
    with LogManager.open(str(root)) as manager:
        for number in manager.partitions("__consumer_offsets"):
            with manager.reader("__consumer_offsets", number) as reader:
                if reader.high_watermark:
                    for record in reader.read(0, 1 << 20).records():
                        decoded = decode_internal(Decoder.OFFSETS, record)
                        assert decoded is not None
                        kinds.add(int(decoded[0]["type"]))
                        latest[record.key] = record.value
    assert kinds == {3, 4, 5, 6, 7, 8}
    assert set(latest.values()) == {None}


def test_a_topic_that_grows_or_appears_reaches_members(client: WireClient, topic_id: str) -> None:
    join(client, "a", subscribedTopicNames=["orders", "later"])
    topic = {"name": "later", "numPartitions": 1, "replicationFactor": 1}
    client.call("CreateTopics", 7, topics=[topic], timeoutMs=1000)
    answer = beat(client, "a", 1)
    assert (answer["memberEpoch"], len(partitions(answer))) == (2, 5)
    grown = {"name": "orders", "count": 6, "assignments": None}
    client.call("CreatePartitions", 3, topics=[grown], timeoutMs=1000, validateOnly=False)
    answer = beat(client, "a", 2)
    assert (answer["memberEpoch"], len(partitions(answer))) == (3, 7)


def test_a_silent_member_is_removed(root: Path, topic_id: str) -> None:
    path = root / ".streamlog" / "server.properties"
    path.write_text(
        "group.consumer.min.session.timeout.ms=300\ngroup.consumer.session.timeout.ms=300\n"
        "group.consumer.min.heartbeat.interval.ms=200\n"
        "group.consumer.heartbeat.interval.ms=200\n"
    )
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        join(client, "a")
        end = time.monotonic() + 30
        while describe(client)["members"]:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert beat(client, "a", 1)["errorCode"] == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_of_a_pattern_gets_topics_that_match(root: Path, topic_id: str) -> None:
    assert topic_id
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        given = {"subscribedTopicNames": None, "subscribedTopicRegex": "ord.*"}
        epoch = join(client, "a", **given)["memberEpoch"]
        end = time.monotonic() + 30
        while epoch < 2:  # once the pattern is resolved
            assert time.monotonic() < end
            answer = beat(client, "a", epoch)
            epoch = answer["memberEpoch"]
        assert len(partitions(answer)) == 4
        (member,) = describe(client)["members"]
        assert (member["subscribedTopicRegex"], member["subscribedTopicNames"]) == ("ord.*", [])
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        (member,) = describe(client)["members"]
        assert member["subscribedTopicRegex"] == "ord.*"
        assert beat(client, "a", 2)["memberEpoch"] == 2


def test_clients_are_told_of_the_protocol(client: WireClient) -> None:
    answer = client.call("ApiVersions", 4)
    levels = {each["name"]: each["maxVersionLevel"] for each in answer["finalizedFeatures"]}
    assert levels == {"group.version": 1, "transaction.version": 2}
    served = {each["apiKey"]: each["maxVersion"] for each in answer["apiKeys"]}
    assert (served[68], served[69]) == (1, 1)
