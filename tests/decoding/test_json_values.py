"""JSON as columns: every value decodes or has an error of its own."""

import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.decoding.decoded import DecodedValues
from streamlog.decoding.decoder import DecoderSpec, Format, open_decoder
from streamlog.decoding.json_inference import infer_json_schema
from streamlog.decoding.json_values import convert_value
from streamlog.errors import InvalidOptionError, InvalidRequestError

DDL = "id BIGINT, name STRING, price DOUBLE, ok BOOLEAN, tags ARRAY<STRING>, at STRUCT<x: INT>"


def decode(values: list[bytes | None], schema: str = DDL) -> DecodedValues:
    resolved = DecoderSpec(format=Format.JSON, schema=schema).resolve()
    decoder = open_decoder(pickle.loads(pickle.dumps(resolved)))
    decoded = decoder.decode(pa.array(values, pa.binary()))
    decoded.values.validate(full=True)
    assert decoded.values.type == decoder.arrow_type
    return decoded


def test_bad_values_are_errors_of_their_rows_only() -> None:
    good = b'{"id": 1, "name": "a", "other": [1, {}]}'
    bad = [b"", b"[1]", b'{"id":1}{"id":2}', b'{"id":\xff}', b"null", b'{"id":5', b'{"id":1.5}']
    values = [good, None, *(each for value in bad for each in (value, good))]
    decoded = decode(values)
    for value, row, error in zip(values, *map(pa.Array.to_pylist, decoded[:2]), strict=True):
        assert (row is None) == (value != good)
        assert (error is None) == (value == good or value is None)
        assert row is None or (row["id"], row["name"], row["at"]) == (1, "a", None)
    assert decoded.errors[14].as_py() == "field id: got 1.5, expected int64"


def test_header_of_a_registry_is_detected() -> None:
    decoded = decode([b'\0\0\0\1\2{"id":1}', b'{"id":2}', b"\0\0\0\0\1"])
    assert [row and row["id"] for row in decoded.values.to_pylist()] == [1, 2, None]
    assert decoded.schema_ids.to_pylist() == [258, None, 1]
    assert decoded.errors.null_count == 2


def test_a_slice_of_a_column_is_decoded_in_place() -> None:
    values = pa.array([b"x", b'\0\0\0\0\1{"id":1}', b" {\n} ", None, b'{"id":3}', b"y"])
    decoder = open_decoder(DecoderSpec(format=Format.JSON, schema=DDL).resolve())
    decoded = decoder.decode(values[1:5])
    assert [row and row["id"] for row in decoded.values.to_pylist()] == [1, None, None, 3]
    assert decoded.errors.null_count == 4


def test_types_of_spark() -> None:
    schema = (
        "m MAP<STRING, INT>, b BINARY, d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, x DECIMAL(5,2),"
        " `a b` SMALLINT NOT NULL COMMENT 'text'"
    )
    value = {
        "m": {"k": 1},
        "b": "YQ==",
        "d": "2024-02-29",
        "t": "2024-02-29T12:00:00+02:00",
        "n": "2024-02-29 12:00:00",
        "x": 1.25,
        "a b": 7,
    }
    found = decode([json.dumps(value).encode()], schema).values.to_pylist()[0]
    assert [str(each) for each in found.values()] == [
        "[('k', 1)]",
        "b'a'",
        "2024-02-29",
        "2024-02-29 10:00:00+00:00",
        "2024-02-29 12:00:00",
        "1.25",
        "7",
    ]
    plain = schema.split(", ", 2)[2].split(", ", 1)[1]  # without map and binary: by pyarrow
    again = decode([json.dumps(value).encode()], plain).values.to_pylist()[0]
    assert all(found[name] == again[name] for name in again)


@pytest.mark.parametrize(
    "schema", ["", "id", "id BIG", "id INT, id INT", "a ARRAY<INT", "a DECIMAL(99)", "{", "a INT;"]
)
def test_invalid_schema_is_an_error_before_any_value(schema: str) -> None:
    with pytest.raises(InvalidOptionError):
        DecoderSpec(format=Format.JSON, schema=schema).resolve()


LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "name", "price", "tags", "at", "x"]), inner)
    ),
    max_leaves=10,
)
TEXTS = st.one_of(
    DOCUMENTS.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.integers(-(2**63), 2**63 - 1),
            "name": st.text(),
            "price": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-100, 100),
            "ok": st.booleans(),
            "tags": st.lists(st.text(max_size=3) | st.none(), max_size=3),
            "at": st.fixed_dictionaries({"x": st.integers(-(2**31), 2**31 - 1)}) | st.none(),
        },
    ).map(lambda value: json.dumps(value, indent=1).encode()),
    st.binary(max_size=8),
)


@given(st.lists(TEXTS, min_size=1, max_size=12))
def test_decoding_many_is_decoding_each(values: list[bytes]) -> None:
    decoded = decode(list(values))
    kind = decoded.values.type
    for value, row, error in zip(values, *map(pa.Array.to_pylist, decoded[:2]), strict=True):
        if value.startswith(b"\0") and len(value) >= 5:
            value = value[5:]
        try:
            expected = convert_value(value, kind)
        except ValueError:
            expected = None
        assert (row is None) == (error is not None) == (expected is None), (value, row, error)
        assert row is None or pa.scalar(expected, kind).as_py() == row


def test_inferred_schema_reads_the_sample() -> None:
    values = [
        {"id": 1, "a": [1, 2.5], "s": {"t": "2024-01-01T00:00:00Z"}, "n": None, "x": True},
        {"id": 2, "a": [], "s": {"u": "2024"}, "odd name": "y"},
    ]
    sample = pa.array([*(json.dumps(value).encode() for value in values), b"bad", None])
    schema = infer_json_schema(sample)
    assert schema == (
        "`id` BIGINT, `a` ARRAY<DOUBLE>, `s` STRUCT<`t`: TIMESTAMP, `u`: STRING>,"
        " `n` STRING, `x` BOOLEAN, `odd name` STRING"
    )
    assert decode(sample.to_pylist(), schema).errors.null_count == 3
    with pytest.raises(InvalidRequestError):
        infer_json_schema(pa.array([b"1", b"{}"]))
