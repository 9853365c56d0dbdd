"""`streamlog replicas`, and topics with replicas."""

import json
from pathlib import Path

import pytest

from tests.support.cli import ok, streamlog


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    made = [tmp_path / name for name in "abc"]
    for each in made[1:]:
        ok("replicas", "add", each, "--path", made[0])
    return made


def test_add_makes_the_roots_and_prints_the_list(tmp_path: Path) -> None:
    home, new = tmp_path / "home", tmp_path / "new"
    ran = ok("replicas", "add", new, "--path", home)
    assert ran.rows == [
        {"node": 1, "root": str(home), "isOnline": True, "isMount": False, "problem": None},
        {"node": 2, "root": str(new), "isOnline": True, "isMount": False, "problem": None},
    ]
    assert f"{new} is on the same disk as {home}" in ran.error
    assert ok("replicas", "list", "--path", new).rows == ran.rows


def test_list_says_which_root_is_offline_and_why(roots: list[Path]) -> None:
    roots[1].rename(roots[1].with_name("elsewhere"))
    rows = ok("replicas", "list", "--path", roots[2]).rows
    assert [row["isOnline"] for row in rows] == [True, False, True]
    assert rows[1]["problem"] == f"log root is missing in {roots[1]}"


def test_several_roots_may_be_given(roots: list[Path], tmp_path: Path) -> None:
    given = ",".join(map(str, roots))
    roots[0].rename(roots[0].with_name("elsewhere"))
    assert [row["isOnline"] for row in ok("replicas", "list", "--path", given).rows] == [
        False,
        True,
        True,
    ]
    ok("replicas", "add", tmp_path / "d", "--path", given)
    assert len(ok("replicas", "list", "--path", roots[1]).rows) == 4
    assert not [each for each in tmp_path.rglob("*") if "," in each.name]
    assert not [each for each in Path.cwd().iterdir() if "," in each.name]


def test_list_of_a_single_root_is_empty(root: Path) -> None:
    ran = ok("replicas", "list", "--path", root)
    assert ran.out == b""
    assert "replicas add --help" in ran.error


def test_list_of_a_missing_root_is_an_error(tmp_path: Path) -> None:
    assert streamlog("replicas", "list", "--path", tmp_path / "no").code == 2
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("by_path", [False, True])
def test_remove_takes_a_node_or_a_path(roots: list[Path], by_path: bool) -> None:
    ran = ok("replicas", "remove", roots[2] if by_path else 3, "--path", roots[0])
    assert ran.error.strip() == f"removed node 3; its files stay in {roots[2]}"
    assert [row["node"] for row in ok("replicas", "list", "--path", roots[1]).rows] == [1, 2]
    assert (roots[2] / "meta.properties").exists()


def test_remove_refuses_a_root_with_replicas(roots: list[Path]) -> None:
    ok("topics", "create", "orders", "--replication-factor", 2, "--path", roots[0])
    ran = streamlog("replicas", "remove", 2, "--path", roots[0])
    assert ran.code == 2
    assert "log root holds replicas" in ran.error and "orders-0" in ran.error


def directories(roots: list[Path]) -> list[list[str]]:
    return [sorted(each.name for each in root.glob("orders-*")) for root in roots]


def test_a_topic_is_created_with_replicas(roots: list[Path]) -> None:
    (row,) = ok(
        "topics", "create", "orders", "--partitions", 2, "--replication-factor", 3,
        "--config", "min.insync.replicas=2", "--path", roots[0],
    ).rows  # fmt: skip
    assert row["partitions"] == 2
    assert directories(roots) == [["orders-0", "orders-1"]] * 3
    for each in roots:
        assert [row["topic"] for row in ok("topics", "list", "--path", each).rows] == ["orders"]


def test_replicas_are_assigned_as_kafka_topics_takes_them(roots: list[Path]) -> None:
    ok("topics", "create", "orders", "--replica-assignment", "1:2,3:1", "--path", roots[0])
    assert directories(roots) == [["orders-0", "orders-1"], ["orders-0"], ["orders-1"]]
    states = [
        json.loads((roots[0] / ".streamlog/replication" / name).read_bytes().split(b"\n")[1])
        for name in ("orders-0", "orders-1")
    ]
    assert [each["accepted"]["state"]["leader"] for each in states] == [1, 3]


def test_more_replicas_than_roots_are_refused(roots: list[Path]) -> None:
    ran = streamlog("topics", "create", "orders", "--replication-factor", 4, "--path", roots[0])
    assert ran.code == 2
    assert "got 4, expected 1 to 3" in ran.error
    assert "replicas add ROOT" in ran.error


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--replica-assignment", "1:x"], "expected nodes as 1:2:3,2:3:1, got '1:x'"),
        (["--replica-assignment", "1:9"], "nodes that are online: 1, 2, 3"),
        (["--replica-assignment", "1", "--partitions", 1], "replaces --partitions"),
    ],
)
def test_an_invalid_assignment_is_refused(
    roots: list[Path], given: list[object], message: str
) -> None:
    ran = streamlog("topics", "create", "orders", *given, "--path", roots[0])
    assert ran.code == 2
    assert message in ran.error


def test_a_replicated_topic_is_altered_and_deleted_everywhere(roots: list[Path]) -> None:
    ok("topics", "create", "orders", "--replication-factor", 3, "--path", roots[0])
    ok("topics", "alter", "orders", "--partitions", 2, "--path", roots[1])
    assert directories(roots) == [["orders-0", "orders-1"]] * 3
    ok("topics", "delete", "orders", "--yes", "--path", roots[2])
    assert directories(roots) == [[], [], []]
    assert ok("topics", "list", "--path", roots[0]).rows == []


# ---- status -------------------------------------------------------------------------------------
@pytest.fixture
def topic(roots: list[Path]) -> Path:
    """A root of a set with a topic on all three roots and one on this root only."""
    settings = ("--config", "min.insync.replicas=2")
    ok("topics", "create", "orders", "--replication-factor", 3, *settings, "--path", roots[0])
    ok("topics", "create", "single", "--path", roots[0])
    return roots[0]


def lose(root: Path) -> None:
    root.rename(root.with_name(f"{root.name}-lost"))


def test_describe_shows_the_replicas(topic: Path, roots: list[Path]) -> None:
    replicated, single = ok("topics", "describe", "--path", topic).rows
    (partition,) = replicated["partitions"]
    assert list(partition)[:8] == [
        "partition",
        "leader",
        "leaderEpoch",
        "logStartOffset",
        "highWatermark",
        "logEndOffset",
        "segments",
        "bytes",
    ]
    assert (partition["replicas"], partition["isr"], partition["elr"]) == ([1, 2, 3], [1, 2, 3], [])
    assert [log["path"] for log in partition["logs"]] == [f"{root}/orders-0" for root in roots]
    assert [log["role"] for log in partition["logs"]] == ["leader", "in sync", "in sync"]
    assert single["partitions"][0]["replicas"] == single["partitions"][0]["isr"] == [1]
    assert single["partitions"][0]["logs"] == []


def test_describe_as_a_table_shows_replicas_and_what_is_offline(
    topic: Path, roots: list[Path]
) -> None:
    lose(roots[1])
    text = ok("topics", "describe", "orders", "--path", topic, "--format", "table").out.decode()
    assert "1,2,3     1,2,3" in text
    assert f"log root is missing in {roots[1]}" in text
    plain = ok("topics", "describe", "single", "--path", topic, "--format", "table").out.decode()
    assert "ISR" not in plain


@pytest.mark.parametrize("home", [0, 1])
def test_describe_works_from_any_root_and_from_several(roots: list[Path], home: int) -> None:
    ok("topics", "create", "orders", "--replication-factor", 2, "--path", roots[0])
    one = ok("topics", "describe", "orders", "--path", roots[home + 1]).rows
    assert one[0]["partitions"][0]["replicas"] == [1, 2]
    lose(roots[0])
    (row,) = ok("topics", "describe", "orders", "--path", f"{roots[0]},{roots[2]}").rows
    assert row["partitions"][0]["offlineReplicas"] == [1]


@pytest.mark.parametrize(
    ("lost", "found"),
    [
        ((), []),
        ((1,), ["under-replicated", "at-min-isr"]),
        ((1, 2), ["under-replicated", "under-min-isr"]),
    ],
)
def test_filters_select_partitions_as_kafka_topics_does(
    topic: Path, roots: list[Path], lost: tuple[int, ...], found: list[str]
) -> None:
    for number in lost:
        lose(roots[number])
    filters = ("under-replicated", "unavailable", "at-min-isr", "under-min-isr")
    shown = [
        name
        for name in filters
        if ok("topics", "describe", f"--{name}-partitions", "--path", topic).rows
    ]
    assert shown == found


def test_a_partition_whose_leader_is_offline_is_unavailable(topic: Path, roots: list[Path]) -> None:
    lose(topic)
    ran = ok("topics", "describe", "--unavailable-partitions", "--path", roots[1])
    assert [row["topic"] for row in ran.rows] == ["orders"]


def test_status_prints_kafkas_metrics(topic: Path, roots: list[Path]) -> None:
    (row,) = ok("replicas", "status", "--path", topic).rows
    assert row == {
        "PartitionCount": 1,
        "UnderReplicatedPartitions": 0,
        "OfflinePartitionsCount": 0,
        "AtMinIsrPartitionCount": 0,
        "UnderMinIsrPartitionCount": 0,
        "OfflineReplicaCount": 0,
        "MaxLag": 0,
        "IsrShrinks": 0,
        "IsrExpands": 0,
        "UncleanLeaderElections": 0,
    }
    lose(roots[2])
    ran = streamlog("replicas", "status", "--path", topic)
    assert ran.code == 1
    assert ran.rows[0]["UnderReplicatedPartitions"] == 1
    assert "--under-replicated-partitions" in ran.error


def test_status_of_a_single_root_is_refused(root: Path) -> None:
    ran = streamlog("replicas", "status", "--path", root)
    assert ran.code == 2
    assert "belongs to no replica set" in ran.error


def test_verify_compares_replicas_if_asked(topic: Path, roots: list[Path]) -> None:
    ran = ok("verify", *roots, "--replicas")
    assert ran.out == b""
    assert ran.error.count("compared 1 partition on 3 log roots") == 1
    lose(roots[2])
    ran = streamlog("verify", topic, "--replicas")
    assert ran.code == 1
    assert {row["kind"] for row in ran.rows} == {
        "offline-replica",
        "under-replicated",
        "at-min-isr",
    }
    assert {row["severity"] for row in ran.rows} == {"degraded"}
    assert streamlog("verify", *roots, "--replicas").rows == ran.rows, "the lost root is one"
    assert ok("verify", topic).rows == []


def test_a_lost_root_alone_is_no_new_root(topic: Path, roots: list[Path]) -> None:
    lose(roots[0])
    given = "pass all roots, separated by commas"
    for command in (("replicas", "list"), ("replicas", "status"), ("elect", "--preferred")):
        ran = streamlog(*command, "--path", roots[0])
        assert (ran.code, given in ran.error) == (2, True), ran.error
    roots[0].mkdir()  # the mount point of the lost disk
    for command in (("cat", "orders"), ("produce", "orders"), ("replicas", "status")):
        ran = streamlog(*command, "--path", roots[0])
        assert (ran.code, given in ran.error) == (2, True), ran.error


def test_a_topic_without_replicas_is_not_created_again_while_its_root_is_offline(
    topic: Path, roots: list[Path]
) -> None:
    lose(topic)
    given = f"bring {topic} back"
    for command in (("cat", "single"), ("produce", "single"), ("offsets", "single")):
        ran = streamlog(*command, "--path", ",".join(map(str, roots)), stdin=b"x\n")
        assert (ran.code, given in ran.error) == (2, True), ran.error


def test_verify_of_replicas_needs_a_replica_set(root: Path) -> None:
    ran = streamlog("verify", root, "--replicas")
    assert ran.code == 2
    assert "belongs to no replica set" in ran.error


def test_verify_accepts_a_root_without_a_replica_of_a_topic(roots: list[Path]) -> None:
    ok("topics", "create", "orders", "--replication-factor", 2, "--path", roots[0])
    for each in roots:
        ok("verify", each)


def test_verify_names_a_damaged_register_and_list(roots: list[Path]) -> None:
    ok("topics", "create", "orders", "--replication-factor", 2, "--path", roots[0])
    register = roots[1] / ".streamlog/replication/orders-0"
    listed = roots[2] / ".streamlog/replicas.json"
    for path in (register, listed):
        path.write_bytes(b"x" * 100)
    (found,) = streamlog("verify", roots[1], "--format", "ndjson").rows
    assert found["file"] == str(register)
    assert found["what"].endswith("the next writer takes it from the other log roots")
    ran = streamlog("verify", roots[2], "--format", "ndjson")
    assert (ran.code, ran.rows[0]["file"]) == (1, str(listed))
    ok("topics", "create", "plain", "--path", roots[0])
    assert ok("verify", roots[1]).rows == []
