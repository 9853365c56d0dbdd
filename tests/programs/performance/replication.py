"""Appends with acks=all on three roots, compared with writing and syncing three copies by hand."""

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from statistics import median

from streamlog.clock import SystemClock
from streamlog.fs.log_root import LogRoot
from streamlog.partition.locks import Patience, take_partition_lock
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.register import QuorumRegister
from streamlog.replication.register_file import RegisterFile
from streamlog.root import registry
from streamlog.root.partition_log import PartitionLog
from streamlog.root.placement import Placement
from streamlog.root.roots import make_root
from streamlog.topic import TopicPartition
from tests.programs.performance.comparison import Comparison
from tests.programs.performance.partitions import batch_of

NODES = (1, 2, 3)
PARTITION = TopicPartition("t", 0)
MIB = 1 << 20
SIZES = {"16KiB": (16 << 10, 400), "1MiB": (MIB, 60)}  # and how many
IN_TURN = 10  # batches

Append = Callable[[bytes], object]


class Roots:
    """Three log roots in one directory; see `placement.Nodes`."""

    def __init__(self, directory: Path) -> None:
        self._roots = {node: LogRoot.at(directory / f"r{node}", random=Random(1)) for node in NODES}
        for root in self._roots.values():
            make_root(root)
            topic_id = registry.create_topic(
                root, PARTITION.topic, partitions=1, configs={"flush.messages": "1"}
            )
        register = QuorumRegister(
            self.register_files(PARTITION),
            locker=lambda node: self.locked(node, PARTITION),
            random=Random(2),
        )
        register.create(PartitionState.created(topic_id, NODES))

    @property
    def node_ids(self) -> tuple[int, ...]:
        return NODES

    def root(self, node: int) -> LogRoot:
        return self._roots[node]

    def check_online(self, node: int) -> None:
        pass

    def register_files(self, partition: TopicPartition) -> Mapping[int, RegisterFile]:
        return {node: RegisterFile(root, str(partition)) for node, root in self._roots.items()}

    @contextmanager
    def _locked(self, node: int, partition: TopicPartition) -> Iterator[None]:
        lock = take_partition_lock(self._roots[node], partition, timeout_ms=1000)
        try:
            yield
        finally:
            lock.release()

    def locked(self, node: int, partition: TopicPartition) -> AbstractContextManager[object]:
        return self._locked(node, partition)


def ours(directory: Path) -> Iterator[Append]:
    """Yield a function that appends a batch, acknowledged by three synced replicas."""
    directory.mkdir()
    placement = Placement(
        Roots(directory), clock=SystemClock(), random=Random(3), patience=Patience(1000)
    )
    with PartitionLog.open(directory / "r1" / str(PARTITION), placement=placement) as log:
        yield log.append_as_leader
        assert log.high_watermark == log.log_end_offset
    placement.close()


def by_hand(directory: Path) -> Iterator[Append]:
    """Yield a function that writes and syncs a batch to three files, in three threads."""
    directory.mkdir()
    files = [os.open(directory / f"f{node}", os.O_CREAT | os.O_WRONLY) for node in NODES]
    position = 0

    def copy(file: int, batch: bytes) -> None:
        os.pwrite(file, batch, position)
        os.fsync(file)

    with ThreadPoolExecutor(2) as pool:

        def append(batch: bytes) -> None:
            nonlocal position
            others = [pool.submit(copy, file, batch) for file in files[1:]]
            copy(files[0], batch)
            for other in others:
                other.result()
            position += len(batch)

        yield append
    for file in files:
        os.close(file)


def fill_memory(directory: Path, size: int) -> None:
    """Fill the page cache, then free it: in some machines memory is slow to use the first time."""
    with (directory / "filler").open("wb", buffering=0) as file:
        for _ in range(0, size, MIB):
            file.write(bytes(MIB))
    (directory / "filler").unlink()


def rates(directory: Path, batch: bytes, count: int) -> tuple[float, float]:
    """Return MB/s of both, a few batches in turn: the rate of a shared disk changes each second."""
    directory.mkdir()
    seconds = [0.0, 0.0]
    with (
        contextmanager(ours)(directory / "ours") as first,
        contextmanager(by_hand)(directory / "by-hand") as second,
    ):
        fill_memory(directory, 2 * len(NODES) * len(batch) * count)
        for append in (first, second):
            append(batch)
        for _ in range(0, count, IN_TURN):
            for at, append in enumerate((first, second)):
                start = time.perf_counter()
                for _ in range(IN_TURN):
                    append(batch)
                seconds[at] += time.perf_counter() - start
    shutil.rmtree(directory)
    mine, theirs = (count * len(batch) / 1e6 / each for each in seconds)
    return mine, theirs


def compare(rounds: int = 7) -> Iterator[Comparison]:
    """Yield MB/s for small and large batches."""
    with tempfile.TemporaryDirectory(prefix="streamlog-bench-", dir="/var/tmp") as name:
        numbers = itertools.count()
        for size_name, (size, count) in SIZES.items():
            batch = batch_of(size)
            pairs = [
                rates(Path(name) / str(next(numbers)), batch, count) for _ in range(rounds + 1)
            ][1:]
            mine, theirs = (median(each) for each in zip(*pairs, strict=True))
            yield Comparison(
                f"replication.{size_name}", mine, theirs, "three synced copies", "MB/s", goal=0.8
            )
