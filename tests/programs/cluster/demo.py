"""The demo on the cluster: files → topic → topic and Delta table, with hosts killed on the way."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import obstore
import pandas as pd
import pyarrow as pa

from streaming_jobs.demo import CLOSING_ROW, PARTITIONS
from streaming_jobs.demo_report import expected_delays, expected_windows, rows_in_log
from streaming_jobs.flights import ROWS, write_flights
from streamlog import read_table, write_table
from tests.programs.cluster.gates import Gate, GatedServer
from tests.programs.cluster.hosts import HOME, Host
from tests.programs.cluster.spark import CREDENTIALS, ENDPOINT, Cluster
from tests.programs.cluster.stages import (
    AIRCRAFT,
    DELAYS,
    FEED,
    Case,
    FileTrap,
    RequestTrap,
    Stage,
    Trap,
    Victim,
)

REACH_SECONDS = 300
JOB_SECONDS = 1200
STARTS = 3  # of a job that fails by itself: an overloaded machine misses Spark's time limits
BUCKET = "demo"
# One kill a batch or two, and no job ends before its last kill.
FEED_FILES, OFFSETS = 1, 25_000


class BrokenError(Exception):
    """A row is lost or there twice, or a job does not go on."""


@dataclass
class Kill:
    """What was killed.

    Attributes:
        case: The case.
        hosts: The hosts.
        processes: The number of processes of each.
        seconds: The time from the start of the wait to the kill.
    """

    case: Case
    hosts: Sequence[str]
    processes: Sequence[int]
    seconds: float

    def __str__(self) -> str:
        struck = ", ".join(
            f"{host} ({count} processes)"
            for host, count in zip(self.hosts, self.processes, strict=True)
        )
        return f"{self.case!s:24} {self.seconds:5.1f} s  {struck}"


@dataclass(frozen=True)
class Places:
    """Where everything is: for streamlog on this machine and on hosts, and for Spark on hosts."""

    root: str
    root_on_hosts: str
    base_on_hosts: str

    def job_arguments(self, job: str) -> list[str]:
        """Return the arguments of a job."""
        base = self.base_on_hosts
        if job == FEED:
            more = ["--input", f"{base}/flights", "--files-per-trigger", str(FEED_FILES)]
            checkpoint = "feed"
        else:
            more = ["--offsets-per-trigger", str(OFFSETS)]
            checkpoint = "aircraft"
        if job == DELAYS:
            more += ["--output", f"{base}/delays"]
            checkpoint = "delays"
        place = ["--path", self.root_on_hosts, "--checkpoint", f"{base}/checkpoints/{checkpoint}"]
        return [*place, *more]


@contextlib.contextmanager
def object_store(directory: Path) -> Iterator[tuple[Places, Trap]]:
    """Run an S3 server that the hosts reach, with the flights in it."""
    os.environ.update(CREDENTIALS)
    server = GatedServer(ENDPOINT)
    try:
        server.make_bucket(BUCKET)
        store = obstore.store.S3Store(BUCKET)
        write_flights(directory / "flights")
        for path in sorted((directory / "flights").glob("*.parquet")):
            obstore.put(store, f"flights/{path.name}", path)
        root = f"s3://{BUCKET}/root"
        yield Places(root, root, f"s3a://{BUCKET}"), RequestTrap(server)
    finally:
        server.stop()


@contextlib.contextmanager
def shared_directory(directory: Path) -> Iterator[tuple[Places, Trap]]:
    """Use a directory that all hosts mount, with the flights in it."""
    shared = directory / "shared"
    shared.mkdir(exist_ok=True)
    write_flights(shared / "flights")
    on_hosts = str(HOME / "shared")
    yield Places(str(shared / "root"), f"{on_hosts}/root", on_hosts), FileTrap(shared)


class Demo:
    """The demo on a running cluster.

    Args:
        cluster: The cluster.
        places: Where everything is.
        trap: Catches the moments of the kills.
        random: Chooses what is left open: how many such moments pass, which worker dies.
        tell: Called with each line of the report.
    """

    def __init__(
        self,
        cluster: Cluster,
        places: Places,
        trap: Trap,
        random: Random,
        tell: Callable[[str], None],
    ) -> None:
        self._cluster, self._places, self._trap = cluster, places, trap
        self._random, self._tell = random, tell

    def run(self, cases: Sequence[Case]) -> None:
        """Run the jobs with these kills, and count.

        Raises:
            BrokenError: The guarantee does not hold.
        """
        for topic, partitions, policy in (
            ("flights", PARTITIONS, "delete"),
            ("aircraft", 1, "compact"),
        ):
            streamlog("topics", "create", topic, "--path", self._places.root,
                      "--partitions", str(partitions), "--config", "retention.ms=-1",
                      "--config", f"cleanup.policy={policy}")  # fmt: skip
        self._run_job(FEED, [case for case in cases if case.stage.job == FEED])
        self._count_rows()
        self._run_job(AIRCRAFT, [case for case in cases if case.stage.job == AIRCRAFT])
        self._count_aircraft()
        self._run_job(DELAYS, [case for case in cases if case.stage.job == DELAYS])
        closing = {
            "value": [b'{"row":%d}' % CLOSING_ROW],
            "timestamp": pa.array([1_388_534_400_000 + 60 * 86_400_000], pa.timestamp("ms", "UTC")),
        }
        write_table(pa.table(closing), self._places.root, "flights")
        self._run_job(DELAYS, [])
        self._compare_table()

    # ---- a job and its kills -----------------------------------------------------------------
    def _run_job(self, job: str, cases: Sequence[Case]) -> None:
        """Run a job to its end, with a kill for each case."""
        arguments = self._places.job_arguments(job)
        process = self._cluster.submit(job, *arguments)
        for case in cases:
            start = time.monotonic()
            gate = self._trap.set(case.stage, self._random.randrange(2))
            self._await(gate, process, case)
            kill = self._strike(gate, case, time.monotonic() - start)
            if case.victim is not Victim.WORKER:
                process.wait(timeout=60)
                process = self._cluster.submit(job, *arguments)
            self._tell(str(kill))
        for _ in range(STARTS):
            if process.wait(timeout=JOB_SECONDS) == 0:
                return
            self._tell(f"{job} failed by itself, and starts again: {self._last_lines(job)}")
            process = self._cluster.submit(job, *arguments)
        raise BrokenError(f"{job} fails: {self._last_lines(job)}")

    def _await(self, gate: Gate, process: "subprocess.Popen[bytes]", case: Case) -> None:
        end = time.monotonic() + REACH_SECONDS
        while not gate.reached.wait(0.02):
            if process.poll() is not None or time.monotonic() > end:
                gate.released.set()
                raise BrokenError(
                    f"{case} was not reached, exit code {process.poll()}: "
                    f"{self._last_lines(case.stage.job)}"
                )

    def _strike(self, gate: Gate, case: Case, seconds: float) -> Kill:
        """Kill, let the request go on or be lost, and start the worker again."""
        sender = self._cluster.host_at(gate.client)
        worker = sender
        if sender is None or sender is self._cluster.driver:
            worker = self._random.choice(self._cluster.workers)
        assert worker is not None
        hosts: list[Host] = []
        if case.victim is not Victim.DRIVER:
            hosts.append(worker)
        if case.victim is not Victim.WORKER:
            hosts.append(self._cluster.driver)
        gate.is_lost = sender in hosts
        processes = [host.kill() for host in hosts]
        gate.released.set()
        if case.victim is not Victim.DRIVER:
            self._cluster.start(worker)
        return Kill(case, [host.name for host in hosts], processes, seconds)

    def _last_lines(self, job: str) -> str:
        lines = self._cluster.driver.log(f"{job}.log").splitlines()
        told = [line for line in lines if "Error" in line or "Exception" in line]
        return "\n".join(told[-12:] or lines[-12:])

    # ---- counting ----------------------------------------------------------------------------
    def _count_rows(self) -> None:
        rows = rows_in_log(self._places.root)
        distinct = np.unique(rows)
        twice, lost = len(rows) - len(distinct), ROWS - len(distinct)
        listed = streamlog("cat", "flights", "--path", self._places.root, "--format", "ndjson")
        lines = listed.count("\n")
        self._tell(f"rows in the log: {len(rows):,}; twice: {twice:,}; lost: {lost:,}")
        self._tell(f"streamlog cat prints {lines:,} lines")
        found = streamlog("verify", "--path", self._places.root).strip().splitlines()
        self._tell(f"streamlog verify: {found[-1] if found else 'nothing found'}")
        if twice or lost or lines != ROWS:
            raise BrokenError("the log does not hold each row once")

    def _count_aircraft(self) -> None:
        """Compare the last record of each aircraft with the flights; none may be there twice."""
        kept = _records(self._places.root, "aircraft", "offset")
        flights = _records(self._places.root, "flights", "timestamp", "offset")
        twice = int(kept.duplicated("value").sum())
        latest = kept.groupby("key").value.last()
        is_same = latest.equals(flights.groupby("key").value.last())
        self._tell(
            f"records of aircraft: {len(kept):,}; twice: {twice:,}; the last of {len(latest):,} "
            f"{'equal' if is_same else 'DIFFER FROM'} a plain aggregation"
        )
        if twice or not is_same:
            raise BrokenError("the topic of the latest flights does not hold them once")

    def _compare_table(self) -> None:
        process = self._cluster.submit("table_report", f"{self._places.base_on_hosts}/delays")
        if process.wait(timeout=JOB_SECONDS) != 0:
            raise BrokenError(f"the table cannot be read: {self._last_lines('table_report')}")
        text = self._cluster.driver.log("table_report.log").rpartition("REPORT ")[2].splitlines()[0]
        report = json.loads(text)
        found = pd.DataFrame(report["carriers"]).set_index("carrier").sort_index()
        expected = expected_delays()
        is_same = found.index.equals(expected.index) and np.array_equal(
            found.to_numpy(float), expected[found.columns].to_numpy(float)
        )
        flights, windows = int(found.flights.sum()), report["windows"]
        self._tell(
            f"flights in the table: {flights:,} in {windows:,} windows, "
            f"delays {'equal' if is_same else 'DIFFER FROM'} a plain aggregation"
        )
        if flights != ROWS or windows != expected_windows() or not is_same:
            raise BrokenError("the table does not hold each row once")


def _records(root: str, topic: str, *order: str) -> pd.DataFrame:
    """Return the records of a topic that have a key."""
    table = read_table(root, topic, columns=["key", "value", "timestamp", "offset"])
    return table.to_pandas().dropna(subset="key").sort_values(list(order))


def streamlog(*arguments: str) -> str:
    """Run the command on this machine and return its output."""
    command = [str(Path(sys.executable).with_name("streamlog")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BrokenError(f"streamlog {' '.join(arguments)}: {done.stdout[-500:]}{done.stderr}")
    return done.stdout


def cases_of(stages: Sequence[Stage]) -> list[Case]:
    """Return a case for each stage and victim."""
    return [Case(stage, victim) for stage in stages for victim in Victim]
