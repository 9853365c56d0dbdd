from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.arrow.checksum import checksum_rows
from streamlog.arrow.schema import SinkSchema
from streamlog.arrow.sink_columns import SinkColumns, read_columns
from streamlog.commits.fingerprint import checksum_sum
from tests.twins.checksum import plain_checksum_rows

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
POSITIONS = SinkSchema(key=0, value=1, headers=2, topic=3, partition=4, timestamp=5)
TEXT = st.none() | st.binary(max_size=4)
ROW = st.fixed_dictionaries(
    {
        "key": TEXT,
        "value": TEXT,
        "headers": st.lists(
            st.fixed_dictionaries({"key": st.text(max_size=2), "value": TEXT}), max_size=2
        ),
        "topic": st.sampled_from(["a", "b"]),
        "partition": st.none() | st.integers(0, 3),
        "timestamp": st.none() | st.integers(0, 5000),
    }
)


def columns_of(rows: list[dict[str, Any]]) -> SinkColumns:
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    return read_columns(batch, POSITIONS)


@settings(deadline=None)
@given(st.lists(ROW, max_size=12))
def test_the_kernel_agrees_with_its_plain_twin(rows: list[dict[str, Any]]) -> None:
    columns = columns_of(rows)

    assert checksum_rows(columns) == plain_checksum_rows(columns)


@settings(deadline=None)
@given(st.lists(ROW, min_size=1, max_size=12), st.data())
def test_the_order_of_rows_and_their_division_do_not_matter(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))

    parts = [checksum_rows(columns_of(part)) for part in (shuffled[:cut], shuffled[cut:])]

    assert checksum_sum(*parts) == checksum_rows(columns_of(rows))


ONE: dict[str, Any] = {
    "key": b"k",
    "value": b"v",
    "headers": [{"key": "h", "value": b"x"}],
    "topic": "a",
    "partition": 1,
    "timestamp": 1000,
}


@pytest.mark.parametrize(
    "change",
    [
        {"key": None},
        {"key": b""},
        {"key": b"v", "value": b"k"},
        {"value": None},
        {"value": b"w"},
        {"headers": []},
        {"headers": [{"key": "h", "value": None}]},
        {"headers": [{"key": "hx", "value": b""}]},
        {"headers": ONE["headers"] * 2},
        {"topic": "b"},
        {"partition": None},
        {"partition": 0},
        {"timestamp": None},
        {"timestamp": 2000},
    ],
)
def test_every_field_the_user_gave_counts(change: dict[str, Any]) -> None:
    assert checksum_rows(columns_of([ONE])) != checksum_rows(columns_of([ONE | change]))


def test_a_row_twice_is_not_the_row_once_nor_no_row() -> None:
    sums = {checksum_rows(columns_of([ONE] * count)) for count in range(4)}

    assert len(sums) == 4


def test_a_column_of_nulls_is_as_good_as_none() -> None:
    columns = columns_of([ONE | {"key": None, "timestamp": None, "partition": None}] * 9)
    missing = replace(
        columns, partition=np.full(9, -1, np.int32), timestamp=np.full(9, -(2**63), np.int64)
    )

    assert columns.key is None
    assert checksum_rows(columns) == checksum_rows(missing)
