"""Topics of Confluent's serializers that put the schema's GUID into a header, through all readers.

Real registries of Apicurio have no GUIDs, so the one in memory answers here.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from streamlog.arrow.tables import read_arrow, read_table
from streamlog.decoding.as_json import FieldDecoder
from streamlog.decoding.decoder import DecoderSpec, Format, open_decoder
from streamlog.decoding.protobuf_schema import parse_protobuf
from streamlog.decoding.schema_text import SchemaText
from streamlog.errors import InvalidRecordError
from streamlog.gateway import serve
from streamlog.root.manager import LogManager
from tests.support.cli import streamlog
from tests.support.schema_registry import Registry, serve_registry

KEY: Any = {"type": "record", "name": "K", "fields": [{"name": "k", "type": "string"}]}
VALUE: Any = {"type": "record", "name": "V", "fields": [{"name": "id", "type": "long"}]}
NEWER: Any = {**VALUE, "fields": [*VALUE["fields"], {"name": "x", "type": "int", "default": 7}]}
PROTO = """syntax = "proto3";
package shop;
message First { int32 x = 1; }
message Order { int64 id = 1; }
"""
IN_HEADER = {"schema.id.serializer": header_schema_id_serializer}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


class Mixed(NamedTuple):
    """A root with a topic of both framings, and where its schemas are."""

    root: Path
    registry: Registry
    url: str
    records: list[Record]


def produce(root: Path, topic: str, records: list[Record]) -> None:
    with LogManager.open(str(root), create=True) as manager:
        manager.create_topic(topic, 1)
    with serve(root) as gateway:
        producer = Producer({"bootstrap.servers": gateway.bootstrap_servers})
        for key, value, headers in records:
            producer.produce(topic, key=key, value=value, headers=headers)
        assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    """Two versions of values, with ids in front of them and in headers, and keys of both kinds."""
    root = tmp_path_factory.mktemp("mixed") / "root"
    registry = Registry()
    with serve_registry(registry) as url:
        client = SchemaRegistryClient({"url": url})
        records = []
        for number in range(8):
            schema = NEWER if number >= 4 else VALUE
            headers: list[tuple[str, bytes]] = [("trace", b"t")]
            confs: tuple[Any, Any] = (
                IN_HEADER if number % 2 else {},
                IN_HEADER if number in (1, 2, 5, 6) else {},
            )
            row = {"id": number, **({"x": 1} if schema is NEWER else {})}
            encoded = [
                AvroSerializer(client, json.dumps(each), conf=conf)(
                    of, SerializationContext("orders", field, headers)
                )
                for each, conf, of, field in (
                    (KEY, confs[0], {"k": f"k{number}"}, MessageField.KEY),
                    (schema, confs[1], row, MessageField.VALUE),
                )
            ]
            records.append(Record(encoded[0], encoded[1], headers))
        produce(root, "orders", records)
        yield Mixed(root, registry, url, records)


def directory_of(registry: Registry, path: Path) -> str:
    """Return a directory with the schemas of a registry, by id, GUID and subject."""
    for number, (schema, guid) in enumerate(zip(registry.schemas, registry.guids, strict=True)):
        for name in (str(number + 1), guid):
            (path / f"{name}.avsc").write_text(schema["schema"])
    for subject, ids in registry.subjects.items():
        (path / f"{subject}.avsc").write_text(registry.schemas[ids[-1] - 1]["schema"])
    return str(path)


@pytest.mark.parametrize("of_directory", [False, True])
def test_a_topic_of_both_framings_is_read_as_columns(
    mixed: Mixed, tmp_path: Path, of_directory: bool
) -> None:
    names = [sorted(name for name, _ in each.headers) for each in mixed.records]
    assert names[1] == ["__key_schema_id", "__value_schema_id", "trace"]
    assert names[4] == ["trace"]
    place = directory_of(mixed.registry, tmp_path) if of_directory else mixed.url
    options: Any = {"key_format": "avro", "value_format": "avro", "schema_registry": place}
    table = read_table(str(mixed.root), "orders", **options)
    assert table.column("_error").null_count == 8, table.column("_error")
    assert "headers" not in table.schema.names
    assert table.column("key").to_pylist() == [{"k": f"k{number}"} for number in range(8)]
    assert table.column("value").to_pylist() == [
        {"id": number, "x": 1 if number >= 4 else 7} for number in range(8)
    ]
    batches = read_arrow(
        str(mixed.root), "orders", columns=["value"], include_headers=True, **options
    )
    found = pa.Table.from_batches(batches)
    assert found.schema.names == ["value", "headers"]
    assert found.column("value").to_pylist() == table.column("value").to_pylist()
    assert [len(each) for each in found.column("headers").to_pylist()] == [*map(len, names)]


def test_the_command_line_shows_both_framings(mixed: Mixed) -> None:
    cat = ("--path", mixed.root, "cat", "orders", "-s", "avro", "-r", mixed.url)
    ran = streamlog(*cat)
    assert ran.code == 0, ran.error
    assert [row["key"]["k"] for row in ran.rows] == [f"k{number}" for number in range(8)]
    assert [row["value"].get("x") for row in ran.rows] == [None] * 4 + [1] * 4
    ran = streamlog(*cat, "--output-format", "%k %s;", "-o", "1..3")
    assert ran.out == b'{"k":"k1"} {"id":1};{"k":"k2"} {"id":2};'


def test_protobuf_has_its_indexes_in_the_header(tmp_path: Path) -> None:
    kind = message_factory.GetMessageClass(parse_protobuf(SchemaText(PROTO)).message("shop.Order"))
    first = message_factory.GetMessageClass(parse_protobuf(SchemaText(PROTO)).message("shop.First"))
    registry = Registry()
    with serve_registry(registry) as url:
        client = SchemaRegistryClient({"url": url})
        records = []
        for number, conf in enumerate(({}, IN_HEADER, IN_HEADER)):
            headers: list[tuple[str, bytes]] = []
            message = first(x=1) if number == 2 else kind(id=number)
            serialize = ProtobufSerializer(type(message), client, conf)
            context = SerializationContext("p", MessageField.VALUE, headers)
            records.append(Record(None, serialize(message, context), headers))
        assert [len(value) for _, value in records[1].headers] == [19]
        bad = [("__value_schema_id", value[:-1]) for _, value in records[1].headers]
        produce(tmp_path / "root", "p", [*records, Record(None, b"", bad)])
        table = read_table(
            str(tmp_path / "root"),
            "p",
            value_format="protobuf",
            schema_registry=url,
            value_message="shop.Order",
        )
    assert table.column("value").to_pylist() == [{"id": 0}, {"id": 1}, None, None]
    errors = [error and error["message"] for error in table.column("_error").to_pylist()]
    assert errors[:3] == [None, None, "message shop.First, expected shop.Order"]
    assert "cut off" in errors[3]


def test_hostile_headers_are_errors_of_their_records(tmp_path: Path) -> None:
    guid = "00000000-0000-0000-0000-0000000000ff"
    known, name = b"\1" + bytes.fromhex(guid.replace("-", "")), "__value_schema_id"
    (tmp_path / f"{guid}.avsc").write_text('"int"')
    (tmp_path / "7.avsc").write_text('"int"')
    spec = DecoderSpec(format=Format.AVRO, registry=str(tmp_path), schema='"int"')
    cases: list[tuple[list[tuple[str, bytes | None]], bytes | None, Any, str | None]] = [
        ([(name, known)], b"\2", 1, None),
        ([(name, b"\0\0\0\0\7")], b"\2", 1, None),
        ([(name, None)], b"\0\0\0\0\7\2", 1, None),
        ([("__key_schema_id", known)], b"\0\0\0\0\7\2", 1, None),
        ([(name, b"\1" + bytes(16)), (name, known)], b"\2", 1, None),  # the last one counts
        ([(name, known), (name, b"")], b"\2", None, "no schema id in the header"),
        ([(name, known[:-1])], b"\2", None, "no schema id in the header"),
        ([(name, b"\2" + known[1:])], b"\2", None, "no schema id in the header"),
        ([(name, b"\1" + bytes(16))], b"\2", None, f"unknown schema GUID {guid[:-2]}00"),
        ([(name, known)], b"\0\0\0\0\7\2", None, "left over"),
        ([(name, known)], None, None, None),
        ([], b"\2", None, "no header"),
    ]
    values = pa.array([value for _, value, _, _ in cases], pa.binary())
    headers = pa.array(
        [[{"key": key, "value": each} for key, each in pairs] for pairs, *_ in cases], HEADERS
    )
    decoded = open_decoder(spec.resolve()).decode(values, headers)
    shown, reasons = FieldDecoder(
        kind=Format.AVRO, registry=str(tmp_path), schema=None, message=None, is_framed=True
    ).decode(values, headers)
    assert decoded.values.to_pylist() == [expected for *_, expected, _ in cases] == shown
    for error, other, (*_, reason) in zip(decoded.errors.to_pylist(), reasons, cases, strict=True):
        assert (error is None) == (other is None) == (reason is None)
        assert reason is None or (reason in error and reason in other)
    assert decoded.schema_ids.to_pylist() == [None, 7, 7, 7, *[None] * 8]


def test_failing_fast_names_the_guid(mixed: Mixed, tmp_path: Path) -> None:
    schemas = directory_of(mixed.registry, tmp_path)
    for guid in mixed.registry.guids:
        (tmp_path / f"{guid}.avsc").unlink()
    with pytest.raises(InvalidRecordError, match="unknown schema GUID"):
        read_table(
            str(mixed.root), "orders", value_format="avro", schema_registry=schemas, mode="FAILFAST"
        )
