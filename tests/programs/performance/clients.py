"""Programs without Spark, compared with aiokafka's codec, which makes an object per record too.

Iterating over a log, sending with `Producer`, `PartitionLog.append`, and `write_table`. The log is
a real one that is synced at the end; aiokafka's codec does not touch a disk. The measure is CPU
time. The records are those of `codec`.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from streamlog.arrow.table_writer import write_table
from streamlog.errors import UnknownTopicError
from streamlog.partition.reader import LogReader
from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from streamlog.root.partition_log import PartitionLog
from streamlog.root.producer import Producer
from tests.programs.performance.codec import (
    KEYS,
    RECORDS,
    TIMES,
    VALUES,
    decode_with_aiokafka,
    encode_with_aiokafka,
)
from tests.programs.performance.comparison import Comparison, interleaved

BATCHES = 300
COUNT = RECORDS * BATCHES
ROUNDS = 5


def compare() -> Iterator[Comparison]:
    """Yield records per second."""
    with tempfile.TemporaryDirectory(prefix="streamlog-bench-") as directory:
        root = Path(directory) / "root"
        with LogManager.open(root, create=True) as manager:
            manager.create_topic("read", 1)
        batch = encode_with_aiokafka()
        with PartitionLog.open(root / "read-0") as log:
            for _ in range(BATCHES):
                log.append_as_leader(batch)
        peers = (lambda: decode_with_aiokafka(batch), encode_with_aiokafka)
        for bench, ours, peer, goal in (
            ("clients.iterate", lambda: iterate(root), peers[0], 0.15),
            ("clients.produce", lambda: produce(root), peers[1], 0.1),
            ("clients.append", lambda: append(root), peers[1], 0.1),
            ("clients.write_table", lambda: write(root), peers[1], 0.3),
        ):
            rates = interleaved(rate(ours, 1), rate(peer, BATCHES), rounds=ROUNDS)
            yield Comparison(bench, *rates, "aiokafka's codec", "records/s", goal=goal)


def rate(function: Callable[[], object], calls: int) -> Callable[[], float]:
    """Return a measurement in records per second, of a function that handles `COUNT` in `calls`."""

    def measure() -> float:
        started = time.process_time()
        for _ in range(calls):
            function()
        return COUNT / (time.process_time() - started)

    return measure


def iterate(root: Path) -> None:
    with LogReader.open(root / "read-0") as log:
        if sum(1 for _ in log) != COUNT:
            raise AssertionError("records are missing")


def fresh_topic(root: Path) -> None:
    with LogManager.open(root) as manager:
        with suppress(UnknownTopicError):
            manager.delete_topic("written")
        manager.create_topic("written", 4)


def produce(root: Path) -> None:
    fresh_topic(root)
    with Producer(root) as producer:
        for _ in range(BATCHES):
            for key, value, timestamp in zip(KEYS, VALUES, TIMES, strict=True):
                producer.send("written", value, key=key, timestamp=timestamp)


def append(root: Path) -> None:
    """`PartitionLog.append` of lists of a thousand records to one partition."""
    fresh_topic(root)
    with PartitionLog.open(root / "written-0") as log:
        for _ in range(BATCHES):
            log.append(
                [
                    Record(key, value, (), at)
                    for key, value, at in zip(KEYS, VALUES, TIMES, strict=True)
                ]
            )


TABLE = pa.table({"key": KEYS * BATCHES, "value": VALUES * BATCHES})


def write(root: Path) -> None:
    fresh_topic(root)
    write_table(TABLE, root, "written")
