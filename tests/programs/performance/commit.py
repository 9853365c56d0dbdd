"""One durable commit of staged data, compared with writing and syncing the same bytes.

The bytes are staged and durable before the measurement starts, as a task leaves them. A commit
reads and checks them, decides, assigns their offsets and appends them. The peer writes them to one
new file and syncs file and directory. Both run in a warm process.
"""

import itertools
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

from streamlog.commits.identity import CommitIdentity
from streamlog.commits.retirement import BackgroundChores
from streamlog.commits.staging import Stager
from streamlog.query.checkpoint import BatchSource
from streamlog.records.builder import encode_columns
from streamlog.root.manager import LogManager
from streamlog.topic import TopicPartition
from tests.programs.performance.commit_width import compare_widths
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.peers import records

VALUE_SIZE = 100
BATCH_SIZE = 512 << 10  # the sink's default
CASES = (("1row", 1, 60), ("100krows", 100_000, 8))  # name, rows, commits per round


def ours_ms(manager: LogManager, rows: int, versions: Iterable[int]) -> float:
    """Return the median duration of a commit in ms."""
    times = []
    for version in versions:
        encoded = encode_columns(records(rows, VALUE_SIZE), batch_size=BATCH_SIZE)
        with Stager(manager.log_root, f"app-{rows}", version, 0) as stager:
            stager.append(TopicPartition("t", 0), encoded)
            staged = stager.finish(rows=rows, checksum=0)
        start = time.perf_counter()
        manager.commits.commit(
            CommitIdentity(staged.app, version), [staged], source=BatchSource(f"batch {version}")
        )
        times.append(time.perf_counter() - start)
    return median(times) * 1000


def bare_ms(directory: Path, rows: int, count: int) -> float:
    """Return the median time in ms to write the same bytes durably to a new file."""
    content = encode_columns(records(rows, VALUE_SIZE), batch_size=BATCH_SIZE).buffer
    path = directory / "bare"
    times = []
    for _ in range(count):
        start = time.perf_counter()
        with path.open("xb", buffering=0) as file:
            file.write(content)
            os.fsync(file.fileno())
        descriptor = os.open(directory, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        times.append(time.perf_counter() - start)
        path.unlink()
    return median(times) * 1000


def compare(rounds: int = 3) -> Iterator[Comparison]:
    """Yield the median duration of a commit in ms, by rows."""
    with tempfile.TemporaryDirectory(prefix="streamlog-performance-") as name:
        chores = BackgroundChores()
        with LogManager.open(f"{name}/log", create=True, chores=chores) as manager:
            manager.create_topic("t", 1)
            for bench, rows, count in CASES:
                versions = itertools.count()
                measured = interleaved(
                    lambda rows=rows, some=versions, count=count: ours_ms(
                        manager, rows, itertools.islice(some, count)
                    ),
                    lambda rows=rows, count=count: bare_ms(Path(name), rows, count),
                    rounds=rounds,
                )
                yield Comparison(
                    f"commit.{bench}",
                    *measured,
                    "the same bytes, written and synced",
                    "ms",
                    higher_is_better=False,
                )
            chores.wait()
    yield from compare_widths()
