"""Decoding of values beside the libraries that decode one value a call, and polars on one block.

The message has five fields: two numbers, a text, a boolean that may be null, a list of texts. The
peers return Python objects, ours Arrow columns. polars, where it is installed, gets all values of
a schema glued into one container file, which takes no schema id, and fails for all if one is bad.
"""

import contextlib
import io
import json
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf import message_factory

from streamlog.decoding.decoder import DecoderSpec, Format, open_decoder
from streamlog.decoding.protobuf_schema import parse_protobuf
from streamlog.decoding.schema_text import SchemaText
from tests.programs.performance.comparison import Comparison, interleaved

ROWS = 50_000
ROUNDS = 5
DDL = "id BIGINT, customer STRING, amount DOUBLE, is_open BOOLEAN, tags ARRAY<STRING>"
AVRO: Any = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "is_open", "type": ["null", "boolean"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
PROTO = """syntax = "proto3";
message Order {
  int64 id = 1;
  string customer = 2;
  double amount = 3;
  optional bool is_open = 4;
  repeated string tags = 5;
}
"""
SYNC = bytes(16)


def compare() -> Iterator[Comparison]:
    rows = [
        {
            "id": number * 1000,
            "customer": f"customer {number % 500}",
            "amount": number * 1.25,
            "is_open": (True, False, None)[number % 3],
            "tags": ["new", "paid"][: number % 3],
        }
        for number in range(ROWS)
    ]
    yield from avro(rows)
    yield from protobuf(rows)
    yield from as_json(rows)


def avro(rows: list[Any]) -> Iterator[Comparison]:
    parsed = fastavro.parse_schema(AVRO)
    values = [encoded(parsed, row) for row in rows]
    decode = decoder(Format.AVRO, json.dumps(AVRO), values)
    one_by_one = [io.BytesIO(value) for value in values]

    def with_fastavro() -> None:
        for value in one_by_one:
            value.seek(0)
            fastavro.schemaless_reader(value, parsed, None)

    yield beside("decode.avro", decode, with_fastavro, "fastavro, one call a value")
    try:
        import polars
    except ImportError:
        return
    yield beside(
        "decode.avro.block",
        decode,
        lambda: polars.read_avro(io.BytesIO(glued(parsed, values))),
        "polars.read_avro, one block",
    )


def encoded(schema: Any, row: Any) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, schema, row)
    return target.getvalue()


def glued(schema: Any, values: list[bytes]) -> bytes:
    """Return values as one Avro container file with one block."""
    target = io.BytesIO()
    fastavro.writer(target, schema, [], sync_marker=SYNC)
    data = b"".join(values)
    return target.getvalue() + varint(len(values)) + varint(len(data)) + data + SYNC


def varint(number: int) -> bytes:
    return encoded("long", number)


def protobuf(rows: list[Any]) -> Iterator[Comparison]:
    kind = message_factory.GetMessageClass(parse_protobuf(SchemaText(PROTO)).message("Order"))
    values = [kind(**row).SerializeToString() for row in rows]

    def with_google() -> None:
        for value in values:
            found: Any = kind.FromString(value)  # parsed in C: reading the fields makes objects
            is_open = found.is_open if found.HasField("is_open") else None
            _ = (found.id, found.customer, found.amount, is_open, list(found.tags))

    yield beside(
        "decode.protobuf",
        decoder(Format.PROTOBUF, PROTO, values),
        with_google,
        "google.protobuf, one call a value",
    )


def as_json(rows: list[Any]) -> Iterator[Comparison]:
    values = [json.dumps(row).encode() for row in rows]
    decode = decoder(Format.JSON, DDL, values)
    damaged = [b"{" if number % 100 == 0 else value for number, value in enumerate(values)]

    def with_json(texts: list[bytes]) -> None:
        for text in texts:
            with contextlib.suppress(ValueError):
                json.loads(text)

    yield beside("decode.json", decode, lambda: with_json(values), "json.loads")
    yield beside(
        "decode.json.bad_1%",
        decoder(Format.JSON, DDL, damaged, bad=len(damaged) // 100),
        lambda: with_json(damaged),
        "json.loads",
    )


def decoder(
    kind: Format, schema: str, values: list[bytes], *, bad: int = 0
) -> Callable[[], object]:
    """Return what decodes all values; those of Avro have a registry's header."""
    is_framed = kind is Format.AVRO
    header = struct.pack(">bi", 0, 1) if is_framed else b""
    column = pa.array([header + value for value in values])
    spec = DecoderSpec(format=kind, schema=schema, is_framed=is_framed)
    opened = open_decoder(spec.resolve())
    decoded = opened.decode(column)
    assert decoded.errors.null_count == len(values) - bad
    return lambda: opened.decode(column)


def beside(
    bench: str, ours: Callable[[], object], peer: Callable[[], object], name: str
) -> Comparison:
    rates = interleaved(rate(ours), rate(peer), rounds=ROUNDS)
    return Comparison(bench, *rates, name, "values/s")


def rate(work: Callable[[], object]) -> Callable[[], float]:
    """Return what measures values per second of processor time."""

    def measure() -> float:
        start = time.process_time()
        work()
        return ROWS / (time.process_time() - start)

    return measure
