"""FindCoordinator: every group and transactional id is coordinated here."""

import contextlib
from pathlib import Path

import pytest

from streamlog import LogManager
from streamlog.gateway import Address, Gateway, GatewaySettings, serve
from streamlog.gateway.error_codes import ErrorCode
from streamlog.protocol.apis import ZERO_UUID
from tests.gateway.wire_client import WireClient


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1])
def test_every_key_is_coordinated_by_this_broker(
    gateway: Gateway, client: WireClient, version: int, key_type: int
) -> None:
    address = Address.parse(gateway.bootstrap_servers)
    answer = client.call(
        "FindCoordinator", version, key="g", coordinatorKeys=["g", "h"], keyType=key_type
    )
    found = [answer] if version < 4 else answer["coordinators"]
    assert [each["key"] for each in found] == ["g", "h"] if version >= 4 else len(found) == 1
    for each in found:
        assert each["errorCode"] == ErrorCode.NONE
        assert (each["host"], each["port"]) == address


def test_an_unknown_type_of_key_is_refused(client: WireClient) -> None:
    (answer,) = client.call("FindCoordinator", 6, coordinatorKeys=["g"], keyType=9)["coordinators"]
    assert answer["errorCode"] == ErrorCode.INVALID_REQUEST
    assert answer["nodeId"] == -1


def _topics(client: WireClient) -> dict[str, int]:
    topics = client.call("Metadata", 12, topics=None)["topics"]
    return {each["name"]: len(each["partitions"]) for each in topics}


def test_a_coordinator_that_was_found_has_its_topic(client: WireClient) -> None:
    assert _topics(client) == {}
    client.call("FindCoordinator", 6, coordinatorKeys=["g"], keyType=0)
    assert _topics(client) == {"__consumer_offsets": 50}
    partition = {"partitionIndex": 0, "committedOffset": 7, "committedMetadata": ""}
    topics = [{"name": "__consumer_offsets", "partitions": [partition]}]
    (topic,) = client.call("OffsetCommit", 8, groupId="g", topics=topics)["topics"]
    assert topic["partitions"][0]["errorCode"] == ErrorCode.NONE
    client.call("FindCoordinator", 6, coordinatorKeys=["t"], keyType=1)
    assert _topics(client) == {"__consumer_offsets": 50, "__transaction_state": 50}


def test_many_clients_find_a_coordinator_at_once(gateway: Gateway) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(WireClient(gateway.bootstrap_servers)) for _ in range(6)]
        sent = [each.send("FindCoordinator", 3, key="g", keyType=0) for each in clients]
        for each, number in zip(clients, sent, strict=True):
            answer = each.receive("FindCoordinator", 3, number)
            assert answer["errorCode"] == ErrorCode.NONE, answer


def test_a_root_that_is_only_read_stays_as_it_is(root: Path) -> None:
    with LogManager.open(root, create=True):
        pass
    with (
        serve(root, GatewaySettings(is_read_only=True)) as gateway,
        WireClient(gateway.bootstrap_servers) as client,
    ):
        for kind in (0, 1):
            answer = client.call("FindCoordinator", 3, key="g", keyType=kind)
            assert answer["errorCode"] == ErrorCode.NONE
        assert _topics(client) == {}


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_a_coordinators_topic_is_created_as_it_needs_it(
    client: WireClient, root: Path, name: str
) -> None:
    """A consumer of the topic asks for it before it finds a coordinator."""
    with (root / ".streamlog" / "server.properties").open("a") as settings:
        settings.write("auto.create.topics.enable=true\n")
    topics = [{"topicId": ZERO_UUID, "name": name}]
    (topic,) = client.call("Metadata", 12, topics=topics, allowAutoTopicCreation=True)["topics"]
    assert len(topic["partitions"]) == 50
    with LogManager.open(root) as manager:
        assert manager.topic_config(name).cleanup_policy == {"compact"}


def test_a_coordinators_topic_is_not_created_where_no_topic_is(client: WireClient) -> None:
    topics = [{"topicId": ZERO_UUID, "name": "__consumer_offsets"}]
    (topic,) = client.call("Metadata", 12, topics=topics, allowAutoTopicCreation=True)["topics"]
    assert topic["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _topics(client) == {}
