"""Topic `flights` → topic `aircraft`: the latest known flight of each aircraft.

Each micro-batch keeps the last record of every tail number and appends it through `foreachBatch`
with `streamlog.spark.append_batch`, exactly once. The topic has `cleanup.policy=compact`, so only
the last record of a key counts. Flights without a tail number are left out.

    python -m streaming_jobs.aircraft_state --path demo/root
    spark-submit streaming_jobs/aircraft_state.py --path demo/root
"""

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import streamlog.spark


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", required=True, help="log root")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--target", default="aircraft")
    parser.add_argument(
        "--checkpoint", help="default: PATH/../checkpoints/aircraft_state; needed if PATH is a URL"
    )
    parser.add_argument("--offsets-per-trigger", type=int, default=100_000)
    parser.add_argument("--forever", action="store_true", help="do not stop at the end of the log")
    parsed = parser.parse_args(arguments)
    if "://" in parsed.path and not parsed.checkpoint:
        parser.error("a log root in an object store needs --checkpoint")
    return parsed


def latest_per_key(records: DataFrame) -> DataFrame:
    """Return the last record of each key, by timestamp and then by offset."""
    last = F.max_by(F.struct("value", "timestamp"), F.struct("timestamp", "offset"))
    return (
        records.where("key is not null")
        .groupBy("key")
        .agg(last.alias("last"))
        .select("key", "last.*")
    )


def build(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Start the query."""
    checkpoint = args.checkpoint or f"{Path(args.path).parent}/checkpoints/aircraft_state"
    append = streamlog.spark.append_batch(args.path, topic=args.target, checkpoint=checkpoint)

    def append_latest(batch: DataFrame, batch_id: int) -> None:
        append(latest_per_key(batch), batch_id)

    records = (
        spark.readStream.format("streamlog")
        .option("path", args.path)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", args.offsets_per_trigger)
        .load()
    )
    writer = (
        records.writeStream.foreachBatch(append_latest)
        .queryName("aircraft_state")
        .option("checkpointLocation", checkpoint)
    )
    if not args.forever:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def main(arguments: list[str] | None = None) -> None:
    """Run until the end of the log, or forever with `--forever`."""
    args = parse_arguments(arguments)
    build(streamlog.spark.session(), args).awaitTermination()


if __name__ == "__main__":
    main()
