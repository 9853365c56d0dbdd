"""`streamlog offsets`: kafka-get-offsets for a directory."""

from pathlib import Path

import pytest

from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from tests.support.cli import ok, streamlog


@pytest.fixture
def filled(root: Path) -> Path:
    with LogManager.open(root) as manager:
        for timestamp in (1000, 3000, 2000):
            manager.log("orders", 1).append([Record(value=b"x", timestamp=timestamp)])
    return root


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("earliest", [(0, 0, None), (1, 0, None), (2, 0, None)]),
        ("-2", [(0, 0, None), (1, 0, None), (2, 0, None)]),
        ("latest", [(0, 0, None), (1, 3, None), (2, 0, None)]),
        ("-1", [(0, 0, None), (1, 3, None), (2, 0, None)]),
        ("max-timestamp", [(0, None, None), (1, 1, 3000), (2, None, None)]),
        ("0", [(0, None, None), (1, 0, 1000), (2, None, None)]),
        ("1001", [(0, None, None), (1, 1, 3000), (2, None, None)]),
        ("3001", [(0, None, None), (1, None, None), (2, None, None)]),
    ],
)
def test_offset_of_each_partition(
    filled: Path, time: str, expected: list[tuple[int, int | None, int | None]]
) -> None:
    rows = ok("offsets", "orders", "--path", filled, "--time", time).rows
    assert [(row["partition"], row["offset"], row["timestamp"]) for row in rows] == expected
    assert all(list(row) == ["topic", "partition", "offset", "timestamp"] for row in rows)


def test_latest_by_default(filled: Path) -> None:
    assert ok("offsets", filled / "orders-1").rows[0]["offset"] == 3


def test_without_a_topic_all_are_printed(filled: Path) -> None:
    ok("topics", "create", "another", "--path", filled)
    rows = ok("offsets", "--path", filled).rows
    assert [row["topic"] for row in rows] == ["another", "orders", "orders", "orders"]


def test_a_table_shows_missing_values_as_a_dash(filled: Path) -> None:
    ran = ok("offsets", "orders", "-p", 0, "--time", "0", "--path", filled, "--format", "table")
    assert ran.out.decode().splitlines()[1].split() == ["orders", "0", "-", "-"]


def test_an_unreadable_partition_is_a_finding_and_the_others_come_first(filled: Path) -> None:
    log = filled / "orders-1" / f"{0:020}.log"
    log.unlink()
    log.mkdir()
    ran = streamlog("offsets", "orders", "--path", filled)
    assert [row["partition"] for row in ran.rows] == [0, 2]
    assert ran.code == 1
