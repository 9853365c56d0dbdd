from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.arrow.schema import SinkSchema
from streamlog.arrow.sink_columns import (
    DECIDED_BY_PARTITIONER,
    TIME_OF_BATCH,
    SinkColumns,
    read_columns,
)
from streamlog.errors import InvalidRecordError, InvalidRequestError, InvalidTimestampError
from streamlog.records.columns import BinaryColumn

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ARROW = {
    "key": pa.binary(),
    "value": pa.string(),
    "headers": HEADERS,
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", tz="Europe/Berlin"),
    "offset": pa.int64(),
}
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def positions(*names: str) -> SinkSchema:
    found = {name: index for index, name in enumerate(names)}
    return SinkSchema(
        value=found["value"],
        **{name: found.get(name) for name in ("key", "headers", "topic", "partition", "timestamp")},
    )


def record_batch(**columns: list[Any]) -> pa.RecordBatch:
    arrays = [pa.array(rows, ARROW[name]) for name, rows in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def read(batch: pa.RecordBatch, first_row: int = 0) -> SinkColumns:
    return read_columns(batch, positions(*batch.schema.names), first_row=first_row)


def strings(column: BinaryColumn | None) -> list[bytes | None] | None:
    return None if column is None else list(column)


def header_lists(columns: SinkColumns) -> list[list[tuple[bytes | None, bytes | None]]]:
    if columns.headers is None:
        return [[] for _ in range(columns.count)]
    pairs = list(zip(columns.headers.key, columns.headers.value, strict=True))
    ends = columns.headers.offsets.tolist()
    return [pairs[start:end] for start, end in pairwise(ends)]


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.binary(max_size=5),
            "value": st.none() | st.text(max_size=5),
            "headers": st.none()
            | st.lists(
                st.fixed_dictionaries(
                    {"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}
                ),
                max_size=3,
            ),
            "topic": st.sampled_from(["a", "b", "orders"]),
            "partition": st.none() | st.integers(0, 2**31 - 1),
            "timestamp": st.none() | st.integers(-1000, 2**52),
        }
    ),
    max_size=40,
)


@settings(deadline=None)
@given(rows=ROWS, before=st.integers(0, 20), after=st.integers(0, 3), large=st.booleans())
def test_columns_hold_what_the_rows_hold_wherever_a_slice_begins(
    rows: list[dict[str, Any]], before: int, after: int, *, large: bool
) -> None:
    filler = dict.fromkeys(ROWS_NAMES) | {"topic": "filler", "value": "filler"}
    filler["headers"] = [{"key": "f", "value": b"f"}]
    everything = [filler] * before + rows + [filler] * after
    columns = {name: [row[name] for row in everything] for name in ROWS_NAMES}
    columns["timestamp"] = [
        None if us is None else EPOCH + timedelta(microseconds=us) for us in columns["timestamp"]
    ]
    batch = record_batch(**columns)
    if large:
        batch = batch.cast(pa.schema([(name, enlarged(ARROW[name])) for name in ROWS_NAMES]))
    batch = batch.slice(before, len(rows))

    found = read(batch)

    assert found.count == len(rows)
    keys = [row["key"] for row in rows]
    assert strings(found.key) == (keys if any(key is not None for key in keys) else None)
    assert strings(found.value) == [
        None if row["value"] is None else row["value"].encode() for row in rows
    ]
    assert header_lists(found) == [
        [(pair["key"].encode(), pair["value"]) for pair in row["headers"] or []] for row in rows
    ]
    assert found.topic is not None
    assert [found.topics[code] for code in found.topic.tolist()] == [row["topic"] for row in rows]
    assert found.partition is not None
    assert found.partition.tolist() == [
        DECIDED_BY_PARTITIONER if row["partition"] is None else row["partition"] for row in rows
    ]
    timestamps = [
        TIME_OF_BATCH if row["timestamp"] is None else row["timestamp"] // 1000 for row in rows
    ]
    if all(row["timestamp"] is None for row in rows):
        assert found.timestamp is None
    else:
        assert found.timestamp is not None
        assert found.timestamp.tolist() == timestamps


ROWS_NAMES = ["key", "value", "headers", "topic", "partition", "timestamp"]


def enlarged(kind: pa.DataType) -> pa.DataType:
    if kind == pa.binary():
        return pa.large_binary()
    if kind == pa.string():
        return pa.large_string()
    return pa.large_list(kind.value_type) if kind == HEADERS else kind


def test_null_counts_and_bitmaps_follow_the_slice() -> None:
    batch = record_batch(value=["a", None, "b", None, "c", "d", "e", "f", "g", None, "h"])

    found = read(batch.slice(3, 7))

    assert found.value.null_count == 2
    assert found.value.validity is not None
    assert len(found.value.validity) == 1
    assert strings(found.value) == [None, b"c", b"d", b"e", b"f", b"g", None]


def test_a_slice_without_nulls_has_no_bitmap() -> None:
    found = read(record_batch(value=[None, "a", "b"]).slice(1))

    assert found.value.validity is None
    assert found.value.null_count == 0


def test_bytes_are_shared_with_arrow() -> None:
    batch = record_batch(value=["abc" * 100] * 10)

    found = read(batch)

    data = np.frombuffer(batch.column(0).buffers()[2], np.uint8)
    assert np.shares_memory(found.value.data, data)


def test_absent_columns_are_none() -> None:
    found = read(record_batch(value=["a"]))

    assert (found.key, found.headers, found.topic) == (None, None, None)
    assert (found.partition, found.timestamp, found.topics) == (None, None, ())


def test_headers_that_a_null_list_hides_are_not_read() -> None:
    pairs = pa.array([{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}], HEADERS.value_type)
    headers = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pairs, mask=pa.array([True, False])
    )
    batch = pa.RecordBatch.from_arrays([pa.array(["x", "y"]), headers], names=["value", "headers"])

    assert header_lists(read(batch)) == [[], [(b"b", b"2")]]


@pytest.mark.parametrize("bad", [None, {"key": None, "value": b""}])
def test_a_header_without_a_key_names_its_row(bad: Any) -> None:
    good = {"key": "k", "value": None}
    batch = record_batch(value=["a", "b", "c"], headers=[[good, good], [], [good, bad]])

    with pytest.raises(InvalidRecordError, match="row 12: header is null or has no key"):
        read(batch, first_row=10)
    with pytest.raises(InvalidRecordError, match="row 11: header is null or has no key"):
        read(batch.slice(1), first_row=10)


def test_a_null_topic_names_its_row() -> None:
    batch = record_batch(value=["a", "b"], topic=["orders", None])

    with pytest.raises(InvalidRecordError, match="null topic present in the data, row 6"):
        read(batch, first_row=5)


def test_a_negative_partition_names_its_row() -> None:
    batch = record_batch(value=["a", "b", "c"], partition=[None, 0, -1])

    with pytest.raises(InvalidRecordError, match=r"row 2: partition is negative: got -1"):
        read(batch)


def test_only_minus_one_millisecond_stands_for_no_timestamp() -> None:
    early = [EPOCH - timedelta(milliseconds=1), EPOCH - timedelta(milliseconds=2)]

    kept = read(record_batch(value=["a"], timestamp=early[:1]))
    assert kept.timestamp is not None
    assert kept.timestamp.tolist() == [-1]
    with pytest.raises(InvalidTimestampError, match=r"row 1 has a timestamp before 1970: got -2"):
        read(record_batch(value=["a", "b"], timestamp=early))


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("value", pa.array([1])),
        ("key", pa.array([1])),
        ("topic", pa.array([b"a"])),
        ("partition", pa.array([1], pa.int64())),
        ("timestamp", pa.array([1], pa.timestamp("ms", tz="UTC"))),
        ("timestamp", pa.array([1], pa.timestamp("us"))),
        ("headers", pa.array(["a"])),
    ],
)
def test_an_arrow_type_that_spark_would_not_send_is_refused(name: str, column: pa.Array) -> None:
    names = ["value"] if name == "value" else ["value", name]
    arrays = [column] if name == "value" else [pa.array(["a"]), column]
    batch = pa.RecordBatch.from_arrays(arrays, names=names)

    with pytest.raises(InvalidRequestError, match=f"{name} attribute unsupported Arrow type"):
        read(batch)
