"""`streamlog cat --decode`: values as JSON, and what becomes of those that are not."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from streamlog.records.record import Record
from streamlog.root.manager import LogManager
from tests.decoding.avro_schemas import encode
from tests.support.cli import streamlog

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
ORDER: Any = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": ["null", "bytes"]},
        {"name": "x", "type": "double"},
        {"name": "m", "type": {"type": "map", "values": "int"}},
    ],
}
OLD = {**ORDER, "fields": ORDER["fields"][:1]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """`orders`: two versions of Avro values with keys as JSON, and a value that is none."""
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "1.avsc").write_text(json.dumps(OLD))
    (schemas / "2.avsc").write_text(json.dumps(ORDER))
    row = {
        "id": 2,
        "price": Decimal("1.50"),
        "at": 1000,
        "raw": b"\xff",
        "x": float("inf"),
        "m": {"k": 1},
    }
    values = [
        b"\0\0\0\0\1" + encode(OLD, {"id": 1}),
        b"\0\0\0\0\2" + encode(ORDER, row),
        None,
        b"plain",
        b"\0\0\0\0\3\2",
    ]
    root = tmp_path / "root"
    with LogManager.open(root, create=True) as manager:
        manager.create_topic("orders", 1)
        records = [Record(key=b'{"k": 1.5}', value=value, timestamp=1) for value in values]
        manager.log("orders", 0).append(records)
    return root


def test_values_are_nested_and_bad_ones_have_an_error(root: Path) -> None:
    schemas = root.parent / "schemas"
    ran = streamlog(
        *("--path", root, "cat", "orders", "-s", "value=avro", "-s", "key=json", "-r", schemas)
    )
    assert ran.code == 1
    assert "2 records cannot be decoded" in ran.error
    assert [row["key"] for row in ran.rows] == [{"k": 1.5}] * 5
    assert [row["value"] for row in ran.rows] == [
        {"id": 1},
        {
            "id": 2,
            "price": "1.50",
            "at": "1970-01-01T00:00:01Z",
            "raw": "/w==",
            "x": "Infinity",
            "m": {"k": 1},
        },
        None,
        "plain",
        "\0\0\0\0\3\2",
    ]
    errors = [row.get("error") for row in ran.rows]
    assert errors[:3] == [None] * 3
    assert "no header" in errors[3]
    assert errors[4] == f"unknown schema id 3 in {schemas}"
    assert list(ran.rows[1])[-1] == "headers"
    assert list(ran.rows[3])[-1] == "error"


def test_a_readers_schema_and_a_format_string(root: Path) -> None:
    schemas = root.parent / "schemas"
    (schemas / "reader.avsc").write_text(json.dumps(OLD))
    ran = streamlog(
        *("--path", root, "cat", "orders", "-o", "0..4", "--decode", "value=avro"),
        *("--schema-registry", schemas, "--value-schema", f"@{schemas}/reader.avsc"),
        *("--output-format", r"%o %k %s\n"),
    )
    assert ran.out.decode().splitlines() == [
        '0 {"k": 1.5} {"id":1}',
        '1 {"k": 1.5} {"id":2}',
        '2 {"k": 1.5} ',
        '3 {"k": 1.5} plain',
    ]
    assert ran.code == 1
    table = streamlog("--path", root, "cat", "orders", "-s", "json", "--format", "table", "-c", 1)
    assert '{"k":1.5}' in table.out.decode()


@pytest.mark.parametrize(
    ("kind", "logical", "value"),
    [("long", "timestamp-micros", 10**18), ("int", "date", -(2**31)), ("int", "date", 2**30)],
)
def test_a_time_beyond_the_calendar_is_an_error_of_its_record(
    tmp_path: Path, kind: str, logical: str, value: int
) -> None:
    def record(of: Any) -> Any:
        return {"type": "record", "name": "R", "fields": [{"name": "x", "type": of}]}

    with LogManager.open(tmp_path / "root", create=True) as manager:
        manager.create_topic("times", 1)
        for number in (value, 0):
            encoded = encode(record(kind), {"x": number})
            manager.log("times", 0).append([Record(None, encoded)])
    schema = json.dumps(record({"type": kind, "logicalType": logical}))
    flags = ("-s", "value=avro", "--value-schema", schema, "--schema-framing", "none")
    ran = streamlog("--path", tmp_path / "root", "cat", "times", *flags)
    assert ran.code == 1 and "internal error" not in ran.error
    assert "a time cannot be shown" in ran.rows[0]["error"]
    assert ran.rows[1]["value"]["x"].startswith("1970-01-01")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("-s", "value=xml"), "json, avro, protobuf"),
        (("-s", "header=avro"), "neither key nor value"),
        (("-s", "avro", "-s", "key=json"), "twice"),
        (("-s", "value=avro"), "needs a schema"),
        (("-r", "schemas"), "requires --decode"),
        (("-s", "value=avro", "--value-schema", "{"), "invalid Avro schema"),
        (("-s", "value=avro", "-r", "/no/such/directory"), "no such directory"),
    ],
)
def test_usage_errors(root: Path, options: tuple[str, ...], expected: str) -> None:
    ran = streamlog("--path", root, "cat", "orders", *options)
    assert ran.code == 2
    assert expected in ran.error
