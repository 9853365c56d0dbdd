"""Decoding in Spark: our source option and functions beside Spark's `from_json` and `from_avro`.

The same records as JSON and as framed Avro; each way reads the topic and writes all fields into a
noop sink. `from_avro` is that of spark-avro, whose jar `.ci/fetch-jars spark-avro` fetches; it does
not know the framing, so it gets the payload and one fixed schema. Rates are per second, and per
second of processor time of Spark's JVM and its Python workers together, which hardly depends on
what else the machine does.

Two functions that decode nothing show what Spark's way to a Python worker and back costs alone: one
returns the bytes, one returns rows that it made once.
"""

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import fastavro
import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType

import streamlog
from streamlog.root.manager import LogManager
from streamlog.spark import functions as SF  # noqa: N812
from tests.meta.repository import ROOT
from tests.programs.performance.comparison import Comparison
from tests.programs.performance.queries import spark_and_directory

ROWS = 2_000_000
PARTITIONS = 2
CHUNK = 20_000
JARS = ROOT / ".cache" / "jars" / "spark-avro"
DDL = "id BIGINT, customer STRING, amount DOUBLE, is_open BOOLEAN, tags ARRAY<STRING>"
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "is_open", "type": "boolean"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


class Speed(NamedTuple):
    """How fast one run was.

    Attributes:
        per_second: Rows per second.
        per_cpu_second: Rows per second of processor time.
    """

    per_second: float
    per_cpu_second: float


def compare(rounds: int = 3) -> Iterator[Comparison]:
    """Yield the rates of each way, interleaved with those of the peer."""
    subprocess.run([sys.executable, ROOT / ".ci" / "fetch-jars", "spark-avro"], check=True)
    jars = ",".join(str(jar) for jar in sorted(JARS.glob("*.jar")))
    with spark_and_directory({"spark.jars": jars} if jars else {}) as (spark, directory):
        _fill(directory)
        json_ways = {
            "source": partial(_by_source, valueFormat="json", valueSchema=DDL),
            "function": partial(_by_function, SF.json_decoder(DDL)),
        }
        yield from _beside(spark, directory, "json", json_ways, _by_from_json, rounds)
        schema = json.dumps(SCHEMA)
        avro_ways = {
            "source": partial(_by_source, valueFormat="avro", schemaRegistry=str(directory)),
            "function": partial(_by_function, SF.avro_decoder(schema)),
            "ready_rows": partial(_by_ready_rows, SF.avro_decoder(schema)),
            "bytes_and_back": _by_bytes_and_back,
        }
        if jars:
            yield from _beside(spark, directory, "avro", avro_ways, _by_spark_avro, rounds)
        yield from _beside(spark, directory, "avro", avro_ways, _undecoded, rounds)


def _beside(
    spark: SparkSession,
    directory: Path,
    topic: str,
    ways: dict[str, Callable[..., DataFrame]],
    peer: Callable[..., DataFrame],
    rounds: int,
) -> Iterator[Comparison]:
    """Yield comparisons of ways to decode a topic with one peer; the first round warms up."""
    every = {**ways, "peer": peer}
    found: dict[str, list[Speed]] = {name: [] for name in every}
    for _ in range(rounds + 1):
        for name, way in every.items():
            found[name].append(_run(way(spark, directory, topic)))
    name_of_peer = (peer.__doc__ or "").rstrip(".")
    for name in ways:
        for unit, field in (("rows/s", "per_second"), ("rows/cpu-s", "per_cpu_second")):
            ours, theirs = (
                median(getattr(each, field) for each in found[side][1:]) for side in (name, "peer")
            )
            bench = f"decode_spark.{topic}.{name}"
            yield Comparison(bench, ours, theirs, name_of_peer, unit)


def _run(frame: DataFrame) -> Speed:
    before, start = _processor_seconds(), time.perf_counter()
    frame.write.format("noop").mode("append").save()
    elapsed = time.perf_counter() - start
    return Speed(ROWS / elapsed, ROWS / (_processor_seconds() - before))


def _processor_seconds() -> float:
    """Return what Spark's processes have used; those that ended count with their parents."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])  # own and children's, user and system
        except psutil.NoSuchProcess:
            continue
    return total


# ---- ways to decode ---------------------------------------------------------------------------
def _source(spark: SparkSession, directory: Path, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("streamlog").option("path", str(directory / "log"))
    return reader.option("subscribe", topic).options(**options).load()


def _by_source(spark: SparkSession, directory: Path, topic: str, **options: str) -> DataFrame:
    options = {"columns": "value,_error", **options}
    return _source(spark, directory, topic, **options).select("value.*", "_error")


def _by_function(
    decode: SF.DecodeFunction, spark: SparkSession, directory: Path, topic: str
) -> DataFrame:
    frame = _source(spark, directory, topic, columns="value")
    return frame.select(decode("value").alias("d")).select("d.value.*", "d.error")


def _by_ready_rows(
    decode: SF.DecodeFunction, spark: SparkSession, directory: Path, topic: str
) -> DataFrame:
    """A function with the result of a decoder, made once for each size of batches."""
    decoded = decode.function().func

    def ready(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        known: dict[int, pa.Array] = {}
        for batch in batches:
            if len(batch) not in known:
                known[len(batch)] = next(decoded(iter([batch])))
            yield known[len(batch)]

    function = F.arrow_udf(ready, returnType=decode.data_type)
    frame = _source(spark, directory, topic, columns="value")
    return frame.select(function("value").alias("d")).select("d.value.*", "d.error")


def _by_bytes_and_back(spark: SparkSession, directory: Path, topic: str) -> DataFrame:
    """A function that returns what it gets."""

    def same(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        yield from batches

    function = F.arrow_udf(same, returnType=BinaryType())
    return _source(spark, directory, topic, columns="value").select(function("value"))


def _by_from_json(spark: SparkSession, directory: Path, topic: str) -> DataFrame:
    """Spark's from_json."""
    frame = _source(spark, directory, topic, columns="value")
    return frame.selectExpr(f"from_json(string(value), '{DDL}') AS value").select("value.*")


def _by_spark_avro(spark: SparkSession, directory: Path, topic: str) -> DataFrame:
    """spark-avro's from_avro."""
    from pyspark.sql.avro.functions import from_avro

    frame = _source(spark, directory, topic, columns="value")
    value = from_avro(SF.confluent_payload("value"), json.dumps(SCHEMA), {"mode": "PERMISSIVE"})
    return frame.select(value.alias("value")).select("value.*")


def _undecoded(spark: SparkSession, directory: Path, topic: str) -> DataFrame:
    """reading the bytes."""
    return _source(spark, directory, topic, columns="value")


# ---- the records --------------------------------------------------------------------------------
def _fill(directory: Path) -> None:
    """Write the same orders as JSON and as Avro, and the Avro schema as id 1 and as a subject."""
    orders = [
        {
            "id": number,
            "customer": f"customer {number % 997}",
            "amount": number / 8,
            "is_open": number % 3 == 0,
            "tags": ["new"] * (number % 3),
        }
        for number in range(CHUNK)
    ]
    for name in ("1.avsc", "avro-value.avsc"):
        (directory / name).write_text(json.dumps(SCHEMA))
    with LogManager.open(str(directory / "log"), create=True) as manager:
        for topic in ("json", "avro"):
            manager.create_topic(topic, PARTITIONS)
    for topic, encode in (("json", _as_json), ("avro", _as_avro)):
        values = pa.array([encode(order) for order in orders], pa.binary())
        for number in range(ROWS // CHUNK):
            partition = pa.array([number % PARTITIONS] * CHUNK, pa.int32())
            rows = pa.table({"value": values, "partition": partition})
            streamlog.write_table(rows, str(directory / "log"), topic)


def _as_json(order: dict[str, object]) -> bytes:
    return json.dumps(order).encode()


def _as_avro(order: dict[str, object]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, SCHEMA, order)
    return b"\0\0\0\0\1" + buffer.getvalue()
