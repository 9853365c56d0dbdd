"""Compacting two million records with a million keys, compared with Kafka's `Cleaner`.

Both start from a copy of the same directory. The measure is the CPU time of the round alone:
building the offset map, filtering, writing and swapping the segments, including syncs.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streamlog.clock import SystemClock
from streamlog.config.log_config import LogConfig
from streamlog.fs.local import LocalFileSystem
from streamlog.records.builder import InputColumns, encode_columns, patch_batches
from streamlog.records.columns import BinaryColumn
from streamlog.root.partition_log import PartitionLog
from tests.programs.compat.kafka import Kafka
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.partitions import (
    EVER,
    KEY_SIZE,
    TIMESTAMP,
    VALUE_SIZE,
    beside_kafka,
)
from tests.support.cleaning import clean

RECORDS = 2_000_000
KEYS = 1_000_000
SEGMENTS = 8
BATCH_SIZE = 16 << 10
MEMORY = 128 << 20
CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(1 << 28)}
DAY_MS = 86_400_000


def columns(keys: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> InputColumns:
    """Return a record for each key; keys are padded to `KEY_SIZE` digits."""
    count = len(keys)
    digits = keys[:, None] // 10 ** np.arange(KEY_SIZE - 1, -1, -1) % 10 + ord("0")
    values = np.random.default_rng(2).integers(97, 123, count * VALUE_SIZE, np.uint8)
    ends = np.arange(count + 1, dtype=np.int32)
    return InputColumns(
        np.full(count, TIMESTAMP, np.int64),
        BinaryColumn(ends * np.int32(KEY_SIZE), digits.astype(np.uint8).reshape(-1)),
        BinaryColumn(ends * np.int32(VALUE_SIZE), values),
    )


def fill(path: Path) -> None:
    """Write the partition: every key twice, in random order."""
    keys = np.random.default_rng(1).permutation(np.repeat(np.arange(KEYS), RECORDS // KEYS))
    with PartitionLog.open(path, config=LogConfig.from_properties(CONFIG)) as log:
        for part in np.split(keys, SEGMENTS):
            batches = encode_columns(columns(part), batch_size=BATCH_SIZE)
            at = log.log_end_offset
            patch_batches(batches.buffer, batches.table, base_offset=at, leader_epoch=0)
            log.append_as_follower(batches.buffer)
            log.roll()


def ours(source: Path) -> float:
    """Return records per second."""
    path = copied(source, "ours")
    config = LogConfig.from_properties(CONFIG)
    with PartitionLog.open(path, config=config) as log:
        start = time.process_time()
        report = clean(LocalFileSystem(), SystemClock(), log, memory=MEMORY)
        seconds = time.process_time() - start
    assert (report.records_read, report.records_written) == (RECORDS, KEYS)
    return RECORDS / seconds


def theirs(kafka: Kafka, source: Path) -> float:
    """Return records per second of Kafka."""
    path = copied(source, "theirs")
    answer = kafka.ask(
        "clean",
        directory=str(path),
        config=CONFIG,
        clean=True,
        recoveryPoint=EVER,
        now=TIMESTAMP + DAY_MS,
        memory=MEMORY,
    )
    assert (answer["recordsRead"], answer["recordsWritten"]) == (RECORDS, KEYS), answer
    return float(RECORDS / answer["cpuSeconds"])


def copied(source: Path, name: str) -> Path:
    """Return a fresh copy of the partition in a root of its own."""
    root = source.parent.parent / name
    shutil.rmtree(root, ignore_errors=True)
    return Path(shutil.copytree(source, root / source.name))


def compare(rounds: int = 3) -> Iterator[Comparison]:
    """Yield records per second."""
    with beside_kafka() as beside:
        if beside is None:
            return
        kafka, directory = beside
        path = directory / "source" / "cleaned-0"
        fill(path)
        rates = interleaved(lambda: ours(path), lambda: theirs(kafka.jvm, path), rounds=rounds)
        yield Comparison("compaction.clean", *rates, "Kafka's Cleaner", "records/s", goal=3.0)
