"""Runs streaming queries and returns their figures."""

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamlog.spark.spark_session import register
from tests.programs.performance.peers import PrebuiltSource
from tests.support.spark_session import open_session


@contextmanager
def spark_and_directory(
    settings: Mapping[str, str] | None = None,
) -> Iterator[tuple[SparkSession, Path]]:
    """Yield a session with our format and the peer's, and a directory.

    Args:
        settings: Further settings of the session.
    """
    directory = Path(tempfile.mkdtemp(prefix="streamlog-performance-"))
    spark = open_session(directory, settings=settings)
    register(spark)
    spark.dataSource.register(PrebuiltSource)
    try:
        yield spark, directory
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


def rows_per_second(
    spark: SparkSession, format_name: str, options: Mapping[str, str], directory: Path
) -> float:
    """Read a source to its end into a noop sink; return rows per second of the trigger."""
    checkpoint = tempfile.mkdtemp(dir=directory)
    query = (
        spark.readStream.format(format_name)
        .options(**options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    rows = sum(each["numInputRows"] for each in progress)
    return rows / sum(each["durationMs"]["triggerExecution"] for each in progress) * 1000


def trigger_ms(
    spark: SparkSession,
    source: tuple[str, Mapping[str, str]],
    sink: tuple[str, Mapping[str, str]],
    directory: Path,
    *,
    warm: int = 15,
    count: int = 40,
) -> float:
    """Return the median duration of consecutive triggers with one row each."""
    stream = spark.readStream.format(source[0]).options(**source[1]).load()
    writer = stream.writeStream.format(sink[0]).options(**sink[1])
    return median_trigger_ms(writer, directory, warm=warm, count=count)


def median_trigger_ms(
    writer: DataStreamWriter, directory: Path, *, warm: int = 15, count: int = 40
) -> float:
    """Return the median duration of the triggers with rows, after the warm-up ones."""
    query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=directory)).start()
    try:
        while True:
            if query.exception():
                raise query.exception()
            progress = [each for each in query.recentProgress if each["numInputRows"]]
            if len(progress) >= warm + count:
                break
            time.sleep(0.1)
    finally:
        query.stop()
    return median(each["durationMs"]["triggerExecution"] for each in progress[-count:])
