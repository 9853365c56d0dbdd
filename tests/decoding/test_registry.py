"""Topics that Confluent's serializers wrote, decoded with schemas of a registry over HTTP."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema as RegistrySchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from streamlog.arrow.tables import read_arrow, read_table
from streamlog.decoding.as_json import FieldDecoder
from streamlog.decoding.decoder import DecoderSpec, Format, open_decoder
from streamlog.decoding.protobuf_schema import parse_protobuf
from streamlog.decoding.registry import SchemaRegistry
from streamlog.decoding.schema_text import SchemaText
from streamlog.errors import (
    InvalidOptionError,
    InvalidRecordError,
    InvalidRequestError,
    RegistryError,
    UnknownSchemaError,
)
from streamlog.gateway import serve
from streamlog.root.manager import LogManager
from tests.support.schema_registry import Registry, any_registry, serve_registry

ORDER: Any = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
PROTO = """syntax = "proto3";
package shop;
message First { int32 x = 1; }
message Order { int64 id = 1; repeated string tags = 2; }
"""


@pytest.fixture
def url() -> Iterator[str]:
    with any_registry() as found:
        yield found


@pytest.fixture
def topic() -> str:
    """A name of its own: a real registry keeps its subjects."""
    return f"orders-{uuid.uuid4().hex}"


def avro(client: SchemaRegistryClient, topic: str, schema: Any, rows: list[Any]) -> list[bytes]:
    serialize = AvroSerializer(client, json.dumps(schema))
    context = SerializationContext(topic, MessageField.VALUE)
    found = [serialize(row, context) for row in rows]
    return [each for each in found if each is not None]


def produce(root: Path, topic: str, values: list[bytes]) -> None:
    """Write records with Confluent's client, through a served root."""
    with LogManager.open(str(root), create=True) as manager:
        manager.create_topic(topic, 1)
    errors: list[object] = []
    with serve(root) as gateway:
        producer = Producer({"bootstrap.servers": gateway.bootstrap_servers})
        for value in values:
            producer.produce(topic, value=value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(30) == 0
    assert errors == [None] * len(values)


def test_avro_of_confluents_client_is_read_as_columns(
    tmp_path: Path, url: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two versions of a schema, and two records that are no Avro, through a served root."""
    client = SchemaRegistryClient({"url": url})
    rows = [{"id": n, "at": 1700000000000 + n, "note": None} for n in range(3)]
    values = avro(client, topic, ORDER, rows)
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "x", "type": "int", "default": 7}]}
    values += avro(client, topic, newer, [{"id": 9, "at": 0, "note": "n", "x": 1}])
    bad = [b"plain text", values[0][:-1], b"\0\x7f\xff\xff\xff" + values[0][5:]]
    produce(tmp_path / "root", topic, [*values, *bad])
    options: Any = {"value_format": "avro", "schema_registry": url, "columns": None}
    table = read_table(str(tmp_path / "root"), topic, **options)
    found = table.to_pylist()
    assert table.schema.names[-1] == "_error"
    assert [row["value"] and row["value"]["x"] for row in found] == [7, 7, 7, 1, None, None, None]
    assert [row["value"]["id"] for row in found[:4]] == [0, 1, 2, 9]
    assert str(table.schema.field("value").type[1].type) == "timestamp[us, tz=UTC]"
    errors = table.column("_error").to_pylist()
    assert errors[:4] == [None] * 4
    assert [error["value"] for error in errors[4:]] == bad
    assert [error["schemaId"] for error in errors[4:]][::2] == [None, 0x7FFFFFFF]
    assert "unknown schema id 2147483647" in errors[6]["message"]
    batches = list(read_arrow(str(tmp_path / "root"), topic, **options))
    assert pa.Table.from_batches(batches).column("value").to_pylist() == [
        row["value"] for row in found
    ]
    with pytest.raises(InvalidRecordError, match="no header"):
        read_table(str(tmp_path / "root"), topic, mode="FAILFAST", **options)
    assert caplog.text == "" or "127.0.0.1" not in caplog.text


def test_protobuf_of_confluents_client_is_read_as_columns(
    tmp_path: Path, url: str, topic: str
) -> None:
    kind = message_factory.GetMessageClass(parse_protobuf(SchemaText(PROTO)).message("shop.Order"))
    client = SchemaRegistryClient({"url": url})
    serialize = ProtobufSerializer(kind, client)
    context = SerializationContext(topic, MessageField.VALUE)
    values = [serialize(kind(id=n, tags=["a"] * n), context) for n in range(3)]
    assert values[1][5:7] == b"\2\2"  # the second message of the file
    produce(tmp_path / "root", topic, values)
    table = read_table(
        str(tmp_path / "root"),
        topic,
        value_format="protobuf",
        schema_registry=url,
        value_message="shop.Order",
    )
    assert table.column("value").to_pylist() == [{"id": n, "tags": ["a"] * n} for n in range(3)]
    assert table.column("_error").null_count == 3


def test_references_are_resolved(url: str, topic: str) -> None:
    client = SchemaRegistryClient({"url": url})
    inner = {"type": "record", "name": "a.Inner", "fields": [{"name": "x", "type": "int"}]}
    outer = {"type": "record", "name": "a.Outer", "fields": [{"name": "i", "type": "a.Inner"}]}
    client.register_schema(f"{topic}-inner", RegistrySchema(json.dumps(inner), "AVRO"))
    reference = SchemaReference("a.Inner", f"{topic}-inner", 1)
    schema = RegistrySchema(json.dumps(outer), "AVRO", [reference])
    number = client.register_schema(f"{topic}-value", schema)
    spec = DecoderSpec(format=Format.AVRO, registry=url, subject=f"{topic}-value")
    decoder = open_decoder(spec.resolve())
    header = b"\0" + number.to_bytes(4, "big")
    assert decoder.decode(pa.array([header + b"\4"])).values.to_pylist() == [{"i": {"x": 2}}]

    part = 'syntax = "proto3"; package l; message Part { int32 x = 1; }'
    whole = 'syntax = "proto3"; import "l/part.proto"; message Whole { l.Part part = 1; }'
    client.register_schema(f"{topic}-part", RegistrySchema(part, "PROTOBUF"))
    reference = SchemaReference("l/part.proto", f"{topic}-part", 1)
    client.register_schema(f"{topic}-whole", RegistrySchema(whole, "PROTOBUF", [reference]))
    spec = DecoderSpec(format=Format.PROTOBUF, registry=url, subject=f"{topic}-whole")
    assert str(open_decoder(spec.resolve()).arrow_type) == "struct<part: struct<x: int32>>"


def test_credentials_come_from_the_environment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(user_info="me:secret")
    registry.register("s", {"schema": '"int"'})
    with serve_registry(registry) as url:
        with pytest.raises(InvalidRequestError, match="refuses") as refused:
            SchemaRegistry(url).latest("s")
        assert "BASIC_AUTH_USER_INFO" in str(refused.value)
        monkeypatch.setenv("SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO", "me:secret")
        assert SchemaRegistry(url).latest("s").text == '"int"'
        with pytest.raises(InvalidOptionError, match="credentials") as named:
            SchemaRegistry(url.replace("//", "//me:secret@"))
        assert "secret" not in str(named.value)


def test_a_registry_that_fails_is_no_error_of_the_records(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry()
    number = registry.register("s", {"schema": '"int"'})
    values = pa.array([b"\0" + number.to_bytes(4, "big") + b"\2"])
    with serve_registry(registry) as url:
        registry.failures = 1  # the request is repeated
        spec = DecoderSpec(format=Format.AVRO, registry=url, subject="s").resolve()
        decoder = open_decoder(spec)
        registry.failures = 99
        with pytest.raises(RegistryError, match="503"):
            decoder.decode(values)
        registry.failures = 0
        assert decoder.decode(values).values.to_pylist() == [1]
        count = len(registry.requests)
        assert open_decoder(spec).decode(values).values.to_pylist() == [1]
        assert len(registry.requests) == count  # a schema is fetched once per process
        many = pa.array([b"\0" + n.to_bytes(4, "big") for n in range(1000, 2000)])
        assert decoder.decode(many).errors.null_count == 0
        assert len(registry.requests) == count + 100
        shown = FieldDecoder(
            kind=Format.AVRO, registry=url, schema=None, message=None, is_framed=True
        )
        _, errors = shown.decode(many)
        assert "not asked for after 100" in str(errors[-1])
        assert len(registry.requests) == count + 200
        with pytest.raises(UnknownSchemaError):
            SchemaRegistry(url).latest("none")
    with pytest.raises(RegistryError, match="cannot be reached"):
        SchemaRegistry("http://127.0.0.1:1").latest("s")
