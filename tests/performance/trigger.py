"""The shortest trigger: one new record, back to back.

Beside ours run an empty Python source, and for log to log that source into a Python sink that
drops all. A record is appended every few milliseconds while our query runs.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from streamlog.log.manager import LogManager
from streamlog.records.builder import encode_columns
from streamlog.records.record import Record
from streamlog.records.validate import AppendOrigin
from tests.performance.comparison import Comparison, interleaved
from tests.performance.peers import records
from tests.performance.queries import spark_and_directory, trigger_ms

SOURCE_GOAL = 1.3
LOG_TO_LOG_GOAL = 1.4
EVERY_S = 0.02  # far below a trigger, and rare enough to leave the cores to Spark
LARGE_SEGMENT_BYTES = 512 << 20


@contextmanager
def appending(root: Path, topic: str) -> Iterator[None]:
    """Append a record every few milliseconds meanwhile."""
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
    """Make a topic of one partition whose active segment holds about `size` bytes."""
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


def compare(rounds: int = 2) -> Iterator[Comparison]:
    """Yield the medians of a trigger in milliseconds."""
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
