"""One run of the soak: start everything, kill at random, stop, let it catch up, check.

Kills come in real time, so a seed repeats the plan of a run, not the run.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from streamlog.fs.local import LocalFileSystem
from streamlog.maintenance.runner import Maintenance
from streamlog.root.deeds import Deed, read_deeds
from streamlog.root.manager import LogManager
from streamlog.root.readers import list_readers
from tests.crash.processes import Children
from tests.programs.soak.checks import BrokenError, check, check_disk, live_size, logs_size
from tests.programs.soak.records import COPIES, EVENTS, KEYS, PARTITIONS, STATE, Name, records_of
from tests.programs.soak.workers import acknowledged_by, maintain, produce, root_of, tail

REPOSITORY: Final = Path(__file__).resolve().parents[3]
PRODUCERS: Final = 2
MAINTAINERS: Final = 2
MEAN_LIFE_S: Final = 4.0  # of a plain process
SPARK_LIVES_S: Final = (15.0, 60.0)  # from when it works
PATIENCE_S: Final = 600
SEGMENT: Final = 64 << 10
RETAINED: Final = 256 << 10
DELAY_MS: Final = 1000
# What ends Spark now and then and is nothing of ours: it serializes a plan whose collections are
# filled by another of its threads; on a busy machine a worker takes longer to start than it waits.
SPARKS_OWN: Final = (
    "scala.collection.generic.DefaultSerializationProxy",
    "Python worker failed to connect back",
)
MAX_SPARKS_OWN: Final = 5
HELD: Final = 8 << 20
RATIO: Final = 0.3

SMALL: Final = {"internal.segment.bytes": SEGMENT, "file.delete.delay.ms": DELAY_MS}
BY_SIZE: Final = SMALL | {"retention.bytes": RETAINED, "retention.ms": -1}
COMPACTED: Final = SMALL | {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": RATIO,
    "delete.retention.ms": 2000,
}
SERVER: Final = {
    "log.retention.check.interval.ms": 200,
    "log.cleaner.backoff.ms": 200,
    "streamlog.readers.max.bytes": HELD,
}


@dataclass(slots=True, kw_only=True)
class Report:
    """What a run went through.

    Attributes:
        seed: What chance was made of.
        records: Those that the collecting query saw.
        kills: Processes that were killed.
        recoveries: Producers, and Spark, that were killed and got on in their next life.
        compactions: Rounds that came to their end.
        deletions: Runs of segments that retention took out.
        peak_disk: The most bytes of logs.
        final_disk: Those in the end.
        complaints: Errors that maintenance met and went on after.
        spark_failures: Times that Spark ended by a failure of its own.
    """

    seed: int
    records: int = 0
    kills: int = 0
    recoveries: int = 0
    compactions: int = 0
    deletions: int = 0
    peak_disk: int = 0
    final_disk: int = 0
    complaints: int = 0
    spark_failures: int = 0


def bounds() -> tuple[int, int]:
    """Return how many bytes of logs there may be: while it runs, and in the end.

    In the end, of a partition that is deleted by size what is retained and one segment, as whole
    ones go; of the compacted one what is live, its dirty share, and the active segment. While it
    runs readers may hold what the cap allows, and what was replaced or deleted waits for its
    removal: as much once more.
    """
    deleted = 2 * PARTITIONS * (RETAINED + 2 * SEGMENT)
    compacted = PARTITIONS * (int(live_size(PRODUCERS * KEYS) / (1 - RATIO)) + 2 * SEGMENT)
    final = deleted + compacted
    return 2 * (final + 3 * PARTITIONS * HELD), final


@dataclass(slots=True)
class Watched:
    """What is to be seen only while it runs."""

    peak: int = 0
    deeds: set[Deed] = field(default_factory=set)

    def look(self, root: Path) -> None:
        """Look at the disk and at the book, which forgets its older half in time."""
        self.peak = max(self.peak, logs_size(root))
        self.deeds.update(read_deeds(LocalFileSystem(), str(root)))


class Queries:
    """The Spark process, and its group: workers outlive their JVM for a moment.

    Attributes:
        failures: How often it ended by itself for a reason of Spark's own, `SPARKS_OWN`.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # where what this life prints begins
        self.failures = 0

    def start(self, way: str) -> None:
        """Start it; what it prints goes to a file."""
        with (self._directory / "spark.log").open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.programs.soak.queries", str(self._directory), way],
                cwd=REPOSITORY,
                env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill all of it; that, or a failure of Spark's own, must be what ends it."""
        process, self._process = self._process, None
        if process is None:
            return
        by_itself = process.poll()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if by_itself is not None:
            self._forgive("the queries ended by themselves")

    def revive(self) -> None:
        """Start it again where it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            self.kill()
            self.start("run")

    def finish(self) -> None:
        """Take what is left, and end."""
        code = -1
        while code:
            self.start("finish")
            assert self._process is not None
            code = self._process.wait(timeout=PATIENCE_S)
            self._process = None
            if code:
                self._forgive("the queries could not finish")

    def _forgive(self, what: str) -> None:
        with (self._directory / "spark.log").open(errors="replace") as log:
            log.seek(self._log_start)
            words = log.read()
        is_sparks = any(each in words for each in SPARKS_OWN)
        if not is_sparks or self.failures == MAX_SPARKS_OWN:
            raise BrokenError(f"{what}: {words[:2000]} ... {words[-2000:]}")
        self.failures += 1


class Soak:
    """A run; see the module."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory, self._seed, self._random = directory, seed, Random(seed)
        self._root = root_of(directory)
        self._children, self._queries = Children(directory), Queries(directory)
        self._watched = Watched()
        self._kills = self._spark_lives = self._lives = 0
        self._restarted: set[int] = set()  # lives of plain processes that followed a kill

    def run(self, seconds: float) -> Report:
        """Do it all.

        Raises:
            BrokenError: A promise was not kept.
        """
        try:
            self._prepare()
            self._work(seconds)
            self._finish()
        finally:
            self._children.end()
            with contextlib.suppress(BrokenError):
                self._queries.kill()
        return self._report()

    # ---- the beginning ---------------------------------------------------------------------------
    def _prepare(self) -> None:
        """Make the root, and wait until both queries are recorded: only then all is kept."""
        (self._directory / "seen").mkdir()
        with LogManager.open(self._root, create=True) as manager:
            server = self._root / ".streamlog" / "server.properties"
            with server.open("a") as file:
                file.writelines(f"{key}={value}\n" for key, value in SERVER.items())
            manager.create_topic(EVENTS, PARTITIONS, BY_SIZE)
            manager.create_topic(COPIES, PARTITIONS, BY_SIZE)
            manager.create_topic(STATE, PARTITIONS, COMPACTED)
        self._spark_lives += 1
        self._queries.start("run")
        self._wait_for(lambda: len(self._readers()) == 2, meanwhile=self._produce_one)

    def _produce_one(self) -> None:
        """Append once to both topics: so nothing has to be compiled in a child."""
        name = Name(0, self._new_life(), 0)
        with (
            LogManager.open(self._root, random=self._random) as manager,
            (self._directory / "acknowledged-0").open("a") as acknowledged,
        ):
            for topic in (EVENTS, STATE):
                info = manager.log(topic, 0).append(records_of(topic, name))
                acknowledged.write(f"{topic} 0 {info.base_offset} {name}\n")

    def _start_queries(self) -> None:
        """Start Spark and wait until it gets on."""
        self._spark_lives += 1
        before = self._progress()
        self._queries.start("run")
        self._wait_for(lambda: self._progress() > before)

    def _progress(self) -> int:
        """Return a number that grows with each batch of either query."""
        checkpoints = self._directory.glob("checkpoint-*/commits/*")
        return max((int(each.name) for each in checkpoints if each.name.isdigit()), default=-1)

    def _readers(self) -> list[str]:
        return [each.name for each in list_readers(LocalFileSystem(), str(self._root))]

    def _wait_for(
        self, condition: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            meanwhile()
            self._queries.revive()
            if time.monotonic() > deadline:
                self._queries.kill()
                raise BrokenError("the queries got nowhere")
            self._watched.look(self._root)
            time.sleep(0.5)

    # ---- the middle ------------------------------------------------------------------------------
    def _new_life(self) -> int:
        self._lives += 1
        return self._lives

    def _start(self, role: str, number: int) -> int:
        """Start a plain process; return its id."""
        directory, seed, life = self._directory, self._seed, self._new_life()
        work = {
            "producer": lambda: produce(directory, number, life, seed),
            "maintainer": lambda: maintain(directory, number, life, seed),
            "tail": lambda: tail(directory),
        }[role]
        return self._children.fork(work)

    def _work(self, seconds: float) -> None:
        """Kill one after the other, and start it again."""
        roles = [("producer", number) for number in range(PRODUCERS)]
        roles += [("maintainer", number) for number in range(MAINTAINERS)]
        roles += [("tail", 0)]
        alive = {role: self._start(*role) for role in roles}
        end = time.monotonic() + seconds
        spark_dies = time.monotonic() + self._random.uniform(*SPARK_LIVES_S)
        while time.monotonic() < end:
            time.sleep(self._random.expovariate(len(roles) / MEAN_LIFE_S))
            role = self._random.choice(roles)
            self._children.kill(alive[role])
            self._kills += 1
            alive[role] = self._start(*role)
            self._restarted.add(self._lives)
            self._watched.look(self._root)
            self._queries.revive()
            if time.monotonic() > spark_dies:
                self._queries.kill()
                self._kills += 1
                self._start_queries()
                spark_dies = time.monotonic() + self._random.uniform(*SPARK_LIVES_S)
        self._queries.kill()
        for role in roles:
            if role[0] != "tail":
                self._children.kill(alive[role])
                self._kills += 1

    # ---- the end ---------------------------------------------------------------------------------
    def _finish(self) -> None:
        """Let the queries catch up, and maintain until nothing is left to do.

        What a batch has read is recorded as finished when Spark begins the next one.
        """
        self._queries.finish()
        self._produce_one()
        self._queries.finish()
        (self._directory / "stop").touch()
        self._children.wait()
        with LogManager.open(self._root, random=self._random) as manager:
            manager.commits.retire()
        with Maintenance(self._root) as maintenance:
            while maintenance.run().deeds:
                self._watched.look(self._root)
            time.sleep(1.1 * DELAY_MS / 1000)
            report = maintenance.run()
        if report.errors:
            raise BrokenError(f"maintenance ends with {report.errors[0]}")

    def _report(self) -> Report:
        running, final = bounds()
        if self._watched.peak > running:
            raise BrokenError(f"{self._watched.peak} bytes on disk, at most {running} expected")
        complaints = [each.read_text() for each in self._directory.glob("errors-*")]
        lives = {
            append.name.life
            for producer in range(PRODUCERS)
            for append in acknowledged_by(self._directory, producer)
        }
        actions = [deed.action for deed in self._watched.deeds]
        return Report(
            seed=self._seed,
            records=check(self._directory, PRODUCERS),
            kills=self._kills,
            recoveries=len(lives & self._restarted) + self._spark_lives - 1,
            compactions=actions.count("compaction"),
            deletions=actions.count("retention"),
            peak_disk=self._watched.peak,
            final_disk=check_disk(self._directory, final),
            spark_failures=self._queries.failures,
            complaints=sum(text.count("\n") for text in complaints),
        )
