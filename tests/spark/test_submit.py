"""The jobs as a user submits them: `spark-submit`, on this machine alone and on a cluster."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming_jobs.flights import write_flights
from streamlog.partition.reader import LogReader

pytestmark = [pytest.mark.spark, pytest.mark.slow]

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
FILES = 3
ROWS_PER_FILE = 5263  # a 64th of all flights
ENVIRONMENT = os.environ | {"PYSPARK_PYTHON": sys.executable}  # where nobody activated it
JOB_SECONDS = 300
PARTITIONS = 4


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the first of the flights, as Parquet."""
    everything = tmp_path_factory.mktemp("flights")
    write_flights(everything)
    some = tmp_path_factory.mktemp("input")
    for path in sorted(everything.glob("*.parquet"))[:FILES]:
        shutil.move(path, some / path.name)
    shutil.rmtree(everything)
    return some


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a standalone master with two workers of a core each."""
    directory = tmp_path_factory.mktemp("cluster")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    log = directory / "master"
    place = ("--host", "127.0.0.1", "--webui-port", "0")
    with contextlib.ExitStack() as stack:
        deploy = "org.apache.spark.deploy"
        stack.enter_context(running(log, f"{deploy}.master.Master", *place, "--port", str(port)))
        wait_for(log, "I have been elected leader", 1)
        for number in range(2):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / str(number)))
            worker = (f"{deploy}.worker.Worker", *place, *size, address)
            stack.enter_context(running(directory / f"worker-{number}", *worker))
        wait_for(log, "Registering worker", 2)
        yield address


@contextlib.contextmanager
def running(log: Path, *command: str) -> Iterator[None]:
    """Run a class of Spark's, its output in a file, until the block ends."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(BIN / "spark-class"), *command],
            env=ENVIRONMENT,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait_for(log: Path, text: str, count: int) -> None:
    """Wait until a log has so many lines with `text`."""
    deadline = time.monotonic() + 120
    while log.read_text(errors="replace").count(text) < count:
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-4000:]
        time.sleep(0.1)


def submit(master: str, job: str, *arguments: object) -> None:
    """Run a job to its end with `spark-submit`, in this Python."""
    settings = ("spark.driver.host=127.0.0.1", "spark.ui.enabled=false")
    ran = subprocess.run(
        [
            str(BIN / "spark-submit"),
            *("--master", master, "--driver-memory", "1g", "--executor-memory", "600m"),
            *(part for setting in settings for part in ("--conf", setting)),
            f"streaming_jobs/{job}.py",
            *map(str, arguments),
        ],
        cwd=REPOSITORY,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=JOB_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout.decode(errors="replace")[-6000:]


def rows_of(topic: Path) -> list[int]:
    """Return the row numbers of all flights in a topic, sorted."""
    rows = []
    for partition in range(PARTITIONS):
        with LogReader.open(f"{topic}-{partition}") as reader:
            offset = reader.log_start_offset
            while offset < reader.log_end_offset:
                fetched = reader.read(offset)
                rows += [json.loads(record.value or b"")["row"] for record in fetched.records()]
                offset = fetched.next_offset
    return sorted(rows)


def create_topic(root: Path) -> None:
    """Make topic `flights` by the command line."""
    subprocess.run(
        [
            *(str(BIN / "streamlog"), "topics", "create", "flights", "--path", str(root)),
            *("--partitions", str(PARTITIONS), "--config", "retention.ms=-1"),
        ],
        check=True,
        capture_output=True,
    )


def test_jobs_submitted_to_this_machine(flights: Path, tmp_path: Path) -> None:
    root, output = tmp_path / "root", tmp_path / "delays"
    create_topic(root)

    submit("local[2]", "flights_to_topic", "--input", flights, "--path", root)
    table = ("--output", output, "--format", "parquet", "--watermark", "1 day")
    submit("local[2]", "carrier_delays", "--path", root, *table)

    assert rows_of(root / "flights") == list(range(FILES * ROWS_PER_FILE))
    assert list(output.glob("*.parquet"))


def test_a_job_submitted_to_two_workers(flights: Path, cluster: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    create_topic(root)

    submit(cluster, "flights_to_topic", "--input", flights, "--path", root)

    assert rows_of(root / "flights") == list(range(FILES * ROWS_PER_FILE))
