"""Reading a partition from end to end with checksums and all fields, compared with Kafka's.

And reading it as one table: compared with the bare decoder on the same bytes, and its memory.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from streamlog.partition.reader import LogReader
from streamlog.records.batch import check_crc, scan_batches
from streamlog.records.decode import decode_columns
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.partitions import EVER, KafkaLog, batch_of, beside_kafka, fill

CHUNK = 4 << 20  # as a task of a query reads
BATCHES = 8000
TABLE_BYTES = 1 << 30
TABLE_CHUNK = 4 << 20
MOST_MEMORY = 3.0  # times the table


def ours(path: Path) -> float:
    """Return records per second, decoded into columns."""
    with LogReader.open(path) as reader:
        at, count, start = 0, 0, time.process_time()
        while at < reader.log_end_offset:
            info = reader.read(at, CHUNK)
            count += info.columns().count
            at = info.next_offset
        return count / (time.process_time() - start)


def theirs(kafka: KafkaLog, path: Path) -> float:
    """Return records per second that Kafka iterates over."""
    seconds, done = kafka.measure("read", path, clean=True, recoveryPoint=EVER)
    return done / seconds


# ---- as one table ------------------------------------------------------------------------------
def table_of(path: Path) -> tuple[float, float]:
    """Return MB/s of reading a partition as a table, and the peak memory relative to the table."""
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            f"from {__name__} import print_table_of; print_table_of({str(path)!r})",
        ],
        capture_output=True,
        check=True,
        text=True,
    )
    rate, memory = map(float, ran.stdout.split())
    return rate, memory


def print_table_of(path: str) -> None:
    """Print the result of `table_of`; runs in its own process to measure its memory."""
    from streamlog.arrow.tables import read_table

    read_table(path, topic="small", include_headers=True)  # compiles, and imports
    before, start = _peak(), time.perf_counter()
    table = read_table(path, topic="read", include_headers=True)
    seconds = time.perf_counter() - start
    size = sum(each.stat().st_size for each in Path(path).glob("read-0/*.log"))
    print(size / 1e6 / seconds, (_peak() - before) / table.nbytes)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def kernel(path: Path) -> float:
    """Return MB/s of the decoder and the checksums alone, on one core, without keeping results."""
    size, seconds = 0, 0.0
    for log in sorted(path.glob("read-0/*.log")):
        with log.open("rb") as file:
            data = file.read(TABLE_CHUNK)
            while data:
                start = time.perf_counter()
                scan = scan_batches(data)
                assert check_crc(data, scan.table) == len(scan.table)
                decode_columns(data, scan.table)
                seconds += time.perf_counter() - start
                size += scan.consumed
                file.seek(scan.consumed - len(data), 1)
                data = file.read(TABLE_CHUNK)
    return size / 1e6 / seconds


def tables(rounds: int = 3) -> Iterator[Comparison]:
    """Yield MB/s and the memory of a table."""
    with tempfile.TemporaryDirectory(prefix="streamlog-bench-") as directory:
        path = Path(directory)
        fill(path / "small-0", batch_of(16 << 10), 1)
        batch = batch_of(16 << 10)
        fill(path / "read-0", batch, TABLE_BYTES // len(batch))
        memories = []

        def rate() -> float:
            megabytes, memory = table_of(path)
            memories.append(memory)
            return megabytes

        rates = interleaved(rate, lambda: kernel(path), rounds=rounds)
        yield Comparison("read.table", *rates, "decoder alone", "MB/s", goal=0.7)
        yield Comparison(
            "read.table.memory",
            max(memories),
            1.0,
            "the table",
            "tables",
            higher_is_better=False,
            goal=MOST_MEMORY,
        )


def compare(rounds: int = 3) -> Iterator[Comparison]:
    """Yield records per second, then the figures of tables."""
    yield from tables(rounds)
    with beside_kafka() as beside:
        if beside is None:
            return
        kafka, directory = beside
        path = directory / "read-0"
        fill(path, batch_of(16 << 10), BATCHES)
        rates = interleaved(lambda: ours(path), lambda: theirs(kafka, path), rounds=rounds)
        yield Comparison("read.decode", *rates, "UnifiedLog + iterate", "records/s", goal=2.0)
