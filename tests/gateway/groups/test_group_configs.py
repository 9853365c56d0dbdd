"""Settings of consumer groups: changed by clients, followed by their members, kept on disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlog import LogManager
from streamlog.config.group_config import GroupConfig
from streamlog.config.serve_config import ServeConfig
from streamlog.errors import InvalidConfigError
from streamlog.fs.log_root import LogRoot
from streamlog.gateway import Gateway, serve
from streamlog.gateway.error_codes import ErrorCode
from streamlog.root.group_configs import read_group_configs
from tests.gateway.groups.driver import Driver
from tests.gateway.groups.test_consumer import Group
from tests.gateway.wire_client import WireClient

GROUP = 32
SET, DELETE, APPEND = 0, 1, 2
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"


@pytest.fixture
def gateway(root: Path) -> Iterator[Gateway]:
    with LogManager.open(str(root), create=True) as manager:
        manager.create_topic("orders", 1)
    with serve(root) as running:
        yield running


@pytest.fixture
def client(gateway: Gateway) -> Iterator[WireClient]:
    with WireClient(gateway.bootstrap_servers) as client:
        yield client


def alter(
    client: WireClient, key: str, value: str | None, operation: int = SET, **more: Any
) -> int:
    config = {"name": key, "configOperation": operation, "value": value}
    given = {"resourceType": GROUP, "resourceName": "g", "configs": [config]}
    values = {"resources": [{**given, **more}], "validateOnly": False, **more}
    answer = client.call("IncrementalAlterConfigs", 1, **values)
    return int(answer["responses"][0]["errorCode"])


def described(client: WireClient, group: str = "g") -> dict[str, tuple[str, int]]:
    resource = {"resourceType": GROUP, "resourceName": group, "configurationKeys": None}
    answer = client.call("DescribeConfigs", 4, resources=[resource])["results"][0]
    assert answer["errorCode"] == 0
    return {each["name"]: (each["value"], each["configSource"]) for each in answer["configs"]}


def interval(client: WireClient) -> int:
    answer = client.call(
        "ConsumerGroupHeartbeat",
        1,
        groupId="g",
        memberId="a",
        memberEpoch=0,
        rebalanceTimeoutMs=1000,
        subscribedTopicNames=["orders"],
        topicPartitions=[],
    )
    assert answer["errorCode"] == 0
    return int(answer["heartbeatIntervalMs"])


def test_a_group_has_the_servers_settings_until_it_has_its_own(client: WireClient) -> None:
    assert described(client) == {SESSION: ("45000", 5), HEARTBEAT: ("5000", 5)}
    assert interval(client) == 5000
    assert alter(client, HEARTBEAT, "7000") == 0
    assert described(client) == {SESSION: ("45000", 5), HEARTBEAT: ("7000", 8)}
    assert described(client, "other") == {SESSION: ("45000", 5), HEARTBEAT: ("5000", 5)}
    assert interval(client) == 7000
    listed = client.call("ListConfigResources", 1, resourceTypes=[GROUP])["configResources"]
    assert listed == [{"resourceName": "g", "resourceType": GROUP}]
    assert alter(client, HEARTBEAT, None, DELETE) == 0
    assert described(client)[HEARTBEAT] == ("5000", 5)
    assert client.call("ListConfigResources", 1, resourceTypes=[GROUP])["configResources"] == []


@pytest.mark.parametrize(
    ("key", "value", "operation"),
    [
        (HEARTBEAT, "4999", SET),  # below group.consumer.min.heartbeat.interval.ms
        (HEARTBEAT, "15001", SET),
        (SESSION, "44999", SET),
        (SESSION, "60001", SET),
        (SESSION, "soon", SET),
        (SESSION, None, SET),
        (SESSION, "45000", APPEND),
        ("consumer.unknown", "1", SET),
    ],
)
def test_invalid_settings_are_refused(
    client: WireClient, root: Path, key: str, value: str | None, operation: int
) -> None:
    assert alter(client, key, value, operation) == ErrorCode.INVALID_CONFIG
    assert read_group_configs(LogRoot.at(str(root))) == {}


def test_a_check_changes_nothing(client: WireClient, root: Path) -> None:
    assert alter(client, HEARTBEAT, "7000", validateOnly=True) == 0
    assert read_group_configs(LogRoot.at(str(root))) == {}


def test_a_group_needs_a_name(client: WireClient) -> None:
    assert alter(client, HEARTBEAT, "7000", resourceName="") == ErrorCode.INVALID_REQUEST


def test_settings_survive_a_restart(root: Path) -> None:
    for expected in (5, 8):
        with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
            assert described(client)[SESSION][1] == expected
            assert alter(client, SESSION, "50000") == 0


def test_a_session_lasts_as_long_as_its_group_says() -> None:
    group = Group()
    group.driver.limits = {SESSION: "60000"}
    group.join("a")
    group.driver.timers.advance(59_999)
    assert group.group.state_name == "Stable"
    group.driver.timers.advance(1)
    assert group.group.state_name == "Empty"


def test_heartbeats_have_to_come_within_a_session() -> None:
    server = ServeConfig(group_consumer_max_heartbeat_interval_ms=60_000)
    with pytest.raises(InvalidConfigError, match="session"):
        GroupConfig.check(server, {HEARTBEAT: "46000"})
    GroupConfig.check(server, {HEARTBEAT: "46000", SESSION: "47000"})
    assert Driver().world.limits("g").consumer_session_timeout_ms == 45_000
