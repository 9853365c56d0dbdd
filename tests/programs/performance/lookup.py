"""Offset lookup in 1 and in 1,000 segments, and opening those, compared with Kafka's."""

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from streamlog.partition.reader import LogReader
from streamlog.root.partition_log import PartitionLog
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.partitions import EVER, KafkaLog, batch_of, beside_kafka, fill

LOOKUPS = 20_000
BATCHES = 1000
BATCH_SIZE = 16 << 10


def ours(path: Path) -> float:
    """Return the µs from an offset to the position of its batch."""
    with LogReader.open(path) as reader:
        random, end = Random(1), reader.log_end_offset
        offsets = [random.randrange(end) for _ in range(LOOKUPS)]
        start = time.process_time()
        for offset in offsets:
            segments = reader.segments
            segments[segments.floor_index(offset)].translate_offset(offset)
        return (time.process_time() - start) / LOOKUPS * 1e6


def theirs(kafka: KafkaLog, path: Path) -> float:
    """Return the µs of Kafka's `UnifiedLog.read`, which locates records without reading them."""
    seconds, done = kafka.measure("lookup", path, clean=True, recoveryPoint=EVER, count=LOOKUPS)
    return seconds / done * 1e6


def opening(path: Path) -> float:
    """Return the ms to open a closed partition for writing."""
    start = time.process_time()
    log = PartitionLog.open(path)
    seconds = time.process_time() - start
    log.close()
    return seconds * 1e3


def opening_theirs(kafka: KafkaLog, path: Path) -> float:
    """Return the ms of Kafka to open it after a clean shutdown."""
    seconds, _ = kafka.measure("open", path, clean=True, recoveryPoint=EVER)
    return seconds * 1e3


def compare(rounds: int = 5) -> Iterator[Comparison]:
    """Yield the µs of a lookup, its growth from 1 to 1,000 segments, and the ms to open 1,000."""
    with beside_kafka() as beside:
        if beside is None:
            return
        kafka, directory = beside
        one, many = directory / "one-0", directory / "many-0"
        batch = batch_of(BATCH_SIZE)
        fill(one, batch, BATCHES)
        fill(many, batch, BATCHES, segment_bytes=BATCH_SIZE + 1)
        for name, path in (("lookup.1", one), ("lookup.1000", many)):
            times = interleaved(
                lambda path=path: ours(path), lambda path=path: theirs(kafka, path), rounds=rounds
            )
            yield Comparison(name, *times, "UnifiedLog.read", "µs", higher_is_better=False)
        times = interleaved(lambda: ours(many), lambda: ours(one), rounds=rounds)
        yield Comparison("lookup.flat", *times, "1 segment", "µs", higher_is_better=False, goal=1.5)
        times = interleaved(
            lambda: opening(many), lambda: opening_theirs(kafka, many), rounds=rounds
        )
        yield Comparison(
            "lookup.open.1000", *times, "UnifiedLog", "ms", higher_is_better=False, goal=1.1
        )
