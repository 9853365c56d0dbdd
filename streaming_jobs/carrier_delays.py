"""Topic `flights` → Delta table: mean departure delay per carrier and hour, exactly once.

Flights are grouped into windows of one hour with a watermark. A window is written once, after the
watermark has passed it, so the last windows wait for a later record; the demo sends one. The
partitions of one commit become visible one after another, so the watermark must allow for the
event time that one micro-batch of the writer spans: 11 days of flights here. Without Delta's jars,
use `--format parquet`.

    python -m streaming_jobs.carrier_delays --path demo/root --output demo/delays
    spark-submit --jars … streaming_jobs/carrier_delays.py --path demo/root --output demo/delays
"""

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

VALUE = "row long, time_hour timestamp, carrier string, dep_delay double"


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", required=True, help="log root")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--output", required=True, help="directory of the table")
    parser.add_argument("--format", default="delta", choices=("delta", "parquet"))
    parser.add_argument(
        "--checkpoint", help="default: PATH/../checkpoints/carrier_delays; needed if PATH is a URL"
    )
    parser.add_argument("--watermark", default="30 days", help="maximum lateness of a flight")
    parser.add_argument("--offsets-per-trigger", type=int, default=40_000)
    parser.add_argument("--forever", action="store_true", help="do not stop at the end of the log")
    parsed = parser.parse_args(arguments)
    if "://" in parsed.path and not parsed.checkpoint:
        parser.error("a log root in an object store needs --checkpoint")
    return parsed


def build(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Start the query."""
    checkpoint = args.checkpoint or f"{Path(args.path).parent}/checkpoints/carrier_delays"
    records = (
        spark.readStream.format("streamlog")
        .option("path", args.path)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", args.offsets_per_trigger)
        .load()
    )
    flights = records.select(
        F.col("timestamp"), F.from_json(F.col("value").cast("string"), VALUE).alias("flight")
    )
    delays = (
        flights.withWatermark("timestamp", args.watermark)
        .groupBy(F.window("timestamp", "1 hour").alias("hour"), F.col("flight.carrier"))
        .agg(
            F.count("flight.row").alias("flights"),
            F.count("flight.dep_delay").alias("departed"),
            F.sum("flight.dep_delay").alias("total_delay"),
        )
        .select(F.col("hour.start").alias("hour"), "carrier", "flights", "departed", "total_delay")
    )
    writer = (
        delays.writeStream.format(args.format)
        .queryName("carrier_delays")
        .outputMode("append")
        .option("path", args.output)
        .option("checkpointLocation", checkpoint)
    )
    if not args.forever:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def main(arguments: list[str] | None = None) -> None:
    """Run until the end of the log, or forever with `--forever`."""
    import streamlog.spark

    args = parse_arguments(arguments)
    build(streamlog.spark.session(), args).awaitTermination()


if __name__ == "__main__":
    main()
