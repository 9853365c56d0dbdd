"""Warming up: afterwards nothing is compiled any more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

USE = """
import sys
from streamlog import LogConfig, PartitionLog, Record
from streamlog.cli.main import run
from streamlog.records.record import Header

path, config = sys.argv[1], LogConfig(index_interval_bytes=0)
with PartitionLog.open(f"{path}/orders-0", config=config) as log:
    for number in range(100):
        headers = (Header("h", b"1"),) if number % 2 else ()
        log.append([Record(b"k%d" % number, None if number % 3 else b"v", headers)])
    log.append([Record(b"k", b"v")] * 1000, compression="lz4")
    log.offset_for_timestamp(1)
with PartitionLog.open(f"{path}/orders-0", config=config) as log:
    log.append([Record(None, b"again")])
for encoding in ("utf8", "base64"):
    assert run(["cat", "orders", "--path", path, "--format", "ndjson", "--encoding", encoding]) == 0
"""

COMPACT = """
import sys
from streamlog import Record
from streamlog.maintenance.runner import Maintenance
from streamlog.root.manager import LogManager

with LogManager.open(sys.argv[1], create=True) as manager:
    configs = {"cleanup.policy": "compact", "internal.segment.bytes": "4000"}
    manager.create_topic("state", 1, configs)
    for number in range(100):
        value = b"v" if number % 3 else None
        codec = "lz4" if number % 2 else "none"
        manager.log("state", 0).append([Record(b"k%d" % (number % 7), value)], compression=codec)
with Maintenance(sys.argv[1]) as maintenance:
    print([deed.action for deed in maintenance.run().deeds])
"""


def compiled(cache: Path) -> set[str]:
    """Return the files of compiled code."""
    return {path.name for path in cache.rglob("*.nbc")}


def python(code: str, cache: Path, *arguments: object) -> str:
    """Run Python code in a process with a cache of its own."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that was warmed up."""
    path = tmp_path_factory.mktemp("warm") / "cache"
    python("from streamlog.cli.warmup import warm_up; warm_up()", path)
    assert compiled(path)
    return path


def test_after_warming_up_nothing_is_compiled(cache: Path, tmp_path: Path) -> None:
    warm = compiled(cache)
    lines = python(USE, cache, tmp_path / "root").splitlines()
    assert compiled(cache) == warm
    assert len(lines) == 2 * 1101
    assert json.loads(lines[1])["key"] == "k1"


def test_after_warming_up_nothing_is_compiled_to_compact(cache: Path, tmp_path: Path) -> None:
    warm = compiled(cache)
    assert python(COMPACT, cache, tmp_path / "root") == "['compaction']\n"
    assert compiled(cache) == warm
