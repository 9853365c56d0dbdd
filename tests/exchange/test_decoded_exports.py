"""Exports with decoded keys and values: typed columns, nested JSON, and what cannot be decoded."""

import json
from dataclasses import replace
from datetime import time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog

from streamlog import LogManager, Record, export_topic, read_table
from streamlog.arrow.decoding_arguments import DecodingArguments
from streamlog.decoding.as_json import json_value
from streamlog.errors import (
    FencedError,
    InvalidOptionError,
    InvalidRecordError,
    InvalidRequestError,
    RegistryError,
    UnknownSchemaError,
)
from streamlog.exchange.column_types import type_for
from streamlog.exchange.decoded_text import json_text
from streamlog.exchange.source import ExportSource
from streamlog.exchange.targets import TargetOptions, open_target
from streamlog.root.offset_specs import Span
from tests.decoding.avro_schemas import Pair, encode, pairs
from tests.decoding.test_avro_values import MANY, decode
from tests.exchange.decoded_topics import KEY, NEW, OLD, decoding, fill_decoded, write_schemas
from tests.exchange.topics import export, fill, import_into
from tests.support.cli import ok, streamlog
from tests.support.schema_registry import Registry, serve_registry

TABLES = ("delta", "iceberg")
IDS = [number for number in range(20) if number % 10 < 8]  # of values that are neither null nor bad


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill_decoded(tmp_path / "root", 0, 20)
    return tmp_path / "root"


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    return write_schemas(tmp_path / "schemas")


def rows_of(target: Path | str, format: str) -> pa.Table:
    """Return what was exported, in the order of partitions and offsets."""
    if format == "delta":
        # Not `to_pyarrow_table`: the oldest pyarrow cannot add nested fields to older files.
        query = deltalake.QueryBuilder().register("there", deltalake.DeltaTable(target))
        return pa.table(query.execute("SELECT * FROM there ORDER BY partition, offset").read_all())
    if format == "iceberg":
        found = load_catalog("default").load_table(str(target)).scan().to_arrow()
    else:
        found = pa.concat_tables(pq.read_table(each) for each in Path(target).glob("*.parquet"))
    return found.sort_by([("partition", "ascending"), ("offset", "ascending")])


def place_of(tmp_path: Path, format: str) -> Path | str:
    return "shop.orders" if format == "iceberg" else tmp_path / "there"


# ---- typed columns ---------------------------------------------------------------------------
@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize("format", ["parquet", *TABLES])
def test_values_become_typed_columns(
    root: Path, schemas: Path, tmp_path: Path, format: str
) -> None:
    target = place_of(tmp_path, format)
    report = export(root, target, format, decoding=decoding(schemas))
    assert report.undecoded == 4 and not report.errors
    for _ in range(2):
        assert "4 records cannot be decoded, the first one" in str(report.findings()[0])
    wanted = read_table(
        str(root),
        "orders",
        include_headers=True,
        value_format="avro",
        key_format="json",
        key_schema=KEY,
        schema_registry=str(schemas),
    )
    found = rows_of(target, format)
    if format == "iceberg":  # pyiceberg reads a null list as an empty one
        found = found.set_column(
            found.schema.get_field_index("headers"), "headers", wanted.column("headers")
        )
    assert found.to_pylist() == wanted.to_pylist()
    if format == "parquet":
        assert found.schema == wanted.schema
    fill_decoded(root, 20, 10)
    again = export(root, target, format, decoding=decoding(schemas))
    assert [each.records for each in again.partitions] == [10, 10]
    assert export(root, target, format, decoding=decoding(schemas)).written.files == 0
    assert rows_of(target, format).num_rows == 60


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize("format", TABLES)
def test_a_table_gets_the_fields_that_a_schema_gains(
    root: Path, schemas: Path, tmp_path: Path, format: str
) -> None:
    target = place_of(tmp_path, format)
    export(root, target, format, decoding=decoding(schemas))
    write_schemas(schemas, NEW)
    fill_decoded(root, 20, 10, schema_id=2)
    export(root, target, format, decoding=decoding(schemas))
    values = [row["value"] for row in rows_of(target, format).to_pylist() if row["value"]]
    assert len(values) == 2 * 24
    by_id = {value["id"]: (value["note"], value["at"] is None) for value in values}
    assert by_id == dict.fromkeys(IDS, (None, True)) | dict.fromkeys(range(20, 28), ("é\n", False))
    fill_decoded(root, 30, 10)  # written with the old schema, read with the new one
    export(root, target, format, decoding=decoding(schemas))
    write_schemas(schemas, OLD)
    fill_decoded(root, 40, 10)
    for schema, text in (
        ("", "field value.at, which the schema lacks"),
        ("string", "another type"),
    ):
        with pytest.raises(InvalidRequestError, match=text) as error:
            given_schemas = {"value": json.dumps(schema)} if schema else {}
            export(root, target, format, decoding=decoding(schemas, **given_schemas))
        assert str(target) in str(error.value)
    with pytest.raises(InvalidRequestError, match="other columns"):
        export(root, target, format)
    with pytest.raises(InvalidRequestError, match="another type"):
        export(
            root,
            target,
            format,
            columns="key,value,topic,partition,offset,timestamp,timestampType,headers,_error",
            decoding=only_keys(),
        )
    assert rows_of(target, format).num_rows == 80


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize("format", TABLES)
def test_two_exports_that_bring_new_fields_write_no_record_twice(
    root: Path, schemas: Path, tmp_path: Path, format: str
) -> None:
    target = place_of(tmp_path, format)
    export(root, target, format, decoding=decoding(schemas))
    write_schemas(schemas, NEW)
    fill_decoded(root, 20, 10, schema_id=2)
    with ExportSource(str(root), "orders") as source:
        options = TargetOptions(format, decoding=decoding(schemas))
        slow, columns = open_target(str(target), options, source.partitions)
        there = slow.begin(source.topic_ids, source.epoch_before)
        for part in source.ranges(Span(), there.topic_ids, there.positions):
            for batch in columns.read(source, part):
                slow.write(part.topic_partition, batch)
        export(root, target, format, decoding=decoding(schemas))
        with pytest.raises(FencedError, match="meanwhile"):
            slow.finish()
    assert rows_of(target, format).num_rows == 60


def test_a_registry_that_fails_ends_a_partition_for_now(root: Path, tmp_path: Path) -> None:
    target, registry = tmp_path / "there", Registry()
    with serve_registry(registry) as url:
        for schema in (OLD, NEW):
            registry.register("orders-value", {"schema": json.dumps(schema)})
        registry.failures = 3  # as often as a reader asks, while it reads the first partition
        report = export(root, target, "parquet", decoding=decoding(url, value=json.dumps(NEW)))
        assert [each.records for each in report.partitions] == [0, 20]
        assert isinstance(report.errors[0], RegistryError)
        # Without a schema of its own, the latest one of the subject is the same.
        report = export(root, target, "parquet", decoding=decoding(url))
    assert [each.records for each in report.partitions] == [20, 0] and not report.errors
    assert rows_of(target, "parquet").schema.field("value").type.field("note").type == pa.string()


LEAVES: Any = {
    "b": "boolean",
    "i": "int",
    "l": "long",
    "f": "float",
    "d": "double",
    "s": "string",
    "y": "bytes",
    "fixed": {"type": "fixed", "name": "F", "size": 2},
    "enum": {"type": "enum", "name": "E", "symbols": ["A", "B"]},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
    "day": {"type": "int", "logicalType": "date"},
    "millis": {"type": "int", "logicalType": "time-millis"},
    "micros": {"type": "long", "logicalType": "time-micros"},
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "nanos": {"type": "long", "logicalType": "timestamp-nanos"},
    "local": {"type": "long", "logicalType": "local-timestamp-millis"},
    "one": ["null", "long", "string"],
}
EVERY: Any = {
    "type": "record",
    "name": "Every",
    "fields": [
        *({"name": name, "type": kind} for name, kind in LEAVES.items()),
        {"name": "list", "type": {"type": "array", "items": ["null", "E"]}},
        {"name": "map", "type": {"type": "map", "values": {"type": "array", "items": "F"}}},
    ],
}
WHOLE: Any = {
    "b": True,
    "i": 1,
    "l": 2**40,
    "f": 0.5,
    "d": 0.1,
    "s": "é",
    "y": b"\xff",
    "fixed": b"ab",
    "enum": "B",
    "uuid": "6f1a2a5e-0000-4000-8000-000000000001",
    "price": Decimal("1.5"),
    "day": 3,
    "millis": 5,
    "micros": 7,
    "at": 11,
    "nanos": 13,
    "local": 17,
    "one": "x",
    "list": [None, "A"],
    "map": {"k": [b"cd"]},
}


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize("format", ["parquet", *TABLES])
def test_every_type_is_known_again(tmp_path: Path, format: str) -> None:
    target, root = place_of(tmp_path, format), tmp_path / "root"
    chosen = DecodingArguments(
        *((None, "avro"), (None, json.dumps(EVERY)), (None, None), (None, None)),
        *(None, "none", "FAILFAST"),
    )
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", 1)
        for _ in range(2):
            manager.log("orders", 0).append([Record(None, encode(EVERY, WHOLE))])
            report = export(root, target, format, decoding=chosen)
            assert [each.records for each in report.partitions] == [1]
    first, second = (row["value"] for row in rows_of(target, format).to_pylist())
    assert first == second and len(first) == len(EVERY["fields"])
    assert (first["price"], first["one"]) == (Decimal("1.5"), {"member0": None, "member1": "x"})
    millis = {"parquet": time(microsecond=5000), "delta": 5, "iceberg": time(microsecond=5000)}
    assert first["millis"] == millis[format]


def only_keys() -> DecodingArguments:
    return DecodingArguments(
        ("json", None), (KEY, None), (None, None), (None, None), None, "confluent", "PERMISSIVE"
    )


@pytest.mark.parametrize("format", ["parquet", "csv", "ndjson"])
def test_files_of_an_export_have_one_schema(
    root: Path, schemas: Path, tmp_path: Path, format: str
) -> None:
    export(root, tmp_path / "there", format, decoding=decoding(schemas))
    fill_decoded(root, 20, 10, schema_id=2)
    write_schemas(schemas, NEW)
    with pytest.raises(InvalidRequestError, match="another shape") as error:
        export(root, tmp_path / "there", format, decoding=decoding(schemas))
    assert "struct<note: string, id: int64" in str(error.value)
    with pytest.raises(InvalidRequestError, match="another shape"):
        export(root, tmp_path / "there", format)
    same = decoding(schemas, value=json.dumps(OLD))
    report = export(root, tmp_path / "there", format, decoding=same)
    assert [each.records for each in report.partitions] == [10, 10]


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_columns_are_chosen(root: Path, schemas: Path, tmp_path: Path, format: str) -> None:
    target = tmp_path / "there"
    report = export(
        root, target, format, columns="value,partition,offset", decoding=decoding(schemas)
    )
    found = rows_of(target, format)
    assert found.schema.names == ["value", "partition", "offset"]
    assert report.undecoded == 4  # counted all the same
    report = export(
        root,
        tmp_path / "2",
        format,
        columns="key,partition,offset,_error",
        decoding=decoding(schemas),
    )
    errors = rows_of(tmp_path / "2", format).column("_error").to_pylist()
    assert [each and each["field"] for each in errors[:10]] == [None] * 9 + ["value"]


# ---- text ------------------------------------------------------------------------------------
def test_ndjson_is_what_cat_prints(root: Path, schemas: Path, tmp_path: Path) -> None:
    flags = ("-s", "value=avro", "-s", "key=json", "-r", schemas, "--key-schema", KEY)
    flags += ("--value-schema", json.dumps(NEW))
    fill_decoded(root, 20, 10, schema_id=2)
    for encoding in ("utf8", "hex"):
        place = tmp_path / encoding
        export_flags = ("--format", "ndjson", "--encoding", encoding, *flags)
        ran = streamlog("--path", root, "export", "orders", place, *export_flags)
        assert ran.code == 1 and "6 records cannot be decoded" in ran.error
        whole = b"".join(path.read_bytes() for path in sorted(place.glob("*.ndjson")))
        printed = streamlog("--path", root, "cat", "orders", "--encoding", encoding, *flags)
        assert whole == printed.out
        assert ok("--path", root, "export", "orders", place, *export_flags).rows[0]["count"] == 0


def test_json_of_any_form_needs_no_schema_in_text(tmp_path: Path) -> None:
    root = tmp_path / "root"
    values = [
        b'{"a": [1, 2.50, null, {"b": "\\u00e9\\u2028"}]}',
        b" null ",
        None,
        b'"text, with a \\"quote\\""',
        b"no JSON",
        b"1",
        b'{"\\ud800": 1}',  # half of a pair: there is no UTF-8 for it
        b"[" * 3000 + b"]" * 3000,
        b"[" * 400 + b"]" * 400,
        b"\0\0\0\0\7" + b'{"framed": true}',
    ]
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", 1)
        manager.log("orders", 0).append([Record(b"7", value, timestamp=5) for value in values])
    flags = ("-s", "json", "--format", "ndjson")
    ran = streamlog("--path", root, "export", "orders", tmp_path / "there", *flags)
    assert ran.code == 1 and "3 records cannot be decoded" in ran.error
    (path,) = (tmp_path / "there").glob("*.ndjson")
    assert path.read_bytes() == streamlog("--path", root, "cat", "orders", *flags).out
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows[0]["value"] == {"a": [1, 2.5, None, {"b": "é\u2028"}]}
    assert [row["key"] for row in rows] == [7] * len(values)
    assert rows[9]["value"] == {"framed": True}
    chosen = DecodingArguments(
        (None, "json"), (None, None), (None, None), (None, None), None, "confluent", "PERMISSIVE"
    )
    export(root, tmp_path / "csv", "csv", columns="value,offset", decoding=chosen)
    (path,) = (tmp_path / "csv").glob("*.csv")
    lines = path.read_text().splitlines()
    assert lines[2:6] == ['"null",1', ",2", '"""text, with a \\""quote\\""""",3', ",4"]
    with pytest.raises(InvalidRequestError, match="another shape"):
        typed = replace(chosen, schemas=(None, "a INT"))
        export(root, tmp_path / "csv", "csv", columns="value,offset", decoding=typed)
    with pytest.raises(InvalidOptionError, match="JSON needs a schema"):
        export(root, tmp_path / "parquet", "parquet", decoding=chosen)


@MANY
@given(st.data(), pairs())
def test_json_of_columns_is_json_of_values(data: st.DataObject, pair: Pair) -> None:
    values = data.draw(st.lists(pair.values, min_size=1, max_size=6))
    decoded = decode(
        pair.writer, pair.reader, [*(encode(pair.writer, each) for each in values), None]
    )
    for cut in (0, 1):
        column = decoded.values.slice(cut)
        found = [json.loads(text) for text in json_text(column).to_pylist()]
        wanted = [json_value(each, column.type) for each in column.to_pylist()]
        assert json.dumps(found) == json.dumps(wanted)  # 1 is not 1.0, and NaN is NaN


def test_json_of_what_avro_does_not_have() -> None:
    kind = pa.struct([("took", pa.duration("us")), ("by", pa.map_(pa.int64(), pa.decimal128(20)))])
    by_bool = pa.map_(pa.bool_(), pa.float32())
    for values, of in (
        ([{"took": timedelta(milliseconds=1500), "by": [(-7, Decimal(2**64 - 1))]}, None], kind),
        ([[(True, 0.1), (False, float("nan"))], [], None], by_bool),
        ([{}, None], pa.struct([])),
    ):
        column = pa.array(values, of)
        found = [json.loads(text) for text in json_text(column).to_pylist()]
        assert found == [json_value(each, of) for each in column.to_pylist()]


def test_csv_has_json_in_cells(root: Path, schemas: Path, tmp_path: Path) -> None:
    export(root, tmp_path / "there", "csv", partitions=[0], decoding=decoding(schemas))
    (path,) = (tmp_path / "there").glob("*.csv")
    options = pa_csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    found = pa_csv.read_csv(
        path,
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=options,
    )
    assert found.schema.names == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
        *("headers", "_error"),
    ]
    rows = found.to_pylist()
    assert json.loads(rows[2]["value"]) == {"id": 2, "tags": ["a", 'quote "']}
    assert json.loads(rows[2]["key"]) == {"k": "2"}
    assert rows[7]["key"] is None and rows[8]["value"] is None and rows[8]["_error"] is None
    error = json.loads(rows[9]["_error"])
    assert (error["field"], error["value"]) == ("value", "/zk=")
    with pytest.raises(InvalidOptionError, match="single column"):
        export(root, tmp_path / "2", "csv", columns="value", decoding=decoding(schemas))


def test_scalars_are_cells_without_quotes(tmp_path: Path) -> None:
    with LogManager.open(tmp_path / "root", create=True) as manager:
        manager.create_topic("orders", 1)
        for key, value in (('a,"b"', 5), ("", -7)):
            stored = Record(key=encode("string", key), value=encode("long", value))
            manager.log("orders", 0).append([stored])
    scalars = DecodingArguments(
        formats=("avro", "avro"),
        schemas=('"string"', '"long"'),
        subjects=(None, None),
        messages=(None, None),
        registry=None,
        framing="none",
        mode="FAILFAST",
    )
    chosen = {"columns": "key,value,_error", "decoding": scalars}
    export(tmp_path / "root", tmp_path / "there", "csv", **chosen)
    (path,) = (tmp_path / "there").glob("*.csv")
    assert path.read_text() == '"key","value","_error"\n"a,""b""",5,\n"",-7,\n'
    export(tmp_path / "root", tmp_path / "lines", "ndjson", decoding=scalars)
    (path,) = (tmp_path / "lines").glob("*.ndjson")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [('a,"b"', 5), ("", -7)]


# ---- what cannot be decoded, or stored -------------------------------------------------------
def test_failfast_ends_a_partition_before_the_record(
    root: Path, schemas: Path, tmp_path: Path
) -> None:
    target = tmp_path / "there"
    for _ in range(2):
        report = export(root, target, "delta", decoding=decoding(schemas, "FAILFAST"))
        assert [each.end_offset for each in report.partitions] == [9, 9]
        assert [error.offset for error in report.errors] == [9, 9]
        assert "no header of a schema registry" in str(report.errors[0])
    assert rows_of(target, "delta").num_rows == 18
    report = export(root, target, "delta", decoding=decoding(schemas))
    assert [each.records for each in report.partitions] == [11, 11]


def test_a_missing_schema_is_an_error_before_anything_is_written(
    root: Path, schemas: Path, tmp_path: Path
) -> None:
    (schemas / "orders-value.avsc").unlink()
    with pytest.raises(UnknownSchemaError, match="orders-value"):
        export(root, tmp_path / "there", "parquet", decoding=decoding(schemas))
    fill(root, "clicks", 0, 0)
    with pytest.raises(InvalidOptionError, match="subject of values is unknown"):
        export(root, tmp_path / "there", "parquet", topic=None, decoding=decoding(schemas))
    assert not (tmp_path / "there").exists()


ODD = pa.struct(
    [
        ("day", pa.time32("ms")),
        ("at", pa.list_(pa.timestamp("ns", tz="UTC"))),
        ("took", pa.map_(pa.string(), pa.duration("us"))),
    ]
)


def test_tables_hold_times_as_they_can() -> None:
    assert type_for(ODD, "parquet", "value") == ODD
    assert type_for(ODD, "delta", "value").field("day").type == pa.int32()
    found = type_for(ODD, "iceberg", "value")
    assert [each.type for each in found] == [
        pa.time64("us"),
        pa.list_(pa.timestamp("us", tz="UTC")),
        pa.map_(pa.string(), pa.int64()),
    ]
    pa.nulls(2, ODD).cast(found)
    for kind, format in (
        (pa.decimal256(50, 2), "delta"),
        (pa.null(), "iceberg"),
        (pa.struct([]), "parquet"),
    ):
        with pytest.raises(InvalidOptionError, match=r"column value\.x\.element") as error:
            type_for(pa.struct([("x", pa.list_(kind))]), format, "value")
        assert "--format ndjson" in str(error.value)
        type_for(pa.struct([("x", pa.list_(kind))]), "ndjson", "value")


def test_decoded_values_cannot_be_imported(root: Path, schemas: Path, tmp_path: Path) -> None:
    for format in ("parquet", "csv", "ndjson", "delta"):
        target = tmp_path / format
        export(root, target, format, decoding=decoding(schemas))
        with pytest.raises(InvalidRequestError):
            import_into(root, "back", target, format=format)
    assert read_table(str(root), "back").num_rows == 0


def test_the_function_takes_the_arguments_of_read_table(
    root: Path, schemas: Path, tmp_path: Path
) -> None:
    arguments = {"value_format": "avro", "schema_registry": str(schemas)}
    target = tmp_path / "there"
    names = ["value", "partition", "offset"]
    report = export_topic(str(root), "orders", target, columns=names, **arguments)
    assert report.undecoded == 4 and report.written.files == 2
    wanted = read_table(str(root), "orders", columns=names, **arguments)
    assert rows_of(target, "parquet").to_pylist() == wanted.to_pylist()
    with pytest.raises(InvalidRecordError, match="cannot be decoded") as error:
        export_topic(str(root), "orders", tmp_path / "2", **arguments, mode="FAILFAST")
    assert error.value.offset == 9
    with pytest.raises(InvalidOptionError, match="requires value_format"):
        export_topic(str(root), "orders", target, value_schema="id INT")
