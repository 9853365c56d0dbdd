"""Logs as Arrow tables: any directory, nothing written, no Spark loaded."""

import os
import shutil
import subprocess
import sys
from datetime import datetime
from functools import partial

import pyarrow as pa
import pytest

from streamlog.arrow.decoder import ArrowDecoder
from streamlog.arrow.schema import COLUMN_NAMES, arrow_schema
from streamlog.arrow.tables import read_arrow, read_table
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    CorruptRecordError,
    InvalidOptionError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownTopicError,
)
from streamlog.records.record import CompressionType, IsolationLevel, Record
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from tests.support.batches import message_set, text_of
from tests.support.golden import GOLDEN, json_lines

TEN = [f"v{n}".encode() for n in range(10)]


@pytest.fixture
def orders(root):
    root.create("orders", 2, **{"internal.segment.bytes": "200"})
    for value in TEN[:6]:
        root.append("orders", 0, [value])
    root.append("orders", 1, TEN[6:])
    return root


def test_table_has_the_schema_of_the_source_and_all_records_in_order(orders):
    table = read_table(orders.path, "orders")
    assert table.schema.equals(arrow_schema(COLUMN_NAMES[:-1]))
    assert table["value"].to_pylist() == TEN
    assert table["offset"].to_pylist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert table["partition"].to_pylist() == [0] * 6 + [1] * 4


def test_arrow_comes_batch_by_batch_with_its_schema(orders):
    reader = read_arrow(orders.path, topic="orders", columns=["value"])
    assert reader.schema == pa.schema([("value", pa.binary())])
    assert [value for batch in reader for value in batch["value"].to_pylist()] == TEN


def test_partition_directory_and_single_segment_are_tables_too(orders):
    directory = f"{orders.path}/orders-0"
    assert read_table(directory)["value"].to_pylist() == TEN[:6]
    segments = sorted(name for name in os.listdir(directory) if name.endswith(".log"))
    assert len(segments) > 1
    pieces = [read_table(f"{directory}/{name}")["offset"].to_pylist() for name in segments]
    assert [int(name[:20]) for name in segments] == [piece[0] for piece in pieces]
    assert [offset for piece in pieces for offset in piece] == list(range(6))


def test_all_topics_are_read_where_none_is_named(orders):
    orders.create("other", 1).append("other", 0, ["x"])
    table = read_table(orders.path)
    assert set(table["topic"].to_pylist()) == {"orders", "other"}
    assert table.num_rows == 11


def test_chosen_partitions(orders):
    assert read_table(orders.path, "orders", partitions=[1])["value"].to_pylist() == TEN[6:]
    assert read_table(orders.path, partitions=[1])["value"].to_pylist() == TEN[6:]
    orders.create("other", 1)
    with pytest.raises(UnknownTopicError, match="without a topic") as caught:
        read_table(orders.path, partitions=[1])
    assert "orders, other" in caught.value.expected


def test_reading_a_foreign_directory_changes_nothing_in_it(orders, tmp_path):
    foreign = tmp_path / "foreign"
    shutil.copytree(f"{orders.path}/orders-0", foreign / "orders-0")
    before = {path: path.stat().st_mtime_ns for path in foreign.rglob("*")}
    assert read_table(foreign, "orders").num_rows == 6
    assert {path: path.stat().st_mtime_ns for path in foreign.rglob("*")} == before


def test_empty_topic_is_an_empty_table(root):
    root.create("orders", 3)
    table = read_table(root.path, "orders", include_headers=True)
    assert (table.num_rows, table.column_names) == (0, list(COLUMN_NAMES))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"topic": "absent"}, UnknownTopicError, "there is no topic absent"),
        ({"topic": "orders", "partitions": [9]}, UnknownTopicError, "has no partition 9"),
        ({"columns": ["price"]}, InvalidOptionError, "unknown column"),
        ({"columns": []}, InvalidOptionError, "is empty"),
        ({"invalid_timestamps": "zero"}, InvalidOptionError, "error or null"),
        ({"isolation": "chaos"}, InvalidOptionError, "read_uncommitted or read_committed"),
    ],
)
def test_wrong_arguments_are_refused(orders, arguments, error, text):
    with pytest.raises(error, match=text):
        read_table(orders.path, **arguments)


def test_missing_path_and_strange_file_are_refused(tmp_path):
    with pytest.raises(UnknownTopicError, match="nowhere"):
        read_table(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("no log")
    with pytest.raises(InvalidRequestError, match="not a segment of a log"):
        read_table(tmp_path / "notes.txt")


def test_an_empty_path_is_not_the_working_directory():
    with pytest.raises(InvalidOptionError, match="path is empty"):
        read_table("")


def test_isolation_is_a_word_or_the_enum(orders):
    for isolation in (IsolationLevel.READ_UNCOMMITTED, "read_uncommitted"):
        assert read_table(orders.path, "orders", isolation=isolation).num_rows == 10


def test_tables_load_neither_spark_nor_pandas(orders):
    program = (
        "import sys, streamlog\n"
        f"assert streamlog.read_table({orders.path!r}, 'orders').num_rows == 10\n"
        "print([name for name in ('pandas', 'pyspark') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


# ---- formats v0 and v1 ---------------------------------------------------------------------------
OLD = sorted((GOLDEN / "B-legacy").glob("*-log-dir*/old*"))


@pytest.mark.parametrize("directory", OLD, ids=lambda path: path.name)
def test_directories_of_old_kafkas_are_tables_too(directory):
    expected = next(directory.parent.glob("expect.jsonl*")).relative_to(GOLDEN)
    wanted = [line for line in json_lines(str(expected)) if line["kind"] == "record"]
    table = read_table(str(directory))
    assert table["offset"].to_pylist() == [line["offset"] for line in wanted]
    assert [text_of(key) for key in table["key"].to_pylist()] == [line["key"] for line in wanted]
    values = [text_of(value) for value in table["value"].to_pylist()]
    assert values == [line["value"] for line in wanted]
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    assert times == [line["timestamp"] * 1000 for line in wanted]  # v0: 1 ms before 1970
    kinds = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
    found = [kinds[kind] for kind in table["timestampType"].to_pylist()]
    assert found == [line["timestampType"] for line in wanted]


def test_compressed_old_messages_are_decoded_in_bounded_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("streamlog.arrow.tables.ArrowDecoder", partial(ArrowDecoder, max_rows=100))
    records = [Record(b"k", b"%04d" % number, (), number) for number in range(50)]
    messages = b"".join(
        message_set(1, records, base_offset=base, compression=CompressionType.SNAPPY)
        for base in range(0, 2000, 50)
    )
    directory = tmp_path / "old-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(messages)
    batches = list(read_arrow(str(directory)))
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(
        range(2000)
    )
    assert len(batches) >= 20


def test_a_large_partition_is_read_in_pieces_and_put_together_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("streamlog.arrow.tables._PIECE_BYTES", 1000)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    config = LogConfig(internal_segment_bytes=5000, index_interval_bytes=100)
    with PartitionLog.open(tmp_path / "orders-0", config=config) as log:
        for number in range(200):
            log.append([Record(None, b"%04d" % number, (), number)] * 3)
    table = read_table(tmp_path, "orders")
    assert table["offset"].num_chunks >= 4
    assert table["offset"].to_pylist() == list(range(600))
    with (tmp_path / "orders-0" / "00000000000000000000.log").open("r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    with pytest.raises(CorruptRecordError):
        read_table(tmp_path, "orders")


# ---- partitions that cannot be read beside others that can -----------------------------------
@pytest.fixture
def half_dead(root):
    """A root of which `orders-1` is damaged behind its first batch and `users-0` does not open."""
    root.create("orders", 3)
    root.create("users", 2)
    for partition in range(3):
        for value in TEN[:3]:
            root.append("orders", partition, [value])
    for partition in range(2):
        root.append("users", partition, TEN[:2])
    root.manager.close()  # or its handles would find their files replaced
    damaged = os.path.join(root.path, "orders-1", f"{0:020}.log")
    with open(damaged, "r+b") as file:
        file.seek(os.path.getsize(damaged) // 2)
        file.write(b"damage")
    closed = os.path.join(root.path, "users-0", f"{0:020}.log")
    os.remove(closed)
    os.mkfifo(closed)
    return root


TOLD = r"2 of 5 partitions cannot be read \(orders-1, users-0\), the first one: .*orders-1"


def test_a_stream_gives_all_that_can_be_read_and_then_tells_what_cannot(half_dead):
    found = []
    with pytest.raises(CorruptRecordError, match=TOLD) as caught:
        for batch in read_arrow(half_dead.path, columns=["topic", "partition", "value"]):
            found += batch.to_pylist()
    assert [(each["topic"], each["partition"]) for each in found] == [
        *[("orders", 0)] * 3,
        ("orders", 1),
        *[("orders", 2)] * 3,
        *[("users", 1)] * 2,
    ]
    assert caught.value.path.endswith("orders-1/00000000000000000000.log")
    assert caught.value.position is not None


def test_no_table_is_made_of_a_part_and_the_error_says_how_to_select_the_rest(half_dead):
    with pytest.raises(CorruptRecordError, match=TOLD) as caught:
        read_table(half_dead.path)
    assert f"streamlog verify {half_dead.path}; " in caught.value.hint
    assert "topic='orders', partitions=[0, 2]; topic='users', partitions=[1]" in caught.value.hint
    assert read_table(half_dead.path, "orders", partitions=[0, 2]).num_rows == 6
    assert read_table(half_dead.path, "users", partitions=[1]).num_rows == 2


def test_of_a_partition_alone_the_error_says_what_is_wrong_with_it(half_dead):
    with pytest.raises(StorageError, match="cannot open: it is not a regular file") as caught:
        read_table(os.path.join(half_dead.path, "users-0"))
    assert caught.value.hint is None


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ({"starting_offsets": 3}, ["v3", "v4", "v5", "v9"]),
        ({"starting_offsets": "latest"}, []),
        ({"ending_offsets": "earliest"}, []),
        ({"starting_offsets": {"orders": {0: 4, 1: -2}}}, ["v4", "v5", "v6", "v7", "v8", "v9"]),
        ({"ending_offsets": {"orders": {0: 1, 1: -1}}}, ["v0", "v6", "v7", "v8", "v9"]),
        ({"starting_offsets": 1, "ending_offsets": 3}, ["v1", "v2", "v7", "v8"]),
        ({"starting_timestamp": 1003}, ["v3", "v4", "v5", "v6", "v7", "v8", "v9"]),
        ({"starting_timestamp": 1004, "ending_timestamp": 1007}, ["v4", "v5", "v6"]),
        ({"starting_timestamp": 9999}, []),
        ({"starting_offsets": 3, "ending_offsets": 1}, []),
    ],
)
def test_a_range_of_offsets_or_of_times(root, span, expected):
    with LogManager.open(root.path, create=True) as manager:
        manager.create_topic("orders", 2)
        for n in range(10):
            part = manager.log("orders", int(n >= 6))
            part.append([Record(None, b"v%d" % n, (), 1000 + n)])
    found = [
        value.decode() for value in read_table(root.path, "orders", **span)["value"].to_pylist()
    ]
    assert found == expected
    stream = read_arrow(root.path, "orders", columns=["value"], **span)
    assert [value.decode() for b in stream for value in b["value"].to_pylist()] == expected


@pytest.mark.parametrize(
    ("span", "error"),
    [
        ({"starting_offsets": 99}, OffsetOutOfRangeError),
        ({"ending_offsets": -5}, OffsetOutOfRangeError),
        ({"starting_offsets": {"orders": {0: 1}}}, InvalidOptionError),
        ({"starting_offsets": {"orders": {0: 1, 1: 1, 2: 1}}}, InvalidOptionError),
        ({"starting_offsets": {"orders": 1}}, InvalidOptionError),
        ({"starting_offsets": "soonest"}, InvalidOptionError),
        ({"starting_offsets": 1, "starting_timestamp": 1}, InvalidOptionError),
        ({"ending_timestamp": datetime(2026, 1, 1)}, InvalidRequestError),
    ],
)
def test_an_impossible_range_is_refused_before_anything_is_read(orders, span, error):
    with pytest.raises(error):
        read_arrow(orders.path, "orders", **span)
