"""`write_table`: Arrow into topics as one commit, without Spark."""

import subprocess
import sys
from datetime import datetime, timezone
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import streamlog
from streamlog.arrow.table_writer import write_table
from streamlog.arrow.tables import read_table
from streamlog.clock import ManualClock
from streamlog.errors import (
    CommitMismatchError,
    InvalidOptionError,
    InvalidRequestError,
    UnknownTopicError,
)
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.record import Header
from streamlog.root.consumer import Consumer
from streamlog.root.manager import LogManager
from tests.meta.repository import ROOT as REPOSITORY
from tests.records.test_partitioner import FACTS, KEYS

NOW = 1_700_000_000_000
ROWS = pa.table({"value": [b"a", b"b", b"c"], "key": ["k", None, ""]})


@pytest.fixture
def path(tmp_path):
    with LogManager.open(tmp_path / "root", create=True) as manager:
        manager.create_topic("orders", 2)
        manager.create_topic("state", 1, {"cleanup.policy": "compact"})
    return str(tmp_path / "root")


def values(path, topic="orders"):
    return sorted(read_table(path, topic)["value"].to_pylist())


def test_a_table_is_read_back_in_every_detail(path):
    headers = pa.array(
        [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, []],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    table = pa.table(
        {
            "key": pa.array([b"k", None, b""]),
            "value": pa.array(["text", None, "ü"]),
            "partition": pa.array([1, 0, 1], pa.int64()),
            "timestamp": pa.array([1, 2, None], pa.timestamp("ms", tz="UTC")),
            "headers": headers,
        }
    )
    outcome = write_table(table, path, "orders", clock=ManualClock(NOW))
    assert [(str(part.topic_partition), part.last_offset) for part in outcome.parts] == [
        ("orders-0", 0),
        ("orders-1", 1),
    ]
    with Consumer(path, "orders") as consumer:
        found = [record for part in consumer.poll().values() for record in part]
    assert [(record.key, record.value, record.timestamp) for record in found] == [
        (None, None, 2),
        (b"k", b"text", 1),
        (b"", "ü".encode(), NOW),
    ]
    assert found[1].headers == (Header("h", b"1"), Header("h", None))


def test_what_read_table_gives_can_be_written_again(path):
    write_table(ROWS, path, "orders")
    table = read_table(path, "orders", include_headers=True)
    with LogManager.open(path) as manager:
        manager.create_topic("copy", 2)
    write_table(table, path, "copy")
    copied = read_table(path, "copy", include_headers=True)
    assert copied.drop_columns("topic").equals(table.drop_columns("topic"))
    write_table(table, path)  # by its column topic
    assert len(values(path)) == 6


def test_keys_go_to_the_partitions_that_kafkas_java_client_chooses(tmp_path):
    path = tmp_path / "root"
    for place, count in enumerate(FACTS["n"]):
        topic = f"orders{place}"
        with LogManager.open(path, create=True) as manager:
            manager.create_topic(topic, count)
        write_table(
            pa.table({"key": KEYS, "value": [str(n) for n in range(len(KEYS))]}), path, topic
        )
        table = read_table(path, topic)
        found = dict(zip(table["value"].to_pylist(), table["partition"].to_pylist(), strict=True))
        expected = [line["partitions"][place] for line in FACTS["keys"]]
        assert [found[b"%d" % n] for n in range(len(KEYS))] == expected


def test_every_kind_of_arrow_data_is_taken(path):
    import pandas as pd

    batches = ROWS.to_batches(max_chunksize=1)
    kinds = [
        ROWS,
        batches[0],
        pa.RecordBatchReader.from_batches(ROWS.schema, batches),
        iter(batches),
        ROWS.cast(pa.schema([("value", pa.large_binary()), ("key", pa.large_string())])),
        ROWS.cast(pa.schema([("value", pa.binary_view()), ("key", pa.string_view())])),
        pa.table({"value": ROWS["value"], "key": ROWS["key"].dictionary_encode()}),
        pa.table({"value": ROWS["value"], "key": pa.nulls(3)}),
        pd.DataFrame({"value": ["a", "b", "c"], "key": ["k", None, ""]}),
        ROWS.slice(1, 2),
        ROWS.slice(0, 0),
    ]
    rows = [write_table(kind, path, "orders").rows for kind in kinds]
    assert rows == [3, 1, 3, 3, 3, 3, 3, 3, 3, 2, 0]
    assert len(values(path)) == sum(rows)


def test_what_is_larger_than_a_piece_is_written_whole(path):
    table = pa.table({"value": [b"x" * 100_000] * 500, "partition": [0] * 500})
    write_table(table, path, "orders", compression_type="lz4")
    assert values(path) == [b"x" * 100_000] * 500


def test_nanoseconds_are_cut_off_as_spark_cuts_them(path):
    time = pa.array(np.array([1_999_999, -1], "datetime64[ns]")).cast(pa.timestamp("ns", "UTC"))
    write_table(pa.table({"value": ["a"], "timestamp": time[:1]}), path, "orders")
    assert read_table(path, "orders")["timestamp"].to_pylist() == [
        datetime(1970, 1, 1, microsecond=1000, tzinfo=timezone.utc)
    ]


@pytest.mark.parametrize(
    ("table", "error", "text"),
    [
        ({"key": ["k"]}, InvalidRequestError, "'value' is missing"),
        ({"value": ["a"], "amount": [1]}, InvalidRequestError, "unknown column 'amount'"),
        ({"value": [1]}, InvalidRequestError, "column value: unsupported type"),
        ({"value": ["a"], "timestamp": [1]}, InvalidRequestError, "column timestamp: unsupported"),
        ({"value": ["a"], "timestamp": [datetime(2026, 1, 1)]}, InvalidRequestError, "unsupported"),
        ({"value": ["a"], "partition": [2]}, UnknownTopicError, "row 0"),
        (
            {"value": ["a"], "partition": [1 << 40]},
            InvalidRequestError,
            "partition: value out of",
        ),
        ({"value": ["a"], "partition": [-1]}, InvalidRequestError, "row 0"),
        ({"value": ["a", "b" * 2_000_000]}, InvalidRequestError, "row 1"),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is(path, table, error, text):
    with pytest.raises(error, match=text):
        write_table(pa.table(table), path, "orders")
    assert values(path) == []


def test_other_misuse_is_refused(path):
    for call, error in (
        (lambda: write_table([{"value": "a"}], path, "orders"), InvalidRequestError),
        (lambda: write_table({"value": ["a"]}, path, "orders"), InvalidRequestError),
        (lambda: write_table(ROWS, path), InvalidRequestError),
        (lambda: write_table(ROWS, path, "nothing"), UnknownTopicError),
        (lambda: write_table(ROWS, path + "/nowhere", "orders"), UnknownTopicError),
        (lambda: write_table(ROWS, path, "state"), InvalidRequestError),
        (lambda: write_table(ROWS, path, "orders", txn_app_id="a"), InvalidOptionError),
        (lambda: write_table(ROWS, path, "orders", txn_app_id="", txn_version=1),
         InvalidRequestError),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
    assert values(path) == values(path, "state") == []


def test_a_later_batch_that_is_refused_leaves_nothing_of_the_earlier_ones(path):
    def batches():
        yield from ROWS.to_batches()
        yield pa.record_batch({"value": [b"a"], "key": ["k"], "partition": [0]})

    with pytest.raises(InvalidRequestError, match="record batch 2"):
        write_table(batches(), path, "orders")

    def fails():
        yield from ROWS.to_batches()
        raise KeyError("the program's own")

    with pytest.raises(KeyError):
        write_table(fails(), path, "orders")
    assert values(path) == []


def test_the_same_version_once_more_changes_nothing(path):
    def write(table, version, **options):
        return write_table(table, path, "orders", txn_app_id="etl", txn_version=version, **options)

    first = write(ROWS, 1)
    again = write(ROWS.slice(0), 1)
    assert (first.is_replay, again.is_replay) == (False, True)
    assert again.parts == first.parts and len(values(path)) == 3
    write(ROWS, 2)
    assert len(values(path)) == 6
    with pytest.raises(CommitMismatchError):
        write(ROWS.slice(1), 2)
    assert write(ROWS.slice(1), 2, on_replay_mismatch="skip").is_replay
    assert len(values(path)) == 6


def test_one_app_writes_the_same_version_to_two_topics(path):
    for topic in ("orders", "state"):
        table = pa.table({"value": ["a"], "key": ["k"]})
        write_table(table, path, topic, txn_app_id="etl", txn_version=1)
    assert values(path) == values(path, "state") == [b"a"]


def test_a_power_cut_after_the_call_takes_nothing():
    fs = MemoryFileSystem()
    with LogManager.open("/logs", create=True, fs=fs) as manager:
        manager.create_topic("orders", 2)
    write_table(ROWS, "/logs", "orders", fs=fs)
    after = fs.crash_clone(Random(1), power=True, loss="everything")
    with LogManager.open("/logs", fs=after) as manager:
        for number in range(2):
            manager.log("orders", number).catch_up()
    with Consumer("/logs", "orders", fs=after) as consumer:
        assert sum(map(len, consumer.poll().values())) == 3


def test_spark_is_not_loaded(path):
    code = (
        "import sys, pyarrow as pa, streamlog\n"
        f"streamlog.write_table(pa.table({{'value': ['a']}}), {path!r}, 'orders')\n"
        "assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)
    assert values(path) == [b"a"]
    assert streamlog.write_table is write_table
