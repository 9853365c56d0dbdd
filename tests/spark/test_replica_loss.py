"""A running query in a real Spark session whose leader's root is lost in the middle of a batch."""

import os
import subprocess
import time

import pytest

import streamlog
from tests.support.replica_set import ReplicaSet
from tests.support.spark_session import Collected

pytestmark = pytest.mark.spark


@pytest.fixture(params=["renamed", "unmounted"])
def replicas(request, tmp_path):
    """Three roots, on disks of their own if one of them will be unmounted; with `vanish`."""
    mounts = [tmp_path / name for name in "abc"] if request.param == "unmounted" else []
    if mounts and os.geteuid() != 0:
        pytest.skip("mounting needs root")
    for mount in mounts:
        mount.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", mount], check=True)
    made = ReplicaSet(tmp_path, partitions=2)
    made.vanish = (lambda number: unmount(made.paths[number])) if mounts else made.lose
    yield made
    for mount in mounts:
        subprocess.run(["umount", "-l", mount], check=False, capture_output=True)


def unmount(path):
    subprocess.run(["umount", "-l", path], check=True)


def wait(query, condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_each_row_is_read_once_over_the_loss_of_the_leader(spark, replicas, tmp_path):
    collected = Collected()
    expected = []

    def append(*names):
        for name in names:
            for partition in (0, 1):
                values = [f"{name}-{partition}-{n}" for n in range(20)]
                replicas.append(values, partition=partition)
                expected.extend(value.encode() for value in values)

    append("first")
    frame = spark.readStream.format("streamlog").options(
        path=replicas.text, subscribe="orders", startingOffsets="earliest"
    )
    query = (
        frame.load()
        .writeStream.foreachBatch(collected.add)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait(query, lambda: len(collected.rows) == len(expected))
        lost = []

        def lose_leader(number):  # the batch is planned, its tasks have not begun
            if not lost:
                replicas.vanish(0)
                lost.append(number)

        collected.before = lose_leader
        append("second")
        wait(query, lambda: lost)
        append("third", "fourth")
        wait(query, lambda: len(collected.rows) >= len(expected))
    finally:
        query.stop()
    assert collected.values == sorted(expected)
    one_root = spark.read.format("streamlog").options(path=replicas.paths[2], subscribe="orders")
    assert sorted(row.value for row in one_root.load().collect()) == sorted(expected)
    table = streamlog.read_table(replicas.paths, "orders", columns=["value"])
    assert sorted(table["value"].to_pylist()) == sorted(expected)
