"""`streamlog export` of 200 MB of Arrow, beside pyarrow writing the same table from memory.

Each round also measures `read_table` alone: an export has to read the log, and the peer does not.
`export.parquet_beside_both` has reading and writing in turn as its peer. `export.decoded_…` export
a topic of Avro messages with five fields, in messages per second.
"""

import contextlib
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from streamlog import export_topic, read_table, write_table
from streamlog.exchange.exporting import Exporter
from streamlog.exchange.import_source import ImportOptions
from streamlog.exchange.import_sources import import_units
from streamlog.exchange.importing import Importer
from streamlog.exchange.source import ExportSource
from streamlog.exchange.targets import TargetOptions, open_target
from streamlog.root.manager import LogManager
from tests.programs.performance.comparison import Comparison, interleaved
from tests.programs.performance.decode import AVRO, encoded

ROWS = 400_000
WORDS = 60  # of a value, each about 8 bytes
MESSAGES = 200_000
DECODING: Final[Any] = {
    "value_format": "avro",
    "value_schema": json.dumps(AVRO),
    "schema_framing": "none",
}


def compare(rounds: int = 3) -> Iterator[Comparison]:
    """Yield the MB of Arrow per second of exports, an import and their peers."""
    with TemporaryDirectory() as scratch:
        place = Path(scratch)
        _make(place / "root")
        table = read_table(str(place / "root"), "rows", include_headers=True)
        for bench, ours, peer, name in _cases(place, table):
            found = interleaved(
                partial(_speed, place, table.nbytes, ours),
                partial(_speed, place, table.nbytes, peer),
                rounds=rounds,
            )
            yield Comparison(bench, *found, name, "MB/s")
        yield from _compare_decoded(place, rounds)


def _compare_decoded(place: Path, rounds: int) -> Iterator[Comparison]:
    _make_messages(place / "root")
    for format, peer, name in (
        ("parquet", _decode_then_write, "read_table, then pyarrow"),
        ("ndjson", _one_by_one, "fastavro and json, one call a message"),
    ):
        found = interleaved(
            partial(_speed, place, 1e6 * MESSAGES, partial(_export_decoded, place, format)),
            partial(_speed, place, 1e6 * MESSAGES, partial(peer, place)),
            rounds=rounds,
        )
        yield Comparison(f"export.decoded_{format}", *found, name, "messages/s")


Work = Callable[[], None]


def _cases(place: Path, table: pa.Table) -> Iterator[tuple[str, Work, Work, str]]:
    """Yield a name, our work, the peer's, and the peer's name."""
    ours, memory = partial(_export, place), "from memory"
    parquet = partial(_parquet, place, table)
    yield "export.parquet", partial(ours, "parquet"), parquet, f"pyarrow, {memory}"
    both = partial(_both, place)
    yield "export.parquet_beside_both", partial(ours, "parquet"), both, "read_table, then pyarrow"
    read = partial(_read, place)
    yield "export.parquet_beside_read", partial(ours, "parquet"), read, "read_table alone"
    csv = partial(_csv, place, table)
    yield "export.csv", partial(ours, "csv"), csv, f"pyarrow, {memory}"
    yield "export.ndjson", partial(ours, "ndjson"), csv, f"pyarrow's CSV, {memory}"
    delta = partial(_delta, place, table)
    yield "export.delta", partial(ours, "delta"), delta, f"delta-rs, {memory}"
    written = partial(_write, place)
    yield "import.parquet", partial(_import, place), written, "pyarrow, then write_table"


def _make(root: Path) -> None:
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("rows", 2)
    random = np.random.default_rng(1)
    words = [b"%x" % number for number in random.integers(1 << 20, 1 << 28, 5000).tolist()]
    values = [
        b" ".join(words[each] for each in random.integers(0, len(words), WORDS).tolist())
        for _ in range(20_000)
    ]
    keys = [b"key-%d" % number for number in random.integers(0, 1 << 20, 20_000).tolist()]
    for _ in range(ROWS // len(values)):
        write_table(pa.table({"key": keys, "value": pa.array(values)}), str(root), "rows")


def _make_messages(root: Path) -> None:
    with LogManager.open(root) as manager:
        manager.create_topic("messages", 2)
    parsed = fastavro.parse_schema(AVRO)
    values = []
    for number in range(20_000):
        row = {
            "id": number * 1000,
            "customer": f"customer {number % 500}",
            "amount": number * 1.25,
            "is_open": (True, False, None)[number % 3],
            "tags": ["new", "paid"][: number % 3],
        }
        values.append(encoded(parsed, row))
    for _ in range(MESSAGES // len(values)):
        write_table(pa.table({"value": pa.array(values)}), str(root), "messages")


def _export_decoded(place: Path, format: str) -> None:
    report = export_topic(
        str(place / "root"), "messages", str(place / "there"), format=format, **DECODING
    )
    assert sum(each.records for each in report.partitions) == MESSAGES and not report.undecoded


def _decode_then_write(place: Path) -> None:
    table = read_table(str(place / "root"), "messages", include_headers=True, **DECODING)
    _parquet(place, table)


def _one_by_one(place: Path) -> None:
    parsed = fastavro.parse_schema(AVRO)
    (place / "there").mkdir()
    rows = read_table(str(place / "root"), "messages", columns=["partition", "offset", "value"])
    with (place / "there" / "all.ndjson").open("w") as target:
        for row in rows.to_pylist():
            row["value"] = fastavro.schemaless_reader(io.BytesIO(row["value"]), parsed, None)
            target.write(json.dumps(row) + "\n")


def _speed(place: Path, size: float, work: Callable[[], None]) -> float:
    shutil.rmtree(place / "there", ignore_errors=True)
    start = time.perf_counter()
    work()
    return size / 1e6 / (time.perf_counter() - start)


def _export(place: Path, format: str) -> None:
    _export_to(place, place / "there", format)


def _export_to(place: Path, target: Path, format: str) -> None:
    with ExportSource(str(place / "root"), "rows") as source:
        options = TargetOptions(format, file_size=64 << 20)
        there, columns = open_target(str(target), options, source.partitions)
        with contextlib.closing(there):
            report = Exporter(source, there, columns).run()
    assert sum(each.records for each in report.partitions) == ROWS


def _read(place: Path) -> None:
    assert len(read_table(str(place / "root"), "rows", include_headers=True)) == ROWS


def _both(place: Path) -> None:
    _parquet(place, read_table(str(place / "root"), "rows", include_headers=True))


def _parquet(place: Path, table: pa.Table) -> None:
    (place / "there").mkdir()
    pq.write_table(table, place / "there" / "all.parquet", compression="zstd")


def _csv(place: Path, table: pa.Table) -> None:
    (place / "there").mkdir()
    pa_csv.write_csv(table.drop_columns(["headers"]), place / "there" / "all.csv")


def _delta(place: Path, table: pa.Table) -> None:
    import deltalake

    deltalake.write_deltalake(place / "there", table)


def _import(place: Path) -> None:
    source = place / "source"
    if not source.exists():
        _export_to(place, source, "parquet")
    topic = _new_topic(place)
    units = import_units(str(source), ImportOptions())
    assert Importer(str(place / "root"), topic).run(units).rows == ROWS


def _write(place: Path) -> None:
    source = place / "source"
    if not source.exists():
        _export_to(place, source, "parquet")
    topic = _new_topic(place)
    for path in sorted(source.glob("*.parquet")):
        rows = pq.read_table(path).drop_columns(["topic"])
        write_table(rows, str(place / "root"), topic, txn_app_id=path.name, txn_version=1)


def _new_topic(place: Path) -> str:
    """Return an empty topic; delete the last one."""
    with LogManager.open(place / "root") as manager:
        if "new" in manager.topics():
            manager.delete_topic("new")
        manager.create_topic("new", 2)
    return "new"
