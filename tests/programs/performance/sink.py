"""Parquet to log: our sink with its durable commit, compared with one that drops its rows."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from streamlog.root.manager import LogManager
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.peers import KEY_SIZE
from tests.programs.performance.queries import spark_and_directory

TRIGGERS = 4  # the first is a warm-up: workers start in it
FILES_PER_TRIGGER = 2  # one for each core
ROWS_PER_FILE = 500_000
VALUE_SIZE = 100
PARTITIONS = 4
GOAL = 0.6

SCHEMA = "key binary, value binary"


def fill(directory: Path) -> None:
    """Write the input files; keys and values differ from row to row."""
    directory.mkdir()
    for number in range(TRIGGERS * FILES_PER_TRIGGER):
        first = number * ROWS_PER_FILE
        rows = range(first, first + ROWS_PER_FILE)
        table = pa.table(
            {
                "key": pa.array((b"%0*d" % (KEY_SIZE, row % 100_000) for row in rows), pa.binary()),
                "value": pa.array((b"%0*d" % (VALUE_SIZE, row) for row in rows), pa.binary()),
            }
        )
        pq.write_table(table, directory / f"{number:04d}.parquet", compression="snappy")


def rows_per_second(
    spark: SparkSession, source: Path, sink: tuple[str, Mapping[str, str]], directory: Path
) -> float:
    """Write all files, some per trigger; return rows per second of all triggers but the first."""
    query = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES_PER_TRIGGER)
        .parquet(str(source))
        .writeStream.format(sink[0])
        .options(**sink[1])
        .option("checkpointLocation", tempfile.mkdtemp(dir=directory))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = [each for each in query.recentProgress if each["numInputRows"]][1:]
    rows = sum(each["numInputRows"] for each in progress)
    return rows / sum(each["durationMs"]["triggerExecution"] for each in progress) * 1000


def compare(rounds: int = 3) -> Iterator[Comparison]:
    """Yield rows per second written to the log, by codec."""
    with spark_and_directory() as (spark, directory):
        fill(directory / "parquet")
        root = str(directory / "log")
        for codec in ("none", "lz4", "zstd"):
            with LogManager.open(root, create=True) as manager:
                manager.create_topic(codec, PARTITIONS, {"retention.ms": -1})
            ours = {"path": root, "topic": codec, "kafka.compression.type": codec}
            measured = interleaved(
                lambda options=ours: rows_per_second(
                    spark, directory / "parquet", ("streamlog", options), directory
                ),
                lambda: rows_per_second(spark, directory / "parquet", ("prebuilt", {}), directory),
                rounds=rounds,
            )
            yield Comparison(
                f"sink.parquet.{codec}",
                *measured,
                "a sink that drops its rows",
                "rows/s",
                goal=GOAL if codec == "none" else None,
            )
