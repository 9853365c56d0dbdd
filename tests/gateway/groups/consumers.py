"""Consumers of confluent-kafka in a group, of either protocol, and the topic they read."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import confluent_kafka

from streamlog import LogManager
from streamlog.records.record import Record

PARTITIONS = 6
RECORDS = 100
EVERYTHING = {b"%d-%d" % (number, at) for number in range(PARTITIONS) for at in range(RECORDS)}
DEADLINE_S = 90.0
SETTINGS = (
    "group.consumer.min.session.timeout.ms=6000\n"
    "group.consumer.session.timeout.ms=6000\n"
    "group.consumer.min.heartbeat.interval.ms=200\n"
    "group.consumer.heartbeat.interval.ms=200\n"
)


def make_orders(root: Path) -> str:
    """Make a root with short timeouts and the topic `orders`, which has records everywhere."""
    with LogManager.open(str(root), create=True) as manager:
        manager.create_topic("orders", PARTITIONS)
        for number in range(PARTITIONS):
            records = [Record(value=b"%d-%d" % (number, at)) for at in range(RECORDS)]
            manager.log("orders", number).append(records)
    (root / ".streamlog" / "server.properties").write_text(SETTINGS)
    return "orders"


class Member:
    """A consumer with what it was assigned, what it gave up and what it read."""

    def __init__(
        self,
        servers: str,
        protocol: Literal["classic", "consumer"] = "classic",
        **settings: Any,
    ) -> None:
        self.assigned: set[int] = set()
        self.revoked: list[set[int]] = []
        self.read: list[bytes] = []
        config = {
            "bootstrap.servers": servers,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 200,
            "enable.auto.commit": False,
        }
        if protocol == "classic":
            config |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
        strategy = settings.get("partition.assignment.strategy", "")
        self.is_incremental = protocol == "consumer" or "cooperative" in strategy
        self.consumer = confluent_kafka.Consumer({**config, **settings})
        self.consumer.subscribe(["orders"], on_assign=self._assign, on_revoke=self._revoke)

    def _assign(self, consumer: Any, partitions: list[Any]) -> None:
        self.assigned |= {each.partition for each in partitions}
        if self.is_incremental:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)

    def _revoke(self, consumer: Any, partitions: list[Any]) -> None:
        numbers = {each.partition for each in partitions}
        self.revoked.append(numbers)
        self.assigned -= numbers
        if self.is_incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.read.append(message.value())

    def close(self) -> None:
        self.consumer.close()


def poll_until(members: Sequence[Member], is_done: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not is_done():
        assert time.monotonic() < end, [sorted(each.assigned) for each in members]
        for member in members:
            member.poll()


def is_shared(members: Sequence[Member]) -> bool:
    """Whether each partition has one owner, and all have equally many."""
    numbers = [number for each in members for number in each.assigned]
    share = PARTITIONS // len(members)
    is_even = all(len(each.assigned) == share for each in members)
    return is_even and sorted(numbers) == list(range(PARTITIONS))
