"""Reading a partition from end to end, checksums and every field: ours beside Kafka's."""

import time
from collections.abc import Iterator
from pathlib import Path

from streamlog.log.reader import LogReader
from tests.performance.comparison import Comparison, interleaved
from tests.performance.partitions import EVER, KafkaLog, batch_of, beside_kafka, fill

CHUNK = 1 << 20
BATCHES = 8000


def ours(path: Path) -> float:
    """Return records a second into columns."""
    with LogReader.open(path) as reader:
        at, count, start = 0, 0, time.process_time()
        while at < reader.log_end_offset:
            info = reader.read(at, CHUNK)
            count += info.columns().count
            at = info.next_offset
        return count / (time.process_time() - start)


def theirs(kafka: KafkaLog, path: Path) -> float:
    """Return records a second that Kafka iterates over."""
    seconds, done = kafka.measure("read", path, clean=True, recoveryPoint=EVER)
    return done / seconds


def compare(rounds: int = 3) -> Iterator[Comparison]:
    """Yield records a second."""
    with beside_kafka() as beside:
        if beside is None:
            return
        kafka, directory = beside
        path = directory / "read-0"
        fill(path, batch_of(16 << 10), BATCHES)
        rates = interleaved(lambda: ours(path), lambda: theirs(kafka, path), rounds=rounds)
        yield Comparison("read.decode", *rates, "UnifiedLog + iterate", "records/s", goal=2.0)
