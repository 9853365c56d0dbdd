"""Flights → topic `flights`: JSON values, keyed by tail number, each flight exactly once.

Reads a directory of Parquet files (written by `streaming_jobs.flights`) as a stream and appends to
a topic through `writeStream.format("streamlog")`. If it is killed at any moment and restarted with
the same checkpoint, it neither loses nor repeats a flight.

    python -m streaming_jobs.flights_to_topic --input demo/flights --path demo/root
    spark-submit streaming_jobs/flights_to_topic.py --input demo/flights --path demo/root
"""

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

SCHEMA = (
    "row long, time_hour timestamp, carrier string, flight long, tailnum string, origin string, "
    "dest string, dep_delay double, arr_delay double, air_time double, distance long"
)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input", required=True, help="directory of Parquet files")
    parser.add_argument("--path", required=True, help="log root")
    parser.add_argument("--topic", default="flights")
    parser.add_argument(
        "--checkpoint",
        help="default: PATH/../checkpoints/flights_to_topic; needed if PATH is a URL",
    )
    parser.add_argument("--files-per-trigger", type=int, default=2)
    parser.add_argument("--forever", action="store_true", help="do not stop at the end of input")
    parsed = parser.parse_args(arguments)
    if "://" in parsed.path and not parsed.checkpoint:
        parser.error("a log root in an object store needs --checkpoint")
    return parsed


def build(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Start the query."""
    checkpoint = args.checkpoint or f"{Path(args.path).parent}/checkpoints/flights_to_topic"
    flights = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", args.files_per_trigger)
        .parquet(args.input)
    )
    records = flights.select(
        F.col("tailnum").cast("binary").alias("key"),
        F.to_json(F.struct("*")).cast("binary").alias("value"),
        F.col("time_hour").alias("timestamp"),
    )
    writer = (
        records.writeStream.format("streamlog")
        .queryName("flights_to_topic")
        .option("path", args.path)
        .option("topic", args.topic)
        .option("checkpointLocation", checkpoint)
    )
    if not args.forever:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def main(arguments: list[str] | None = None) -> None:
    """Run until the end of the input, or forever with `--forever`."""
    import streamlog.spark

    args = parse_arguments(arguments)
    build(streamlog.spark.session(), args).awaitTermination()


if __name__ == "__main__":
    main()
