"""A local object store compared with a directory: Spark's sink and source, and Arrow tables.

The queries write 4 million rows of 114 bytes and read them, a million in a trigger. Tables have
50 MB, and their figures are per second of processor time.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from streamlog import read_table, write_table
from streamlog.bucket.manager import BucketManager
from streamlog.root.manager import LogManager
from tests.programs.performance import queries, sink
from tests.programs.performance.comparison import Comparison, interleaved

ROWS = 50_000
ROW_SIZE = 1000
GOAL = 0.8


def compare(rounds: int = 4) -> Iterator[Comparison]:
    """Yield the queries, then the tables."""
    yield from _queries(rounds)
    yield from _tables(rounds)


def _queries(rounds: int) -> Iterator[Comparison]:
    """Yield the rows per second of the triggers of a query: writing, then reading everything."""
    with queries.spark_and_directory() as (spark, place):
        url, directory = f"file://{place}/bucket", str(place / "root")
        sink.fill(place / "parquet")
        _create("written", url, directory)
        _create("read", url, directory)

        def write(root: str, topic: str = "written") -> float:
            options = {"path": root, "topic": topic}
            return sink.rows_per_second(spark, place / "parquet", ("streamlog", options), place)

        def read(root: str) -> float:
            options = {"path": root, "subscribe": "read", "startingOffsets": "earliest"}
            options["maxOffsetsPerTrigger"] = str(sink.ROWS_PER_FILE * sink.FILES_PER_TRIGGER)
            return queries.rows_per_second(spark, "streamlog", options, place)

        for root in (url, directory):
            write(root, "read")
        for bench, work in (("sink", write), ("source", read)):
            ours, peer = interleaved(
                lambda work=work: work(url), lambda work=work: work(directory), rounds=rounds
            )
            yield Comparison(
                f"object_store.{bench}", ours, peer, "a directory", "rows/s", goal=GOAL
            )


def _create(topic: str, url: str, directory: str) -> None:
    with BucketManager(url, create=True) as bucket:
        bucket.create_topic(topic, sink.PARTITIONS)
    with LogManager.open(directory, create=True) as manager:
        manager.create_topic(topic, sink.PARTITIONS)


def _tables(rounds: int) -> Iterator[Comparison]:
    """Yield the MB of rows per second of processor time: writing, then reading everything."""
    with TemporaryDirectory() as place:
        url, directory = f"file://{place}/bucket", str(Path(place, "root"))
        with BucketManager(url, create=True) as bucket:
            bucket.create_topic("rows", 4)
        with LogManager.open(directory, create=True) as manager:
            manager.create_topic("rows", 4)
        random = np.random.default_rng(1)
        values = [random.bytes(ROW_SIZE) for _ in range(2000)] * (ROWS // 2000)
        table = pa.table({"value": pa.array(values, pa.binary())})

        def write(root: str) -> int:
            write_table(table, root, "rows")
            return table.num_rows

        def read(root: str) -> int:
            return read_table(root, "rows").num_rows

        yield _compared("object_store.write_table", write, url, directory, rounds)
        yield _compared("object_store.read_table", read, url, directory, rounds)


def _compared(
    bench: str, work: Callable[[str], int], url: str, directory: str, rounds: int
) -> Comparison:
    def speed(root: str) -> float:
        start = time.process_time()
        rows = work(root)
        return rows * ROW_SIZE / 1e6 / (time.process_time() - start)

    ours, peer = interleaved(lambda: speed(url), lambda: speed(directory), rounds=rounds)
    return Comparison(bench, ours, peer, "a directory", "MB/cpu-s", goal=GOAL)
