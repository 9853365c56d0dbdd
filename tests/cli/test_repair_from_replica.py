"""`repair --from-replica`: a damaged replica is kept aside and copied again from a sound one."""

import time
from pathlib import Path

import pytest

from tests.support.cli import ok, start, streamlog

LOG = f"orders-0/{0:020}.log"


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Three roots of a set with a topic on all of them, and another one on the first alone."""
    made = [tmp_path / name for name in "abc"]
    for each in made[1:]:
        ok("replicas", "add", each, "--path", made[0])
    ok("topics", "create", "alone", "--path", made[0])
    settings = ("--config", "min.insync.replicas=2")
    ok("topics", "create", "orders", "--replication-factor", 3, *settings, "--path", made[0])
    for values in (b"1\n2\n", b"3\n"):
        ok("produce", "orders", "--path", made[0], stdin=values)
    return made


def damage(root: Path) -> bytes:
    data = bytearray((root / LOG).read_bytes())
    data[70] ^= 1
    (root / LOG).write_bytes(data)
    return bytes(data)


def described(root: Path) -> tuple[int, list[int]]:
    (topic,) = ok("topics", "describe", "orders", "--path", root).rows
    return topic["partitions"][0]["leader"], sorted(topic["partitions"][0]["isr"])


@pytest.mark.parametrize("number", [0, 1], ids=["leader", "follower"])
@pytest.mark.parametrize("is_root", [True, False])
def test_a_damaged_replica_is_copied_again(roots: list[Path], number: int, is_root: bool) -> None:
    bad = damage(roots[number])
    path = roots[number] if is_root else roots[number] / "orders-0"
    verified = streamlog("verify", roots[number])
    assert f"streamlog repair {roots[number] / 'orders-0'} --from-replica" in verified.error
    assert "--skip-damage" not in verified.error
    refused = streamlog("repair", roots[number])
    assert "--from-replica" in refused.error
    assert "--skip-damage" not in refused.error
    dry = ok("repair", path, "--from-replica", "--dry-run")
    assert f"to apply: streamlog repair {path} --from-replica" in dry.error
    assert (roots[number] / LOG).read_bytes() == bad
    done = ok("repair", path, "--from-replica")
    assert done.error == ""
    assert [{**row, "done": True} for row in dry.rows] == done.rows
    renamed, copied = done.rows
    assert (renamed["action"], copied["action"]) == ("rename", "create")
    assert "wrong checksum" in renamed["why"]
    assert copied["why"] == f"copied from {roots[1 if number == 0 else 0] / 'orders-0'}"
    assert (Path(renamed["target"]) / Path(LOG).name).read_bytes() == bad
    assert described(roots[0]) == (2 if number == 0 else 1, [1, 2, 3])
    assert ok("verify", *roots, "--replicas").rows == []
    assert [row["value"] for row in ok("cat", "orders", "--path", roots[0]).rows] == list("123")
    assert ok("repair", path, "--from-replica").rows == []


def test_one_damage_after_another_is_kept(roots: list[Path]) -> None:
    kept = []
    for _ in range(2):
        damage(roots[2])
        kept.append(ok("repair", roots[2], "--from-replica").rows[0]["target"])
    assert [Path(each).name for each in kept] == ["0-orders-0", "1-orders-0"]
    assert all(Path(each).is_dir() for each in kept)


def test_a_replica_that_differs_with_sound_checksums_is_copied_again(roots: list[Path]) -> None:
    ok("topics", "create", "orders", "--path", roots[0].with_name("other"))
    ok("produce", "orders", "--path", roots[0].with_name("other"), stdin=b"7\n8\n")
    ok("produce", "orders", "--path", roots[0].with_name("other"), stdin=b"9\n")
    (roots[1] / LOG).write_bytes((roots[0].with_name("other") / LOG).read_bytes())
    (renamed, _) = ok("repair", roots[1], "--from-replica").rows
    assert "differ" in renamed["why"]
    assert ok("verify", *roots, "--replicas").rows == []


def test_the_only_good_copy_is_never_given_up(roots: list[Path]) -> None:
    bad = [damage(root) for root in roots]
    ran = streamlog("repair", roots[1], "--from-replica")
    assert ran.code == 1
    assert "no other replica in sync is sound, so nothing was changed" in ran.error
    for number in (1, 3):
        assert f"node {number}: damaged: a batch has a wrong checksum" in ran.error
    assert [(root / LOG).read_bytes() for root in roots] == bad


def test_a_sound_replica_that_is_not_in_sync_is_no_source(roots: list[Path]) -> None:
    for number in (0, 2):
        roots[number].rename(roots[number].with_name("away"))
        ok("produce", "orders", "--path", roots[1], stdin=b"4\n")
        roots[number].with_name("away").rename(roots[number])
        if number == 0:
            ok("replicate", "--path", roots[1])
    bad = damage(roots[1])
    roots[0].rename(roots[0].with_name("away"))
    ran = streamlog("repair", roots[1], "--from-replica")
    assert ran.code == 1
    assert "node 1: offline" in ran.error
    assert "node 3: not in sync" in ran.error
    assert (roots[1] / LOG).read_bytes() == bad


def test_a_writer_continues_meanwhile(roots: list[Path]) -> None:
    writer = start("produce", "orders", "--path", roots[0])
    assert writer.stdin is not None
    damage(roots[1])
    for number in range(40):
        writer.stdin.write(b"%d\n" % number)
        writer.stdin.flush()
        if number == 10:
            ok("repair", roots[1], "--from-replica")
        time.sleep(0.01)
    writer.communicate(timeout=60)
    assert writer.returncode == 0
    ok("replicate", "--path", roots[0])
    values = [row["value"] for row in ok("cat", "orders", "--path", roots[0]).rows]
    assert values == [*"123", *map(str, range(40))]
    assert ok("verify", *roots, "--replicas").rows == []


def test_what_cannot_be_refilled_is_refused(roots: list[Path], tmp_path: Path) -> None:
    ran = streamlog("repair", roots[0] / "alone-0", "--from-replica")
    assert ran.code == 2
    assert "partition is not replicated" in ran.error
    assert streamlog("repair", roots[0], "--from-replica", "--skip-damage").code == 2
    ok("topics", "create", "t", "--path", tmp_path / "single")
    ran = streamlog("repair", tmp_path / "single", "--from-replica")
    assert ran.code == 2
    assert "belongs to no replica set" in ran.error
