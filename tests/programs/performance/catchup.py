"""Catch-up of an empty replica, compared with a copy by hand that checks and syncs as well."""

import functools
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from streamlog.partition.reader import LogReader
from streamlog.records.batch import check_crc, scan_batches
from streamlog.replication.copying import copy_to_follower
from streamlog.root.partition_log import PartitionLog
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.partitions import batch_of, fill

BYTES = 384 << 20  # of the partition
SEGMENT = 128 << 20
CHUNK = 4 << 20
SIZES = {"16KiB": 16 << 10, "1MiB": 1 << 20}  # a producer's batches, and those of our sink


def ours(leader: Path, path: Path) -> float:
    """Return MB/s of catching up a new replica, durable at the end."""
    with LogReader.open(leader) as reader, PartitionLog.open(path / "t-0") as follower:
        start = time.perf_counter()
        copied = copy_to_follower(reader, follower, refresh=reader.refresh, check=lambda: None)
        seconds = time.perf_counter() - start
        assert copied.is_caught_up and follower.log_end_offset == reader.log_end_offset
    shutil.rmtree(path)
    return copied.size / 1e6 / seconds


def by_hand(leader: Path, path: Path) -> float:
    """Return MB/s of reading the log files, checking every batch, writing and syncing them."""
    path.mkdir()
    memory, size = memoryview(bytearray(CHUNK)), 0
    start = time.perf_counter()
    for file in sorted(leader.glob("*.log")):
        with (
            file.open("rb", buffering=0) as source,
            (path / file.name).open("wb", buffering=0) as target,
        ):
            while read := source.readinto(memory):
                scan = scan_batches(memory[:read])
                assert scan.consumed and check_crc(memory[:read], scan.table) == len(scan.table)
                source.seek(scan.consumed - read, 1)
                target.write(memory[: scan.consumed])
                size += scan.consumed
            os.fsync(target.fileno())
    seconds = time.perf_counter() - start
    shutil.rmtree(path)
    return size / 1e6 / seconds


def compare(rounds: int = 5) -> Iterator[Comparison]:
    """Yield MB/s for small and large batches."""
    with tempfile.TemporaryDirectory(prefix="streamlog-bench-", dir="/var/tmp") as name:
        directory, numbers = Path(name), itertools.count()
        for size_name, size in SIZES.items():
            leader = directory / f"leader-{size}" / "t-0"
            fill(leader, batch_of(size), BYTES // size, segment_bytes=SEGMENT)

            def measured(how, leader=leader):
                return how(leader, directory / f"copy-{next(numbers)}")

            rates = interleaved(
                functools.partial(measured, ours),
                functools.partial(measured, by_hand),
                rounds=rounds,
            )
            yield Comparison(f"catchup.{size_name}", *rates, "copy by hand", "MB/s", goal=0.8)
            shutil.rmtree(leader.parent)
