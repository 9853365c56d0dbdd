"""A log that is one of several replicas, and a leader's copies of it."""

from collections.abc import Callable
from random import Random

from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.errors import (
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
)
from streamlog.fs.api import Buffer, FileSystem
from streamlog.fs.files import read_file
from streamlog.fs.log_root import LogRoot
from streamlog.partition.log import Log
from streamlog.records.acks import Acks
from streamlog.records.batch import BatchTable
from streamlog.records.builder import BatchBuilder
from streamlog.records.record import Record
from streamlog.root.partition_log import PartitionLog
from streamlog.topic import TopicPartition
from tests.support.segments import write_bytes

__all__ = [
    "NOW",
    "PARTITION",
    "PATH",
    "Copies",
    "batch",
    "make_replica",
    "open_log",
    "record",
    "state_of",
]

NOW = 1_700_000_000_000
PARTITION = TopicPartition("orders", 0)
PATH = "/logs/orders-0"


def make_replica(fs: FileSystem, path: str = PATH) -> None:
    """Create the partition with a register, so that it counts as replicated."""
    root = LogRoot.at(path.rsplit("/", 1)[0], fs=fs)
    register = root.partition_register(PARTITION)
    fs.make_directory(root.path)
    open_log(fs, path=path).close()
    fs.make_directory(root.replication)
    write_bytes(fs, register, b"")
    fs.sync_directory(root.replication)
    fs.sync_directory(root.state)


def open_log(
    fs: FileSystem,
    replicas: "Copies | None" = None,
    *,
    path: str = PATH,
    config: LogConfig | None = None,
) -> PartitionLog:
    return PartitionLog.open(
        path,
        config=config or LogConfig(),
        fs=fs,
        clock=ManualClock(NOW),
        random=Random(1),
        lock_timeout_ms=5,
        replicated=replicas,
    )


class Copies:
    """Copies each append to one follower, which is in sync unless `in_sync` says no."""

    def __init__(self, follower: Log | None = None) -> None:
        self.follower = follower
        self.leads, self.has_enough, self.holds = True, True, True
        self.epoch: int | None = None
        self.calls: list[str] = []

    def begin(self, log: Log) -> None:
        self.calls.append("begin")
        if not self.leads:
            raise NotLeaderError("another replica leads", path=log.path)

    def before_append(self, acks: Acks) -> None:
        self.calls.append(f"before {acks.name}")
        if acks is Acks.ALL and not self.has_enough:
            raise NotEnoughReplicasError("too few replicas in sync", got=1, expected=2)

    def appended(
        self,
        log: Log,
        buffer: Buffer,
        table: BatchTable,
        acks: Acks,
        sync: Callable[[], None],
    ) -> None:
        self.calls.append(f"appended {acks.name}")
        sync()
        if self.follower is not None:
            self.follower.append_as_follower(buffer)
        self._acknowledge(log, log.log_end_offset, acks)
        if self.follower is not None:
            self.follower.raise_high_watermark(log.high_watermark)

    def repeated(self, log: Log, end_offset: int, acks: Acks) -> None:
        self.calls.append(f"repeated {acks.name}")
        self._acknowledge(log, end_offset, acks)

    def share_high_watermark(self, log: Log) -> None:
        self.calls.append("share")

    def _acknowledge(self, log: Log, end_offset: int, acks: Acks) -> None:
        if self.holds:
            log.raise_high_watermark(end_offset)
        elif acks is Acks.ALL:
            raise NotEnoughReplicasAfterAppendError("too few replicas hold it", offset=end_offset)

    def epoch_due(self, log: Log) -> int | None:
        self.calls.append("epoch")
        return self.epoch

    def close(self) -> None:
        self.calls.append("close")


def record(number: int) -> Record:
    return Record(b"k", b"%d" % number, (), NOW)


def batch(offset: int, epoch: int = 0, *, producer_id: int = -1) -> bytes:
    builder = BatchBuilder(
        base_offset=offset,
        partition_leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=min(producer_id, 0),
        base_sequence=min(producer_id, 0),
    )
    builder.append(record(offset))
    return builder.build()


def state_of(fs: FileSystem, root: str = "/logs") -> bytes:
    """Return the bytes of the state in the lock file."""
    path = LogRoot.at(root, fs=fs).partition_lock(PARTITION)
    return read_file(fs, path, max_size=4096)[256:]
