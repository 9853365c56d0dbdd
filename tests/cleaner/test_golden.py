"""Every pass of Kafka's own `Cleaner` over nine kinds of logs, and what ours makes of the same.

Everything is compared byte for byte but what another library compressed: of such batches the
records decompressed and the header, of the indexes of their files the choice is the library's.
Of the snapshots of producers, which compaction only removes, the names.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streamlog.cleaner.choosing import find_cleanable
from streamlog.cleaner.round import CleanReport
from streamlog.clock import ManualClock
from streamlog.config.log_config import LogConfig
from streamlog.fs.files import make_directories, read_file
from streamlog.fs.log_root import LogRoot
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.batch import scan_batches
from streamlog.root.partition_log import PartitionLog
from streamlog.root.roots import make_root
from tests.support.cleaning import clean, plain
from tests.support.golden import GOLDEN, files_of, unpack
from tests.support.segments import write_bytes

FOLDER = GOLDEN / "F-compaction"
CASES: list[dict[str, Any]] = json.loads((FOLDER / "passes.json").read_text())
OF_THE_PARTITION = {"partition.metadata", "leader-epoch-checkpoint"}
ROOT, PATH = "/logs", "/logs/orders-0"
UNCLEANABLE = "firstUncleanableOffset"
# Kafka cleans again although nothing is dirty, and takes the checkpoint back to 0.
NOTHING_DIRTY = {("008-open-transaction", 2)}


class Pass(NamedTuple):
    """One pass: the number from 1 on, and what Kafka said of it."""

    name: str
    number: int
    config: LogConfig
    mtime_ms: int
    facts: dict[str, Any]


PASSES = [
    Pass(
        case["name"],
        number,
        LogConfig.from_properties(case["config"]),
        case["lastModifiedOfInputSegments"] + 1000 * (number - 1),
        facts,
    )
    for case in CASES
    for number, facts in enumerate(case["passes"], 1)
]


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("F-compaction/directories.tar.gz", tmp_path_factory.mktemp("compaction"))


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def opened(case: Pass, directories: Path, fs: MemoryFileSystem) -> PartitionLog:
    """Return the partition as it was before the pass."""
    make_root(LogRoot.at(ROOT, fs=fs, clock=ManualClock(), random=random.Random(1)))
    write_bytes(fs, f"{ROOT}/.streamlog/server.properties", b"producer.id.expiration.ms=2147483647")
    make_directories(fs, PATH)
    for name, data in files_of(directories / case.name / f"input-{case.number}"):
        write_bytes(fs, f"{PATH}/{name}", data)
        fs.set_mtime(f"{PATH}/{name}", case.mtime_ms)
    row = f"0\n1\norders 0 {case.facts['highWatermark']}\n"  # Kafka closed it cleanly
    write_bytes(fs, f"{ROOT}/recovery-point-offset-checkpoint", row.encode())
    clock = ManualClock(case.facts["now"])
    return PartitionLog.open(PATH, config=case.config, fs=fs, clock=clock)


def clean_as(case: Pass, log: PartitionLog, fs: MemoryFileSystem) -> CleanReport:
    clock = ManualClock(case.facts["now"])
    cleanable = find_cleanable(
        log, case.facts["checkpointBefore"], config=log.config, now_ms=clock.now_ms()
    )
    assert cleanable.first_dirty_offset == case.facts["firstDirtyOffset"]
    bases = [each for each in log.segments.base_offsets if each <= case.facts[UNCLEANABLE]]
    assert cleanable.end_offset == bases[-1]
    assert cleanable.clean_bytes == case.facts["cleanBytes"]
    assert cleanable.cleanable_bytes == case.facts["cleanableBytes"]
    return clean(fs, clock, log, cleanable=cleanable)


def files(fs: MemoryFileSystem) -> Iterator[tuple[str, bytes]]:
    """Yield what belongs to segments; what was set aside does not."""
    for name in fs.list(PATH):
        if not name.endswith(".deleted") and name not in OF_THE_PARTITION:
            yield name, read_file(fs, f"{PATH}/{name}", max_size=1 << 30)


def are_of_one_size(found: dict[str, bytes], expected: dict[str, bytes], stem: str) -> bool:
    """Tell whether the batches of a segment have the sizes that Kafka's library gave them."""
    ours, theirs = (scan_batches(each[f"{stem}.log"]).table.size for each in (found, expected))
    return ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("case", PASSES, ids=lambda case: f"{case.name}-{case.number}")
def test_a_pass_gives_what_kafka_gave(case: Pass, directories: Path, fs: MemoryFileSystem) -> None:
    log = opened(case, directories, fs)
    report = clean_as(case, log, fs)
    log.close()
    expected = {
        name: data
        for name, data in files_of(directories / case.name / f"pass-{case.number}")
        if name not in OF_THE_PARTITION
    }
    found = dict(files(fs))
    assert sorted(found) == sorted(expected)
    for name, data in found.items():
        stem, _, kind = name.partition(".")
        if kind == "log":
            assert plain(data) == plain(expected[name]), name
        elif kind == "txnindex" or (
            kind in ("index", "timeindex") and are_of_one_size(found, expected, stem)
        ):
            assert data == expected[name], name
    if (case.name, case.number) in NOTHING_DIRTY:
        assert report.end_offset == case.facts["checkpointBefore"]
    else:
        assert report.end_offset == case.facts["checkpointAfter"]
        assert report.records_written == case.facts["messagesWritten"]
