"""Consumers of confluent-kafka of both protocols in one group, replaced one by one."""

import pytest

from streamlog.gateway import Gateway
from tests.gateway.groups.consumers import EVERYTHING, Member, is_shared, poll_until
from tests.gateway.wire_client import WireClient


def _kind(gateway: Gateway) -> str:
    with WireClient(gateway.bootstrap_servers) as client:
        (group,) = client.call("ListGroups", 5)["groups"]
        return str(group["groupType"])


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_is_rolled_over_and_back(serving: Gateway, strategy: str) -> None:
    servers = serving.bootstrap_servers

    def classic() -> Member:
        return Member(servers, **{"partition.assignment.strategy": strategy})

    def modern() -> Member:
        return Member(servers, "consumer")

    members = [classic(), classic()]
    poll_until(members, lambda: is_shared(members))
    assert _kind(serving) == "classic"
    for made, kind in (
        (modern, "consumer"),
        (modern, "consumer"),
        (classic, "consumer"),
        (classic, "classic"),
    ):
        members.pop(0).close()
        members.append(made())
        poll_until(members, lambda: is_shared(members))
        assert _kind(serving) == kind
    poll_until(members, lambda: {each for one in members for each in one.read} == EVERYTHING)
    for member in members:
        member.close()
