"""What tools ask of a cluster that one broker is."""

from pathlib import Path
from typing import Any

import pytest

from streamlog import LogManager
from streamlog.gateway import GatewaySettings, serve
from streamlog.gateway.error_codes import ErrorCode
from tests.gateway.test_topics import create
from tests.gateway.test_writing import Topic, batch
from tests.gateway.wire_client import WireClient

NODE = 1
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def orders(client: WireClient) -> None:
    create(client, name="orders", numPartitions=1, replicationFactor=1)


@pytest.mark.parametrize(
    ("topic", "partition", "replicas", "code"),
    [
        ("orders", 0, [NODE], NONE),
        ("orders", 0, [NODE + 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 0, [NODE, NODE], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 0, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("orders", 7, [NODE], UNKNOWN),
        ("missing", 0, None, UNKNOWN),
    ],
)
@pytest.mark.usefixtures("orders")
def test_replicas_stay_where_they_are(
    client: WireClient, topic: str, partition: int, replicas: list[int] | None, code: ErrorCode
) -> None:
    partitions = [{"partitionIndex": partition, "replicas": replicas}]
    answer = client.call(
        "AlterPartitionReassignments",
        1,
        timeoutMs=1000,
        allowReplicationFactorChange=False,
        topics=[{"name": topic, "partitions": partitions}],
    )
    assert (answer["errorCode"], answer["allowReplicationFactorChange"]) == (NONE, False)
    (found,) = answer["responses"]
    assert (found["name"], found["partitions"][0]["errorCode"]) == (topic, code)


@pytest.mark.usefixtures("orders")
def test_the_root_is_the_only_directory(client: WireClient, root: Path) -> None:
    topics = [{"name": "orders", "partitions": [0, 7]}, {"name": "missing", "partitions": [0]}]
    for path, codes in {
        str(root): [NONE, UNKNOWN, UNKNOWN],
        "/nowhere": [ErrorCode.LOG_DIR_NOT_FOUND] * 3,
    }.items():
        dirs = [{"path": path, "topics": topics}]
        results = client.call("AlterReplicaLogDirs", 2, dirs=dirs)["results"]
        assert [each["topicName"] for each in results] == ["orders", "missing"]
        found = [part["errorCode"] for each in results for part in each["partitions"]]
        assert found == codes


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("feature", "level", "is_same"),
    [
        ("transaction.version", 2, True),
        ("transaction.version", 3, False),
        ("transaction.version", 0, False),
        ("metadata.version", 20, False),
    ],
)
def test_features_keep_their_levels(
    client: WireClient, version: int, feature: str, level: int, is_same: bool
) -> None:
    update: dict[str, Any] = {"feature": feature, "maxVersionLevel": level}
    update |= {"upgradeType": 2} if version else {"allowDowngrade": True}
    kept: dict[str, Any] = {"feature": "group.version", "maxVersionLevel": 1}
    kept |= {"upgradeType": 1} if version else {"allowDowngrade": False}
    answer = client.call(
        "UpdateFeatures", version, timeoutMs=1000, featureUpdates=[kept, update], validateOnly=False
    )
    assert answer["errorCode"] == (NONE if is_same else ErrorCode.INVALID_UPDATE_VERSION)
    named = [each["feature"] for each in answer["results"]]
    assert named == (["group.version", feature] if is_same and version < 2 else [])


def test_an_unknown_kind_of_upgrade_is_refused(client: WireClient) -> None:
    update = {"feature": "group.version", "maxVersionLevel": 1, "upgradeType": 9}
    answer = client.call("UpdateFeatures", 2, featureUpdates=[update])
    assert answer["errorCode"] == ErrorCode.INVALID_UPDATE_VERSION


def test_nobody_has_credentials_or_tokens_without_users(client: WireClient) -> None:
    asked = [{"name": "alice"}, {"name": "bob"}, {"name": "bob"}]
    answer = client.call("DescribeUserScramCredentials", 0, users=asked)
    assert answer["errorCode"] == NONE
    assert [(each["user"], each["errorCode"]) for each in answer["results"]] == [
        ("alice", ErrorCode.RESOURCE_NOT_FOUND),
        ("bob", ErrorCode.DUPLICATE_RESOURCE),
    ]
    assert client.call("DescribeUserScramCredentials", 0, users=None)["results"] == []
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert client.call("DescribeDelegationToken", 3, owners=None)["errorCode"] == refused
    made = client.call("CreateDelegationToken", 3, renewers=[], maxLifetimeMs=1)
    assert (made["errorCode"], made["principalName"]) == (refused, "ANONYMOUS")
    renewed = client.call("RenewDelegationToken", 2, hmac=b"x", renewPeriodMs=1)
    expired = client.call("ExpireDelegationToken", 2, hmac=b"x", expiryTimePeriodMs=1)
    assert renewed["errorCode"] == expired["errorCode"] == refused


def test_users_are_described_to_users(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.touch(mode=0o600)
    path.write_text("alice:a\nbob:b\n")
    with (
        serve(root, GatewaySettings(sasl_users=str(path))) as gateway,
        WireClient(gateway.bootstrap_servers) as client,
    ):
        client.call("SaslHandshake", 1, mechanism="PLAIN")
        client.call("SaslAuthenticate", 2, authBytes=b"\0alice\0a")
        both = [{"mechanism": each, "iterations": 4096} for each in (1, 2)]
        described = client.call("DescribeUserScramCredentials", 0, users=None)["results"]
        assert {each["user"]: each["credentialInfos"] for each in described} == {
            "alice": both,
            "bob": both,
        }
        disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert client.call("DescribeDelegationToken", 3, owners=None)["errorCode"] == disabled


def test_the_only_broker_stays(client: WireClient) -> None:
    for node, code in {
        NODE: ErrorCode.POLICY_VIOLATION,
        99: ErrorCode.BROKER_ID_NOT_REGISTERED,
    }.items():
        assert client.call("UnregisterBroker", 0, brokerId=node)["errorCode"] == code


def test_it_is_no_controller(client: WireClient) -> None:
    for kind, code in {
        1: NONE,
        2: ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        3: ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
    }.items():
        answer = client.call("DescribeCluster", 2, endpointType=kind)
        assert (answer["errorCode"], answer["endpointType"]) == (code, 1)
        assert len(answer["brokers"]) == (kind == 1)


def test_the_quorum_has_been_heard_of(client: WireClient) -> None:
    wanted = [{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]
    (topic,) = client.call("DescribeQuorum", 2, topics=wanted)["topics"]
    (voter,) = topic["partitions"][0]["currentVoters"]
    assert voter["lastFetchTimestamp"] == voter["lastCaughtUpTimestamp"] > 0


def test_settings_of_what_has_none_of_its_own(client: WireClient) -> None:
    def described(kind: int, name: str) -> dict[str, Any]:
        resource = {"resourceType": kind, "resourceName": name, "configurationKeys": None}
        (result,) = client.call("DescribeConfigs", 4, resources=[resource])["results"]
        assert result["errorCode"] == NONE
        return {each["name"]: each["value"] for each in result["configs"]}

    assert described(32, "any group") == {
        "consumer.heartbeat.interval.ms": "5000",
        "consumer.session.timeout.ms": "45000",
    }
    assert described(16, "x") == {"interval.ms": "300000", "match": "", "metrics": ""}
    assert described(8, str(NODE)) == {}
    resource = {"resourceType": 8, "resourceName": "99", "configurationKeys": None}
    (refused,) = client.call("DescribeConfigs", 4, resources=[resource])["results"]
    assert refused["errorCode"] == ErrorCode.INVALID_REQUEST
    unknown = client.call("ListConfigResources", 1, resourceTypes=[99])
    assert unknown["errorCode"] == ErrorCode.UNSUPPORTED_VERSION


def _stable_end(client: WireClient) -> int:
    wanted = [{"partitionIndex": 0, "timestamp": -1, "currentLeaderEpoch": -1}]
    topics = [{"name": "orders", "partitions": wanted}]
    answer = client.call("ListOffsets", 7, replicaId=-1, isolationLevel=1, topics=topics)
    return int(answer["topics"][0]["partitions"][0]["offset"])


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_ends_a_transaction_that_hangs(
    client: WireClient, root: Path, version: int
) -> None:
    """As `kafka-transactions abort` does, where the coordinator forgot the transaction."""
    Topic(client, root)
    data = batch(b"a", producer_id=7, producer_epoch=3, base_sequence=0, is_transactional=True)
    with LogManager.open(root) as manager:
        manager.log("orders", 0).append_as_leader(data)
    assert _stable_end(client) == 0

    def marked(epoch: int, is_commit: bool) -> list[int]:
        topics = [
            {"name": "orders", "partitionIndexes": [0, 7]},
            {"name": "missing", "partitionIndexes": [0]},
        ]
        marker = {
            "producerId": 7,
            "producerEpoch": epoch,
            "transactionResult": is_commit,
            "topics": topics,
            "coordinatorEpoch": 0,
        }
        (answer,) = client.call("WriteTxnMarkers", version, markers=[marker])["markers"]
        return [part["errorCode"] for each in answer["topics"] for part in each["partitions"]]

    assert marked(2, is_commit=True) == [ErrorCode.INVALID_PRODUCER_EPOCH, UNKNOWN, UNKNOWN]
    assert _stable_end(client) == 0
    assert marked(3, is_commit=False) == [NONE, UNKNOWN, UNKNOWN]
    assert _stable_end(client) == 2
    wanted = [{"name": "orders", "partitionIndexes": [0]}]
    (topic,) = client.call("DescribeProducers", 0, topics=wanted)["topics"]
    (producer,) = topic["partitions"][0]["activeProducers"]
    assert producer["currentTxnStartOffset"] == -1


@pytest.mark.parametrize("api", ["DescribeGroups", "ConsumerGroupDescribe"])
def test_a_missing_group_is_reported_in_kafkas_words(client: WireClient, api: str) -> None:
    """Tools and people look for them: `kafka-consumer-groups` prints what it is told."""
    asked = {"groups": ["none"]} if api == "DescribeGroups" else {"groupIds": ["none"]}
    (group,) = client.call(api, 6 if api == "DescribeGroups" else 1, **asked)["groups"]
    assert group["errorCode"] == ErrorCode.GROUP_ID_NOT_FOUND
    assert group["errorMessage"] == "Group none not found."
