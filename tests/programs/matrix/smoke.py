"""What each environment of the matrix runs: it needs the installed package and Spark, nothing else.

    python smoke.py DIRECTORY

Prints the name of each check that passed. The first one that fails ends the program.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import streamlog

WORDS = [f"word {number}" for number in range(40)]
CONNECT = """
import sys
import streamlog.spark
from pyspark.sql import SparkSession

builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
spark = streamlog.spark.session(builder)
words = spark.readStream.format("streamlog").option("path", sys.argv[1])
words = words.option("subscribe", "words").option("startingOffsets", "earliest").load()
words = words.select("key", "value")
sink = words.writeStream.format("streamlog").option("path", sys.argv[1]).option("topic", "connect")
sink = sink.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True)
sink.start().awaitTermination()
spark.stop()
"""


def read_and_write_arrow(root: str) -> None:
    """Write an Arrow table as one commit, write it again, and read it."""
    with streamlog.LogManager.open(root, create=True) as manager:
        for topic in ("words", "copy", "counts", "connect"):
            manager.create_topic(topic, 2)
    table = pa.table({"key": [word[-1] for word in WORDS], "value": WORDS})
    first, again = (
        streamlog.write_table(table, root, "words", txn_app_id="matrix", txn_version=1)
        for _ in range(2)
    )
    assert not first.is_replay
    assert again.is_replay
    assert values(root, "words") == sorted(WORDS)


def values(root: str, topic: str) -> list[str]:
    """Return the values of a topic, sorted."""
    column = streamlog.read_table(root, topic)["value"].to_pylist()
    return sorted(value.decode() for value in column)


def stream(spark: Any, root: str, topic: str) -> Any:
    """Return a streaming frame of a topic, a few rows in each batch."""
    reader = spark.readStream.format("streamlog").option("path", root).option("subscribe", topic)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 15)
    return reader.load()


def find_the_format(spark: Any, root: str) -> None:
    """Read a topic as a batch: Spark has found the format by itself."""
    frame = spark.read.format("streamlog").option("path", root).option("subscribe", "words").load()
    assert sorted(row.value.decode() for row in frame.collect()) == sorted(WORDS)
    assert spark.sql("SELECT 1").count() == 1


def copy(spark: Any, root: str, checkpoint: str) -> None:
    """Copy what is new in `words` with the exactly-once sink."""
    sink = stream(spark, root, "words").select("key", "value").writeStream.format("streamlog")
    sink = sink.option("path", root).option("topic", "copy").trigger(availableNow=True)
    sink.option("checkpointLocation", checkpoint).start().awaitTermination()


def stream_and_replay(spark: Any, root: str, checkpoint: str) -> None:
    """Crash a query between its sink and Spark's own record of the batch; start it again."""
    from streamlog.testing import Checkpoint, crash_after

    with crash_after(checkpoint, batch=1, at="applied"):
        copy(spark, root, checkpoint)
    assert Checkpoint(checkpoint).committed() == [0]
    copy(spark, root, checkpoint)
    assert values(root, "copy") == sorted(WORDS)


def go_on_from_a_checkpoint(spark: Any, root: str, checkpoint: str) -> None:
    """Append to the source: the next start of the query adds these rows only."""
    more = [f"more {number}" for number in range(10)]
    table = pa.table({"key": ["m"] * len(more), "value": more})
    streamlog.write_table(table, root, "words")
    copy(spark, root, checkpoint)
    assert values(root, "copy") == sorted([*WORDS, *more])


def append_batches(spark: Any, root: str, checkpoint: str) -> None:
    """Write counts with `foreachBatch`, in output mode update."""
    import streamlog.spark

    counts = stream(spark, root, "words").groupBy("key").count()
    append = streamlog.spark.append_batch(root, topic="counts", checkpoint=checkpoint)
    query = counts.selectExpr("key", "string(count) AS value").writeStream.outputMode("update")
    query = query.foreachBatch(append).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    table = streamlog.read_table(root, "counts")
    pairs = zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)
    last = {key.decode(): int(value) for key, value in pairs}
    assert sum(last.values()) == 50, last


def copy_over_connect(root: str, checkpoint: str) -> None:
    """Copy the topic once more, from a client of Spark Connect."""
    # Without SPARK_TESTING the server takes the fixed port 15002.
    variables = {**os.environ, "SPARK_TESTING": "1", "PYSPARK_PYTHON": sys.executable}
    program = [sys.executable, "-c", CONNECT, root, checkpoint]
    subprocess.run(program, env=variables, check=True, timeout=900)
    assert len(values(root, "connect")) == 50


def main(directory: Path) -> None:
    """Run all checks in `directory`."""
    import pyspark

    import streamlog.spark

    root, checkpoints = str(directory / "root"), directory / "checkpoints"
    say(f"pyspark {pyspark.__version__}, pyarrow {pa.__version__}, python {sys.version.split()[0]}")
    checked("arrow", read_and_write_arrow, root)
    spark = streamlog.spark.session()
    spark.sparkContext.setLogLevel("OFF")
    checked("batch", find_the_format, spark, root)
    checked("replay", stream_and_replay, spark, root, str(checkpoints / "copy"))
    checked("checkpoint", go_on_from_a_checkpoint, spark, root, str(checkpoints / "copy"))
    checked("foreachBatch", append_batches, spark, root, str(checkpoints / "counts"))
    spark.stop()
    checked("connect", copy_over_connect, root, str(checkpoints / "connect"))


def checked(name: str, check: Callable[..., None], *arguments: object) -> None:
    """Run a check and print its name."""
    check(*arguments)
    say(name)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
