"""One crash case of a user's test in a running session: crash, restart, comparison of the rows.

A query copies three text files, one per batch, to a topic. It dies in the second batch, after its
rows are committed and before Spark has recorded it. The figure covers the whole case and is
compared with the documented limit.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from streamlog.testing import Checkpoint, Topic, assert_exactly_once, crash_after
from tests.programs.performance.comparison import Comparison
from tests.programs.performance.queries import spark_and_directory

PROMISED_S = 2.0
ROWS = [f"row {number}" for number in range(6)]


def write_files(directory: Path) -> None:
    """Write two rows per file, in the order in which Spark reads the files."""
    directory.mkdir()
    for number in range(3):
        path = directory / f"{number}.txt"
        path.write_text("\n".join(ROWS[2 * number : 2 * number + 2]))
        os.utime(path, (number, number))


def case_s(spark: SparkSession, files: Path, place: Path) -> float:
    """Return the seconds of one case."""
    start = time.perf_counter()
    out, checkpoint = Topic(place / "root", "out"), Checkpoint(place / "cp")

    def run() -> None:
        stream = spark.readStream.option("maxFilesPerTrigger", 1).text(str(files))
        writer = stream.writeStream.format("streamlog").option("path", out.root)
        writer = writer.option("topic", out.name).option("checkpointLocation", checkpoint.path)
        writer.trigger(availableNow=True).start().awaitTermination()

    with crash_after(checkpoint, batch=1, at="applied"):
        run()
    run()
    assert_exactly_once(ROWS, out, key="value")
    return time.perf_counter() - start


def compare(rounds: int = 5) -> Iterator[Comparison]:
    """Yield the median of a case, after one warm-up."""
    with spark_and_directory() as (spark, directory):
        files = directory / "files"
        write_files(files)
        seconds = [case_s(spark, files, directory / f"case-{n}") for n in range(rounds + 1)][1:]
        yield Comparison(
            "crash.case",
            median(seconds),
            PROMISED_S,
            "the limit",
            "s",
            higher_is_better=False,
            goal=1.0,
        )
