"""Topic → files or a table → topic: nothing is lost, nothing comes twice."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlog import LogManager, Record, read_table
from streamlog.bucket.manager import BucketManager
from streamlog.clock import SystemClock
from streamlog.errors import (
    CorruptCheckpointError,
    DataLossError,
    FencedError,
    InconsistentTopicIdError,
    InvalidOptionError,
    InvalidRequestError,
    InvalidTopicError,
    LockTimeoutError,
    UnknownTopicError,
)
from streamlog.exchange.export_columns import ExportColumns
from streamlog.exchange.exporting import Exporter
from streamlog.exchange.file_target import FileTarget
from streamlog.exchange.formats import FileShape
from streamlog.exchange.import_source import ImportOptions
from streamlog.exchange.import_sources import import_units
from streamlog.exchange.importing import Importer
from streamlog.exchange.places import StorePlace
from streamlog.exchange.positions import ExportedFile
from streamlog.exchange.source import ExportSource
from streamlog.exchange.targets import TargetOptions, open_target
from streamlog.root.offset_specs import OffsetSpec, Span
from streamlog.store.remote import open_store
from tests.exchange.topics import export, fill, import_into, table

FILES = ("ndjson", "csv", "parquet")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root that tests only read."""
    place = tmp_path_factory.mktemp("source") / "root"
    fill(place, "orders", 0, 500)
    return place


@pytest.mark.parametrize("encoding", ["utf8", "base64", "hex"])
@pytest.mark.parametrize("format", FILES)
def test_a_topic_survives_files(root: Path, tmp_path: Path, format: str, encoding: str) -> None:
    if format == "parquet" and encoding != "utf8":
        with pytest.raises(InvalidOptionError, match="bytes as they are"):
            export(root, tmp_path / "files", format, encoding=encoding)
        return
    size = 2_000 if format == "parquet" else 10_000
    report = export(root, tmp_path / "files", format, encoding=encoding, file_size=size)
    assert report.written.files == len(list((tmp_path / "files").glob(f"*.{format}"))) > 2
    fill(tmp_path / "back", "any", 0, 0)
    imported = import_into(tmp_path / "back", "orders", tmp_path / "files", commit_bytes=20_000)
    assert imported.rows == 1000
    assert table(tmp_path / "back").equals(table(root))


def test_a_topic_survives_delta(root: Path, tmp_path: Path) -> None:
    import deltalake

    for _ in range(2):
        export(root, tmp_path / "delta", "delta", file_size=5_000)
    there = deltalake.DeltaTable(tmp_path / "delta")
    rows = there.to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert rows.equals(read_table(str(root), "orders", include_headers=True))
    assert there.version() > 1
    fill(tmp_path / "back", "any", 0, 0)
    for _ in range(2):
        import_into(tmp_path / "back", "orders", tmp_path / "delta", commit_bytes=20_000)
    assert table(tmp_path / "back").equals(table(root))
    # Rewritten as a whole, it is another version of the table, and its rows are known.
    there.optimize.compact()
    with pytest.raises(FencedError, match="has changed"):
        import_into(tmp_path / "back", "orders", tmp_path / "delta")
    version = deltalake.DeltaTable(tmp_path / "delta").version() - 1
    import_into(tmp_path / "back", "orders", tmp_path / "delta", table_version=version)
    assert table(tmp_path / "back").num_rows == 1000


@pytest.mark.usefixtures("catalog")
def test_a_topic_survives_iceberg(root: Path, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    for _ in range(2):
        export(root, "shop.orders", "iceberg", file_size=10_000)
    there = load_catalog("default").load_table("shop.orders")
    rows = there.scan().to_arrow().sort_by([("partition", "ascending"), ("offset", "ascending")])
    wanted = read_table(str(root), "orders", include_headers=True).to_pylist()
    # pyiceberg reads a null list as an empty one.
    assert rows.to_pylist() == [{**row, "headers": row["headers"] or []} for row in wanted]
    assert len(there.snapshots()) > 1
    summary = there.current_snapshot().summary.additional_properties["streamlog.exported"]
    assert json.loads(summary)["orders"]["partitions"] == {"0": [500, 0], "1": [500, 0]}
    fill(tmp_path / "back", "any", 0, 0)
    for _ in range(2):
        import_into(tmp_path / "back", "orders", "shop.orders", format="iceberg")
    assert table(tmp_path / "back").equals(table(root))


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize("format", [*FILES, "delta", "iceberg"])
def test_a_second_export_writes_only_what_is_new(tmp_path: Path, format: str) -> None:
    target = "shop.orders" if format == "iceberg" else tmp_path / "there"
    fill(tmp_path / "root", "orders", 0, 50)
    first = export(tmp_path / "root", target, format)
    assert [each.records for each in first.partitions] == [50, 50]
    fill(tmp_path / "root", "orders", 50, 30)
    second = export(tmp_path / "root", target, format)
    assert [(each.start_offset, each.end_offset) for each in second.partitions] == [(50, 80)] * 2
    assert export(tmp_path / "root", target, format).written.files == 0
    import_into(tmp_path / "root", "back", target, format=format)
    assert table(tmp_path / "root", "back").equals(table(tmp_path / "root"))


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_lost_records_and_new_topics_are_errors(tmp_path: Path, format: str) -> None:
    target = "shop.orders" if format == "iceberg" else tmp_path / "there"
    root = tmp_path / "root"
    fill(root, "orders", 0, 50)
    export(root, target, format)
    fill(root, "orders", 50, 30)
    with LogManager.open(root) as manager:
        manager.delete_records("orders", 1, 60)
    with pytest.raises(DataLossError, match="orders-1 were deleted before") as error:
        export(root, target, format)
    assert error.value.offset == 50
    with LogManager.open(root) as manager:
        manager.delete_topic("orders")
    fill(root, "orders", 0, 100)
    with pytest.raises(InconsistentTopicIdError, match="created again"):
        export(root, target, format)
    with ExportSource(str(root), "orders") as source:
        there, columns = open_target(str(target), TargetOptions(format), source.partitions)
        with pytest.raises(InconsistentTopicIdError, match="created again"):
            Exporter(source, there, columns).plan()


def test_a_log_that_lost_exported_records_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fill(root, "orders", 0, 50)
    export(root, tmp_path / "there", "parquet")
    with LogManager.open(root) as manager:
        manager.log("orders", 0).truncate_to(20)
    with pytest.raises(DataLossError, match="that the log does not have"):
        export(root, tmp_path / "there", "parquet")
    with LogManager.open(root) as manager:
        log = manager.log("orders", 0)
        with log.locked():
            log.assign_leader_epoch(3)
        log.append([Record(key=None, value=b"other")] * 60)
    with pytest.raises(DataLossError, match="others in their place") as error:
        export(root, tmp_path / "there", "parquet")
    assert error.value.offset == 20


def test_columns_places_and_sizes_are_chosen(root: Path, tmp_path: Path) -> None:
    span = Span(OffsetSpec("offset", 100), OffsetSpec("offset", 300))
    options = {"columns": "offset,value", "file_size": 100}
    export(root, tmp_path / "there", "parquet", partitions=[1], span=span, **options)
    names = sorted(path.name for path in (tmp_path / "there").glob("*.parquet"))
    files = [ExportedFile.parse(name) for name in names]
    found = [(each.partition, each.first, each.last) for each in files if each]
    assert found[0][:2] == (1, 100) and found[-1][2] == 299
    assert len(files) > 3
    whole = pa.concat_tables(pq.read_table(tmp_path / "there" / name) for name in names)
    wanted = read_table(str(root), "orders", partitions=[1], columns=["value", "offset"])
    assert whole.equals(wanted.slice(100, 200))
    with pytest.raises(InvalidRequestError, match="another shape"):
        export(root, tmp_path / "there", "parquet", partitions=[1])
    for bad in ({"columns": "offset,valeu"}, {"file_size": 0}, {"format": "orc"}):
        with pytest.raises(InvalidOptionError):
            export(root, tmp_path / "other", **{"format": "parquet", **bad})
    with pytest.raises(InvalidOptionError, match="all columns"):
        export(root, tmp_path / "other", "ndjson", columns="value,offset")
    with pytest.raises(InvalidOptionError, match="single column"):
        export(root, tmp_path / "other", "csv", columns="value", encoding="hex")
    with pytest.raises(UnknownTopicError):
        export(root, tmp_path / "other", "parquet", topic="clicks")
    assert not (tmp_path / "other").exists()


def test_an_object_store_takes_files(root: Path, tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/bucket")

    def run() -> int:
        shape = FileShape.of("parquet", None)
        columns = ExportColumns(shape.columns, shape.format)
        with ExportSource(str(root), "orders") as source:
            target = FileTarget(StorePlace(store, SystemClock()), shape, columns, 2_000)
            try:
                report = Exporter(source, target, columns).run()
            finally:
                target.close()
        return report.written.files

    assert run() > 2 and run() == 0
    assert not list(store.list("_temporary/"))
    fill(tmp_path / "back", "any", 0, 0)
    import_into(tmp_path / "back", "orders", tmp_path / "bucket")
    assert table(tmp_path / "back").equals(table(root))


def test_one_export_at_a_time_and_no_file_between_is_missing(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "there", "parquet", file_size=2000)
    with ExportSource(str(root), "orders") as source:
        target, _ = open_target(str(tmp_path / "there"), TargetOptions(), source.partitions)
        target.begin({}, lambda partition, offset: -1)
        with pytest.raises(LockTimeoutError, match="export into"):
            export(root, tmp_path / "there", "parquet")
        target.close()
    names = sorted(path.name for path in (tmp_path / "there").glob("orders-0-*"))
    content = (tmp_path / "there" / names[1]).read_bytes()
    (tmp_path / "there" / names[1]).unlink()
    with pytest.raises(InvalidRequestError, match="a file is missing"):
        export(root, tmp_path / "there", "parquet")
    fill(tmp_path / "back", "any", 0, 0)
    with pytest.raises(InvalidRequestError, match="a file is missing"):
        import_into(tmp_path / "back", "orders", tmp_path / "there")
    (tmp_path / "there" / names[1]).write_bytes(content)
    (tmp_path / "there" / names[0]).unlink()  # old files may be moved away
    assert export(root, tmp_path / "there", "parquet").written.files == 0
    note = tmp_path / "there" / "_streamlog.json"
    orc = b'{"version":1,"format":"orc","encoding":"utf8","columns":["key"],"topics":{}}'
    for bad in (b"", b"[]", b"{}", orc, b"[" * 9000):
        note.write_bytes(bad)
        with pytest.raises(CorruptCheckpointError):
            export(root, tmp_path / "there", "parquet")
    note.unlink()
    with pytest.raises(InvalidRequestError, match="without the file that describes"):
        export(root, tmp_path / "there", "parquet")


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    topic = "t" * 240
    fill(tmp_path / "root", topic, 0, 10)
    with pytest.raises(InvalidTopicError, match="too long"):
        export(tmp_path / "root", tmp_path / "there", "parquet", topic=topic)


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_two_exports_at_once_write_no_record_twice(root: Path, tmp_path: Path, format: str) -> None:
    target = "shop.orders" if format == "iceberg" else tmp_path / "there"
    export(root, target, format, span=Span(end=OffsetSpec("offset", 100)))
    with ExportSource(str(root), "orders") as source:
        options = TargetOptions(format)
        slow, columns = open_target(str(target), options, source.partitions)
        there = slow.begin(source.topic_ids, source.epoch_before)
        ranges = source.ranges(Span(), there.topic_ids, there.positions)
        for part in ranges:
            for batch in columns.read(source, part):
                slow.write(part.topic_partition, batch)
        export(root, target, format)
        with pytest.raises(FencedError, match="meanwhile"):
            slow.finish()
    fill(tmp_path / "back", "any", 0, 0)
    import_into(tmp_path / "back", "orders", target, format=format)
    assert table(tmp_path / "back").equals(table(root))


def test_damage_ends_its_partition_only(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fill(root, "orders", 0, 100)
    log = next((root / "orders-0").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    report = export(root, tmp_path / "there", "parquet")
    first, second = report.partitions
    assert len(report.errors) == 1 and 0 < first.records == first.end_offset < 100
    assert second.records == 100
    again = export(root, tmp_path / "there", "parquet")
    assert [each.records for each in again.partitions] == [0, 0] and len(again.errors) == 1


def test_a_root_in_a_store_is_exported_and_imported_into(root: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "there", "parquet", file_size=2000)
    url = f"file://{tmp_path}/bucket"
    manager = BucketManager(url, create=True)
    manager.create_topic("orders", 2)
    units = import_units(str(tmp_path / "there"), ImportOptions())
    assert Importer(url, "orders", commit_bytes=20_000).run(units).rows == 1000
    assert Importer(url, "orders").run(units).rows == 0
    assert table(url).equals(table(root))
    export(url, tmp_path / "again", "csv")
    fill(tmp_path / "back", "any", 0, 0)
    import_into(tmp_path / "back", "orders", tmp_path / "again")
    assert table(tmp_path / "back").equals(table(root))
