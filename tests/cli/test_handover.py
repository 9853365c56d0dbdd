"""`streamlog handover`: its steps as rows, what it tells beside them, and its exit codes."""

from pathlib import Path

import pytest

from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from tests.support.cli import ok, streamlog

TO_KAFKA = ("handover", "--to-kafka")
FROM_KAFKA = ("handover", "--from-kafka")


def test_the_steps_are_rows_and_the_rest_is_printed_beside_them(root: Path) -> None:
    ran = ok("--path", root, *TO_KAFKA)
    assert [list(row) for row in ran.rows] == [["step", "what", "path", "done"]] * 5
    assert [row["step"] for row in ran.rows] == [1, 2, 3, 4, 5]
    assert all(row["done"] for row in ran.rows)
    assert "handed over to Kafka: 1 topics with 3 partitions" in ran.error
    assert f"log.dirs={root}" in ran.error
    assert "node.id=1" in ran.error
    assert not (root / ".streamlog").exists()
    assert (root.parent / f"{root.name}.streamlog").is_dir()


def test_a_dry_run_says_what_would_be_done_and_does_nothing(root: Path) -> None:
    ran = ok("--path", root, *TO_KAFKA, "--dry-run")
    assert [row["done"] for row in ran.rows] == [False] * 5
    assert (root / ".streamlog").is_dir()
    assert "handed over" not in ran.error


def test_the_same_again_has_nothing_to_do(root: Path) -> None:
    for way, whose in ((TO_KAFKA, "a broker"), (FROM_KAFKA, "streamlog")):
        assert ok("--path", root, *way).rows
        ran = ok("--path", root, *way)
        assert ran.out == b""
        assert f"nothing to do: {root} already belongs to {whose}" in ran.error


def test_a_root_that_came_back_is_written_on(root: Path) -> None:
    ok("--path", root, "produce", "orders", "--partition", 0, stdin=b"before\n")
    ok("--path", root, *TO_KAFKA, "--quiet")
    ok("--path", root, *FROM_KAFKA, "--quiet")
    ok("--path", root, "produce", "orders", "--partition", 0, stdin=b"after\n")
    values = [row["value"] for row in ok("--path", root, "cat", "orders").rows]
    assert values == ["before", "after"]


def test_a_root_that_comes_back_from_no_broker_says_so(root: Path) -> None:
    ok("--path", root, *TO_KAFKA)
    ran = ok("--path", root, *FROM_KAFKA)
    assert "no broker ran on it; its topics are unchanged" in ran.error


def test_a_root_with_a_writer_is_refused_with_what_to_do(root: Path) -> None:
    with LogManager.open(root) as manager:
        manager.log("orders", 0).append([Record(value=b"one")])
        ran = streamlog("--path", root, *TO_KAFKA)
    assert ran.code == 1
    assert "log root is open for writing" in ran.error
    assert "Try: stop the queries" in ran.error


@pytest.mark.parametrize("ways", [(), ("--to-kafka", "--from-kafka")], ids=["neither", "both"])
def test_one_way_must_be_named(root: Path, ways: tuple[str, ...]) -> None:
    ran = streamlog("--path", root, "handover", *ways)
    assert ran.code == 2
    assert "pass either --to-kafka" in ran.error


def test_a_writer_to_a_handed_over_root_gets_the_way_back(tmp_path: Path) -> None:
    root = tmp_path / "root"
    ok("topics", "create", "t", "--path", root)
    ok("--path", root, "handover", "--to-kafka")

    ran = streamlog("produce", "t", "--path", root, stdin=b"x\n")

    assert ran.code == 2
    assert f"streamlog --path {root} handover --from-kafka" in ran.error
