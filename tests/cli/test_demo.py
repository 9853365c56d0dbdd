"""`streamlog demo`: it kills real processes, counts every row, and says where the log is."""

from pathlib import Path

import pytest

from streamlog.demo import run
from tests.support.cli import ok, streamlog


def test_killed_writers_lose_and_repeat_nothing(tmp_path: Path) -> None:
    root = tmp_path / "log root"
    ran = ok("--path", root, "demo", "--rows", 4_000, "--seed", 1)
    (row,) = ran.rows
    assert list(row) == ["topic", "rows", "lost", "duplicates", "partitions"]
    assert [row["rows"], row["lost"], row["duplicates"]] == [4_000, 0, 0]
    assert "processes killed: 3; commits repeated and recognized: 6" in ran.error
    assert f"streamlog --path '{root}' cat orders --count 3" in ran.error
    assert len(ok("--path", root, "cat", "orders", "--count", 3).rows) == 3
    assert not ok("--path", root, "maintain", "--dry-run").rows, "the log stays to be looked at"


def test_an_existing_directory_is_left_alone(tmp_path: Path) -> None:
    ran = streamlog("--path", tmp_path, "demo")
    assert ran.code == 2
    assert f"the demo makes a log root of its own, but {tmp_path} exists" in ran.error
    assert list(tmp_path.iterdir()) == []


def test_lost_rows_are_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = run.count_orders
    monkeypatch.setattr(run, "_COMMITS", 1)
    monkeypatch.setattr(run, "_KILLS", 0)
    monkeypatch.setattr(run, "count_orders", lambda root, topic, rows: count(root, topic, rows + 1))
    ran = streamlog("--path", tmp_path / "log", "demo", "--rows", 1_000)
    assert ran.code == 1
    assert ran.rows[0]["lost"] == 1
    assert "rows are lost or duplicated" in ran.error


def test_a_failing_process_ends_the_demo_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_COMMITS", "none")
    monkeypatch.setattr(run, "_KILLS", 0)
    ran = streamlog("--path", tmp_path / "log", "demo")
    assert ran.code == 1
    assert "a process of the demo ended with exit code 1, expected 0" in ran.error
    assert "invalid literal for int()" in ran.error


@pytest.mark.spark
def test_spark_is_killed_as_well(tmp_path: Path) -> None:
    ran = ok("--path", tmp_path / "log", "demo", "--spark", "--rows", 2_000)
    assert [row["topic"] for row in ran.rows] == ["orders", "copies"]
    assert [[row["rows"], row["lost"], row["duplicates"]] for row in ran.rows] == [
        [2_000, 0, 0]
    ] * 2
    assert "processes killed: 4" in ran.error
