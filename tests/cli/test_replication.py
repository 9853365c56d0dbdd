"""`streamlog elect`, `reassign` and `replicate`, and writing while roots are lost."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import ok, start, streamlog


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Three roots of a set with a topic on all of them and two records in it."""
    made = [tmp_path / name for name in "abc"]
    for each in made[1:]:
        ok("replicas", "add", each, "--path", made[0])
    settings = ("--config", "min.insync.replicas=2")
    ok("topics", "create", "orders", "--replication-factor", 3, *settings, "--path", made[0])
    ok("produce", "orders", "--path", made[0], stdin=b"1\n2\n")
    return made


def lose(root: Path) -> None:
    root.rename(root.with_name(f"{root.name}-lost"))


def give_back(root: Path) -> None:
    root.with_name(f"{root.name}-lost").rename(root)


def described(root: Path) -> dict[str, Any]:
    (topic,) = ok("topics", "describe", "orders", "--path", root).rows
    partition: dict[str, Any] = topic["partitions"][0]
    return partition


def test_a_leader_that_was_lost_leads_again_once_it_is_preferred(roots: list[Path]) -> None:
    lose(roots[0])
    ok("produce", "orders", "--path", roots[1], stdin=b"3\n")
    assert described(roots[1])["leader"] == 2
    give_back(roots[0])
    (row,) = ok("elect", "--preferred", "orders", "--path", roots[1]).rows
    assert (row["leader"], row["isr"]) == (1, [1, 2, 3])
    ok("produce", "orders", "--path", roots[0], stdin=b"4\n")
    assert ok("verify", roots[0], "--replicas").rows == []


def test_a_preferred_leader_that_is_offline_is_remarked(roots: list[Path]) -> None:
    lose(roots[0])
    ok("produce", "orders", "--path", roots[1], stdin=b"3\n")
    ran = ok("elect", "--preferred", "orders", "--path", roots[1])
    assert ran.rows[0]["leader"] == 2
    assert "[orders-0] not led by node 1: it is not online" in ran.error
    give_back(roots[0])
    assert "not led" not in ok("elect", "--preferred", "orders", "--path", roots[1]).error


def test_replicate_fails_if_a_replica_cannot_catch_up(roots: list[Path]) -> None:
    lose(roots[2])
    ok("produce", "orders", "--path", roots[0], stdin=b"3\n")
    ran = streamlog("replicate", "--once", "--path", roots[0])
    assert (ran.code, ran.rows[0]["isr"]) == (1, [1, 2])
    assert "[orders-0] replicas could not catch up: got node 3 behind" in ran.error
    give_back(roots[2])
    ok("replicate", "--once", "--path", roots[0])


def test_an_unclean_election_goes_on_with_the_last_root(roots: list[Path]) -> None:
    lose(roots[0])
    lose(roots[1])
    refused = streamlog("produce", "orders", "--path", roots[2], stdin=b"3\n")
    assert refused.code == 1
    (row,) = ok("elect", "--unclean", "orders:0", "--path", roots[2]).rows
    assert row["leader"] == 3
    values = [row["value"] for row in ok("cat", "orders", "--path", roots[2]).rows]
    assert values == ["1", "2"][: len(values)]


def test_the_commits_go_on_with_the_last_root_after_an_unclean_election(
    roots: list[Path],
) -> None:
    ok("produce", "orders", "--atomic", "--path", roots[0], stdin=b"3\n")
    lose(roots[0])
    lose(roots[1])
    refused = streamlog("produce", "orders", "--atomic", "--path", roots[2], stdin=b"4\n")
    assert refused.code == 1
    assert "elect --unclean --commits" in refused.error
    ran = ok("elect", "--unclean", "--commits", "orders", "--path", roots[2])
    assert [row["leader"] for row in ran.rows] == [3]
    assert "node 3 leads the commits" in ran.error
    ok("produce", "orders", "--atomic", "--acks", "1", "--path", roots[2], stdin=b"4\n")
    assert streamlog("elect", "--commits", "--path", roots[2]).code == 2


def test_an_unclean_election_without_any_replica_names_the_missing_roots(
    roots: list[Path],
) -> None:
    where = ("--replica-assignment", "2:3", "--path", roots[0])
    ok("topics", "create", "two", *where)
    for each in roots[1:]:
        lose(each)
    ran = streamlog("elect", "--unclean", "two", "--path", roots[0])
    assert ran.code == 1
    assert "no replica of two-0 is online" in ran.error
    for number in (1, 2):
        assert f"node {number + 1} ({roots[number]}): log root is missing" in ran.error
    assert "bring one of these log roots back" in ran.error
    assert "streamlog elect" not in ran.error
    give_back(roots[2])
    ok("elect", "--unclean", "two", "--path", roots[0])


def test_an_unclean_election_needs_a_name(roots: list[Path]) -> None:
    for wrong in (("--unclean",), (), ("--preferred", "--unclean", "orders")):
        assert streamlog("elect", *wrong, "--path", roots[0]).code == 2
    ran = streamlog("elect", "--unclean", "clicks", "--path", roots[0])
    assert ran.code == 2
    assert "there is no replicated partition clicks" in ran.error


def test_reassign_moves_a_replica_to_another_root(roots: list[Path], tmp_path: Path) -> None:
    new = tmp_path / "d"
    ok("replicas", "add", new, "--path", roots[0])
    (row,) = ok("reassign", "orders:0", "--replicas", "1,3,4", "--path", roots[0]).rows
    assert (row["replicas"], sorted(row["isr"])) == ([1, 3, 4], [1, 3, 4])
    assert (new / "orders-0").is_dir()
    assert not (roots[1] / "orders-0").exists()
    assert ok("verify", roots[0], "--replicas").rows == []


def test_reassign_refuses_an_unknown_node_before_it_does_anything(roots: list[Path]) -> None:
    before = described(roots[0])
    ran = streamlog("reassign", "orders:0", "--replicas", "1,9", "--path", roots[0])
    assert ran.code == 2
    assert "invalid nodes for a partition: got [1, 9]" in ran.error
    assert len(ran.error.splitlines()) == 2
    assert described(roots[0]) == before


@pytest.mark.parametrize("wrong", [("orders", "1,2"), ("orders:0", "1,x"), ("orders:x", "1")])
def test_reassign_refuses_what_it_does_not_understand(
    roots: list[Path], wrong: tuple[str, str]
) -> None:
    partition, nodes = wrong
    assert streamlog("reassign", partition, "--replicas", nodes, "--path", roots[0]).code == 2


@pytest.mark.parametrize("command", [("replicate", "--once"), ("replicate",), ("maintain",)])
def test_a_replaced_disk_is_filled(roots: list[Path], command: tuple[str, ...]) -> None:
    lose(roots[1])
    ok("produce", "orders", "--path", roots[0], stdin=b"3\n")
    roots[1].mkdir()
    assert streamlog("replicas", "status", "--path", roots[0]).code == 1
    ok(*command, "--path", roots[0])
    ok("replicas", "status", "--path", roots[0])
    assert described(roots[0])["isr"] == [1, 2, 3]
    assert ok("verify", *roots, "--replicas").rows == []


def test_events_are_counted_whatever_process_they_happen_in(roots: list[Path]) -> None:
    lose(roots[1])
    ok("produce", "orders", "--path", roots[0], stdin=b"3\n")
    give_back(roots[1])
    ok("replicate", "--path", roots[0])
    (row,) = ok("replicas", "status", "--path", roots[0]).rows
    assert (row["IsrShrinks"], row["IsrExpands"], row["UncleanLeaderElections"]) == (1, 1, 0)
    lose(roots[0])
    lose(roots[2])
    ok("elect", "--unclean", "orders", "--path", roots[1])  # without a majority of the roots
    (row,) = streamlog("replicas", "status", "--path", roots[1]).rows
    assert row["UncleanLeaderElections"] == 1


def test_replicate_follows_until_it_is_terminated(roots: list[Path]) -> None:
    lose(roots[2])
    ok("produce", "orders", "--path", roots[0], stdin=b"3\n")
    process = start("replicate", "--follow", "--path", roots[0])
    give_back(roots[2])
    deadline = time.monotonic() + 60
    while streamlog("replicas", "status", "--path", roots[0]).code:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error.decode().strip()) == (0, "stopped")


def test_several_roots_are_written_and_listed_by_the_first_that_is_there(
    roots: list[Path],
) -> None:
    lose(roots[0])
    path = ",".join(map(str, roots))
    ok("produce", "orders", "--path", path, stdin=b"3\n")
    assert [row["topic"] for row in ok("topics", "list", "--path", path).rows] == ["orders"]
    values = [row["value"] for row in ok("cat", "orders", "--path", path).rows]
    assert values == ["1", "2", "3"]


def test_several_roots_must_belong_to_a_replica_set(tmp_path: Path) -> None:
    for name in "xy":
        ok("topics", "create", "t", "--path", tmp_path / name)
    ran = streamlog("topics", "list", "--path", f"{tmp_path}/x,{tmp_path}/y")
    assert ran.code == 2
    assert "log roots belong to no replica set" in ran.error
