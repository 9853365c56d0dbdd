"""One run of the soak: start all processes, kill at random, stop, catch up, check.

Kills happen in real time, so a seed repeats the plan of a run, not the run itself.
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

from streamlog.fs.log_root import LogRoot
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
SPARK_LIVES_S: Final = (15.0, 60.0)  # after it has started to work
PATIENCE_S: Final = 600
SEGMENT: Final = 64 << 10
RETAINED: Final = 128 << 10
DELAY_MS: Final = 1000
# Failures of Spark itself that occur now and then: it serializes a plan while another of its
# threads fills the plan's collections; on a busy machine, a worker starts later than its timeout.
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
    """The counts of a run.

    Attributes:
        seed: The seed of all random choices.
        records: Records that the collecting query saw.
        kills: Killed processes.
        recoveries: Kills after which the next life of a producer or of Spark made progress.
        compactions: Completed rounds.
        deletions: Deletions of segments by retention.
        peak_disk: The maximum bytes of logs.
        final_disk: The bytes of logs at the end.
        complaints: Errors that maintenance met and recovered from.
        spark_failures: Ends of Spark by a failure of its own.
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
    """Return the maximum bytes of logs: while the soak runs, and at the end.

    At the end, a partition deleted by size may have its retained size and one segment, because
    deletion removes whole segments; the compacted one its live records, its dirty share and the
    active segment. During the run, readers may hold back as much as the cap allows, and replaced or
    deleted files wait for their removal, so the limit doubles.
    """
    deleted = 2 * PARTITIONS * (RETAINED + 2 * SEGMENT)
    compacted = PARTITIONS * (int(live_size(PRODUCERS * KEYS) / (1 - RATIO)) + 2 * SEGMENT)
    final = deleted + compacted
    return 2 * (final + 3 * PARTITIONS * HELD), final


@dataclass(slots=True)
class Watched:
    """Observations that are possible only during the run."""

    peak: int = 0
    deeds: set[Deed] = field(default_factory=set)

    def look(self, root: Path) -> None:
        """Record disk usage, and maintenance records before the older half is discarded."""
        self.peak = max(self.peak, logs_size(root))
        self.deeds.update(read_deeds(LogRoot.at(str(root))))

    def count(self, action: str) -> int:
        """Return the number of completed deeds of a kind."""
        return sum(deed.action == action for deed in self.deeds)


class Queries:
    """The Spark process and its group: workers outlive their JVM for a moment.

    Attributes:
        failures: How often it ended because of a failure listed in `SPARKS_OWN`.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # where the output of this life begins
        self.failures = 0

    def start(self, way: str) -> None:
        """Start it with its output in a file."""
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
        """Kill the process group; only this or a failure of Spark's own may have ended it."""
        process, self._process = self._process, None
        if process is None:
            return
        by_itself = process.poll()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if by_itself is not None:
            self._forgive("the queries ended unexpectedly")

    def revive(self) -> None:
        """Restart it if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            self.kill()
            self.start("run")

    def finish(self) -> None:
        """Process the remaining data and exit."""
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
        """Run all phases.

        Args:
            seconds: The minimum time of the middle one. It continues until retention, compaction
                and a recovery have been seen: a busy machine needs longer for them.

        Raises:
            BrokenError: A guarantee was violated.
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
        """Create the root, and wait until both queries are recorded as readers.

        Retention keeps unread records only for recorded readers.
        """
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
        """Append once to both topics, so that no child has to compile kernels."""
        name = Name(0, self._new_life(), 0)
        with (
            LogManager.open(self._root, random=self._random) as manager,
            (self._directory / "acknowledged-0").open("a") as acknowledged,
        ):
            for topic in (EVENTS, STATE):
                info = manager.log(topic, 0).append(records_of(topic, name))
                acknowledged.write(f"{topic} 0 {info.base_offset} {name}\n")

    def _start_queries(self) -> None:
        """Start Spark and wait until it makes progress."""
        self._spark_lives += 1
        before = self._progress()
        self._queries.start("run")
        self._wait_for(lambda: self._progress() > before)

    def _progress(self) -> int:
        """Return a number that grows with each batch of either query."""
        checkpoints = self._directory.glob("checkpoint-*/commits/*")
        return max((int(each.name) for each in checkpoints if each.name.isdigit()), default=-1)

    def _readers(self) -> list[str]:
        return [each.name for each in list_readers(LogRoot.at(str(self._root)))]

    def _wait_for(
        self, condition: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            meanwhile()
            self._queries.revive()
            if time.monotonic() > deadline:
                self._queries.kill()
                raise BrokenError("the queries made no progress")
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
        """Kill one process after another, and restart it, until everything has happened once."""
        roles = [("producer", number) for number in range(PRODUCERS)]
        roles += [("maintainer", number) for number in range(MAINTAINERS)]
        roles += [("tail", 0)]
        alive = {role: self._start(*role) for role in roles}
        end = time.monotonic() + seconds
        spark_dies = time.monotonic() + self._random.uniform(*SPARK_LIVES_S)
        while time.monotonic() < end or not self._has_seen_all():
            if time.monotonic() > end + PATIENCE_S:
                raise BrokenError(f"no retention, compaction or recovery: {self._watched.deeds}")
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

    def _has_seen_all(self) -> bool:
        seen = self._watched
        return min(seen.count("compaction"), seen.count("retention"), self._recoveries()) > 0

    def _recoveries(self) -> int:
        """Return the number of kills after which the next life made progress."""
        lives = {
            append.name.life
            for producer in range(PRODUCERS)
            for append in acknowledged_by(self._directory, producer)
        }
        return len(lives & self._restarted) + self._spark_lives - 1

    # ---- the end ---------------------------------------------------------------------------------
    def _finish(self) -> None:
        """Let the queries catch up, and run maintenance until nothing is left to do.

        A batch is recorded as finished when Spark begins the next one.
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
            raise BrokenError(f"maintenance failed: {report.errors[0]}")

    def _report(self) -> Report:
        running, final = bounds()
        if self._watched.peak > running:
            raise BrokenError(f"{self._watched.peak} bytes on disk, at most {running} expected")
        complaints = [each.read_text() for each in self._directory.glob("errors-*")]
        return Report(
            seed=self._seed,
            records=check(self._directory, PRODUCERS),
            kills=self._kills,
            recoveries=self._recoveries(),
            compactions=self._watched.count("compaction"),
            deletions=self._watched.count("retention"),
            peak_disk=self._watched.peak,
            final_disk=check_disk(self._directory, final),
            spark_failures=self._queries.failures,
            complaints=sum(text.count("\n") for text in complaints),
        )
