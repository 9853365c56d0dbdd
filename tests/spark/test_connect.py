"""Spark Connect: the same format, over a client that has no JVM and no shared process."""

import json
import os
import subprocess
import sys

import pytest

from streamlog.bucket.places import shared_store
from streamlog.bucket.root import BucketRoot
from tests.support.object_root import root_at

# Prints one line of JSON for each root.
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
import streamlog.spark

builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
spark = streamlog.spark.session(builder.config("spark.sql.shuffle.partitions", "2"))
assert type(spark).__module__ == "pyspark.sql.connect.session"

def read(root, topic):
    return spark.read.format("streamlog").option("path", root).option("subscribe", topic).load()

def copy(root, checkpoint):
    stream = spark.readStream.format("streamlog").option("path", root).option("subscribe", "in")
    stream = stream.option("startingOffsets", "earliest").load().select("key", "value")
    sink = stream.writeStream.format("streamlog").option("path", root).option("topic", "out")
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return streamlog.spark.lag(query.lastProgress)[0].max_offsets_behind_latest

def error_of(action):
    try:
        action()
    except Exception as error:
        return [type(error).__name__, error.getCondition(), str(error).partition("JVM stack")[0]]

for root, checkpoint in zip(sys.argv[1::2], sys.argv[2::2]):
    rows = spark.createDataFrame([("a", "1"), ("b", "2")], "key string, value string")
    writer = rows.write.format("streamlog").mode("append").option("path", root)
    writer.option("topic", "in").save()
    lag = copy(root, checkpoint)
    append = streamlog.spark.append_batch(root, topic="out")
    stream = spark.readStream.format("streamlog").option("path", root).option("subscribe", "in")
    print(json.dumps({
        "lag": lag,
        "values": sorted(row.value.decode() for row in read(root, "out").collect()),
        "no topic": error_of(lambda: read(root, "nothing").count()),
        "function": error_of(lambda: stream.load().writeStream.foreachBatch(append).start()),
    }), flush=True)
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_spark_connect_reads_and_writes_directories_and_buckets(root, s3, tmp_path):
    root.create("in").create("out", partitions=2)
    url = s3.new_bucket()
    BucketRoot(shared_store(url)).create()
    root_at(url).create_topic("in")
    root_at(url).create_topic("out", partitions=2)
    places = (root.path, str(tmp_path / "cp-directory"), url, str(tmp_path / "cp-bucket"))

    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *places],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        # A port of its own; and a process that lives so briefly is faster without optimization.
        env=os.environ | {"SPARK_TESTING": "1", "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"},
        timeout=550,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr[-3000:]
    reports = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert len(reports) == 2
    for report in reports:
        assert report["lag"] == 0
        assert report["values"] == ["1", "2"]
        name, condition, text = report["no topic"]
        assert (name, condition) == ("AnalysisException", "PYTHON_DATA_SOURCE_ERROR")
        assert "UnknownTopicError: there is no topic nothing" in text
        name, condition, text = report["function"]
        assert (name, condition) == (
            "PySparkPicklingError",
            "STREAMING_CONNECT_SERIALIZATION_ERROR",
        )
