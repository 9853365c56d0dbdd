"""The rows of the demo: orders that carry their number, so that each can be counted."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamlog.arrow.tables import read_arrow

__all__ = ["COPIES", "ORDERS", "PARTITIONS", "Count", "count_orders", "orders"]

ORDERS: Final = "orders"
COPIES: Final = "copies"
PARTITIONS: Final = 4
_CUSTOMERS: Final = 1_000
_FIRST_MS: Final = 1_767_225_600_000  # 2026-01-01
_NUMBER: Final = r'"order":(?P<number>\d+)'


class Count(NamedTuple):
    """What a topic holds of the orders.

    Attributes:
        rows: Number of records.
        lost: Orders without a record.
        duplicates: Records beyond the first one of an order.
        partitions: Number of records by partition.
    """

    rows: int
    lost: int
    duplicates: int
    partitions: tuple[int, ...]

    @property
    def is_exact(self) -> bool:
        """Whether each order is there once."""
        return self.lost == self.duplicates == 0


def orders(start: int, end: int) -> pa.Table:
    """Return the orders with the numbers from `start` up to `end` as rows of the sink."""
    numbers = np.arange(start, end)
    customers = pc.binary_join_element_wise(
        "customer-", pa.array(numbers % _CUSTOMERS).cast("string"), ""
    )
    texts = pa.array(numbers).cast(pa.string()), pa.array(numbers % 97 + 1).cast(pa.string())
    values = pc.binary_join_element_wise('{"order":', texts[0], ',"items":', texts[1], "}", "")
    times = pa.array(_FIRST_MS + numbers * 10).cast(pa.timestamp("ms", tz="UTC"))
    return pa.table({"key": customers, "value": values, "timestamp": times})


def count_orders(root: str, topic: str, expected: int) -> Count:
    """Count the orders of a topic by their numbers.

    Args:
        root: The log root.
        topic: The topic.
        expected: The orders are numbered from 0 up to this.
    """
    partitions = [0] * PARTITIONS
    seen = np.zeros(expected, np.int64)
    for numbers, partition in _numbers(root, topic):
        np.add.at(seen, numbers, 1)
        for each, count in zip(*np.unique(partition, return_counts=True), strict=True):
            partitions[each] += int(count)
    lost = int(np.count_nonzero(seen == 0))
    return Count(int(seen.sum()), lost, int(seen.sum()) - (expected - lost), tuple(partitions))


def _numbers(root: str, topic: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the numbers of orders, and their partitions."""
    for batch in read_arrow(root, topic=topic, columns=["value", "partition"]):
        found = pc.extract_regex(batch.column("value").cast(pa.string()), _NUMBER)
        numbers = pc.struct_field(found, "number").cast(pa.int64())
        yield numbers.to_numpy(), batch.column("partition").to_numpy()
