"""Exports and imports that die at any file operation: the same command again completes them.

`STREAMLOG_CRASH_SEEDS=3` adds random power cuts to the two extremes.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlog import LogManager, export_topic, read_table
from streamlog.clock import SystemClock
from streamlog.exchange.export_columns import ExportColumns
from streamlog.exchange.exporting import Exporter
from streamlog.exchange.file_target import FileTarget
from streamlog.exchange.formats import FileShape
from streamlog.exchange.places import StorePlace
from streamlog.exchange.positions import ExportedFile
from streamlog.exchange.source import ExportSource
from streamlog.fs.api import FileSystem, OpenMode
from streamlog.fs.faults import Moment, SimulatedCrash
from streamlog.fs.memory import MemoryFileSystem
from streamlog.records.record import Record
from streamlog.store.faults import FaultyStore, StoreFault
from streamlog.store.remote import open_store
from tests.exchange.decoded_topics import NEW, decoding, fill_decoded, write_schemas
from tests.exchange.test_decoded_exports import rows_of
from tests.exchange.topics import export, fill, import_into
from tests.support.cli import start
from tests.support.crash import every_crash_point

SEEDS = range(int(os.environ.get("STREAMLOG_CRASH_SEEDS", "0")))
COUNT = 60


def records_of(fs: FileSystem) -> list[tuple[Any, ...]]:
    """Return partition, offset and value of each exported record, file by file."""
    found = []
    for name in fs.list("/there"):
        if ExportedFile.parse(name) is None:
            continue
        with fs.open(f"/there/{name}", OpenMode.READ) as file:
            content = file.pread(file.stat().size, 0)
        rows = pq.read_table(pa.BufferReader(content)).to_pylist()
        found += [(row["partition"], row["offset"], row["value"]) for row in rows]
    return sorted(found, key=lambda row: row[:2])


def prepared(topics: Sequence[str] = ("orders",)) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    for topic in topics:
        fill("/root", topic, 0, COUNT if topic == "orders" else 0, fs=fs)
    return fs


def prepared_decoded() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fill_decoded("/root", 0, COUNT, fs=fs)
    return fs


@pytest.mark.parametrize("is_decoded", [False, True])
def test_an_export_that_dies_anywhere_is_completed_by_the_next(
    tmp_path: Path, *, is_decoded: bool
) -> None:
    wanted = None
    prepare, options = prepared, {"file_size": 1500}
    if is_decoded:
        prepare, options = prepared_decoded, {"file_size": 4000}
        options["decoding"] = decoding(write_schemas(tmp_path / "schemas"))

    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        acknowledged.append(export("/root", "/there", "parquet", fs=fs, **options).written)

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        before = records_of(fs) if fs.stat("/there") is not None else []
        if acknowledged:
            assert len(before) == 2 * COUNT
        export("/root", "/there", "parquet", fs=fs, **options)
        assert records_of(fs) == wanted
        names = fs.list("/there")
        assert not [each for each in names if each.endswith(".tmp")]
        assert export("/root", "/there", "parquet", fs=fs, **options).written.files == 0

    fs = prepare()
    export("/root", "/there", "parquet", fs=fs, **options)
    wanted = records_of(fs)
    assert len(wanted) == 2 * COUNT == len({each[:2] for each in wanted})
    report = every_crash_point(workload, check, prepared=prepare(), seeds=SEEDS)
    assert report.states > 30


def test_an_import_that_dies_anywhere_is_completed_by_the_next() -> None:
    def workload(fs: FileSystem, acknowledged: list[Any]) -> None:
        import_into("/root", "back", "/there", fs=fs, commit_bytes=2000)
        acknowledged.append("done")

    def check(fs: MemoryFileSystem, acknowledged: Sequence[Any]) -> None:
        report = import_into("/root", "back", "/there", fs=fs, commit_bytes=2000)
        assert not acknowledged or report.rows == 0
        with LogManager.open("/root", fs=fs) as manager:
            for number in (0, 1):
                log = manager.log("back", number)
                got = [each.value for each in log.read(offset=0, max_bytes=1 << 20).records()]
                source = manager.log("orders", number)
                want = [each.value for each in source.read(offset=0, max_bytes=1 << 20).records()]
                assert got == want

    fs = prepared(("orders", "back"))
    export("/root", "/there", "parquet", fs=fs, file_size=100_000)
    report = every_crash_point(workload, check, prepared=fs, seeds=SEEDS)
    assert report.states > 30


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_an_export_into_a_store_that_dies_at_any_request_is_completed(
    tmp_path: Path, moment: Moment
) -> None:
    fill(tmp_path / "root", "orders", 0, COUNT)
    shape = FileShape.of("parquet", None)
    columns = ExportColumns(shape.columns, shape.format)

    def run(store: Any) -> None:
        with ExportSource(str(tmp_path / "root"), "orders") as source:
            target = FileTarget(StorePlace(store, SystemClock()), shape, columns, 1500)
            try:
                Exporter(source, target, columns).run()
            finally:
                target.close()

    url = f"file://{tmp_path}/bucket"
    at = 0
    while True:
        at += 1
        place = f"{url}-{at}"
        fault = StoreFault(first=at, moment=moment, is_crash=True)
        store = FaultyStore(open_store(place), [fault])
        try:
            run(store)
        except SimulatedCrash:
            run(open_store(place))
        if at > store.count():
            break
        rows = read_files(tmp_path / f"bucket-{at}")
        assert len(rows) == 2 * COUNT == len(set(rows)), at
    assert at > 10


def read_files(directory: Path) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for path in directory.glob("*.parquet"):
        rows = pq.read_table(path, columns=["partition", "offset"]).to_pylist()
        found += [(row["partition"], row["offset"]) for row in rows]
    return found


def test_killed_processes_write_no_record_twice(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fill(root, "orders", 0, 10)
    with LogManager.open(root) as manager:
        for number in (0, 1):
            log = manager.log("orders", number)
            for _ in range(8):
                log.append([Record(key=None, value=os.urandom(500)) for _ in range(500)])
        manager.create_topic("back", 2)
    command = ("--path", root, "export", "orders", tmp_path / "there", "--format", "delta")
    sizes = ("--target-file-size", "100K", "--quiet")
    kill_often(*command, *sizes)
    kill_often("--path", root, "import", tmp_path / "there", "back", "--quiet")
    names = ["partition", "value", "timestamp"]
    got, wanted = (read_table(str(root), topic, columns=names) for topic in ("back", "orders"))
    assert got.num_rows == 8020 and got.equals(wanted)


def test_killed_exports_with_decoding_write_no_record_twice(tmp_path: Path) -> None:
    root, there = tmp_path / "root", tmp_path / "there"
    fill_decoded(root, 0, 1000)
    schemas = write_schemas(tmp_path / "schemas")
    flags = {"value_format": "avro", "schema_registry": str(schemas)}
    export_topic(root, "orders", str(there), format="delta", partitions=[0], **flags)
    write_schemas(tmp_path / "schemas", NEW)  # the table gets two more fields
    command = ("--path", root, "export", "orders", there, "--format", "delta", "--quiet")
    options = ("-s", "value=avro", "-r", schemas, "--target-file-size", "15K")
    kill_often(*command, *options, code=1)
    names = ["value", "offset", "_error"]
    wanted = read_table(str(root), "orders", columns=names, **flags)
    assert rows_of(there, "delta").select(names).to_pylist() == wanted.to_pylist()


def kill_often(*arguments: object, code: int = 0) -> None:
    """Run a command again and again, killed a little later each time, until one run ends."""
    after = 0.9
    while True:
        process = start(*arguments)
        try:
            _, error = process.communicate(timeout=after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            after *= 1.6
            continue
        assert process.returncode in (0, code), error
        return
