"""The main job on real data, killed in the middle: nothing lost, nothing duplicated.

1. One driver runs two queries: flights into the topic `flights`, and from there, per carrier and
   hour, into a Delta table. In the middle of both, its JVM is killed (SIGKILL).
2. A new driver restarts both queries from their checkpoints and lets them finish. A third query
   keeps the latest flight of every aircraft in the compacted topic `aircraft`.
3. The rows are counted and compared with a plain aggregation of the input.

    python -m streaming_jobs.demo [--directory DIR] [--kill-after RECORDS] [--seed N]

Exits with 1 if a flight is missing or duplicated, or a delay differs.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from streaming_jobs.flights import ROWS, write_flights

PARTITIONS = 4
ROOT, TABLE, CHECKPOINTS = "root", "carrier_delays", "checkpoints"
CLOSING_ROW = -1
STARTS = 3  # attempts per driver: on a busy machine Spark may fail by itself


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=Path(".cache/demo"))
    parser.add_argument(
        "--kill-after", type=int, help="number of records in the log before the kill"
    )
    parser.add_argument("--seed", type=int, help="random seed for the moment of the kill")
    parser.add_argument("--phase", choices=("until-killed", "finish"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def delta_jars() -> list[Path]:
    """Return Delta's jars; empty if the set-up could not fetch them."""
    return sorted(Path(".cache/jars/delta").glob("*.jar"))


def start_session() -> Any:
    """Return a Spark session, with Delta if its jars are present."""
    from pyspark.sql import SparkSession

    import streamlog.spark

    builder = (
        SparkSession.builder.master("local[2]")
        .appName("streamlog demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    jars = delta_jars()
    if jars:
        builder = (
            builder.config("spark.jars", ",".join(str(jar.resolve()) for jar in jars))
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config(
                "spark.sql.catalog.spark_catalog",
                "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            )
            .config("spark.databricks.delta.snapshotPartitions", "2")
        )
    spark = streamlog.spark.session(builder)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def job_arguments(directory: Path, *more: str) -> list[str]:
    """Return the arguments that both phases pass to the jobs."""
    return ["--path", str(directory / ROOT), *more]


def start_jobs(spark: Any, directory: Path, *more: str) -> list[Any]:
    """Start flights → topic and topic → table."""
    from streaming_jobs import carrier_delays, flights_to_topic

    feed = flights_to_topic.parse_arguments(
        job_arguments(directory, "--input", str(directory / "flights"), *more)
    )
    table_format = "delta" if delta_jars() else "parquet"
    delays = carrier_delays.parse_arguments(
        job_arguments(
            directory, "--output", str(directory / TABLE), "--format", table_format, *more
        )
    )
    return [flights_to_topic.build(spark, feed), carrier_delays.build(spark, delays)]


def run_until_killed(directory: Path) -> None:
    """Run both jobs forever; the parent kills the JVM."""
    spark = start_session()
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    (directory / "jvm.pid").write_text(str(jvm))
    start_jobs(spark, directory, "--forever")
    spark.streams.awaitAnyTermination()


def finish(directory: Path) -> None:
    """Finish both jobs from their checkpoints, close the last windows, then run the third job."""
    from streaming_jobs import aircraft_state

    spark = start_session()
    feed, delays = start_jobs(spark, directory)
    feed.awaitTermination()
    delays.awaitTermination()
    send_closing_record(directory / ROOT)
    start_jobs(spark, directory)[1].awaitTermination()
    arguments = aircraft_state.parse_arguments(job_arguments(directory))
    aircraft_state.build(spark, arguments).awaitTermination()
    delays_table = spark.read.format("delta" if delta_jars() else "parquet")
    frame = delays_table.load(str(directory / TABLE)).toPandas()
    frame.to_parquet(directory / "delays.parquet")
    spark.stop()


def send_closing_record(root: Path) -> None:
    """Append one record that is more than the watermark of 30 days after the last flight."""
    from streamlog import PartitionLog, Record

    with PartitionLog.open(root / "flights-0") as log:
        last = 1_388_534_400_000  # 2014-01-01
        value = b'{"row":%d}' % CLOSING_ROW
        log.append([Record(value=value, timestamp=last + 60 * 86_400_000)])


def create_topics(root: Path) -> None:
    """Create the root and both topics; retention is off because the flights are from 2013."""
    from streamlog import LogManager

    with LogManager.open(root, create=True) as manager:
        forever = {"retention.ms": "-1"}
        manager.create_topic("flights", PARTITIONS, forever)
        manager.create_topic("aircraft", 1, {**forever, "cleanup.policy": "compact"})


def records_in_log(root: Path) -> int:
    """Return the current number of records in the topic."""
    from streamlog.partition.reader import LogReader

    total = 0
    for partition in range(PARTITIONS):
        with LogReader.open(root / f"flights-{partition}") as reader:
            total += reader.log_end_offset - reader.log_start_offset
    return total


def table_commits(directory: Path) -> int:
    """Return the number of micro-batches that the second job has committed."""
    commits = directory / CHECKPOINTS / "carrier_delays" / "commits"
    return len([name for name in commits.glob("*") if name.name.isdigit()])


def kill_in_the_middle(directory: Path, kill_after: int) -> tuple[int, int]:
    """Run both jobs in their own driver and kill its JVM.

    Returns:
        Records in the log and committed batches of the table at the time of the kill.
    """
    for _ in range(STARTS):
        with (directory / "driver.log").open("w") as log:
            found = run_and_kill(directory, kill_after, log)
        if found is not None:
            return found
        report_failure(log.name)
    raise SystemExit(f"the driver exited by itself {STARTS} times; see {log.name}")


def run_and_kill(directory: Path, kill_after: int, log: TextIO) -> tuple[int, int] | None:
    """Run both jobs once and kill their JVM; return None if they failed before the kill."""
    pid = directory / "jvm.pid"
    pid.unlink(missing_ok=True)
    driver = subprocess.Popen(
        phase_command(directory, "until-killed"), stdout=log, stderr=subprocess.STDOUT
    )
    try:
        while driver.poll() is None:
            time.sleep(0.02)
            there, commits = records_in_log(directory / ROOT), table_commits(directory)
            jvm = pid.read_text() if pid.exists() else ""
            if there >= kill_after and commits >= 1 and jvm:
                os.kill(int(jvm), signal.SIGKILL)
                driver.wait(timeout=60)
                return there, commits
    finally:
        with contextlib.suppress(ProcessLookupError):
            driver.kill()
        driver.wait()
    return None


def report_failure(log: str) -> None:
    """Report a failure of Spark itself: on a busy machine its workers miss a time limit."""
    print(f"Spark failed by itself (see {log}): restarting from the checkpoints …")


def phase_command(directory: Path, phase: str) -> list[str]:
    """Return the command that runs a phase in its own process."""
    command = [sys.executable, "-m", "streaming_jobs.demo"]
    return [*command, "--phase", phase, "--directory", str(directory)]


def run_phase(directory: Path, phase: str) -> None:
    """Run a phase in its own driver, with its output in a file."""
    path = directory / f"{phase}.log"
    for _ in range(STARTS):
        with path.open("w") as log:
            done = subprocess.run(
                phase_command(directory, phase), stdout=log, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode == 0:
            return
        report_failure(str(path))
    raise SystemExit(f"{phase} failed {STARTS} times; see {path}")


def main(arguments: list[str] | None = None) -> None:
    """Run the demo; see the module docstring."""
    args = parse_arguments(arguments)
    directory = args.directory
    if args.phase == "until-killed":
        run_until_killed(directory)
        return
    if args.phase == "finish":
        finish(directory)
        return
    from streaming_jobs.demo_report import check_and_print

    started = time.monotonic()
    directory.mkdir(parents=True, exist_ok=True)
    for name in (ROOT, TABLE, CHECKPOINTS):
        shutil.rmtree(directory / name, ignore_errors=True)
    if not delta_jars():
        print("Delta's jars are not available: writing the table as Parquet instead.")
    write_flights(directory / "flights")
    create_topics(directory / ROOT)
    kill_after = args.kill_after
    if kill_after is None:
        kill_after = random.Random(args.seed).randrange(ROWS // 6, ROWS // 2)
    print(f"streaming {ROWS:,} flights → topic → table; killing the JVM after {kill_after:,} …")
    there, commits = kill_in_the_middle(directory, kill_after)
    print(f"killed with {there:,} records in the log and {commits} committed batches of the table")
    print("restarting from the checkpoints …")
    run_phase(directory, "finish")
    seconds = time.monotonic() - started
    sys.exit(0 if check_and_print(directory, seconds=seconds, killed_at=there) else 1)


if __name__ == "__main__":
    main()
