"""Commands that read a replica set: any root names it, and one may be lost."""

import json
from pathlib import Path

import pytest

from tests.root.test_readers import checkpoint
from tests.support.cli import ok, start, streamlog
from tests.support.replica_set import ReplicaSet


@pytest.fixture
def replicas(tmp_path):
    """Nine records, the last six acknowledged while the first root was away; it is back."""
    made = ReplicaSet(tmp_path)
    made.append("abc")
    made.lose(0)
    made.append("def")
    made.append("ghi")
    made.bring_back(0)
    return made


def printed(*arguments):
    return "".join(row["value"] for row in ok("cat", *arguments).rows)


def test_any_root_serves_all_committed_records(replicas):
    for path in (replicas.text, *replicas.paths):
        assert printed("orders", "--path", path) == "abcdefghi"
    assert printed(replicas.text) == "abcdefghi"


def test_records_and_offsets_are_read_while_a_root_is_lost(replicas):
    replicas.lose(2)
    assert printed("orders", "--path", replicas.text) == "abcdefghi"
    (row,) = ok("offsets", "orders", "--path", replicas.paths[1]).rows
    assert row["offset"] == 9
    replicas.lose(1)
    replicas.lose(0)
    ran = streamlog("cat", "orders", "--path", replicas.text)
    assert ran.code == 1
    assert "no log root of the replica set is reachable" in ran.error
    assert all(path in ran.error for path in replicas.paths)


def test_path_of_one_partition_reads_that_replica_alone(replicas):
    assert printed(f"{replicas.paths[0]}/orders-0") == "abc"
    assert printed(f"{replicas.paths[1]}/orders-0") == "abcdefghi"


def test_lag_is_measured_at_the_leader(replicas, tmp_path):
    directory = checkpoint(tmp_path / "audit", {0: ['{"orders":{"0":4}}']}, done=0)
    (row,) = ok("lag", "--checkpoint", directory, "--path", replicas.paths[0]).rows
    assert (row["logEndOffset"], row["lag"]) == (9, 5)


def test_readers_are_recorded_in_each_reachable_root(replicas, tmp_path):
    directory = checkpoint(tmp_path / "audit", {0: ['{"orders":{"0":4}}']}, done=0)
    replicas.lose(1)
    added = ok("readers", "add", "audit", "--checkpoint", directory, "--path", replicas.text)
    assert [(row["reader"], row["offset"]) for row in added.rows] == [("audit", 4)]
    assert f"unchanged in an unreachable log root: log root is missing in {replicas.paths[1]}" in (
        added.error
    )
    replicas.bring_back(1)
    there = [Path(path, ".streamlog/readers/audit.json").exists() for path in replicas.paths]
    assert there == [True, False, True]
    for path in replicas.paths:
        assert [row["reader"] for row in ok("readers", "list", "--path", path).rows] == ["audit"]
    ok("readers", "forget", "audit", "--path", replicas.paths[1])
    assert ok("readers", "list", "--path", replicas.text).rows == []


def test_verify_takes_the_roots_as_they_are_given_to_other_commands(replicas):
    ran = ok("verify", replicas.text)
    assert [f"{path}: sound" in ran.error for path in replicas.paths] == [True] * 3


def test_root_of_another_set_is_refused(replicas, tmp_path):
    ok("topics", "create", "other", "--path", tmp_path / "elsewhere")
    ran = streamlog("cat", "orders", "--path", f"{replicas.paths[0]},{tmp_path}/elsewhere")
    assert ran.code == 2
    assert "log root does not belong to the replica set" in ran.error


def test_following_continues_on_another_root(replicas):
    process = start("cat", "orders", "--follow", "--format", "ndjson", "--path", replicas.text)
    try:
        assert followed(process, 9) == "abcdefghi"
        leader = next(n for n in range(3) if n != 0)  # elected while the first root was away
        replicas.lose(leader)
        replicas.append("jk")
        assert followed(process, 2) == "jk"
        replicas.bring_back(leader)
        replicas.lose(0)
        replicas.append("l")
        assert followed(process, 1) == "l"
    finally:
        process.kill()
        process.communicate()


def followed(process, count):
    return "".join(json.loads(process.stdout.readline())["value"] for _ in range(count))
