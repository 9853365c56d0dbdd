"""`streamlog repair`: each step is a row; a dry run changes nothing and says the same."""

from pathlib import Path

import pytest

from tests.support.cli import ok, streamlog


@pytest.fixture
def torn(root: Path) -> Path:
    """A root one of whose partitions ends in half a batch."""
    ok("produce", "orders", "--partition", 1, "--path", root, stdin=b"one\ntwo\n")
    path = root / "orders-1" / f"{0:020}.log"
    path.write_bytes(path.read_bytes() + b"half a batch")
    return root


def test_a_dry_run_says_what_would_be_done(torn: Path) -> None:
    path = torn / "orders-1" / f"{0:020}.log"
    size = path.stat().st_size
    dry = ok("repair", torn, "--dry-run")
    assert "nothing was changed" in dry.error
    assert path.stat().st_size == size
    done = ok("repair", torn)
    assert done.error == ""
    assert [{**row, "done": True} for row in dry.rows] == done.rows
    [cut] = [row for row in done.rows if row["action"] == "cut"]
    assert cut == {
        "topic": "orders",
        "partition": 1,
        "action": "cut",
        "file": str(path),
        "target": None,
        "size": size,
        "newSize": size - 12,
        "why": "the log ends in an incomplete batch",
        "done": True,
    }
    assert f"{path}.torn-1" in [row["file"] for row in done.rows]
    assert ok("cat", "orders", "--path", torn).rows[1]["value"] == "two"


def test_sound_files_are_left_alone(root: Path) -> None:
    ok("produce", "orders", "--path", root, stdin=b"one\n")
    assert ok("repair", root).out == b""
    assert ok("repair", root / "orders-0", "--dry-run", "--format", "json").out == b"[]\n"


def test_damage_is_refused_and_a_table_shows_the_rest(torn: Path) -> None:
    ok("produce", "orders", "--partition", 2, "--path", torn, stdin=b"one\n")
    bad = torn / "orders-2" / f"{0:020}.log"
    data = bytearray(bad.read_bytes())
    data[70] ^= 1
    bad.write_bytes(data)
    ran = streamlog("repair", torn, "--format", "table")
    assert ran.code == 1
    assert ran.error.startswith("Error: synced records are damaged") and str(bad) in ran.error
    lines = ran.out.decode().splitlines()
    assert lines[0].split()[:3] == ["TOPIC", "PARTITION", "ACTION"]
    assert any(" cut " in line and "orders-1" in line for line in lines)


def test_wrong_use(root: Path) -> None:
    assert streamlog("repair", root / "missing").code == 2
    (root / "orders-0" / f"{0:020}.log").touch()
    assert streamlog("repair", root / "orders-0" / f"{0:020}.log").code == 2
