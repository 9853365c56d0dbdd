"""Consumer groups of real clients: rebalances, commits, restarts of the server."""

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path

import aiokafka
import pytest

from streamlog import LogManager
from streamlog.gateway import Address, Gateway, GatewaySettings, serve
from streamlog.records.record import Record
from tests.gateway.groups.consumers import (
    DEADLINE_S,
    EVERYTHING,
    PARTITIONS,
    Member,
    is_shared,
    poll_until,
)


@pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])
def test_consumers_share_partitions_as_they_come_and_go(serving: Gateway, strategy: str) -> None:
    with ExitStack() as stack:

        def member() -> Member:
            made = Member(serving.bootstrap_servers, **{"partition.assignment.strategy": strategy})
            stack.callback(made.close)
            return made

        first = member()
        poll_until([first], lambda: is_shared([first]))
        second = member()
        poll_until([first, second], lambda: is_shared([first, second]))
        third = member()
        poll_until([first, second, third], lambda: is_shared([first, second, third]))
        if first.is_incremental:  # partitions that stay are never revoked
            assert all(len(each) < PARTITIONS for each in first.revoked)
        second.close()
        poll_until([first, third], lambda: is_shared([first, third]))
        poll_until([first, third], lambda: {*first.read, *second.read, *third.read} == EVERYTHING)


def test_a_consumer_resumes_where_its_group_committed(serving: Gateway) -> None:
    first = Member(serving.bootstrap_servers)
    poll_until([first], lambda: len(first.read) >= 300)
    first.consumer.commit(asynchronous=False)
    first.close()
    second = Member(serving.bootstrap_servers)
    poll_until([second], lambda: len(first.read) + len(second.read) == len(EVERYTHING))
    second.close()
    assert {*first.read, *second.read} == EVERYTHING


def test_a_static_member_comes_back_without_a_rebalance(serving: Gateway) -> None:
    static = [
        Member(serving.bootstrap_servers, **{"group.instance.id": f"i{at}"}) for at in range(2)
    ]
    poll_until(static, lambda: is_shared(static))
    former = set(static[1].assigned)
    revoked = list(static[0].revoked)  # it may have joined alone at first
    static[1].close()
    again = Member(serving.bootstrap_servers, **{"group.instance.id": "i1"})
    poll_until([static[0], again], lambda: again.assigned == former)
    assert static[0].revoked == revoked
    for each in (static[0], again):
        each.close()


def test_consumers_go_on_when_the_server_restarts(root: Path, orders: str) -> None:
    patient = {"session.timeout.ms": 30_000}
    with serve(root) as serving:
        settings = GatewaySettings(listen=Address.parse(serving.bootstrap_servers))
        members = [Member(serving.bootstrap_servers, **patient) for _ in range(2)]
        poll_until(members, lambda: is_shared(members) and all(each.read for each in members))
        members[0].consumer.commit(asynchronous=False)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        for member in members:
            member.poll()
    with LogManager.open(str(root)) as manager:
        manager.log(orders, 0).append([Record(value=b"late")])
    with serve(root, settings):
        poll_until(members, lambda: any(b"late" in each.read for each in members))
        assert all(each.revoked == [] for each in members)  # no member had to join again
        for member in members:
            member.consumer.commit(asynchronous=False)
            member.close()


def test_consumers_of_aiokafka_share_partitions(serving: Gateway) -> None:

    async def work() -> None:
        options = {
            "bootstrap_servers": serving.bootstrap_servers,
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
        while len(read) < len(EVERYTHING):
            for batch in (await second.getmany(timeout_ms=500)).values():
                read |= {each.value for each in batch}
        await second.stop()

    asyncio.run(asyncio.wait_for(work(), DEADLINE_S))
