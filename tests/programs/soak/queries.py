"""The Spark process of the soak: one query copies with the sink, one collects by foreachBatch.

    python -m tests.programs.soak.queries DIRECTORY run|finish

Both are recorded readers. The second writes a file per batch, which a repeated batch replaces.
`finish` processes all available data and exits.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from tests.programs.soak.records import COPIES, EVENTS, STATE
from tests.programs.soak.workers import root_of
from tests.support.sink import stream_of
from tests.support.spark_session import open_session

TRIGGER = "1 second"


def copying(spark: SparkSession, directory: Path) -> DataStreamWriter:
    """Return the query that copies events and maintains the root between its triggers."""
    root = str(root_of(directory))
    stream = stream_of(spark, root, EVENTS, **{"kafka.group.id": "copier"})
    sink = stream.select("key", "value").writeStream.format("streamlog")
    options = {"path": root, "topic": COPIES, "maintenance": "auto"}
    return sink.options(**options, checkpointLocation=str(directory / "checkpoint-copier"))


def collecting(spark: SparkSession, directory: Path) -> DataStreamWriter:
    """Return the query that records what it sees of the copies and of the state."""
    root, seen = str(root_of(directory)), directory / "seen"

    def write_down(frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("topic", "partition", "offset", "key", "value").collect()
        part = seen / f"{batch_id}.part"
        with part.open("w") as file:
            for row in rows:
                texts = [None if each is None else each.decode() for each in (row.key, row.value)]
                file.write(json.dumps([row.topic, row.partition, row.offset, *texts]) + "\n")
        part.rename(seen / f"{batch_id}.json")

    stream = stream_of(spark, root, f"{COPIES},{STATE}", **{"kafka.group.id": "collector"})
    checkpoint = str(directory / "checkpoint-collector")
    return stream.writeStream.foreachBatch(write_down).option("checkpointLocation", checkpoint)


def main(directory: Path, way: str) -> None:
    """Run both until killed, or each in turn until all data is processed."""
    spark = open_session(directory / "spark")
    writers = copying(spark, directory), collecting(spark, directory)
    if way == "finish":
        for writer in writers:
            writer.trigger(availableNow=True).start().awaitTermination()
        spark.stop()
        return
    for writer in writers:
        writer.trigger(processingTime=TRIGGER).start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
