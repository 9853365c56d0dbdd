"""Appends with acks=all on three roots, compared with writing and syncing three copies by hand."""

import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random

from streamlog.clock import SystemClock
from streamlog.fs.log_root import LogRoot
from streamlog.partition.locks import Patience, take_partition_lock
from streamlog.replication.partition_state import PartitionState
from streamlog.replication.register import QuorumRegister, RegisterFile
from streamlog.root import registry
from streamlog.root.partition_log import PartitionLog
from streamlog.root.placement import Placement
from streamlog.root.roots import make_root
from streamlog.topic import TopicPartition
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.partitions import batch_of

NODES = (1, 2, 3)
PARTITION = TopicPartition("t", 0)
SIZES = {"16KiB": (16 << 10, 400), "1MiB": (1 << 20, 60)}  # and how many


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


def ours(directory: Path, batch: bytes, count: int) -> float:
    """Return MB/s of appends that are acknowledged by three synced replicas."""
    directory.mkdir()
    placement = Placement(
        Roots(directory), clock=SystemClock(), random=Random(3), patience=Patience(1000)
    )
    path = directory / "r1" / str(PARTITION)
    with PartitionLog.open(path, placement=placement) as log:
        log.append_as_leader(batch)
        start = time.perf_counter()
        for _ in range(count):
            log.append_as_leader(batch)
        seconds = time.perf_counter() - start
        assert log.high_watermark == log.log_end_offset
    placement.close()
    shutil.rmtree(directory)
    return count * len(batch) / 1e6 / seconds


def by_hand(directory: Path, batch: bytes, count: int) -> float:
    """Return MB/s of writing and syncing three files, in three threads."""
    directory.mkdir()
    files = [os.open(directory / f"f{node}", os.O_CREAT | os.O_WRONLY) for node in NODES]
    with ThreadPoolExecutor(2) as pool:

        def copy(file: int, position: int) -> None:
            os.pwrite(file, batch, position)
            os.fsync(file)

        start = time.perf_counter()
        for position in range(0, count * len(batch), len(batch)):
            others = [pool.submit(copy, file, position) for file in files[1:]]
            copy(files[0], position)
            for other in others:
                other.result()
        seconds = time.perf_counter() - start
    for file in files:
        os.close(file)
    shutil.rmtree(directory)
    return count * len(batch) / 1e6 / seconds


def compare(rounds: int = 5) -> Iterator[Comparison]:
    """Yield MB/s for small and large batches."""
    with tempfile.TemporaryDirectory(prefix="streamlog-bench-", dir="/var/tmp") as name:
        numbers = itertools.count()
        for size_name, (size, count) in SIZES.items():
            batch = batch_of(size)

            def place() -> Path:
                return Path(name) / str(next(numbers))

            rates = interleaved(
                lambda batch=batch, count=count: ours(place(), batch, count),
                lambda batch=batch, count=count: by_hand(place(), batch, count),
                rounds=rounds,
            )
            yield Comparison(
                f"replication.{size_name}", *rates, "three synced copies", "MB/s", goal=0.8
            )
