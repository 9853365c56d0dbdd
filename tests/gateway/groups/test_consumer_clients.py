"""Consumers of confluent-kafka with `group.protocol=consumer`: joining, leaving, a restart."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from streamlog import LogManager
from streamlog.gateway import Address, Gateway, GatewaySettings, serve
from streamlog.records.record import Record

PARTITIONS = 6
RECORDS = 100
DEADLINE_S = 90.0
SETTINGS = (
    "group.consumer.min.session.timeout.ms=6000\n"
    "group.consumer.session.timeout.ms=6000\n"
    "group.consumer.min.heartbeat.interval.ms=200\n"
    "group.consumer.heartbeat.interval.ms=200\n"
)


@pytest.fixture
def topic(root: Path) -> str:
    """The topic, with records in all partitions."""
    with LogManager.open(str(root), create=True) as manager:
        manager.create_topic("orders", PARTITIONS)
        for number in range(PARTITIONS):
            records = [Record(value=b"%d-%d" % (number, at)) for at in range(RECORDS)]
            manager.log("orders", number).append(records)
    (root / ".streamlog" / "server.properties").write_text(SETTINGS)
    return "orders"


@pytest.fixture
def gateway(root: Path, topic: str) -> Iterator[Gateway]:
    assert topic
    with serve(root) as running:
        yield running


class Member:
    """A consumer, what it was assigned and what it read."""

    def __init__(self, servers: str, **settings: Any) -> None:
        self.assigned: set[int] = set()
        self.revoked: list[set[int]] = []
        self.read: list[bytes] = []
        config = {
            "bootstrap.servers": servers,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 200,
            "enable.auto.commit": False,
        }
        self.consumer = confluent_kafka.Consumer({**config, **settings})
        self.consumer.subscribe(["orders"], on_assign=self._assign, on_revoke=self._revoke)

    def _assign(self, consumer: Any, partitions: list[Any]) -> None:
        self.assigned |= {each.partition for each in partitions}
        consumer.incremental_assign(partitions)

    def _revoke(self, consumer: Any, partitions: list[Any]) -> None:
        numbers = {each.partition for each in partitions}
        self.revoked.append(numbers)
        self.assigned -= numbers
        consumer.incremental_unassign(partitions)

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.read.append(message.value())

    def close(self) -> None:
        self.consumer.close()


def poll_until(members: list[Member], is_done: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not is_done():
        assert time.monotonic() < end, [sorted(each.assigned) for each in members]
        for member in members:
            member.poll()


def is_shared(*members: Member) -> bool:
    """Whether each partition has one owner, and all have equally many."""
    numbers = [number for each in members for number in each.assigned]
    share = PARTITIONS // len(members)
    is_even = all(len(each.assigned) == share for each in members)
    return is_even and sorted(numbers) == list(range(PARTITIONS))


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_consumers_share_partitions_as_they_come_and_go(gateway: Gateway, assignor: str) -> None:
    with ExitStack() as stack:
        members: list[Member] = []
        for count in (1, 2, 3):
            member = Member(gateway.bootstrap_servers, **{"group.remote.assignor": assignor})
            stack.callback(member.close)
            members.append(member)
            poll_until(members, lambda: is_shared(*members))
            assert len(members) == count
        # A member gives up only the partitions that move to another one.
        if assignor == "uniform":
            assert [len(each) for each in members[0].revoked] == [3, 1]
        members.pop(0).close()
        poll_until(members, lambda: is_shared(*members))
        members.pop(0).close()
        poll_until(members, lambda: is_shared(*members))


def test_committed_offsets_go_over_to_the_next_member(gateway: Gateway) -> None:
    first = Member(gateway.bootstrap_servers)
    poll_until([first], lambda: len(first.read) >= RECORDS)
    first.consumer.commit(asynchronous=False)
    first.close()
    second = Member(gateway.bootstrap_servers)
    poll_until([second], lambda: len(first.read) + len(second.read) >= PARTITIONS * RECORDS)
    second.close()
    expected = [b"%d-%d" % (number, at) for number in range(PARTITIONS) for at in range(RECORDS)]
    assert sorted(first.read + second.read) == sorted(expected)


def test_a_static_member_comes_back_to_its_partitions(gateway: Gateway) -> None:
    first = Member(gateway.bootstrap_servers, **{"group.instance.id": "i1"})
    second = Member(gateway.bootstrap_servers, **{"group.instance.id": "i2"})
    poll_until([first, second], lambda: is_shared(first, second))
    former, revoked = set(first.assigned), list(second.revoked)
    first.close()
    again = Member(gateway.bootstrap_servers, **{"group.instance.id": "i1"})
    poll_until([again, second], lambda: again.assigned == former)
    assert second.revoked == revoked
    again.close()
    second.close()


def test_consumers_go_on_after_a_restart_of_the_server(root: Path, topic: str) -> None:
    assert topic
    with serve(root) as gateway:
        servers = gateway.bootstrap_servers
        members = [Member(servers), Member(servers)]
        poll_until(members, lambda: is_shared(*members))
    settings = GatewaySettings(listen=Address.parse(servers))
    with serve(root, settings) as gateway:
        poll_until(members, lambda: sum(len(each.read) for each in members) == 600)
        third = Member(servers)
        members.append(third)
        poll_until(members, lambda: is_shared(*members))
        for member in members:
            member.close()
