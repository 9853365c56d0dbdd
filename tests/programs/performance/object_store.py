"""Tables of 50 MB written to and read from a local object store, compared with a directory."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from streamlog import read_table, write_table
from streamlog.bucket.manager import BucketManager
from streamlog.root.manager import LogManager
from tests.programs.performance.comparison import Comparison, interleaved

ROWS = 50_000
ROW_SIZE = 1000
GOAL = 0.8


def compare(rounds: int = 4) -> Iterator[Comparison]:
    """Yield the MB of rows per second of processor time: writing, then reading everything."""
    with TemporaryDirectory() as place:
        url, directory = f"file://{place}/bucket", str(Path(place, "root"))
        with BucketManager(url, create=True) as bucket:
            bucket.create_topic("rows", 4)
        with LogManager.open(directory, create=True) as manager:
            manager.create_topic("rows", 4)
        random = np.random.default_rng(1)
        values = [random.bytes(ROW_SIZE) for _ in range(2000)] * (ROWS // 2000)
        table = pa.table({"value": pa.array(values, pa.binary())})

        def write(root: str) -> int:
            write_table(table, root, "rows")
            return table.num_rows

        def read(root: str) -> int:
            return read_table(root, "rows").num_rows

        yield _compared("object_store.write", write, url, directory, rounds)
        yield _compared("object_store.read", read, url, directory, rounds)


def _compared(
    bench: str, work: Callable[[str], int], url: str, directory: str, rounds: int
) -> Comparison:
    def speed(root: str) -> float:
        start = time.process_time()
        rows = work(root)
        return rows * ROW_SIZE / 1e6 / (time.process_time() - start)

    ours, peer = interleaved(lambda: speed(url), lambda: speed(directory), rounds=rounds)
    return Comparison(bench, ours, peer, "a directory", "MB/cpu-s", goal=GOAL)
