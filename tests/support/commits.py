"""A small root in memory, an app that commits to it, and the states that a commit may reach."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from streamlog.clock import Clock, ManualClock
from streamlog.commits.commit_log import CommitLog, CommitOutcome
from streamlog.commits.identity import CommitIdentity
from streamlog.commits.mirror import Mirror
from streamlog.commits.staging import StagedFile, Stager, is_staged_name
from streamlog.fs.api import FileSystem
from streamlog.fs.faults import Fault, FaultyFileSystem, Moment, SimulatedCrash
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.partition.reader import LogReader
from streamlog.query.checkpoint import BatchSource, Naming
from streamlog.records.builder import EncodedBatches, InputColumns, encode_columns
from streamlog.records.record import CompressionType, Record
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import FindReplicas
from streamlog.topic import TopicPartition

__all__ = [
    "APP",
    "LOG",
    "NOW",
    "ROOT",
    "STATES",
    "Scene",
    "batches_of",
    "killed",
    "reach",
    "rows_of",
    "values_in",
]

ROOT = "/log"
APP = "query-1/t"
NOW = 1_700_000_000_000
TOPIC = "t"
PARTITIONS = 2
ROWS = 6  # rows per version and partition
LOG = "00000000000000000000.log"
STATES = ("staged", "decided", "partly applied", "applied", "retired")

_seeds = itertools.count()  # processes of one test must not draw the same file names


def rows_of(version: int, partition: int, app: str = APP) -> list[bytes]:
    """Return the values of an app's version for a partition."""
    return [f"{app} v{version} p{partition} {row}".encode() for row in range(ROWS)]


def batches_of(values: Sequence[bytes | None], *, batch_size: int = 160) -> EncodedBatches:
    """Return values as small batches of about two records."""
    records = [Record(b"key", value, (), NOW) for value in values]
    columns = InputColumns.from_records(records, now_ms=NOW)
    return encode_columns(columns, compression=CompressionType.NONE, batch_size=batch_size)


@dataclass
class Scene:
    """A root, opened by one process.

    Args:
        fs: The file system; the root and topic `t` are created if missing.
        configs: Settings of the topic on creation.
    """

    fs: FileSystem = field(default_factory=MemoryFileSystem)
    configs: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=lambda: ManualClock(NOW))
    root: str = ROOT
    random: Random = field(default_factory=lambda: Random(next(_seeds)))
    replicated: FindReplicas | None = None
    mirror: Mirror | None = None
    manager: LogManager = field(init=False)
    commits: CommitLog = field(init=False)

    def __post_init__(self) -> None:
        self.manager = LogManager.open(
            self.root,
            create=True,
            fs=self.fs,
            clock=self.clock,
            random=self.random,
            replicated=self.replicated,
            mirror=self.mirror,
        )
        self.manager.create_topic(TOPIC, PARTITIONS, self.configs, if_not_exists=True)
        self.commits = CommitLog(
            self.log_root,
            open_logs=self.manager.logs,
            decisions=None if self.mirror is None else self.mirror.own.pending,
            lock_timeout_ms=10,
            mirror=self.mirror,
        )

    @property
    def log_root(self) -> LogRoot:
        """The root with what is needed to work on it."""
        return LogRoot(self.root, self.fs, self.clock, self.random)

    def stage(
        self,
        version: int,
        values: Mapping[int, Sequence[bytes | None]] | None = None,
        *,
        task: int = 0,
        app: str = APP,
        checksum: int | None = 0,
        topic: str = TOPIC,
    ) -> StagedFile:
        """Stage one task's rows, by default those of `rows_of` for both partitions."""
        if values is None:
            values = {p: rows_of(version, p, app) for p in range(PARTITIONS)}
        with Stager(self.log_root, app, version, task, random=self.random) as stager:
            for partition, part in values.items():
                stager.append(TopicPartition(topic, partition), batches_of(part))
            return stager.finish(rows=sum(map(len, values.values())), checksum=checksum)

    def commit(
        self,
        version: int,
        staged: Sequence[StagedFile] | None = None,
        *,
        app: str = APP,
        fingerprint: str | None = None,
        **how: Any,
    ) -> CommitOutcome:
        """Commit a version, by default with the staged file that `stage` makes by default.

        A `fingerprint` is source lines that identify the batch, as those of Kafka's source do.
        """
        if staged is None:
            staged = [self.stage(version, app=app)]
        source = None if fingerprint is None else BatchSource(fingerprint, naming=Naming.BATCH)
        return self.commits.commit(CommitIdentity(app, version), staged, source=source, **how)

    def append(self, partition: int, *values: bytes) -> None:
        """Append as a plain producer does."""
        records = [Record(b"plain", value, (), NOW) for value in values]
        self.manager.log(TOPIC, partition).append(records)

    def values(self, partition: int) -> list[bytes | None]:
        """Return the values that a reader finds in a partition of topic `t`."""
        return values_in(self.fs, f"{self.root}/{TOPIC}-{partition}")

    def pending_names(self) -> list[str]:
        """Return the names of the decisions that are not retired."""
        with contextlib.suppress(Exception):
            return self.fs.list(f"{self.root}/.streamlog/commits/pending")
        return []

    def staged_names(self, app_key: str = "query-1%2Ft") -> list[str]:
        """Return the names of an app's staged files."""
        with contextlib.suppress(Exception):
            names = self.fs.list(f"{self.root}/.streamlog/staging/{app_key}")
            return [name for name in names if is_staged_name(name)]
        return []

    def over(self, *faults: Fault) -> "Scene":
        """Return another process on the same files, with an injected fault."""
        return Scene(FaultyFileSystem(self.memory, *faults), clock=self.clock, root=self.root)

    def after_crash(self, *, power: bool = False, seed: int = 0) -> "Scene":
        """Return another process after this one has died."""
        return Scene(self.memory.crash_clone(Random(seed), power=power), clock=self.clock)

    @property
    def memory(self) -> MemoryFileSystem:
        """The file system in memory, below any faulty one."""
        inner = self.fs.inner if isinstance(self.fs, FaultyFileSystem) else self.fs
        assert isinstance(inner, MemoryFileSystem)
        return inner


def values_in(fs: FileSystem, path: str) -> list[bytes | None]:
    """Return the values of all records of a partition's directory."""
    found: list[bytes | None] = []
    with LogReader.open(path, fs=fs) as reader:
        at = reader.log_start_offset
        while at < reader.log_end_offset:
            info = reader.read(at)
            found += [record.value for record in info.records()]
            at = info.next_offset
    return found


@contextlib.contextmanager
def killed() -> Iterator[None]:
    """Expect the simulated process to die."""
    try:
        yield
    except SimulatedCrash:
        return
    raise AssertionError("the process did not die")


def reach(state: str, configs: Mapping[str, str] | None = None) -> tuple[Scene, StagedFile]:
    """Return a root where version 0 is committed and version 1 has reached `state`.

    The process that committed version 1 is dead; the returned scene is another one.
    """
    first = Scene(configs=configs or {})
    first.commit(0)
    faults = {
        "decided": [Fault(operation="pwrite", path_suffix=".log")],
        "partly applied": [Fault(operation="pwrite", path_suffix="t-0/" + LOG, moment=Moment.TORN)],
    }
    dying = Scene(FaultyFileSystem(first.memory), clock=first.clock)
    staged = dying.stage(1)
    if state in faults:
        dying = first.over(*faults[state])
        with killed():
            dying.commit(1, [staged])
    elif state != "staged":
        dying.commit(1, [staged])
    if state == "retired":
        dying.commits.retire()
    return dying.after_crash(), staged
