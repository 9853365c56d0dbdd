"""Avro as columns, compared with fastavro: schemas and values at random, bad bytes of all kinds."""

import json
import pickle
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlog.decoding import avro_values
from streamlog.decoding.avro_layout import STACK_SIZE
from streamlog.decoding.decoded import DecodedValues
from streamlog.decoding.decoder import DecoderSpec, Format, open_decoder
from streamlog.decoding.schema_text import SchemaText
from streamlog.decoding.writer_schemas import WriterSchemas
from streamlog.errors import InvalidOptionError
from streamlog.fs.local import LocalFileSystem
from tests.decoding.avro_schemas import Pair, encode, pairs
from tests.twins.avro import plain_decode_avro

MANY = settings(suppress_health_check=list(HealthCheck), deadline=None)


def decode(writer: Any, reader: Any, values: list[bytes | None]) -> DecodedValues:
    """Decode framed values with schema 1, the writer's."""
    writers = WriterSchemas("none", SchemaText(""), LocalFileSystem())
    writers.find = lambda _: SchemaText(json.dumps(writer))  # type: ignore[method-assign]
    text = SchemaText(json.dumps(reader))
    decoder = avro_values.AvroDecoder(text, writers, is_framed=True)
    framed = [None if value is None else b"\0\0\0\0\1" + value for value in values]
    decoded = decoder.decode(pa.array(framed, pa.binary()))
    decoded.values.validate(full=True)
    assert decoded.values.type == decoder.arrow_type
    assert len(decoded.values) == len(decoded.errors) == len(values)
    return decoded


def record(*fields: Any, **more: Any) -> Any:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": schema} for name, schema in fields],
        **more,
    }


@MANY
@given(st.data(), pairs())
def test_decoding_many_is_decoding_each_with_fastavro(data: st.DataObject, pair: Pair) -> None:
    values = data.draw(st.lists(pair.values, min_size=1, max_size=6))
    encoded = [encode(pair.writer, value) for value in values]
    expected = [plain_decode_avro(pair.writer, pair.reader, value) for value in encoded]
    decoded = decode(pair.writer, pair.reader, [*encoded, None])
    assert decoded.errors.null_count == len(values) + 1, decoded.errors
    assert decoded.values.to_pylist() == [*expected, None]


@MANY
@given(st.data(), pairs())
def test_bad_bytes_are_errors_of_their_values(data: st.DataObject, pair: Pair) -> None:
    good = encode(pair.writer, data.draw(pair.values))
    bad = [good[: data.draw(st.integers(0, len(good)))], data.draw(st.binary(max_size=40))]
    mutated = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        if mutated:
            mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    values = [good, *bad, bytes(mutated), good]
    decoded = decode(pair.writer, pair.reader, values)
    rows, errors = decoded.values, decoded.errors.to_pylist()
    assert errors[0] is None
    assert errors[4] is None
    for row, error in enumerate(errors):
        if error is not None:
            assert not rows[row].is_valid
            assert "\n" not in error


def test_a_block_cannot_claim_more_than_the_value_has() -> None:
    items = record(("a", {"type": "array", "items": "long"}))
    empty = record(("a", {"type": "array", "items": "null"}), ("b", "int"))
    huge = encode("long", 1 << 60)
    for schema in (items, empty, record(("x", {**items, "name": "I"}))):
        for reader in (schema, record(("z", ["null", "int"]))):
            if reader is not schema:
                reader = {**reader, "fields": [{**reader["fields"][0], "default": None}]}
            decoded = decode(schema, reader, [huge, encode("long", -(1 << 63)) + b"\0"])
            assert decoded.errors.null_count == 0, decoded
    nested: Any = "int"
    for _ in range(60):
        nested = {"type": "array", "items": nested}
    with pytest.raises(InvalidOptionError):
        decode(nested, {"type": "array", "items": nested}, [])


def test_a_writer_may_contain_itself_where_the_reader_skips() -> None:
    tree = record(("v", "int"), ("next", ["null", "R"]))
    reader = record(("v", "int"))
    deep = b"\2\2" * (STACK_SIZE * 2) + b"\2\0"
    decoded = decode(tree, reader, [b"\2\0", b"\2\2\4\2\6\0", deep])
    assert [row and row["v"] for row in decoded.values.to_pylist()] == [1, 1, None]
    assert "deep" in decoded.errors[2].as_py()
    with pytest.raises(InvalidOptionError, match="contains itself"):
        decode(tree, tree, [])


def test_schemas_that_do_not_fit_are_errors_of_the_values() -> None:
    decoded = decode(record(("a", "string")), record(("a", "int")), [b"\2a"])
    assert decoded.errors.to_pylist() == ["field a: the writer has string, the reader expects int"]
    decoded = decode(record(("a", ["int", "string"])), record(("a", "long")), [b"\0\2", b"\2\2a"])
    assert decoded.values.to_pylist() == [{"a": 1}, None]
    decoded = decode(record(("a", "int")), record(("b", "int")), [b"\2"])
    assert "no default" in decoded.errors[0].as_py()


def test_unframed_values_and_keys_of_one_type() -> None:
    spec = DecoderSpec(format=Format.AVRO, schema='"string"', is_framed=False)
    decoder = open_decoder(pickle.loads(pickle.dumps(spec.resolve())))
    decoded = decoder.decode(pa.array([b"\4ab", b"\4a", None, b"\2\xff"]))
    assert decoder.arrow_type == pa.string()
    assert decoded.values.to_pylist() == ["ab", None, None, None]
    assert decoded.errors.to_pylist() == [
        None,
        "the value ends inside, at byte 0",
        None,
        "a string is not UTF-8, at byte 0",
    ]


@pytest.mark.parametrize("text", ["", "{", '"unknown"', '{"type": "record"}', "[" * 5000])
def test_invalid_schema_is_an_error_before_any_value(text: str) -> None:
    with pytest.raises(InvalidOptionError):
        DecoderSpec(format=Format.AVRO, schema=text).resolve()


def test_columns_grow_with_what_is_read() -> None:
    """The first rows are small, the last ones large; a list of fixed and text has many cells."""
    inner = record(("t", "string"), ("f", {"type": "fixed", "name": "F", "size": 3}))
    schema = record(("a", {"type": "array", "items": {**inner, "name": "I"}}), ("s", "string"))
    value = {"a": [{"t": "x" * 50, "f": b"abc"}] * 3000, "s": "y" * 100_000}
    small = {"a": [], "s": ""}
    values = [*[small] * 50, value, small, value]
    decoded = decode(schema, schema, [encode(schema, each) for each in values])
    assert decoded.values.to_pylist() == values


def test_memory_follows_what_is_read() -> None:
    """One large value among many small ones must not make room for as many large ones."""
    schema = record(
        *((f"s{n}", "string") for n in range(20)), ("a", {"type": "array", "items": "int"})
    )
    small = encode(schema, {**{f"s{n}": "" for n in range(20)}, "a": []})
    large = encode(schema, {**{f"s{n}": "" for n in range(19)}, "s19": "x" * 500_000, "a": [1] * 9})
    for values in ([large, *[small] * 5000], [*[small] * 5000, large]):
        column = pa.array([b"\0\0\0\0\1" + value for value in values])
        decoder = open_decoder(DecoderSpec(format=Format.AVRO, schema=json.dumps(schema)).resolve())
        tracemalloc.start()
        decoded = decoder.decode(column)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert decoded.errors.null_count == len(values)
        assert peak < 20 * column.nbytes, (peak, column.nbytes)
