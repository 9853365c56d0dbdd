"""Appending ready batches as a leader, compared with Kafka's UnifiedLog."""

import itertools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from streamlog.config.log_config import LogConfig
from streamlog.root.partition_log import PartitionLog
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.partitions import KafkaLog, batch_of, beside_kafka

MIB = 1 << 20


def ours(path: Path, batch: bytes, count: int, config: Mapping[str, str]) -> float:
    """Return the seconds of one append: CPU time, or elapsed time if each append is synced."""
    clock = time.perf_counter if config else time.process_time
    with PartitionLog.open(path, config=LogConfig.from_properties(dict(config))) as log:
        start = clock()
        for _ in range(count):
            log.append_as_leader(batch)
        seconds = clock() - start
    remove(path)
    return seconds / count


def theirs(kafka: KafkaLog, path: Path, file: Path, count: int, config: Mapping[str, str]) -> float:
    """Return the seconds of one append by Kafka."""
    seconds, done = kafka.measure(
        "append", path, config=config, file=str(file), count=count, waits=bool(config)
    )
    remove(path)
    return seconds / done


def remove(path: Path) -> None:
    """Remove the files of a partition, so that the disk does not fill up."""
    for file in path.iterdir():
        file.unlink()


def compare(rounds: int = 3) -> Iterator[Comparison]:
    """Yield MB/s of 1 MiB batches, with and without a sync each, and the time of 16 KiB batches."""
    with beside_kafka() as beside:
        if beside is None:
            return
        kafka, directory = beside
        numbers = itertools.count()

        def measured(batch: bytes, count: int, config: Mapping[str, str]) -> tuple[float, float]:
            file = directory / "batch"
            file.write_bytes(batch)
            return interleaved(
                lambda: ours(directory / "ours" / f"a{next(numbers)}-0", batch, count, config),
                lambda: theirs(kafka, directory / f"b-{next(numbers)}", file, count, config),
                rounds=rounds,
            )

        large, small = batch_of(MIB), batch_of(16 << 10)
        for name, count, config in (
            ("append.1MiB", 200, {}),
            ("append.1MiB.sync", 60, {"flush.messages": "1"}),
        ):
            rates = [len(large) / 1e6 / seconds for seconds in measured(large, count, config)]
            goal = 1.0 if not config else None
            yield Comparison(name, *rates, "UnifiedLog", "MB/s", goal=goal)
        times = [seconds * 1e6 for seconds in measured(small, 3000, {})]
        yield Comparison(
            "append.16KiB", *times, "UnifiedLog", "µs", higher_is_better=False, goal=3.0
        )
