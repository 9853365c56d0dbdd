"""Consumers of confluent-kafka of both protocols in one group, replaced one by one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlog import LogManager
from streamlog.gateway import Gateway, serve
from streamlog.records.record import Record
from tests.gateway.groups import test_clients, test_consumer_clients
from tests.gateway.groups.test_consumer_clients import PARTITIONS, SETTINGS
from tests.gateway.wire_client import WireClient

RECORDS = 100

Member = test_clients.Member | test_consumer_clients.Member


@pytest.fixture
def gateway(root: Path) -> Iterator[Gateway]:
    with LogManager.open(str(root), create=True) as manager:
        manager.create_topic("orders", PARTITIONS)
        for number in range(PARTITIONS):
            records = [Record(value=b"%d-%d" % (number, at)) for at in range(RECORDS)]
            manager.log("orders", number).append(records)
    (root / ".streamlog" / "server.properties").write_text(SETTINGS)
    with serve(root) as running:
        yield running


def _poll_until(members: list[Any], is_done: Callable[[], bool]) -> None:
    test_consumer_clients.poll_until(members, is_done)


def _kind(gateway: Gateway) -> str:
    with WireClient(gateway.bootstrap_servers) as client:
        (group,) = client.call("ListGroups", 5)["groups"]
        return str(group["groupType"])


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_is_rolled_over_and_back(gateway: Gateway, strategy: str) -> None:
    def classic() -> Member:
        more = {"partition.assignment.strategy": strategy}
        return test_clients.Member(gateway.bootstrap_servers, **more)

    def modern() -> Member:
        return test_consumer_clients.Member(gateway.bootstrap_servers)

    members: list[Any] = [classic(), classic()]
    read: list[bytes] = []

    def is_shared() -> bool:
        return test_consumer_clients.is_shared(*members)

    _poll_until(members, is_shared)
    assert _kind(gateway) == "classic"
    for made, kind in ((modern, "consumer"), (modern, "consumer"), (classic, "consumer")):
        leaving = members.pop(0)
        leaving.close()
        read += leaving.read
        members.append(made())
        _poll_until(members, is_shared)
        assert _kind(gateway) == kind
    members.pop(0).close()
    members.append(classic())
    _poll_until(members, is_shared)
    assert _kind(gateway) == "classic"
    for member in members:
        member.close()
        read += member.read
    assert read
