"""The demo's count finds lost and duplicated rows."""

from pathlib import Path

import pytest

from streamlog.arrow.table_writer import write_table
from streamlog.demo.orders import ORDERS, PARTITIONS, Count, count_orders, orders
from streamlog.root.manager import LogManager


@pytest.fixture
def root(tmp_path: Path) -> str:
    path = str(tmp_path / "log")
    with LogManager.open(path, create=True) as manager:
        manager.create_topic(ORDERS, PARTITIONS)
    return path


def written(root: str, *ranges: tuple[int, int]) -> Count:
    for start, end in ranges:
        write_table(orders(start, end), root, ORDERS)
    return count_orders(root, ORDERS, 3_000)


def test_each_order_once_is_exact(root: str) -> None:
    count = written(root, (0, 1_500), (1_500, 3_000))
    assert count.is_exact
    assert count.rows == sum(count.partitions) == 3_000
    assert min(count.partitions) > 0


def test_a_missing_order_is_lost(root: str) -> None:
    count = written(root, (0, 1_499), (1_500, 3_000))
    assert count[:3] == (2_999, 1, 0)
    assert not count.is_exact


def test_an_order_that_is_there_twice_is_a_duplicate(root: str) -> None:
    count = written(root, (0, 3_000), (7, 9), (8, 9))
    assert count[:3] == (3_003, 0, 3)
    assert not count.is_exact
