"""`streamlog copy` of 128 MB, beside copying the files in a loop that computes their CRC-32C twice.

Twice, because a copy compares the checksums of what it reads, and of what it then reads back.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from streamlog import write_table
from streamlog.root.manager import LogManager
from streamlog.transfer.copying import CopyRequest, TopicCopier
from streamlog.transfer.places import open_source, open_target
from tests.programs.performance.comparison import Comparison, interleaved

SIZE = 128_000_000
ROW_SIZE = 1000
_PIECE = 4 << 20


def compare(rounds: int = 3) -> Iterator[Comparison]:
    """Yield the MB per second of processor time of copies between directories and stores."""
    with TemporaryDirectory() as scratch:
        place = Path(scratch)
        _make(place / "source")
        _copy(place / "source", f"file://{place}/bucket")
        for bench, source, target in (
            ("copy.to_directory", place / "source", place / "there"),
            ("copy.to_store", place / "source", f"file://{place}/there"),
            ("copy.from_store", f"file://{place}/bucket", place / "there"),
        ):
            ours, peer = interleaved(
                partial(_speed, place, partial(_copy, source, target)),
                partial(_speed, place, partial(_copy_files, place / "source", place / "there")),
                rounds=rounds,
            )
            yield Comparison(bench, ours, peer, "cp with CRC-32C", "MB/cpu-s")


def _make(root: Path) -> None:
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("rows", 2, {"segment.bytes": 32 << 20})
    random = np.random.default_rng(1)
    values = [random.bytes(ROW_SIZE) for _ in range(2000)]
    for _ in range(4):
        table = pa.table({"value": pa.array(values * (SIZE // 4 // ROW_SIZE // 2000), pa.binary())})
        write_table(table, str(root), "rows")


def _speed(place: Path, work: Callable[[], None]) -> float:
    shutil.rmtree(place / "there", ignore_errors=True)
    start = time.process_time()
    work()
    return SIZE / 1e6 / (time.process_time() - start)


def _copy(source: str | Path, target: str | Path) -> None:
    there = open_target(str(target))
    copied = list(TopicCopier(open_source(str(source)), there, CopyRequest()).run())
    there.close()
    assert sum(each.size for each in copied) > SIZE


def _copy_files(source: Path, target: Path) -> None:
    for path in sorted(source.glob("rows-*/*.log")):
        copy = target / path.parent.name / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as read, copy.open("w+b") as written:
            crc = 0
            while piece := read.read(_PIECE):
                crc = crc32c(piece, crc)
                written.write(piece)
            written.seek(0)
            again = 0
            while piece := written.read(_PIECE):
                again = crc32c(piece, again)
            assert crc == again
