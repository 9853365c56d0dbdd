"""The shortest trigger: one new record, back to back.

The peer is an empty Python source; for log to log, that source into a Python sink that drops all
rows; for `append_batch`, a function that collects the rows and drops them. A record is appended
every few milliseconds while our query runs.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from streamlog.records.builder import encode_columns
from streamlog.records.record import Record
from streamlog.records.validate import AppendOrigin
from streamlog.root.manager import LogManager
from streamlog.spark import append_batch
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.peers import records
from tests.programs.performance.queries import median_trigger_ms, spark_and_directory, trigger_ms

SOURCE_GOAL = 1.3
LOG_TO_LOG_GOAL = 1.4
EACH_BATCH_GOAL = 1.6  # a commit syncs three files, its checkpoint others
EVERY_S = 0.02  # far below a trigger, and leaves the cores to Spark
LARGE_SEGMENT_BYTES = 512 << 20


@contextmanager
def appending(root: Path, topic: str) -> Iterator[None]:
    """Append a record every few milliseconds."""
    stop = threading.Event()

    def append() -> None:
        with LogManager.open(str(root)) as manager:
            while not stop.wait(EVERY_S):
                manager.log(topic, 0).append([Record(b"k", b"v" * 100)])

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def create(root: Path, topic: str, size: int = 0) -> None:
    """Create a topic of one partition whose active segment holds about `size` bytes."""
    with LogManager.open(str(root), create=True) as manager:
        manager.create_topic(topic, 1)
        log = manager.log(topic, 0)
        encoded = encode_columns(records(20_000, 100))
        for _ in range(size // len(encoded.buffer)):
            log.append_as_leader(encoded.buffer, origin=AppendOrigin.COORDINATOR)


def ours_ms(
    spark: SparkSession, directory: Path, topic: str, sink: tuple[str, Mapping[str, str]]
) -> float:
    """Return the median trigger of a query that follows the end of `topic`."""
    root = directory / "log"
    source = ("streamlog", {"path": str(root), "subscribe": topic})
    with appending(root, topic):
        return trigger_ms(spark, source, sink, directory)


def each_batch_ms(
    spark: SparkSession, directory: Path, function: Callable[[DataFrame, int], object]
) -> float:
    """Return the median trigger of a query that follows a topic into `foreachBatch`."""
    root = directory / "log"
    stream = spark.readStream.format("streamlog").option("path", str(root))
    rows = stream.option("subscribe", "in-small").load().select("key", "value")
    with appending(root, "in-small"):
        return median_trigger_ms(rows.writeStream.foreachBatch(function), directory)


def compare_each_batch(spark: SparkSession, directory: Path, rounds: int) -> Comparison:
    """Compare `append_batch` with collecting the rows of a batch and dropping them."""
    append = append_batch(str(directory / "log"), topic="out-small")
    measured = interleaved(
        lambda: each_batch_ms(spark, directory, append),
        lambda: each_batch_ms(spark, directory, lambda rows, _: rows.toArrow()),
        rounds=rounds,
    )
    return Comparison(
        "trigger.foreach_batch",
        *measured,
        "collecting the rows and dropping them",
        "ms",
        higher_is_better=False,
        goal=EACH_BATCH_GOAL,
    )


def compare(rounds: int = 2) -> Iterator[Comparison]:
    """Yield the median durations of a trigger in ms."""
    with spark_and_directory() as (spark, directory):
        empty = ("prebuilt", {"rows": "1", "triggers": "1000000"})
        for name, size in (("small", 0), ("large", LARGE_SEGMENT_BYTES)):
            create(directory / "log", f"in-{name}", size)
            create(directory / "log", f"out-{name}", size)
            for bench, sink, dropping, goal in (
                ("source", ("noop", {}), ("noop", {}), SOURCE_GOAL),
                (
                    "log_to_log",
                    ("streamlog", {"path": str(directory / "log"), "topic": f"out-{name}"}),
                    ("prebuilt", {}),
                    LOG_TO_LOG_GOAL,
                ),
            ):
                measured = interleaved(
                    lambda topic=f"in-{name}", into=sink: ours_ms(spark, directory, topic, into),
                    lambda into=dropping: trigger_ms(spark, empty, into, directory),
                    rounds=rounds,
                )
                yield Comparison(
                    f"trigger.{bench}.{name}_segment",
                    *measured,
                    "an empty Python source",
                    "ms",
                    higher_is_better=False,
                    goal=goal,
                )
        yield compare_each_batch(spark, directory, rounds)
