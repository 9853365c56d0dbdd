"""Consumers of confluent-kafka with `group.protocol=consumer`: joining, leaving, a restart."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from streamlog.gateway import Address, Gateway, GatewaySettings, serve
from tests.gateway.groups.consumers import EVERYTHING, RECORDS, Member, is_shared, poll_until


def consumer(servers: str, **settings: Any) -> Member:
    return Member(servers, "consumer", **settings)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_consumers_share_partitions_as_they_come_and_go(serving: Gateway, assignor: str) -> None:
    with ExitStack() as stack:
        members: list[Member] = []
        for count in (1, 2, 3):
            made = consumer(serving.bootstrap_servers, **{"group.remote.assignor": assignor})
            stack.callback(made.close)
            members.append(made)
            poll_until(members, lambda: is_shared(members))
            assert len(members) == count
        # A member gives up only the partitions that move to another one.
        if assignor == "uniform":
            assert [len(each) for each in members[0].revoked] == [3, 1]
        members.pop(0).close()
        poll_until(members, lambda: is_shared(members))
        members.pop(0).close()
        poll_until(members, lambda: is_shared(members))


def test_committed_offsets_go_over_to_the_next_member(serving: Gateway) -> None:
    first = consumer(serving.bootstrap_servers)
    poll_until([first], lambda: len(first.read) >= RECORDS)
    first.consumer.commit(asynchronous=False)
    first.close()
    second = consumer(serving.bootstrap_servers)
    poll_until([second], lambda: len(first.read) + len(second.read) >= len(EVERYTHING))
    second.close()
    assert sorted(first.read + second.read) == sorted(EVERYTHING)


def test_a_static_member_comes_back_to_its_partitions(serving: Gateway) -> None:
    first = consumer(serving.bootstrap_servers, **{"group.instance.id": "i1"})
    second = consumer(serving.bootstrap_servers, **{"group.instance.id": "i2"})
    poll_until([first, second], lambda: is_shared([first, second]))
    former, revoked = set(first.assigned), list(second.revoked)
    first.close()
    again = consumer(serving.bootstrap_servers, **{"group.instance.id": "i1"})
    poll_until([again, second], lambda: again.assigned == former)
    assert second.revoked == revoked
    again.close()
    second.close()


def test_consumers_go_on_after_a_restart_of_the_server(root: Path, orders: str) -> None:
    assert orders
    with serve(root) as serving:
        servers = serving.bootstrap_servers
        members = [consumer(servers), consumer(servers)]
        poll_until(members, lambda: is_shared(members))
    settings = GatewaySettings(listen=Address.parse(servers))
    with serve(root, settings):
        poll_until(members, lambda: sum(len(each.read) for each in members) == len(EVERYTHING))
        third = consumer(servers)
        members.append(third)
        poll_until(members, lambda: is_shared(members))
        for each in members:
            each.close()
