"""Recovery by a full scan after a crash, compared with Kafka's and with a bare checksum."""

import functools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from streamlog.binary.crc import crc32c
from streamlog.root.partition_log import PartitionLog
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.partitions import KafkaLog, batch_of, beside_kafka, fill

BYTES = 375 << 20  # of the partition
CHUNK = 4 << 20
SIZES = {"16KiB": 16 << 10, "1MiB": 1 << 20}  # a producer's batches, and those of our sink


def ours(path: Path) -> float:
    """Return MB/s of opening a partition without a recovery point."""
    shutil.rmtree(path.parent / ".streamlog", ignore_errors=True)
    for known in ("recovery-point-offset-checkpoint", "meta.properties"):
        (path.parent / known).unlink(missing_ok=True)
    start = time.process_time()
    log = PartitionLog.open(path)
    seconds = time.process_time() - start
    with log:
        return log.size / 1e6 / seconds


def theirs(kafka: KafkaLog, path: Path) -> float:
    """Return MB/s of Kafka's recovery."""
    seconds, _ = kafka.measure("open", path)
    return size_of(path) / 1e6 / seconds


def checksum(path: Path) -> float:
    """Return MB/s of reading all bytes and one CRC-32C over each piece."""
    start = time.process_time()
    for file in path.glob("*.log"):
        with file.open("rb", buffering=0) as opened:
            while piece := opened.read(CHUNK):
                crc32c(piece)
    return size_of(path) / 1e6 / (time.process_time() - start)


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("*.log"))


def compare(rounds: int = 3) -> Iterator[Comparison]:
    """Yield MB/s compared with Kafka's and with a bare pass, for small and large batches."""
    with beside_kafka() as beside:
        if beside is None:
            return
        kafka, directory = beside
        for name, size in SIZES.items():
            path = directory / f"recovery-{size}"
            fill(path, batch_of(size), BYTES // size)
            rates = interleaved(
                functools.partial(ours, path),
                functools.partial(theirs, kafka, path),
                rounds=rounds,
            )
            yield Comparison(f"recovery.{name}.kafka", *rates, "UnifiedLog", "MB/s", goal=1.3)
            rates = interleaved(
                functools.partial(ours, path), functools.partial(checksum, path), rounds=rounds
            )
            yield Comparison(f"recovery.{name}.crc", *rates, "read + CRC-32C", "MB/s", goal=0.8)
            shutil.rmtree(path)
