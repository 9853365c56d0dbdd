"""Consumer groups and Kafka's own programs: its tools on our gateway, its broker on our groups."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlog import LogManager
from streamlog.gateway import Gateway, serve
from streamlog.protocol.internal_topics import Decoder, OffsetsKey, parse_internal
from streamlog.records.record import Record
from tests.gateway.groups.consumers import Member, poll_until
from tests.gateway.wire_client import WireClient
from tests.programs.compat.broker import Broker
from tests.programs.compat.kafka import Kafka, run_tool
from tests.support.cli import ok

pytestmark = pytest.mark.compat

PARTITIONS = 2
RECORDS = 100
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    with LogManager.open(str(root), create=True) as manager:
        manager.create_topic("orders", PARTITIONS)
        for number in range(PARTITIONS):
            records = [Record(value=b"%d-%d" % (number, at)) for at in range(RECORDS)]
            manager.log("orders", number).append(records)
    return root


@pytest.fixture
def gateway(kafka: Kafka, root: Path) -> Iterator[Gateway]:
    assert kafka  # skips without Java and the jars
    with serve(root) as running:
        yield running


def _commit(client: WireClient, group: str, offset: int) -> None:
    partitions = [{"partitionIndex": 0, "committedOffset": offset, "committedMetadata": "note"}]
    topics = [{"name": "orders", "partitions": partitions}]
    answer = client.call("OffsetCommit", 9, groupId=group, topics=topics)
    assert answer["topics"][0]["partitions"][0]["errorCode"] == 0


def _rows(output: str) -> list[dict[str, str]]:
    """Return the rows of a table that the tool printed."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    head = next(at for at, line in enumerate(lines) if line[0] == "GROUP")
    return [dict(zip(lines[head], line, strict=False)) for line in lines[head + 1 :]]


def test_the_tool_for_groups(gateway: Gateway) -> None:
    def tool(*arguments: str) -> str:
        return run_tool(TOOL, "--bootstrap-server", gateway.bootstrap_servers, *arguments)

    with WireClient(gateway.bootstrap_servers) as client:
        _commit(client, "idle", 40)
        member = Member(gateway.bootstrap_servers)
        poll_until([member], lambda: len(member.read) == PARTITIONS * RECORDS)
        member.consumer.commit(asynchronous=False)
        listed = tool("--list", "--state")
        states = {row["GROUP"]: row["STATE"] for row in _rows(listed)}
        assert states == {"g": "Stable", "idle": "Empty"}
        described = {row["PARTITION"]: row for row in _rows(tool("--describe", "--group", "g"))}
        assert {number: row["LAG"] for number, row in described.items()} == {"0": "0", "1": "0"}
        assert {row["CURRENT-OFFSET"] for row in described.values()} == {"100"}
        (of_member,) = _rows(tool("--describe", "--group", "g", "--members"))
        assert of_member["#PARTITIONS"] == "2"
        member.close()
        tool(
            "--reset-offsets",
            "--group",
            "idle",
            "--topic",
            "orders",
            "--to-offset",
            "7",
            "--execute",
        )
        rows = _rows(tool("--describe", "--group", "idle"))
        assert {row["CURRENT-OFFSET"] for row in rows} == {"7"}
        tool("--delete-offsets", "--group", "g", "--topic", "orders")
        groups = [{"groupId": "g", "topics": None}]
        (found,) = client.call("OffsetFetch", 9, groups=groups)["groups"]
        assert found["topics"] == []
        tool("--delete", "--group", "idle")
        assert [each["groupId"] for each in client.call("ListGroups", 5)["groups"]] == ["g"]


def test_a_broker_goes_on_with_our_groups_and_we_with_its(
    kafka: Kafka, root: Path, tmp_path: Path
) -> None:
    with serve(root) as gateway:
        first = Member(gateway.bootstrap_servers)
        poll_until([first], lambda: len(first.read) >= 120)
        first.consumer.commit(asynchronous=False)
        first.close()
        with WireClient(gateway.bootstrap_servers) as client:
            _commit(client, "simple", 33)
            ours = _groups(client)
    ok("--path", root, "handover", "--to-kafka")
    with Broker.start(root, tmp_path / "broker", {"offsets.topic.num.partitions": 50}) as broker:
        asked: dict[str, Any] = {"bootstrap": broker.bootstrap, "topic": "orders"}
        assert kafka.ask("committed", group="simple", **asked)["offset"] == 33
        with WireClient(broker.bootstrap) as client:
            theirs = _groups(client)
        assert theirs == ours
        second = Member(broker.bootstrap)
        everything = PARTITIONS * RECORDS
        poll_until([second], lambda: len(first.read) + len(second.read) == everything)
        assert len({*first.read, *second.read}) == everything
        second.consumer.commit(asynchronous=False)
        second.close()
        assert "error" not in kafka.ask("commit", group="made", offset=9, **asked)
    ok("--path", root, "handover", "--from-kafka")
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        found = _groups(client)
        assert set(found) == {"g", "made", "simple"}
        assert found["g"]["orders"] == {0: (100, ""), 1: (100, "")}
        assert found["made"]["orders"][0] == (9, "")


def _described(client: WireClient) -> dict[str, Any]:
    """Return the group g, once the broker has loaded it and knows its feature."""
    end = time.monotonic() + 30
    while True:
        (group,) = client.call("ConsumerGroupDescribe", 1, groupIds=["g"])["groups"]
        if group["errorCode"] == 0 or time.monotonic() > end:
            return dict(group)
        time.sleep(0.1)


def _members(bootstrap: str, count: int) -> list[dict[str, Any]] | None:
    """Return the members of the group g once there are so many."""
    with WireClient(bootstrap) as client:
        (group,) = client.call("ConsumerGroupDescribe", 1, groupIds=["g"])["groups"]
        return group["members"] if len(group["members"]) == count else None


def _hashes(root: Path) -> dict[int, int]:
    """Return the hashes of the topics of the group g that stand in the log, by its epoch."""
    found = {}
    with LogManager.open(str(root)) as manager:
        for number in manager.partitions("__consumer_offsets"):
            for record in manager.reader("__consumer_offsets", number).records():
                parsed = parse_internal(Decoder.OFFSETS, record.key, record.value)
                if parsed and parsed.value and parsed.kind == OffsetsKey.CONSUMER_GROUP:
                    found[parsed.value["epoch"]] = parsed.value["metadataHash"]
    return found


def _groups(client: WireClient) -> dict[str, dict[str, dict[int, tuple[int, str]]]]:
    """Return the committed offsets of all groups, by topic and partition."""
    names = sorted(each["groupId"] for each in client.call("ListGroups", 5)["groups"])
    asked = [{"groupId": each, "topics": None} for each in names]
    return {
        group["groupId"]: {
            topic["name"]: {
                each["partitionIndex"]: (each["committedOffset"], each["metadata"])
                for each in topic["partitions"]
            }
            for topic in group["topics"]
        }
        for group in client.call("OffsetFetch", 9, groups=asked)["groups"]
    }


def test_the_tool_for_groups_of_the_consumer_protocol(gateway: Gateway) -> None:
    def rows(*arguments: str) -> list[dict[str, str]]:
        arguments = ("--bootstrap-server", gateway.bootstrap_servers, *arguments)
        return _rows(run_tool(TOOL, *arguments))

    member = Member(gateway.bootstrap_servers, "consumer")
    poll_until([member], lambda: len(member.read) == PARTITIONS * RECORDS)
    member.consumer.commit(asynchronous=False)
    (listed,) = rows("--list", "--state", "--type")
    assert (listed["GROUP"], listed["TYPE"], listed["STATE"]) == ("g", "Consumer", "Stable")
    described = {row["PARTITION"]: row for row in rows("--describe", "--group", "g")}
    assert {number: row["LAG"] for number, row in described.items()} == {"0": "0", "1": "0"}
    (of_member,) = rows("--describe", "--group", "g", "--members", "--verbose")
    assert (of_member["#PARTITIONS"], of_member["CURRENT-EPOCH"]) == ("2", "1")
    member.close()


def test_a_broker_goes_on_with_a_consumer_group(kafka: Kafka, root: Path, tmp_path: Path) -> None:
    assert kafka
    with serve(root) as gateway:
        member = Member(gateway.bootstrap_servers, "consumer")
        poll_until([member], lambda: len(member.read) == PARTITIONS * RECORDS)
        member.consumer.commit(asynchronous=False)
        with WireClient(gateway.bootstrap_servers) as client:
            ours = client.call("ConsumerGroupDescribe", 1, groupIds=["g"])["groups"][0]
    ok("--path", root, "handover", "--to-kafka")
    with Broker.start(root, tmp_path / "broker", {"offsets.topic.num.partitions": 50}) as broker:
        with WireClient(broker.bootstrap) as client:
            theirs = _described(client)
            assert theirs == ours
            assert _groups(client)["g"]["orders"] == {0: (100, ""), 1: (100, "")}
        # The member is silent: it is connected to the gateway's port.
        assert [each["memberEpoch"] for each in theirs["members"]] == [1]
        second = Member(broker.bootstrap, "consumer")
        poll_until([second], lambda: bool(_members(broker.bootstrap, 2)))
        second.close()
    member.consumer.close()
    ok("--path", root, "handover", "--from-kafka")
    # The first record is ours, the second is the broker's: it makes the same hash of the topics.
    hashes = _hashes(root)
    assert hashes[1] == hashes[2] != 0
    with serve(root) as gateway, WireClient(gateway.bootstrap_servers) as client:
        (found,) = client.call("ConsumerGroupDescribe", 1, groupIds=["g"])["groups"]
        assert found["groupEpoch"] == max(hashes)
