"""Arrow data appended to a partition and through a producer, without Spark."""

from pathlib import Path

import pyarrow as pa
import pytest

from streamlog import LogConfig, LogManager, PartitionLog, Producer, Record, read_table, write_table
from streamlog.errors import (
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    MessageTooLargeError,
)

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def table(count: int, **extra: pa.Array) -> pa.Table:
    columns = {
        "key": pa.array([None if n % 3 == 0 else b"k%d" % n for n in range(count)], pa.binary()),
        "value": pa.array([None if n % 5 == 0 else b"v%d" % n for n in range(count)], pa.binary()),
        "timestamp": pa.array([n * 1000 for n in range(count)], pa.timestamp("ms", "UTC")),
        "headers": pa.array(
            [[("h", b"%d" % n), ("h", None)] if n % 2 else None for n in range(count)], HEADERS
        ),
        **extra,
    }
    return pa.table(columns)


def same_as_records(root: Path, rows: pa.Table, end: int) -> bool:
    """Return whether the first records of a partition are the rows of a table."""
    got = read_table(str(root), include_headers=True, ending_offsets=end)
    names = ["key", "value", "headers", "timestamp"]
    wanted = rows.select(names).to_pylist()
    return got.select(names).to_pylist() == wanted and got.column("offset").to_pylist() == list(
        range(end)
    )


@pytest.mark.parametrize("kind", ["table", "batch", "reader", "pandas"])
def test_a_partition_takes_arrow_data_of_any_kind(tmp_path: Path, kind: str) -> None:
    rows = table(1000)
    data = {
        "table": rows,
        "batch": rows.combine_chunks().to_batches()[0],
        "reader": pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=7)),
    }.get(kind)
    if kind == "pandas":
        rows = rows.drop_columns(["headers"])
        data = rows.to_pandas()
        rows = rows.append_column("headers", pa.nulls(1000, HEADERS))
    with PartitionLog.open(tmp_path / "orders-0") as log:
        info = log.append(data, compression="zstd")
        assert (info.base_offset, info.last_offset, info.max_timestamp) == (0, 999, 999_000)
        assert log.append([Record(key=None, value=b"after")]).base_offset == 1000
    assert same_as_records(tmp_path, rows, 1000)


def test_the_records_are_those_of_an_append_one_by_one(tmp_path: Path) -> None:
    rows = table(500)
    with PartitionLog.open(tmp_path / "arrow" / "orders-0") as log:
        log.append(rows)
    assert same_as_records(tmp_path / "arrow", rows, 500)


def test_a_large_table_becomes_many_batches_in_one_piece(tmp_path: Path) -> None:
    rows = pa.table({"value": pa.array([b"x" * 1000] * 40_000)})
    with PartitionLog.open(tmp_path / "t-0", config=LogConfig(segment_bytes=4 << 20)) as log:
        info = log.append(rows)
        assert info.count == log.log_end_offset == 40_000
        assert len(log.segments) > 5


def test_what_the_topic_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    big = pa.table({"value": pa.array([b"x", b"y" * (2 << 20)])})
    late = pa.table(
        {"value": pa.array([b"x"]), "timestamp": pa.array([-5000], pa.timestamp("ms", "UTC"))}
    )
    with PartitionLog.open(tmp_path / "t-0") as log:
        for rows, error, text in (
            (big, MessageTooLargeError, "row 1"),
            (late, InvalidTimestampError, "before 1970"),
            (pa.table({"valeu": pa.array([b"x"])}), InvalidRequestError, "valeu"),
            (pa.table({"value": pa.array([1.5])}), InvalidRequestError, "text or bytes"),
            (pa.table({"value": pa.array([], pa.binary())}), InvalidRecordError, "no records"),
            (table(3, partition=pa.array([0, None, 2])), InvalidRecordError, "row 2"),
        ):
            with pytest.raises(error, match=text):
                log.append(rows)
        assert log.log_end_offset == 0
        log.append(table(3, partition=pa.array([0, None, 0])))
        assert log.log_end_offset == 3


def test_a_compacted_topic_needs_keys(tmp_path: Path) -> None:
    with LogManager.open(tmp_path, create=True) as manager:
        manager.create_topic("t", 1, {"cleanup.policy": "compact"})
        log = manager.log("t", 0)
        with pytest.raises(InvalidRecordError, match="row 0"):
            log.append(table(3))
        assert log.log_end_offset == 0


def test_a_producer_divides_rows_like_records(tmp_path: Path) -> None:
    rows = pa.table({"key": [b"a", b"b", b"c", None], "value": [b"1", b"2", b"3", b"4"]})
    with LogManager.open(tmp_path, create=True) as manager:
        manager.create_topic("orders", 4)
    with Producer(tmp_path, linger_ms=10_000) as producer:
        producer.send("orders", b"before", key=b"a")
        producer.append("orders", rows)
        producer.append("orders", pa.table({"value": [b"x"], "partition": [3]}))
        with pytest.raises(InvalidRequestError, match="Arrow"):
            producer.append("orders", [b"x"])  # the producer remains usable
        producer.send("orders", b"after", partition=3)
    got = read_table(str(tmp_path), "orders").to_pylist()
    by_key = {row["key"]: row["partition"] for row in got if row["key"]}
    with LogManager.open(tmp_path) as manager, Producer(tmp_path) as producer:
        manager.create_topic("twin", 4)
        for key in (b"a", b"b", b"c"):
            producer.send("twin", b"", key=key)
    twins = read_table(str(tmp_path), "twin").to_pylist()
    assert by_key == {row["key"]: row["partition"] for row in twins}
    assert [row["value"] for row in got if row["key"] == b"a"] == [b"before", b"1"]
    assert [row["value"] for row in got if row["partition"] == 3][-2:] == [b"x", b"after"]
    assert len(got) == 7


def test_write_table_takes_both_orders(tmp_path: Path) -> None:
    with LogManager.open(tmp_path, create=True) as manager:
        manager.create_topic("orders", 1)
    rows = pa.table({"value": [b"1", b"2"]})
    assert write_table(rows, tmp_path, "orders").rows == 2
    assert write_table(tmp_path, "orders", rows).rows == 2
    assert write_table([str(tmp_path)], "orders", rows.to_batches()).rows == 2
    named = rows.append_column("topic", pa.array(["orders", "orders"]))
    assert write_table(str(tmp_path), None, named).rows == 2
    with pytest.raises(InvalidRequestError, match="no Arrow columns"):
        write_table(str(tmp_path), "orders", "rows")
    assert len(read_table(str(tmp_path), "orders")) == 8
