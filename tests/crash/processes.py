"""Writers that are killed at random, with concurrent readers: real processes on a real disk.

    python -m tests.crash.processes --seconds 600 --seed 7

Three writers commit and append to the same partitions. Each is killed with SIGKILL at random
moments and restarted; it then continues as Spark does, from the first unacknowledged version.
Readers poll all the time. At the end:

    every acknowledged commit is there once, complete, in the order of its app's versions, in all
    partitions or in none
    every acknowledged append is there once, an unacknowledged one at most once, complete
    no reader ever saw a gap, a duplicate, a bad batch, or a record that is missing at the end

Children are forked from one process that has imported everything, so a start costs milliseconds and
most kills hit the actual work. Each writes its acknowledgements to a file, one `write` per line,
which survives its death. Kills happen in real time, so a seed repeats the plan of a run, not the
run itself.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from streamlog.commits.identity import CommitIdentity
from streamlog.commits.replay import Verdict
from streamlog.commits.staging import Stager
from streamlog.fs.local import LocalFileSystem
from streamlog.fs.log_root import LogRoot
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.topic import TopicPartition
from tests.support.commits import batches_of

WRITERS: Final = 3
READERS: Final = 2
PARTITIONS: Final = 2
TOPIC: Final = "t"
CONFIGS: Final = {"internal.segment.bytes": "60000", "flush.messages": "500"}
MEAN_LIFE_S: Final = 0.4  # of a writer


class Report(NamedTuple):
    """The counts of a run."""

    kills: int
    commits: int
    appends: int
    records: int
    polls: int


class BrokenError(AssertionError):
    """A guarantee was violated."""


# ---- the writers ----------------------------------------------------------------------------
def rows_of(app: str, version: int, partition: int) -> list[bytes]:
    """Return the values of a version; deterministic."""
    count = Random(f"{app} {version} {partition}").randrange(1, 40)
    return [f"{app} {version} {row}/{count} ".encode().ljust(60, b".") for row in range(count)]


def appended(name: str) -> list[bytes]:
    """Return the values of one plain append; deterministic."""
    count = Random(name).randrange(1, 6)
    return [f"plain {name} {row}/{count}".encode() for row in range(count)]


def write_until_killed(directory: Path, writer: int, life: int, seed: int) -> None:
    """Commit and append forever, and record the acknowledgements in a file."""
    random = Random(f"{seed} {writer} {life}")
    app = f"app-{writer}"
    with (directory / f"writer-{writer}").open("ab", buffering=0) as acknowledged:
        manager = LogManager.open(directory / "root", random=random)
        version = len(committed_by(directory, writer))
        for number in range(1 << 30):
            if random.random() < 0.5:
                commit(manager, directory, app, version, random)
                acknowledged.write(f"commit {version}\n".encode())
                version += 1
            else:
                partition = random.randrange(PARTITIONS)
                name = f"{writer}.{life}.{number}"
                records = [Record(None, value) for value in appended(name)]
                manager.log(TOPIC, partition).append(records)
                acknowledged.write(f"append {partition} {name}\n".encode())
            if random.random() < 0.03:
                manager.commits.retire()
            elif random.random() < 0.03:
                manager.log(TOPIC, random.randrange(PARTITIONS)).roll()


def commit(manager: LogManager, directory: Path, app: str, version: int, random: Random) -> Verdict:
    """Stage a version with a random number of tasks, and commit it."""
    staged = []
    for task, partitions in enumerate(random.choice([[(0, 1)], [(0,), (1,)], [(1, 0)]])):
        root = LogRoot.at(directory / "root", fs=LocalFileSystem())
        with Stager(root, app, version, task, random=random) as stager:
            rows = 0
            for partition in partitions:
                values = rows_of(app, version, partition)
                stager.append(TopicPartition(TOPIC, partition), batches_of(values, batch_size=900))
                rows += len(values)
            staged.append(stager.finish(rows=rows, checksum=0))
    return manager.commits.commit(CommitIdentity(app, version), staged).verdict


def lines_of(directory: Path, writer: int) -> list[list[str]]:
    """Return what a writer acknowledged in all its lives."""
    path = directory / f"writer-{writer}"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def committed_by(directory: Path, writer: int) -> list[int]:
    """Return the versions that a writer acknowledged."""
    return [int(line[1]) for line in lines_of(directory, writer) if line[0] == "commit"]


# ---- the readers ----------------------------------------------------------------------------
def read_until_stopped(directory: Path, reader: int) -> None:
    """Poll and check all partitions; write the count and the checksum of the records to a file."""
    logs = [LogReader.open(directory / "root" / f"{TOPIC}-{p}") for p in range(PARTITIONS)]
    ends, checksums, polls = [0] * PARTITIONS, [0] * PARTITIONS, 0
    is_last = False
    while not is_last:
        is_last = (directory / "stop").exists()
        for partition, log in enumerate(logs):
            log.refresh()
            polls += 1
            while ends[partition] < log.log_end_offset:
                for record in records_from(log, ends[partition]):
                    checksums[partition] = zlib.crc32(record.value or b"", checksums[partition])
                    ends[partition] = record.offset + 1
        time.sleep(0.002)
    words = [polls, *ends, *checksums]
    (directory / f"reader-{reader}").write_text(" ".join(map(str, words)))


def records_from(log: LogReader, offset: int) -> Iterator[Record]:
    """Yield the records of one read, whose batches must be complete and without gaps."""
    info = log.read(offset, 1 << 18)
    expected = offset
    for batch in info.batches():
        batch.check()
        if batch.base_offset != expected:
            raise BrokenError(f"{log.path}: offset {batch.base_offset} follows {expected - 1}")
        expected = batch.next_offset
    if expected == offset:
        raise BrokenError(f"{log.path}: nothing at {offset}, which is below {log.log_end_offset}")
    yield from info.records()


# ---- the run --------------------------------------------------------------------------------
def run(directory: Path, *, seconds: float, seed: int) -> Report:
    """Let writers and readers work and be killed for a while, then check everything.

    Args:
        directory: An empty directory.
        seconds: The duration.
        seed: The seed of all random choices.

    Raises:
        BrokenError: A guarantee was violated, or a child failed.
    """
    random = Random(seed)
    with LogManager.open(directory / "root", create=True) as manager:
        manager.create_topic(TOPIC, PARTITIONS, CONFIGS)
        commit(manager, directory, "warm", 0, random)  # so that no child has to compile
        manager.log(TOPIC, 0).append([Record(None, b"plain warm 0/1")])
        records_from(manager.reader(TOPIC, 0), 0).__next__()

    children = Children(directory)
    try:
        kills = kill_and_restart(children, random, seconds=seconds, seed=seed)
        found = check_log(directory)
        (directory / "stop").touch()
        children.wait()
    finally:
        children.end()
    polls = check_readers(directory, found)
    kinds = Counter(line[0] for writer in range(WRITERS) for line in lines_of(directory, writer))
    return Report(
        kills=kills,
        commits=kinds["commit"],
        appends=kinds["append"],
        records=sum(map(len, found)),
        polls=polls,
    )


class Children:
    """The processes of a run. Each child writes its error to a file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._pids: set[int] = set()

    def fork(self, work: Callable[[], None]) -> int:
        """Run a function in a child; return its process id."""
        pid = os.fork()
        if pid:
            self._pids.add(pid)
            return pid
        try:
            work()
        except BaseException:  # noqa: BLE001 - the parent raises it
            (self.directory / f"failure-{os.getpid()}").write_text(traceback.format_exc())
        finally:
            os._exit(0)

    def kill(self, pid: int) -> None:
        """Kill a child, which must still be alive."""
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        self._pids.remove(pid)
        refuse_failures(self.directory)
        if not os.WIFSIGNALED(status):
            raise BrokenError(f"process {pid} ended unexpectedly")

    def wait(self) -> None:
        """Wait for children that end by themselves."""
        while self._pids:
            os.waitpid(self._pids.pop(), 0)
        refuse_failures(self.directory)

    def end(self) -> None:
        """Kill all remaining children."""
        while self._pids:
            pid = self._pids.pop()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def kill_and_restart(children: Children, random: Random, *, seconds: float, seed: int) -> int:
    """Let writers and readers work, and kill a writer now and then; return the number of kills."""
    directory, kills = children.directory, 0

    def start(writer: int) -> int:
        life = kills
        return children.fork(lambda: write_until_killed(directory, writer, life, seed))

    def start_reader(reader: int) -> int:
        return children.fork(lambda: read_until_stopped(directory, reader))

    for reader in range(READERS):
        start_reader(reader)
    writers = {writer: start(writer) for writer in range(WRITERS)}
    stop_at = time.monotonic() + seconds
    while time.monotonic() < stop_at:
        time.sleep(random.expovariate(WRITERS / MEAN_LIFE_S))
        writer = random.randrange(WRITERS)
        children.kill(writers[writer])
        kills += 1
        writers[writer] = start(writer)
    for pid in writers.values():
        children.kill(pid)
    return kills + WRITERS


def refuse_failures(directory: Path) -> None:
    """Raise the error of a child, if any."""
    for path in directory.glob("failure-*"):
        raise BrokenError(path.read_text())


# ---- what must hold -------------------------------------------------------------------------
def check_log(directory: Path) -> list[list[bytes]]:
    """Open everything again and return the values of each partition, if all is sound."""
    with LogManager.open(directory / "root") as manager:
        for partition in range(PARTITIONS):
            manager.log(TOPIC, partition).catch_up()
        logs = [manager.reader(TOPIC, partition) for partition in range(PARTITIONS)]
        found = [[record.value or b"" for record in all_records(log)] for log in logs]
    for writer in range(WRITERS):
        check_commits(directory, writer, found)
    for partition, values in enumerate(found):
        check_appends(directory, partition, values)
    return found


def all_records(log: LogReader) -> Iterator[Record]:
    """Yield all records of a log, which must not have gaps."""
    at = 0
    while at < log.log_end_offset:
        records = list(records_from(log, at))
        if any(after.offset != before.offset + 1 for before, after in pairwise(records)):
            raise BrokenError(f"{log.path}: a gap after {at}")
        yield from records
        at = records[-1].offset + 1


def check_commits(directory: Path, writer: int, found: list[list[bytes]]) -> None:
    """Check that an app's versions are in order, unique, complete, and in all partitions."""
    app = f"app-{writer}"
    acknowledged = committed_by(directory, writer)
    counts = set()
    for partition, values in enumerate(found):
        runs = [list(rows) for key, rows in groupby(values, version_of) if key[0] == app]
        expected = [rows_of(app, version, partition) for version in range(len(runs))]
        if runs != expected:
            raise BrokenError(f"{app} in partition {partition}: not exactly its versions in order")
        counts.add(len(runs))
    if acknowledged != list(range(len(acknowledged))):
        raise BrokenError(f"{app} acknowledged {acknowledged}")
    if len(counts) != 1 or not counts <= {len(acknowledged), len(acknowledged) + 1}:
        raise BrokenError(f"{app}: {counts} versions in the log, {len(acknowledged)} acknowledged")


def version_of(value: bytes) -> tuple[str, str]:
    """Return the owner of a value: app and version, or `plain` and the append's name."""
    kind, name = value.decode().split()[:2]
    return kind, name


def check_appends(directory: Path, partition: int, values: list[bytes]) -> None:
    """Check that plain appends are complete, and that the acknowledged ones are there once."""
    names = []
    for (kind, name), rows in groupby(values, version_of):
        if kind == "plain" and name != "warm":
            names.append(name)
            if list(rows) != appended(name):
                raise BrokenError(f"append {name} in partition {partition} is not whole")
    if len(set(names)) != len(names):
        raise BrokenError(f"duplicated appends in partition {partition}: {Counter(names)}")
    for writer in range(WRITERS):
        for line in lines_of(directory, writer):
            if line[:2] == ["append", str(partition)] and line[2] not in names:
                raise BrokenError(
                    f"append {line[2]} acknowledged but missing in partition {partition}"
                )


def check_readers(directory: Path, found: list[list[bytes]]) -> int:
    """Check that each reader saw exactly the final records; return the number of their polls."""
    polls = 0
    for reader in range(READERS):
        words = list(map(int, (directory / f"reader-{reader}").read_text().split()))
        polls += words[0]
        seen = words[1:]
        truth = [len(values) for values in found] + [checksum(values) for values in found]
        if seen != truth:
            raise BrokenError(f"reader {reader} saw {seen}, expected {truth}")
    return polls


def checksum(values: list[bytes]) -> int:
    """Return the summary that a reader computes of these values."""
    result = 0
    for value in values:
        result = zlib.crc32(value, result)
    return result


def main() -> None:
    """Run once in a temporary directory, and print the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.processes")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        try:
            report = run(Path(directory), seconds=arguments.seconds, seed=arguments.seed)
        except BrokenError as error:
            sys.exit(f"seed {arguments.seed}: {error}")
    print(report)


if __name__ == "__main__":
    main()
