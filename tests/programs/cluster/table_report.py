"""A job that prints what a Delta table of `streaming_jobs.carrier_delays` holds, as JSON."""

import json
import sys

from pyspark.sql import SparkSession, functions


def main(path: str) -> None:
    """Print the number of windows, and the sums of each carrier."""
    spark = SparkSession.builder.getOrCreate()
    table = spark.read.format("delta").load(path)
    sums = [functions.sum(name).alias(name) for name in ("flights", "departed", "total_delay")]
    carriers = table.groupBy("carrier").agg(*sums).collect()
    report = {"windows": table.count(), "carriers": [row.asDict() for row in carriers]}
    print(f"REPORT {json.dumps(report)}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
