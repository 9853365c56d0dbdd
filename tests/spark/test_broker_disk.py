"""A broker's disk, read only: Arrow, the command line and Spark give what a real consumer got.

The directories are those of a broker that was stopped in order, and of one that was killed: index
files full of zeros, open transactions, old checkpoints. Nothing in them may change.
"""

import base64
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from streamlog import read_arrow, read_table
from tests.support.broker_disk import TIMESTAMP_TYPES, Disk, comparable
from tests.support.cli import ok
from tests.support.golden import GOLDEN, json_lines, unpack
from tests.support.spark_session import Collected
from tests.support.untouched import facts

ISOLATIONS = ["read_committed", "read_uncommitted"]
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=["clean", "killed"])
def disk(request, tmp_path_factory):
    """The disk; what reads it leaves it alone."""
    unpacked = Disk.unpack(request.param, tmp_path_factory.mktemp(request.param))
    before = facts(unpacked.path)
    yield unpacked
    assert facts(unpacked.path) == before


def rows_of_table(table):
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    return [
        comparable(
            row["topic"],
            row["partition"],
            row["offset"],
            microseconds // 1000,
            row["timestampType"],
            key=row["key"],
            value=row["value"],
            headers=[(header["key"], header["value"]) for header in row["headers"] or ()],
        )
        for row, microseconds in zip(table.drop(["timestamp"]).to_pylist(), times, strict=True)
    ]


def selected(frame):
    """Return the columns that can be compared; timestamps as they are on the disk."""
    return frame.selectExpr(
        "topic",
        "partition",
        "offset",
        "unix_millis(timestamp) AS ms",
        "timestampType",
        "key",
        "value",
        "headers",
    )


def rows_of_spark(rows):
    return sorted(
        comparable(
            row.topic,
            row.partition,
            row.offset,
            row.ms,
            row.timestampType,
            key=row.key,
            value=row.value,
            headers=[(header.key, header.value) for header in row.headers or ()],
        )
        for row in rows
    )


# ---- Arrow ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_each_partition_is_the_table_that_a_consumer_saw(disk, isolation):
    compared = 0
    for name, partition in disk.partitions.items():
        table = read_table(partition.path, include_headers=True, isolation=isolation)
        assert rows_of_table(table) == partition.seen(isolation), name
        compared += table.num_rows
    assert compared > 3000


def test_a_whole_disk_is_a_stream_without_the_topics_that_are_kafkas_own(disk):
    rows = [
        row
        for batch in read_arrow(disk.path, include_headers=True)
        for row in rows_of_table(pa.Table.from_batches([batch]))
    ]
    assert sorted(rows) == disk.seen("read_committed")


# ---- the command line ----------------------------------------------------------------------------
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_cat_shows_what_a_consumer_saw(disk, isolation):
    options = ("--format", "ndjson", "--encoding", "base64", "--isolation-level", isolation)
    for name, partition in disk.partitions.items():
        rows = [shown_by_cat(row) for row in ok("cat", partition.path, *options).rows]
        assert rows == partition.seen(isolation), name


def shown_by_cat(row):
    return comparable(
        row["topic"],
        row["partition"],
        row["offset"],
        row["timestamp"],
        TIMESTAMP_TYPES[row["timestampType"]],
        key=decoded(row["key"]),
        value=decoded(row["value"]),
        headers=[(header["key"], decoded(header["value"])) for header in row["headers"]],
    )


def decoded(text):
    return None if text is None else base64.b64decode(text)


def test_an_open_transaction_of_a_killed_broker_is_told_of(disk):
    partition = disk.partitions["txn-0"]
    remark = ok("cat", partition.path, "--format", "ndjson").error
    held_back = partition.answers["logEndOffset"] - partition.answers["lastStableOffset"]
    assert ("an open transaction holds back" in remark) == (held_back > 0)
    assert (held_back > 0) == (disk.path.name == "killed-log.dir")


# ---- nothing is touched --------------------------------------------------------------------------
LOOKING = """
import sys
from pathlib import Path
from tests.support.cli import streamlog
from tests.support.untouched import allow_only_reading
import streamlog as package
from streamlog.spark.reader import StreamLogStreamReader

disk = Path(sys.argv[1])
allow_only_reading(disk)
try:
    (disk / "file").touch()
except AssertionError:
    pass
else:
    sys.exit("the hook lets a file be made")
assert package.read_table(disk).num_rows
for arguments in (
    ["cat", f"{disk}/txn-0"],
    ["offsets", f"{disk}/", "--time", "max-timestamp"],
    ["verify", disk, "--deep"],
    ["repair", disk, "--dry-run"],
    ["topics", "list", "--path", disk],
    ["topics", "describe", "--path", disk],
    ["doctor", "--path", disk],
    ["dump", *sorted((disk / "txn-0").glob("0*")), disk / "replication-offset-checkpoint"],
):
    ran = streamlog(*arguments)
    assert ran.code == 0 and ran.out or arguments[0] in ("verify", "repair", "doctor"), ran
    assert "AssertionError" not in ran.error, ran.error
reader = StreamLogStreamReader(
    {"path": str(disk), "subscribepattern": ".*", "startingoffsets": "earliest"}
)
start = reader.initialOffset()
end = reader.latestOffset(start, reader.getDefaultReadLimit())
rows = sum(
    batch.num_rows for part in reader.partitions(start, end) for batch in reader.read(part)
)
reader.commit(end)
assert rows > 3000, rows
"""


def test_reading_opens_nothing_for_writing_and_locks_nothing(disk):
    ran = subprocess.run(
        [sys.executable, "-c", LOOKING, str(disk.path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


# ---- Spark ---------------------------------------------------------------------------------------
def source(reader, path, **options):
    return (
        reader.format("streamlog")
        .option("path", str(path))
        .option("includeHeaders", "true")
        .options(**options)
        .load()
    )


@pytest.mark.spark
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_data_frame_is_what_a_consumer_saw(spark, disk, isolation):
    options = {"subscribePattern": ".*", "kafka.isolation.level": isolation}
    frame = selected(source(spark.read, disk.path, **options))
    assert rows_of_spark(frame.collect()) == disk.seen(isolation)


@pytest.mark.spark
def test_internal_topics_are_read_where_they_are_named(spark, disk):
    names = [name for name in disk.partitions if name.startswith("__")]
    topics = sorted({name.rpartition("-")[0] for name in names})
    frame = selected(source(spark.read, disk.path, subscribe=",".join(topics)))
    expected = [row for name in names for row in disk.partitions[name].seen("read_committed")]
    assert rows_of_spark(frame.collect()) == sorted(expected)


@pytest.mark.spark
def test_a_stream_is_what_a_consumer_saw(spark, disk, tmp_path):
    options = {"subscribePattern": ".*", "startingOffsets": "earliest"}
    frame = selected(source(spark.readStream, disk.path, maxOffsetsPerTrigger="2500", **options))
    collected = Collected()
    query = (
        frame.writeStream.foreachBatch(collected.add)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert rows_of_spark(collected.rows) == disk.seen("read_committed")
    assert len(collected.batches) > 1


# ---- formats of old brokers ----------------------------------------------------------------------
OLD = {
    "old08": ("017-0.8.2.2-log-dir", "017-0.8.2.2-log-dir/expect.jsonl.gz"),
    "old010": (
        "040-0.10.2.2-log-dir-createtime",
        "040-0.10.2.2-log-dir-createtime/expect.jsonl.gz",
    ),
    "old28": ("042-2.8.2-log-dir", "042-2.8.2-log-dir.expect.jsonl.gz"),
}


@pytest.mark.spark
@pytest.mark.parametrize("topic", OLD)
def test_directories_of_old_brokers_are_data_frames(spark, topic, tmp_path):
    directory, answers = OLD[topic]
    root = GOLDEN / "B-legacy" / directory
    if not root.exists():
        root = unpack(f"B-legacy/{directory}.tar.gz", tmp_path) / directory
    lines = [line for line in json_lines(f"B-legacy/{answers}") if line["kind"] == "record"]
    expected = [
        comparable(
            topic,
            0,
            line["offset"],
            line["timestamp"],
            TIMESTAMP_TYPES[line["timestampType"]],
            key=decoded(line["key"]),
            value=decoded(line["value"]),
            headers=[(key, decoded(value)) for key, value in line["headers"]],
        )
        for line in lines
    ]
    options = {"subscribe": topic, "kafka.isolation.level": "read_uncommitted"}
    assert rows_of_spark(selected(source(spark.read, root, **options)).collect()) == expected
    assert expected
