"""Verification of a partition, compared with one read and checksum of the same bytes."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from streamlog.fs.local import LocalFileSystem
from streamlog.health.findings import Finding
from streamlog.health.verify import verify
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.partitions import batch_of, fill
from tests.programs.performance.recovery import checksum, size_of

BATCHES = 12_000
PROMISED = 1000.0  # MB/s of one core


def ours(path: Path, *, is_deep: bool = False) -> float:
    """Return MB/s of a full verification."""
    found: list[Finding] = []
    start = time.process_time()
    verify(LocalFileSystem(), str(path), found.append, is_deep=is_deep)
    seconds = time.process_time() - start
    assert found == [], found
    return size_of(path) / 1e6 / seconds


def compare(rounds: int = 3) -> Iterator[Comparison]:
    """Yield MB/s compared with a bare pass and with the limit, and with every record decoded."""
    with tempfile.TemporaryDirectory(prefix="streamlog-bench-") as directory:
        path = Path(directory) / "verify-0"
        fill(path, batch_of(16 << 10), BATCHES, segment_bytes=64 << 20)
        rates = interleaved(lambda: ours(path), lambda: checksum(path), rounds=rounds)
        yield Comparison("verify.crc", *rates, "read + CRC-32C", "MB/s", goal=0.5)
        yield Comparison("verify.rate", rates[0], PROMISED, "the limit", "MB/s", goal=1.0)
        rates = interleaved(lambda: ours(path, is_deep=True), lambda: checksum(path), rounds=rounds)
        yield Comparison("verify.deep", *rates, "read + CRC-32C", "MB/s")
