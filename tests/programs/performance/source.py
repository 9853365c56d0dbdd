"""Log to noop: our source compared with one that returns prebuilt Arrow batches."""

from collections.abc import Iterator
from pathlib import Path

from streamlog.records.builder import encode_columns
from streamlog.records.record import CompressionType
from streamlog.records.validate import AppendOrigin
from streamlog.root.manager import LogManager
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.peers import records
from tests.programs.performance.queries import rows_per_second, spark_and_directory

ROWS = 4_000_000
PARTITIONS = 2
VALUE_SIZE = 100
CHUNK = 20_000
GOAL = 0.8


def fill(root: Path, topic: str, *, compression: CompressionType, rows: int = ROWS) -> None:
    """Write the input records to a topic of `PARTITIONS` partitions."""
    with LogManager.open(str(root), create=True) as manager:
        manager.create_topic(topic, PARTITIONS)
        encoded = encode_columns(records(CHUNK, VALUE_SIZE), compression=compression)
        for partition in range(PARTITIONS):
            log = manager.log(topic, partition)
            for _ in range(rows // PARTITIONS // CHUNK):
                log.append_as_leader(encoded.buffer, origin=AppendOrigin.COORDINATOR)


def compare(rounds: int = 3) -> Iterator[Comparison]:
    """Yield rows per second into noop, all columns, by codec."""
    with spark_and_directory() as (spark, directory):
        ceiling = {"rows": str(ROWS), "tasks": str(PARTITIONS), "value_size": str(VALUE_SIZE)}
        for codec in (CompressionType.NONE, CompressionType.LZ4):
            topic = codec.name.lower()
            fill(directory / "log", topic, compression=codec)
            ours = {
                "path": str(directory / "log"),
                "subscribe": topic,
                "startingOffsets": "earliest",
            }
            measured = interleaved(
                lambda options=ours: rows_per_second(spark, "streamlog", options, directory),
                lambda: rows_per_second(spark, "prebuilt", ceiling, directory),
                rounds=rounds,
            )
            yield Comparison(
                f"source.noop.{topic}", *measured, "prebuilt Arrow batches", "rows/s", goal=GOAL
            )
