"""Kafka's Java consumers in groups of KIP-848: members come and go, patterns, both protocols."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from streamlog import LogManager, Record
from streamlog.gateway import Gateway, serve
from tests.gateway.wire_client import WireClient
from tests.programs.compat.kafka import classpath, java

pytestmark = pytest.mark.compat

PROGRAM = Path(__file__).with_name("Members.java")
PARTITIONS = 6
RECORDS = 50
DEADLINE_S = 120
SETTINGS = (
    "group.consumer.min.session.timeout.ms=6000\n"
    "group.consumer.session.timeout.ms=6000\n"
    "group.consumer.min.heartbeat.interval.ms=200\n"
    "group.consumer.heartbeat.interval.ms=200\n"
)
ALL = {f"orders-{number}" for number in range(PARTITIONS)}


class State(NamedTuple):
    """A consumer's partitions, how many records it has read, and its last error."""

    partitions: frozenset[str]
    read: int
    error: str


class Members:
    """The program and its consumers, by name."""

    def __init__(self, bootstrap: str) -> None:
        command = [java(), "-cp", classpath(), str(PROGRAM), bootstrap]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.finished = 0

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def start(self, name: str, protocol: str, subscription: str = "orders", *more: str) -> None:
        assert self._ask(" ".join(("start", name, protocol, subscription, *more))) == "started"

    def stop(self, name: str) -> None:
        stopped, _, read, error = self._ask(f"stop {name}").split(" ")
        assert (stopped, error) == ("stopped", "-")
        self.finished += int(read)

    def states(self) -> dict[str, State]:
        found = {}
        for each in self._ask("state").split(";"):
            name, partitions, read, error = each.split(" ")
            numbers = () if partitions == "-" else partitions.split(",")
            found[name] = State(frozenset(numbers), int(read), error)
        return found

    def wait(self, is_done: Callable[[dict[str, State]], bool]) -> dict[str, State]:
        end = time.monotonic() + DEADLINE_S
        while not is_done(states := self.states()):
            assert time.monotonic() < end, states
            assert {each.error for each in states.values()} == {"-"}, states
            time.sleep(0.1)
        return states

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(60) == 0
        finally:
            self._process.kill()


def is_shared(states: dict[str, State]) -> bool:
    """Whether each partition has one owner, and all members have some."""
    owned = [each for state in states.values() for each in state.partitions]
    return all(each.partitions for each in states.values()) and sorted(owned) == sorted(ALL)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", PARTITIONS)
        for number in range(PARTITIONS):
            records = [Record(None, b"%d" % each) for each in range(RECORDS)]
            manager.log("orders", number).append(records)
    (root / ".streamlog" / "server.properties").write_text(SETTINGS)
    return root


@pytest.fixture
def gateway(root: Path) -> Iterator[Gateway]:
    with serve(root) as running:
        yield running


@pytest.fixture
def members(gateway: Gateway) -> Iterator[Members]:
    running = Members(gateway.bootstrap_servers)
    yield running
    running.close()


def kind(gateway: Gateway) -> str:
    with WireClient(gateway.bootstrap_servers) as client:
        (group,) = client.call("ListGroups", 5)["groups"]
        return str(group["groupType"])


def test_consumers_come_and_go(gateway: Gateway, members: Members) -> None:
    for name in ("a", "b", "c"):
        members.start(name, "consumer")
        members.wait(is_shared)
    assert kind(gateway) == "consumer"
    members.wait(lambda states: sum(each.read for each in states.values()) >= len(ALL) * RECORDS)
    members.stop("a")
    states = members.wait(is_shared)
    read = members.finished + sum(each.read for each in states.values())
    assert read == len(ALL) * RECORDS  # partitions move after their offsets are committed
    members.stop("b")
    members.wait(is_shared)


def test_a_consumer_of_a_pattern_gets_new_topics(root: Path, members: Members) -> None:
    members.start("a", "consumer", "/(orders|bills).*/")
    members.wait(is_shared)
    with LogManager.open(root) as manager:
        manager.create_topic("bills-eu", 1)
    wanted = ALL | {"bills-eu-0"}
    members.wait(lambda states: states["a"].partitions == wanted)


@pytest.mark.parametrize("assignor", ["Range", "CooperativeSticky"])
def test_a_group_is_rolled_over_and_back(gateway: Gateway, members: Members, assignor: str) -> None:
    strategy = f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{assignor}Assignor"
    members.start("a", "classic", "orders", strategy)
    members.start("b", "classic", "orders", strategy)
    members.wait(is_shared)
    assert kind(gateway) == "classic"
    members.stop("a")
    members.start("a", "consumer")
    members.wait(is_shared)
    assert kind(gateway) == "consumer"
    members.stop("b")
    members.start("b", "consumer")
    members.wait(is_shared)
    members.stop("a")
    members.start("a", "classic", "orders", strategy)
    members.wait(is_shared)
    assert kind(gateway) == "consumer"
    members.stop("b")
    members.start("b", "classic", "orders", strategy)
    states = members.wait(is_shared)
    assert kind(gateway) == "classic"
    members.wait(
        lambda states: (
            members.finished + sum(each.read for each in states.values()) >= len(ALL) * RECORDS
        )
    )
    assert {each.error for each in states.values()} == {"-"}
