"""Streaming queries over three real disks, one of which fails in mid-stream and comes back.

One query writes to the set with `kafka.acks=all`, another one reads what it wrote
(`tests.programs.replicas.spark_job`); both have all roots as their `path`. Rows arrive all the
time. At the end every root has every row exactly once, the reader has passed on every row exactly
once, and `verify --replicas` finds nothing.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from streamlog.fs.log_root import LogRoot
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.topics import partition_directories
from tests.programs.reliability import scratch
from tests.programs.replicas.disks import replica_disks
from tests.programs.replicas.faults import (
    BrokenError,
    Case,
    Fault,
    Return,
    Subject,
    Victim,
    bring_back,
    strike,
)
from tests.programs.replicas.spark_job import FED, SEEN
from tests.programs.replicas.writer import PARTITION
from tests.support.cli import ROOT, streamlog

__all__ = ["CASES", "Job", "StreamCase", "StreamReport", "run"]

PARTITIONS: Final = 2
STEP: Final = 60  # rows that pass both queries before and after each step
FEED_S: Final = 0.05  # a row each
BACKLOG: Final = 400  # rows that the queries lag at most, also on a busy machine
PATIENCE_S: Final = 180.0  # for a step; Spark starts in one
CONFIGS: Final = {"min.insync.replicas": "2"}


class Job(Enum):
    """What happens to the job."""

    RUNS = "runs"
    RESTARTS = "restarts"  # killed while the disk is away, and started again
    LATE = "late"  # killed before the fault, started again after the return: nothing saw the loss


class StreamCase(NamedTuple):
    """One case; `str` names it."""

    case: Case
    job: Job = Job.RUNS

    def __str__(self) -> str:
        return f"spark-{self.case}-{self.job.value}"


CASES: Final = (
    *(StreamCase(Case(Fault.POWER, victim, comes)) for victim in Victim for comes in Return),
    *(StreamCase(Case(Fault.POWER, comes=comes), job)
      for job in (Job.RESTARTS, Job.LATE)
      for comes in Return),
    StreamCase(Case(Fault.DETACHED)),
    StreamCase(Case(Fault.FULL)),
)  # fmt: skip


class StreamReport(NamedTuple):
    """Counts of a run.

    Attributes:
        rows: Rows that were written, and read again, once each.
        batches: Micro-batches of the writing query.
        failures: Queries that failed and were started again.
        outage_s: Seconds from the fault until a later row had passed both queries.
    """

    rows: int
    batches: int
    failures: int
    outage_s: float


class Feed(threading.Thread):
    """Appends a numbered row every few milliseconds to the topic that the writing query reads.

    Attributes:
        count: Rows so far.
        passed: How many of them have passed both queries, as last seen.
    """

    def __init__(self, root: str) -> None:
        super().__init__(daemon=True)
        self.count = self.passed = 0
        self._manager = LogManager.open(root, create=True)
        for topic in (FED, SEEN):
            self._manager.create_topic(topic, 1)
        self._is_over = threading.Event()

    def run(self) -> None:
        log = self._manager.log(FED, 0)
        while not self._is_over.wait(FEED_S):
            if self.count - self.passed >= BACKLOG:
                continue
            value = value_of(self.count)
            log.append([Record(value, value, (), time.time_ns() // 1_000_000)])
            self.count += 1

    def end(self) -> None:
        """Stop."""
        self._is_over.set()
        self.join()
        self._manager.close()


def value_of(number: int) -> bytes:
    """Return the value of a row."""
    return f"row {number:06d}".encode()


class Streams:
    """The replica set, the feed and the job."""

    def __init__(self, set_: Subject, home: Path) -> None:
        self.set_, self.home = set_, home
        self.feed = Feed(str(home / "log"))
        self.feed.start()
        self._seen = partition_directories(LogRoot.at(str(home / "log")), SEEN)[0]

    @contextmanager
    def job(self) -> Iterator[None]:
        """Run the job; kill it with all its processes at the end."""
        module = "tests.programs.replicas.spark_job"
        with (self.home / "errors").open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", module, self.set_.roots, str(self.home)],
                cwd=ROOT,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
                preexec_fn=partial(scratch.die_with, os.getpid()),
            )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def pass_on(self, count: int = STEP) -> float:
        """Wait until so many more rows have passed both queries; return the seconds to the first.

        Raises:
            BrokenError: They have not.
        """
        return self._wait(self.feed.count, count)

    def drain(self) -> None:
        """Wait until all rows have passed both queries; add none."""
        self.feed.end()
        self._wait(0, self.feed.count)

    def _wait(self, before: int, count: int) -> float:
        start, first_s = time.monotonic(), 0.0
        with LogReader.open(self._seen) as seen:
            while (now := seen.log_end_offset) < before + count:
                self.feed.passed = now
                if now > before and not first_s:
                    first_s = time.monotonic() - start
                if time.monotonic() - start > PATIENCE_S:
                    found = f"{now - before} of {count} rows in {PATIENCE_S} s"
                    raise BrokenError(f"{found}\n{self.failures()}\n{self.errors()}")
                time.sleep(0.02)
                seen.refresh()
        return first_s or time.monotonic() - start

    def failures(self) -> list[str]:
        """Return the notes of queries that failed."""
        notes = self.home / "notes"
        return notes.read_text().split("failed ")[1:] if notes.exists() else []

    def errors(self) -> str:
        """Return the last errors of the job."""
        return (self.home / "errors").read_text()[-4000:]

    def check(self, outage_s: float) -> StreamReport:
        """Check every promise.

        Raises:
            BrokenError: One is broken.
        """
        expected = [value_of(number) for number in range(self.feed.count)]
        _check_rows("the reading query", expected, str(self.home / "log"), SEEN)
        for disk in self.set_.disks:
            _check_rows(disk.root, expected, disk.root, PARTITION.topic)
        ran = streamlog("verify", *(disk.root for disk in self.set_.disks), "--replicas")
        if ran.code != 0:
            raise BrokenError(f"verify --replicas: {ran.rows}\n{ran.error}")
        done = [each for each in os.listdir(self.home / "writer" / "commits") if each.isdigit()]
        return StreamReport(len(expected), len(done), len(self.failures()), outage_s)


def _check_rows(where: str, expected: list[bytes], root: str, topic: str) -> None:
    counts = Counter(_values(root, topic))
    twice = [value for value, count in counts.items() if count > 1]
    lost = [value for value in expected if value not in counts]
    if twice or lost or len(counts) != len(expected):
        found = f"{len(counts)} values of {len(expected)}"
        raise BrokenError(f"{where}: {found}, lost: {lost[:5]}, twice: {twice[:5]}")


def _values(root: str, topic: str) -> Iterator[bytes | None]:
    for directory in partition_directories(LogRoot.at(root), topic).values():
        with LogReader.open(directory) as reader:
            offset = reader.log_start_offset
            while offset < reader.high_watermark:
                read = reader.read(offset, 1 << 24)
                yield from (record.value for record in read.records())
                offset = read.next_offset


def run(streams: StreamCase, random: Random) -> StreamReport:
    """Run a case and check every promise.

    Raises:
        BrokenError: One is broken.
    """
    with replica_disks() as disks:
        home = disks[0].mount_point.parent.parent / "home"
        home.mkdir()
        under_test = Streams(Subject(disks, home, CONFIGS, PARTITIONS), home)
        outage_s = _under_load(under_test, streams, random)
        under_test.set_.settle()
        return under_test.check(outage_s)


def _under_load(streams: Streams, case: StreamCase, random: Random) -> float:
    fault, victim, comes = case.case
    disk = streams.set_.disks[victim.number]
    with streams.job():
        streams.pass_on()
        disk.copy()
        streams.pass_on()
        time.sleep(random.uniform(0, 0.5))  # any step of a micro-batch
        if case.job is not Job.LATE:
            strike(disk, fault, random)
            outage_s = streams.pass_on()
        if case.job is Job.RUNS:
            bring_back(disk, comes)
            streams.pass_on()
            streams.drain()
            return outage_s
    if case.job is Job.LATE:
        strike(disk, fault, random)
        bring_back(disk, comes)
    with streams.job():
        if case.job is Job.LATE:
            outage_s = streams.pass_on()
        else:
            streams.pass_on()
            bring_back(disk, comes)
            streams.pass_on()
        streams.drain()
    return outage_s
