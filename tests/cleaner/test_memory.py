"""The cleaner's memory: the offset map and a constant, however large the partition is."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamlog.config.log_config import LogConfig
from streamlog.records.builder import encode_columns
from streamlog.records.validate import AppendOrigin
from streamlog.root.partition_log import PartitionLog
from tests.programs.performance.compaction import columns

pytestmark = pytest.mark.slow

MEMORY = 16 << 20  # of the offset map
CONSTANT = 24 << 20  # chunks, what is made of them, and two segments' indexes
KEYS = 250_000
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "message.timestamp.before.max.ms": str(2**62),
}

CLEAN = f"""
import sys
from pathlib import Path
from streamlog.clock import SystemClock
from streamlog.config.log_config import LogConfig
from streamlog.fs.local import LocalFileSystem
from streamlog.root.partition_log import PartitionLog
from tests.support.cleaning import clean

with PartitionLog.open(sys.argv[1], config=LogConfig.from_properties({CONFIG})) as log:
    report = clean(LocalFileSystem(), SystemClock(), log, memory={MEMORY})
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(report.bytes_read, 1024 * int(status["VmHWM"].split()[0]))
"""


def cleaned(path: Path, records: int) -> tuple[int, int]:
    """Write a partition of some records, clean it in a child; return its bytes and peak RSS."""
    with PartitionLog.open(path, config=LogConfig.from_properties(CONFIG)) as log:
        keys = np.random.default_rng(1).integers(0, KEYS, records)
        for part in np.array_split(keys, max(1, records // 20_000)):
            batches = encode_columns(columns(part), batch_size=16 << 10)
            log.append_as_leader(batches.buffer, origin=AppendOrigin.COORDINATOR)
        log.roll()
    command = [sys.executable, "-c", CLEAN, str(path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(said[0]), int(said[1])


def test_a_large_partition_takes_no_more_than_the_map_and_a_constant(tmp_path: Path) -> None:
    small_size, small = cleaned(tmp_path / "small" / "state-0", 1000)
    large_size, large = cleaned(tmp_path / "large" / "state-0", 1_000_000)
    assert large_size > 100 << 20 > 100 * small_size
    assert large - small < MEMORY + CONSTANT
