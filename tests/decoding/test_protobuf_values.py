"""Protobuf as columns, compared with google.protobuf: random messages, bad bytes of all kinds."""

import pickle
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import message_factory
from google.protobuf.message import DecodeError, Message
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamlog.binary.arrays import as_source
from streamlog.decoding.decoded import DecodedValues
from streamlog.decoding.decoder import DecoderSpec, Format, open_decoder
from streamlog.decoding.protobuf_kernels import measure_indexes
from streamlog.decoding.protobuf_layout import BAD_INDEXES
from streamlog.decoding.protobuf_schema import parse_protobuf
from streamlog.errors import InvalidOptionError
from tests.twins.protobuf import plain_decode_protobuf, plain_measure_indexes

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
message Order {
  message Line { string sku = 1; sint32 count = 2; repeated double prices = 3; Note note = 4; }
  message Note { string text = 1; map<int32, bytes> parts = 2; }
  enum State { NEW = 0; SENT = 5; LOST = -1; }
  int64 id = 1;
  optional string name = 2;
  double price = 3;
  float weight = 4;
  bool is_open = 5;
  State state = 6;
  repeated Line lines = 7;
  map<string, Line> by_sku = 8;
  oneof payment { uint64 card = 9; string cash = 10; bytes token = 11; }
  google.protobuf.Timestamp at = 12;
  google.protobuf.Duration took = 13;
  google.protobuf.StringValue comment = 14;
  repeated google.protobuf.Int64Value seen = 15;
  repeated State states = 16;
  repeated string tags = 17;
  uint32 u = 18; uint64 uu = 19; fixed32 f = 20; fixed64 ff = 21; sfixed32 s = 22;
  sfixed64 ss = 23; sint64 z = 24; int32 i = 25;
  repeated fixed64 many = 26 [packed = false];
  Order parent = 1000;
  Note note = 536870911;
}
message Other { int32 id = 1; }
"""
OLD = """
syntax = "proto2";
message Old {
  required int32 a = 1;
  optional string b = 2 [default = "x"];
  repeated int32 c = 3;
  repeated int32 d = 4 [packed = true];
  optional bytes e = 5 [default = "\\001"];
}
"""
MANY = settings(suppress_health_check=list(HealthCheck), deadline=None)
NUMBERS = {
    "i32": st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3),
    "i64": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    "u32": st.integers(0, 2**32 - 1),
    "u64": st.integers(0, 2**64 - 1) | st.integers(0, 3),
}
TEXT = st.text(max_size=8)
NOTE = st.fixed_dictionaries(
    {}, optional={"text": TEXT, "parts": st.dictionaries(NUMBERS["i32"], st.binary(max_size=4))}
)
DOUBLES = st.floats(allow_nan=False)
LINE = st.fixed_dictionaries(
    {},
    optional={
        "sku": TEXT,
        "count": NUMBERS["i32"],
        "prices": st.lists(DOUBLES, max_size=3),
        "note": NOTE,
    },
)
STATES = st.sampled_from([0, 5, -1, 99])
TIME = st.fixed_dictionaries(
    {"seconds": st.integers(-(10**10), 10**10), "nanos": st.integers(0, 999_999_999)}
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": NUMBERS["i64"],
    "name": TEXT,
    "price": DOUBLES,
    "weight": st.floats(width=32, allow_nan=False),
    "is_open": st.booleans(),
    "state": STATES,
    "lines": st.lists(LINE, max_size=3),
    "by_sku": st.dictionaries(TEXT, LINE, max_size=3),
    "card": NUMBERS["u64"],
    "cash": TEXT,
    "token": st.binary(max_size=5),
    "at": TIME,
    "took": TIME,
    "comment": st.fixed_dictionaries({"value": TEXT}),
    "seen": st.lists(st.fixed_dictionaries({"value": NUMBERS["i64"]}), max_size=3),
    "states": st.lists(STATES, max_size=3),
    "tags": st.lists(TEXT, max_size=3),
    "u": NUMBERS["u32"],
    "uu": NUMBERS["u64"],
    "f": NUMBERS["u32"],
    "ff": NUMBERS["u64"],
    "s": NUMBERS["i32"],
    "ss": NUMBERS["i64"],
    "z": NUMBERS["i64"],
    "i": NUMBERS["i32"],
    "many": st.lists(NUMBERS["u64"], max_size=3),
    "parent": st.fixed_dictionaries({"id": NUMBERS["i64"]}),
    "note": NOTE,
}
ORDERS = st.fixed_dictionaries({}, optional=FIELDS)


@cache
def decoder_of(schema: str, message: str | None = None, registry: str | None = None) -> Any:
    spec = DecoderSpec(
        format=Format.PROTOBUF,
        schema=schema,
        message=message,
        registry=registry,
        is_framed=registry is not None,
    )
    return open_decoder(pickle.loads(pickle.dumps(spec.resolve())))


@cache
def kind_of(schema: str, message: str) -> type[Message]:
    from streamlog.decoding.schema_text import SchemaText

    return message_factory.GetMessageClass(parse_protobuf(SchemaText(schema)).message(message))


def order(**fields: Any) -> bytes:
    return kind_of(PROTO, "shop.Order")(**fields).SerializeToString()


def decode(values: list[bytes | None], decoder: Any = None) -> DecodedValues:
    decoder = decoder or decoder_of(PROTO)
    decoded: DecodedValues = decoder.decode(pa.array(values, pa.binary()))
    decoded.values.validate(full=True)
    assert decoded.values.type == decoder.arrow_type
    return decoded


def ordered(value: Any) -> Any:
    """Return a value with the entries of its maps in order."""
    if isinstance(value, dict):
        return {name: ordered(each) for name, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted((key, ordered(each)) for key, each in value)
    return [ordered(each) for each in value] if isinstance(value, list) else value


@MANY
@given(st.lists(ORDERS, min_size=1, max_size=5))
def test_decoding_many_is_decoding_each_with_googles_library(orders: list[Any]) -> None:
    values = [order(**fields) for fields in orders]
    decoded = decode([*values, None])
    kind = kind_of(PROTO, "shop.Order")
    expected = [plain_decode_protobuf(kind, value) for value in values]
    assert decoded.errors.null_count == len(values) + 1, decoded.errors
    assert ordered(decoded.values.to_pylist()) == [*map(ordered, expected), None]


@MANY
@given(ORDERS, ORDERS, st.data())
def test_merged_and_bad_bytes(one: Any, other: Any, data: st.DataObject) -> None:
    """Two messages one after the other are merged; other bytes fail where Google's fail."""
    kind = kind_of(PROTO, "shop.Order")
    good = order(**one) + order(**other)
    mutated = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        if mutated:
            mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    cut = good[: data.draw(st.integers(0, len(good)))]
    values = [good, cut, bytes(mutated), data.draw(st.binary(max_size=30)), order(id=7)]
    decoded = decode([*values])
    rows, errors = decoded.values.to_pylist(), decoded.errors.to_pylist()
    assert rows[0] is not None or "oneof" in errors[0]
    assert rows[-1]["id"] == 7
    for value, row, error in zip(values, rows, errors, strict=True):
        assert (row is None) == (error is not None)
        try:
            expected = plain_decode_protobuf(kind, value)
        except (DecodeError, OverflowError):
            expected = None
        if row is not None and expected is not None and value in (good, cut):
            assert ordered({**row, "parent": 0}) == ordered({**expected, "parent": 0})
        if expected is None and value not in (good, cut):
            continue
        assert error is None or expected is None or "out of range" in error or "oneof" in error


def test_old_syntax_packed_or_not() -> None:
    kind = kind_of(OLD, "Old")
    value = kind(a=1, c=[1, -1], d=[7, 300]).SerializeToString()
    swapped = b"\x08\x01\x1a\x0c\x01" + b"\xff" * 9 + b"\x01\x00" + b"\x20\x07\x20\xac\x02"
    decoded = decode([value, swapped], decoder_of(OLD))
    first = {"a": 1, "b": None, "c": [1, -1], "d": [7, 300], "e": None}
    assert decoded.values.to_pylist() == [first, {**first, "c": [1, -1, 0]}]


def test_unknown_fields_and_groups_are_skipped() -> None:
    unknown = b"\xfa\x3f\x03abc" + b"\xf3\x3f\x08\x01\xfb\x3f\xfc\x3f\xf4\x3f" + b"\xf5\x3fabcd"
    bad_groups = [b"\xf3\x3f", b"\xf4\x3f", b"\xf3\x3f\xfc\x3f", b"\xf3\x3f" * 1000]
    decoded = decode([unknown + order(id=3), *bad_groups])
    assert [row and row["id"] for row in decoded.values.to_pylist()] == [3, None, None, None, None]


def test_repeated_keys_of_a_map_keep_the_last() -> None:
    entry = b"\x42\x09\x0a\x01k\x12\x04\x0a\x02"  # by_sku: k -> sku
    decoded = decode([entry + b"aa" + entry + b"bb", order(by_sku={"k": {}})])
    assert [[line["sku"] for _, line in row["by_sku"]] for row in decoded.values.to_pylist()] == [
        ["bb"],
        [""],
    ]


def test_columns_grow_with_what_is_read() -> None:
    large = {"lines": [{"sku": "x" * 40, "prices": [1.0] * 9}] * 3000, "tags": ["y"] * 5000}
    values = [*[order(id=1)] * 40, order(**large), order(id=2), order(**large)]
    decoded = decode([*values])
    kind = kind_of(PROTO, "shop.Order")
    assert decoded.values.to_pylist() == [plain_decode_protobuf(kind, each) for each in values]


def test_header_names_the_message(tmp_path: Any) -> None:
    (tmp_path / "7.proto").write_text(PROTO)
    nested = [b"\0\0\0\0\7" + each for each in (b"\0", b"\2\0", b"\4\0\0", b"\2\2", b"\2\4", b"\2")]
    unknown = b"\0\0\0\0\1\0"
    orders = decoder_of(PROTO, None, str(tmp_path))
    found = decode([*(each + order(id=1)[:0] for each in nested), unknown, b"{}", None], orders)
    assert [row is not None for row in found.values.to_pylist()] == [True] * 2 + [False] * 7
    assert found.errors.to_pylist()[2:] == [
        "message shop.Order.Line, expected shop.Order",
        "message shop.Other, expected shop.Order",
        "no message [2] in the writer's schema 7",
        "the indexes of the message in the header are cut off or too many",
        f"unknown schema id 1 in {tmp_path}",
        "no header of a schema registry: expected a zero byte and a schema id",
        None,
    ]
    others = decoder_of(PROTO, "shop.Other", str(tmp_path))
    assert decode([b"\0\0\0\0\7\2\2\x08\5"], others).values.to_pylist() == [{"id": 5}]


@given(st.lists(st.binary(max_size=14) | st.just(b"\x80" * 12), min_size=1))
@example([b"\2\0", b"\0", b"\x42" + b"\1" * 33, b"\1"])
def test_measure_indexes_agrees_with_its_twin(values: list[bytes]) -> None:
    data = b"".join(values)
    ends = np.cumsum([len(value) for value in values])
    starts = ends - [len(value) for value in values]
    sizes = np.zeros(len(values), np.int64)
    measure_indexes(as_source(data + b"\1" * 8), starts, ends, sizes)
    for value, size in zip(values, sizes.tolist(), strict=True):
        try:
            expected = plain_measure_indexes(value, 0)
        except ValueError:
            expected = BAD_INDEXES
        assert size == expected


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("message", None),
        ('syntax = "proto3";', None),
        (PROTO, "shop.None"),
        ('syntax="proto3"; import "x/y.proto"; message A { x.B b = 1; }', None),
    ],
)
def test_invalid_schema_is_an_error_before_any_value(schema: str, message: str | None) -> None:
    spec = DecoderSpec(format=Format.PROTOBUF, schema=schema, message=message, is_framed=False)
    with pytest.raises(InvalidOptionError):
        spec.resolve()
