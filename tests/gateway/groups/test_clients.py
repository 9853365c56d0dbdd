"""Consumer groups of real clients: rebalances, commits, restarts of the server."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from streamlog import LogManager
from streamlog.gateway import Address, Gateway, GatewaySettings, serve
from streamlog.records.record import Record

PARTITIONS = 4
RECORDS = 200
DEADLINE_S = 60.0


@pytest.fixture
def topic(root: Path) -> str:
    """The topic, with records in all partitions."""
    with LogManager.open(str(root), create=True) as manager:
        manager.create_topic("orders", PARTITIONS)
        for number in range(PARTITIONS):
            records = [Record(value=b"%d-%d" % (number, at)) for at in range(RECORDS)]
            manager.log("orders", number).append(records)
    return "orders"


@pytest.fixture
def gateway(root: Path, topic: str) -> Iterator[Gateway]:
    assert topic
    with serve(root) as running:
        yield running


class Member:
    """A consumer of confluent-kafka with what it was assigned and what it read."""

    def __init__(self, servers: str, **settings: Any) -> None:
        self.assigned: set[int] = set()
        self.read: list[bytes] = []
        self.revoked: list[set[int]] = []
        config = {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "reconnect.backoff.max.ms": 200,
            "enable.auto.commit": False,
        }
        self.is_cooperative = "cooperative" in settings.get("partition.assignment.strategy", "")
        self.consumer = confluent_kafka.Consumer({**config, **settings})
        self.consumer.subscribe(["orders"], on_assign=self._assign, on_revoke=self._revoke)

    def _assign(self, consumer: Any, partitions: list[Any]) -> None:
        self.assigned |= {each.partition for each in partitions}
        if self.is_cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)

    def _revoke(self, consumer: Any, partitions: list[Any]) -> None:
        numbers = {each.partition for each in partitions}
        self.revoked.append(numbers)
        self.assigned -= numbers
        if self.is_cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

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


def _is_shared(members: list[Member]) -> bool:
    numbers = [number for each in members for number in each.assigned]
    return sorted(numbers) == list(range(PARTITIONS)) and all(each.assigned for each in members)


@pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])
def test_consumers_share_partitions_as_they_come_and_go(gateway: Gateway, strategy: str) -> None:
    with ExitStack() as stack:

        def member() -> Member:
            made = Member(gateway.bootstrap_servers, **{"partition.assignment.strategy": strategy})
            stack.callback(made.close)
            return made

        first = member()
        poll_until([first], lambda: _is_shared([first]))
        second = member()
        poll_until([first, second], lambda: _is_shared([first, second]))
        third = member()
        poll_until([first, second, third], lambda: _is_shared([first, second, third]))
        if first.is_cooperative:  # partitions that stay are never revoked
            assert all(len(each) < PARTITIONS for each in first.revoked)
        second.close()
        poll_until([first, third], lambda: _is_shared([first, third]))
        done = PARTITIONS * RECORDS
        poll_until([first, third], lambda: len({*first.read, *second.read, *third.read}) == done)


def test_a_consumer_resumes_where_its_group_committed(gateway: Gateway) -> None:
    first = Member(gateway.bootstrap_servers)
    poll_until([first], lambda: len(first.read) >= 300)
    first.consumer.commit(asynchronous=False)
    first.close()
    second = Member(gateway.bootstrap_servers)
    poll_until([second], lambda: len(first.read) + len(second.read) == PARTITIONS * RECORDS)
    second.close()
    assert len({*first.read, *second.read}) == PARTITIONS * RECORDS


def test_a_static_member_comes_back_without_a_rebalance(gateway: Gateway) -> None:
    static = [
        Member(gateway.bootstrap_servers, **{"group.instance.id": f"i{at}"}) for at in range(2)
    ]
    poll_until(static, lambda: _is_shared(static))
    former = set(static[1].assigned)
    revoked = list(static[0].revoked)  # it may have joined alone at first
    static[1].close()
    again = Member(gateway.bootstrap_servers, **{"group.instance.id": "i1"})
    poll_until([static[0], again], lambda: again.assigned == former)
    assert static[0].revoked == revoked
    for each in (static[0], again):
        each.close()


def test_consumers_go_on_when_the_server_restarts(root: Path, topic: str) -> None:
    patient = {"session.timeout.ms": 30_000}
    with serve(root) as gateway:
        settings = GatewaySettings(listen=Address.parse(gateway.bootstrap_servers))
        members = [Member(gateway.bootstrap_servers, **patient) for _ in range(2)]
        poll_until(members, lambda: _is_shared(members) and all(each.read for each in members))
        members[0].consumer.commit(asynchronous=False)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        for member in members:
            member.poll()
    with LogManager.open(str(root)) as manager:
        manager.log(topic, 0).append([Record(value=b"late")])
    with serve(root, settings):
        poll_until(members, lambda: any(b"late" in each.read for each in members))
        assert all(each.revoked == [] for each in members)  # no member had to join again
        for member in members:
            member.consumer.commit(asynchronous=False)
            member.close()


def test_consumers_of_aiokafka_share_partitions(gateway: Gateway) -> None:

    async def work() -> None:
        options = {
            "bootstrap_servers": gateway.bootstrap_servers,
            "group_id": "a",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 200,
            "metadata_max_age_ms": 1000,
        }
        first = aiokafka.AIOKafkaConsumer("orders", **options)
        second = aiokafka.AIOKafkaConsumer("orders", **options)
        await first.start()
        read: set[bytes] = set()
        while len(read) < 300:
            for batch in (await first.getmany(timeout_ms=500)).values():
                read |= {each.value for each in batch}
        await first.commit()
        await second.start()
        while not (first.assignment() and second.assignment()):
            await first.getmany(timeout_ms=100)
            await asyncio.sleep(0.05)
        assert not first.assignment() & second.assignment()
        assert len(first.assignment() | second.assignment()) == PARTITIONS
        await first.stop()
        while len(read) < PARTITIONS * RECORDS:
            for batch in (await second.getmany(timeout_ms=500)).values():
                read |= {each.value for each in batch}
        await second.stop()

    asyncio.run(asyncio.wait_for(work(), DEADLINE_S))
