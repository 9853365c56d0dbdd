"""JSON Schemas as columns, and values that Confluent's serializer wrote with them."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from streamlog.arrow.table_writer import write_table
from streamlog.arrow.tables import read_table
from streamlog.decoding.ddl import type_of_ddl
from streamlog.decoding.decoder import DecoderSpec, Format, open_decoder
from streamlog.decoding.json_schema import type_of_json_schema
from streamlog.decoding.schema_text import SchemaText
from streamlog.errors import InvalidOptionError
from streamlog.root.manager import LogManager
from tests.support.cli import streamlog
from tests.support.schema_registry import any_registry

STR, INT, NUM, BOOL = ({"type": name} for name in ("string", "integer", "number", "boolean"))
NULL = {"type": "null"}


def properties(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


def type_of(schema: Any, *references: tuple[str, Any]) -> pa.DataType:
    named = tuple((name, json.dumps(each)) for name, each in references)
    return type_of_json_schema(SchemaText(json.dumps(schema), named))


MANY: dict[str, Any] = {
    f"d{n}": properties(a={"$ref": f"#/$defs/d{n + 1}"}, b={"$ref": f"#/$defs/d{n + 1}"})
    for n in range(40)
}
MANY["d40"] = INT
ADDRESS = properties(city=STR, zip=INT)
FORMS: list[tuple[Any, str]] = [
    (
        properties(a=INT, b=NUM, c=STR, d=BOOL),
        "a BIGINT, b DOUBLE, c STRING, d BOOLEAN",
    ),
    ({"properties": {"a": {"items": INT}}}, "a ARRAY<BIGINT>"),
    (
        properties(a={"type": ["null", "string"]}, b={"type": ["integer", "number"]}),
        "a STRING, b DOUBLE",
    ),
    (
        properties(a={"oneOf": [NULL, INT]}, b={"anyOf": [INT, NUM, NULL]}),
        "a BIGINT, b DOUBLE",
    ),
    (
        properties(a={"enum": ["x", None]}, b={"enum": [1, 2]}, c={"const": 1.5}),
        "a STRING, b BIGINT, c DOUBLE",
    ),
    (properties(a={"type": "string", "enum": ["x"], "format": "date-time"}), "a STRING"),
    (properties(a={"type": "object", "additionalProperties": INT}), "a MAP<STRING, BIGINT>"),
    (properties(a={"patternProperties": {"^x": STR}}), "a MAP<STRING, STRING>"),
    ({**properties(a=INT), "additionalProperties": STR}, "a BIGINT"),
    (properties(a={"type": "array", "prefixItems": [INT, NUM]}), "a ARRAY<DOUBLE>"),
    (
        properties(a={"type": "array", "items": [STR, STR], "additionalItems": False}),
        "a ARRAY<STRING>",
    ),
    (
        {
            "$defs": {"A": ADDRESS},
            **properties(
                a={"$ref": "#/$defs/A"}, b={"type": "array", "items": {"$ref": "#/$defs/A"}}
            ),
        },
        "a STRUCT<city: STRING, zip: BIGINT>, b ARRAY<STRUCT<city: STRING, zip: BIGINT>>",
    ),
    (
        {"definitions": {"a/b c": INT}, **properties(a={"$ref": "#/definitions/a~1b%20c"})},
        "a BIGINT",
    ),
    (
        {"$defs": {"x": {"$anchor": "here", **STR}}, **properties(a={"$ref": "#here"})},
        "a STRING",
    ),
    ({"$ref": "#/$defs/A", "$defs": {"A": ADDRESS}}, "city STRING, zip BIGINT"),
    (
        {"allOf": [ADDRESS, properties(city={"maxLength": 9}, at=STR)]},
        "city STRING, zip BIGINT, at STRING",
    ),
    (
        {
            "type": "object",
            "oneOf": [properties(kind=STR, a=INT), properties(kind=STR, b=NUM)],
        },
        "kind STRING, a BIGINT, b DOUBLE",
    ),
    (properties(a=INT, b={"$ref": "#/properties/a"}), "a BIGINT, b BIGINT"),
]
REFUSED: list[tuple[Any, str]] = [
    (properties(a={}), "values of any type for field a"),
    (properties(a={"type": "array"}), r"values of any type for field a\[\]"),
    (properties(a={"type": "object"}), "an object without known fields for field a"),
    (properties(a={"b": properties(c=True)["properties"]["c"]}), "any type"),
    (properties(a={"oneOf": [STR, INT]}), "either a string or an integer for field a"),
    (
        properties(a={"type": ["object", "string"], "properties": {"x": INT}}),
        "either an object or a string",
    ),
    (properties(a={"anyOf": [properties(x=INT), properties(x=STR)]}), "for field a.x"),
    (properties(a={"type": "array", "items": [STR, INT]}), r"for field a\[\]"),
    (properties(a={"$ref": "#"}), "contains itself"),
    ({"$defs": {"T": properties(n={"$ref": "#/$defs/T"})}, "$ref": "#/$defs/T"}, "contains itself"),
    (properties(a={"$ref": "#/$defs/none"}), "a reference to nothing"),
    (properties(a={"$ref": "other.json"}), "unknown reference, 'other.json'"),
    (properties(a={"$ref": "https://example.com/x"}), "unknown reference"),
    (properties(a={"type": "date"}), 'the type "date"'),
    (properties(a=False), "false instead of a schema"),
    ({"type": "record", "name": "R", "fields": []}, 'the type "record"'),
    (NULL, "nothing but null"),
    ({"properties": 1}, "properties without an object"),
    ({"allOf": {}}, "allOf without a list"),
    ({"$defs": MANY, "$ref": "#/$defs/d0"}, "too large"),
    (json.loads('{"items":' * 300 + "1" + "}" * 300), "too deep"),
]


@pytest.mark.parametrize(("schema", "ddl"), FORMS)
def test_a_schema_has_columns(schema: Any, ddl: str) -> None:
    assert type_of(schema) == type_of_ddl(ddl)
    decoder = open_decoder(DecoderSpec(format=Format.JSON, schema=json.dumps(schema)).resolve())
    assert decoder.arrow_type == type_of_ddl(ddl)


@pytest.mark.parametrize(("schema", "reason"), REFUSED)
def test_what_has_no_columns_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(InvalidOptionError, match=reason):
        DecoderSpec(format=Format.JSON, schema=json.dumps(schema)).resolve()


def test_references_are_found_by_name_and_by_id() -> None:
    base = {"$id": "https://example.com/order.json", **properties(a={"$ref": "address.json"})}
    expected = type_of_ddl("a STRUCT<city: STRING, zip: BIGINT>")
    assert type_of(base, ("address.json", ADDRESS)) == expected
    assert type_of(base, ("https://example.com/address.json", ADDRESS)) == expected
    assert type_of(base, ("x", {**ADDRESS, "$id": "https://example.com/address.json"})) == expected
    inside = {"$defs": {"P": {"$ref": "#/$defs/Q"}, "Q": ADDRESS}}
    assert type_of(properties(a={"$ref": "b.json#/$defs/P"}), ("b.json", inside)) == expected
    bundled = {**base, "$defs": {"any": {"$id": "address.json", **ADDRESS}}}
    assert type_of(bundled) == expected


SIMPLE = st.sampled_from([STR, INT, NUM, BOOL, {"type": ["integer", "null"]}, {"enum": ["a", "b"]}])
SCHEMAS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3).map(
            lambda fields: properties(**fields)
        ),
        inner.map(lambda items: {"type": "array", "items": items}),
        inner.map(lambda values: {"type": "object", "additionalProperties": values}),
        inner.map(lambda one: {"anyOf": [one, NULL]}),
    ),
    max_leaves=6,
)


def values_of(schema: Any) -> st.SearchStrategy[Any]:
    """Return values that a schema allows; of an object, some fields are missing."""
    if "anyOf" in schema:
        return st.none() | values_of(schema["anyOf"][0])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds: dict[str, Any] = {
        "string": st.text(st.characters(codec="utf-8"), max_size=5),
        "integer": st.integers(-(2**63), 2**63 - 1),
        "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
        "boolean": st.booleans(),
    }
    kind = schema["type"]
    if isinstance(kind, list):
        return st.none() | kinds["integer"]
    if kind == "array":
        return st.lists(values_of(schema["items"]), max_size=3)
    if kind == "object" and "properties" in schema:
        fields = {name: values_of(each) for name, each in schema["properties"].items()}
        return st.fixed_dictionaries({}, optional=fields)
    if kind == "object":
        inner = values_of(schema["additionalProperties"])
        return st.dictionaries(st.text("xyz", max_size=2), inner, max_size=3)
    found: st.SearchStrategy[Any] = kinds[kind]
    return found


def shaped(value: Any, kind: pa.DataType) -> Any:
    """Return a value as a column of its type shows it: all fields, and entries of maps."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: shaped(value.get(each.name), each.type) for each in kind}
    if pa.types.is_list(kind):
        return [shaped(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return [(name, shaped(each, kind.item_type)) for name, each in value.items()]
    return value


@given(st.data(), SCHEMAS)
def test_values_that_a_schema_allows_are_decoded(data: st.DataObject, schema: Any) -> None:
    schema = properties(v=schema)
    values = data.draw(st.lists(values_of(schema), min_size=1, max_size=4))
    for value in values:
        jsonschema.validate(value, schema)
    decoder = open_decoder(DecoderSpec(format=Format.JSON, schema=json.dumps(schema)).resolve())
    encoded = [b"\0\0\0\0\1" + json.dumps(value).encode() for value in values]
    decoded = decoder.decode(pa.array(encoded, pa.binary()))
    assert decoded.errors.null_count == len(values), decoded.errors
    assert decoded.values.to_pylist() == [shaped(value, decoder.arrow_type) for value in values]


DRAFT_7 = "http://json-schema.org/draft-07/schema#"  # Apicurio demands it of a text
KEY = {"$schema": DRAFT_7, **STR}
WORDS = ["type", "properties", "items", "enum", "const", "$ref", "allOf", "anyOf", "$defs", "$id"]
TEXTS = st.sampled_from(["object", "array", "string", "null", "#", "#/$defs/a", "a", "#a", ""])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*WORDS, "a", "prefixItems"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(WORDS), ANYTHING, max_size=4))
def test_any_json_has_columns_or_is_refused(schema: Any) -> None:
    try:
        assert open_decoder(
            DecoderSpec(format=Format.JSON, schema=json.dumps(schema)).resolve()
        ).arrow_type
    except InvalidOptionError as error:
        assert "\n" not in str(error)


ORDER: dict[str, Any] = {
    "$schema": DRAFT_7,
    "title": "Order",
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "state": {"enum": ["new", "sent"]},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "to": {"$ref": "address.json"},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
    },
    "definitions": {"line": properties(sku=STR, price=NUM)},
}
ROWS = [
    {"id": 1, "state": "new", "note": None, "to": {"city": "Ulm", "zip": 7}, "lines": []},
    {"id": 2, "lines": [{"sku": "a", "price": 1.5}, {"sku": "b", "price": 2}], "more": True},
]
EXPECTED = [
    {**ROWS[0], "lines": []},
    {"id": 2, "state": None, "note": None, "to": None, "lines": ROWS[1]["lines"]},
]


def test_values_of_confluents_serializer_are_columns(tmp_path: Path) -> None:
    """With a schema of a registry, one of a directory, and on the command line."""
    topic = f"json-{tmp_path.parent.name}-{tmp_path.name}"
    with any_registry() as url:
        client = SchemaRegistryClient({"url": url})
        client.register_schema(f"{topic}-address", Schema(json.dumps(ADDRESS), "JSON"))
        reference = SchemaReference("address.json", f"{topic}-address", 1)
        schema = Schema(json.dumps(ORDER), "JSON", [reference])
        serialize = JSONSerializer(schema, client)
        keys = JSONSerializer(json.dumps(KEY), client)
        of_value = SerializationContext(topic, MessageField.VALUE)
        of_key = SerializationContext(topic, MessageField.KEY)
        values = [serialize(row, of_value) for row in ROWS]
        assert values[0][:1] == b"\0"
        root = str(tmp_path / "root")
        with LogManager.open(root, create=True) as manager:
            manager.create_topic(topic, 1)
        key = keys("k", of_key)
        rows = pa.table({"key": [key] * 3, "value": [*values, values[0][:5] + b'{"id":"x"}']})
        write_table(rows, root, topic)
        options: Any = {"key_format": "json", "value_format": "json"}
        table = read_table(root, topic, schema_registry=url, **options)
        ran = streamlog("--path", root, "cat", topic, "-s", "json", "-r", url, "-o", "0..2")
        directory = tmp_path / "schemas"
        directory.mkdir()
        (directory / "address.json").write_text(json.dumps(ADDRESS))
        (directory / f"{topic}-value.json").write_text(json.dumps(ORDER))
        (directory / f"{topic}-key.json").write_text(json.dumps(KEY))
        again = read_table(root, topic, schema_registry=str(directory), **options)
    assert table.column("value").to_pylist() == [*EXPECTED, None]
    assert table.column("key").to_pylist() == ["k"] * 3
    errors = table.column("_error").to_pylist()
    assert errors[:2] == [None, None]
    assert errors[2]["message"] == 'field id: got "x", expected int64'
    assert errors[2]["schemaId"] == int.from_bytes(values[0][1:5], "big")
    assert again.equals(table)
    assert [row["value"] for row in ran.rows] == ROWS
    assert [row["key"] for row in ran.rows] == ["k"] * 2


def test_values_other_than_objects() -> None:
    decoder = open_decoder(
        DecoderSpec(
            format=Format.JSON, schema='{"type": "array", "items": {"type": "integer"}}'
        ).resolve()
    )
    of_map = json.dumps({"type": "object", "additionalProperties": INT})
    of_maps = open_decoder(DecoderSpec(format=Format.JSON, schema=of_map).resolve())
    maps = of_maps.decode(pa.array([b'{"a": 1}', b"{}", b'{"a": "x"}']))
    assert maps.values.to_pylist() == [[("a", 1)], [], None]
    assert maps.errors[2].as_py() == 'field a: got "x", expected int64'
    decoded = decoder.decode(pa.array([b"[1, 2]", b" [] ", b"1", b"null", b"[1.5]", None]))
    assert decoded.values.to_pylist() == [[1, 2], [], None, None, None, None]
    assert decoded.errors.to_pylist()[2:] == [
        "got 1, expected list<item: int64>",
        "got null, expected list<item: int64>",
        "field [0]: got 1.5, expected int64",
        None,
    ]
