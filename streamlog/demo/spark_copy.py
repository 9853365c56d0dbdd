"""The Spark job that the demo kills: `python -m streamlog.demo.spark_copy ROOT CHECKPOINT ROWS`.

It streams the orders into a second topic, ROWS in each micro-batch, and ends when none are left.
"""

import sys

import streamlog.spark
from streamlog.demo.orders import COPIES, ORDERS

__all__: list[str] = []


def _copy(root: str, checkpoint: str, rows: str) -> None:
    spark = streamlog.spark.session()
    spark.sparkContext.setLogLevel("OFF")
    stream = spark.readStream.format("streamlog").option("path", root).option("subscribe", ORDERS)
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", rows)
    sink = stream.load().select("key", "value", "timestamp").writeStream.format("streamlog")
    sink = sink.option("path", root).option("topic", COPIES)
    sink.option("checkpointLocation", checkpoint).trigger(
        availableNow=True
    ).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    _copy(*sys.argv[1:])
