"""Spark queries that write to a replica set while the root that leads it is lost, and returns."""

import subprocess
import sys
import time

import pyarrow as pa
import pytest

from streamlog.arrow.table_writer import write_table
from streamlog.root.manager import LogManager
from streamlog.spark.foreach_batch import append_batch
from tests.support.replica_set import ReplicaSet
from tests.support.sink import run_available, sorted_values, stream_of

pytestmark = pytest.mark.spark


@pytest.fixture
def replicas(tmp_path):
    """Three roots with `orders`, of whose replicas two must be in sync."""
    made = ReplicaSet(tmp_path, partitions=2)
    with LogManager.open(made.paths[0]) as manager:
        manager.alter_topic("orders", configs={"min.insync.replicas": "2"})
    return made


@pytest.fixture
def feed(spark, root):
    """The stream of topic `in`; `append` adds numbered rows to it."""
    root.create("in")
    made = stream_of(spark, root.path, "in", maxOffsetsPerTrigger="4").select("key", "value")
    return made, lambda first, last: root.append("in", 0, rows(first, last))


def rows(first, last):
    return [f"row {number:03d}" for number in range(first, last)]


def writer_of(frame, path, checkpoint):
    sink = frame.writeStream.format("streamlog").options(path=path, topic="orders")
    return sink.option("kafka.acks", "all").option("checkpointLocation", str(checkpoint))


def wait(query, path, expected):
    deadline = time.monotonic() + 120
    while sorted_values(path, "orders") != expected:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, sorted_values(path, "orders")
        time.sleep(0.1)


def streamlog(*arguments):
    command = [sys.executable, "-m", "streamlog", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_query_goes_on_without_the_root_that_leads_its_commits(replicas, feed, tmp_path):
    frame, append = feed
    checkpoint = tmp_path / "checkpoint"
    append(0, 6)
    query = writer_of(frame, replicas.text, checkpoint).start()
    try:
        wait(query, replicas.paths[2], rows(0, 6))
        replicas.lose(0)
        append(6, 16)
        wait(query, replicas.paths[1], rows(0, 16))
    finally:
        query.stop()
    append(16, 20)
    assert run_available(writer_of(frame, replicas.text, checkpoint)) is None
    replicas.bring_back(0)
    streamlog("--path", replicas.paths[1], "replicate", "--once")
    append(20, 22)
    assert run_available(writer_of(frame, replicas.text, checkpoint)) is None
    streamlog("verify", replicas.paths[1], "--replicas")
    for path in replicas.paths:
        assert sorted_values(path, "orders") == rows(0, 22)


def test_the_other_sinks_start_without_the_first_root(spark, replicas, feed, tmp_path):
    frame, append = feed
    append(0, 6)
    replicas.lose(0)
    function = append_batch(replicas.paths, topic="orders")
    query = frame.writeStream.foreachBatch(function)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert run_available(query) is None
    batch = spark.createDataFrame([(b"row 006",)], "value binary").write.format("streamlog")
    batch.options(path=replicas.text, topic="orders").mode("append").save()
    write_table(pa.table({"value": [b"row 007"]}), replicas.paths, "orders")
    for path in replicas.paths[1:]:
        assert sorted_values(path, "orders") == rows(0, 8)
