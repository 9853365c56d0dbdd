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
from streamlog.spark import functions as SF

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
        condition = getattr(error, "getCondition", lambda: None)()
        return [type(error).__name__, condition, str(error).partition("JVM stack")[0]]

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

reader = spark.read.format("streamlog").option("path", sys.argv[1]).option("subscribe", "in")
typed = reader.option("valueFormat", "json").option("valueSchema", "id INT").load()
SF.register_functions(spark, decode_order=SF.json_decoder("id INT"))
values = spark.createDataFrame([(b'{"id":7}',), (b"no",)], "value binary")
values.createOrReplaceTempView("encoded")
variant = SF.parse_json("value")["value"]
print("decoded", json.dumps({
    "errors": typed.where("_error IS NOT NULL").count(),
    "letters": streamlog.spark.dead_letters(typed, "dead").columns,
    "sql": [list(row) for row in spark.sql(
        "SELECT as_text(value), d.value.id, d.error IS NULL FROM "
        "(SELECT value, decode_order(value) AS d FROM encoded) ORDER BY 1").collect()],
    "column": [row.id for row in values.select(SF.from_json("value", "id INT")["value"]["id"])
               .toDF("id").collect()],
    "variant": [row[0] for row in values.select(
        SF.F.try_variant_get(variant, "$.id", "int")).collect()],
    "option": error_of(lambda: reader.option("valueFormat", "jsn").load().count()),
    "schema": error_of(lambda: reader.option("valueFormat", "json")
                       .option("valueSchema", "id NUMBER").load().count()),
    "fail fast": error_of(lambda: reader.option("valueFormat", "json").option("mode", "FAILFAST")
                          .option("valueSchema", "id INT").load().count()),
    "wrapper": error_of(lambda: stream.load().writeStream.foreachBatch(
        streamlog.spark.with_dead_letters(print, sys.argv[1], "out")).start()),
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
    (decoded,) = [line for line in ran.stdout.splitlines() if line.startswith("decoded ")]
    check_decoded(json.loads(decoded.removeprefix("decoded ")))


def check_decoded(report):
    """Typed columns, functions of both kinds, and the errors of bad options."""
    assert report["errors"] == 2
    assert report["letters"] == ["key", "value", "headers", "topic"]
    assert report["sql"] == [["no", None, False], ['{"id":7}', 7, True]]
    assert report["column"] == report["variant"] == [7, None]
    for name, text in {
        "option": "InvalidOptionError: invalid value for option valueFormat: got 'jsn'",
        "schema": "NUMBER",
    }.items():
        assert report[name][:2] == ["AnalysisException", "PYTHON_DATA_SOURCE_ERROR"]
        assert text in report[name][2]
    assert (
        "InvalidRecordError: the value of a record of in-0 cannot be decoded"
        in (report["fail fast"][2])
    )
    assert report["wrapper"][:2] == [
        "PySparkPicklingError",
        "STREAMING_CONNECT_SERIALIZATION_ERROR",
    ]
