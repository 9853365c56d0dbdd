"""The streaming job under faults, a process of its own, until it is killed.

    python -m tests.programs.replicas.spark_job ROOTS HOME

Two queries run with the same `path`, all roots of the set:

    writer   topic `rows` of the root HOME/log -> topic `orders` of the set, with kafka.acks=all
    reader   topic `orders` of the set -> topic `seen` of the root HOME/log

A query that fails is started again from its checkpoint, after a line `failed NAME: ERROR` in
HOME/notes.
"""

import sys
import time
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from streamlog.spark.spark_session import register
from tests.programs.replicas.writer import PARTITION
from tests.support.spark_session import open_session

__all__ = ["BATCH_ROWS", "FED", "SEEN"]

FED: Final = "rows"
SEEN: Final = "seen"
BATCH_ROWS: Final = 100  # at most, also while a query catches up
LOOK_S: Final = 0.1


class Job:
    """Both queries.

    Args:
        spark: A session with the format registered.
        roots: The roots of the set, separated by commas.
        home: The directory of the root to read from, the checkpoints and the notes.
    """

    def __init__(self, spark: SparkSession, roots: str, home: Path) -> None:
        self._spark, self._home = spark, home
        own = str(home / "log")
        self._ways = {
            "writer": (own, FED, roots, PARTITION.topic),
            "reader": (roots, PARTITION.topic, own, SEEN),
        }

    def run(self) -> None:
        """Run until killed."""
        queries = {name: self._start(name) for name in self._ways}
        with (self._home / "notes").open("a") as notes:
            while True:
                for name, query in queries.items():
                    if not query.isActive:
                        print(f"failed {name}: {query.exception()}", file=notes, flush=True)
                        queries[name] = self._start(name)
                time.sleep(LOOK_S)

    def _start(self, name: str) -> StreamingQuery:
        path, topic, to_path, to_topic = self._ways[name]
        source = self._spark.readStream.format("streamlog").options(path=path, subscribe=topic)
        source = source.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(BATCH_ROWS))
        sink = source.load().select("key", "value").writeStream.format("streamlog")
        sink = sink.options(path=to_path, topic=to_topic).option("kafka.acks", "all")
        return sink.option("checkpointLocation", str(self._home / name)).start()


def main(roots: str, home: Path) -> None:
    """Start Spark and run the job."""
    (home / "spark").mkdir(exist_ok=True)
    spark = open_session(home / "spark")
    register(spark)
    Job(spark, roots, home).run()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
