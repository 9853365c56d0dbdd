"""Warming up: afterwards nothing is compiled any more.

The tests share the cache of all others, as compiling every kernel anew takes a minute, so they
compare what is called: what warming up calls with certain types is in the cache afterwards. A cold
cache is warmed up by `.ci/set-up`.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

USE = """
import sys
from streamlog import LogConfig, PartitionLog, Record
from streamlog.cli.main import run
from streamlog.records.builder import KeptOffsets, encode_columns
from streamlog.records.record import Header

path, config = sys.argv[1], LogConfig(index_interval_bytes=0)
with PartitionLog.open(f"{path}/orders-0", config=config) as log:
    log.append([Record(b"k", b"v")] * 3000, compression="lz4")  # too many for plain loops
    for number in range(100):
        headers = (Header("h", b"1"),) if number % 2 else ()
        log.append([Record(b"k%d" % number, None if number % 3 else b"v", headers)])
    log.offset_for_timestamp(1)
with PartitionLog.open(f"{path}/orders-0", config=config) as log:
    log.append([Record(None, b"again")])
    columns = log.read(0).columns()
    encode_columns(columns, kept=KeptOffsets(columns.offset, 0, 1 << 20, leader_epoch=1))
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

DECODE = """
import pyarrow as pa
from streamlog import LogManager, Record, read_table
from streamlog.records.record import Header

root, schema = sys.argv[1], 'syntax = "proto3"; message M { repeated string a = 1; }'
with LogManager.open(root, create=True) as manager:
    for name in ("avro", "protobuf"):
        manager.create_topic(name, 1)
    in_header = (Header("__value_schema_id", b"\\1" + bytes(17)),)
    framed = Record(None, b"\\0\\0\\0\\0\\7\\0")
    for name in ("avro", "protobuf"):
        manager.log(name, 0).append([framed, Record(None, b"", in_header)])
for name, text in (("avro", '"int"'), ("protobuf", schema)):
    print(read_table(root, name, value_format=name, value_schema=text)["_error"].null_count)
"""

TELL = """
import gc, json
from pathlib import Path
from numba.core.registry import CPUDispatcher

gc.unfreeze()  # or those that were loaded before a command froze them are not listed
kernels = [each for each in gc.get_objects() if isinstance(each, CPUDispatcher)]
names = [
    f"{each.py_func.__module__}.{each.py_func.__qualname__}{signature}"
    for each in kernels
    for signature in each.overloads
]
compiled = sum(sum(each.stats.cache_misses.values()) for each in kernels)
Path(sys.argv[-1]).write_text(json.dumps([names, compiled]))
"""


class Called(NamedTuple):
    """What a process called: kernels with the types of their arguments."""

    kernels: set[str]
    compiled: int  # how many of them were not in the cache
    output: str


def python(code: str, directory: Path, *arguments: object) -> Called:
    """Run Python code in a process of its own."""
    told = directory / "kernels.json"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\n{TELL}", *map(str, arguments), str(told)],
        check=True,
        capture_output=True,
        text=True,
    )
    names, compiled = json.loads(told.read_text())
    return Called(set(names), compiled, done.stdout)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Called:
    """What warming up calls, and so leaves in the cache."""
    called = python(
        "from streamlog.cli.warmup import warm_up; warm_up()", tmp_path_factory.mktemp("warm")
    )
    assert len(called.kernels) > 15
    return called


def test_after_warming_up_nothing_is_compiled(warm: Called, tmp_path: Path) -> None:
    called = python(USE, tmp_path, tmp_path / "root")
    assert called.kernels - warm.kernels == set()
    assert len(called.kernels) > 5
    assert called.compiled == 0
    lines = called.output.splitlines()
    assert len(lines) == 2 * 3101
    assert json.loads(lines[3001])["key"] == "k1"


def test_after_warming_up_nothing_is_compiled_to_compact(warm: Called, tmp_path: Path) -> None:
    called = python(COMPACT, tmp_path, tmp_path / "root")
    assert called.output == "['compaction']\n"
    assert called.kernels - warm.kernels == set()
    assert any(".cleaner." in each for each in called.kernels)
    assert called.compiled == 0


def test_after_warming_up_nothing_is_compiled_to_decode(warm: Called, tmp_path: Path) -> None:
    called = python(DECODE, tmp_path, tmp_path / "root")
    assert called.output == "1\n2\n"
    assert called.kernels - warm.kernels == set()
    assert any("find_headers" in each for each in called.kernels)
    assert called.compiled == 0
