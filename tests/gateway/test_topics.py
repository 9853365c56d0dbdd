"""Topics, settings and the cluster, by a real admin client and field by field."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from streamlog import LogManager, Record
from streamlog.gateway import Gateway, GatewaySettings, serve
from streamlog.gateway.error_codes import ErrorCode
from tests.gateway.wire_client import WireClient


@pytest.fixture
def admin(gateway: Gateway) -> AdminClient:
    return AdminClient({"bootstrap.servers": gateway.bootstrap_servers})


def codes(rows: list[dict[str, Any]]) -> list[int]:
    return [each["errorCode"] for each in rows]


def assigned(partition: int, *nodes: int) -> dict[str, Any]:
    return {"partitionIndex": partition, "brokerIds": list(nodes)}


def create(client: WireClient, version: int = 7, *, only_check: bool = False, **topic: Any) -> Any:
    wanted = {"numPartitions": -1, "replicationFactor": -1, "assignments": [], "configs": []}
    (answer,) = client.call(
        "CreateTopics", version, topics=[wanted | topic], timeoutMs=1000, validateOnly=only_check
    )["topics"]
    return answer


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_in_each_version(root: Path, client: WireClient, version: int) -> None:
    configs = [{"name": "retention.ms", "value": "5000"}]
    answer = create(
        client, version, name="orders", numPartitions=3, replicationFactor=1, configs=configs
    )
    assert answer["errorCode"] == 0
    if version >= 5:
        assert answer["numPartitions"] == 3
        assert {"name": "retention.ms", "value": "5000"}.items() <= next(
            each for each in answer["configs"] if each["name"] == "retention.ms"
        ).items()
    with LogManager.open(root) as manager:
        assert manager.partitions("orders") == [0, 1, 2]
        assert manager.topic_config("orders").retention_ms == 5000
    (topic,) = client.call("Metadata", 12, topics=None)["topics"]
    assert version < 7 or topic["topicId"] == answer["topicId"]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ({"name": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "x", "numPartitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"name": "x", "replicationFactor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"name": "x", "configs": [{"name": "none", "value": "1"}]}, ErrorCode.INVALID_CONFIG),
        (
            {"name": "x", "configs": [{"name": "retention.ms", "value": None}]},
            ErrorCode.INVALID_CONFIG,
        ),
        (
            {
                "name": "x",
                "numPartitions": 1,
                "assignments": [{"partitionIndex": 0, "brokerIds": [1]}],
            },
            ErrorCode.INVALID_REQUEST,
        ),
        (
            {"name": "x", "assignments": [{"partitionIndex": 1, "brokerIds": [1]}]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            {"name": "x", "assignments": [{"partitionIndex": 0, "brokerIds": [1, 2]}]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_a_bad_topic_is_refused(client: WireClient, topic: dict[str, Any], code: ErrorCode) -> None:
    for only_check in (True, False):
        answer = create(client, only_check=only_check, **topic)
        assert (answer["errorCode"], bool(answer["errorMessage"])) == (code, True)
    assert client.call("Metadata", 12, topics=None)["topics"] == []


def test_an_existing_or_repeated_topic_is_refused(client: WireClient) -> None:
    assert create(client, name="orders", only_check=True)["errorCode"] == 0
    assert create(client, name="orders")["errorCode"] == 0
    assert create(client, name="orders")["errorCode"] == ErrorCode.TOPIC_ALREADY_EXISTS
    assert (
        create(client, name="orders", only_check=True)["errorCode"]
        == ErrorCode.TOPIC_ALREADY_EXISTS
    )
    wanted = {"numPartitions": 1, "replicationFactor": 1, "assignments": [], "configs": []}
    twice = [wanted | {"name": "twice"}] * 2
    answer = client.call("CreateTopics", 7, topics=twice, timeoutMs=1000, validateOnly=False)
    assert codes(answer["topics"]) == [ErrorCode.INVALID_REQUEST]


def test_an_admin_client_administers_topics(root: Path, admin: AdminClient) -> None:
    for future in admin.create_topics(
        [NewTopic("orders", 2, config={"retention.ms": "1"})]
    ).values():
        future.result()
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("orders", 2)])["orders"].result()
    admin.create_partitions([NewPartitions("orders", 4)])["orders"].result()
    with pytest.raises(KafkaException):
        admin.create_partitions([NewPartitions("orders", 3)])["orders"].result()
    assert len(admin.list_topics().topics["orders"].partitions) == 4
    resource = ConfigResource(ResourceType.TOPIC, "orders")
    described = admin.describe_configs([resource])[resource].result()
    assert described["retention.ms"].value == "1"
    assert described["retention.ms"].source == 1
    assert described["segment.bytes"].is_default
    change = ConfigResource(
        ResourceType.TOPIC,
        "orders",
        incremental_configs=[
            ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
            ),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("segment.bytes", "2000000", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    admin.incremental_alter_configs([change])[change].result()
    with LogManager.open(root) as manager:
        config = manager.topic_config("orders")
    assert config.cleanup_policy == {"compact", "delete"}
    assert (config.retention_ms, config.segment_bytes) == (604_800_000, 2_000_000)
    cluster = admin.describe_cluster().result()
    assert (len(cluster.nodes), cluster.controller.id) == (1, 1)
    admin.delete_topics(["orders"])["orders"].result()
    assert admin.list_topics().topics == {}
    with pytest.raises(KafkaException):
        admin.delete_topics(["orders"])["orders"].result()


def test_topics_are_deleted_by_id(root: Path, client: WireClient) -> None:
    created = create(client, name="orders")
    unknown = "AAAAAAAAAAEAAAAAAAAAAg"
    topics = [{"name": None, "topicId": each} for each in (created["topicId"], unknown)]
    answer = client.call("DeleteTopics", 6, topics=topics, timeoutMs=1000)
    assert codes(answer["responses"]) == [0, ErrorCode.UNKNOWN_TOPIC_ID]
    assert not (root / "orders-0").exists()


def test_deletion_can_be_switched_off(root: Path, client: WireClient) -> None:
    create(client, name="orders")
    with (root / ".streamlog" / "server.properties").open("a") as file:
        file.write("delete.topic.enable=false\n")
    answer = client.call("DeleteTopics", 3, topicNames=["orders"], timeoutMs=1000)
    assert codes(answer["responses"]) == [ErrorCode.TOPIC_DELETION_DISABLED]


def test_records_are_deleted_up_to_an_offset(root: Path, client: WireClient) -> None:
    create(client, name="orders")
    with LogManager.open(root) as manager:
        manager.log("orders", 0).append([Record(value=b"x")] * 10)

    def delete(offset: int) -> tuple[int, int]:
        wanted = [{"name": "orders", "partitions": [{"partitionIndex": 0, "offset": offset}]}]
        (topic,) = client.call("DeleteRecords", 2, topics=wanted, timeoutMs=1000)["topics"]
        (partition,) = topic["partitions"]
        return partition["errorCode"], partition["lowWatermark"]

    assert delete(4) == (0, 4)
    assert delete(11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-1) == (0, 10)


def test_partitions_are_described_in_pages(client: WireClient) -> None:
    for name in ("b", "a", "c"):
        create(client, name=name, numPartitions=3)
    seen: list[tuple[str, int]] = []
    cursor, pages = None, 0
    while True:
        page = client.call(
            "DescribeTopicPartitions", 0, topics=[], responsePartitionLimit=2, cursor=cursor
        )
        for topic in page["topics"]:
            seen += [(topic["name"], each["partitionIndex"]) for each in topic["partitions"]]
        cursor, pages = page["nextCursor"], pages + 1
        if cursor is None:
            break
    assert seen == [(name, number) for name in "abc" for number in range(3)]
    assert pages in (5, 6)
    (missing,) = client.call(
        "DescribeTopicPartitions", 0, topics=[{"name": "d"}], responsePartitionLimit=9, cursor=None
    )["topics"]
    assert missing["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_have_sources_and_synonyms(root: Path, client: WireClient, version: int) -> None:
    create(client, name="orders", configs=[{"name": "retention.ms", "value": "7"}])
    with (root / ".streamlog" / "server.properties").open("a") as file:
        file.write("log.retention.ms=9\nnum.partitions=2\n")
    resources = [
        {"resourceType": 2, "resourceName": "orders", "configurationKeys": ["retention.ms"]},
        {"resourceType": 4, "resourceName": "1", "configurationKeys": ["num.partitions"]},
        {"resourceType": 2, "resourceName": "none", "configurationKeys": None},
    ]
    topic, server, missing = client.call(
        "DescribeConfigs", version, resources=resources, includeSynonyms=True
    )["results"]
    (entry,) = topic["configs"]
    assert (entry["value"], entry["configSource"]) == ("7", 1)
    assert [(each["name"], each["value"], each["source"]) for each in entry["synonyms"]] == [
        ("retention.ms", "7", 1),
        ("log.retention.ms", "9", 4),
    ]
    assert [(each["value"], each["configSource"]) for each in server["configs"]] == [("2", 4)]
    assert missing["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_all_settings_of_a_topic_are_replaced(root: Path, client: WireClient) -> None:
    create(client, name="orders", configs=[{"name": "retention.ms", "value": "7"}])

    def alter(kind: int, name: str, **configs: str | None) -> int:
        given = [{"name": key.replace("_", "."), "value": each} for key, each in configs.items()]
        resource = {"resourceType": kind, "resourceName": name, "configs": given}
        answer = client.call("AlterConfigs", 2, resources=[resource], validateOnly=False)
        (code,) = codes(answer["responses"])
        return code

    assert alter(2, "orders", segment_bytes="3000000") == 0
    with LogManager.open(root) as manager:
        config = manager.topic_config("orders")
    assert (config.segment_bytes, config.retention_ms) == (3_000_000, 604_800_000)
    assert alter(2, "orders", segment_bytes="x") == ErrorCode.INVALID_CONFIG
    assert alter(2, "none", segment_bytes="1") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(4, "1", num_partitions="1") == ErrorCode.POLICY_VIOLATION


def test_resources_with_settings_are_listed(client: WireClient) -> None:
    create(client, name="orders")
    kinds = {2: ["orders"], 4: ["1"], 16: [], 32: []}
    for kind, names in kinds.items():
        answer = client.call("ListConfigResources", 1, resourceTypes=[kind])
        assert [each["resourceName"] for each in answer["configResources"]] == names
    answer = client.call("ListConfigResources", 1, resourceTypes=[2, 99])
    assert (answer["errorCode"], answer["configResources"]) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_a_cluster_without_an_authorizer_quotas_or_moves(client: WireClient) -> None:
    create(client, name="orders", numPartitions=2)
    filters = {"resourceTypeFilter": 1, "patternTypeFilter": 1, "operation": 1, "permissionType": 1}
    acls = client.call("DescribeAcls", 3, **filters)
    assert acls["errorCode"] == ErrorCode.SECURITY_DISABLED
    assert client.call("ListPartitionReassignments", 0, timeoutMs=1, topics=None)["topics"] == []
    assert client.call("DescribeClientQuotas", 1, components=[], strict=False)["entries"] == []
    answer = client.call("ElectLeaders", 2, electionType=0, topicPartitions=None, timeoutMs=1)
    (topic,) = answer["replicaElectionResults"]
    assert codes(topic["partitionResult"]) == [ErrorCode.ELECTION_NOT_NEEDED] * 2
    (directory,) = client.call("DescribeLogDirs", 4, topics=None)["results"]
    assert [len(each["partitions"]) for each in directory["topics"]] == [2]


def test_a_read_only_server_changes_nothing(root: Path) -> None:
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders")
    settings = GatewaySettings(is_read_only=True)
    with serve(root, settings) as gateway, WireClient(gateway.bootstrap_servers) as client:
        assert create(client, name="new")["errorCode"] == ErrorCode.POLICY_VIOLATION
        answer = client.call("DeleteTopics", 3, topicNames=["orders"], timeoutMs=1000)
        assert codes(answer["responses"]) == [ErrorCode.POLICY_VIOLATION]
